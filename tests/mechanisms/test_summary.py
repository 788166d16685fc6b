"""The summary of an owner's own table before it sends anything."""

import pandas as pd

from mechanisms.domain import Categorical, Domain, Integer, Moment, Real
from mechanisms.summary import ColumnSummary, summarise

DOMAIN = Domain(
    (
        Categorical("ward", ("x", "y", "z", "w"), missing=True),
        Integer("age", 0, 120, missing=True),
        Real("cost", 0.0, 10_000.0),
        Moment("since", "date", "2020-01-01", "2024-12-31", "day"),
    ),
    ("", "?"),
)


def test_summarise_orders_numbers_and_dates_and_counts_categories() -> None:
    frame = pd.DataFrame(
        {
            "ward": ["x", "y", "y", "z", "z", "w", "?", ""],
            "age": ["9", "10", "100", "?", "9", "9", "9", "9"],
            "cost": ["9.5", "10", "1e3", "9.5", "9.5", "9.5", "9.5", "9.5"],
            "since": ["2024-02-01", "2023-12-31", *["2024-01-01"] * 6],
        }
    )
    assert summarise(DOMAIN, frame.__getitem__) == (
        ColumnSummary("ward", "categorical", 2, 4, frequent=(("y", 2), ("z", 2), ("w", 1))),
        ColumnSummary("age", "integer", 1, 3, "9", "100"),
        ColumnSummary("cost", "real", 0, 3, "9.5", "1e3"),
        ColumnSummary("since", "date", 0, 3, "2023-12-31", "2024-02-01"),
    )


def test_summarise_takes_tables_without_rows_and_columns_without_values() -> None:
    empty = {name: [] for name in DOMAIN.names}
    assert [column.distinct for column in summarise(DOMAIN, empty.__getitem__)] == [0] * 4
    missing = {**empty, "age": ["?", ""]}
    (age,) = (c for c in summarise(DOMAIN, missing.__getitem__) if c.name == "age")
    assert age == ColumnSummary("age", "integer", 2, 0)
