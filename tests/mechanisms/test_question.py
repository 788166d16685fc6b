"""The language of conditions and questions: what is read, and errors that say where a text cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.errors import ConditionError
from mechanisms.question import Measure, Question, Test, parse_question, parse_where


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("fraud = 1", [Test("fraud", "=", ("1",))]),
        ("a==1 AND b<>2", [Test("a", "=", ("1",)), Test("b", "!=", ("2",))]),
        (
            "age >= 65 and ward in (A, 'B 2')",
            [Test("age", ">=", ("65",)), Test("ward", "in", ("A", "B 2"))],
        ),
        ("ward not in (A)", [Test("ward", "not in", ("A",))]),
        ("hours-per-week<=40", [Test("hours-per-week", "<=", ("40",))]),
        (
            "begin between 2024-01-01 and 2024-06-30",
            [Test("begin", ">=", ("2024-01-01",)), Test("begin", "<=", ("2024-06-30",))],
        ),
        (
            '`net income` is missing and "in" is not missing',
            [Test("net income", "missing"), Test("in", "present")],
        ),
        ("größe > -1.5e3", [Test("größe", ">", ("-1.5e3",))]),
        ('x = "a \\" b"', [Test("x", "=", ('a " b',))]),
    ],
)
def test_parse_where_reads_tests(text: str, tests: list[Test]) -> None:
    assert parse_where(text) == tuple(tests)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("count", Question(Measure("count"))),
        ("count() by sex, ward", Question(Measure("count"), ("sex", "ward"))),
        (
            "mean(net_income) by sex where age >= 65",
            Question(Measure("mean", ("net_income",)), ("sex",), (Test("age", ">=", ("65",)),)),
        ),
        (
            "share(fraud = 1 and x = 2)",
            Question(Measure("share", of=(Test("fraud", "=", ("1",)), Test("x", "=", ("2",))))),
        ),
        ("median(x)", Question(Measure("quantile", ("x",)))),
        ("quantile(x, .9)", Question(Measure("quantile", ("x",), level=0.9))),
        (
            "difference(mean(x), sex = F, sex = M)",
            Question(
                Measure(
                    "difference",
                    inner=Measure("mean", ("x",)),
                    groups=((Test("sex", "=", ("F",)),), (Test("sex", "=", ("M",)),)),
                )
            ),
        ),
        (
            "odds_ratio(y = 1, sex = F, sex = M)",
            Question(
                Measure(
                    "odds_ratio",
                    of=(Test("y", "=", ("1",)),),
                    groups=((Test("sex", "=", ("F",)),), (Test("sex", "=", ("M",)),)),
                )
            ),
        ),
        ("slope(y, x, z)", Question(Measure("slope", ("y", "x", "z")))),
    ],
)
def test_parse_question_reads_measures(text: str, question: Question) -> None:
    assert parse_question(text) == question


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1 or b = 2", r"from 'or b = 2' on; .* joined by 'and'"),
        ("a =", "at its end"),
        ("", "at its end; expected a condition"),
        ("a in ()", "cannot be read"),
        ("a = 1 __import__('os')", "cannot be read from"),
        ("x" * 20_000, "20000 characters"),
    ],
)
def test_parse_where_says_where_it_cannot_read(text: str, said: str) -> None:
    with pytest.raises(ConditionError, match=said):
        parse_where(text)


@pytest.mark.parametrize(
    "text", ["mean x", "mean(x) by", "quantile(x, 2)", "sum(x)", "mean(x) where"]
)
def test_parse_question_names_the_measures(text: str) -> None:
    with pytest.raises(ConditionError, match="cannot be read"):
        parse_question(text)


def test_parse_takes_text_alone() -> None:
    with pytest.raises(TypeError, match="expected a condition"):
        parse_where(1)  # type: ignore[arg-type]


@given(st.text(max_size=60))
def test_parse_raises_nothing_but_its_own_error(text: str) -> None:
    for parse in (parse_where, parse_question):
        try:
            parse(text)
        except ConditionError as error:
            assert "expected" in str(error)  # noqa: PT017
