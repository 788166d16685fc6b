"""Values within the cells of a column of numbers or dates: ranges of whole numbers from which synthesis draws.

``ValueParts`` has for each cell its parts, in each of which all numbers are equally likely. ``within`` keeps the
numbers of some ranges alone, for a condition that cuts a cell.

All values here are public. Representation: numbers are those of `mechanisms.cells`, in the unit of the column's cells.
Limits: preferred last digits (``endings``) move a drawn number within its part, and do not change the parts' shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.cells import Cells
from mechanisms.columns import Moment, Ordered, fine_cells, parted_cells
from mechanisms.digits import at_place, mean_between, place_before
from mechanisms.moments import moment_of
from mechanisms.numbers import Real, number_endings
from mechanisms.private_bins import place_of
from mechanisms.sampling import PublicGenerator

Range = tuple[int, int]
"""First and last number of a range, both included."""


@dataclass(frozen=True, slots=True, eq=False)
class ValueParts:
    """Parts of a column's ``size`` cells: each is in the cell ``codes``, from ``first`` to ``last``, all (parts,).

    ``shares`` (parts,) is the chance of a draw from the cell to come from this part. Parts are ordered by their cells.
    """

    size: int
    codes: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, column: Ordered) -> ValueParts:
        """Returns the parts from which ``column`` writes values; they are the whole cells, unless it says more."""
        cells, size = column.cells, len(column.cells.ranges)
        if column.within:
            parted = parted_cells(column)
            owners = np.repeat(np.arange(size), np.diff(parted.first))
            weights = 1 / np.diff(parted.first)[owners]
            return cls._from(size, owners, parted.fine, parts=parted.parts, weights=weights)
        if column.private is not None and column.private.measured:
            fine = fine_cells(column)
            owners = place_of(column.private.groups(fine), len(fine.ranges)).astype(np.int64)
            found = column.private.weights(fine).astype(np.float64)
            weights = found / np.bincount(owners, found, minlength=size)[owners]
            return cls._from(size, owners, fine, parts=np.arange(len(fine.ranges)), weights=weights)
        return cls._from(size, np.arange(size), cells, parts=np.arange(size), weights=np.ones(size))

    @classmethod
    def _from(
        cls,
        size: int,
        owners: NDArray[np.int64],
        fine: Cells,
        *,
        parts: Iterable[int],
        weights: NDArray[np.float64],
    ) -> ValueParts:
        found = [
            (owner, low, high, weight * (high - low + 1) / numbers)
            for owner, part, weight in zip(owners.tolist(), parts, weights.tolist(), strict=True)
            for ranges in [list(_without_atoms(fine, int(part)))]
            for numbers in [sum(high - low + 1 for low, high in ranges)]
            for low, high in ranges
            if weight > 0
        ]
        return cls._of_rows(size, found)

    @classmethod
    def _of_rows(cls, size: int, rows: Sequence[tuple[int, int, int, float]]) -> ValueParts:
        codes, first, last, shares = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(
            size,
            np.array(codes, np.int64),
            np.array(first, np.int64),
            np.array(last, np.int64),
            np.array(shares, np.float64),
        )

    @property
    def cell_shares(self) -> NDArray[np.float64]:
        """Sum of the parts' shares in each cell, (size,): the share of its draws that the parts hold."""
        found = np.bincount(self.codes, self.shares, minlength=self.size)
        return found.astype(np.float64)

    def within(self, ranges: Sequence[Range]) -> ValueParts:
        """Returns the parts of the numbers in ``ranges``, which do not overlap, with the shares of these numbers."""
        found = []
        rows = zip(
            *(x.tolist() for x in (self.codes, self.first, self.last, self.shares)), strict=True
        )
        for code, first, last, share in rows:
            for low, high in ranges:
                start, end = max(first, low), min(last, high)
                if start <= end:
                    found.append(
                        (code, start, end, share * ((end - start + 1) / (last - first + 1)))
                    )
        return self._of_rows(self.size, found)

    def draw(
        self, column: Ordered, codes: NDArray[np.int32], generator: PublicGenerator
    ) -> NDArray[np.int64]:
        """Returns for each code (rows,) a number from one of its cell's parts, by their shares.

        Every code needs a part with a positive share.
        """
        sums = np.cumsum(self.shares)
        starts, ends = (np.searchsorted(self.codes, codes, side=side) for side in ("left", "right"))
        before = np.concatenate([[0.0], sums])
        points = before[starts] + generator.random(len(codes)) * (before[ends] - before[starts])
        part = np.clip(np.searchsorted(sums, points, side="right"), starts, ends - 1)
        numbers = generator.integers(self.first[part], self.last[part], endpoint=True)
        if not isinstance(column, Moment) and column.endings:
            ranges = np.stack([self.first[part], self.last[part]], axis=1)
            numbers = number_endings(column).moved(numbers, ranges, column.cells.atoms, generator)
        return np.asarray(numbers, np.int64)


def write_numbers(column: Ordered, numbers: NDArray[np.int64]) -> NDArray[np.object_]:
    """Returns numbers of the column's cells (rows,) as it writes them; each distinct one is written once."""
    drawn = numbers.tolist()
    if isinstance(column, Moment):
        form, unit = column.shape, column.unit
        texts = {number: form.write(moment_of(number, unit)) for number in dict.fromkeys(drawn)}
    else:
        texts = {number: column.text_of(number) for number in dict.fromkeys(drawn)}
    return np.array([texts[number] for number in drawn], object)


def number_before(column: Ordered, value: Fraction) -> Fraction:
    """Returns the number of ``column``'s cells that has a value; one half above the last one before it if none has."""
    if not isinstance(column, Real):
        return value
    scaled = value * 10**column.places
    return scaled if column.digits is None else place_before(scaled, column.digits)


def values_at(column: Ordered, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the values of numbers of the column's cells, any shape; between two numbers in proportion."""
    if not isinstance(column, Real):
        return numbers
    if column.digits is None:
        return np.asarray(numbers / 10**column.places, np.float64)
    found = [_value_at(column, column.digits, number) for number in numbers.ravel().tolist()]
    return np.array(found).reshape(numbers.shape)


def _value_at(column: Real, digits: int, number: float) -> float:
    before = math.floor(number)
    low, high = (at_place(place, digits) for place in (before, before + 1))
    return float((low + Fraction(number - before) * (high - low)) / 10**column.places)


def means_of(column: Ordered, parts: ValueParts) -> NDArray[np.float64]:
    """Returns the mean value of each of ``parts``' ranges, whose numbers are equally likely: (parts,)."""
    if not isinstance(column, Real) or column.digits is None:
        return values_at(column, (parts.first + parts.last) / 2)
    ranges = zip(parts.first.tolist(), parts.last.tolist(), strict=True)
    means = [mean_between(first, last, column.digits) for first, last in ranges]
    return np.array([float(mean / 10**column.places) for mean in means])


def _without_atoms(cells: Cells, code: int) -> Iterator[Range]:
    """Yields the ranges of a cell's numbers between the atoms that lie within it."""
    first, last = cells.ranges[code]
    if first in cells.atoms:
        yield first, last
        return
    for atom in sorted(atom for atom in cells.atoms if first < atom < last):
        if first < atom:
            yield first, atom - 1
        first = atom + 1
    if first <= last:
        yield first, last
