"""Mirror descent on the marginals of a junction tree, to fit a model to its targets.

``Descent`` is the interface of an optimiser of potentials; ``mirror_descent`` and ``descent_to_noise`` implement it.
``evaluate`` serves other implementations.

All values here are public, as post-processing of released measurements.

Source: McKenna et al., ICML 2019, Algorithm 1. The step rule is our own, see README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique
from mechanisms.errors import EstimationError
from mechanisms.inference import JunctionTree

# The line search: the first step in units of the least variance, the factor of a step that lowered the loss enough, the
# factor of any other step, and the part of the expected decrease that is enough.
FIRST_STEP = 4.0
LENGTHEN = 1.1
SHORTEN = 0.5
ENOUGH = 0.5

Tables: TypeAlias = dict[Clique, NDArray[np.float64]]

# Called in the computing thread before each iteration and after the last, with the number done and the total.
OnIteration: TypeAlias = Callable[[int, int], object]


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Target marginal of one clique: the weighted mean of its normalised measured counts, with its weight.

    ``mean`` float64 has the clique's shape; ``weight`` is one over the variance of each of its entries, one number for
    all of them or one for each.
    """

    mean: NDArray[np.float64]
    weight: float | NDArray[np.float64]

    def loss(self, slope: NDArray[np.float64]) -> float:
        """Returns weight ||mu - mean||^2 / 2 from its gradient ``slope`` = weight (mu - mean)."""
        if isinstance(self.weight, float):
            return float(np.vdot(slope, slope)) / (2 * self.weight)
        return float(np.vdot(slope, slope / self.weight)) / 2


def merge(measured: Iterable[tuple[Clique, Target]]) -> dict[Clique, Target]:
    """Merges all measurements of each clique into one target: their mean by weight."""
    targets: dict[Clique, Target] = {}
    for clique, target in measured:
        if before := targets.get(clique):
            # The inverse-variance mean; precisions add.
            both = before.weight + target.weight
            mean = (before.mean * before.weight + target.mean * target.weight) / both
            targets[clique] = Target(mean, both)
        else:
            targets[clique] = target
    return targets


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """The loss at some potentials, its gradient, and the marginals of the targets."""

    loss: float
    gradient: Tables
    answers: Tables


class Descent(Protocol):
    """An optimiser of sum weight_q ||mu_q - mean_q||^2 / 2 over the potentials of ``targets``' cliques."""

    def __call__(
        self,
        tree: JunctionTree,
        targets: Mapping[Clique, Target],
        potentials: Tables,
        *,
        iterations: int,
        on_iteration: OnIteration,
    ) -> tuple[Tables, list[NDArray[np.float64]]]:
        """Returns the potentials after ``iterations`` steps from ``potentials``, and the tree's marginals under them.

        Raises ``EstimationError`` if inference overflows.
        """


def mirror_descent(
    tree: JunctionTree,
    targets: Mapping[Clique, Target],
    potentials: Tables,
    *,
    iterations: int,
    on_iteration: OnIteration,
) -> tuple[Tables, list[NDArray[np.float64]]]:
    """Minimises by Algorithm 1 of McKenna et al. 2019, with a line search on each step."""
    return _descend(
        tree, targets, potentials, iterations=iterations, on_iteration=on_iteration, enough=-np.inf
    )


def descent_to_noise(
    tree: JunctionTree,
    targets: Mapping[Clique, Target],
    potentials: Tables,
    *,
    iterations: int,
    on_iteration: OnIteration,
) -> tuple[Tables, list[NDArray[np.float64]]]:
    """Minimises as ``mirror_descent``, but stops at the loss that noise alone leaves of the real table.

    That loss is half the number of measured cells, on average: a sum of squares of noise over twice its variance. A
    model with less loss has begun to fit the noise. A model that starts there stays as it is.
    """
    enough = sum(target.mean.size for target in targets.values()) / 2
    return _descend(
        tree, targets, potentials, iterations=iterations, on_iteration=on_iteration, enough=enough
    )


def _descend(
    tree: JunctionTree,
    targets: Mapping[Clique, Target],
    potentials: Tables,
    *,
    iterations: int,
    on_iteration: OnIteration,
    enough: float,
) -> tuple[Tables, list[NDArray[np.float64]]]:
    """Minimises until the loss is ``enough`` or less, or for at most ``iterations`` steps."""
    step = FIRST_STEP / max(float(np.max(target.weight)) for target in targets.values())
    here = evaluate(tree, targets, potentials)
    for number in range(iterations):
        if here.loss <= enough:
            break
        on_iteration(number, iterations)
        # The step of mirror descent with entropy: theta <- theta - step * gradient.
        moved = {q: theta - step * here.gradient[q] for q, theta in potentials.items()}
        there = evaluate(tree, targets, moved)
        # The decrease of the loss if it were linear in the marginals between the two points.
        expected = sum(
            float(np.vdot(slope, here.answers[q] - there.answers[q]))
            for q, slope in here.gradient.items()
        )
        # Written so that a loss of NaN counts as no decrease.
        if here.loss - there.loss >= ENOUGH * expected:
            potentials, here = moved, there
            step *= LENGTHEN
        else:
            step *= SHORTEN
    on_iteration(iterations, iterations)
    if not np.isfinite(here.loss):
        raise EstimationError("the model's marginals are not finite; the measurements are unusable")
    return potentials, tree.marginals(potentials)


def evaluate(tree: JunctionTree, targets: Mapping[Clique, Target], potentials: Tables) -> Point:
    """Returns the loss and its gradient at some potentials. Shapes: potentials as the targets."""
    answers = tree.answers_under(potentials)
    gradient = {q: target.weight * (answers[q] - target.mean) for q, target in targets.items()}
    loss = sum(targets[q].loss(slope) for q, slope in gradient.items())
    return Point(loss, gradient, answers)
