"""Pairs of columns out of a junction forest: the same as from the whole table, in tables no larger than a clique."""

import tracemalloc

import numpy as np
import pytest

from mechanisms import tree_pairs
from mechanisms.domain import Domain, Integer
from mechanisms.tree_pairs import TreePairs


def chain(
    sizes: list[int], width: int, seed: int
) -> tuple[Domain, list, list[int], list, np.ndarray | None]:  # type: ignore[type-arg]
    """Cliques of ``width`` columns that share all but one with the next, their marginals, and the whole table."""
    rng = np.random.default_rng(seed)
    names = [f"c{i}" for i in range(len(sizes))]
    domain = Domain(tuple(Integer(n, 0, s - 1, s) for n, s in zip(names, sizes, strict=True)))
    cliques = [tuple(names[i : i + width]) for i in range(len(sizes) - width + 1)]
    joint = rng.dirichlet(np.full(int(np.prod(sizes[:width])), 0.5)).reshape(sizes[:width])
    marginals, whole = [joint], joint
    for i in range(1, len(cliques)):
        given = rng.dirichlet(np.ones(sizes[i + width - 1]), sizes[i : i + width - 1])
        marginals.append(marginals[-1].sum(axis=0)[..., None] * given)
        if whole.size * sizes[i + width - 1] < 10**6:
            whole = whole[..., None] * given
    return domain, cliques, [-1, *range(len(cliques) - 1)], marginals, whole


@pytest.mark.parametrize("long", [1, 5, 10**9])
@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_pairs_are_those_of_the_whole_table(
    width: int, seed: int, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_pairs, "LONG", long)
    sizes = np.random.default_rng(seed).integers(2, 5, 7).tolist()
    domain, cliques, parents, marginals, whole = chain(sizes, width, seed)
    assert whole is not None
    assert whole.ndim == 7
    # The order of a clique's columns is any.
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(width) for _ in cliques]
    pairs = TreePairs(
        domain,
        [tuple(clique[o] for o in order) for clique, order in zip(cliques, orders, strict=True)],
        parents,
        [marginal.transpose(order) for marginal, order in zip(marginals, orders, strict=True)],
    )
    for i, name in enumerate(domain.names):
        apart = {o for o in domain.names if not any({name, o} <= set(c) for c in cliques)}
        found = pairs.of(name, apart)
        assert set(found) == apart
        for other in apart:
            np.testing.assert_array_equal(pairs.of(name, {other})[other], found[other])
        for other, table in found.items():
            j = domain.index(other)
            exact = whole.sum(axis=tuple(k for k in range(7) if k not in (i, j)))
            np.testing.assert_allclose(table, exact if i < j else exact.T, atol=1e-12)


def test_no_table_is_much_larger_than_a_clique() -> None:
    """Separators of 3,600 cells: a matrix from one to the next would have 13 million, 100 MB."""
    domain, cliques, parents, marginals, _ = chain([60, 60, 60, 60, 60], 3, 1)
    pairs = TreePairs(domain, cliques, parents, marginals)
    tracemalloc.start()
    try:
        found = pairs.of("c0", {"c3", "c4"})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found["c4"].sum() == pytest.approx(1)
    assert peak < 16 * max(marginal.nbytes for marginal in marginals)
