"""Secure sums over connected participants, for the server of any method.

In ``SecureSums`` each sum is a SecAgg session of its own among the requested participants, with fresh keys, over their
existing connections. A participant that leaves, misses a deadline or breaks the protocol has dropped out of the round
without further waiting, and may be in the next one. A sum with too few survivors is given up: nothing of it is
revealed, and its charge stays spent. Before anything is opened the statements of those that have sent anything of their
tables are kept (`parties.federation.release_statements`). ``SumChannel`` is the `secagg.server.Channel` of a sum.

Secret: with noise by the server this process sees each sum before its noise. Public: the sums with their noise.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from parties.config import Config
from parties.federation import transcript_schema
from parties.federation.costs import SumShape, sum_received_bytes, sum_sent_bytes
from parties.federation.key_directory import session_id
from parties.federation.members import ClientExchange, ConnectedClients
from parties.federation.messages import (
    FederationMessage,
    MessageKind,
    is_secagg_message,
    pack_reason,
    pack_task,
    unpack_reason,
)
from parties.federation.participant_charge import state_before
from parties.federation.secagg_server import run_secagg_session
from parties.federation.sum_parameters import SumSpec
from parties.federation.transcript import FederationTranscript
from parties.foundation.errors import FederationProtocolError, FrameTimeout
from parties.storage.charge_state import ChargeState
from secagg import SecAggServer, wire


class SumChannel:
    """An exchange as a `secagg.server.Channel`: participants may give up, and dropouts are reported."""

    def __init__(
        self,
        exchange: ClientExchange,
        dropped: Callable[[ClientExchange, int, str], None],
        received: Callable[[int, bytes], None] = lambda client, data: None,
    ) -> None:
        """``dropped`` is called once for each participant that has dropped out, with its id and the reason.

        ``received`` is called with each message of a participant and its id.
        """
        self._dropped = dropped
        self._received = received
        self._exchange = exchange
        self._dropped_ids: set[int] = set()

    def name(self, client: int) -> str:
        """See ``Channel``."""
        return self._exchange.name(client)

    def post(self, client: int, message: bytes) -> None:
        """See ``Channel``."""
        self._exchange.post(client, message)

    async def receive(self) -> tuple[int, bytes | None]:
        """See ``Channel``."""
        client, data = await self._exchange.receive()
        reason = "the connection was lost"
        if data is not None:
            reason = give_up_reason(data, self.name(client)) or ""
            if not reason:
                self._received(client, data)
                return client, data
        self._note_dropped(client, reason)
        return client, None

    def expel(self, client: int, error: Exception) -> None:
        """See ``Channel``."""
        self._note_dropped(client, str(error))
        self._exchange.expel(client, error)

    def _note_dropped(self, client: int, reason: str) -> None:
        if client not in self._dropped_ids:
            self._dropped_ids.add(client)
            self._dropped(self._exchange, client, reason)


def give_up_reason(data: bytes, name: str) -> str | None:
    """Returns the reason for giving up, if the message gives up a sum; None otherwise."""
    if is_secagg_message(data):
        return None
    with contextlib.suppress(FederationProtocolError):
        message = FederationMessage.unpack(data, name)
        if message.kind is MessageKind.OUT:
            return unpack_reason(message.body) or "gave up"
    return None


@dataclass(slots=True)
class SumTally:
    """Counts of a run's sums: by SecAgg, of earlier attempts, plain from too few for SecAgg, given up; and dropouts.

    ``formula_sent`` and ``formula_received`` are the bytes, by formula, of a participant in all sums by SecAgg.
    """

    taken: int = 0
    before: int = 0
    plain: int = 0
    plain_contributors: int = 0
    given_up: int = 0
    dropouts: int = 0
    values: int = 0
    least_survivors: int | None = None
    formula_sent: int = 0
    formula_received: int = 0
    reasons: list[str] = field(default_factory=list)

    def counts(self, *names: str) -> dict[str, object]:
        """Returns the counts of these names as a JSON object."""
        return {name: getattr(self, name) for name in names}


class SecureSums:
    """Sums of one attempt at a run, round by round.

    ``tally`` has the report's counts of sums. ``opened`` is true once a participant has sent an answer that the server
    can read, or its part in unmasking a sum.
    """

    def __init__(
        self,
        config: Config,
        members: ConnectedClients,
        record: FederationTranscript,
        *,
        wait: Callable[[int], Awaitable[None]],
        keep: Callable[[Collection[tuple[bytes, str]]], None] = lambda said: None,
    ) -> None:
        """Prepares the sums of an attempt.

        Args:
            wait: Waits for enough participants before a round.
            keep: Keeps certificates and statements of participants, durably, before anything of theirs is opened.
        """
        self.tally = SumTally()
        self.opened = False
        self.config = config
        self.members = members
        self.record = record
        self.wait = wait
        self._stage_s = config.timeouts.receive_s
        self._turn = config.require_federation().TURN
        self._round = 0
        # Certificates of the round's participants, by number.
        self._certificates: dict[int, bytes] = {}
        self._dropped: set[int] = set()
        self._keep = keep
        # Certificates and statements of those that have sent anything of their tables.
        self._sent: set[tuple[bytes, str]] = set()

    def begin_round(self, round: int, numbers: Sequence[int]) -> None:
        """Records that the connected participants ``numbers`` take part in ``round``."""
        present = self.members.present
        self._round, self._dropped = round, set()
        self._certificates = {number: present[number].certificate for number in numbers}
        for number, certificate in self._certificates.items():
            self.record.participation(number, round, certificate=certificate)

    @contextlib.contextmanager
    def exchange(self, numbers: Sequence[int]) -> Iterator[ClientExchange]:
        """Opens an exchange of the round with the participants ``numbers``; those that have left drop out."""
        with self.members.exchange(numbers, round=self._round) as exchange:
            for position in sorted(set(range(len(exchange.numbers))) - set(exchange.present)):
                if exchange.numbers[position] not in self._dropped:
                    self.dropped(exchange, position, "the connection was lost")
            yield exchange

    async def take(
        self, exchange: ClientExchange, spec: SumSpec, *, kind: MessageKind, body: bytes
    ) -> SecAggServer:
        """Takes a sum over the participants of ``exchange`` by one SecAgg session, asked for by ``kind`` with ``body``.

        Raises RoundAborted, ParameterError.
        """
        known = self.members.roster
        roster = None if known is None else known.identities(exchange.numbers)
        parameters = spec.parameters(
            random_bytes=secrets.token_bytes,
            session=None if roster is None else session_id(self.config, body, roster),
            roster=roster,
        )
        for position in exchange.present:
            if roster is not None:
                exchange.send_roster(position)
            task = FederationMessage(kind, self._round, pack_task(position, body))
            exchange.post(position, task.pack())
        exchange.allow(wire.max_body(parameters) + wire.OVERHEAD_BYTES)
        server = SecAggServer(parameters, roster=roster)
        channel = SumChannel(exchange, self.dropped, partial(self._received, exchange))
        await run_secagg_session(server, channel, present=exchange.present, stage_s=self._stage_s)
        tally, survivors = self.tally, len(server.survivors)
        shape = SumShape.of(parameters, len(body))
        tally.taken += 1
        tally.values += spec.length
        tally.least_survivors = min(tally.least_survivors or survivors, survivors)
        tally.formula_sent += sum_sent_bytes(shape)
        tally.formula_received += sum_received_bytes(shape)
        return server

    async def answers(
        self, exchange: ClientExchange, what: str
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Yields (position, message) of each answer within a stage's deadline, and expels the other participants."""
        waiting, ends = set(exchange.present), time.monotonic() + self._stage_s
        while waiting:
            try:
                async with asyncio.timeout(max(0.0, ends - time.monotonic())):
                    position, data = await exchange.receive()
            except TimeoutError:
                for position in sorted(waiting):
                    late = f"sent no {what} within {self._stage_s:g} s"
                    self.expel(exchange, position, FrameTimeout(exchange.name(position), late))
                waiting.clear()
                continue
            if position not in waiting:
                if data is not None:
                    error = FederationProtocolError(exchange.name(position), "answered twice")
                    self.expel(exchange, position, error)
                continue
            waiting.discard(position)
            if data is None:
                self.dropped(exchange, position, "the connection was lost")
            elif reason := give_up_reason(data, exchange.name(position)):
                self.dropped(exchange, position, reason)
            else:
                self._note_sent(exchange, position, data)
                yield position, data
        self._keep(self._sent)

    def _received(self, exchange: ClientExchange, position: int, data: bytes) -> None:
        """Handles a message of a sum; the statements are kept before the first one that unmasks it."""
        if self._note_sent(exchange, position, data):
            self._keep(self._sent)

    def _note_sent(self, exchange: ClientExchange, position: int, data: bytes) -> bool:
        """Notes a message of a participant; returns true if an opening cannot be ruled out after it."""
        state = state_before(data)
        if state is not None and (said := exchange.statement(position)) is not None:
            self._sent.add(said)
        released = state is ChargeState.RELEASED
        self.opened = self.opened or released
        return released

    def expel(self, exchange: ClientExchange, position: int, error: Exception) -> None:
        """Disconnects a participant that broke the protocol or a deadline."""
        self.dropped(exchange, position, str(error))
        exchange.expel(position, error)

    def dropped(self, exchange: ClientExchange, position: int, reason: str) -> None:
        """Records that a participant has dropped out of the round."""
        number = exchange.numbers[position]
        self.tally.dropouts += 1
        self._dropped.add(number)
        self.record.participation(
            number,
            self._round,
            certificate=self._certificates[number],
            reason=reason or "gave up",
        )

    def give_up(self, exchange: ClientExchange, reason: str) -> None:
        """Records that a sum of the round is given up, and tells its participants."""
        self.tally.given_up += 1
        self.tally.reasons.append(f"{self._turn} {self._round}: {reason}")
        self.record.transcript.note(transcript_schema.ABORTED, round=self._round, reason=reason)
        skipped = FederationMessage(MessageKind.SKIPPED, self._round, pack_reason(reason)).pack()
        for position in exchange.present:
            exchange.post(position, skipped)
