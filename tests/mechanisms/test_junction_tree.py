"""Junction trees: those that mbi builds, to the order of their cliques; and what makes a tree one."""

import itertools
from functools import cache
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.domain import Clique, Domain
from mechanisms.junction_tree import cells_with_each, junction_tree, model_cells
from tests.mechanisms.tables import domain_of

DOMAINS = [domain_of(3, 2, 4, 2, 3), domain_of(2, 2, 2, 2, 2, 2), domain_of(9, 7, 5, 3, 2)]


@cache
def mbi() -> ModuleType:
    """mbi, whose import asks for settings of JAX by warnings."""
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
    with jax.enable_x64(True):
        import mbi

    return mbi


def their_tree(domain: Domain, cliques: list[Clique]) -> tuple[tuple[Clique, ...], tuple[int, ...]]:
    """The cliques of mbi's tree, depth first, and the position of each one's parent."""
    graph, _ = mbi().junction_tree.make_junction_tree(
        mbi().Domain(domain.names, domain.shape), cliques
    )
    found = tuple(mbi().junction_tree.maximal_cliques(graph))
    position = {clique: i for i, clique in enumerate(found)}
    parents = [
        [position[n] for n in graph.neighbors(clique) if position[n] < i]
        for i, clique in enumerate(found)
    ]
    return found, tuple(above[0] if above else -1 for above in parents)


def drawn_cliques(data: st.DataObject, domain: Domain, longest: int) -> list[Clique]:
    every = [q for k in range(1, longest + 1) for q in itertools.combinations(domain.names, k)]
    return data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=9))


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("longest", [2, 3])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_junction_tree_is_mbis(domain: Domain, longest: int, data: st.DataObject) -> None:
    cliques = drawn_cliques(data, domain, longest)
    assert junction_tree(domain, cliques) == their_tree(domain, cliques)


@pytest.mark.parametrize("domain", DOMAINS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_junction_tree_has_every_clique_and_the_running_intersection(
    domain: Domain, data: st.DataObject
) -> None:
    contained = drawn_cliques(data, domain, 4)
    cliques, parents = junction_tree(domain, contained)
    for clique in [*contained, *((name,) for name in domain.names)]:
        assert any(set(clique) <= set(larger) for larger in cliques)
    for i, clique in enumerate(cliques):
        before = set().union(*cliques[:i]) if i else set()
        above = set(cliques[parents[i]]) if parents[i] >= 0 else set()
        # What a clique shares with any earlier one it shares with its parent.
        assert set(clique) & before == set(clique) & above


def test_junction_tree_of_pairs_that_form_a_tree_adds_nothing() -> None:
    # The greedy order would begin in the middle, where columns are small, and join c0 and c4.
    domain = domain_of(90, 2, 2, 2, 90)
    path = list(itertools.pairwise(domain.names))
    assert sorted(junction_tree(domain, path)[0]) == sorted(path)


@pytest.mark.parametrize("domain", DOMAINS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_model_cells_are_those_of_mbis_tree(domain: Domain, data: st.DataObject) -> None:
    cliques = drawn_cliques(data, domain, 3)
    size_mb = mbi().junction_tree.hypothetical_model_size(
        mbi().Domain(domain.names, domain.shape), cliques
    )
    assert model_cells(domain)(cliques) == round(size_mb * 2**20 / 8)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(2, 40), min_size=2, max_size=14),
    longest=st.integers(2, 3),
    data=st.data(),
)
def test_cells_with_each_are_those_with_every_candidate_by_itself(
    shape: list[int], longest: int, data: st.DataObject
) -> None:
    """Equal sizes make ties, which decide the order: both have to break them alike."""
    domain = domain_of(*shape)
    every = [q for k in range(1, longest + 1) for q in itertools.combinations(domain.names, k)]
    measured = data.draw(st.lists(st.sampled_from(every), max_size=20))
    cells = model_cells(domain)
    expected = [cells([*measured, candidate]) for candidate in every]
    assert cells_with_each(domain, measured, every).tolist() == expected


def test_cells_with_each_of_nothing_are_none() -> None:
    assert cells_with_each(domain_of(2, 3), [("c0",)], []).size == 0
