"""Drafts of columns whose values are written in a way of their own, and tables that come back written so."""

import re
import tomllib
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mechanisms.date_patterns import Pattern
from mechanisms.domain import Categorical, Column, Domain, Integer, Moment, Real
from mechanisms.draft import Draft, draft_of
from mechanisms.errors import DomainError
from mechanisms.private_bins import PrivateBins
from mechanisms.resolving import places, resolve
from mechanisms.sampling import public_generator
from mechanisms.table import decode, encode
from mechanisms.text_table import TextTable
from mechanisms.typed import value_types
from parties.session.draft_config import draft_text

ROWS = 400


def drafted(read_as: str = "utf-8, comma between values", **columns: Sequence[str]) -> Draft:
    rows = len(next(iter(columns.values())))
    return draft_of(TextTable(columns, range(rows)), "t.csv", read_as)


def amounts(low: float = 0.0) -> list[float]:
    drawn = np.random.default_rng(1).lognormal(5, 1.5, ROWS)
    return [float(x) + low for x in drawn]


def days() -> list[date]:
    drawn = np.random.default_rng(2).integers(0, 1500, ROWS)
    return [date(2019, 1, 1) + timedelta(int(n)) for n in drawn]


def minutes() -> list[int]:
    return [int(n) for n in np.random.default_rng(3).integers(0, 3000, ROWS)]


def read_back(draft: Draft) -> Domain:
    """The domain of the draft's text."""
    document = tomllib.loads(draft_text("t.csv", draft))
    keys = [key for key in ("column", "split", "missing", "ignore") if key in document]
    return Domain.from_dict({key: document[key] for key in keys})


def comes_back(values: Sequence[str], read_as: str = "utf-8, comma between values") -> Column:
    """The drafted column, after a synthetic table of its codes was written and read."""
    others = ["ab"[i % 2] for i in range(len(values))]
    draft = drafted(read_as, x=values, other=others)
    (column, _), domain = draft.domain.columns, draft.domain
    assert read_back(draft) == domain
    table = TextTable({"x": values, "other": others}, range(len(values)))
    codes = encode(domain, table)
    again = decode(domain, codes, public_generator(1))
    assert (encode(domain, again) == codes).all()
    return column


def written(column: Column) -> list[str]:
    """Values of a column as a synthetic table has them."""
    codes = np.arange(column.size - column.missing, dtype=np.int32).repeat(5)
    return [str(text) for text in column.write(codes, public_generator(1))]


def comma_for_point(text: str) -> str:
    return text.translate(str.maketrans(",.", ".,"))


FULL_WIDTH = {ord("0") + digit: 0xFF10 + digit for digit in range(10)}


def in_lakhs(number: int) -> str:
    return re.sub(r"(?<=\d)(?=(?:\d\d)*\d{3}$)", ",", str(number))


@pytest.mark.parametrize(
    ("write", "kind", "form"),
    [
        (lambda x: f"{x / 100:.1f}%", Real, "0.0%"),
        (lambda x: f"{x / 100:.1f} %", Real, "0.0 %"),
        (lambda x: f"{(x - 150) / 10:.1f}%", Real, "0.0%"),
        (lambda x: f"{(x - 150) / 10:+.1f}%", Real, "+0.0%;-0.0%"),
        (lambda x: f"{x - 150:+.2f} €", Real, "+0.00 €;-0.00 €"),
        (lambda x: f"${x:,.2f}", Real, "$#,##0.00"),
        (lambda x: f"EUR {x:.2f}", Real, "EUR 0.00"),
        (lambda x: comma_for_point(f"{x:,.2f} €"), Real, "#.##0,00 €"),
        (lambda x: comma_for_point(f"{x:.1f} kg"), Real, "0,0 kg"),
        (lambda x: f"{x * 10:,.0f}", Integer, "#,##0"),
        (lambda x: f"{x * 10:,.0f}".replace(",", "'"), Integer, "#'##0"),
        (lambda x: f"{x * 1000:,.0f}".replace(",", "\u00a0"), Integer, "#\u00a0##0"),
        (lambda x: f"{x:,.2f}" if x > 100 else f"({x:,.2f})", Real, "#,##0.00;(#,##0.00)"),
        (lambda x: f"{x:.2f}" if x > 100 else f"-{x:.2f}", Real, ""),
        (lambda x: f"{x:.2f}".rstrip("0").rstrip("."), Real, "0.#"),
        (lambda x: repr(round(x, 2)), Real, "0.0#"),
        (repr, Real, ""),
        (lambda x: f"{x:.0f}.0", Integer, "0.0"),
        (lambda x: f"{(x - 150) / 10:+.1f}", Real, "+0.0;-0.0"),
        (lambda x: f"{x % 1:.4f}".removeprefix("0"), Real, "#.0000"),
        (lambda x: f"{x * 1e-12:.3e}", Real, "0.000#e-00"),
        (lambda x: f"{x * 1e9:.2E}", Real, "0.00#E+00"),
        (lambda x: in_lakhs(int(x * 1000)), Integer, "#,##,##0"),
        (lambda x: f"₹{in_lakhs(int(x * 1000))}.50", Real, "₹#,##,##0.00"),
        (lambda x: f"{x:.0f}".translate(FULL_WIDTH), Integer, "\uff10"),
        (lambda x: f"{x:.0f}.00", Integer, "0.00"),
    ],
)
def test_draft_finds_the_signs_around_numbers(
    write: Callable[[float], str], kind: type, form: str
) -> None:
    column = comes_back([write(x) for x in amounts()])
    assert isinstance(column, kind)
    assert isinstance(column, Integer | Real)
    assert column.form == form


def test_zero_among_long_decimals_comes_back_as_the_table_wrote_it() -> None:
    long = [repr(x) for x in amounts()]
    for zero, form in (("0", "0.#"), ("0.0", "0.0#")):
        column = comes_back([zero] * ROWS + long)
        assert isinstance(column, Real)
        assert column.form == form
        assert column.text_of(0) == zero


@pytest.mark.parametrize(
    ("write", "form"),
    [
        (lambda m: f"{m // 60:02d}:{m % 60:02d}", "%H:%M"),
        (lambda m: f"{m % 1440 // 60:02d}:{m % 60:02d}:00", "%H:%M:00"),
        (lambda m: f"{m % 1440 // 60:02d}:{m % 60:02d}:{m % 59:02d}", "%H:%M:%S"),
        (lambda m: f"{m}:00:00", "%-H:00:00"),
        (lambda m: f"{m % 1440 // 60:02d}:{m % 60:02d} Uhr", "%H:%M Uhr"),
        (lambda m: f"{m % 1440 // 60}h{m % 60:02d}", "%-Hh%M"),
        (lambda m: f"{m % 1440 // 60}.{m % 60:02d}", "%-H.%M"),
        (lambda m: f"{m // 60}:{m % 60:02d}", "%-H:%M"),
        (lambda m: f"{m // 60}h {m % 60}m", "%-Hh %-Mm"),
        (lambda m: f"{m // 60} h {m % 60} min", "%-H h %-M min"),
        (
            lambda m: f"{m // 1440} days {m % 1440 // 60:02d}:{m % 60:02d}:00",
            "%-D days %H:%M:00",
        ),
        (lambda m: f"{m // 24} day" + "s" * (m // 24 != 1), "%-D day(s)"),
        (
            lambda m: " ".join([f"{m // 60}h"] * (m >= 60) + [f"{m % 60}m"] * (m % 60 > 0)) or "0m",
            "[%-Hh ][%-Mm]",
        ),
        (
            lambda m: f"{(m // 60 - 1) % 12 + 1}:{m % 60:02d} {'AP'[m % 1440 >= 720]}M",
            "%-I:%M %p",
        ),
        (
            lambda m: f"{(m // 60 - 1) % 12 + 1:02d}:{m % 60:02d}:00{'ap'[m % 1440 >= 720]}m",
            "%I:%M:00%P",
        ),
        (
            lambda m: f"{(m // 60 - 1) % 12 + 1:02d}:{m % 60:02d} {'ap'[m % 1440 >= 720]}.m.",
            "%I:%M %.P",
        ),
        (
            lambda m: "PT" + f"{m // 60}H" * (m >= 60) + f"{m % 60}M" * (m % 60 > 0 or not m),
            "PT[%-HH][%-MM]",
        ),
        (lambda m: f"P{m // 1440}DT{m % 1440 // 60}H", "P%-DDT%-HH"),
    ],
)
def test_draft_finds_durations_and_times_of_day(write: Callable[[int], str], form: str) -> None:
    column = comes_back([write(m) for m in minutes()])
    assert isinstance(column, Integer)
    assert column.form == form


def test_times_end_as_they_do_in_the_table() -> None:
    column = comes_back([f"{m % 1440 // 60:02d}:{m % 60 // 15 * 15:02d}" for m in minutes()])
    assert isinstance(column, Integer)
    assert set(dict(column.endings)) == {"00", "15", "30", "45"}
    assert {text[-2:] for text in written(column)} == {"00", "15", "30", "45"}


def test_noise_of_binary_fractions_is_no_decimal() -> None:
    column = comes_back([repr(round(x) / 100 * 1.19) for x in amounts()])
    assert isinstance(column, Real)
    assert column.decimals == 4


@pytest.mark.parametrize("rare", [[], ["1.25", "3.75"]])
def test_zeros_behind_the_decimals_that_numbers_need_come_back(rare: list[str]) -> None:
    """Of 4,000 rows two need one decimal more than all others."""
    values = [f"{halves % 80 / 2:.2f}" for halves in range(4000 - len(rare))]
    column = drafted(x=[*values, *rare]).domain.columns[0]
    assert isinstance(column, Real)
    assert (column.decimals, column.form) == (1, "0.00")


@pytest.mark.parametrize(("largest", "decimals"), [(1e12, 0), (1.0, 5)])
def test_numbers_with_a_power_of_ten_have_the_decimals_of_the_smallest(
    largest: float, decimals: int
) -> None:
    numbers = np.random.default_rng(1).uniform(-4, 0, ROWS)
    column = drafted(x=[f"{largest * 10**power:.1e}" for power in numbers]).domain.columns[0]
    assert isinstance(column, Real)
    assert (column.decimals, column.digits) == (decimals, 2)


def test_offsets_of_no_one_place_are_told() -> None:
    values = [f"{day} 00:00:00+0{i % 3}:00" for i, day in enumerate(days())]
    (question,) = drafted(x=values).questions
    assert "several offsets from UTC" in question


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            [f"{x:.0f}{' (about)' * (i % 7 == 0)}" for i, x in enumerate(amounts())],
            "has numbers in 342 of 400 rows, and ",
        ),
        (
            [f"{'~' * (i % 7 == 0)}{x:.0f}" for i, x in enumerate(amounts())],
            "has numbers in several spellings, 0 in 342 and ~0 in 58 rows; write them in one",
        ),
        (
            [f"{day:%d.%m.%Y}" if i % 2 else str(day) for i, day in enumerate(days())],
            "has dates in 2 spellings (YYYY-MM-DD, %d.%m.%Y); write them in one",
        ),
    ],
)
def test_a_draft_says_of_what_kind_most_of_a_column_is(values: list[str], said: str) -> None:
    draft = drafted(x=values, y=["a", "b"] * (ROWS // 2))
    assert draft.domain.names == ("y",)
    assert said in draft.left_out[0]


def test_a_draft_says_where_merged_categories_are_most_of_a_column() -> None:
    values = [*["a", "b"] * 60, *(f"c{i % 40}" for i in range(ROWS - 120))]
    draft = drafted(x=values)
    assert draft.domain.columns[0].labels == ("a", "b", "other")
    assert "70% of the rows together and are merged" in draft.skipped[0]


def test_times_of_day_come_out_within_a_day() -> None:
    """Bounds go outwards to round numbers; 24:10 is no time of a day."""
    late = [f"{h:02d}:{m:02d}" for h in range(3, 24) for m in range(60)]
    column = comes_back(late)
    assert isinstance(column, Integer)
    assert column.high == 1439
    durations = comes_back([f"{h:02d}:{m:02d}" for h in range(3, 27) for m in range(60)])
    assert isinstance(durations, Integer)
    assert durations.high > 1600
    with pytest.raises(DomainError, match="times of a day are 0 to 1439"):
        Integer("t", 0, 1440, form="%I:%M %p")


def test_draft_says_what_a_clock_counts() -> None:
    (note, _) = drafted(
        x=[f"{m // 60:02d}:{m % 60:02d}" for m in minutes()], y=["a", "b"] * 200
    ).notes
    assert "the format %H:%M (hours and minutes; numbers count minutes), too" in note


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        *((text, "day") for text in ("%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%d %b %Y", "%d-%b-%y")),
        *((text, "day") for text in ("%d%^b%Y", "%-m/%-d/%Y", "%B %-d, %Y", "%d.%m.%y", "%d%m%Y")),
        *((text, "month") for text in ("%Y%m", "%m/%Y", "%b %Y", "%b-%y")),
        *((text, "quarter") for text in ("%Y-Q%q", "Q%q %Y", "%YQ%q")),
        *((text, "week") for text in ("%GW%V", "%G W%V", "KW %-V/%G")),
        *((text, "day") for text in ("%-d. %B[de] %Y", "%d %b[fr] %Y", "%d de %B[es] de %Y")),
        *((text, "day") for text in ("%a, %d %b %Y", "%A[nl] %-d %B[nl] %Y", "%a[de], %d.%m.%Y")),
    ],
)
def test_draft_finds_the_spelling_of_dates(pattern: str, unit: str) -> None:
    form = Pattern.parse(pattern)
    assert form is not None
    moments = [datetime(d.year, d.month, d.day) for d in days()]
    column = comes_back([form.write(moment) for moment in moments])
    assert isinstance(column, Moment)
    assert (column.form, column.unit, column.kind) == (pattern, unit, "date")


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        ("%Y%m%d%H%M", "minute"),
        ("%d.%m.%Y %H:%M", "minute"),
        ("%m/%d/%Y %I:%M %p", "minute"),
        ("%d%^b%Y:%H:%M:%S", "second"),
    ],
)
def test_draft_finds_the_spelling_of_times(pattern: str, unit: str) -> None:
    form = Pattern.parse(pattern)
    assert form is not None
    seconds = np.random.default_rng(4).integers(0, 10**8, ROWS)
    column = comes_back([form.write(datetime(2019, 1, 1) + timedelta(0, int(s))) for s in seconds])
    assert isinstance(column, Moment)
    assert (column.form, column.unit, column.kind) == (pattern, unit, "datetime")


def test_midnights_of_a_place_stay_midnights() -> None:
    values = [
        f"{d.isoformat()}T00:00:00+0{1 + (4 <= d.month <= 9)}:00"
        for d in days()
        if d.month not in (3, 10)
    ]
    column = comes_back(values)
    assert isinstance(column, Moment)
    assert (column.form, column.unit) == ("YYYY-MM-DDTHH:MM:SS[Europe/Berlin]", "day")
    assert all("T00:00:00+0" in text for text in written(column))
    (question,) = drafted(x=values).questions
    assert "the offsets are those of Europe/Berlin" in question


def test_months_written_as_digits_come_back_as_months() -> None:
    column = comes_back([f"{d:%Y%m}" for d in days()])
    assert {int(text[4:]) for text in written(column)} <= set(range(1, 13))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([f"{d.day % 12 + 1:02d}/{d.month:02d}/{d.year}" for d in days()], "%d/%m/%Y, and %m/%d"),
        ([f"{x / 10 % 900 + 10:.3f}" for x in amounts()], "it is read as a number with three"),
        ([f"{int(x * 90) % 90000 + 1000:,}" for x in amounts()], "it is read as a whole number"),
    ],
)
def test_draft_asks_about_what_can_be_read_in_two_ways(values: list[str], said: str) -> None:
    draft = drafted(when=values, other=["a", "b"] * 200)
    (question,) = draft.questions
    assert question.startswith("when: ")
    assert said in question
    assert question in draft_text("t.csv", draft)


def test_draft_asks_nothing_where_one_value_decides() -> None:
    dates = [f"{d:%d/%m/%Y}" for d in days()]
    assert drafted(x=dates, y=["a", "b"] * 200).questions == ()
    assert drafted(x=[*(f"{x / 10:.3f}" for x in amounts()), "0.125"]).questions == ()


def test_whole_numbers_with_points_are_thousands_where_semicolons_stand_between_values() -> None:
    values = [f"{int(x * 90) % 90000 + 1000:,}".replace(",", ".") for x in amounts()]
    column = comes_back(values, "utf-8, semicolon between values, decimal point")
    assert isinstance(column, Integer)
    assert column.form == "#.##0"


@pytest.mark.parametrize(
    "marks", [["<5", ">400"], ["refused", "dk"], ["inf", "-inf"], ["#REF!"], ["n.d."]]
)
def test_draft_keeps_marks_among_numbers(marks: list[str]) -> None:
    values = [f"{x:.1f}" for x in amounts()] + marks * 4
    column = comes_back(values)
    assert isinstance(column, Real)
    assert set(column.marks) == set(marks)
    codes = np.array([column.code_of(mark) for mark in marks], np.int32)
    assert column.write(codes, public_generator(1)).tolist() == marks
    assert value_types(Domain((column,)))["x"].kind == "text"


def test_draft_keeps_marks_among_amounts_and_dates() -> None:
    cost = comes_back([f"${x:,.2f}" for x in amounts()] + ["refused", "<$5"] * 4)
    assert isinstance(cost, Real)
    assert (cost.form, set(cost.marks)) == ("$#,##0.00", {"refused", "<$5"})
    when = comes_back([f"{d:%d.%m.%Y}" for d in days()] + ["unknown", "00.00.0000"] * 4)
    assert isinstance(when, Moment)
    assert (when.form, set(when.marks)) == ("%d.%m.%Y", {"unknown", "00.00.0000"})
    iso = comes_back([d.isoformat() for d in days()] + ["open"] * 2)
    assert isinstance(iso, Moment)
    assert iso.marks == ("open",)


def test_draft_makes_no_marks_of_many_texts() -> None:
    values = [f"{x:.1f}" for x in amounts()] + [f"see note {i}" for i in range(40)]
    assert drafted(x=values, y=["a", "b"] * 220).domain.names == ("y",)


@pytest.mark.parametrize(
    "values",
    [
        ["1.1", "1.10", "1.9", "2.0"],
        ["9223372036854775807", "9007199254740993", "9007199254740995"],
        ["007", "012", "100"],
        ["Y", "N"],
        ["TRUE", "FALSE"],
        ["a;b;c", "a;b", "c"],
        ["10%", "20%", "30%"],
        ["x" * 399, "y" * 399, "z" * 300],
        ["<10k", "10k-50k", ">=50k"],
        ["3/4", "1/2"],
        ["1-Mar", "SEPT2"],
    ],
)
def test_few_codes_and_answers_are_categories_as_they_are_written(values: list[str]) -> None:
    column = comes_back(values * 40)
    assert isinstance(column, Categorical)
    assert set(column.categories) == set(values)


def test_whole_numbers_beyond_doubles_are_never_invented() -> None:
    accounts = [str(9_007_199_254_740_993 + 7 * i) for i in range(ROWS)]
    draft = drafted(acct=accounts, y=["a", "b"] * 200)
    assert draft.domain.ignore == ("acct",)
    assert draft.left_out == ("acct: looks like an identifier: 400 different values in 400 rows",)


def diagnoses() -> list[str]:
    generator = np.random.default_rng(5)
    drawn = generator.zipf(1.2, 3000) % 900
    return [f"{'ABCDE'[n // 180]}{n // 10 % 18:02d}.{n % 10}" for n in drawn.tolist()]


def test_draft_groups_many_codes_by_what_they_begin_with() -> None:
    values = diagnoses()
    draft = drafted(dx=values, y=["a", "b"] * 1500)
    column = draft.domain.columns[0]
    assert isinstance(column, Categorical)
    assert column.prefix
    assert column.size <= 150
    assert len(column.categories) == len(set(values))
    frequent = max(set(values), key=values.count)
    assert frequent in column.atoms
    assert "share a cell" in draft.notes[0]
    assert set(written(column)) <= set(values)
    assert comes_back(values) == Categorical(
        "x", column.categories, prefix=column.prefix, atoms=column.atoms
    )


def test_one_word_among_codes_of_digits_leaves_them_codes() -> None:
    codes = [f"{i * 37 % 2400:04d}" for i in range(150)] * 3
    column = comes_back([*codes, "refused", "refused"])
    assert isinstance(column, Categorical)
    assert "refused" in column.categories
    assert column.prefix == 2


def test_draft_leaves_out_identifiers_that_look_like_codes() -> None:
    draft = drafted(
        patient=[f"P{i // 2:04d}" for i in range(ROWS)],
        case_id=[f"{'ABCDEFGH'[i % 8]}{i // 2:03d}" for i in range(ROWS)],
        y=["a", "b"] * 200,
    )
    assert draft.domain.names == ("y",)


SPELLINGS: list[Callable[[int], str]] = [
    lambda n: f"{n / 10:.1f}%",
    lambda n: f"${n / 100:,.2f}",
    lambda n: f"{n:,}",
    lambda n: f"{n:,}".replace(",", "."),
    lambda n: f"({n})" if n % 2 else str(n),
    lambda n: repr(n / 8),
    lambda n: f"{n}.0",
    lambda n: f"{n // 60:02d}:{n % 60:02d}",
    lambda n: f"{n // 60}h {n % 60}m",
    lambda n: f"{date(1950, 1, 1) + timedelta(n % 40000):%d.%m.%Y}",
    lambda n: f"{date(1950, 1, 1) + timedelta(n % 40000):%d/%m/%Y}",
    lambda n: f"{date(1950, 1, 1) + timedelta(n % 40000):%Y%m}",
    lambda n: f"{1900 + n % 200}-Q{n % 4 + 1}",
    lambda n: f"{'ABCDEF'[n % 6]}{n % 97:02d}.{n % 10}",
    in_lakhs,
    lambda n: f"{n * 1e-12:.2e}",
    lambda n: f"{n / 7:+.2f}",
    lambda n: f"{n % 10**4:04d}"[:1].replace("0", "") + f".{n % 1000:03d}",
    lambda n: f"{n}".translate(FULL_WIDTH),
    lambda n: f"{n % 24}.{n % 60:02d}",
    lambda n: f"{n % 24:02d}:{n % 4 * 15:02d} Uhr",
    lambda n: f"{n % 12 + 1}:{n % 60:02d} {'ap'[n % 2]}.m.",
    lambda n: f"KW {n % 52 + 1}/{1990 + n % 40}",
    lambda n: f"{n % 28 + 1}. {('Januar', 'März', 'Mai')[n % 3]} {1950 + n % 90}",
    lambda n: f"{('EUR', 'USD')[n % 2]} {n / 100:.2f}",
]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(SPELLINGS),
    st.lists(st.integers(0, 10**7), min_size=30, max_size=120),
    st.lists(st.sampled_from(["<5", "refused", "inf", "NA", ""]), max_size=6),
    st.sampled_from(["comma between values", "semicolon between values"]),
)
def test_every_value_of_a_spelt_column_is_coded_and_comes_back_in_its_spelling(
    write: Callable[[int], str], numbers: list[int], others: list[str], read_as: str
) -> None:
    values = [write(n) for n in numbers] + others
    table = TextTable({"x": values, "y": ["a"] * len(values)}, range(len(values)))
    draft = draft_of(table, "t.csv", read_as)
    domain = draft.domain
    assert read_back(draft) == domain
    codes = encode(domain, table)
    again = decode(domain, codes, public_generator(7))
    assert (encode(domain, again) == codes).all()


def test_draft_in_private_bins_keeps_format_and_marks(tmp_path: Path) -> None:
    values = [f"${x:,.2f}" for x in amounts()] + ["refused"] * 5
    table = TextTable({"x": values}, range(len(values)))
    (column,) = draft_of(table, "t.csv", "comma", private_bins=True).domain.columns
    assert isinstance(column, Real)
    assert column.private is not None
    assert (column.form, column.marks) == ("$#,##0.00", ("refused",))
    assert column.code_of("refused") == column.size - 1


def test_private_bins_that_were_measured_keep_marks_and_missing_ones_apart() -> None:
    fine = Integer("x", 0, 99, missing=True, private=PrivateBins(), marks=("<5", "refused"))
    noisy = np.full(fine.size, 50.0)
    (column,) = resolve(Domain((fine,)), {0: noisy}, 1.0).columns
    assert isinstance(column, Integer)
    moved = places(column)
    assert moved.shape == (fine.size,)
    for mark in fine.marks:
        assert moved[fine.code_of(mark)] == column.code_of(mark)
    assert moved[-1] == column.size - 1
