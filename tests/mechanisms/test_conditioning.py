"""Models under conditions are the enumerated joint under them, and rows drawn so have that distribution.

The statistical test: 20,000 rows drawn under a condition, in the cells of the whole domain, against the enumerated
conditional distribution by Pearson's chi-square, at a level of 1e-6 for each of ten models: a false alarm in fewer than
1e-5 of all runs. Rows are spread evenly within cliques, so that the statistic is smaller than that of independent rows.
The control: rows drawn without the condition, which must be refused.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from mechanisms.conditioning import DRAWN, _patterns, conditioned, fill, fill_possible
from mechanisms.errors import ConditionError
from mechanisms.junction_tree import junction_tree
from mechanisms.model import Model
from mechanisms.sampling import public_generator
from tests.mechanisms.tables import domain_of

ALARM = 1e-6


def random_model(
    seed: int, *, zeros: float = 0.2, most: int = 5
) -> tuple[Model, NDArray[np.float64]]:
    """A model over up to ``most`` columns with random cliques, and its joint distribution."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, rng.integers(1, most + 1))
    domain = domain_of(*map(int, sizes))
    count = len(sizes)
    wanted = []
    for _ in range(rng.integers(1, 5)):
        places = sorted(rng.choice(count, min(count, int(rng.integers(1, 4))), replace=False))
        wanted.append(tuple(domain.names[place] for place in places))
    cliques, parents = junction_tree(domain, wanted)
    joint = np.ones(domain.shape)
    for clique in cliques:
        potential = rng.random(domain.sizes(clique)) + 1e-3
        potential *= rng.random(potential.shape) >= zeros
        joint = joint * potential.reshape(
            [size if name in clique else 1 for name, size in zip(domain.names, sizes, strict=True)]
        )
    if not joint.sum():
        return random_model(seed + 1_000_003, zeros=0.0, most=most)
    joint /= joint.sum()
    marginals = tuple(
        joint.sum(axis=tuple(i for i, name in enumerate(domain.names) if name not in clique))
        for clique in cliques
    )
    return Model(domain, cliques, parents, marginals), joint


def random_evidence(model: Model, seed: int) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng([seed, 1])
    return {
        name: rng.random(size) * (rng.random(size) < 0.7)
        for name, size in zip(model.domain.names, model.domain.shape, strict=True)
        if rng.random() < 0.6
    }


def under(
    model: Model, joint: NDArray[np.float64], evidence: dict[str, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """The joint distribution times the evidence, not normalised."""
    for axis, name in enumerate(model.domain.names):
        if name in evidence:
            shape = [-1 if i == axis else 1 for i in range(joint.ndim)]
            joint = joint * evidence[name].reshape(shape)
    return joint


@given(seed=st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_conditioned_is_the_enumerated_joint_under_the_evidence(seed: int) -> None:
    model, joint = random_model(seed)
    evidence = random_evidence(model, seed)
    wanted = under(model, joint, evidence)
    if not wanted.sum():
        with pytest.raises(ConditionError, match="its probability is 0"):
            conditioned(model, evidence)
        return
    found = conditioned(model, evidence)
    assert found.probability == pytest.approx(wanted.sum(), rel=1e-9)
    wanted = wanted / wanted.sum()
    names = model.domain.names
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    for clique, marginal in zip(
        [*model.cliques, *pairs], [*found.model.marginals, *found.model.answers(pairs)], strict=True
    ):
        axes = tuple(i for i, name in enumerate(names) if name not in clique)
        assert marginal == pytest.approx(wanted.sum(axis=axes), abs=1e-9)


def test_conditioned_without_evidence_is_the_model() -> None:
    model, _ = random_model(3)
    found = conditioned(model, {})
    assert found.probability == 1.0
    for one, other in zip(found.model.marginals, model.marginals, strict=True):
        assert one == pytest.approx(other, abs=1e-12)


def test_conditioned_holds_probabilities_that_no_product_of_doubles_does() -> None:
    columns = 300
    domain = domain_of(*[2] * columns)
    half = np.array([1e-3, 1 - 1e-3])
    model = Model(domain, tuple((n,) for n in domain.names), (-1,) * columns, (half,) * columns)
    found = conditioned(model, dict.fromkeys(domain.names, np.array([1.0, 0.0])))
    assert (
        found.probability == 0.0
    )  # Less than the smallest double, and no error: rows can be drawn.
    assert not found.model.sample(5, public_generator(1)).any()


def _chi_square(codes: NDArray[np.int32], shares: NDArray[np.float64]) -> float:
    """The p-value of rows (rows, columns) against a joint distribution; 0 if a row has probability 0."""
    counts = np.bincount(np.ravel_multi_index(tuple(codes.T), shares.shape), minlength=shares.size)
    expected = shares.reshape(-1) * len(codes)
    if counts[expected <= 0].any():
        return 0.0
    # Cells with few expected rows are one cell together.
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    kept = wanted > 0
    if kept.sum() < 2:
        return 1.0
    statistic = float(((observed[kept] - wanted[kept]) ** 2 / wanted[kept]).sum())
    return float(stats.chi2.sf(statistic, int(kept.sum()) - 1))


@pytest.mark.parametrize("seed", range(10))
def test_rows_under_a_condition_have_the_conditional_distribution(seed: int) -> None:
    model, joint = random_model(seed + 50, zeros=0.0)
    last = model.domain.names[-1]
    evidence = {last: np.linspace(0.05, 1, model.domain.shape[-1]) ** 3}
    wanted = under(model, joint, evidence)
    wanted /= wanted.sum()
    codes = conditioned(model, evidence).model.sample(20_000, public_generator(seed))
    assert _chi_square(codes, wanted) > ALARM
    if model.domain.shape[-1] > 1:
        plain = model.sample(20_000, public_generator(seed))
        assert _chi_square(plain, wanted) < ALARM


@pytest.mark.parametrize("seed", range(10))
def test_filled_rows_have_the_conditional_distribution_of_their_own_columns(seed: int) -> None:
    model, joint = random_model(seed + 80, zeros=0.0)
    rng = np.random.default_rng(seed)
    # Columns given at random in each row, from rows of another distribution than the model's.
    rows = 20_000
    whole = np.stack([rng.integers(0, size, rows) for size in joint.shape], axis=1).astype(np.int32)
    mask = rng.random(joint.ndim) < 0.5
    codes = fill(model, np.where(mask, whole, np.int32(DRAWN)), public_generator(seed))
    assert (codes[:, mask] == whole[:, mask]).all()
    free = tuple(int(i) for i in np.flatnonzero(~mask))
    by_given = joint.sum(axis=free, keepdims=True)
    counts = np.zeros(joint.shape)
    np.add.at(counts, tuple(codes.T), 1)
    wanted = joint / by_given * counts.sum(axis=free, keepdims=True) / rows
    assert _chi_square(codes, wanted) > ALARM


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_fill_keeps_what_is_given_and_draws_what_the_model_has(seed: int) -> None:
    model, joint = random_model(seed)
    rng = np.random.default_rng(seed)
    drawn = model.sample(40, public_generator(seed))
    given_codes = np.where(rng.random(drawn.shape) < 0.5, drawn, np.int32(DRAWN)).astype(np.int32)
    codes = fill(model, given_codes, public_generator(seed))
    kept = given_codes != DRAWN
    assert (codes[kept] == given_codes[kept]).all()
    assert (joint[tuple(codes.T)] > 0).all()


def test_fill_names_the_rows_for_which_nothing_can_be_drawn() -> None:
    domain = domain_of(2, 2, 3)
    a, b, c = domain.names
    model = Model(domain, ((a, b), (c,)), (-1, -1), (np.diag([0.5, 0.5]), np.full(3, 1 / 3)))
    rows = np.array([[0, 0, DRAWN], [0, 1, DRAWN], [DRAWN, 1, 2], [1, 0, 0]], np.int32)
    with pytest.raises(ConditionError, match=r"2 of 4 rows .* number 2, 4; expected"):
        fill(model, rows, public_generator(1))
    assert fill(model, rows[[0, 2]], public_generator(1))[1].tolist() == [1, 1, 2]
    # Of a pattern of given columns no row may be possible.
    codes, impossible = fill_possible(model, rows[[1]], public_generator(1))
    assert codes.tolist() == rows[[1]].tolist()
    assert impossible.tolist() == [0]
    assert math.isclose(conditioned(model, {c: np.array([1.0, 0, 0])}).probability, 1 / 3)


@pytest.mark.parametrize("most", [0, 3, 5_000, 10**12])
def test_patterns_are_numbered_as_by_sorting(most: int) -> None:
    """By a table of small values and by sorting large ones: ranks, and the first row of each."""
    rng = np.random.default_rng(most)
    for rows in (1, 7, 4_000):
        parts = [rng.integers(0, most, rows, endpoint=True) for _ in range(3)]
        found, first = _patterns(parts)
        _, expected_first, expected = np.unique(
            np.stack(parts, axis=1), axis=0, return_index=True, return_inverse=True
        )
        np.testing.assert_array_equal(found, expected.reshape(-1))
        np.testing.assert_array_equal(first, expected_first)
