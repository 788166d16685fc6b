"""Distinct values of a table's columns with their counts, as written rather than in bins.

The values of a real table are secret; they do not print. Those of a synthetic table are public.

Representation: numbers and moments are ascending distinct numbers (whole numbers int64, moments units since the year
1), other values distinct texts, each with its number of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Categorical, Column, Moment
from mechanisms.domain import Domain
from mechanisms.moments import moment_of
from mechanisms.numbers import Integer, Real
from mechanisms.spelling import spelt_number
from mechanisms.text_table import TextTable
from mechanisms.written import parse_number, parse_whole

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class ColumnValues:
    """Distinct values of one column with their row counts, int64; ``absent`` rows have no value, or a mark.

    A column of numbers or moments has ``numbers``, ascending; any other has ``texts``. ``marks`` has each mark with the
    number of absent rows that have it. Values that a column does not list count as its word for others.
    Raises ``ValueError`` unless every value has a count.
    """

    column: str
    kind: str
    numbers: NDArray[np.int64] | NDArray[np.float64] | None = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)
    absent: int = field(repr=False)
    marks: tuple[tuple[str, int], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        values = len(self.texts) if self.numbers is None else len(self.numbers)
        if self.counts.shape != (values,) or not 0 <= self.marked <= self.absent:
            raise ValueError(f"column {self.column!r}: every value needs a count")

    @property
    def rows(self) -> int:
        """Number of all rows, including those without a value."""
        return int(self.counts.sum()) + self.absent

    @property
    def marked(self) -> int:
        """Number of rows with a mark."""
        return sum(count for _, count in self.marks)

    @property
    def missing(self) -> float:
        """Share of rows whose value is missing; 0 without rows."""
        return (self.absent - self.marked) / self.rows if self.rows else 0.0


def column_values(domain: Domain, frame: TextTable | pd.DataFrame) -> tuple[ColumnValues, ...]:
    """Returns the values of every column that the domain describes, in the order in which tables are written.

    ``frame`` is a table of strings that ``mechanisms.table.encode`` accepts; implied and derived columns that it lacks
    are left out.
    """
    cells = TextTable.of(frame).columns
    known = {column.name: column for column in domain.columns}
    # A derived value is missing where one of its parts is, whatever the column says.
    known |= {each.name: replace(each.column, missing=True) for each in domain.derived}
    return tuple(
        _modelled(domain, known[name], cells[name])
        if name in known
        else _texts(name, "implied", Counter(cells[name]), set(domain.missing_values))
        for name in domain.described_names
        if name in cells
    )


def number_text(column: Column, number: float) -> str:
    """Returns a number of ``ColumnValues`` as the column writes it."""
    if isinstance(column, Moment):
        return column.shape.write(moment_of(int(number), column.unit))
    if isinstance(column, Integer):
        return column.text_of(int(number))
    if isinstance(column, Real) and column.digits is not None:
        return column.text_of(column.multiple(repr(float(number))) or 0)
    if isinstance(column, Real) and column.decimals is not None:
        return column.text_of(round(number * 10**column.decimals))
    return spelt_number(column.form, f"{number:.15g}") if isinstance(column, Real) else str(number)


def number_of(column: Integer | Real | Moment, value: str) -> float:
    """Returns the number that a written value stands for, at the column's resolution.

    Raises ``ValueError`` for a value that is no number.
    """
    number: float | None
    if isinstance(column, Moment):
        number = column.tick(value)
    elif isinstance(column, Integer):
        number = parse_whole(column.plain(value))
    elif column.decimals is None:
        number = parse_number(column.plain(value))
    else:
        multiple = column.multiple(column.plain(value))
        number = None if multiple is None else column.value_of(multiple)
    if number is None:
        raise ValueError(f"column {column.name!r} has a value that is no {column.kind}")
    return number


def as_measured(domain: Domain, values: Sequence[ColumnValues]) -> tuple[ColumnValues, ...]:
    """Returns a table's values with the categories that a run did not keep counted as the word for others.

    ``domain`` has the measured categories.
    """
    private = {c.name: c for c in domain.columns if isinstance(c, Categorical) and c.private}
    return tuple(_merged(private[of.column], of) if of.column in private else of for of in values)


def _merged(column: Categorical, values: ColumnValues) -> ColumnValues:
    known, counted = set(column.values), Counter[str]()
    for text, count in zip(values.texts, values.counts.tolist(), strict=True):
        counted[text if text in known else column.other] += count
    texts = tuple(sorted(counted))
    counts = np.array([counted[text] for text in texts], np.int64)
    return replace(values, texts=texts, counts=counts)


def _modelled(domain: Domain, column: Column, values: Iterable[str]) -> ColumnValues:
    counted = Counter(values)
    absent = {value for value in counted if is_missing(domain, column, value)}
    if isinstance(column, Categorical):
        if column.other:
            listed = Counter[str]()
            for value, count in counted.items():
                known = value in absent or column.code_of(value) is not None
                listed[value if known else column.other] += count
            counted = listed
        return _texts(column.name, column.kind, counted, absent)
    marks = set(column.marks) & counted.keys()
    absent |= marks
    numbers: dict[float, int] = {}
    for value, count in counted.items():
        if value not in absent:
            number = number_of(column, value)
            numbers[number] = numbers.get(number, 0) + count
    ordered = sorted(numbers)
    real = isinstance(column, Real)
    return ColumnValues(
        column.name,
        column.kind,
        np.array(ordered, np.float64) if real else np.array(ordered, np.int64),
        (),
        np.array([numbers[number] for number in ordered], np.int64),
        sum(counted[value] for value in absent),
        tuple((mark, counted[mark]) for mark in column.marks if mark in marks),
    )


def _texts(name: str, kind: str, counted: dict[str, int], absent: set[str]) -> ColumnValues:
    present = {text: count for text, count in counted.items() if text not in absent}
    missing = sum(counted.values()) - sum(present.values())
    counts = np.array(list(present.values()), np.int64)
    return ColumnValues(name, kind, None, tuple(present), counts, missing)


def has_number(domain: Domain, column: Integer | Real | Moment, value: str) -> bool:
    """Returns whether a written value stands for a number, being neither missing nor a mark."""
    return not is_missing(domain, column, value) and value not in column.marks


def is_missing(domain: Domain, column: Column, value: str) -> bool:
    """Returns whether a value is missing, as in ``mechanisms.table.encode``.

    A value that is in the domain is not missing, even if it is also a spelling of a missing value.
    """
    return column.missing and value in domain.missing_values and column.code_of(value) is None


def number_in(column: Column, cell: str | None) -> float | None:
    """Returns the number, or the date in its unit, that a cell has; None for a missing value or a mark."""
    if cell is None or isinstance(column, Categorical) or cell in column.marks:
        return None
    return number_of(column, cell)


def numbers_in(column: Column, cells: Iterable[str | None]) -> dict[str | None, float | None]:
    """Returns ``number_in`` of each different cell."""
    return {cell: number_in(column, cell) for cell in set(cells)}


def nearest_of(column: Column) -> Callable[[float], float]:
    """Returns a function to the nearest number that the column has: within its bounds, or one of its atoms."""
    if isinstance(column, Categorical):
        raise TypeError("categories have no bounds")
    low, high, *atoms = (
        number_of(column, each) if isinstance(each, str) else each
        for each in (column.low, column.high, *column.atoms)
    )

    def nearest(number: float) -> float:
        within = low if number < low else min(number, high)
        if not atoms or within == number:
            return within
        return min((within, *atoms), key=lambda each: abs(each - number))

    return nearest
