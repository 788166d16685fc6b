"""Checks of an owner's rows against the constraints, before anything is sent.

``contradictions`` finds the rows that contradict a constraint with ``violations = "refuse"``; ``repaired`` leaves out
those of one with "repair". A derived column of such a constraint is computed anew, so that its rows stay.

Constraints are public. Tables, and numbers of rows, are secret, at their owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.constraints.declared import REPAIR, Constraint, OneHot
from mechanisms.constraints.one_hot import UNKNOWN
from mechanisms.domain import Domain
from mechanisms.text_table import TextTable


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contradiction:
    """Wrong ``rows`` (rows,) of a constraint; ``said`` has for the first of them its column and what is wrong.

    ``derived`` if it is a computed column that is wrong.
    """

    constraint: Constraint
    rows: NDArray[np.bool_]
    said: Mapping[int, tuple[str, str]]
    derived: bool = False


def contradictions(
    domain: Domain, table: TextTable, *, of: str | None = None, shown: int = 10
) -> Iterator[Contradiction]:
    """Yields what rows contradict, for constraints with ``violations`` = ``of``, or all of them.

    Up to ``shown`` rows of each are described.
    """
    modelled = {column.name: column for column in domain.columns}
    for constraint in domain.constraints:
        if of is not None and constraint.violations != of:
            continue
        # A constraint between columns of two owners is checked by neither.
        if not table.columns.keys() >= set(constraint.needs):
            continue
        for relation in constraint.relations(modelled):
            rows = relation.violated(modelled, table.columns, domain.missing_values)
            said = {
                int(row): relation.said(
                    modelled, {name: table.columns[name][row] for name in relation.columns}
                )
                for row in np.flatnonzero(rows)[:shown]
            }
            yield Contradiction(constraint, rows, said)
        if isinstance(constraint, OneHot):
            rows = np.array([v == UNKNOWN for v in table.columns[constraint.column]], np.bool_)
            wrong = "exactly one of the group has to be yes"
            said = {int(row): (constraint.column, wrong) for row in np.flatnonzero(rows)[:shown]}
            yield Contradiction(constraint, rows, said)
    for derived in domain.derived:
        constraint = domain.constraint_of(derived)
        there = table.columns.keys() >= {derived.name, *derived.parts}
        if there and of in (None, constraint.violations):
            found = derived.contradictions(modelled, table.columns, domain.missing_values)
            rows = np.zeros(len(table), np.bool_)
            rows[list(found)] = True
            said = {row: (derived.name, text) for row, text in found.items()}
            yield Contradiction(constraint, rows, said, derived=True)


def repaired(domain: Domain, table: TextTable) -> tuple[TextTable, tuple[str, ...]]:
    """Returns the rows that may take part, and in words what was repaired, for the owner alone.

    A row that contradicts a constraint to be repaired is left out; a derived value is computed anew by the run.
    """
    kept, notes = np.ones(len(table), np.bool_), list[str]()
    for wrong in contradictions(domain, table, of=REPAIR, shown=0):
        count = int(wrong.rows.sum())
        if not count:
            continue
        if not wrong.derived:
            kept &= ~wrong.rows
        done = "are computed anew" if wrong.derived else "are left out"
        notes.append(
            f"{count:,} of {len(table):,} rows contradict {wrong.constraint.words} and {done}; that number "
            "is yours alone"
        )
    if kept.all():
        return table, tuple(notes)
    rows = np.flatnonzero(kept).tolist()
    columns = {name: [values[row] for row in rows] for name, values in table.columns.items()}
    left = replace(table, columns=columns, places=[table.places[row] for row in rows])
    return left, tuple(notes)
