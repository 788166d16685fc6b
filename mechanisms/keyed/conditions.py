"""Persons under a condition on their own columns, on the number of their rows, or on some row.

``persons_where`` draws whole persons. A condition is a text as in `mechanisms.question`, with columns called by table:
``patients.age >= 65 and stays.number > 1 and stays.ward = surgery``. Tests of the table of persons, of numbers of rows
and of summaries (``stays.any.operated = yes``) hold for the person; tests of another table hold for at least one row,
all of them for the same one.

All values here are public. The model of persons is conditioned on the person's own tests, and persons are drawn until
enough satisfy all of them; a condition that almost nobody satisfies is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Categorical
from mechanisms.conditioning import conditioned
from mechanisms.conditions import column_named, evidence_of, limits_of
from mechanisms.constraints.conjunction import ColumnTest
from mechanisms.domain import Domain
from mechanisms.errors import ConditionError, DomainError
from mechanisms.keyed.declared import ChildTable, KeyedTables
from mechanisms.keyed.drawing import Persons, Texts, draw_persons, summaries_of
from mechanisms.keyed.summaries import Summary, rows_where, summaries_domain
from mechanisms.keyed.views import NUMBER
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
    own = tuple(
        _on_persons(models[name].domain, table, test, persons=name) for table, test in tests.own
    )
    shares = evidence_of(limits_of(models[name].domain, own))
    # A cell that a condition cuts is drawn as a whole, and the persons beyond are thrown away.
    evidence = {column: (share > 0).astype(np.float64) for column, share in shares.items()}
    under = dict(models) | {
        name: conditioned(models[name], evidence).model if evidence else models[name]
    }
    seeds = public_generator(wanted.seed)
    found, kept, drawn = list[Persons](), 0, 0
    while kept < wanted.count and drawn < max(_LEAST, MOST_DRAWN * wanted.count):
        batch = max(wanted.count - kept, min(_LEAST, wanted.count * 4))
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
        asked = [
            test
            for table, test in tests.own
            if table == child.name and test.values and test.column != NUMBER
        ]
        if asked:
            some, values = summaries_of(child, whose, texts)
            domain = summaries_domain(child.domain, child.summaries)
            held &= np.isin(every, some[_holds(domain, asked, values, table=child.name)])
    return held


def _holds(domain: Domain, tests: Sequence[Test], texts: Texts, *, table: str) -> NDArray[np.bool_]:
    if unknown := [test.column for test in tests if test.column not in domain.names]:
        raise ConditionError(
            f"no column {unknown[0]!r} in {table}; the columns are {', '.join(domain.names)}"
        )
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
