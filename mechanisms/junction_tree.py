"""Junction trees: the cliques of a graphical model, and their tree.

``junction_tree`` builds one; ``model_cells`` and ``cells_with_each`` compute the size of one.

All values here are public; they depend only on the set of measured marginals.

Representation: sets of columns are whole numbers, bit i for the domain's column i.

Source: Shafer, Shenoy 1990; Koller, Friedman 2009, chapter 10. Columns are eliminated in a greedy order (the one with
the smallest clique, the first of equals), and the tree is a spanning tree of the cliques with the most columns in
common, ties in the order of their names. It is the tree that ``mbi`` 2.0 builds, to the order of its cliques.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique, Domain

_AT_ONCE = 512
"""Candidates processed together: about 50 MB with 300 columns."""


def junction_tree(
    domain: Domain, contained: Sequence[Clique]
) -> tuple[tuple[Clique, ...], tuple[int, ...]]:
    """Returns the maximal cliques of a forest that covers ``contained``, depth first, with each one's parent position.

    Parents come before their children; a root has -1. A column that is in none of ``contained`` is a clique of its own.
    The forest covers the cliques of the domain's structural zeros, too.
    """
    factors = _bit_sets(domain, contained)
    edges = {a | b for factor in factors for a, b in itertools.combinations(_bits(factor), 2)}
    # Pairs that make a tree need no further edges, which a greedy order might add.
    maximal = edges if edges and _is_tree(domain, edges) else _eliminated(domain, factors)
    names = domain.names
    cliques = sorted(tuple(n for i, n in enumerate(names) if c >> i & 1) for c in maximal)
    return _depth_first(cliques, _spanning_edges(cliques))


def model_cells(domain: Domain) -> Callable[[Sequence[Clique]], int]:
    """Returns a function from cliques to the number of cells of their junction tree, in the greedy order."""
    size = _sizes(domain)

    def cells(cliques: Sequence[Clique]) -> int:
        return sum(map(size, _eliminated(domain, _bit_sets(domain, cliques), size)))

    return cells


def cells_with_each(
    domain: Domain, cliques: Sequence[Clique], candidates: Sequence[Clique]
) -> NDArray[np.float64]:
    """Returns ``model_cells`` of ``cliques`` with each candidate, float64 (candidates,); rounded from 2^53 on.

    All candidates at once: each step eliminates a column in every one of them.
    """
    found = [
        _cells_with(domain, cliques, candidates[i : i + _AT_ONCE])
        for i in range(0, len(candidates), _AT_ONCE)
    ]
    return np.concatenate([np.zeros(0), *found])


def _cells_with(
    domain: Domain, cliques: Sequence[Clique], candidates: Sequence[Clique]
) -> NDArray[np.float64]:
    """Computes the cells as ``_eliminated`` does, in the same order."""
    count, columns = len(candidates), len(domain.names)
    shape = np.array(domain.shape, np.float64)
    # joined[c, i]: the columns that the factors of candidate c join to column i.
    joined = np.tile(np.eye(columns, dtype=np.bool_), (count, 1, 1))
    for clique in (*cliques, *domain.scopes):
        places = [domain.index(name) for name in clique]
        joined[:, np.array(places)[:, None], places] = True
    for c, candidate in enumerate(candidates):
        own = [domain.index(name) for name in candidate]
        joined[c, np.array(own)[:, None], own] = True
    sizes = np.where(joined, shape, 1).prod(axis=2)
    each, total = np.arange(count), np.zeros(count)
    before = np.zeros((count, columns, -(-columns // 8)), np.uint8)
    for step in range(columns):
        column = sizes.argmin(axis=1)
        clique = joined[each, column]
        packed = np.packbits(clique, axis=1)
        inside = (before[:, :step] & packed[:, None] == packed[:, None]).all(axis=2).any(axis=1)
        total += np.where(inside, 0, np.where(clique, shape, 1).prod(axis=1))
        before[:, step] = packed
        sizes[each, column] = np.inf
        others = clique.copy()
        others[each, column] = False
        rows, left = np.nonzero(others)
        joined[rows, left] |= clique[rows]
        joined[rows, left, column[rows]] = False
        sizes[rows, left] = np.where(joined[rows, left], shape, 1).prod(axis=1)
    return total


def _bit_sets(domain: Domain, cliques: Iterable[Clique]) -> set[int]:
    """Returns the cliques, and those that the domain's structural zeros are on, as sets of bits."""
    position = {name: 1 << i for i, name in enumerate(domain.names)}
    every = itertools.chain(cliques, domain.scopes)
    return {sum(position[name] for name in clique) for clique in every}


def _bits(columns: int) -> list[int]:
    return [1 << i for i in range(columns.bit_length()) if columns >> i & 1]


def _sizes(domain: Domain) -> Callable[[int], int]:
    @cache
    def size(columns: int) -> int:
        return math.prod(n for i, n in enumerate(domain.shape) if columns >> i & 1)

    return size


def _eliminated(
    domain: Domain, factors: set[int], size: Callable[[int], int] | None = None
) -> list[int]:
    """Returns the maximal cliques made by eliminating the columns in the greedy order."""
    size = size or _sizes(domain)
    left = [1 << i for i in range(len(domain.names))]
    joined = {bit: bit for bit in left}
    for factor in factors:
        for bit in _bits(factor):
            joined[bit] |= factor
    sizes = {bit: size(columns) for bit, columns in joined.items()}
    maximal: list[int] = []
    while left:
        # Eliminating a column joins all its factors to one clique, and leaves the clique without the column: the other
        # columns of the clique are joined to all of it, which includes all that they shared with the eliminated column.
        bit = min(left, key=sizes.__getitem__)
        clique = joined[bit]
        if not any(clique & other == clique for other in maximal):
            maximal.append(clique)
        left.remove(bit)
        for other in _bits(clique & ~bit):
            joined[other] = (joined[other] | clique) & ~bit
            sizes[other] = size(joined[other])
    return maximal


def _is_tree(domain: Domain, edges: set[int]) -> bool:
    """Returns whether the pairs of columns in ``edges`` connect all columns without a cycle."""
    forest = _Forest(len(domain.names))
    ends = [[bit.bit_length() - 1 for bit in _bits(edge)] for edge in edges]
    return len(edges) == len(domain.names) - 1 and all(forest.join(a, b) for a, b in ends)


def _spanning_edges(cliques: Sequence[Clique]) -> list[tuple[int, int]]:
    """Returns Kruskal's maximal spanning forest, by the number of columns that two cliques share."""
    shared = [
        (-len(set(a) & set(b)), i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(cliques), 2)
    ]
    forest = _Forest(len(cliques))
    return [(i, j) for weight, i, j in sorted(shared) if weight and forest.join(i, j)]


def _depth_first(
    cliques: Sequence[Clique], edges: Sequence[tuple[int, int]]
) -> tuple[tuple[Clique, ...], tuple[int, ...]]:
    """Returns the cliques, depth first from the first of each tree in the order of ``edges``, and their parents."""
    neighbours: list[list[int]] = [[] for _ in cliques]
    for i, j in edges:
        neighbours[i].append(j)
        neighbours[j].append(i)
    order: list[int] = []
    parents: list[int] = []
    placed = set[int]()
    for root in range(len(cliques)):
        waiting = [] if root in placed else [(root, -1)]
        while waiting:
            clique, parent = waiting.pop()
            position = len(order)
            order.append(clique)
            parents.append(parent)
            placed.add(clique)
            # The clique added last comes next; there are no cycles.
            below = [n for n in reversed(neighbours[clique]) if n not in placed]
            waiting += [(n, position) for n in below]
    return tuple(cliques[i] for i in order), tuple(parents)


class _Forest:
    """Union-find structure of ``count`` nodes."""

    def __init__(self, count: int) -> None:
        self._roots = list(range(count))

    def join(self, a: int, b: int) -> bool:
        """Connects two nodes; returns False if they were connected."""
        first, second = self._root(a), self._root(b)
        self._roots[second] = first
        return first != second

    def _root(self, node: int) -> int:
        while self._roots[node] != node:
            node = self._roots[node]
        return node
