"""Whole numbers behind written values: multiples of a column's last decimal, or units of time.

Constraints compare and add these numbers, so that all arithmetic is exact. Public are columns and cells; texts of an
owner's table are secret.
Representation: arrays of Python's whole numbers, which do not overflow, beside a mask of the rows that have a number.
Limits: real numbers need ``decimals``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Column, Moment, Ordered
from mechanisms.errors import DomainError
from mechanisms.moments import moment_of, tick_of
from mechanisms.numbers import Integer, Real
from mechanisms.value_parts import number_before
from mechanisms.written import fraction_of, parse_number, parse_whole

_FARTHEST = 10**30
"""No number of a column is as far from zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Numbers of rows: ``values`` (rows,) whole numbers, meaningful where ``there`` (rows,)."""

    values: NDArray[np.object_]
    there: NDArray[np.bool_]

    def __repr__(self) -> str:
        return f"Numbers({len(self.values)} rows)"


@dataclass(frozen=True, slots=True, eq=False)
class CellEnds:
    """Smallest and largest number of each code: ``first`` and ``last`` (codes,), where the code ``has`` numbers."""

    first: NDArray[np.object_]
    last: NDArray[np.object_]
    has: NDArray[np.bool_]


def is_ordered(column: Column) -> bool:
    """Returns whether a column has exact numbers or moments."""
    return isinstance(column, Integer | Real | Moment)


def decimals_of_column(column: Ordered) -> int:
    """Returns the number of decimals that a column's numbers are multiples of."""
    return column.places if isinstance(column, Real) else 0


def check_exact(where: str, column: Column) -> Ordered:
    """Returns a column of numbers or moments. Raises ``DomainError`` for any other, or one without ``decimals``."""
    if not isinstance(column, Integer | Real | Moment):
        raise DomainError(
            f"{where}: column {column.name!r} has categories; expected a column of numbers or dates"
        )
    if isinstance(column, Real) and column.decimals is None:
        raise DomainError(
            f"{where}: column {column.name!r} has no decimals; expected decimals = 2, say, to which its values are "
            "rounded"
        )
    return column


def check_multiples(where: str, column: Column) -> Ordered:
    """Returns a column whose numbers are multiples of one unit, so that they can be added and compared with others'.

    Raises ``DomainError`` for what ``check_exact`` refuses, and for a column with ``digits``, whose numbers are places.
    """
    exact = check_exact(where, column)
    if isinstance(exact, Real) and exact.digits is not None:
        raise DomainError(
            f"{where}: column {column.name!r} has digits, so that its large values are rounded; expected a column with "
            "decimals alone"
        )
    return exact


def reader_of(column: Ordered, missing: Sequence[str] = ()) -> Callable[[str], int | None]:
    """Returns a function from a written value to its number; None for a mark, a missing or another value."""

    def read(text: str) -> int | None:
        if text in column.marks:
            return None
        if column.missing and text in missing and column.code_of(text) is None:
            return None
        return number(text)

    if isinstance(column, Moment):
        form, unit = column.shape, column.unit

        def number(text: str) -> int | None:
            moment = form.read(text, unit)
            return None if moment is None else tick_of(moment, unit)
    elif isinstance(column, Integer):

        def number(text: str) -> int | None:
            return parse_whole(column.plain(text))
    else:

        def number(text: str) -> int | None:
            return column.multiple(column.plain(text))

    return read


def numbers_in(column: Ordered, texts: Sequence[str], missing: Sequence[str] = ()) -> Numbers:
    """Returns the numbers of written values; each distinct value is read once."""
    read = reader_of(column, missing)
    known = {text: read(text) for text in dict.fromkeys(texts)}
    values = np.empty(len(texts), object)
    values[:] = [known[text] or 0 for text in texts]
    there = np.fromiter((known[text] is not None for text in texts), np.bool_, len(texts))
    return Numbers(values, there)


def writer_of(column: Ordered) -> Callable[[int], str]:
    """Returns a function from a number to its text as the column writes it."""
    if isinstance(column, Moment):
        form, unit = column.shape, column.unit
        return lambda number: form.write(moment_of(number, unit))
    return column.text_of


def texts_in(column: Ordered, numbers: Sequence[int]) -> NDArray[np.object_]:
    """Returns numbers as the column writes them; each distinct number is written once."""
    write = writer_of(column)
    known = {number: write(number) for number in dict.fromkeys(numbers)}
    texts = np.empty(len(numbers), object)
    texts[:] = [known[number] for number in numbers]
    return texts


def cell_ends(column: Ordered) -> CellEnds:
    """Returns the ends of a column's cells; marks and missing values have none."""
    ranges = column.cells.ranges
    first, last = np.zeros(column.size, object), np.zeros(column.size, object)
    first[: len(ranges)] = [start for start, _ in ranges]
    last[: len(ranges)] = [end for _, end in ranges]
    return CellEnds(first, last, np.arange(column.size) < len(ranges))


def reach(column: Ordered) -> tuple[int, int]:
    """Returns the smallest and the largest number of a column."""
    ranges = column.cells.ranges
    return min(first for first, _ in ranges), max(last for _, last in ranges)


def scaled_bound(column: Ordered, text: str, where: str) -> Fraction:
    """Returns a bound of a configuration in the column's numbers, which may lie between two of them.

    Raises ``DomainError`` for a text that is no value of the column's kind.
    """
    if isinstance(column, Moment):
        return Fraction(column.tick(text))
    if parse_number(text) is None:
        number = reader_of(column)(text)
        if number is None:
            raise DomainError(
                f"{where}: {text!r} is no value of column {column.name!r}; expected {column.allowed}"
            )
        return Fraction(number)
    bound = fraction_of(text)
    if abs(bound) > _FARTHEST:
        raise DomainError(f"{where}: {text!r} is no number that column {column.name!r} may have")
    return number_before(column, bound)
