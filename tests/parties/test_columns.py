"""Columns are compared as they are written: what bins hide is in the report, and what is not private is marked."""

import pandas as pd
import pytest

from mechanisms.column_values import ColumnValues, column_values
from mechanisms.domain import Categorical, Domain, Integer, Moment
from parties.report.columns import column_summaries, distance

DOMAIN = Domain(
    (
        Integer("gain", 0, 99999, bins=32, missing=True),
        Integer("hours", 1, 99, bins=10, atoms=(40,)),
        Categorical("sex", ("f", "m")),
        Moment("came", "date", "2020-01-01", "2020-12-31", "day"),
    )
)


def table(
    gain: list[str], hours: list[str], sex: list[str], came: list[str]
) -> tuple[ColumnValues, ...]:
    frame = pd.DataFrame({"gain": gain, "hours": hours, "sex": sex, "came": came}, dtype=object)
    return column_values(DOMAIN, frame)


REAL = table(
    ["0"] * 9 + ["5000"], ["40"] * 5 + ["20"] * 5, ["f"] * 6 + ["m"] * 4, ["2020-01-01"] * 10
)
# The same bins: no zero is left, and every gain is somewhere in the first bin.
SYNTHETIC = table(
    [str(n) for n in range(100, 1000, 100)] + [""],
    ["40"] * 4 + ["21"] * 6,
    ["f"] * 5 + ["m"] * 5,
    ["2020-01-01"] * 5 + ["2020-01-03"] * 5,
)


def summaries(real: tuple[ColumnValues, ...] | None = REAL) -> dict[str, dict[str, object]]:
    found = column_summaries(DOMAIN, SYNTHETIC, real)
    return {str(item["column"]): dict(item) for item in found}


def test_column_summaries_show_zeros_that_bins_hide() -> None:
    gain = summaries()["gain"]
    assert gain["zeros"] == {"synthetic": 0.0, "real": 0.9}
    assert gain["missing"] == {"synthetic": 0.1, "real": 0.0}
    assert gain["mean"] == {"synthetic": pytest.approx(500.0), "real": pytest.approx(500.0)}
    assert gain["distance"] == pytest.approx(0.9)
    assert gain["values"][0] == {"value": "0", "atom": False, "synthetic": 0.0, "real": 0.9}  # type: ignore[index]


def test_column_summaries_list_atoms_first_and_then_what_is_frequent() -> None:
    hours = summaries()["hours"]
    assert hours["atoms"] == {"synthetic": 0.4, "real": 0.5}
    assert hours["values"] == [
        {"value": "40", "atom": True, "synthetic": 0.4, "real": 0.5},
        {"value": "20", "atom": False, "synthetic": 0.0, "real": 0.5},
    ]


def test_column_summaries_take_quantiles_of_the_values_themselves() -> None:
    quantiles = summaries()["hours"]["quantiles"]
    assert isinstance(quantiles, dict)
    assert quantiles["0.5"] == {"synthetic": 21, "real": 20}
    assert quantiles["0.01"] == {"synthetic": 21, "real": 20}
    assert quantiles["0.95"] == {"synthetic": 40, "real": 40}


def test_column_summaries_write_moments_as_tables_do() -> None:
    came = summaries()["came"]
    assert came["mean"] == {"synthetic": "2020-01-02", "real": "2020-01-01"}
    assert came["distance"] == pytest.approx(0.5)
    assert "zeros" not in came


def test_column_summaries_take_the_total_variation_of_categories() -> None:
    sex = summaries()["sex"]
    assert sex["distance"] == pytest.approx(0.1)
    assert sex["values"] == [
        {"value": "f", "synthetic": 0.5, "real": 0.6},
        {"value": "m", "synthetic": 0.5, "real": 0.4},
    ]


def test_column_summaries_have_nothing_real_where_no_real_table_is_given() -> None:
    for item in summaries(None).values():
        assert "distance" not in item
        assert "real" not in repr(item)


def test_column_summaries_leave_figures_out_where_every_value_is_missing() -> None:
    empty = table([""], ["1"], ["f"], ["2020-01-01"])
    gain = column_summaries(DOMAIN, empty, REAL)[0]
    assert "mean" not in gain
    assert "quantiles" not in gain
    assert gain["distance"] == 1.0
    assert distance(empty[0], empty[0]) == 0.0


def test_column_summaries_refuse_a_table_without_rows() -> None:
    with pytest.raises(ValueError, match="without rows"):
        column_summaries(DOMAIN, table([], [], [], []))
