"""Values that are not listed: one cell with a word of its own, in files, tables, drafts and schemas."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Categorical, Domain, Implied, Integer
from mechanisms.draft import draft_domain
from mechanisms.draft_notes import RARE_ROWS
from mechanisms.errors import DataError, DomainError
from mechanisms.sampling import public_generator
from mechanisms.schema import table_schema
from mechanisms.table import decode, encode
from mechanisms.typed import typed_table

WARD = Categorical("ward", ("north", "south"), missing=True, other="elsewhere")
CODE = Categorical("code", ("A00", "A01", "B00"), prefix=1, atoms=("B00",), other="rest")
DOMAIN = Domain((WARD, CODE, Integer("n", 0, 9)))


def frame(ward: list[str], code: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"ward": ward, "code": code, "n": ["1"] * len(ward)}, dtype=str)


def test_values_that_are_not_listed_share_the_last_cell_but_for_missing_ones() -> None:
    codes = encode(
        DOMAIN, frame(["south", "west", "elsewhere", ""], ["A01", "C99", "rest", "B00"]), source="t"
    )
    assert codes[:, 0].tolist() == [1, 2, 2, 3]
    assert codes[:, 1].tolist() == [0, 2, 2, 1]
    assert (WARD.size, CODE.size) == (4, 3)
    written = decode(DOMAIN, codes, public_generator(1))
    assert written["ward"].tolist() == ["south", "elsewhere", "elsewhere", ""]
    assert set(written["code"][1:3]) == {"rest"}
    assert written["code"][0] in ("A00", "A01")
    assert typed_table(DOMAIN, written)["ward"].dropna().tolist() == ["south", *["elsewhere"] * 2]


def test_a_missing_value_is_none_of_the_others() -> None:
    """A column that allows none refuses it: it must not come out as a value."""
    with pytest.raises(DataError, match="missing values are not allowed"):
        encode(DOMAIN, frame(["north"], [""]), source="t")


def test_others_are_in_the_file_the_digest_and_the_schema() -> None:
    again = Domain.from_dict(json.loads(json.dumps(DOMAIN.to_dict())))
    assert again == DOMAIN
    plain = Domain((Categorical("ward", WARD.categories, missing=True), *DOMAIN.columns[1:]))
    assert plain.digest() != DOMAIN.digest()
    (ward, *_) = table_schema(DOMAIN)["fields"]  # type: ignore[misc]
    assert ward["constraints"]["enum"] == ["north", "south", "elsewhere"]


def test_a_word_for_others_that_is_a_category_is_refused() -> None:
    with pytest.raises(DomainError, match="other = 'north' is a category"):
        Categorical("ward", ("north", "south"), other="north")


def test_what_follows_from_another_column_follows_from_its_others_too() -> None:
    follows = (("north", "cold"), ("south", "warm"), ("elsewhere", "mild"))
    ward = Categorical("ward", WARD.categories, other="elsewhere")
    domain = Domain((ward,), implied=(Implied("climate", "ward", follows, 1),))
    table = pd.DataFrame({"ward": ["west", "north"], "climate": ["mild", "cold"]}, dtype=str)
    codes = encode(domain, table, source="t")
    assert decode(domain, codes, public_generator(1))["climate"].tolist() == ["mild", "cold"]
    with pytest.raises(DataError, match="contradicts 'ward'"):
        encode(domain, table.assign(climate=["warm", "cold"]), source="t")


@given(
    rare=st.lists(st.integers(1, RARE_ROWS - 1), min_size=1, max_size=6),
    known=st.lists(st.integers(RARE_ROWS, 300), min_size=2, max_size=5),
    seed=st.integers(0, 2**32),
)
def test_drafts_name_no_category_of_few_rows(
    tmp_path_factory: pytest.TempPathFactory, rare: list[int], known: list[int], seed: int
) -> None:
    known[0] += 400
    counts = {f"rare {n}": rows for n, rows in enumerate(rare)}
    counts |= {f"known {n}": rows for n, rows in enumerate(known)}
    values = [value for value, rows in counts.items() for _ in range(rows)]
    np.random.default_rng(seed).shuffle(values)
    path: Path = tmp_path_factory.mktemp("drafts") / "table.csv"
    pd.DataFrame({"ward": values, "n": [str(i % 7) for i in range(len(values))]}).to_csv(
        path, index=False
    )
    draft = draft_domain(path)
    column = draft.domain.columns[0]
    assert isinstance(column, Categorical)
    assert set(column.categories) == {value for value in counts if value.startswith("known")}
    # Neither the domain nor what is said of it has such a value in it.
    assert "rare" not in json.dumps([draft.domain.to_dict(), draft.notes, draft.questions])
    assert f"{len(rare)} with fewer than {RARE_ROWS} rows" in " ".join(draft.notes)
    codes = encode(
        draft.domain, pd.DataFrame({"ward": values, "n": ["1"] * len(values)}), source="t"
    )
    assert Counter(codes[:, 0].tolist())[len(known)] == sum(rare)


def test_drafts_of_few_rows_keep_all_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("ward,n\n" + "north,1\n" * 60 + "south,2\n" * 3)
    draft = draft_domain(tmp_path / "t.csv")
    column = draft.domain.columns[0]
    assert isinstance(column, Categorical)
    assert (column.categories, column.other) == (("north", "south"), "")
    assert "1 with fewer than 20 rows, by which a person may be known" in draft.notes[0]


def test_the_word_for_others_is_none_of_the_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "ward,n\n" + "other,1\n" * 300 + "south,2\n" * 200 + "west,3\n" * 5
    )
    column = draft_domain(tmp_path / "t.csv").domain.columns[0]
    assert isinstance(column, Categorical)
    assert column.other == "(other)"


def test_a_note_does_not_show_a_rare_value_as_the_reason_for_categories(tmp_path: Path) -> None:
    """Grades among which one person has a word of its own: nothing of the draft says the word."""
    (tmp_path / "t.csv").write_text(
        "grade,n\nwithheld by court,1\n" + "1,1\n" * 300 + "2,2\n" * 200 + "A,2\n" * 300
    )
    draft = draft_domain(tmp_path / "t.csv")
    assert "court" not in json.dumps([draft.domain.to_dict(), draft.notes, draft.questions])
    assert "since 'A' is no number" in " ".join(draft.notes)
