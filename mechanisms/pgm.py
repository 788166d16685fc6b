"""Private-PGM: the graphical model that best explains noisy marginals.

``PgmEstimator`` is AIM's estimator and ``FederatedEstimator`` FLAIM's; ``fit``, ``fit_targets`` and ``tilt`` are the
fits behind them. ``misfit`` measures how well any model fits the measurements; ``allowed_candidates`` gives the
candidates that a model has room for.

All values here are public, as post-processing of released measurements.

Source: McKenna et al., ICML 2019, Algorithm 1 (mirror descent on the marginals). The step rule and the inference are
our own, see README.md.

Limits: one estimate at a time for each estimator.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Schedule
from mechanisms.aim import Estimate, Measurement, rows_counted
from mechanisms.contraction import one_thread_a_product
from mechanisms.descent import (
    Descent,
    OnIteration,
    Tables,
    Target,
    descent_to_noise,
    merge,
    mirror_descent,
)
from mechanisms.domain import Clique, Domain
from mechanisms.errors import EstimationError
from mechanisms.inference import JunctionTree
from mechanisms.junction_tree import cells_with_each, model_cells
from mechanisms.model import LOG_FLOOR, Model
from mechanisms.refresh import Refresh
from mechanisms.workload import Workload

# A cell is a double.
CELLS_PER_MB = 2**20 / 8


def _unheard(done: int, of: int) -> None:
    """Ignores the progress."""


class PgmEstimator:
    """AIM's estimator: fits a model to all measurements, starting from the model before.

    ``iterations`` of mirror descent for an estimate, ``final_iterations`` for the final one. A model may take (budget
    used / budget) x ``max_model_mb`` MB in the round it is used for; candidates that would grow it further are not
    allowed. ``model`` is the last model, None before the first estimate, and ``potentials`` its log potentials;
    ``on_iteration`` may be set to follow the progress. ``descent`` is the optimiser of potentials. With a ``refresh``
    the model starts from an earlier run's.
    """

    def __init__(
        self,
        workload: Workload,
        plan: Schedule,
        *,
        iterations: int = 100,
        final_iterations: int = 1000,
        max_model_mb: float = 80.0,
        descent: Descent = mirror_descent,
        refresh: Refresh | None = None,
    ) -> None:
        self.model: Model | None = None
        self.potentials: Tables = {}
        self.on_iteration: OnIteration = _unheard
        self._workload = workload
        self._plan = plan
        self._iterations = iterations
        self._final_iterations = final_iterations
        self._max_model_mb = max_model_mb
        self._descent = descent
        self._refresh = refresh

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """See ``aim.Estimator.estimate``; computes in a thread. Raises ``EstimationError``."""
        return await asyncio.to_thread(self._estimate, measurements, round, final)

    def _estimate(self, measurements: Sequence[Measurement], round: int, final: bool) -> Estimate:
        iterations = self._final_iterations if final else self._iterations
        with one_thread_a_product():
            self.model, self.potentials = fit_targets(
                self._workload.domain,
                merge(self.targets(measurements)),
                iterations=iterations,
                start=self.potentials,
                on_iteration=self.on_iteration,
                descent=self._descent,
                refresh=self._refresh,
            )
        answers = self.model.answers_q32(self._workload.candidates)
        allowed = allowed_now(
            self._workload,
            self.model,
            self.potentials,
            max_model_mb=self._max_model_mb,
            spent=self._plan.spent_after(round) / self._plan.rho,
            refresh=self._refresh,
        )
        return Estimate(allowed, answers)

    def targets(self, measurements: Sequence[Measurement]) -> Iterator[tuple[Clique, Target]]:
        """Yields the targets of the model; see ``fit``."""
        return _targets(self._workload, measurements)


class FederatedEstimator:
    """FLAIM's estimator: fits a model to all targets that fit into it, starting from the model before.

    Many queries are measured in a round; each leaves the model small, but all together may not. A target enters the
    model in the order measured, if the tree of the targets before it stays below the limit with it, ``spent`` x
    ``max_model_mb``; later targets enter when the limit has grown. A fit ends at the loss that noise alone leaves: a
    model should not follow many noisy queries a round to the end. ``potentials``, ``on_iteration`` and ``descent`` are
    as in ``PgmEstimator``.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        iterations: int = 100,
        final_iterations: int = 1000,
        max_model_mb: float = 80.0,
        descent: Descent = descent_to_noise,
    ) -> None:
        self.potentials: Tables = {}
        self.on_iteration: OnIteration = _unheard
        self._workload = workload
        self._iterations = iterations
        self._final_iterations = final_iterations
        self._max_model_mb = max_model_mb
        self._descent = descent
        # Potentials of targets that no longer fit are kept, too: they may come back.
        self._start: Tables = {}

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
        with one_thread_a_product():
            model, self.potentials = fit_targets(
                self._workload.domain,
                fitting,
                iterations=self._final_iterations if final else self._iterations,
                start=self._start,
                on_iteration=self.on_iteration,
                descent=self._descent,
            )
        self._start |= self.potentials
        return model, allowed_candidates(self._workload, model, fitting, limit_mb * CELLS_PER_MB)


def fit(
    workload: Workload,
    measurements: Sequence[Measurement],
    *,
    iterations: int,
    start: Mapping[Clique, NDArray[np.float64]] | None = None,
    on_iteration: OnIteration = _unheard,
    descent: Descent = mirror_descent,
    refresh: Refresh | None = None,
) -> tuple[Model, Tables]:
    """Returns the model that minimises sum ||mu_q - y_q||^2 / (2 sigma_q^2), and its log potentials.

    Every measurement is normalised to the total estimated for the clients counted in it, and its deviation with it, so
    that the model's total is 1. ``start`` holds the potentials to start from. ``descent`` and ``refresh`` are as in
    ``PgmEstimator``.

    Raises ``EstimationError`` without measurements, or if inference overflows.
    """
    targets = measured_targets(workload, measurements)
    return fit_targets(
        workload.domain,
        targets,
        iterations=iterations,
        start=start,
        on_iteration=on_iteration,
        descent=descent,
        refresh=refresh,
    )


def misfit(workload: Workload, measurements: Sequence[Measurement], model: Model) -> float:
    """Returns twice the loss of ``fit`` per measured cell, of any ``model`` over the workload's domain.

    It is about 1 for the real table: the sum of squared noise over its variance. ``fit`` stays below, as far as the
    measurements contradict one another.
    """
    targets = measured_targets(workload, measurements)
    return misfit_to(targets, dict(zip(targets, model.answers(list(targets)), strict=True)))


def measured_targets(
    workload: Workload, measurements: Sequence[Measurement]
) -> Mapping[Clique, Target]:
    """Returns what ``fit`` approximates: the measured marginals, normalised, one for each clique."""
    return merge(_targets(workload, measurements))


def misfit_to(
    targets: Mapping[Clique, Target], answers: Mapping[Clique, NDArray[np.float64]]
) -> float:
    """Returns ``misfit`` of any answers to the cliques of ``targets``, with the total 1."""
    loss = sum(
        t.weight * float(np.sum((answers[q] - t.mean) ** 2))
        if isinstance(t.weight, float)
        else float(np.sum(t.weight * (answers[q] - t.mean) ** 2))
        for q, t in targets.items()
    )
    return loss / sum(target.mean.size for target in targets.values())


def fit_targets(
    domain: Domain,
    targets: Mapping[Clique, Target],
    *,
    iterations: int,
    start: Mapping[Clique, NDArray[np.float64]] | None = None,
    on_iteration: OnIteration = _unheard,
    descent: Descent = mirror_descent,
    refresh: Refresh | None = None,
) -> tuple[Model, Tables]:
    """Returns the model that minimises sum weight_q ||mu_q - mean_q||^2 / 2, and its log potentials.

    ``start`` holds the potentials to start from. With a ``refresh`` the potentials are those beside the earlier
    model's. Raises ``EstimationError`` if inference overflows.
    """
    if refresh is not None:
        return refresh.fit(
            targets, iterations=iterations, start=start or {}, on_iteration=on_iteration
        )
    tree = JunctionTree(domain, list(targets))
    begin = start or {}
    potentials = {q: begin.get(q, np.zeros_like(t.mean)) for q, t in targets.items()}
    potentials, marginals = descent(
        tree, targets, potentials, iterations=iterations, on_iteration=on_iteration
    )
    return Model(domain, tree.cliques, tree.parents, tuple(marginals)), potentials


def tilt(model: Model, clique: Clique, target: Target, *, iterations: int) -> Model:
    """Returns the model times the exponential of a function of ``clique`` that brings it to ``target``.

    The conditional distribution of the other columns given those of ``clique`` stays as in ``model``, so that the
    function is found on the clique's own marginal, and the tree is needed once. Raises ``EstimationError`` if inference
    overflows.
    """
    (before,) = model.answers([clique])
    start = np.log(np.maximum(before, math.exp(-LOG_FLOOR)))
    alone = Domain(tuple(model.domain.columns[model.domain.index(name)] for name in clique))
    _, fitted = fit_targets(alone, {clique: target}, iterations=iterations, start={clique: start})
    tree = JunctionTree(model.domain, [*model.cliques, clique])
    potentials = model.log_potentials()
    # The clique's own potentials started as the logarithm of its marginal: the difference is the function.
    potentials[clique] = potentials.get(clique, 0.0) + fitted[clique] - start
    marginals = tree.marginals(potentials)
    return Model(model.domain, tree.cliques, tree.parents, tuple(marginals))


def _targets(
    workload: Workload, measurements: Sequence[Measurement]
) -> Iterator[tuple[Clique, Target]]:
    rows = rows_counted(measurements)
    for m in measurements:
        clique, total = workload.candidates[m.candidate], rows.at(m.clients)
        mean = m.noisy.reshape(workload.domain.sizes(clique)) / total
        # The count's variance sigma^2 merged becomes sigma^2 merged / N^2 after normalisation.
        merged = m.merged if isinstance(m.merged, float) else m.merged.reshape(mean.shape)
        yield clique, Target(mean, (total / m.sigma) ** 2 / merged)


def _fitting(
    domain: Domain, targets: Mapping[Clique, Target], limit_mb: float
) -> dict[Clique, Target]:
    """Returns the targets of single columns, and the others that leave the tree below the limit."""
    cells = model_cells(domain)
    fitting: dict[Clique, Target] = {q: t for q, t in targets.items() if len(q) == 1}
    for clique, target in targets.items():
        if len(clique) > 1 and cells([*fitting, clique]) <= limit_mb * CELLS_PER_MB:
            fitting[clique] = target
    return fitting


def allowed_now(
    workload: Workload,
    model: Model,
    measured: Mapping[Clique, object],
    *,
    max_model_mb: float,
    spent: float,
    refresh: Refresh | None = None,
) -> NDArray[np.bool_]:
    """Returns the candidates that a model may still have after a share ``spent`` of the budget (Alg. 2, line 12).

    What an earlier model takes of ``max_model_mb`` is there from the beginning.
    """
    limit = max_model_mb * CELLS_PER_MB
    if refresh is None:
        return allowed_candidates(workload, model, measured, limit * spent)
    taken = min(limit, float(refresh.model.cells))
    together = dict.fromkeys([*refresh.model.cliques, *measured])
    return allowed_candidates(workload, model, together, taken + (limit - taken) * spent)


def allowed_candidates(
    workload: Workload, model: Model, measured: Mapping[Clique, object], limit: float
) -> NDArray[np.bool_]:
    """Returns candidates inside the model, and those that leave it at ``limit`` cells or below (Alg. 2, line 12)."""
    inside = [set(clique) for clique in model.cliques]
    allowed = np.array(
        [any(set(each) <= clique for clique in inside) for each in workload.candidates]
    )
    outside = np.flatnonzero(~allowed)
    candidates = [workload.candidates[i] for i in outside]
    allowed[outside] = cells_with_each(workload.domain, list(measured), candidates) <= limit
    return allowed
