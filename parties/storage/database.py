"""SQLite database in a folder, which one process at a time may open.

Users of ``Database`` (`parties.storage.privacy_ledger`, `parties.mpc.storage.store`) define its tables, and the
migrations of older ones (`parties.storage.migrations`). A transaction is durable at its end, all or nothing (WAL,
synchronous=FULL). The folder has mode 0700; the database, and all files that SQLite makes beside it, have 0600. Source:
https://www.sqlite.org/atomiccommit.html. Known limit: a folder belongs to one configuration, and refuses another run by
it alone.
"""

import contextlib
import fcntl
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from parties.foundation.errors import StoreError, StoreIncompatible
from parties.storage.files import database_errors, disk_errors, open_private
from parties.storage.migrations import Step
from parties.storage.sqlite import bring_forward, immediate_transaction
from protocols.durable import sync_content

FILE = "store.sqlite"
_WAL_FILE = f"{FILE}-wal"
Row: TypeAlias = tuple[Any, ...]
"""Row of a STRICT table: its schema defines the type of each column."""
_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT"
_DIGEST, _IDENTITY = "config_digest", "identity"


class Database:
    """Database of one folder. All methods may be called from any thread; all may raise StoreError."""

    def __init__(
        self,
        directory: Path,
        config_digest: str,
        schema: Sequence[str],
        *,
        version: int = 1,
        steps: Mapping[int, Step[sqlite3.Connection]] = {},
    ) -> None:
        """Opens or makes ``directory`` with the tables of ``schema`` (idempotent statements).

        ``steps`` migrate an older ``version``. Raises StoreError: unwritable, in use, of another run or configuration,
        newer, or too old.
        """
        self.directory = directory
        self._path = directory / FILE
        self._lock = threading.RLock()
        self._flushing = threading.Lock()
        self._entered = self._flushed = 0
        """Numbers of relaxed transactions that have ended, and of those that are on the disk."""
        with disk_errors(directory, "opened"):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._held = open_private(directory / "lock")
        try:
            self._take_lock()
            with database_errors(self._path, "opened"):
                self._db = self._connect()
            try:
                self._prepare(config_digest, schema, version, steps)
            except BaseException:
                self._db.close()
                raise
        except BaseException:
            self._held.close()
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                self.directory, "is in use by another process; expected a folder of its own"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        # SQLite gives the files beside a database the mode of the database.
        open_private(self._path).close()
        return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)

    def _prepare(
        self,
        config_digest: str,
        schema: Sequence[str],
        version: int,
        steps: Mapping[int, Step[sqlite3.Connection]],
    ) -> None:
        with database_errors(self._path, "opened"):
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            # Deleted values leave no trace in free pages.
            self._db.execute("PRAGMA secure_delete=ON")
            with self.transaction():
                new = self.row("SELECT name FROM sqlite_schema WHERE name = 'meta'") is None
                bring_forward(
                    self._db,
                    self.directory,
                    (_META, *schema),
                    version=version,
                    steps=steps,
                    new=new,
                )
                known = self.meta(_DIGEST)
                if known is None:
                    self.set_meta(_DIGEST, config_digest)
                if self.meta(_IDENTITY) is None:
                    self.set_meta(_IDENTITY, secrets.token_hex(16))
        if known not in (None, config_digest):
            raise StoreIncompatible(
                self.directory,
                "belongs to another run or configuration; expected an empty folder or the config it was made with",
            )

    def close(self) -> None:
        """Closes the database and releases the folder."""
        with self._lock:
            self._db.close()
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def identity(self) -> str:
        """Random identity of the folder, 32 hex digits, drawn at its creation; kept when the folder is moved."""
        return str(self.meta(_IDENTITY))

    def meta(self, key: str) -> str | None:
        """Returns the value stored under ``key``, or None."""
        row = self.row("SELECT value FROM meta WHERE key = ?", key)
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        """Stores ``value`` under ``key``; durable on return."""
        self.enter("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, value)])

    def drop_meta(self, key: str) -> None:
        """Deletes the value under ``key``; durable on return."""
        self.enter("DELETE FROM meta WHERE key = ?", [(key,)])

    def scrub(self) -> None:
        """Rewrites the database without deleted values, and empties its log."""
        with self._lock, database_errors(self._path):
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Excludes reads and writes by other threads while the block runs."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes the entries of the block one transaction, durable at the end. Nests: the outermost one commits."""
        with self._lock, database_errors(self._path):
            if self._db.in_transaction:
                yield
                return
            with immediate_transaction(self._db):
                yield

    @contextlib.contextmanager
    def relaxed_durability(self) -> Iterator[None]:
        """As ``transaction``; it survives a kill at once, a power failure only after the next durable entry."""
        with self._lock, database_errors(self._path):
            self._db.execute("PRAGMA synchronous=NORMAL")
            try:
                with self.transaction():
                    yield
                self._entered += 1
            finally:
                self._db.execute("PRAGMA synchronous=FULL")

    def flush(self) -> None:
        """Makes all earlier entries durable, relaxed ones included; concurrent callers share a disk write.

        SQLite's log is sequential, so that its last transaction on the disk implies those before; transactions that
        have moved from the log to the database are durable there. Reads and writes by other threads are not delayed.
        """
        with self._lock:
            wanted = self._entered
        with self._flushing:
            if self._flushed >= wanted:
                return
            with self._lock:
                reached = self._entered
            with disk_errors(self._path), contextlib.suppress(FileNotFoundError):
                # Without a log all transactions are in the database.
                sync_content(self.directory / _WAL_FILE)
            self._flushed = reached

    @property
    def in_transaction(self) -> bool:
        """True while this thread has a transaction that can be rolled back."""
        with self._lock:
            return self._db.in_transaction

    def enter(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Executes ``statement`` for each of ``rows``; durable on return unless a transaction is under way."""
        with self.transaction():
            self._db.executemany(statement, rows)

    def rows(self, query: str, *values: object) -> list[Row]:
        """Returns all rows of a query."""
        with self._lock, database_errors(self._path, "read"):
            return self._db.execute(query, values).fetchall()

    def row(self, query: str, *values: object) -> Row | None:
        """Returns the first row of a query, or None."""
        rows = self.rows(query, *values)
        return rows[0] if rows else None
