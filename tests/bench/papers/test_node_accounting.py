"""The cost of a node: published values, and both bounds against divergences computed from whole distributions.

The exact check takes every batch of a small population, with gradients on a line, so that what a step releases is a
mixture of Gaussians whose divergence is a one-dimensional integral. It fails, as the controls show, for a bound that
forgets that a node is in its own example, too, or that a replaced gradient moves by 2 C.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from bench.papers.pandemic.node_accounting import (
    ORDERS,
    NodeSampling,
    amplified_rdp,
    least_noise,
    node_cost,
    published_rdp,
)

NODES, BATCH, NEIGHBOURS = 2_609_976, 512, 20
STEPS = math.ceil(NODES / BATCH)
# Orders a quarter apart, as the published values are for.
QUARTERS = np.arange(1.25, 16, 0.25)
SMALL_ORDERS = np.array([1.25, 2.0, 4.0, 8.0])


def exact_divergence(before: np.ndarray, after: np.ndarray, batch: int, noise: float) -> np.ndarray:
    """Renyi's, of the orders SMALL_ORDERS, between noisy sums over random batches of two lists of gradients."""
    sets = [list(chosen) for chosen in itertools.combinations(range(len(before)), batch)]
    # The integrand of order a has its peak up to 2 (a - 1) batch beyond the means.
    reach = batch * (2 * SMALL_ORDERS[-1] - 1) + 12 * noise
    x = np.linspace(-reach, reach, 8_001)

    def log_density(gradients: np.ndarray) -> np.ndarray:
        means = np.array([gradients[chosen].sum() for chosen in sets])
        kernel = -((x[:, None] - means) ** 2) / (2 * noise**2)
        constant = math.log(len(sets)) + math.log(noise) + math.log(2 * math.pi) / 2
        return np.logaddexp.reduce(kernel, axis=1) - constant

    p, q = log_density(before), log_density(after)
    integrands = SMALL_ORDERS[:, None] * p + (1 - SMALL_ORDERS[:, None]) * q
    moments = np.logaddexp.reduce(integrands, axis=1) + math.log(x[1] - x[0])
    return np.asarray(moments / (SMALL_ORDERS - 1))


@pytest.mark.parametrize(("noise", "coded", "corrected"), [(2.0, 17.4, 47.0), (8.0, 3.26, 7.39)])
def test_node_cost_is_the_published_one(noise: float, coded: float, corrected: float) -> None:
    """As coded: K occurrences, and a gradient moves by C, which is what twice the noise says."""
    as_coded = NodeSampling(NODES, BATCH, NEIGHBOURS).counts()
    both = NodeSampling(NODES, BATCH, NEIGHBOURS + 1).counts()

    def epsilon(bound: np.ndarray) -> float:
        below = np.log1p(-1 / QUARTERS) - np.log(QUARTERS / NODES) / (QUARTERS - 1)
        return float(min(STEPS * bound + below))

    # The printed digits.
    digits = 1 if noise == 2.0 else 2
    assert round(epsilon(published_rdp(as_coded, 2 * noise, QUARTERS)), digits) == coded
    assert round(epsilon(published_rdp(both, noise, QUARTERS)), digits) == corrected


def test_node_cost_takes_rare_batches_from_delta() -> None:
    sampling = NodeSampling(NODES, BATCH, NEIGHBOURS + 1)
    for noise, expected in ((2.0, 9.33), (8.0, 0.642)):
        cost = node_cost(sampling, noise, steps=STEPS, delta=1 / NODES)
        assert cost.epsilon == pytest.approx(expected, rel=2e-3)
        assert 0 < cost.delta_beyond < 1 / NODES
        # Never more than without it, nor than by the other bound.
        whole = STEPS * amplified_rdp(sampling.counts(), noise, ORDERS)
        below = np.log1p(-1 / ORDERS) - np.log(ORDERS / NODES) / (ORDERS - 1)
        assert cost.epsilon < min(whole + below)
        published = node_cost(sampling, noise, steps=STEPS, delta=1 / NODES, rdp=published_rdp)
        assert cost.epsilon < published.epsilon


@pytest.mark.parametrize("others", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize(
    ("nodes", "batch", "occurrences"), [(8, 3, 1), (8, 3, 3), (7, 6, 2), (9, 1, 4)]
)
def test_rdp_is_above_the_exact_divergence_of_opposite_gradients(
    nodes: int, batch: int, occurrences: int, others: float
) -> None:
    counts = NodeSampling(nodes, batch, occurrences).counts()
    before = np.full(nodes, others)
    before[:occurrences] = 1.0
    after = np.full(nodes, others)
    after[:occurrences] = -1.0
    for noise in (0.7, 2.0, 5.0):
        exact = exact_divergence(before, after, batch, noise)
        back = exact_divergence(after, before, batch, noise)
        amplified = amplified_rdp(counts, noise, SMALL_ORDERS)
        assert np.all(np.maximum(exact, back) <= amplified)
        assert np.all(amplified <= published_rdp(counts, noise, SMALL_ORDERS) * (1 + 1e-5))


@settings(max_examples=30)
@given(data=st.data())
def test_rdp_is_above_the_exact_divergence_of_any_gradients(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(2, 7))
    batch = data.draw(st.integers(1, nodes))
    occurrences = data.draw(st.integers(1, nodes))
    gradient = st.floats(-1, 1, allow_nan=False)
    before = np.array(data.draw(st.lists(gradient, min_size=nodes, max_size=nodes)))
    after = before.copy()
    after[:occurrences] = data.draw(st.lists(gradient, min_size=occurrences, max_size=occurrences))
    noise = data.draw(st.floats(0.5, 4))
    counts = NodeSampling(nodes, batch, occurrences).counts()
    exact = exact_divergence(before, after, batch, noise)
    assert np.all(exact <= amplified_rdp(counts, noise, SMALL_ORDERS) + 1e-9)


@pytest.mark.parametrize("bound", [published_rdp, amplified_rdp])
def test_rdp_with_either_gap_open_is_below_an_exact_divergence(bound) -> None:
    """The control: one occurrence too few, or a gradient that moves by C, does not cover what happens."""
    nodes, batch, noise = 8, 7, 3.0
    before, after = np.zeros(nodes), np.zeros(nodes)
    before[:2], after[:2] = 1.0, -1.0
    exact = exact_divergence(before, after, batch, noise)
    assert np.all(exact <= bound(NodeSampling(nodes, batch, 2).counts(), noise, SMALL_ORDERS))
    assert np.all(exact > bound(NodeSampling(nodes, batch, 1).counts(), noise, SMALL_ORDERS))
    assert np.all(exact > bound(NodeSampling(nodes, batch, 2).counts(), 2 * noise, SMALL_ORDERS))


def test_rdp_of_all_nodes_in_each_batch_is_the_gaussian_mechanism() -> None:
    counts = NodeSampling(50, 50, 3).counts()
    gaussian = SMALL_ORDERS * (2 * 3) ** 2 / (2 * 4.0**2)
    for bound in (published_rdp, amplified_rdp):
        assert bound(counts, 4.0, SMALL_ORDERS) == pytest.approx(gaussian, rel=1e-5)


def test_counts_are_hypergeometric() -> None:
    for nodes, batch, occurrences in ((100, 30, 5), (10, 8, 5), (NODES, BATCH, 21)):
        counts = NodeSampling(nodes, batch, occurrences).counts()
        expected = hypergeom(nodes, occurrences, batch).logpmf(counts.rho)
        # SciPy goes by the logarithm of the beta function, of which large populations leave seven digits.
        assert counts.log_p == pytest.approx(expected, abs=1e-5)
        assert np.exp(counts.log_p).sum() == pytest.approx(1, rel=1e-11)


def test_least_noise_meets_the_budget_and_hardly_less_does_not() -> None:
    sampling = NodeSampling(20_000, 512, 11)
    noise = least_noise(sampling, steps=40, epsilon=4.0, delta=1 / 20_000)
    assert node_cost(sampling, noise, steps=40, delta=1 / 20_000).epsilon <= 4.0
    assert node_cost(sampling, noise / 1.003, steps=40, delta=1 / 20_000).epsilon > 4.0


def test_node_accounting_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="batch = 9; expected 1 to 8"):
        NodeSampling(8, 9, 1)
    with pytest.raises(ValueError, match="occurrences = 0"):
        NodeSampling(8, 1, 0)
    with pytest.raises(ValueError, match="noise = 0"):
        node_cost(NodeSampling(8, 1, 1), 0.0, steps=1, delta=0.1)
    with pytest.raises(ValueError, match="delta = 1"):
        node_cost(NodeSampling(8, 1, 1), 1.0, steps=1, delta=1.0)
    with pytest.raises(ValueError, match="fewer steps"):
        least_noise(NodeSampling(8, 8, 8), steps=10**6, epsilon=1e-3, delta=1e-9)
