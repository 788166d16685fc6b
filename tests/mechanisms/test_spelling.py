"""Spellings of numbers: signs around digits, durations and times of day."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Integer, Real
from mechanisms.errors import DomainError
from mechanisms.spelling import Clock, Numeral, spelling_of

NUMERALS = [
    *("0", "0.0", "0.00", "0.#", "0.0#", "#,##0", "#,##0.00", "#.##0,00", "#'##0", "#\u00a0##0,0#"),
    *("$#,##0.00", "-$0;($0)", "0.0%", "0,0 %", "EUR 0.00", "#.##0,00 €", "0 kg", "0;0-", "$0;$-0"),
    *("#,##0.00;(#,##0.00)", "0.0;\u22120.0", "#,##,##0.0#", "#.00#", "0.#E+00", "0.00#e-0 kg"),
    *("\uff10.\uff10", "+0.0#;-0.0#", "0.0{=1,K=1e3,M=1e6}", "0,0#{ Tsd.=1e3, Mio.=1e6} €"),
    *("$0.0{=1.0,k=1e3}", "0{ =1, k=1e3}W"),
]
CLOCKS = [
    *("%H:%M", "%-H:%M", "%H:%M:%S", "%-Hh %-Mm", "%-D days %H:%M:%S", "%-D day(s)", "%-S s"),
    *("PT[%-HH][%-MM]", "PT[%-HH][%-MM][%-SS]", "P%-DDT[%-HH][%-MM]"),
    *("[%-Hh ][%-Mm]", "[%-D day(s) ][%-H hour(s)]", "[%-Dd ]%H:%M"),
    *("%-M:%S.%3f", "%H:%M:%S,%1f", "[%-D day(s), ]%-H:%M:%S[.%6f]", "PT[%-MM]%-S.%-2fS"),
]


@pytest.mark.parametrize(
    ("form", "written", "plain"),
    [
        ("$#,##0.00", "$1,234.50", "1234.50"),
        ("$#,##0.00", "-$0.05", "-0.05"),
        ("#,##0.00;(#,##0.00)", "(1,234.00)", "-1234.00"),
        ("#.##0,00 €", "1.234.567,80 €", "1234567.80"),
        ("#'##0", "1'234", "1234"),
        ("0.0%", "12.3%", "12.3"),
        ("0.0", "1973.0", "1973.0"),
        ("#,##,##0.00", "12,34,567.50", "1234567.50"),
        ("#.00#", "-.125", "-0.125"),
        ("0.0#E+00", "-1.25E-07", "-0.000000125"),
        ("0.#e-0", "8.41e11", "841000000000"),
        ("$\u0660.\u0660", "$\u0661\u0662.\u0665", "12.5"),
        ("%H:%M:00", "03:56:00", "236"),
        ("%-I:%M %.p", "12:05 P.M.", "725"),
        ("%H:%M", "03:56", "236"),
        ("%H:%M", "103:05", "6185"),
        ("%-I:%M %p", "12:05 AM", "5"),
        ("%-I:%M %p", "12:05 PM", "725"),
        ("%I:%M:%S %P", "11:59:59 pm", "86399"),
        ("PT[%-HH][%-MM]", "PT0M", "0"),
        ("PT[%-HH][%-MM]", "PT2H5M", "125"),
        ("%-Hh %-Mm", "2h 5m", "125"),
        ("%-D days %H:%M:%S", "2 days 00:00:07", "172807"),
        ("%-D day(s)", "1 day", "1"),
        ("%-D day(s)", "3 days", "3"),
        ("[%-Hh ][%-Mm]", "2h", "120"),
        ("[%-Hh ][%-Mm]", "45m", "45"),
        ("%-M:%S.%3f", "1:23.456", "83456"),
        ("%-M:%S.%3f", "0:00.007", "7"),
        ("%-M:%S[.%-3f]", "1:23.4", "83400"),
        ("%-M:%S[.%-3f]", "1:23", "83000"),
        ("%H:%M:%S.%1f", "-01:00:00.5", "-36005"),
        ("[%-D day(s), ]%-H:%M:%S[.%6f]", "1 day, 0:00:01.500000", "86401500000"),
        ("[%-D day(s), ]%-H:%M:%S[.%6f]", "0:00:01", "1000000"),
        ("0.0{=1,K=1e3,M=1e6}", "950", "950"),
        ("0.0{=1,K=1e3,M=1e6}", "1.2K", "1200"),
        ("0.0{=1,K=1e3,M=1e6}", "-3.0M", "-3000000"),
        ("0.0{=1,K=1e3,M=1e6}", "1.234567M", "1234567"),
        ("0.0{=1,K=1e3,M=1e6}", "4200.0M", "4200000000"),
        ("0.0{=1.0,k=1e3}", "950.0", "950.0"),
        ("0.#{K=1e3,M=1e6}", "0.5K", "500"),
        ("0,00{ Tsd.=1e3, Mio.=1e6} €", "1,25 Mio. €", "1250000"),
        ("0{ =1, k=1e3}W", "3 kW", "3000"),
    ],
)
def test_spelling_reads_and_writes(form: str, written: str, plain: str) -> None:
    spelling = spelling_of(form)
    assert spelling is not None
    assert str(spelling) == form
    assert spelling.read(written) == plain
    assert spelling.write(plain) == written


@pytest.mark.parametrize(
    ("form", "plain", "written"),
    [
        ("0.0#", "7", "7.0"),
        ("0.0#", "7.250", "7.25"),
        ("0.#", "7.00", "7"),
        ("0.00", "7", "7.00"),
        ("#,##0.#", "1234567.10", "1,234,567.1"),
        ("$0;($0)", "-0.00", "$0.00"),
        ("[%-Hh ][%-Mm]", "0", "0m"),
    ],
)
def test_spelling_writes_decimals_as_it_says(form: str, plain: str, written: str) -> None:
    spelling = spelling_of(form)
    assert spelling is not None
    assert spelling.write(plain) == written


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("$#,##0.00", "1,234.00"),
        ("$#,##0.00", "$1,23.00"),
        ("#,##,##0", "123,45,678"),
        ("#.00", "."),
        ("%H:%M:00", "03:56:01"),
        ("$#,##0.00", "€5"),
        ("#.##0,00", "1.5"),
        ("%H:%M", "03:75"),
        ("%-I:%M %p", "13:05 PM"),
        ("%-I:%M %p", "0:05 PM"),
        ("%I:%M %p", "1:05 PM"),
        ("PT[%-HH][%-MM]", "PT"),
        ("%H:%M", "3h"),
        ("[%-Hh ][%-Mm]", ""),
        ("%-D days %H:%M", "1 days 24:00"),
    ],
)
def test_spelling_reads_no_other(form: str, written: str) -> None:
    spelling = spelling_of(form)
    assert spelling is not None
    assert spelling.read(written) is None


@pytest.mark.parametrize(
    "form",
    [
        *("", "abc", "#,##0,00", "0;1", "0;0;0", "00.0", "%H:%M:%H", "%M:%H", "%D %S"),
        *("%H:%M %p", "[x]%H", "#", "%I:%M", "%p %I", "%D %I %p", "%I:%M %p %p"),
    ],
)
def test_spelling_of_refuses_what_is_none(form: str) -> None:
    assert spelling_of(form) is None


@given(st.sampled_from(NUMERALS), st.integers(-(10**9), 10**9), st.integers(0, 4))
def test_numeral_gives_every_number_back(form: str, digits: int, places: int) -> None:
    numeral = spelling_of(form)
    assert isinstance(numeral, Numeral)
    plain = f"{digits / 10**places:.{places}f}"
    written = numeral.write(plain)
    read = numeral.read(written)
    assert read is not None
    assert float(read) == float(plain)
    assert numeral.write(read) == written


@given(st.sampled_from(CLOCKS), st.integers(-(10**6), 10**6))
def test_clock_gives_every_number_back(form: str, number: int) -> None:
    clock = spelling_of(form)
    assert isinstance(clock, Clock)
    assert clock.read(clock.write(str(number))) == str(number)


@given(st.text(max_size=12))
def test_spelling_of_any_text_ends(text: str) -> None:
    spelling = spelling_of(text)
    assert spelling is None or spelling_of(str(spelling)) == spelling


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"form": "abc"}, "format = 'abc'; numbers are written as in"),
        ({"form": "%H:%M"}, "format = '%H:%M'"),
        ({"marks": ("5",)}, "the mark '5' can be read as a value"),
        ({"marks": (" ",)}, "or is empty"),
        ({"marks": ("dk", "dk")}, "the mark 'dk' is listed more than once"),
        ({"form": "$0", "marks": ("$5",)}, "can be read as a value"),
    ],
)
def test_real_column_refuses_formats_and_marks_that_are_none(
    changes: dict[str, object], says: str
) -> None:
    with pytest.raises(DomainError) as caught:
        Real("x", 0.0, 1.0, **changes)  # type: ignore[arg-type]
    assert says in str(caught.value)


def test_integer_column_codes_marks_behind_its_numbers() -> None:
    column = Integer("x", 0, 9, missing=True, form="0%", marks=("<1%", "refused"))
    assert column.size == 13
    assert [column.code_of(value) for value in ("7%", "<1%", "refused", "7", "12%")] == [
        *(7, 10, 11, None, None)
    ]
    assert column.labels[9:] == ("9%", "= <1%", "= refused")
    assert "as in 0%" in column.allowed
