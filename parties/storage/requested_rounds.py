"""Rounds for which a federation's server has asked its participants, durable before the first request of each.

A ledger does not show them all: a round may cost nothing more than the rounds before it have paid (FLAIM's variant
pairs), or nothing at all (a method without noise by the server). Each of them releases something, so that a release
registry counts rounds and charges together (``count_releases``): a folder with fewer of both is an old copy. All values
here are public. Methods may raise StoreError.
"""

import json
import sqlite3
from collections.abc import Sequence

from parties.storage.database import Database

REQUESTED_TABLE_SQL = """
CREATE TABLE IF NOT EXISTS requested_round (
    entry INTEGER PRIMARY KEY, round INTEGER NOT NULL, participants TEXT NOT NULL) STRICT
"""
_COUNTED = "ledger", "requested_round"


class RequestedRounds:
    """The rounds in ``database``, in their order; a run that has begun anew has some numbers twice."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def count(self) -> int:
        """Number of rounds."""
        return int(self._database.rows("SELECT count(*) FROM requested_round")[0][0])

    @property
    def entries(self) -> list[tuple[int, tuple[int, ...]]]:
        """Number and participants of each round."""
        rows = self._database.rows("SELECT round, participants FROM requested_round ORDER BY entry")
        return [(number, tuple(json.loads(participants))) for number, participants in rows]

    def enter(self, number: int, participants: Sequence[int]) -> None:
        """Enters round ``number``, which ``participants`` are about to be asked for; durable on return."""
        self._database.enter(
            "INSERT INTO requested_round (round, participants) VALUES (?, ?)",
            [(number, json.dumps(list(participants)))],
        )


def count_releases(db: sqlite3.Connection) -> int:
    """Returns the number of charges and requested rounds in the database of a run's folder."""
    there = {row[0] for row in db.execute("SELECT name FROM sqlite_schema")}
    counts = (
        db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        for table in _COUNTED
        if table in there
    )
    return sum(map(int, counts))
