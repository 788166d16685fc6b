"""Logs as JSON lines on standard error, one object a line, from events and from `logging`.

``JsonLog`` is a sink of events (`parties.observability.events`) that also takes the process's log records while it is
``installed``. Every line has ``time`` (ISO 8601, UTC, milliseconds), ``level``, ``party``, ``study`` (null until
known), ``event`` and ``text``; events add their own fields, log records ``logger`` and, for an exception, ``error``
(its class and location). The text of a library's exception is left out, since it may quote input from outside. Events
and log lines hold no secret.
"""

import contextlib
import datetime
import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TextIO

from parties.observability.events import Event, FieldValue, ignoring_full_disk
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


class JsonLog:
    """Log of JSON lines, from events and log records."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._origin: dict[str, str | None] = {"party": None, "study": None}

    def set_run(self, about: RunInfo) -> None:
        """Sets the server and study of later lines."""
        self._origin = {"party": about.name, "study": about.study}

    def serves(self, party: str) -> None:
        """Sets the server of later lines; a record may have its study as attribute ``study``."""
        self._origin = {"party": party, "study": None}

    def take(self, event: Event) -> None:
        """Writes the event as a line."""
        self._write(_LEVELS.get(event.name, "info"), event.name, event.text, event.fields)

    def record(self, record: logging.LogRecord) -> None:
        """Writes a log record."""
        fields: dict[str, FieldValue] = {"logger": record.name}
        if record.exc_info:
            fields["error"] = _error_location(record.exc_info)
        level, study = record.levelname.lower(), getattr(record, "study", None)
        self._write(level, _RECORD, _record_text(record), fields, study=study)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Takes the process's log records while the block runs: Syncret's from INFO, others from WARNING."""
        handler, root, own = (
            _JsonLogHandler(self),
            logging.getLogger(ROOT_LOGGER),
            logging.getLogger(OWN_LOGGER),
        )
        before = own.level
        root.addHandler(handler)
        own.setLevel(logging.INFO)
        try:
            yield
        finally:
            own.setLevel(before)
            root.removeHandler(handler)

    def _write(
        self,
        level: str,
        name: str,
        text: str,
        fields: Mapping[str, FieldValue],
        *,
        study: str | None = None,
    ) -> None:
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        who = self._origin if study is None else self._origin | {"study": study}
        said = {"time": time.replace("+00:00", "Z"), "level": level, **who}
        # Fields cannot replace the values that every line has.
        line = {**fields, **said, "event": name, "text": text}
        ordered = {key: line[key] for key in (*said, "event", "text", *fields)}
        with self._lock, ignoring_full_disk():
            stream = self._stream or sys.stderr
            stream.write(json.dumps(ordered) + "\n")
            stream.flush()


def logged_status(about: RunInfo, log: JsonLog | None) -> RunStatus:
    """Returns a run status with rejections in the ``log``, if there is one, and sets the log's server and study."""
    if log is not None:
        log.set_run(about)
    return RunStatus(about, log=log)


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
