"""What a silo sends and receives for one sum: frames' bytes, in a sum that nobody drops out of.

Provides ``SumShape``, ``silo_sent_bytes`` and ``silo_received_bytes``. A sum is one SecAgg session among n silos with k
neighbours each (n - 1 at most), vectors of l numbers in a ring of b bits; all terms but one do not depend on l.

    rounds   4 there and back, 5 where the session is signed
    sent     4 (5) messages of 54 bytes of frame, envelope and checksum, and in them
             2,432 (signed 2,496) keys | 40 + 1,172 k shares | 570 k pair secrets | ceil(l b / 8) the vector |
             (64 a signature) | 1,140 + 37 k reveal
    received request, and 5 (6) messages of 54 bytes, and in them
             the session's parameters | 1,216 the server's key | 4 + 2,436 k (signed 2,500 k) keys |
             8 + 1,172 k shares | 570 k pair secrets | ceil(n / 8) survivors | (4 + 68 w signatures of the w witnesses)

Pair secrets are of 1,140 bytes each, and each silo makes one for half of its neighbours: where k is odd, half of the
silos send one more than the others and receive one less. Both formulas are the mean's then, 570 bytes from everybody's.
b is what the sum of n numbers between the request's bounds, and its noise, needs (`secagg.parameters.Encoding`).
Malicious mode's cards and lists of members, which come before a sum, are not in it.
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
    """n ``silos`` with k ``neighbours``, ``length`` numbers of ``bits`` bits; what asks for them has ``task`` bytes."""

    silos: int
    neighbours: int
    length: int
    bits: int
    signed: bool
    task: int

    @classmethod
    def of(cls, parameters: Parameters, task: int) -> Self:
        """Of the session with these ``parameters``."""
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
        """Bytes of a signature, where there are any."""
        return SIGNATURE_BYTES if self.signed else 0


def _boxes(k: int) -> int:
    """Shares for, or of, k neighbours, and pair secrets for, or of, half of them."""
    return 2 * _COUNT + k * (_ID + CIPHERTEXT_BYTES) + k * (_ID + PAIR_BYTES) // 2


def silo_sent_bytes(shape: SumShape) -> int:
    """Bytes that each silo sends."""
    k, signature = shape.neighbours, shape.signature
    keys = 2 * PUBLIC_BYTES + signature
    shares = COMMITMENT_BYTES + _boxes(k)
    vector = packed_bytes(shape.length, shape.bits)
    reveal = REVEALED_OVERHEAD_BYTES + _COUNT + k * (_ID + _WHICH + SECRET_BYTES)
    return (4 + shape.signed) * _MESSAGE + keys + shares + vector + signature + reveal


def silo_received_bytes(shape: SumShape) -> int:
    """Bytes that each silo receives."""
    k, signature = shape.neighbours, shape.signature
    request = SIZE_BYTES + HEADER_BYTES + POSITION_BYTES + shape.task
    keys = _COUNT + k * (_ID + 2 * PUBLIC_BYTES + signature)
    survivors = (shape.silos + 7) // 8
    signatures = _COUNT + k * (_ID + signature) if shape.signed else 0
    body = ANNOUNCE_BYTES + keys + _boxes(k) + survivors + signatures
    return request + (5 + shape.signed) * _MESSAGE + body
