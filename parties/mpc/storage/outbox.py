"""What a server keeps for others that have not got it yet, and the receipts of those that have.

Provides ``Outbox``, in a server's store: whole uploads as their owners sent them, each with the servers that it waits
for, and ``DeliveryStatus``, where an upload stands. An upload comes in with the server's own part, in one transaction
(`parties.mpc.storage.store.Store.accept`); it goes when nobody waits for it any more. Secret: nothing, everything is
sealed. Public: who has what.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from parties.mpc.storage.bodies import read_body
from parties.mpc.submission.sealed_upload import ServerReceipt
from parties.storage.database import Database
from parties.storage.files import disk_errors

TABLES = (
    """CREATE TABLE IF NOT EXISTS outbox (
    client TEXT, pid INTEGER, path TEXT NOT NULL, refused TEXT, PRIMARY KEY (client, pid)) STRICT""",
    """CREATE TABLE IF NOT EXISTS receipt (
    client TEXT, pid INTEGER, receipt TEXT NOT NULL, sent INTEGER NOT NULL, received INTEGER NOT NULL,
    PRIMARY KEY (client, pid)) STRICT""",
)
"""``refused`` is why server ``pid`` does not take it; ``sent`` and ``received`` are the bytes of passing it on."""


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """Of one upload: other servers' ``receipts``, whom it is ``kept_for``, and who ``refused`` it and why."""

    receipts: Mapping[int, ServerReceipt] = field(default_factory=dict)
    kept_for: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)

    @property
    def n_secured(self) -> int:
        """How many others have it, or will get it from here."""
        return len({*self.receipts, *self.kept_for})


class Outbox:
    """The outbox of a store. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def waiting(self, pid: int, most: int = -1) -> list[str]:
        """The clients whose uploads wait for server ``pid``, oldest first; not more than ``most`` of them."""
        query = "SELECT client FROM outbox WHERE pid = ? AND refused IS NULL ORDER BY rowid LIMIT ?"
        return [row[0] for row in self._database.rows(query, pid, most)]

    def content(self, client: str) -> bytes | None:
        """A client's whole upload; None where nobody waits for it."""
        with self._database.held():
            name = self._path(client)
            return None if name is None else read_body(self._database, name)

    def delivery_status(self, client: str) -> DeliveryStatus:
        """Where a client's upload stands."""
        with self._database.held():
            receipts = self._database.rows(
                "SELECT pid, receipt FROM receipt WHERE client = ? ORDER BY pid", client
            )
            waiting = self._database.rows(
                "SELECT pid, refused FROM outbox WHERE client = ? ORDER BY pid", client
            )
        return DeliveryStatus(
            {pid: ServerReceipt.from_dict(json.loads(text)) for pid, text in receipts},
            tuple(pid for pid, refused in waiting if refused is None),
            {pid: refused for pid, refused in waiting if refused is not None},
        )

    def waits(self, client: str, pid: int) -> bool:
        """Whether server ``pid`` is to get a part of this client's upload."""
        query = "SELECT 1 FROM outbox WHERE client = ? AND pid = ? AND refused IS NULL"
        return self._database.row(query, client, pid) is not None

    def delivered(
        self,
        client: str,
        pid: int,
        receipt: ServerReceipt,
        *,
        upload: str,
        sent: int,
        received: int,
    ) -> None:
        """Server ``pid`` has its part of ``upload``; passing it on took so many bytes.

        A power failure may take this back, and the part is passed on once more. Nothing of an upload that is not the
        client's newest any more.
        """
        row = (client, pid, json.dumps(receipt.to_dict()), sent, received)
        with self._database.held():
            path = self._path(client)
            if not self._is_newest(client, upload):
                return
            with self._database.relaxed_durability():
                self._database.enter("INSERT OR REPLACE INTO receipt VALUES (?, ?, ?, ?, ?)", [row])
                self._database.enter("DELETE FROM outbox WHERE client = ? AND pid = ?", [row[:2]])
            self._tidy(client, path)

    def refused(self, client: str, pid: int, reason: str, *, upload: str) -> None:
        """Server ``pid`` does not take its part of ``upload``; it is not asked again. Else as ``delivered``."""
        statement = "UPDATE outbox SET refused = ? WHERE client = ? AND pid = ?"
        with self._database.held():
            path = self._path(client)
            if not self._is_newest(client, upload):
                return
            with self._database.relaxed_durability():
                self._database.enter(statement, [(reason, client, pid)])
            self._tidy(client, path)

    def passed_on(self) -> tuple[int, int]:
        """Bytes sent to other servers with the parts that they have, and bytes of their answers."""
        row = self._database.row("SELECT total(sent), total(received) FROM receipt")
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def _is_newest(self, client: str, upload: str) -> bool:
        query = "SELECT digest FROM submission WHERE client = ? ORDER BY version DESC LIMIT 1"
        row = self._database.row(query, client)
        return row is not None and row[0] == upload

    def _path(self, client: str) -> str | None:
        """The file of an upload that somebody waits for."""
        row = self._database.row(
            "SELECT path FROM outbox WHERE client = ? AND refused IS NULL", client
        )
        return None if row is None else str(row[0])

    def _tidy(self, client: str, path: str | None) -> None:
        """Delete the file when nobody waits for it any more."""
        if path is not None and self._path(client) is None:
            found = self._database.directory / path
            with disk_errors(found):
                found.unlink(missing_ok=True)
            with self._database.relaxed_durability():
                self._database.enter("DELETE FROM body WHERE path = ?", [(path,)])
