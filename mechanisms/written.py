"""Numbers as tables write them, and as whole multiples of a power of ten.

The functions are public. The values that they read are secret, at their owner.
Limits: decimal points only; the reader of a table translates decimal commas (`mechanisms.dialect`).
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

# More digits, by a wide margin, than any number between 64-bit multiples has before rounding.
EXACT = Context(prec=60)
_FARTHEST_PLACE = 400
"""More places than any double has after the decimal point before its first digit."""


def parse_whole(value: str) -> int | None:
    """Returns a whole number written as ``39``, ``-1`` or ``39.0``; None for anything else."""
    whole, point, fraction = value.strip().partition(".")
    if point and fraction.strip("0"):
        return None
    digits = whole[1:] if whole[:1] in ("+", "-") else whole
    # No column holds a number of a hundred digits, and Python refuses to read one of 4,301.
    return int(whole) if digits.isascii() and digits.isdigit() and len(digits) < 100 else None


def parse_number(value: str) -> float | None:
    """Returns a finite number as tables write it; None for anything else, including ``1_000`` and ``inf``."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and value.isascii() and "_" not in value else None


def fraction_of(value: str) -> Fraction:
    """Returns a number that ``parse_number`` reads, exactly; 0 for one that is nearer to 0 than any double."""
    number = Decimal(value.strip())
    # As a fraction, 1e-999999999 would have as many digits.
    return Fraction(number) if number.adjusted() > -_FARTHEST_PLACE else Fraction(0)


def multiple_of(value: str, places: int) -> int | None:
    """Returns the k for which k / 10^places is nearest to a written number, ties to even; None for no number."""
    if parse_number(value) is None:
        return None
    scaled = Decimal(value.strip()).scaleb(places, EXACT)
    return int(scaled.to_integral_value(ROUND_HALF_EVEN, EXACT))


def first_multiple(bound: float, places: int) -> int:
    """Returns the smallest k with k / 10^places >= ``bound``, taken as the shortest decimal that reads as it."""
    return int(Decimal(repr(bound)).scaleb(places, EXACT).to_integral_value(ROUND_CEILING, EXACT))


def last_multiple(bound: float, places: int) -> int:
    """Returns the largest k with k / 10^places <= ``bound``, taken as in ``first_multiple``."""
    return int(Decimal(repr(bound)).scaleb(places, EXACT).to_integral_value(ROUND_FLOOR, EXACT))


def write_multiple(multiple: int, places: int) -> str:
    """Returns k / 10^places with ``places`` decimals."""
    if not places:
        return str(multiple)
    whole, fraction = divmod(abs(multiple), 10**places)
    return f"{'-' if multiple < 0 else ''}{whole}.{fraction:0{places}d}"


def decimals_of(value: str) -> int | None:
    """Returns the number of written decimals; None for an exponent or no number."""
    if parse_number(value) is None or "e" in value.lower():
        return None
    return len(value.strip().partition(".")[2])
