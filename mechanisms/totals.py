"""Estimates of the number of rows, from released sums.

``rows_per_client`` is one average for all clients; ``GrowingTotal`` has the rows of the clients counted so far, while
clients arrive.

All values here are public, as post-processing of released measurements. Sums are exactly rounded and the rest is scalar
arithmetic, so that servers on different processors get the same numbers.

Source: Rauch, Tung, Striebel 1965 (the smoother).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from mechanisms.errors import EstimationError


@dataclass(frozen=True, slots=True)
class NoisyTotal:
    """The sum of a measured marginal: the rows of ``clients`` clients with noise of variance ``variance``."""

    rows: float
    variance: float
    clients: int


def rows_per_client(totals: Sequence[NoisyTotal]) -> float:
    """Returns the average rows of one client, over all clients that were ever counted.

    A total S_i has mean lambda K_i and variance v_i when K_i clients were counted: weighted least squares gives sum(S_i
    K_i / v_i) / sum(K_i^2 / v_i). The result is at least one row in all. Raises ``EstimationError`` without totals.
    """
    if not totals:
        raise EstimationError("nothing was measured, so the number of rows is unknown")
    above = math.fsum(t.rows * t.clients / t.variance for t in totals)
    below = math.fsum(t.clients**2 / t.variance for t in totals)
    return max(above / below, 1.0 / max(t.clients for t in totals))


class GrowingTotal:
    """The rows N(K) of the first K clients counted, while K grew during the measurements of ``totals``.

    N(K) is modelled as lambda K with random increments: the sizes of clients are independent, with a standard deviation
    as large as their mean lambda. So a precise sum determines the rows of the clients in it, an imprecise one (of many
    cells) is outweighed by its neighbours, and clients of unequal sizes do no harm. Raises ``EstimationError`` without
    totals.
    """

    def __init__(self, totals: Sequence[NoisyTotal]) -> None:
        self._rate = rows_per_client(totals)
        merged = _merged(totals)
        self._clients = [0, *(t.clients for t in merged)]
        off = [t.rows - self._rate * t.clients for t in merged]
        # Variance lambda^2 for each further client.
        steps = [self._rate * self._rate * (k - before) for before, k in pairwise(self._clients)]
        self._deviations = [0.0, *_smoothed(off, [t.variance for t in merged], steps)]

    def at(self, clients: int) -> float:
        """Returns the estimated rows of the first ``clients`` clients, at least one."""
        return max(1.0, self._rate * clients + self._deviation(clients))

    def _deviation(self, clients: int) -> float:
        """Returns the walk's deviation: linear between its points, and constant after the last."""
        known, deviations = self._clients, self._deviations
        i = bisect_right(known, clients)
        if i == len(known):
            return deviations[-1]
        share = (clients - known[i - 1]) / (known[i] - known[i - 1])
        return deviations[i - 1] + share * (deviations[i] - deviations[i - 1])


def _merged(totals: Sequence[NoisyTotal]) -> list[NoisyTotal]:
    """Returns one total for each number of clients, in ascending order: the mean by inverse variance."""
    merged = []
    for clients, group in groupby(sorted(totals, key=_clients), key=_clients):
        of_same = list(group)
        precision = math.fsum(1 / t.variance for t in of_same)
        rows = math.fsum(t.rows / t.variance for t in of_same) / precision
        merged.append(NoisyTotal(rows, 1 / precision, clients))
    return merged


def _clients(total: NoisyTotal) -> int:
    return total.clients


def _smoothed(
    values: Sequence[float], variances: Sequence[float], steps: Sequence[float]
) -> list[float]:
    """Returns the expectation of a random walk from 0, at each of its points, given all ``values`` observed.

    ``steps`` are the variances of the walk's steps to each point; ``variances`` those of the observations.
    """
    # Forwards, the Kalman filter: each point's mean and variance given the observations up to it.
    mean = spread = 0.0
    filtered = []
    for value, variance, step in zip(values, variances, steps, strict=True):
        spread += step
        gain = spread / (spread + variance)
        mean, spread = mean + gain * (value - mean), (1 - gain) * spread
        filtered.append((mean, spread))
    # Backwards, the Rauch-Tung-Striebel smoother: a point takes the share spread / (spread + step) of the next point's
    # difference from its prediction.
    smoothed = [filtered[-1][0]]
    for (mean, spread), step in zip(filtered[-2::-1], steps[:0:-1], strict=True):
        smoothed.append(mean + spread / (spread + step) * (smoothed[-1] - mean))
    return smoothed[::-1]
