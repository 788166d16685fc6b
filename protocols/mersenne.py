"""Prime fields of 2^e - c elements, c small: vectors of elements in words.

A vector is (n, words) in ``uint64``, the lowest word first, so that 64-bit words are vectors as they are; its elements
stand for their residues and need not be reduced. Operations on vectors are compiled (``kernels``). A few elements, such
as a matrix of inner products, are Python integers in object arrays. Proofs use four fields (``inner_proof``). Nothing
here is secret or public by itself. Source: folding high bits back by 2^e = c is the usual reduction (Knuth, TAOCP 2,
section 4.3.2). Primes: two of Mersenne's; 2^255 - 19 (Bernstein, PKC 2006); 2^383 - 187 (Aranha et al., 2013).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.uint64]
Integers = NDArray[Any]

_WORD_BITS = 64
_LOW_WORD = (1 << _WORD_BITS) - 1


def words_of(values: Sequence[int] | Integers, words: int) -> Vector:
    """Returns non-negative integers of at most 64 ``words`` bits as a vector (n, words)."""
    rest = np.asarray(values, object).reshape(-1)
    found = np.empty((rest.size, words), np.uint64)
    for word in range(words - 1):
        found[:, word] = rest & _LOW_WORD
        rest = rest >> _WORD_BITS
    found[:, -1] = rest
    return found


def ints_of(words: Vector) -> Integers:
    """Returns the integers (n,) of a vector (n, words): the inverse of ``words_of``."""
    found: Integers = words[:, -1].astype(object)
    for word in range(words.shape[1] - 2, -1, -1):
        found = (found << _WORD_BITS) + words[:, word].astype(object)
    return found


@dataclass(frozen=True, slots=True)
class Field:
    """The integers modulo the prime 2^exponent - offset."""

    exponent: int
    offset: int = 1

    @property
    def modulus(self) -> int:
        """The prime."""
        return (1 << self.exponent) - self.offset

    @property
    def words(self) -> int:
        """64-bit words of an element."""
        return -(-self.exponent // _WORD_BITS)

    def from_ints(self, values: Sequence[int] | Integers) -> Vector:
        """Returns non-negative integers of at most as many bits as the words have, as a vector."""
        return words_of(values, self.words)

    def to_ints(self, vector: Vector) -> Integers:
        """Returns a vector's elements as integers from 0 to p - 1 (n,)."""
        found: Integers = ints_of(vector) % self.modulus
        return found

    def to_wire(self, values: Integers) -> NDArray[np.uint8]:
        """Returns integers from 0 to p - 1 in whole 64-bit words, little-endian."""
        return self.from_ints(values).reshape(-1).view(np.uint8)

    def from_wire(self, raw: NDArray[np.uint8]) -> Integers:
        """Returns the integers of their bytes: the inverse of ``to_wire``; numbers from p on are reduced."""
        return self.to_ints(np.frombuffer(raw.tobytes(), np.uint64).reshape(-1, self.words))

    def uniform(self, read: Callable[[int], Vector], count: int) -> Integers:
        """Draws uniform elements (count,) of a stream of uniform words, of which ``read(n)`` gives the next (n, words).

        Of the 2^exponent numbers those from the prime on are rejected, and the next number takes its place: two parties
        that read the same stream get the same elements, and go on at the same place.
        """
        found = self._below_prime(read(count))
        while lacking := count - len(found):
            found = np.concatenate((found, self._below_prime(read(lacking))))
        return ints_of(found)

    def _below_prime(self, words: Vector) -> Vector:
        """Returns as many bits of each (n, words) as the prime has, without those that are the prime or above it."""
        prime = words_of([self.modulus], self.words)[0]
        cut = words.copy()
        cut[:, -1] &= np.uint64((1 << (self.exponent - _WORD_BITS * (self.words - 1))) - 1)
        # The prime's bits above the lowest word are all ones.
        above = (cut[:, 1:] == prime[1:]).all(axis=1) & (cut[:, 0] >= prime[0])
        found: Vector = cut[~above] if above.any() else cut
        return found

    def gram(self, left: Vector, right: Vector, blocks: int) -> Integers:
        """Returns all inner products of a block of ``left`` with one of ``right``: (g blocks, blocks), not reduced.

        Shapes: (g n, words) and (n, words'), n a multiple of ``blocks``: g vectors on the left, one after the other.
        """
        from protocols.kernels import multiply_blocks

        words = multiply_blocks(left, right, blocks)
        return ints_of(words.reshape(-1, words.shape[2])).reshape(-1, blocks)

    def fold(self, factors: Integers, vector: Vector) -> Vector:
        """Sums a vector's blocks, each times its factor.

        Shapes: factors (blocks,), integers from 0 to p - 1; vector (n, words'); returns (n / blocks, words).
        """
        from protocols.kernels import fold_blocks

        # Short factors take fewer products.
        bits = max(1, *(int(factor).bit_length() for factor in factors))
        words = words_of(factors, -(-bits // _WORD_BITS))
        return fold_blocks(words, vector, (self.exponent, self.offset))


F61, F127, F255, F383 = Field(61), Field(127), Field(255, 19), Field(383, 187)
