"""Where a table is: a file, or a query to a database.

Provides ``TableSource``. Secret: the password that a database's URL may hold; ``shown`` is the location without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from mechanisms.dialect import Dialect


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table at ``location``: a file, or with ``sql`` a database whose URL it is and a query to it.

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
        """Where the table is, whoever asks: of a database without its user."""
        if self.sql is None:
            return self.location
        scheme, colon, rest = self.shown.partition("://")
        return f"{scheme}{colon}{rest.rpartition('@')[2]}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What of the URL no message may have: its password, and all of its query."""
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
        """A hidden file or folder beside the table; of a database, in the current folder."""
        if self.sql is not None:
            return Path(f".{self.name}.{ending}")
        path = Path(self.location)
        return path.with_name(f".{path.name}.{ending}")
