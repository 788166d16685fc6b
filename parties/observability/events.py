"""What a running command tells its user: plain lines, or JSON lines for another program (`display`: bars).

An event has a name, a sentence for people and fields for programs; all of it is public. Standard output belongs to
results (and to JSON events where asked for); sentences go to standard error. Events called ``WORKING`` pass: on a
terminal one takes the place of the other, elsewhere there is a line of them at growing intervals.

What was not let in from outside, for whoever counts and logs it: a reason out of a short list, and a sentence.

Provides ``Rejection``, ``rejection_of_status`` (of an HTTP status), ``OnRejection``, who is told, and
``ignore_rejection``. Public: all of it; what was sent is in none of it.
"""

import contextlib
import enum
import json
import shutil
import sys
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Protocol, TextIO

from mechanisms.accounting import Schedule

FieldValue = str | int | float | bool | None
WORKING = "working"
"""The event of a process that is at work and has nothing new to say (`parties.observability.heartbeat`)."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 120.0
CLEAR_LINE = "\r\x1b[2K"
"""What takes a passing line away again: on a terminal, before anything else is written there."""


@contextlib.contextmanager
def ignoring_full_disk() -> Iterator[None]:
    """What a full disk does not take of a log is not said: nothing ends for that. A reader that has gone is told."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


class Progress(Protocol):
    """Where events go."""

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Something happened: its name, a sentence, and details for programs."""


def round_text(number: int, plan: Schedule) -> str:
    """Such as "round 3 of 10", or "of at most" where it is not known how many there will be."""
    return f"round {number} of {'at most ' if plan.adaptive else ''}{plan.rounds}"


class TextLines:
    """One line an event, with the time of day and who speaks."""

    def __init__(self, prefix: str = "", stream: TextIO | None = None) -> None:
        self._prefix = f"{prefix}: " if prefix else ""
        self._stream = stream
        self._passing = False
        self._wrote = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Write the sentence as a line of its own; one that passes in the place of another, or now and then."""
        stream = self._stream or sys.stderr
        line = f"{time.strftime('%H:%M:%S')} {self._prefix}{text}"
        if name != WORKING:
            self._pause_s = _FIRST_PAUSE_S
            self._write(stream, line + "\n", passing=False)
        elif stream.isatty():
            width = shutil.get_terminal_size().columns
            self._write(stream, line[: width - 1], passing=True)
        elif time.monotonic() - self._wrote >= self._pause_s:
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._write(stream, line + "\n", passing=False)

    def _write(self, stream: TextIO, text: str, *, passing: bool) -> None:
        with ignoring_full_disk():
            stream.write((CLEAR_LINE if self._passing else "") + text)
            stream.flush()
        self._passing, self._wrote = passing, time.monotonic()


class JsonLines:
    """One JSON object an event, on standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Write the event as a JSON line."""
        stream = self._stream or sys.stdout
        stream.write(json.dumps({"event": name, "text": text, **fields}) + "\n")
        stream.flush()


class ProgressFanOut:
    """Everything in ``places``, one after the other."""

    def __init__(self, *sinks: Progress) -> None:
        self._sinks = sinks

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Pass the event on."""
        for sink in self._sinks:
            sink.event(name, text, **fields)


class NullProgress:
    """Nowhere."""

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Drop the event."""


class Rejection(enum.StrEnum):
    """Why; metrics have these words as labels."""

    TLS = "tls"
    """No TLS, no certificate, or one of another authority."""
    UNKNOWN_PEER = "stranger"
    """A certificate that has no place here."""
    MALFORMED = "malformed"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"
    """Another run, or a thing that is not here."""
    SLOW = "slow"
    CONFLICT = "conflict"
    CLOSED = "closed"
    SIZE = "size"
    MISFIT = "misfit"
    """It does not fit the run, or does not open."""
    COUNTED = "counted"
    STORAGE = "storage"
    OTHER = "other"


_OF_STATUS = {
    HTTPStatus.BAD_REQUEST: Rejection.MALFORMED,
    HTTPStatus.FORBIDDEN: Rejection.FORBIDDEN,
    HTTPStatus.NOT_FOUND: Rejection.UNKNOWN,
    HTTPStatus.METHOD_NOT_ALLOWED: Rejection.UNKNOWN,
    HTTPStatus.REQUEST_TIMEOUT: Rejection.SLOW,
    HTTPStatus.CONFLICT: Rejection.CONFLICT,
    HTTPStatus.GONE: Rejection.CLOSED,
    HTTPStatus.LENGTH_REQUIRED: Rejection.SIZE,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Rejection.SIZE,
    HTTPStatus.UNPROCESSABLE_ENTITY: Rejection.MISFIT,
    HTTPStatus.LOCKED: Rejection.COUNTED,
    HTTPStatus.INSUFFICIENT_STORAGE: Rejection.STORAGE,
}


def rejection_of_status(status: int) -> Rejection:
    """What a refusal with this HTTP status is for."""
    return _OF_STATUS.get(HTTPStatus(status), Rejection.OTHER)


class OnRejection(Protocol):
    """Who is told, in whatever thread."""

    def __call__(self, reason: str, text: str, **fields: FieldValue) -> None:
        """``fields`` are for programs: who, from where, with which status."""


def ignore_rejection(reason: str, text: str, **fields: FieldValue) -> None:
    """Nobody is told."""
