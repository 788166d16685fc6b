"""Numbers that follow from the row before and a change are values of their column."""

import pytest

from mechanisms.column_values import nearest_of
from mechanisms.columns import Column, Moment
from mechanisms.domain import Domain
from mechanisms.keyed.declared import ChildTable, KeyedTables, ParentTable
from mechanisms.keyed.views import view_tables
from mechanisms.numbers import Integer, Real
from mechanisms.text_table import TextTable

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
    assert nearest_of(column)(number) == value


def test_a_step_has_the_change_that_the_rows_have() -> None:
    """A change below the bounds that is an atom is itself, and no bound."""
    day = Integer("day", 0, 100)
    change = Integer("day", 5, 40, atoms=(1, 2))
    stays = ChildTable(
        "stays", "key", Domain((day,), ignore=("key",)), 2, 2, order="day", changes=(change,)
    )
    tables = KeyedTables(ParentTable("persons", "key"), (stays,))
    rows = {"key": [*"aabbcc"], "day": ["1", "2", "7", "70", "3", "23"]}
    given = {"stays": TextTable(rows, range(1, 7), "row")}
    found = view_tables(tables, given, where={"stays": "stays"})["stays"]
    assert found.columns["stays.change.day"] == ["1", "40", "20"]
