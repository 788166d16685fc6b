"""Columns and domains: codes, bounds, the configuration's tables, digests."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Categorical, Domain, Integer, Real
from mechanisms.errors import DomainError

COLOUR = Categorical("colour", ("red", "green", "blue"), missing=True)
AGE = Integer("age", 17, 90)
WEIGHT = Real("weight", 0.5, 2.5, bins=4)
DOMAIN = Domain((COLOUR, AGE, WEIGHT))


def test_domain_sizes_count_missing_code() -> None:
    assert DOMAIN.names == ("colour", "age", "weight")
    assert DOMAIN.shape == (4, 32, 4)
    assert DOMAIN.size(("colour", "weight")) == 16
    assert DOMAIN.sizes(("weight", "colour")) == (4, 4)


def test_code_of_follows_list_for_categories() -> None:
    assert [COLOUR.code_of(value) for value in ("red", "blue", "Red", "")] == [0, 2, None, None]


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**6), st.integers(1, 100))
def test_code_of_partitions_bounds_into_even_bins_for_integers(
    low: int, span: int, bins: int
) -> None:
    column = Integer("n", low, low + span, bins)
    ranges = [column.bin_range(code) for code in range(column.size)]
    assert ranges[0][0] == low
    assert ranges[-1][1] == low + span
    assert all(after[0] == before[1] + 1 for before, after in pairwise(ranges))
    widths = {last - first + 1 for first, last in ranges}
    assert max(widths) - min(widths) <= 1
    assert min(widths) >= 1
    for code, (first, last) in enumerate(ranges):
        assert column.code_of(str(first)) == code == column.code_of(str(last))


def test_size_is_one_bin_a_value_when_integers_are_few() -> None:
    column = Integer("n", 3, 7)
    assert column.size == 5
    assert [column.code_of(str(n)) for n in range(3, 8)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("17", 0),
        ("17.0", 0),
        ("+90", 31),
        ("91", None),
        ("16", None),
        ("17.5", None),
        ("x", None),
        ("", None),
        ("nan", None),
        ("1e2", None),
        ("٤٢", None),
        ("4_2", None),
        ("4" * 5000, None),
    ],
)
def test_code_of_takes_whole_numbers_in_bounds_only(value: str, code: int | None) -> None:
    assert AGE.code_of(value) == code


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("0.5", 0),
        ("0.999", 0),
        ("1", 1),
        ("2.5", 3),
        ("2.51", None),
        ("0.4999", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("1_0", None),
        ("١", None),
    ],
)
def test_code_of_takes_numbers_in_bounds_only(value: str, code: int | None) -> None:
    assert WEIGHT.code_of(value) == code


@given(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), st.floats(1e-3, 1e6), st.integers(1, 64))
def test_bin_multiples_have_their_bins_code_for_reals(low: float, span: float, bins: int) -> None:
    column = Real("x", low, low + span, bins)
    for code in range(bins):
        for multiple in column.bin_multiples(code):
            assert column.code_of(f"{multiple / 10**column.decimals:.{column.decimals}f}") == code


def test_bin_multiples_reach_both_bounds() -> None:
    column = Real("x", 0.0, 0.3, bins=3)
    scale = 10**column.decimals
    assert column.bin_multiples(0)[0] == 0
    assert column.bin_multiples(2)[1] / scale == 0.3


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Categorical("", ("a",)), "empty name"),
        (lambda: Categorical("c", ()), "categories is empty"),
        (lambda: Categorical("c", ("a", "b", "a")), "'a' is listed more than once"),
        (lambda: Integer("n", 5, 4), "low = 5 is above high = 4"),
        (lambda: Integer("n", 5, 9, bins=0), "bins = 0"),
        (lambda: Real("x", 1.0, 1.0), "low is below high"),
        (lambda: Real("x", 0.0, float("inf")), "finite"),
        (lambda: Integer("n", 0, 2**63), "64 bits"),
        (lambda: Real("x", 1e12, 1e12 + 1e-3), "another unit"),
        (lambda: Real("x", -1e308, 1e308), "another unit"),
        (lambda: Real("x", 0.0, 5e-324), "another unit"),
        (lambda: Domain(()), "no columns"),
        (lambda: Domain((AGE, AGE)), "'age' is described more than once"),
        (lambda: Domain((COLOUR,), missing_values=()), "missing.values is empty"),
        (lambda: DOMAIN.index("hue"), "no column 'hue'"),
    ],
)
def test_columns_are_checked_when_made(build, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError, match=says):
        build()


def test_from_dict_gives_back_to_dict() -> None:
    again = Domain.from_dict(DOMAIN.to_dict())
    assert again == DOMAIN
    assert again.digest() == DOMAIN.digest()


def test_from_dict_fills_in_defaults() -> None:
    domain = Domain.from_dict({"column": [{"name": "n", "kind": "integer", "low": 0, "high": 99}]})
    assert domain == Domain((Integer("n", 0, 99, 32, False),), ("", "?"))


def test_digest_changes_when_anything_does() -> None:
    others = [
        Domain((AGE, COLOUR, WEIGHT)),
        Domain((COLOUR, AGE, WEIGHT), ("",)),
        Domain((COLOUR, AGE, Real("weight", 0.5, 2.5, bins=5))),
    ]
    assert len({DOMAIN.digest(), *(domain.digest() for domain in others)}) == 4


INTEGER = {"name": "n", "kind": "integer", "low": 0, "high": 99}


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({}, "'column' is missing"),
        ({"column": [INTEGER], "columns": []}, "unknown key 'columns'"),
        ({"column": INTEGER}, "array of tables"),
        ({"column": [3]}, "column 1: a table"),
        ({"column": [{**INTEGER, "bin": 3}]}, "column 'n': unknown key 'bin'"),
        ({"column": [{**INTEGER, "kind": "date"}]}, "kind = 'date'"),
        ({"column": [{"name": "n", "kind": "integer", "low": 0}]}, "'high' is missing"),
        ({"column": [{**INTEGER, "kind": "real", "low": -(10**400)}]}, "low is more than a double"),
        ({"column": [{**INTEGER, "low": "0"}]}, "low = '0'; a value of type int"),
        ({"column": [{**INTEGER, "low": True}]}, "low = True; a value of type int"),
        ({"column": [{**INTEGER, "missing": 1}]}, "missing = 1; a value of type bool"),
        ({"column": [{"name": "c", "kind": "categorical", "categories": "ab"}]}, "array of str"),
        ({"column": [INTEGER], "missing": {"value": []}}, "unknown key 'value'"),
    ],
)
def test_from_dict_says_where_tables_are_wrong(tables: dict[str, object], says: str) -> None:
    with pytest.raises(DomainError, match=says):
        Domain.from_dict(tables)
