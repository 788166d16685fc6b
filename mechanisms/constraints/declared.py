"""Constraints as they are declared: ``[[constraint]]`` in a configuration, in one of these kinds.

    column = "gross"                column = "age"              order = ["start", "end"]
    equals = "net + vat"            years_since = "birth"
                                    on = "start"                never = "pregnant = yes and sex = M"

    shares = ["rent", "food"]       one_hot = ["red", "blue"]   when = "age < 18"
    total = 100                     column = "colour"           then = "income = 0"

Each may have ``violations``: "refuse" (the default), by which an owner's program refuses a table with a row that
contradicts the constraint, or "repair". Public: all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from mechanisms.columns import Categorical, Column
from mechanisms.constraints.conjunction import ColumnTest, both_sets, sets_of
from mechanisms.constraints.formula import Born, Formula, Sum, Years
from mechanisms.constraints.relations import (
    MAX_SCOPE_CELLS,
    Ascending,
    AtMost,
    Forbidden,
    Relation,
    check_comparable,
)
from mechanisms.constraints.values import check_exact, decimals_of_column
from mechanisms.errors import DomainError

REFUSE, REPAIR = "refuse", "repair"
VIOLATIONS = (REFUSE, REPAIR)
MOST_MEMBERS = 200
"""Most columns of one group."""


class Constraint(Protocol):
    """A declared constraint. ``violations`` is ``REFUSE`` or ``REPAIR``."""

    @property
    def violations(self) -> str:
        """Treatment of an owner's rows that contradict it."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the modelled columns that it is about."""

    @property
    def derives(self) -> tuple[str, Formula] | None:
        """Column that is computed, and by which formula; None if it computes none."""

    @property
    def words(self) -> str:
        """Name of the constraint in messages."""

    def relations(self, columns: Mapping[str, Column]) -> tuple[Relation, ...]:
        """Returns the relations between modelled columns. Raises ``DomainError`` for columns that cannot have them."""

    def to_dict(self) -> dict[str, object]:
        """Returns the ``[[constraint]]`` table of a configuration."""


@dataclass(frozen=True, slots=True)
class Equals:
    """A column that a formula computes."""

    column: str
    formula: Formula
    violations: str = REFUSE

    @property
    def needs(self) -> tuple[str, ...]:
        """See ``Constraint.needs``."""
        return self.formula.parts

    @property
    def derives(self) -> tuple[str, Formula] | None:
        """See ``Constraint.derives``."""
        return self.column, self.formula

    @property
    def words(self) -> str:
        """See ``Constraint.words``."""
        return f"[[constraint]] column = {self.column!r}"

    def relations(self, columns: Mapping[str, Column]) -> tuple[Relation, ...]:
        """Returns none: the column is right in every row."""
        return ()

    def to_dict(self) -> dict[str, object]:
        """See ``Constraint.to_dict``."""
        table: dict[str, object] = {"column": self.column}
        if isinstance(self.formula, Years):
            table |= {"years_since": self.formula.since, "on": self.formula.on}
        elif isinstance(self.formula, Born):
            table |= {"born": self.formula.age, "on": self.formula.on}
        else:
            table |= {"equals": str(self.formula)}
        return table | _said(self.violations)


@dataclass(frozen=True, slots=True)
class Order:
    """Columns of numbers or dates, none of which is above the next one."""

    columns: tuple[str, ...]
    violations: str = REFUSE

    @property
    def needs(self) -> tuple[str, ...]:
        """See ``Constraint.needs``."""
        return self.columns

    @property
    def derives(self) -> tuple[str, Formula] | None:
        """See ``Constraint.derives``."""
        return None

    @property
    def words(self) -> str:
        """See ``Constraint.words``."""
        return f"[[constraint]] order = {list(self.columns)}"

    def relations(self, columns: Mapping[str, Column]) -> tuple[Relation, ...]:
        """See ``Constraint.relations``."""
        relation = Ascending(self.columns)
        relation.check(self.words, columns)
        return (relation,)

    def to_dict(self) -> dict[str, object]:
        """See ``Constraint.to_dict``."""
        return {"order": list(self.columns)} | _said(self.violations)


@dataclass(frozen=True, slots=True)
class Never:
    """A conjunction of tests that no row satisfies; ``text`` is how it was written."""

    text: str
    tests: tuple[ColumnTest, ...]
    violations: str = REFUSE

    @property
    def needs(self) -> tuple[str, ...]:
        """See ``Constraint.needs``."""
        return tuple(dict.fromkeys(test.column for test in self.tests))

    @property
    def derives(self) -> tuple[str, Formula] | None:
        """See ``Constraint.derives``."""
        return None

    @property
    def words(self) -> str:
        """See ``Constraint.words``."""
        return f"[[constraint]] never = {self.text!r}"

    def relations(self, columns: Mapping[str, Column]) -> tuple[Relation, ...]:
        """See ``Constraint.relations``."""
        sets = sets_of(self.words, self.tests, columns)
        if empty := [name for name, values in sets.items() if values.is_empty]:
            raise DomainError(
                f"{self.words}: no value of column {empty[0]!r} satisfies its tests, so that nothing is forbidden; "
                f"expected {columns[empty[0]].allowed}"
            )
        return (Forbidden(tuple(sets.items()), f"never = {self.text!r}"),)

    def to_dict(self) -> dict[str, object]:
        """See ``Constraint.to_dict``."""
        return {"never": self.text} | _said(self.violations)


@dataclass(frozen=True, slots=True)
class When:
    """A conjunction ``then`` that every row satisfies that satisfies ``when``; both as texts and as tests."""

    when: str
    then: str
    given: tuple[ColumnTest, ...]
    required: tuple[ColumnTest, ...]
    violations: str = REFUSE

    @property
    def needs(self) -> tuple[str, ...]:
        """See ``Constraint.needs``."""
        return tuple(dict.fromkeys(test.column for test in (*self.given, *self.required)))

    @property
    def derives(self) -> tuple[str, Formula] | None:
        """See ``Constraint.derives``."""
        return None

    @property
    def words(self) -> str:
        """See ``Constraint.words``."""
        return f"[[constraint]] when = {self.when!r}, then = {self.then!r}"

    def relations(self, columns: Mapping[str, Column]) -> tuple[Relation, ...]:
        """Returns a forbidden combination for each column of ``then``: ``when`` without that column's tests."""
        given = sets_of(self.words, self.given, columns)
        required = sets_of(self.words, self.required, columns)
        for name, values in (*given.items(), *required.items()):
            if values.is_empty:
                raise DomainError(
                    f"{self.words}: no value of column {name!r} satisfies its tests; expected {columns[name].allowed}"
                )
        words = f"when = {self.when!r}, then = {self.then!r}"
        found = [both_sets(given, name, values.complement()) for name, values in required.items()]
        return tuple(
            Forbidden(tuple(sets.items()), words)
            for sets in found
            if not any(values.is_empty for values in sets.values())
        )

    def to_dict(self) -> dict[str, object]:
        """See ``Constraint.to_dict``."""
        return {"when": self.when, "then": self.then} | _said(self.violations)


@dataclass(frozen=True, slots=True)
class Shares:
    """Columns of numbers, none below zero, that sum to ``total``; the last one is computed from the others."""

    columns: tuple[str, ...]
    total: str
    violations: str = REFUSE

    @property
    def needs(self) -> tuple[str, ...]:
        """See ``Constraint.needs``."""
        return self.columns[:-1]

    @property
    def derives(self) -> tuple[str, Formula] | None:
        """See ``Constraint.derives``."""
        rest = tuple((-1, name) for name in self.columns[:-1])
        return self.columns[-1], Sum(rest, Decimal(self.total))

    @property
    def words(self) -> str:
        """See ``Constraint.words``."""
        return f"[[constraint]] shares = {list(self.columns)}"

    def relations(self, columns: Mapping[str, Column]) -> tuple[Relation, ...]:
        """See ``Constraint.relations``."""
        if len(self.columns) < 3 or len(set(self.columns)) < len(self.columns):
            raise DomainError(f"{self.words}: expected three or more different columns")
        check_comparable(self.words, self.needs, columns)
        exponent = Decimal(self.total).normalize().as_tuple().exponent
        own = -exponent if isinstance(exponent, int) else 0
        places = max(
            [own, *(decimals_of_column(check_exact(self.words, columns[n])) for n in self.needs)]
        )
        return (AtMost(self.needs, int(Decimal(self.total).scaleb(places)), places),)

    def to_dict(self) -> dict[str, object]:
        """See ``Constraint.to_dict``."""
        number = Decimal(self.total)
        whole = number == number.to_integral_value()
        total = int(number) if whole else float(number)
        return {"shares": list(self.columns), "total": total} | _said(self.violations)


@dataclass(frozen=True, slots=True)
class OneHot:
    """Columns of a table of which one has ``yes`` and all others ``no``: one modelled column of their names.

    ``none`` is the category of rows without any ``yes``; "" where there are none.
    """

    members: tuple[str, ...]
    column: str
    yes: str = "1"
    no: str = "0"
    none: str = ""
    violations: str = REFUSE

    @property
    def needs(self) -> tuple[str, ...]:
        """See ``Constraint.needs``."""
        return (self.column,)

    @property
    def derives(self) -> tuple[str, Formula] | None:
        """See ``Constraint.derives``."""
        return None

    @property
    def words(self) -> str:
        """See ``Constraint.words``."""
        return f"[[constraint]] one_hot column = {self.column!r}"

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories of the modelled column."""
        return (*self.members, self.none) if self.none else self.members

    def relations(self, columns: Mapping[str, Column]) -> tuple[Relation, ...]:
        """Returns none: the columns are written from one category. Raises ``DomainError`` for another description."""
        if len(set(self.members)) < len(self.members) or not 2 <= len(self.members) <= MOST_MEMBERS:
            raise DomainError(
                f"{self.words}: expected two to {MOST_MEMBERS} different columns in one_hot"
            )
        if self.yes == self.no or self.none in self.members:
            raise DomainError(f"{self.words}: yes, no and the columns' names have to be different")
        column = columns[self.column]
        wanted = Categorical(self.column, self.categories, column.missing)
        if column != wanted:
            listed = ", ".join(f'"{name}"' for name in self.categories)
            raise DomainError(
                f'{self.words}: expected that column with kind = "categorical" and categories = [{listed}]'
            )
        return ()

    def to_dict(self) -> dict[str, object]:
        """See ``Constraint.to_dict``."""
        table: dict[str, object] = {
            "one_hot": list(self.members),
            "column": self.column,
            "yes": self.yes,
            "no": self.no,
        }
        return table | ({"none": self.none} if self.none else {}) | _said(self.violations)


def relations_of(constraint: Constraint, columns: Mapping[str, Column]) -> tuple[Relation, ...]:
    """Returns the relations of a constraint, checked against the columns.

    Raises ``DomainError`` for a column that is not modelled.
    """
    if unknown := [name for name in constraint.needs if name not in columns]:
        raise DomainError(
            f"{constraint.words}: {unknown[0]!r} is no modelled column; the columns are {', '.join(columns)}"
        )
    return constraint.relations(columns)


def check_cells(
    constraint: Constraint, relations: Sequence[Relation], columns: Mapping[str, Column]
) -> None:
    """Raises ``DomainError`` for relations that no cell satisfies, or of more cells than one clique should have."""
    for relation in relations:
        cells = math.prod(columns[name].size for name in relation.columns)
        if cells > MAX_SCOPE_CELLS and not isinstance(relation, Ascending):
            raise DomainError(
                f"{constraint.words}: its columns have {cells:,} cells together; expected at most "
                f"{MAX_SCOPE_CELLS:,}: fewer columns or bins"
            )
        if not all(scope.allowed.any() for scope in relation.scopes(columns)):
            raise DomainError(
                f"{constraint.words}: no values of its columns satisfy it; expected columns that can"
            )


def _said(violations: str) -> dict[str, object]:
    return {} if violations == REFUSE else {"violations": violations}
