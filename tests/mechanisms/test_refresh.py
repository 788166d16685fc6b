"""A refreshed model keeps what did not change, and follows what did.

Statistical tests are seeded. Their controls: the same measurements without an earlier model, and an earlier model of
another table, which has to be given up.
"""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.aim import Measurement
from mechanisms.descent import Target
from mechanisms.metrics import table_answers, workload_error
from mechanisms.model import Model
from mechanisms.pgm import CELLS_PER_MB, allowed_now, fit
from mechanisms.refresh import Refresh, kept_relations, loosened, shrunk, softened
from mechanisms.workload import draw_workload
from tests.mechanisms.tables import domain_of

DOMAIN = domain_of(4, 5, 3, 4)
WORKLOAD = draw_workload(DOMAIN, 2, None)
ROWS, SIGMA = 4000, 20.0
PAIRS = [i for i, q in enumerate(WORKLOAD.candidates) if len(q) == 2]
ONES = [i for i, q in enumerate(WORKLOAD.candidates) if len(q) == 1]


def table(seed: int, *, turned: bool = False) -> NDArray[np.int32]:
    """Rows whose columns follow a hidden number; ``turned`` around, every second one."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(ROWS, 1)) + 0.6 * rng.normal(size=(ROWS, 4))
    codes = np.stack(
        [
            np.searchsorted(np.quantile(column, np.arange(1, size) / size), column)
            for column, size in zip(hidden.T, DOMAIN.shape, strict=True)
        ],
        axis=1,
    )
    if turned:
        codes[:, 1::2] = np.array(DOMAIN.shape)[1::2] - 1 - codes[:, 1::2]
    return codes.astype(np.int32)


def measured(codes: NDArray[np.int32], which: list[int], seed: int) -> list[Measurement]:
    rng, real = np.random.default_rng([seed, 1]), table_answers(WORKLOAD, codes)
    return [
        Measurement(int(i in PAIRS), i, counts + rng.normal(0, SIGMA, counts.size), SIGMA, 1)
        for i in which
        for counts in [real[WORKLOAD.slice(i)]]
    ]


def error(model: Model, codes: NDArray[np.int32]) -> float:
    answers = np.concatenate([a.reshape(-1) for a in model.answers(WORKLOAD.candidates)])
    return workload_error(WORKLOAD, table_answers(WORKLOAD, codes), answers * len(codes))


def fitted(measurements: list[Measurement], refresh: Refresh | None = None) -> Model:
    return fit(WORKLOAD, measurements, iterations=300, refresh=refresh)[0]


EARLIER = fitted(measured(table(0), [*ONES, *PAIRS], 0))
REFRESH = Refresh(EARLIER)


def test_a_refresh_keeps_the_relations_that_were_not_measured_again() -> None:
    codes = table(1)
    refreshed = fitted(measured(codes, ONES, 1), REFRESH)
    assert error(refreshed, codes) < error(fitted(measured(codes, ONES, 1)), codes) / 3
    assert error(refreshed, codes) < 1.2 * error(EARLIER, codes)


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_refresh_of_a_table_that_did_not_change_is_nearer_than_a_fresh_model(seed: int) -> None:
    codes = table(seed)
    chosen = measured(codes, [*ONES, *PAIRS[:2]], seed)
    assert error(fitted(chosen, REFRESH), codes) < 0.3 * error(fitted(chosen), codes)
    everything = measured(codes, [*ONES, *PAIRS], seed)
    assert error(fitted(everything, REFRESH), codes) < 1.1 * error(fitted(everything), codes)


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_refresh_of_quite_another_table_is_hardly_worse_than_a_fresh_model(seed: int) -> None:
    codes = table(seed, turned=True)
    tree = [i for i in PAIRS if "c0" in WORKLOAD.candidates[i]]
    chosen = measured(codes, [*ONES, *tree], seed)
    assert error(fitted(chosen, REFRESH), codes) < 1.1 * error(fitted(chosen), codes)
    # The control: the earlier relations are wrong here.
    assert error(EARLIER, codes) > 2 * error(fitted(chosen), codes)


def test_relations_are_kept_where_they_are_confirmed_and_given_up_where_they_are_not() -> None:
    def kept(codes: NDArray[np.int32], which: list[int]) -> dict[str, float]:
        found = {
            WORKLOAD.candidates[m.candidate]: Target(
                m.noisy.reshape(DOMAIN.sizes(WORKLOAD.candidates[m.candidate])) / ROWS,
                (ROWS / SIGMA) ** 2,
            )
            for m in measured(codes, which, 3)
        }
        return kept_relations(EARLIER, found)

    assert min(kept(table(3), PAIRS).values()) > 0.9
    alone = np.random.default_rng(5).permuted(table(3), axis=0)
    assert max(kept(alone, PAIRS).values()) < 0.2
    # One column alone: the others' relations stay, more than its own.
    one = table(3)
    one[:, 2] = np.random.default_rng(6).permutation(one[:, 2])
    found = kept(one, PAIRS)
    assert found["c2"] < min(found[name] for name in ("c0", "c1", "c3")) / 2
    assert kept(table(3), []) == dict.fromkeys(DOMAIN.names, 1.0)


def test_a_measured_marginal_stays_at_the_answer_as_far_as_noise_explains_the_difference() -> None:
    rng = np.random.default_rng(1)
    answer, sigma = np.full(50, 0.02), 0.004
    off = []
    for _ in range(200):
        noisy = answer + rng.normal(0, sigma, 50)
        moved = shrunk(Target(noisy, sigma**-2), answer)
        assert np.linalg.norm(moved.mean - answer) < np.linalg.norm(noisy - answer)
        off.append(np.square(moved.mean - answer).sum() / np.square(noisy - answer).sum())
    assert np.mean(off) < 0.1
    # A change far beyond the noise stays.
    real = rng.dirichlet(np.ones(50))
    moved = shrunk(Target(real, (sigma / 100) ** -2), answer)
    assert np.abs(moved.mean - real).max() < 1e-4


@pytest.mark.parametrize(
    "change", [softened, lambda m: loosened(m, {"c0": 0.3, "c1": 0.0, "c2": 1.0, "c3": 0.5})]
)
def test_cliques_agree_after_a_change_of_the_model(change) -> None:  # type: ignore[no-untyped-def]
    made = change(EARLIER)
    assert all(np.isclose(marginal.sum(), 1.0) for marginal in made.marginals)
    for (i, one), (j, other) in itertools.combinations(enumerate(made.cliques), 2):
        shared = set(one) & set(other)
        sums = [
            made.marginals[k].sum(
                axis=tuple(a for a, n in enumerate(made.cliques[k]) if n not in shared)
            )
            for k in (i, j)
        ]
        np.testing.assert_allclose(*sums, atol=1e-12)
    assert min(float(marginal.min()) for marginal in softened(EARLIER).marginals) > 0


def test_the_earlier_model_has_room_from_the_beginning() -> None:
    size = EARLIER.cells / CELLS_PER_MB
    model = fitted(measured(table(1), ONES, 1), REFRESH)
    inside = allowed_now(WORKLOAD, model, {}, max_model_mb=size, spent=0.0, refresh=REFRESH)
    assert inside.all()
    ones = [WORKLOAD.candidates[i] for i in ONES]
    fresh = fitted(measured(table(1), ONES, 1))
    none = allowed_now(WORKLOAD, fresh, dict.fromkeys(ones), max_model_mb=size, spent=0.0)
    assert not none[PAIRS].any()
