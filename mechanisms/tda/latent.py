"""Correlations of the normal variables behind categories, from covariances of category means.

All values here are public.

A category is an interval of a standard normal variable Z; its score is g = E[Z | category]. The scores of two columns
correlate less than their variables: two equal columns of two categories, half and half, have scores with a correlation
of 1, but scores drawn within the intervals, as in the paper, one of 0.64, and rows drawn with that agree in 72 %. With
a_k = E[g(Z) h_k(Z)], h_k the orthonormal Hermite polynomials, variables of correlation r have E[g_i g_j] = sum_k r^k
a_ik a_jk (Mehler's formula), which grows with r: so it is solved for r, for all pairs at once.

Source: none of the papers; the polychoric correlation by moments. Known limits: the series ends after ``TERMS``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.tda.icdm import Scores

Floats = NDArray[np.float64]

TERMS = 24
_LARGEST = 0.99
_HALVINGS = 30
_LEAST_GAIN = 1e-9
# A variance that is 1 except for noise is taken to be at least this.
_LEAST_VARIANCE = 0.25


def hermite_terms(scores: Scores) -> Floats:
    """Returns a_1 .. a_TERMS of a column's category means, (TERMS,)."""
    z, density = scores.bounds()
    # Over an interval (l, u): integral of h_k phi = (h_{k-1}(l) phi(l) - h_{k-1}(u) phi(u)) / sqrt(k).
    before, now = np.zeros_like(z), np.ones_like(z)
    means = scores.means()[scores.order]
    terms = []
    for k in range(1, TERMS + 1):
        at = now * density
        terms.append(float(means @ (at[:-1] - at[1:])) / np.sqrt(k))
        # h_k = (z h_{k-1} - sqrt(k-1) h_{k-2}) / sqrt(k).
        before, now = now, (z * now - np.sqrt(k - 1) * before) / np.sqrt(k)
    return np.array(terms)


def latent_correlation(
    covariance: Floats, places: int, ranked: Sequence[Scores], *, rows: float, noise: float = 0.0
) -> Floats:
    """Returns the correlations (l, l), 1 on the diagonal, of the normal variables behind places and scores.

    ``covariance`` (l, l) is that of ``places`` normal columns and the category means of ``ranked`` columns, over
    ``rows`` rows; ``noise`` is its entries' deviation. An entry is shrunk by the expected effect of its noise and of
    the finite number of rows, for correlations as large as these are on average.
    """
    deviation = np.sqrt(np.maximum(np.diag(covariance)[:places], _LEAST_VARIANCE))
    terms = np.zeros((len(covariance), TERMS))
    terms[:places, 0] = 1.0
    scale = np.ones(len(covariance))
    scale[:places] = 1 / deviation
    for i, scores in enumerate(ranked, places):
        terms[i] = hermite_terms(scores)
    off = covariance * np.outer(scale, scale)
    np.fill_diagonal(off, 0.0)
    # a_1 is the variance of the scores as well: Var(g) = E[g Z].
    gain = np.outer(terms[:, 0], terms[:, 0])
    np.fill_diagonal(gain, 0.0)
    # Variance of an entry: of finite rows, gain / n, and of the noise.
    error = gain / max(rows, 1.0) + noise**2 * np.outer(scale, scale) ** 2
    signal = max(0.0, float((off**2 - error)[gain > 0].sum())) / max(float((gain**2).sum()), 1e-300)
    # Wiener shrinkage: signal variance / (signal variance + error variance).
    kept = gain**2 * signal / np.maximum(gain**2 * signal + error, 1e-300)
    latent = _solved(kept * off, terms)
    np.fill_diagonal(latent, 1.0)
    return latent


def _solved(products: Floats, terms: Floats) -> Floats:
    """Returns r (l, l) with sum_k r^k a_ik a_jk = ``products``, within [-0.99, 0.99], by bisection."""
    low, high = np.full(products.shape, -_LARGEST), np.full(products.shape, _LARGEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        value = np.zeros_like(middle)
        # Horner's scheme for sum_k r^k a_ik a_jk.
        for k in range(TERMS - 1, -1, -1):
            value = middle * (value + np.outer(terms[:, k], terms[:, k]))
        below = value < products
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    # A column of one category is uncorrelated with all others.
    empty = np.outer(terms[:, 0], terms[:, 0]) < _LEAST_GAIN
    return np.where(empty, 0.0, (low + high) / 2)
