"""What one message of Flower carries between FLAIM's server and a client: frames of `parties.federation.messages`.

Provides ``Envelope``, both ways, and ``needs_answer``, which tells the frames that a client answers from those that
wait to go along with the next of them: a message of Flower's takes seconds there and back. Before a client is let in,
the server sends a ``challenge``, and the client answers with its greeting, its card and a signature by the card's key:
a node of Flower's is a number, and who it is says its certificate. Public: all of it but what frames carry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from parties.federation.messages import (
    FederationMessage,
    MessageKind,
    is_secagg_message,
    unpack_task,
)
from parties.foundation.errors import FederationProtocolError
from secagg import wire

RECORD = "syncret-flaim"
"""The name of the config record in a message's content."""
CHALLENGE_BYTES = 32
_FRAMES, _CHALLENGE, _CARD, _PROOF = "frames", "challenge", "card", "proof"
_ANSWERED_SECAGG_KINDS = frozenset(
    {
        wire.Kind.ANNOUNCE,
        wire.Kind.KEYS,
        wire.Kind.INBOX,
        wire.Kind.SURVIVORS,
        wire.Kind.SIGNATURES,
    }
)
_ANSWERED_FLAIM_KINDS = frozenset({MessageKind.BRIEF, MessageKind.GOODBYE, MessageKind.REFUSED})


@dataclass(frozen=True, slots=True)
class Envelope:
    """See the module; the last three are empty but before a client is let in."""

    frames: tuple[bytes, ...] = field(default=(), repr=False)
    challenge: bytes = b""
    card: bytes = b""
    proof: bytes = b""

    def to_record(self) -> dict[str, bytes | list[bytes]]:
        """As the values of a config record."""
        record: dict[str, bytes | list[bytes]] = {_FRAMES: list(self.frames)} if self.frames else {}
        parts = ((_CHALLENGE, self.challenge), (_CARD, self.card), (_PROOF, self.proof))
        return record | {name: value for name, value in parts if value}

    @classmethod
    def of_record(cls, record: Mapping[str, object], peer: str) -> "Envelope":
        """The inverse of ``to_record``. Raises FlaimProtocolError."""
        frames = record.get(_FRAMES, [])
        parts = [record.get(name, b"") for name in (_CHALLENGE, _CARD, _PROOF)]
        known = {_FRAMES, _CHALLENGE, _CARD, _PROOF}
        if not isinstance(frames, list) or set(record) - known:
            raise FederationProtocolError(peer, "a message of Flower's that is none of this app")
        if not all(isinstance(part, bytes) for part in [*frames, *parts]):
            raise FederationProtocolError(peer, "a message of Flower's that is none of this app")
        return cls(tuple(frames), *parts)  # type: ignore[arg-type]  # Looked at above.

    @property
    def size(self) -> int:
        """Bytes of what it carries."""
        return sum(map(len, self.frames)) + len(self.challenge) + len(self.card) + len(self.proof)


def needs_answer(frame: bytes) -> bool:
    """Whether the server's ``frame`` is one that the client has something to say to, or that must arrive by itself."""
    if is_secagg_message(frame):
        return frame[5] in _ANSWERED_SECAGG_KINDS
    message = FederationMessage.unpack(frame, "")
    if message.kind is MessageKind.LAYOUT:
        return unpack_task(message.body, "")[0] is None
    return message.kind in _ANSWERED_FLAIM_KINDS


def proof_text(config: str, challenge: bytes) -> bytes:
    """What a client signs to be let in to the run with the digest ``config``."""
    return b"syncret flaim 1 flower" + bytes.fromhex(config) + challenge
