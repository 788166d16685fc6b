"""The numeric account: against dp_accounting's figures on both sides, closed forms, and exact sums in 60 digits."""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from mechanisms.accounting import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    Plan,
    SumOfDiscreteGaussiansEvent,
    delta_from_rho,
    epsilon_from_rho,
    fixed_rounds_plan,
    rho,
    rho_from_epsilon_delta,
)
from mechanisms.composition import (
    _TRIMMED,
    _gaussian,
    _trim,
    delta_of,
    epsilon_of,
    largest_budget,
    of_group,
)
from mechanisms.events import NoiseKind
from tests.mechanisms.privacy_loss import (
    Distribution,
    choice,
    discrete_gaussian,
    hockey_stick,
    moved,
    pairs,
    total_of,
)

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "composed.json").read_text())
CLOSE = 1.005


def events_of(plan: Plan) -> list[Event]:
    return [event for r in (0, *[1] * plan.rounds) for event in plan.events(r)]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=str)
def test_epsilon_of_is_between_what_dp_accounting_says(case: dict[str, list[list[float]]]) -> None:
    """At or above its optimistic value, which is below the true one, and within 0.5 % of it."""
    events: list[Event] = [
        GaussianEvent(s) for s, times in case["gaussians"] for _ in range(int(times))
    ]
    events += [ExponentialEvent(e) for e, times in case["choices"] for _ in range(int(times))]
    found = epsilon_of(events, case["delta"])  # type: ignore[arg-type]
    assert case["optimistic"] <= found <= case["optimistic"] * CLOSE  # type: ignore[operator]
    # No figure of theirs is far from the other, so that the two are a check.
    assert case["pessimistic"] <= case["optimistic"] * CLOSE  # type: ignore[operator]


# By dp_accounting 0.6.0, losses in steps of 10^-5, optimistic: the Gaussians of a plan beside ten choices with one and
# the same worst pair.
ONE_PAIR = [
    (0.3, 1e-5, 0.271716),
    (0.3, 1e-9, 0.283511),
    (1.0, 1e-5, 0.914658),
    (1.0, 1e-9, 0.947886),
    (3.0, 1e-5, 2.766014),
    (3.0, 1e-9, 2.851667),
]


@pytest.mark.parametrize(("epsilon", "delta", "whole"), ONE_PAIR)
def test_epsilon_of_is_above_what_choices_of_one_pair_cost(
    epsilon: float, delta: float, whole: float
) -> None:
    """Choices may each have another worst pair, which the same pair for all is 2 % below."""
    plan = fixed_rounds_plan(rho_from_epsilon_delta(epsilon, delta), 10, 14)
    assert whole <= epsilon_of(events_of(plan), delta) <= 1.02 * whole < epsilon


@pytest.mark.parametrize("mu", [0.05, 0.7, 4.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 20.0])
def test_delta_of_gaussians_is_their_closed_form(mu: float, epsilon: float) -> None:
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    found = delta_of([GaussianEvent(2 / mu)] * 4, epsilon)
    # Doubles lose digits in the difference, and what is below 10^-30 is left to zCDP.
    assert exact - 1e-14 <= found <= exact * (1 + 1e-9) + 1e-14


def exact_delta(epsilon: float, losses: tuple[float, ...], at: float) -> Decimal:
    """Of choices of the range ``epsilon`` whose higher losses are ``losses``."""
    ours, theirs = {0: Decimal(1)}, {0: Decimal(1)}
    for loss in losses:
        p, q = choice(epsilon, Decimal(loss))
        ours, theirs = pairs(ours, p), pairs(theirs, q)
    return hockey_stick(ours, theirs, at)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_delta_of_a_choice_is_the_largest_of_the_worst_pairs(epsilon: float) -> None:
    for share in (-0.9, -0.3, 0.0, 0.05, 0.3, 0.6, 0.8):
        at = share * epsilon
        found = Decimal(delta_of([ExponentialEvent(epsilon)], at))
        largest = max(exact_delta(epsilon, (epsilon * i / 200,), at) for i in range(1, 200))
        assert largest <= found
        form = (1 - math.exp((at - epsilon) / 2)) ** 2 / -math.expm1(-epsilon)
        assert form == pytest.approx(float(largest), rel=1e-3)
        assert found <= Decimal(form) * Decimal("1.02")


def test_delta_of_choices_covers_every_worst_pair_of_two() -> None:
    epsilon, at = 0.8, 0.5
    grid = [epsilon * i / 24 for i in range(1, 24)]
    largest = max(exact_delta(epsilon, losses, at) for losses in product(grid, grid))
    assert largest <= Decimal(delta_of([ExponentialEvent(epsilon)] * 2, at)) <= largest * 2
    # The control: for a range that is 5 % smaller than theirs the bound does not hold.
    assert Decimal(delta_of([ExponentialEvent(0.95 * epsilon)], at)) < max(
        exact_delta(epsilon, (loss,), at) for loss in grid
    )


@pytest.mark.parametrize("parts", [1, 2])
def test_delta_of_covers_a_whole_run_of_discrete_noise(parts: int) -> None:
    """Three measurements and two choices, composed exactly, for several worst choices."""
    sigma = 2.5
    noise = discrete_gaussian(sigma, 30)
    total = noise
    for _ in range(3 * parts - 1):
        total = total_of(total, noise)
    measured: Event = DiscreteGaussianEvent(sigma)
    if parts > 1:
        measured = SumOfDiscreteGaussiansEvent(sigma, parts)
    events = [measured] * 3 + [ExponentialEvent(0.8)] * 2
    charged = sum(rho(event) for event in events)
    for at in (0.5, 1.0, 3.0):
        largest = max(
            hockey_stick(joint(moved(total, 3), pairs(p, p)), joint(total, pairs(q, q)), at)
            for p, q in (choice(0.8, Decimal("0.8") * i / 20) for i in (1, 5, 10, 15, 19))
        )
        found = delta_of(events, at)
        assert largest <= Decimal(found)
        assert found < delta_from_rho(charged, at)


def joint(measured: Distribution, chosen: Distribution) -> Distribution:
    """Joint distribution of a measurement and a choice, as one number."""
    return {4 * z + c: p * r for z, p in measured.items() for c, r in chosen.items()}


@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.0, 6.0])
def test_discrete_noise_is_rounded_gaussian_noise_up_to_tau(sigma: float) -> None:
    """A Gaussian of variance sigma^2 - 1/2, rounded at random to whole numbers, by trapezoid sums."""
    noise = _gaussian(DiscreteGaussianEvent(sigma))
    assert noise is not None
    assert float(noise[0]) == pytest.approx(1 / (sigma**2 - 0.5))
    tau = float(noise[1])
    assert deviation(sigma, 0.5) <= tau + 1e-13
    # The control: of a variance that is off by a tenth of a row^2 the bound says nothing.
    assert deviation(sigma, 0.4, made=0.5) > 10 * tau


def deviation(sigma: float, rounded: float, *, made: float | None = None) -> float:
    """The largest |log| of rounded Gaussian noise over discrete noise of ``sigma``."""
    reach = math.ceil(4 * sigma)
    y = np.arange(-12 * sigma - 8, 12 * sigma + 8, 1 / 64)
    whole = np.arange(-math.ceil(13 * sigma) - 12, math.ceil(13 * sigma) + 13)
    kernel = np.exp(-((whole[:, None] - y) ** 2) / (2 * (made or rounded)))
    weight = norm.pdf(y, scale=math.sqrt(sigma**2 - rounded)) / 64
    mixed = (kernel / kernel.sum(axis=0)) @ weight
    exact = np.exp(-(whole**2) / (2 * sigma**2))
    near = np.abs(whole) <= reach
    return float(np.abs(np.log(mixed[near]) - np.log((exact / exact.sum())[near])).max())


@pytest.mark.parametrize(("sigma", "parts"), [(0.6, 3), (1.0, 2), (1.0, 4)])
def test_a_sum_of_discrete_noise_is_discrete_noise_up_to_tau(sigma: float, parts: int) -> None:
    part = discrete_gaussian(sigma, int(15 * sigma * math.sqrt(parts)))
    total = part
    for _ in range(parts - 1):
        total = total_of(total, part)
    single = discrete_gaussian(sigma * math.sqrt(parts))
    off = max(abs((total[z] / single[z]).ln()) for z in range(-8, 9))
    noise = _gaussian(SumOfDiscreteGaussiansEvent(sigma, parts))
    alone = _gaussian(DiscreteGaussianEvent(sigma * math.sqrt(parts)))
    assert noise is not None
    assert alone is not None
    # No more than twice what two such parts are off by: further parts are charged as little as they matter.
    assert off <= noise[1] - alone[1] <= Decimal(20) * (-Decimal(math.pi**2 * sigma**2)).exp()


def test_delta_of_a_discrete_laplace_answer_is_that_of_an_answer_turned_at_random() -> None:
    found = delta_of([DiscreteLaplaceEvent(1.0)], 0.5)
    exact = (math.e - math.exp(0.5)) / (1 + math.e)
    assert exact <= found <= exact * 1.01
    two = delta_of([DiscreteLaplaceEvent(1.0), DiscreteLaplaceEvent(2.0)], 1.0)
    turned = math.exp(1.5) / ((1 + math.e) * (1 + math.exp(0.5)))
    assert turned * -math.expm1(-0.5) <= two <= delta_from_rho(0.625, 1.0)


@pytest.mark.parametrize(
    ("events", "delta"),
    [
        ([DiscreteGaussianEvent(0.6)] * 3, 1e-5),
        ([ExponentialEvent(0.1)] * 30, 1e-6),
        ([GaussianEvent(50.0)] * 3, 1e-40),
        ([GaussianEvent(0.3)] * 3, 1e-5),
    ],
)
def test_epsilon_of_is_never_above_that_of_zcdp(events: list[Event], delta: float) -> None:
    by_cost = epsilon_from_rho(sum(rho(event) for event in events), delta)
    assert epsilon_of(events, delta) <= by_cost * (1 + 1e-12)


@given(
    st.lists(st.floats(0.6, 200.0), max_size=6),
    st.lists(st.sampled_from([0.01, 0.1, 0.35, 1.0]), max_size=6),
    st.sampled_from([1e-3, 1e-6, 1e-12]),
)
def test_epsilon_of_any_events_keeps_delta_and_is_no_larger_than_that_of_zcdp(
    sigmas: list[float], choices: list[float], delta: float
) -> None:
    events: list[Event] = [DiscreteGaussianEvent(sigma) for sigma in sigmas]
    events += [ExponentialEvent(epsilon) for epsilon in choices]
    found = epsilon_of(events, delta)
    assert found <= epsilon_from_rho(sum(map(rho, events)), delta) * (1 + 1e-12)
    assert delta_of(events, found) <= delta


@pytest.mark.parametrize(("epsilon", "at_most"), [(0.3, 0.9218), (1.0, 0.9313), (3.0, 0.9426)])
def test_epsilon_of_a_run_with_exact_noise_is_a_twentieth_below_what_it_is_charged(
    epsilon: float, at_most: float
) -> None:
    budget = rho_from_epsilon_delta(epsilon, 1e-5)
    kinds: tuple[NoiseKind, ...] = ("box-muller", "discrete-gaussian")
    continuous, discrete = (
        epsilon_of(events_of(fixed_rounds_plan(budget, 10, 14, noise=kind)), 1e-5) for kind in kinds
    )
    assert continuous <= discrete <= at_most * epsilon


def test_epsilon_of_is_the_least_that_keeps_delta() -> None:
    events = events_of(fixed_rounds_plan(0.02, 10, 14))
    found = epsilon_of(events, 1e-5)
    assert delta_of(events, found) <= 1e-5 < delta_of(events, found * (1 - 2e-6))
    assert epsilon_of(events[::-1], 1e-5) == found
    assert epsilon_of([], 1e-5) == 0.0


def test_epsilon_of_pays_for_a_statistical_distance() -> None:
    events = events_of(fixed_rounds_plan(0.02, 10, 14))
    less = epsilon_of(events, 1e-5, distance=1e-6)
    assert less > epsilon_of(events, 1e-5)
    assert delta_of(events, less) <= 1e-5 - (1 + math.exp(less)) * 1e-6
    assert epsilon_of(events, 1e-5, distance=1e-5) == math.inf


PLANS: list[tuple[float, Callable[[float], Plan]]] = [
    (0.3, partial(fixed_rounds_plan, rounds=10, columns=14)),
    (1.0, partial(fixed_rounds_plan, rounds=10, columns=14, noise="distributed")),
    (3.0, partial(fixed_rounds_plan, rounds=16, columns=9, initial_share=0.2)),
]


@pytest.mark.parametrize(("epsilon", "plan_of"), PLANS)
def test_largest_budget_is_the_last_whose_plan_keeps_delta(
    epsilon: float, plan_of: Callable[[float], Plan]
) -> None:
    found = largest_budget(epsilon, 1e-5, plan_of)
    assert delta_of(events_of(plan_of(found)), epsilon) <= 1e-5
    assert delta_of(events_of(plan_of(found * (1 + 2e-6))), epsilon) > 1e-5
    assert found > 1.1 * rho_from_epsilon_delta(epsilon, 1e-5)
    assert largest_budget(epsilon, 1e-5, plan_of, distance=1e-7) < found


def test_largest_budget_is_that_of_zcdp_where_nothing_more_is_proven() -> None:
    plan_of = partial(fixed_rounds_plan, rounds=2, columns=2, noise="discrete-gaussian")
    assert largest_budget(12.0, 1e-5, plan_of) == rho_from_epsilon_delta(12.0, 1e-5)


def test_of_group_costs_the_square_of_its_rows() -> None:
    events = [
        GaussianEvent(9.0),
        DiscreteGaussianEvent(9.0),
        SumOfDiscreteGaussiansEvent(9.0, 2),
        ExponentialEvent(0.1),
        DiscreteLaplaceEvent(9.0),
    ]
    for event in events:
        assert of_group(event, 1) == event
        assert rho(of_group(event, 3)) == pytest.approx(9 * rho(event))


def test_composition_is_the_same_on_every_machine() -> None:
    """Known answers, to the last bit."""
    plan = fixed_rounds_plan(0.02, 10, 14, noise="distributed", initial_share=0.2)
    assert delta_of(events_of(plan), 0.9).hex() == "0x1.39989c5fb3a7ep-22"
    assert epsilon_of(events_of(plan), 1e-5).hex() == "0x1.78f9e00000000p-1"
    assert largest_budget(0.3, 1e-5, PLANS[0][1]).hex() == "0x1.f6e8900000000p-9"


def test_composition_refuses_numbers_out_of_range() -> None:
    with pytest.raises(ValueError, match="epsilon"):
        delta_of([GaussianEvent(1.0)], math.inf)
    with pytest.raises(ValueError, match="delta"):
        epsilon_of([GaussianEvent(1.0)], 1.0)
    with pytest.raises(ValueError, match="statistical distance"):
        largest_budget(1.0, 1e-5, PLANS[0][1], distance=1e-5)


def test_trim_keeps_the_probability_and_as_few_losses_as_it_may() -> None:
    """Low losses move up, which only adds to delta; of high ones the probability is told."""
    small, large = _TRIMMED // 4, 9 * _TRIMMED
    assert _trim([small, large]) == ([small + large], 1, 0)
    assert _trim([large, small]) == ([large], 0, small)
    assert _trim([small, small, large, 0, large, small]) == (
        [large + 2 * small, 0, large],
        2,
        small,
    )
    assert _trim([small]) == ([small], 0, 0)
