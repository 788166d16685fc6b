"""Dates in other spellings than ISO 8601."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.date_patterns import Pattern, form_of
from mechanisms.domain import Moment
from mechanisms.errors import DomainError
from mechanisms.moments import Form, moment_of, tick_of

PATTERNS = [
    *("%d.%m.%Y", "%m/%d/%Y", "%-m/%-d/%Y", "%d%^b%Y", "%d %b %Y", "%d-%b-%y", "%B %-d, %Y"),
    *("%Y%m", "%Y%m%d%H%M", "%m/%Y", "%Y-Q%q", "%G-W%V", "%Y", "%d.%m.%Y %H:%M:%S"),
    *("%m/%d/%Y %I:%M %p", "%Y-%m-%d %H:%M:%S.%f", "100%% %Y"),
    *("%-d. %B[de] %Y", "%a[fr] %d %b[fr] %Y", "%A, %B %d, %Y", "%d de %^B[pt] de %Y", "[de] %Y"),
]


@pytest.mark.parametrize("text", PATTERNS)
def test_pattern_gives_the_beginning_of_its_unit_back(text: str) -> None:
    pattern = Pattern.parse(text)
    assert pattern is not None
    moment = moment_of(tick_of(datetime(2019, 5, 7, 15, 4, 9, 12), pattern.unit), pattern.unit)
    assert pattern.read(pattern.write(moment), pattern.unit) == moment
    assert pattern.matches(pattern.write(moment))


@given(st.sampled_from(PATTERNS), st.datetimes(datetime(1969, 1, 7), datetime(2068, 12, 20)))
def test_pattern_reads_what_it_wrote(text: str, moment: datetime) -> None:
    pattern = Pattern.parse(text)
    assert pattern is not None
    begins = moment_of(tick_of(moment, pattern.unit), pattern.unit)
    assert pattern.read(pattern.write(begins), pattern.unit) == begins


@pytest.mark.parametrize(
    ("text", "value", "moment"),
    [
        ("%d%^b%Y", "01JAN2019", datetime(2019, 1, 1)),
        ("%d-%b-%y", "01-Jan-68", datetime(2068, 1, 1)),
        ("%d-%b-%y", "01-Jan-69", datetime(1969, 1, 1)),
        ("%Y-Q%q", "2019-Q3", datetime(2019, 7, 1)),
        ("%G-W%V", "2019-W01", datetime(2018, 12, 31)),
        ("%m/%d/%Y %I:%M %p", "02/28/2019 12:05 AM", datetime(2019, 2, 28, 0, 5)),
        ("%d.%m.%Y", "2019-02-28", datetime(2019, 2, 28)),
        ("%d.%m.%Y", "30.02.2019", None),
        ("%-d. %B[de] %Y", "3. März 2019", datetime(2019, 3, 3)),
        ("%-d. %B[de] %Y", "3. March 2019", None),
        ("%a, %d %b %Y", "Tue, 07 May 2019", datetime(2019, 5, 7)),
        ("%a, %d %b %Y", "Wed, 07 May 2019", None),
        ("%d.%m.%Y", "1.2.2019", None),
        ("%m/%d/%Y %I:%M %p", "02/28/2019 13:05 AM", None),
    ],
)
def test_pattern_reads_moments(text: str, value: str, moment: datetime | None) -> None:
    pattern = Pattern.parse(text)
    assert pattern is not None
    assert pattern.read(value, pattern.unit) == moment


@pytest.mark.parametrize(
    "text",
    [
        "%d.%m",
        "%d.%Y",
        "%H:%M",
        "%Y %y",
        "%Y %m %b",
        "%V",
        "%Y-%V",
        "%x",
        "%Y %",
        "%Y %I",
        "%a %Y",
        "%B[xx] %Y",
    ],
)
def test_pattern_refuses_what_tells_no_moment(text: str) -> None:
    assert Pattern.parse(text) is None


def test_form_of_takes_letters_and_directives() -> None:
    assert isinstance(form_of("YYYY-MM"), Form)
    assert isinstance(form_of("%Y-%m"), Pattern)
    assert form_of("abc") is None


def test_moment_column_has_a_pattern_and_marks() -> None:
    column = Moment(
        *("x", "date", "2019-01-01", "2019-01-31", "day"), form="%d.%m.%Y", marks=("open",)
    )
    assert column.code_of("31.01.2019") == 30
    assert column.code_of("open") == 31
    assert column.size == 32
    assert column.labels[30:] == ("31.01.2019", "= open")
    assert column.to_dict()["marks"] == ["open"]
    with pytest.raises(DomainError, match="can be read as a value"):
        Moment(*("x", "date", "2019-01-01", "2019-01-31", "day"), marks=("2019-05-05",))
    with pytest.raises(DomainError, match="format"):
        Moment(*("x", "date", "2019-01-01", "2019-01-31", "day"), form="%d.%m.%Y %H:%M")


def test_moment_column_of_quarters_has_one_cell_for_each() -> None:
    column = Moment("x", "date", "2018-Q3", "2019-Q2", "quarter", form="%Y-Q%q")
    assert column.labels == ("2018-Q3", "2018-Q4", "2019-Q1", "2019-Q2")
