"""Estimates of the number of rows from released sums."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.errors import EstimationError
from mechanisms.totals import GrowingTotal, NoisyTotal, rows_per_client

TOTALS = st.lists(
    st.builds(
        NoisyTotal,
        rows=st.floats(-1e6, 1e6),
        variance=st.floats(1e-3, 1e9),
        clients=st.integers(1, 10_000),
    ),
    min_size=1,
    max_size=20,
)


def test_rows_per_client_weights_sums_by_variance_and_clients() -> None:
    both = [NoisyTotal(100, 16, 2), NoisyTotal(500, 16, 5)]
    assert rows_per_client(both) == pytest.approx((100 * 2 + 500 * 5) / (4 + 25))
    better = [NoisyTotal(100, 4, 1), NoisyTotal(200, 16, 1)]
    assert rows_per_client(better) == pytest.approx((100 + 200 / 4) / (1 + 1 / 4))


def test_rows_per_client_is_kept_positive() -> None:
    assert rows_per_client([NoisyTotal(-50, 16, 4)]) == 1 / 4


@pytest.mark.parametrize("estimate", [rows_per_client, GrowingTotal])
def test_rows_are_unknown_without_totals(estimate: type) -> None:
    with pytest.raises(EstimationError, match="nothing was measured"):
        estimate([])


def dense(totals: Sequence[NoisyTotal], clients: int) -> float:
    """The conditional expectation of N(clients), by linear algebra on all totals at once."""
    rate = rows_per_client(totals)
    counted = np.array([t.clients for t in totals], float)
    off = np.array([t.rows for t in totals]) - rate * counted
    observed = rate**2 * np.minimum.outer(counted, counted)
    observed += np.diag([t.variance for t in totals])
    with_them = rate**2 * np.minimum(counted, clients)
    return max(1.0, rate * clients + float(with_them @ np.linalg.solve(observed, off)))


@given(totals=TOTALS, clients=st.integers(1, 12_000))
def test_growing_total_is_the_conditional_expectation(
    totals: list[NoisyTotal], clients: int
) -> None:
    found = GrowingTotal(totals).at(clients)
    size = max(abs(t.rows) for t in totals) + rows_per_client(totals) * clients
    assert found >= 1
    assert found == pytest.approx(dense(totals, clients), rel=1e-6, abs=1e-6 * size)


@given(totals=TOTALS)
def test_growing_total_does_not_depend_on_the_order(totals: list[NoisyTotal]) -> None:
    clients = max(t.clients for t in totals)
    assert GrowingTotal(totals).at(clients) == GrowingTotal(totals[::-1]).at(clients)


def test_growing_total_follows_precise_sums_of_unequal_clients() -> None:
    # The first ten clients have 9,000 rows, the next ninety 100 each.
    totals = [NoisyTotal(9_000, 100, 10), NoisyTotal(18_000, 100, 100)]
    found = GrowingTotal(totals)
    assert [found.at(10), found.at(100)] == pytest.approx([9_000, 18_000], rel=1e-3)
    assert rows_per_client(totals) * 10 < 2_000


def test_growing_total_outweighs_imprecise_sums() -> None:
    totals = [NoisyTotal(1_000, 10, 10), NoisyTotal(-40_000, 1e10, 20), NoisyTotal(3_000, 10, 30)]
    assert GrowingTotal(totals).at(20) == pytest.approx(2_000, rel=0.01)


def test_growing_total_goes_on_at_the_average_rate() -> None:
    totals = [NoisyTotal(1_000, 1, 10)] * 3
    found = GrowingTotal(totals)
    assert [found.at(10), found.at(15)] == pytest.approx([1_000, 1_500])


def test_growing_total_is_at_least_one_row() -> None:
    assert GrowingTotal([NoisyTotal(-50, 16, 4)]).at(4) == 1.0


def test_growing_total_is_closer_than_one_rate_for_all() -> None:
    # Sizes of clients are exponential, one precise sum of the first ten and noisy ones later. Mean squared
    # errors of 200 runs; the seed is fixed, and for thirty others the ratio was between 0.02 and 0.04.
    rng = np.random.default_rng(5)
    growing = flat = 0.0
    for _ in range(200):
        true = np.cumsum(rng.exponential(400, 100))
        deviations = [30.0] + [1_000.0] * 9
        totals = [
            NoisyTotal(true[k - 1] + rng.normal(0, s), s * s, k)
            for k, s in zip(range(10, 101, 10), deviations, strict=True)
        ]
        growing += (GrowingTotal(totals).at(50) - true[49]) ** 2
        flat += (rows_per_client(totals) * 50 - true[49]) ** 2
    assert growing < 0.1 * flat
    assert math.sqrt(growing / 200) < 1_000
