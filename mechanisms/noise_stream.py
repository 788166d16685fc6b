"""The exact discrete Gaussian for millions of samples of one large deviation: noise of gradients.

The random bytes are secret; the samples are secret until released.

Method: as ``exact_noise`` (Canonne, Kamath, Steinke 2020, Algorithms 2 and 3): a discrete Laplace, kept with a certain
probability. Its coins, of probability exp(-gamma) for rational gamma, are decided differently: 64 random bits are a
number below 1 known to 2^-64, and exp(-gamma) in double precision is off by less than 2^-49. Only if the two are within
2^-40, once in 2^39 coins, as many further digits of both are compared as it takes to tell them apart. So every coin is
exact here, too, without a table of values, which is slow for large deviations.

Limits: not constant time, as every rejection sampler; NumPy's exp is assumed to be right to 2^-45 (it is to 2^-51).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.exact_noise import MAX_SIGMA
from mechanisms.sampling import RandomBytes

_MARGIN = 2.0**-40
_BLOCK = 1 << 16


class DiscreteGaussianStream:
    """Independent samples of P(z) proportional to exp(-z^2 / (2 sigma^2)), exactly, in any number.

    ``sigma`` is taken as the rational number that the double represents. Samples are made some ``block`` at a time and
    kept for the next call. Raises ``ValueError`` unless sigma is positive and below 2^20.
    """

    def __init__(self, sigma: float, random_bytes: RandomBytes, *, block: int = 1024) -> None:
        if not 0 < sigma < MAX_SIGMA:
            raise ValueError(f"sigma = {sigma}; it lies between 0 and 2^20")
        self.sigma = sigma
        self._block = min(max(1, block), _BLOCK)
        self._random_bytes = random_bytes
        self._variance = Fraction(sigma) ** 2
        self._scale = math.floor(sigma) + 1
        self._kept = np.zeros(0, np.int64)

    def __repr__(self) -> str:
        return f"DiscreteGaussianStream(sigma={self.sigma})"

    def draw(self, count: int) -> NDArray[np.int64]:
        """Returns the next ``count`` samples, int64 (count,)."""
        parts, size = [self._kept], self._kept.size
        while size < count:
            part = self._attempts(3 * min(max(count - size, self._block), _BLOCK))
            parts.append(part)
            size += part.size
        samples = np.concatenate(parts)
        self._kept = samples[count:].copy()
        return samples[:count]

    def _attempts(self, count: int) -> NDArray[np.int64]:
        """Returns the accepted samples of ``count`` attempts, somewhat fewer than half of them."""
        # Algorithm 2: |y| = u + t v, u below t with P(u) proportional to exp(-u/t), v geometric with ratio 1/e.
        t = self._scale
        u = self._uniform(count)
        u = u[self._coins(u / t, lambda k: Fraction(k, t), u)]
        y = u + t * self._geometric(u.size)
        # Zero would be twice as likely as it should be if both its signs were accepted.
        negative = np.frombuffer(self._random_bytes(y.size), np.uint8) >= 128
        kept = ~(negative & (y == 0))
        y, negative = y[kept], negative[kept]
        # Algorithm 3: kept with probability exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)).
        gamma = (y - float(self._variance / t)) ** 2 / (2 * float(self._variance))
        kept = self._coins(gamma, self._excess, y)
        signed: NDArray[np.int64] = np.where(negative[kept], -y[kept], y[kept])
        return signed

    def _excess(self, y: int) -> Fraction:
        return (y - self._variance / self._scale) ** 2 / (2 * self._variance)

    def _uniform(self, count: int) -> NDArray[np.int64]:
        """Returns numbers uniform on 0 .. t - 1: 64 bits modulo t, without those beyond the last multiple of t."""
        words = np.frombuffer(self._random_bytes(8 * count), "<u8")
        beyond = (1 << 64) - (1 << 64) % self._scale
        if beyond < 1 << 64:
            words = words[words < beyond]
        uniform: NDArray[np.int64] = (words % np.uint64(self._scale)).astype(np.int64)
        return uniform

    def _geometric(self, count: int) -> NDArray[np.int64]:
        """Returns samples of P(v) = (1 - 1/e) e^-v: coins of probability 1/e until the first zero."""
        v = np.zeros(count, np.int64)
        running = np.arange(count)
        while running.size:
            shown = self._coins(np.ones(running.size), lambda _: Fraction(1), running)
            running = running[shown]
            v[running] += 1
        return v

    def _coins(
        self, gamma: NDArray[np.float64], exact: Callable[[int], Fraction], k: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Tosses coins of probability exp(-exact(k)); ``gamma`` has exact(k) in double precision; shapes (n,)."""
        words = np.frombuffer(self._random_bytes(8 * gamma.size), "<u8")
        # A word w stands for a number in [w, w + 1) 2^-64; as a double it is off by at most 2^-53.
        distance = words * 2.0**-64 - np.exp(-gamma)
        shown: NDArray[np.bool_] = distance < 0
        for i in np.flatnonzero(np.abs(distance) < _MARGIN):
            shown[i] = is_below_exp(int(words[i]), exact(int(k[i])), self._random_bytes)
        return shown


def is_below_exp(word: int, gamma: Fraction, random_bytes: RandomBytes) -> bool:
    """Returns whether a uniform number whose first 64 bits are ``word`` is below exp(-gamma), for gamma >= 0.

    Draws further bits of it, and computes further digits of exp(-gamma), as needed.
    """
    if gamma == 0:
        return True
    bits = 64
    while True:
        with localcontext() as context:
            context.prec = bits // 3 + 40
            power = (-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp()
            scaled = power * (1 << bits)
            # The rounding of the argument and of the function together stay far below this.
            slop = scaled * Decimal(10) ** (-context.prec + 20)
            if word + 1 <= scaled - slop:
                return True
            if word >= scaled + slop:
                return False
        word = (word << 64) | int.from_bytes(random_bytes(8), "big")
        bits += 64
