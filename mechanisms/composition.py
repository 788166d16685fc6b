"""What a fixed schedule costs when its events are composed numerically: a smaller epsilon for the same release.

Provides ``delta_of`` and ``epsilon_of``. zCDP keeps of each event one number; here the distributions of their privacy
losses are added up. It is for schedules whose parameters are fixed beforehand; which marginals are chosen may hang on
all that was released before. Of annealed runs, whose later parameters do, too, zCDP says what is proven.

Public: everything. Both are upper bounds, in double precision, rounded up by far more than doubles err; they are for
people to read, and no budget goes by them.

A choice. The exponential mechanism's loss varies by epsilon at most, E here. For the worst pairs, with losses t and
t - E (0 <= t <= E; Dong, Durfee, Rogers 2020), the hockey stick at e^a is (1 - e^(t-E)) (1 - e^(a-t)) / (1 - e^-E),
largest at t = (a + E) / 2:

    H(a) = (1 - e^((a-E)/2))^2 / (1 - e^-E) for |a| <= E,

the curve of a pair that dominates all of them and composes adaptively (Zhu, Dong, Wang 2022). It is convex in e^a:
chords between points of a grid lie above it, and are the curve of losses at those points alone.

Noise. Independent Gaussians are one, of mu^2 = sum 1 / sigma^2. The sum S of k discrete Gaussians of one sigma is
within a factor of 1 +- tau of one of parameter k sigma^2 (Kairouz, Liu, Steinke 2021; tau < 10^-30 from sigma = 3
on), and such a one is at most a continuous one plus 1, in the order of distributions: for m >= 1 each term of P(S >=
m) is below the integral over the unit before it, and for m <= 0 the same holds of the other tail. So the loss, S /
sigma^2 and a constant, is at most the continuous one plus 1 / sigma^2, once for each sigma.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import rho
from mechanisms.events import (
    DiscreteGaussianEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    SumOfDiscreteGaussiansEvent,
)

# Points of the grid between -E and E, of the smallest E, and of all choices together.
_POINTS, _MOST_POINTS = 128, 8192
_SMALLEST_SIGMA = 3.0
# Far above what double precision and tau leave; relative, and absolute for what underflows.
_SLACK, _LEAST = 1 + 1e-9, 1e-300
_LARGEST_EPSILON = 200.0


def delta_of(events: Sequence[Event], epsilon: float) -> float:
    """A delta for which a release of ``events``, with parameters fixed beforehand, is (epsilon, delta)-private.

    Raises ``ValueError`` for an event that it does not know: a discrete Gaussian of sigma below 3, or Laplace noise.
    """
    noise, lattice = _noise(events)
    losses, shares = _choices(events)
    beyond = [_gaussian(math.sqrt(noise), epsilon - loss - lattice) for loss in losses.tolist()]
    return min(1.0, float(shares @ np.array(beyond)) * _SLACK + _LEAST)


def epsilon_of(events: Sequence[Event], delta: float, *, distance: float = 0.0) -> float:
    """The least epsilon, up to a ten-thousandth, for which ``delta_of`` is at most ``delta``.

    ``distance`` bounds the statistical distance of what is sampled from what the events say; it takes (1 + e^epsilon)
    distance out of delta. Infinite where delta does not cover it. Raises as ``delta_of``.
    """

    def holds(epsilon: float) -> bool:
        return delta_of(events, epsilon) + (1 + math.exp(epsilon)) * distance <= delta

    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return math.inf
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _noise(events: Sequence[Event]) -> tuple[float, float]:
    """mu^2 of all Gaussians, and what discrete ones add to the loss at most."""
    total, lattice = 0.0, dict[Event, float]()
    for event, times in Counter(events).items():
        if isinstance(event, GaussianEvent):
            total += times * 2 * rho(event)
        elif isinstance(event, DiscreteGaussianEvent | SumOfDiscreteGaussiansEvent):
            parts = event.parts if isinstance(event, SumOfDiscreteGaussiansEvent) else 1
            if event.sigma < _SMALLEST_SIGMA or event.sensitivity != 1:
                raise ValueError(
                    f"{event} is not composed numerically: sigma below 3, or another sensitivity than 1"
                )
            total += times * 2 * rho(event)
            lattice[event] = 1 / (parts * event.sigma**2)
        elif not isinstance(event, ExponentialEvent):
            raise ValueError(f"{event} is not composed numerically")
    return total, sum(lattice.values())


def _choices(events: Sequence[Event]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The losses of all choices together (n,), and the shares of what was released that has each."""
    counted = Counter(event.epsilon for event in events if isinstance(event, ExponentialEvent))
    shares, lowest = np.ones(1), 0.0
    if not counted:
        return np.zeros(1), shares
    whole = 2 * sum(epsilon * times for epsilon, times in counted.items())
    step = max(2 * min(counted) / _POINTS, whole / _MOST_POINTS)
    for epsilon, times in counted.items():
        one = _choice(epsilon, step)
        lowest -= times * epsilon
        shares = np.convolve(shares, _power(one, times))
    losses: NDArray[np.float64] = lowest + step * np.arange(len(shares), dtype=np.float64)
    return losses, shares


def _power(one: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    """The distribution of a sum of ``times`` independent losses."""
    total, square = np.ones(1), one
    while times:
        if times % 2:
            total = np.convolve(total, square)
        times //= 2
        if times:
            square = np.convolve(square, square)
    return total


def _choice(epsilon: float, step: float) -> NDArray[np.float64]:
    """The shares (n,) of losses -epsilon, -epsilon + step, ... whose curve is that of chords of H."""
    points = -epsilon + step * np.arange(math.ceil(2 * epsilon / step - 1e-9) + 1)
    x = np.exp(points)
    curve = np.square(-np.expm1((points - epsilon) / 2)) / -math.expm1(-epsilon)
    curve[points >= epsilon] = 0.0
    slopes = np.concatenate([[-1.0], np.diff(curve) / np.diff(x), [0.0]])
    shares: NDArray[np.float64] = x * np.maximum(np.diff(slopes), 0.0)
    return shares


def _gaussian(mu: float, epsilon: float) -> float:
    """The least delta for noise of deviation 1 / mu, at an epsilon that may be negative (Balle, Wang 2018)."""
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    above = math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) / 2
    below = math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
    return max(0.0, above - math.exp(min(epsilon, 700.0)) * below)
