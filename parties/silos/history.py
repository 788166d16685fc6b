"""The sums that a run has taken, on its server's disk: one that is started again goes on after the last of them.

Provides ``History`` and ``SUMS``, the table that its database needs. The server's algorithm runs from its beginning
again and is given the sums that are here for the requests that it makes, which have to be the same ones. A sum that was
being taken when the server ended is lost, as one is that loses its silos: it was charged and may have been seen.
Public: sums with their noise; without any, as public as the run makes them. Trusted as the ledger beside it is.
"""

import hashlib
import json

import numpy as np

from mechanisms.silos import Request, Sum
from parties.database import Database
from parties.errors import StoreError
from parties.silos.requests import head_of

SUMS = """
CREATE TABLE IF NOT EXISTS sum (
    number INTEGER PRIMARY KEY, request TEXT NOT NULL, total BLOB, survivors TEXT) STRICT
"""


def request_digest(request: Request) -> str:
    """Hex SHA-256 of all of a request."""
    return hashlib.sha256(head_of(request) + b"\n" + request.payload).hexdigest()


class History:
    """The sums in ``database``, numbered from 1; ``total`` NULL is one that was lost, or is under way.

    All methods may raise StoreError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def asked(self) -> int:
        """The number of the last sum that was asked for, 0 before the first."""
        row = self._database.row("SELECT max(number) FROM sum")
        return 0 if row is None or row[0] is None else int(row[0])

    @property
    def survivors(self) -> int:
        """How many silos were in the last sum that was taken; 0 before."""
        row = self._database.row(
            "SELECT survivors FROM sum WHERE total IS NOT NULL ORDER BY number DESC LIMIT 1"
        )
        return 0 if row is None else len(json.loads(row[0]))

    def begin(self, number: int, request: Request) -> None:
        """Sum ``number`` is about to be asked for; lost until it is kept."""
        self._database.enter(
            "INSERT INTO sum (number, request) VALUES (?, ?)", [(number, request_digest(request))]
        )

    def keep(self, number: int, sum: Sum) -> None:
        """What came of sum ``number``; on the disk when this returns."""
        values = sum.values.astype("<i8").tobytes()
        survivors = json.dumps(list(sum.survivors))
        self._database.enter(
            "UPDATE sum SET total = ?, survivors = ? WHERE number = ?",
            [(values, survivors, number)],
        )

    def taken(self, number: int, request: Request) -> Sum | None:
        """Sum ``number`` of an attempt before this one, None where it was lost.

        Raises StoreError where ``request`` is not what it was asked for with.
        """
        row = self._database.row(
            "SELECT request, total, survivors FROM sum WHERE number = ?", number
        )
        if row is None or row[0] != request_digest(request):
            raise StoreError(
                self._database.directory,
                f"holds a run whose sum {number} was another one; expected the same program and configuration",
            )
        if row[1] is None:
            return None
        values = np.frombuffer(bytes(row[1]), "<i8").astype(np.int64)
        return Sum(values, tuple(json.loads(row[2])))
