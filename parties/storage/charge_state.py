"""States of a release in an owner's budget: intended, charged, then released or returned.

A release is *intended* from before the first connection until a server that its configuration pins takes this study; it
costs nothing. It is *charged*, durably, before the first byte that depends on the data leaves. It is *released* once an
opening with it cannot be ruled out, and stays so. It is *returned* by a proof that nothing of it was opened, or ever
will be. SECURITY.md has the table of all methods. The functions are steps within a transaction of
`parties.storage.owner_budget`. Nothing here is secret.
"""

import enum
import math
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from parties.foundation.times import iso_time

TABLES = (
    """CREATE TABLE IF NOT EXISTS intended (
    dataset TEXT NOT NULL, config TEXT NOT NULL, run TEXT NOT NULL, method TEXT NOT NULL, rho REAL NOT NULL,
    intended_at REAL NOT NULL, PRIMARY KEY (dataset, config)) STRICT""",
    """CREATE TABLE IF NOT EXISTS released (entry INTEGER PRIMARY KEY, released_at REAL NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS answered (entry INTEGER PRIMARY KEY, charges INTEGER NOT NULL) STRICT""",
)
"""Tables beside those of the charges; older files lack them, and get them when they are opened."""


class ChargeState(enum.StrEnum):
    """State of a release of a table."""

    INTENDED = "intended"
    CHARGED = "charged"
    RELEASED = "released"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class IntendedRelease:
    """A release that the population ``dataset`` is about to be charged with; ``rho`` is not spent."""

    dataset: str
    config: str
    run: str
    method: str
    rho: float
    at: float

    @property
    def when(self) -> str:
        """Time of the intention in ISO 8601, UTC."""
        return iso_time(self.at)

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        values = asdict(self)
        del values["at"]
        # JSON has no infinite number, which is the cost of a release without a guarantee.
        rho = self.rho if math.isfinite(self.rho) else None
        return {**values, "rho": rho, "when": self.when, "state": ChargeState.INTENDED}


def intend(db: sqlite3.Connection, item: IntendedRelease) -> None:
    """Enters an intended release, in place of an earlier one of the same population and configuration."""
    values = (item.dataset, item.config, item.run, item.method, item.rho, item.at)
    db.execute("INSERT OR REPLACE INTO intended VALUES (?, ?, ?, ?, ?, ?)", values)


def drop(db: sqlite3.Connection, dataset: str, config: str) -> None:
    """Drops an intended release, which cost nothing or is charged now."""
    db.execute("DELETE FROM intended WHERE dataset = ? AND config = ?", (dataset, config))


def intended(db: sqlite3.Connection) -> Iterator[IntendedRelease]:
    """Yields the intended releases, the earliest first."""
    query = "SELECT dataset, config, run, method, rho, intended_at FROM intended"
    for row in db.execute(f"{query} ORDER BY intended_at"):
        yield IntendedRelease(*row)


def release(db: sqlite3.Connection, config: str, submission: str) -> None:
    """Enters that an opening with a charged submission can no longer be ruled out: it is not returned any more."""
    db.execute(
        "INSERT OR IGNORE INTO released SELECT entry, ?1 FROM release WHERE config = ?2 AND submission = ?3 "
        "AND entry NOT IN (SELECT entry FROM returned)",
        (time.time(), config, submission),
    )


def note_answered(db: sqlite3.Connection, config: str, submission: str, *, charges: int) -> None:
    """Enters the number of ``charges`` of a submission's ledger, which pay for all answers until now."""
    db.execute(
        "INSERT INTO answered SELECT entry, ?1 FROM release WHERE config = ?2 AND submission = ?3 "
        "ON CONFLICT DO UPDATE SET charges = max(charges, ?1)",
        (charges, config, submission),
    )


def answered(db: sqlite3.Connection, config: str, submission: str) -> int:
    """Returns the largest number of charges of a submission's ledger that paid for an answer."""
    query = "SELECT max(charges) FROM answered JOIN release USING (entry) WHERE config = ? AND submission = ?"
    (charges,) = db.execute(query, (config, submission)).fetchone()
    return int(charges or 0)


def is_released(db: sqlite3.Connection, entry: int) -> bool:
    """Returns true if the charge with this number was released."""
    return db.execute("SELECT 1 FROM released WHERE entry = ?", (entry,)).fetchone() is not None
