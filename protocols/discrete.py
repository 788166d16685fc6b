"""Exact noise: the discrete Gaussian from shared random bits, by an alias table at a secret index.

Public: a ``Sampler``, the tables for one sigma, and a bound on the statistical distance. Secret: all random bits and
samples; no party knows a sample.

The magnitude |z| has a distribution on fewer than 2^b values. Walker's alias method writes it as a uniform choice among
2^b buckets, each of which holds two magnitudes and a threshold of c bits. b random bits pick the bucket: the one-hot of
the index makes reading thresholds and magnitudes free. The carry out of threshold + c random bits is one with
probability threshold / 2^c and picks the magnitude; one more random bit is the sign. A larger sigma is a sum z1 + k z2
of two samples.

Distance: probabilities are integers in units of 2^-(b+c), computed to 60 digits, so the sampled distribution is known
exactly; see ``Sampler.distance``. Source: Walker (1977); Canonne, Kamath, Steinke (NeurIPS 2020) for the mechanism;
Micciancio, Walter (CRYPTO 2017), section 4, for sums of discrete Gaussians.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from protocols.alias import DIGITS, alias, to_units
from protocols.base import multiply, noise
from protocols.bitslice import words_for
from protocols.blocks import in_blocks
from protocols.boolean import carry_out, words_to_ring
from protocols.context import Context
from protocols.derived import bits_to_ring
from protocols.lookup import PublicTable, one_hot
from protocols.ring import BITS, R32, R64
from protocols.shares import Share, concatenate, stack

SECURITY_BITS = 64
SMALLEST_SECURITY, LARGEST_SECURITY = 16, 128
_LARGEST_INDEX_BITS = 9
BLOCK_SAMPLES = 1 << 15
# Largest sigma of tables of 2^8 and of 2^9 buckets at 2^-64, and of sums of two samples from either. At 2^-n the tails
# are longer, and a table reaches sqrt(68 / (n + 4)) of it; a sum has to be smoother, too: the fourth power of it.
_SMALL_TABLE_SIGMA = 26.0
_ONE_TABLE_SIGMA = 53.0
_SMALL_SUM_SIGMA = 400.0
_SMALLEST_SIGMA = 0.3
_LARGEST_SIGMA = 1500.0


@dataclass(frozen=True, slots=True, eq=False)
class AliasTable:
    """Magnitudes of a discrete Gaussian: ``index_bits`` b, thresholds of ``coin_bits`` c, two magnitudes a bucket.

    Bucket i gives ``first[i]`` with probability ``thresholds[i]`` / 2^c and ``second[i]`` otherwise.
    """

    sigma: Fraction
    index_bits: int
    coin_bits: int
    thresholds: tuple[int, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]

    @classmethod
    def of(cls, sigma: Fraction, coin_bits: int) -> "AliasTable":
        """Returns the table for ``sigma``. Raises ValueError where it would need more than 2^9 buckets."""
        weights = _weights(sigma, coin_bits)
        bits = max(1, (len(weights) - 1).bit_length())
        if bits > _LARGEST_INDEX_BITS:
            raise ValueError(
                f"sigma = {float(sigma):g} needs more than {1 << _LARGEST_INDEX_BITS} buckets"
            )
        thresholds, first, second = alias(to_units(weights, bits + coin_bits), bits, coin_bits)
        return cls(sigma, bits, coin_bits, thresholds, first, second)

    def probabilities(self) -> list[Fraction]:
        """Returns the exact probability with which each magnitude 0, 1, ... is sampled."""
        return [Fraction(unit, 1 << (self.index_bits + self.coin_bits)) for unit in self._units()]

    def largest(self) -> int:
        """Returns the largest magnitude that is sampled."""
        return max(m for m, unit in enumerate(self._units()) if unit)

    def _units(self) -> list[int]:
        """Returns the probability of each magnitude, in units of 2^-(b + c)."""
        units = [0] * (1 << self.index_bits)
        for threshold, first, second in zip(self.thresholds, self.first, self.second, strict=True):
            units[first] += threshold
            units[second] += (1 << self.coin_bits) - threshold
        return units


def _weights(sigma: Fraction, coin_bits: int) -> list[Decimal]:
    """Returns exp(-m^2 / 2 sigma^2) for m = 0, 1, ..., doubled above 0, until the rest is below 2^-(c + 2) of all."""
    with localcontext() as context:
        context.prec = DIGITS
        scale = -Decimal(sigma.denominator**2) / Decimal(2 * sigma.numerator**2)
        weights = [Decimal(1)]
        # Each further ratio is below exp(-m / sigma^2), so the rest is below a geometric series.
        limit = Decimal(2) ** -(coin_bits + 2)
        while True:
            m = len(weights)
            weight = 2 * (scale * m * m).exp()
            ratio = (scale * (2 * m + 1)).exp()
            if weight / (1 - ratio) < limit * sum(weights):
                return weights
            weights.append(weight)


@dataclass(frozen=True, slots=True, eq=False)
class Sampler:
    """Public sampling plan of z = z1 + ``factor`` z2 (z1 alone where the factor is 0) for a given sigma.

    ``distance`` bounds the statistical distance of z from the discrete Gaussian with deviation parameter ``sigma`` (for
    a sum sigma1 sqrt(1 + factor^2), of which ``sigma`` is the rounded value): rounding and cut tails of the table,
    exactly, and for a sum the error of its smoothing (Micciancio, Walter 2017): given z, the sum over z2 is constant up
    to 2 exp(-2 pi^2 tau^2), with tau = sigma1^2 / sigma.
    """

    table: AliasTable
    factor: int
    sigma: float
    distance: float
    thresholds: PublicTable
    magnitudes: PublicTable

    @property
    def largest(self) -> int:
        """Largest possible |z|."""
        return self.table.largest() * (1 + self.factor)

    @classmethod
    @cache
    def of(cls, sigma: float, security_bits: int = SECURITY_BITS) -> "Sampler":
        """Returns the cheapest sampler for ``sigma``, within distance 2^-security_bits.

        ``sigma`` is rounded up by at most one part in 10^12. Raises ValueError for a sigma outside [0.3, 1,500], at
        2^-128 [0.3, 398], or security outside 16 .. 128 bits; at 2^-65 also for 388.02 < sigma < 388.49, where a sum of
        two would be too rough.
        """
        if not SMALLEST_SECURITY <= security_bits <= LARGEST_SECURITY:
            raise ValueError(
                f"security_bits = {security_bits}; expected {SMALLEST_SECURITY} to {LARGEST_SECURITY}"
            )
        largest = _LARGEST_SIGMA * _reach(security_bits) ** 4
        if not _SMALLEST_SIGMA <= sigma <= largest:
            raise ValueError(
                f"sigma = {sigma:g}: exact noise within 2^-{security_bits} is for {_SMALLEST_SIGMA:g} to {largest:.4g}"
            )
        coin_bits = security_bits + 2
        factor = _factor(sigma, _reach(security_bits))
        # A square root is the same on every machine, which hypot need not be, and tables have to be.
        spread = math.sqrt(1 + factor * factor)
        base = Fraction(sigma if factor == 0 else sigma / spread * (1 + 1e-13))
        table = AliasTable.of(base, coin_bits)
        distance = table_distance(table) * (1 if factor == 0 else 2)
        reached = float(base) * spread
        if factor:
            tau = float(base) ** 2 / reached
            distance += 2.1 * math.exp(-2 * (math.pi * tau) ** 2)
        if distance > 2.0**-security_bits:
            raise ValueError(f"sigma = {sigma:g} cannot be sampled within 2^-{security_bits}")
        magnitudes = list(zip(table.first, table.second, strict=True))
        thresholds = PublicTable.of([(t,) for t in table.thresholds], coin_bits)
        read = PublicTable.of(magnitudes, table.index_bits)
        return cls(table, factor, reached, distance, thresholds, read)


def _reach(security_bits: int) -> float:
    """Returns the reach of a table at this security, relative to 2^-64; 1 for less security."""
    return math.sqrt((SECURITY_BITS + 4) / (max(security_bits, SECURITY_BITS) + 4))


def _factor(sigma: float, reach: float) -> int:
    """Returns 0 where one table does; otherwise the least k for which sigma / sqrt(1 + k^2) fits one."""
    if sigma <= _ONE_TABLE_SIGMA * reach:
        return 0
    small = sigma <= _SMALL_SUM_SIGMA * reach**4
    base = (_SMALL_TABLE_SIGMA if small else _ONE_TABLE_SIGMA) * reach
    return math.ceil(math.sqrt((sigma / base) ** 2 - 1))


def table_distance(table: AliasTable) -> float:
    """Returns a bound on the statistical distance of a table's magnitudes from those of the discrete Gaussian."""
    weights = _weights(table.sigma, table.coin_bits + 16)
    with localcontext() as context:
        context.prec = DIGITS
        total = sum(weights)
        sampled = [Decimal(p.numerator) / Decimal(p.denominator) for p in table.probabilities()]
        sampled += [Decimal(0)] * (len(weights) - len(sampled))
        exact = [weight / total for weight in weights] + [Decimal(0)] * (
            len(sampled) - len(weights)
        )
        half = sum((abs(p - q) for p, q in zip(sampled, exact, strict=True)), Decimal(0)) / 2
        return float(half + Decimal(2) ** -(table.coin_bits + 17))


async def discrete_gaussian(ctx: Context, count: int, sampler: Sampler) -> Share:
    """Draws samples (count,) of the sampler's distribution, in Z_2^32, in blocks of 2^15.

    Leaks: none.
    Rounds: 6 + 2 levels(b) + levels(c); blocks overlap.
    Communication: about 72 bytes a sample and mean party for 13 < sigma <= 26, twice that for a sum (``costs``).
    Raises: ChannelError, ProtocolViolation.
    Source: README section 5.
    """
    if count == 0:
        return Share(R32, ctx.pid, R32.zeros((0,)), R32.zeros((0,)))
    return await in_blocks(ctx, count, BLOCK_SAMPLES, lambda c, size: _block(c, size, sampler))


async def _block(ctx: Context, count: int, sampler: Sampler) -> Share:
    parts, padded = (2 if sampler.factor else 1), words_for(count) * 64
    magnitude, sign = await _signed_magnitudes(ctx, parts * words_for(count), sampler)
    w_sh, s_sh = await ctx.gather(
        lambda c: words_to_ring(c, magnitude, parts * padded, R32),
        lambda c: bits_to_ring(c, sign, parts * padded, R32),
    )
    # W = m XOR sign in planes is m where the sign is 0, and 2^b - 1 - m where it is 1; so W - sign (2^b - 1) = +-m.
    z_sh = (w_sh - s_sh.times((1 << sampler.table.index_bits) - 1)).reshape(parts, padded)[
        :, :count
    ]
    return z_sh[0] + z_sh[1].times(sampler.factor) if sampler.factor else z_sh[0]


async def _signed_magnitudes(ctx: Context, words: int, sampler: Sampler) -> tuple[Share, Share]:
    """Returns planes (b, words) of m XOR sign, and the sign (words,)."""
    table = sampler.table
    # threshold + coins carries out of c bits where coins >= 2^c - threshold: with probability threshold / 2^c. Its
    # generate and propagate bits are threshold AND coins and threshold XOR coins; the carry picks ``first``.
    bucket = await one_hot(ctx, noise(ctx, BITS, (table.index_bits, words)))
    threshold = sampler.thresholds.read(bucket)[:, 0]
    coins = noise(ctx, BITS, (table.coin_bits, words))
    carry = await carry_out(ctx, await multiply(ctx, threshold, coins), threshold ^ coins)
    pair = sampler.magnitudes.read(bucket)
    chosen = await multiply(
        ctx, pair[:, 0] ^ pair[:, 1], concatenate(*([carry.reshape(1, words)] * table.index_bits))
    )
    sign = noise(ctx, BITS, (words,))
    return pair[:, 1] ^ chosen ^ stack(*([sign] * table.index_bits)), sign


def local_samples(ctx: Context, count: int, sampler: Sampler) -> NDArray[np.int64]:
    """Draws samples (count,) of the same distribution, known to this party alone. No message."""
    first = _local_table(ctx, count, sampler.table)
    return (
        first + sampler.factor * _local_table(ctx, count, sampler.table)
        if sampler.factor
        else first
    )


def _local_table(ctx: Context, count: int, table: AliasTable) -> NDArray[np.int64]:
    words = _words(table)
    draws = ctx.private(R64, (1 + len(words), count))
    bucket = draws[0] & np.uint64((1 << table.index_bits) - 1)
    sign = 1 - 2 * (draws[0] >> np.uint64(63)).astype(np.int64)
    # The first word drawn gives the bucket (its lowest bits) and the sign (its highest one), the others the coin. coin
    # < threshold is decided from the highest word down; the highest coin has as many bits as are left for it.
    draws[1] &= np.uint64((1 << (table.coin_bits - 1) % 64 + 1) - 1)
    below, equal = np.zeros(count, np.bool_), np.ones(count, np.bool_)
    for coin, threshold in zip(draws[1:], words, strict=True):
        below |= equal & (coin < threshold[bucket])
        equal &= coin == threshold[bucket]
    magnitude = np.where(below, np.array(table.first)[bucket], np.array(table.second)[bucket])
    samples: NDArray[np.int64] = sign * magnitude
    return samples


def _words(table: AliasTable) -> list[NDArray[np.uint64]]:
    """Returns the thresholds (buckets,) in words of 64 bits, the highest first."""
    shifts = range((table.coin_bits - 1) // 64 * 64, -1, -64)
    return [
        np.array([t >> shift & ((1 << 64) - 1) for t in table.thresholds], np.uint64)
        for shift in shifts
    ]
