"""Whole numbers in cells: bins side by side, and single numbers (atoms) with a cell of their own.

Every column of numbers or dates is a column of whole numbers in some unit: years, cents, days. ``Cells`` has the cells,
``PartedCells`` has cells whose bins have parts. Bins begin at equal distances (``equal_starts``) or in equal
proportions (``log_starts``, ``symlog_starts``).

Representation: codes follow the smallest number of their cells. A bin whose numbers are all atoms is no cell.
Limits: numbers of 64 bits. Log bins are rounded up to whole numbers after 40 digits, alike on every machine, since
`decimal` rounds each operation correctly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal

import numpy as np
from numpy.typing import NDArray

from mechanisms.sampling import PublicGenerator

_DIGITS = Context(prec=60)
_KEPT = Context(prec=40)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Cells of whole numbers: ``ranges`` by code, both ends included; ``atoms`` by number; ``bins`` the other codes.

    An atom may lie within a bin's range and still is not one of the bin's numbers. ``marks`` are codes of cells of one
    number that often marks something else, such as -99.
    """

    ranges: tuple[tuple[int, int], ...]
    atoms: Mapping[int, int]
    bins: tuple[int, ...]
    starts: tuple[int, ...]
    marks: frozenset[int] = frozenset()

    @classmethod
    def cut(cls, starts: Sequence[int], last: int, atoms: Iterable[int] = ()) -> Cells:
        """Returns bins that begin at the ascending ``starts``, the last of which ends with ``last``, and the ``atoms``.

        Atoms may lie anywhere.
        """
        apart = frozenset(atoms)
        ends = [*(start - 1 for start in starts[1:]), last]
        bins = [_without_ends(*ends_of, apart) for ends_of in zip(starts, ends, strict=True)]
        left = [(first, final) for first, final in bins if first <= final]
        ranges = sorted([*left, *((atom, atom) for atom in apart)])
        return cls(
            tuple(ranges),
            {first: code for code, (first, _) in enumerate(ranges) if first in apart},
            tuple(code for code, (first, _) in enumerate(ranges) if first not in apart),
            tuple(first for first, _ in left),
        )

    def code_of(self, number: int) -> int | None:
        """Returns the code of a number; None outside of all cells."""
        if (code := self.atoms.get(number)) is not None:
            return code
        place = bisect_right(self.starts, number) - 1
        if place < 0 or number > self.ranges[self.bins[place]][1]:
            return None
        return self.bins[place]

    def marked(self, numbers: Iterable[int]) -> Cells:
        """Returns the same cells with those of the ``numbers`` that have one of their own as ``marks``."""
        codes = {code for number in numbers if (code := self.code_of(number)) is not None}
        apart = (code for code in codes if self.ranges[code][0] == self.ranges[code][1])
        return replace(self, marks=frozenset(apart))

    def draw(self, codes: NDArray[np.int32], generator: PublicGenerator) -> NDArray[np.int64]:
        """Returns for each code, of any shape, a number uniform among those of its cell."""
        ranges = np.array(self.ranges, np.int64)
        first, last = ranges[:, 0], ranges[:, 1]
        inside = [(atom, code) for atom in sorted(self.atoms) for code in self._bin_around(atom)]
        # Draw as if the bin ended earlier by its number of atoms; then every number from an atom on moves up by one.
        free = last.copy()
        for _, code in inside:
            free[code] -= 1
        drawn = generator.integers(first[codes], free[codes], endpoint=True)
        for atom, code in inside:
            drawn[(codes == code) & (drawn >= atom)] += 1
        return np.asarray(drawn, np.int64)

    def _bin_around(self, number: int) -> list[int]:
        """Returns the code of the bin whose range contains ``number``, in a list; empty if there is none."""
        place = bisect_right(self.starts, number) - 1
        code = self.bins[place] if place >= 0 else -1
        return [code] if code >= 0 and self.ranges[code][1] > number else []


@dataclass(frozen=True, slots=True, eq=False)
class PartedCells:
    """Cells made of finer cells.

    Cell c consists of the ``fine`` codes ``parts[first[c]] .. parts[first[c + 1] - 1]``.
    """

    fine: Cells
    parts: NDArray[np.int32]
    first: NDArray[np.int64]

    @classmethod
    def of(cls, cells: Cells, fine: Cells) -> PartedCells:
        """Builds parted cells from ``fine``, which has every start and atom of ``cells`` and the same bounds."""
        owners = np.array([cells.code_of(start) for start, _ in fine.ranges], np.int64)
        counts = np.bincount(owners, minlength=len(cells.ranges))
        # An atom within a bin comes between the bin's parts, so parts are ordered by their cell.
        parts = np.argsort(owners, kind="stable").astype(np.int32)
        return cls(fine, parts, np.concatenate([[0], np.cumsum(counts)]))

    def draw(self, codes: NDArray[np.int32], generator: PublicGenerator) -> NDArray[np.int64]:
        """Returns for each code a number uniform within one of the cell's parts, with all parts equally likely."""
        places = generator.integers(self.first[codes], self.first[np.asarray(codes) + 1])
        return self.fine.draw(self.parts[places], generator)


def equal_starts(first: int, count: int, bins: int) -> list[int]:
    """Returns the starts of ``bins`` bins that divide ``count`` numbers from ``first`` on.

    There are no more bins than numbers. Bins differ by one number at most.
    """
    used = min(bins, count)
    # Bin i begins at first + ceil(i count / used).
    return [first - (-code * count // used) for code in range(used)]


def log_starts(low: int, high: int, bins: int) -> list[int]:
    """Returns the starts of bins with the edges ``low`` (high / low)^(i / bins), rounded up; ``low`` is above 0.

    Bins at the lower end that hold no whole number are left out.
    """
    logarithm = _DIGITS.ln(Decimal(high)) - _DIGITS.ln(Decimal(low))
    starts = {low}
    for code in range(1, bins):
        factor = _DIGITS.exp(_DIGITS.divide(_DIGITS.multiply(logarithm, code), bins))
        edge = _KEPT.multiply(factor, low)
        starts.add(int(edge.to_integral_value(ROUND_CEILING, _DIGITS)))
    return sorted(start for start in starts if start <= high)


def symlog_starts(low: int, high: int, bins: int) -> list[int]:
    """Returns the starts of at most ``bins`` bins that grow in proportion on both sides of zero, a bin of its own.

    Each side has bins in proportion to the number of doublings of its numbers; a side that ends above zero begins
    there.
    """
    if low > 0:
        return log_starts(low, high, bins)
    if high < 0:
        return _mirrored(log_starts(-high, -low, bins), -low)
    # Doublings from 1 to the end of each side.
    below, above = (-low).bit_length(), high.bit_length()
    left = max(0, bins - 1)
    of_below = left * below // max(1, below + above)
    starts = [0]
    if below:
        starts = [*_mirrored(log_starts(1, -low, max(1, of_below)), -low), *starts]
    if above:
        starts += log_starts(1, high, max(1, left - of_below))
    return starts


def _mirrored(starts: Sequence[int], last: int) -> list[int]:
    """Returns the starts of the bins that mirror those from ``starts`` up to ``last`` at zero."""
    ends = [*(start - 1 for start in starts[1:]), last]
    return [-end for end in reversed(ends)]


def _without_ends(first: int, last: int, atoms: frozenset[int]) -> tuple[int, int]:
    """Returns a range shortened by the atoms at either end; empty (first above last) if only atoms were in it."""
    while first <= last and first in atoms:
        first += 1
    while last >= first and last in atoms:
        last -= 1
    return first, last
