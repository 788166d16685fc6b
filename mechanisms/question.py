"""The language of conditions and questions: ``age >= 65 and ward in (A, B)``, ``mean(income) by sex where age >= 65``.

``parse_where`` reads a condition, ``parse_question`` a question. docs/questions.md describes the language on a page.

All values here are public. A text is read by a grammar (pyparsing) into the classes below and never executed. Names and
values are texts here; `mechanisms.conditions` reads values by their columns.
Limits: conditions are joined by ``and`` alone, since a model answers a product of single columns' sets exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyparsing as pp

from mechanisms.errors import ConditionError

MOST_CHARACTERS = 10_000
COUNT, SHARE, MEAN, QUANTILE = "count", "share", "mean", "quantile"
DIFFERENCE, RATIO, ODDS_RATIO, SLOPE = "difference", "ratio", "odds_ratio", "slope"
"""Kinds of measures; a median is the quantile 0.5."""
EXAMPLE_WHERE = 'age >= 65 and ward in (A, "B 2")'
EXAMPLE_QUESTION = "mean(income) by sex where age >= 65"
_MEASURES = (
    "count, share(...), mean(...), median(...), quantile(..., 0.9), difference(...), ratio(...), odds_ratio(...) or "
    "slope(...)"
)


@dataclass(frozen=True, slots=True)
class Test:
    """A test of one column: ``operator`` compares with one of ``values``, or is "in", "not in", "missing" or "present".

    A comparison has one value; "missing" and "present" have none.
    """

    __test__ = False

    column: str
    operator: str
    values: tuple[str, ...] = ()


Where = tuple[Test, ...]
"""A condition: all of these tests."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure: its ``kind``, and what it is of.

    ``columns`` are the column of a mean or a quantile, or the explained and the explaining columns of a slope. ``of``
    is the condition of a share or of the odds. ``level`` is that of a quantile. A difference and a ratio compare the
    measure ``inner`` between the two ``groups``, odds ratios the odds of ``of``.
    """

    kind: str
    columns: tuple[str, ...] = ()
    of: Where = ()
    level: float = 0.5
    inner: Measure | None = None
    groups: tuple[Where, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A measure, for each value of the columns ``by``, of the rows that satisfy ``where``."""

    measure: Measure
    by: tuple[str, ...] = ()
    where: Where = ()


def parse_where(text: str) -> Where:
    """Returns the tests of a condition. Raises ``ConditionError`` that shows where it cannot be read."""
    return tuple(_parsed(text, _grammar()[0], expected="a condition", example=EXAMPLE_WHERE))


def parse_question(text: str) -> Question:
    """Returns a question. Raises ``ConditionError`` that shows where it cannot be read."""
    (measure, by, where) = _parsed(
        text, _grammar()[1], expected=_MEASURES, example=EXAMPLE_QUESTION
    )
    return Question(measure, tuple(by), tuple(where))


def _parsed(
    text: str, grammar: pp.ParserElement, *, expected: str, example: str
) -> pp.ParseResults:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text; expected {expected}, as in {example!r}")
    if len(text) > MOST_CHARACTERS:
        raise ConditionError(
            f"a text of {len(text)} characters is too long; expected at most {MOST_CHARACTERS}"
        )
    try:
        return grammar.parse_string(text, parse_all=True)
    except pp.ParseBaseException as error:
        rest = text[error.loc : error.loc + 30].strip()
        where = f"from {rest!r} on" if rest else "at its end"
        hint = ""
        if rest.lower().startswith("or "):
            hint = " Tests are joined by 'and'; several values of a column are 'in (A, B)'."
        raise ConditionError(
            f"{text!r} cannot be read {where}; expected {expected}, as in {example!r}.{hint}"
        ) from None


@lru_cache(1)
def _grammar() -> tuple[pp.ParserElement, pp.ParserElement]:
    """Returns the grammars of conditions and of questions."""
    words = {
        word: pp.CaselessKeyword(word).suppress()
        for word in ("and", "or", "not", "in", "is", "missing", "between", "by", "where")
    }
    reserved = pp.MatchFirst([pp.CaselessKeyword(word) for word in words])
    quoted = pp.QuotedString('"', esc_char="\\") | pp.QuotedString("'", esc_char="\\")
    name = pp.QuotedString("`") | quoted | ~reserved + pp.Regex(r"[^\W\d][\w.-]*")
    value = quoted | ~reserved + pp.Regex(r"[^\s,()<>=!\"'`]+")
    comma, left, right = (pp.Suppress(sign) for sign in ",()")
    listed = left + pp.DelimitedList(value) + right

    sign = pp.one_of("<= >= == != <> < > =")
    compared = (name + sign + value).set_parse_action(
        lambda t: Test(t[0], {"==": "=", "<>": "!="}.get(t[1], t[1]), (t[2],))
    )
    within = (name + words["in"] + listed).set_parse_action(
        lambda t: Test(t[0], "in", tuple(t[1:]))
    )
    without = (name + words["not"] + words["in"] + listed).set_parse_action(
        lambda t: Test(t[0], "not in", tuple(t[1:]))
    )
    present = (name + words["is"] + words["not"] + words["missing"]).set_parse_action(
        lambda t: Test(t[0], "present")
    )
    absent = (name + words["is"] + words["missing"]).set_parse_action(
        lambda t: Test(t[0], "missing")
    )
    between = (name + words["between"] + value + words["and"] + value).set_parse_action(
        lambda t: [Test(t[0], ">=", (t[1],)), Test(t[0], "<=", (t[2],))]
    )
    test = between | without | within | present | absent | compared
    where = test + pp.ZeroOrMore(words["and"] + test)
    group = pp.Group(where)

    def call(word: str, *arguments: pp.ParserElement) -> pp.ParserElement:
        found = pp.CaselessKeyword(word).suppress() + left
        for i, argument in enumerate(arguments):
            found = found + (comma + argument if i else argument)
        return found + right

    level = pp.Regex(r"0?\.\d+").set_parse_action(lambda t: float(t[0]))
    count = (pp.CaselessKeyword(COUNT).suppress() + pp.Optional(left + right)).set_parse_action(
        lambda: Measure(COUNT)
    )
    share = call(SHARE, group).set_parse_action(lambda t: Measure(SHARE, of=tuple(t[0])))
    mean = call(MEAN, name).set_parse_action(lambda t: Measure(MEAN, (t[0],)))
    median = call("median", name).set_parse_action(lambda t: Measure(QUANTILE, (t[0],)))
    quantile = call(QUANTILE, name, level).set_parse_action(
        lambda t: Measure(QUANTILE, (t[0],), level=t[1])
    )
    plain = count | share | mean | median | quantile
    difference = call(DIFFERENCE, plain, group, group).set_parse_action(
        lambda t: Measure(DIFFERENCE, inner=t[0], groups=(tuple(t[1]), tuple(t[2])))
    )
    ratio = call(RATIO, plain, group, group).set_parse_action(
        lambda t: Measure(RATIO, inner=t[0], groups=(tuple(t[1]), tuple(t[2])))
    )
    odds = call(ODDS_RATIO, group, group, group).set_parse_action(
        lambda t: Measure(ODDS_RATIO, of=tuple(t[0]), groups=(tuple(t[1]), tuple(t[2])))
    )
    slope = call(SLOPE, name, pp.Group(pp.DelimitedList(name))).set_parse_action(
        lambda t: Measure(SLOPE, (t[0], *t[1]))
    )
    measure = pp.MatchFirst([difference, ratio, odds, slope, plain])
    by = pp.Group(pp.Optional(words["by"] + pp.DelimitedList(name)))
    question = measure + by + pp.Group(pp.Optional(words["where"] + where))
    return where, question
