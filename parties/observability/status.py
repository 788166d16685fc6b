"""What a running server knows of itself, for whoever looks at it: phase, rounds, owners, budget, peers, errors.

Provides ``Board``, one for the one study of a process. The computation tells it what happens, as ``Progress`` events
and by ``enter``, ``rejected`` and ``peer``, and sets ``Sources`` that are asked when somebody looks; ``status`` gives
the whole as JSON values (the fields: parties/README.md, Status). It knows no socket and no file: `parties.service`
shows it. Any thread may call anything. Public: all of it, as events are; nobody tells it of a row, a count or a key.
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
PARTY, FLAIM_SERVER, SILOS_SERVER = "party", "flaim-server", "silos-server"
_KEPT = 20
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


ENDS = (Phase.FINISHED, Phase.STOPPED, Phase.FAILED)
TAKING = (Phase.CONNECTING, Phase.WAITING, Phase.COMPUTING, Phase.WRITING)
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
_BAD = ("failed", "lost", "contradicted")
"""Events that are kept among the errors."""


class OwnerState(enum.StrEnum):
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
class Owner:
    """A data owner: ``missing`` names the servers that lack its part; ``since`` is seconds since the epoch."""

    name: str
    state: OwnerState
    missing: tuple[str, ...] = ()
    reason: str = ""
    round: int | None = None
    since: float | None = None

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "missing": list(self.missing), "since": iso(self.since)}


@dataclass(frozen=True, slots=True)
class Spent:
    """The privacy budget in rho (zCDP), and what of it is charged, in so many charges."""

    rho: float
    spent: float
    charges: int


@dataclass(slots=True)
class StepSum:
    """What a kind of step has cost this process so far."""

    count: int = 0
    seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    messages: int = 0


class Tracing(Protocol):
    """Who follows steps: entered for as long as one lasts, and asked then what it has cost."""

    def __call__(
        self, step: str, round: int | None, costs: Callable[[], Mapping[str, int]]
    ) -> AbstractContextManager[object]:
        """``costs`` are sizes and numbers, at the step's end."""


def untraced(
    step: str, round: int | None, costs: Callable[[], Mapping[str, int]]
) -> AbstractContextManager[object]:
    """Nobody follows. See ``Tracing``."""
    return contextlib.nullcontext()


@dataclass(slots=True)
class Sources:
    """Who is asked when somebody looks, from any thread; they may raise StoreError.

    ``round_trip_s`` is seconds to a peer and back, None where that is unknown.
    """

    owners: Callable[[], Sequence[Owner]] = lambda: ()
    spent: Callable[[], Spent | None] = lambda: None
    steps: Callable[[], Mapping[str, StepSum]] = dict
    round_trip_s: Callable[[int], float | None] = lambda peer: None
    now: Callable[[], int | None] = lambda: None
    """The round that is under way, where no event says so."""
    asked: Callable[[], Mapping[str, object] | None] = lambda: None

    def frozen(self) -> "Sources":
        """What they say now, for ever; of what cannot be read any more nothing."""
        owners: Sequence[Owner] = ()
        spent: Spent | None = None
        with contextlib.suppress(StoreError):
            owners, spent = self.owners(), self.spent()
        steps, asked = self.steps(), self.asked()
        return Sources(lambda: owners, lambda: spent, lambda: steps, asked=lambda: asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
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
    def of_party(cls, config: Config, pid: int) -> "About":
        """Compute server ``pid``. Raises ConfigError where the config has no parties."""
        names = [party.name for party in config.require_parties()]
        others = {i: name for i, name in enumerate(names) if i != pid}
        return cls._of(config, PARTY, names[pid], pid=pid, least=0, peers=others)

    @classmethod
    def of_meeting(cls, config: Config) -> "About":
        """FLAIM's server, or that of silos. Raises ConfigError where the config lacks it."""
        section = config.require_meeting()
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
    ) -> "About":
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
class _Said:
    """An event: when (seconds since the epoch), its name and its sentence."""

    at: float
    event: str
    text: str

    def to_dict(self) -> dict[str, object]:
        return {"time": iso(self.at), "event": self.event, "text": self.text}


@dataclass(frozen=True, slots=True)
class _Peer:
    connected: bool = False
    problem: str = ""


class Board:
    """See the module; a `parties.observability.events.Progress`. ``clock`` gives seconds since the epoch, as ``began``
    is.

    A ``log`` has a line for everything that was not let in; else it is counted, and the latest are kept.
    """

    def __init__(
        self,
        about: About,
        *,
        clock: Callable[[], float] = time.time,
        began: float | None = None,
        log: Progress | None = None,
    ) -> None:
        self.about = about
        self.sources = Sources()
        self.tracing: Tracing = untraced
        """For the computation to enter with each step; to be set before it begins."""
        self._clock = clock
        self._log = log
        self._lock = threading.RLock()
        self._since = self._alive = clock()
        self._began = self._since if began is None else began
        self._phase = Phase.STARTING
        self._doing: str | None = None
        self._left: tuple[float, float] | None = None
        """Seconds that were left, and when that was said."""
        self._now: int | None = None
        self._done: int | None = None
        self._said: deque[_Said] = deque(maxlen=_KEPT)
        self._errors: deque[_Said] = deque(maxlen=_KEPT)
        self._refused: deque[_Said] = deque(maxlen=_KEPT)
        self._rejections: Counter[str] = Counter()
        self._peers = dict.fromkeys(about.peers, _Peer())
        self._listeners: list[Callable[[], object]] = []

    # What it is told.

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """See ``Progress``."""
        now = self._clock()
        with self._lock:
            said = _Said(now, name, text)
            if name in _BAD or fields.get("lost") is True:
                self._errors.append(said)
            if name == WORKING:
                left = fields.get("left_s")
                self._left = (float(left), now) if isinstance(left, int | float) else None
            else:
                self._said.append(said)
            self._doing = text
            self._count_rounds(name, fields)
            if (phase := _PHASES.get(name)) is not None:
                self._enter(phase)
        self._changed()

    def _count_rounds(self, name: str, fields: Mapping[str, FieldValue]) -> None:
        number = fields.get("round")
        if name == "round" and isinstance(number, int):
            self._now = number
        if name == "resumed" and isinstance(number, int):
            self._done = number
        done = fields.get("done")
        if name == "round-done" and isinstance(done, int):
            self._done, self._now = done, None

    def enter(self, phase: Phase) -> None:
        """The server is in ``phase`` now."""
        with self._lock:
            self._enter(phase)
        self._changed()

    def _enter(self, phase: Phase) -> None:
        if phase is Phase.CONNECTING and not self.about.peers:
            phase = Phase.WAITING
        if phase is self._phase:
            return
        if phase in ENDS:
            self._left = self._now = None
        if self._phase is Phase.CONNECTING and phase is Phase.WAITING:
            self._peers = dict.fromkeys(self._peers, _Peer(True))
        self._phase, self._since = phase, self._clock()

    def rejected(self, reason: str, text: str, **fields: FieldValue) -> None:
        """Something from outside was not let in; see ``parties.observability.events.Rejected``."""
        if self._log is not None:
            self._log.event("rejected", text, reason=reason, **fields)
        with self._lock:
            self._rejections[reason] += 1
            self._refused.append(_Said(self._clock(), reason, text))
        self._changed()

    def error(self, name: str, text: str) -> None:
        """Something is wrong, and is kept among the errors."""
        with self._lock:
            self._errors.append(_Said(self._clock(), name, text))
        self._changed()

    def last_round(self, number: int | None) -> None:
        """Round ``number`` is the last that is done."""
        with self._lock:
            self._done = number
        self._changed()

    def peer(self, pid: int, *, connected: bool, problem: str = "") -> None:
        """Whether server ``pid`` is connected, and what is wrong where it is not."""
        with self._lock:
            before, self._peers[pid] = self._peers.get(pid), _Peer(connected, problem)
            same = before == self._peers[pid]
        if not same:
            self._changed()

    def beat(self) -> None:
        """The event loop of the computation turns."""
        self._alive = self._clock()

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
    def silent_s(self) -> float:
        """How long ago the event loop of the computation turned last."""
        return max(0.0, self._clock() - self._alive)

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
        owners: Sequence[Owner],
        spent: Spent | None,
        steps: Mapping[str, StepSum],
        trips: Mapping[int, float | None],
    ) -> dict[str, object]:
        about, now = self.about, self._clock()
        return {
            "format": FORMAT,
            "running": self._phase not in ENDS,
            "kind": about.kind,
            "party": {"name": about.name, "pid": about.pid},
            "study": {"id": about.study, "config": about.config},
            "versions": versions(),
            "phase": self._phase.value,
            "since": iso(self._since),
            "doing": self._doing,
            "rounds": {
                "done": self._done,
                "now": self.sources.now() if self._now is None else self._now,
                "of": about.rounds,
                "at_most": about.at_most,
            },
            "owners": owners_dict(owners, about.expected, about.minimum),
            "budget": budget_dict(about.epsilon, about.delta, spent),
            "time": {
                "started": iso(self._began),
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
            "events": [said.to_dict() for said in self._said],
        }

    def _left_s(self, now: float) -> float | None:
        if self._left is None:
            return None
        left, told = self._left
        return round(max(0.0, left - (now - told)), 1)


class Watched:
    """Events for ``inner``, after ``board`` has them. A `parties.observability.events.Progress`."""

    def __init__(self, inner: Progress, board: Board) -> None:
        self._inner = inner
        self._board = board

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """See ``Progress``."""
        self._board.event(name, text, **fields)
        self._inner.event(name, text, **fields)


def versions() -> dict[str, object]:
    """Of this program, of what servers send to one another and owners to them, of stores, and of Python."""
    return {
        "syncret": version(),
        "wire": WIRE_VERSION,
        "ingest": INGEST_VERSION,
        "store": STORE_VERSION,
        "python": sys.version.split()[0],
    }


def owners_dict(owners: Sequence[Owner], expected: int, minimum: int) -> dict[str, object]:
    """The part ``owners`` of a status. ``here`` counts those of whom this server has something that may count."""
    states = Counter(owner.state for owner in owners)
    here = (OwnerState.HERE, OwnerState.INCOMPLETE, OwnerState.COUNTED)
    present = sum(states[state] for state in here)
    return {
        "expected": expected,
        "minimum": minimum,
        "here": present,
        "short": max(0, minimum - present),
        "counted": states[OwnerState.COUNTED],
        "states": {state.value: states[state] for state in OwnerState if states[state]},
        "list": [owner.to_dict() for owner in owners],
    }


def budget_dict(epsilon: float, delta: float, spent: Spent | None) -> dict[str, object]:
    """The part ``budget`` of a status; rho is zCDP's, and null before it is known."""
    return {
        "epsilon": epsilon,
        "delta": delta,
        "rho": None if spent is None or not math.isfinite(spent.rho) else spent.rho,
        "spent": None if spent is None else spent.spent,
        "charges": None if spent is None else spent.charges,
    }


def iso(seconds: float | None) -> str | None:
    """A time as ISO 8601 in UTC, to the second."""
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
