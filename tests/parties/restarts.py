"""Three servers of a run in one process, on simulated disks and links: a machine whose restarts can be searched.

Provides ``State``, what three disks hold between two attempts at a run, and ``attempt``, one start of all three that a
``Crash`` may end and in which one server's disk may have been forged (``Lie``). The servers run their own code:
``agree_on_resume``, ``Admission``, ``MpcBackend``, ``commit``, ``DurableLedger`` and AIM's loop, driven as coroutines
without an event loop; what is simulated is the disk (a database in memory), the link (a dictionary), the estimator
(another model at each attempt) and the noise (drawn from the noise keys and a name, by no distribution). ``Ghost`` is
what an observer of all three would have seen: the noise, the inputs and the value of each opening that anybody took
part in.
"""

import asyncio
import contextlib
import copy
import hashlib
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import protocols.supply
from mechanisms.accounting import LedgerEntry
from mechanisms.aim import Estimate, Measurement
from parties.config import Config
from parties.mpc import aim_backend, computation
from parties.mpc.agreement import agree_on_resume, load_selections, run_identity
from parties.mpc.estimation import LEAD, LeadEstimator, encode_estimate
from parties.mpc.inputs import AdditionResult, SubmissionBatch
from parties.mpc.openings import choice_name
from parties.mpc.participants.admission import Admission
from parties.mpc.participants.control import AdmissionControl
from parties.mpc.participants.enrollment_wait import EnrollmentWait
from parties.mpc.participants.running_count import CountedForms
from parties.mpc.planning.budget import make_plan
from parties.mpc.records import StoredSubmission
from parties.mpc.replay.effects import Effects
from parties.mpc.server_folder import ServerFolder
from parties.mpc.session import MpcSession
from parties.mpc.steps import AGREE
from parties.mpc.storage.folder_files import BODY_FOLDERS, FolderFiles
from parties.mpc.storage.store import Store
from parties.mpc.storage.tables import STORE_SCHEMA
from parties.session.study import Study
from parties.storage.database import _META, Database
from parties.storage.privacy_ledger import DurableLedger
from protocols.base import open_value
from protocols.context import Context, Costs, Payload, StepCost, root_path
from protocols.errors import ChannelError
from protocols.keystream import KEY_BYTES
from protocols.measure import Noise, measure
from protocols.ring import R32, R64
from protocols.shares import Share
from protocols.steps import MEASURE, SELECT
from tests.parties.support import Unobserved, make_config, make_submission

NOBODY = -1
FORGED = "f" * 64
"""Digest that a liar states: no honest server ever holds it."""


@cache
def config(rounds: int, schedule: str = "fixed") -> Config:
    """Two columns of two values: three candidates, eight cells."""
    overrides = {
        # An annealed schedule has as many rounds as come of it.
        "run.rounds": rounds if schedule == "fixed" else None,
        "run.epsilon": 1.0 if schedule == "fixed" else 20.0,
        "run.schedule": schedule,
        "clients.minimum": 1,
        "clients.expected": 50,
        "column": [
            {"name": name, "kind": "categorical", "categories": ["x", "y"]} for name in ("a", "b")
        ],
    }
    return make_config(overrides)


@cache
def study(rounds: int, schedule: str) -> SimpleNamespace:
    """Common parts of all attempts."""
    made = config(rounds, schedule)
    workload = made.build_workload()
    whole = Study(made, workload)
    plan = make_plan(whole)
    return SimpleNamespace(
        config=made,
        study=whole,
        workload=workload,
        plan=plan,
        identity=run_identity(whole),
    )


_REAL_DIGEST = Config.digest


@cache
def _digest_of(rounds: int, schedule: str) -> str:
    return _REAL_DIGEST(config(rounds, schedule))


class Stopped(BaseException):
    """The server has died: nothing that it does from now on reaches a disk or a peer."""


# Disks


@dataclass(frozen=True)
class Image:
    """Content of a disk: a database, and the files beside it."""

    database: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)


class MemoryFiles(FolderFiles):
    """Files of a store in memory, by name."""

    def __init__(self, database: Database, kept: Mapping[str, bytes]) -> None:
        super().__init__(database)
        self.kept = dict(kept)

    def write(self, name: str, data: bytes) -> None:
        self.kept[name] = data

    def read(self, name: str, digest: str) -> bytes:
        data = self.kept[name]
        assert hashlib.sha256(data).hexdigest() == digest
        return data

    def drop_unnamed(self, table: str) -> None:
        named = {row[0] for row in self._database.rows(f"SELECT path FROM {table}")}  # noqa: S608
        for name in [name for name in self.kept if name.startswith(f"{BODY_FOLDERS[table]}/")]:
            if name not in named:
                del self.kept[name]


class Disk(Store):
    """A store in memory; each transaction that is durable at its end is one event of its server."""

    def __init__(self, image: Image, event: Callable[[], None]) -> None:
        self.directory = self._path = Path("disk")
        self._lock, self._flushing = threading.RLock(), threading.Lock()
        self._entered = self._flushed = 0
        self._event = event
        self._kept = MemoryFiles(self, image.files)
        self._assemble(self._kept)
        self.submissions.read = lambda client, version=1: b""  # type: ignore[method-assign]
        self._seen = -1
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        if image.database:
            self._db.deserialize(image.database)
        else:
            self._db.execute("PRAGMA page_size=512")
            for statement in (_META, *STORE_SCHEMA):
                self._db.execute(statement)

    def image(self) -> Image:
        self._remember()
        return self._image

    def _remember(self) -> None:
        """Facts and image as they are now, made anew only where something was written."""
        if self._seen != self._db.total_changes:
            self._seen = self._db.total_changes
            self._image = Image(self._db.serialize(), dict(self._kept.kept))
            self._facts = self._held()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        if not self._db.in_transaction:
            self._event()
        with super().transaction():
            yield

    @contextlib.contextmanager
    def relaxed_durability(self) -> Iterator[None]:
        with super().transaction():
            yield

    def flush(self) -> None:
        pass

    def take_in(self, client: str, pid: int) -> None:
        """Takes in an owner's submission, whose parts all three servers get."""
        said = make_submission(client)
        parts = [_digest(client, n).hex() for n in (pid, (pid + 1) % 3)]
        row = (client, 1, said.canonical(), _digest(client).hex(), "", "00" * 32, *parts, 1, 1, "")
        marks = ", ".join("?" * (len(row) + 1))
        with self.relaxed_durability():
            self.enter(f"INSERT OR IGNORE INTO submission VALUES ({marks})", [(*row, 0.0)])  # noqa: S608

    def facts(self) -> Mapping[str, object]:
        """Durable state of the server, without random parts."""
        self._remember()
        return self._facts

    def _held(self) -> dict[str, object]:
        keys = self.state.noise_keys()
        return {
            "keys": None if keys is None else (keys.own, keys.next),
            "inputs": tuple(tuple(i.to_list()) for i in self.releases.inputs()),
            "charges": tuple(sorted((e.round, e.step, e.opening) for e in self.charges())),
            "spent": sum((Fraction(e.rho) for e in self.charges()), Fraction(0)),
            "measured": tuple(
                sorted(
                    (c.round, c.candidate, c.noisy.tobytes().hex())
                    for c in self.releases.checkpoints()
                )
            ),
            "chosen": tuple(sorted(load_selections(self, 9).items())),
            "totals": tuple(self.rows("SELECT round, clients FROM total ORDER BY round")),
            "models": tuple(sorted(self.releases.estimates().items())),
            "final": tuple(self.finalized.finalized()),
        }

    def charges(self) -> list[LedgerEntry]:
        return DurableLedger(self).entries


def _digest(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


# What an observer of all three sees


@dataclass(frozen=True)
class Opening:
    """An opening that a server took part in, in its round: what it is of, as that server has it."""

    attempt: int
    round: int
    step: str
    candidate: int
    name: str
    noise: tuple[bytes, ...]
    inputs: bytes


@dataclass(frozen=True)
class Ghost:
    """Openings by who took part in them, and the values that came out, of all attempts so far."""

    openings: frozenset[tuple[int, Opening]] = frozenset()
    values: frozenset[tuple[int, str, str, str]] = frozenset()
    """By round, step and name of the opening."""

    def key(self) -> object:
        return (frozenset((p, replace(o, attempt=0)) for p, o in self.openings), self.values)


@dataclass(frozen=True)
class State:
    """The three disks, between two attempts."""

    rounds: int
    schedule: str = "fixed"
    liar: int | None = None
    newcomers: bool = True
    images: tuple[Image, Image, Image] = (Image(), Image(), Image())
    ghost: Ghost = field(default_factory=Ghost)
    attempts: int = 0
    facts: tuple[Mapping[str, object], ...] = ({}, {}, {})

    def key(self) -> object:
        """The same for states from which everything goes the same way."""
        held = tuple(tuple(facts.items()) for facts in self.facts)
        return (self.attempts, held, self.ghost.key())


@dataclass(frozen=True)
class Crash:
    """Server ``pid`` dies before its ``event``-th write or message; those in ``go`` go on as far as they can then.

    The others have come no further than ``pid`` needed them to, and are stopped.
    """

    pid: int
    event: int
    go: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Lie:
    """Server ``pid`` goes by another disk than its own, or sends other public bytes in a step."""

    name: str
    pid: int
    forge: Callable[[Disk], None] = lambda disk: None
    step: str = ""
    send: Callable[[bytes, int], bytes] = lambda payload, peer: payload


@dataclass
class Outcome:
    """Outcome of an attempt: the state then, the error that ended each server or None, and its number of events."""

    state: State
    ended: list[BaseException | None]
    events: list[int]


# Servers


class Fetch:
    """Awaited for a message."""

    def __init__(self, peer: int, label: int) -> None:
        self.key = (peer, label)

    def __await__(self) -> Iterator["Fetch"]:
        return (yield self)  # type: ignore[misc]


class Server:
    """One server in one attempt: its disk, its links, and how far it is."""

    def __init__(self, world: "World", pid: int, image: Image) -> None:
        self.world, self.pid = world, pid
        self.costs = Costs()
        self.events = 0
        self.dead = False
        self.inbox: dict[tuple[int, int], Payload] = {}
        self.disk = Disk(image, self.event)
        self.ended: BaseException | None = None
        self.waits: Fetch | None = None
        self.work: Coroutine[Any, Any, None] | None = None

    def event(self) -> None:
        """Before each durable write and each message."""
        if self.dead:
            raise Stopped
        if self.world.due(self):
            self.dead = True
            raise Stopped
        self.events += 1

    # As a transport

    def component_key(self, component: int) -> bytes:
        return _digest("mesh", self.world.number, component)[:KEY_BYTES]

    def private_key(self) -> bytes:
        return _digest("private", self.world.number, self.pid)[:KEY_BYTES]

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        self.event()
        data = payload.tobytes()
        lie = self.world.lie
        if lie is not None and lie.pid == self.pid and lie.step == cost.step:
            data = lie.send(data, peer)
        self.world.servers[peer].inbox[self.pid, label] = np.frombuffer(data, np.uint8)

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        payload: Payload = await Fetch(peer, label)  # type: ignore[assignment]
        return payload

    def opened(self, opening: object, value: bytes) -> None:
        pass

    # As a coroutine

    @property
    def runs(self) -> bool:
        return self.work is not None

    @property
    def ready(self) -> bool:
        return self.runs and (self.waits is None or self.waits.key in self.inbox)

    def resume(self, problem: BaseException | None = None) -> None:
        assert self.work is not None
        try:
            if problem is not None:
                self.waits = self.work.throw(problem)
            else:
                value = None if self.waits is None else self.inbox[self.waits.key]
                self.waits = self.work.send(value)
        except StopIteration:
            self.work = None
        except (Exception, Stopped) as error:  # noqa: BLE001  # However it ends, that is what it came to.
            self.work, self.ended = None, error

    def kill(self) -> None:
        self.dead = True
        if self.work is not None:
            self.ended = Stopped()
            with contextlib.suppress(Stopped):
                self.work.close()
            self.work = None


class World:
    """One attempt of all three."""

    def __init__(self, state: State, lie: Lie | None) -> None:
        self.state, self.lie = state, lie
        self.number = state.attempts
        self.study = study(state.rounds, state.schedule)
        self.openings = set(state.ghost.openings)
        self.values = set(state.ghost.values)
        self.servers = [Server(self, pid, state.images[pid]) for pid in range(3)]
        for server in self.servers:
            for client in self.there():
                server.disk.take_in(client, server.pid)
            if lie is not None and lie.pid == server.pid:
                with server.disk.relaxed_durability():
                    lie.forge(server.disk)
            server.work = serve(server)

    def there(self) -> list[str]:
        """The owners that have come before this attempt: each is earlier by name than the one before."""
        return ["m", *(f"k{9 - n}" for n in range(self.number) if self.state.newcomers)]

    def go(self, watched: Crash | None, see: Callable[[], None] = lambda: None) -> None:
        """Until all have ended. ``see`` is called before each event of the server that is ``watched``."""
        self._watched, self._see = watched, see
        first = 0 if watched is None else watched.pid
        while (server := self._due(first)) is not None:
            server.resume()
        if watched is not None and isinstance(self.servers[first].ended, Stopped):
            for other in self.servers:
                if other.pid != first and other.pid not in watched.go:
                    other.kill()
        self._finish()

    def due(self, server: Server) -> bool:
        """Returns True if ``server`` is to die before this event."""
        watched = self._watched
        if watched is None or server.pid != watched.pid:
            return False
        # Who is quick has done by now all that it can.
        while quick := [self.servers[p] for p in watched.go if self.servers[p].ready]:
            quick[0].resume()
        self._see()
        return server.events == watched.event

    def _due(self, first: int) -> Server | None:
        """Returns the server that has to run for ``first`` to go on; None if it cannot, or has ended."""
        seen, server = set(), self.servers[first]
        while server.runs and server.pid not in seen:
            if server.ready:
                return server
            assert server.waits is not None
            seen.add(server.pid)
            server = self.servers[server.waits.key[0]]
        return None

    def _finish(self) -> None:
        """Everybody goes on as far as it can, and hears then that a peer is lost."""
        while left := [server for server in self.servers if server.runs]:
            ready = next((server for server in left if server.ready), None)
            if ready is not None:
                ready.resume()
                continue
            for server in left:
                server.resume(ChannelError("a peer is lost"))

    def takes_part(self, ctx: Context, candidate: int, name: str, z: Share, x: object) -> None:
        if ctx.pid == self.state.liar:
            return
        server = self.servers[ctx.pid]
        noise = tuple(np.atleast_1d(part).tobytes() for part in (z.own, z.next))
        cost = ctx.cost
        self.check_paid(server, int(cost.round or 0), name)
        made = Opening(
            self.number, int(cost.round or 0), cost.step, candidate, name, noise, _digest(x)
        )
        self.openings.add((ctx.pid, made))

    def check_paid(self, server: Server, round: int, name: str) -> None:
        """A charge for the opening is on this disk, and the round's record on those of all that are honest."""
        assert [e.opening for e in server.disk.charges()].count(name) == 1, "not charged once"
        for other in self.servers:
            if other.pid != self.state.liar:
                assert round in {i.round for i in other.disk.releases.inputs()}, "no record"

    def came_out(self, ctx: Context, name: str, value: str) -> None:
        if ctx.pid != self.state.liar:
            self.values.add((int(ctx.cost.round or 0), ctx.cost.step, name, value))

    def reached(self) -> State:
        """Returns the current state."""
        return replace(
            self.state,
            images=tuple(server.disk.image() for server in self.servers),
            ghost=Ghost(frozenset(self.openings), frozenset(self.values)),
            attempts=self.number + 1,
            facts=tuple(server.disk.facts() for server in self.servers),
        )

    def outcome(self) -> Outcome:
        state = self.reached()
        for server in self.servers:
            server.disk._db.close()
        return Outcome(state, [s.ended for s in self.servers], [s.events for s in self.servers])


class OneMore(EnrollmentWait):
    """Owners come while they are waited for: one between the first look and the second, which is the last."""

    looks = 0
    server: Server

    def ready(self, incomplete: object, *, patient: bool = False) -> bool:
        return self.looks > 0

    async def sleep(self, pause: float, incomplete: object, *, patient: bool = False) -> None:
        self.looks += 1
        self.server.disk.take_in("c", self.server.pid)


class Form:
    """Counts that are a function of the owner's name."""

    name = together = "seeded"
    by_capacity = False

    def batches(self, due: Sequence[StoredSubmission]) -> list[tuple[StoredSubmission, ...]]:
        return [tuple(due)]

    async def add(self, ctx: Context, total: Share, batch: SubmissionBatch) -> AdditionResult:
        for client in batch.clients:
            parts = [_draw(f"counts {client} {c}", total.size) for c in (ctx.pid, ctx.next_pid)]
            total = total + Share(R32, ctx.pid, *parts)
        return AdditionResult(total)


def _draw(name: str, count: int) -> NDArray[np.uint32]:
    return np.frombuffer(hashlib.shake_128(name.encode()).digest(4 * count), np.uint32)


class Models:
    """Another model at each attempt: an estimator need not come to the same one twice."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        workload = self._server.world.study.workload
        drawn = _draw(f"model {self._server.world.number} {round}", workload.cells)
        allowed = np.ones(len(workload.candidates), np.bool_)
        return Estimate(allowed, (drawn >> 3).astype(np.uint32))


async def serve(server: Server) -> None:
    """Does the work of `parties.mpc.computation.compute`, from agreement to the last round."""
    world, made = server.world, server.world.study
    ctx = Context(server, root_path("simulated"))
    quiet = _quiet()
    around = MpcSession(
        study=made.study,
        pid=server.pid,
        plan=copy.deepcopy(made.plan),
        folder=ServerFolder(server.disk.directory, server.disk, quiet),
        effects=Effects(),
        progress=quiet,
        status=quiet,
        control=AdmissionControl(SimpleNamespace(is_set=lambda: False)),  # type: ignore[arg-type]
    )
    with ctx.step(AGREE.name) as c:
        resumed = await agree_on_resume(
            c,
            made.identity,
            server.disk,
            study=made.study,
            plan=around.plan,
            nonce=f"{world.number:032x}",
            keys=computation.known_noise_keys(server.disk.state, around.effects),
            fresh=ctx.fresh_noise_keys(),
        )
    history = resumed.conclusion.history
    sigmas = [m.sigma for m in history if m.round > 0]
    initial = sum(m.round == 0 for m in history)
    released = computation.released_costs(around.plan, initial, sigmas)
    around.plan.write_off([*released, *resumed.conclusion.wasted], initial=initial, sigmas=sigmas)
    view = around.effects.participants(server.disk)
    arrivals = Admission(
        ctx,
        made.config,
        view,
        forms=CountedForms({"seeded": Form()}, made.workload.maximal_cells),  # type: ignore[dict-item]
        transcript=quiet,
        effects=around.effects,
        control=around.control,
        authority=SimpleNamespace(),  # type: ignore[arg-type]
        recorded=resumed.openings.recorded,
        observer=Unobserved(),
    )
    wait = OneMore(made.config.clients, view, around.control, Unobserved())  # type: ignore[arg-type]
    wait.server, arrivals._wait = server, wait
    lead = SimpleNamespace(estimator=lambda study: Models(server))
    accounts: Any = SimpleNamespace(costs=quiet, write=quiet.save)
    rounds = computation.AimRounds(around, ctx, resumed, arrivals, accounts)
    await rounds.run(around.study, history, lead if server.pid == LEAD else None)  # type: ignore[arg-type]


def _quiet() -> Any:
    """In place of transcripts and whatever else only hears."""

    def hear(*args: object, **kwargs: object) -> None:
        pass

    names = ("note", "ledger", "flush", "seal", "client", "event", "save")
    return SimpleNamespace(**dict.fromkeys(names, hear), seconds={})


# What stands in for the protocols


def _drawn(ctx: Context, ring: Any, count: int) -> Share:
    own, next_ = (ctx.noise(c, ring, (count,)) for c in (ctx.pid, ctx.next_pid))
    return Share(ring, ctx.pid, own, next_)


async def _samples(ctx: Context, count: int, sigma: float, max_rows: int) -> Share:
    return _drawn(ctx, R32, count)


async def _gumbel(ctx: Context, count: int) -> Share:
    return _drawn(ctx, R64, count)


NOISE = Noise(_samples, 0, lambda count, sigma: None)  # type: ignore[arg-type, return-value]


def _world(ctx: Context) -> World:
    server = ctx._transport
    assert isinstance(server, Server)
    return server.world


async def _select(ctx: Context, x_sh: Share, spec: Any, *, kept: object, noise: Any) -> int:
    """An index that depends on counts, model and noise; what is opened is worth as much as the index is."""
    samples = await noise(ctx, len(spec.candidates))
    world, view = _world(ctx), (x_sh.own.tobytes(), x_sh.next.tobytes(), spec.answers.tobytes())
    record = {i.round: i for i in world.servers[ctx.pid].disk.releases.inputs()}[
        int(ctx.cost.round or 0)
    ]
    for place, candidate in enumerate(spec.candidates):
        one = samples[place : place + 1]
        world.takes_part(ctx, candidate, choice_name(record), one, (candidate, view))
    opened = await open_value(ctx, samples, "index")
    position = int(opened.sum(dtype=np.uint64) + spec.answers.sum(dtype=np.uint64)) % samples.size
    world.came_out(ctx, choice_name(record), str(spec.candidates[position]))
    return position


async def _measure(
    ctx: Context,
    x_sh: Share,
    sigma: float,
    max_rows: int,
    noise: Noise,
    *,
    prepared: Share | None = None,
    source: Any = None,
) -> NDArray[np.float64]:
    z_sh = prepared
    if z_sh is None:
        with ctx.noise_of(source) as n:
            z_sh = await noise.samples(n, x_sh.size, sigma, max_rows)
    world, name = _world(ctx), source.opening.hex()
    world.takes_part(ctx, NOBODY, name, z_sh, (x_sh.own.tobytes(), x_sh.next.tobytes()))
    noisy = await measure(ctx, x_sh, sigma, max_rows, noise, prepared=z_sh, source=source)
    world.came_out(ctx, name, noisy.tobytes().hex())
    return noisy


async def _estimated(
    self: LeadEstimator,
    ctx: Context,
    measurements: Sequence[Measurement],
    *,
    round: int,
    final: bool,
) -> bytes:
    estimate = await self._inner.estimate(measurements, round=round, final=final)
    return encode_estimate(estimate, self._max_rows)


async def _at_once(function: Any, *args: Any) -> Any:
    return function(*args)


async def _in_turn(self: Context, *steps: Any) -> list[Any]:
    return [await step(self.child()) for step in steps]


async def _no_bits(*_: object) -> None:
    return None


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Within it servers run without threads, proofs and distributions."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (asyncio, "to_thread", _at_once),
            (Context, "gather", _in_turn),
            (protocols.supply, "gumbel", _gumbel),
            (aim_backend, "select", _select),
            (aim_backend, "measure", _measure),
            (aim_backend.MpcBackend, "_bits", _no_bits),
            (LeadEstimator, "_estimated", _estimated),
            (computation, "noise_of", lambda kind, bits: NOISE),
            (Config, "digest", lambda self: _digest_of(self.run.rounds, self.run.schedule)),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield


def attempt(state: State, crash: Crash | None = None, lie: Lie | None = None) -> Outcome:
    """All three start with what they hold; how that ends."""
    world = World(state, lie)
    world.go(crash)
    return world.outcome()


NEVER = -1
Pace: TypeAlias = tuple[int, frozenset[int]]
"""The server that dies, and the servers that go on as far as they can then."""
EVERY_PACE: Sequence[Pace] = [
    (pid, frozenset((pid + n) % 3 for n in quick))
    for pid in range(3)
    for quick in ((), (1,), (2,), (1, 2))
]


def check(state: State) -> None:
    """Checks the conditions that hold after any event. Raises AssertionError."""
    honest = [pid for pid in range(3) if pid != state.liar]
    noises: dict[object, object] = {}
    names: dict[object, object] = {}
    rounds: dict[object, set[str]] = defaultdict(set)
    for pid, made in state.ghost.openings:
        rounds[made.round, made.step].add(made.name)
        for component, noise in zip((pid, (pid + 1) % 3), made.noise, strict=True):
            # With a liar, the noise that it does not know is what the two others have in common.
            if state.liar is not None and component != (state.liar + 2) % 3:
                continue
            used = noises.setdefault((pid, noise), (made.name, made.inputs))
            assert used == (made.name, made.inputs), "one noise with two inputs"
            where = (component, made.name, made.candidate)
            assert names.setdefault(where, noise) == noise, "one opening with two noises"
    for (round, step), opened in rounds.items():
        most = len(study(state.rounds, state.schedule).workload.one_way)
        assert len(opened) <= (most if round == 0 else 1), f"{step} of round {round} opened twice"
    came_out = state.ghost.values
    assert len({name for _, _, name, _ in came_out}) == len(came_out), "two values of an opening"
    budget = Fraction(study(state.rounds, state.schedule).plan.rho)
    for pid in honest:
        facts = state.facts[pid]
        charged = [name for _, _, name in facts["charges"]]
        assert len(set(charged)) == len(charged), "an opening charged twice"
        assert facts["spent"] <= budget, "charged above the budget"
        assert {made.name for p, made in state.ghost.openings if p == pid} <= set(charged)
        measured = {(number, value) for number, _, value in facts["measured"]}
        assert measured <= {(n, value) for n, step, _, value in came_out if step == MEASURE.name}
        chosen = {(number, str(candidate)) for number, candidate in facts["chosen"]}
        assert chosen <= {(n, value) for n, step, _, value in came_out if step == SELECT.name}
        assert FORGED not in repr(facts), "one server's word"


def check_end(outcome: Outcome) -> None:
    """The run has come to its end at all three, with the plan's charges. Raises AssertionError."""
    assert outcome.ended == [None] * 3, outcome.ended
    state = outcome.state
    check(state)
    first = state.facts[0]
    opened = {made.name for _, made in state.ghost.openings}
    for facts in state.facts:
        assert {name for _, _, name in facts["charges"]} == opened, "charged, and never opened"
        for what in ("charges", "measured", "chosen", "inputs"):
            assert facts[what] == first[what], what
    plan = study(state.rounds, state.schedule).plan
    due = Counter(
        (number, step)
        for number in range(state.rounds + 1)
        for step in (["measure"] * len(plan.events(0)) if number == 0 else ["select", "measure"])
    )
    if state.schedule == "fixed":
        assert Counter((n, step) for n, step, _ in first["charges"]) == due


def crashes(
    state: State, lie: Lie | None = None, paces: Sequence[Pace] = EVERY_PACE
) -> Iterator[State]:
    """The states that any crash of one server leads to, at each pace of the others."""
    for pid, quick in paces:
        yield from _after_crash(World(state, lie), Crash(pid, NEVER, quick))


def _after_crash(world: "World", crash: Crash) -> list[State]:
    found: list[State] = []
    world.go(crash, lambda: found.append(world.reached()))
    world.outcome()
    return found
