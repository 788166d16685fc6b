"""Finalized participants: counted for good, withdrawn, or replaced; a server's memory beyond the submissions.

Three facts outlive the submissions themselves: a client is in a round's total (*final*: nothing of it can be
withdrawn); the version up to which nothing of a client was counted or ever will be (*settled*, a tombstone: earlier
versions do not come back); and the withdrawals that participants have signed, settled or not. Secret: nothing.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.storage.database import Database

TABLES = (
    """CREATE TABLE IF NOT EXISTS final (
    client TEXT PRIMARY KEY, upload TEXT NOT NULL, round INTEGER NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS settled (client TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS withdrawal (
    client TEXT PRIMARY KEY, run TEXT NOT NULL, config TEXT NOT NULL, version INTEGER NOT NULL,
    document TEXT NOT NULL) STRICT""",
)
_UNREGISTERED = """
SELECT client, upload FROM final
WHERE client > ?1 AND (?2 IS NULL OR client <= ?2) AND client NOT IN (SELECT client FROM roll)"""


@dataclass(frozen=True, slots=True, order=True)
class Finalized:
    """The ``upload`` of ``client`` is in the totals of ``round`` and all later rounds."""

    client: str
    upload: str
    round: int


class FinalizedStore:
    """Tables of finalized participants in a server's store.

    All methods may be called from any thread; all may raise StoreError; entries are durable on return.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def final(self, client: str) -> Finalized | None:
        """The final upload of ``client``, as far as this server knows; None if it is not counted for good."""
        row = self._database.row("SELECT client, upload, round FROM final WHERE client = ?", client)
        return None if row is None else Finalized(*row)

    def finalized(self) -> list[Finalized]:
        """All final uploads, by client."""
        rows = self._database.rows("SELECT client, upload, round FROM final ORDER BY client")
        return [Finalized(*row) for row in rows]

    def finalized_among(self, clients: Iterable[str]) -> dict[str, str]:
        """Final uploads of those ``clients`` that are counted for good, by client."""
        query = "SELECT client, upload FROM final WHERE client IN (SELECT value FROM json_each(?))"
        return dict(self._database.rows(query, json.dumps(list(clients))))

    def unregistered(self, after: str, upto: str | None) -> dict[str, str]:
        """Final uploads, by client behind ``after`` up to ``upto`` (None: the last), that are not in the registry."""
        return dict(self._database.rows(_UNREGISTERED, after, upto))

    def save_finalized(self, finals: Sequence[Finalized]) -> None:
        """Replaces all final uploads by ``finals``, as the three servers have agreed."""
        rows = [(item.client, item.upload, item.round) for item in finals]
        with self._database.transaction():
            self._database.enter("DELETE FROM final", [()])
            self._database.enter("INSERT INTO final VALUES (?, ?, ?)", rows)

    def add_finalized(self, finals: Iterable[Finalized]) -> None:
        """Adds ``finals``; earlier entries stay as they are."""
        rows = ((item.client, item.upload, item.round) for item in finals)
        self._database.enter("INSERT OR IGNORE INTO final VALUES (?, ?, ?)", rows)

    def version(self, client: str) -> int:
        """Version up to which nothing of ``client`` was counted, or ever will be; 0 for none."""
        row = self._database.row("SELECT version FROM settled WHERE client = ?", client)
        return 0 if row is None else int(row[0])

    def settle(self, client: str, version: int) -> None:
        """Records that nothing of ``client`` up to ``version`` will be counted."""
        self._database.enter(
            "INSERT INTO settled VALUES (?1, ?2) ON CONFLICT DO UPDATE SET version = max(version, ?2)",
            [(client, version)],
        )

    def withdrawal(self, client: str) -> SignedWithdrawal | None:
        """Last withdrawal that ``client`` has signed."""
        query = "SELECT document, run, config FROM withdrawal WHERE client = ?"
        row = self._database.row(query, client)
        return None if row is None else signed_withdrawal(*row)

    def add_withdrawal(self, signed: SignedWithdrawal) -> None:
        """Stores a withdrawal, unless one of a later version is here."""
        said = signed.withdrawal
        row = (said.client, said.run, said.config, said.version, json.dumps(signed.to_dict()))
        self._database.enter(
            "INSERT INTO withdrawal VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET "
            "version = ?4, document = ?5 WHERE version < ?4",
            [row],
        )


def signed_withdrawal(document: str, run: str, config: str) -> SignedWithdrawal:
    """Withdrawal from a row of the table ``withdrawal``."""
    return SignedWithdrawal.from_dict(json.loads(document), run, config)
