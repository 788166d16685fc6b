"""Figures of tables with keys that have intervals: numbers of rows, summaries, values that stay, mean changes.

They are answers of the views' models (`mechanisms.estimates`), each with a 95 % interval or a refusal in words, and
cost no privacy. Where a refusal stands, what follows from row to row is a guess of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mechanisms.columns import Categorical, Moment
from mechanisms.estimate import Estimate
from mechanisms.estimate_errors import Knowledge
from mechanisms.estimates import estimates
from mechanisms.keyed.declared import ChildTable, KeyedTables
from mechanisms.keyed.summaries import ANY, YES, summary_column
from mechanisms.keyed.views import BEFORE, CHANGE, NOW, NUMBER
from mechanisms.model import Model
from mechanisms.question import MEAN, SHARE, SLOPE, Measure, Question, Test
from parties.foundation.errors import StoreError
from parties.report.knowledge import run_knowledge

MOST_VALUES = 12
"""Most values of a column that are asked about, the commonest ones."""


@dataclass(frozen=True, slots=True)
class KeyedEstimate:
    """A figure of the ``table``: of a ``column``, of its ``value`` where it has one, in words, with its interval."""

    table: str
    column: str
    said: str
    estimate: Estimate

    @property
    def of_steps(self) -> bool:
        """True for a figure of two rows that follow one another."""
        return bool(self.column)

    @property
    def known(self) -> bool:
        """True unless the estimate is a refusal."""
        return self.estimate.value is not None

    def to_dict(self) -> dict[str, object]:
        """Returns the figure as JSON has it."""
        own = {"table": self.table, "column": self.column or None, "figure": self.said}
        return own | self.estimate.to_dict()


def keyed_estimates(
    tables: KeyedTables, models: Mapping[str, Model], runs: Mapping[str, Path]
) -> tuple[KeyedEstimate, ...]:
    """Returns all figures by the ``models`` of the views and their finished ``runs``, by name.

    A run without figures of its model's errors has none.
    """
    found = list[KeyedEstimate]()
    for child in tables.children:
        for view, asked in (
            (tables.parent.name, _numbers),
            (tables.parent.name, _summaries),
            (child.name, _steps),
        ):
            if view not in models:
                continue
            try:
                knowledge = run_knowledge(runs[view])
            except StoreError:
                continue
            model = models[view]
            found += (
                KeyedEstimate(child.name, column, said, _answer(model, knowledge, of))
                for column, said, of in asked(child, model)
            )
    return tuple(found)


def _answer(model: Model, knowledge: Knowledge, question: Question | None) -> Estimate:
    if question is None:
        return Estimate({}, refusal="noise left no value that both rows may have")
    return estimates(model, knowledge, question)[0]


def not_measured(found: Sequence[KeyedEstimate], table: str) -> list[str]:
    """Returns the columns of a table of whose values nothing is known from row to row."""
    known = dict[str, bool]()
    for each in found:
        if each.table == table and each.of_steps:
            known[each.column] = known.get(each.column, False) or each.known
    return [column for column, is_known in known.items() if not is_known]


def _numbers(child: ChildTable, model: Model) -> Iterator[tuple[str, str, Question]]:
    name = f"{child.name}.{NUMBER}"
    for rows in _values(model, name):
        question = Question(Measure(SHARE, of=(Test(name, "=", (rows,)),)))
        yield "", f"persons with {rows} {'row' if rows == '1' else 'rows'}", question


def _summaries(child: ChildTable, model: Model) -> Iterator[tuple[str, str, Question]]:
    """Yields the summaries of persons with rows: shares of categories, means of numbers."""
    number = f"{child.name}.{NUMBER}"
    having = (Test(number, "!=", ("0",)),) if "0" in _values(model, number) else ()
    for summary in child.summaries:
        name = f"{child.name}.{summary.column}"
        column = summary_column(child.domain, summary, name)
        if isinstance(column, Moment):
            continue
        if not isinstance(column, Categorical):
            yield "", f"{summary.said}, mean", Question(Measure(MEAN, (name,)), where=having)
            continue
        for value in (YES,) if summary.kind == ANY else _commonest(model, name):
            if value in column.values:
                share = Measure(SHARE, of=(Test(name, "=", (value,)),))
                yield "", f"{summary.said}: {value}", Question(share, where=having)


def _steps(child: ChildTable, model: Model) -> Iterator[tuple[str, str, Question | None]]:
    """Yields columns that are drawn given the row before, and the figures that tell how much it says of them.

    Private categories are chosen for each of the two rows by itself: with none in both there is no question.
    """
    by_change = {change.name for change in child.changes}
    for name in child.changing:
        before, now = (f"{child.name}.{word}.{name}" for word in (BEFORE, NOW))
        if name in by_change:
            change = f"{child.name}.{CHANGE}.{name}"
            said = f"mean change of {name} from row to row"
            yield name, said, Question(Measure(MEAN, (change,)))
        elif isinstance(child.column(name), Categorical):
            both = [value for value in _commonest(model, before) if value in _values(model, now)]
            if not both:
                yield name, f"{name} stays", None
            for value in both:
                given, stays = (Test(each, "=", (value,)) for each in (before, now))
                question = Question(Measure(SHARE, of=(stays,)), where=(given,))
                yield name, f"{name} {value} stays", question
        else:
            question = Question(Measure(SLOPE, (now, before)))
            yield name, f"slope of {name} on the row before", question


def _values(model: Model, name: str) -> tuple[str, ...]:
    column = model.domain.columns[model.domain.index(name)]
    return column.categories if isinstance(column, Categorical) else ()


def _commonest(model: Model, name: str) -> list[str]:
    column = model.domain.columns[model.domain.index(name)]
    (shares,) = model.answers([(name,)])
    # Codes that begin alike share a cell.
    of = {value: float(shares[column.code_of(value)]) for value in _values(model, name)}
    return sorted(of, key=lambda value: -of[value])[:MOST_VALUES]
