"""FLAIM's requests to connected clients: a `mechanisms.flaim.Federation` on secure sums, for the server's loop.

In ``NetworkFederation`` each sum is one of `parties.federation.secure_sum`, over the participants that a layout is for.
``take_concurrently`` orders a round's sums: sums with no client in common run at the same time, so that a silent client
delays no other sum. Choices, and the counts of too few clients for a sum, come in sealed answers.

Secret: with ``noise = "server"`` this process sees each sum before its noise, and so the counts of a query's only
chooser, whatever the grouping, since it knows that the others' part is zeros. With ``noise = "distributed"`` it sees no
sum without noise. Public: the returned sums.
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import FlaimError, RoundLost
from mechanisms.flaim import Participant, SumRequest, Sums
from mechanisms.flaim_messages import Brief, Layout, decode_choices
from mechanisms.flaim_participants import draw_round
from mechanisms.flaim_settings import FlaimSettings, SumNoise
from mechanisms.workload import Workload
from parties.federation.members import ClientExchange
from parties.federation.messages import (
    HEADER_BYTES,
    FederationMessage,
    MessageKind,
    open_answer,
    pack_sealed_request,
    pack_task,
    unpack_plain,
)
from parties.federation.secure_sum import SecureSums
from parties.foundation.errors import FederationProtocolError
from parties.methods.flaim.settings import flaim_section, flaim_sum, secagg_noise, smallest_sum
from parties.methods.flaim.transcript_schema import AGGREGATE, CHOICES, CHOOSE, ROUND, SUMS
from parties.session.study import Study
from protocols.sealing import OVERHEAD_BYTES as BOX_BYTES
from protocols.sealing import BoxKey
from secagg.errors import ParameterError, RoundAborted
from secagg.noise import discrete_gaussian

_T = TypeVar("_T")
CONCURRENT_SUMS = 8
"""Maximum number of concurrent sums of one round; each holds a session's vectors and messages in memory."""


class NetworkFederation:
    """FLAIM's sums of a run."""

    def __init__(
        self,
        sums: SecureSums,
        workload: Workload,
        settings: FlaimSettings,
        known: Sequence[Participant] = (),
        taken: Iterable[int] = (),
        *,
        request: Callable[[int, Sequence[int]], object] = lambda number, participants: None,
    ) -> None:
        """Prepares the sums of an attempt.

        Args:
            known: Clients of earlier attempts.
            taken: Participants of the rounds of earlier attempts, one after the other.
            request: Called before the first request of a round, with its number and participants.
        """
        self._sums = sums
        self._workload = workload
        self._settings = settings
        self._section = flaim_section(sums.config)
        self._round = 0
        self._participants: tuple[int, ...] = ()
        # Sealing key of the answers outside SecAgg; it lives as long as this process.
        self._key = BoxKey.generate()
        self._known = {participant.client: participant for participant in known}
        self._taken = Counter(taken)
        self._request = request
        self._requested = False

    @property
    def population(self) -> Sequence[Participant]:
        """All clients that were ever connected; see ``Federation``."""
        for number, member in self._sums.members.present.items():
            self._known[number] = Participant(number, member.rows)
        return [self._known[number] for number in sorted(self._known)]

    async def begin_round(self, round: int) -> Sequence[int]:
        """Draws the round's participants among the connected clients, once there are enough; see ``Federation``."""
        await self._sums.wait(round)
        present = sorted(self._sums.members.present)
        self._round, self._participants, self._requested = round, (), False
        drawn = draw_round(
            present, self._taken, self._settings, random_bytes=secrets.token_bytes, number=round
        )
        self._participants = drawn
        self._taken.update(drawn)
        self._sums.record.transcript.note(
            ROUND, round=round, clients=len(drawn), present=len(present)
        )
        self._sums.begin_round(round, drawn)
        return self._participants

    async def choices(self, brief: Brief) -> Mapping[int, tuple[int, ...]]:
        """Asks the participants for their choices; see ``Federation``."""
        self._request_round()
        body = pack_sealed_request(self._key.public, brief.encode())
        message = FederationMessage(MessageKind.BRIEF, brief.round, body).pack()
        chosen_by: dict[int, tuple[int, ...]] = {}
        with (
            self._sums.record.step(CHOOSE, brief.round),
            self._sums.exchange(self._participants) as exchange,
        ):
            for position in exchange.present:
                exchange.post(position, message)
            async for position, data in self._sums.answers(exchange, "choices"):
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
                    self._sums.expel(exchange, position, error)
                    continue
                chosen_by[exchange.numbers[position]] = chosen
        self._participants = tuple(number for number in self._participants if number in chosen_by)
        self._sums.record.opened_value(
            brief.round,
            CHOOSE,
            CHOICES,
            count=sum(map(len, chosen_by.values())),
            value=b"".join(
                _choice_record(number, chosen_by[number]) for number in sorted(chosen_by)
            ),
        )
        return chosen_by

    async def aggregate(self, requests: Sequence[SumRequest]) -> Sequence[Sums | None]:
        """Takes the sums, concurrently if they have no client in common; see ``Federation``."""
        self._request_round()
        openings: dict[int, _OpenedSum | None] = {}
        written = 0
        with self._sums.record.step(AGGREGATE, self._round):
            async with contextlib.aclosing(take_concurrently(requests, self._sum)) as ending:
                async for number, opened in ending:
                    openings[number] = opened
                    # The transcript has the openings in the order of the requests, not of completion.
                    while written in openings:
                        if (earlier := openings[written]) is not None:
                            self._sums.record.opening(self._round, AGGREGATE, SUMS, earlier.scaled)
                        written += 1
        return [None if opened is None else opened.sums for _, opened in sorted(openings.items())]

    def _request_round(self) -> None:
        """Has the round entered before its first request."""
        if not self._requested:
            self._request(self._round, self._participants)
            self._requested = True

    async def _sum(self, request: SumRequest) -> "_OpenedSum | None":
        layout = request.layout
        noise = self._settings.sum_noise(layout.sigma)
        with self._sums.exchange(request.members) as exchange:
            try:
                if len(request.members) < smallest_sum(self._section, one_way=layout.one_way):
                    return await self._plain(exchange, request, noise)
                return await self._by_secagg(exchange, layout, noise)
            except (RoundAborted, ParameterError, RoundLost) as error:
                self._sums.give_up(exchange, str(error))
                return None

    async def _by_secagg(
        self, exchange: ClientExchange, layout: Layout, noise: SumNoise
    ) -> "_OpenedSum":
        """Runs one SecAgg session. Raises RoundAborted, ParameterError."""
        spec = flaim_sum(Study(self._sums.config, self._workload), layout, noise)
        server = await self._sums.take(
            exchange, spec, kind=MessageKind.LAYOUT, body=layout.encode()
        )
        survivors = tuple(exchange.numbers[position] for position in sorted(server.survivors))
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
        high = self._sums.config.clients.rows_per_client
        async for position, data in self._sums.answers(exchange, "counts"):
            name = exchange.name(position)
            try:
                body = self._open_sealed(data, MessageKind.PLAIN, layout.round, name)
                total += unpack_plain(body, cells, high, name)
            except FederationProtocolError as error:
                self._sums.expel(exchange, position, error)
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
        self._sums.tally.plain += 1
        self._sums.tally.plain_contributors += len(survivors)
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
