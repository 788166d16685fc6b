"""Axes of columns: round values stand where they lie, with room for each, and intervals stand by them."""

import itertools
import re
from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.columns import Moment
from mechanisms.domain import Categorical, Integer, Real
from parties.report.axes import Axis, column_axis, error_bars, number_label


def texts(column: Integer | Real | Moment) -> list[str]:
    return [tick.text for tick in Axis.of(column).ticks()]


def days(low: date, high: date, bins: int = 10) -> Moment:
    return Moment("at", "date", str(low), str(high), "day", bins=bins)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Integer("n", 0, 99, bins=20), ["0", "20", "40", "60", "80"]),
        (Real("x", 0.0, 1.0, 10), ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (Integer("n", 0, 5_000_000, bins=10), ["0", "2,000,000", "4,000,000"]),
        (Integer("n", 0, 1_500_000, bins=32), ["0", "500,000", "1,000,000"]),
        (Integer("n", 1, 100_000, bins=12, scale="log"), ["1", "10", "100", "1,000", "10,000"]),
        (days(date(2019, 3, 1), date(2024, 9, 1)), ["2020", "2021", "2022", "2023", "2024"]),
        (days(date(1950, 1, 1), date(2024, 9, 1)), ["1960", "1980", "2000", "2020"]),
        (days(date(2024, 1, 1), date(2024, 12, 31)), ["Jan 2024", "Apr 2024", "Jul 2024", "Oct 2024"]),
        (days(date(2024, 3, 1), date(2024, 3, 31)), ["4 Mar 2024", "11 Mar", "18 Mar", "25 Mar"]),
    ],
)  # fmt: skip
def test_ticks_are_the_values_that_people_count_in(
    column: Integer | Moment, expected: list[str]
) -> None:
    assert texts(column) == expected


def test_ticks_of_skewed_bins_are_round_and_where_they_lie() -> None:
    edges = (5000, 16500, 21000, 24500, 28000, 32000, 36500, 42000, 49000, 62000, 96000, 260000)
    axis = Axis.of(Integer("income", 5000, 260000, edges=edges))
    ticks = {tick.text: tick.position for tick in axis.ticks()}
    assert len(ticks) >= 3
    assert all(len(re.sub("[^1-9]", "", text)) == 1 for text in ticks)
    for text, position in ticks.items():
        value, code = float(text.replace(",", "")), int(position + 0.5)
        share = position + 0.5 - code
        assert edges[code] + share * (edges[code + 1] - edges[code]) == pytest.approx(
            value, rel=1e-3
        )


@given(st.dates(date(1, 1, 2), date(9998, 1, 1)), st.integers(0, 400_000), st.integers(2, 30))
def test_any_dates_have_ticks_in_order_with_room(first: date, span: int, bins: int) -> None:
    last = min(
        date(9999, 12, 31), first + timedelta(days=min(span, (date(9999, 12, 31) - first).days))
    )
    axis = Axis.of(days(first, last, bins))
    _check_ticks(axis)


@given(st.integers(-(10**9), 10**9), st.integers(0, 10**9), st.integers(1, 40))
def test_any_whole_numbers_have_ticks_in_order_with_room(low: int, span: int, bins: int) -> None:
    _check_ticks(Axis.of(Integer("n", low, low + span, bins=bins)))


def _check_ticks(axis: Axis) -> None:
    ticks, letter = axis.ticks(), len(axis.lows) / 40
    assert ticks
    for one, other in itertools.pairwise(ticks):
        assert other.position - one.position >= letter * (len(one.text) + len(other.text)) / 2
    edge = len(axis.lows) - 0.5 + 2.5 * letter
    assert all(tick.position + letter * len(tick.text) / 2 <= edge for tick in ticks)
    assert all(-0.5 <= tick.position <= len(axis.lows) - 0.5 for tick in ticks)


@given(st.integers(0, 99), st.integers(0, 99))
def test_a_position_grows_with_the_number(one: int, other: int) -> None:
    axis = Axis.of(Integer("n", 0, 99, bins=7))
    first, second = axis.at(min(one, other)), axis.at(max(one, other))
    assert first is not None
    assert second is not None
    assert first <= second


def test_an_atom_has_a_bar_of_its_own_within_a_bin() -> None:
    axis = Axis.of(Integer("n", 0, 99, bins=2, atoms=(10,)))
    assert axis.at(10) == 1.0
    assert axis.at(5) == pytest.approx(-0.4, abs=0.01)
    assert axis.at(20) == pytest.approx(-0.1, abs=0.01)
    assert axis.at(1000) is None


def test_few_single_values_and_categories_have_no_axis() -> None:
    assert column_axis(Integer("n", 0, 3)) is None
    assert column_axis(Categorical("c", ("a", "b"))) is None
    assert column_axis(Integer("n", 0, 99, bins=4)) is not None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (36500.0, "36,500"), (-1e6, "-1,000,000"), (0.25, "0.25"), (1e-7, "1e-07"), (2e13, "2e+13")],
)  # fmt: skip
def test_numbers_have_separators_between_thousands(value: float, text: str) -> None:
    assert number_label(value) == text


def test_intervals_of_dates_stand_where_their_ends_are_and_the_truth_beside_them() -> None:
    column = days(date(2020, 1, 1), date(2020, 12, 30), 12)
    claim = {
        "quantiles": {"0.5": {"low": "2020-02-15", "high": "2020-07-01"}},
        "mean": {"low": "2020-03-01", "high": "2020-06-01"},
        "true": {"quantiles": {"0.5": "2020-05-01"}, "mean": "2020-04-01"},
    }
    made = {"quantiles": {"0.5": {"synthetic": "2020-04-15"}}, "mean": {"synthetic": "2020-04-20"}}
    axis = Axis.of(column)
    median, mean = error_bars(column, claim, made)
    assert (median.name, mean.name) == ("median", "mean")
    assert (median.low, median.high) == (axis.of_value("2020-02-15"), axis.of_value("2020-07-01"))
    assert median.low < (median.synthetic or 0) < (median.true or 0) < median.high
    assert mean.true == axis.of_value("2020-04-01")
    del claim["true"]
    assert [bar.true for bar in error_bars(column, claim, made)] == [None, None]


def test_an_interval_that_bounds_nothing_is_not_drawn() -> None:
    column = Integer("n", 0, 99, bins=10)
    claim = {"open": {"low": 0, "high": 99}, "mean": {"low": 0, "high": 50}}
    assert error_bars(column, claim, {}) == ()
    assert [bar.name for bar in error_bars(column, {**claim, "open": {}}, {})] == ["mean"]


def test_intervals_of_categories_are_shares_missing_ones_too() -> None:
    value = {"value": "a", "low": 0.1, "high": 0.3, "synthetic": 0.2, "true": 0.25}
    claim = {
        "values": [value],
        "missing": {"low": 0.0, "high": 0.1, "synthetic": 0.05},
        "true": {"missing": 0.06},
    }
    found = error_bars(Categorical("c", ("a",), missing=True), claim, {})
    assert [(bar.name, bar.low, bar.high, bar.true) for bar in found] == [
        ("a", 0.1, 0.3, 0.25),
        ("(missing)", 0.0, 0.1, 0.06),
    ]


def test_times_of_a_day_are_hours() -> None:
    column = Moment(
        "at", "datetime", "2024-03-01T06:00:00", "2024-03-01T18:00:00", "minute", bins=12
    )
    assert texts(column) == ["1 Mar 06:00", "09:00", "12:00", "15:00", "18:00"]
    column = replace(column, high="2024-03-03T18:00:00")
    assert texts(column) == ["1 Mar 06:00", "2 Mar", "12:00", "3 Mar", "12:00"]
