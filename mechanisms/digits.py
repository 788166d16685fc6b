"""Numbers of so many significant digits, as whole numbers without gaps.

A column of numbers from 1e-30 to 1e30 has no unit in which 64 bits hold all of them. It has so many ``decimals`` and at
most so many significant ``digits``: below 10^digits units numbers are multiples of the unit, as in every column, and
above that each decade has 9 * 10^(digits - 1) numbers. ``place_of`` counts them from zero on, and ``at_place`` is its
inverse; both grow with the number, and are symmetrical.

The functions are public. Representation: multiples of a unit are whole numbers of any size.
"""

from __future__ import annotations

import math
import sys
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from mechanisms.written import EXACT, parse_number

MAX_DIGITS = 15
MOST_DECIMALS = 340
"""Most decimals beside digits: the smallest double has the last of fifteen digits there."""


def place_of(multiple: int, digits: int) -> int:
    """Returns the place of a multiple of the unit, rounded to so many digits, ties to even."""
    size, step = abs(multiple), int(10 ** (digits - 1))
    if size < 10 * step:
        return multiple
    dropped = len(str(size)) - digits
    unit = int(10**dropped)
    kept, rest = divmod(size, unit)
    kept += 2 * rest > unit or (2 * rest == unit and kept % 2)
    # 9.996 becomes 10.0, the first number of the next decade, as the arithmetic has it.
    place = 10 * step + (dropped - 1) * 9 * step + kept - step
    return place if multiple > 0 else -place


def at_place(place: int, digits: int) -> int:
    """Returns the multiple of the unit at a place."""
    size, step = abs(place), int(10 ** (digits - 1))
    if size < 10 * step:
        return place
    decade, beyond = divmod(size - 10 * step, 9 * step)
    multiple = int((step + beyond) * 10 ** (decade + 1))
    return multiple if place > 0 else -multiple


def place_before(multiple: Fraction, digits: int) -> Fraction:
    """Returns the place of a multiple of the unit; one half above the last place before it if it has none."""
    place = place_of(math.floor(multiple), digits)
    if at_place(place, digits) > multiple:
        place -= 1
    return Fraction(place) + (Fraction(1, 2) if at_place(place, digits) < multiple else 0)


def mean_between(first: int, last: int, digits: int) -> Fraction:
    """Returns the mean of the multiples of the unit at all places from ``first`` to ``last``."""
    total = _sum_to(last, digits) - _sum_to(first - 1, digits)
    return Fraction(total, last - first + 1)


def _sum_to(place: int, digits: int) -> int:
    """Returns the sum of the multiples at the places from 0 to ``place``; from ``place`` + 1 to -1 negated, below 0."""
    if place < 0:
        return _sum_to(-place - 1, digits)
    step = int(10 ** (digits - 1))
    if place < 10 * step:
        return place * (place + 1) // 2
    decade, beyond = divmod(place - 10 * step, 9 * step)

    def sum_below(end: int) -> int:
        return end * (end - 1) // 2

    # Of each whole decade the multiples are (step .. 10 step - 1) 10^(d + 1), for d from 0 on.
    whole = (sum_below(10 * step) - sum_below(step)) * ((10 ** (decade + 1) - 10) // 9)
    part = (sum_below(step + beyond + 1) - sum_below(step)) * 10 ** (decade + 1)
    return int(sum_below(10 * step) + whole + part)


def place_of_text(value: str, decimals: int, digits: int) -> int | None:
    """Returns the place of a written number, rounded once; None for no number.

    What would be no double when it is rounded has the place of the largest one.
    """
    if parse_number(value) is None:
        return None
    number = Decimal(value.strip())
    if number.adjusted() + decimals < digits:
        scaled = number.scaleb(decimals, EXACT)
        return place_of(int(scaled.to_integral_value(ROUND_HALF_EVEN, EXACT)), digits)
    rounded = Context(prec=digits, rounding=ROUND_HALF_EVEN).plus(number)
    place, last = (
        place_of(int(rounded.scaleb(decimals, EXACT)), digits),
        largest_place(decimals, digits),
    )
    return max(-last, min(place, last))


@lru_cache(512)
def largest_place(decimals: int, digits: int) -> int:
    """Returns the place of the largest number of so many digits that is a double."""
    largest = Context(prec=digits, rounding=ROUND_DOWN).plus(Decimal(sys.float_info.max))
    return place_of(int(largest.scaleb(decimals, Context(prec=MAX_DIGITS))), digits)
