"""The source of a table: a file, or a query to a database.

The password in a database's URL is secret; ``shown`` is the location without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from mechanisms.dialect import Dialect


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table at ``location``: a file, or with ``sql`` a query to the database at that URL.

    ``sheet`` is the sheet of a workbook, or the file of an archive, that has the table.
    """

    location: str = field(repr=False)
    sql: str | None = None
    dialect: Dialect = field(default_factory=Dialect)
    sheet: str | None = None

    @property
    def shown(self) -> str:
        """The location for messages, without a password."""
        if self.sql is None:
            return self.location
        head, at, tail = self.location.rpartition("@")
        scheme, colon, login = head.partition("://")
        user, hidden, _ = login.partition(":")
        return f"{scheme}{colon}{user}{':***' if hidden else ''}{at}{tail}".partition("?")[0]

    @property
    def place(self) -> str:
        """The location without a database's user: the same for every user."""
        if self.sql is None:
            return self.location
        scheme, colon, rest = self.shown.partition("://")
        return f"{scheme}{colon}{rest.rpartition('@')[2]}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Parts of the URL that no message may contain: its password, and all of its query."""
        if self.sql is None:
            return ()
        head, _, tail = self.location.rpartition("@")
        password = head.partition("://")[2].partition(":")[2]
        found = (password, unquote(password), tail.partition("?")[2])
        return tuple(secret for secret in found if secret)

    @property
    def name(self) -> str:
        """A short name: the file's without its ending, or the database's."""
        name = self.shown.rstrip("/").replace("\\", "/").rpartition("/")[2]
        return name.split(".")[0].rpartition(":")[2] or "table"

    def beside(self, ending: str) -> Path:
        """Returns a hidden file or folder beside the table; for a database, in the current folder."""
        if self.sql is not None:
            return Path(f".{self.name}.{ending}")
        path = Path(self.location)
        return path.with_name(f".{path.name}.{ending}")
