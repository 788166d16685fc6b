"""A participant's state machine for secure sums, without I/O and without a clock.

``SumSession`` is the common part of FLAIM's clients and silos: one `secagg.SecAggClient` at a time; in malicious mode
the roster of the other participants; giving up a sum without leaving the run. Subclasses handle requests and make
answers.

``SiloSession`` is the participant of a `mechanisms.silos` algorithm. A `mechanisms.silos.Silo` makes the numbers of
each request; the Silo compares the request with its own settings and charges its own ledger first. The session's policy
comes from the participant's own configuration. A request beyond either is refused, and nothing is sent.

    ROSTER    -> nothing        in malicious mode: cards of other participants, verified
    MEMBERS   -> nothing        in malicious mode: members of the next sum
    REQUEST   -> nothing        the participant's numbers are made
    secagg    -> secagg         the session that takes the sum
    SKIPPED   -> nothing        the sum was given up
    RESULT    -> nothing        the run's public result

Secret: the participant's table, its numbers, the vectors and keys of a sum in progress. Known limits: where the server
adds the noise, participants cannot verify that the server did.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.silos import MAX_PAYLOAD_BYTES, Silo, checked_answer
from parties.config import Config
from parties.federation.journal import MAX_TASK_BYTES, SumTask
from parties.federation.key_directory import (
    MAX_ROSTER_BYTES,
    OwnClientKey,
    session_id,
    unpack_members,
)
from parties.federation.messages import (
    HEADER_BYTES,
    POSITION_BYTES,
    SMALL_MESSAGE_BYTES,
    FederationMessage,
    MessageKind,
    is_secagg_message,
    pack_reason,
    refused_error,
    unpack_task,
)
from parties.federation.sum_parameters import (
    SumSpec,
    frame_bytes,
    is_malicious,
    silo_sum,
    silos_section,
)
from parties.foundation.errors import FederationProtocolError
from secagg import ClientPolicy
from secagg.client import Awaits, SecAggClient
from secagg.errors import ParameterError, PeerAborted, ProtocolViolation, RoundAborted


@dataclass(slots=True)
class ClientTally:
    """A participant's counts: rounds joined, sums that include its numbers, sums given up."""

    rounds: int = 0
    sums: int = 0
    given_up: int = 0


class SumSession:
    """One participant's side of a run; ``over`` is true once the server has said goodbye.

    ``unopened`` is the body of the server's statement that nothing was opened, not yet verified; a later request, of
    another attempt of the server, voids it.
    """

    def __init__(
        self,
        config: Config,
        *,
        server: str,
        random_bytes: Callable[[int], bytes],
        largest: int,
        own: OwnClientKey | None = None,
    ) -> None:
        """Opens a session with the server named ``server``; the name is for error texts.

        ``largest`` is the maximum size of the server's messages other than rosters, in bytes. ``own`` is the
        participant's signed key, required in malicious mode and only there. Raises ValueError.
        """
        if is_malicious(config) != (own is not None):
            raise ValueError("run.security = 'malicious' and this client's own card come together")
        self.over = False
        self.unopened: bytes | None = None
        self.tally = ClientTally()
        self._config = config
        self._server = server
        self._random_bytes = random_bytes
        self._own = own
        self._sum: SecAggClient | None = None
        self._clients = config.clients.expected
        self._largest = largest
        self._gave_up = False

    @property
    def limit(self) -> int:
        """Maximum size of the server's next message, in bytes."""
        roster = 0 if self._own is None else HEADER_BYTES + MAX_ROSTER_BYTES
        return max(self._largest, SMALL_MESSAGE_BYTES, frame_bytes(self._clients), roster)

    @property
    def own_charges(self) -> int:
        """Number of charges beside those of the participant's ledger; it grows with what they pay for."""
        return 0

    @property
    def busy(self) -> bool:
        """True during a sum: the server's next message is then due within the server's deadlines."""
        return self._sum is not None

    def lost(self) -> None:
        """Handles a lost connection: a sum in progress continues without this participant."""
        self._give_up()

    def receive(self, data: bytes) -> bytes | None:
        """Returns the answer to one message of the server, or None if none is due.

        Raises FederationProtocolError and SecAggError if the server breaks the protocol or asks for too little
        protection; MechanismError if a message does not fit this run or exceeds the budget; FederationRefused if the
        server refuses this participant. The caller closes the connection after any of them.
        """
        if is_secagg_message(data):
            self.unopened = None
            return self._answer_secagg(data)
        message = FederationMessage.unpack(data, self._server)
        match message.kind:
            case MessageKind.ROSTER if self._own is not None:
                self._own.learn(message.body, self._server)
                return None
            case MessageKind.MEMBERS if self._own is not None:
                self._require_idle("MEMBERS")
                self._own.members = unpack_members(message.body, self._server)
                return None
            case MessageKind.SKIPPED:
                self._give_up()
                return None
            case MessageKind.GOODBYE:
                self.over = True
                return None
            case MessageKind.UNOPENED:
                self.unopened = message.body
                return None
            case MessageKind.REFUSED:
                raise refused_error(self._server, message.body)
            case _:
                # The statement is about what was sent before it, and not about this request's answer.
                self.unopened = None
                return self._answer_request(message)

    def _answer_request(self, message: FederationMessage) -> bytes | None:
        """Answers a message that only some runs have. Raises as ``receive``."""
        raise FederationProtocolError(self._server, f"sent {message.kind.name} to a client")

    def _give_up(self) -> None:
        """Leaves the current sum. The session ignores the server's later messages on this sum."""
        if self._sum is not None:
            self.tally.given_up += 1
        self._sum, self._gave_up = None, True

    def _require_idle(self, kind: str) -> None:
        if self._sum is not None:
            raise FederationProtocolError(self._server, f"sent {kind} while a sum was being taken")
        self._gave_up = False

    def _next_sum(
        self, clients: int, position: int, body: bytes
    ) -> tuple[list[bytes] | None, bytes | None]:
        """Returns keys and session's id of the next sum in malicious mode; call it before any charge or count.

        The keys are of the sum's members, verified by their certificates. The sum, described by ``body``, is over
        ``clients`` participants, this one at ``position``. Raises FederationProtocolError.
        """
        if self._own is None:
            return None, None
        roster = self._own.keys(clients, position, self._server)
        named = session_id(self._config, body, roster)
        self._own.once(named, self._server)
        return roster, named

    def _policy(self, spec: Callable[[], SumSpec], named: bytes | None) -> ClientPolicy:
        """Returns the requirements for the session of a sum. Raises FederationProtocolError if it can have none."""
        try:
            return spec().policy(named)
        except ParameterError as error:
            raise FederationProtocolError(
                self._server, f"asks for a sum that no session can take: {error}"
            ) from error

    def _start_sum(
        self,
        position: int,
        numbers: NDArray[np.int64],
        policy: ClientPolicy,
        *,
        roster: list[bytes] | None,
    ) -> None:
        """Begins the session that takes a sum of ``numbers``."""
        self.tally.sums += 1
        self._sum = SecAggClient(
            position,
            numbers,
            policy,
            identity=None if self._own is None else self._own.identity,
            roster=roster,
            random_bytes=self._random_bytes,
        )

    def _answer_secagg(self, data: bytes) -> bytes | None:
        if self._sum is None:
            if self._gave_up:
                return None  # The server's message crossed with this participant's giving up.
            raise FederationProtocolError(
                self._server, "sent a message of SecAgg outside of any sum"
            )
        try:
            answer = self._sum.receive(data)
        except PeerAborted:
            self._give_up()
            return None
        except (RoundAborted, ProtocolViolation) as error:
            if isinstance(error, ProtocolViolation) and error.peer is None:
                raise
            # Nothing was revealed: this sum is given up, and the run goes on. Wrong keys or shares of another
            # participant must not end this participant's run.
            self._give_up()
            return FederationMessage(MessageKind.OUT, 0, pack_reason(str(error))).pack()
        if self._sum.awaits is Awaits.NOTHING:
            self._sum = None
        return answer


MAX_SERVER_MESSAGE_BYTES = HEADER_BYTES + POSITION_BYTES + max(MAX_TASK_BYTES, MAX_PAYLOAD_BYTES)
"""Maximum size of a server's message, in bytes."""


class SiloSession(SumSession):
    """One silo's side of a run; ``over`` after the server's goodbye, ``finished`` after the run's result."""

    def __init__(
        self,
        config: Config,
        silo: Silo,
        *,
        server: str,
        random_bytes: Callable[[int], bytes],
        own: OwnClientKey | None = None,
    ) -> None:
        """Opens a session with ``server``, a name for error texts.

        ``own`` is required in malicious mode. Raises ValueError.
        """
        super().__init__(
            config,
            server=server,
            random_bytes=random_bytes,
            largest=MAX_SERVER_MESSAGE_BYTES,
            own=own,
        )
        self.finished = False
        self._silo = silo
        self._last = 0

    @property
    def own_charges(self) -> int:
        """See ``Silo.own_charges``."""
        return self._silo.own_charges

    def _answer_request(self, message: FederationMessage) -> bytes | None:
        match message.kind:
            case MessageKind.REQUEST:
                self._answer(message)
                return None
            case MessageKind.RESULT:
                self._require_idle("RESULT")
                if self.finished:
                    raise FederationProtocolError(self._server, "sent a second result")
                self.finished = True
                self._silo.finish(message.body)
                return None
            case _:
                return super()._answer_request(message)

    def _answer(self, message: FederationMessage) -> None:
        """Makes the numbers of a sum if the participant's configuration allows the sum's session."""
        self._require_idle("REQUEST")
        position, body = unpack_task(message.body, self._server)
        task = SumTask.unpack(body, self._server)
        least = silos_section(self._config).minimum
        if (
            position is None
            or not position < task.silos
            or not least <= task.silos <= self._clients
        ):
            raise FederationProtocolError(
                self._server,
                f"asks silo {position} for a sum over {task.silos}; expected {least} to {self._clients} of them",
            )
        if task.number != message.round or task.number <= self._last:
            raise FederationProtocolError(
                self._server,
                f"asks for sum {task.number} in {message.round}; expected one after {self._last}",
            )
        roster, named = self._next_sum(task.silos, position, body)
        policy = self._policy(lambda: silo_sum(self._config, task.request, task.silos), named)
        self._last = task.number
        numbers = checked_answer(self._silo, task.request)
        self._start_sum(position, numbers, policy, roster=roster)
