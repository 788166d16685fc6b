"""Outbox of a server: whole uploads that wait for other servers, and receipts of delivered parts.

Uploads are kept as their participants sent them, each with the servers that it waits for. An upload comes in with the
server's own part, in one transaction (`parties.mpc.storage.submissions`); it goes when no server waits for it any more.
Secret: nothing, everything is sealed. Public: the servers that have a part.
"""

import json
from collections.abc import Mapping, Sequence
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
"""Tables of the outbox.

``refused`` is the reason why server ``pid`` does not take the part; ``sent`` and ``received`` are the bytes of its
forwarding.
"""


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """Delivery of one upload: other servers' ``receipts``, servers ``kept_for``, and ``refused`` with their reasons."""

    receipts: Mapping[int, ServerReceipt] = field(default_factory=dict)
    kept_for: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)

    @property
    def n_secured(self) -> int:
        """Number of other servers that have their part, or will get it from here."""
        return len({*self.receipts, *self.kept_for})


class Outbox:
    """The outbox of a store. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, client: str, pids: Sequence[int], name: str) -> None:
        """Enters that the upload in the body ``name`` waits for servers ``pids``."""
        rows = [(client, pid, name, None) for pid in pids]
        self._database.enter("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?)", rows)

    def drop(self, client: str) -> None:
        """Drops a client's entries, whose upload is not the newest any more, or was withdrawn."""
        for table in ("outbox", "receipt"):
            self._database.enter(f"DELETE FROM {table} WHERE client = ?", [(client,)])  # noqa: S608

    def drop_delivered(self) -> None:
        """Drops entries without a file: each was delivered, and the power failed before its row was deleted."""
        waiting = self._database.rows(
            "SELECT path FROM outbox WHERE refused IS NULL AND path NOT IN (SELECT path FROM body)"
        )
        gone = [row for row in waiting if not (self._database.directory / row[0]).exists()]
        self._database.enter("DELETE FROM outbox WHERE path = ? AND refused IS NULL", gone)

    def waiting(self, pid: int, most: int = -1) -> list[str]:
        """Clients whose uploads wait for server ``pid``, oldest first; at most ``most`` of them."""
        query = "SELECT client FROM outbox WHERE pid = ? AND refused IS NULL ORDER BY rowid LIMIT ?"
        return [row[0] for row in self._database.rows(query, pid, most)]

    def content(self, client: str) -> bytes | None:
        """A client's whole upload; None if no server waits for it."""
        with self._database.held():
            name = self._path(client)
            return None if name is None else read_body(self._database, name)

    def delivery_status(self, client: str) -> DeliveryStatus:
        """Delivery status of a client's upload."""
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
        """True if server ``pid`` is to get a part of this client's upload."""
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
        """Records that server ``pid`` has its part of ``upload``, and the bytes ``sent`` and ``received``.

        A power failure may undo this, and the part is forwarded once more. An upload that is no longer the client's
        newest is ignored.
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
        """Records that server ``pid`` refuses its part of ``upload`` for good. Otherwise as ``delivered``."""
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
        """File of an upload that a server waits for."""
        row = self._database.row(
            "SELECT path FROM outbox WHERE client = ? AND refused IS NULL", client
        )
        return None if row is None else str(row[0])

    def _tidy(self, client: str, path: str | None) -> None:
        """Deletes the file when no server waits for it any more."""
        if path is not None and self._path(client) is None:
            found = self._database.directory / path
            with disk_errors(found):
                found.unlink(missing_ok=True)
            with self._database.relaxed_durability():
                self._database.enter("DELETE FROM body WHERE path = ?", [(path,)])
