"""A client's part in sums that a server asks for, without I/O: what FLAIM's clients and silos have in common.

Provides ``SumSession``: one `secagg.SecAggClient` at a time, in malicious mode who the others are, and giving up a sum
without leaving the run. What a sum is asked for with, and what is answered to it, is for who derives from it. Secret:
the vectors and keys of a sum that is being taken.

One silo of a run, without I/O and without a clock: what it answers to each message of the server.

Provides ``SiloSession``. It asks a `mechanisms.silos.Silo` for the numbers of each request, which compares the request
with its own settings and charges its own ledger first, and drives one `secagg.SecAggClient` for each sum, with a policy
from its own configuration. What goes beyond either is refused, and nothing is sent.

    ROSTER    -> nothing        in malicious mode: cards of other silos, checked
    MEMBERS   -> nothing        the same: who is in the next sum
    REQUEST   -> nothing        the silo's numbers are made
    secagg    -> secagg         the session that takes the sum
    SKIPPED   -> nothing        the sum was given up
    RESULT    -> nothing        the run's public result

Secret: the silo's table, numbers and keys. Known limits: noise by the server is added by the server, and nobody but the
server can say that it was.
"""

from collections.abc import Callable
from dataclasses import dataclass

from mechanisms.silos import MAX_PAYLOAD_BYTES, Silo, checked_answer
from parties.config import Config
from parties.federation.flaim_parameters import frame_bytes, is_malicious
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
from parties.federation.sum_parameters import silo_client_policy, silos_section
from parties.foundation.errors import FederationProtocolError
from secagg.client import Awaits, SecAggClient
from secagg.errors import ParameterError, PeerAborted, ProtocolViolation, RoundAborted


@dataclass(slots=True)
class ClientTally:
    """What a client did: rounds it took part in, sums its counts went into, sums that were given up."""

    rounds: int = 0
    sums: int = 0
    given_up: int = 0


class SumSession:
    """One client's side of a run; ``over`` once the server has said goodbye."""

    def __init__(
        self,
        config: Config,
        *,
        server: str,
        random_bytes: Callable[[int], bytes],
        largest: int,
        own: OwnClientKey | None = None,
    ) -> None:
        """``server`` is the server's name, for messages; ``largest`` the largest of its messages that is no roster.

        ``own`` is what malicious mode needs, and it alone. Raises ValueError.
        """
        if is_malicious(config) != (own is not None):
            raise ValueError("run.security = 'malicious' and this client's own card come together")
        self.over = False
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
        """The largest message that the server may send now."""
        roster = 0 if self._own is None else HEADER_BYTES + MAX_ROSTER_BYTES
        return max(self._largest, SMALL_MESSAGE_BYTES, frame_bytes(self._clients), roster)

    @property
    def busy(self) -> bool:
        """Whether a sum is being taken: the server's next message is due within its deadlines."""
        return self._sum is not None

    def lost(self) -> None:
        """The connection is lost: a sum that was being taken goes on without this client."""
        self._give_up()

    def receive(self, data: bytes) -> bytes | None:
        """The answer to one message of the server; None where none is due.

        Raises FlaimProtocolError and SecAggError (the server broke the protocol or asks for too little protection),
        MechanismError (a message that does not fit this run, or more than can be afforded), FlaimRefused (the server
        sends this client away). The connection has to be closed after any of them.
        """
        if is_secagg_message(data):
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
            case MessageKind.REFUSED:
                raise refused_error(self._server, message.body)
            case _:
                return self._answer_request(message)

    def _answer_request(self, message: FederationMessage) -> bytes | None:
        """The answer to a message that not every run has. Raises as ``receive``."""
        raise FederationProtocolError(self._server, f"sent {message.kind.name} to a client")

    def _give_up(self) -> None:
        """This client takes no part in the present sum: what the server still says on it is ignored."""
        if self._sum is not None:
            self.tally.given_up += 1
        self._sum, self._gave_up = None, True

    def _require_idle(self, kind: str) -> None:
        if self._sum is not None:
            raise FederationProtocolError(self._server, f"sent {kind} while a sum was being taken")
        self._gave_up = False

    def _answer_secagg(self, data: bytes) -> bytes | None:
        if self._sum is None:
            if self._gave_up:
                return None  # The server's last words on a sum that this client gave up at the same time.
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
            # Nothing was revealed: this sum is given up, the run goes on. What another client did wrong (keys, shares)
            # must not end this one's run.
            self._give_up()
            return FederationMessage(MessageKind.OUT, 0, pack_reason(str(error))).pack()
        if self._sum.awaits is Awaits.NOTHING:
            self._sum = None
        return answer


MAX_SERVER_MESSAGE_BYTES = HEADER_BYTES + POSITION_BYTES + max(MAX_TASK_BYTES, MAX_PAYLOAD_BYTES)
"""Of the messages of a server."""


class SiloSession(SumSession):
    """One silo's side of a run; ``over`` once the server has said goodbye, ``finished`` once it had a result."""

    def __init__(
        self,
        config: Config,
        silo: Silo,
        *,
        server: str,
        random_bytes: Callable[[int], bytes],
        own: OwnClientKey | None = None,
    ) -> None:
        """``server`` is the server's name, for messages. ``own`` is what malicious mode needs. Raises ValueError."""
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
        """Make the numbers that a sum asks for, once its session is one that this silo's configuration allows."""
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
        own, named = self._own, None
        # Before anything is charged or counted: who is in this sum, by their own certificates.
        roster = None if own is None else own.keys(task.silos, position, self._server)
        if own is not None and roster is not None:
            named = session_id(self._config, body, roster)
            own.once(named, self._server)
        try:
            demanded = silo_client_policy(self._config, task.request, task.silos, session_id=named)
        except ParameterError as error:
            raise FederationProtocolError(
                self._server, f"asks for a sum that no session can take: {error}"
            ) from error
        self._last = task.number
        numbers = checked_answer(self._silo, task.request)
        self.tally.sums += 1
        self._sum = SecAggClient(
            position,
            numbers,
            demanded,
            identity=None if own is None else own.identity,
            roster=roster,
            random_bytes=self._random_bytes,
        )
