"""Secure sums over connected participants: `mechanisms.silos.Silos` on `ConnectedClients`, for the server's algorithm.

In ``NetworkSilos`` each sum is a SecAgg session of its own among all connected participants, with fresh keys, over
their existing connections. A participant that leaves, misses a deadline or breaks the protocol has dropped out of the
sum without further waiting, and may be in the next one. A sum with too few survivors is given up: nothing of it is
revealed, and its charge stays spent. Sums of an earlier attempt are not taken again (`parties.federation.journal`).
``SumChannel`` is the `secagg.server.Channel` of a sum, for FLAIM and for silos.

Secret: with noise by the server this process sees each sum before its noise. Public: the returned sums.
"""

import contextlib
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mechanisms.accounting import Ledger
from mechanisms.errors import RoundLost
from mechanisms.silos import MAX_PAYLOAD_BYTES, Request, Sum
from parties.config import Config
from parties.federation import sums_schema
from parties.federation.costs import SumShape, silo_received_bytes, silo_sent_bytes
from parties.federation.journal import SumJournal, SumTask, request_head
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
from parties.federation.secagg_server import run_secagg_session
from parties.federation.sum_parameters import silo_session_parameters
from parties.federation.sums_schema import FINISH, SILO_OPENED_SUM, SUM
from parties.federation.transcript import FederationTranscript
from parties.foundation.errors import FederationProtocolError
from protocols.transcript import round_ended
from secagg import SecAggServer, wire
from secagg.errors import ParameterError, RoundAborted


class SumChannel:
    """An exchange as a `secagg.server.Channel`: participants may give up, and dropouts are reported."""

    def __init__(
        self, exchange: ClientExchange, dropped: Callable[[ClientExchange, int, str], None]
    ) -> None:
        """``dropped`` is called once for each participant that has dropped out, with its id and the reason."""
        self._dropped = dropped
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
class SiloSumTally:
    """Counts of a run's sums, and the bytes, by formula, of a participant that was in all of them."""

    taken: int = 0
    before: int = 0
    given_up: int = 0
    dropouts: int = 0
    values: int = 0
    least_survivors: int | None = None
    formula_sent: int = 0
    formula_received: int = 0
    reasons: list[str] = field(default_factory=list)


class NetworkSilos:
    """Secure sums of a run. ``tally`` has the report's counts of sums."""

    def __init__(
        self,
        config: Config,
        members: ConnectedClients,
        record: FederationTranscript,
        ledger: Ledger,
        history: SumJournal,
        *,
        wait: Callable[[int], Awaitable[None]],
        release: Callable[[], object] = lambda: None,
        done: Callable[[int, Request], None] = lambda number, request: None,
    ) -> None:
        """Prepares the sums of an attempt at the run.

        Args:
            wait: Waits for enough participants before a sum.
            release: Called before the first request of a sum.
            done: Called after a sum.
        """
        self.tally = SiloSumTally()
        self._config = config
        self._members = members
        self._record = record
        self._ledger = ledger
        self._history = history
        self._stage_s = config.timeouts.receive_s
        self._wait = wait
        self._release = release
        self._done = done
        self._number = 0
        self._before = history.asked

    @property
    def count(self) -> int:
        """See ``Silos``."""
        return len(self._members.names)

    async def sum(self, request: Request) -> Sum:
        """See ``Silos``. Raises BudgetExceeded, TooFewClients and StoreError besides."""
        self._number = number = self._number + 1
        if number <= self._before:
            taken = self._history.taken(number, request)
            if taken is None:
                raise RoundLost(f"sum {number} was interrupted, or lost, before this attempt")
            self.tally.before += 1
            return taken
        try:
            await self._wait(number)
        except RoundLost:
            # The sum was never requested; later attempts have to treat it as lost as well.
            self._history.begin(number, request)
            raise
        self._release()
        # The journal entry comes before the charge: a charged sum is never requested and charged again.
        self._history.begin(number, request)
        if request.event is not None:
            self._ledger.charge(number, request.step, request.event)
        try:
            found = await self._take_sum(number, request)
        finally:
            self._record.transcript.seal(round_ended(number))
        self._history.keep(number, found)
        self._done(number, request)
        return found

    async def _take_sum(self, number: int, request: Request) -> Sum:
        present = sorted(self._members.present)
        self._record.transcript.note(
            sums_schema.ASKED,
            round=number,
            clients=len(present),
            head=request_head(request).decode(),
            payload_sha256=hashlib.sha256(request.payload).hexdigest(),
        )
        with (
            self._record.step(SUM, number),
            self._members.exchange(present, round=number) as exchange,
        ):
            certificates = [self._members.present[i].certificate for i in present]
            for position, member in enumerate(present):
                self._record.participation(member, number, certificate=certificates[position])

            def dropped(of: ClientExchange, position: int, reason: str) -> None:
                self.tally.dropouts += 1
                self._record.participation(
                    of.numbers[position],
                    number,
                    certificate=certificates[position],
                    reason=reason or "gave up",
                )

            try:
                found = await self._by_secagg(exchange, number, request, dropped)
            except (RoundAborted, ParameterError) as error:
                self._give_up(exchange, number, str(error))
                raise RoundLost(f"{request.step!r}, sum {number}: {error}") from error
            # A sum without noise is either private by itself or not private at all; the transcript omits it.
            noisy = request.noise is not None
            self._record.opening(number, SUM, SILO_OPENED_SUM, found.values, written=noisy)
        return found

    async def _by_secagg(
        self,
        exchange: ClientExchange,
        number: int,
        request: Request,
        dropped: Callable[[ClientExchange, int, str], None],
    ) -> Sum:
        """Runs one SecAgg session. Raises RoundAborted, ParameterError."""
        known, clients = self._members.roster, len(exchange.numbers)
        roster = None if known is None else known.identities(exchange.numbers)
        body = SumTask(number, clients, request).pack()
        parameters = silo_session_parameters(
            self._config,
            request,
            clients,
            random_bytes=secrets.token_bytes,
            session_id=None if roster is None else session_id(self._config, body, roster),
            roster=roster,
        )
        for position in exchange.present:
            if roster is not None:
                exchange.send_roster(position)
            exchange.post(
                position,
                FederationMessage(MessageKind.REQUEST, number, pack_task(position, body)).pack(),
            )
        exchange.allow(wire.max_body(parameters) + wire.OVERHEAD_BYTES)
        server = SecAggServer(parameters, roster=roster)
        await run_secagg_session(
            server, SumChannel(exchange, dropped), present=exchange.present, stage_s=self._stage_s
        )
        survivors = tuple(exchange.numbers[position] for position in sorted(server.survivors))
        tally, shape = self.tally, SumShape.of(parameters, len(body))
        tally.taken += 1
        tally.values += request.length
        tally.least_survivors = min(tally.least_survivors or clients, len(survivors))
        tally.formula_sent += silo_sent_bytes(shape)
        tally.formula_received += silo_received_bytes(shape)
        return Sum(server.exact_result, survivors)

    def _give_up(self, exchange: ClientExchange, number: int, reason: str) -> None:
        self.tally.given_up += 1
        self.tally.reasons.append(f"sum {number}: {reason}")
        self._record.transcript.note(sums_schema.ABORTED, round=number, reason=reason)
        skipped = FederationMessage(MessageKind.SKIPPED, number, pack_reason(reason)).pack()
        for position in exchange.present:
            exchange.post(position, skipped)

    async def finish(self, payload: bytes) -> None:
        """See ``Silos``."""
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"a result of {len(payload)} bytes; expected at most {MAX_PAYLOAD_BYTES}"
            )
        message = FederationMessage(MessageKind.RESULT, 0, payload).pack()
        with self._record.step(FINISH, self._number):
            for member in list(self._members.present.values()):
                self._members.post(member, message)
