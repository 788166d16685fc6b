"""Columns and domains: codes, bounds, the configuration's tables, digests."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Categorical, Domain, Implied, Integer, Real
from mechanisms.errors import DomainError
from mechanisms.sampling import public_generator

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
            assert column.code_of(f"{multiple / 10**column.places:.{column.places}f}") == code


def test_bin_multiples_reach_both_bounds() -> None:
    column = Real("x", 0.0, 0.3, bins=3)
    scale = 10**column.places
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
        ({"column": [INTEGER], "split": "a/b"}, "split: an array of tables"),
        ({"column": [INTEGER], "split": 5}, "split: an array of tables"),
        ({"column": [3]}, "column 1: a table"),
        ({"column": [{**INTEGER, "bin": 3}]}, "column 'n': unknown key 'bin'"),
        (
            {
                "column": [
                    {"name": "d", "kind": "categorical", "values": "private", "candidate": ["a"]}
                ]
            },
            "unknown key 'candidate'; the keys are atoms, candidates",
        ),
        ({"column": [{**INTEGER, "kind": "time"}]}, "kind = 'time'; it is one of \"categorical\""),
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


GAIN = Integer("gain", 1, 99_999, bins=10, scale="log", atoms=(0,))
COST = Real("cost", 0.0, 10_000.0, atoms=(0.0, 49.9), decimals=2)


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        (GAIN, {"0": 0, "1": 1, "3": 1, "4": 2, "99999": 10, "-1": None, "100000": None}),
        (Integer("h", 1, 99, bins=7, atoms=(40,)), {"38": 2, "40": 3, "42": 2, "43": 2, "44": 4}),
        (Integer("a", 0, 120, edges=(0, 18, 65, 120)), {"17": 0, "18": 1, "120": 2, "121": None}),
        (Integer("s", 1, 5, atoms=(-9, 99)), {"-9": 0, "1": 1, "5": 5, "99": 6, "6": None}),
        (Integer("t", 0, 3, atoms=(0, 1)), {"0": 0, "1": 1, "2": 2, "3": 3}),
        (COST, {"0": 0, "0.004": 0, "0.01": 1, "49.9": 2, "49.90": 2, "49.91": 1, "1e4": 33}),
        (
            Real("r", 0.0, 1.0, decimals=1),
            {"0.04": 0, "0.06": 1, "1": 10, "1.04": 10, "1.06": None},
        ),
        (Real("e", 0.0, 2.0, edges=(0.0, 0.5, 2.0)), {"0.4999": 0, "0.5": 1, "2.0": 1}),
        (
            Real("l", 0.01, 1000.0, bins=5, scale="log"),
            {"0.05": 0, "0.11": 1, "1000": 4, "0": None},
        ),
        (
            Real("f", 0.0, 1.0, bins=2, atoms=(0.0, 7.0)),
            {"0": 0, "0.0001": 1, "1": 2, "7": 3, "6": None},
        ),
        (Real("w", 0.0, 1.0, decimals=2), {"nan": None, "1e-999999999": 0, "1_0": None, "": None}),
    ],
)
def test_code_of_knows_edges_scales_atoms_and_decimals(
    column: Integer | Real, codes: dict[str, int | None]
) -> None:
    assert {value: column.code_of(value) for value in codes} == codes


def test_sizes_count_bins_and_atoms() -> None:
    assert (GAIN.size, COST.size) == (11, 34)
    assert Domain((GAIN, COST)).size(("gain", "cost")) == 11 * 34
    assert GAIN.labels[:3] == ("= 0", "1", "4")
    assert len(COST.labels) == 34
    assert Integer("s", 1, 3, missing=True, atoms=(2,)).size == 4


SHAPED = Domain(
    (
        GAIN,
        COST,
        Integer("age", 0, 120, edges=(0, 18, 65, 120), missing=True),
        Real("dose", 0.1, 50.0, edges=(0.1, 2.5, 50.0), decimals=1),
    ),
    ignore=("name", "note"),
)


def test_from_dict_gives_back_shapes() -> None:
    tables = SHAPED.to_dict()
    assert Domain.from_dict(tables) == SHAPED
    assert tables["ignore"] == ["name", "note"]
    assert "scale" not in DOMAIN.to_dict()["column"][1]  # type: ignore[index]


def test_digests_of_plain_domains_are_what_they_always_were() -> None:
    assert DOMAIN.digest() == "56f9f39843f0b0f8853dc61579b643aff6ed051139ff9fc4cad899fe09483cbf"
    assert SHAPED.digest() != Domain(SHAPED.columns).digest()


LEVEL = Categorical("level", ("low", "high"), missing=True)
RANK = Implied("rank", "level", (("high", "2"), ("low", "1")), 0)


def test_implied_columns_are_written_but_not_modelled() -> None:
    domain = Domain((LEVEL, AGE), implied=(RANK, Implied("end", "level", RANK.values, 3)))
    assert domain.names == ("level", "age")
    assert domain.shape == (3, 32)
    assert domain.written_names == ("rank", "level", "age", "end")
    assert Domain.from_dict(domain.to_dict()) == domain
    assert domain.to_dict()["column"][0] == {  # type: ignore[index]
        "name": "rank",
        "implied_by": "level",
        "values": {"high": "2", "low": "1"},
    }


def test_implied_column_of_numbers_has_an_entry_for_each_number_atom_and_mark() -> None:
    number = Integer("n", 1, 3, atoms=(99,), marks=("none",))
    values = tuple((text, text[:1]) for text in ("1", "2", "3", "99", "none"))
    assert Domain((number,), implied=(Implied("r", "n", values, 1),)).written_names == ("n", "r")
    for place, (absent, _) in enumerate(values):
        fewer = (*values[:place], *values[place + 1 :])
        with pytest.raises(DomainError, match=f"has no entry for '{absent}' of 'n'"):
            Domain((number,), implied=(Implied("r", "n", fewer, 1),))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Integer("n", 0, 9, scale="log"), "needs low above 0; a zero gets a cell"),
        (lambda: Real("x", -1.0, 9.0, scale="log"), "negative numbers have no place"),
        (lambda: Real("x", 0.001, 9.0, scale="log", decimals=2), "is 0 with 2 decimals"),
        (lambda: Integer("n", 0, 9, scale="cubic"), "scale = 'cubic'"),
        (lambda: Integer("n", 1, 9, edges=(1, 9), scale="log"), "give one"),
        (lambda: Integer("n", 0, 9, edges=(0, 5, 5, 9)), "each above the one before"),
        (lambda: Integer("n", 0, 9, edges=(1, 9)), "the first and the last edge"),
        (lambda: Integer("n", 0, 9, atoms=(3, 3)), "atom 3 is listed more than once"),
        (lambda: Integer("n", 0, 9, atoms=(2**63,)), "64 bits"),
        (lambda: Real("x", 0.0, 9.0, atoms=(0.123,), decimals=2), "more than 2 decimals"),
        (lambda: Real("x", 0.0, 9.0, atoms=(float("nan"),)), "finite"),
        (lambda: Real("x", 0.0, 9.0, decimals=16), "0 to 15 are possible"),
        (lambda: Real("x", 0.0, 1e9, decimals=15), "another unit"),
        (lambda: Domain((AGE,), ignore=("age",)), "stands in ignore"),
        (lambda: Domain((AGE,), implied=(RANK,)), "a column is needed that is modelled"),
        (lambda: Domain((WEIGHT,), implied=(Implied("r", "weight", (), 1),)), "of categories"),
        (
            lambda: Domain((LEVEL,), implied=(Implied("r", "level", RANK.values[:1], 1),)),
            "no entry for 'low'",
        ),
        (
            lambda: Domain(
                (LEVEL,), implied=(Implied("r", "level", (*RANK.values, ("mid", "3")), 1),)
            ),
            "for 'mid'",
        ),
        (lambda: Domain((LEVEL,), implied=(RANK, RANK)), "'rank' is described more than once"),
    ],
)
def test_shapes_are_checked_when_made(build, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError, match=says):
        build()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"kind": "integer", "edges": [0, 9], "low": 0}, "edges stand beside low"),
        ({"kind": "integer", "edges": [0]}, "two or more"),
        ({"kind": "integer", "edges": 3}, "an array is needed"),
        ({"kind": "integer", "low": 0, "high": 9, "atoms": [0.5]}, "atoms = 0.5"),
        ({"kind": "integer", "low": 0, "high": 9, "decimals": 2}, "unknown key 'decimals'"),
        ({"kind": "real", "low": 0, "high": 9, "decimals": "2"}, "decimals = '2'"),
        ({"implied_by": "m", "values": {}, "kind": "integer"}, "unknown key 'kind'"),
        ({"implied_by": "m", "values": [1]}, "values is a table"),
        ({"implied_by": "m"}, "'values' is missing"),
    ],
)
def test_from_dict_says_where_shapes_are_wrong(table: dict[str, object], says: str) -> None:
    with pytest.raises(DomainError, match=says):
        Domain.from_dict({"column": [{"name": "n", **table}]})


@given(
    st.floats(1e-3, 1e3).map(lambda x: round(x, 3)),
    st.floats(1e-2, 1e6),
    st.integers(1, 64),
    st.sampled_from(["linear", "log"]),
    st.one_of(st.none(), st.integers(3, 6)),
    st.integers(0, 2**32),
)
def test_code_of_gives_back_what_is_written_for_reals(
    low: float, span: float, bins: int, scale: str, decimals: int | None, seed: int
) -> None:
    column = Real("x", low, low + span, bins, scale=scale, atoms=(0.0,), decimals=decimals)
    codes = np.arange(column.size, dtype=np.int32)
    written = column.write(codes, public_generator(seed))
    assert [column.code_of(value) for value in written] == codes.tolist()
    places = {len(value.partition(".")[2]) for value in written}
    assert places == {column.places}
    # Whatever lies within the bounds has a code, however many digits it has.
    assert None not in [column.code_of(repr(x)) for x in (low, low + span / 3, low + span)]
