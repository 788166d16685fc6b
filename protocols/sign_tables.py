"""Sums of signs with public factors, by tables: of eight gates in a look-up.

A gate has three bits: x, y and a last one. Left's vector and right's have four signs of a gate each, functions of its
bits. With v = (x_i, y_i) of left, w = (y_{i+1}, x_{i+1}) of right, and q(a, b) = a b, which is bent and its own dual:
the sum over the four k in {0, 1}^2 of (-1)^(k v) (-1)^q(k + w) is 2 (-1)^(v w + q(v)). So left's signs are those of
last + k v, for k = (0, 0), (1, 0), (0, 1), (1, 1), and right's those of last + q(k + w) for the same k. The last bits
change the signs of all four, and q(v) = x_i y_i is the other part of the message of party i.

A word has 64 gates, of which bit i belongs to block i, or to block i modulo 16; a *column* has one gate of each block:
a word or a lane of 16 bits. The sums of a column are over its gates, each with the factor of its block. ``kernels``
looks up the tables. All values here are public.
"""

import numpy as np
from numpy.typing import NDArray

from protocols.keystream import Keystream
from protocols.mersenne import Field, Integers

LANE = 16
DIGITS, DIGIT_BITS, APART = 3, 15, 21
"""Digits of a factor: the sum of 64 digits of 15 bits has 21."""

_BYTE = 8


def drawn_digits(stream: Keystream, field: Field, count: int) -> Integers:
    """Draws the stream's next ``count`` factors of three uniform digits (count,): 2^45 of them, distinct in F61."""
    words, factors = stream.read(8 * count).view(np.uint64), np.zeros(count, object)
    for place in range(0, DIGITS * APART, APART):
        digits = words >> np.uint64(place) & np.uint64((1 << DIGIT_BITS) - 1)
        factors += digits.astype(object) << place
    return factors


def sign_tables(factors: Integers, field: Field) -> NDArray[np.uint64]:
    """Returns for each byte of a column and each of its values the sum of the factors' signs: (bytes, 256).

    A factor counts negatively where the value has a one. Modulo the prime, of at most 61 bits.
    """
    # A sign is 1 - 2 bit, so the sum is that of all factors less twice that of the subset of ones.
    subsets, modulus = _subset_tables(factors, field), np.uint64(field.modulus)
    return (subsets[:, -1:] + np.uint64(2) * (modulus - subsets)) % modulus


def digit_tables(factors: Integers, field: Field) -> NDArray[np.uint64]:
    """Returns, as ``sign_tables``, the sums of the factors that have ones: (bytes, 256), for ``drawn_digits`` alone.

    They are exact, and digits stay apart.
    """
    # Eight of them are below 2^60, so that no sum is reduced.
    return _subset_tables(factors, field)


def _subset_tables(factors: Integers, field: Field) -> NDArray[np.uint64]:
    """Returns the sums of all subsets of each eight factors, modulo the prime: (bytes, 256)."""
    groups, modulus = factors.reshape(-1, _BYTE).astype(np.uint64), np.uint64(field.modulus)
    sums = np.zeros((len(groups), 1), np.uint64)
    for place in range(_BYTE):
        sums = np.concatenate((sums, (sums + groups[:, place : place + 1]) % modulus), axis=1)
    return sums
