"""Why FLAIM's server sends clients away: a byte that programs go by, then words for people.

Provides ``Refusal``, ``Refused`` (a REFUSED's body), ``refusal_of`` for the server, which says what an error of its own
is to its clients, and ``sent_away`` for a client, which ends with the exit status that belongs to the byte. Nobody goes
by the words. Public: all of it; of an error that was not made for clients its class alone is told.
"""

import asyncio
import enum
from collections.abc import Mapping
from dataclasses import dataclass

from mechanisms.errors import MechanismError
from parties.errors import FlaimProtocolError
from parties.flaim.messages import (
    MAX_REASON_BYTES,
    Message,
    MessageKind,
    pack_reason,
    unpack_reason,
)
from parties.statuses import FlaimRefused, Status, TooFewClients


class Refusal(enum.IntEnum):
    """The first byte of a REFUSED. Zero is none, so that an empty or blank body means nothing."""

    MISFIT = 1
    """This client and the run do not fit together: another configuration, workload, number of rows or name."""
    TOO_FEW = 2
    """Fewer clients came than the run needs."""
    IMPOSSIBLE = 3
    """The run cannot be carried out: its budget, its model, its data."""
    STOPPED = 4
    """The server was asked to stop."""
    FAILED = 5
    """The server has failed, by something that does not concern its clients."""
    NOT_ENROLLED = 6
    """This client is not on the list, was revoked, or comes before the opening or after the closing."""


_STATUSES: Mapping[Refusal, Status] = {
    Refusal.MISFIT: Status.PROTOCOL,
    Refusal.TOO_FEW: Status.CLIENTS,
    Refusal.IMPOSSIBLE: Status.PROTOCOL,
    Refusal.STOPPED: Status.NETWORK,
    Refusal.FAILED: Status.NETWORK,
    Refusal.NOT_ENROLLED: Status.NOT_ENROLLED,
}
"""What a refused client's command ends with. After NETWORK the same command may be given again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A REFUSED's body: refusal 1 | words, at most 256 bytes of UTF-8."""

    refusal: Refusal
    words: str

    def message(self) -> Message:
        """The message with this body."""
        return Message(MessageKind.REFUSED, 0, self.pack())

    def pack(self) -> bytes:
        """As a REFUSED's body; long words are cut."""
        return bytes([self.refusal]) + pack_reason(self.words)

    @classmethod
    def unpack(cls, body: bytes, peer: str) -> "Refused":
        """The inverse of ``pack``. Raises FlaimProtocolError where there is no byte, an unknown one, or too much."""
        if not 1 <= len(body) <= 1 + MAX_REASON_BYTES:
            raise FlaimProtocolError(peer, f"a refusal of {len(body)} bytes")
        try:
            return cls(Refusal(body[0]), unpack_reason(body[1:]))
        except ValueError:
            raise FlaimProtocolError(peer, f"a refusal of unknown status {body[0]}") from None


def refusal_of(error: BaseException) -> Refused:
    """What clients are told: messages made for them in full, of anything else its class alone."""
    match error:
        case asyncio.CancelledError():
            return Refused(Refusal.STOPPED, "the server was stopped")
        case TooFewClients():
            return Refused(Refusal.TOO_FEW, str(error))
        case MechanismError():
            return Refused(Refusal.IMPOSSIBLE, str(error))
        case _:
            return Refused(Refusal.FAILED, f"the server failed ({type(error).__name__})")


def sent_away(server: str, body: bytes, more: str = "") -> FlaimRefused:
    """The error of a client that ``server`` has sent a REFUSED with ``body``; ``more`` words come after it.

    Raises FlaimProtocolError.
    """
    refused = Refused.unpack(body, server)
    status = _STATUSES[refused.refusal]
    again = "; once it is back the same command goes on" if status is Status.NETWORK else ""
    return FlaimRefused(f"{server} sends this client away: {refused.words}{more}{again}", status)
