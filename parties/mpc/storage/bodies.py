"""Bodies of a store: small ones in its database, others in files beside it, all named like files.

``stored_bytes`` and ``holds_shares`` also inspect the folder of a store in use. Secret: the bodies.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from parties.storage.database import FILE, Database
from parties.storage.files import disk_errors
from parties.storage.sqlite import connect_existing

SUBMISSIONS, OUTBOX = "submissions", "outbox"
"""Names of folders: opened bodies of this server, and whole uploads that wait for others."""
TABLE = "CREATE TABLE IF NOT EXISTS body (path TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT"


def read_body(database: Database, name: str) -> bytes:
    """Body that a row of a store's ``database`` names. Raises StoreError."""
    row = database.row("SELECT content FROM body WHERE path = ?", name)
    if row is not None:
        return bytes(row[0])
    path = database.directory / name
    with disk_errors(path, "read"):
        return path.read_bytes()


def stored_bytes(directory: Path) -> Mapping[str, int]:
    """Bytes of all bodies of the store in ``directory``, by ``SUBMISSIONS`` and ``OUTBOX``. Raises StoreError."""
    found: dict[str, int] = {}
    with (
        disk_errors(directory, "read"),
        contextlib.closing(connect_existing(directory / FILE)) as db,
    ):
        for folder in (SUBMISSIONS, OUTBOX):
            query = "SELECT total(length(content)) FROM body WHERE path LIKE ?"
            (small,) = db.execute(query, (f"{folder}/%",)).fetchone()
            files = sum(path.stat().st_size for path in (directory / folder).glob("*"))
            found[folder] = int(small) + files
    return found


def holds_shares(directory: Path) -> bool:
    """True if ``directory`` is the folder of a store, and not of another database. Raises StoreError."""
    if not (directory / FILE).exists():
        return False
    with (
        disk_errors(directory, "read"),
        contextlib.closing(connect_existing(directory / FILE)) as db,
    ):
        query = "SELECT 1 FROM sqlite_schema WHERE name = 'submission'"
        return db.execute(query).fetchone() is not None
