"""Columns with several values in a cell: split when read, joined when written, recognised by drafts."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mechanisms.domain import Categorical, Domain, Integer, Moment, Real
from mechanisms.draft import Draft, draft_of
from mechanisms.errors import DataError, DomainError
from mechanisms.private_categories import PrivateCategories
from mechanisms.private_draft import private_draft
from mechanisms.provenance import TABLE, WHOLE, Provenance
from mechanisms.reading import read_drawn, read_text
from mechanisms.resolving import coarse_codes, resolve
from mechanisms.sampling import public_generator
from mechanisms.schema import table_schema
from mechanisms.split_columns import NO, YES, SplitColumn, part_of, split_cells
from mechanisms.table import decode, encode
from mechanisms.text_format import TextFormat
from mechanisms.text_table import TextTable
from mechanisms.typed import absent_in, typed_table, value_types
from mechanisms.writing import form_of, write_rows
from parties.session.draft_config import draft_text

PRESSURE = SplitColumn("pressure", "{systolic}/{diastolic}")
DRUGS = SplitColumn("drugs", separator="; ", answers=("statin", "heparin", "other"), other="other")
DOMAIN = Domain(
    (
        Integer("age", 0, 99),
        Integer("systolic", 60, 250, missing=True),
        Integer("diastolic", 30, 150, missing=True),
        *(Categorical(part, (NO, YES)) for part in DRUGS.parts),
        Categorical("sex", ("f", "m")),
    ),
    ("NA", ""),
    splits=(PRESSURE, DRUGS),
)


def table(**columns: Sequence[str]) -> TextTable:
    rows = len(next(iter(columns.values())))
    return TextTable(columns, range(1, rows + 1), "row")


def rows(pressure: Sequence[str], drugs: Sequence[str]) -> TextTable:
    count = len(pressure)
    return table(age=["50"] * count, pressure=pressure, drugs=drugs, sex=["f"] * count)


def random_codes(domain: Domain, count: int, seed: int) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(
        0, domain.shape, (count, len(domain.shape)), np.int32
    )


def test_cells_are_split_into_the_columns_that_the_domain_models() -> None:
    given_ = rows(
        ["120/80", "NA", "", "131/ 85"], ["statin; heparin", "", "heparin;statin;statin", "gold"]
    )
    split = split_cells(DOMAIN.splits, DOMAIN.missing_values, given_, "t.csv")
    assert list(split.columns) == list(DOMAIN.names)
    assert split.columns["systolic"] == ["120", "NA", "NA", "131"]
    assert split.columns["diastolic"] == ["80", "NA", "NA", "85"]
    assert split.columns[part_of("drugs", "statin")] == [YES, NO, YES, NO]
    assert split.columns[part_of("drugs", "other")] == [NO, NO, NO, YES]
    assert split_cells(DOMAIN.splits, DOMAIN.missing_values, split, "t.csv") is split
    assert (encode(DOMAIN, given_) == encode(DOMAIN, split)).all()


def test_a_table_is_written_with_the_columns_that_owners_have() -> None:
    codes = encode(DOMAIN, rows(["120/80", "NA"], ["heparin; statin", ""]))
    written = decode(DOMAIN, codes, public_generator(1))
    assert (
        list(written.columns) == ["age", "pressure", "drugs", "sex"] == list(DOMAIN.written_names)
    )
    assert written["drugs"].tolist() == ["statin; heparin", ""]
    assert re.fullmatch(r"\d+/\d+", written["pressure"][0])
    assert written["pressure"][1] == "NA"
    typed = typed_table(DOMAIN, written)
    assert typed["pressure"].isna().tolist() == [False, True]
    assert value_types(DOMAIN)["pressure"].kind == "text"
    assert absent_in(DOMAIN, "pressure") == {"NA"}


@given(seed=st.integers(0, 2**32), missing=st.sampled_from([("NA", ""), ("N/A",), ("?", "n/a")]))
def test_every_row_that_a_model_may_draw_comes_back(seed: int, missing: tuple[str, ...]) -> None:
    """Cells of which a part is missing, too: what was drawn is what an auditor counts."""
    domain = replace(DOMAIN, missing_values=missing)
    codes = random_codes(domain, 50, seed)
    written = decode(domain, codes, public_generator(seed))
    assert (encode(domain, written) == codes).all()


AMOUNTS = Domain(
    (
        Categorical("currency", ("EUR", "USD"), missing=True),
        Integer("amount", 0, 99, missing=True),
        Integer("from", 0, 99, missing=True),
        Integer("to", 0, 99, missing=True),
    ),
    ("", "NA"),
    splits=(SplitColumn("price", "{currency} {amount}"), SplitColumn("span", "{from} to {to}")),
)
"""Patterns of which a blank would be left at the end of a cell."""


@given(seed=st.integers(0, 2**32))
def test_a_gap_beside_a_blank_comes_back(seed: int) -> None:
    codes = random_codes(AMOUNTS, 50, seed)
    written = decode(AMOUNTS, codes, public_generator(seed))
    assert all(cell == cell.strip() for cell in written["price"])
    assert (encode(AMOUNTS, written) == codes).all()


def test_a_gap_beside_a_blank_needs_a_spelling_that_is_not_empty() -> None:
    with pytest.raises(DomainError, match=r"a missing 'currency' would leave a blank .* \"NA\""):
        replace(AMOUNTS, missing_values=("",))


def test_long_cells_are_split_in_a_time_that_grows_as_they_do() -> None:
    """A megabyte that almost fits, of texts that repeat: with backtracking the test would not end."""
    split = SplitColumn("x", "({a}, {b}) to ({c}, {d}) {e}mmHg")
    assert split.split("(" + ", " * 500_000, ("NA",)) is None
    assert split.split("(1, 2) to (3, 4) " + "mmHg" * 250_000, ("NA",)) is not None


def test_a_description_with_many_values_is_checked_in_a_time_that_grows_as_they_do() -> None:
    values = tuple(f"ward {i}" for i in range(40_000))
    columns = (Categorical("a", values), Categorical("b", values))
    assert Domain(columns, splits=(SplitColumn("x", "{a}/{b}"),)).splits


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.parquet", "t.xlsx"])
def test_files_come_back(tmp_path: Path, name: str) -> None:
    domain = replace(
        DOMAIN, format=TextFormat(line_end="crlf", columns=("sex", *DOMAIN.written_names[:3]))
    )
    codes = random_codes(domain, 200, 1)
    path = tmp_path / name
    write_rows(path, [decode(domain, codes, public_generator(1))], domain, form_of(path))
    read = read_drawn(path, domain) if name == "t.csv" else read_text(path)
    assert (encode(domain, read) == codes).all()


@pytest.mark.parametrize(
    ("pressure", "drugs", "says"),
    [
        (
            "120",
            "statin",
            r"row 1, column 'pressure': the value '120' is not allowed; it has to be as in "
            r"\{systolic\}/\{diastolic\}, or 'NA' or '' for a missing value",
        ),
        ("120/900", "statin", r"column 'diastolic' \(integer\): the value '900'"),
    ],
)
def test_cells_that_cannot_be_split_are_named(pressure: str, drugs: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        encode(DOMAIN, rows([pressure], [drugs]), source="t.csv")


def test_answers_that_are_not_listed_are_named_without_a_word_for_them() -> None:
    strict = SplitColumn("drugs", separator=";", answers=("statin", "heparin"))
    domain = Domain(tuple(Categorical(part, (NO, YES)) for part in strict.parts), splits=(strict,))
    with pytest.raises(DataError, match=r"'statin;gold' is not allowed.*'statin', 'heparin'"):
        encode(domain, table(drugs=["statin;gold"]))
    with pytest.raises(DataError, match="2 values are not allowed; they are"):
        encode(domain, table(drugs=["gold", "statin", "silver"]))


def test_a_table_without_the_column_is_refused_by_its_name() -> None:
    with pytest.raises(DataError, match="column 'pressure' of the domain is not in the table"):
        encode(DOMAIN, table(age=["1"], drugs=[""], sex=["f"]))
    both = table(age=["1"], pressure=["120/80"], systolic=["120"], drugs=[""], sex=["f"])
    with pytest.raises(DataError, match="split into 'systolic', which is in the table too"):
        encode(DOMAIN, both)


@pytest.mark.parametrize(
    ("split", "says"),
    [
        ({"column": "x"}, "the key 'answers' is missing"),
        ({"column": "x", "pattern": "{a}/{b}", "answers": ["q"]}, "unknown key 'answers'"),
        ({"column": "x", "pattern": "{a}"}, "two columns are needed"),
        ({"column": "x", "pattern": "{a}{b}"}, "text is needed between two columns"),
        ({"column": "x", "pattern": "{a}/{a}"}, "has 'a' twice"),
        ({"column": "x", "pattern": "{a}/{q}"}, "'q' is no column"),
        ({"column": "x", "pattern": 7}, "a text is needed"),
        ({"column": "a", "pattern": "{a}/{b}"}, "'a' is split, and split again, described"),
        ({"column": "c", "pattern": "{a}/{b}"}, "'c' is split, and"),
        ({"column": "x", "pattern": "{a}-{b}"}, "could not be read back"),
        ({"column": "x", "separator": ";", "answers": []}, "answers is empty"),
        ({"column": "x", "separator": ";", "answers": ["p", "p"]}, "has 'p' twice"),
        ({"column": "x", "separator": ";", "answers": ["p;q"]}, "could not be told"),
        ({"column": "x", "separator": ";", "answers": ["p"], "other": "q"}, "one of the answers"),
        ({"column": "x", "separator": ";", "answers": ["p"]}, "'x: p' is no column"),
        ({"column": "y", "separator": ";", "answers": ["p"]}, "is an answer of 'y'"),
        ([], "a table is needed"),
    ],
)
def test_a_description_that_could_be_read_in_two_ways_is_refused(split: object, says: str) -> None:
    columns: list[dict[str, object]] = [
        {"name": "a", "kind": "date", "low": "2020-01-01", "high": "2024-12-31"},
        {"name": "b", "kind": "integer", "low": -5, "high": 5},
        {"name": "c", "kind": "integer", "low": 0, "high": 5},
        {"name": "y: p", "kind": "categorical", "categories": ["0", "1"]},
    ]
    tables = {"column": columns, "split": [split]}
    with pytest.raises(DomainError, match=says):
        Domain.from_dict(tables)


@pytest.mark.parametrize(
    ("columns", "split", "missing"),
    [
        (("n", "a"), "{a}/{b}", "n/a"),
        (("x y", "z"), "{a} {b}", "?"),
        ((" x", "z"), "{a}/{b}", "?"),
        (None, "{a}23{b}", "?"),
    ],
    ids=["missing", "text", "blank", "digits"],
)
def test_a_pattern_that_some_values_break_is_refused(
    columns: tuple[str, str] | None, split: str, missing: str
) -> None:
    parts = (
        (Integer("a", 1, 999), Integer("b", 1, 999))
        if columns is None
        else (Categorical("a", (columns[0], "v")), Categorical("b", (columns[1], "w")))
    )
    with pytest.raises(DomainError, match=r"\[\[split\]\] column = 'x'"):
        Domain(parts, (missing,), splits=(SplitColumn("x", split),))


@pytest.mark.parametrize(("answers", "missing"), [(("NA", "x"), "NA"), (("n", "a"), "n/a")])
def test_answers_that_are_a_missing_value_are_refused(
    answers: tuple[str, ...], missing: str
) -> None:
    split = SplitColumn("x", separator="/", answers=answers)
    parts = tuple(Categorical(part, (NO, YES)) for part in split.parts)
    with pytest.raises(DomainError, match="is a cell, and a missing value, too"):
        Domain(parts, (missing,), splits=(split,))


def test_a_mark_stays_one_where_a_run_does_not_keep_it() -> None:
    """Marks of a pattern are among the candidates of its first column; a run may keep none of them."""
    private = PrivateCategories(("EUR", "USD", "n/k"), 4)
    first = Categorical("currency", private.categories, other="other", private=private)
    split = SplitColumn("price", "{currency} {amount}", marks=("n/k",))
    domain = Domain((first, AMOUNTS.columns[1]), ("NA",), splits=(split,))
    codes = encode(domain, table(price=["EUR 5", "n/k", "USD 7"]))
    counts = np.array([900.0, 800.0, 0.0, 0.0])
    resolved = resolve(domain, {0: counts}, 1.0)
    moved = coarse_codes(domain, resolved, codes)
    assert decode(resolved, moved, public_generator(1))["price"][1] == "other NA"


def test_descriptions_are_in_the_file_the_digest_and_the_schema() -> None:
    assert Domain.from_dict(DOMAIN.to_dict()) == DOMAIN
    assert replace(DOMAIN, splits=()).digest() != DOMAIN.digest()
    assert "split" not in replace(DOMAIN, splits=()).to_dict()
    fields = {field["name"]: field for field in table_schema(DOMAIN)["fields"]}  # type: ignore[attr-defined]
    assert list(fields) == ["age", "pressure", "drugs", "sex"]
    assert fields["pressure"]["type"] == "string"
    assert "as in {systolic}/{diastolic}" in fields["pressure"]["description"]
    said = replace(DOMAIN, provenance=(Provenance("systolic", ((WHOLE, TABLE),)),))
    assert said.only(("age", "systolic")).splits == ()
    assert said.only(("systolic", "diastolic", "age")).splits == (PRESSURE,)


def test_a_word_between_answers_separates_them_with_its_blanks_alone() -> None:
    answers = ("brandy", "rum")
    columns = [Categorical(part_of("drinks", answer), (NO, YES)) for answer in answers]
    split = SplitColumn("drinks", separator=" and ", answers=answers)
    domain = Domain(tuple(columns), ("NA",), splits=(split,))
    (of_domain,) = domain.splits
    assert of_domain.split("brandy and rum", ("NA",)) == (YES, YES)
    assert of_domain.split("brandy", ("NA",)) == (YES, NO)
    # A sign separates with any blanks around it.
    assert replace(split, separator=" & ").split("brandy&  rum", ("NA",)) == (YES, YES)


@pytest.mark.parametrize(
    ("cell", "given"),
    [
        ("[a;b]", ["a", "b"]),
        ("[a;b", ["[a", "b"]),
        ("a;b]", ["a", "b]"]),
        ("a;b", ["a", "b"]),
        ("[", ["["]),
    ],
)
def test_brackets_around_answers_are_left_out_together(cell: str, given: list[str]) -> None:
    split = SplitColumn("drinks", separator=";", answers=("a", "b"), before="[", behind="]")
    assert split.given_in(cell) == given


# Drafts


def drafted(**columns: Sequence[str]) -> Draft:
    count = len(next(iter(columns.values())))
    return draft_of(TextTable(columns, range(count)), "t.csv", "utf-8, comma between values")


ROWS = 600


def _draws(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def pressures(seed: int) -> list[str]:
    high = _draws(seed).normal(130, 15, ROWS).astype(int)
    return [f"{x}/{x * 2 // 3 + i % 7}" for i, x in enumerate(high)]


def points(seed: int) -> list[str]:
    return [f"POINT({x:.5f} {y:.5f})" for x, y in _draws(seed).normal(0, 3, (ROWS, 2))]


def pairs_of_degrees(seed: int) -> list[str]:
    return [f"{x:.4f}, {y:.4f}" for x, y in _draws(seed).uniform(-90, 90, (ROWS, 2))]


def boxes(seed: int) -> list[str]:
    return [f"{a} x {b} x {c} cm" for a, b, c in _draws(seed).integers(1, 300, (ROWS, 3))]


def ranges(seed: int) -> list[str]:
    return [f"from {a} to {a + b}" for a, b in _draws(seed).integers(1, 400, (ROWS, 2))]


def answers(separator: str) -> list[str]:
    choices = _draws(7).random((ROWS, 9)) < 0.4
    return [
        separator.join(f"answer {c}" for c in np.flatnonzero(row)) or "answer 0" for row in choices
    ]


def currencies(seed: int) -> list[str]:
    words = _draws(seed).choice(["EUR", "USD", "CHF"], ROWS)
    return [
        f"{word} {x:.2f}" for word, x in zip(words, _draws(seed).lognormal(5, 1, ROWS), strict=True)
    ]


def units(seed: int) -> list[str]:
    return [
        f"{x} kg" if i % 3 else f"{x}000 g"
        for i, x in enumerate(_draws(seed).integers(1, 300, ROWS))
    ]


NUMBERS = {
    "currency": currencies(6),
    "unit": units(7),
    "pressure": pressures(1),
    "point": points(2),
    "degrees": pairs_of_degrees(3),
    "box": boxes(4),
    "range": ranges(5),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("absent", [False, True])
def test_a_draft_splits_cells_with_several_numbers(name: str, absent: bool) -> None:
    cells = list(NUMBERS[name])
    if absent:
        cells[::50] = ["NA"] * len(cells[::50])
    draft = drafted(x=cells, y=["a", "b"] * (ROWS // 2))
    (split,) = draft.domain.splits
    assert not draft.left_out
    assert split.parts == draft.domain.names[:-1]
    assert all(column.missing == absent for column in draft.domain.columns[:-1])
    # The rows come back as they are, in the same spelling.
    text = table(x=cells, y=["a", "b"] * (ROWS // 2))
    codes = encode(draft.domain, text)
    written = decode(draft.domain, codes, public_generator(2))
    assert (encode(draft.domain, written) == codes).all()
    shape = re.compile(r"\d+")
    assert {shape.sub("0", c) for c in written["x"]} <= {shape.sub("0", c) for c in cells}
    document = tomllib.loads(draft_text("t.csv", draft))
    kept = {key: document[key] for key in ("column", "split", "missing")}
    assert Domain.from_dict(kept) == draft.domain


@pytest.mark.parametrize("every", [25, ROWS])
@pytest.mark.parametrize("mark", ["refused", "n.d.", ">250", "see note"])
def test_a_draft_keeps_marks_beside_numbers_and_cells_without_one_of_them(
    mark: str, every: int
) -> None:
    """All of it comes back: 120/80, 120/, /80, the mark and a missing cell."""
    cells = list(NUMBERS["pressure"])
    cells[::every] = [mark] * len(cells[::every])
    cells[1::50] = ["120/"] * len(cells[1::50])
    cells[2::50] = ["/80"] * len(cells[2::50])
    cells[3::50] = ["NA"] * len(cells[3::50])
    draft = drafted(x=cells, y=["a", "b"] * (ROWS // 2))
    assert not draft.left_out
    (split,) = draft.domain.splits
    assert (split.pattern, split.marks) == ("{x 1}/{x 2}", (mark,))
    first, second, _ = draft.domain.columns
    assert mark in first.marks  # type: ignore[union-attr]
    assert first.missing
    assert second.missing
    assert Domain.from_dict(draft.domain.to_dict()) == draft.domain
    frame = pd.DataFrame({"x": cells, "y": ["a", "b"] * (ROWS // 2)})
    codes = encode(draft.domain, frame)
    back = decode(draft.domain, codes, public_generator(1))["x"].tolist()
    beside = {mark, "NA"}
    assert [c for c in back if c in beside] == [c for c in cells if c in beside]
    assert [c.split("/").count("") for c in back if c not in beside] == [
        c.split("/").count("") for c in cells if c not in beside
    ]


@pytest.mark.parametrize(
    "beside",
    [[f"note {n % 9}" for n in range(180)], ["refused"] * (ROWS // 2)],
    ids=["many kinds", "half of the rows"],
)
def test_a_draft_leaves_out_cells_beside_too_many_others(beside: list[str]) -> None:
    cells = [*beside, *NUMBERS["pressure"][len(beside) :]]
    draft = drafted(x=cells, y=["a", "b"] * (ROWS // 2))
    assert not draft.domain.splits


@pytest.mark.parametrize("separator", [";", "; ", "|", ", ", "/"])
def test_a_draft_splits_answers(separator: str) -> None:
    cells = answers(separator)
    draft = drafted(x=cells, y=["a", "b"] * (ROWS // 2))
    (split,) = draft.domain.splits
    assert split.separator == separator
    assert sorted(split.answers) == sorted({a for c in cells for a in c.split(separator)})
    codes = encode(draft.domain, table(x=cells, y=["a", "b"] * (ROWS // 2)))
    written = decode(draft.domain, codes, public_generator(2))
    assert [set(c.split(separator)) for c in written["x"]] == [
        set(c.split(separator)) for c in cells
    ]


def test_answers_are_split_where_most_of_their_combinations_are_rare() -> None:
    cells = [";".join(f"a{k}" for k in range(6) if i >> k & 1) or "a0" for i in range(64)] * 10
    draft = drafted(x=cells, y=["a", "b"] * 320)
    assert [split.column for split in draft.domain.splits] == ["x"]


def test_a_draft_lists_no_answer_of_few_rows() -> None:
    cells = answers(";")
    cells[3] += ";the mayor"
    draft = drafted(x=cells, y=["a", "b"] * (ROWS // 2))
    (split,) = draft.domain.splits
    assert split.other == "other"
    assert "mayor" not in draft_text("t.csv", draft)


def test_a_private_draft_has_no_answer() -> None:
    draft = private_draft(drafted(x=answers(";"), p=pressures(1), y=["a", "b"] * (ROWS // 2)))
    assert draft.to_list == ("x", "y")
    assert {"x", "y"} <= set(draft.domain.ignore)
    assert [split.column for split in draft.domain.splits] == ["p"]
    text = draft_text("t.csv", draft)
    assert "answer 1" not in text
    assert "[[split]]" in text


def test_a_private_draft_has_no_word_around_numbers() -> None:
    cells = [f"HIV clinic: {i % 90} over {i % 70}" for i in range(ROWS)]
    whole = drafted(x=cells, p=pressures(1))
    assert {split.column for split in whole.domain.splits} == {"x", "p"}
    draft = private_draft(whole)
    assert draft.to_list == ("x",)
    assert "HIV" not in draft_text("t.csv", draft)


def test_a_private_draft_shows_how_to_describe_what_it_leaves_out() -> None:
    """Answers, also where few combinations made categories of them; words; signs that numbers of any size have, too."""
    colours = ["red", "blue", "green", "red;blue", "red;green", "blue;green", "red;blue;green"]
    drafts = drafted(
        x=answers(";"),
        few=[colours[i % 7] for i in range(ROWS)],
        words=[f"{i % 90} at {i % 70}.5 bar" for i in range(ROWS)],
        span=[f"{i % 37}-{i % 41}.5" for i in range(ROWS)],
        y=["a", "b"] * (ROWS // 2),
        p=pressures(1),
    )
    text = draft_text("t.csv", private_draft(drafts))
    head, _, _ = text.partition("[run]")
    described = [line[4:] for line in head.splitlines() if line.startswith("#   ")]
    columns = tomllib.loads("\n".join(described))
    assert columns["split"] == [
        {"column": "x", "separator": ";", "answers": ["..."]},
        {"column": "words", "pattern": "{words 1}...{words 2}"},
        {"column": "span", "pattern": "{span 1}-{span 2}"},
        {"column": "few", "separator": ";", "answers": ["..."]},
    ]
    by_name = {column["name"]: column for column in columns["column"]}
    assert by_name["few: ..."]["categories"] == ["no", "yes"]
    assert by_name["y"]["categories"] == ["..."]
    assert by_name["words 2"]["values"] == "private"
    assert (by_name["span 2"]["low"], by_name["span 2"]["bins"]) == ("...", "private")
    assert not set(re.findall(r"\b(?:red|bar|answer 1)\b", text))


def test_a_private_draft_has_no_mark() -> None:
    cells = ["refused by Ms Roe", *pressures(1)[1:]]
    draft = private_draft(drafted(x=cells, y=pressures(2)))
    assert [split.column for split in draft.domain.splits] == ["x", "y"]
    assert "Roe" not in draft_text("t.csv", draft)


@pytest.mark.parametrize("absent", ["N/A", "n/a", "NA", "?", "None"])
def test_a_draft_of_pressures_takes_any_spelling_of_a_missing_value(absent: str) -> None:
    cells = pressures(1)
    cells[::20] = [absent] * len(cells[::20])
    draft = drafted(x=cells, y=["a", "b"] * (ROWS // 2))
    assert draft.domain.splits
    codes = random_codes(draft.domain, 200, 1)
    assert (encode(draft.domain, decode(draft.domain, codes, public_generator(1))) == codes).all()


def test_an_answer_of_one_row_is_not_listed_where_most_have_none() -> None:
    cells = [answer if i % 3 == 0 else "" for i, answer in enumerate(answers(";"))]
    cells[3] += ";the mayor"
    draft = drafted(x=cells, y=["a", "b"] * (ROWS // 2))
    assert "mayor" not in draft_text("t.csv", draft)


@pytest.mark.parametrize(
    "cells",
    [
        [f"2024-{n}" for n in range(1, ROWS + 1)],
        [f"0{n % 97 + 10}/{n}" for n in range(ROWS)],
        [f"192.168.{n % 7}.{n % 251}" for n in range(ROWS)],
        [f"Mr. {n} of {n * 7} lines and {'x' * (n % 5)}" for n in range(ROWS)],
        [f"{n}/{n + 1}" for n in range(ROWS)],
    ],
    ids=["case", "code", "address", "text", "counted"],
)
def test_identifiers_and_codes_stay_out(cells: list[str]) -> None:
    draft = drafted(x=cells, y=["a", "b"] * (ROWS // 2))
    assert draft.domain.names == ("y",)
    assert draft.domain.splits == ()


@pytest.mark.parametrize(
    "cells",
    [
        [f"{i % 9 + 1}/{i % 13 + 2}" for i in range(ROWS)],
        [f"{i % 17}y {i % 12}m" for i in range(ROWS)],
        units(7),
    ],
)
def test_a_draft_keeps_marks_beside_parts_of_few_values(cells: list[str]) -> None:
    cells = [*cells[:-30], *["refused"] * 20, *[""] * 10]
    draft = drafted(x=cells, y=["a", "b"] * (ROWS // 2))
    (split,) = draft.domain.splits
    assert split.marks == ("refused",)
    codes = encode(draft.domain, table(x=cells, y=["a", "b"] * (ROWS // 2)))
    assert decode(draft.domain, codes, public_generator(2))["x"].tolist().count("refused") == 20


@pytest.mark.parametrize("form", ["+49 30 {}", "({0:.3}) {0:.3}-{0:.4}"])
def test_numbers_of_telephones_stay_out(form: str) -> None:
    numbers = [str(int(n)) for n in _draws(3).integers(10**8, 10**9, ROWS)]
    cells = [form.format(number) for number in numbers]
    assert not drafted(x=cells, y=["a", "b"] * (ROWS // 2)).domain.splits
    cells[::20] = ["refused"] * len(cells[::20])
    assert not drafted(x=cells, y=["a", "b"] * (ROWS // 2)).domain.splits


def test_a_column_that_says_again_what_others_say_stays_out() -> None:
    drawn = [(f"{x:.5f}", f"{y:.5f}") for x, y in _draws(2).normal(0, 3, (ROWS, 2))]
    lon, lat = zip(*drawn, strict=True)
    draft = drafted(lon=lon, lat=lat, geom=[f"POINT({x} {y})" for x, y in drawn])
    assert draft.domain.names == ("lon", "lat")
    assert draft.left_out == ("geom: has the values of lon and lat again",)


def test_a_few_combinations_stay_categories() -> None:
    draft = drafted(x=["a;b", "a", "b"] * (ROWS // 3), y=["a", "b"] * (ROWS // 2))
    assert isinstance(draft.domain.columns[0], Categorical)
    assert draft.domain.splits == ()


def test_parts_may_be_of_any_kind() -> None:
    stay = SplitColumn("stay", "{from} to {to} ({ward})")
    domain = Domain(
        (
            Moment("from", "date", "2020-01-01", "2024-12-31", "day"),
            Moment("to", "date", "2020-01-01", "2024-12-31", "day"),
            Categorical("ward", ("north", "south-west")),
            Real("cost", 0.0, 9.5, decimals=1),
        ),
        splits=(stay,),
    )
    codes = random_codes(domain, 100, 5)
    written = decode(domain, codes, public_generator(1))
    assert isinstance(written, pd.DataFrame)
    assert list(written.columns) == ["stay", "cost"]
    assert (encode(domain, written) == codes).all()


def test_a_mark_that_its_first_column_has_not_is_refused() -> None:
    split = replace(PRESSURE, marks=("refused",))
    with pytest.raises(DomainError, match="the mark 'refused' is none of 'systolic'; add it"):
        replace(DOMAIN, splits=(split, DRUGS))


ANSWERS = ("asthma", "cancer", "copd", "gout", "renal", "stroke", "tb")


def chosen(separator: str, form: str) -> list[str]:
    """Returns cells of up to all answers in their order, of which one at least is there."""
    rng = np.random.default_rng(1)
    picks = rng.random((600, len(ANSWERS))) < 0.4
    rows = [[a for a, hit in zip(ANSWERS, row, strict=True) if hit] or ["tb"] for row in picks]
    return [form.format(separator.join(row)) for row in rows]


@pytest.mark.parametrize(
    ("separator", "form"),
    [
        *((", ", form) for form in ("[{}]", "({})", "{{{}}}")),
        *((sign, "{}") for sign in (" / ", " + ", "&", " and ", " || ", "\n", "\t", "#", " ")),
        *((";", "{};"), ("|", "|{}|")),
    ],
)
def test_answers_come_back_as_they_stand_in_cells(separator: str, form: str) -> None:
    cells = chosen(separator, form)
    source = TextTable({"g": ["a", "b"] * 300, "x": cells}, range(600))
    domain = draft_of(source, "t", "a table").domain
    assert domain.names == ("g", *(f"x: {answer}" for answer in ANSWERS))
    read = SplitColumn.from_dict(0, domain.splits[0].to_dict())
    assert (read,) == domain.splits
    written = decode(domain, encode(domain, source), public_generator(2))
    assert list(written["x"]) == cells


@pytest.mark.parametrize("form", ["B{}/{}", "{}-{}", "{}, {}"])
def test_a_fixed_number_of_values_is_no_set_of_answers(form: str) -> None:
    rng = np.random.default_rng(2)
    cells = [form.format(f"{a:02d}", 2000 + b) for a, b in rng.integers(1, 25, (3000, 2))]
    source = TextTable({"g": ["a", "b"] * 1500, "x": cells}, range(3000))
    domain = draft_of(source, "t", "a table").domain
    assert domain.names == ("g", "x 1", "x 2")
    written = decode(domain, encode(domain, source), public_generator(2))
    assert list(written["x"]) == cells


def test_texts_of_many_words_are_no_answers() -> None:
    rng = np.random.default_rng(3)
    cells = [" ".join(f"w{k}" for k in rng.zipf(1.4, 3 + i % 6) % 900) for i in range(600)]
    draft = draft_of(TextTable({"g": ["a", "b"] * 300, "x": cells}, range(600)), "t", "a table")
    assert draft.domain.ignore == ("x",)
