"""Variational Gaussian mixtures of scaled columns, as sums over rows: E-step of a silo, M-step of the server.

``Mixture`` is broadcast by the server; ``responsibilities`` and ``row_terms`` are the silo's side, ``update`` and
``moved`` the server's.

Every continuous column has a mixture of its own; arrays have the columns first and the components last. Columns are
scaled to [0, 1] by public bounds. Rows and values computed from single rows are secret. Mixtures are public.

Source: Fed-TDA, federated VB-GMM, for one dimension; Bishop, Pattern Recognition and Machine Learning, section 10.2.
Errata of the former: in its eq. 8 the expectation of ln Lambda has psi((nu + 1 - d) / 2), in one dimension psi(nu / 2);
its eq. 10 leaves out that responsibilities are normalised; its eq. 21, the bound, is not one: an exact run ends when
the parameters stop changing. Deviation: squares are taken about the mean that was broadcast, not the new one, and moved
there by the server, so that an iteration is one sum and not two.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Limits on the change of a component by noise in one update: of its mean in deviations, of its variance as a factor.
_MOST_SHIFT = 3.0
_MOST_SPREAD = 16.0
_ROWS_OF_NOISE = 3.0

# Far beyond any table's values. Payloads to a silo lie within, so that no square of its overflows: an error would
# depend on its rows.
_MOST = 2.0**48


@dataclass(frozen=True, slots=True)
class Prior:
    """Dirichlet(``weight``), Normal(``mean``, 1 / (``precision`` Lambda)), Wishart(1 / ``scatter``, ``freedom``).

    In the paper's notation alpha0, m0, beta0, W0^-1 and nu0. Raises ``ValueError`` out of range.
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
        """Returns the default, from the bounds alone: a component is a hundredth of its part of [0, 1] wide."""
        return cls(1 / components, 1.0, 0.5, (0.1 / components) ** 2, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """The posterior: (columns, components) each of ``counts`` N_t, ``mean`` m_t and ``scatter`` W_t^-1.

    alpha_t, beta_t and nu_t are the prior's plus N_t. No posterior has a scatter below the prior's. Raises
    ``ValueError`` for values that no table has.
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
        """Hash that differs for different mixtures."""
        parts = (self.counts, self.mean, self.scatter)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).digest()

    @property
    def freedom(self) -> Floats:
        """nu_t, (columns, components)."""
        return self.prior.freedom + self.counts

    @property
    def deviation(self) -> Floats:
        """sigma_t, with sigma_t^2 = 1 / (nu_t W_t): (columns, components)."""
        return np.sqrt(self.scatter / self.freedom)


def initial(prior: Prior, columns: int, components: int) -> Mixture:
    """Returns the start of a run, independent of all rows: components side by side, each as wide as its part."""
    places = (np.arange(components) + 0.5) / components
    ones = np.ones((columns, components))
    scatter = (prior.freedom + 1) / components**2
    return Mixture(prior, ones, places * ones, scatter * ones)


def responsibilities(x: Floats, mixture: Mixture) -> Floats:
    """Returns the E-step: r (rows, columns, components) of x (rows, columns); 0 where x is NaN."""
    prior = mixture.prior
    weight = prior.weight + mixture.counts
    # Bishop 10.66: E[ln pi_t] = psi(alpha_t) - psi(sum alpha).
    log_weight = digamma(weight) - digamma(weight.sum(axis=1, keepdims=True))
    # Bishop 10.65 with d = 1: E[ln Lambda_t] = psi(nu_t / 2) + ln 2 + ln W_t.
    log_precision = digamma(mixture.freedom / 2) + math.log(2) - np.log(mixture.scatter)
    # Bishop 10.46 with 10.64: ln rho = E[ln pi] + E[ln Lambda] / 2 - (1 / beta_t + nu_t W_t (x - m_t)^2) / 2.
    constant = log_weight + log_precision / 2 - 1 / (2 * (prior.precision + mixture.counts))
    distance = (x[:, :, None] - mixture.mean) ** 2
    logs = constant - mixture.freedom / (2 * mixture.scatter) * distance
    logs -= logs.max(axis=2, keepdims=True)
    r = np.exp(logs)
    r /= r.sum(axis=2, keepdims=True)
    return np.where(np.isnan(r), 0.0, r)


def row_terms(x: Floats, mixture: Mixture, unit: Floats) -> Floats:
    """Returns each row's terms in an iteration's sums: r, r z, r z^2 with z = (x - m_t) / unit_t.

    Shapes: x (rows, columns), unit (columns, components), result (rows, columns, 3, components).
    """
    r = responsibilities(x, mixture)
    z = (np.nan_to_num(x)[:, :, None] - mixture.mean) / unit
    first = r * z
    return np.stack([r, first, first * z], axis=2)


def update(mixture: Mixture, sums: Floats, unit: Floats, *, noise: float = 0.0) -> Mixture:
    """Returns the M-step: the next mixture from the sums (columns, 3, components) of ``row_terms``.

    ``noise`` is the deviation of the noise in each sum, in rows. With noise, three times as many rows are added that
    lie as their component does, and a component moves no further than three deviations: a sum of few rows under much
    noise is mostly noise, and its component then stays. Exact sums are used unchanged.
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
    # The new centre xbar_t, from the first moment about the broadcast mean.
    centre = np.clip(mixture.mean + unit * shift, 0.0, 1.0)
    # Bishop 10.60 and 10.61: beta_t = beta_0 + N_t, m_t = (beta_0 m_0 + N_t xbar_t) / beta_t.
    precision = prior.precision + believed
    mean = (prior.precision * prior.mean + believed * centre) / precision
    # Bishop 10.62: W_t^-1 = W_0^-1 + N_t S_t + (beta_0 N_t / beta_t) (xbar_t - m_0)^2.
    pulled = prior.precision * believed / precision * (centre - prior.mean) ** 2
    scatter = prior.scatter + pulled + believed * unit**2 * spread
    if noise:
        # The variance is that of all rows including the added ones; the posterior's freedom counts the real ones only.
        scatter *= (prior.freedom + counts) / (prior.freedom + believed)
        scatter = np.maximum(scatter, prior.scatter)
    return Mixture(prior, counts, mean, scatter)


def moved(before: Mixture, after: Mixture) -> float:
    """Returns the size of an update: the largest change of a share, or of a mean in its component's deviations.

    Components with less than a row are left out: nothing depends on them.
    """
    rows = np.maximum(after.counts.sum(axis=1, keepdims=True), 1.0)
    shares = np.abs(after.counts - before.counts) / rows
    shifts = np.abs(after.mean - before.mean) / after.deviation
    return float(max(shares.max(), np.where(after.counts >= 1, shifts, 0.0).max()))


def digamma(x: Floats) -> Floats:
    """Returns the derivative of ln Gamma at positive x, of any shape; relative error below 1e-12."""
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
