"""Bytes that a participant sends and receives in one sum, as frames, in a sum without dropouts.

A sum is one SecAgg session among n participants with k neighbours each (n - 1 at most), vectors of l numbers in
a ring of b bits. All terms but one are independent of l.

    rounds   4 there and back, 5 where the session is signed
    sent     4 (5) messages of 54 bytes of frame, envelope and checksum, and in them
             2,432 (signed 2,496) keys | 40 + 1,172 k shares | 570 k pair secrets | ceil(l b / 8) the vector |
             (64 a signature) | 1,140 + 37 k reveal
    received request, and 5 (6) messages of 54 bytes, and in them
             the session's parameters | 1,216 the server's key | 4 + 2,436 k (signed 2,500 k) keys |
             8 + 1,172 k shares | 570 k pair secrets | ceil(n / 8) survivors | (4 + 68 w signatures of the w witnesses)

A pair secret has 1,140 bytes, and each participant makes one for half of its neighbours. Where k is odd, half of the
participants send one pair secret more than the others and receive one less; both formulas are then the mean, 570 bytes
per neighbour. b is the number of bits for the sum of n numbers between the request's bounds, and its noise
(`secagg.parameters.Encoding`). The formulas exclude malicious mode's cards and member lists, which come before a sum.
"""

from dataclasses import dataclass
from typing import Self

from parties.federation.messages import HEADER_BYTES, POSITION_BYTES
from parties.network.frames import SIZE_BYTES
from secagg import Parameters
from secagg.boxes import REVEALED_OVERHEAD_BYTES
from secagg.keys import PUBLIC_BYTES, SIGNATURE_BYTES
from secagg.masks import packed_bytes
from secagg.shamir import SECRET_BYTES
from secagg.wire import (
    ANNOUNCE_BYTES,
    CIPHERTEXT_BYTES,
    COMMITMENT_BYTES,
    OVERHEAD_BYTES,
    PAIR_BYTES,
)

_MESSAGE = SIZE_BYTES + OVERHEAD_BYTES
_COUNT, _ID, _WHICH = 4, 4, 1


@dataclass(frozen=True, slots=True)
class SumShape:
    """A sum of n ``participants``, k ``neighbours``, ``length`` numbers of ``bits`` bits; ``task`` bytes of request."""

    participants: int
    neighbours: int
    length: int
    bits: int
    signed: bool
    task: int

    @classmethod
    def of(cls, parameters: Parameters, task: int) -> Self:
        """Returns the shape of the session with these ``parameters``."""
        return cls(
            parameters.clients,
            parameters.neighbours,
            parameters.length,
            parameters.bits,
            parameters.signed,
            task,
        )

    @property
    def signature(self) -> int:
        """Size of a signature in bytes; 0 in an unsigned session."""
        return SIGNATURE_BYTES if self.signed else 0


def _boxes(k: int) -> int:
    """Size of the shares for k neighbours and of the pair secrets for half of them, in bytes."""
    return 2 * _COUNT + k * (_ID + CIPHERTEXT_BYTES) + k * (_ID + PAIR_BYTES) // 2


def sum_sent_bytes(shape: SumShape) -> int:
    """Bytes that each participant sends."""
    k, signature = shape.neighbours, shape.signature
    keys = 2 * PUBLIC_BYTES + signature
    shares = COMMITMENT_BYTES + _boxes(k)
    vector = packed_bytes(shape.length, shape.bits)
    reveal = REVEALED_OVERHEAD_BYTES + _COUNT + k * (_ID + _WHICH + SECRET_BYTES)
    return (4 + shape.signed) * _MESSAGE + keys + shares + vector + signature + reveal


def sum_received_bytes(shape: SumShape) -> int:
    """Bytes that each participant receives."""
    k, signature = shape.neighbours, shape.signature
    request = SIZE_BYTES + HEADER_BYTES + POSITION_BYTES + shape.task
    keys = _COUNT + k * (_ID + 2 * PUBLIC_BYTES + signature)
    survivors = (shape.participants + 7) // 8
    signatures = _COUNT + k * (_ID + signature) if shape.signed else 0
    body = ANNOUNCE_BYTES + keys + _boxes(k) + survivors + signatures
    return request + (5 + shape.signed) * _MESSAGE + body
