"""Run status of a server: phase, rounds, owners, budget, peers, errors.

A process has one ``RunStatus`` for its study. The computation feeds it by events, of which it is a sink
(`parties.observability.events`), and by ``enter``, ``rejected`` and ``peer``, and sets ``StatusSources``, which are
queried on demand; ``status`` returns the document as JSON values (fields: parties/README.md, Status). It has no socket
and no file: `parties.service` publishes it. All methods are thread-safe. All values here are public, as events are: it
holds no row, count or key.
"""

import contextlib
import enum
import math
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from parties.config import Config
from parties.foundation.errors import StoreError
from parties.foundation.times import iso_time
from parties.foundation.version import INGEST_VERSION, STORE_VERSION, WIRE_VERSION, version
from parties.observability.events import WORKING, Event, EventSink, FieldValue

FORMAT = 1
"""Version of the status document; raised when a field changes its meaning or is removed."""
MPC_SERVER, FLAIM_SERVER, SILOS_SERVER = "party", "flaim-server", "silos-server"
_MAX_KEPT = 20
"""Number of errors, rejections and events that are kept, the latest of each."""


class Phase(enum.StrEnum):
    """Phase of a server. The last three are final."""

    STARTING = "starting"
    """Reads its folder and prepares the run."""
    CONNECTING = "connecting"
    """Accepts owners' submissions, while not all other servers are connected."""
    WAITING = "waiting"
    """Waits for data owners."""
    COMPUTING = "computing"
    """Computes the rounds."""
    WRITING = "writing"
    """Writes the results."""
    FINISHED = "finished"
    """Has ended with a result."""
    STOPPED = "stopped"
    """Was stopped, and goes on when it is started again."""
    FAILED = "failed"
    """Has ended in an error."""


END_PHASES = (Phase.FINISHED, Phase.STOPPED, Phase.FAILED)
ACCEPTING_PHASES = (Phase.CONNECTING, Phase.WAITING, Phase.COMPUTING, Phase.WRITING)
"""Phases in which a server answers data owners."""
_PHASES = {
    "listening": Phase.CONNECTING,
    "connected": Phase.WAITING,
    "waiting": Phase.WAITING,
    "counting": Phase.COMPUTING,
    "round": Phase.COMPUTING,
    "round-done": Phase.COMPUTING,
    "writing": Phase.WRITING,
    "finished": Phase.FINISHED,
    "stopped": Phase.STOPPED,
    "failed": Phase.FAILED,
}
"""Phases that events begin."""
_ERROR_EVENTS = ("failed", "lost", "contradicted")
"""Events that are kept among the errors."""


class ParticipantState(enum.StrEnum):
    """State of a data owner, as this server knows it."""

    ABSENT = "absent"
    """Named in advance, without a submission here."""
    HERE = "here"
    """This server has its part; in FLAIM: it is connected."""
    INCOMPLETE = "incomplete"
    """Servers lack their parts: ``ParticipantStatus.missing``."""
    COUNTED = "counted"
    """Its rows are in the counts of a round."""
    EXCLUDED = "excluded"
    """Left out, since what it sent cannot be counted."""
    WITHDRAWN = "withdrawn"
    """Has withdrawn its submission."""
    REVOKED = "revoked"
    """Revoked by the operators."""
    GONE = "gone"
    """In FLAIM: was connected."""


@dataclass(frozen=True, slots=True)
class ParticipantStatus:
    """Status of a data owner: ``missing`` names the servers without its part; ``since`` is seconds since the epoch."""

    name: str
    state: ParticipantState
    missing: tuple[str, ...] = ()
    reason: str = ""
    round: int | None = None
    since: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        since = None if self.since is None else iso_time(self.since)
        return {**asdict(self), "missing": list(self.missing), "since": since}


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """Privacy budget in rho (zCDP), its spent part, and the number of charges."""

    rho: float
    spent: float
    charges: int


@dataclass(slots=True)
class StepTotals:
    """Costs of a kind of step in this process so far."""

    count: int = 0
    seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    messages: int = 0


@dataclass(slots=True)
class StatusSources:
    """Callbacks that a status document queries, from any thread; they may raise StoreError.

    ``round_trip_s`` returns the seconds to a peer and back, None if unknown.
    """

    owners: Callable[[], Sequence[ParticipantStatus]] = lambda: ()
    spent: Callable[[], BudgetUse | None] = lambda: None
    steps: Callable[[], Mapping[str, StepTotals]] = dict
    round_trip_s: Callable[[int], float | None] = lambda peer: None
    now: Callable[[], int | None] = lambda: None
    """Round under way, if no event reports it."""
    asked: Callable[[], Mapping[str, object] | None] = lambda: None
    certificates: Callable[[], Sequence[Mapping[str, object]]] = lambda: ()
    """Ends of the certificates that the server uses, as JSON values (`parties.service.expiry`)."""

    def frozen(self) -> "StatusSources":
        """Returns sources with the current values; empty ones for values that are no longer readable."""
        owners: Sequence[ParticipantStatus] = ()
        spent: BudgetUse | None = None
        with contextlib.suppress(StoreError):
            owners, spent = self.owners(), self.spent()
        steps, commands = self.steps(), self.asked()
        return StatusSources(
            lambda: owners,
            lambda: spent,
            lambda: steps,
            asked=lambda: commands,
            certificates=self.certificates,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Constant facts of a run: server and study. ``peers`` are the other servers' names by pid.

    ``owners`` are the data owners named by the study; empty if every owner with a certificate may take part.
    """

    kind: str
    name: str
    pid: int | None
    study: str
    config: str
    epsilon: float
    delta: float
    rounds: int
    at_most: bool
    """True if there may be fewer rounds."""
    expected: int
    minimum: int
    peers: Mapping[int, str] = field(default_factory=dict)
    owners: frozenset[str] = frozenset()
    closes: float | None = None
    """Time of ``clients.closes`` in seconds since the epoch, None without that date."""

    @classmethod
    def of_server(cls, config: Config, pid: int) -> "RunInfo":
        """Returns the facts of compute server ``pid``. Raises ConfigError if the config has no parties."""
        names = [party.name for party in config.require_parties()]
        others = {i: name for i, name in enumerate(names) if i != pid}
        return cls._of(config, MPC_SERVER, names[pid], pid=pid, least=0, peers=others)

    @classmethod
    def of_federation(cls, config: Config) -> "RunInfo":
        """Returns the facts of FLAIM's or the silos' server. Raises ConfigError if the config lacks it."""
        section = config.require_federation()
        kind = FLAIM_SERVER if config.silos is None else SILOS_SERVER
        return cls._of(config, kind, section.server, pid=None, least=section.minimum)

    @classmethod
    def _of(
        cls,
        config: Config,
        kind: str,
        name: str,
        *,
        pid: int | None,
        least: int,
        peers: Mapping[int, str] | None = None,
    ) -> "RunInfo":
        run, clients = config.run, config.clients
        return cls(
            kind=kind,
            name=name,
            pid=pid,
            study=run.id,
            config=config.digest(),
            epsilon=run.epsilon,
            delta=run.delta,
            rounds=run.rounds,
            at_most=run.schedule != "fixed",
            expected=clients.expected,
            minimum=max(clients.minimum, least),
            peers=peers or {},
            owners=config.owners,
            closes=None if clients.closing is None else clients.closing.timestamp(),
        )


@dataclass(frozen=True, slots=True)
class _RecordedEvent:
    """An event: its time (seconds since the epoch), name and sentence."""

    at: float
    event: str
    text: str

    def to_dict(self) -> dict[str, object]:
        return {"time": iso_time(self.at), "event": self.event, "text": self.text}


@dataclass(frozen=True, slots=True)
class _PeerStatus:
    connected: bool = False
    problem: str = ""


class RunStatus:
    """Run status of one server, a sink of its run's events.

    ``clock`` and ``began`` are in seconds since the epoch. A ``log`` gets a line for every rejection; the status counts
    them and keeps the latest.
    """

    def __init__(
        self,
        about: RunInfo,
        *,
        clock: Callable[[], float] = time.time,
        began: float | None = None,
        log: EventSink | None = None,
    ) -> None:
        self.about = about
        self.sources = StatusSources()
        self._clock = clock
        self._log = log
        self._lock = threading.RLock()
        self._since = self._last_heartbeat = clock()
        self._began = self._since if began is None else began
        self._phase = Phase.STARTING
        self._activity: str | None = None
        self._time_left: tuple[float, float] | None = None
        """Remaining seconds, and the time of that estimate."""
        self._closing_at = about.closes
        """End of the wait for data owners, in seconds since the epoch, as far as it is known."""
        self._current_round: int | None = None
        self._last_round: int | None = None
        self._events: deque[_RecordedEvent] = deque(maxlen=_MAX_KEPT)
        self._errors: deque[_RecordedEvent] = deque(maxlen=_MAX_KEPT)
        self._refused: deque[_RecordedEvent] = deque(maxlen=_MAX_KEPT)
        self._rejections: Counter[str] = Counter()
        self._peers = dict.fromkeys(about.peers, _PeerStatus())
        self._listeners: list[Callable[[], object]] = []

    # Input.

    def take(self, event: Event) -> None:
        """Records an event, and what it says of phase, rounds and remaining time."""
        now, name, fields = self._clock(), event.name, event.fields
        with self._lock:
            said = _RecordedEvent(now, name, event.text)
            if name in _ERROR_EVENTS or fields.get("lost") is True:
                self._errors.append(said)
            if name == WORKING:
                left = fields.get("left_s")
                self._time_left = (float(left), now) if isinstance(left, int | float) else None
            else:
                self._events.append(said)
            closing = fields.get("closing_s")
            if name == "waiting" and self.about.closes is None and isinstance(closing, int | float):
                self._closing_at = now + closing
            self._activity = event.text
            self._count_rounds(name, fields)
            if (phase := _PHASES.get(name)) is not None:
                self._enter_phase(phase)
        self._changed()

    def _count_rounds(self, name: str, fields: Mapping[str, FieldValue]) -> None:
        number = fields.get("round")
        if name == "round" and isinstance(number, int):
            self._current_round = number
        if name == "resumed" and isinstance(number, int):
            self._last_round = number
        done = fields.get("done")
        if name == "round-done" and isinstance(done, int):
            self._last_round, self._current_round = done, None

    def enter(self, phase: Phase) -> None:
        """Sets the server's phase."""
        with self._lock:
            self._enter_phase(phase)
        self._changed()

    def _enter_phase(self, phase: Phase) -> None:
        if phase is Phase.CONNECTING and not self.about.peers:
            phase = Phase.WAITING
        if phase is self._phase:
            return
        if phase in END_PHASES:
            self._time_left = self._current_round = None
        if self._phase is Phase.CONNECTING and phase is Phase.WAITING:
            self._peers = dict.fromkeys(self._peers, _PeerStatus(True))
        self._phase, self._since = phase, self._clock()

    def rejected(self, reason: str, text: str, **fields: FieldValue) -> None:
        """Records a rejection of input from outside; see ``parties.observability.events.OnRejection``."""
        if self._log is not None:
            self._log.take(Event("rejected", text, {"reason": reason, **fields}))
        with self._lock:
            self._rejections[reason] += 1
            self._refused.append(_RecordedEvent(self._clock(), reason, text))
        self._changed()

    def error(self, name: str, text: str) -> None:
        """Records an error."""
        with self._lock:
            self._errors.append(_RecordedEvent(self._clock(), name, text))
        self._changed()

    def last_round(self, number: int | None) -> None:
        """Sets the last finished round to ``number``."""
        with self._lock:
            self._last_round = number
        self._changed()

    def peer(self, pid: int, *, connected: bool, problem: str = "") -> None:
        """Sets the connection of server ``pid``, with the ``problem`` of a missing one."""
        with self._lock:
            before, self._peers[pid] = self._peers.get(pid), _PeerStatus(connected, problem)
            same = before == self._peers[pid]
        if not same:
            self._changed()

    def heartbeat(self) -> None:
        """Records that the event loop of the computation runs."""
        self._last_heartbeat = self._clock()

    def touch(self) -> None:
        """Reports a change in one of the sources."""
        self._changed()

    def freeze(self) -> None:
        """Replaces the sources by their current values."""
        self.sources = self.sources.frozen()
        self._changed()

    # Output.

    @property
    def phase(self) -> Phase:
        """Current phase of the server."""
        return self._phase

    @property
    def since_heartbeat_s(self) -> float:
        """Time since the last heartbeat of the computation's event loop, in seconds."""
        return max(0.0, self._clock() - self._last_heartbeat)

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Calls ``listener``, which must be quick, after every change, in any thread; returns a function to end it."""
        with self._lock:
            self._listeners.append(listener)

        def end() -> None:
            with self._lock:
                self._listeners.remove(listener)

        return end

    def _changed(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def status(self) -> dict[str, object]:
        """Returns the status document as JSON values."""
        sources = self.sources
        # Sources may lock and wait for a disk, and are therefore called without this lock.
        try:
            owners, spent, steps = sources.owners(), sources.spent(), sources.steps()
            trips = {pid: sources.round_trip_s(pid) for pid in self.about.peers}
        except StoreError:
            if self.sources is sources:
                raise
            return self.status()
        with self._lock:
            return self._document(owners, spent, steps, trips)

    def _document(
        self,
        owners: Sequence[ParticipantStatus],
        spent: BudgetUse | None,
        steps: Mapping[str, StepTotals],
        trips: Mapping[int, float | None],
    ) -> dict[str, object]:
        about, now = self.about, self._clock()
        return {
            "format": FORMAT,
            "running": self._phase not in END_PHASES,
            "kind": about.kind,
            "party": {"name": about.name, "pid": about.pid},
            "study": {"id": about.study, "config": about.config},
            "versions": component_versions(),
            "phase": self._phase.value,
            "since": iso_time(self._since),
            "doing": self._activity,
            "rounds": {
                "done": self._last_round,
                "now": self.sources.now() if self._current_round is None else self._current_round,
                "of": about.rounds,
                "at_most": about.at_most,
            },
            "owners": participants_section(owners, about.expected, about.minimum),
            "budget": budget_section(about.epsilon, about.delta, spent),
            "time": {
                "started": iso_time(self._began),
                "elapsed_s": round(now - self._began, 1),
                "left_s": self._left_s(now),
                "closing_s": self._closing_s(now),
            },
            "peers": [
                {"pid": pid, "name": name, **asdict(self._peers[pid]), "round_trip_s": trips[pid]}
                for pid, name in about.peers.items()
            ],
            "steps": {name: asdict(step) for name, step in steps.items()},
            "asked": self.sources.asked(),
            "certificates": list(self.sources.certificates()),
            "rejections": dict(self._rejections),
            "errors": [said.to_dict() for said in self._errors],
            "rejected": [said.to_dict() for said in self._refused],
            "events": [said.to_dict() for said in self._events],
        }

    def _closing_s(self, now: float) -> float | None:
        """Returns the seconds until no more data owners are taken; None once that is over, or unknown."""
        waits = self._phase in (Phase.STARTING, Phase.CONNECTING, Phase.WAITING)
        if self._closing_at is None or not waits:
            return None
        return round(max(0.0, self._closing_at - now), 1)

    def _left_s(self, now: float) -> float | None:
        if self._time_left is None:
            return None
        left, said_at = self._time_left
        return round(max(0.0, left - (now - said_at)), 1)


def component_versions() -> dict[str, object]:
    """Returns the versions of this program, of messages between servers and from owners, of stores, and of Python."""
    return {
        "syncret": version(),
        "wire": WIRE_VERSION,
        "ingest": INGEST_VERSION,
        "store": STORE_VERSION,
        "python": sys.version.split()[0],
    }


def participants_section(
    owners: Sequence[ParticipantStatus], expected: int, minimum: int
) -> dict[str, object]:
    """Returns the part ``owners`` of a status; ``here`` counts owners with a submission here that may count."""
    states = Counter(owner.state for owner in owners)
    here = (ParticipantState.HERE, ParticipantState.INCOMPLETE, ParticipantState.COUNTED)
    present = sum(states[state] for state in here)
    return {
        "expected": expected,
        "minimum": minimum,
        "here": present,
        "short": max(0, minimum - present),
        "counted": states[ParticipantState.COUNTED],
        "states": {state.value: states[state] for state in ParticipantState if states[state]},
        "list": [owner.to_dict() for owner in owners],
    }


def budget_section(epsilon: float, delta: float, spent: BudgetUse | None) -> dict[str, object]:
    """Returns the part ``budget`` of a status; rho is in zCDP, and null before it is known."""
    return {
        "epsilon": epsilon,
        "delta": delta,
        "rho": None if spent is None or not math.isfinite(spent.rho) else spent.rho,
        "spent": None if spent is None else spent.spent,
        "charges": None if spent is None else spent.charges,
    }
