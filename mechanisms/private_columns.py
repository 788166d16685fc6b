"""Columns with private bins, made from drafted ones: bounds that reveal sign and size alone, or nothing.

The rules are public. Drafted columns are secret until their owner has confirmed them. Limits: whole numbers up to
``LARGEST_WHOLE`` either side of zero, others up to ``LARGEST`` with ``MOST_PLACES`` decimals.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from mechanisms.column_parts import DEFAULT_BINS, LINEAR, SYMLOG
from mechanisms.columns import Column, Moment, Ordered
from mechanisms.date_patterns import Pattern, form_of
from mechanisms.errors import DataError
from mechanisms.moments import DEFAULT_FORMS, Form, moment_of, tick_of
from mechanisms.numbers import Integer, Real
from mechanisms.private_bins import MAX_RESOLUTION, PrivateBins
from mechanisms.spelling import Clock, spelling_of

FINE_CELLS = 192
"""Fine cells of a column with private bins: fewer than allowed, since each has noise of its own."""
FINE_ENOUGH = 64
"""Most numbers in a fine cell of equal width; beyond that, cells grow in proportion."""
LARGEST_WHOLE, LARGEST, MOST_PLACES = 10**15, 10**12, 6
"""Largest whole number (milliseconds since 1970 fit), and largest other number with its decimals (64 bits hold it)."""
_ENDS = (
    (datetime(1, 1, 1), datetime(9999, 12, 31)),
    (datetime(1900, 1, 1), datetime(2100, 1, 1)),
    (datetime(1969, 1, 1), datetime(2068, 12, 31)),
)
"""First and last dates.

Before and after the second pair the offsets of places differ from those in files; years of two digits are from 1969 to
2068.
"""


def with_private_bins(column: Column) -> Column:
    """Returns the column between powers of ten, which reveal sign and size; dates between bounds of any date.

    A column with a bin for each number stays, and so does one of categories.
    """
    if isinstance(column, Moment):
        return replace(_dates(column), missing=column.missing, marks=column.marks)
    if isinstance(column, Integer):
        least, most = min((column.low, *column.atoms)), max((column.high, *column.atoms))
        if most - least < DEFAULT_BINS:
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
        scale=_fine_scale((high - low) * 10**column.decimals, FINE_CELLS),
        decimals=column.decimals,
        private=PrivateBins(FINE_CELLS),
        form=column.form,
        marks=column.marks,
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


def form_of_bounds(form: Form | Pattern, kind: str, unit: str) -> Form | Pattern:
    """Returns the form in which a configuration writes bounds: ISO 8601 for patterns, which is unambiguous.

    Quarters and weeks keep their form.
    """
    usual = form_of(DEFAULT_FORMS[kind]) if isinstance(form, Pattern) else form
    return form if usual is None or unit in ("week", "quarter") else usual


def without_values(column: Ordered) -> Ordered:
    """Returns the column with private bins between bounds of any value; only its kind and its spelling stay.

    Raises ``DataError`` for dates in a form without known bounds.
    """
    if isinstance(column, Moment):
        return _dates(column)
    if isinstance(column, Integer):
        least, most = _whole_bounds(column)
        return Integer(
            *(column.name, least, most),
            missing=True,
            scale=_fine_scale(most - least, MAX_RESOLUTION),
            private=PrivateBins(),
            form=column.form,
        )
    places = MOST_PLACES if column.decimals is None else min(column.decimals, MOST_PLACES)
    return Real(
        *(column.name, -float(LARGEST), float(LARGEST)),
        missing=True,
        scale=SYMLOG,
        decimals=places,
        private=PrivateBins(),
        form=column.form,
    )


def _dates(column: Moment) -> Moment:
    low, high = _moment_bounds(column)
    return Moment(
        *(column.name, column.kind, low, high, column.unit),
        missing=True,
        form=column.form,
        private=PrivateBins(),
    )


def _whole_bounds(column: Integer) -> tuple[int, int]:
    """Returns bounds of any number; for times of a day, the day, whether or not the table has its last minute."""
    spelling = spelling_of(column.form) if column.form else None
    if not isinstance(spelling, Clock):
        return -LARGEST_WHOLE, LARGEST_WHOLE
    times_of_day = spelling.day is not None and column.high == spelling.day - 1
    return 0, (column.high if times_of_day else LARGEST)


def _moment_bounds(column: Moment) -> tuple[str, str]:
    """Returns the first and the last unit of years that bound every such date, as a configuration writes them."""
    form = column.shape
    bounds = form_of_bounds(form, column.kind, column.unit)
    for ends in _ENDS[bool(form.zone) :]:
        moments = [moment_of(tick_of(end, column.unit), column.unit) for end in ends]
        if all(form.read(form.write(moment), column.unit) == moment for moment in moments):
            low, high = map(bounds.write, moments)
            return low, high
    raise DataError(
        f"column {column.name!r}: no bounds are known for dates as in {form}; describe it by hand"
    )
