"""Variational Gaussian mixtures of scaled columns, as sums over rows: the E-step of a silo, the M-step of the server.

Provides ``Prior``, ``Mixture`` (what the server broadcasts), ``initial``, ``responsibilities`` and ``row_terms`` (the
silo's side), ``update`` (the server's), ``moved`` (how far an update went).

Every continuous column has a mixture of its own; arrays have the columns first and the components last. Columns are
scaled to [0, 1] by public bounds. Secret: rows and what is computed from single ones. Public: mixtures.

Source: Fed-TDA, federated VB-GMM, for one dimension; Bishop, Pattern Recognition and Machine Learning, section 10.2.
Errata of the former: in its eq. 8 the expectation of ln Lambda has psi((nu + 1 - d) / 2), in one dimension psi(nu /
2); its eq. 10 leaves out that responsibilities are normalised; its eq. 21, the bound, is not one: an exact run ends
when the parameters stop changing. Deviation: squares are taken about the mean that was broadcast, not the new one,
and moved there by the server, so that an iteration is one sum and not two.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# How far noise may move a component in one update: its mean by so many of its deviations, its variance by this factor.
_MOST_SHIFT = 3.0
_MOST_SPREAD = 16.0
_ROWS_OF_NOISE = 3.0

# Far beyond any table's. What a silo is sent lies within, so that no square of its overflows: an error would depend on
# its rows.
_MOST = 2.0**48


@dataclass(frozen=True, slots=True)
class Prior:
    """Dirichlet(``weight``), Normal(``mean``, 1 / (``precision`` Lambda)), Wishart(1 / ``scatter``, ``freedom``).

    In the paper's letters alpha0, m0, beta0, W0^-1 and nu0. Raises ``ValueError`` out of range.
    """

    weight: float
    precision: float
    mean: float
    scatter: float
    freedom: float

    def __post_init__(self) -> None:
        for name in ("weight", "precision", "scatter", "freedom"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"prior {name} = {getattr(self, name)}; it is positive and finite")
        if not 0 <= self.mean <= 1:
            raise ValueError(f"prior mean = {self.mean}; scaled columns lie between 0 and 1")

    @classmethod
    def of(cls, components: int) -> Prior:
        """The default, which knows nothing but the bounds: a component is a hundredth of its part of [0, 1] wide."""
        return cls(1 / components, 1.0, 0.5, (0.1 / components) ** 2, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """The posterior: (columns, components) each of ``counts`` N_t, ``mean`` m_t and ``scatter`` W_t^-1.

    alpha_t, beta_t and nu_t are the prior's plus N_t. No posterior has a scatter below the
    prior's. Raises ``ValueError`` for what is none of any table.
    """

    prior: Prior
    counts: Floats
    mean: Floats
    scatter: Floats

    def __post_init__(self) -> None:
        shapes = {self.counts.shape, self.mean.shape, self.scatter.shape}
        if len(shapes) != 1 or self.counts.ndim != 2:
            raise ValueError(
                f"a mixture of shapes {sorted(shapes)}; expected one (columns, components)"
            )
        arrays = (self.counts, self.mean, self.scatter)
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("a mixture with numbers that are not finite")
        least = self.prior.scatter * (1 - 1e-9)
        if (self.counts < 0).any() or (self.counts > _MOST).any():
            raise ValueError("a mixture has counts from 0 to 2^48")
        if (self.scatter < least).any() or (self.scatter > _MOST).any():
            raise ValueError("a mixture has scatters from the prior's to 2^48")
        if (self.mean < 0).any() or (self.mean > 1).any():
            raise ValueError("a mixture has means between 0 and 1")

    @property
    def digest(self) -> bytes:
        """Different for different mixtures."""
        parts = (self.counts, self.mean, self.scatter)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).digest()

    @property
    def freedom(self) -> Floats:
        """nu_t, (columns, components)."""
        return self.prior.freedom + self.counts

    @property
    def deviation(self) -> Floats:
        """sigma_t, of sigma_t^2 = 1 / (nu_t W_t): (columns, components)."""
        return np.sqrt(self.scatter / self.freedom)


def initial(prior: Prior, columns: int, components: int) -> Mixture:
    """What an exact run begins with, known without any row: components side by side, each as wide as its part."""
    places = (np.arange(components) + 0.5) / components
    ones = np.ones((columns, components))
    scatter = (prior.freedom + 1) / components**2
    return Mixture(prior, ones, places * ones, scatter * ones)


def responsibilities(x: Floats, mixture: Mixture) -> Floats:
    """The E-step: r (rows, columns, components) of x (rows, columns); 0 where x is not a number."""
    prior = mixture.prior
    weight = prior.weight + mixture.counts
    log_weight = digamma(weight) - digamma(weight.sum(axis=1, keepdims=True))
    log_precision = digamma(mixture.freedom / 2) + math.log(2) - np.log(mixture.scatter)
    constant = log_weight + log_precision / 2 - 1 / (2 * (prior.precision + mixture.counts))
    distance = (x[:, :, None] - mixture.mean) ** 2
    logs = constant - mixture.freedom / (2 * mixture.scatter) * distance
    logs -= logs.max(axis=2, keepdims=True)
    r = np.exp(logs)
    r /= r.sum(axis=2, keepdims=True)
    return np.where(np.isnan(r), 0.0, r)


def row_terms(x: Floats, mixture: Mixture, unit: Floats) -> Floats:
    """What each row adds to an iteration's sums: r, r z, r z^2 with z = (x - m_t) / unit_t.

    Shapes: x (rows, columns), unit (columns, components), result (rows, columns, 3, components).
    """
    r = responsibilities(x, mixture)
    z = (np.nan_to_num(x)[:, :, None] - mixture.mean) / unit
    first = r * z
    return np.stack([r, first, first * z], axis=2)


def update(mixture: Mixture, sums: Floats, unit: Floats, *, noise: float = 0.0) -> Mixture:
    """The M-step: the next mixture from the sums (columns, 3, components) of ``row_terms``.

    ``noise``: the deviation of the noise in each sum, in rows. With it, three times as many rows more are believed in
    that lie as their component does, and a component moves no further than three deviations: what a sum of few rows
    under much noise says is mostly noise, and what is left of it stays where it is. Exact sums are taken as they are.
    """
    prior = mixture.prior
    counts = np.maximum(sums[:, 0], 0.0)
    added = _ROWS_OF_NOISE * noise
    believed = counts + added
    some = believed > 0
    divisor = np.where(some, believed, 1.0)
    shift = np.where(some, sums[:, 1] / divisor, 0.0)
    square = np.where(some, (sums[:, 2] + added) / divisor, 0.0)
    if noise:
        shift = np.clip(shift, -_MOST_SHIFT, _MOST_SHIFT)
        spread = np.clip(square - shift**2, 1 / _MOST_SPREAD, _MOST_SPREAD)
    else:
        spread = np.maximum(square - shift**2, 0.0)
    centre = np.clip(mixture.mean + unit * shift, 0.0, 1.0)
    precision = prior.precision + believed
    mean = (prior.precision * prior.mean + believed * centre) / precision
    pulled = prior.precision * believed / precision * (centre - prior.mean) ** 2
    scatter = prior.scatter + pulled + believed * unit**2 * spread
    if noise:
        # The variance is that of all rows believed in, the posterior's freedom that of those there are.
        scatter *= (prior.freedom + counts) / (prior.freedom + believed)
        scatter = np.maximum(scatter, prior.scatter)
    return Mixture(prior, counts, mean, scatter)


def moved(before: Mixture, after: Mixture) -> float:
    """How far an update went: the largest change of a share, or of a mean in units of its component's deviation.

    Components with less than a row are left out: nothing depends on where they are.
    """
    rows = np.maximum(after.counts.sum(axis=1, keepdims=True), 1.0)
    shares = np.abs(after.counts - before.counts) / rows
    shifts = np.abs(after.mean - before.mean) / after.deviation
    return float(max(shares.max(), np.where(after.counts >= 1, shifts, 0.0).max()))


def digamma(x: Floats) -> Floats:
    """The derivative of ln Gamma at positive x, of any shape; relative error below 1e-12."""
    # psi(x) = psi(x + 1) - 1/x up to x >= 10, where the asymptotic series is exact to the last digits.
    x, result = x.astype(np.float64), np.zeros(x.shape)
    while (small := x < 10).any():
        result[small] -= 1 / x[small]
        x[small] += 1
    square = 1 / x**2
    series = square * (
        1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132)))
    )
    return np.asarray(result + np.log(x) - 1 / (2 * x) - series)
