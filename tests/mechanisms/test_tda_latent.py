"""Correlations behind categories: against drawn normals, and what noise leaves of them."""

import numpy as np
import pytest

from mechanisms.tda.icdm import Scores
from mechanisms.tda.latent import hermite_terms, latent_correlation

SHARES = ([0.5, 0.5], [0.9, 0.1], [0.2, 0.3, 0.4, 0.1], [0.05] * 20)


def cut(z: np.ndarray, scores: Scores) -> np.ndarray:
    """The category means of normals."""
    means: np.ndarray = scores.means()[scores.inverse(z)]
    return means


@pytest.mark.parametrize("correlation", [-0.8, -0.3, 0.0, 0.5, 0.9])
@pytest.mark.parametrize("shares", SHARES, ids=["half", "tenth", "four", "twenty"])
def test_latent_correlation_is_that_of_the_normals_that_were_cut(
    shares: list[float], correlation: float
) -> None:
    """Within 0.03; of cuts that lie so far apart that nearly all rows of one are in the other, within 0.2.

    A cut at nine tenths and one at seven tenths of normals that go together at 0.9 say the same of all but a few rows.
    """
    n, rng = 200_000, np.random.default_rng(1)
    z = rng.multivariate_normal(np.zeros(3), _chain(correlation), n)
    ranked = [Scores.as_listed(np.array(shares)), Scores.as_listed(np.array([0.3, 0.7]))]
    x = np.column_stack([z[:, 0], cut(z[:, 1], ranked[0]), cut(z[:, 2], ranked[1])])
    found = latent_correlation(np.cov(x.T), 1, ranked, rows=n)
    nested = shares == SHARES[1] and correlation == 0.9
    np.testing.assert_allclose(found, _chain(correlation), atol=0.2 if nested else 0.03)
    # The control: the correlation of the scores as they are is another one.
    if abs(correlation) >= 0.5:
        assert abs(np.cov(x.T)[1, 2] - _chain(correlation)[1, 2]) > 0.05


def _chain(r: float) -> np.ndarray:
    """Neighbours have r, the ends r^2."""
    return np.array([[1, r, r * r], [r, 1, r], [r * r, r, 1]])


@pytest.mark.parametrize("shares", SHARES, ids=["half", "tenth", "four", "twenty"])
def test_hermite_terms_are_the_moments_of_the_means(shares: list[float]) -> None:
    scores = Scores.as_listed(np.array(shares))
    terms = hermite_terms(scores)
    assert abs(terms[0] - scores.variance) < 1e-4
    # What they add up to, without end, is the variance.
    assert 0.8 * scores.variance < (terms**2).sum() < scores.variance + 1e-4


def test_latent_correlation_leaves_nothing_of_what_is_all_noise() -> None:
    ranked = [Scores.as_listed(np.array([0.5, 0.5])) for _ in range(8)]
    noise = np.random.default_rng(1).normal(0, 0.5, (10, 10))
    noisy = np.eye(10) + np.triu(noise, 1) + np.triu(noise, 1).T
    kept = latent_correlation(noisy, 2, ranked, rows=1000, noise=0.5)
    taken = latent_correlation(noisy, 2, ranked, rows=1e9, noise=0.0)
    off = ~np.eye(10, dtype=bool)
    assert abs(kept[off]).mean() < 0.3 * abs(taken[off]).mean()


def test_latent_correlation_of_a_category_without_rows_is_finite() -> None:
    ranked = [Scores.as_listed(np.array([0.0, 1.0, 0.0])), Scores.as_listed(np.array([1.0]))]
    found = latent_correlation(np.diag([1.0, 0.0, 0.0]), 1, ranked, rows=100.0)
    np.testing.assert_allclose(found, np.eye(3), atol=1e-6)
