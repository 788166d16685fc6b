"""Public grids of fine cells for numbers and dates of any size (``values = "private"``), and the bounds they keep.

No grid depends on a table. Numbers have cells by sign and exponent, in the preferred steps of ISO 3: 40 to a decade
where quantities of daily life lie, 20 and 10 elsewhere. Cells are alike in width up to 250, since whole numbers there
are often ages, scores and measures, and years from 1900 to 2100 are cells of their own. Zero, powers of ten, whole
numbers where counters end (255, 256) and numbers that mark a missing value are cells of themselves. Dates have cells by
the calendar: months, years and centuries, and ``DATE_MARKS`` as days.

All values here are public. Representation: whole numbers of a unit (10^-decimals, days), alike on every machine.
Source: the steps are those of ISO 3, series R40. Limits: whole numbers up to ``LARGEST_WHOLE`` either side of zero,
others up to ``LARGEST`` with ``MOST_PLACES`` decimals, ten times less for each decimal more; a number like 36.6 shares
a cell with all from 36 to 36.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from mechanisms.date_patterns import Pattern, form_of
from mechanisms.discretising import SENTINELS
from mechanisms.moments import DATE_MARKS, DEFAULT_FORMS, Form, moment_of, tick_of
from mechanisms.spelling import Clock, spelling_of

LARGEST_WHOLE, LARGEST, MOST_PLACES = 10**15, 10**12, 6
"""Largest whole number (milliseconds since 1970 fit), and largest other number with its decimals (64 bits hold it)."""
STEPS = (
    *(100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280, 300),
    *(315, 335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850, 900, 950),
)  # fmt: skip
"""Steps of a decade in hundredths: series R40; every second one is R20, every fourth R10."""
EVEN, BELOW_ZERO = 250, 50
"""Last numbers in cells alike in width, above zero and below it (whole numbers alone)."""
YEARS = (1900, 2100)
COUNTER_BITS = (8, 9, 10, 12, 15, 16)
"""Sizes of counters: rows heap up at their last number, and at the first beyond it (whole numbers alone)."""
MARKS = frozenset({*SENTINELS, 998, 9998, 999_999, 9_999_999, 99_999_999, 999_999_999, -98, -998})
"""Numbers that mark something else, and are cells of themselves."""
_POWERS = range(7)
_FINE_STEPS, _USUAL_STEPS, _FEW_STEPS = 1, 2, 4
_USUAL_FROM = 10**6
MONTHS_OF = (1975, 2035)
"""Years whose months are cells; other years from 1900 to 2100 are cells, and centuries."""
_ENDS = (
    (datetime(1, 1, 1), datetime(9999, 12, 31)),
    (datetime(1900, 1, 1), datetime(2100, 1, 1)),
    (datetime(1969, 1, 1), datetime(2068, 12, 31)),
)
"""First and last dates.

Before and after the second pair the offsets of places differ from those in files; years of two digits are from 1969 to
2068.
"""


def number_starts(places: int, low: int, high: int, *, counters: bool = True) -> list[int]:
    """Returns the starts of the fine cells of the numbers low .. high, multiples of 10^-``places``, ascending.

    ``counters`` is False for the grid of runs with messages before version 19.
    """
    unit = 10**places
    above = {*_even(unit, EVEN), *_proportional(unit, EVEN * unit, high, every=_FINE_STEPS)}
    if places == 0:
        above |= set(range(YEARS[0], YEARS[1] + 2))
        bits = COUNTER_BITS if counters else ()
        above |= {2**size + step for size in bits for step in (-1, 0, 1)}
    below = {*_proportional(unit, 1, -low, every=_FEW_STEPS)}
    below |= {step * unit for step in range(1, BELOW_ZERO + 2)} if places == 0 else set()
    # The cell of the numbers -last .. -first is the mirror image of first .. last.
    starts = {0, 1, *above, *(1 - start for start in below)}
    single = [mark * unit for mark in MARKS] + [
        sign * 10**k * unit for k in _POWERS for sign in (-1, 1)
    ]
    starts |= {start for one in single for start in (one, one + 1)}
    return sorted({low, *(start for start in starts if low < start <= high)})


def _even(unit: int, last: int) -> Iterator[int]:
    """Yields the starts of cells alike in width: whole numbers up to ``last``, tenths to ten, hundredths to one."""
    yield from (step * unit for step in range(1, last + 2))
    tenth, hundredth = max(1, unit // 10), max(1, unit // 100)
    yield from range(unit, 10 * unit, tenth)
    yield from range(hundredth, unit, hundredth)
    # Below a hundredth cells are in proportion.
    yield from _proportional(unit, 1, hundredth, every=_FEW_STEPS)


def _proportional(unit: int, first: int, last: int, *, every: int) -> Iterator[int]:
    """Yields the whole numbers first .. last that are steps of their decade; fewer from a million units on."""
    decade = 1
    while decade <= last:
        coarse = _USUAL_STEPS if decade >= _USUAL_FROM * unit else _FINE_STEPS
        for step in STEPS[:: max(every, coarse)]:
            start = -(-step * decade // 100)
            if first <= start <= last:
                yield start
        decade *= 10


def calendar_cells(unit: str, low: int, high: int) -> list[int]:
    """Returns the starts of the fine cells of the units low .. high, ascending: months, years, centuries and marks."""
    years = [*range(YEARS[0], YEARS[1] + 1), *range(1, 9999, 100)]
    days = [datetime(year, 1, 1) for year in years]
    days += [datetime(year, month, 1) for year in range(*MONTHS_OF) for month in range(2, 13)]
    starts = {
        *_ticks(days, unit),
        *(start for mark in (*date_marks(unit), low, high) for start in (mark, mark + 1)),
    }
    return sorted({low, *(start for start in starts if low < start <= high)})


def date_marks(unit: str) -> list[int]:
    """Returns the units of the dates that mark a missing date."""
    return [tick_of(datetime(*day), unit) for day in DATE_MARKS]


def _ticks(days: Iterable[datetime], unit: str) -> Iterator[int]:
    return (tick_of(day, unit) for day in days)


def largest_real(places: int) -> float:
    """Returns the largest number with so many decimals on a grid: 64 bits hold it in units of the last of them."""
    return float(LARGEST if places <= MOST_PLACES else 10 ** max(0, 12 + MOST_PLACES - places))


def whole_bounds(form: str) -> tuple[int, int]:
    """Returns bounds that any whole number in this spelling keeps; durations and times of day are not negative."""
    spelling = spelling_of(form) if form else None
    if not isinstance(spelling, Clock):
        return -LARGEST_WHOLE, LARGEST_WHOLE
    if spelling.within_a_day:
        return 0, (spelling.day or 0) - 1
    return 0, LARGEST_WHOLE if spelling.decimals else LARGEST


def form_of_bounds(form: Form | Pattern, kind: str, unit: str) -> Form | Pattern:
    """Returns the form in which a configuration writes bounds: ISO 8601 for patterns, which is unambiguous.

    Quarters and weeks keep their form.
    """
    usual = form_of(DEFAULT_FORMS[kind]) if isinstance(form, Pattern) else form
    return form if usual is None or unit in ("week", "quarter") else usual


def moment_bounds(form: Form | Pattern, kind: str, unit: str) -> tuple[str, str] | None:
    """Returns the first and the last unit of years that bound every such date, as a configuration writes them.

    Returns None for a form without known bounds.
    """
    bounds = form_of_bounds(form, kind, unit)
    known = _ENDS[bool(form.zone) :]
    if isinstance(form, Pattern) and (first := form.years_from):
        known = ((datetime(first, 1, 1), datetime(first + 99, 12, 31)),)
    for ends in known:
        moments = [moment_of(tick_of(end, unit), unit) for end in ends]
        if all(form.read(form.write(moment), unit) == moment for moment in moments):
            low, high = map(bounds.write, moments)
            return low, high
    return None
