"""SQLite files: opening, transactions, and tables of this program's version.

`parties.storage.database` and `parties.storage.shared_database` are the two kinds of file: one that a process holds
open, and one that any number of processes use at once. Transactions are begun and ended here alone; how durable they
are is set by the pragmas of each kind. A file's version is in SQLite's ``user_version``; databases from before there
were versions have 0. Source: https://www.sqlite.org/lang_transaction.html.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from parties.storage.migrations import Step, migrate

_BUSY_TIMEOUT_S = 30.0


def connect_existing(path: Path, *, writable: bool = True) -> sqlite3.Connection:
    """Opens an existing file, and never makes one; waits for the locks of other processes."""
    uri = f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)


@contextlib.contextmanager
def immediate_transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Makes the block one transaction, which excludes those of other connections; a failure rolls it back."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def is_current(db: sqlite3.Connection, schema: Sequence[str], version: int) -> bool:
    """Returns true if the database has this ``version`` and all tables and indices of ``schema``."""
    there = {row[0] for row in db.execute("SELECT name FROM sqlite_schema")}
    heads = (statement.partition("(")[0].partition(" ON ")[0].split() for statement in schema)
    made = {words[-1] for words in heads if words[0] == "CREATE"}
    return schema_version(db) == version and made <= there


def bring_forward(
    db: sqlite3.Connection,
    path: Path,
    schema: Sequence[str],
    *,
    version: int,
    steps: Mapping[int, Step[sqlite3.Connection]],
    new: bool,
) -> None:
    """Brings the database to ``version`` and makes its missing tables, within a transaction.

    The statements of ``schema`` are idempotent unless the database is new. Raises as ``migrate`` does.
    """
    found = version if new else schema_version(db)
    migrate(db, path, found=found, version=version, steps=steps)
    for statement in schema:
        db.execute(statement)
    # A pragma takes no parameters.
    db.execute(f"PRAGMA user_version={int(version)}")


def schema_version(db: sqlite3.Connection) -> int:
    """Returns the version of a database, 0 for one without a version."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def lacks_columns(db: sqlite3.Connection, table: str, *columns: str) -> bool:
    """Returns true if ``table`` exists and lacks one of these columns."""
    there = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    return bool(there) and not there.issuperset(columns)
