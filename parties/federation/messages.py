"""Messages between a federation's server and its participants, besides those of `secagg.wire`.

Frames on the connection are those of `parties.network.frames`: a size in 4 bytes, then one message. A
``FederationMessage`` is

    "FLAM" | version 6 | kind 1 | round 4 | body

with big-endian integers. In a round of FLAIM a sampled client receives BRIEF and answers CHOICES; for each sum it
receives LAYOUT and then the messages of one SecAgg session, ANNOUNCE to FINISHED. With `grouping = "query"` a query's
only chooser, or one of two, answers LAYOUT with PLAIN: its counts, to which the server adds noise. CHOICES and PLAIN
are sealed to an ML-KEM-768/X25519 key that comes with the request (``pack_sealed_request``), since TLS may agree on its
keys by X25519 alone. In malicious mode HELLO ends with the client's card; ROSTER sends the other cards that the client
has not received yet, and MEMBERS, the members of the sum, follows before LAYOUT (`parties.federation.key_directory`).
Between silos REQUEST replaces LAYOUT, and RESULT, which is public, comes before GOODBYE. Bodies of
`mechanisms.flaim_messages` are that module's own.

UNOPENED comes before REFUSED, where the server signs that nothing was opened (`parties.federation.unopened`).

Before HELLO a participant may ask, once a connection, with RELEASES, whose body is its signed statement of what this
run may release, or nothing; the server answers with RELEASES, the statements of the participant's key that it has kept
(`parties.federation.release_statements`). Neither is in a transcript.

A REFUSED's body is one byte for programs, then words for people. The byte determines the participant's exit status;
nothing depends on the words. An error that was not made for participants is sent as its class name alone.

Secret: a participant's link key; choices are private by the mechanism that made them. TLS authenticates the messages.
Every size is bounded before reading.
"""

import asyncio
import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import MechanismError
from parties.foundation.errors import FederationProtocolError
from parties.foundation.exit_codes import FederationRefused, Status, TooFewClients
from protocols.sealing import PUBLIC_BYTES, BoxKey, SealTo
from secagg import wire

MAGIC = b"FLAM"
VERSION = 7
KEY_BYTES = 32
MAX_REASON_BYTES = 256
MAX_TERMS_BYTES = 1 << 20
"""Maximum size of TERMS in bytes; larger ones are not sent."""
SMALL_MESSAGE_BYTES = 4096
"""Upper bound in bytes of all messages other than briefs, layouts and vectors."""
NO_ROWS = (1 << 64) - 1
_HEADER = struct.Struct(">4sBBI")
_HELLO = struct.Struct(">32s32sQ32s")
_WELCOME = struct.Struct(">II32s")
HEADER_BYTES = _HEADER.size


class MessageKind(enum.IntEnum):
    """Kinds of messages."""

    HELLO = 0
    WELCOME = 1
    REFUSED = 2
    BRIEF = 3
    CHOICES = 4
    LAYOUT = 5
    OUT = 6
    SKIPPED = 7
    GOODBYE = 8
    PLAIN = 9
    TERMS = 10
    ROSTER = 11
    MEMBERS = 12
    REQUEST = 13
    RESULT = 14
    UNOPENED = 15
    RELEASES = 16


POSITION_BYTES = 4
NO_POSITION = 0xFFFFFFFF
"""Position of a client that is asked for a plain vector."""


@dataclass(frozen=True, slots=True)
class FederationMessage:
    """One message; ``round`` is 0 if the message belongs to no round."""

    kind: MessageKind
    round: int
    body: bytes = b""

    def pack(self) -> bytes:
        """Returns the bytes on the wire."""
        return _HEADER.pack(MAGIC, VERSION, self.kind, self.round) + self.body

    @classmethod
    def unpack(cls, data: bytes, peer: str) -> "FederationMessage":
        """Inverse of ``pack``. Raises FederationProtocolError, naming ``peer``, for any other input."""
        if len(data) < HEADER_BYTES:
            raise FederationProtocolError(peer, f"a message of {len(data)} bytes")
        magic, version, kind, number = _HEADER.unpack_from(data)
        if magic != MAGIC:
            raise FederationProtocolError(peer, "not a message of FLAIM's")
        if version != VERSION:
            text = f"messages of version {version}; expected {VERSION}: the same syncret at server and clients"
            raise FederationProtocolError(peer, text)
        try:
            return cls(MessageKind(kind), number, data[HEADER_BYTES:])
        except ValueError:
            raise FederationProtocolError(peer, f"a message of unknown kind {kind}") from None


def is_releases_question(data: bytes) -> bool:
    """True if the message asks for releases."""
    return data[:HEADER_BYTES] == FederationMessage(MessageKind.RELEASES, 0).pack()


def is_secagg_message(data: bytes) -> bool:
    """True if the message is one of `secagg.wire`."""
    return data[:4] == wire.MAGIC


@dataclass(frozen=True, slots=True)
class ClientGreeting:
    """A participant's first message: digests (32 bytes) of its config and its workload, its version.

    ``rows`` is the size of its table if sizes are public, else None; ``card`` is its packed card in malicious mode.
    """

    config: bytes
    workload: bytes
    rows: int | None
    version: str
    card: bytes = b""

    def pack(self) -> bytes:
        """Returns a HELLO's body."""
        rows = NO_ROWS if self.rows is None else self.rows
        version = self.version.encode()[:32].ljust(32, b"\0")
        return _HELLO.pack(self.config, self.workload, rows, version) + self.card

    @classmethod
    def unpack(cls, body: bytes, peer: str) -> "ClientGreeting":
        """Inverse of ``pack``. Raises FederationProtocolError."""
        if len(body) < _HELLO.size:
            raise FederationProtocolError(peer, f"a greeting of {len(body)} bytes")
        config, workload, rows, version = _HELLO.unpack_from(body)
        text = _printable(version.rstrip(b"\0").decode(errors="replace"))
        return cls(config, workload, None if rows == NO_ROWS else rows, text, body[_HELLO.size :])


@dataclass(frozen=True, slots=True, repr=False)
class Welcome:
    """The server's answer: the participant's ``number`` among ``clients``, and the ``key`` of their link's record."""

    number: int
    clients: int
    key: bytes

    def pack(self) -> bytes:
        """Returns a WELCOME's body."""
        return _WELCOME.pack(self.number, self.clients, self.key)

    @classmethod
    def unpack(cls, body: bytes, peer: str) -> "Welcome":
        """Inverse of ``pack``. Raises FederationProtocolError."""
        if len(body) != _WELCOME.size:
            raise FederationProtocolError(peer, f"a welcome of {len(body)} bytes")
        number, clients, key = _WELCOME.unpack(body)
        return cls(number, clients, key)


def pack_task(position: int | None, layout: bytes) -> bytes:
    """Returns a LAYOUT's body: the client's ``position`` (its id) in the SecAgg session that follows, then the layout.

    None means that no session follows: the client answers with its plain counts (PLAIN), and the server adds noise.
    """
    return (NO_POSITION if position is None else position).to_bytes(POSITION_BYTES, "big") + layout


def unpack_task(body: bytes, peer: str) -> tuple[int | None, bytes]:
    """Inverse of ``pack_task``. Raises FederationProtocolError."""
    if len(body) < POSITION_BYTES:
        raise FederationProtocolError(peer, f"a layout of {len(body)} bytes")
    position = int.from_bytes(body[:POSITION_BYTES], "big")
    return (None if position == NO_POSITION else position), body[POSITION_BYTES:]


def pack_sealed_request(key: SealTo, body: bytes) -> bytes:
    """Returns the body of a request with a sealed answer, a BRIEF or a LAYOUT for PLAIN.

    Format: the ``key`` to seal to 1,216 | ``body``.
    """
    return key.public + body


def unpack_sealed_request(body: bytes, peer: str) -> tuple[SealTo, bytes]:
    """Inverse of ``pack_sealed_request``. Raises FederationProtocolError."""
    try:
        return SealTo(body[:PUBLIC_BYTES]), body[PUBLIC_BYTES:]
    except ValueError as error:
        raise FederationProtocolError(peer, f"asks for a sealed answer: {error}") from error


def seal_answer(key: SealTo, kind: MessageKind, round: int, content: bytes) -> bytes:
    """Returns a packed message with ``content`` in a sealed box, which adds 1,136 bytes."""
    return FederationMessage(kind, round, key.seal(content, _answer_info(kind, round))).pack()


def open_answer(key: BoxKey, message: FederationMessage, peer: str) -> bytes:
    """Returns the content of a sealed ``message``. Raises FederationProtocolError."""
    try:
        return key.open(message.body, _answer_info(message.kind, message.round))
    except ValueError as error:
        text = f"sent {message.kind.name} that was not sealed to this server's key"
        raise FederationProtocolError(peer, text) from error


def _answer_info(kind: MessageKind, round: int) -> bytes:
    return b"syncret flaim 4 answer" + bytes([kind]) + round.to_bytes(4, "big")


def pack_plain(counts: NDArray[np.int64]) -> bytes:
    """Returns the content of a PLAIN before sealing: counts (cells,) as 4 bytes each, little-endian."""
    return counts.astype("<u4").tobytes()


def unpack_plain(body: bytes, cells: int, high: int, peer: str) -> NDArray[np.int64]:
    """Inverse of ``pack_plain``, with each count at most ``high``. Raises FederationProtocolError."""
    if len(body) != 4 * cells:
        raise FederationProtocolError(peer, f"counts of {len(body)} bytes; expected {4 * cells}")
    counts = np.frombuffer(body, "<u4").astype(np.int64)
    if int(counts.max(initial=0)) > high:
        raise FederationProtocolError(peer, f"a count above {high}")
    return counts


def pack_reason(reason: str) -> bytes:
    """Body of OUT, SKIPPED, GOODBYE, and of a REFUSED after its first byte: UTF-8 text, cut to 256 bytes."""
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore").encode()


def unpack_reason(body: bytes) -> str:
    """Inverse of ``pack_reason``; control characters become question marks."""
    return _printable(body[:MAX_REASON_BYTES].decode(errors="replace"))


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class Refusal(enum.IntEnum):
    """The first byte of a REFUSED. Zero is unused, so that an empty or blank body means nothing."""

    MISMATCH = 1
    """Participant and run differ in configuration, workload, number of rows or name."""
    TOO_FEW = 2
    """Fewer participants came than the run needs."""
    IMPOSSIBLE = 3
    """The run cannot be carried out, because of its budget, its model or its data."""
    STOPPED = 4
    """The server was asked to stop."""
    FAILED = 5
    """The server has failed for a reason that does not concern its participants."""
    NOT_ENROLLED = 6
    """This participant is not on the list, was revoked, or comes before the opening or after the closing."""


_STATUSES: Mapping[Refusal, Status] = {
    Refusal.MISMATCH: Status.PROTOCOL,
    Refusal.TOO_FEW: Status.CLIENTS,
    Refusal.IMPOSSIBLE: Status.PROTOCOL,
    Refusal.STOPPED: Status.NETWORK,
    Refusal.FAILED: Status.NETWORK,
    Refusal.NOT_ENROLLED: Status.NOT_ENROLLED,
}
"""Exit statuses of a refused participant's command. After NETWORK the same command may be given again."""


@dataclass(frozen=True, slots=True)
class RefusalMessage:
    """A REFUSED's body: refusal 1 | words, at most 256 bytes of UTF-8."""

    refusal: Refusal
    words: str

    def message(self) -> FederationMessage:
        """Returns the message with this body."""
        return FederationMessage(MessageKind.REFUSED, 0, self.pack())

    def pack(self) -> bytes:
        """Returns a REFUSED's body; long words are cut."""
        return bytes([self.refusal]) + pack_reason(self.words)

    @classmethod
    def unpack(cls, body: bytes, peer: str) -> "RefusalMessage":
        """Inverse of ``pack``.

        Raises FederationProtocolError if the first byte is absent or unknown, or the body too long.
        """
        if not 1 <= len(body) <= 1 + MAX_REASON_BYTES:
            raise FederationProtocolError(peer, f"a refusal of {len(body)} bytes")
        try:
            return cls(Refusal(body[0]), unpack_reason(body[1:]))
        except ValueError:
            raise FederationProtocolError(peer, f"a refusal of unknown status {body[0]}") from None


def refusal_of(error: BaseException) -> RefusalMessage:
    """Returns the refusal for an error: the full text if it was made for participants, else the class name alone."""
    match error:
        case asyncio.CancelledError():
            return RefusalMessage(Refusal.STOPPED, "the server was stopped")
        case TooFewClients():
            return RefusalMessage(Refusal.TOO_FEW, str(error))
        case MechanismError():
            return RefusalMessage(Refusal.IMPOSSIBLE, str(error))
        case _:
            return RefusalMessage(Refusal.FAILED, f"the server failed ({type(error).__name__})")


def refused_error(server: str, body: bytes, more: str = "") -> FederationRefused:
    """Returns the error of a participant that received a REFUSED with ``body`` from ``server``; ``more`` is appended.

    Raises FederationProtocolError.
    """
    refused = RefusalMessage.unpack(body, server)
    status = _STATUSES[refused.refusal]
    again = "; once it is back the same command goes on" if status is Status.NETWORK else ""
    return FederationRefused(
        f"{server} sends this client away: {refused.words}{more}{again}", status
    )
