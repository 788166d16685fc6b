"""Marginals of pairs of columns that no clique of a junction forest has together, all pairs of a column at a time.

Provides ``TreePairs``. Public: everything.

From the cliques that have column a, the table P(a, separator) is passed on from clique to clique: times P(next columns
| separator), a product of two small matrices. Each pair takes one such product, where a contraction of its own looks
for an order first: with 41 columns and 780 pairs a tenth of the time. Source: Koller, Friedman 2009, section 10.3.3
(out-of-clique queries). Limits: pairs; larger sets are contractions (``model.Model.answers``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique, Domain

Table = NDArray[np.float64]


class TreePairs:
    """The pairs of a calibrated forest: ``cliques`` with ``marginals`` and their ``parents``, as ``model.Model`` has.

    What is computed of a clique is kept as long as this is.
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
        self._steps: dict[tuple[int, Clique, Clique], Table] = {}

    def __repr__(self) -> str:
        return f"TreePairs(cliques={len(self._cliques)})"

    def of(self, name: str) -> dict[str, Table]:
        """P(``name``, b), of shape (n_name, n_b), by each column b that no clique has together with ``name``."""
        found: dict[str, Table] = {}
        seen = {other for clique in self._cliques if name in clique for other in clique}
        for i, separator, table in self._passed(name):
            for b in self._cliques[i]:
                if b not in seen and b not in separator:
                    seen.add(b)
                    found[b] = table @ self._step(i, separator, (b,))
        alone = self._single(name)
        for b in self._domain.names:
            if b not in seen:
                found[b] = np.outer(alone, self._single(b))
        return found

    def _passed(self, name: str) -> Iterator[tuple[int, Clique, Table]]:
        """Each clique without ``name`` in its tree, the separator by which it is reached, and P(name, separator)."""
        holders = [i for i, clique in enumerate(self._cliques) if name in clique]
        waiting: list[tuple[int, int, Clique, Table]] = []
        for i in holders:
            for j in self._links[i]:
                if name not in self._cliques[j]:
                    shared = self._shared(i, j)
                    table = self._summed(i, (name, *shared))
                    waiting.append((i, j, shared, table.reshape(table.shape[0], -1)))
        while waiting:
            before, i, separator, table = waiting.pop()
            yield i, separator, table
            for j in self._links[i]:
                if j != before:
                    shared = self._shared(i, j)
                    waiting.append((i, j, shared, table @ self._step(i, separator, shared)))

    def _step(self, i: int, separator: Clique, target: Clique) -> Table:
        """P(``target`` | ``separator``) in clique i, (cells of the separator, cells of the target).

        Columns that are in both are the same in both. 0 where the separator has probability 0.
        """
        key = (i, separator, target)
        if key not in self._steps:
            fresh = tuple(name for name in target if name not in separator)
            joint = self._summed(i, separator + fresh)
            given = joint.sum(axis=tuple(range(len(separator), joint.ndim)), keepdims=True)
            table = np.divide(joint, given, out=np.zeros_like(joint), where=given > 0)
            cells, new = self._domain.size(separator), self._domain.size(fresh)
            # Rows of the separator, and in each the target's cells: those of its shared columns that are the row's own.
            sizes = [self._domain.sizes((name,))[0] for name in target]
            rows = np.indices(self._domain.sizes(separator)).reshape(len(separator), cells)
            news = np.indices(self._domain.sizes(fresh)).reshape(len(fresh), new)
            place = np.zeros((cells, new), np.int64)
            for name, size in zip(target, sizes, strict=True):
                code = (
                    rows[separator.index(name)][:, None]
                    if name in separator
                    else news[fresh.index(name)][None, :]
                )
                place = place * size + code
            step = np.zeros((cells, self._domain.size(target)))
            np.put_along_axis(step, place, table.reshape(cells, new), axis=1)
            self._steps[key] = step
        return self._steps[key]

    def _single(self, name: str) -> Table:
        i = min(
            (i for i, clique in enumerate(self._cliques) if name in clique),
            key=lambda i: self._marginals[i].size,
        )
        return self._summed(i, (name,))

    def _shared(self, i: int, j: int) -> Clique:
        return tuple(name for name in self._cliques[i] if name in self._cliques[j])

    def _summed(self, i: int, names: Clique) -> Table:
        """The marginal of ``names``, with their axes in that order, out of clique i."""
        key = (i, names)
        if key not in self._sums:
            clique, marginal = self._cliques[i], self._marginals[i]
            away = tuple(axis for axis, name in enumerate(clique) if name not in names)
            kept = [name for name in clique if name in names]
            summed = marginal.sum(axis=away)
            self._sums[key] = np.asarray(summed.transpose([kept.index(name) for name in names]))
        return self._sums[key]
