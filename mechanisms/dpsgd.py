"""DP-SGD: true Poisson batches, gradients clipped example by example, exact noise.

Batches, gradients and random bytes are secret. The caller releases the noisy sums and results computed from them. One
sum costs ``rdp.sampled_gaussian(q, z)``.

Representation: a clipped gradient is whole numbers of 2^-scale_bits whose Euclidean norm is at most clip 2^scale_bits
after rounding (``fixed_point.encode_rows``). They are added as integers, exactly, and so is the noise, an exact
discrete Gaussian; the last bits of continuous noise in doubles would reveal the sum that it was added to.

Source: Abadi et al. 2016, Algorithm 1; Mironov, Talwar, Zhang 2019 (the sample). Deviation: noise is discrete.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.fixed_point import decode, encode_rows
from mechanisms.noise_stream import DiscreteGaussianStream
from mechanisms.sampling import RandomBytes

Noise: TypeAlias = Callable[[int], NDArray[np.int64]]


def poisson_batch(rows: int, q: float, random_bytes: RandomBytes) -> NDArray[np.int64]:
    """Returns the rows of a batch, of ``rows`` rows, ascending; each is in it independently with probability ``q``.

    The probability is less by 2^-64 at most. Raises ``ValueError`` unless q lies in (0, 1].
    """
    if not 0 < q <= 1:
        raise ValueError(f"q = {q}; a sampling rate lies above 0 and is at most 1")
    if q == 1:
        return np.arange(rows)
    words = np.frombuffer(random_bytes(8 * rows), "<u8")
    return np.flatnonzero(words < np.uint64(math.ldexp(q, 64)))


def noise_for(
    multiplier: float, random_bytes: RandomBytes, *, clip: float, scale_bits: int
) -> DiscreteGaussianStream:
    """Returns noise of ``multiplier`` times the norm of one clipped gradient, in units of 2^-scale_bits.

    Raises ``ValueError`` if it is not below 2^20 units: fewer bits are needed.
    """
    sigma = math.nextafter(multiplier * math.ldexp(clip, scale_bits), math.inf)
    return DiscreteGaussianStream(sigma, random_bytes)


def noisy_sum(
    gradients: NDArray[np.float64], noise: Noise, *, clip: float, scale_bits: int
) -> NDArray[np.float64]:
    """Returns the sum (d,) of per-example gradients (n, d), each clipped to norm ``clip``, plus ``noise(d)``.

    A gradient that is not finite counts as zero. ``noise`` gives whole numbers in units of 2^-scale_bits: ``draw`` of
    ``noise_for``. n may be 0: an empty batch is released, too.
    """
    finite = np.isfinite(gradients).all(axis=1, keepdims=True)
    rows = encode_rows(np.where(finite, gradients, 0.0), scale_bits=scale_bits, norm=clip)
    return decode(rows.sum(axis=0) + noise(gradients.shape[1]), scale_bits=scale_bits)
