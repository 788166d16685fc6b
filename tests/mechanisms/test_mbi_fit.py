"""Fits by mbi: the same model as ours, from where the last one ended, with structural zeros and unequal variances."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mechanisms.descent import Target
from mechanisms.domain import Domain
from mechanisms.mbi_fit import mbi_descent
from mechanisms.pgm import fit_targets

SIZES = {"a": 2, "b": 3, "c": 4}
COLUMNS = [
    {"name": name, "kind": "categorical", "categories": [f"{name}{i}" for i in range(size)]}
    for name, size in SIZES.items()
]
DOMAIN = Domain.from_dict({"column": COLUMNS})
RNG = np.random.default_rng(5)
TRUTH = RNG.dirichlet(np.ones(24)).reshape(2, 3, 4)


def targets(*, noise: float = 0.01, even: bool = True) -> dict[tuple[str, ...], Target]:
    """Noisy marginals (a, b), (b, c) and b; uneven ones have their own weight in each cell."""
    found = {}
    for clique, mean in {
        ("a", "b"): TRUTH.sum(2),
        ("b", "c"): TRUTH.sum(0),
        ("b",): TRUTH.sum((0, 2)),
    }.items():
        noisy = mean + RNG.normal(0, noise, mean.shape)
        weight: float | NDArray[np.float64] = 1 / noise**2
        if not even:
            weight = RNG.uniform(0.2, 2.0, mean.shape) / noise**2
        found[clique] = Target(noisy, weight)
    return found


@pytest.mark.parametrize("even", [True, False])
def test_mbi_finds_the_model_that_ours_finds(even: bool) -> None:
    given = targets(even=even)
    ours, _ = fit_targets(DOMAIN, given, iterations=2000)
    theirs, potentials = fit_targets(DOMAIN, given, iterations=2000, descent=mbi_descent)
    assert {q: p.shape for q, p in potentials.items()} == {
        q: t.mean.shape for q, t in given.items()
    }
    for one, other in zip(ours.answers([*given]), theirs.answers([*given]), strict=True):
        assert np.abs(one - other).max() < 1e-3
        assert other.sum() == pytest.approx(1.0)


def test_mbi_goes_on_from_earlier_potentials() -> None:
    """A block from the optimum stays there; one from nothing is still far from it."""
    given = targets()
    told: list[tuple[int, int]] = []
    best, potentials = fit_targets(DOMAIN, given, iterations=2000, descent=mbi_descent)
    again, _ = fit_targets(
        DOMAIN,
        given,
        iterations=60,
        start=potentials,
        descent=mbi_descent,
        on_iteration=lambda done, of: told.append((done, of)),
    )
    fresh, _ = fit_targets(DOMAIN, given, iterations=1, descent=mbi_descent)
    query = [("b", "c")]
    assert np.abs(again.answers(query)[0] - best.answers(query)[0]).max() < 1e-3
    assert told == [(0, 60), (50, 60), (60, 60)]
    assert np.isfinite(fresh.answers(query)[0]).all()


def test_mbi_keeps_structural_zeros() -> None:
    zero = {"never": "a = a0 and b = b2"}
    domain = Domain.from_dict({"column": COLUMNS, "constraint": [zero]})
    assert domain.zeros
    given = targets(noise=0.05)
    ours, _ = fit_targets(domain, given, iterations=3000)
    theirs, _ = fit_targets(domain, given, iterations=3000, descent=mbi_descent)
    answers = theirs.answers([("a", "b"), ("b", "c")])
    assert answers[0][0, 2] == 0
    assert answers[0][1, 2] > 0
    for one, other in zip(ours.answers([("a", "b"), ("b", "c")]), answers, strict=True):
        assert np.abs(one - other).max() < 2e-3
