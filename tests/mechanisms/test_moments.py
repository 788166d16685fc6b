"""Dates and times: forms, units, time zones, and columns of them."""

from dataclasses import replace
from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Domain, Moment
from mechanisms.errors import DomainError
from mechanisms.moments import UNITS, Form, calendar_starts, moment_of, tick_of
from mechanisms.private_bins import PrivateBins
from mechanisms.sampling import public_generator
from mechanisms.scale_free import moment_bounds

BORN = Moment("born", "date", "1920-01-01", "2009-12-31", "day", bins=30)
VISIT = Moment(
    "visit", "datetime", "2024-01-01T00:00:00", "2024-12-31T23:00:00", "hour", missing=True
)


@given(st.datetimes(), st.sampled_from(UNITS))
def test_moment_of_is_the_beginning_of_its_unit(moment: datetime, unit: str) -> None:
    tick = tick_of(moment, unit)
    begin = moment_of(tick, unit)
    assert begin <= moment
    assert tick_of(begin, unit) == tick
    if begin.year < 9990:
        assert moment_of(tick + 1, unit) > moment


@pytest.mark.parametrize(
    ("form", "unit", "value", "written"),
    [
        ("YYYY-MM-DD", "day", "2024-03-05", "2024-03-05"),
        ("YYYY-MM-DD", "day", "20240305", "2024-03-05"),
        ("YYYY-MM-DD", "day", "2024-W10-2", "2024-03-05"),
        ("YYYY-MM-DD", "day", "2024-03-05T00:00:00", "2024-03-05"),
        ("YYYY-MM-DD", "day", "2024-03-05T10:00:00", None),
        ("YYYY-MM-DD", "day", "2024-03", None),
        ("YYYY-MM-DD", "day", "2024-W10", None),
        ("YYYY-MM-DD", "day", "2024-02-30", None),
        ("YYYY-MM-DD", "day", "5.3.2024", None),
        ("YYYY-MM-DD", "day", "", None),
        ("YYYYMMDD", "day", "2024-03-05", "20240305"),
        ("YYYY-MM", "month", "2024-03", "2024-03"),
        ("YYYY-MM", "month", "2024-03-05", "2024-03"),
        ("YYYY-MM-DD", "month", "2024-03", "2024-03-01"),
        ("YYYY-Www", "week", "2024-W01", "2024-W01"),
        ("YYYY-Www", "week", "2024-12-31", "2025-W01"),
        ("YYYY-MM-DDTHH:MM:SS", "second", "2024-03-05 10:11:12.9", "2024-03-05T10:11:12"),
        ("YYYY-MM-DDTHH:MM:SS", "second", "2024-03-05", None),
        ("YYYY-MM-DDTHH:MM:SS", "day", "2024-03-05", "2024-03-05T00:00:00"),
        ("YYYY-MM-DDTHH:MM:SS", "second", "2024-03-05T10:11:12Z", None),
        ("YYYY-MM-DDTHH:MM:SS", "second", "2024-03-05T10:11:60", None),
        ("YYYY-MM-DD HH:MM", "minute", "2024-03-05T10:11", "2024-03-05 10:11"),
        ("YYYY-MM-DDTHH:MMZ", "minute", "2024-03-05T10:11+02:00", "2024-03-05T08:11Z"),
        ("YYYY-MM-DDTHH:MMZ", "minute", "2024-03-05T10:11", None),
        ("YYYY-MM-DDTHH:MM+01:00", "minute", "2024-12-31T23:30Z", "2025-01-01T00:30+01:00"),
        ("YYYY-MM-DDTHH:MM-03:30", "minute", "2024-01-01T00:00Z", "2023-12-31T20:30-03:30"),
        ("YYYY-MM-DDTHH:MMZ", "minute", "0001-01-01T00:00+02:00", None),
        (
            "YYYY-MM-DDTHH:MM:SS.fff",
            "millisecond",
            "2024-03-05T10:11:12.1239",
            "2024-03-05T10:11:12.123",
        ),
    ],
)
def test_form_reads_iso_8601_and_writes_its_own(
    form: str, unit: str, value: str, written: str | None
) -> None:
    parsed = Form.parse(form)
    assert parsed is not None
    assert str(parsed) == form
    moment = parsed.read(value, unit)
    assert (
        None if moment is None else parsed.write(moment_of(tick_of(moment, unit), unit))
    ) == written


@pytest.mark.parametrize(
    "text",
    ["", "DD.MM.YYYY", "YYYY", "YYYY-MM HH:MM", "YYYY-MM-DDTHH:MM+25:00", "YYYY-MM-DD HH.MM"],
)
def test_form_knows_no_other_letters(text: str) -> None:
    assert Form.parse(text) is None


@given(st.dates(date(1920, 1, 1), date(2009, 12, 31)), st.integers(0, 2**32))
def test_code_of_gives_back_what_is_written_for_dates(day: date, seed: int) -> None:
    code = BORN.code_of(day.isoformat())
    assert code is not None
    (written,) = BORN.write(np.array([code], np.int32), public_generator(seed))
    assert BORN.code_of(written) == code
    assert date.fromisoformat(written).isoformat() == written


def test_moment_columns_have_sizes_labels_and_words() -> None:
    assert BORN.size == 30
    assert BORN.labels[0] == "1920-01-01"
    assert VISIT.size == 33
    assert VISIT.code_of("2024-12-31T23:59:59") == 31
    assert VISIT.code_of("2025-01-01T00:00:00") is None
    assert "a datetime from 2024-01-01T00:00:00" in VISIT.allowed
    months = Moment("m", "date", "2023-11", "2024-02", "month", form="YYYY-MM", atoms=("9999-12",))
    assert months.labels == ("2023-11", "2023-12", "2024-01", "2024-02", "= 9999-12")


def test_first_cell_without_a_bound_is_labelled_by_its_end() -> None:
    bounds = moment_bounds(BORN.shape, BORN.kind, BORN.unit)
    assert bounds is not None
    low, high = bounds
    free = replace(BORN, low=low, high=high, private=PrivateBins(coarse=8))
    known = replace(BORN, private=PrivateBins(coarse=8))
    assert free.labels[0].startswith("up to ")
    assert (free.labels[1], known.labels[0]) == (
        free.labels[1].removeprefix("up to "),
        "1920-01-01",
    )


def test_moment_columns_come_back_from_their_tables() -> None:
    atoms = Moment("a", "date", "2020-01-01", "2020-12-31", "week", atoms=("9999-12-31",))
    edges = ("2020-01-01T00:00:00Z", "2020-06-01T00:00:00Z", "2020-07-01T00:00:00Z")
    cut = Moment(
        "e", "datetime", edges[0], edges[-1], "minute", edges=edges, form="YYYY-MM-DDTHH:MM:SSZ"
    )
    domain = Domain((BORN, VISIT, atoms, cut))
    assert Domain.from_dict(domain.to_dict()) == domain
    assert cut.size == 2


def test_from_dict_takes_dates_as_toml_has_them() -> None:
    table = {
        "name": "born",
        "kind": "date",
        "low": date(1920, 1, 1),
        "high": "2009-12-31",
        "bins": 30,
    }
    assert Domain.from_dict({"column": [table]}).columns == (BORN,)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"low": "2020-13-01"}, "'2020-13-01' is no date to the day, as in YYYY-MM-DD"),
        ({"low": "2020-01-02", "high": "2020-01-01"}, "is after high"),
        ({"unit": "fortnight"}, "have one of day, week, month, quarter, year"),
        ({"unit": "hour"}, "have one of day"),
        ({"format": "DD.MM.YYYY"}, "a date is written as in YYYY-MM-DD"),
        ({"format": "YYYY-MM-DD HH:MM"}, "a date is written as in"),
        ({"atoms": ["2020-01-01", "2020-01-01"]}, "is listed more than once"),
        ({"scale": "log"}, "unknown key 'scale'"),
        ({"low": 3}, "low = 3"),
    ],
)
def test_moment_columns_say_what_is_wrong(changes: dict[str, object], says: str) -> None:
    table = {"name": "d", "kind": "date", "low": "2020-01-01", "high": "2020-12-31", **changes}
    with pytest.raises(DomainError, match=says):
        Domain.from_dict({"column": [table]})


def test_form_of_a_place_writes_the_offset_that_its_clocks_have() -> None:
    form = Form.parse("YYYY-MM-DDTHH:MM:SS[Europe/Berlin]")
    assert form is not None
    assert form.write(datetime(2021, 7, 1)) == "2021-07-01T00:00:00+02:00"
    assert form.write(datetime(2021, 1, 1)) == "2021-01-01T00:00:00+01:00"
    assert form.read("2021-06-30T22:00:00Z", "second") == datetime(2021, 7, 1)
    assert form.read("2021-07-01T00:00:00", "second") is None
    assert Form.parse("YYYY-MM-DDTHH:MM:SS[Nowhere/Else]") is None


@given(st.datetimes(datetime(1980, 1, 1), datetime(2030, 1, 1)))
def test_form_of_a_place_gives_every_time_of_day_back(moment: datetime) -> None:
    form = Form.parse("YYYY-MM-DDTHH:MM:SS.ffffff[Europe/Berlin]")
    assert form is not None
    assert form.read(form.write(moment), "microsecond") == moment


@pytest.mark.parametrize("unit", ["year", "day"])
def test_fine_cells_far_from_today_are_centuries(unit: str) -> None:
    low, high = tick_of(datetime(1, 1, 1), unit), tick_of(datetime(9999, 12, 31), unit)
    starts = {moment_of(start, unit) for start in calendar_starts(unit, low, high, 400)}
    # The first unit marks a missing date, and is a cell of its own.
    apart = {moment_of(low + 1, unit)}
    far = {start for start in starts if start.year < 1700 or 3001 < start.year < 9999}
    years = (*range(1, 1700, 100), *range(3101, 9999, 100))
    assert far - apart == {datetime(year, 1, 1) for year in years}
