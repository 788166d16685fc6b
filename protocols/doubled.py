"""Twice a product of shares, with one product of numbers a party. Public: constants.

2 x y = (2 x0 + x1)(2 y0 + y1) + (x1 + 2 x2)(y1 + 2 y2) - 2 (x2 - x0)(y2 - y0), a product of what a party makes of its
own and its next component; x y itself takes a party two. Source: own.
"""

FACTORS: tuple[tuple[int, int], ...] = ((2, 1), (1, 2), (1, -1))
"""By role: what its own and its next component are multiplied with, in both operands."""
SCALES = (1, 1, -2)
"""By role: what its product is multiplied with."""
CROSSED = 2
"""What every party's x_i y_{i+1} + x_{i+1} y_i is multiplied with in the sum."""


def squares(role: int) -> tuple[int, int]:
    """What a party's x_i y_i and x_{i+1} y_{i+1} are multiplied with in the sum."""
    own, next_ = FACTORS[role]
    return SCALES[role] * own * own, SCALES[role] * next_ * next_
