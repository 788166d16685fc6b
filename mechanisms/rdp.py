"""Renyi differential privacy of sampled Gaussian noise, and its conversion to epsilon and delta.

``sampled_gaussian`` is one step of DP-SGD. A curve is float64 (len(ORDERS),): the Renyi divergence at each order;
curves of steps add up, also for adaptively chosen steps.

All values here are public. Neighbouring tables: one example is present or absent, and the declared number of rows,
which determines rates and weights, stays.

For whole orders a >= 2, with q the rate of Poisson sampling and z the noise in multiples of the clipping norm,

    (a - 1) D_a = log sum_k C(a, k) (1-q)^(a-k) q^k exp((k^2 - k) / (2 z^2)).

That bounds continuous and discrete noise in either direction, and (a - 1) D_a is convex in a: the orders between are
interpolated (README, "What a step of DP-SGD costs", has the proofs). Each curve is raised by 1e-9 of itself for
rounding.

Source: Mironov, Talwar, Zhang 2019 (whole orders); Canonne, Kamath, Steinke 2020, Proposition 12 (conversion). Limits:
orders up to 512. ``sampled_loss`` gives a smaller epsilon for the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mechanisms.events import check_positive

_WHOLE = (*range(2, 65), *range(68, 129, 4), *range(144, 513, 16))
ORDERS: tuple[float, ...] = tuple(
    sorted({*map(float, _WHOLE), *(1 + i / 20 for i in range(1, 80))})
)
_A = np.array(_WHOLE)[:, None]
_K = np.arange(_WHOLE[-1] + 1)
_LOG_FACTORIALS = np.concatenate([[0.0], np.cumsum(np.log(_K[1:]))])
# log C(a, k), valid for k <= a.
_LOG_BINOMIALS = _LOG_FACTORIALS[_A] - _LOG_FACTORIALS[_K] - _LOG_FACTORIALS[np.abs(_A - _K)]
_SLOP = 1 + 1e-9
_LARGEST_Z = 1e6


def gaussian(z: float) -> NDArray[np.float64]:
    """Returns the curve of Gaussian noise, discrete or not, of deviation ``z`` sensitivities: a / (2 z^2)."""
    check_positive("z", z)
    return np.array(ORDERS) * (_SLOP / (2 * z * z))


def sampled_gaussian(q: float, z: float) -> NDArray[np.float64]:
    """Returns the curve of one noisy sum over a Poisson sample: every row is in it with probability at most ``q``.

    ``z`` is the noise's deviation in multiples of the largest contribution of one row to the sum, in Euclidean norm.
    Raises ``ValueError`` unless q lies in (0, 1] and z is positive and finite.
    """
    check_positive("z", z)
    if not 0 < q <= 1:
        raise ValueError(f"q = {q}; a sampling rate lies above 0 and is at most 1")
    if q == 1:
        return gaussian(z)
    # (a - 1) D_a is 0 at a = 1.
    moments = np.concatenate([[0.0], _log_moments(q, z)])
    between = np.interp(ORDERS, (1, *_WHOLE), moments)
    return np.asarray(between / (np.array(ORDERS) - 1) * _SLOP, np.float64)


@lru_cache(maxsize=1024)
def _log_moments(q: float, z: float) -> NDArray[np.float64]:
    """(a - 1) D_a = log E[(Q/P)^a] of the mixture Q = (1-q) P + q P_shifted, for the whole orders.

    Cached, since a ledger adds up its steps again for each charge, hence read-only.
    """
    # log of C(a, k) (1-q)^(a-k) q^k, and the exponent (k^2 - k) / (2 z^2).
    shares = _LOG_BINOMIALS + (_A - _K) * math.log1p(-q) + _K * math.log(q)
    shares[_K > _A] = -np.inf
    growth = (_K * _K - _K) / (2 * z * z)
    terms = shares + growth
    peak = terms.max(axis=1)
    log_sum = peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))
    # The shares add up to 1: if the sum is hardly more, terms less their shares give the excess without cancellation.
    above = np.where(
        growth < 1,
        np.exp(shares) * np.expm1(np.minimum(growth, 1)),
        np.exp(np.minimum(terms, 0)) - np.exp(shares),
    )
    moments: NDArray[np.float64] = np.where(peak < 0, np.log1p(above.sum(axis=1)), log_sum)
    moments.flags.writeable = False
    return moments


def epsilon_of(curve: NDArray[np.float64], delta: float, orders: Sequence[float] = ORDERS) -> float:
    """Returns the least epsilon, over the orders, for which a Renyi curve implies (epsilon, delta).

    min over a of D_a + log((a - 1)/a) - (log delta + log a)/(a - 1). Raises ``ValueError`` unless delta lies between 0
    and 1.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}; it lies between 0 and 1")
    a = np.asarray(orders, np.float64)
    bounds = curve + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1)
    return max(0.0, float(bounds.min()) * _SLOP)


def least_multiplier(
    curve_of: Callable[[float], NDArray[np.float64]],
    epsilon: float,
    delta: float,
    orders: Sequence[float] = ORDERS,
) -> float:
    """Returns the least noise multiplier z, to 1e-6 and rounded up, for which ``curve_of(z)`` keeps (epsilon, delta).

    Raises ``ValueError`` for numbers out of range, or if not even z = 10^6 is enough.
    """
    check_positive("epsilon", epsilon)

    def keeps(z: float) -> bool:
        return epsilon_of(curve_of(z), delta, orders) <= epsilon

    low, high = 0.0, 1.0
    while not keeps(high):
        low, high = high, 2 * high
        if high > _LARGEST_Z:
            raise ValueError(
                f"no noise keeps epsilon = {epsilon}, delta = {delta} over these steps"
            )
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    # Step by step the sum is rounded differently; it has to fit all the same.
    return high * (1 + 1e-8)
