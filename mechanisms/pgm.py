"""Private-PGM: the graphical model that best explains noisy marginals.

Provides ``PgmEstimator``, AIM's estimator, ``FederatedEstimator``, FLAIM's, and the fits behind them:
``fit``, ``fit_targets`` and ``tilt``; ``misfit`` judges any model, ``allowed_candidates`` says what may be added.

Public: everything; it is post-processing of released measurements.

Source: McKenna et al., ICML 2019, Algorithm 1 (mirror descent on the marginals). The step rule and the
inference are our own, see README.md.

Limits: one estimate at a time for each estimator.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Schedule
from mechanisms.aim import Estimate, Measurement, rows_counted
from mechanisms.domain import Clique, Domain
from mechanisms.errors import EstimationError
from mechanisms.inference import JunctionTree
from mechanisms.junction_tree import model_cells
from mechanisms.model import LOG_FLOOR, Model
from mechanisms.workload import Workload

# Mirror descent's line search: the first step in units of the least variance, what a step that
# lowered the loss enough is multiplied by, and what one that did not.
FIRST_STEP = 4.0
LENGTHEN = 1.1
SHORTEN = 0.5
ENOUGH = 0.5

# A cell is a double.
CELLS_PER_MB = 2**20 / 8

Tables: TypeAlias = dict[Clique, NDArray[np.float64]]

# Called in the computing thread before each iteration and after the last: how many are done, of how many.
OnIteration: TypeAlias = Callable[[int, int], object]


def _unheard(done: int, of: int) -> None:
    """Nobody wants to know."""


class PgmEstimator:
    """AIM's estimator: fits a model to all measurements, starting from the one before.

    ``iterations`` of mirror descent for an estimate, ``final_iterations`` for the final one. A model
    may take (budget used / budget) x ``max_model_mb`` MB in the round it is used for; candidates that
    would grow it further are not allowed. ``model`` is the last one, None before the first estimate;
    ``on_iteration`` may be set by whoever wants to know how far one is.
    """

    def __init__(
        self,
        workload: Workload,
        plan: Schedule,
        *,
        iterations: int = 100,
        final_iterations: int = 1000,
        max_model_mb: float = 80.0,
    ) -> None:
        self.model: Model | None = None
        self.on_iteration: OnIteration = _unheard
        self._workload = workload
        self._plan = plan
        self._iterations = iterations
        self._final_iterations = final_iterations
        self._max_model_mb = max_model_mb
        self._potentials: Tables = {}

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """See ``aim.Estimator.estimate``; computes in a thread. Raises ``EstimationError``."""
        return await asyncio.to_thread(self._estimate, measurements, round, final)

    def _estimate(self, measurements: Sequence[Measurement], round: int, final: bool) -> Estimate:
        iterations = self._final_iterations if final else self._iterations
        self.model, self._potentials = fit(
            self._workload,
            measurements,
            iterations=iterations,
            start=self._potentials,
            on_iteration=self.on_iteration,
        )
        answers = self.model.answers_q32(self._workload.candidates)
        limit_mb = self._max_model_mb * self._plan.spent_after(round) / self._plan.rho
        allowed = allowed_candidates(
            self._workload, self.model, self._potentials, limit_mb * CELLS_PER_MB
        )
        return Estimate(allowed, answers)


class FederatedEstimator:
    """FLAIM's estimator: fits a model to all targets that fit into it, starting from the one before.

    Many queries are measured in a round, each of which leaves the model small and which together may not:
    a target enters the model in the order measured, if the tree of those before it stays below the limit with
    it, ``spent`` x ``max_model_mb``. One that has to wait enters when the limit has grown. ``on_iteration`` as in
    ``PgmEstimator``.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        iterations: int = 100,
        final_iterations: int = 1000,
        max_model_mb: float = 80.0,
    ) -> None:
        self.on_iteration: OnIteration = _unheard
        self._workload = workload
        self._iterations = iterations
        self._final_iterations = final_iterations
        self._max_model_mb = max_model_mb
        self._potentials: Tables = {}

    async def estimate(
        self, targets: Sequence[tuple[int, Target]], *, spent: float, final: bool
    ) -> tuple[Model, NDArray[np.bool_]]:
        """See ``flaim.FlaimEstimator.estimate``; computes in a thread. Raises ``EstimationError``."""
        return await asyncio.to_thread(self._estimate, targets, spent, final)

    def _estimate(
        self, targets: Sequence[tuple[int, Target]], spent: float, final: bool
    ) -> tuple[Model, NDArray[np.bool_]]:
        limit_mb = self._max_model_mb * (1.0 if final else spent)
        merged = merge((self._workload.candidates[i], target) for i, target in targets)
        fitting = _fitting(self._workload.domain, merged, limit_mb)
        if not fitting:
            raise EstimationError("nothing was measured that fits into a model")
        model, potentials = fit_targets(
            self._workload.domain,
            fitting,
            iterations=self._final_iterations if final else self._iterations,
            start=self._potentials,
            on_iteration=self.on_iteration,
        )
        self._potentials |= potentials
        return model, allowed_candidates(self._workload, model, fitting, limit_mb * CELLS_PER_MB)


def fit(
    workload: Workload,
    measurements: Sequence[Measurement],
    *,
    iterations: int,
    start: Mapping[Clique, NDArray[np.float64]] | None = None,
    on_iteration: OnIteration = _unheard,
) -> tuple[Model, Tables]:
    """The model that minimises sum ||mu_q - y_q||^2 / (2 sigma_q^2), and its log potentials.

    Every measurement is normalised to the total estimated for the clients counted in it, and its
    deviation with it, so that the model's total is 1. ``start`` holds the potentials to start from.

    Raises: ``EstimationError`` without measurements, or if inference overflows.
    """
    targets = merge(_targets(workload, measurements))
    return fit_targets(
        workload.domain, targets, iterations=iterations, start=start, on_iteration=on_iteration
    )


def misfit(workload: Workload, measurements: Sequence[Measurement], model: Model) -> float:
    """What ``fit`` minimises, of any ``model`` over the workload's domain, for each cell that was measured, doubled.

    Of the real table it is about 1: the sum of squared noise over its variance. ``fit`` stays below, as far as the
    measurements contradict one another.
    """
    targets = merge(_targets(workload, measurements))
    answers = zip(targets.values(), model.answers(list(targets)), strict=True)
    loss = sum(target.weight * float(np.sum((mu - target.mean) ** 2)) for target, mu in answers)
    return loss / sum(target.mean.size for target in targets.values())


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What was measured of one clique: the (weighted) mean of its normalised counts, and the weight.

    ``mean`` float64 of the clique's shape; ``weight`` is one over the variance of each of its entries.
    """

    mean: NDArray[np.float64]
    weight: float


def merge(measured: Iterable[tuple[Clique, Target]]) -> dict[Clique, Target]:
    """One target for each clique: the mean of all that was measured of it, by weight."""
    targets: dict[Clique, Target] = {}
    for clique, target in measured:
        if before := targets.get(clique):
            both = before.weight + target.weight
            mean = (before.mean * before.weight + target.mean * target.weight) / both
            targets[clique] = Target(mean, both)
        else:
            targets[clique] = target
    return targets


def fit_targets(
    domain: Domain,
    targets: Mapping[Clique, Target],
    *,
    iterations: int,
    start: Mapping[Clique, NDArray[np.float64]] | None = None,
    on_iteration: OnIteration = _unheard,
) -> tuple[Model, Tables]:
    """The model that minimises sum weight_q ||mu_q - mean_q||^2 / 2, and its log potentials.

    ``start`` holds the potentials to start from. Raises: ``EstimationError`` if inference overflows.
    """
    tree = JunctionTree(domain, list(targets))
    begin = start or {}
    potentials = {q: begin.get(q, np.zeros_like(t.mean)) for q, t in targets.items()}
    potentials, marginals = _mirror_descent(tree, targets, potentials, iterations, on_iteration)
    return Model(domain, tree.cliques, tree.parents, tuple(marginals)), potentials


def tilt(model: Model, clique: Clique, target: Target, *, iterations: int) -> Model:
    """The model times the exponential of a function of ``clique`` that brings it to ``target``.

    Everything that ``model`` says about the other columns given those of ``clique`` stays as it is, so that the
    function is found on the clique's own marginal, and the tree is needed once. Raises: ``EstimationError``
    if inference overflows.
    """
    (before,) = model.answers([clique])
    start = np.log(np.maximum(before, math.exp(-LOG_FLOOR)))
    alone = Domain(tuple(model.domain.columns[model.domain.index(name)] for name in clique))
    _, fitted = fit_targets(alone, {clique: target}, iterations=iterations, start={clique: start})
    tree = JunctionTree(model.domain, [*model.cliques, clique])
    potentials = model.log_potentials()
    # The clique's own potentials began as the logarithm of its marginal: what was added to that is the function.
    potentials[clique] = potentials.get(clique, 0.0) + fitted[clique] - start
    marginals = tree.marginals(potentials)
    return Model(model.domain, tree.cliques, tree.parents, tuple(marginals))


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """The loss at some potentials, its gradient, and the marginals of the targets and the tree."""

    loss: float
    gradient: Tables
    answers: Tables
    marginals: list[NDArray[np.float64]]


def _targets(
    workload: Workload, measurements: Sequence[Measurement]
) -> Iterator[tuple[Clique, Target]]:
    rows = rows_counted(measurements)
    for m in measurements:
        clique, total = workload.candidates[m.candidate], rows.at(m.clients)
        mean = m.noisy.reshape(workload.domain.sizes(clique)) / total
        yield clique, Target(mean, (total / m.sigma) ** 2 / m.merged)


def _mirror_descent(
    tree: JunctionTree,
    targets: Mapping[Clique, Target],
    potentials: Tables,
    iterations: int,
    on_iteration: OnIteration,
) -> tuple[Tables, list[NDArray[np.float64]]]:
    """McKenna et al. 2019, Algorithm 1, with a line search on each step."""
    step = FIRST_STEP / max(target.weight for target in targets.values())
    here = _evaluate(tree, targets, potentials)
    for number in range(iterations):
        on_iteration(number, iterations)
        moved = {q: theta - step * here.gradient[q] for q, theta in potentials.items()}
        there = _evaluate(tree, targets, moved)
        # What the loss would lose if it were linear in the marginals between the two points.
        expected = sum(
            float(np.vdot(slope, here.answers[q] - there.answers[q]))
            for q, slope in here.gradient.items()
        )
        # Written so that a loss which is not a number counts as no decrease.
        if here.loss - there.loss >= ENOUGH * expected:
            potentials, here = moved, there
            step *= LENGTHEN
        else:
            step *= SHORTEN
    on_iteration(iterations, iterations)
    if not np.isfinite(here.loss):
        raise EstimationError("the model's marginals are not finite; the measurements are unusable")
    return potentials, here.marginals


def _evaluate(tree: JunctionTree, targets: Mapping[Clique, Target], potentials: Tables) -> _Point:
    marginals = tree.marginals(potentials)
    answers = tree.answers(marginals)
    # With g = weight (mu - y) the loss, weight ||mu - y||^2 / 2, is ||g||^2 / (2 weight).
    gradient = {q: target.weight * (answers[q] - target.mean) for q, target in targets.items()}
    loss = sum(
        float(np.vdot(slope, slope)) / (2 * targets[q].weight) for q, slope in gradient.items()
    )
    return _Point(loss, gradient, answers, marginals)


def _fitting(
    domain: Domain, targets: Mapping[Clique, Target], limit_mb: float
) -> dict[Clique, Target]:
    """The targets of single columns, and of the others those that leave the tree below the limit."""
    cells = model_cells(domain)
    fitting: dict[Clique, Target] = {q: t for q, t in targets.items() if len(q) == 1}
    for clique, target in targets.items():
        if len(clique) > 1 and cells([*fitting, clique]) <= limit_mb * CELLS_PER_MB:
            fitting[clique] = target
    return fitting


def allowed_candidates(
    workload: Workload, model: Model, measured: Mapping[Clique, object], limit: float
) -> NDArray[np.bool_]:
    """The candidates inside the model, and those that leave it at ``limit`` cells or below (Alg. 2, line 12)."""
    cells = model_cells(workload.domain)
    inside = [set(clique) for clique in model.cliques]
    return np.array(
        [
            any(set(candidate) <= clique for clique in inside)
            or cells([*measured, candidate]) <= limit
            for candidate in workload.candidates
        ]
    )
