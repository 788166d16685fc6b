"""Values are counted as tables write them, at the resolution that a column tells them apart by."""

import pandas as pd
import pytest

from mechanisms.column_values import ColumnValues, column_values, number_text
from mechanisms.domain import Categorical, Domain, Implied, Integer, Moment, Real

DOMAIN = Domain(
    (
        Categorical("ward", ("a", "b", "?"), missing=True),
        Integer("hours", 0, 99, bins=4, missing=True, atoms=(40,)),
        Real("cost", 0.0, 100.0, 8, decimals=2),
        Moment("came", "date", "2020-01-01", "2020-12-31", "month", form="YYYY-MM"),
    ),
    implied=(Implied("floor", "ward", (("a", "1"), ("b", "2"), ("?", "1")), 1),),
)
FRAME = pd.DataFrame(
    {
        "came": ["2020-02", "2020-02", "2020-12", "2020-01"],
        "ward": ["a", "?", "", "a"],
        "hours": ["40", "40.0", "", "+7"],
        "cost": ["1.004", "1", "6.5", "0"],
        "floor": ["1", "1", "", "1"],
    },
    dtype=object,
)


def by_name(frame: pd.DataFrame = FRAME) -> dict[str, ColumnValues]:
    return {values.column: values for values in column_values(DOMAIN, frame)}


def test_column_values_stand_in_the_order_of_written_tables() -> None:
    assert [values.column for values in column_values(DOMAIN, FRAME)] == list(DOMAIN.written_names)
    assert "floor" not in by_name(FRAME.drop(columns="floor"))


def test_column_values_counts_numbers_that_are_one_value_together() -> None:
    hours, cost = by_name()["hours"], by_name()["cost"]
    assert hours.numbers is not None
    assert cost.numbers is not None
    assert (hours.numbers.tolist(), hours.counts.tolist()) == ([7, 40], [1, 2])
    # Two decimals: 1.004 is 1.
    assert (cost.numbers.tolist(), cost.counts.tolist()) == ([0.0, 1.0, 6.5], [1, 2, 1])


def test_column_values_takes_a_listed_category_for_a_value_where_it_also_spells_missing() -> None:
    ward, floor = by_name()["ward"], by_name()["floor"]
    assert (dict(zip(ward.texts, ward.counts.tolist(), strict=True)), ward.absent) == (
        {"a": 2, "?": 1},
        1,
    )
    assert (floor.texts, floor.absent, floor.rows) == (("1",), 1, 4)
    assert (by_name()["hours"].absent, by_name()["cost"].absent) == (1, 0)
    assert floor.missing == 1 / 4


def test_number_text_writes_as_the_column_does() -> None:
    _, hours, cost, came = DOMAIN.columns
    moments = by_name()["came"].numbers
    assert moments is not None
    assert number_text(hours, 40) == "40"
    assert number_text(cost, 6.5) == "6.50"
    assert [number_text(came, tick) for tick in moments] == ["2020-01", "2020-02", "2020-12"]


def test_column_values_print_nothing_of_a_table() -> None:
    shown = "".join(repr(values) for values in column_values(DOMAIN, FRAME))
    assert not any(part in shown for part in ("40", "6.5", "'a'", "array", "missing"))


def test_column_values_refuse_a_value_without_a_count() -> None:
    ward = by_name()["ward"]
    with pytest.raises(ValueError, match="needs a count"):
        ColumnValues("ward", "categorical", None, ("a",), ward.counts, 0)
