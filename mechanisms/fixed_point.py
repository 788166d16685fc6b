"""Real numbers as whole numbers between public bounds, and arrays as bytes, for requests and answers.

``encode`` and ``decode`` are for vectors, ``encode_rows`` for rows whose sum is released with noise, ``pack_arrays``
and ``unpack_arrays`` for payloads.

Representation: x is rint(2^scale_bits x), the nearest whole number, halves to the even one. Rounding to the nearest
rather than stochastic: an error below half a unit is far below any noise, no randomness is needed, and the same rows
give the same numbers. The effect of rounding on the sensitivity is settled where rows are rounded: ``encode_rows``
clips the rounded row, so that its whole numbers have no larger norm than its bound. A silo then adds whole numbers,
exactly and in any order; sums of floats would depend on the order, which no sensitivity covers.

The encoded values are secret. Scales, bounds and payloads are public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import RequestRefused

MAX_SCALE_BITS = 40
# Largest norm of a row in units: its sum of squares, after rounding in fewer than 2^20 columns, is below 2^63.
MAX_ROW_NORM = 1 << 30


def encode(values: NDArray[np.float64], *, scale_bits: int, bound: float) -> NDArray[np.int64]:
    """Returns ``values`` (any shape), clipped to [-bound, bound], in units of 2^-scale_bits, rounded to the nearest.

    Raises ``ValueError`` for a NaN, or if units and bound do not fit.
    """
    limit = units(bound, scale_bits)
    if np.isnan(values).any():
        raise ValueError("a value that is not a number cannot be encoded")
    clipped = np.clip(values, -bound, bound)
    return np.clip(np.rint(clipped * 2.0**scale_bits), -limit, limit).astype(np.int64)


@lru_cache(maxsize=256)
def units(bound: float, scale_bits: int) -> int:
    """Returns the largest whole number that ``encode`` makes: ``bound`` in units of 2^-scale_bits, rounded down."""
    if not (0 <= scale_bits <= MAX_SCALE_BITS and bound > 0 and math.isfinite(bound)):
        raise ValueError(
            f"bound {bound}, {scale_bits} bits; expected a positive bound and 0 to {MAX_SCALE_BITS} bits"
        )
    limit = math.floor(Fraction(bound) * (1 << scale_bits))
    if not 1 <= limit <= 1 << 52:
        raise ValueError(f"a bound of {limit} units; expected 1 to 2^52: other scale_bits")
    return limit


def decode(values: NDArray[np.int64], *, scale_bits: int) -> NDArray[np.float64]:
    """Converts whole numbers (any shape) back to real ones."""
    return values.astype(np.float64) * 2.0**-scale_bits


def encode_rows(rows: NDArray[np.float64], *, scale_bits: int, norm: float) -> NDArray[np.int64]:
    """Returns each of ``rows`` (n, l) clipped to Euclidean norm ``norm``, in units of 2^-scale_bits.

    The contribution of one row to the sum over rows has norm at most ``norm`` 2^scale_bits, exactly: rows that rounding
    to the nearest took beyond it are rounded towards zero instead. Raises ``ValueError`` as ``encode``.
    """
    limit = units(norm, scale_bits)
    if limit > MAX_ROW_NORM or rows.ndim != 2 or rows.shape[1] >= 1 << 20:
        raise ValueError(
            f"rows of shape {rows.shape} and a norm of {limit} units; expected (n, l), l below 2^20 and at most 2^30"
        )
    if not np.isfinite(rows).all():
        raise ValueError("a row that is not finite cannot be encoded")
    largest = _largest_square(norm, scale_bits)
    # Scaled by its largest value first, so that no square overflows.
    peak = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    length = peak * np.linalg.norm(rows / np.where(peak > 0, peak, 1.0), axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        shrink = np.where(length > norm, norm / np.where(length > 0, length, 1.0), 1.0)
    # The factor min(1, norm / ||row||), then units of 2^-scale_bits.
    scaled = rows * shrink * 2.0**scale_bits
    whole = np.rint(scaled).astype(np.int64)
    beyond = (whole * whole).sum(axis=1) > largest
    # Rounding errors of about 2^-52 per column are far below 2^-20.
    whole[beyond] = np.trunc(scaled[beyond] * (1 - 2.0**-20)).astype(np.int64)
    return whole


@lru_cache(maxsize=256)
def _largest_square(norm: float, scale_bits: int) -> int:
    """Returns the square of ``norm`` in units, rounded down."""
    return math.floor((Fraction(norm) * (1 << scale_bits)) ** 2)


def pack_arrays(*arrays: NDArray[np.float64]) -> bytes:
    """Packs arrays one behind the other, as little-endian doubles; the reader has to know their shapes."""
    return b"".join(np.ascontiguousarray(array, "<f8").tobytes() for array in arrays)


def unpack_arrays(data: bytes, *shapes: Sequence[int]) -> list[NDArray[np.float64]]:
    """The inverse of ``pack_arrays``. Raises ``RequestRefused`` for another size or a number that is not finite."""
    sizes = [math.prod(shape) for shape in shapes]
    if len(data) != 8 * sum(sizes):
        raise RequestRefused(f"a payload of {len(data)} bytes; expected {8 * sum(sizes)}")
    numbers = np.frombuffer(data, "<f8").astype(np.float64)
    if not np.isfinite(numbers).all():
        raise RequestRefused("a payload with numbers that are not finite")
    ends = np.cumsum(sizes)[:-1]
    return [
        part.reshape(shape) for part, shape in zip(np.split(numbers, ends), shapes, strict=True)
    ]
