"""The Galois ring GR(2^16, 47): polynomials over Z_2^16 modulo x^47 + x^5 + 1, for proofs about elements of Z_2^16.

The polynomial is irreducible modulo 2, so that modulo 2 this is the field of 2^47 elements. Elements with coefficients
0 and 1 are different modulo 2, hence their differences have inverses: a polynomial of degree t over the ring that is
not zero vanishes at a random one of them with probability at most t 2^-47, whatever power of 2 divides its coefficients
(Schwartz and Zippel). Random numbers of Z_2^16 itself cannot do that: half of them are even.

An element is 47 numbers of 16 bits. Elements of many rows have rows along the last axis. Where an installation has the
compiled ``_galois``, loops over rows are its; elsewhere they are NumPy's products of matrices, in floating point, where
they are exact: the results are the same to the bit. Nothing here is secret or public by itself. Source: Galois rings as
in Abspoel et al. (TCC 2019), section 2.
"""

import numpy as np
from numpy.typing import NDArray

from protocols.keystream import Keystream

NUMPY = "numpy"

try:
    from protocols import _galois as compiled
except ImportError:
    # No compiler was there when this was installed.
    KERNELS: tuple[str, ...] = (NUMPY,)
else:
    KERNELS = (*compiled.VARIANTS, NUMPY)
"""Ways of computing for many rows that this machine has: kinds of its processor, the fastest first, and NumPy's."""

DEGREE = 47
_MIDDLE = 5
_PRODUCT = 2 * DEGREE - 1
# Rows of matrices at a time, such that the operands stay in the cache.
_CHUNK = 64
_SINGLE = 1 << 24

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


def weighted_sums(weights: Elements, x: Elements, *, kernel: str = KERNELS[0]) -> Elements:
    """Returns for each row the sum of the numbers with their weights: (DEGREE, n) and (n, rows) are (DEGREE, rows)."""
    found = np.zeros((DEGREE, x.shape[1]), np.uint16)
    add_weighted(found, weights, x, kernel=kernel)
    return found


def add_weighted(
    sums: Elements, weights: Elements, x: Elements, *, kernel: str = KERNELS[0]
) -> None:
    """Adds ``weighted_sums`` to the sums."""
    if kernel != NUMPY:
        # Zeros that take no memory have no steps between them.
        rows = x if x.strides[1] == x.itemsize else np.ascontiguousarray(x)
        compiled.weigh(np.ascontiguousarray(weights), rows, sums, kernel)
        return
    bound = int(np.abs(weights.view(np.int16).astype(np.int32)).max(initial=0)) * len(x) << 15
    single = np.float32 if bound < _SINGLE else np.float64
    matrix, step = weights.view(np.int16).astype(single), _CHUNK << 4
    for start in range(0, x.shape[1], step):
        part = slice(start, start + step)
        sums[:, part] += low_bits(matrix @ x[:, part].view(np.int16).astype(single))


def row_products(x: Elements, y: Elements, *, kernel: str = KERNELS[0]) -> Elements:
    """Returns for each row the sum over terms of x times y, (terms, DEGREE, rows) each: (DEGREE, rows)."""
    found = np.zeros(x.shape[1:], np.uint16)
    if kernel != NUMPY:
        compiled.multiply(x, y, found, kernel)
        return found
    for start in range(0, x.shape[-1], _CHUNK):
        part = slice(start, start + _CHUNK)
        # Rows first, and terms last.
        left, right = (signed(np.ascontiguousarray(z[..., part].T)) for z in (x, y))
        found[:, part] = products(left, right).T
    return found


def add_multiple(
    sums: Elements, factor: Elements, x: Elements, *, kernel: str = KERNELS[0]
) -> None:
    """Adds a ``factor``, which was ``drawn``, times x to the sums: (terms, DEGREE, rows) both."""
    if kernel != NUMPY:
        compiled.scale(factor, x, sums, kernel)
        return
    # Entries of the matrix are between -2 and 2: 2^22 is more than any sum.
    matrix = multiplier(factor).astype(np.float32)
    for term, some in enumerate(x):
        sums[term] += low_bits(matrix @ some.view(np.int16).astype(np.float32))


def halves(x: Elements) -> tuple[Elements, Elements]:
    """Returns the first half of the rows (..., rows), the larger one where they differ, and the second."""
    middle = -(-x.shape[-1] // 2)
    return x[..., :middle], x[..., middle:]


def fold(factor: Elements, x: Elements, *, kernel: str = KERNELS[0]) -> Elements:
    """Returns the first half of the rows plus ``factor``, which was ``drawn``, times the second: (n, DEGREE, rows)."""
    first, second = halves(x)
    found = first.copy()
    add_multiple(found[..., : second.shape[-1]], factor, second, kernel=kernel)
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
