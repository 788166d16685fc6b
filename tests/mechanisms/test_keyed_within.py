"""Numbers that follow from the row before and a change are values of their column."""

import pytest

from mechanisms.columns import Column, Moment
from mechanisms.keyed.drawing import _within
from mechanisms.numbers import Integer, Real

HOURS = Integer("hours", 7, 52, atoms=(0,))


@pytest.mark.parametrize(
    ("column", "number", "value"),
    [
        (HOURS, 0, 0),
        (HOURS, -4, 0),
        (HOURS, 3, 0),
        (HOURS, 6, 7),
        (HOURS, 30, 30),
        (HOURS, 60, 52),
        (Real("weight", 1.0, 2.0, atoms=(9.0,), decimals=1), 8.0, 9.0),
        (Moment("day", "date", "2024-01-01", "2024-12-31", "day"), 0.0, 738_886),
    ],
)
def test_a_changed_number_is_within_bounds_or_an_atom(
    column: Column, number: float, value: float
) -> None:
    assert _within(column, number) == value
