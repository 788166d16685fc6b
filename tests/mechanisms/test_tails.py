"""Bounds on sums of noise hold for discrete noise, and are not much larger than they have to be."""

import itertools
import math

import numpy as np
import pytest

from mechanisms.tails import linear_bound, log_subsets, positive_sum_bound


def discrete_gaussian(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """The values of a discrete Gaussian within 12 deviations, and their probabilities."""
    values = np.arange(-math.ceil(12 * sigma), math.ceil(12 * sigma) + 1)
    weights = np.exp(-(values**2) / (2 * sigma**2))
    return values, weights / weights.sum()


def gaussian_moment(t: float, sigma: float) -> float:
    """E e^(t |Y|) of a Gaussian."""
    return 2 * math.exp(t * t * sigma * sigma / 2) * (1 + math.erf(t * sigma / math.sqrt(2))) / 2


@pytest.mark.parametrize(("one", "other"), [(0.4, 0.4), (0.7, 3.0), (1.5, 1.5), (3.3, 0.5)])
@pytest.mark.parametrize("weights", [(1.0, 0.0), (1.0, 1.0), (0.5, 0.5), (0.9, 0.1), (1.0, -2.5)])
def test_moments_of_mixed_discrete_gaussians_are_at_most_a_gaussians(
    one: float, other: float, weights: tuple[float, float]
) -> None:
    """The base of all bounds, computed exactly: E e^(t |X|) for X = a X1 + b X2, without sampling."""
    (x, p), (y, q) = discrete_gaussian(one), discrete_gaussian(other)
    a, b = weights
    sizes = np.abs(a * x[:, None] + b * y[None, :])
    sigma = math.hypot(a * one, b * other)
    for t in (0.01, 0.2, 0.8, 2.0):
        exact = float((np.exp(t * sizes) * p[:, None] * q[None, :]).sum())
        assert exact <= gaussian_moment(t, sigma) * (1 + 1e-12)
        # The control: what has a deviation a tenth smaller is no bound where a cell has several values of noise.
        if min(abs(a) * one, abs(b) * other or math.inf) >= 1.5:
            assert exact > gaussian_moment(t, 0.9 * sigma)


@pytest.mark.parametrize("cells", [1, 12, 300])
def test_positive_sum_bound_is_exceeded_as_rarely_as_said_and_not_much_too_large(
    cells: int,
) -> None:
    """40,000 sums, a chance of 1 %: expected are at most 400, and the bound would be passed at 500 (5 deviations).

    A bound of two thirds has to be exceeded more often than that.
    """
    rng = np.random.default_rng(7)
    values, weights = discrete_gaussian(4.0)
    cumulative = np.cumsum(weights)
    drawn = (np.searchsorted(cumulative, rng.random((2000, cells))) for _ in range(20))
    sums = np.array([np.maximum(places + values[0], 0).sum(axis=1) for places in drawn])
    bound = positive_sum_bound(cells, 4.0, log_chance=math.log(0.01))
    assert (sums > bound).sum() <= 500
    assert (sums > 2 / 3 * bound).sum() > 500


def test_positive_sum_bound_tends_to_the_mean_for_many_cells() -> None:
    bound = positive_sum_bound(1_000_000, 2.0, log_chance=math.log(1e-6))
    assert bound == pytest.approx(1_000_000 * 2.0 / math.sqrt(2 * math.pi), rel=0.01)
    assert positive_sum_bound(0, 2.0, log_chance=-1.0) == 0.0


def test_linear_bound_is_a_gaussians_tail() -> None:
    assert linear_bound(9, 2.0, log_chance=-0.5) == pytest.approx(6.0)


def test_log_subsets_counts_subsets() -> None:
    for cells, chosen in itertools.product(range(1, 9), range(9)):
        expected = math.comb(cells, chosen) if chosen < cells else 1
        assert log_subsets(cells, chosen) == pytest.approx(math.log(expected))
