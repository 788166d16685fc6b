"""Costs, conversions, plans and the ledger, with autodp as an independent account."""

import math
import warnings
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.accounting import (
    Event,
    ExponentialEvent,
    GaussianEvent,
    Ledger,
    Plan,
    delta_from_rho,
    fixed_rounds_plan,
    rho,
    rho_from_epsilon_delta,
)
from mechanisms.errors import BudgetExceeded


def test_rho_from_epsilon_delta_gives_known_answer() -> None:
    assert rho_from_epsilon_delta(1.0, 1e-5) == pytest.approx(0.030557, abs=5e-7)


@given(st.floats(0.01, 20), st.floats(1e-12, 0.1))
def test_rho_from_epsilon_delta_is_the_largest_that_fits(epsilon: float, delta: float) -> None:
    budget = rho_from_epsilon_delta(epsilon, delta)
    assert delta_from_rho(budget, epsilon) <= delta
    assert delta_from_rho(budget * (1 + 1e-6), epsilon) > delta


@given(st.floats(0.001, 5), st.floats(0.01, 20))
def test_delta_from_rho_is_the_minimum_over_alpha(budget: float, epsilon: float) -> None:
    def bound(alpha: float) -> float:
        exponent = (alpha - 1) * (alpha * budget - epsilon) + alpha * math.log1p(-1 / alpha)
        return math.exp(min(exponent, 700)) / (alpha - 1)

    grid = (1 + 10 ** (k / 50) for k in range(-250, 250))
    # A delta below 1e-300 is rounded up to a double, too.
    assert delta_from_rho(budget, epsilon) <= min(1, *map(bound, grid)) * (1 + 1e-9) + 1e-300


@pytest.mark.parametrize("sigma", [1.0, 20.89, 300.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_delta_from_rho_is_no_less_than_autodps_for_gaussians(sigma: float, delta: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autodp.mechanism_zoo import ExactGaussianMechanism, GaussianMechanism

        exact = ExactGaussianMechanism(sigma).get_approxDP(delta)
        from_renyi = GaussianMechanism(sigma, RDP_off=False, approxDP_off=True).get_approxDP(delta)
    cost = rho(GaussianEvent(sigma))

    # Ours holds for every zCDP mechanism, so it lies above the Gaussian's own exact curve, and it
    # agrees with autodp's conversion of the same Renyi curve up to that one's grid of orders.
    assert delta_from_rho(cost, exact) >= delta
    assert rho_from_epsilon_delta(from_renyi, delta) == pytest.approx(cost, rel=0.02)


def test_delta_from_rho_never_falls_to_zero_nor_above_one() -> None:
    assert delta_from_rho(0.0, 20.0) == 0
    assert delta_from_rho(1e-10, 20.0) == math.ulp(0.0)
    assert delta_from_rho(1e300, 20.0) == 1


@pytest.mark.parametrize(
    ("epsilon", "delta", "distance"), [(1.0, 1e-320, 0.0), (1e300, 1e-5, 1e-300), (1.0, 1e-5, 1e-5)]
)
def test_rho_from_epsilon_delta_refuses_where_too_little_is_left(
    epsilon: float, delta: float, distance: float
) -> None:
    with pytest.raises(ValueError, match="does not cover"):
        rho_from_epsilon_delta(epsilon, delta, distance=distance)


def test_a_cost_that_no_double_holds_is_infinite_and_refused() -> None:
    ledger = Ledger(1e300)
    for event in (GaussianEvent(1e-200), ExponentialEvent(1e200)):
        assert rho(event) == math.inf
        with pytest.raises(BudgetExceeded):
            ledger.charge(0, "step", event)
    assert ledger.entries == []


def test_rho_of_events() -> None:
    assert rho(GaussianEvent(2.0)) == 1 / 8
    assert rho(GaussianEvent(2.0, sensitivity=3.0)) == 9 / 8
    assert rho(ExponentialEvent(0.5)) == 1 / 32


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, 10**400])
def test_numbers_out_of_range_are_refused(bad: float) -> None:
    for make in (
        GaussianEvent,
        ExponentialEvent,
        lambda x: GaussianEvent(1.0, x),
        lambda x: rho_from_epsilon_delta(x, 1e-5),
        lambda x: rho_from_epsilon_delta(1, x),
        lambda x: fixed_rounds_plan(x, 10, 14),
        lambda x: fixed_rounds_plan(1, 10, 14, measure_share=x),
    ):
        with pytest.raises(ValueError, match="it "):
            make(bad)


def test_fixed_rounds_plan_gives_known_answer() -> None:
    plan = fixed_rounds_plan(rho_from_epsilon_delta(1.0, 1e-5), 10, 14)
    assert plan.sigma == pytest.approx(20.89, abs=5e-3)
    assert plan.spent_after(10) == pytest.approx(plan.rho, rel=1e-12)


@given(st.floats(1e-4, 10), st.integers(1, 100), st.integers(1, 60), st.floats(0.05, 0.95))
def test_fixed_rounds_plan_spends_all_and_no_more(
    budget: float, rounds: int, columns: int, share: float
) -> None:
    slack = 1e-8
    plan = fixed_rounds_plan(budget, rounds, columns, measure_share=share, selection_slack=slack)
    ledger = Ledger(budget)
    for round in range(rounds + 1):
        for event in plan.events(round):
            ledger.charge(round, "step", event)
    assert ledger.spent == pytest.approx(budget, rel=1e-9)
    gaussians = [e.rho for e in ledger.entries if isinstance(e.event, GaussianEvent)]
    assert math.fsum(gaussians) == pytest.approx(share * budget)
    assert plan.selection == ExponentialEvent(plan.epsilon + slack)
    with pytest.raises(BudgetExceeded):
        ledger.charge(rounds + 1, "measure", plan.measurement)


def test_plan_refuses_to_cost_more_than_its_budget() -> None:
    with pytest.raises(ValueError, match="the plan costs"):
        Plan(rho=0.03, rounds=10, columns=14, sigma=20.0, epsilon=0.05)
    plan = fixed_rounds_plan(0.03, 10, 14)
    with pytest.raises(ValueError, match="the plan costs"):
        replace(plan, rounds=11)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"variant": "other"}, "variant"),
        ({"variant": "private", "local_rounds": 0}, "local_rounds"),
        ({"variant": "private", "local_rounds": 2, "local_measurements": 2}, "local_measurements"),
        ({"variant": "distaim", "local_rounds": 2}, "federated"),
    ],
)
def test_plan_refuses_rounds_that_its_variant_does_not_have(
    changed: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        replace(fixed_rounds_plan(0.03, 10, 14), **changed)


@given(st.lists(st.floats(0.01, 1.0), max_size=20), st.floats(0.1, 3.0))
def test_charge_never_exceeds_the_budget(costs: list[float], budget: float) -> None:
    ledger = Ledger(budget)
    for cost in costs:
        event: Event = GaussianEvent(math.sqrt(1 / (2 * cost)))
        before = list(ledger.entries)
        if sum(Fraction(c) for c in (rho(event), *(e.rho for e in before))) > Fraction(budget):
            with pytest.raises(BudgetExceeded, match="refused"):
                ledger.charge(1, "measure", event)
            assert ledger.entries == before
        else:
            assert ledger.charge(1, "measure", event) == ledger.entries[-1]
    assert ledger.spent <= budget


def test_require_counts_all_events_together_and_charges_none() -> None:
    ledger = Ledger(1.0)
    event = GaussianEvent(1.0)
    ledger.require((event, event))
    with pytest.raises(BudgetExceeded):
        ledger.require((event, event, ExponentialEvent(0.01)))
    assert ledger.spent == 0
