"""Marginals that a refresh measures, beside the earlier model: changes are noticed, and noise alone is none.

Statistical tests are seeded. With the right earlier model a run says of no marginal that it changed, in 95 of 100 runs;
400 runs are refused with a chance of 1e-3 if 5 % became 9 %. The control is a bound without its tail.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.changes import changes
from mechanisms.intervals import Released
from mechanisms.model import Model
from mechanisms.workload import draw_workload
from tests.mechanisms.tables import domain_of

DOMAIN = domain_of(4, 5, 3)
WORKLOAD = draw_workload(DOMAIN, 2, None)
JOINT = np.random.default_rng(3).dirichlet(np.full(DOMAIN.size(DOMAIN.names), 0.4))
EARLIER = Model(DOMAIN, (DOMAIN.names,), (-1,), (JOINT.reshape(DOMAIN.shape),))
ROWS = 4000


def released(
    shares: NDArray[np.float64], seed: int, *, sigma: float = 15.0, rows: int = ROWS
) -> list[Released]:
    rng, now = np.random.default_rng([seed, 8]), shares.reshape(DOMAIN.shape)
    model = Model(DOMAIN, (DOMAIN.names,), (-1,), (now,))
    return [
        Released(
            i,
            i,
            rows * answer.reshape(-1) + rng.normal(0, sigma, answer.size),
            sigma,
            frozenset({0}),
        )
        for i, answer in enumerate(model.answers(WORKLOAD.candidates))
    ]


@pytest.mark.parametrize("rows", [300, ROWS])
def test_noise_alone_is_no_change(rows: int) -> None:
    wrong = [
        any(c.changed for c in changes(WORKLOAD, EARLIER, released(JOINT, seed, rows=rows)))
        for seed in range(400)
    ]
    assert np.mean(wrong) < 0.09


def test_a_change_is_noticed_where_it_is_and_its_size_is_told() -> None:
    moved = JOINT.reshape(DOMAIN.shape).copy()
    # The third column alone, independent of the others.
    moved = moved.sum(axis=2, keepdims=True) * np.array([0.6, 0.3, 0.1])
    found = {c.clique: c for c in changes(WORKLOAD, EARLIER, released(moved.reshape(-1), 1))}
    third = DOMAIN.names[2]
    assert {clique for clique, c in found.items() if c.changed} == {q for q in found if third in q}
    before = JOINT.reshape(DOMAIN.shape).sum(axis=(0, 1))
    true = np.abs(before - moved.sum(axis=(0, 1))).sum() / 2
    one = found[third,]
    assert abs(one.apart - true) < 3 * one.noise


def test_the_least_noisy_measurement_of_a_marginal_is_compared() -> None:
    some = [released(JOINT, 1)[0], released(JOINT, 2, sigma=1.0)[0], released(JOINT, 3)[0]]
    (one,) = changes(WORKLOAD, EARLIER, some)
    assert one.noise < 0.001
