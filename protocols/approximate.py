"""Polynomials that are the same at all parties and on every machine: interpolation in decimal arithmetic.

Parties multiply shares by public coefficients, so one unit of difference in one coefficient would make the result
garbage. Floating-point functions differ between processors; ``decimal`` is exact to the last digit everywhere. All
values here are public.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

_DIGITS = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")

Function = Callable[[Decimal], Decimal]


def cosine(x: Decimal) -> Decimal:
    """Returns cos(x) for |x| <= 4, to 50 digits."""
    return _series(x, Decimal(1), 1)


def sine(x: Decimal) -> Decimal:
    """Returns sin(x) for |x| <= 4, to 50 digits."""
    return _series(x, x, 2)


def _series(x: Decimal, first: Decimal, n: int) -> Decimal:
    total, term = Decimal(0), first
    while abs(term) > Decimal(10) ** -_DIGITS:
        total += term
        term = -term * x * x / (n * (n + 1))
        n += 2
    return total


def interpolate(function: Function, low: Fraction, high: Fraction, degree: int) -> list[Decimal]:
    """Interpolates ``function`` at [low, high]'s Chebyshev nodes: coefficients of 1, x, ..., x^degree."""
    with localcontext() as context:
        context.prec = _DIGITS
        middle, half = _decimal((low + high) / 2), _decimal((high - low) / 2)
        count = degree + 1
        nodes = [middle + half * cosine(PI * (2 * k + 1) / (2 * count)) for k in range(count)]
        # Newton's divided differences, then Horner's scheme to powers of x.
        differences = [function(node) for node in nodes]
        for order in range(1, count):
            for k in range(degree, order - 1, -1):
                differences[k] = (differences[k] - differences[k - 1]) / (
                    nodes[k] - nodes[k - order]
                )
        coefficients = [Decimal(0)] * count
        for k in range(degree, -1, -1):
            shifted = [Decimal(0), *coefficients[:-1]]
            coefficients = [s - nodes[k] * c for s, c in zip(shifted, coefficients, strict=True)]
            coefficients[0] += differences[k]
        return coefficients


def to_units(value: Decimal, fraction_bits: int) -> int:
    """Returns ``value`` in units of 2^-f, rounded to the nearest."""
    with localcontext() as context:
        context.prec = _DIGITS
        return int((value * (1 << fraction_bits)).to_integral_value())


def _decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)
