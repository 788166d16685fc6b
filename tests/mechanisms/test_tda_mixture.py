"""Federated variational mixtures: against scikit-learn's on the pooled rows, and what fixed point and noise change."""

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture

from mechanisms.fixed_point import decode, encode
from mechanisms.tda.mixture import (
    Mixture,
    Prior,
    digamma,
    initial,
    moved,
    responsibilities,
    row_terms,
    update,
)

T = 4
PRIOR = Prior(0.3, 1.5, 0.45, 2e-3, 2.0)
ONE = np.ones((1, T))


def rows_of(seed: int, rows: int = 600) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    centres = rng.choice([0.2, 0.5, 0.8], rows, p=[0.5, 0.3, 0.2])
    return np.clip(rng.normal(centres, 0.06), 0, 1)[:, None]


def federated(
    parts: list[NDArray[np.float64]], iterations: int, *, bits: int | None = None
) -> Mixture:
    """Iterations over silos that hold ``parts``; sums in fixed point with so many bits, or in floats."""
    mixture = initial(PRIOR, 1, T)
    for _ in range(iterations):
        sums = [row_terms(part, mixture, ONE).sum(axis=0) for part in parts]
        if bits is not None:
            whole = [encode(part, scale_bits=bits, bound=2.0**20) for part in sums]
            total = decode(np.sum(whole, axis=0), scale_bits=bits)
        else:
            total = np.sum(sums, axis=0)
        mixture = update(mixture, total, ONE)
    return mixture


def pooled(x: NDArray[np.float64], start: Mixture, iterations: int) -> BayesianGaussianMixture:
    """scikit-learn's, from the same start with the same priors."""
    model = BayesianGaussianMixture(
        n_components=T,
        tol=0.0,
        reg_covar=0.0,
        max_iter=iterations,
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=PRIOR.weight,
        mean_precision_prior=PRIOR.precision,
        mean_prior=[PRIOR.mean],
        degrees_of_freedom_prior=PRIOR.freedom,
        covariance_prior=[[PRIOR.scatter]],
        warm_start=True,
    )
    model.converged_, model.lower_bound_ = False, -np.inf
    model.weight_concentration_ = PRIOR.weight + start.counts[0]
    model.mean_precision_ = PRIOR.precision + start.counts[0]
    model.means_ = start.mean[0][:, None]
    model.degrees_of_freedom_ = start.freedom[0]
    model.covariances_ = (start.deviation[0] ** 2)[:, None, None]
    model.precisions_cholesky_ = 1 / np.sqrt(model.covariances_)
    with pytest.warns(ConvergenceWarning):
        model.fit(x)
    return model


@pytest.mark.parametrize("iterations", [1, 30])
def test_mixture_of_silos_is_that_of_pooled_rows_by_scikit_learn(iterations: int) -> None:
    x = rows_of(1)
    ours = federated(np.array_split(x, 5), iterations)
    theirs = pooled(x, initial(PRIOR, 1, T), iterations)
    np.testing.assert_allclose(
        PRIOR.weight + ours.counts[0], theirs.weight_concentration_, rtol=1e-8
    )
    np.testing.assert_allclose(ours.mean[0], theirs.means_[:, 0], rtol=1e-9)
    np.testing.assert_allclose(ours.deviation[0] ** 2, theirs.covariances_[:, 0, 0], rtol=1e-8)


def test_mixture_in_fixed_point_is_off_by_less_than_a_millionth_of_its_deviations() -> None:
    parts = np.array_split(rows_of(2), 5)
    exact, fixed = federated(parts, 20), federated(parts, 20, bits=32)
    assert (abs(fixed.mean - exact.mean) < 1e-6 * exact.deviation).all()
    np.testing.assert_allclose(fixed.deviation, exact.deviation, rtol=1e-6)
    # The control: with eight bits it is not.
    rough = federated(parts, 20, bits=8)
    assert (abs(rough.mean - exact.mean) > 1e-6 * exact.deviation).any()


def test_mixture_finds_the_components_there_are() -> None:
    mixture = federated([rows_of(3, 4000)], 60)
    found = mixture.mean[0, mixture.counts[0] > 400]
    distance = abs(found[:, None] - np.array([0.2, 0.5, 0.8]))
    # Two of the four may share one of the three.
    assert distance.min(axis=1).max() < 0.01
    assert distance.min(axis=0).max() < 0.01


def test_responsibilities_sum_to_one_and_leave_out_what_is_no_number() -> None:
    x = np.array([[0.1], [np.nan], [0.9]])
    mixture = initial(PRIOR, 1, T)
    np.testing.assert_allclose(responsibilities(x, mixture).sum(axis=2)[:, 0], [1, 0, 1])
    assert not row_terms(x, mixture, ONE)[1].any()


def test_update_does_not_depend_on_the_unit_of_its_sums() -> None:
    x, mixture = rows_of(4), federated([rows_of(4)], 3)
    unit = mixture.deviation
    by_one = update(mixture, row_terms(x, mixture, ONE).sum(axis=0), ONE)
    by_deviation = update(mixture, row_terms(x, mixture, unit).sum(axis=0), unit)
    assert moved(by_one, by_deviation) < 1e-9


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 1e4))
def test_update_of_any_noisy_sums_is_a_mixture(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    mixture = federated([rows_of(5, 50)], 2)
    sums = rng.normal(0, noise, (1, 3, T))
    after = update(mixture, sums, mixture.deviation, noise=noise)
    assert (after.deviation > 0).all()


def test_update_under_noise_moves_no_component_of_few_rows() -> None:
    mixture = federated([rows_of(6)], 5)
    nothing = update(mixture, np.zeros((1, 3, T)), mixture.deviation, noise=50.0)
    assert not nothing.counts.any()
    # A component that noise has left without rows stays about where it was, as wide as it was.
    assert (abs(nothing.mean - mixture.mean) < 0.01).all()
    np.testing.assert_allclose(nothing.deviation, mixture.deviation, rtol=0.3)
    # The control: exact sums of no rows leave only the prior.
    gone = update(mixture, np.zeros((1, 3, T)), mixture.deviation)
    np.testing.assert_allclose(gone.mean, PRIOR.mean)
    shift = np.zeros((1, 3, T))
    shift[:, 0], shift[:, 1] = 5.0, 50.0
    after = update(mixture, shift, mixture.deviation, noise=50.0)
    exact = update(mixture, shift, mixture.deviation)
    assert (abs(after.mean - mixture.mean) <= abs(exact.mean - mixture.mean) + 1e-12).all()


def test_digamma_is_scipys() -> None:
    x = np.concatenate([np.geomspace(1e-3, 1e6, 400), [0.5, 1.0, 10.0]])
    np.testing.assert_allclose(digamma(x), scipy.special.digamma(x), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("counts", "mean", "scatter"),
    [
        (-1.0, 0.5, 1.0),
        (1e15, 0.5, 1.0),
        (1.0, 0.5, 1e-3),
        (1.0, 0.5, 1e15),
        (1.0, 1.5, 1.0),
        (1.0, 0.5, 0.0),
        (np.inf, 0.5, 1.0),
        (1.0, np.nan, 1.0),
    ],
)
def test_mixture_refuses_what_is_no_posterior(counts: float, mean: float, scatter: float) -> None:
    with pytest.raises(ValueError, match="mixture"):
        Mixture(PRIOR, counts * ONE, mean * ONE, scatter * ONE)


def test_prior_refuses_what_is_out_of_range() -> None:
    with pytest.raises(ValueError, match="scatter"):
        Prior(1.0, 1.0, 0.5, 0.0, 1.0)
    with pytest.raises(ValueError, match="mean"):
        Prior(1.0, 1.0, 1.5, 1.0, 1.0)
