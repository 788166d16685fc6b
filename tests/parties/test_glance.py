"""The quality of a table at a glance: the marks are the verdict's, in letters and words, whatever the figures are."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Categorical, Domain, Integer
from parties.report.glance import MOST_COLUMNS, matrix, scale
from parties.report.html_sections import quality_values
from parties.report.verdict import verdict
from tests.parties.test_quality import claim, marginal, section

NAMES = ("sex", "age", "few")
DOMAIN = Domain((Categorical("sex", ("f", "m")), Integer("age", 0, 99), Integer("few", 0, 3)))
PAIRS = ("sex age", "sex few", "age few")
ERRORS = st.floats(0.0, 0.6)


def quality_of(errors: dict[str, float], **claims: dict[str, Any]) -> dict[str, Any]:
    made = section(
        *(marginal(columns, high) for columns, high in errors.items()),
        measured=[["sex", "age"]],
        through_others=[["sex", "few"]],
        independent=[["age", "few"]],
    )
    return {**made, "columns": list(claims.values())}


@given(
    st.fixed_dictionaries(dict.fromkeys((*NAMES, *PAIRS), ERRORS)),
    ERRORS,
    st.floats(0.0, 0.9),
)
def test_marks_are_as_many_as_the_verdict_counts(
    errors: dict[str, float], off: float, lost: float
) -> None:
    bin_ = {"low": 3, "high": 99}
    age = claim("age", off, lost, heaviest=bin_)
    quality = quality_of(errors, age=age)
    said = verdict(quality, DOMAIN)
    found = matrix(quality)
    assert found is not None
    for kind, cells in (
        ("single columns", [row[-1] for row in found.rows]),
        ("pairs of columns", [cell for row in found.rows for cell in row[:-1]]),
    ):
        for mark, start in (
            ("close", f"Shares in {kind}"),
            ("rough", f"Rough shares in {kind}"),
            ("none", f"Shares in {kind}"),
        ):
            sentences = said["not_for" if mark == "none" else "good_for"]
            (counted,) = [s for s in sentences if s.startswith(start)] or [f"{start}: 0 of 3"]
            number = re.match(rf"{start}: (?:all )?(\d+)", counted)
            assert number is not None, counted
            assert sum(cell.mark == mark for cell in cells) == int(number[1]), (mark, counted)


def test_each_cell_says_in_words_what_its_letter_is_for() -> None:
    errors = {"sex": 0.02, "age": 0.02, "few": 0.2, "sex age": 0.2, "sex few": 0.04, "age few": 0.5}
    found = matrix(quality_of(errors, age=claim("age", 0.2, 0.2, heaviest={"low": 3, "high": 99})))
    assert found is not None
    assert [[cell.text for cell in row] for row in found.rows] == [
        ["A"],
        ["C●", "C"],
        ["A○", "C", "B"],
    ]
    assert found.rows[0][0].title == "sex: off by no more than 1.0% of the rows"
    assert found.rows[1][0].title == (
        "sex × age: off by no more than 30.0% of the rows; measured together"
    )
    assert found.rows[2][0].title.endswith("only through other columns")


def test_older_reports_and_very_wide_tables_have_no_matrix() -> None:
    older = quality_of({"sex": 0.02, "age": 0.02, "sex age": 0.02})
    del older["columns"]
    assert matrix(older) is None
    names = [f"c{i}" for i in range(MOST_COLUMNS + 1)]
    assert matrix(quality_of(dict.fromkeys(names, 0.1))) is None
    assert matrix(quality_of(dict.fromkeys(names[:-1], 0.1))) is not None


@pytest.mark.parametrize(
    ("expected", "independent", "said"),
    [(0.04, 0.12, "what is left of that error is 33%."), (0.2, 0.1, "so nothing is gained.")],
)
def test_the_scale_ends_where_independent_columns_are(
    expected: float, independent: float, said: str
) -> None:
    shuffling = {"measured": 3, "expected": expected, "independent": independent}
    found = scale({"shuffling": shuffling})
    assert found is not None
    assert (found.expected, found.independent) == (expected, independent)
    assert found.text.endswith(said)


def test_without_a_measured_pair_there_is_no_scale() -> None:
    assert scale({}) is None
    assert scale({"shuffling": {"measured": 0, "expected": 0.0, "independent": 0.0}}) is None


def test_a_report_has_both() -> None:
    errors = {"sex": 0.02, "age": 0.02, "sex age": 0.02}
    quality = {
        **quality_of(errors),
        "shuffling": {"pairs": 1, "measured": 1, "expected": 0.04, "independent": 0.12},
        "verdict": {"good_for": [], "not_for": []},
    }
    found = quality_values({"quality": quality})
    assert found is not None
    assert found["scale"] is not None
    assert found["matrix"] is not None
