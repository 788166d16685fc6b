"""Discrete Gaussian noise: its public description in a session, and its sampler.

``SessionNoise`` is the description, ``discrete_gaussian`` the sampler. With integer scale s a value x becomes s x
before noise; variances here are in units of 1/s^2, as exact fractions.

- ``server``: the server adds one discrete Gaussian of variance (s sigma)^2 to each sum. It sees the sum without noise.
- ``distributed``: each client adds one of variance (s sigma)^2 / m before masking, with m the honest survivors that the
  session guarantees. More survivors n add more noise than sigma: sigma sqrt(n / m).

The privacy cost of either is not decided here: a sum of discrete Gaussians is none (Kairouz, Liu, Steinke 2021,
Proposition 14), though at ``MIN_CLIENT_DEVIATION`` and above it is charged for nearly as one.

Secret: samples, and the random bytes behind them. Public: variances. Source: Canonne, Kamath, Steinke 2020, Algorithms
1 to 3. Known limits: the time a sample takes depends on the sample, as with every rejection sampler.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import Enum
from fractions import Fraction
from math import ceil, inf, isqrt, sqrt

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ParameterError
from secagg.shamir import RandomBytes

TAIL = 12
"""Number of deviations that rings leave room for: beyond them a cell has less than 2^-100 of the noise's mass."""

MIN_CLIENT_DEVIATION = 1.5
"""Smallest deviation per client in scaled units; below it sums of discrete Gaussians are far from one."""


class NoiseKind(Enum):
    """Adder of the noise: none, the server, or each client."""

    NONE = 0
    SERVER = 1
    DISTRIBUTED = 2


@dataclass(frozen=True, slots=True)
class SessionNoise:
    """One session's noise: ``variance`` in scaled units, of the sum (server) or of each client (distributed)."""

    kind: NoiseKind = NoiseKind.NONE
    variance: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if (self.kind is NoiseKind.NONE) != (self.variance == 0) or self.variance < 0:
            raise ParameterError(
                f"noise {self.kind.name.lower()} of variance {self.variance}; expected a positive variance, or none"
            )
        if self.variance.numerator >= 1 << 63 or self.variance.denominator >= 1 << 63:
            raise ParameterError("a variance's numerator and denominator are below 2^63")
        if self.kind is NoiseKind.DISTRIBUTED and self.variance < Fraction(9, 4):
            raise ParameterError(
                f"a deviation of {sqrt(self.variance):.3g} per client in scaled units; "
                f"expected {MIN_CLIENT_DEVIATION} or more: choose a larger scale"
            )

    def margin(self, clients: int) -> int:
        """Returns the largest change of a sum over ``clients`` by noise, up or down: twelve deviations."""
        if self.kind is NoiseKind.NONE:
            return 0
        parts = clients if self.kind is NoiseKind.DISTRIBUTED else 1
        return isqrt(ceil(TAIL * TAIL * parts * self.variance)) + 1


def server_noise(sigma: float, scale: int = 1) -> SessionNoise:
    """Returns noise of deviation ``sigma`` (in the values' units), added by the server; the variance is rounded up."""
    return SessionNoise(NoiseKind.SERVER, _variance(sigma, scale, 1))


def distributed_noise(sigma: float, scale: int, honest_survivors: int) -> SessionNoise:
    """Returns noise of deviation ``sigma`` in the sum over ``honest_survivors``; each one's variance is rounded up."""
    return SessionNoise(NoiseKind.DISTRIBUTED, _variance(sigma, scale, honest_survivors))


def _variance(sigma: float, scale: int, parts: int) -> Fraction:
    if not (sigma > 0 and sigma < inf) or scale < 1 or parts < 1:
        raise ParameterError(
            f"sigma {sigma}, scale {scale}, {parts} honest survivors; expected all positive"
        )
    exact = (Fraction(sigma) * scale) ** 2 / parts
    # A short fraction keeps the exact arithmetic short; rounding up only adds noise.
    return Fraction(ceil(exact * 1024), 1024)


def discrete_gaussian(
    variance: Fraction, count: int, *, random_bytes: RandomBytes
) -> NDArray[np.int64]:
    """Draws ``count`` independent samples of N_Z(0, ``variance``): P[x] proportional to exp(-x^2 / (2 variance)).

    The distribution is exact: every decision compares a uniform real with a probability known to an interval, and takes
    more digits of both where the interval does not decide. Raises ParameterError for a variance of zero or less, or
    beyond 2^80.
    """
    if not 0 < variance <= 1 << 80:
        raise ParameterError(f"a variance of {variance}; expected one in (0, 2^80]")
    # Algorithm 3: a discrete Laplace y of scale t = floor(sigma) + 1, kept with probability
    # exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)).
    scale = isqrt(variance.numerator // variance.denominator) + 1
    samples: list[NDArray[np.int64]] = []
    missing = count
    while missing > 0:
        proposals = _discrete_laplace(scale, missing + missing // 2 + 16, random_bytes)
        kept = proposals[_accepted(proposals, variance, scale, random_bytes)][:missing]
        samples.append(kept)
        missing -= kept.size
    return np.concatenate(samples) if samples else np.zeros(0, np.int64)


def _accepted(
    proposals: NDArray[np.int64], variance: Fraction, scale: int, random_bytes: RandomBytes
) -> NDArray[np.bool_]:
    """Accepts each proposal with probability exp(-(|y| - variance/scale)^2 / (2 variance))."""
    centre = variance / scale
    spread = np.abs(proposals).astype(np.float64) - float(centre)

    def exact(index: int) -> Fraction:
        return (abs(int(proposals[index])) - centre) ** 2 / (2 * variance)

    return _bernoulli_exp(spread * spread / (2 * float(variance)), exact, random_bytes)


def _discrete_laplace(scale: int, count: int, random_bytes: RandomBytes) -> NDArray[np.int64]:
    """Draws about ``count`` samples with P[x] proportional to exp(-|x| / ``scale``); rejected ones are missing."""
    # Algorithm 2: |x| = u + t v, where u < t is uniform and kept with probability exp(-u/t), and v is geometric with
    # ratio 1/e: together exp(-|x|/t), up to a constant.
    remainders = _below(scale, count, random_bytes)
    kept = remainders[
        _bernoulli_exp(
            remainders / scale, lambda index: Fraction(int(remainders[index]), scale), random_bytes
        )
    ]
    magnitudes = kept + scale * _geometric(kept.size, random_bytes)
    negative = np.frombuffer(random_bytes(kept.size), np.uint8) & 1 == 1
    # Zero would come twice as often as it should if both its signs counted.
    valid: NDArray[np.bool_] = ~(negative & (magnitudes == 0))
    signed: NDArray[np.int64] = np.where(negative, -magnitudes, magnitudes)[valid]
    return signed


def _geometric(count: int, random_bytes: RandomBytes) -> NDArray[np.int64]:
    """Draws P[v] = (1 - 1/e) e^-v: successes of probability 1/e before the first failure."""
    values = np.zeros(count, np.int64)
    going = np.arange(count)
    while going.size:
        lucky = _bernoulli_exp(np.ones(going.size), lambda _: Fraction(1), random_bytes)
        going = going[lucky]
        values[going] += 1
    return values


def _below(bound: int, count: int, random_bytes: RandomBytes) -> NDArray[np.int64]:
    """Draws uniform integers in [0, ``bound``), by rejection of 64-bit words; ``bound`` is below 2^63."""
    largest = (1 << 64) // bound * bound - 1
    accepted = np.zeros(0, np.uint64)
    while accepted.size < count:
        words = np.frombuffer(random_bytes(8 * (count - accepted.size)), "<u8")
        accepted = np.concatenate([accepted, words[words <= np.uint64(largest)]])
    return (accepted % np.uint64(bound)).astype(np.int64)


def _bernoulli_exp(
    exponents: NDArray[np.float64], exact: Callable[[int], Fraction], random_bytes: RandomBytes
) -> NDArray[np.bool_]:
    """Draws True with probability exp(-x) for each x >= 0, where ``exact(index)`` is x and ``exponents`` its float.

    53 bits of a uniform real are compared with the float's exponential. Floats here are within 2^-44 of the truth: an
    exponent is off by less than 2^-49 of itself, and x exp(-x) < 1. Only a uniform within 2^-40 decides nothing.
    """
    words = np.frombuffer(random_bytes(8 * exponents.size), "<u8")
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    probability = np.exp(-exponents)
    result: NDArray[np.bool_] = uniform < probability
    for index in np.flatnonzero(np.abs(uniform - probability) < 2.0**-40):
        result[index] = _uniform_below_exp(int(words[index]) >> 11, exact(int(index)), random_bytes)
    return result


def _uniform_below_exp(prefix: int, exponent: Fraction, random_bytes: RandomBytes) -> bool:
    """Returns True if the uniform real whose first 53 bits are ``prefix`` is below exp(-``exponent``)."""
    if exponent == 0:
        return True
    bits = 53
    while True:
        with localcontext() as context:
            context.prec = bits // 3 + 20 + len(str(ceil(exponent)))
            power = (Decimal(-exponent.numerator) / Decimal(exponent.denominator)).exp()
            scaled = int(power * Decimal(1 << bits))
        # Decimal's exponential is off by far less than one unit of the last bit.
        if prefix + 1 < scaled:
            return True
        if prefix > scaled + 1:
            return False
        prefix = (prefix << 64) | int.from_bytes(random_bytes(8), "big")
        bits += 64
