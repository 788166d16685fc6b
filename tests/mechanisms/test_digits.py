"""Numbers of so many significant digits: counted without gaps, drafted over any decades, written as they were."""

import math
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.column_bounds import value_cells
from mechanisms.column_values import column_values, number_text
from mechanisms.digits import at_place, mean_between, place_before, place_of, place_of_text
from mechanisms.domain import Domain, Real
from mechanisms.draft import draft_domain
from mechanisms.errors import DomainError
from mechanisms.private_columns import with_private_bins, without_values
from mechanisms.private_draft import private_draft
from mechanisms.reading import read_drawn, read_text
from mechanisms.sampling import public_generator
from mechanisms.schema import table_schema
from mechanisms.spelling import Numeral, spelling_of
from mechanisms.table import decode, encode
from mechanisms.typed import typed_table
from mechanisms.writing import text_bytes

RNG = np.random.default_rng(5)


@given(st.integers(-(10**40), 10**40), st.integers(1, 15))
def test_place_of_counts_numbers_of_so_many_digits(multiple: int, digits: int) -> None:
    place = place_of(multiple, digits)
    rounded = at_place(place, digits)
    assert place_of(rounded, digits) == place
    assert abs(rounded - multiple) * 2 <= 10 ** max(0, len(str(abs(multiple))) - digits)
    assert len(str(abs(rounded)).rstrip("0")) <= digits
    # No number between two neighbours has so few digits, and places grow with numbers.
    assert at_place(place - 1, digits) < rounded < at_place(place + 1, digits)
    assert place_of(-multiple, digits) == -place


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 15))
def test_place_of_text_rounds_every_double_once(number: float, digits: int) -> None:
    place = place_of_text(repr(number), 340, digits)
    assert place is not None
    exact = at_place(place, digits)
    wanted = Decimal(repr(number))
    if (
        wanted
        and wanted.adjusted() + 340 >= digits
        and math.isfinite(float(f"{wanted:.{digits - 1}e}"))
    ):
        assert Decimal(f"{wanted:.{digits - 1}e}") == Decimal(exact).scaleb(-340)
    assert abs(place) < 2**62
    assert place_of_text("none", 340, digits) is None


def test_place_of_text_does_not_round_to_decimals_before_digits() -> None:
    """12354.6 would be 12355 and then 12360."""
    assert place_of_text("12354.6", 0, 4) == place_of(12350, 4) != place_of(12360, 4)


COLUMN = Real("x", -1e-6, 1e30, atoms=(0.0, 5e-324), decimals=330, digits=3)


def test_a_column_with_digits_has_the_numbers_of_its_cells() -> None:
    edges = value_cells(COLUMN)
    assert edges.low[0] == -1e-6
    assert edges.high[-1] == 1e30
    assert Domain.from_dict(Domain((COLUMN,)).to_dict()).columns == (COLUMN,)
    codes = np.arange(COLUMN.size, dtype=np.int32)
    for seed in range(20):
        texts = COLUMN.write(codes, public_generator(seed))
        assert [COLUMN.code_of(text) for text in texts] == codes.tolist()
    assert COLUMN.code_of("1.0004e30") == COLUMN.code_of("1e30")
    assert COLUMN.code_of("1.01e30") is None


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"decimals": None}, "beside decimals"),
        ({"digits": 16}, "1 to 15 are possible"),
        ({"decimals": 341}, "0 to 340 are possible"),
        ({"scale": "symlog"}, "stand beside scale"),
        ({"endings": (("99", 0.5),)}, "stand beside endings"),
        ({"atoms": (1.2345,)}, "more than 3 digits"),
    ],
)
def test_digits_are_checked(keys: dict[str, object], says: str) -> None:
    with pytest.raises(DomainError, match=says):
        Real(**({"name": "x", "low": 0.0, "high": 9.0, "decimals": 2, "digits": 3} | keys))  # type: ignore[arg-type]


WIDE = np.exp(RNG.normal(0, 30, 900))
SIGNED = WIDE * RNG.choice([-1, 1], 900)
CASES = {
    "doubles": ([repr(float(x)) for x in WIDE], "0.0#[16e+00]", 15),
    "signed": ([repr(float(x)) for x in SIGNED], "0.0#[16e+00]", 15),
    "%g": ([f"{x:g}" for x in np.exp(RNG.normal(0, 12, 900))], "0.#[6e+00]", 6),
    "%.2e": ([f"{x:.2e}" for x in WIDE], "0.00#e+00", 3),
    "%.0E": ([f"{x:.0E}" for x in np.exp(RNG.normal(3, 4, 900))], "0.#E+00", 1),
    "e3": ([f"{x:.1e}".replace("e+0", "e").replace("e+", "e") for x in np.exp(RNG.normal(9, 2, 900))], "0.0#e-0", 2),
    "zeros": (["0.00E+00" if i % 3 else f"{x:.2E}" for i, x in enumerate(WIDE)], "0.00#E+00", 3),
}  # fmt: skip


def drafted(path: Path, cells: list[str]) -> tuple[Domain, Real]:
    path.write_text("x\n" + "".join(f"{cell}\n" for cell in cells))
    domain = draft_domain(path).domain
    column = domain.columns[0]
    assert isinstance(column, Real)
    return domain, column


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("marks", [(), ("inf", "-inf"), ("Inf", "-Inf", "#DIV/0!")])
def test_wide_numbers_are_a_quantity_that_comes_back_in_its_spelling(
    name: str, marks: tuple[str, ...], tmp_path: Path
) -> None:
    cells, form, digits = CASES[name]
    for place, mark in enumerate(marks):
        cells = [mark if i % 50 == place else cell for i, cell in enumerate(cells)]
    cells = ["NaN" if marks and i % 61 == 5 else cell for i, cell in enumerate(cells)]
    path = tmp_path / "t.csv"
    domain, column = drafted(path, cells)
    assert (column.form, column.digits, set(column.marks)) == (form, digits, set(marks))
    codes = encode(domain, read_text(path))
    frame = decode(domain, codes, public_generator(2))
    assert [cell for cell, drawn in zip(cells, frame["x"], strict=True) if cell in marks] == [
        drawn for drawn in frame["x"] if drawn in marks
    ]
    real, drawn = (
        np.array([float(c) for c in of if c not in (*marks, "NaN")]) for of in (cells, frame["x"])
    )
    # Each decade keeps its rows.
    assert (
        abs(np.median(np.log10(np.abs(drawn) + 1e-99)) - np.median(np.log10(np.abs(real) + 1e-99)))
        < 1
    )
    assert np.abs((drawn < 0).mean() - (real < 0).mean()) < 0.02
    for text in frame["x"]:
        if text not in (*marks, "NaN"):
            assert len(Decimal(text).normalize().as_tuple().digits) <= digits
            assert spelling_of(form).write(f"{Decimal(text):f}") == text  # type: ignore[union-attr]
    path.write_bytes(text_bytes(frame, domain))
    assert encode(domain, read_drawn(path, domain)).tolist() == codes.tolist()
    assert Domain.from_dict(domain.to_dict()) == domain
    (values,) = column_values(domain, frame)
    assert values.numbers is not None
    assert all(number_text(column, x) in set(frame["x"]) for x in values.numbers)


def test_no_wide_column_becomes_a_list_of_its_values(tmp_path: Path) -> None:
    whole = [f"{10**40 + i}.5" for i in range(300)]
    ends = [repr(float(x)) for x in WIDE[:300]]
    ends[:3] = [repr(sys.float_info.max), "-1.7976931348623157e+308", "5e-324"]
    for cells in (whole, [repr(float(x)) for x in WIDE], ends):
        draft = draft_domain(write(tmp_path, cells))
        assert not any(cell in str(draft.domain.to_dict()) for cell in cells[5:50])
        encode(draft.domain, read_text(tmp_path / "t.csv"))


def write(folder: Path, cells: list[str]) -> Path:
    path = folder / "t.csv"
    path.write_text("g,x\n" + "".join(f"{'ab'[i % 2]},{cell}\n" for i, cell in enumerate(cells)))
    return path


def test_amounts_of_a_few_decades_keep_their_decimals(tmp_path: Path) -> None:
    cells = [f"{x:.2f}" for x in RNG.uniform(1, 900, 900)]
    cells[7] = "1e-05"
    _, column = drafted(tmp_path / "t.csv", cells)
    assert (column.digits, column.decimals) == (None, 2)


def test_digits_in_private_bins_and_drafts(tmp_path: Path) -> None:
    path = write(tmp_path, CASES["%.2e"][0])
    draft = draft_domain(path)
    column = next(c for c in draft.domain.columns if isinstance(c, Real))
    private = with_private_bins(column)
    assert isinstance(private, Real)
    assert private.digits == 3
    assert all(private.code_of(cell) is not None for cell in CASES["%.2e"][0])
    free = without_values(column)
    assert isinstance(free, Real)
    assert (free.digits, free.form) == (3, column.form)
    assert free.code_of("1.234e5") == free.code_of("1.23e5")
    assert private_draft(draft).domain.names


def test_typed_tables_have_numbers_for_powers_of_ten(tmp_path: Path) -> None:
    domain, column = drafted(tmp_path / "t.csv", CASES["doubles"][0])
    frame = decode(domain, np.zeros((3, 1), np.int32), public_generator(1))
    assert str(typed_table(domain, frame).dtypes["x"]) == "float64"
    (field,) = table_schema(domain)["fields"]  # type: ignore[misc]
    assert (field["type"], field["description"]) == ("number", "15 digits")
    assert field["constraints"]["minimum"] == column.low
    assert math.isfinite(field["constraints"]["maximum"])


@pytest.mark.parametrize(
    ("form", "plain", "written"),
    [
        ("0.0#[16e+00]", "0.00001", "1e-05"), ("0.0#[16e+00]", "0.0001", "0.0001"),
        ("0.0#[16e+00]", "9999999999999998", "9999999999999998.0"),
        ("0.0#[16e+00]", "12300000000000000000", "1.23e+19"),
        ("0.0#[16e+00]", "0", "0.0"), ("0.0#[16e+00]", "-0.000012", "-1.2e-05"),
        ("0.#[6e+00]", "123456", "123456"), ("0.#[6e+00]", "1000000", "1e+06"), ("0.#[5E-0]", "100000", "1E5"),
    ],
)  # fmt: skip
def test_numeral_writes_some_powers_as_programs_do(form: str, plain: str, written: str) -> None:
    numeral = spelling_of(form)
    assert isinstance(numeral, Numeral)
    assert str(numeral) == form
    assert numeral.write(plain) == written
    assert Decimal(numeral.read(written) or "") == Decimal(plain)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numeral_of_doubles_writes_what_python_writes(number: float) -> None:
    numeral = spelling_of("0.0#[16e+00]")
    assert isinstance(numeral, Numeral)
    assert numeral.write(f"{Decimal(repr(number)):f}") == repr(number).replace(
        "-0.0", "0.0", number == 0
    )


@given(st.integers(1, 3), st.integers(-3000, 3000), st.integers(0, 4000))
def test_means_are_those_of_all_multiples_between_two_places(
    digits: int, first: int, more: int
) -> None:
    multiples = [at_place(place, digits) for place in range(first, first + more + 1)]
    found = mean_between(first, first + more, digits)
    assert found == Fraction(sum(multiples), len(multiples))


@given(st.integers(1, 15), st.fractions(-(10**20), 10**20))
def test_a_number_is_at_a_place_or_after_the_last_one_before_it(
    digits: int, multiple: Fraction
) -> None:
    found = place_before(multiple, digits)
    place = math.floor(found)
    assert at_place(place, digits) <= multiple < at_place(place + 1, digits)
    assert found == (place if at_place(place, digits) == multiple else Fraction(2 * place + 1, 2))
