"""Persons under a condition on their own columns, on the number of their rows, or on some row.

``persons_where`` draws whole persons. A condition is a text as in `mechanisms.question`, with columns called by table:
``patients.age >= 65 and stays.number > 1 and stays.ward = surgery``. Tests of the table of persons, of numbers of rows
and of summaries (``stays.any.operated = yes``) hold for the person; tests of another table hold for at least one row,
all of them for the same one.

All values here are public. The model of persons is conditioned on what the condition says of the person: its own
tests, that it has a row to test, and tests of columns that are the same in all of its rows. Where that has no
probability nobody is drawn. Persons are drawn until enough satisfy all tests; a condition that almost nobody satisfies
is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Categorical, private_of
from mechanisms.conditioning import conditioned
from mechanisms.conditions import column_named, evidence_of, limits_of
from mechanisms.constraints.conjunction import ColumnTest
from mechanisms.domain import Domain
from mechanisms.errors import ConditionError, DomainError
from mechanisms.keyed.declared import ChildTable, KeyedTables
from mechanisms.keyed.drawing import Persons, Texts, draw_persons, summaries_of
from mechanisms.keyed.summaries import Summary, rows_where, summaries_domain
from mechanisms.keyed.views import FIRST, NUMBER
from mechanisms.model import Model
from mechanisms.question import Test, Where, parse_where
from mechanisms.sampling import public_generator
from mechanisms.written import parse_number

_COMPARISONS = {"<": lt, "<=": le, ">": gt, ">=": ge}
MOST_DRAWN = 200
"""Persons that are drawn for each one that is wanted, at most."""
_LEAST = 10_000


@dataclass(frozen=True, slots=True)
class PersonsWanted:
    """Persons to draw: how many, and a condition that each satisfies."""

    count: int
    where: str | None = None
    seed: int = 1


def persons_where(
    tables: KeyedTables, models: Mapping[str, Model], wanted: PersonsWanted
) -> Persons:
    """Draws the ``wanted`` persons from the models of the views, by name; the same seed draws the same persons.

    Raises ``ConditionError`` for a condition that does not fit the columns, or that too few persons satisfy;
    ``ValueError`` unless the number is positive.
    """
    if wanted.where is None:
        return draw_persons(tables, models, wanted.count, seed=wanted.seed)
    tests = _by_table(tables, parse_where(wanted.where))
    name = tables.parent.name
    under = dict(models) | {name: _persons_under(tables, models[name], tests, said=wanted.where)}
    seeds = public_generator(wanted.seed)
    found, kept, drawn = list[Persons](), 0, 0
    while kept < wanted.count and drawn < max(_LEAST, MOST_DRAWN * wanted.count):
        # The more have been drawn in vain, the more at once, which takes less time for each.
        batch = max(wanted.count - kept, min(_LEAST, wanted.count * 4), min(_LEAST, drawn))
        persons = draw_persons(tables, under, batch, seed=int(seeds.integers(2**62)))
        drawn += batch
        chosen = np.flatnonzero(_satisfying(tables, tests, persons))[: wanted.count - kept]
        kept += len(chosen)
        found.append(_only(tables, persons, chosen))
    if kept < wanted.count:
        raise ConditionError(
            f"{kept} of {drawn:,} drawn persons satisfy {wanted.where!r}; expected a condition that more of them "
            f"satisfy, or {kept or 'no'} persons"
        )
    return _joined(tables, found)


def _persons_under(tables: KeyedTables, model: Model, tests: _Tests, *, said: str) -> Model:
    """Returns the model of persons given all that ``tests`` say of a person.

    Raises ``ConditionError`` where they contradict one another, or the model gives them no probability.
    """
    name = tables.parent.name
    on_persons = [_on_persons(model.domain, table, test, persons=name) for table, test in tests.own]
    for child in tables.children:
        if not (of := tests.rows.get(child.name)):
            continue
        columns = child.domain.names
        if unknown := [test.column for test in of if test.column not in columns]:
            raise ConditionError(
                f"no column {unknown[0]!r} in {child.name}; the columns are {', '.join(columns)}"
            )
        measured = _measured(child.domain)
        limits_of(child.domain, tuple(test for test in of if test.column not in measured))
        on_persons += _of_every_row(tables, child, of)
        numbers = column_named(model.domain, f"{child.name}.{NUMBER}")
        if isinstance(numbers, Categorical) and "0" in numbers.categories:
            on_persons.append(Test(numbers.name, "!=", ("0",)))
    shares = evidence_of(limits_of(model.domain, tuple(on_persons)))
    # A cell that a condition cuts is drawn as a whole, and the persons beyond are thrown away.
    evidence = {column: (share > 0).astype(np.float64) for column, share in shares.items()}
    try:
        return conditioned(model, evidence).model if evidence else model
    except ConditionError as error:
        raise ConditionError(
            f"no person of the model satisfies {said!r}: its probability is 0"
        ) from error


def _of_every_row(tables: KeyedTables, child: ChildTable, tests: Where) -> list[Test]:
    """Returns tests of the view of persons that a row's ``tests`` imply: of columns that all rows of a person share."""
    firsts = child.own if child.most == 1 else child.constant
    places = {column: f"{child.name}.{FIRST}.{column}" for column in firsts}
    places |= {column: f"{tables.parent.name}.{column}" for column in child.copied}
    return [
        Test(places[test.column], test.operator, test.values)
        for test in tests
        if test.column in places
    ]


def _on_persons(domain: Domain, table: str, test: Test, *, persons: str) -> Test:
    """Returns a test of the view of persons; a number of rows is compared with all that there are."""
    column = f"{table}.{test.column}"
    compare = _COMPARISONS.get(test.operator)
    if table == persons or test.column != NUMBER or compare is None:
        return Test(column, test.operator, test.values)
    (value,) = test.values
    numbers = column_named(domain, column)
    bound = parse_number(value)
    if bound is None or not isinstance(numbers, Categorical):
        raise ConditionError(f"{column} {test.operator} {value}: expected a number of rows")
    held = tuple(number for number in numbers.categories if compare(int(number), bound))
    if not held:
        raise ConditionError(
            f"{column} {test.operator} {value}: no person has so many rows; there are {numbers.categories[0]} to "
            f"{numbers.categories[-1]}"
        )
    return Test(column, "in", held)


def _measured(domain: Domain) -> frozenset[str]:
    """Returns the columns whose cells a run measures, which the domain does not know yet."""
    return frozenset(c.name for c in domain.columns if private_of(c) is not None)


@dataclass(frozen=True, slots=True)
class _Tests:
    """Tests of the person by table, and those of rows of each other table."""

    own: tuple[tuple[str, Test], ...]
    rows: Mapping[str, Where]


def _by_table(tables: KeyedTables, where: Where) -> _Tests:
    own, rows = list[tuple[str, Test]](), defaultdict[str, list[Test]](list)
    for test in where:
        table, point, column = test.column.partition(".")
        if not point or table not in tables.by_name:
            raise ConditionError(
                f"column {test.column!r}: expected it with its table, as in {tables.children[0].name}.{NUMBER}; the "
                f"tables are {', '.join(tables.by_name)}"
            )
        named = Test(column, test.operator, test.values)
        if table == tables.parent.name or column == NUMBER or _summary(tables, table, column):
            own.append((table, named))
        elif test.operator in ("missing", "present"):
            raise ConditionError(
                f"{test.column!r} is {test.operator}: rows are tested by their values; expected another test"
            )
        else:
            rows[table].append(named)
    return _Tests(tuple(own), {name: tuple(of) for name, of in rows.items()})


def _summary(tables: KeyedTables, table: str, column: str) -> Summary | None:
    """Returns the summary that a column of the view of persons has, None for another column."""
    found = tables.by_name[table]
    if not isinstance(found, ChildTable) or column in found.domain.names:
        return None
    return next((each for each in found.summaries if each.column == column), None)


def _satisfying(tables: KeyedTables, tests: _Tests, persons: Persons) -> NDArray[np.bool_]:
    held = np.ones(persons.count, np.bool_)
    parent = tables.parent
    mine = [test for table, test in tests.own if table == parent.name and test.values]
    if mine:
        held &= _holds(tables.domain_of(parent.name), mine, persons.own, table=parent.name)
    for child in tables.children:
        whose, texts = persons.rows[child.name]
        every = np.arange(persons.count)
        if of := tests.rows.get(child.name):
            held &= np.isin(every, whose[_holds(child.domain, of, texts, table=child.name)])
        own = [test for table, test in tests.own if table == child.name]
        counts = np.bincount(whose, minlength=persons.count)
        for test in own:
            if test.column == NUMBER:
                held &= _counted(test, counts)
        if asked := [test for test in own if test.column != NUMBER]:
            some, values = summaries_of(child, whose, texts)
            held &= np.isin(every, some[_summarised(child, asked, values)])
    return held


def _counted(test: Test, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns the persons (persons,) whose number of rows, which dates may have ended early, satisfies a test."""
    numbers = [number for value in test.values if (number := parse_number(value)) is not None]
    if compare := _COMPARISONS.get(test.operator):
        return np.array([compare(count, numbers[0]) for count in counts.tolist()], np.bool_)
    listed = np.isin(counts, np.array(numbers, np.float64))
    return ~listed if test.operator in ("!=", "not in") else listed


def _summarised(child: ChildTable, tests: Sequence[Test], values: Texts) -> NDArray[np.bool_]:
    """Returns the persons with rows whose summaries satisfy all tests."""
    domain = summaries_domain(child.domain, child.summaries)
    held = np.ones(len(next(iter(values.values()))), np.bool_)
    for test in tests:
        if not test.values:
            absent = np.array([value is None for value in values[test.column].tolist()], np.bool_)
            held &= absent if test.operator == "missing" else ~absent
    with_values = [test for test in tests if test.values]
    if with_values:
        held &= _holds(domain, with_values, values, table=child.name)
    return held


def _holds(domain: Domain, tests: Sequence[Test], texts: Texts, *, table: str) -> NDArray[np.bool_]:
    try:
        return rows_where(
            domain, [ColumnTest(t.column, t.operator, t.values) for t in tests], texts, where=table
        )
    except DomainError as error:
        raise ConditionError(str(error)) from error


def _only(tables: KeyedTables, persons: Persons, chosen: NDArray[np.int64]) -> Persons:
    """Returns some of the persons, numbered anew."""
    place = np.full(persons.count, -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    rows = {}
    for child in tables.children:
        whose, texts = persons.rows[child.name]
        kept = place[whose] >= 0
        rows[child.name] = place[whose[kept]], {name: t[kept] for name, t in texts.items()}
    return Persons(len(chosen), {name: t[chosen] for name, t in persons.own.items()}, rows)


def _joined(tables: KeyedTables, parts: Sequence[Persons]) -> Persons:
    starts = np.cumsum([0, *(part.count for part in parts)])
    rows = {}
    for child in tables.children:
        of = [part.rows[child.name] for part in parts]
        whose = np.concatenate([w + start for (w, _), start in zip(of, starts, strict=False)])
        rows[child.name] = (
            whose,
            {name: np.concatenate([texts[name] for _, texts in of]) for name in child.domain.names},
        )
    own = {name: np.concatenate([part.own[name] for part in parts]) for name in parts[0].own}
    return Persons(int(starts[-1]), own, rows)
