"""The account of DP-SGD: against dp_accounting's figures, autodp, and the exact divergence of what is drawn."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.rdp import (
    ORDERS,
    epsilon_of,
    gaussian,
    least_multiplier,
    sampled_gaussian,
)

VECTORS = json.loads(
    (Path(__file__).parent.parent / "vectors" / "sampled_gaussian.json").read_text()
)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: f"{case['q']}-{case['z']}")
def test_sampled_gaussian_is_what_dp_accounting_says(case: dict[str, object]) -> None:
    curve = sampled_gaussian(case["q"], case["z"])  # type: ignore[arg-type]
    for order, expected in zip(case["orders"], case["rdp"], strict=True):  # type: ignore[call-overload]
        found = curve[ORDERS.index(order)]
        assert expected * (1 - 1e-12) <= found <= expected * (1 + 3e-9)
    epsilon = epsilon_of(case["steps"] * curve, case["delta"])  # type: ignore[operator, arg-type]
    # Theirs has whole orders alone: those between may only help, and only without sampling do they.
    assert epsilon <= case["epsilon"] * (1 + 1e-7)  # type: ignore[operator]
    if case["q"] != 1:
        assert epsilon >= case["epsilon"] * (1 - 1e-7)  # type: ignore[operator]


@pytest.mark.parametrize(("q", "z"), [(0.01, 1.0), (0.3, 2.0)])
def test_sampled_gaussian_is_what_autodp_says(q: float, z: float) -> None:
    from autodp import mechanism_zoo, transformer_zoo

    noisy = mechanism_zoo.ExactGaussianMechanism(z)
    sampled = transformer_zoo.AmplificationBySampling(PoissonSampling=True)(
        noisy, q, improved_bound_flag=True
    )
    curve = sampled_gaussian(q, z)
    for order in (2, 3, 8, 32):
        assert curve[ORDERS.index(order)] == pytest.approx(sampled.RenyiDP(order), rel=1e-6)


def divergences(q: float, sigma: float, shift: int, orders: np.ndarray) -> tuple[np.ndarray, ...]:
    """D_a of the sampled discrete Gaussian with and without an example that moves the sum by ``shift``; both ways."""
    reach = math.ceil(40 * sigma + 45 * shift)
    z = np.arange(-reach, reach + 1)
    mass = math.fsum(np.exp(-(z**2) / (2 * sigma**2)).tolist())
    without = -(z**2) / (2 * sigma**2) - math.log(mass)
    moved = -((z - shift) ** 2) / (2 * sigma**2) - math.log(mass)
    mixed = np.logaddexp(math.log1p(-q) + without, math.log(q) + moved)

    def divergence(p: np.ndarray, r: np.ndarray) -> np.ndarray:
        terms = orders[:, None] * p + (1 - orders[:, None]) * r
        peak = terms.max(axis=1)
        return (peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))) / (orders - 1)

    return divergence(mixed, without), divergence(without, mixed)


@given(st.floats(0.01, 0.9), st.floats(0.3, 6.0), st.integers(1, 6), st.sampled_from(ORDERS[:110]))
def test_sampled_gaussian_bounds_the_exact_discrete_noise_both_ways(
    q: float, z: float, shift: int, order: float
) -> None:
    """The drawn noise, not its continuous likeness, at orders whole or not. The removal of an example is the lesser."""
    if order > 20:
        order = 20.0
    added, removed = divergences(q, z * shift, shift, np.array([order]))
    charged = sampled_gaussian(q, z)[ORDERS.index(order)]
    assert added[0] <= charged + 1e-11
    assert removed[0] <= added[0] + 1e-11
    # The control: less noise than is charged for shows, at a whole order by all of it.
    if order == int(order) and charged > 1e-6:
        assert divergences(q, 0.95 * z * shift, shift, np.array([order]))[0][0] > charged


def test_bound_is_the_exact_divergence_at_whole_orders() -> None:
    added, _ = divergences(0.2, 3.0, 2, np.array([2.0, 5.0, 16.0]))
    curve = sampled_gaussian(0.2, 1.5)
    assert [curve[ORDERS.index(a)] for a in (2, 5, 16)] == pytest.approx(added, rel=1e-8)


@given(st.floats(1e-4, 1.0), st.floats(0.3, 50.0))
def test_sampled_gaussian_is_finite_and_costs_no_more_than_the_whole(q: float, z: float) -> None:
    curve = sampled_gaussian(q, z)
    assert np.isfinite(curve).all()
    assert (curve > 0).all()
    # Where not every row is in, an interpolated order may exceed the closed form: below 2 alone.
    whole = np.array(ORDERS) >= 2
    assert (curve <= gaussian(z) * (1 + 1e-8) + 1e-12)[whole & (np.array(ORDERS) % 1 == 0)].all()


@pytest.mark.parametrize(("q", "z"), [(0.0, 1.0), (1.1, 1.0), (0.5, 0.0), (0.5, math.inf)])
def test_sampled_gaussian_rejects_numbers_out_of_range(q: float, z: float) -> None:
    with pytest.raises(ValueError, match=r"q =|z ="):
        sampled_gaussian(q, z)


def test_least_multiplier_keeps_its_epsilon_and_hardly_less() -> None:
    z = least_multiplier(lambda z: 600 * sampled_gaussian(0.3, z), 6.0, 1e-3)
    assert 5.9999 < epsilon_of(600 * sampled_gaussian(0.3, z), 1e-3) <= 6.0
    with pytest.raises(ValueError, match="no noise"):
        least_multiplier(lambda z: 10**9 * gaussian(z), 1e-3, 1e-9)
