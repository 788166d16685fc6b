"""The numeric account of DP-SGD: against dp_accounting's figures from both sides, exact losses of both directions."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from mechanisms import rdp
from mechanisms.errors import BudgetExceeded
from mechanisms.sampled_loss import (
    SampledGaussian,
    SampledLedger,
    delta_of,
    epsilon_of,
    least_multiplier,
    multiplier_on_lattice,
)

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "sampled_loss.json").read_text())
RATES = st.one_of(st.floats(0.001, 0.9), st.just(1.0))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"{case['q']}-{case['z']}")
def test_epsilon_is_between_dp_accountings_bounds(case: dict[str, float]) -> None:
    steps = {SampledGaussian(case["q"], case["z"]): int(case["steps"])}
    found = epsilon_of(steps, case["delta"])
    assert case["at_least"] <= found <= case["at_most"] * 1.001
    assert found <= rdp.epsilon_of(
        case["steps"] * rdp.sampled_gaussian(case["q"], case["z"]), case["delta"]
    )


def test_epsilon_is_an_eighth_less_than_by_renyi_curves() -> None:
    """The purpose of the numeric account: a usual training of DP-SGD."""
    steps = {SampledGaussian(0.3, 10): 600}
    by_curve = rdp.epsilon_of(600 * rdp.sampled_gaussian(0.3, 10), 1e-3)
    assert epsilon_of(steps, 1e-3) == pytest.approx(0.878 * by_curve, rel=1e-3)


def exact(q: float, z: float, epsilon: float, times: int) -> float:
    """Delta of one or two steps, both directions, by sums over a fine grid of answers."""
    reach, parts = 12 + 1 / z, 40_000 if times == 1 else 1500
    ends = np.linspace(-reach, reach + 1 / z, parts + 1)
    absent, shifted = np.diff(ndtr(ends)), np.diff(ndtr(ends - 1 / z))
    present = (1 - q) * absent + q * shifted
    worst = 0.0
    for p, r in ((present, absent), (absent, present)):
        if times == 2:
            p, r = np.outer(p, p), np.outer(r, r)
        worst = max(worst, float(np.maximum(0, p - math.exp(epsilon) * r).sum()))
    return worst


@given(q=RATES, z=st.floats(0.4, 5), at=st.floats(0.05, 2.5), times=st.integers(1, 2))
@settings(max_examples=10)
def test_delta_is_the_exact_one_of_the_worse_direction(
    q: float, z: float, at: float, times: int
) -> None:
    """Sums over coarse cells are below the exact delta, and little below."""
    epsilon = at * times * q / z
    below = exact(q, z, epsilon, times)
    found = delta_of({SampledGaussian(q, z): times}, epsilon)
    assert below * (1 - 1e-9) <= found + 1e-15
    if below > 1e-8:
        assert found <= below * 1.02


def on_the_lattice(q: float, sigma: float, shift: int, epsilon: float) -> float:
    """Delta of two steps with discrete noise, as it is drawn, where an example moves the sum by ``shift`` units."""
    reach = math.ceil(11 * sigma + shift)
    answers = np.arange(-reach, reach + 1)
    noise = np.exp(-(answers**2) / (2 * sigma**2))
    moved = np.exp(-((answers - shift) ** 2) / (2 * sigma**2)) / noise.sum()
    noise /= noise.sum()
    mixed = (1 - q) * noise + q * moved
    pairs = ((mixed, noise), (noise, mixed))
    return max(
        float(np.maximum(0, np.outer(p, p) - math.exp(epsilon) * np.outer(r, r)).sum())
        for p, r in pairs
    )


@given(q=RATES, z=st.floats(0.5, 4), shift=st.integers(1, 12), at=st.floats(0.1, 2))
@settings(max_examples=10)
def test_discrete_noise_costs_no_more(q: float, z: float, shift: int, at: float) -> None:
    epsilon = 2 * at * q / z
    sigma = multiplier_on_lattice(z, shift) * shift
    bound = delta_of({SampledGaussian(q, z): 2}, epsilon)
    assert on_the_lattice(q, sigma, shift, epsilon) <= bound + 1e-14


def test_the_lattice_test_sees_noise_that_is_too_small() -> None:
    """The control: nine tenths of the noise are more than is charged."""
    epsilon = 0.2
    bound = delta_of({SampledGaussian(0.3, 2.0): 2}, epsilon)
    assert on_the_lattice(0.3, 0.9 * multiplier_on_lattice(2.0, 12) * 12, 12, epsilon) > bound


@given(q=RATES, z=st.floats(0.3, 20), count=st.integers(1, 3000), digits=st.integers(2, 9))
@settings(max_examples=6)
def test_epsilon_keeps_delta_grows_with_steps_and_is_never_above_the_curves(
    q: float, z: float, count: int, digits: int
) -> None:
    event, delta = SampledGaussian(q, z), 10.0**-digits
    found = epsilon_of({event: count}, delta)
    by_curve = rdp.epsilon_of(count * rdp.sampled_gaussian(q, z), delta)
    assert found <= by_curve
    assert found == by_curve or delta_of({event: count}, found) <= delta
    assert epsilon_of({event: count + 1}, delta) >= found * (1 - 1e-5)


def test_kinds_of_steps_compose_as_one() -> None:
    one, half = SampledGaussian(1, 10), SampledGaussian(1, 10 / math.sqrt(2))
    # Two Gaussians are one of half the variance.
    assert epsilon_of({one: 2, half: 3}, 1e-6) == pytest.approx(
        epsilon_of({one: 8}, 1e-6), rel=2e-3
    )
    assert epsilon_of({}, 1e-6) == 0


def test_least_multiplier_keeps_its_epsilon_and_hardly_less() -> None:
    z = least_multiplier(lambda z: {SampledGaussian(0.3, z): 600}, 6.0, 1e-3)
    steps = {SampledGaussian(0.3, z): 600}
    assert 5.9999 < epsilon_of(steps, 1e-3) <= 6.0
    assert z < 0.95 * rdp.least_multiplier(lambda z: 600 * rdp.sampled_gaussian(0.3, z), 6.0, 1e-3)
    with pytest.raises(ValueError, match="no noise"):
        least_multiplier(lambda z: {SampledGaussian(1, z): 10**9}, 1e-3, 1e-9)


@pytest.mark.parametrize(("q", "z"), [(0.0, 1.0), (1.1, 1.0), (0.5, 0.0), (0.5, math.inf)])
def test_steps_out_of_range_are_refused(q: float, z: float) -> None:
    with pytest.raises(ValueError, match=r"q =|z ="):
        SampledGaussian(q, z)


@pytest.mark.parametrize("event", [SampledGaussian(1, 0.02), SampledGaussian(1e-5, 1.0)])
def test_steps_that_no_grid_has_are_left_to_the_curves(event: SampledGaussian) -> None:
    by_curve = rdp.epsilon_of(10 * rdp.sampled_gaussian(event.q, event.z), 1e-9)
    assert 0 < epsilon_of({event: 10}, 1e-9) <= by_curve


def test_ledger_takes_what_fits_step_by_step_and_not_one_more() -> None:
    z = least_multiplier(lambda z: {SampledGaussian(0.3, z): 600}, 6.0, 1e-3)
    ledger, event = SampledLedger(6.0, 1e-3), SampledGaussian(0.3, z)
    assert ledger.spent == 0
    ledger.require("models", event, 600)
    assert ledger.spent == 0
    for _ in range(200):
        ledger.charge("models", event, 3)
    spent = ledger.spent
    assert spent == pytest.approx(6.0, rel=1e-4)
    with pytest.raises(BudgetExceeded, match="1 steps were refused"):
        ledger.charge("models", event, 1)
    assert ledger.spent == spent
    assert Counter(entry.event for entry in ledger.entries) == {event: 200}
    assert "spent=" in repr(ledger)
    with pytest.raises(ValueError, match="steps"):
        ledger.charge("models", event, 0)
    with pytest.raises(ValueError, match="delta"):
        SampledLedger(1.0, 0.0)


def test_what_was_required_of_one_kind_does_not_pay_for_another() -> None:
    ledger, dear = SampledLedger(1.0, 1e-3), SampledGaussian(1, 3.0)
    ledger.require("models", SampledGaussian(0.1, 10.0), 50)
    with pytest.raises(BudgetExceeded):
        ledger.charge("votes", dear, 5)


def test_nothing_is_said_numerically_of_an_epsilon_so_large_that_the_lattice_shows() -> None:
    assert delta_of({SampledGaussian(1, 5.0): 1}, 40.0) < 1e-5
    assert delta_of({SampledGaussian(1, 5.0): 1}, 41.0) == 1.0
    z = rdp.least_multiplier(rdp.gaussian, 1e6, 1e-3)
    ledger = SampledLedger(1e6, 1e-3)
    ledger.charge("votes", SampledGaussian(1, z), 1)
    with pytest.raises(BudgetExceeded):
        ledger.charge("votes", SampledGaussian(1, z), 1)
