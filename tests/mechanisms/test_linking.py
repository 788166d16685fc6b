"""Linking keys: the public rule, its known answers, and errors that hold no value."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.errors import DataError
from mechanisms.linking import (
    DATE,
    KEY_BITS,
    LIMB_BITS,
    LIMBS,
    NUMBER,
    TEXT,
    LinkingKeys,
    hashed,
    linking_keys,
    normalised,
)
from mechanisms.text_table import TextTable

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "linking_keys.json").read_text(encoding="utf-8")
)


def table(**columns: list[str]) -> TextTable:
    rows = len(next(iter(columns.values())))
    return TextTable(columns, list(range(2, rows + 2)))


def number(limbs: np.ndarray) -> str:
    return f"{sum(int(limb) << LIMB_BITS * i for i, limb in enumerate(limbs)):024x}"


def test_vectors_have_known_fields_alone() -> None:
    assert VECTORS.keys() == {"normalised", "two_dates", "hashed"}
    assert all(vector.keys() == {"salt", "key", "hash"} for vector in VECTORS["hashed"])


@pytest.mark.parametrize(("written", "expected"), VECTORS["normalised"])
def test_normalised_gives_the_known_answer(written: str, expected: str) -> None:
    assert normalised(written) == expected
    assert normalised(expected) == expected


@pytest.mark.parametrize("written", VECTORS["two_dates"])
def test_normalised_refuses_a_date_of_two_days_without_showing_it(written: str) -> None:
    with pytest.raises(ValueError, match="two days") as caught:
        normalised(written)
    assert written not in str(caught.value)


@pytest.mark.parametrize("vector", VECTORS["hashed"])
def test_hashed_gives_the_known_answer(vector: dict[str, object]) -> None:
    salt, key = bytes.fromhex(str(vector["salt"])), tuple(vector["key"])  # type: ignore[arg-type]
    (limbs,) = hashed(LinkingKeys((key,)), salt)
    assert number(limbs) == vector["hash"]


@given(st.lists(st.text(max_size=4), min_size=1, max_size=3).map(tuple), st.binary(max_size=4))
def test_hashed_tells_keys_and_salts_apart(key: tuple[str, ...], salt: bytes) -> None:
    others = {(*key, ""), (key[0] + "x", *key[1:]), ("".join(key), "x")} - {key}
    limbs = hashed(LinkingKeys((key, *sorted(others))), salt)
    assert limbs.shape[1] == LIMBS
    assert limbs.min() >= 0
    assert limbs.max() < 1 << LIMB_BITS
    assert len({tuple(row) for row in limbs}) == 1 + len(others)
    assert not np.array_equal(limbs[:1], hashed(LinkingKeys((key,)), salt + b"x"))
    assert LIMBS * LIMB_BITS == KEY_BITS


@given(st.text(max_size=12))
def test_normalised_is_its_own_fixed_point(written: str) -> None:
    try:
        once = normalised(written)
    except ValueError:
        return
    assert normalised(once) == once


def test_linking_keys_tell_kinds() -> None:
    found = linking_keys(
        table(a=["1.2.1980", "1990-12-31"], b=["0012", "7"], c=["x", "1"]),
        ["a", "b", "c"],
        source="t",
    )
    assert found.kinds == (DATE, NUMBER, TEXT)
    assert found.keys[0] == ("1980-02-01", "0012", "x")


@pytest.mark.parametrize(
    ("values", "at_most", "said"),
    [
        (["Kowalska", "", "?"], 1, "lines 3, 4 have no linking key"),
        (["Kowalska", " ? "], 1, "line 3 has no linking key"),
        (["Kowalska", "nowak", " KOWALSKA "], 1, "lines 2, 4 have the same linking key"),
        (["Kowalska", "kowalska", "KOWALSKA"], 2, "at most 2 rows a key"),
        (["Kowalska", "03/04/1980"], 1, "line 3 has a date"),
    ],
)
def test_linking_keys_refuse_a_table_by_rows_and_show_no_value(
    values: list[str], at_most: int, said: str
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        linking_keys(table(k=values), ["k"], source="t.csv", missing=["", "?"], at_most=at_most)
    text = str(caught.value).casefold()
    assert not any(value.strip().casefold() in text for value in values if len(value) > 1)


def test_linking_keys_show_nothing_of_themselves() -> None:
    assert "Kowalska" not in repr(linking_keys(table(k=["Kowalska"]), ["k"], source="t"))


def test_linking_keys_name_a_missing_column() -> None:
    with pytest.raises(DataError, match="'birth' of the linking key is not in the table"):
        linking_keys(table(k=["1"]), ["k", "birth"], source="t")
