"""Columns with private bins, out of drafted ones: bounds that say sign and size alone, or nothing.

Provides ``with_private_bins``, ``without_values`` and ``form_of_bounds``. Public: the rules. Secret: drafted columns,
until their owner has confirmed them. Limits: whole numbers up to ``LARGEST_WHOLE`` either side of zero, others up to
``LARGEST`` with ``MOST_PLACES`` decimals.
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
"""Fine cells of a column with private bins: fewer than there may be, since each has noise of its own."""
FINE_ENOUGH = 64
"""Numbers in a fine cell of equal width, at most; where there would be more, cells are alike in proportion."""
LARGEST_WHOLE, LARGEST, MOST_PLACES = 10**15, 10**12, 6
"""Whole numbers up to the first, milliseconds since 1970 among them; 64 bits hold the second with so many decimals."""
_ENDS = (
    (datetime(1, 1, 1), datetime(9999, 12, 31)),
    (datetime(1900, 1, 1), datetime(2100, 1, 1)),
    (datetime(1969, 1, 1), datetime(2068, 12, 31)),
)
"""First and last dates; before and after the second the offsets of places are not what a file has, and years of two
digits are from 1969 to 2068."""


def with_private_bins(column: Column) -> Column:
    """The same between powers of ten, which say its sign and size; of dates between bounds that any date keeps.

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
    """The scale of so many fine cells for so many numbers: symlog where equal cells would be too wide."""
    return LINEAR if numbers <= FINE_ENOUGH * cells else SYMLOG


def _power(number: float) -> int:
    """The least power of ten from a number on, or 0 for one that is not above it."""
    power = 1
    while power < number:
        power *= 10
    return power if number > 0 else 0


def form_of_bounds(form: Form | Pattern, kind: str, unit: str) -> Form | Pattern:
    """The form that a configuration writes bounds in: of patterns ISO 8601, which nobody can read in two ways.

    Quarters and weeks are as they are written.
    """
    usual = form_of(DEFAULT_FORMS[kind]) if isinstance(form, Pattern) else form
    return form if usual is None or unit in ("week", "quarter") else usual


def without_values(column: Ordered) -> Ordered:
    """The same with private bins between bounds that any value keeps; only its kind and its spelling stay.

    Raises ``DataError`` for dates in a form that no bounds are known for.
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
    """Bounds that every number keeps; of times of a day, the day, whether or not the table has its last minute."""
    spelling = spelling_of(column.form) if column.form else None
    if not isinstance(spelling, Clock):
        return -LARGEST_WHOLE, LARGEST_WHOLE
    times_of_day = spelling.day is not None and column.high == spelling.day - 1
    return 0, (column.high if times_of_day else LARGEST)


def _moment_bounds(column: Moment) -> tuple[str, str]:
    """The first and the last unit of years that every such date keeps, as a configuration has it."""
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
