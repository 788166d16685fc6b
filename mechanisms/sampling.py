"""Sources of the mechanisms' randomness.

There are two sources, kept apart. ``RandomBytes`` is a function from a number of bytes to that many random bytes, for
all randomness whose guess would cost privacy (production passes ``secrets.token_bytes``). ``public_generator`` makes
the package's only NumPy generators, for choices that are public or post-processing: drawing the workload, splitting a
table for a trial, sampling rows from an already private model.

``gaussian_noise``, ``uniform_below`` and ``random_uint64`` are built on the former. The bytes, and all numbers made of
them, are secret until released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

RandomBytes: TypeAlias = Callable[[int], bytes]
PublicGenerator: TypeAlias = np.random.Generator  # noqa: TID251

# Noise lies on the grid 2^-NOISE_BITS, as do opened noisy counts.
NOISE_BITS = 6


def public_generator(seed: int) -> PublicGenerator:
    """Returns NumPy's default generator from a public seed. Never for noise or for a selection."""
    return np.random.default_rng(seed)  # noqa: TID251


def random_uint64(random_bytes: RandomBytes) -> int:
    """Returns a number uniform on 0 .. 2^64 - 1; takes 8 bytes."""
    return int.from_bytes(random_bytes(8), "big")


def uniform_below(random_bytes: RandomBytes, bound: int, count: int) -> NDArray[np.int64]:
    """Returns numbers uniform on 0 .. bound - 1, by rejection of larger values with the bits of the bound.

    Shapes: (count,). Raises ``ValueError`` unless bound is at least 1 and at most 2^63.
    """
    if not 1 <= bound <= 1 << 63:
        raise ValueError(f"bound = {bound}; expected 1 to 2^63")
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    accepted = np.zeros(0, np.uint64)
    while accepted.size < count:
        words = np.frombuffer(random_bytes(8 * 2 * (count - accepted.size)), "<u8") & mask
        accepted = np.concatenate([accepted, words[words < bound]])
    uniform: NDArray[np.int64] = accepted[:count].astype(np.int64)
    return uniform


def gaussian_noise(random_bytes: RandomBytes, sigma: float, count: int) -> NDArray[np.float64]:
    """Returns independent Gaussian noise of deviation ``sigma``, rounded to the grid 2^-6.

    Distribution: Box-Muller on 53-bit uniforms u1 in (0, 1], u2 in [0, 1), in double precision; then rounding, which is
    post-processing for counts on the grid. Not exact: no sample exceeds 8.58 sigma, a tail of 1e-17 per sample, and the
    functions are rounded to 1 in 2^52 before they are rounded to the grid.

    Shapes: (count,). Raises ``ValueError`` unless sigma is positive and finite.
    """
    if not (sigma > 0 and math.isfinite(sigma)):
        raise ValueError(f"sigma = {sigma}; it has to be positive and finite")
    pairs = (count + 1) // 2
    bits = np.frombuffer(random_bytes(16 * pairs), "<u8") >> np.uint64(11)
    u1, u2 = (bits[:pairs] + np.uint64(1)) * 2.0**-53, bits[pairs:] * 2.0**-53
    # Box-Muller: sqrt(-2 ln u1) (cos, sin)(2 pi u2).
    radius = sigma * np.sqrt(-2.0 * np.log(u1))
    angle = 2.0 * math.pi * u2
    samples = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
    return np.asarray(np.rint(samples * 2**NOISE_BITS) / 2**NOISE_BITS, np.float64)
