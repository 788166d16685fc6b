"""A client's part in sums that a server asks for, without I/O: what FLAIM's clients and silos have in common.

Provides ``SumSession``: one `secagg.SecAggClient` at a time, in malicious mode who the others are, and giving up a sum
without leaving the run. What a sum is asked for with, and what is answered to it, is for who derives from it. Secret:
the vectors and keys of a sum that is being taken.
"""

from collections.abc import Callable
from dataclasses import dataclass

from parties.config import Config
from parties.errors import FlaimProtocolError
from parties.flaim.messages import (
    HEADER_BYTES,
    SMALL_BYTES,
    Message,
    MessageKind,
    is_secagg,
    pack_reason,
)
from parties.flaim.refusals import sent_away
from parties.flaim.roster import ROSTER_BYTES, Own, unpack_members
from parties.flaim.sums import frame_bytes, is_malicious
from secagg.client import Awaits, SecAggClient
from secagg.errors import PeerAborted, ProtocolViolation, RoundAborted


@dataclass(slots=True)
class Tally:
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
        own: Own | None = None,
    ) -> None:
        """``server`` is the server's name, for messages; ``largest`` the largest of its messages that is no roster.

        ``own`` is what malicious mode needs, and it alone. Raises ValueError.
        """
        if is_malicious(config) != (own is not None):
            raise ValueError("run.security = 'malicious' and this client's own card come together")
        self.over = False
        self.tally = Tally()
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
        roster = 0 if self._own is None else HEADER_BYTES + ROSTER_BYTES
        return max(self._largest, SMALL_BYTES, frame_bytes(self._clients), roster)

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
        if is_secagg(data):
            return self._secagg(data)
        message = Message.unpack(data, self._server)
        match message.kind:
            case MessageKind.ROSTER if self._own is not None:
                self._own.learn(message.body, self._server)
                return None
            case MessageKind.MEMBERS if self._own is not None:
                self._idle("MEMBERS")
                self._own.members = unpack_members(message.body, self._server)
                return None
            case MessageKind.SKIPPED:
                self._give_up()
                return None
            case MessageKind.GOODBYE:
                self.over = True
                return None
            case MessageKind.REFUSED:
                raise sent_away(self._server, message.body)
            case _:
                return self._asked_for(message)

    def _asked_for(self, message: Message) -> bytes | None:
        """The answer to a message that not every run has. Raises as ``receive``."""
        raise FlaimProtocolError(self._server, f"sent {message.kind.name} to a client")

    def _give_up(self) -> None:
        """This client takes no part in the present sum: what the server still says on it is ignored."""
        if self._sum is not None:
            self.tally.given_up += 1
        self._sum, self._gave_up = None, True

    def _idle(self, kind: str) -> None:
        if self._sum is not None:
            raise FlaimProtocolError(self._server, f"sent {kind} while a sum was being taken")
        self._gave_up = False

    def _secagg(self, data: bytes) -> bytes | None:
        if self._sum is None:
            if self._gave_up:
                return None  # The server's last words on a sum that this client gave up at the same time.
            raise FlaimProtocolError(self._server, "sent a message of SecAgg outside of any sum")
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
            return Message(MessageKind.OUT, 0, pack_reason(str(error))).pack()
        if self._sum.awaits is Awaits.NOTHING:
            self._sum = None
        return answer
