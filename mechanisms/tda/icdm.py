"""Categories as normal scores and back: the inverse cumulative distribution mapping (ICDM).

``Scores`` maps one discrete column. The shares and the order of categories are public. Codes, scores, and the uniform
numbers behind them are secret.

A category is an interval of [0, 1] as long as its share; a row of it has a uniform place u in its interval and the
score Phi^-1(u), so that the column as a whole is standard normal. Source: Fed-TDA, ICDM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

END = 1e-4
"""Length cut off [0, 1] at both ends: no score is beyond 3.72."""

# No category's mean is further out: about the normal distribution's means beyond the end points.
_FURTHEST = 4.0

# Between these points the distribution function is nearly linear.
_Z = np.linspace(-4, 4, (1 << 13) + 1)
_PHI = np.array([NormalDist().cdf(z) for z in _Z.tolist()])


def normal_quantile(u: Floats) -> Floats:
    """Returns Phi^-1(u) of any shape, u cut to [1e-4, 1 - 1e-4] first; off by less than 1e-6."""
    return np.interp(np.clip(u, END, 1 - END), _PHI, _Z)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The intervals of a column: ``shares`` (categories,), laid side by side in the ``order`` (categories,) of codes.

    Raises ``ValueError`` unless the shares are probabilities and the order has each category once.
    """

    shares: Floats
    order: NDArray[np.intp]

    def __post_init__(self) -> None:
        if not ((self.shares >= 0).all() and abs(float(self.shares.sum()) - 1) < 1e-6):
            raise ValueError("shares of categories are not negative, and their sum is 1")
        if sorted(self.order.tolist()) != list(range(self.shares.size)):
            raise ValueError("an order has every category once")

    @classmethod
    def by_frequency(cls, shares: Floats) -> Scores:
        """Orders the rarest category first, as in the paper."""
        return cls(shares, np.argsort(shares, kind="stable"))

    @classmethod
    def as_listed(cls, shares: Floats) -> Scores:
        """Orders categories by their codes."""
        return cls(shares, np.arange(shares.size))

    def forward(self, codes: NDArray[np.intp], u: Floats) -> Floats:
        """Returns the scores (rows,) of codes (rows,), at the places u (rows,) in [0, 1) of the codes' intervals."""
        edges, place = self._edges(), self._place()[codes]
        return normal_quantile(edges[place] + u * (edges[place + 1] - edges[place]))

    def inverse(self, scores: Floats) -> NDArray[np.intp]:
        """Returns the code (rows,) whose interval each score (rows,) lies in; beyond the ends, that of the end."""
        inner = self._edges()[1:-1]
        # Categories without a share have no scores at all, even at the ends.
        bounds = np.where(inner <= 0, -np.inf, np.where(inner >= 1, np.inf, normal_quantile(inner)))
        return self.order[np.searchsorted(bounds, scores, side="right")]

    def bounds(self) -> tuple[Floats, Floats]:
        """Returns the interval ends (categories + 1,) in their order as scores, finite ones, and the density there."""
        edges = self._edges()
        z = normal_quantile(edges)
        density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        return z, np.where((edges <= 0) | (edges >= 1), 0.0, density)

    def means(self) -> Floats:
        """Returns the mean score (categories,) of each category's rows by code; 0 for one without a share."""
        _, density = self.bounds()
        lengths = np.diff(self._edges())
        some = lengths > 0
        # E[Z | l < Z < u] = (phi(l) - phi(u)) / (Phi(u) - Phi(l)).
        means = np.where(some, (density[:-1] - density[1:]) / np.where(some, lengths, 1.0), 0.0)
        return np.asarray(np.clip(means, -_FURTHEST, _FURTHEST)[self._place()])

    @property
    def variance(self) -> float:
        """Variance of the categories' means, weighted by their shares; 1 in the limit of many small categories."""
        return float(self.shares @ self.means() ** 2)

    def _place(self) -> NDArray[np.intp]:
        """Returns the place of each code in the order."""
        place = np.empty(self.order.size, np.intp)
        place[self.order] = np.arange(self.order.size)
        return place

    def _edges(self) -> Floats:
        """Returns the ends (categories + 1,) of the intervals, in their order."""
        upper = np.minimum(np.cumsum(self.shares[self.order]), 1.0)
        # The last nonzero share ends at 1, regardless of rounding.
        upper[np.flatnonzero(self.shares[self.order])[-1] :] = 1.0
        return np.concatenate([[0.0], upper])
