"""Messages on the wire: one envelope for all, twelve kinds, one layout each.

Integers are big-endian, ids are 4 bytes, entries of a list come in strictly ascending order of ids. An envelope is

    "SAGG" | version 1 (2) | kind 1 | sender 4 | recipient 4 | first 16 bytes of the parameters' digest | body's size 4
    | body | first 16 bytes of SHA-256 over all before

The server's id is 2^32 - 1. The checksum finds accidents, not attackers: the channel (TLS) authenticates the sender,
and a statement that the server itself must not forge is signed inside the body. Every size is bounded by ``max_body``
before anything is read; leftovers are an error. Nothing here is secret but the revealed shares before they are sealed.
Raises MalformedMessage throughout. README.md has the table of bodies.
"""

import hashlib
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from secagg.boxes import BOX_OVERHEAD_BYTES, REVEALED_OVERHEAD_BYTES
from secagg.errors import MalformedMessage
from secagg.keys import PUBLIC_BYTES, SIGNATURE_BYTES
from secagg.masks import packed_bytes
from secagg.parameters import PARAMETERS_BYTES, Parameters
from secagg.shamir import SECRET_BYTES

MAGIC = b"SAGG"
VERSION = 2
SERVER = 0xFFFFFFFF
_HEADER = struct.Struct(">4sBBII16sI")
_CHECKSUM_BYTES = 16
OVERHEAD_BYTES = _HEADER.size + _CHECKSUM_BYTES
MAX_REASON_BYTES = 256
ANNOUNCE_BYTES = PARAMETERS_BYTES + PUBLIC_BYTES
CIPHERTEXT_BYTES = 2 * SECRET_BYTES + BOX_OVERHEAD_BYTES
"""Bytes of a box with the shares of one client for one neighbour."""
PAIR_BYTES = SECRET_BYTES + BOX_OVERHEAD_BYTES
"""Bytes of a box with a pair secret for the second of the two."""
COMMITMENT_BYTES = 32


class Kind(IntEnum):
    """Kind of a message; the first six pairs follow the round's stages."""

    ANNOUNCE = 0
    ADVERTISE = 1
    KEYS = 2
    SHARES = 3
    INBOX = 4
    MASKED = 5
    SURVIVORS = 6
    SIGNATURE = 7
    SIGNATURES = 8
    REVEAL = 9
    FINISHED = 10
    ABORT = 11


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message: ``session`` is the first 16 bytes of its parameters' digest."""

    kind: Kind
    sender: int
    recipient: int
    session: bytes
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """A client's hybrid keys: ``cipher`` for shares, ``mask`` for pair masks; ``signature`` over both or empty."""

    cipher: bytes
    mask: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes that one client seals for its neighbours, or gets from them, by neighbour: see `secagg.boxes`."""

    shares: dict[int, bytes] = field(repr=False)
    secrets: dict[int, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Revealed:
    """One share of one neighbour's secret: of its mask ``key`` (it dropped out) or of its seed (it did not)."""

    key: bool
    share: bytes = field(repr=False)


def pack_envelope(envelope: Envelope) -> bytes:
    """Returns the bytes of one message."""
    ways = (envelope.kind, envelope.sender, envelope.recipient)
    head = _HEADER.pack(MAGIC, VERSION, *ways, envelope.session, len(envelope.body))
    return b"".join((head, envelope.body, _checksum(head, envelope.body)))


def open_envelope(message: bytes, max_body: int) -> Envelope:
    """Returns the envelope in ``message``: all of it and nothing else."""
    if len(message) < OVERHEAD_BYTES:
        raise MalformedMessage(
            f"a message of {len(message)} bytes; expected at least {OVERHEAD_BYTES}"
        )
    head = message[: _HEADER.size]
    magic, version, kind, sender, recipient, session, size = _HEADER.unpack(head)
    if magic != MAGIC or version != VERSION:
        raise MalformedMessage(f"not a message of this protocol's version {VERSION}")
    if size > max_body or len(message) != size + OVERHEAD_BYTES:
        raise MalformedMessage(
            f"a message of {len(message)} bytes that announces a body of {size}; "
            f"expected both to agree and at most {max_body}"
        )
    body = message[_HEADER.size : -_CHECKSUM_BYTES]
    if _checksum(head, body) != message[-_CHECKSUM_BYTES:]:
        raise MalformedMessage("a damaged message: its checksum is wrong")
    try:
        return Envelope(Kind(kind), sender, recipient, session, body)
    except ValueError as error:
        raise MalformedMessage(f"a message of unknown kind {kind}") from error


def _checksum(head: bytes, body: bytes) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(body)
    return digest.digest()[:_CHECKSUM_BYTES]


def max_body(parameters: Parameters | None) -> int:
    """Returns the largest body of any message of a session; before the announcement, that of the announcement."""
    if parameters is None:
        return max(ANNOUNCE_BYTES, MAX_REASON_BYTES)
    # A neighbour's keys are longer than its shares, a pair secret and its revealed share together.
    per_neighbour = 4 + 2 * PUBLIC_BYTES + SIGNATURE_BYTES
    return max(
        ANNOUNCE_BYTES,
        MAX_REASON_BYTES,
        COMMITMENT_BYTES + REVEALED_OVERHEAD_BYTES + 8 + parameters.neighbours * per_neighbour,
        packed_bytes(parameters.length, parameters.bits),
        (parameters.clients + 7) // 8,
    )


def encode_announcement(parameters: Parameters, server_key: bytes) -> bytes:
    """Encodes ANNOUNCE: parameters 154 | the server's hybrid key 1,216, to which shares are revealed."""
    return parameters.to_bytes() + server_key


def split_announcement(body: bytes) -> tuple[bytes, bytes]:
    """Returns the two parts of an announcement, as bytes."""
    _size(body, ANNOUNCE_BYTES, "an announcement")
    return body[:PARAMETERS_BYTES], body[PARAMETERS_BYTES:]


def encode_keys(keys: PublicKeys) -> bytes:
    """Encodes ADVERTISE: cipher key 1,216 | mask key 1,216 | signature 64 where the session is signed."""
    return keys.cipher + keys.mask + keys.signature


def decode_keys(body: bytes, signed: bool) -> PublicKeys:
    """Decodes the body of ``encode_keys``."""
    _size(body, 2 * PUBLIC_BYTES + (SIGNATURE_BYTES if signed else 0), "public keys")
    return PublicKeys(
        body[:PUBLIC_BYTES], body[PUBLIC_BYTES : 2 * PUBLIC_BYTES], body[2 * PUBLIC_BYTES :]
    )


def encode_list(entries: dict[int, bytes]) -> bytes:
    """Encodes KEYS, SIGNATURES, and lists in SHARES, INBOX and REVEAL: count 4 | (client 4 | entry)*, ascending."""
    parts = [len(entries).to_bytes(4, "big")]
    for client in sorted(entries):
        parts += (client.to_bytes(4, "big"), entries[client])
    return b"".join(parts)


def decode_list(body: bytes, entry_bytes: int, allowed: Sequence[int]) -> dict[int, bytes]:
    """Decodes the body of ``encode_list``; entries are of ``entry_bytes`` and for some of the ``allowed`` clients."""
    if len(body) < 4:
        raise MalformedMessage(f"a list of {len(body)} bytes; expected at least 4")
    count, step = int.from_bytes(body[:4], "big"), 4 + entry_bytes
    if count > len(allowed):
        raise MalformedMessage(f"a list of {count} entries; expected at most {len(allowed)}")
    _size(body, 4 + count * step, f"a list of {count} entries")
    clients = [int.from_bytes(body[at : at + 4], "big") for at in range(4, len(body), step)]
    if any(later <= earlier for earlier, later in pairwise(clients)):
        raise MalformedMessage("a list whose clients are not in ascending order")
    unknown = set(clients).difference(allowed)
    if unknown:
        raise MalformedMessage(
            f"an entry for client {min(unknown)}, which has no place in this list"
        )
    return {
        client: body[at + 4 : at + step]
        for client, at in zip(clients, range(4, len(body), step), strict=True)
    }


def encode_inbox(boxes: Boxes) -> bytes:
    """Encodes INBOX, and the rest of SHARES: list of sealed shares of 1,168 | list of sealed pair secrets of 1,136."""
    return encode_list(boxes.shares) + encode_list(boxes.secrets)


def decode_inbox(body: bytes, neighbours: Sequence[int], paired: Collection[int]) -> Boxes:
    """Decodes the body of ``encode_inbox``.

    Shares are for or from some ``neighbours``; exactly for those of them that are also in ``paired`` there is a pair
    secret.
    """
    count = int.from_bytes(body[:4], "big")
    at = 4 + min(count, len(neighbours)) * (4 + CIPHERTEXT_BYTES)
    shares = decode_list(body[:at], CIPHERTEXT_BYTES, neighbours)
    expected = [v for v in shares if v in paired]
    secrets = decode_list(body[at:], PAIR_BYTES, expected)
    if len(secrets) != len(expected):
        raise MalformedMessage(f"{len(secrets)} pair secrets; expected {len(expected)}")
    return Boxes(shares, secrets)


def encode_shares(commitment: bytes, boxes: Boxes) -> bytes:
    """Encodes SHARES: commitment to the seed 32 | as an inbox."""
    return commitment + encode_inbox(boxes)


def decode_shares(
    body: bytes, holders: Sequence[int], paired: Collection[int]
) -> tuple[bytes, Boxes]:
    """Decodes the body of ``encode_shares``: commitment, and sealed shares for each of the ``holders``."""
    boxes = decode_inbox(body[COMMITMENT_BYTES:], holders, paired)
    if len(boxes.shares) != len(holders):
        raise MalformedMessage(
            f"shares for {len(boxes.shares)} neighbours; expected {len(holders)}"
        )
    return body[:COMMITMENT_BYTES], boxes


def encode_survivors(alive: NDArray[np.bool_]) -> bytes:
    """Encodes SURVIVORS: one bit per client, client 0 in the top bit of the first byte."""
    return np.packbits(alive).tobytes()


def decode_survivors(body: bytes, clients: int) -> NDArray[np.bool_]:
    """Decodes the body of ``encode_survivors``: flags (clients,)."""
    _size(body, (clients + 7) // 8, "a survivor list")
    bits = np.unpackbits(np.frombuffer(body, np.uint8))
    if bits[clients:].any():
        raise MalformedMessage("a survivor list with clients that do not exist")
    return bits[:clients].astype(np.bool_)


def encode_revealed(shares: dict[int, Revealed]) -> bytes:
    """Encodes the content of a REVEAL's box: a list of entries 0 (seed) or 1 (mask key) in one byte | share 32."""
    return encode_list({v: bytes([s.key]) + s.share for v, s in shares.items()})


def decode_revealed(body: bytes, allowed: Sequence[int]) -> dict[int, Revealed]:
    """Decodes the content of ``encode_revealed``."""
    entries = decode_list(body, 1 + SECRET_BYTES, allowed)
    if any(entry[0] > 1 for entry in entries.values()):
        raise MalformedMessage("a share of neither a seed nor a mask key")
    return {v: Revealed(entry[0] == 1, entry[1:]) for v, entry in entries.items()}


def encode_reason(reason: str) -> bytes:
    """Encodes ABORT: UTF-8 text, cut to 256 bytes."""
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore").encode()


def decode_reason(body: bytes) -> str:
    """Decodes the body of ``encode_reason``; control characters become question marks."""
    if len(body) > MAX_REASON_BYTES:
        raise MalformedMessage(
            f"a reason of {len(body)} bytes; expected at most {MAX_REASON_BYTES}"
        )
    text = body.decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _size(body: bytes, expected: int, what: str) -> None:
    if len(body) != expected:
        raise MalformedMessage(f"{what} in {len(body)} bytes; expected {expected}")
