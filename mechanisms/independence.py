"""Comparison of a synthetic table's pairs with columns drawn independently: which are closer to the data.

All values here are public, as post-processing of released values. If the real table is at hand, `value_pairs` measures
the distances.

A measured pair's table s is at an L1 distance D from the product of its two columns. Part of D is noise: even with
independent columns s would differ from the product by E, the error that noise leaves in the measurement. Squares of
independent errors add up, so that the product is expected to be T = sqrt(D^2 - E^2) from the data. The measured pair is
closer if E < T; the columns are seen to be related if D^2 also exceeds the values of E^2 that are likely by chance in a
table of so many degrees of freedom. README.md, Shuffling, has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique
from mechanisms.expected_errors import Expected
from mechanisms.intervals import LARGEST, Interval
from mechanisms.workload import Workload

BY_CHANCE = 0.05
"""Approximate chance that any pair of independent columns is taken for a related one."""


@dataclass(frozen=True, slots=True)
class PairGain:
    """A measured pair: errors ``expected`` of it, and of ``independent`` columns in its place; L1, 0 to 2.

    ``seen``: noise does not explain that the two columns go together. ``proven``: the pair is closer for certain, with
    the confidence of its interval.
    """

    pair: Clique
    expected: float
    independent: float
    seen: bool
    proven: bool

    @property
    def shown(self) -> bool:
        """True if the pair is shown to be closer to the data than independent columns."""
        return self.proven or (self.seen and self.expected < self.independent)


def pair_gains(
    workload: Workload,
    synthetic: NDArray[np.float64],
    measured: Sequence[Clique],
    intervals: Sequence[Interval],
    expected: Sequence[Expected],
) -> tuple[PairGain, ...]:
    """Returns one gain for each pair in ``measured`` that has an estimate.

    ``synthetic`` (workload.cells,) has the table's counts.
    """
    numbers = {q: i for i, q in enumerate(workload.candidates)}
    estimated = [
        (pair, numbers[pair])
        for pair in measured
        if pair in numbers and not expected[numbers[pair]].at_most
    ]
    return tuple(
        _gain(
            pair,
            synthetic[workload.slice(i)].reshape(workload.domain.sizes(pair)),
            intervals[i].high,
            expected[i].error,
            pairs=len(estimated),
        )
        for pair, i in estimated
    )


def _gain(
    pair: Clique, counts: NDArray[np.float64], high: float, expected: float, *, pairs: int
) -> PairGain:
    shares = counts / counts.sum()
    product = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    # D, the L1 distance of the pair from the product of its columns.
    apart = float(np.abs(shares - product).sum())
    freedom = math.prod(max(1, int(np.count_nonzero(product.sum(axis=a))) - 1) for a in (0, 1))
    return PairGain(
        pair,
        expected,
        # T = sqrt(D^2 - E^2).
        min(LARGEST, math.sqrt(max(0.0, apart**2 - expected**2))),
        # D^2 compared with the likely values of E^2; Bonferroni over the pairs.
        apart**2 > expected**2 * _by_chance(freedom, BY_CHANCE / pairs),
        # Triangle inequality: the product is at least D - high from the data.
        high < apart - high,
    )


def _by_chance(freedom: int, chance: float) -> float:
    """Returns the quantile of a mean of ``freedom`` squared Gaussians (Wilson and Hilferty's cube)."""
    spread = 2 / (9 * freedom)
    return (1 - spread + NormalDist().inv_cdf(1 - chance) * math.sqrt(spread)) ** 3
