"""Logs as JSON lines on standard error, one object a line, from events and from `logging`.

``JsonLog`` is a sink of events (`parties.observability.events`) that also takes the process's log records while it is
``installed``; no other handler writes beside it. ``LoggedEvents`` is a sink that makes log records of events, for a
process with other handlers; its records are lines of those events again. Every line has ``time`` (ISO 8601, UTC,
milliseconds), ``level``, ``party``, ``study`` (null until known), ``event`` and ``text``; events add their own fields,
log records ``logger`` and, for an exception, ``error`` (its class and location). The text of a library's exception is
left out, since it may quote input from outside. Events and log lines hold no secret.
"""

import contextlib
import datetime
import json
import logging
import sys
import threading
import traceback
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import TextIO

from parties.observability.events import Event, EventSink, FieldValue, ignoring_full_disk
from parties.observability.status import RunInfo, RunStatus

_LEVELS = {
    "failed": "error",
    "rejected": "warning",
    "lost": "warning",
    "forgotten": "warning",
    "contradicted": "warning",
}
OWN_LOGGER, ROOT_LOGGER = "syncret", ""
_RECORD = "log"
"""Event name of log records."""


class LoggedEvents:
    """Sink that logs each event as a record of ``logger``: a warning if its name is among ``warnings``."""

    def __init__(self, logger: logging.Logger, warnings: Collection[str] = ()) -> None:
        self._logger = logger
        self._warnings = frozenset(warnings)

    def take(self, event: Event) -> None:
        """Logs the event."""
        level = logging.WARNING if event.name in self._warnings else logging.INFO
        self._logger.log(level, "%s", event.text, extra={"event": event})


def event_of(record: logging.LogRecord) -> Event | None:
    """Returns the event that ``LoggedEvents`` has made this record of; None for any other record."""
    found = getattr(record, "event", None)
    return found if isinstance(found, Event) else None


class JsonLog:
    """Log of JSON lines, from events and log records.

    ``records`` is a further sink of the log records, as events: a process that runs for another one reports them to it.
    """

    records: EventSink | None = None

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._origin: dict[str, str | None] = {"party": None, "study": None}

    def set_run(self, about: RunInfo) -> None:
        """Sets the server and study of later lines."""
        self._origin = {"party": about.name, "study": about.study}

    def serves(self, party: str) -> None:
        """Sets the server of later lines; an event may have its study as field ``study``."""
        self._origin = {"party": party, "study": None}

    def take(self, event: Event) -> None:
        """Writes the event as a line."""
        self._write(_LEVELS.get(event.name, "info"), event)

    def record(self, record: logging.LogRecord) -> None:
        """Writes a log record."""
        level, event = record.levelname.lower(), event_of(record)
        if event is None:
            fields: dict[str, FieldValue] = {"logger": record.name}
            if record.exc_info:
                fields["error"] = _error_location(record.exc_info)
            event = Event(_RECORD, _record_text(record), fields)
        if self.records is not None:
            self.records.take(Event(event.name, event.text, {"level": level, **event.fields}))
        self._write(level, event)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Takes the process's log records while the block runs: Syncret's from INFO, others from WARNING.

        Python's warnings are among them. Handlers that write lines of another form to the standard streams, such as
        those of ``logging.basicConfig``, are off meanwhile.
        """
        handler, root, own = (
            _JsonLogHandler(self),
            logging.getLogger(ROOT_LOGGER),
            logging.getLogger(OWN_LOGGER),
        )
        before = own.level
        others = [each for each in root.handlers if _is_console(each)]
        for each in others:
            root.removeHandler(each)
        root.addHandler(handler)
        own.setLevel(logging.INFO)
        logging.captureWarnings(True)
        try:
            yield
        finally:
            logging.captureWarnings(False)
            own.setLevel(before)
            root.removeHandler(handler)
            for each in others:
                root.addHandler(each)

    def _write(self, level: str, event: Event) -> None:
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        fields, who = event.fields, self._origin
        if who["study"] is None and isinstance(study := fields.get("study"), str):
            who = who | {"study": study}
        said = {"time": time.replace("+00:00", "Z"), "level": level, **who}
        # Fields cannot replace the values that every line has.
        line = {**fields, **said, "event": event.name, "text": event.text}
        ordered = {key: line[key] for key in (*said, "event", "text", *fields)}
        with self._lock, ignoring_full_disk():
            stream = self._stream or sys.stderr
            stream.write(json.dumps(ordered) + "\n")
            stream.flush()


def logged_status(
    about: RunInfo, log: JsonLog | None, *, rejections: EventSink | None = None
) -> RunStatus:
    """Returns a run status with rejections in the ``log``, if there is one, and sets the log's server and study.

    ``rejections`` takes them instead, if given: a bus that has the log among its sinks.
    """
    if log is not None:
        log.set_run(about)
    return RunStatus(about, log=rejections or log)


def _is_console(handler: logging.Handler) -> bool:
    """Returns true for a handler of lines on a standard stream."""
    streams = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    return type(handler) is logging.StreamHandler and handler.stream in streams


class _JsonLogHandler(logging.Handler):
    def __init__(self, log: JsonLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._log.record(record)
        except Exception:  # noqa: BLE001  # As in every handler: an error in logging must not end the program.
            self.handleError(record)


def _record_text(record: logging.LogRecord) -> str:
    """Returns the message; for a library's record with an exception only its format, since it may quote input."""
    if record.exc_info and not record.name.startswith(OWN_LOGGER):
        return str(record.msg)
    return record.getMessage()


def _error_location(
    raised: tuple[type[BaseException], BaseException, TracebackType | None]
    | tuple[None, None, None]
    | bool,
) -> str:
    """Returns an exception's class and the code locations it passed through, innermost last."""
    if not isinstance(raised, tuple) or raised[0] is None:
        return ""
    frames = traceback.extract_tb(raised[2])
    locations = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return ": ".join([raised[0].__name__, "; ".join(locations)])
