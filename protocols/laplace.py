"""Exact noise: the discrete Laplace distribution from shared random bits, as a difference of two geometric numbers.

Public: a ``LaplaceSampler``, the coins for one scale, and a bound on the statistical distance. Secret: all random bits
and samples; no party knows a sample.

With q = exp(-1 / scale), P(z) = (1 - q) / (1 + q) q^|z| is the distribution of G - H for independent geometric G and H,
P(g) = (1 - q) q^g: sum over h of (1 - q)^2 q^(|z| + 2 h). The bits of a geometric number are independent coins, for q^g
is the product over its bits of q^(2^i g_i): bit i is one with odds q^(2^i). So a sample is 2 b coins side by side, and
each coin a comparison of random bits with a public threshold.

Distance: a coin's probability is rounded down to units of 2^-c, and geometric numbers of b bits lack those of 2^b and
more, which come with probability q^(2^b); see ``LaplaceSampler.distance``. Source: Ghosh, Roughgarden, Sundararajan
(STOC 2009) for the mechanism; the bits are known facts of the geometric distribution.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np

from protocols.alias import DIGITS
from protocols.base import noise
from protocols.bitslice import words_for
from protocols.blocks import in_blocks
from protocols.boolean import carry_out
from protocols.context import Context
from protocols.derived import weighted_bits
from protocols.ring import BITS, R32
from protocols.shares import Share

SECURITY_BITS = 64
BLOCK_SAMPLES = 1 << 12
_SMALLEST_SCALE, _LARGEST_SCALE = 0.1, 1e5


@dataclass(frozen=True, slots=True)
class LaplaceSampler:
    """Coins of one ``scale``: bit i of a geometric number is one with probability ``thresholds[i]`` / 2^coin_bits.

    ``distance`` bounds the statistical distance of a sample from the discrete Laplace distribution.
    """

    scale: float
    coin_bits: int
    thresholds: tuple[int, ...]
    distance: float

    @property
    def bits(self) -> int:
        """Number of bits of each geometric number."""
        return len(self.thresholds)

    @property
    def largest(self) -> int:
        """Largest possible |z|."""
        return (1 << self.bits) - 1

    def probabilities(self) -> list[Fraction]:
        """Returns the exact probability with which a geometric number 0, 1, ... is sampled; for few bits."""
        found = [Fraction(1)]
        for threshold in self.thresholds:
            one = Fraction(threshold, 1 << self.coin_bits)
            found = [p * (1 - one) for p in found] + [p * one for p in found]
        return found

    @classmethod
    @cache
    def of(cls, scale: float, security_bits: int = SECURITY_BITS) -> "LaplaceSampler":
        """Returns the sampler for ``scale``, within distance 2^-security_bits.

        Raises ValueError for a scale outside [0.1, 10^5], or security outside 16 .. 128 bits.
        """
        if not 16 <= security_bits <= 128:
            raise ValueError(f"security_bits = {security_bits}; expected 16 to 128")
        if not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
            raise ValueError(
                f"scale = {scale:g}: exact Laplace noise is for {_SMALLEST_SCALE:g} to {_LARGEST_SCALE:g}"
            )
        # Two tails of q^(2^b), and 2 b coins off by 2^-c at most: a quarter of the distance for the former.
        bits = max(1, math.ceil(math.log2(scale * (security_bits + 3) * math.log(2))))
        coin_bits = security_bits + 2 + bits.bit_length()
        with localcontext() as context:
            context.prec = DIGITS
            rate = -1 / Decimal(scale)
            odds = [(rate * (1 << i)).exp() for i in range(bits)]
            exact = [odd / (1 + odd) for odd in odds]
            thresholds = tuple(int(p * (1 << coin_bits)) for p in exact)
            rounded = sum(
                (p - Decimal(t) / (1 << coin_bits) for p, t in zip(exact, thresholds, strict=True)),
                Decimal(0),
            )
            # Twice, for G and H; the digits missing in decimals are far below the last summand.
            distance = float(2 * rounded + 2 * (rate * (1 << bits)).exp()) + 2.0**-150
        return cls(scale, coin_bits, thresholds, distance)


async def discrete_laplace(ctx: Context, count: int, sampler: LaplaceSampler) -> Share:
    """Draws samples (count,) of the sampler's distribution, in Z_2^32, in blocks of 2^12.

    Leaks: none.
    Rounds: levels(c) + 2; blocks overlap.
    Communication: ``carry_out`` of c planes for each of 2 b coins, and ``weighted_bits`` of 2 b planes: about 450 bytes
        a sample and mean party at scale 20 (b = 10, c = 70).
    Raises: ChannelError, ProtocolViolation.
    Source: README section 5.
    """
    if count == 0:
        return Share(R32, ctx.pid, R32.zeros((0,)), R32.zeros((0,)))
    return await in_blocks(ctx, count, BLOCK_SAMPLES, lambda c, size: _block(c, size, sampler))


async def _block(ctx: Context, count: int, sampler: LaplaceSampler) -> Share:
    words, bits = words_for(count), sampler.bits
    # All coins side by side, G's bits and then H's. A threshold is public, so its planes are all ones or zeros, and
    # threshold + random bits carry with probability threshold / 2^c.
    planes = [
        [t >> plane & 1 for t in sampler.thresholds * 2] for plane in range(sampler.coin_bits)
    ]
    public = np.repeat(-np.array(planes, np.int64), words, axis=1).astype(np.uint64)
    coins = noise(ctx, BITS, public.shape)
    shown = await carry_out(ctx, coins.times(public), coins ^ public)
    # z = G - H.
    weights = [sign * (1 << i) for sign in (1, -1) for i in range(bits)]
    return await weighted_bits(ctx, shown.reshape(2 * bits, words), count, R32, weights)


async def laplace_noise(
    ctx: Context, count: int, scale: float, max_rows: int, *, security_bits: int = SECURITY_BITS
) -> Share:
    """Draws discrete Laplace noise that no party knows, in whole counts: x + z is (1 / scale)-differentially private.

    Shapes: returns (count,) in Z_2^32.
    Leaks: none. Rounds, Communication: ``discrete_laplace``.
    Raises: ValueError where a noisy count could leave (-2^31, 2^31) or ``LaplaceSampler`` does not have the scale;
        ChannelError, ProtocolViolation.
    Source: README section 5. Neighbouring tables differ by one row, in one count of a marginal; up to the sampler's
        statistical distance.
    """
    sampler = LaplaceSampler.of(scale, security_bits)
    if max_rows + sampler.largest >= 1 << 31:
        raise ValueError(
            f"scale = {scale:g} and max_rows = {max_rows}: noisy counts could leave 32 bits"
        )
    return await discrete_laplace(ctx, count, sampler)
