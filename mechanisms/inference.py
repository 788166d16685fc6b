"""Exact inference in a junction tree, on NumPy.

``JunctionTree`` computes marginals under log potentials: those of the contained cliques (``answers_under``), by which a
model is fitted, and those of its own cliques, which a model keeps.

All values here are public, as post-processing of released measurements.

Representation: each potential is exponentiated, relative to its largest entry, before it is spread over its clique;
messages are products and sums of those, each divided by its largest entry. ``answers_under`` does not spread them:
``contraction`` multiplies them where they are small. If that underflows (a distribution whose cliques disagree by
hundreds of nats) the same messages are computed on logarithms.

Source: Shafer, Shenoy 1990; Jensen et al. 1990 (the division on the way down).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.constraints.zeros import allowed_in
from mechanisms.contraction import SMALLEST, Contraction, Underflow
from mechanisms.domain import Clique, Domain
from mechanisms.junction_tree import junction_tree

Table: TypeAlias = NDArray[np.float64]

# The logarithm of a structural zero: far below all potentials, whose sums stay exact to 1e-5; its exponential is 0.
_FORBIDDEN = -1e10


@dataclass(frozen=True, slots=True)
class _Edge:
    """Clique ``child`` below ``parent``: the axes of each that are not shared, and the shapes to broadcast to."""

    child: int
    parent: int
    child_axes: tuple[int, ...]
    parent_axes: tuple[int, ...]
    child_shape: tuple[int, ...]
    parent_shape: tuple[int, ...]


class JunctionTree:
    """The junction forest whose cliques contain ``contained`` (`mechanisms.junction_tree`).

    ``cliques`` are its maximal cliques, depth first; ``parents[i]`` is the position of i's parent, before i, or -1;
    ``shapes`` are the shapes of their tables. ``domain`` has all columns. The base measure of a row is 0 where the
    domain has a structural zero, else 1.
    """

    def __init__(self, domain: Domain, contained: Sequence[Clique]) -> None:
        self.cliques, self.parents = junction_tree(domain, contained)
        self.shapes = [domain.sizes(clique) for clique in self.cliques]
        self.domain = domain
        self._allowed = [allowed_in(clique, domain.zeros) for clique in self.cliques]
        # The source of each answer and the destination of each potential, larger cliques first: the smallest other
        # clique that contains it, or else a clique of the tree; and the additional axes of that clique.
        self._above: dict[Clique, tuple[Clique | int, tuple[int, ...]]] = {
            q: self._find_above(q, contained) for q in sorted(contained, key=len, reverse=True)
        }
        self._edges = [self._edge(i, j) for i, j in enumerate(self.parents) if j >= 0]

    def _find_above(
        self, clique: Clique, contained: Sequence[Clique]
    ) -> tuple[Clique | int, tuple[int, ...]]:
        larger = [other for other in contained if set(clique) < set(other)]
        if larger:
            above = min(larger, key=self.domain.size)
            return above, tuple(a for a, name in enumerate(above) if name not in clique)
        home = self._home(clique)
        return home, tuple(a for a, n in enumerate(self.cliques[home]) if n not in clique)

    def _home(self, columns: Sequence[str]) -> int:
        """Returns the position of the smallest clique of the tree that contains some columns."""
        homes = [i for i, other in enumerate(self.cliques) if set(columns) <= set(other)]
        return min(homes, key=lambda i: math.prod(self.shapes[i]))

    @cached_property
    def _tops(self) -> dict[Clique, int]:
        """Contained cliques that are in no larger one, with the position of the tree's clique that has them."""
        return {q: above for q, (above, _) in self._above.items() if isinstance(above, int)}

    @cached_property
    def _contraction(self) -> Contraction:
        """The contraction of one table for each of ``_tops``, and of the domain's structural zeros."""
        zeros = [scope.columns for scope in self.domain.zeros]
        return Contraction(
            dict(zip(self.domain.names, self.domain.shape, strict=True)),
            [*self._tops, *zeros],
            [*self._tops.values(), *map(self._home, zeros)],
            cliques=self.cliques,
            parents=self.parents,
        )

    def _edge(self, child: int, parent: int) -> _Edge:
        below, above = self.cliques[child], self.cliques[parent]
        return _Edge(
            child,
            parent,
            tuple(a for a, name in enumerate(below) if name not in above),
            tuple(a for a, name in enumerate(above) if name not in below),
            tuple(
                n if name in above else 1 for n, name in zip(self.shapes[child], below, strict=True)
            ),
            tuple(
                n if name in below else 1
                for n, name in zip(self.shapes[parent], above, strict=True)
            ),
        )

    def marginals(self, potentials: Mapping[Clique, Table]) -> list[Table]:
        """Returns the cliques' marginals, of sum 1, under the sum of log potentials of contained cliques.

        The marginals are NaN if a potential is.
        """
        placed = self._placed(potentials)
        beliefs = self._in_products(placed)
        return self._in_logarithms(placed) if beliefs is None else beliefs

    def log_partition(self, potentials: Mapping[Clique, Table]) -> float:
        """Returns the log partition function: the log of the sum over all rows of e^(sum of the log potentials)."""
        beliefs = self._log_base()
        for belief, tables in zip(beliefs, self._placed(potentials), strict=True):
            for table in tables:
                belief += table
        for edge in reversed(self._edges):
            message = _log_sum(beliefs[edge.child], edge.child_axes)
            beliefs[edge.parent] += message.reshape(edge.parent_shape)
        roots = (belief for belief, j in zip(beliefs, self.parents, strict=True) if j < 0)
        return math.fsum(float(_log_sum(root, tuple(range(root.ndim)))) for root in roots)

    def _placed(self, potentials: Mapping[Clique, Table]) -> list[list[Table]]:
        """Returns the potentials that are added to each clique of the tree."""
        placed: list[list[Table]] = [[] for _ in self.shapes]
        for clique, table in self._gathered(potentials).items():
            _, axes = self._above[clique]
            placed[self._tops[clique]].append(np.expand_dims(table, axes))
        return placed

    def _gathered(self, potentials: Mapping[Clique, Table]) -> dict[Clique, Table]:
        """Returns the sums of potentials of cliques that are in no larger contained one; some may be to broadcast."""
        gathered = dict(potentials)
        for clique, (above, axes) in reversed(self._above.items()):
            if clique in gathered and not isinstance(above, int):
                # Small tables are added before they are spread over a large one.
                table = np.expand_dims(gathered.pop(clique), axes)
                gathered[above] = gathered[above] + table if above in gathered else table
        return gathered

    def answers(self, marginals: Sequence[Table]) -> dict[Clique, Table]:
        """Returns the marginals of all contained cliques, from those of the tree."""
        contained: dict[Clique, Table] = {}
        for clique, (above, axes) in self._above.items():
            source = marginals[above] if isinstance(above, int) else contained[above]
            contained[clique] = np.asarray(source.sum(axis=axes))
        return contained

    def answers_under(self, potentials: Mapping[Clique, Table]) -> dict[Clique, Table]:
        """Returns ``answers`` of ``marginals``, without the tables of the tree's cliques.

        The answers are NaN if a potential is.
        """
        gathered = self._gathered(potentials)
        factors = [
            np.exp(table - table.max())
            for table in (self._whole(q, gathered.get(q)) for q in self._tops)
        ]
        zeros = [scope.allowed.astype(np.float64) for scope in self.domain.zeros]
        try:
            found = self._contraction.marginals([*factors, *zeros])
        except Underflow:
            return self.answers(self.marginals(potentials))
        contained = dict(zip(self._tops, found, strict=False))
        for clique, (above, axes) in self._above.items():
            if not isinstance(above, int):
                contained[clique] = np.asarray(contained[above].sum(axis=axes))
        return contained

    def _whole(self, clique: Clique, table: Table | None) -> Table:
        """Returns a table to broadcast, or none, as one of all cells of a clique."""
        return np.broadcast_to(0.0 if table is None else table, self.domain.sizes(clique))

    def _in_products(self, placed: Sequence[Sequence[Table]]) -> list[Table] | None:
        """Returns the marginals, None if something underflows. ``placed`` has each clique's potentials."""
        beliefs = []
        for shape, tables in zip(self.shapes, placed, strict=True):
            first, *others = [np.exp(table - table.max()) for table in tables] or [np.ones(())]
            belief = np.broadcast_to(first, shape).copy()
            for other in others:
                belief *= other
            beliefs.append(belief)
        for belief, allowed in zip(beliefs, self._allowed, strict=True):
            if allowed is not None:
                belief *= allowed
        # Collect: from the leaves to the root, a child's marginal of the shared columns is multiplied into its parent.
        # Only ratios matter, so each message is scaled to a largest entry of one.
        sent: dict[int, Table] = {}
        for edge in reversed(self._edges):
            message = beliefs[edge.child].sum(axis=edge.child_axes).reshape(edge.parent_shape)
            if not (largest := float(message.max())) > SMALLEST:
                return None
            message /= largest
            beliefs[edge.parent] *= message
            sent[edge.child] = message.reshape(edge.child_shape)
        # Distribute: back from the root, each child gets the rest of the tree's message, without its own.
        for edge in self._edges:
            above = beliefs[edge.parent].sum(axis=edge.parent_axes).reshape(edge.child_shape)
            if not (largest := float(above.max())) > SMALLEST:
                return None
            below = sent[edge.child]
            # The child's message is a factor of the parent's belief; where the message is 0, so is the belief.
            above /= largest
            np.divide(above, below, out=above, where=below > 0)
            beliefs[edge.child] *= above
        return _normalised(beliefs)

    def _log_base(self) -> list[Table]:
        """Returns the logarithm of the base measure, over all cliques."""
        return [
            np.zeros(shape)
            if allowed is None
            else np.where(np.broadcast_to(allowed, shape), 0.0, _FORBIDDEN)
            for shape, allowed in zip(self.shapes, self._allowed, strict=True)
        ]

    def _in_logarithms(self, placed: Sequence[Sequence[Table]]) -> list[Table]:
        """Returns the same marginals, computed in logarithms: slower, without underflow."""
        beliefs = self._log_base()
        for belief, tables in zip(beliefs, placed, strict=True):
            for table in tables:
                belief += table - table.max()
        # Collect and distribute as above; products become sums, and dividing a message out is a difference.
        sent: dict[int, Table] = {}
        for edge in reversed(self._edges):
            message = _log_sum(beliefs[edge.child], edge.child_axes)
            beliefs[edge.parent] += message.reshape(edge.parent_shape)
            sent[edge.child] = message.reshape(edge.child_shape)
        for edge in self._edges:
            above = _log_sum(beliefs[edge.parent], edge.parent_axes).reshape(edge.child_shape)
            beliefs[edge.child] += above - sent[edge.child]
        marginals = _normalised([np.exp(belief - belief.max()) for belief in beliefs])
        return (
            [np.full(shape, math.nan) for shape in self.shapes] if marginals is None else marginals
        )


def _normalised(beliefs: list[Table]) -> list[Table] | None:
    for belief in beliefs:
        total = float(belief.sum())
        if not SMALLEST < total < math.inf:
            return None
        belief /= total
    return beliefs


def _log_sum(table: Table, axes: tuple[int, ...]) -> Table:
    largest = table.max(axis=axes, keepdims=True)
    summed = np.exp(table - largest).sum(axis=axes, keepdims=True)
    return np.asarray((largest + np.log(summed)).squeeze(axis=axes))
