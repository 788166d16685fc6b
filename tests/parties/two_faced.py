"""A ciphertext of AES-256-GCM that opens under two keys, to two different texts: the mode does not commit to its key.

Under each key the tag is GHASH of the ciphertext, a polynomial in a point that depends on the key, and a mask. One
block of the ciphertext is left free, and the two tags are equal for exactly one value of it: a linear equation over
GF(2^128).
Source: NIST SP 800-38D, 6.3 and 6.4; Dodis, Grubbs, Ristenpart, Woodage, "Fast Message Franking", 2018.
"""

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_R = 0xE1 << 120


def _times(a: int, b: int) -> int:
    """The product in GHASH's field, whose bits run from the left."""
    product = 0
    for bit in range(127, -1, -1):
        if b >> bit & 1:
            product ^= a
        a = a >> 1 ^ (_R if a & 1 else 0)
    return product


def _power(a: int, exponent: int) -> int:
    result = 1 << 127
    while exponent:
        if exponent & 1:
            result = _times(result, a)
        a, exponent = _times(a, a), exponent >> 1
    return result


def _blocks(data: bytes) -> list[int]:
    padded = data + bytes(-len(data) % 16)
    return [int.from_bytes(padded[i : i + 16]) for i in range(0, len(padded), 16)]


def _mask_and_point(key: bytes, nonce: bytes) -> tuple[int, int]:
    encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # the block cipher itself
    return tuple(
        int.from_bytes(encryptor.update(block))
        for block in (nonce + bytes((0, 0, 0, 1)), bytes(16))
    )  # type: ignore[return-value]


def two_faced(first: bytes, second: bytes, nonce: bytes, context: bytes, text: bytes) -> bytes:
    """``text``'s length in ciphertext, and a tag: it opens under either key. The first block is the free one."""
    stream = Cipher(algorithms.AES256(first), modes.GCM(nonce)).encryptor()
    body = bytes(16) + stream.update(text)[16:]
    lengths = (8 * len(context)).to_bytes(8) + (8 * len(body)).to_bytes(8)
    blocks = [*_blocks(context), *_blocks(body), int.from_bytes(lengths)]
    exponent = len(blocks) - len(_blocks(context))
    tags, factors = [], []
    for mask, point in (_mask_and_point(key, nonce) for key in (first, second)):
        tag = 0
        for block in blocks:
            tag = _times(tag ^ block, point)
        tags.append(tag ^ mask)
        factors.append(_power(point, exponent))
    # free * (factor + factor') = tag + tag', and an inverse is a power.
    inverse = _power(factors[0] ^ factors[1], 2**128 - 2)
    free = _times(tags[0] ^ tags[1], inverse)
    tag = tags[0] ^ _times(free, factors[0])
    return free.to_bytes(16) + body[16:] + tag.to_bytes(16)
