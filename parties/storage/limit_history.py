"""History of a budget's limits: each change with its time, its author and the reason."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from parties.foundation.times import iso_time

LIMIT_TABLE = """CREATE TABLE IF NOT EXISTS limit_change (
    entry INTEGER PRIMARY KEY, dataset TEXT NOT NULL, epsilon_before REAL NOT NULL, delta_before REAL NOT NULL,
    epsilon REAL NOT NULL, delta REAL NOT NULL, by TEXT NOT NULL, why TEXT NOT NULL, changed_at REAL NOT NULL) STRICT"""
"""Older files lack the table, and get it when they are opened: their earlier changes are not known."""


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A change of a limit from ``before`` to ``after``, each (epsilon, delta), by ``by``, for the reason ``why``."""

    before: tuple[float, float]
    after: tuple[float, float]
    by: str
    why: str
    at: float

    @property
    def when(self) -> str:
        """Time of the change in ISO 8601, UTC."""
        return iso_time(self.at)

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        epsilons = (self.before[0], self.after[0])
        before, after = (None if epsilon == float("inf") else epsilon for epsilon in epsilons)
        return {
            "when": self.when,
            "epsilon_before": before,
            "delta_before": self.before[1],
            "epsilon": after,
            "delta": self.after[1],
            "by": self.by,
            "why": self.why,
        }


def remember_change(db: sqlite3.Connection, name: str, change: LimitChange) -> None:
    """Records a change of the limit of population ``name``."""
    values = (name, *change.before, *change.after, change.by, change.why, change.at)
    db.execute("INSERT INTO limit_change VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def changes_of(db: sqlite3.Connection, name: str) -> Iterator[LimitChange]:
    """Yields the changes of a population's limit, oldest first."""
    query = (
        "SELECT epsilon_before, delta_before, epsilon, delta, by, why, changed_at FROM limit_change "
        "WHERE dataset = ? ORDER BY entry"
    )
    for epsilon_before, delta_before, epsilon, delta, by, why, at in db.execute(query, (name,)):
        yield LimitChange((epsilon_before, delta_before), (epsilon, delta), by, why, at)
