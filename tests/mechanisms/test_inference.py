"""Inference in a junction tree against brute force, and its underflow."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mechanisms.contraction import Underflow
from mechanisms.domain import Clique
from mechanisms.inference import JunctionTree
from tests.mechanisms.tables import domain_of

DOMAIN = domain_of(3, 2, 4, 2, 3)
CLIQUES = [q for k in (1, 2, 3) for q in itertools.combinations(DOMAIN.names, k)]
cliques_of_domain = st.lists(st.sampled_from(CLIQUES), min_size=1, max_size=7, unique=True)


def brute_force(
    potentials: dict[Clique, NDArray[np.float64]], cliques: tuple[Clique, ...]
) -> list[NDArray[np.float64]]:
    """The marginals of the whole distribution, cell by cell."""
    total = np.zeros(DOMAIN.shape)
    for clique, potential in potentials.items():
        axes = tuple(i for i, name in enumerate(DOMAIN.names) if name not in clique)
        total += np.expand_dims(potential, axes)
    whole = np.exp(total - total.max())
    whole /= whole.sum()
    return [
        whole.sum(axis=tuple(i for i, n in enumerate(DOMAIN.names) if n not in clique))
        for clique in cliques
    ]


@settings(max_examples=40, deadline=None)
@given(cliques_of_domain, st.integers(0, 2**32), st.sampled_from([0.1, 3.0, 200.0]))
def test_marginals_are_those_of_the_whole_distribution(
    contained: list[Clique], seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    potentials = {q: rng.normal(0, spread, DOMAIN.sizes(q)) for q in contained}
    tree = JunctionTree(DOMAIN, contained)
    found = tree.marginals(potentials)
    for marginal, exact in zip(found, brute_force(potentials, tree.cliques), strict=True):
        assert np.allclose(marginal, exact, atol=1e-11)
    answers = tree.answers(found)
    assert set(answers) == set(contained)
    for clique, answer in answers.items():
        assert np.allclose(answer, brute_force(potentials, (clique,))[0], atol=1e-11)
    for clique, answer in tree.answers_under(potentials).items():
        assert np.allclose(answer, answers[clique], atol=1e-11)


@pytest.mark.parametrize("apart", [2000.0, 720.0])
def test_marginals_survive_cliques_that_disagree_by_more_than_a_double_holds(apart: float) -> None:
    # e^-720 is a double of eleven bits.
    contained = [("c0", "c1"), ("c1", "c2")]
    rng = np.random.default_rng(3)
    left, right = rng.normal(0, 1, (3, 2)), rng.normal(0, 1, (2, 4))
    left[:, 0] -= apart
    right[1, :] -= apart
    tree = JunctionTree(DOMAIN, contained)
    home = {tree._above[q][0]: table for q, table in zip(contained, (left, right), strict=True)}
    assert tree._in_products([[home[i]] if i in home else [] for i in range(4)]) is None
    potentials = dict(zip(contained, (left, right), strict=True))
    found = tree.marginals(potentials)
    for marginal, exact in zip(found, brute_force(potentials, tree.cliques), strict=True):
        assert np.allclose(marginal, exact, atol=1e-12)
    with pytest.raises(Underflow):
        tree._contraction.marginals([np.exp(left - left.max()), np.exp(right - right.max())])
    for clique, answer in tree.answers_under(potentials).items():
        assert np.allclose(answer, brute_force(potentials, (clique,))[0], atol=1e-12)


def test_marginals_are_no_numbers_when_a_potential_is_none() -> None:
    tree = JunctionTree(DOMAIN, [("c0", "c1"), ("c1", "c2")])
    found = tree.marginals({("c0", "c1"): np.full((3, 2), np.nan)})
    assert all(np.isnan(marginal).all() for marginal in found)
    answers = tree.answers_under({("c0", "c1"): np.full((3, 2), np.nan)})
    assert all(np.isnan(answer).all() for answer in answers.values())


@settings(max_examples=40, deadline=None)
@given(cliques_of_domain, st.integers(0, 2**32), st.sampled_from([0.1, 3.0, 700.0]))
def test_the_log_partition_is_that_of_the_whole_distribution(
    contained: list[Clique], seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    potentials = {q: rng.normal(0, spread, DOMAIN.sizes(q)) for q in contained}
    total = np.zeros(DOMAIN.shape)
    for clique, potential in potentials.items():
        axes = tuple(i for i, name in enumerate(DOMAIN.names) if name not in clique)
        total += np.expand_dims(potential, axes)
    exact = total.max() + np.log(np.exp(total - total.max()).sum())
    assert JunctionTree(DOMAIN, contained).log_partition(potentials) == pytest.approx(exact)
