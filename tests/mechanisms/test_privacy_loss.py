"""Costs against the privacy loss itself, summed in 60 digits by ``privacy_loss``, and against autodp."""

import math
import warnings
from decimal import Decimal
from functools import cache

import pytest

from mechanisms.accounting import (
    DiscreteGaussianEvent,
    ExponentialEvent,
    GaussianEvent,
    SumOfDiscreteGaussiansEvent,
    delta_from_rho,
    fixed_rounds_plan,
    rho,
    rho_from_epsilon_delta,
)
from tests.mechanisms.privacy_loss import (
    Distribution,
    choice,
    discrete_gaussian,
    gaussian_renyi,
    hockey_stick,
    moved,
    pairs,
    renyi,
    total_of,
)

ORDERS = (1.01, 1.5, 2, 3, 8, 30)
# What cutting tails leaves, generously; comparisons are made in 28 digits.
LEFT_OUT = Decimal(10) ** -20


@pytest.mark.parametrize("sigma", [0.8, 3.7, 20.889])
@pytest.mark.parametrize("order", ORDERS)
def test_rho_is_the_renyi_divergence_of_a_gaussian(sigma: float, order: float) -> None:
    exact = gaussian_renyi(sigma, order)
    charged = Decimal(order) * Decimal(rho(GaussianEvent(sigma)))
    assert exact <= charged * (1 + LEFT_OUT)
    assert charged <= exact * (1 + Decimal(10) ** -15)


@pytest.mark.parametrize("sigma", [0.5, 0.8, 3.7, 20.889])
@pytest.mark.parametrize("order", ORDERS)
def test_rho_bounds_the_renyi_divergence_of_a_discrete_gaussian(sigma: float, order: float) -> None:
    noise = discrete_gaussian(sigma, 30)
    exact = renyi(moved(noise, 1), noise, order)
    assert exact <= Decimal(order) * Decimal(rho(DiscreteGaussianEvent(sigma))) + LEFT_OUT


def test_rho_of_a_discrete_gaussian_is_reached() -> None:
    """The bound is no looser than the Gaussian's: at sigma = 3.7 it is the divergence to 15 digits."""
    noise = discrete_gaussian(3.7)
    exact = renyi(moved(noise, 1), noise, 2)
    assert 2 * Decimal(rho(DiscreteGaussianEvent(3.7))) <= exact * (1 + Decimal(10) ** -15)


@cache
def sum_of(sigma: float, parts: int, further: int) -> Distribution:
    part = discrete_gaussian(sigma, further + int(15 * sigma * math.sqrt(parts)))
    total = part
    for _ in range(parts - 1):
        total = total_of(total, part)
    return total


@pytest.mark.parametrize(
    ("sigma", "parts"), [(0.5, 2), (0.6, 2), (1.0, 2), (2.5, 2), (0.5, 4), (0.8, 5)]
)
@pytest.mark.parametrize("shift", [1, 3])
def test_rho_bounds_the_renyi_divergence_of_a_sum(sigma: float, parts: int, shift: int) -> None:
    noise = sum_of(sigma, parts, 30 * shift)
    event = SumOfDiscreteGaussiansEvent(sigma, parts, sensitivity=float(shift))
    for order in ORDERS:
        exact = renyi(moved(noise, shift), noise, order)
        assert exact <= Decimal(order) * Decimal(rho(event)) + LEFT_OUT


def test_rho_of_a_sum_is_above_that_of_one_where_parts_are_small() -> None:
    """A sum of two small ones is no discrete Gaussian: charging it as one would be wrong."""
    noise = sum_of(0.5, 2, 30)
    exact = max(renyi(moved(noise, 1), noise, order) / Decimal(order) for order in ORDERS)
    single = rho(DiscreteGaussianEvent(0.5 * math.sqrt(2)))
    assert exact > Decimal(single) * Decimal("1.001")
    assert exact <= Decimal(rho(SumOfDiscreteGaussiansEvent(0.5, 2)))


def test_rho_of_a_sum_is_that_of_one_where_parts_are_large() -> None:
    assert rho(SumOfDiscreteGaussiansEvent(20.0, 2)) == pytest.approx(1 / 1600, rel=1e-12)
    assert rho(SumOfDiscreteGaussiansEvent(20.0, 2)) >= 1 / 1600
    # 100 clients with parts of 1.5, 32,768 counts that all may change: the first form alone would add 7.5e-5.
    event = SumOfDiscreteGaussiansEvent(1.5, 100, sensitivity=10.0, cells=32_768)
    assert rho(event) - 100 / (2 * 1.5**2 * 100) == pytest.approx(2.74e-7, rel=0.01)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("order", ORDERS)
def test_rho_bounds_the_renyi_divergence_of_every_choice(epsilon: float, order: float) -> None:
    charged = Decimal(order) * Decimal(rho(ExponentialEvent(epsilon)))
    for i in range(1, 20):
        p, q = choice(epsilon, Decimal(epsilon) * i / 20)
        assert renyi(p, q, order) <= charged
    # A mechanism that is only epsilon-private costs more: the bound on its range is what pays.
    p = {0: Decimal(epsilon).exp() / (1 + Decimal(epsilon).exp())}
    p[1] = 1 - p[0]
    loose = renyi(p, {0: p[1], 1: p[0]}, order)
    assert order > 2 or loose > charged


def test_delta_from_rho_covers_a_whole_run() -> None:
    """Two selections and three measurements at sigma = 2.5, composed exactly, for every epsilon and worst choice."""
    noise = discrete_gaussian(2.5, 30)
    # The losses of three independent measurements depend on the sum of what they released.
    total = total_of(total_of(noise, noise), noise)
    ours, theirs = moved(total, 3), total
    charged = 3 * rho(DiscreteGaussianEvent(2.5)) + 2 * rho(ExponentialEvent(0.8))
    for epsilon in (0.5, 1.0, 3.0):
        allowed = Decimal(delta_from_rho(charged, epsilon))
        found = []
        for i in (1, 5, 10, 15, 19):
            p, q = choice(0.8, Decimal("0.8") * i / 20)
            found.append(
                hockey_stick(joint(ours, pairs(p, p)), joint(theirs, pairs(q, q)), epsilon)
            )
        # A bound that is a hundred times too large would be no check.
        assert allowed / 100 < max(found) <= allowed


def joint(measured: Distribution, chosen: Distribution) -> Distribution:
    """Joint distribution of a measurement and a choice, as one number."""
    return {4 * z + c: p * r for z, p in measured.items() for c, r in chosen.items()}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-12])
def test_rho_from_epsilon_delta_is_rounded_down(epsilon: float, delta: float) -> None:
    budget = rho_from_epsilon_delta(epsilon, delta)
    assert exact_delta(budget, epsilon) <= Decimal(delta)
    assert exact_delta(budget * (1 + 1e-12), epsilon) > Decimal(delta)
    assert Decimal(delta_from_rho(budget, epsilon)) >= exact_delta(budget, epsilon)


def exact_delta(budget: float, epsilon: float) -> Decimal:
    """Lemma A.2's minimum by golden-section search in 28 digits."""

    def log_bound(alpha: Decimal) -> Decimal:
        exponent = (alpha - 1) * (alpha * Decimal(budget) - Decimal(epsilon))
        return exponent + alpha * (1 - 1 / alpha).ln() - (alpha - 1).ln()

    low, high = Decimal("1.0000001"), Decimal((epsilon + 1) / (2 * budget) + 2)
    golden = (Decimal(5).sqrt() - 1) / 2
    for _ in range(150):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if log_bound(left) < log_bound(right) else (left, high)
    return log_bound((low + high) / 2).exp()


def test_rho_from_epsilon_delta_pays_for_a_statistical_distance() -> None:
    whole = rho_from_epsilon_delta(1.0, 1e-5)
    assert rho_from_epsilon_delta(1.0, 1e-5, distance=1e7 * 2.0**-64) == pytest.approx(
        whole, rel=1e-6
    )
    less = rho_from_epsilon_delta(1.0, 1e-5, distance=1e-6)
    assert less < whole
    assert less == pytest.approx(rho_from_epsilon_delta(1.0, 1e-5 - (1 + math.e) * 1e-6), rel=1e-12)
    with pytest.raises(ValueError, match="statistical distance"):
        rho_from_epsilon_delta(1.0, 1e-5, distance=1e-5)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_rho_of_a_choice_agrees_with_autodps_bounded_range(epsilon: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autodp.mechanism_zoo import zCDP_Mechanism

        converted = zCDP_Mechanism(rho(ExponentialEvent(epsilon)), 0).get_approxDP(1e-6)
    # autodp turns zCDP into (epsilon, delta) on a grid of orders: ours is as small or a little smaller.
    assert rho_from_epsilon_delta(converted, 1e-6) == pytest.approx(epsilon**2 / 8, rel=0.02)


def test_fixed_rounds_plan_composes_to_its_epsilon_in_autodp() -> None:
    """All releases of a run, composed by autodp, come to the epsilon that the plan was made for."""
    plan = fixed_rounds_plan(rho_from_epsilon_delta(1.0, 1e-5), 10, 14)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autodp.mechanism_zoo import GaussianMechanism, zCDP_Mechanism
        from autodp.transformer_zoo import Composition

        measured = GaussianMechanism(plan.sigma, RDP_off=False, approxDP_off=True)
        chosen = zCDP_Mechanism(rho(ExponentialEvent(plan.epsilon)), 0)
        epsilon = Composition()([measured, chosen], [24, 10]).get_approxDP(1e-5)
    assert epsilon == pytest.approx(1.0, rel=0.01)
