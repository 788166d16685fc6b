"""A draft without a value of the table that it was made from: names, kinds and spellings of columns alone.

Provides ``without_values``. Numbers have bins that a run finds by noisy counts between bounds that any number keeps;
dates likewise, between the years 1 and 9999. Categories cannot be had so: such columns are left to be listed from a
code book.

Public: what comes out, but for names, kinds, decimals, units and formats of columns, and how the file is written, which
the table's header and form tell. Limits: whole numbers up to ``LARGEST_WHOLE`` either side of zero, others up to
``LARGEST`` with ``MOST_PLACES`` decimals; what stands among numbers and is none (``marks``) has to be listed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from mechanisms.columns import Categorical, Column, Moment
from mechanisms.date_patterns import form_of
from mechanisms.domain import Domain
from mechanisms.draft import FINE_ENOUGH, KNOWN_MISSING, Draft
from mechanisms.errors import DataError
from mechanisms.moments import DEFAULT_FORMS, moment_of, tick_of
from mechanisms.numbers import Integer, Real
from mechanisms.private_bins import MAX_RESOLUTION, PrivateBins
from mechanisms.provenance import WHOLE, Provenance
from mechanisms.spelling import Clock, spelling_of

LARGEST_WHOLE, LARGEST, MOST_PLACES = 10**15, 10**12, 6
"""Whole numbers up to the first, milliseconds since 1970 among them; 64 bits hold the second with so many decimals."""
_ENDS = (
    (datetime(1, 1, 1), datetime(9999, 12, 31)),
    (datetime(1900, 1, 1), datetime(2100, 1, 1)),
    (datetime(1969, 1, 1), datetime(2068, 12, 31)),
)
"""First and last dates; before and after the second the offsets of places are not what a file has, and years of two
digits are from 1969 to 2068."""
_BOUNDS = "public: bounds that any such value keeps"


def without_values(draft: Draft) -> Draft:
    """The draft without what was read of values; ``to_list`` names the columns that are left to be described.

    Raises ``DataError`` where no column of numbers or dates is left.
    """
    drafted, columns, to_list = draft.domain, list[Column](), list[str]()
    for column in drafted.columns:
        kept = _without_values(column)
        if kept is None:
            to_list.append(column.name)
        else:
            columns.append(kept)
    if not columns:
        raise DataError(
            "no column of numbers or dates is there, and categories cannot be drafted without the table's values; "
            "list them from a code book (docs/configuration.md)"
        )
    domain = Domain(
        tuple(columns),
        KNOWN_MISSING,
        ignore=(*drafted.ignore, *to_list),
        format=drafted.format,
        provenance=tuple(Provenance(column.name, ((WHOLE, _BOUNDS),)) for column in columns),
    )
    return replace(draft, domain=domain, notes=(), private=True, to_list=tuple(to_list))


def _without_values(column: Column) -> Column | None:
    if isinstance(column, Categorical):
        return None
    if isinstance(column, Moment):
        low, high = _moment_bounds(column)
        return Moment(
            *(column.name, column.kind, low, high, column.unit),
            missing=True,
            form=column.form,
            private=PrivateBins(),
        )
    if isinstance(column, Integer):
        least, most = _whole_bounds(column)
        return Integer(
            *(column.name, least, most),
            missing=True,
            scale="linear" if most - least <= FINE_ENOUGH * MAX_RESOLUTION else "symlog",
            private=PrivateBins(),
            form=column.form,
        )
    places = MOST_PLACES if column.decimals is None else min(column.decimals, MOST_PLACES)
    return Real(
        *(column.name, -float(LARGEST), float(LARGEST)),
        missing=True,
        scale="symlog",
        decimals=places,
        private=PrivateBins(),
        form=column.form,
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
    usual = form_of(DEFAULT_FORMS[column.kind])
    # Bounds are in ISO 8601, quarters and weeks as they are written.
    if form.zone or column.unit in ("week", "quarter") or usual is None:
        usual = form
    for ends in _ENDS[bool(form.zone) :]:
        moments = [moment_of(tick_of(end, column.unit), column.unit) for end in ends]
        if all(form.read(form.write(moment), column.unit) == moment for moment in moments):
            low, high = map(usual.write, moments)
            return low, high
    raise DataError(
        f"column {column.name!r}: no bounds are known for dates as in {form}; describe it by hand"
    )
