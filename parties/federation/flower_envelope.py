"""Content of one Flower message between FLAIM's server and a client: frames of `parties.federation.messages`.

``needs_answer`` separates the frames that a client answers from those that wait for the next such frame, since a Flower
message takes seconds there and back. Before admission the server sends a ``challenge``; the client answers with its
card, a signature by the card's key, and its greeting. A client that charges a budget asks for earlier releases in place
of the greeting (`parties.federation.release_statements`), and greets in answer to what it is told. A Flower node is a
number; the certificate is its identity. All values here are public, except the frames' contents.
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
"""Name of the config record in a message's content."""
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
_ANSWERED_FLAIM_KINDS = frozenset(
    {MessageKind.BRIEF, MessageKind.GOODBYE, MessageKind.REFUSED, MessageKind.RELEASES}
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Frames of one Flower message; ``challenge``, ``card`` and ``proof`` are empty except before admission."""

    frames: tuple[bytes, ...] = field(default=(), repr=False)
    challenge: bytes = b""
    card: bytes = b""
    proof: bytes = b""

    def to_record(self) -> dict[str, bytes | list[bytes]]:
        """Returns the values of a config record."""
        record: dict[str, bytes | list[bytes]] = {_FRAMES: list(self.frames)} if self.frames else {}
        parts = ((_CHALLENGE, self.challenge), (_CARD, self.card), (_PROOF, self.proof))
        return record | {name: value for name, value in parts if value}

    @classmethod
    def of_record(cls, record: Mapping[str, object], peer: str) -> "Envelope":
        """Inverse of ``to_record``. Raises FederationProtocolError."""
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
        """Total size of the contents in bytes."""
        return sum(map(len, self.frames)) + len(self.challenge) + len(self.card) + len(self.proof)


def needs_answer(frame: bytes) -> bool:
    """True if the client answers the server's ``frame``, or if the frame must arrive without delay."""
    if is_secagg_message(frame):
        return frame[5] in _ANSWERED_SECAGG_KINDS
    message = FederationMessage.unpack(frame, "")
    if message.kind is MessageKind.LAYOUT:
        return unpack_task(message.body, "")[0] is None
    return message.kind in _ANSWERED_FLAIM_KINDS


def proof_text(config: str, challenge: bytes) -> bytes:
    """Text that a client signs for admission to the run with the digest ``config``."""
    return b"syncret flaim 1 flower" + bytes.fromhex(config) + challenge
