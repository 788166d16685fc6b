"""Bounds on what an attacker finds: never below the truth, and the truth itself for a Gaussian."""

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.accounting import rho_from_epsilon_delta
from mechanisms.gaussian_privacy import gaussian_budget
from mechanisms.tradeoff import (
    Profile,
    found_at_most,
    gaussian_profile,
    stated_profile,
    zcdp_profile,
)

NORMAL = statistics.NormalDist()
SHARES = (0.0005, 0.01, 0.1, 0.5, 0.97)


def of_gaussian(cost: float, false_positives: float) -> float:
    """Exact share that the best attacker on N(0, 1) and N(sqrt(2 cost), 1) finds: the Neyman-Pearson test."""
    return NORMAL.cdf(NORMAL.inv_cdf(false_positives) + math.sqrt(2 * cost))


def of_response(epsilon: float, false_positives: float) -> float:
    """Exact share that the best attacker on a randomised response finds."""
    high = 1 / (1 + math.exp(-epsilon))
    if false_positives <= 1 - high:
        return false_positives * math.exp(epsilon)
    return high + (false_positives - (1 - high)) * math.exp(-epsilon)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 60.0), st.sampled_from(SHARES))
def test_found_at_most_is_the_neyman_pearson_test_of_a_gaussian(
    cost: float, false_positives: float
) -> None:
    exact = of_gaussian(cost, false_positives)
    found = found_at_most(gaussian_profile(cost), false_positives)
    assert exact - 1e-13 <= found <= exact + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 60.0), st.sampled_from(SHARES))
def test_a_search_in_floats_finds_what_one_by_the_exact_profile_finds(
    cost: float, false_positives: float
) -> None:
    profile = gaussian_profile(cost)
    slow = Profile(profile.delta, profile.delta)
    found = found_at_most(profile, false_positives)
    assert found == pytest.approx(found_at_most(slow, false_positives), abs=1e-9)


def test_a_search_that_looks_elsewhere_is_looser_and_never_too_low() -> None:
    """The control: a bound is never that of the nearby function, whatever it says."""
    astray = Profile(gaussian_profile(0.5).delta, gaussian_profile(1e-4).delta)
    found = found_at_most(astray, 0.01)
    assert found > of_gaussian(0.5, 0.01) + 1e-3


def test_found_at_most_has_the_published_values() -> None:
    """Dong, Roth, Su 2022, Section 2.2: G_1(0.01), G_1(0.1), and epsilon 1 at delta 1e-5."""
    assert found_at_most(gaussian_profile(0.5), 0.01) == pytest.approx(0.092363, abs=1e-6)
    assert found_at_most(gaussian_profile(0.5), 0.1) == pytest.approx(0.389143, abs=1e-6)
    of_run = gaussian_profile(gaussian_budget(1.0, 1e-5))
    assert found_at_most(of_run, 0.01) == pytest.approx(0.019781, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-4, 20.0), st.sampled_from(SHARES))
def test_found_at_most_by_zcdp_is_above_every_mechanism_of_that_cost(
    rho: float, false_positives: float
) -> None:
    found = found_at_most(zcdp_profile(rho), false_positives)
    assert found >= of_gaussian(rho, false_positives) - 1e-13
    # A response of range epsilon has epsilon^2 / 2 (Bun, Steinke 2016).
    assert found >= of_response(math.sqrt(2 * rho), false_positives) - 1e-13


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 12.0), st.sampled_from(SHARES))
def test_found_at_most_by_epsilon_alone_is_a_randomised_response(
    epsilon: float, false_positives: float
) -> None:
    found = found_at_most(stated_profile(epsilon, 0.0), false_positives, stated=epsilon)
    assert found == pytest.approx(of_response(epsilon, false_positives), abs=1e-9)
    assert found >= of_response(epsilon, false_positives) - 1e-13


def test_found_at_most_of_half_the_cost_is_below_the_truth() -> None:
    """The control: what the tests above compare with notices a cost that is too small, and a delta left out."""
    for false_positives in SHARES:
        too_small = found_at_most(gaussian_profile(0.25), false_positives)
        assert too_small < of_gaussian(0.5, false_positives) - 1e-4
    rho = rho_from_epsilon_delta(1.0, 1e-5)
    without_delta = min(1.0, math.exp(0.9) * 0.0005)
    assert without_delta < found_at_most(zcdp_profile(rho), 0.0005)


@pytest.mark.parametrize("distance", [0.0, 1e-6, 0.01])
def test_found_at_most_covers_a_statistical_distance(distance: float) -> None:
    exact = of_gaussian(0.5, 0.1 + distance) + distance
    found = found_at_most(gaussian_profile(0.5), 0.1, distance=distance)
    assert exact - 1e-13 <= found <= exact + 1e-6


def test_found_at_most_of_no_loss_is_guessing_and_of_no_guarantee_everything() -> None:
    for share in (0.0, *SHARES, 1.0):
        assert found_at_most(gaussian_profile(0.0), share) == pytest.approx(share, abs=1e-9)
        assert found_at_most(stated_profile(1.0, 1.0), share) == 1.0
    with pytest.raises(ValueError, match="lie between 0 and 1"):
        found_at_most(gaussian_profile(1.0), 1.5)
