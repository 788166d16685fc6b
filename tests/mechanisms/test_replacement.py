"""Cost of replacing a row, against the distributions that the events stand for."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.accounting import epsilon_from_rho, rho, rho_from_epsilon_delta
from mechanisms.events import (
    DiscreteGaussianEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    SumOfDiscreteGaussiansEvent,
)
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.replacement import replaced, rho_of_replacing

ORDERS = (1.5, 2.0, 4.0, 16.0)


def divergence(p: np.ndarray, q: np.ndarray, alpha: float) -> float:
    """Renyi's, of order alpha, of p from q, both as logarithms of probabilities."""
    return float(np.logaddexp.reduce(alpha * p - (alpha - 1) * q) / (alpha - 1))


def gaussian(sigma: float, mean: int) -> np.ndarray:
    """A discrete Gaussian on -200 .. 200."""
    return logarithms(-((np.arange(-200, 201) - mean) ** 2) / (2 * sigma**2))


def logarithms(exponents: np.ndarray) -> np.ndarray:
    """Of the probabilities that are proportional to exp(exponents)."""
    return exponents - np.logaddexp.reduce(exponents)


@pytest.mark.parametrize("sigma", [2.0, 5.0])
def test_replaced_row_costs_a_noisy_marginal_twice_the_rho(sigma: float) -> None:
    # One cell has a row more and another one a row less: their noises are independent.
    event = DiscreteGaussianEvent(sigma)
    for alpha in ORDERS:
        up, down = (
            divergence(gaussian(sigma, 0), gaussian(sigma, shift), alpha) for shift in (1, -1)
        )
        assert up + down <= alpha * rho(replaced(event)) * (1 + 1e-9)
        # The control: a charge for one row more or less does not cover it, nor does anything less than twice.
        assert up + down > 1.99 * alpha * rho(event)
    assert rho(replaced(event)) == pytest.approx(2 * rho(event), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_replaced_row_costs_a_choice_four_times_the_rho(epsilon: float) -> None:
    # One candidate's score rises by two rows' worth, epsilon, and all others fall by as much: the worst case, at the
    # probabilities that are worst for it. Its divergence approaches alpha epsilon'^2 / 8 for epsilon' = 2 epsilon.
    event = ExponentialEvent(epsilon)
    worst = 0.0
    for share in np.linspace(0.02, 0.98, 97):
        scores = np.log([share, 1 - share])
        p, q = (logarithms(scores + moved * np.array([epsilon, -epsilon])) for moved in (0, 1))
        worst = max(worst, max(divergence(p, q, alpha) / alpha for alpha in (1.0001, *ORDERS)))
    assert worst <= rho(replaced(event))
    # The control: three times is too little.
    assert worst > 3 * rho(event)
    assert rho(replaced(event)) == pytest.approx(4 * rho(event), rel=1e-12)


@given(st.floats(0.5, 0.95), st.sampled_from(["naive", "private", "random", "naivebayes"]))
def test_rho_of_replacing_is_four_less_twice_the_measured_share(share: float, variant: str) -> None:
    settings = FlaimSettings.preset(variant, rho=0.05, measure_share=share)
    schedule = settings.schedule(7)
    events = [event for round in range(schedule.rounds + 1) for event in schedule.events(round)]
    expected = (4 - 2 * share) if settings.selects else 2
    assert rho_of_replacing(events) == pytest.approx(expected * 0.05, rel=1e-6)


@pytest.mark.parametrize(
    "event",
    [GaussianEvent(3.0), SumOfDiscreteGaussiansEvent(3.0, 4, sensitivity=2.0)],
)
def test_replaced_counts_two_cells(event: Event) -> None:
    assert rho(replaced(event)) == pytest.approx(2 * rho(event), rel=1e-9)
    assert rho(replaced(event)) >= 2 * rho(event)
    if isinstance(event, SumOfDiscreteGaussiansEvent):
        assert replaced(event) == SumOfDiscreteGaussiansEvent(
            3.0, 4, sensitivity=math.nextafter(math.sqrt(2), 2) * 2, cells=2
        )


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (5.0, 1e-9)])
def test_epsilon_from_rho_is_the_inverse_of_rho_from_epsilon_delta(
    epsilon: float, delta: float
) -> None:
    found = epsilon_from_rho(rho_from_epsilon_delta(epsilon, delta), delta)
    assert found == pytest.approx(epsilon, rel=1e-6)
    assert rho_from_epsilon_delta(found, delta) >= rho_from_epsilon_delta(epsilon, delta) * 0.999999
