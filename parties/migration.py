"""Databases that an older version of this program made: brought forward step by step, or refused with words.

Provides ``migrate`` for `parties.database` and `parties.shared`. A database has its version in SQLite's
``user_version``; what was made before versions were kept has 0. A step makes version n into n + 1, all or nothing: the
caller's transaction is around all of them. What a newer program made is refused: this one does not know what to keep.
`parties.version` lists what has a version. Public: all of it.
"""

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from parties.errors import StoreUnfit
from parties.version import version as program

Step: TypeAlias = Callable[[sqlite3.Connection], str | None]
"""Brings a database forward by one version; where that cannot be, the reason."""


def migrate(
    db: sqlite3.Connection, path: Path, *, version: int, steps: Mapping[int, Step], new: bool
) -> None:
    """Bring the database at ``path`` to ``version``; a ``new`` one has it from the start. Within a transaction.

    A version without a step becomes the next one as it is. Raises StoreUnfit: newer, or too old.
    """
    found = version if new else version_of(db)
    if found > version:
        raise StoreUnfit(
            path,
            f"was made by a newer syncret: its version is {found}; expected at most {version}, that of syncret "
            f"{program()}, or a newer syncret here",
        )
    for number in range(found, version):
        reason = steps[number](db) if number in steps else None
        if reason is not None:
            raise StoreUnfit(
                path,
                f"was made by an older syncret (its version is {number or 'none'}) and cannot be brought to version "
                f"{version}: {reason}; expected a new folder, or the syncret that made it",
            )
    # A pragma takes no parameters.
    db.execute(f"PRAGMA user_version={int(version)}")


def version_of(db: sqlite3.Connection) -> int:
    """The version that a database has, 0 from before there were any."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def lacks(db: sqlite3.Connection, table: str, *columns: str) -> bool:
    """Whether ``table`` is there and has not all of these columns."""
    there = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    return bool(there) and not there.issuperset(columns)
