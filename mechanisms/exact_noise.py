"""Exact samplers of the discrete Gaussian and Laplace distributions, without approximation for any sample count.

The random bytes are secret; the samples are secret until released.

Method: Canonne, Kamath, Steinke 2020, Algorithms 1 to 3, on whole arrays. All probabilities are rational numbers of
exactly known numerator and denominator. A coin with probability p compares 64 random bits with floor(2^64 p), which is
computed in Python's integers once for each p that occurs. If they are equal, once in 2^64, further bits are compared
with further digits of p. So every coin is exact.

Limits: not constant time: the running time depends on the samples, as with every rejection sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.sampling import RandomBytes, uniform_below

MAX_SIGMA = 1 << 20
_BITS = 64


def discrete_gaussian_noise(
    random_bytes: RandomBytes, sigma: float, count: int
) -> NDArray[np.int64]:
    """Returns independent samples of P(z) proportional to exp(-z^2 / (2 sigma^2)) on the whole numbers, exactly.

    Shapes: (count,). ``sigma`` is taken as the rational number that the double represents. Raises ``ValueError`` unless
    it is positive and below 2^20.
    """
    if not 0 < sigma < MAX_SIGMA:
        raise ValueError(f"sigma = {sigma}; it lies between 0 and 2^20")
    variance = Fraction(sigma) ** 2
    scale = math.floor(sigma) + 1
    samples: list[NDArray[np.int64]] = []
    missing = count
    # Algorithm 3: a discrete Laplace of scale t, kept with probability exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)).
    coin = _ExpCoin(random_bytes, lambda y: (y - variance / scale) ** 2 / (2 * variance))
    laplace = _Laplace(random_bytes, scale)
    while missing > 0:
        # More than half of the attempts succeed.
        y = laplace.attempts(3 * missing + 16)
        kept = y[coin.toss(np.abs(y))][:missing]
        samples.append(kept)
        missing -= kept.size
    return np.concatenate(samples) if samples else np.zeros(0, np.int64)


def discrete_laplace_noise(random_bytes: RandomBytes, scale: int, count: int) -> NDArray[np.int64]:
    """Returns independent samples of P(z) proportional to exp(-|z| / scale) on the whole numbers, exactly.

    Shapes: (count,). Raises ``ValueError`` for a scale below 1, or of 2^20 and more.
    """
    if not 1 <= scale < MAX_SIGMA:
        raise ValueError(f"scale = {scale}; it is a whole number from 1 to 2^20 - 1")
    laplace, samples = _Laplace(random_bytes, scale), np.zeros(0, np.int64)
    while samples.size < count:
        # At least a third of the attempts succeed.
        samples = np.concatenate((samples, laplace.attempts(3 * (count - samples.size) + 16)))
    return samples[:count]


class _Laplace:
    """Sampler of the discrete Laplace distribution of scale t, P(x) proportional to exp(-|x| / t) (Algorithm 2)."""

    def __init__(self, random_bytes: RandomBytes, scale: int) -> None:
        self._random_bytes = random_bytes
        self._scale = scale
        self._fraction = _ExpCoin(random_bytes, lambda u: Fraction(u, scale))
        self._whole = _ExpCoin(random_bytes, lambda _: Fraction(1))

    def attempts(self, count: int) -> NDArray[np.int64]:
        """Returns the accepted samples of ``count`` attempts."""
        # x = u + t v: u below t with P(u) proportional to exp(-u / t), v geometric with ratio exp(-1).
        u = uniform_below(self._random_bytes, self._scale, count)
        u = u[self._fraction.toss(u)]
        x = u + self._scale * self._geometric(u.size)
        negative = uniform_below(self._random_bytes, 2, x.size) == 1
        # Zero would be twice as likely as it should be if both its signs were accepted.
        accepted = ~(negative & (x == 0))
        signed: NDArray[np.int64] = np.where(negative, -x, x)[accepted]
        return signed

    def _geometric(self, count: int) -> NDArray[np.int64]:
        """Returns the number of ones before the first zero, of coins with probability 1/e."""
        v = np.zeros(count, np.int64)
        running = np.arange(count)
        while running.size:
            running = running[self._whole.toss(np.zeros(running.size, np.int64))]
            v[running] += 1
        return v


class _ExpCoin:
    """Coin that shows one with probability exp(-gamma(k)), for whole k >= 0 (Algorithm 1)."""

    def __init__(self, random_bytes: RandomBytes, gamma: Callable[[int], Fraction]) -> None:
        self._random_bytes = random_bytes
        self._gamma = gamma
        # floor(2^64 gamma'/j) by (j, k): j is the step of the coin, gamma' is gamma less its whole part.
        self._thresholds: dict[tuple[int, int], int] = {}
        self._wholes: dict[int, int] = {}

    def toss(self, k: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tosses one coin for each entry of ``k``, of any shape (n,)."""
        result = self._toss_fraction(k)
        # exp(-gamma) = exp(-1)^w exp(-(gamma - w)), w the whole part of gamma.
        wholes = self._lookup(k, self._whole)
        one = _ExpCoin(self._random_bytes, lambda _: Fraction(1)) if wholes.any() else self
        left = np.where(result, wholes, 0)
        while (running := np.flatnonzero(left)).size:
            shown = one._toss_fraction(np.zeros(running.size, np.int64))
            left[running] = np.where(shown, left[running] - 1, 0)
            result[running] &= shown
        return result

    def _whole(self, k: int) -> int:
        """Returns the whole part of gamma, but 0 for gamma = 1, which the series covers."""
        if k not in self._wholes:
            self._wholes[k] = max(0, math.ceil(self._gamma(k)) - 1)
        return self._wholes[k]

    def _probability(self, j: int, k: int) -> Fraction:
        return (self._gamma(k) - self._whole(k)) / j

    def _threshold(self, j: int, k: int) -> int:
        if (j, k) not in self._thresholds:
            p = self._probability(j, k)
            self._thresholds[j, k] = min((p.numerator << _BITS) // p.denominator, (1 << _BITS) - 1)
        return self._thresholds[j, k]

    def _toss_fraction(self, k: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tosses exp(-gamma') for gamma' in [0, 1]: coins of gamma'/1, gamma'/2, ... until one shows zero."""
        # The first zero comes at coin j with probability gamma'^(j-1)/(j-1)! - gamma'^j/j!; over all odd j that adds up
        # to 1 - gamma' + gamma'^2/2! - ... = exp(-gamma').
        odd = np.ones(k.size, np.bool_)
        running = np.arange(k.size)
        j = 1
        while running.size:
            running = running[self._bernoulli(j, k[running])]
            j += 1
            odd[running] = j % 2 == 1
        return odd

    def _bernoulli(self, j: int, k: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tosses coins of probability gamma'(k) / j, exactly."""
        bits = np.frombuffer(self._random_bytes(8 * k.size), "<u8")
        thresholds = self._lookup(k, lambda value: self._threshold(j, value))
        shown = bits < thresholds
        for i in np.flatnonzero(bits == thresholds):
            p = self._probability(j, int(k[i]))
            shown[i] = self._compare(p * (1 << _BITS) - int(thresholds[i]))
        return shown

    def _compare(self, p: Fraction) -> bool:
        """Returns whether a uniform number below 1 is below p, by 64 bits of both at a time."""
        while p:
            # One is 0.111...: every digit is the largest possible.
            digit = min((p.numerator << _BITS) // p.denominator, (1 << _BITS) - 1)
            bits = int.from_bytes(self._random_bytes(8), "big")
            if bits != digit:
                return bits < digit
            p = p * (1 << _BITS) - digit
        return False

    @staticmethod
    def _lookup(k: NDArray[np.int64], function: Callable[[int], int]) -> NDArray[np.uint64]:
        values, where = np.unique(k, return_inverse=True)
        table = np.array([function(int(value)) for value in values], np.uint64)
        of_each: NDArray[np.uint64] = table[where]
        return of_each
