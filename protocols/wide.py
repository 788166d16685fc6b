"""Arithmetic modulo 2^(64 w): numbers of several words, for proofs of products in rings.

Numbers of any shape are w planes of words, (w, *shape), the lowest first. Sums and products wrap. Loops are compiled
(``kernels``). Nothing here is secret or public by itself. Known limit: sums have fewer than 2^32 summands.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from protocols.mersenne import Vector, words_of
from protocols.records import adjoint
from protocols.ring import R64, Ring, RingArray
from protocols.shares import Grouped, LinearMap, Placed, Scaled, Summed

Planes = NDArray[np.uint64]

_HALF = np.uint64(32)
_LOW_HALF = np.uint64((1 << 32) - 1)


def planes_of(ring: Ring, x: RingArray) -> Planes:
    """Returns ring elements, in as many planes as they need."""
    if ring.wide:
        return _contiguous(words_of(x, ring.bits // 64).T).reshape(-1, *x.shape)
    return x.astype(np.uint64, copy=False)[None]


def write(vector: Vector, x: Planes) -> None:
    """Writes numbers into a vector (n, words) of ``mersenne``."""
    for word, plane in enumerate(x):
        vector[:, word] = plane.reshape(-1)


def add(total: Planes, x: Planes) -> None:
    """Adds numbers of as many planes or fewer to ``total``, in place."""
    from protocols.kernels import add_numbers

    if len(total) == 1:
        # NumPy's words wrap as well, here and below.
        total += x
    else:
        add_numbers(*_flat_total(total, x), False)


def add_mapped(total: Planes, steps: Sequence[LinearMap], x: Planes) -> None:
    """Adds numbers to ``total``, in place, after maps were applied to them one after the other."""
    for step in steps[:-1]:
        x = mapped(step, x)
    last = steps[-1] if steps else None
    if isinstance(last, Placed) and len(total) == 1:
        add(total[:, last.start : last.start + x.shape[1]], x)
    else:
        add(total, x if last is None else mapped(last, x))


def subtract(total: Planes, x: Planes) -> None:
    """Subtracts numbers of as many planes or fewer from ``total``, in place."""
    from protocols.kernels import add_numbers

    if len(total) == 1:
        total -= x
    else:
        add_numbers(*_flat_total(total, x), True)


def multiply(x: Planes, y: Planes, words: int) -> Planes:
    """Returns products in ``words`` planes; shapes are broadcast."""
    from protocols.kernels import multiply_numbers

    if words == 1:
        return np.asarray(np.multiply(x[0], y[0]))[None]
    shape = np.broadcast_shapes(x.shape[1:], y.shape[1:])
    return multiply_numbers(_flat(x, shape), _flat(y, shape), words).reshape(words, *shape)


def inner_product(x: Planes, y: Planes) -> int:
    """Returns the sum of the products of numbers (words, n), exactly."""
    from protocols.kernels import sum_numbers

    return int.from_bytes(sum_numbers(_contiguous(x), _contiguous(y)).tobytes(), "little")


def mapped(step: LinearMap, x: Planes) -> Planes:
    """Applies a map of terms."""
    if isinstance(step, Scaled):
        return _scaled(step, x)
    return _by_word(lambda word: step(R64, word), x, sums=isinstance(step, Summed | Grouped))


def taken_back(step: LinearMap, shape: tuple[int, ...], x: Planes) -> Planes:
    """Returns ``records.adjoint`` of coefficients."""
    if isinstance(step, Scaled):
        return _scaled(step, x)
    return _by_word(lambda word: adjoint(step, R64, shape, word), x, sums=False)


def summed_to(x: Planes, shape: tuple[int, ...]) -> Planes:
    """Sums over the axes that broadcasting of ``shape`` to that of ``x`` added or stretched."""
    extra = x.ndim - 1 - len(shape)
    stretched = (extra + i for i, n in enumerate(shape) if n < x.shape[1 + extra + i])
    axes = (*range(extra), *stretched)
    if not axes:
        return x
    return _by_word(lambda word: word.sum(axis=axes, dtype=np.uint64).reshape(shape), x, sums=True)


def _scaled(step: Scaled, x: Planes) -> Planes:
    factor = words_of([step.factor % (1 << 64 * len(x))], len(x)).reshape(-1, *[1] * (x.ndim - 1))
    return multiply(x, factor, len(x))


def _by_word(apply: Callable[[RingArray], RingArray], x: Planes, *, sums: bool) -> Planes:
    """Applies a map of words to each plane; one that adds up, to halves of words, so that no sum of them wraps."""
    if len(x) == 1:
        return np.asarray(apply(x[0]))[None]
    if not sums:
        return np.stack([np.asarray(apply(plane)) for plane in x])
    low = np.stack([np.asarray(apply(plane & _LOW_HALF)) for plane in x])
    high = np.stack([np.asarray(apply(plane >> _HALF)) for plane in x])
    # Each sum is below 2^64; that of upper halves goes 32 bits up, across two planes.
    add(low, high << _HALF)
    add(low[1:], high[:-1] >> _HALF)
    return low


def _flat_total(total: Planes, x: Planes) -> tuple[Planes, Planes]:
    """Returns a view of ``total`` and the numbers to add, both (words, n)."""
    if not total.flags.c_contiguous:
        raise ValueError("numbers that are added to have to be contiguous")
    return total.reshape(len(total), -1), _contiguous(x.reshape(len(x), -1))


def _flat(x: Planes, shape: tuple[int, ...]) -> Planes:
    """Returns numbers of this shape as (words, n); one number that all are, as (words, 1)."""
    if x[0].size == 1:
        return _contiguous(x.reshape(len(x), 1))
    axes = (1,) * (len(shape) - x.ndim + 1)
    whole = np.broadcast_to(x.reshape(len(x), *axes, *x.shape[1:]), (len(x), *shape))
    return _contiguous(whole.reshape(len(x), -1))


def _contiguous(x: Planes) -> Planes:
    # Received bytes may begin anywhere.
    return x if x.flags.c_contiguous and x.flags.aligned else x.copy()
