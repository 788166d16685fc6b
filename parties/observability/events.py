"""Events of a running command: one bus, ``Progress``, and its sinks. And rejections of input from outside.

An ``Event`` is one value: a name, a sentence for people and fields for programs; all of it is public. Whoever has news
calls ``Progress.event``; every sink of that bus takes it. Sinks: ``TextLines`` (terminal) and ``JsonLines`` here,
`logs.JsonLog`, `status.RunStatus` (metrics, admin API and console show its document), `systemd.SystemdSink`,
`heartbeat.Heartbeat`, and a trial's display in `parties.cli`. Steps have a begin and an end, and go through
``Progress.step`` to a tracer (`traces`). A bus never changes: ``Progress.also`` returns another one with more sinks,
such as that of one run.

Standard output is for results (and for JSON events on request); sentences go to standard error. ``WORKING`` events are
transient: on a terminal one replaces the other, elsewhere they are written at growing intervals.

A rejection has a ``Rejection`` reason from a short list, for counting, and a sentence, for logs. Neither contains the
rejected input.
"""

import contextlib
import enum
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol, TextIO

from mechanisms.accounting import Schedule

FieldValue = str | int | float | bool | None
WORKING = "working"
"""Event of a process that is working and has no news (`parties.observability.heartbeat`)."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 120.0
CLEAR_LINE = "\r\x1b[2K"
"""Escape sequence that clears a transient line on a terminal before other output."""


@contextlib.contextmanager
def ignoring_full_disk() -> Iterator[None]:
    """Ignores errors of a full disk while a log is written. A closed pipe is still raised."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


@dataclass(frozen=True, slots=True)
class Event:
    """News of a running command."""

    name: str
    text: str
    fields: Mapping[str, FieldValue] = field(default_factory=dict)


class EventSink(Protocol):
    """Receiver of events, in any thread."""

    def take(self, event: Event) -> None:
        """Takes an event."""


class StepTracer(Protocol):
    """Tracer of steps: a context manager around each step, which reads its costs at the end."""

    def __call__(
        self, step: str, round: int | None, costs: Callable[[], Mapping[str, int]]
    ) -> AbstractContextManager[object]:
        """Opens the context of a step; ``costs`` returns sizes and numbers, at the step's end."""


def no_tracing(
    step: str, round: int | None, costs: Callable[[], Mapping[str, int]]
) -> AbstractContextManager[object]:
    """Does not trace. See ``StepTracer``."""
    return contextlib.nullcontext()


class Progress:
    """Bus of events: passes each to all ``sinks``, in order, and steps to the ``tracer``; silent without sinks."""

    def __init__(self, *sinks: EventSink, tracer: StepTracer = no_tracing) -> None:
        self._sinks = sinks
        self.step = tracer
        """Follows a step; see ``StepTracer``."""

    def also(self, *sinks: EventSink, tracer: StepTracer | None = None) -> "Progress":
        """Returns the bus of these sinks, before the present ones, and of this tracer, if one is given."""
        return Progress(*sinks, *self._sinks, tracer=tracer or self.step)

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Passes an event to the sinks: its name, a sentence, and details for programs."""
        self.take(Event(name, text, fields))

    def take(self, event: Event) -> None:
        """Passes an event to the sinks. A bus is a sink itself, of another bus or of a run status."""
        for sink in self._sinks:
            sink.take(event)


def round_text(number: int, plan: Schedule) -> str:
    """Returns a round's number in words, such as "round 3 of 10"; "of at most" for an adaptive schedule."""
    return f"round {number} of {'at most ' if plan.adaptive else ''}{plan.rounds}"


class TextLines:
    """Writer of one line for each event, with the time of day and a prefix."""

    def __init__(self, prefix: str = "", stream: TextIO | None = None) -> None:
        self._prefix = f"{prefix}: " if prefix else ""
        self._stream = stream
        self._passing = False
        self._wrote = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    def take(self, event: Event) -> None:
        """Writes the sentence as a line; a transient one replaces the last one, or appears at growing intervals."""
        stream = self._stream or sys.stderr
        line = f"{time.strftime('%H:%M:%S')} {self._prefix}{event.text}"
        if event.name != WORKING:
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
    """Writer of one JSON object for each event, on standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def take(self, event: Event) -> None:
        """Writes the event as a JSON line."""
        stream = self._stream or sys.stdout
        line = json.dumps({"event": event.name, "text": event.text, **event.fields}) + "\n"
        with self._lock:
            stream.write(line)
            stream.flush()


class Rejection(enum.StrEnum):
    """Reasons for rejections; the values are labels of metrics."""

    TLS = "tls"
    """No TLS, no certificate, or a certificate of another authority."""
    UNKNOWN_PEER = "stranger"
    """A valid certificate of an unknown peer."""
    MALFORMED = "malformed"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"
    """Another run, or an unknown resource."""
    SLOW = "slow"
    CONFLICT = "conflict"
    CLOSED = "closed"
    SIZE = "size"
    MISMATCH = "misfit"
    """Input that does not fit the run, or does not decrypt."""
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
    HTTPStatus.UNPROCESSABLE_ENTITY: Rejection.MISMATCH,
    HTTPStatus.LOCKED: Rejection.COUNTED,
    HTTPStatus.INSUFFICIENT_STORAGE: Rejection.STORAGE,
}


def rejection_of_status(status: int) -> Rejection:
    """Returns the reason for a refusal with this HTTP status."""
    return _OF_STATUS.get(HTTPStatus(status), Rejection.OTHER)


class OnRejection(Protocol):
    """Callback for rejections, called in any thread."""

    def __call__(self, reason: str, text: str, **fields: FieldValue) -> None:
        """Takes a rejection; ``fields`` are for programs, such as the remote address and the HTTP status."""


def ignore_rejection(reason: str, text: str, **fields: FieldValue) -> None:
    """Ignores the rejection."""
