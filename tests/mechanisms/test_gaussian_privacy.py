"""The Gaussian currency: its lemma as inequalities of one variable, exact compositions, and dp_accounting's figures."""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from mechanisms.accounting import fixed_rounds_plan, rho, rho_from_epsilon_delta
from mechanisms.composition import delta_of
from mechanisms.events import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    SumOfDiscreteGaussiansEvent,
)
from mechanisms.gaussian_privacy import (
    FACTORS,
    ROUNDINGS,
    GaussianAccountant,
    factor_for,
    gaussian_budget,
    gaussian_epsilon,
    rounding_distance,
)
from tests.mechanisms.privacy_loss import (
    choice,
    discrete_gaussian,
    hockey_stick,
    moved,
    pairs,
    total_of,
)
from tests.mechanisms.test_composition import ONE_PAIR, events_of, joint

Reals = NDArray[np.float64]


def density(x: Reals) -> Reals:
    return np.asarray(np.exp(-x * x / 2) / math.sqrt(2 * math.pi), np.float64)


def expected_above(x: Reals) -> Reals:
    """E max(0, Z - x)."""
    return np.asarray(density(x) - x * ndtr(-x), np.float64)


def intercept(m: Reals, half: float) -> tuple[Reals, Reals]:
    """Of the line through E max(0, Z - x) at m - half and m + half: its value at x = 0, and minus its slope."""
    above, below = expected_above(m - half), expected_above(m + half)
    slope = (above - below) / (2 * half)
    return (above + below) / 2 + m * slope, slope


def is_proven(ratio: float, factor: float, step: float) -> bool:
    """Returns True if all lines are below the wider Gaussian's curve: README, step 4.

    Intercept and isoperimetric function both fall from m = 0 on, so that a cell is covered by the first at its start
    and the second at its end. From ``far`` on the bound is 1 + ratio - E U^2, which falls.
    """
    half, wider = math.sqrt(ratio), math.sqrt(1 + factor * ratio)
    far = 3 / half + 1 + 2 * half
    m = np.arange(0.0, far + 2 * step, step)
    line, slope = intercept(m, half)
    isoperimetric = density(ndtri(slope))
    # Doubles are right to 10^-13 here; the least distance is 10^-7.
    near = bool(np.all(line[:-1] * (1 + 1e-10) <= wider * isoperimetric[1:]))
    u = np.linspace(-half, half, 20001)
    weight = np.cosh(m[-1] * u) * np.exp(-u * u / 2)
    spread = float(np.sum(weight * u * u) / np.sum(weight))
    return near and 1 + ratio - spread <= wider * (1 - 1e-6)


@pytest.mark.parametrize(("ratio", "factor"), FACTORS)
def test_factors_are_those_of_a_coin_beside_a_gaussian(ratio: float, factor: float) -> None:
    assert is_proven(ratio, factor, min(2e-5, ratio / 2000))
    # The control, and that no factor is more than 0.2 % too large: at m = 0 less is needed, and no less than that.
    least = np.exp(-ratio / 2) + math.sqrt(math.pi * ratio / 2) * math.erf(math.sqrt(ratio / 2))
    exact = (least**2 - 1) / ratio
    assert exact < factor < exact * 1.002
    assert not is_proven(ratio, exact - 1e-4, min(2e-5, ratio / 2000))


def gaussian_curve(mu_squared: float) -> Callable[[Reals], Reals]:
    mu = math.sqrt(mu_squared)
    return lambda x: ndtr(mu / 2 - x / mu) - np.exp(x) * ndtr(-mu / 2 - x / mu)


def excess(epsilon: float, beside: float, factor: float) -> float:
    """Largest excess of a choice beside a Gaussian over the wider Gaussian's curve, over worst pairs and losses."""
    wider = math.sqrt(beside + factor * epsilon**2 / 4)
    x = np.linspace(-7 * wider, 7 * wider, 801)
    curve, largest = gaussian_curve(beside), np.full(x.shape, -np.inf)
    for t in epsilon / (1 + np.exp(np.linspace(-9, 9, 181))):
        p = math.expm1(epsilon - t) / (math.exp(epsilon - t) - math.exp(-t))
        largest = np.maximum(largest, p * curve(x - t) + (1 - p) * curve(x - t + epsilon))
    return float(np.max(largest - gaussian_curve(wider**2)(x)))


@pytest.mark.parametrize(("ratio", "factor"), FACTORS)
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0, 6.0])
def test_a_choice_beside_noise_costs_its_factor(
    ratio: float, factor: float, epsilon: float
) -> None:
    beside = epsilon**2 / 4 / ratio
    assert excess(epsilon, beside, factor) <= 1e-13
    # More noise than that needs no more.
    assert excess(epsilon, 3 * beside, factor) <= 1e-13
    # The controls: half of the noise, or hardly more than zCDP's.
    if epsilon <= 0.3 and ratio >= 1 / 8:
        assert excess(epsilon, beside, 1 + (factor - 1) * 0.7) > 1e-13
        assert excess(epsilon, beside / 2, factor) > 1e-13


@pytest.mark.parametrize("parts", [1, 2])
def test_cost_covers_a_whole_run_of_discrete_noise(parts: int) -> None:
    """Three measurements and two choices, composed exactly, for several worst choices."""
    sigma = 2.5
    noise = discrete_gaussian(sigma, 30)
    total = noise
    for _ in range(3 * parts - 1):
        total = total_of(total, noise)
    measured: Event = DiscreteGaussianEvent(sigma)
    if parts > 1:
        measured = SumOfDiscreteGaussiansEvent(sigma, parts)
    events = [measured] * 3 + [ExponentialEvent(0.4)] * 2
    accountant = GaussianAccountant(1 / 2)
    cost = sum(accountant.cost(event) for event in events)
    # The last choice may be the last of all but one measurement.
    assert accountant.reserve(events[-1]) <= accountant.cost(measured)
    for at in (0.1, 0.5, 1.0, 3.0):
        largest = max(
            hockey_stick(joint(moved(total, 3), pairs(p, p)), joint(total, pairs(q, q)), at)
            for p, q in (choice(0.4, Decimal("0.4") * i / 20) for i in (1, 5, 10, 15, 19))
        )
        assert largest <= Decimal(delta_of([GaussianEvent(1.0, math.sqrt(2 * cost))], at))


@pytest.mark.parametrize(("epsilon", "delta", "whole"), ONE_PAIR)
def test_gaussian_epsilon_of_a_plan_is_just_above_what_choices_of_one_pair_cost(
    epsilon: float, delta: float, whole: float
) -> None:
    """By dp_accounting: never below what is true of one pair, and 0.6 % above it at most."""
    plan = fixed_rounds_plan(rho_from_epsilon_delta(epsilon, delta), 10, 14)
    ratio = factor_for(Fraction(rho(plan.selection)), Fraction(rho(plan.measurement)))
    assert ratio is not None
    accountant = GaussianAccountant(ratio)
    cost = sum(accountant.cost(event) for event in events_of(plan))
    assert whole <= gaussian_epsilon(cost, delta) <= 1.006 * whole < epsilon


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_gaussian_budget_is_the_largest_that_keeps_delta(epsilon: float, delta: float) -> None:
    found = gaussian_budget(epsilon, delta)

    def delta_at(cost: float) -> float:
        mu = math.sqrt(2 * cost)
        return delta_of([GaussianEvent(1.0, mu)], epsilon)

    assert delta_at(found * (1 - 1e-12)) <= delta < delta_at(found * (1 + 1e-8))
    assert found > rho_from_epsilon_delta(epsilon, delta)
    assert gaussian_budget(epsilon, delta, distance=delta / 1e5) < found
    assert gaussian_epsilon(found, delta) == pytest.approx(epsilon, rel=3e-6)


def test_gaussian_budget_is_the_same_on_every_machine() -> None:
    """Known answers, to the last bit."""
    assert gaussian_budget(1.0, 1e-5).hex() == "0x1.264da89000000p-5"
    assert gaussian_epsilon(0.04, 1e-5, distance=1e-9).hex() == "0x1.0f91c00000000p+0"


def test_gaussian_budget_refuses_what_delta_does_not_cover() -> None:
    with pytest.raises(ValueError, match="statistical distance"):
        gaussian_budget(1.0, 1e-5, distance=1e-5)
    with pytest.raises(ValueError, match="delta"):
        gaussian_budget(1.0, 1.0)
    with pytest.raises(ValueError, match="epsilon"):
        gaussian_budget(0.0, 1e-5)
    assert gaussian_epsilon(0.04, 1e-5, distance=1e-5) == math.inf
    assert gaussian_epsilon(0.0, 1e-5) == 0.0


def test_cost_is_at_least_that_of_zcdp() -> None:
    for ratio, factor in FACTORS:
        for rounding in ROUNDINGS:
            accountant = GaussianAccountant(ratio, rounding)
            assert accountant.cost(GaussianEvent(3.0)) == rho(GaussianEvent(3.0))
            assert accountant.cost(DiscreteGaussianEvent(3.0)) == pytest.approx(
                0.5 / (9 - rounding)
            )
            both = SumOfDiscreteGaussiansEvent(3.0, 2)
            assert accountant.cost(both) == pytest.approx(0.5 / (18 - rounding))
            assert accountant.cost(ExponentialEvent(0.2)) == pytest.approx(factor * 0.04 / 8)
            answer = DiscreteLaplaceEvent(10.0)
            assert accountant.cost(answer) == pytest.approx(factor * 0.04 / 8)
            assert accountant.reserve(ExponentialEvent(0.2)) == pytest.approx(0.04 / 8 / ratio)
            assert accountant.reserve(GaussianEvent(3.0)) == 0.0
    assert GaussianAccountant(1.0).cost(DiscreteGaussianEvent(1.0)) == math.inf


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("budget", [0.05, 0.4])
def test_rounding_distance_bounds_what_rounded_gaussians_differ_by(
    budget: float, rounding: int
) -> None:
    """A Gaussian rounded at random against discrete noise, by trapezoid sums."""
    variance = rounding + 1 / (2 * budget)
    sigma = math.sqrt(variance)
    y = np.arange(-12 * sigma - 8, 12 * sigma + 8, 1 / 64)
    whole = np.arange(-math.ceil(13 * sigma) - 12, math.ceil(13 * sigma) + 13)
    kernel = np.exp(-((whole[:, None] - y) ** 2) / (2 * rounding))
    free = math.sqrt(variance - rounding)
    mixed = (kernel / kernel.sum(axis=0)) @ (density(y / free) / free / 64)
    exact = np.exp(-(whole**2) / (2 * variance))
    apart = float(np.abs(mixed - exact / exact.sum()).sum() / 2)
    assert apart <= rounding_distance("discrete-gaussian", budget, rounding) + 1e-14
    assert rounding_distance("box-muller", budget, rounding) == 0.0


def test_rounding_distance_of_parts_too_fine_is_infinite() -> None:
    assert rounding_distance("distributed", 0.05, 1) < 1e-12
    assert rounding_distance("distributed", 50.0, 1) > 1e-3


def test_factor_for_is_the_least_ratio_that_the_noise_covers() -> None:
    assert factor_for(Fraction(1), Fraction(9)) == 1 / 8
    assert factor_for(Fraction(1), Fraction(8)) == 1 / 8
    assert factor_for(Fraction(1), Fraction(7)) == 1 / 4
    assert factor_for(Fraction(1), Fraction(10**6)) == 1 / 64
    assert factor_for(Fraction(100), Fraction(1)) is None


def test_gaussian_accountant_refuses_what_it_has_no_factor_for() -> None:
    with pytest.raises(ValueError, match="ratio"):
        GaussianAccountant(0.3)
    with pytest.raises(ValueError, match="rounding"):
        GaussianAccountant(0.25, 4)
