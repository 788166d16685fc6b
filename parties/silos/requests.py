"""Requests of `mechanisms.silos` as bytes: what a REQUEST says after the client's place.

Provides ``Task`` (a request, the run's number of the sum, over how many silos) with ``pack`` and ``unpack``, and
``head_of``, a request without its payload. Public: all of it. A task is

    number 4 | silos 4 | size of head 4 | head (JSON) | payload

where the head has the request's step, length, bounds, noise and event; there is one way to write each.
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from mechanisms.events import event_from_dict, event_to_dict
from mechanisms.silos import MAX_PAYLOAD_BYTES, Noise, Request
from parties.errors import FlaimProtocolError

MAX_HEAD_BYTES = 4096
MAX_TASK_BYTES = 12 + MAX_HEAD_BYTES + MAX_PAYLOAD_BYTES
_SIZE_BYTES = 4


def head_of(request: Request) -> bytes:
    """A request without its payload."""
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


def request_of(head: bytes, payload: bytes) -> Request:
    """The inverse of ``head_of``. Raises ValueError for anything that it does not write."""
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
        same = head_of(request) == head
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
class Task:
    """Sum ``number`` of a run, over ``silos`` of them, asks for ``request``."""

    number: int
    silos: int
    request: Request

    def pack(self) -> bytes:
        """See the module."""
        head = head_of(self.request)
        sizes = (self.number, self.silos, len(head))
        return b"".join(
            [*(size.to_bytes(_SIZE_BYTES, "big") for size in sizes), head, self.request.payload]
        )

    @classmethod
    def unpack(cls, body: bytes, peer: str) -> Self:
        """The inverse of ``pack``. Raises FlaimProtocolError, naming ``peer``."""
        ends = range(_SIZE_BYTES, 4 * _SIZE_BYTES, _SIZE_BYTES)
        number, silos, size = (int.from_bytes(body[e - _SIZE_BYTES : e], "big") for e in ends)
        start = 3 * _SIZE_BYTES
        if len(body) < start + size or not 0 < size <= MAX_HEAD_BYTES:
            raise FlaimProtocolError(peer, f"a request of {len(body)} bytes that breaks off")
        try:
            request = request_of(body[start : start + size], body[start + size :])
        except ValueError as error:
            raise FlaimProtocolError(peer, f"a request that is none: {error}") from error
        return cls(number, silos, request)
