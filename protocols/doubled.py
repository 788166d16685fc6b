"""Twice a product of shares, with one product of numbers a party.

2 x y = (2 x0 + x1)(2 y0 + y1) + (x1 + 2 x2)(y1 + 2 y2) - 2 (x2 - x0)(y2 - y0): each term is one product of linear
combinations of a party's own and next component; x y itself takes a party two products. All constants are public.
Source: own.
"""

FACTORS: tuple[tuple[int, int], ...] = ((2, 1), (1, 2), (1, -1))
"""Factors, by role, of its own and its next component, in both operands."""
SCALES = (1, 1, -2)
"""Factor, by role, of its product."""
CROSSED = 2
"""Factor, in the sum, of every party's x_i y_{i+1} + x_{i+1} y_i."""


def squares(role: int) -> tuple[int, int]:
    """Returns the factors, in the sum, of a party's x_i y_i and x_{i+1} y_{i+1}."""
    own, next_ = FACTORS[role]
    return SCALES[role] * own * own, SCALES[role] * next_ * next_
