"""Contraction of a junction tree's tables: its marginals, its size, and structural zeros."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms import contraction
from mechanisms.contraction import Contraction, Underflow
from mechanisms.inference import JunctionTree
from mechanisms.junction_tree import junction_tree
from mechanisms.tree_pairs import TreePairs
from tests.mechanisms.tables import domain_of
from tests.mechanisms.test_inference import DOMAIN, brute_force, cliques_of_domain

HUB = domain_of(8, *[6] * 6)


@pytest.mark.parametrize("long", [1, 10**9])
@settings(max_examples=30, deadline=None)
@given(contained=cliques_of_domain, seed=st.integers(0, 2**32))
def test_both_ways_to_multiply_give_the_marginals_of_the_whole_product(
    long: int, contained: list[tuple[str, ...]], seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contraction, "LONG", long)
        tree = JunctionTree(DOMAIN, contained)
        rng = np.random.default_rng(seed)
        potentials = {q: rng.normal(0, 2, DOMAIN.sizes(q)) for q in contained}
        found = tree.answers_under(potentials)
    for clique, answer in found.items():
        assert answer.shape == DOMAIN.sizes(clique)
        assert np.allclose(answer, brute_force(potentials, (clique,))[0], atol=1e-12)


def test_no_table_is_as_large_as_a_clique_of_many_pairs() -> None:
    hub, *others = HUB.names
    tree = JunctionTree(HUB, [*((hub, other) for other in others), tuple(others)])
    (clique,) = tree.shapes
    assert math.prod(clique) == 8 * 6**6
    assert max(map(HUB.size, tree._contraction._columns)) == 6**6
    assert tree._contraction.products <= 2 * math.prod(clique)


def test_small_tables_are_multiplied_before_large_ones() -> None:
    """By the costs of products; in another order it takes 7,650 of them."""
    domain = domain_of(10, 50, 3, 50, 2)
    places = ((0, 1), (1, 3), (3, 4), (1, 4), (2, 3))
    pairs = [(domain.names[a], domain.names[b]) for a, b in places]
    assert JunctionTree(domain, pairs)._contraction.products == 5250


@pytest.mark.parametrize("hub", [True, False])
def test_a_hub_and_a_chain_of_many_columns_take_a_step_or_two_a_table(hub: bool) -> None:
    """Pairs of one hub are alike once summed; a chain of cliques is deeper than Python's stack."""
    domain = domain_of(*[2] * 600)
    names = domain.names
    pairs = [(names[0] if hub else before, name) for before, name in itertools.pairwise(names)]
    tree = JunctionTree(domain, pairs)
    answers = tree.answers_under({pair: np.log([[4.0, 1], [1, 4]]) for pair in pairs})
    assert len(tree._contraction._steps) <= 2 * len(pairs)
    assert all(np.allclose(answer, [[0.4, 0.1], [0.1, 0.4]]) for answer in answers.values())
    links = TreePairs(domain, tree.cliques, tree.parents, [answers[q] for q in tree.cliques])
    (found,) = links.of(names[1], {names[-1]}).values()
    np.testing.assert_allclose(found, [[0.34, 0.16], [0.16, 0.34]] if hub else 0.25, atol=1e-12)


def test_a_table_that_is_no_number_or_all_zero_is_refused() -> None:
    pair = DOMAIN.names[:2]
    cliques, parents = junction_tree(DOMAIN, [pair])
    sizes = dict(zip(DOMAIN.names, DOMAIN.shape, strict=True))
    one = Contraction(sizes, [pair], [cliques.index(pair)], cliques=cliques, parents=parents)
    assert np.allclose(one.marginals([np.ones((3, 2))])[0], 1 / 6)
    for table in (np.zeros((3, 2)), np.full((3, 2), np.nan), np.full((3, 2), np.inf)):
        with pytest.raises(Underflow):
            one.marginals([table])
