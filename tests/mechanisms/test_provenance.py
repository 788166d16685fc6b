"""Provenance of a domain's values: what `from` says, what it may say, and how many values it says it of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Domain
from mechanisms.errors import DomainError
from mechanisms.origins import column_in_words, counted, counted_in_words
from mechanisms.schema import table_schema

AGE: dict[str, Any] = {"name": "age", "kind": "integer", "low": 0, "high": 99, "bins": 10}
SEX: dict[str, Any] = {"name": "sex", "kind": "categorical", "categories": ["f", "m", "x"]}
TITLE = {"name": "title", "implied_by": "sex", "values": {"f": "Ms", "m": "Mr", "x": "Mx"}}


def domain_of(*columns: dict[str, Any]) -> Domain:
    return Domain.from_dict({"column": list(columns)})


def test_values_are_counted_by_what_is_said_of_them() -> None:
    domain = domain_of(
        AGE
        | {"atoms": [120, 999], "from": {"low": "public: law", "high": "public", "atoms": "table"}},
        SEX | {"from": "public: the form"},
        TITLE,
    )
    assert counted(domain) == {"public": 2 + 3, "table": 2, "unsaid": 3}
    assert column_in_words(domain, "age") == "public: law (low); public (high); table (atoms)"
    assert column_in_words(domain, "sex") == "public: the form"
    assert column_in_words(domain, "title") == "unsaid"


def test_a_key_that_is_named_goes_before_what_holds_for_the_column() -> None:
    domain = domain_of(AGE | {"atoms": [120], "from": {"atoms": "table"}})
    assert counted(domain) == {"table": 1, "unsaid": 2}


def test_bins_of_noisy_counts_are_private_by_themselves() -> None:
    domain = domain_of(AGE | {"bins": "private", "coarse": 4, "from": "public: a life's length"})
    assert counted(domain) == {"public": 2, "private": 1}
    assert "noisy counts" in counted_in_words(counted(domain))


@pytest.mark.parametrize(
    ("counts", "said", "not_said"),
    [
        ({"public": 5}, "public before any table was read", "epsilon"),
        ({"public": 5, "private": 1}, "public before any table was read", "epsilon"),
        ({"public": 5, "table": 1}, "1 of its 6 values was read from a table", "public before"),
        ({"public": 5, "unsaid": 2}, "does not state the origin of 2", "public before"),
        ({"unsaid": 2}, "does not state", "public before"),
    ],
)
def test_public_is_said_where_it_is_true_alone(
    counts: dict[str, int], said: str, not_said: str
) -> None:
    sentence = counted_in_words(counts)
    assert said in sentence
    assert not_said not in sentence


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("guessed", 'expected "public"'),
        ("public:", 'expected "public"'),
        ("", 'expected "public"'),
        ("public: two\nlines", "one line"),
        ("public: " + "x" * 300, "at most 200 characters"),
        (True, "expected a text such as"),
        ({}, "expected a text such as"),
        ({"hihg": "public"}, "from.hihg; the column has no such key, but bins, high, low"),
        ({"low": 1}, "from.low = 1; expected a text"),
        ({"low": "mine"}, "from.low = 'mine'"),
        ("private", "private are bins and values that a run chooses"),
        ({"low": "private"}, "private are bins and values that a run chooses"),
    ],
)
def test_other_words_are_refused(value: object, said: str) -> None:
    with pytest.raises(DomainError, match="column 'age'") as refused:
        domain_of(AGE | {"from": value})
    assert said in str(refused.value)


def test_what_is_said_is_part_of_the_digest_and_nothing_leaves_no_trace() -> None:
    silent, said, other = (
        domain_of(AGE | more) for more in ({}, {"from": "public"}, {"from": "table"})
    )
    assert "from" not in str(silent.to_dict())
    assert len({silent.digest(), said.digest(), other.digest()}) == 3


WORDS = st.sampled_from(["public", "table", "public: a code book", "table: of 2021"])


@given(
    st.one_of(WORDS, st.dictionaries(st.sampled_from(["low", "high", "atoms"]), WORDS, min_size=1))
)
def test_a_domain_is_read_as_it_was_written(said: object) -> None:
    domain = domain_of(AGE | {"atoms": [120], "from": said}, SEX, TITLE | {"from": "public"})
    assert Domain.from_dict(domain.to_dict()) == domain
    assert sum(counted(domain).values()) == 3 + 3 + 3


def test_a_schema_says_where_values_are_from_if_the_domain_does() -> None:
    assert "provenance" not in str(table_schema(domain_of(AGE, SEX)))
    schema: Any = table_schema(domain_of(AGE | {"from": "table"}, SEX))
    assert schema["provenance"] == {"table": 2, "unsaid": 3}
    assert [field["provenance"] for field in schema["fields"]] == ["table", "unsaid"]


def test_some_of_the_columns_keep_what_is_said_of_them() -> None:
    domain = domain_of(
        AGE | {"from": "table"}, SEX | {"from": "public"}, TITLE | {"from": "public"}
    )
    assert counted(domain.only(["age"])) == {"table": 2}
    some = domain.only(["sex"], ["age"])
    assert counted(some) == {"public": 6}
    assert some.ignore == ("age",)
    assert some.written_names == ("sex", "title")
