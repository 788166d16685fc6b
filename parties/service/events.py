"""Events of a service: their names, the sinks that each passes, and the person or server that acts.

A service has one bus (`parties.observability.events.Progress`), which ``service_events`` makes. An event has a name of
``EventName``, a sentence for people, and fields for programs: ``study`` (its run's name), ``digest``, ``state``,
``actor``, ``subject``, ``peer``, ``remote``, ``reason``, and few more. Logs, history, operators' log, metrics and
notifications use the same names. What a study's process reports goes through the same bus under the run's own names,
which have no dot (``relayed``). All values here are public.
"""

import enum
import logging
import re
from collections import Counter
from collections.abc import Mapping

from parties.foundation.untrusted_text import printable
from parties.observability.events import WORKING, Event, EventSink, FieldValue, Progress
from parties.observability.logs import LoggedEvents

_LOGGER = logging.getLogger("syncret.service")


class EventName(enum.StrEnum):
    """Names of a service's events; docs/monitoring.md has the table of their meanings and fields."""

    SERVICE_BLOCKED = "service.blocked"
    STUDY_PROPOSED = "study.proposed"
    STUDY_APPROVED = "study.approved"
    STUDY_APPROVED_FIRST = "study.approved-first"
    STUDY_QUEUED = "study.queued"
    STUDY_STARTED = "study.started"
    STUDY_WAITING = "study.waiting"
    STUDY_RUNNING = "study.running"
    STUDY_CLOSED = "study.closed"
    STUDY_FINISHED = "study.finished"
    STUDY_FAILED = "study.failed"
    STUDY_CANCELLED = "study.cancelled"
    STUDY_COMMANDED = "study.commanded"
    STUDY_UNENDED = "study.unended"
    STUDY_NOT_TAKEN = "study.not-taken"
    STUDY_WAITS_HERE = "study.waits-here"
    OWNER_REQUESTED = "owner.requested"
    OWNER_ADMITTED = "owner.admitted"
    OWNER_REFUSED = "owner.refused"
    OWNER_MISSING = "owner.missing"
    PROCESS_FAILED = "process.failed"
    PEER_AWAY = "peer.away"
    PEER_THERE = "peer.there"
    CONNECTION_REFUSED = "connection.refused"
    CERTIFICATE_ENDS = "certificate.ends"
    KEY_WAITS_HERE = "key.waits-here"
    KEY_CONFIRMED = "key.confirmed"
    KEY_WITHDRAWN = "key.confirmation-taken-back"
    KEY_RENEWED = "key.certificate-renewed"
    KEY_AT_WORK = "key.at-work"
    KEY_AWAY = "key.away"
    KEY_THERE = "key.there"
    RESULT_COLLECTED = "result.collected"
    RESULT_NOT_COLLECTED = "result.not-collected"
    SECRETS_LEFT = "secrets.left"
    FILES_DELETED = "files.deleted"
    FILES_KEPT = "files.kept"
    NOTICE_UNDELIVERED = "notice.undelivered"
    SETTINGS_READ = "settings.read"
    SETTINGS_REFUSED = "settings.refused"

    @property
    def words(self) -> str:
        """The name for people: "approved", "key at work"."""
        return event_words(self.value)


WARNINGS = frozenset(
    {
        EventName.SERVICE_BLOCKED,
        EventName.STUDY_FAILED,
        EventName.STUDY_NOT_TAKEN,
        EventName.STUDY_WAITS_HERE,
        EventName.OWNER_MISSING,
        EventName.PROCESS_FAILED,
        EventName.PEER_AWAY,
        EventName.CONNECTION_REFUSED,
        EventName.CERTIFICATE_ENDS,
        EventName.KEY_WAITS_HERE,
        EventName.KEY_AWAY,
        EventName.RESULT_NOT_COLLECTED,
        EventName.SECRETS_LEFT,
        EventName.FILES_KEPT,
        EventName.NOTICE_UNDELIVERED,
        EventName.SETTINGS_REFUSED,
        "rejected",
        "failed",
        "lost",
        "contradicted",
    }
)
"""Events that are logged as warnings."""


NOTICES = frozenset(
    {
        EventName.SERVICE_BLOCKED,
        EventName.STUDY_WAITS_HERE,
        EventName.STUDY_FINISHED,
        EventName.STUDY_FAILED,
        EventName.STUDY_CANCELLED,
        EventName.OWNER_MISSING,
        EventName.PEER_AWAY,
        EventName.CERTIFICATE_ENDS,
        EventName.KEY_WAITS_HERE,
    }
)
"""Events that an operator may be notified of (`parties.service.notices`)."""


_WORDS: Mapping[str, str] = {
    EventName.STUDY_COMMANDED: "asked to",
    EventName.KEY_CONFIRMED: "key confirmed",
    EventName.KEY_WITHDRAWN: "confirmation taken back",
    EventName.KEY_RENEWED: "certificate renewed",
    EventName.KEY_AT_WORK: "key at work",
    EventName.RESULT_COLLECTED: "collected the result",
    EventName.RESULT_NOT_COLLECTED: "could not collect the result",
}


def event_words(name: str) -> str:
    """Returns an event's name for people, in a history; one of a former program as it is."""
    short = name.partition(".")[2].replace("-", " ") if "." in name else name
    return _WORDS.get(name, short)


class Actor(str):
    """Name of the person or server that acts, with the ``subject`` by which it was authenticated.

    The subject is that of a certificate (RFC 4514), of a sign-in, or the system's user at the other end of a socket.
    """

    subject: str

    def __new__(cls, name: str, subject: str = "") -> "Actor":
        """Returns the name with its subject."""
        made = super().__new__(cls, name)
        made.subject = subject
        return made


class EventCounts:
    """Sink that counts a service's events by name, for metrics; names of a run's own events are not counted."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def take(self, event: Event) -> None:
        """Counts the event."""
        if event.name in _NAMES:
            self.counts[event.name] += 1


_NAMES = frozenset(EventName)


def service_events(*sinks: EventSink) -> Progress:
    """Returns the bus of a service: its log, and these ``sinks``."""
    return Progress(LoggedEvents(_LOGGER, WARNINGS), *sinks)


_RUN_NAME = re.compile(r"[a-z][a-z-]{0,39}")
_MAX_FIELDS, _MAX_FIELD, _MAX_TEXT = 24, 200, 2000


def relayed(said: Mapping[str, object], study: str, process: int | None) -> Event | None:
    """Returns the event of a study's process, as the service reports it; None for one that is no news.

    A process that computes on what others sent is not trusted: it has no say over names and fields of the service's
    own events, over the study, nor over the size of a line.
    """
    name = said.get("event")
    if name == WORKING:
        return None
    if not isinstance(name, str) or _RUN_NAME.fullmatch(name) is None:
        name = "log"
    own = {"event", "text", "study", "process", "actor", "subject"}
    fields: dict[str, FieldValue] = {}
    for key, value in said.items():
        if key in own or _RUN_NAME.fullmatch(key.replace("_", "-")) is None:
            continue
        if isinstance(value, str):
            fields[key] = printable(value, _MAX_FIELD)
        elif value is None or isinstance(value, int | float):
            fields[key] = value
        if len(fields) == _MAX_FIELDS:
            break
    text = printable(str(said.get("text", "")), _MAX_TEXT).replace("\n", " ")
    return Event(name, f"{study}: {text}", {"study": study, "process": process, **fields})
