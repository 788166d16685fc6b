"""Columns of numbers: whole numbers, and numbers with decimals.

Numbers are cut into bins: ``bins`` of equal width between public bounds, both included; or in equal proportions
(``scale = "log"``, or ``"symlog"`` on both sides of zero); or between given ``edges``, the last bin closed. ``atoms``
are values with a cell of their own, within the bounds or not; the bins exclude them. ``within`` cuts bins between edges
into parts; a value is drawn from one of them, all equally likely, and the number of cells stays the same. With
``private`` bins the cells are fine ones until they have been measured, and afterwards those that follow from the
measurement (`mechanisms.private_bins`).

``form`` is the spelling of numbers other than plain digits (`mechanisms.spelling`). ``marks`` are texts among the
numbers, such as ``<5`` or ``refused``: each has a code of its own, behind those of the numbers.

All values here are public. Source: FLAIM paper, section 5 (32 uniform bins).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mechanisms.cells import Cells, PartedCells, equal_starts, log_starts, symlog_starts
from mechanisms.column_parts import (
    DEFAULT_BINS,
    LINEAR,
    LOG,
    PRIVATE,
    SCALES,
    SYMLOG,
    cell_labels,
    check_atoms,
    check_bins,
    check_edges,
    check_marks,
    check_name,
    check_within,
    mark_labels,
    numbers_dict,
    or_atoms,
    up_to,
    write_marked,
)
from mechanisms.digits import MAX_DIGITS, MOST_DECIMALS, at_place, place_of, place_of_text
from mechanisms.endings import Endings
from mechanisms.errors import DomainError
from mechanisms.private_bins import (
    MAX_RESOLUTION,
    PrivateBins,
    check_private,
    equal_cells,
    fine_starts,
)
from mechanisms.sampling import PublicGenerator
from mechanisms.scale_free import MARKS, number_starts
from mechanisms.spelling import FRACTION, Clock, Numeral, plain_number, spelling_of, spelt_number
from mechanisms.written import (
    first_multiple,
    last_multiple,
    multiple_of,
    parse_number,
    parse_whole,
    write_multiple,
)

MAX_DECIMALS = 15


@dataclass(frozen=True, slots=True)
class Integer:
    """A column of whole numbers ``low`` .. ``high``, both included, in bins of equal width or by ``scale``.

    If the width is not whole, bins differ by one number at most. With ``edges`` the first is ``low``, the last
    ``high``, and ``bins`` is not used.

    Raises ``DomainError`` if the bounds are out of order or beyond 64 bits, or there is no bin.
    """

    name: str
    low: int
    high: int
    bins: int = DEFAULT_BINS
    missing: bool = False
    edges: tuple[int, ...] = ()
    scale: str = LINEAR
    atoms: tuple[int, ...] = ()
    private: PrivateBins | None = None
    within: tuple[int, ...] = ()
    form: str = ""
    marks: tuple[str, ...] = ()
    endings: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        check_bins(self.name, self.bins)
        if self.low > self.high:
            raise DomainError(f"column {self.name!r}: low = {self.low} is above high = {self.high}")
        if min(self.low, *self.atoms, 0) < -(2**63) or max(self.high, *self.atoms, 0) >= 2**63:
            raise DomainError(
                f"column {self.name!r}: low = {self.low}, high = {self.high}; 64 bits hold whole numbers"
            )
        _check_cells(self, zero="0")
        _check_written(self)

    @property
    def kind(self) -> str:
        """Name of the kind in a configuration."""
        return "integer"

    @property
    def values(self) -> int:
        """Number of whole numbers between the bounds."""
        return self.high - self.low + 1

    @property
    def used_bins(self) -> int:
        """Number of cells, without the missing one; never more than values."""
        if self.edges or self.atoms or self.private or self.scale != LINEAR:
            return len(self.cells.ranges)
        return min(self.bins, self.values)

    @property
    def cells(self) -> Cells:
        """Cells of the column's numbers."""
        return _integer_cells(self)

    @property
    def size(self) -> int:
        """Number of codes, including the missing one."""
        return self.used_bins + len(self.marks) + self.missing

    @property
    def allowed(self) -> str:
        """Description of the allowed values, for an error message."""
        others = or_atoms((*self.atoms, *self.marks))
        return f"a whole number from {self.low} to {self.high}{others}{_as_in(self)}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each code, without the missing one: the lower end of a bin, or "= " an atom."""
        firsts = [self.text_of(first) for first, _ in self.cells.ranges]
        if self.private is not None and self.private.free:
            firsts[0] = up_to(self.text_of(self.cells.ranges[0][1]))
        return cell_labels(self.cells, firsts) + mark_labels(self.marks)

    def code_of(self, value: str) -> int | None:
        """Returns the code of a written value that is not missing; None if it is not allowed."""
        if value in self.marks:
            return self.used_bins + self.marks.index(value)
        number = parse_whole(self.plain(value))
        return None if number is None else self.cells.code_of(number)

    def plain(self, value: str) -> str:
        """Returns a written value in digits alone; "" if it is not in the column's spelling."""
        return plain_number(self.form, value)

    def text_of(self, number: int) -> str:
        """Returns a whole number as the column writes it."""
        return spelt_number(self.form, str(number))

    def bin_range(self, code: int) -> tuple[int, int]:
        """Returns the smallest and the largest whole number with this code (not the missing one)."""
        return self.cells.ranges[code]

    def write(self, codes: NDArray[np.int32], generator: PublicGenerator) -> NDArray[np.object_]:
        """Returns for each code but the missing one a number uniform in its cell, or a mark, as text."""
        return write_marked(
            self.marks, self.used_bins, codes, lambda present: _written(self, present, generator)
        )

    def to_dict(self) -> dict[str, object]:
        """Returns the ``[[column]]`` table of a configuration."""
        document = numbers_dict(
            self.name,
            self.kind,
            bounds=(self.low, self.high, self.bins),
            missing=self.missing,
            edges=self.edges,
            scale=self.scale,
            atoms=self.atoms,
            marks=self.marks,
            private=self.private.to_dict() if self.private else None,
            within=self.within,
        )
        document |= {"format": self.form} if self.form else {}
        return document | ({"endings": dict(self.endings)} if self.endings else {})


@dataclass(frozen=True, slots=True)
class Real:
    """A column of numbers ``low`` .. ``high``, both included, in bins of equal width or by ``scale``.

    With ``decimals``, values and bounds are first rounded to so many places (ties to even) and are whole multiples from
    then on; no bin is without one. With ``digits`` as well, they are rounded to so many significant digits where that
    is coarser, and are counted instead (`mechanisms.digits`): bins of equal width have about equal proportions then.
    Without decimals, a bin contains exactly the doubles between its ends, and an atom one double; ``places`` affects
    writing only.

    Raises ``DomainError`` if the bounds are not finite or out of order, there is no bin, or bins cannot be told apart
    in 15 digits (64 bits of multiples).
    """

    name: str
    low: float
    high: float
    bins: int = DEFAULT_BINS
    missing: bool = False
    edges: tuple[float, ...] = ()
    scale: str = LINEAR
    atoms: tuple[float, ...] = ()
    decimals: int | None = None
    private: PrivateBins | None = None
    within: tuple[float, ...] = ()
    form: str = ""
    marks: tuple[str, ...] = ()
    endings: tuple[tuple[str, float], ...] = ()
    digits: int | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        check_bins(self.name, self.bins)
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise DomainError(
                f"column {self.name!r}: low = {self.low}, high = {self.high};"
                " real bounds are finite and low is below high"
            )
        most = MAX_DECIMALS if self.digits is None else MOST_DECIMALS
        if self.decimals is not None and not 0 <= self.decimals <= most:
            raise DomainError(
                f"column {self.name!r}: decimals = {self.decimals}; 0 to {most} are possible"
            )
        _check_significant(self)
        _check_cells(self, zero="0.0")
        self._check_digits()
        _check_written(self)

    @property
    def kind(self) -> str:
        """Name of the kind in a configuration."""
        return "real"

    @property
    def bin_edges(self) -> tuple[float, ...]:
        """Edges of the bins; bin i is [edge i, edge i+1), the last one closed."""
        if self.edges:
            return self.edges
        if self.digits is not None:
            low, high = (_rounded(self, bound) for bound in (self.low, self.high))
            starts = equal_starts(low, high - low + 1, self.bins)
            return (*map(self.value_of, starts), self.high)
        if self.scale == SYMLOG:
            unit = 10 ** (self.decimals or 0)
            low, high = (_rounded(self, bound) for bound in (self.low, self.high))
            return (*(start / unit for start in symlog_starts(low, high, self.bins)), self.high)
        if self.scale == LOG:
            ratio = (self.high / self.low) ** (1 / self.bins)
            return (*(self.low * ratio**i for i in range(self.bins)), self.high)
        step = (self.high - self.low) / self.bins
        return (*(self.low + i * step for i in range(self.bins)), self.high)

    @property
    def places(self) -> int:
        """Number of written decimals: those given, or enough for a hundred values of the narrowest bin."""
        if self.decimals is not None:
            return self.decimals
        width = (self.high - self.low) / self.bins
        if self.edges or self.scale != LINEAR:
            width = min(after - before for before, after in pairwise(self.bin_edges))
        return max(0, 2 - math.floor(math.log10(width)))

    @property
    def cells(self) -> Cells:
        """Cells of the column's multiples of 10^-places."""
        return _real_cells(self)

    @property
    def size(self) -> int:
        """Number of codes, including the missing one."""
        if self.decimals is None:
            bins = len(self.edges) - 1 if self.edges else self.bins
            return bins + len(self.atoms) + len(self.marks) + self.missing
        return len(self.cells.ranges) + len(self.marks) + self.missing

    @property
    def allowed(self) -> str:
        """Description of the allowed values, for an error message."""
        others = or_atoms((*self.atoms, *self.marks))
        return f"a number from {self.low:g} to {self.high:g}{others}{_as_in(self)}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each code, without the missing one: the lower end of a bin, or "= " an atom."""
        if self.decimals is None and not self.atoms:
            lower = tuple(f"{edge:.4g}" for edge in self.bin_edges[:-1])
            return lower + mark_labels(self.marks)
        firsts = [f"{self.value_of(first):.4g}" for first, _ in self.cells.ranges]
        if self.private is not None and self.private.free:
            firsts[0] = up_to(f"{self.value_of(self.cells.ranges[0][1]):.4g}")
        return cell_labels(self.cells, firsts) + mark_labels(self.marks)

    def code_of(self, value: str) -> int | None:
        """Returns the code of a written value that is not missing; None if it is not allowed."""
        if value in self.marks:
            return self.size - self.missing - len(self.marks) + self.marks.index(value)
        value = self.plain(value)
        if self.decimals is not None:
            multiple = self.multiple(value)
            return None if multiple is None else self.cells.code_of(multiple)
        number = parse_number(value)
        if number in self.atoms:
            return self.cells.atoms[first_multiple(number, self.places)]
        if number is None or not self.low <= number <= self.high:
            return None
        edges, bins = _edges_of(self), self.cells.bins
        return bins[min(bisect_right(edges, number), len(bins)) - 1]

    def plain(self, value: str) -> str:
        """Returns a written value in digits alone; "" if it is not in the column's spelling."""
        return plain_number(self.form, value)

    def multiple(self, plain: str) -> int | None:
        """Returns the multiple of 10^-places of a plain number, or its place with ``digits``; None for no number."""
        if self.digits is None:
            return multiple_of(plain, self.places)
        return place_of_text(plain, self.places, self.digits)

    def value_of(self, multiple: int) -> float:
        """Returns the number k / 10^places, or the one at the place k with ``digits``."""
        return float(self._exact(multiple) / 10**self.places)

    def plain_of(self, multiple: int) -> str:
        """Returns the same number in digits alone."""
        return write_multiple(self._exact(multiple), self.places)

    def text_of(self, multiple: int) -> str:
        """Returns the same number as the column writes it."""
        return spelt_number(self.form, self.plain_of(multiple))

    def bin_multiples(self, code: int) -> tuple[int, int]:
        """Returns the smallest and the largest k for which k / 10^places has this code (not the missing one)."""
        return self.cells.ranges[code]

    def write(self, codes: NDArray[np.int32], generator: PublicGenerator) -> NDArray[np.object_]:
        """Returns for each code but the missing one a multiple uniform in its cell, or a mark, as text."""
        present = self.size - self.missing - len(self.marks)
        return write_marked(
            self.marks, present, codes, lambda present: _written(self, present, generator)
        )

    def to_dict(self) -> dict[str, object]:
        """Returns the ``[[column]]`` table of a configuration."""
        decimals = {} if self.decimals is None else {"decimals": self.decimals}
        document = numbers_dict(
            self.name,
            self.kind,
            bounds=(self.low, self.high, self.bins),
            missing=self.missing,
            edges=self.edges,
            scale=self.scale,
            atoms=self.atoms,
            marks=self.marks,
            private=self.private.to_dict() if self.private else None,
            within=self.within,
        )
        document |= decimals | ({} if self.digits is None else {"digits": self.digits})
        document |= {"format": self.form} if self.form else {}
        return document | ({"endings": dict(self.endings)} if self.endings else {})

    def _exact(self, multiple: int) -> int:
        return multiple if self.digits is None else at_place(multiple, self.digits)

    def _check_digits(self) -> None:
        if self.digits is not None:
            for atom in self.atoms:
                if self.value_of(_rounded(self, atom)) != atom:
                    raise DomainError(
                        f"column {self.name!r}: the atom {atom} has more than {self.digits} digits; raise digits"
                    )
            return
        width = min(after - before for before, after in pairwise(self.bin_edges))
        largest = max(abs(x) for x in (self.low, self.high, *self.atoms))
        digits = (
            0 < width < math.inf
            and self.places <= MAX_DECIMALS
            and largest * 10**self.places < (2**53 if self.decimals is None else 2**62)
        )
        if not digits:
            raise DomainError(
                f"column {self.name!r}: bins of low = {self.low} .. high = {self.high} need more than"
                " 15 digits; use another unit, fewer bins or fewer decimals"
            )
        for atom in self.atoms:
            if first_multiple(atom, self.places) != last_multiple(atom, self.places):
                raise DomainError(
                    f"column {self.name!r}: the atom {atom} has more than {self.places} decimals; set decimals"
                )
        if self.decimals is None:
            if self.atoms and self.size - self.missing - len(self.marks) != len(self.cells.ranges):
                raise DomainError(f"column {self.name!r}: atoms take all of a bin; set decimals")
        elif self.scale == LOG and not _rounded(self, self.low):
            raise DomainError(
                f"column {self.name!r}: low = {self.low} is 0 with {self.decimals} decimals, which has no place on a"
                " log scale; more decimals or a higher low"
            )


def _check_significant(column: Real) -> None:
    digits = column.digits
    if digits is None:
        return
    if not 1 <= digits <= MAX_DIGITS or column.decimals is None:
        raise DomainError(
            f"column {column.name!r}: digits = {digits}; 1 to {MAX_DIGITS} are possible, beside decimals"
        )
    if column.scale != LINEAR or column.endings:
        beside = f'scale = "{column.scale}"' if column.scale != LINEAR else "endings"
        raise DomainError(
            f"column {column.name!r}: digits stand beside {beside}; their bins grow in proportion, and they have no "
            "last decimal: expected one of both"
        )


def _check_cells(column: Integer | Real, *, zero: str) -> None:
    name = column.name
    if column.scale not in SCALES:
        raise DomainError(
            f'column {name!r}: scale = {column.scale!r}; it is "linear", "log" or "symlog"'
        )
    if column.scale == LOG and column.low <= 0:
        raise DomainError(
            f'column {name!r}: scale = "log" needs low above 0; a zero gets a cell of its own with'
            f' atoms = [{zero}], and negative numbers have no place on it; "symlog" has both'
        )
    if column.scale == SYMLOG and isinstance(column, Real) and column.decimals is None:
        raise DomainError(
            f'column {name!r}: scale = "symlog" needs decimals, to which values are rounded'
        )
    if not all(math.isfinite(atom) for atom in column.atoms):
        raise DomainError(f"column {name!r}: atoms are finite numbers")
    check_atoms(name, column.atoms)
    if column.edges:
        check_edges(name, column.edges)
        if (column.edges[0], column.edges[-1]) != (column.low, column.high):
            raise DomainError(f"column {name!r}: low and high are the first and the last edge")
        if column.scale != LINEAR:
            raise DomainError(
                f'column {name!r}: edges stand beside scale = "{column.scale}"; give one'
            )
    check_within(name, column.edges, column.within)
    if column.private is None:
        return
    if isinstance(column, Real) and column.decimals is None:
        raise DomainError(
            f'column {name!r}: bins = "{PRIVATE}" needs decimals, to which values are rounded'
        )
    fine = len(fine_number_cells(column).ranges)
    check_private(name, column.private, fine, edges=column.edges, atoms=column.atoms)


def _check_written(column: Integer | Real) -> None:
    if column.form:
        spelling = spelling_of(column.form)
        if spelling is None or (isinstance(spelling, Clock) and isinstance(column, Real)):
            raise DomainError(
                f'column {column.name!r}: format = {column.form!r}; numbers are written as in "$#,##0.00",'
                ' "0.0%" or "#.##0,00;(#.##0,00)", whole units of time as in "%H:%M" or "%-Hh %-Mm"'
            )
        if isinstance(spelling, Clock) and spelling.within_a_day:
            last = (spelling.day or 0) - 1
            ends = [column.low, column.high, *column.atoms]
            if min(ends) < 0 or max(ends) > last:
                raise DomainError(
                    f"column {column.name!r}: {min(ends)} to {max(ends)} with format = {column.form!r}; times of a day "
                    f"are 0 to {last}"
                )
    check_marks(column.name, column.marks, lambda mark: parse_number(column.plain(mark)))
    if column.endings and isinstance(column, Real) and column.decimals is None:
        raise DomainError(
            f"column {column.name!r}: endings need decimals, the last of which they are"
        )
    if column.endings:
        number_endings(column)


def number_endings(column: Integer | Real) -> Endings:
    """Returns the last digits that a column's numbers have; it has ``endings``."""
    clock = spelling_of(column.form) if column.form else None
    sixty = isinstance(clock, Clock) and clock.letters[-1] != FRACTION
    return Endings(column.name, column.endings, sixty)


def _as_in(column: Integer | Real) -> str:
    """Returns the format, for an error message."""
    return f", as in {column.form}" if column.form else ""


def _written(
    column: Integer | Real, codes: NDArray[np.int32], generator: PublicGenerator
) -> NDArray[np.object_]:
    """Returns a text for each code of numbers; each distinct number is written once."""
    numbers = _drawn(column, codes, generator)
    if column.endings:
        cells = column.cells
        ranges = np.array(cells.ranges, np.int64)[codes]
        numbers = number_endings(column).moved(numbers, ranges, cells.atoms, generator)
    drawn = numbers.tolist()
    spelling = spelling_of(column.form) if column.form else None
    if isinstance(spelling, Numeral) and spelling.scale:
        drawn = _on_steps(column, spelling, drawn, codes=codes.tolist())
    texts = {number: column.text_of(number) for number in dict.fromkeys(drawn)}
    return np.array([texts[number] for number in drawn], object)


def _on_steps(
    column: Integer | Real, numeral: Numeral, drawn: Sequence[int], *, codes: Sequence[int]
) -> list[int]:
    """Returns the numbers that are written with the decimals of ``numeral``, each the nearest of its cell.

    A number stays where its cell has none, apart from those that are cells of themselves.
    """
    if isinstance(column, Real) and (column.decimals is None or column.digits is not None):
        return list(drawn)
    places = column.places if isinstance(column, Real) else 0
    cells, moved = column.cells, dict[tuple[int, int], int]()
    for number, code in dict.fromkeys(zip(drawn, codes, strict=True)):
        step = int(numeral.step(Decimal(number).scaleb(-places)).scaleb(places))
        low, high = cells.ranges[code]
        near = [number // step * step + shift for shift in (0, step)] if step > 1 else []
        near = [
            each
            for each in near
            if low <= each <= high and (each not in cells.atoms or cells.atoms[each] == code)
        ]
        moved[number, code] = min(near, key=lambda each: abs(each - number), default=number)
    return [moved[each] for each in zip(drawn, codes, strict=True)]


def _drawn(
    column: Integer | Real, codes: NDArray[np.int32], generator: PublicGenerator
) -> NDArray[np.int64]:
    """Returns a number for each code: uniform in its cell, or in its fine cell if those were measured."""
    if column.within:
        return parted_number_cells(column).draw(codes, generator)
    if column.private is None or not column.private.measured:
        return column.cells.draw(codes, generator)
    return column.private.draw_within(fine_number_cells(column), codes, generator)


@lru_cache(512)
def parted_number_cells(column: Integer | Real) -> PartedCells:
    """Returns the column's cells with the parts that ``within`` cuts them into."""
    finer = replace(column, edges=tuple(sorted({*column.edges, *column.within})), within=())
    return PartedCells.of(column.cells, finer.cells)


@lru_cache(512)
def fine_number_cells(column: Integer | Real) -> Cells:
    """Returns the cells that a column with private bins has before they are measured.

    They lie side by side: none is an atom within another one.
    """
    if isinstance(column, Real):
        low, high = (_rounded(column, bound) for bound in (column.low, column.high))
    else:
        low, high = column.low, column.high
    if column.private is not None and column.private.free:
        return Cells.cut(_free_starts(column, low, high), high).marked(_marks(column))
    resolution = MAX_RESOLUTION if column.private is None else column.private.resolution
    bins = equal_cells(resolution, high - low + 1)
    return Cells.cut(fine_starts(_starts(column.scale, low, high, bins), low, high), high)


def _marks(column: Integer | Real) -> list[int]:
    """Returns the numbers that mark something else, in the unit of the column's cells."""
    unit = 10**column.places if isinstance(column, Real) else 1
    digits = column.digits if isinstance(column, Real) else None
    return [mark * unit if digits is None else place_of(mark * unit, digits) for mark in MARKS]


def _free_starts(column: Integer | Real, low: int, high: int) -> list[int]:
    """Returns the starts of the public grid's cells; those of an earlier run's grid if its histogram has as many."""
    starts = _grid_starts(column, low, high, counters=True)
    known = 0 if column.private is None else len(column.private.histogram)
    if known not in (0, len(starts)):
        before = _grid_starts(column, low, high, counters=False)
        return before if known == len(before) else starts
    return starts


def _grid_starts(column: Integer | Real, low: int, high: int, *, counters: bool) -> list[int]:
    if isinstance(column, Integer):
        return number_starts(0, low, high, counters=counters)
    if column.digits is None:
        return number_starts(column.places, low, high, counters=counters)
    least, most = (at_place(end, column.digits) for end in (low, high))
    grid = number_starts(column.places, least, most, counters=counters)
    starts = {place_of(start, column.digits) for start in grid}
    # The next number behind a mark is one digit away, and not one unit.
    return sorted({*starts, *(mark + 1 for mark in _marks(column) if low <= mark < high)})


def _starts(scale: str, low: int, high: int, bins: int) -> list[int]:
    """Returns the starts of bins on a scale."""
    if scale == LOG:
        return log_starts(low, high, bins)
    if scale == SYMLOG:
        return symlog_starts(low, high, bins)
    return equal_starts(low, high - low + 1, bins)


@lru_cache(512)
def _integer_cells(column: Integer) -> Cells:
    if column.private is not None:
        return column.private.cells_of(fine_number_cells(column))
    if column.edges:
        starts: Sequence[int] = column.edges[:-1]
    else:
        starts = _starts(column.scale, column.low, column.high, column.bins)
    return Cells.cut(starts, column.high, column.atoms)


@lru_cache(512)
def _real_cells(column: Real) -> Cells:
    if column.private is not None:
        return column.private.cells_of(fine_number_cells(column))
    atoms = [_first(column, atom) for atom in column.atoms]
    if column.decimals is None:
        bins = len(_edges_of(column)) - 1
        ranges = [_multiples_between(column, i) for i in range(bins)]
        return Cells.cut([first for first, _ in ranges], ranges[-1][1], atoms)
    low, high = _rounded(column, column.low), _rounded(column, column.high)
    if column.edges:
        inner = [_first(column, edge) for edge in column.edges[1:-1]]
        starts = sorted({low, *(start for start in inner if low < start <= high)})
    else:
        starts = _starts(column.scale, low, high, column.bins)
    return Cells.cut(starts, high, atoms)


def _rounded(column: Real, bound: float) -> int:
    """Returns a bound rounded as values are, so that every value within the bounds stays there."""
    multiple = column.multiple(repr(bound))
    if multiple is None:
        raise ValueError(f"{bound} is not finite")
    return multiple


def _first(column: Real, bound: float) -> int:
    """Returns the first multiple that is not below a bound; with ``digits`` the nearest place."""
    if column.digits is None:
        return first_multiple(bound, column.places)
    return _rounded(column, bound)


@lru_cache(512)
def _edges_of(column: Real) -> tuple[float, ...]:
    return column.bin_edges


def _multiples_between(column: Real, i: int) -> tuple[int, int]:
    """Returns the first and the last multiple of 10^-places in bin i, as doubles compare."""
    edges, unit = _edges_of(column), 10**column.places
    last = _first_multiple_of_double(edges[i + 1], unit)
    # The last bin holds its upper edge, if that is a multiple.
    if i < len(edges) - 2 or last / unit > column.high:
        last -= 1
    return _first_multiple_of_double(edges[i], unit), last


def _first_multiple_of_double(edge: float, unit: int) -> int:
    """Returns the smallest k with k / unit >= edge, as doubles compare."""
    guess = math.floor(edge * unit) - 1
    return next(k for k in range(guess, guess + 4) if k / unit >= edge)
