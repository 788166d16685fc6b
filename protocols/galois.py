"""The Galois ring GR(2^16, 47): polynomials over Z_2^16 modulo x^47 + x^5 + 1, for proofs about elements of Z_2^16.

The polynomial is irreducible modulo 2, so that modulo 2 this is the field of 2^47 elements. Elements with coefficients
0 and 1 are different modulo 2, hence their differences have inverses: a polynomial of degree t over the ring that is
not zero vanishes at a random one of them with probability at most t 2^-47, whatever power of 2 divides its coefficients
(Schwartz and Zippel). Random numbers of Z_2^16 itself cannot do that: half of them are even.

An element is 47 numbers of 16 bits. Products of matrices of coefficients are float64, where they are exact. Nothing
here is secret or public by itself. Source: Galois rings as in Abspoel et al. (TCC 2019), section 2.
"""

import numpy as np
from numpy.typing import NDArray

from protocols.keystream import Keystream

DEGREE = 47
_MIDDLE = 5
_PRODUCT = 2 * DEGREE - 1
# Rows of matrices at a time, such that the operands stay in the cache.
_CHUNK = 64

Elements = NDArray[np.uint16]
"""Coefficients, the lowest first, along one of the axes."""
Floats = NDArray[np.floating]


def drawn(stream: Keystream, count: int) -> Elements:
    """Returns the stream's next elements with coefficients 0 and 1: (DEGREE, count)."""
    bits = np.unpackbits(stream.read(-(-DEGREE * count // 8)), count=DEGREE * count)
    return bits.reshape(DEGREE, count).astype(np.uint16)


def low_bits(sums: Floats) -> Elements:
    """Returns whole numbers below 2^53 modulo 2^16; of single precision, below 2^24."""
    whole = np.int32 if sums.dtype == np.float32 else np.int64
    return sums.astype(whole).astype(np.uint16)


def signed(x: Elements) -> Floats:
    """Returns numbers modulo 2^16 between -2^15 and 2^15."""
    return x.view(np.int16).astype(np.float64)


def single(x: Elements) -> Floats:
    """Returns ``signed`` in single precision, which is exact where sums stay below 2^24, and takes half the time."""
    return x.view(np.int16).astype(np.float32)


def multiplier(x: Elements) -> Floats:
    """Returns the matrix (DEGREE, DEGREE) of multiplication with x (DEGREE,); earlier axes of x stay in front."""
    wide = np.zeros((*x.shape[:-1], DEGREE, _PRODUCT), np.int64)
    for power in range(DEGREE):
        wide[..., power, power : power + DEGREE] = x
    # Row t is x times the variable's power t, and has to be a column.
    return np.swapaxes(signed(_reduced(wide)), -1, -2)


def times(x: Elements, y: Elements) -> Elements:
    """Returns x (DEGREE,) times each of y (DEGREE, n)."""
    return low_bits(multiplier(x) @ signed(y))


def products(x: Floats, y: Floats) -> Elements:
    """Sums x times y over the last axis, (..., DEGREE, n) each, signed: (..., DEGREE). Sums stay below 2^53."""
    return _reduced(_diagonals(x @ np.swapaxes(y, -1, -2)))


def row_products(x: Elements, y: Elements) -> Elements:
    """Returns for each row the sum over the last axis of x times y: (rows, DEGREE, n) each; returns (rows, DEGREE)."""
    found = np.empty((x.shape[0], DEGREE), np.uint16)
    for start in range(0, x.shape[0], _CHUNK):
        part = slice(start, start + _CHUNK)
        found[part] = products(signed(x[part]), signed(y[part]))
    return found


def halves(x: Elements) -> tuple[Elements, Elements]:
    """Returns the first half of the rows (rows, ...), the larger one where they differ, and the second."""
    middle = -(-x.shape[0] // 2)
    return x[:middle], x[middle:]


def fold(factor: Elements, x: Elements) -> Elements:
    """Returns the first half of the rows plus ``factor``, which was ``drawn``, times the second: (rows, DEGREE, n)."""
    first, second = halves(x)
    # Entries of the matrix are between -2 and 2: 2^22 is more than any sum.
    matrix = multiplier(factor).astype(np.float32)
    found = first.copy()
    for start in range(0, second.shape[0], _CHUNK):
        part = slice(start, min(start + _CHUNK, second.shape[0]))
        found[part] += low_bits(matrix @ single(second[part]))
    return found


def _diagonals(table: Floats) -> NDArray[np.int64]:
    """Adds up (..., DEGREE, DEGREE) where the axes' places have the same sum: (..., 2 DEGREE - 1)."""
    # Rows of length 2 DEGREE, cut anew at 2 DEGREE - 1: each begins one place further, so that columns are diagonals.
    wide = np.zeros((*table.shape[:-1], _PRODUCT + 1))
    wide[..., :DEGREE] = table
    flat = wide.reshape(*table.shape[:-2], -1)[..., : DEGREE * _PRODUCT]
    found: Floats = flat.reshape(*table.shape[:-2], DEGREE, _PRODUCT).sum(axis=-2)
    return found.astype(np.int64)


def _reduced(coefficients: NDArray[np.int64]) -> Elements:
    """Reduces a product's coefficients (..., 2 DEGREE - 1) modulo x^47 + x^5 + 1 and 2^16."""
    low, high = coefficients[..., :DEGREE].copy(), coefficients[..., DEGREE:]
    # x^(47 + j) = -x^j - x^(5 + j).
    low[..., : DEGREE - 1] -= high
    low[..., _MIDDLE:] -= high[..., : DEGREE - _MIDDLE]
    # For j >= 42 the power 5 + j is reduced once more: with i = j - 42, -x^(47 + i) = x^i + x^(5 + i).
    beyond = high[..., DEGREE - _MIDDLE :]
    low[..., : beyond.shape[-1]] += beyond
    low[..., _MIDDLE : _MIDDLE + beyond.shape[-1]] += beyond
    return low.astype(np.uint16)
