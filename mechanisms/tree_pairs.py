"""Marginals of pairs of columns outside all cliques of a junction forest, all pairs of a column at a time.

All values here are public.

From the cliques that have column a, the table P(a, separator) is passed from clique to clique, times P(next columns |
separator): products of small matrices. Each pair takes one such product, while a contraction of its own first searches
for an order: with 41 columns and 780 pairs a tenth of the time. Source: Koller, Friedman 2009, section 10.3.3
(out-of-clique queries). Limits: pairs; larger sets are contractions (``model.Model.answers``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

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
        self._conditionals: dict[tuple[int, Clique, Clique], Table] = {}

    def __repr__(self) -> str:
        return f"TreePairs(cliques={len(self._cliques)})"

    def of(self, name: str) -> dict[str, Table]:
        """Returns P(``name``, b), of shape (n_name, n_b), for each column b that shares no clique with ``name``."""
        found: dict[str, Table] = {}
        seen = {other for clique in self._cliques if name in clique for other in clique}
        for i, separator, table in self._passed(name):
            for b in self._cliques[i]:
                if b not in seen and b not in separator:
                    seen.add(b)
                    found[b] = self._carried(table, i, separator, (b,))
        alone = self._single(name)
        for b in self._domain.names:
            if b not in seen:
                found[b] = np.outer(alone, self._single(b))
        return found

    def _passed(self, name: str) -> Iterator[tuple[int, Clique, Table]]:
        """Yields each clique without ``name`` in its tree, the separator that leads to it, and P(name, separator)."""
        holders = [i for i, clique in enumerate(self._cliques) if name in clique]
        waiting: list[tuple[int, int, Clique, Table]] = []
        for i in holders:
            for j in self._links[i]:
                if name not in self._cliques[j]:
                    shared = self._shared(i, j)
                    table = self.marginal(i, (name, *shared))
                    waiting.append((i, j, shared, table.reshape(table.shape[0], -1)))
        while waiting:
            before, i, separator, table = waiting.pop()
            yield i, separator, table
            for j in self._links[i]:
                if j != before:
                    shared = self._shared(i, j)
                    waiting.append((i, j, shared, self._carried(table, i, separator, shared)))

    def _carried(self, table: Table, i: int, separator: Clique, target: Clique) -> Table:
        """Returns P(name, ``target``), (n_name, cells), from P(name, ``separator``) and P(target | separator).

        The conditional is that of clique i. Columns in both are the same in both: one matrix product for each of their
        cells, so that no table is larger than the clique. 0 where the separator has probability 0.
        """
        kept = tuple(name for name in target if name in separator)
        summed = tuple(name for name in separator if name not in target)
        fresh = tuple(name for name in target if name not in separator)
        sizes = [self._domain.size(names) for names in (kept, summed, fresh)]
        ordered = [separator.index(name) + 1 for name in kept + summed]
        given = table.reshape(-1, *self._domain.sizes(separator))
        given = given.transpose([*ordered[: len(kept)], 0, *ordered[len(kept) :]])
        product = given.reshape(sizes[0], -1, sizes[1]) @ self._given(i, kept, summed, fresh)
        result = product.transpose(1, 0, 2).reshape(-1, *self._domain.sizes(kept + fresh))
        places = [(kept + fresh).index(name) + 1 for name in target]
        return np.ascontiguousarray(result.transpose([0, *places])).reshape(len(result), -1)

    def _given(self, i: int, kept: Clique, summed: Clique, fresh: Clique) -> Table:
        """Returns P(``fresh`` | ``kept``, ``summed``) in clique i: (cells of kept, of summed, of fresh)."""
        key = (i, kept + summed, fresh)
        if key not in self._conditionals:
            joint = self.marginal(i, kept + summed + fresh).reshape(
                *(self._domain.size(names) for names in (kept, summed, fresh))
            )
            given = joint.sum(axis=2, keepdims=True)
            self._conditionals[key] = np.divide(
                joint, given, out=np.zeros_like(joint), where=given > 0
            )
        # The same columns in the same order, for every division of them.
        return self._conditionals[key].reshape(
            *(self._domain.size(names) for names in (kept, summed, fresh))
        )

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
