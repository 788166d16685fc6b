"""FLAIM's sums over connected clients: a `mechanisms.flaim.Federation` of `ConnectedClients`, for the server's loop.

In ``NetworkFederation`` each sum is a SecAgg session of its own among the requested participants, with fresh keys, over
the clients' existing connections. ``take_concurrently`` orders a round's sums: sums with no client in common run at the
same time, so that a silent client delays no other sum. A client that leaves, misses a deadline or breaks the protocol
has dropped out of the round without further waiting. A sum with too few survivors is given up: nothing of it is
revealed, and its charge stays spent.

Secret: with ``noise = "server"`` this process sees each sum before its noise, and so the counts of a query's only
chooser, whatever the grouping, since it knows that the others' part is zeros. With ``noise = "distributed"`` it sees no
sum without noise. Public: the returned sums.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import FlaimError, RoundLost
from mechanisms.flaim import Participant, SumRequest, Sums, draw_participants
from mechanisms.flaim_messages import Brief, decode_choices
from mechanisms.flaim_settings import FlaimSettings, SumNoise
from mechanisms.workload import Workload
from parties.config import Config
from parties.federation import transcript_schema
from parties.federation.flaim_parameters import (
    flaim_section,
    flaim_session_parameters,
    secagg_noise,
    smallest_sum,
)
from parties.federation.key_directory import session_id
from parties.federation.members import ClientExchange, ConnectedClients
from parties.federation.messages import (
    HEADER_BYTES,
    FederationMessage,
    MessageKind,
    open_answer,
    pack_reason,
    pack_sealed_request,
    pack_task,
    unpack_plain,
)
from parties.federation.secagg_server import run_secagg_session
from parties.federation.secure_sum import SumChannel, give_up_reason
from parties.federation.transcript import FederationTranscript
from parties.federation.transcript_schema import AGGREGATE, CHOOSE
from parties.foundation.errors import FederationProtocolError, FrameTimeout
from parties.session.study import Study
from protocols.sealing import OVERHEAD_BYTES as BOX_BYTES
from protocols.sealing import BoxKey
from secagg import SecAggServer, wire
from secagg.errors import ParameterError, RoundAborted
from secagg.noise import discrete_gaussian

_T = TypeVar("_T")
CONCURRENT_SUMS = 8
"""Maximum number of concurrent sums of one round; each holds a session's vectors and messages in memory."""


@dataclass(slots=True)
class FlaimSumTally:
    """Counts of a run's sums (by SecAgg, plain from one or two choosers, given up) and of dropouts."""

    secagg: int = 0
    plain: int = 0
    plain_contributors: int = 0
    given_up: int = 0
    dropouts: int = 0
    least_survivors: int | None = None
    reasons: list[str] = field(default_factory=list)


class NetworkFederation:
    """FLAIM's sums of a run. ``tally`` has the report's counts of sums."""

    def __init__(
        self,
        config: Config,
        workload: Workload,
        settings: FlaimSettings,
        members: ConnectedClients,
        record: FederationTranscript,
        *,
        wait: Callable[[int], Awaitable[None]],
        known: Sequence[Participant] = (),
    ) -> None:
        """Prepares the sums of an attempt.

        ``wait`` is `Attendance.round`; ``known`` are participants of earlier attempts.
        """
        self.tally = FlaimSumTally()
        self._config = config
        self._workload = workload
        self._settings = settings
        self._section = flaim_section(config)
        self._members = members
        self._record = record
        self._stage_s = config.timeouts.receive_s
        self._round = 0
        self._participants: tuple[int, ...] = ()
        # Certificates of the round's participants, by number.
        self._certificates: dict[int, bytes] = {}
        self._dropped: set[int] = set()
        self._wait = wait
        # Sealing key of the answers outside SecAgg; it lives as long as this process.
        self._key = BoxKey.generate()
        self._known = {participant.client: participant for participant in known}

    @property
    def population(self) -> Sequence[Participant]:
        """All clients that were ever connected; see ``Federation``."""
        for number, member in self._members.present.items():
            self._known[number] = Participant(number, member.rows)
        return [self._known[number] for number in sorted(self._known)]

    async def begin_round(self, round: int) -> Sequence[int]:
        """Draws the round's participants among the connected clients, once there are enough; see ``Federation``."""
        await self._wait(round)
        present = sorted(self._members.present)
        self._round, self._participants = round, ()
        self._certificates, self._dropped = {}, set()
        drawn = draw_participants(present, self._settings, secrets.token_bytes)
        self._participants = tuple(drawn)
        self._record.transcript.note(
            transcript_schema.ROUND, round=round, clients=len(drawn), present=len(present)
        )
        for number in drawn:
            self._certificates[number] = self._members.present[number].certificate
            self._record.participation(number, round, certificate=self._certificates[number])
        return self._participants

    async def choices(self, brief: Brief) -> Mapping[int, tuple[int, ...]]:
        """Asks the participants for their choices; see ``Federation``."""
        body = pack_sealed_request(self._key.public, brief.encode())
        message = FederationMessage(MessageKind.BRIEF, brief.round, body).pack()
        chosen_by: dict[int, tuple[int, ...]] = {}
        with (
            self._record.step(CHOOSE, brief.round),
            self._members.exchange(self._participants, round=brief.round) as exchange,
        ):
            for position in exchange.present:
                exchange.post(position, message)
            async for position, data in self._answers(exchange, exchange.present, "choices"):
                try:
                    body = self._open_sealed(
                        data, MessageKind.CHOICES, brief.round, exchange.name(position)
                    )
                    chosen = decode_choices(
                        body, self._workload, round=brief.round, count=self._settings.chosen
                    )
                    if not all(brief.allowed[i] for i in chosen):
                        raise FlaimError("a candidate was chosen that the brief does not allow")
                except (FlaimError, FederationProtocolError) as error:
                    self._expel(exchange, position, error)
                    continue
                chosen_by[exchange.numbers[position]] = chosen
        self._participants = tuple(number for number in self._participants if number in chosen_by)
        self._record.choices(
            brief.round,
            sum(map(len, chosen_by.values())),
            b"".join(_choice_record(number, chosen_by[number]) for number in sorted(chosen_by)),
        )
        return chosen_by

    async def aggregate(self, requests: Sequence[SumRequest]) -> Sequence[Sums | None]:
        """Takes the sums, concurrently if they have no client in common; see ``Federation``."""
        openings: dict[int, _OpenedSum | None] = {}
        written = 0
        with self._record.step(AGGREGATE, self._round):
            async with contextlib.aclosing(take_concurrently(requests, self._sum)) as ending:
                async for number, opened in ending:
                    openings[number] = opened
                    # The transcript has the openings in the order of the requests, not of completion.
                    while written in openings:
                        if (earlier := openings[written]) is not None:
                            self._record.sums(self._round, earlier.scaled)
                        written += 1
        return [None if opened is None else opened.sums for _, opened in sorted(openings.items())]

    async def _sum(self, request: SumRequest) -> "_OpenedSum | None":
        layout = request.layout
        noise = self._settings.sum_noise(layout.sigma)
        with self._members.exchange(request.members, round=layout.round) as exchange:
            # Clients may have left after their choice, while others were still choosing.
            for position in sorted(set(range(len(exchange.numbers))) - set(exchange.present)):
                if exchange.numbers[position] not in self._dropped:
                    self.dropped(exchange, position, "the connection was lost")
            try:
                if len(request.members) < smallest_sum(self._section, one_way=layout.one_way):
                    return await self._plain(exchange, request, noise)
                return await self._by_secagg(exchange, request, noise)
            except (RoundAborted, ParameterError, RoundLost) as error:
                self._give_up(exchange, request, str(error))
                return None

    async def _by_secagg(
        self, exchange: ClientExchange, request: SumRequest, noise: SumNoise
    ) -> "_OpenedSum":
        """Runs one SecAgg session. Raises RoundAborted, ParameterError."""
        layout, known = request.layout, self._members.roster
        roster = None if known is None else known.identities(request.members)
        parameters = flaim_session_parameters(
            Study(self._config, self._workload),
            layout,
            noise,
            random_bytes=secrets.token_bytes,
            session_id=None
            if roster is None
            else session_id(self._config, layout.encode(), roster),
            roster=roster,
        )
        body = layout.encode()
        for position in exchange.present:
            if roster is not None:
                exchange.send_roster(position)
            task = FederationMessage(MessageKind.LAYOUT, layout.round, pack_task(position, body))
            exchange.post(position, task.pack())
        exchange.allow(wire.max_body(parameters) + wire.OVERHEAD_BYTES)
        server = SecAggServer(parameters, roster=roster)
        channel = SumChannel(exchange, self.dropped)
        await run_secagg_session(server, channel, present=exchange.present, stage_s=self._stage_s)
        survivors = tuple(exchange.numbers[position] for position in sorted(server.survivors))
        self.tally.secagg += 1
        least = self.tally.least_survivors
        self.tally.least_survivors = min(least or len(survivors), len(survivors))
        sums = Sums(server.result, survivors, noise.deviation(len(survivors)))
        return _OpenedSum(sums, server.scaled_result)

    async def _plain(
        self, exchange: ClientExchange, request: SumRequest, noise: SumNoise
    ) -> "_OpenedSum":
        """Sums plain counts of too few clients for SecAgg and adds this server's noise.

        Raises RoundLost if there are none.
        """
        layout, cells = request.layout, request.layout.cells(self._workload)
        if self._section.grouping != "query" or layout.one_way or noise.variance:
            raise RoundLost(f"{len(request.members)} clients for a sum are too few")
        asked = pack_task(None, pack_sealed_request(self._key.public, layout.encode()))
        message = FederationMessage(MessageKind.LAYOUT, layout.round, asked).pack()
        exchange.allow(HEADER_BYTES + BOX_BYTES + 4 * cells)
        for position in exchange.present:
            exchange.post(position, message)
        total: NDArray[np.int64] = np.zeros(cells, np.int64)
        survivors: list[int] = []
        high = self._config.clients.rows_per_client
        async for position, data in self._answers(exchange, exchange.present, "counts"):
            name = exchange.name(position)
            try:
                body = self._open_sealed(data, MessageKind.PLAIN, layout.round, name)
                total += unpack_plain(body, cells, high, name)
            except FederationProtocolError as error:
                self._expel(exchange, position, error)
                continue
            survivors.append(exchange.numbers[position])
        if not survivors:
            raise RoundLost("nobody answered")
        # A large query's noise takes time; a thread samples it while other sums go on.
        total += await asyncio.to_thread(
            discrete_gaussian,
            secagg_noise(noise).variance,
            cells,
            random_bytes=secrets.token_bytes,
        )
        self.tally.plain += 1
        self.tally.plain_contributors += len(survivors)
        counts = total.astype(np.float64)
        sums = Sums(counts, tuple(sorted(survivors)), noise.deviation(len(survivors)))
        return _OpenedSum(sums, total)

    def _open_sealed(self, data: bytes, kind: MessageKind, round: int, name: str) -> bytes:
        """Returns the sealed content of a message of ``kind`` and ``round``.

        Raises FederationProtocolError for others.
        """
        message = FederationMessage.unpack(data, name)
        if message.kind is not kind or message.round != round:
            raise FederationProtocolError(
                name,
                f"sent {message.kind.name} of round {message.round}; expected {kind.name} of {round}",
            )
        return open_answer(self._key, message, name)

    async def _answers(
        self, exchange: ClientExchange, positions: Sequence[int], what: str
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Yields (position, message) of each answer within the stage's deadline, and expels the other clients."""
        waiting, ends = set(positions), time.monotonic() + self._stage_s
        while waiting:
            try:
                async with asyncio.timeout(max(0.0, ends - time.monotonic())):
                    position, data = await exchange.receive()
            except TimeoutError:
                for position in sorted(waiting):
                    late = f"sent no {what} within {self._stage_s:g} s"
                    self._expel(exchange, position, FrameTimeout(exchange.name(position), late))
                return
            if position not in waiting:
                if data is not None:
                    error = FederationProtocolError(exchange.name(position), "answered twice")
                    self._expel(exchange, position, error)
                continue
            waiting.discard(position)
            if data is None:
                self.dropped(exchange, position, "the connection was lost")
            elif reason := give_up_reason(data, exchange.name(position)):
                self.dropped(exchange, position, reason)
            else:
                yield position, data

    def _expel(self, exchange: ClientExchange, position: int, error: Exception) -> None:
        """Disconnects a client that broke the protocol or a deadline."""
        self.dropped(exchange, position, str(error))
        exchange.expel(position, error)

    def dropped(self, exchange: ClientExchange, position: int, reason: str) -> None:
        """Records that a participant has dropped out of the round."""
        number = exchange.numbers[position]
        self.tally.dropouts += 1
        self._dropped.add(number)
        self._record.participation(
            number,
            self._round,
            certificate=self._certificates[number],
            reason=reason or "gave up",
        )

    def _give_up(self, exchange: ClientExchange, request: SumRequest, reason: str) -> None:
        self.tally.given_up += 1
        text = f"round {request.layout.round}: {reason}"
        self.tally.reasons.append(text)
        self._record.transcript.note(
            transcript_schema.ABORTED, round=request.layout.round, reason=reason
        )
        skipped = FederationMessage(
            MessageKind.SKIPPED, request.layout.round, pack_reason(reason)
        ).pack()
        for position in exchange.present:
            exchange.post(position, skipped)


@dataclass(frozen=True, slots=True, eq=False)
class _OpenedSum:
    """A noisy sum, and the opened integers (cells,) for the transcript."""

    sums: Sums
    scaled: NDArray[np.int64]


async def take_concurrently(
    requests: Sequence[SumRequest], take: Callable[[SumRequest], Coroutine[None, None, _T]]
) -> AsyncGenerator[tuple[int, _T], None]:
    """Yields (position, result of ``take``) of each request on completion.

    A client's own sums keep the order of the requests.
    """
    waiting = list(range(len(requests)))
    running: dict[asyncio.Task[_T], int] = {}
    try:
        while waiting or running:
            taken = {client for number in running.values() for client in requests[number].members}
            for number in tuple(waiting):
                if len(running) < CONCURRENT_SUMS and taken.isdisjoint(requests[number].members):
                    waiting.remove(number)
                    running[asyncio.create_task(take(requests[number]))] = number
                # A waiting request reserves its clients, so that no later request overtakes it.
                taken.update(requests[number].members)
            ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                yield running.pop(task), task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _choice_record(number: int, chosen: tuple[int, ...]) -> bytes:
    """Returns a client's choices for the transcript: its number 4 | count 2 | candidates 2 each, big-endian."""
    head = number.to_bytes(4, "big") + len(chosen).to_bytes(2, "big")
    return head + np.array(chosen, ">u2").tobytes()
