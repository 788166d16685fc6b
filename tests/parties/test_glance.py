"""The quality of a table at a glance: the marks are the verdict's, in letters and words, whatever the figures are."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.domain import Categorical, Domain, Integer
from parties.report.glance import MOST_COLUMNS, matrix, scale, tasks
from parties.report.html_sections import quality_values
from parties.report.model import NOT_PRIVATE, Accuracy, PairErrors
from parties.report.render import HtmlTable
from parties.report.shares import share_text
from parties.report.verdict import CLOSE, ROUGH, verdict
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


def pairs(expected: float, independent: float, **more: Any) -> dict[str, Any]:
    """The part `shuffling` of a section `quality`, of three measured pairs."""
    found = {"pairs": 3, "measured": 3, "shown": 2, "better": expected < independent, "each": []}
    return {**found, "expected": expected, "independent": independent, **more}


def accuracy(table: float, independent: float, trusted: float) -> Accuracy:
    run = PairErrors(1.0, table, independent, trusted)
    return Accuracy(run, (run,))


@given(ERRORS, st.floats(0.01, 0.6), ERRORS)
def test_the_number_is_0_for_shuffled_columns_100_for_a_trusted_party_and_falls_between(
    table: float, independent: float, trusted: float
) -> None:
    trusted = min(table, trusted)
    found = scale({"shuffling": pairs(table, independent)}, accuracy(table, independent, trusted))
    assert found is not None
    assert 0 <= found.score <= 100
    assert found.score == 0 or table < independent
    assert table > trusted or found.score == (100 if trusted < independent else 0)
    for share, (_, error) in zip((independent, table, trusted), found.ends, strict=True):
        assert share_text(share) in error
        assert error.startswith("0.0%") == (share == 0)
    nearer = scale(
        {"shuffling": pairs(table, independent)}, accuracy((table + trusted) / 2, independent, trusted)
    )  # fmt: skip
    assert nearer is not None
    assert nearer.score >= found.score
    assert found.truth == ""
    assert ("not shown to be better" in found.text) == (table >= independent)


def test_the_number_says_of_which_pairs_it_is() -> None:
    some = {"shuffling": pairs(0.04, 0.12, pairs=10)}
    found = scale(some, accuracy(0.04, 0.12, 0.02))
    assert found is not None
    assert found.score == 80
    assert found.pairs == "for the 3 of 10 pairs of columns that were measured"
    assert "The number says nothing about other pairs." in found.text


def test_a_trial_has_the_true_number_beside_it_marked() -> None:
    true = [
        {"true": {"off": 0.06, "independent": 0.1}},
        {"true": {"off": 0.02, "independent": 0.14}},
    ]
    found = scale({"shuffling": pairs(0.04, 0.12, each=true)}, accuracy(0.04, 0.12, 0.02))
    assert found is not None
    assert found.truth == (
        "By the real table these pairs are off by 4.0%, and by 12.0% with columns shuffled: 80 of 100. "
        + NOT_PRIVATE
    )


def test_without_a_measured_pair_or_an_estimate_there_is_no_scale() -> None:
    assert scale({}, None) is None
    assert scale({"shuffling": pairs(0.04, 0.12)}, None) is None
    assert scale({"shuffling": pairs(0.0, 0.0, measured=0)}, accuracy(0.0, 0.0, 0.0)) is None


@given(st.fixed_dictionaries(dict.fromkeys((*NAMES, *PAIRS), ERRORS)), st.booleans())
def test_tasks_of_counting_answer_as_the_marks_are(errors: dict[str, float], better: bool) -> None:
    quality = {**quality_of(errors), "shuffling": pairs(0.04, 0.12, better=better)}
    found = {task.name: task for task in tasks(quality)}
    for name, of in (("one column", NAMES), ("two columns", PAIRS)):
        off = [errors[columns] / 2 for columns in of]
        close, some = (sum(share <= limit for share in off) for limit in (CLOSE, ROUGH))
        task = found[f"Count rows by {name}"]
        expected = "yes" if close >= 2 else "roughly" if some >= 2 else "in part" if some else "no"
        assert (task.answer, task.truth) == (expected, "")
    together = found["See which columns go together, train models"]
    assert together.answer == ("yes" if better else "no")
    assert found["Look up a person or a row"].answer == "no"


def test_tasks_have_the_truth_of_a_trial_and_older_reports_have_none() -> None:
    quality = quality_of(dict.fromkeys((*NAMES, *PAIRS), 0.1))
    assert not any(task.truth for task in tasks(quality))
    for marginal_ in quality["marginals"]:
        marginal_["true_error"] = 0.06
    one, two = tasks(quality)[:2]
    assert one.truth == two.truth == "off by 3.0%"
    del quality["columns"]
    assert tasks(quality) == []


@pytest.mark.parametrize(
    ("moved", "answer", "said"),
    [
        ((0.05, 0.01, 0.2), "yes", "off by at most 5% of the column's range: 2 (a, b); no bound within 15%: 1 (c)"),
        ((0.05, 0.15, 0.2), "roughly", "at most 5% of the column's range: 1 (a); off by at most 15%"),
        ((0.5, 0.15, 0.2), "in part", "off by at most 15% of the column's range: 1 (b)"),
        ((0.5, 0.6, 0.7), "no", "no bound within 15%: 3 (a, b, c)"),
    ],
)  # fmt: skip
def test_means_are_as_good_as_values_are_moved(
    moved: tuple[float, ...], answer: str, said: str
) -> None:
    claims = {
        name: claim(name, 0.1, 0.1, moved_of_range=share)
        for name, share in zip("abc", moved, strict=True)
    }
    quality = quality_of(dict.fromkeys(NAMES, 0.1), **claims)
    task = {task.name: task for task in tasks(quality)}["Means of numbers and dates"]
    assert task.answer == answer
    assert said in task.said
    # A column without ends has no bound on its mean.
    for one in quality["columns"]:
        one["open"] = {"low": 0}
    task = {task.name: task for task in tasks(quality)}["Means of numbers and dates"]
    assert task.answer == "no"


def test_a_report_has_number_tasks_and_matrix() -> None:
    errors = {"sex": 0.02, "age": 0.02, "sex age": 0.02}
    quality = {
        **quality_of(errors),
        "shuffling": pairs(0.04, 0.12),
        "verdict": {"good_for": [], "not_for": []},
    }
    found = quality_values({"quality": quality}, accuracy(0.04, 0.12, 0.02))
    assert found is not None
    assert all(found[part] is not None for part in ("scale", "tasks", "matrix"))


def test_the_page_of_a_refresh_tells_what_is_the_earlier_models() -> None:
    quality = quality_of(dict.fromkeys((*NAMES, *PAIRS), 0.05))
    quality["dependencies"] = {
        "measured": [["sex", "age"]],
        "taken_over": [["sex", "few"]],
        "through_others": [["age", "few"]],
        "independent": [],
    }
    changes = [
        {"columns": ["sex"], "apart": 0.01, "noise": 0.02, "changed": False},
        {"columns": ["sex", "age"], "apart": 0.31, "noise": 0.02, "changed": True},
    ]
    quality["earlier"] = {"marginals": changes}
    quality["verdict"] = verdict(quality, DOMAIN)
    found = matrix(quality)
    assert found is not None
    titles = {cell.title for row in found.rows for cell in row}
    assert any(
        "sex" in t and t.endswith("taken over from the earlier model, not measured now")
        for t in titles
    )
    assert "taken over from the earlier model, not measured now" in {
        said for *_, said in found.legend
    }
    values = quality_values({"quality": quality})
    assert values is not None
    table = values["earlier"]
    assert isinstance(table, HtmlTable)
    assert [row[-1] for row in table.rows] == [
        "no more than noise explains",
        "more than noise explains",
    ]
    # A run without an earlier model says nothing of one.
    fresh = quality_of(dict.fromkeys((*NAMES, *PAIRS), 0.05))
    fresh["verdict"] = verdict(fresh, DOMAIN)
    shown = matrix(fresh)
    assert shown is not None
    assert "earlier" not in repr((shown, tasks(fresh), fresh["verdict"]))
    assert (quality_values({"quality": fresh}) or {})["earlier"] is None


def test_a_mean_is_not_good_by_a_range_that_no_value_but_one_reaches() -> None:
    """A column with a long tail: next to nothing of the whole range, half of where the values are."""
    wide = claim("wide", 0.1, 0.1, moved=5e8, moved_of_range=1e-4, moved_of_middle=0.5)
    quality = quality_of(dict.fromkeys(NAMES, 0.1), wide=wide)
    task = {task.name: task for task in tasks(quality)}["Means of numbers and dates"]
    assert (task.answer, task.said) == ("no", "no bound within 15%: 1 (wide)")
    near = {**wide, "moved_of_middle": 0.03}
    task = {t.name: t for t in tasks({**quality, "columns": [near]})}["Means of numbers and dates"]
    assert task.said == "off by at most 5% of the range of 98 % of the values: 1 (wide)"
