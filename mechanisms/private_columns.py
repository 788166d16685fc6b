"""Columns with private bins, made from drafted ones: bounds that reveal sign and size alone, or nothing.

The rules are public. Drafted columns are secret until their owner has confirmed them. Limits: those of
`mechanisms.scale_free`.
"""

from __future__ import annotations

from dataclasses import replace

from mechanisms.column_parts import DEFAULT_BINS, LINEAR, SYMLOG
from mechanisms.columns import Column, Moment, Ordered
from mechanisms.date_patterns import Pattern
from mechanisms.errors import DataError
from mechanisms.numbers import Integer, Real
from mechanisms.private_bins import PrivateBins
from mechanisms.scale_free import MOST_PLACES, largest_real, moment_bounds, whole_bounds
from mechanisms.spelling import Clock, spelling_of

FINE_CELLS = 192
"""Fine cells of a column with private bins: fewer than allowed, since each has noise of its own."""
FINE_ENOUGH = 64
"""Most numbers in a fine cell of equal width; beyond that, cells grow in proportion."""


def with_private_bins(column: Column) -> Column:
    """Returns the column between powers of ten, which reveal sign and size; dates between bounds of any date.

    A column with a bin for each number stays, and so does one of categories.
    """
    if isinstance(column, Moment):
        return replace(_dates(column, PrivateBins()), missing=column.missing, marks=column.marks)
    if isinstance(column, Integer):
        least, most = min((column.low, *column.atoms)), max((column.high, *column.atoms))
        if has_few_values(column):
            return column
        low, high = -_power(-least), _power(most)
        scale = _fine_scale(high - low, FINE_CELLS)
        return Integer(
            column.name,
            low,
            high,
            missing=column.missing,
            scale=scale,
            private=PrivateBins(FINE_CELLS),
            form=column.form,
            marks=column.marks,
        )
    if not isinstance(column, Real) or column.decimals is None:
        return column
    low = -_power(-min((column.low, *column.atoms)))
    high = _power(max((column.high, *column.atoms)))
    return Real(
        column.name,
        float(low),
        float(high),
        missing=column.missing,
        scale=LINEAR
        if column.digits is not None
        else _fine_scale((high - low) * 10**column.decimals, FINE_CELLS),
        decimals=column.decimals,
        private=PrivateBins(FINE_CELLS),
        form=column.form,
        marks=column.marks,
        digits=column.digits,
    )


def _fine_scale(numbers: int, cells: int) -> str:
    """Returns the scale of ``cells`` fine cells for ``numbers`` numbers: symlog if equal cells would be too wide."""
    return LINEAR if numbers <= FINE_ENOUGH * cells else SYMLOG


def _power(number: float) -> int:
    """Returns the least power of ten that is not below a number; 0 for a number that is not positive."""
    power = 1
    while power < number:
        power *= 10
    return power if number > 0 else 0


def has_few_values(column: Column) -> bool:
    """Returns whether a column is of whole numbers so few that each has a bin: codes and marks (0, 1), in effect."""
    if not isinstance(column, Integer):
        return False
    least, most = min((column.low, *column.atoms)), max((column.high, *column.atoms))
    return most - least < DEFAULT_BINS


def without_values(column: Ordered) -> Ordered:
    """Returns the column with private values; only its kind and its spelling stay.

    Times of a day have the bounds of a day, in private bins of equal width. Raises ``DataError`` for dates in a form
    without known bounds.
    """
    if isinstance(column, Moment):
        return _dates(_of_a_decade(column), PrivateBins(free=True))
    if isinstance(column, Integer):
        low, high = whole_bounds(column.form)
        times = _is_of_a_day(column)
        return Integer(
            *(column.name, low, column.high if times else high),
            missing=True,
            private=PrivateBins(free=not times),
            form=column.form,
        )
    places = MOST_PLACES if column.decimals is None else min(column.decimals, MOST_PLACES)
    return Real(
        *(column.name, -largest_real(places), largest_real(places)),
        missing=True,
        decimals=places,
        private=PrivateBins(free=True),
        form=column.form,
        digits=column.digits,
    )


def _of_a_decade(column: Moment) -> Moment:
    """Returns the column with a hundred years of two digits that begin a decade, since the first year is a value."""
    first = column.shape.years_from if isinstance(column.shape, Pattern) else None
    if not isinstance(column.shape, Pattern) or first is None or f"[{first}]" not in column.form:
        return column
    return replace(column, form=str(column.shape.with_years_from(first // 10 * 10)))


def _is_of_a_day(column: Integer) -> bool:
    """Returns whether the column has times of a day, whether or not the table has its last minute."""
    spelling = spelling_of(column.form) if column.form else None
    day = spelling.day if isinstance(spelling, Clock) else None
    return day is not None and column.high == day - 1


def _dates(column: Moment, private: PrivateBins) -> Moment:
    bounds = moment_bounds(column.shape, column.kind, column.unit)
    if bounds is None:
        raise DataError(
            f"column {column.name!r}: no bounds are known for dates as in {column.shape}; describe it by hand"
        )
    return Moment(
        *(column.name, column.kind, *bounds, column.unit),
        missing=True,
        form=column.form,
        private=private,
    )
