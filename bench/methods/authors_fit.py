"""Models fitted as by the FLAIM authors' public code: for comparing likelihoods, in the bench alone.

``judged`` returns the model whose likelihood is taken.

Differences from ``mechanisms.pgm``: each marginal is normalised by its own noisy sum; weights are (n / sigma)^2 with
the training rows n, or (N_q / sigma)^2 with a marginal's own noisy sum where FLAIM weighs its queries; each call begins
with a tiny step a, which doubles in every iteration and is halved until the loss falls by a / 2 times what the slope
promises, where a line search would ask for half of it. a is about 10^-6, so that any fall is enough: steps are longer,
and marginals settle later. 50 iterations a round and 500 at the end are too few for convergence, which costs no error
and spares rows that nobody measured. FLAIM's likelihood is that of the final model, AIM's and DistAIM's that of the
model before it.

Source: the FLAIM authors' code, as facts; Private-PGM's line search.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.methods.settings import AUTHORS, SERVER, STOPPING, Settings
from mechanisms.accounting import Schedule
from mechanisms.aim import Measurement
from mechanisms.descent import (
    ENOUGH,
    Descent,
    OnIteration,
    Tables,
    Target,
    descent_to_noise,
    evaluate,
    mirror_descent,
)
from mechanisms.domain import Clique
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.inference import JunctionTree
from mechanisms.model import Model
from mechanisms.pair_choice import flaim_estimator as run_estimator
from mechanisms.pgm import FederatedEstimator, PgmEstimator
from mechanisms.workload import Workload

ITERATIONS, FINAL_ITERATIONS = 50, 500
_HALVINGS = 25


def authors_descent(rows: int) -> Descent:
    """Returns mirror descent with the authors' steps, for a loss in counts of ``rows`` rows."""

    def descend(
        tree: JunctionTree,
        targets: Mapping[Clique, Target],
        potentials: Tables,
        *,
        iterations: int,
        on_iteration: OnIteration,
    ) -> tuple[Tables, list[NDArray[np.float64]]]:
        """See ``Descent``."""
        # Their first step, 1 / n^2, is for gradients by counts; ours are by probabilities, over n.
        step = float(rows) ** -3
        here = evaluate(tree, targets, potentials)
        for number in range(iterations):
            on_iteration(number, iterations)
            step *= 2
            halvings = 0
            while True:
                moved = {q: theta - step * here.gradient[q] for q, theta in potentials.items()}
                there = evaluate(tree, targets, moved)
                expected = sum(
                    float(np.vdot(slope, here.answers[q] - there.answers[q]))
                    for q, slope in here.gradient.items()
                )
                # Theirs asks for a times less than a line search does; a, in counts, is our step times the rows.
                enough = ENOUGH * step * rows * expected
                if halvings == _HALVINGS or here.loss - there.loss >= enough:
                    break
                step, halvings = step / 2, halvings + 1
            potentials, here = moved, there
        on_iteration(iterations, iterations)
        return potentials, tree.marginals(potentials)

    return descend


class AuthorsEstimator(PgmEstimator):
    """AIM's estimator as in the authors' code; all measurements count alike. ``rows``: of the training table."""

    def __init__(
        self, workload: Workload, plan: Schedule, *, rows: int, max_model_mb: float
    ) -> None:
        super().__init__(
            workload,
            plan,
            iterations=ITERATIONS,
            final_iterations=FINAL_ITERATIONS,
            max_model_mb=max_model_mb,
            descent=authors_descent(rows),
        )
        self._rows = rows
        self._candidates = workload.candidates
        self._domain = workload.domain
        self.before: tuple[Model | None, Tables] = (None, {})

    def targets(self, measurements: Sequence[Measurement]) -> Iterator[tuple[Clique, Target]]:
        """See ``PgmEstimator.targets``."""
        self.before = (self.model, self.potentials)
        for m in measurements:
            clique = self._candidates[m.candidate]
            mean = m.noisy.reshape(self._domain.sizes(clique)) / max(1.0, m.total.rows)
            yield clique, Target(mean, (self._rows / m.sigma) ** 2)


class AuthorsFederatedEstimator(FederatedEstimator):
    """FLAIM's estimator as in the authors' code.

    A weight is (rows / deviation)^2 of declared rows; here it uses a query's own noisy sum if ``factor`` is None,
    as with oracle and private, and otherwise ``factor`` times the declared rows.
    """

    def __init__(
        self, workload: Workload, *, rows: int, factor: float | None, max_model_mb: float
    ) -> None:
        super().__init__(
            workload,
            iterations=ITERATIONS,
            final_iterations=FINAL_ITERATIONS,
            max_model_mb=max_model_mb,
            descent=authors_descent(rows),
        )
        self._factor = factor

    async def estimate(
        self, targets: Sequence[tuple[int, Target]], *, spent: float, final: bool
    ) -> tuple[Model, NDArray[np.bool_]]:
        """See ``FederatedEstimator.estimate``."""
        return await super().estimate(
            [(q, self._of_own_sum(target)) for q, target in targets], spent=spent, final=final
        )

    def _of_own_sum(self, target: Target) -> Target:
        total = float(target.mean.sum())
        if not total > 0:
            return target
        factor = total if self._factor is None else self._factor
        return Target(target.mean / total, target.weight * factor**2)


class OneForAll(AuthorsFederatedEstimator):
    """An estimator that leaves one candidate to choose, drawn uniformly: FLAIM (Random) as in the authors' code.

    So all clients of a round take the same query, and their sum is of all of them. ``rng``: the server's draws.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        rows: int,
        factor: float | None,
        max_model_mb: float,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(workload, rows=rows, factor=factor, max_model_mb=max_model_mb)
        self._weighted = np.array(workload.weights) > 0
        self._rng = rng

    async def estimate(
        self, targets: Sequence[tuple[int, Target]], *, spent: float, final: bool
    ) -> tuple[Model, NDArray[np.bool_]]:
        """See ``FederatedEstimator.estimate``."""
        model, allowed = await super().estimate(targets, spent=spent, final=final)
        choices = np.flatnonzero(allowed & self._weighted)
        only = np.zeros_like(allowed)
        only[self._rng.choice(choices, min(1, len(choices)))] = True
        return model, only


def aim_estimator(
    settings: Settings, workload: Workload, plan: Schedule, *, rows: int
) -> PgmEstimator:
    """Returns the estimator of AIM or DistAIM. ``rows``: of the training table."""
    if settings.estimator == AUTHORS:
        return AuthorsEstimator(workload, plan, rows=rows, max_model_mb=settings.max_model_mb)
    return PgmEstimator(
        workload,
        plan,
        iterations=settings.iterations,
        final_iterations=settings.final_iterations,
        max_model_mb=settings.max_model_mb,
        descent=_descent(settings),
    )


def flaim_estimator(
    settings: Settings,
    workload: Workload,
    how: FlaimSettings,
    *,
    rows: int,
    rng: np.random.Generator,
) -> FederatedEstimator:
    """Returns the estimator of a run of FLAIM. ``rng``: the server's draws."""
    if settings.estimator != AUTHORS:
        return run_estimator(workload, how, descent=_descent(settings))
    factor = None if how.weighted else 1 / how.participation
    limit = settings.max_model_mb
    if settings.drawn == SERVER:
        return OneForAll(workload, rows=rows, factor=factor, max_model_mb=limit, rng=rng)
    return AuthorsFederatedEstimator(workload, rows=rows, factor=factor, max_model_mb=limit)


def judged(estimator: PgmEstimator) -> tuple[Model, Tables]:
    """Returns the model whose likelihood is taken, and its log potentials. Raises RuntimeError if there is none."""
    model, potentials = estimator.model, estimator.potentials
    if isinstance(estimator, AuthorsEstimator):
        model, potentials = estimator.before
    if model is None:
        raise RuntimeError("no model was fitted")
    return model, potentials


def _descent(settings: Settings) -> Descent:
    return descent_to_noise if settings.estimator == STOPPING else mirror_descent
