"""Noisy measurement of a marginal: adds noise that no single server knows on shares, and opens the sum alone.

Kinds of noise: exact discrete Gaussian, Box-Muller (Gaussian in finite precision) and distributed (each party adds its
own). Noise may be made before its counts are there. Secret: counts and noise. Public: the noisy counts. Source: Pereira
et al. (arXiv 2210.07332), Protocol 3; Canonne, Kamath, Steinke (NeurIPS 2020).
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from protocols import costs
from protocols.base import open_value, share_input
from protocols.box_muller import LARGEST_SAMPLE, SAMPLE_BITS, gaussian
from protocols.context import Context, NoiseSource
from protocols.costs import Cost
from protocols.discrete import SECURITY_BITS, Sampler, discrete_gaussian, local_samples
from protocols.fixed import truncate
from protocols.noise_kinds import BOX_MULLER, DISCRETE, DISTRIBUTED, NOISES
from protocols.ring import R32
from protocols.select_spec import FRACTION_BITS
from protocols.shares import Share
from protocols.steps import COUNTS, MEASURE_NOISE, MEASURE_OPEN

_SIGMA_BITS = 12
# Probability that a pair's u is below 2^-41, where the run of random bits ends; R comes out too small then.
_BOX_MULLER_TAIL = 2.0**-41


@dataclass(frozen=True, slots=True)
class Noise:
    """A kind of noise: ``samples(ctx, count, sigma, max_rows)`` makes it on shares.

    Samples are (count,) in Z_2^32 and in units of 2^-fraction_bits counts, for tables of at most ``max_rows`` rows.
    ``cost(count, sigma)`` is their cost.
    """

    samples: Callable[[Context, int, float, int], Awaitable[Share]]
    fraction_bits: int
    cost: Callable[[int, float], Cost]


async def measure(
    ctx: Context,
    x_sh: Share,
    sigma: float,
    max_rows: int,
    noise: Noise,
    *,
    prepared: Share | None = None,
    source: NoiseSource | None = None,
) -> NDArray[np.float64]:
    """Opens x + z for a marginal x and noise z of deviation ``sigma``, in counts.

    Shapes: x (n,) in Z_2^32; returns (n,) multiples of 2^-fraction_bits. ``prepared`` is noise (n,) that
        ``noise.samples`` made for the same sigma and ``max_rows``; it is used once. Else the noise is drawn from
        ``source``, the same for the same source; without a source it is fresh.
    Leaks: the noisy counts.
    Rounds: those of ``noise.samples`` unless it is prepared, 1 to open.
    Communication: ``noise.samples`` of n; 4 bytes a cell to open.
    Raises: ValueError where a noisy count could leave the ring or sigma is out of range; ChannelError,
        ProtocolViolation, CheckFailed.
    Source: Pereira et al., Protocol 3; README sections 4 and 5.
    """
    z_sh = prepared
    if z_sh is None:
        with ctx.step(MEASURE_NOISE.name, round=ctx.cost.round) as c, c.noise_of(source) as n:
            z_sh = await noise.samples(n, x_sh.size, sigma, max_rows)
    with ctx.step(MEASURE_OPEN.name, round=ctx.cost.round) as c:
        opened = await open_value(c, x_sh.times(1 << noise.fraction_bits) + z_sh, COUNTS.what)
    return np.ldexp(R32.decode(opened).astype(np.float64), -noise.fraction_bits)


async def discrete_noise(
    ctx: Context, count: int, sigma: float, max_rows: int, *, security_bits: int = SECURITY_BITS
) -> Share:
    """Draws discrete Gaussian noise of deviation parameter sigma that no party knows, in whole counts.

    Shapes: returns (count,) in Z_2^32. Sigma is rounded up by at most 10^-12 of it.
    Leaks: none.
    Rounds, Communication: ``discrete_gaussian``.
    Raises: ValueError where a noisy count could leave (-2^31, 2^31) or ``Sampler`` does not have sigma; ChannelError,
        ProtocolViolation.
    Source: README section 5. x + z is 1/(2 sigma^2)-zCDP for neighbouring tables (Canonne et al., Theorem 4), up to the
        sampler's statistical distance.
    """
    sampler = Sampler.of(sigma, security_bits)
    _check_range(max_rows + sampler.largest, sigma)
    return await discrete_gaussian(ctx, count, sampler)


async def distributed_noise(
    ctx: Context, count: int, sigma: float, max_rows: int, *, security_bits: int = SECURITY_BITS
) -> Share:
    """Draws z0 + z1 + z2, z_i discrete Gaussian of variance sigma^2/2 that party i draws and knows.

    The part that one party does not know still has variance sigma^2; the sum has 1.5 sigma^2.

    Shapes, Leaks: as ``discrete_noise``. Raises: as ``discrete_noise``, and ValueError where there is a verifier.
    Rounds: 1.
    Communication: 4 bytes a cell.
    Source: README section 5. Sums of two discrete Gaussians are close to one only for sigma above about 2 (Kairouz et
        al. 2021); the accountant charges for the sum of two.
    """
    if ctx.verifier is not None:
        raise ValueError("noise that each server adds by itself cannot be checked; choose another")
    sampler = Sampler.of(sigma / math.sqrt(2), security_bits)
    _check_range(max_rows + 3 * sampler.largest, sigma)
    first, second, third = await ctx.gather(
        *((lambda c, d=dealer: _deal(c, d, count, sampler=sampler)) for dealer in range(3))
    )
    return first + second + third


async def _deal(ctx: Context, dealer: int, count: int, *, sampler: Sampler) -> Share:
    mine = R32.encode(local_samples(ctx, count, sampler)) if ctx.pid == dealer else None
    return await share_input(ctx, R32, dealer, mine, (count,))


async def box_muller_noise(ctx: Context, count: int, sigma: float, max_rows: int) -> Share:
    """Draws Gaussian noise in finite precision that no party knows, in units of 2^-6 counts.

    Shapes: returns (count,) in Z_2^32. Sigma is rounded up to a multiple of 2^-12.
    Leaks: none.
    Rounds: 22 for the samples, 2 to scale them.
    Communication: see ``gaussian``; 24 bytes a cell and mean party to scale.
    Raises: ValueError where the noisy count could leave (-2^31, 2^31) / 2^6; ChannelError, ProtocolViolation.
    Source: README section 4. The counts lie on the grid, so rounding the scaled noise to it is post-processing of the
        noise; the rounding is unbiased and adds a variance of at most 2^-14.
    """
    _check_box_muller(sigma, max_rows)
    scale = math.ceil(sigma * 2**_SIGMA_BITS)
    shift = SAMPLE_BITS + _SIGMA_BITS - FRACTION_BITS
    z_sh = await gaussian(ctx, count)
    noise = await truncate(ctx, z_sh.times(scale).additive(ctx), shift)
    return noise.narrowed(R32)


def noise_of(kind: str, security_bits: int = SECURITY_BITS) -> Noise:
    """Returns the noise of this kind; exact noise within 2^-security_bits. Raises ValueError for another kind."""
    if kind == BOX_MULLER:
        return Noise(
            box_muller_noise, FRACTION_BITS, lambda count, sigma: costs.box_muller_noise(count)
        )
    if kind == DISCRETE:
        return Noise(
            partial(discrete_noise, security_bits=security_bits),
            0,
            lambda count, sigma: costs.discrete_gaussian(count, Sampler.of(sigma, security_bits)),
        )
    if kind == DISTRIBUTED:
        return Noise(
            partial(distributed_noise, security_bits=security_bits),
            0,
            lambda count, sigma: costs.distributed_noise(count),
        )
    raise ValueError(f"noise = {kind!r}; expected one of {', '.join(NOISES)}")


def release_distance(noise: str, security_bits: int = SECURITY_BITS, *, rows: int = 1) -> float:
    """Returns a bound on the delta of one noisy marginal, since its noise is not exactly of the kind charged for.

    A row changes one of the marginal's cells, a unit of so many ``rows`` no more cells than rows. The noise on the
    others is the same on both of two neighbouring tables, exact or not, so that one sample a row counts. Exact noise:
    the sampler's statistical distance, of two samplers where two parties' noise counts. Box-Muller: the mass of the
    unreachable radii of the pair that a cell's sample belongs to, the other cell's included; its finite precision
    (below 2^-18 of sigma) comes on top and is not expressed in delta.
    """
    if noise == BOX_MULLER:
        return rows * _BOX_MULLER_TAIL
    return rows * 2.0**-security_bits * (2 if noise == DISTRIBUTED else 1)


def check_measure(
    noise: str, sigma: float, max_rows: int, *, security_bits: int = SECURITY_BITS
) -> None:
    """Raises ValueError where the measurement would, so that the error comes before a charge is made."""
    if noise == BOX_MULLER:
        _check_box_muller(sigma, max_rows)
    else:
        parts, part_sigma = (3, sigma / math.sqrt(2)) if noise == DISTRIBUTED else (1, sigma)
        sampler = Sampler.of(part_sigma, security_bits)
        _check_range(max_rows + parts * sampler.largest, sigma)


def _check_box_muller(sigma: float, max_rows: int) -> None:
    if not 0 < sigma < 1 << 20:
        raise ValueError(f"sigma = {sigma:g}: Box-Muller noise is for 0 < sigma < 2^20")
    _check_range((max_rows + LARGEST_SAMPLE * sigma + 1) * 2**FRACTION_BITS, sigma)


def _check_range(largest: float, sigma: float) -> None:
    if largest >= 1 << 31:
        raise ValueError(
            f"counts with noise of deviation {sigma:g} do not fit 32 bits; lower max_rows"
        )
