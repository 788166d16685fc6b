"""Migrations of databases: a version number and a list of steps, by one function for every database.

SQLite files (`parties.storage.sqlite`) and the service's database (`parties.service.database`, SQLite or PostgreSQL)
have the number of their version in themselves. A step leads from version n to n + 1; a version without a step becomes
the next one unchanged. All steps, and the tables that are new, are one transaction of the caller. A new database has
this program's tables and version at once. A database of a newer program is refused, since this one cannot preserve its
content. `parties.foundation.version` lists the formats with a version.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

from parties.foundation.errors import StoreIncompatible
from parties.foundation.version import version as program

Connected = TypeVar("Connected")
Step: TypeAlias = Callable[[Connected], str | None]
"""Migration of a connected database by one version; returns the reason if it is impossible, otherwise None."""


def migrate(
    db: Connected,
    where: Path,
    *,
    found: int,
    version: int,
    steps: Mapping[int, Step[Connected]],
) -> None:
    """Takes the steps from version ``found`` to ``version``, within a transaction; the caller enters the new number.

    Raises StoreIncompatible: newer, or too old.
    """
    if found > version:
        raise StoreIncompatible(
            where,
            f"was made by a newer syncret: its version is {found}; expected at most {version}, that of syncret "
            f"{program()}, or a newer syncret here",
        )
    for number in range(found, version):
        reason = steps[number](db) if number in steps else None
        if reason is not None:
            raise StoreIncompatible(
                where,
                f"was made by an older syncret (its version is {number or 'none'}) and cannot be brought to version "
                f"{version}: {reason}; expected a new folder, or the syncret that made it",
            )
