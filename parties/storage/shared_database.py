"""SQLite database in one file, which any number of this user's processes may use at once.

``SharedDatabase`` is for state that outlives every run (`parties.storage.owner_budget`,
`parties.storage.release_registry`). A transaction is durable at its end, all or nothing; transactions of all processes
are serialized. The file has mode 0600. It is created atomically, so that a file that is empty, cut off or another
program's is damaged, and is refused: it is never silently replaced. Source: https://www.sqlite.org/lockingv3.html.
Known limits: a deleted file is not noticed; file systems with ineffective locks.
"""

import contextlib
import fcntl
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from parties.foundation.errors import StoreError
from parties.storage.files import create, disk_errors
from parties.storage.migrations import Step
from parties.storage.sqlite import (
    bring_forward,
    connect_existing,
    immediate_transaction,
    is_current,
)
from protocols.durable import sync


class SharedDatabase:
    """Database at ``path``. All methods may be called from any thread and process; all may raise StoreError."""

    def __init__(
        self,
        path: Path,
        kind: bytes,
        schema: Sequence[str],
        *,
        version: int = 1,
        steps: Mapping[int, Step[sqlite3.Connection]] = {},
    ) -> None:
        """Opens or makes the database with the tables of ``schema``; ``kind`` (4 bytes) identifies its purpose.

        A statement with IF NOT EXISTS is of a table that older files lack, and get now; any other table that is missing
        stays so, since an empty one would hide the damage. ``steps`` migrate an older ``version``
        (`parties.storage.migrations`). Raises StoreError: unwritable, damaged, of another kind, newer, or too old.
        """
        self.path = path
        # Threads of one process wait for this lock, instead of polling SQLite's.
        self._turn = threading.Lock()
        self._kind = int.from_bytes(kind, "big")
        if not path.exists():
            self._make(schema, version)
        self._check()
        later = [statement for statement in schema if "IF NOT EXISTS" in statement]
        with self._connected() as db:
            current = is_current(db, later, version)
        if not current:
            with self.transaction() as db:
                bring_forward(db, path, later, version=version, steps=steps, new=False)

    def _make(self, schema: Sequence[str], version: int) -> None:
        """Makes the file beside its path, and renames it unless another process was faster."""
        folder = self.path.parent
        with disk_errors(self.path, "made"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
            try:
                os.close(create(beside, secret=True))
                with contextlib.closing(sqlite3.connect(beside, isolation_level=None)) as made:
                    made.execute(f"PRAGMA application_id={self._kind}")
                    bring_forward(made, self.path, schema, version=version, steps={}, new=True)
                sync(beside)
                with _exclusive(folder):
                    if not self.path.exists():
                        beside.rename(self.path)
                        sync(folder)
            finally:
                beside.unlink(missing_ok=True)

    def _check(self) -> None:
        """Raises StoreError for a file that is damaged, or of another kind."""
        with self._connected() as db:
            kind = db.execute("PRAGMA application_id").fetchone()[0]
            damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if kind != self._kind or damage != "ok":
            why = "it is none of this program's" if damage == "ok" else str(damage).splitlines()[-1]
            raise self._damaged(why)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection for a single query."""
        with self._connected() as db:
            yield db

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection within a transaction, which excludes all others; durable at the end, or rolled back."""
        with self._turn, self._connected() as db, immediate_transaction(db):
            yield db

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with disk_errors(self.path):
            try:
                # A file deleted meanwhile is not created anew.
                with contextlib.closing(connect_existing(self.path)) as db:
                    # The end of the journal commits a transaction: EXTRA makes that durable as well.
                    db.execute("PRAGMA synchronous=EXTRA")
                    yield db
            except sqlite3.OperationalError:
                raise
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                # SQLite may quote bytes of damaged content, which are no text.
                why = "it cannot be read" if isinstance(error, UnicodeDecodeError) else str(error)
                raise self._damaged(why) from error

    def _damaged(self, why: str) -> StoreError:
        return StoreError(
            self.path,
            f"is damaged: {why}; expected the file that syncret keeps there. Put back a copy of it: what was released "
            "before is known to nothing else",
        )


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Excludes other processes for the same folder while the block runs."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
