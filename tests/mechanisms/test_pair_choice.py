"""The choice of a model's pairs: those that noise cannot explain enter, the others do not."""

import asyncio
import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.descent import Target
from mechanisms.domain import Categorical, Domain
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.model import Model
from mechanisms.pair_choice import PairsEstimator, flaim_estimator, projected
from mechanisms.pgm import FederatedEstimator
from mechanisms.workload import Workload, count_marginals

NAMES = "abcde"
ROWS = 20_000


def domain_of(size: int = 4) -> Domain:
    values = tuple(str(value) for value in range(size))
    return Domain(tuple(Categorical(name, values) for name in NAMES))


WORKLOAD = Workload(domain_of(), tuple(itertools.combinations(NAMES, 2)))


def table() -> NDArray[np.int32]:
    """Column b is nearly a, and d nearly c; e is by itself."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 4, (ROWS, 5))
    for column, source in ((1, 0), (3, 2)):
        copied = rng.random(ROWS) < 0.8
        codes[copied, column] = codes[copied, source]
    return codes.astype(np.int32)


def targets_of(sigma: float, seed: int = 6) -> list[tuple[int, Target]]:
    rng, expanded = np.random.default_rng(seed), WORKLOAD.expand(count_marginals(table(), WORKLOAD))
    targets = []
    for i, clique in enumerate(WORKLOAD.candidates):
        counts = expanded[WORKLOAD.slice(i)].astype(float)
        noisy = counts + rng.normal(0, sigma, counts.size)
        shaped = noisy.reshape(WORKLOAD.domain.sizes(clique)) / ROWS
        targets.append((i, Target(shaped, (ROWS / sigma) ** 2)))
    return targets


def fitted(sigma: float, *, final: bool = True, max_model_mb: float = 80.0) -> Model:
    estimator = PairsEstimator(
        WORKLOAD, iterations=25, final_iterations=100, max_model_mb=max_model_mb
    )
    model, _ = asyncio.run(estimator.estimate(targets_of(sigma), spent=1.0, final=final))
    return model


def test_pairs_enter_that_noise_cannot_explain() -> None:
    model = fitted(50.0)
    for pair in (("a", "b"), ("c", "d")):
        assert any(set(pair) <= set(clique) for clique in model.cliques)
    (found, real) = (
        model.answers([("a", "b")])[0],
        WORKLOAD.expand(count_marginals(table(), WORKLOAD)),
    )
    expected = real[WORKLOAD.slice(WORKLOAD.candidates.index(("a", "b")))].reshape(4, 4) / ROWS
    assert np.abs(found - expected).sum() < 0.03


def test_pairs_stay_out_that_the_columns_explain() -> None:
    even = [(q, np.full((4,) * len(q), 0.25 ** len(q))) for q in WORKLOAD.candidates]
    targets = [(i, Target(mean, 1e6)) for i, (_, mean) in enumerate(even)]
    estimator = PairsEstimator(WORKLOAD, iterations=25, final_iterations=100)
    model, _ = asyncio.run(estimator.estimate(targets, spent=1.0, final=True))
    assert all(len(clique) == 1 for clique in model.cliques)


def test_pairs_stay_out_of_models_that_are_not_final_or_full() -> None:
    assert all(len(clique) == 1 for clique in fitted(50.0, final=False).cliques)
    assert all(len(clique) == 1 for clique in fitted(50.0, max_model_mb=0.0001).cliques)


def test_projected_is_the_nearest_distribution() -> None:
    rng = np.random.default_rng(7)
    for size in (1, 2, 5, 40):
        marginal = rng.normal(1 / size, 0.5, (size, 2))
        found = projected(marginal)
        assert found.shape == marginal.shape
        assert (found >= 0).all()
        assert math.isclose(found.sum(), 1.0)
        # The conditions of Karush, Kuhn and Tucker: one shift, and only what is cut lies below it.
        shift = (marginal - found)[found > 0]
        assert np.allclose(shift, shift[0])
        assert (marginal[found == 0] <= shift[0] + 1e-12).all()


@pytest.mark.parametrize("variant", ["pairs", "private"])
def test_flaim_estimator_is_that_of_the_variant(variant: str) -> None:
    estimator = flaim_estimator(WORKLOAD, FlaimSettings.preset(variant, rho=0.1))
    expected = PairsEstimator if variant == "pairs" else FederatedEstimator
    assert type(estimator) is expected
