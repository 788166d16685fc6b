"""What a running server knows of itself, for whoever looks at it: phase, rounds, owners, budget, peers, errors.

Provides ``RunStatus``, one for the one study of a process. The computation tells it what happens, as ``Progress``
events and by ``enter``, ``rejected`` and ``peer``, and sets ``StatusSources`` that are asked when somebody looks;
``status`` gives the whole as JSON values (the fields: parties/README.md, Status). It knows no socket and no file:
`parties.service` shows it. Any thread may call anything. Public: all of it, as events are; nobody tells it of a row, a
count or a key.
"""

import contextlib
import enum
import math
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Protocol

from parties.config import Config
from parties.foundation.errors import StoreError
from parties.foundation.version import INGEST_VERSION, STORE_VERSION, WIRE_VERSION, version
from parties.observability.events import WORKING, FieldValue, Progress

FORMAT = 1
"""Of the status document; raised where a field changes its meaning or goes."""
MPC_SERVER, FLAIM_SERVER, SILOS_SERVER = "party", "flaim-server", "silos-server"
_MAX_KEPT = 20
"""Errors, rejections and events that are kept, of each the latest."""


class Phase(enum.StrEnum):
    """What a server is at. The last three are ends."""

    STARTING = "starting"
    CONNECTING = "connecting"
    """It takes what owners send, and the other servers are not all there."""
    WAITING = "waiting"
    """For data owners."""
    COMPUTING = "computing"
    WRITING = "writing"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


END_PHASES = (Phase.FINISHED, Phase.STOPPED, Phase.FAILED)
ACCEPTING_PHASES = (Phase.CONNECTING, Phase.WAITING, Phase.COMPUTING, Phase.WRITING)
"""While a server is in one of these it answers data owners."""
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
"""The phase that an event begins."""
_ERROR_EVENTS = ("failed", "lost", "contradicted")
"""Events that are kept among the errors."""


class ParticipantState(enum.StrEnum):
    """Where a data owner stands, as this server knows it."""

    ABSENT = "absent"
    """It is named in advance, and nothing of it is here."""
    HERE = "here"
    """This server has its part; of FLAIM: it is connected."""
    INCOMPLETE = "incomplete"
    """Servers lack their parts: ``Owner.missing``."""
    COUNTED = "counted"
    EXCLUDED = "excluded"
    WITHDRAWN = "withdrawn"
    REVOKED = "revoked"
    GONE = "gone"
    """Of FLAIM: it was connected."""


@dataclass(frozen=True, slots=True)
class ParticipantStatus:
    """A data owner: ``missing`` names the servers that lack its part; ``since`` is seconds since the epoch."""

    name: str
    state: ParticipantState
    missing: tuple[str, ...] = ()
    reason: str = ""
    round: int | None = None
    since: float | None = None

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "missing": list(self.missing), "since": iso_time(self.since)}


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """The privacy budget in rho (zCDP), and what of it is charged, in so many charges."""

    rho: float
    spent: float
    charges: int


@dataclass(slots=True)
class StepTotals:
    """What a kind of step has cost this process so far."""

    count: int = 0
    seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    messages: int = 0


class StepTracer(Protocol):
    """Who follows steps: entered for as long as one lasts, and asked then what it has cost."""

    def __call__(
        self, step: str, round: int | None, costs: Callable[[], Mapping[str, int]]
    ) -> AbstractContextManager[object]:
        """``costs`` are sizes and numbers, at the step's end."""


def no_tracing(
    step: str, round: int | None, costs: Callable[[], Mapping[str, int]]
) -> AbstractContextManager[object]:
    """Nobody follows. See ``StepTracer``."""
    return contextlib.nullcontext()


@dataclass(slots=True)
class StatusSources:
    """Who is asked when somebody looks, from any thread; they may raise StoreError.

    ``round_trip_s`` is seconds to a peer and back, None where that is unknown.
    """

    owners: Callable[[], Sequence[ParticipantStatus]] = lambda: ()
    spent: Callable[[], BudgetUse | None] = lambda: None
    steps: Callable[[], Mapping[str, StepTotals]] = dict
    round_trip_s: Callable[[int], float | None] = lambda peer: None
    now: Callable[[], int | None] = lambda: None
    """The round that is under way, where no event says so."""
    asked: Callable[[], Mapping[str, object] | None] = lambda: None

    def frozen(self) -> "StatusSources":
        """What they say now, for ever; of what cannot be read any more nothing."""
        owners: Sequence[ParticipantStatus] = ()
        spent: BudgetUse | None = None
        with contextlib.suppress(StoreError):
            owners, spent = self.owners(), self.spent()
        steps, commands = self.steps(), self.asked()
        return StatusSources(lambda: owners, lambda: spent, lambda: steps, asked=lambda: commands)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What does not change: which server in which study. ``peers`` are the other servers' names by pid.

    ``owners`` are the data owners that the study names; none where whoever has a certificate may come.
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
    """Whether there may be fewer rounds."""
    expected: int
    minimum: int
    peers: Mapping[int, str] = field(default_factory=dict)
    owners: frozenset[str] = frozenset()

    @classmethod
    def of_server(cls, config: Config, pid: int) -> "RunInfo":
        """Compute server ``pid``. Raises ConfigError where the config has no parties."""
        names = [party.name for party in config.require_parties()]
        others = {i: name for i, name in enumerate(names) if i != pid}
        return cls._of(config, MPC_SERVER, names[pid], pid=pid, least=0, peers=others)

    @classmethod
    def of_federation(cls, config: Config) -> "RunInfo":
        """FLAIM's server, or that of silos. Raises ConfigError where the config lacks it."""
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
        )


@dataclass(frozen=True, slots=True)
class _RecordedEvent:
    """An event: when (seconds since the epoch), its name and its sentence."""

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
    """See the module; a `parties.observability.events.Progress`. ``clock`` gives seconds since the epoch, as ``began``
    is.

    A ``log`` has a line for everything that was not let in; else it is counted, and the latest are kept.
    """

    def __init__(
        self,
        about: RunInfo,
        *,
        clock: Callable[[], float] = time.time,
        began: float | None = None,
        log: Progress | None = None,
    ) -> None:
        self.about = about
        self.sources = StatusSources()
        self.tracing: StepTracer = no_tracing
        """For the computation to enter with each step; to be set before it begins."""
        self._clock = clock
        self._log = log
        self._lock = threading.RLock()
        self._since = self._last_heartbeat = clock()
        self._began = self._since if began is None else began
        self._phase = Phase.STARTING
        self._activity: str | None = None
        self._time_left: tuple[float, float] | None = None
        """Seconds that were left, and when that was said."""
        self._current_round: int | None = None
        self._last_round: int | None = None
        self._events: deque[_RecordedEvent] = deque(maxlen=_MAX_KEPT)
        self._errors: deque[_RecordedEvent] = deque(maxlen=_MAX_KEPT)
        self._refused: deque[_RecordedEvent] = deque(maxlen=_MAX_KEPT)
        self._rejections: Counter[str] = Counter()
        self._peers = dict.fromkeys(about.peers, _PeerStatus())
        self._listeners: list[Callable[[], object]] = []

    # What it is told.

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """See ``Progress``."""
        now = self._clock()
        with self._lock:
            said = _RecordedEvent(now, name, text)
            if name in _ERROR_EVENTS or fields.get("lost") is True:
                self._errors.append(said)
            if name == WORKING:
                left = fields.get("left_s")
                self._time_left = (float(left), now) if isinstance(left, int | float) else None
            else:
                self._events.append(said)
            self._activity = text
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
        """The server is in ``phase`` now."""
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
        """Something from outside was not let in; see ``parties.observability.events.OnRejection``."""
        if self._log is not None:
            self._log.event("rejected", text, reason=reason, **fields)
        with self._lock:
            self._rejections[reason] += 1
            self._refused.append(_RecordedEvent(self._clock(), reason, text))
        self._changed()

    def error(self, name: str, text: str) -> None:
        """Something is wrong, and is kept among the errors."""
        with self._lock:
            self._errors.append(_RecordedEvent(self._clock(), name, text))
        self._changed()

    def last_round(self, number: int | None) -> None:
        """Round ``number`` is the last that is done."""
        with self._lock:
            self._last_round = number
        self._changed()

    def peer(self, pid: int, *, connected: bool, problem: str = "") -> None:
        """Whether server ``pid`` is connected, and what is wrong where it is not."""
        with self._lock:
            before, self._peers[pid] = self._peers.get(pid), _PeerStatus(connected, problem)
            same = before == self._peers[pid]
        if not same:
            self._changed()

    def heartbeat(self) -> None:
        """The event loop of the computation turns."""
        self._last_heartbeat = self._clock()

    def touch(self) -> None:
        """One of the sources has something else to say."""
        self._changed()

    def freeze(self) -> None:
        """Nobody is asked any more: what they said last stays."""
        self.sources = self.sources.frozen()
        self._changed()

    # Who looks.

    @property
    def phase(self) -> Phase:
        """What the server is at."""
        return self._phase

    @property
    def since_heartbeat_s(self) -> float:
        """How long ago the event loop of the computation turned last."""
        return max(0.0, self._clock() - self._last_heartbeat)

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call ``listener``, which must be quick, after every change, in whatever thread; returns what ends that."""
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
        """The status document: JSON values."""
        sources = self.sources
        # They may take locks of their own, and wait for a disk: not under this one's.
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
            },
            "peers": [
                {"pid": pid, "name": name, **asdict(self._peers[pid]), "round_trip_s": trips[pid]}
                for pid, name in about.peers.items()
            ],
            "steps": {name: asdict(step) for name, step in steps.items()},
            "asked": self.sources.asked(),
            "rejections": dict(self._rejections),
            "errors": [said.to_dict() for said in self._errors],
            "rejected": [said.to_dict() for said in self._refused],
            "events": [said.to_dict() for said in self._events],
        }

    def _left_s(self, now: float) -> float | None:
        if self._time_left is None:
            return None
        left, said_at = self._time_left
        return round(max(0.0, left - (now - said_at)), 1)


class StatusSink:
    """Events for ``inner``, after ``board`` has them. A `parties.observability.events.Progress`."""

    def __init__(self, inner: Progress, status: RunStatus) -> None:
        self._inner = inner
        self._status = status

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """See ``Progress``."""
        self._status.event(name, text, **fields)
        self._inner.event(name, text, **fields)


def component_versions() -> dict[str, object]:
    """Of this program, of what servers send to one another and owners to them, of stores, and of Python."""
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
    """The part ``owners`` of a status. ``here`` counts those of whom this server has something that may count."""
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
    """The part ``budget`` of a status; rho is zCDP's, and null before it is known."""
    return {
        "epsilon": epsilon,
        "delta": delta,
        "rho": None if spent is None or not math.isfinite(spent.rho) else spent.rho,
        "spent": None if spent is None else spent.spent,
        "charges": None if spent is None else spent.charges,
    }


def iso_time(seconds: float | None) -> str | None:
    """A time as ISO 8601 in UTC, to the second."""
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
