"""Journal of a run's sums on the server's disk: a restarted server continues after the last recorded sum.

The server's algorithm runs again from its beginning and receives the recorded sums for its requests, which have to be
the same ones. A sum in progress when the server ended is lost, like a sum whose participants are lost: it was charged
and may have been seen. Public: sums with their noise; sums without noise are as public as the run makes them. The
journal is trusted as the ledger beside it is.

``SumTask`` is the body of a REQUEST after the participant's position, a request of `mechanisms.silos` as bytes:

    number 4 | silos 4 | size of head 4 | head (JSON) | payload

The head has the request's step, length, bounds, noise and event, each in one canonical form. All values of a task are
public.
"""

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from mechanisms.events import event_from_dict, event_to_dict
from mechanisms.silos import MAX_PAYLOAD_BYTES, Noise, Request, Sum
from parties.foundation.errors import FederationProtocolError, StoreError
from parties.storage.database import Database

MAX_HEAD_BYTES = 4096
MAX_TASK_BYTES = 12 + MAX_HEAD_BYTES + MAX_PAYLOAD_BYTES
_SIZE_BYTES = 4


def request_head(request: Request) -> bytes:
    """Returns a request without its payload, as canonical JSON."""
    noise, event = request.noise, request.event
    document = {
        "step": request.step,
        "length": request.length,
        "low": request.low,
        "high": request.high,
        "noise": None if noise is None else [noise.maker, *noise.variance.as_integer_ratio()],
        "event": None if event is None else event_to_dict(event),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def request_from_head(head: bytes, payload: bytes) -> Request:
    """Inverse of ``request_head``. Raises ValueError for any other input."""
    try:
        document: dict[str, Any] = json.loads(head)
        noise, event = document["noise"], document["event"]
        numbers = [document[name] for name in ("length", "low", "high")]
        numbers += [] if noise is None else noise[1:]
        if not all(type(number) is int for number in numbers):
            raise ValueError("a request's head has other numbers than whole ones")
        request = Request(
            document["step"],
            payload,
            document["length"],
            document["low"],
            document["high"],
            None if noise is None else Noise(noise[0], Fraction(noise[1], noise[2])),
            None if event is None else event_from_dict(event),
        )
        same = request_head(request) == head
    except (
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise ValueError("a request's head lacks something") from error
    if not same:
        raise ValueError("a request's head is not written as it should be")
    return request


@dataclass(frozen=True, slots=True)
class SumTask:
    """Sum ``number`` of a run over ``silos`` participants, for ``request``."""

    number: int
    silos: int
    request: Request

    def pack(self) -> bytes:
        """Returns the bytes; the module's docstring has the format."""
        head = request_head(self.request)
        sizes = (self.number, self.silos, len(head))
        return b"".join(
            [*(size.to_bytes(_SIZE_BYTES, "big") for size in sizes), head, self.request.payload]
        )

    @classmethod
    def unpack(cls, body: bytes, peer: str) -> Self:
        """Inverse of ``pack``. Raises FederationProtocolError, naming ``peer``."""
        ends = range(_SIZE_BYTES, 4 * _SIZE_BYTES, _SIZE_BYTES)
        number, silos, size = (int.from_bytes(body[e - _SIZE_BYTES : e], "big") for e in ends)
        start = 3 * _SIZE_BYTES
        if len(body) < start + size or not 0 < size <= MAX_HEAD_BYTES:
            raise FederationProtocolError(peer, f"a request of {len(body)} bytes that breaks off")
        try:
            request = request_from_head(body[start : start + size], body[start + size :])
        except ValueError as error:
            raise FederationProtocolError(peer, f"a request that is none: {error}") from error
        return cls(number, silos, request)


SUM_TABLE_SQL = """
CREATE TABLE IF NOT EXISTS sum (
    number INTEGER PRIMARY KEY, request TEXT NOT NULL, total BLOB, survivors TEXT) STRICT
"""


def request_digest(request: Request) -> str:
    """Hex SHA-256 of a request with its payload."""
    return hashlib.sha256(request_head(request) + b"\n" + request.payload).hexdigest()


class SumJournal:
    """The sums in ``database``, numbered from 1; ``total`` is NULL for a lost sum or a sum in progress.

    All methods may raise StoreError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def asked(self) -> int:
        """Number of the last sum that was begun, 0 before the first."""
        row = self._database.row("SELECT max(number) FROM sum")
        return 0 if row is None or row[0] is None else int(row[0])

    @property
    def survivors(self) -> int:
        """Number of participants in the last completed sum, 0 before the first."""
        row = self._database.row(
            "SELECT survivors FROM sum WHERE total IS NOT NULL ORDER BY number DESC LIMIT 1"
        )
        return 0 if row is None else len(json.loads(row[0]))

    def begin(self, number: int, request: Request) -> None:
        """Records that sum ``number`` is about to start. The sum counts as lost until ``keep``."""
        self._database.enter(
            "INSERT INTO sum (number, request) VALUES (?, ?)", [(number, request_digest(request))]
        )

    def keep(self, number: int, sum: Sum) -> None:
        """Stores the result of sum ``number``; the result is on disk when this returns."""
        values = sum.values.astype("<i8").tobytes()
        survivors = json.dumps(list(sum.survivors))
        self._database.enter(
            "UPDATE sum SET total = ?, survivors = ? WHERE number = ?",
            [(values, survivors, number)],
        )

    def taken(self, number: int, request: Request) -> Sum | None:
        """Returns sum ``number`` of an earlier attempt, or None if that sum was lost.

        Raises StoreError if ``request`` differs from the recorded request.
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
