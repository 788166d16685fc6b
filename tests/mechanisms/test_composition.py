"""Numeric composition: above the exact loss, near it, and below what zCDP says."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.accounting import (
    delta_from_rho,
    epsilon_from_rho,
    fixed_rounds_plan,
    rho,
    rho_from_epsilon_delta,
)
from mechanisms.composition import delta_of, epsilon_of
from mechanisms.events import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    NoiseKind,
)
from tests.mechanisms.privacy_loss import (
    choice,
    discrete_gaussian,
    hockey_stick,
    moved,
    pairs,
    total_of,
)
from tests.mechanisms.test_privacy_loss import joint


def events_of(epsilon: float, delta: float, noise: NoiseKind) -> list[Event]:
    """All that a run of 14 columns and 10 rounds releases for a budget."""
    plan = fixed_rounds_plan(rho_from_epsilon_delta(epsilon, delta), 10, 14, noise=noise)
    return [event for round in range(11) for event in plan.events(round)]


@pytest.mark.parametrize("epsilon", [0.05, 0.8, 3.0])
def test_delta_of_a_choice_is_the_largest_of_its_worst_pairs(epsilon: float) -> None:
    """At -0.9 to 0.9 of it; the pair that is worst there has its loss in the middle of that and epsilon."""
    for part in (-0.9, -0.3, 0.0, 0.4, 0.9):
        at = part * epsilon
        found = delta_of([ExponentialEvent(epsilon)], at)
        worst = max(
            hockey_stick(*choice(epsilon, Decimal(epsilon) * i / 200), at) for i in range(1, 200)
        )
        assert worst <= Decimal(found) * (1 + Decimal(10) ** -8)
        assert found == pytest.approx(float(worst), rel=0.02, abs=1e-4 * epsilon)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_delta_of_covers_two_choices_and_three_discrete_gaussians(epsilon: float) -> None:
    """Against sums in 60 digits, for every worst choice, and far closer than zCDP is."""
    noise = discrete_gaussian(3.5, 40)
    total = total_of(total_of(noise, noise), noise)
    ours, theirs = moved(total, 3), total
    events = [DiscreteGaussianEvent(3.5)] * 3 + [ExponentialEvent(0.8)] * 2
    found = delta_of(events, epsilon)
    exact = [
        hockey_stick(joint(ours, pairs(p, p)), joint(theirs, pairs(q, q)), epsilon)
        for p, q in (choice(0.8, Decimal("0.8") * i / 20) for i in (1, 5, 8, 10, 12, 15, 19))
    ]
    assert max(exact) <= Decimal(found)
    charged = delta_from_rho(sum(map(rho, events)), epsilon)
    assert found < charged / 1.2
    assert Decimal(found) < 4 * max(exact)


# By dp_accounting 0.6.0, losses in steps of 10^-5, optimistic: the same Gaussians beside ten choices with one and the
# same worst pair; and the Gaussians alone, which have a closed form.
THEIRS = [
    (0.3, 1e-5, 0.271716, 0.256652),
    (0.3, 1e-9, 0.283511, 0.268624),
    (1.0, 1e-5, 0.914658, 0.863670),
    (1.0, 1e-9, 0.947886, 0.897826),
    (3.0, 1e-5, 2.766014, 2.607701),
    (3.0, 1e-9, 2.851667, 2.698070),
]


@pytest.mark.parametrize(("epsilon", "delta", "whole", "noise"), THEIRS)
def test_epsilon_of_is_above_what_another_accountant_finds_and_below_zcdp(
    epsilon: float, delta: float, whole: float, noise: float
) -> None:
    """Choices may each have another worst pair, which the same pair for all is 2 % below."""
    events = events_of(epsilon, delta, "box-muller")
    assert whole <= epsilon_of(events, delta) <= 1.02 * whole
    alone = [event for event in events if isinstance(event, GaussianEvent)]
    assert epsilon_of(alone, delta) == pytest.approx(noise, rel=3e-4)
    assert epsilon_of(events, delta) < epsilon


@pytest.mark.parametrize(("epsilon", "at_most"), [(0.3, 0.923), (1.0, 0.934), (3.0, 0.945)])
def test_epsilon_of_a_run_with_exact_noise_is_a_twentieth_below_what_it_is_charged(
    epsilon: float, at_most: float
) -> None:
    continuous, discrete = (
        epsilon_of(events_of(epsilon, 1e-5, kind), 1e-5)
        for kind in ("box-muller", "discrete-gaussian")
    )
    assert continuous <= discrete <= at_most * epsilon


@given(
    st.lists(st.floats(3.0, 200.0), max_size=6),
    st.lists(st.sampled_from([0.01, 0.1, 0.35, 1.0]), max_size=6),
    st.sampled_from([1e-3, 1e-6, 1e-12]),
)
def test_epsilon_of_is_no_larger_than_zcdps_but_for_the_lattice(
    sigmas: list[float], choices: list[float], delta: float
) -> None:
    events: list[Event] = [DiscreteGaussianEvent(sigma) for sigma in sigmas]
    events += [ExponentialEvent(epsilon) for epsilon in choices]
    found = epsilon_of(events, delta)
    lattice = sum(1 / sigma**2 for sigma in set(sigmas))
    charged = epsilon_from_rho(sum(map(rho, events)), delta)
    assert found <= charged + lattice + 0.005 * (1 + sum(choices))
    assert delta_of(events, found) <= delta


def test_epsilon_of_pays_for_a_statistical_distance_and_ends_where_there_is_no_room() -> None:
    events = events_of(1.0, 1e-5, "discrete-gaussian")
    assert epsilon_of(events, 1e-5, distance=1e-6) > epsilon_of(events, 1e-5)
    assert epsilon_of(events, 1e-5, distance=1e-5) == math.inf


def test_delta_of_refuses_what_it_has_no_bound_for() -> None:
    for event in (DiscreteGaussianEvent(2.9), DiscreteLaplaceEvent(3.0)):
        with pytest.raises(ValueError, match="not composed numerically"):
            delta_of([event], 1.0)
