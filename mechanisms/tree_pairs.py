"""Marginals of pairs of columns outside all cliques of a junction forest, several pairs of a column at a time.

All values here are public.

From the cliques that have column a, the table P(a, separator) is passed from clique to clique, times P(next columns |
separator): products of small matrices. Each pair takes one such product, while a contraction of its own first searches
for an order: with 41 columns and 780 pairs a tenth of the time. Source: Koller, Friedman 2009, section 10.3.3
(out-of-clique queries). Limits: pairs; larger sets are contractions (``model.Model.answers``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.contraction import LONG
from mechanisms.domain import Clique, Domain

Table = NDArray[np.float64]


class TreePairs:
    """Pairs of a calibrated forest: ``cliques`` with ``marginals`` and their ``parents``, as in ``model.Model``.

    Intermediate results of a clique are kept for the lifetime of the object.
    """

    def __init__(
        self,
        domain: Domain,
        cliques: Sequence[Clique],
        parents: Sequence[int],
        marginals: Sequence[Table],
    ) -> None:
        self._domain = domain
        self._cliques = cliques
        self._marginals = marginals
        self._links: list[list[int]] = [[] for _ in cliques]
        for i, parent in enumerate(parents):
            if parent >= 0:
                self._links[i].append(parent)
                self._links[parent].append(i)
        self._sums: dict[tuple[int, Clique], Table] = {}
        self._behind: dict[tuple[int, int], frozenset[str]] = {}
        self._conditionals: dict[tuple[int, Clique, Clique], Table] = {}

    def __repr__(self) -> str:
        return f"TreePairs(cliques={len(self._cliques)})"

    def of(self, name: str, others: Collection[str]) -> dict[str, Table]:
        """Returns P(``name``, b), of shape (n_name, n_b), for each b of ``others``, in no clique with ``name``."""
        found: dict[str, Table] = {}
        for i, separator, table in self._passed(name, others):
            for b in self._cliques[i]:
                if b in others and b not in separator and b not in found:
                    found[b] = self._carried(table, i, separator, (b,))
        alone = self._single(name)
        for b in others:
            if b not in found:
                found[b] = np.outer(alone, self._single(b))
        return found

    def _passed(self, name: str, others: Collection[str]) -> Iterator[tuple[int, Clique, Table]]:
        """Yields cliques without ``name`` in its tree, the separator that leads to each, and P(name, separator).

        They are those on the way to ``others``.
        """
        holders = [i for i, clique in enumerate(self._cliques) if name in clique]
        waiting: list[tuple[int, int, Clique, Table]] = []
        for i in holders:
            for j in self._links[i]:
                if name not in self._cliques[j] and not self._beyond(i, j).isdisjoint(others):
                    shared = self._shared(i, j)
                    table = self.marginal(i, (name, *shared))
                    waiting.append((i, j, shared, table.reshape(table.shape[0], -1)))
        while waiting:
            before, i, separator, table = waiting.pop()
            yield i, separator, table
            for j in self._links[i]:
                if j != before and not self._beyond(i, j).isdisjoint(others):
                    shared = self._shared(i, j)
                    waiting.append((i, j, shared, self._carried(table, i, separator, shared)))

    def _beyond(self, i: int, j: int) -> frozenset[str]:
        """Returns the columns that are in clique j or behind it, as seen from clique i beside it, and not in i."""
        waiting = [] if (i, j) in self._behind else [(i, j)]
        # A chain of cliques is deeper than Python's stack.
        while waiting:
            near, far = waiting[-1]
            further = [(far, k) for k in self._links[far] if k != near]
            lacking = [edge for edge in further if edge not in self._behind]
            waiting += lacking
            if not lacking:
                waiting.pop()
                here = frozenset(self._cliques[far]).difference(self._cliques[near])
                self._behind[near, far] = here.union(*(self._behind[edge] for edge in further))
        return self._behind[i, j]

    def _carried(self, table: Table, i: int, separator: Clique, target: Clique) -> Table:
        """Returns P(name, ``target``), (n_name, cells), from P(name, ``separator``) and P(target | separator).

        The conditional is that of clique i. Columns in both are the same in both: one matrix product for each of their
        cells, or loops over them where they are many, so that no table is larger than the clique. 0 where the separator
        has probability 0.
        """
        kept = tuple(name for name in target if name in separator)
        summed = tuple(name for name in separator if name not in target)
        fresh = tuple(name for name in target if name not in separator)
        size, place = self._domain.size, lambda name: separator.index(name) + 1
        given = table.reshape(-1, *self._domain.sizes(separator))
        if size(kept) >= LONG:
            given = given.transpose([0, *map(place, summed + kept)])
            given = given.reshape(len(table), size(summed), size(kept))
            product = np.einsum("ask,sfk->afk", given, self._given(i, (summed, fresh, kept), fresh))
            names = fresh + kept
        else:
            given = given.transpose([*map(place, kept), 0, *map(place, summed)])
            given = given.reshape(size(kept), len(table), size(summed))
            product = given @ self._given(i, (kept, summed, fresh), fresh)
            product = product.transpose(1, 0, 2)
            names = kept + fresh
        result = product.reshape(-1, *self._domain.sizes(names))
        places = [names.index(name) + 1 for name in target]
        return np.ascontiguousarray(result.transpose([0, *places])).reshape(len(result), -1)

    def _given(self, i: int, groups: Sequence[Clique], fresh: Clique) -> Table:
        """Returns P(``fresh`` | the other groups) in clique i, with an axis for each of the groups."""
        shape = tuple(map(self._domain.size, groups))
        key = (i, sum(groups, ()), fresh)
        if key not in self._conditionals:
            joint = self.marginal(i, key[1]).reshape(shape)
            given = joint.sum(axis=groups.index(fresh), keepdims=True)
            self._conditionals[key] = np.divide(
                joint, given, out=np.zeros_like(joint), where=given > 0
            )
        # The same columns in the same order, for every division of them.
        return self._conditionals[key].reshape(shape)

    def _single(self, name: str) -> Table:
        i = min(
            (i for i, clique in enumerate(self._cliques) if name in clique),
            key=lambda i: self._marginals[i].size,
        )
        return self.marginal(i, (name,))

    def _shared(self, i: int, j: int) -> Clique:
        return tuple(name for name in self._cliques[i] if name in self._cliques[j])

    def marginal(self, i: int, names: Clique) -> Table:
        """Returns the marginal of ``names``, with their axes in that order, from clique i.

        One column at a time is summed out, the one with the most cells first, and what is left is kept: all pairs of a
        clique need its whole table three times.
        """
        clique = self._cliques[i]
        kept = tuple(name for name in clique if name in names)
        if len(kept) == len(clique):
            table = self._marginals[i]
        elif (i, kept) in self._sums:
            table = self._sums[i, kept]
        else:
            last = min((name for name in clique if name not in kept), key=self._order)
            before = tuple(name for name in clique if name in kept or name == last)
            table = np.asarray(self.marginal(i, before).sum(axis=before.index(last)))
            self._sums[i, kept] = table
        return table if names == kept else table.transpose([kept.index(name) for name in names])

    def _order(self, name: str) -> tuple[int, int]:
        """Returns a number of a column; the column with the least one is summed out last."""
        return self._domain.size((name,)), self._domain.index(name)
