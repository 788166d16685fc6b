"""A refresh: a model that starts from the released model of an earlier run instead of from nothing.

``Refresh`` holds the earlier model. Its correlations stay where nothing new was measured: the new model is the earlier
one times functions of the cliques that were measured now, the nearest to it in relative entropy. A measured marginal
is not taken as it is: ``shrunk`` moves it towards the earlier model's answer, as far as its difference from that answer
is no more than its noise. A table that did not change keeps the earlier model, whose errors had another noise; of one
that did, the new measurement stays.

All values here are public, as post-processing of released values. The earlier model may be any model of the same
domain: it decides how good the result is and never how private.

Source: the shrinkage is the empirical Bayes estimator of Efron, Morris 1973 (positive part), with a variance in
proportion to the mean of a cell's share and of an equal share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.descent import OnIteration, Tables, Target, mirror_descent
from mechanisms.domain import Clique, Domain
from mechanisms.inference import JunctionTree
from mechanisms.model import Model

Array: TypeAlias = NDArray[np.float64]
SOFTENED = 1e-3
"""Share of each clique that is spread over all its cells, so that what was not there before may be there now."""


def _unheard(done: int, of: int) -> None:
    """Ignores the progress."""


class RefreshedTree(JunctionTree):
    """A junction tree with room for an earlier model, whose potentials ``base`` are added to all others."""

    def __init__(self, domain: Domain, cliques: Sequence[Clique], base: Tables) -> None:
        self._base = base
        super().__init__(domain, [*cliques, *base])

    def _gathered(self, potentials: Mapping[Clique, Array]) -> dict[Clique, Array]:
        """See ``JunctionTree``."""
        added = {q: potentials[q] + table for q, table in self._base.items() if q in potentials}
        return super()._gathered({**self._base, **potentials, **added})


@dataclass(frozen=True, slots=True, eq=False)
class Refresh:
    """The ``model`` of an earlier run."""

    model: Model

    def fit(
        self,
        targets: Mapping[Clique, Target],
        *,
        iterations: int,
        start: Mapping[Clique, Array],
        on_iteration: OnIteration,
    ) -> tuple[Model, Tables]:
        """Returns the refreshed model of the measured ``targets``, and the log potentials that it adds.

        ``start`` holds potentials to start from. Raises ``EstimationError`` if inference overflows.
        """
        columns: list[Clique] = [q for q in targets if len(q) == 1]
        moved: dict[Clique, Target] = {
            q: shrunk(targets[q], answer)
            for q, answer in zip(columns, self.model.answers(columns), strict=True)
        }
        earlier = softened(self.model)
        joint = [q for q in targets if len(q) > 1]
        if joint:
            # Joint marginals are compared with the earlier ones that have the columns of now.
            raked, _ = _fit(earlier, moved, iterations=iterations, start={})
            kept = kept_relations(raked, {q: targets[q] for q in joint})
            earlier, raked = loosened(earlier, kept), loosened(raked, kept)
            answers = raked.answers(joint)
            moved |= {
                q: shrunk(targets[q], answer) for q, answer in zip(joint, answers, strict=True)
            }
        return _fit(earlier, moved, iterations=iterations, start=start, on_iteration=on_iteration)


def _fit(
    earlier: Model,
    targets: Mapping[Clique, Target],
    *,
    iterations: int,
    start: Mapping[Clique, Array],
    on_iteration: OnIteration = _unheard,
) -> tuple[Model, Tables]:
    domain = earlier.domain
    tree = RefreshedTree(domain, list(targets), earlier.log_potentials())
    begin = {q: start.get(q, np.zeros_like(target.mean)) for q, target in targets.items()}
    potentials, marginals = mirror_descent(
        tree, targets, begin, iterations=iterations, on_iteration=on_iteration
    )
    return Model(domain, tree.cliques, tree.parents, tuple(marginals)), potentials


def kept_relations(model: Model, targets: Mapping[Clique, Target]) -> dict[str, float]:
    """Returns for each column how much of its relations to others in ``model`` the ``targets`` confirm, 0 to 1.

    It is the least-squares factor of the model's deviations from independence, in all targets with the column, and one
    standard error more: a relation is kept until it is shown to have gone. A column in no target has the factor of all.
    """
    products, squares = (
        dict.fromkeys(model.domain.names, 0.0),
        dict.fromkeys(model.domain.names, 0.0),
    )
    total = np.zeros(2)
    for (clique, target), answer in zip(targets.items(), model.answers(list(targets)), strict=True):
        apart = _independent(answer)
        relation, seen = answer - apart, target.mean - apart
        found = np.array(
            [float((target.weight * relation * other).sum()) for other in (seen, relation)]
        )
        total += found
        for name in clique:
            products[name] += float(found[0])
            squares[name] += float(found[1])
    return {
        name: _factor(products[name], squares[name]) if squares[name] > 0 else _factor(*total)
        for name in model.domain.names
    }


def _factor(product: float, square: float) -> float:
    """Returns a least-squares factor and its standard error together, within 0 and 1."""
    if not square > 0:
        return 1.0
    return min(1.0, max(0.0, product / square + 1 / math.sqrt(square)))


def loosened(model: Model, kept: Mapping[str, float]) -> Model:
    """Returns the model after each column is drawn anew, by itself, in a part of the rows.

    Of the relation of two columns the geometric mean of their factors ``kept`` is left. Cliques still agree on the
    columns that they share.
    """
    marginals = []
    for clique, marginal in zip(model.cliques, model.marginals, strict=True):
        for axis, name in enumerate(clique):
            others = tuple(a for a in range(len(clique)) if a != axis)
            alone, rest = (
                marginal.sum(axis=others, keepdims=True),
                marginal.sum(axis=axis, keepdims=True),
            )
            share = math.sqrt(kept[name])
            marginal = share * marginal + (1 - share) * alone * rest
        marginals.append(marginal)
    return Model(model.domain, model.cliques, model.parents, tuple(marginals))


def shrunk(target: Target, answer: Array) -> Target:
    """Returns a measured marginal moved towards an earlier ``answer``, of the same shape.

    Each cell's change has a variance in proportion to the mean of its share and of 1 / n; its size is what the squares
    of the differences exceed those of noise by, at least 0.
    """
    noise = np.broadcast_to(1 / np.asarray(target.weight), answer.shape)
    off = target.mean - answer
    change = max(0.0, float((off * off).sum() - noise.sum())) * (answer + 1 / answer.size) / 2
    return Target(answer + off * (change / (change + noise)), target.weight)


def softened(model: Model) -> Model:
    """Returns the model with a little of every cell; cliques still agree on the columns that they share."""
    marginals = []
    for clique, marginal in zip(model.cliques, model.marginals, strict=True):
        spread = np.ones(())
        for axis, size in enumerate(marginal.shape):
            others = tuple(a for a in range(len(clique)) if a != axis)
            alone = (1 - SOFTENED) * marginal.sum(axis=others) + SOFTENED / size
            spread = np.multiply.outer(spread, alone)
        marginals.append((1 - SOFTENED) * marginal + SOFTENED * spread)
    return Model(model.domain, model.cliques, model.parents, tuple(marginals))


def _independent(answer: Array) -> Array:
    """Returns the product of the columns of a marginal."""
    apart = np.ones(())
    for axis in range(answer.ndim):
        others = tuple(a for a in range(answer.ndim) if a != axis)
        apart = np.multiply.outer(apart, answer.sum(axis=others))
    return apart
