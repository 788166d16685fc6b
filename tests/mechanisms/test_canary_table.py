"""The lower bound of the canaries' table: it holds for what is charged, and shows what is not."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.gaussian_privacy import gaussian_epsilon
from tests.mechanisms.canary_table import lower_bound
from tests.mechanisms.test_canary import RHO
from tests.mechanisms.test_canary_federated import DELTA


def gaussian_losses(rho: float, runs: int, seed: int) -> NDArray[np.float64]:
    """Losses of a Gaussian of cost ``rho``: normal, with mean rho and variance 2 rho."""
    draw = np.random.default_rng(seed)
    return draw.normal(rho, math.sqrt(2 * rho), runs)


@pytest.mark.parametrize("runs", [8, 40, 400])
def test_lower_bound_holds_for_what_is_charged(runs: int) -> None:
    """Statistic: bounds above the exact epsilon among 100; each has 5 % at most. 16 are 5 deviations above 5."""
    exact = gaussian_epsilon(RHO, DELTA)
    bounds = [lower_bound(gaussian_losses(RHO, runs, seed)) for seed in range(100)]
    assert sum(bound > exact for bound in bounds) <= 16
    assert min(bounds) >= 0


def test_lower_bound_grows_with_runs_and_shows_a_charge_that_is_too_small() -> None:
    """The control: 25 times the cost, a fifth of the noise, is beyond the charge after 400 runs."""
    exact = gaussian_epsilon(RHO, DELTA)
    few, many = (
        np.mean([lower_bound(gaussian_losses(RHO, runs, seed)) for seed in range(10)])
        for runs in (40, 2000)
    )
    assert few < many < exact
    assert many > 0.4
    assert lower_bound(gaussian_losses(25 * RHO, 400, 1)) > exact
