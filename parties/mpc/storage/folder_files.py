"""Files of a store's folder, each named by a row of the database.

A file is written under another name, synced and renamed before the row that names it is committed: after a kill at any
moment every row is whole and its file complete, and leftovers are deleted when the store is opened. Small bodies are in
the database, named like files (`parties.mpc.storage.bodies`).

Secret: the content of most files; they have mode 0600, in folders of mode 0700.
"""

import hashlib
import io
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.foundation.errors import StoreIncompatible
from parties.mpc.storage.bodies import OUTBOX, SUBMISSIONS, read_body
from parties.mpc.storage.incoming import IncomingBody
from parties.storage.database import Database
from parties.storage.files import disk_errors, write_atomic
from protocols.durable import sync

BODY_FOLDERS = {
    "submission": SUBMISSIONS,
    "outbox": OUTBOX,
    "total": "totals",
    "checkpoint": "checkpoints",
    "estimate": "estimates",
}
"""Folder of the files that a table's rows name, by table."""
_INCOMING = "incoming"


class FolderFiles:
    """Files beside a store's database. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def make_folders(self) -> None:
        """Makes the folders that are missing."""
        with disk_errors(self._database.directory, "opened"):
            for name in (_INCOMING, *BODY_FOLDERS.values()):
                (self._database.directory / name).mkdir(exist_ok=True, mode=0o700)

    def incoming(self) -> IncomingBody:
        """New body to write to; leaving its ``with`` block drops it."""
        return IncomingBody(self._database.directory / _INCOMING / secrets.token_hex(16))

    def take(self, body: IncomingBody, name: str) -> None:
        """Renames the synced file of ``body`` to ``name``, durably."""
        target = self._database.directory / name
        with disk_errors(target):
            body.path.replace(target)
            sync(target.parent)

    def write(self, name: str, data: bytes) -> None:
        """Writes a file; durable on return."""
        write_atomic(self._database.directory / name, data, durable=True, secret=True)

    def read(self, name: str, digest: str) -> bytes:
        """Content of a file or small body. Raises StoreIncompatible if its SHA-256 is not ``digest`` (hex)."""
        data = read_body(self._database, name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreIncompatible(
                self._database.directory / name,
                "is damaged: its SHA-256 is not the one in the database",
            )
        return data

    def sweep(self) -> None:
        """Deletes all files that no row names."""
        for table in BODY_FOLDERS:
            self.drop_unnamed(table)
        self.discard_incoming()

    def drop_unnamed(self, table: str) -> None:
        """Deletes the files and small bodies of ``table`` that no row names."""
        self.unlink_unnamed(table)
        self._database.enter(
            f"DELETE FROM body WHERE path LIKE ? AND path NOT IN (SELECT path FROM {table})",  # noqa: S608
            [(f"{BODY_FOLDERS[table]}/%",)],
        )

    def unlink_unnamed(self, table: str) -> None:
        """Deletes the files of ``table`` that no row names."""
        directory = self._database.directory
        with disk_errors(directory, "cleaned"):
            if not (there := list((directory / BODY_FOLDERS[table]).iterdir())):
                return
            named = {row[0] for row in self._database.rows(f"SELECT path FROM {table}")}  # noqa: S608
            for path in there:
                if f"{BODY_FOLDERS[table]}/{path.name}" not in named:
                    path.unlink()

    def discard(self, table: str) -> None:
        """Deletes the files that the rows of ``table`` name; small bodies stay."""
        self._empty(BODY_FOLDERS[table])

    def discard_incoming(self) -> None:
        """Deletes bodies that are still coming in."""
        self._empty(_INCOMING)

    def _empty(self, name: str) -> None:
        folder = self._database.directory / name
        with disk_errors(folder, "deleted"):
            for path in folder.iterdir():
                path.unlink(missing_ok=True)
            sync(folder)


def array_bytes(array: NDArray[Any]) -> bytes:
    """Content of an array's file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def array_from(data: bytes) -> NDArray[Any]:
    """Inverse of ``array_bytes``. Raises ValueError."""
    array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return array
