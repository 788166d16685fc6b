"""The key of persons that a draft finds, and the fixed rule by which rows of a person are left out."""

import random
import string
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.draft import KNOWN_MISSING, draft_of
from mechanisms.linking import linking_keys
from mechanisms.person_rows import find_person_key, sampled_rows
from mechanisms.private_draft import private_draft
from mechanisms.text_table import TextTable

SALT = b"salt"
Row = tuple[str, str]


def table(rows: list[Row]) -> TextTable:
    columns = {"person_id": [row[0] for row in rows], "age": [row[1] for row in rows]}
    return TextTable(columns, range(2, 2 + len(rows)))


def sampled(rows: list[Row], at_most: int, salt: bytes = SALT) -> list[Row]:
    given = table(rows)
    keys = linking_keys(given, ["person_id"], source="visits.csv", at_most=None)
    found = sampled_rows(given, keys, at_most=at_most, columns=["age"], salt=salt)
    return list(zip(found.columns["person_id"], found.columns["age"], strict=True))


ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(string.digits)), max_size=40)


@settings(max_examples=150)
@given(rows=ROWS, at_most=st.integers(1, 4), seed=st.integers(0, 100))
def test_sampled_rows_bounds_every_person_whatever_others_have(
    rows: list[Row], at_most: int, seed: int
) -> None:
    """The same rows of a person stay without all other persons, and in any order."""
    found = sampled(rows, at_most)
    for person in "abcd":
        own = [row for row in rows if row[0] == person]
        kept = [row for row in found if row[0] == person]
        assert len(kept) == min(len(own), at_most)
        assert Counter(kept) <= Counter(own)
        assert Counter(sampled(own, at_most)) == Counter(kept)
    mixed = random.Random(seed).sample(rows, len(rows))
    assert Counter(sampled(mixed, at_most)) == Counter(found)


def test_sampled_rows_keeps_order_and_lines_and_what_fits() -> None:
    rows = [("a", "1"), ("b", "2"), (" A ", "3"), ("b", "4"), ("a", "5")]
    given = table(rows)
    keys = linking_keys(given, ["person_id"], source="x", at_most=None)
    assert sampled_rows(given, keys, at_most=3, columns=["age"], salt=SALT) is given
    found = sampled_rows(given, keys, at_most=2, columns=["age"], salt=SALT)
    assert list(found.places) == sorted(found.places)
    assert Counter(found.columns["person_id"])["b"] == 2
    assert len(found) == 4


def test_sampled_rows_chooses_evenly_and_anew_for_each_study() -> None:
    """Of 2,000 persons with 5 rows, 2 stay. Each row stays 800 times, +- 22; 110 are 5 deviations (1e-6 for all).

    Control: the first two rows of a person stay 2,000 times.
    """
    rows = [(f"p{n}", str(visit)) for n in range(2000) for visit in range(5)]
    one, other = sampled(rows, 2), sampled(rows, 2, b"another study")
    for kept in (one, other):
        assert all(abs(count - 800) < 110 for count in Counter(age for _, age in kept).values())
    first = [row for row in rows if row[1] in "01"]
    assert not all(abs(count - 800) < 110 for count in Counter(age for _, age in first).values())
    same = len(set(one) & set(other))
    # By chance 2 of 5 rows are the same: 1,600 of 4,000, +- 25.
    assert abs(same - 1600) < 130


PEOPLE = [f"P{n:03}" for n in range(60) for _ in range(5)]
AGES = [str(20 + n % 50) for n in range(300)]


@pytest.mark.parametrize("name", ["person_id", "patient", "PatientID", "mrn", "pid", "subject no"])
def test_find_person_key_finds_rows_of_persons(name: str) -> None:
    found = find_person_key({"age": AGES, name: PEOPLE}, KNOWN_MISSING)
    assert found is not None
    assert found.note == f"5 rows for each value of {name}"
    more = find_person_key({name: [*PEOPLE, "P000"]}, KNOWN_MISSING)
    assert more is not None
    assert more.note == f"up to 6 rows for each value of {name}"


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("age", AGES),
        ("client_age", AGES),
        ("person_id", [str(n) for n in range(300)]),
        ("person_id", [*PEOPLE[:-1], ""]),
        ("ward_id", [f"W{n % 12}" for n in range(300)]),
        ("row_key", [f"K{n % 9}" for n in range(18)]),
    ],
)
def test_find_person_key_finds_nothing_else(name: str, cells: list[str]) -> None:
    assert find_person_key({name: cells}, KNOWN_MISSING) is None


def test_find_person_key_prefers_a_persons_name_and_then_what_protects_more() -> None:
    stays, homes = [f"S{n // 2}" for n in range(300)], [f"H{n // 10}" for n in range(300)]
    tables = (
        ({"stay_id": stays, "person_id": PEOPLE, "home_id": homes}, "person_id"),
        (
            {"stay_id": stays, "home_id": homes},
            "home_id",
        ),
    )
    for columns, name in tables:
        found = find_person_key(columns, KNOWN_MISSING)
        assert found is not None
        assert found.column == name


def test_draft_leaves_the_key_of_persons_out_and_names_it() -> None:
    visits = TextTable({"person_id": PEOPLE, "age": AGES}, range(300))
    draft = draft_of(visits, "visits.csv", "comma")
    assert draft.domain.names == ("age",)
    assert draft.domain.ignore == ("person_id",)
    assert draft.left_out == (
        "person_id: looks like a person's key: 5 rows for each value of person_id",
    )
    assert draft.person == find_person_key(visits.columns, KNOWN_MISSING)
    assert private_draft(draft).person == draft.person
    assert draft_of(TextTable({"age": AGES}, range(300)), "x", "comma").person is None
