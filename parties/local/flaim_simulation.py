"""FLAIM with all its clients in this process: for experiments, and as the reference of the deployed one.

``simulate`` encodes and decodes every brief, choice and layout as on the wire. With ``secagg`` every sum is a session
of the real state machines on packed messages; without it sums are additions, which release the same numbers.

Secret: the tables, which this process holds. Known limits: times are of one process and one thread, with the clients
one after the other; bytes are those of the messages, without frames and TLS; with ``secagg`` False sums have no bytes.
"""

import hashlib
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, LedgerEntry, Schedule
from mechanisms.descent import OnIteration, Target
from mechanisms.flaim import (
    FlaimResult,
    FlaimRound,
    Participant,
    SumRequest,
    Sums,
    run_flaim,
)
from mechanisms.flaim_client import FlaimClient, true_answers
from mechanisms.flaim_messages import Brief, Layout, decode_choices, encode_choices
from mechanisms.flaim_participants import draw_round
from mechanisms.flaim_settings import FlaimSettings, SumNoise
from mechanisms.model import Model
from mechanisms.pair_choice import flaim_estimator
from mechanisms.pgm import FederatedEstimator
from mechanisms.sampling import RandomBytes
from mechanisms.workload import Workload
from parties.config import FlaimSection
from parties.methods.flaim.settings import layout_sum, secagg_noise, smallest_sum
from parties.methods.flaim.transcript_schema import AGGREGATE, CHOOSE
from protocols.sealing import OVERHEAD_BYTES, PUBLIC_BYTES
from secagg import Parameters, Stage, ThreatModel, run_round
from secagg.errors import ParameterError, RoundAborted
from secagg.keys import Identity
from secagg.noise import NoiseKind, discrete_gaussian

RandomStreams = Callable[..., RandomBytes]


@dataclass(frozen=True, slots=True)
class ClientRoundTraffic:
    """Bytes of one participant in one round. ``secagg`` is the part of SecAgg's messages, in both directions."""

    round: int
    client: int
    sent: int
    received: int
    secagg: int


@dataclass(frozen=True, slots=True, eq=False)
class FlaimOutcome:
    """A finished simulation. ``seconds`` by phase: choose, aggregate, estimate, and total.

    ``single_choosers`` of ``result`` counts the queries with one chooser.
    """

    model: Model
    result: FlaimResult
    ledger: tuple[LedgerEntry, ...]
    seconds: Mapping[str, float]
    traffic: tuple[ClientRoundTraffic, ...]

    @property
    def total(self) -> int:
        """Rows of all clients, declared or estimated."""
        return self.result.total


async def simulate(
    tables: Sequence[NDArray[np.int32]],
    workload: Workload,
    settings: FlaimSettings,
    *,
    secagg: bool = False,
    signed: bool = False,
    seed: int | None = None,
    threat: ThreatModel | None = None,
    drops: Mapping[tuple[int, int], Stage | None] | None = None,
    estimator: FederatedEstimator | None = None,
    first: Callable[[Schedule, Ledger], FlaimRound] | None = None,
    on_round: Callable[[FlaimRound], None] = lambda done: None,
    on_iteration: OnIteration = lambda done, of: None,
) -> FlaimOutcome:
    """Runs FLAIM on one table of codes (rows, columns) for each client.

    Args:
        signed: Sums as against a server that may do anything; ``settings`` have its corrupt clients.
        seed: None for the operating system's randomness; a number for repeatable experiments only.
        threat: Threat model of a sum's neighbour graph.
        drops: (round, client) is silent from that stage of the round's sums on; None: from before its choice.
        estimator: Replaces the estimator of the settings.
        first: Makes round 0 and charges it, in place of the clients; for a fixed number of rounds.
        on_iteration: Receives the progress of a model's fit.

    Raises ``FlaimError`` if a table does not fit, and as ``run_flaim``.
    """
    started = time.perf_counter()
    streams = _streams(seed)
    oracle = None
    if settings.tau == "oracle":
        oracle = true_answers(workload, np.concatenate(tables))
    clients = [
        FlaimClient(table, workload, settings, random_bytes=streams("client", k), oracle=oracle)
        for k, table in enumerate(tables)
    ]
    everybody = len(clients) if signed else None
    if estimator is None:
        estimator = flaim_estimator(workload, settings)
    world = _SimulatedFederation(
        clients,
        workload,
        settings,
        secagg,
        streams,
        _threat(threat, settings, everybody),
        drops or {},
        estimator,
        everybody,
    )
    world.estimator.on_iteration = on_iteration
    ledger = Ledger(settings.rho)
    schedule = settings.schedule(len(settings.common(workload)))
    history = [first(schedule, ledger)] if first else []
    result = await run_flaim(
        workload,
        settings,
        schedule,
        world,
        world,
        ledger,
        on_round=on_round,
        history=history,
    )
    seconds = {**world.seconds, "total": time.perf_counter() - started}
    traffic = (
        ClientRoundTraffic(round, client, counts[0], counts[1], counts[2])
        for (round, client), counts in sorted(world.traffic.items())
    )
    return FlaimOutcome(result.model, result, tuple(ledger.entries), seconds, tuple(traffic))


class _SimulatedFederation:
    """The clients as a ``mechanisms.flaim.Federation``, and the estimator with a clock."""

    def __init__(
        self,
        clients: Sequence[FlaimClient],
        workload: Workload,
        settings: FlaimSettings,
        secagg: bool,
        streams: RandomStreams,
        threat: ThreatModel,
        drops: Mapping[tuple[int, int], Stage | None],
        estimator: FederatedEstimator,
        everybody: int | None,
    ) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        # (round, client): bytes sent, received, and of secagg in both directions.
        self.traffic: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        self.population = tuple(Participant(k, c.declared_rows) for k, c in enumerate(clients))
        self._clients = clients
        self._workload = workload
        self._settings = settings
        self._secagg = secagg
        self._streams = streams
        self._drops = drops
        self.estimator = estimator
        self._everybody = everybody
        self._section = FlaimSection(
            grouping=settings.grouping,
            noise=settings.noise,
            corrupt=threat.corrupt,
            dropouts=threat.dropouts,
            minimum=settings.min_participants,
        )
        self._members: tuple[int, ...] = ()
        self._taken: Counter[int] = Counter()

    async def begin_round(self, round: int) -> Sequence[int]:
        """See ``Federation.begin_round``."""
        everybody = [p.client for p in self.population]
        stream = self._streams("participants", round)
        self._members = draw_round(
            everybody, self._taken, self._settings, random_bytes=stream, number=round
        )
        self._taken.update(self._members)
        return self._members

    async def choices(self, brief: Brief) -> Mapping[int, tuple[int, ...]]:
        """See ``Federation.choices``."""
        with self._timed(CHOOSE):
            message = brief.encode()
            received = Brief.decode(message, self._workload)
            chosen = {}
            for k in self._members:
                if (brief.round, k) in self._drops and self._drops[brief.round, k] is None:
                    continue
                answer = encode_choices(brief.round, self._clients[k].choose(received))
                sealed, asked = len(answer) + OVERHEAD_BYTES, len(message) + PUBLIC_BYTES
                self._count(brief.round, k, sent=sealed, received=asked)
                chosen[k] = decode_choices(
                    answer, self._workload, round=brief.round, count=self._settings.chosen
                )
            return chosen

    async def aggregate(self, requests: Sequence[SumRequest]) -> Sequence[Sums | None]:
        """See ``Federation.aggregate``."""
        with self._timed(AGGREGATE):
            return [self._sum(request) for request in requests]

    async def estimate(
        self, targets: Sequence[tuple[int, Target]], *, spent: float, final: bool
    ) -> tuple[Model, NDArray[np.bool_]]:
        """See ``FlaimEstimator.estimate``."""
        with self._timed("estimate"):
            return await self.estimator.estimate(targets, spent=spent, final=final)

    def _sum(self, request: SumRequest) -> Sums | None:
        message = request.layout.encode()
        layout = Layout.decode(message, self._workload)
        counts: dict[int, NDArray[np.int64]] = {}
        for k in request.members:
            if self._stage(layout, k) is not None:
                self._count(layout.round, k, received=len(message))
                counts[k] = self._clients[k].count(layout)
        noise = self._settings.sum_noise(layout.sigma)
        if len(request.members) < smallest_sum(self._section, one_way=layout.one_way):
            return self._plain(layout, counts, noise)
        people = self._identities(request)
        try:
            parameters = layout_sum(
                self._section,
                self._workload,
                layout,
                noise,
                high=self._settings.max_client_rows,
                everybody=self._everybody,
            ).parameters(
                random_bytes=self._streams("session", layout.round, layout.group),
                roster=None if people is None else [one.public for one in people],
            )
        except ParameterError:
            return None
        if self._secagg:
            return self._by_secagg(parameters, request, counts, noise, people)
        survivors = [k for k in counts if self._survives(layout, k)]
        if len(survivors) < parameters.min_survivors:
            return None
        return self._by_addition(layout, {k: counts[k] for k in survivors}, noise)

    def _by_secagg(
        self,
        parameters: Parameters,
        request: SumRequest,
        counts: Mapping[int, NDArray[np.int64]],
        noise: SumNoise,
        people: Sequence[Identity] | None,
    ) -> Sums | None:
        layout, members = request.layout, request.members
        drops = {
            position: self._stage(layout, k) or Stage.ADVERTISE
            for position, k in enumerate(members)
            if (layout.round, k) in self._drops
        }
        nothing = np.zeros(parameters.length, np.int64)
        try:
            report = run_round(
                parameters,
                [counts.get(k, nothing) for k in members],
                drops=drops,
                identities=people,
                random_bytes=self._streams("secagg", layout.round, layout.group),
                server_random_bytes=self._streams("noise", layout.round, layout.group),
            )
        except RoundAborted:
            return None
        for position, k in enumerate(members):
            sent, received = report.sent_bytes[position], report.received_bytes[position]
            self._count(layout.round, k, sent=sent, received=received, secagg=sent + received)
        survivors = tuple(members[position] for position in sorted(report.server.survivors))
        return Sums(report.server.result, survivors, noise.deviation(len(survivors)))

    def _identities(self, request: SumRequest) -> list[Identity] | None:
        """Signing keys of the members of a sum; None in unsigned sessions."""
        if self._everybody is None:
            return None
        return [Identity(self._streams("identity", k)(32)) for k in request.members]

    def _by_addition(
        self, layout: Layout, counts: Mapping[int, NDArray[np.int64]], noise: SumNoise
    ) -> Sums:
        """SecAgg's result by addition. With the server's noise from the same random bytes the numbers are the same."""
        total = noise.scale * sum(counts.values(), np.zeros(layout.cells(self._workload), np.int64))
        kind = secagg_noise(noise)
        makers = [(k,) for k in counts] if kind.kind is NoiseKind.DISTRIBUTED else [()]
        for maker in makers:
            stream = self._streams("noise", layout.round, layout.group, *maker)
            total += discrete_gaussian(kind.variance, total.size, random_bytes=stream)
        return Sums(total / noise.scale, tuple(counts), noise.deviation(len(counts)))

    def _plain(
        self, layout: Layout, counts: Mapping[int, NDArray[np.int64]], noise: SumNoise
    ) -> Sums | None:
        """Sum of the plain counts of a query's one or two choosers, four bytes a cell in a sealed box."""
        survivors = {k: vector for k, vector in counts.items() if self._survives(layout, k)}
        if not survivors:
            return None
        for k, vector in survivors.items():
            sealed = 4 * vector.size + OVERHEAD_BYTES
            self._count(layout.round, k, sent=sealed, received=PUBLIC_BYTES)
        return self._by_addition(layout, survivors, noise)

    def _stage(self, layout: Layout, client: int) -> Stage | None:
        """The first stage at which a client is silent; None if it left before its choice."""
        return self._drops.get((layout.round, client), Stage.DONE)

    def _survives(self, layout: Layout, client: int) -> bool:
        stage = self._stage(layout, client)
        return stage is not None and stage > Stage.MASKED

    def _count(
        self, round: int, client: int, *, sent: int = 0, received: int = 0, secagg: int = 0
    ) -> None:
        counts = self.traffic[round, client]
        counts[0] += sent
        counts[1] += received
        counts[2] += secagg

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - started


def _threat(
    threat: ThreatModel | None, settings: FlaimSettings, everybody: int | None
) -> ThreatModel:
    """Returns the given threat, or one with the settings' corrupt clients.

    Raises ``ValueError`` if the two disagree.
    """
    if threat is None:
        share = settings.corrupt / (everybody or settings.min_participants)
        return ThreatModel(corrupt=share if settings.noise == "distributed" else 0.05)
    corrupt = threat.corrupt_clients(everybody or settings.min_participants)
    if settings.noise == "distributed" and corrupt != settings.corrupt:
        raise ValueError(
            f"corrupt = {settings.corrupt} of min_participants = {settings.min_participants}, but the threat's "
            f"fraction {threat.corrupt} makes {corrupt}"
        )
    return threat


def _streams(seed: int | None) -> RandomStreams:
    """Random bytes for each label: the operating system's, or a keystream from the seed and the label."""
    if seed is None:
        return lambda *label: secrets.token_bytes

    def stream(*label: object) -> RandomBytes:
        key = hashlib.sha256(repr((seed, label)).encode()).digest()
        encryptor = Cipher(AES(key), CTR(bytes(16))).encryptor()
        return lambda count: encryptor.update(bytes(count))

    return stream
