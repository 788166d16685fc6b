"""What a server remembers of owners that are counted for good, that have withdrawn, or whose submission was replaced.

Provides ``FinalizedStore``, in a server's store, and ``Finalized``. Three facts outlive the submissions themselves:
that a client is in what a round uses (*final*: nothing of it can be taken back); up to which version nothing of a
client was counted or ever will be (*settled*: what was sent before does not come back); and the withdrawals that owners
have signed, settled or not. Secret: nothing.
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


@dataclass(frozen=True, slots=True, order=True)
class Finalized:
    """The ``upload`` of ``client`` is in what ``round`` and all later ones use."""

    client: str
    upload: str
    round: int


class FinalizedStore:
    """All methods may be called from any thread; all may raise StoreError; what they enter is durable on return."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def final(self, client: str) -> Finalized | None:
        """Whether ``client`` is counted for good, as far as this server knows."""
        row = self._database.row("SELECT client, upload, round FROM final WHERE client = ?", client)
        return None if row is None else Finalized(*row)

    def finalized(self) -> list[Finalized]:
        """All who are, by client."""
        rows = self._database.rows("SELECT client, upload, round FROM final ORDER BY client")
        return [Finalized(*row) for row in rows]

    def finalized_among(self, clients: Iterable[str]) -> dict[str, str]:
        """Of ``clients``, those who are, with their uploads."""
        query = "SELECT client, upload FROM final WHERE client IN (SELECT value FROM json_each(?))"
        return dict(self._database.rows(query, json.dumps(list(clients))))

    def save_finalized(self, finals: Sequence[Finalized]) -> None:
        """These are counted for good, as the three servers have agreed, and nobody else."""
        rows = [(item.client, item.upload, item.round) for item in finals]
        with self._database.transaction():
            self._database.enter("DELETE FROM final", [()])
            self._database.enter("INSERT INTO final VALUES (?, ?, ?)", rows)

    def add_finalized(self, finals: Iterable[Finalized]) -> None:
        """These are, too; those who were before stay as they are."""
        rows = ((item.client, item.upload, item.round) for item in finals)
        self._database.enter("INSERT OR IGNORE INTO final VALUES (?, ?, ?)", rows)

    def version(self, client: str) -> int:
        """Up to which version nothing of ``client`` was counted, or ever will be; 0 for none."""
        row = self._database.row("SELECT version FROM settled WHERE client = ?", client)
        return 0 if row is None else int(row[0])

    def settle(self, client: str, version: int) -> None:
        """Nothing of ``client`` up to ``version`` will be counted."""
        self._database.enter(
            "INSERT INTO settled VALUES (?1, ?2) ON CONFLICT DO UPDATE SET version = max(version, ?2)",
            [(client, version)],
        )

    def withdrawal(self, client: str) -> SignedWithdrawal | None:
        """The last that ``client`` has signed."""
        query = "SELECT document, run, config FROM withdrawal WHERE client = ?"
        row = self._database.row(query, client)
        return None if row is None else signed_withdrawal(*row)

    def add_withdrawal(self, signed: SignedWithdrawal) -> None:
        """Keep it, unless one of a later version is here."""
        said = signed.withdrawal
        row = (said.client, said.run, said.config, said.version, json.dumps(signed.to_dict()))
        self._database.enter(
            "INSERT INTO withdrawal VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET "
            "version = ?4, document = ?5 WHERE version < ?4",
            [row],
        )


def signed_withdrawal(document: str, run: str, config: str) -> SignedWithdrawal:
    """A row of the table ``withdrawal``."""
    return SignedWithdrawal.from_dict(json.loads(document), run, config)
