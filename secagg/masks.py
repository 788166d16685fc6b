"""Masks in Z_2^b and vectors of b-bit elements on the wire.

A mask is AES-256-CTR keystream, read as little-endian words of 32 or 64 bits and taken modulo 2^b: every element of the
ring is equally likely, the top value included, and the key has 256 bits, all of them from HKDF. Arithmetic is on whole
words; 2^b divides 2^32 and 2^64, so that dropping the upper bits once at the end is the same as dropping them at every
step. Secret: keys, keystreams, unmasked vectors. Public: masked vectors. Source: Bonawitz et al. 2017; packing is a bit
stream, least significant bit first.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from secagg.errors import MalformedMessage

MAX_BITS = 63
KEY_BYTES = 32
# Blocks stay in the processor's cache; the scratch space does not grow with the vector.
_BLOCK_WORDS = 1 << 16
_ZEROS = bytes(8 * _BLOCK_WORDS)

Vector = NDArray[np.unsignedinteger]


def word(bits: int) -> type[np.uint32] | type[np.uint64]:
    """Returns the machine word in which elements of Z_2^``bits`` are computed. Raises ValueError beyond 63 bits."""
    if not 1 <= bits <= MAX_BITS:
        raise ValueError(f"a ring of {bits} bits; expected 1 to {MAX_BITS}")
    return np.uint32 if bits <= 32 else np.uint64


def add_mask(total: Vector, key: bytes, *, negative: bool = False) -> None:
    """Adds the mask of ``key`` to ``total`` (any length) in place, modulo the word; subtracts it if ``negative``."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a mask key of {len(key)} bytes; expected {KEY_BYTES}")
    # A key makes one mask only, so that the counter may start at zero.
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
    block = np.empty(min(total.size, _BLOCK_WORDS), total.dtype.newbyteorder("<"))
    combine = np.subtract if negative else np.add
    for start in range(0, total.size, _BLOCK_WORDS):
        part = total[start : start + _BLOCK_WORDS]
        mask = block[: part.size]
        stream.update_into(memoryview(_ZEROS)[: mask.nbytes], mask.data.cast("B"))
        combine(part, mask, out=part)


def packed_bytes(length: int, bits: int) -> int:
    """Returns the bytes of ``length`` packed elements of ``bits`` bits."""
    return (length * bits + 7) // 8


def pack(values: Vector, bits: int) -> bytes:
    """Packs ``values`` modulo 2^``bits`` as a bit stream, least significant bit first, zero bits at the end.

    64 elements fill ``bits`` words of 64 bits, for any ``bits``, so that the loop is over positions in such a group.
    """
    groups = -(-values.size // 64)
    lanes = np.zeros((64, groups), np.uint64)
    padded = np.zeros(groups * 64, np.uint64)
    padded[: values.size] = values & values.dtype.type((1 << bits) - 1)
    lanes[:] = padded.reshape(groups, 64).T
    words = np.zeros((bits, groups), np.uint64)
    for position in range(64):
        index, shift = divmod(position * bits, 64)
        words[index] |= lanes[position] << np.uint64(shift)
        # An element that does not fit into the rest of its word goes on in the next one.
        if shift + bits > 64:
            words[index + 1] |= lanes[position] >> np.uint64(64 - shift)
    stream = np.ascontiguousarray(words.T).astype("<u8", copy=False)
    return stream.tobytes()[: packed_bytes(values.size, bits)]


def unpack(data: bytes, length: int, bits: int) -> Vector:
    """Returns the ``length`` elements that ``pack`` wrote.

    Raises MalformedMessage where the size is not exactly right or the padding bits are not zero.
    """
    size = packed_bytes(length, bits)
    if len(data) != size:
        raise MalformedMessage(f"a packed vector of {len(data)} bytes; expected {size}")
    if size and data[-1] >> (8 - (size * 8 - length * bits)):
        raise MalformedMessage("padding bits of a packed vector are set; expected zeros")
    groups = -(-length // 64)
    stream = np.zeros(groups * bits * 8, np.uint8)
    stream[:size] = np.frombuffer(data, np.uint8)
    words = np.ascontiguousarray(stream.view("<u8").reshape(groups, bits).T)
    lanes = np.empty((64, groups), np.uint64)
    mask = np.uint64((1 << bits) - 1)
    for position in range(64):
        index, shift = divmod(position * bits, 64)
        lane = words[index] >> np.uint64(shift)
        # Its upper bits are the lowest of the next word, where it did not fit into its own.
        if shift + bits > 64:
            lane |= words[index + 1] << np.uint64(64 - shift)
        lanes[position] = lane & mask
    values = np.ascontiguousarray(lanes.T).reshape(-1)[:length]
    return values.astype(word(bits))
