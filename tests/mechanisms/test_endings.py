"""Endings: drafts find them, drawn numbers have them, and no cell has other rows for it."""

import tomllib
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Domain
from mechanisms.draft import draft_of
from mechanisms.endings import endings_of
from mechanisms.errors import DomainError
from mechanisms.numbers import Integer, Real
from mechanisms.sampling import public_generator
from mechanisms.text_table import TextTable
from parties.session.draft_config import draft_text

PRICES = {"name": "price", "kind": "real", "low": 0.0, "high": 500.0, "bins": 12, "decimals": 2}
ENDINGS = {"endings": {"99": 0.8, "49": 0.15, "00": 0.05}}


def column_of(table: dict[str, Any]) -> Any:
    return Domain.from_dict({"column": [table]}).columns[0]


def written(column: Any, rows: int = 4000) -> tuple[list[int], list[str]]:
    """Codes, and what is written for them."""
    codes = np.random.default_rng(1).integers(0, column.size, rows).astype(np.int32)
    return codes.tolist(), column.write(codes, public_generator(2)).tolist()


def test_prices_end_as_they_are_said_to_and_keep_their_cells() -> None:
    column = column_of(PRICES | ENDINGS | {"atoms": [0.0, 100.0, 249.99]})
    codes, texts = written(column)
    assert [column.code_of(text) for text in texts] == codes
    listed = {column.cells.atoms[number] for number in column.cells.atoms}
    ends = Counter(t[-2:] for code, t in zip(codes, texts, strict=True) if code not in listed)
    assert set(ends) == {"99", "49", "00"}
    assert ends["99"] / ends.total() == pytest.approx(0.8, abs=0.03)
    # The control: without the key cents are any.
    plain = written(column_of(PRICES))[1]
    assert len({text[-2:] for text in plain}) > 90


@given(
    low=st.integers(-3000, 3000),
    width=st.integers(1, 5000),
    bins=st.integers(1, 40),
    digits=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    private=st.booleans(),
)
def test_no_number_leaves_its_cell(
    low: int, width: int, bins: int, digits: int, seed: int, private: bool
) -> None:
    rng = np.random.default_rng(seed)
    ends = rng.choice(10**digits, min(3, 10**digits), replace=False)
    shares = {
        f"{end:0{digits}d}": float(share)
        for end, share in zip(ends, rng.dirichlet([1, 1, 1]) + 0.01, strict=False)
    }
    total = sum(shares.values())
    table = {"name": "x", "kind": "integer", "low": low, "high": low + width}
    table |= {"bins": "private", "resolution": 60, "coarse": 8} if private else {"bins": bins}
    column = column_of(table | {"endings": {end: share / total for end, share in shares.items()}})
    codes, texts = written(column, 300)
    assert [column.code_of(text) for text in texts] == codes
    # Wherever a cell has a number with a listed ending, one comes out.
    for code, text in zip(codes, texts, strict=True):
        first, last = column.bin_range(code)
        if last - first > 2 * 10**digits:
            assert f"{abs(int(text)):0{digits}d}"[-digits:] in shares


def drafted(values: list[str]) -> Any:
    return draft_of(TextTable.of(pd.DataFrame({"x": values})), "t", "a table").domain.columns[0]


def test_drafts_find_what_prices_end_in() -> None:
    rng = np.random.default_rng(3)
    whole = rng.lognormal(4, 0.8, 3000).astype(int)
    cents = rng.choice([99, 49, 0], 3000, p=[0.7, 0.25, 0.05])
    column = drafted([f"{w}.{c:02d}" for w, c in zip(whole, cents, strict=True)])
    assert isinstance(column, Real)
    assert set(dict(column.endings)) == {"99", "49", "00"}
    assert dict(column.endings)["99"] == pytest.approx(0.7, abs=0.05)


def test_drafts_find_readings_that_end_in_zero_and_five() -> None:
    rng = np.random.default_rng(4)
    column = drafted([str(int(5 * round(x / 5))) for x in rng.normal(4000, 900, 3000)])
    assert isinstance(column, Integer)
    codes, texts = written(column)
    assert {text[-1] for text in texts} == {"0", "5"}
    assert [column.code_of(text) for text in texts] == codes


def test_drafts_find_no_ending_where_there_is_none() -> None:
    rng = np.random.default_rng(5)
    assert drafted([f"{x:.2f}" for x in rng.lognormal(4, 1, 3000)]).endings == ()
    assert drafted([str(int(x)) for x in rng.normal(50_000, 9_000, 3000)]).endings == ()
    # A few rows, or few values, tell nothing.
    assert endings_of({100 * i + 99: 1 for i in range(60)}, ()) == ()
    assert endings_of({100 * i + 99: 50 for i in range(20)}, ()) == ()


def test_atoms_are_no_endings() -> None:
    rows = {100 * i + 99: 5 for i in range(200)} | {12_345: 4000}
    assert endings_of(rows, {12_345}) == (("99", 1.0),)


@pytest.mark.parametrize(
    "value",
    [
        {},
        "99",
        {"9x": 0.5},
        {"99": 0},
        {"99": 2.0},
        {"99": 0.5, "9": 0.5},
        {"9999": 1.0},
        {"99": "a"},
    ],
)
def test_other_endings_are_refused(value: object) -> None:
    with pytest.raises(DomainError, match=r"'price'.*endings"):
        column_of(PRICES | {"endings": value})


def test_endings_need_decimals() -> None:
    table = {key: value for key, value in PRICES.items() if key != "decimals"}
    with pytest.raises(DomainError, match="endings need decimals"):
        column_of(table | ENDINGS)


def test_endings_are_read_back() -> None:
    domain = Domain.from_dict({"column": [PRICES | ENDINGS]})
    assert Domain.from_dict(domain.to_dict()) == domain


def test_a_draft_with_endings_is_a_configuration() -> None:
    rng = np.random.default_rng(6)
    prices = [f"{w}.99" for w in rng.integers(1, 400, 500)]
    frame = pd.DataFrame({"price": prices, "n": rng.integers(0, 5000, 500).astype(str)})
    draft = draft_of(TextTable.of(frame), "t", "a table")
    document = tomllib.loads(draft_text("t", draft))
    price, _ = document["column"]
    assert price["endings"] == {"99": 1.0}
    assert price["from"] == "table"


def test_endings_of_many_numbers_are_looked_for_in_a_time_that_grows_as_they_do() -> None:
    """A million different amounts: if each were compared with all others, the test would not end."""
    amounts = {number * 7: 1 for number in range(1_000_000)}
    assert endings_of(amounts, ()) == ()
