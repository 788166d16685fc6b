"""Prime fields of 2^e - 1 elements less one, on NumPy: vectors in limbs of 16 bits, products of matrices by BLAS.

Provides ``Field`` and the three of them that proofs use (``inner_proof``). A vector is (n, limbs) in ``uint16``, the
lowest limb first, so that 64-bit words are vectors as they are; its elements stand for their residues and need not
be reduced. Sums of products of limbs are below 2^53, where float64 is exact. A few elements, such as a matrix of inner
products, are Python integers in object arrays. Nothing here is secret or public by itself.
Source: folding high limbs back by 2^e = 1 is the usual reduction (Knuth, TAOCP 2, section 4.3.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.uint16]
Integers = NDArray[Any]

LIMB_BITS = 16
_CHUNK = 1 << 12
_THIN = 4
# Of this many columns a sum of products of two limbs is below 2^53.
_EXACT_COLUMNS = 1 << 20


def limbs_of(values: Sequence[int] | Integers, limbs: int) -> Vector:
    """Non-negative integers of at most 16 ``limbs`` bits as a vector (n, limbs)."""
    raw = b"".join(int(value).to_bytes(2 * limbs, "little") for value in values)
    return np.frombuffer(raw, np.uint16).reshape(-1, limbs)


@dataclass(frozen=True, slots=True)
class Field:
    """The integers modulo the prime 2^exponent - 1."""

    exponent: int

    @property
    def modulus(self) -> int:
        """The prime."""
        return (1 << self.exponent) - 1

    @property
    def limbs(self) -> int:
        """Limbs of an element."""
        return -(-self.exponent // LIMB_BITS)

    @property
    def words(self) -> int:
        """64-bit words of an element on the wire."""
        return -(-self.exponent // 64)

    def from_ints(self, values: Sequence[int] | Integers) -> Vector:
        """Non-negative integers of at most as many bits as the limbs have, as a vector."""
        return limbs_of(values, self.limbs)

    def to_ints(self, vector: Vector) -> Integers:
        """A vector's elements as integers from 0 to p - 1 (n,)."""
        size, raw = 2 * vector.shape[1], np.ascontiguousarray(vector).tobytes()
        return self._ints(raw, size)

    def to_wire(self, values: Integers) -> NDArray[np.uint8]:
        """Integers from 0 to p - 1 in whole 64-bit words, little-endian."""
        size = 8 * self.words
        raw = b"".join(int(value).to_bytes(size, "little") for value in values.ravel())
        return np.frombuffer(raw, np.uint8)

    def from_wire(self, raw: NDArray[np.uint8]) -> Integers:
        """The inverse of ``to_wire``; what is p or more is reduced."""
        return self._ints(raw.tobytes(), 8 * self.words)

    def uniform(self, words: NDArray[np.uint64]) -> Integers:
        """Elements from uniform words (n, self.words): within 2^-exponent of uniform, since 0 has two of them."""
        words = words.copy()
        words[:, -1] &= np.uint64((1 << (self.exponent - 64 * (self.words - 1))) - 1)
        return self._ints(words.tobytes(), 8 * self.words)

    def _ints(self, raw: bytes, size: int) -> Integers:
        p = self.modulus
        values = [int.from_bytes(raw[i : i + size], "little") % p for i in range(0, len(raw), size)]
        out = np.empty(len(values), dtype=object)
        out[:] = values
        return out

    def gram(self, left: Vector, right: Vector, blocks: int) -> Integers:
        """All inner products of a block of ``left`` with one of ``right``: (g blocks, blocks), not reduced.

        Shapes: (g n, limbs) and (n, limbs'), n a multiple of ``blocks``: g vectors on the left, one after the other.
        """
        columns = right.shape[0] // blocks
        cut_left, cut_right = (v.reshape(-1, columns, v.shape[1]) for v in (left, right))
        total = np.zeros((len(cut_left), blocks), dtype=object)
        for start in range(0, columns, _EXACT_COLUMNS):
            part = slice(start, min(start + _EXACT_COLUMNS, columns))
            total = total + _gram(cut_left[:, part], cut_right[:, part])
        return total

    def fold(self, factors: Integers, vector: Vector) -> Vector:
        """The sum of a vector's blocks, each times its factor.

        Shapes: factors (blocks,), integers from 0 to p - 1; vector (n, limbs'); returns (n / blocks, limbs).
        """
        blocks, limbs = len(factors), vector.shape[1]
        cut = vector.reshape(blocks, -1, limbs)
        weights = self.from_ints(factors).T.astype(np.float64)
        folded = np.empty((cut.shape[1], self.limbs), np.uint16)
        for start in range(0, cut.shape[1], _CHUNK):
            part = cut[:, start : start + _CHUNK]
            count = part.shape[1]
            # Row a of the product has the limbs of the sum that come from limb a of the factors.
            rows = weights @ part.reshape(blocks, count * limbs).astype(np.float64)
            diagonals = np.zeros((self.limbs + limbs, count))
            for a, row in enumerate(rows.reshape(self.limbs, count, limbs)):
                diagonals[a : a + limbs] += row.T
            folded[start : start + count] = self._carried(diagonals).T
        return folded

    def _carried(self, diagonals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums by weight 2^(16 d), each a whole number below 2^49, as limbs (limbs, n) of the same residues."""
        count = self.limbs
        # 2^(16 limbs) is 2^excess modulo p.
        above = float(1 << (LIMB_BITS * count - self.exponent))
        low, high = diagonals[:count].copy(), diagonals[count:]
        while high.shape[0] > count:
            high[: high.shape[0] - count] += above * high[count:]
            high = high[:count]
        low[: high.shape[0]] += above * high
        while True:
            for limb in range(count):
                carry = np.floor(low[limb] * 2.0**-LIMB_BITS)
                low[limb] -= carry * 2.0**LIMB_BITS
                if limb + 1 < count:
                    low[limb + 1] += carry
                else:
                    low[0] += above * carry
            if low[0].max(initial=0.0) < 1 << LIMB_BITS:
                return low


F61, F127, F521 = Field(61), Field(127), Field(521)


def _gram(left: Vector, right: Vector) -> Integers:
    """``Field.gram`` of (rows, columns, limbs) and (blocks, columns, limbs'), few enough columns to be exact."""
    rows, columns, limbs = left.shape
    blocks, _, others = right.shape
    sums = np.zeros((limbs, rows, others, blocks))
    for start in range(0, columns, _CHUNK):
        a, low = _rows(left[:, start : start + _CHUNK])
        b, others_low = _rows(right[:, start : start + _CHUNK])
        found = (a @ b.T).reshape(len(low), rows, len(others_low), blocks)
        sums[np.ix_(low, range(rows), others_low, range(blocks))] += found
    whole = sums.astype(np.int64)
    total = np.zeros((rows, blocks), dtype=object)
    for d in range(limbs + others - 1):
        pairs = range(max(0, d - others + 1), min(d + 1, limbs))
        diagonal = sum((whole[a, :, d - a] for a in pairs), np.zeros((rows, blocks), np.int64))
        if diagonal.any():
            total = total + (diagonal.astype(object) << LIMB_BITS * d)
    return total


def _rows(part: Vector) -> tuple[NDArray[np.float64], list[int]]:
    """(blocks, columns, limbs) as a matrix (limbs blocks, columns) of the limbs that are not all zero, and these."""
    blocks, columns, count = part.shape
    # Few limbs are hardly ever zero, and looking takes as long as computing with them.
    limbs = [limb for limb in range(count) if count <= _THIN or part[:, :, limb].any()]
    rows = np.empty((len(limbs), blocks, columns))
    for row, limb in zip(rows, limbs, strict=True):
        row[...] = part[:, :, limb]
    return rows.reshape(-1, columns), limbs
