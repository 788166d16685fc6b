"""MWEM: choose a marginal, measure it with Laplace noise, reweight every cell of the domain; for small domains.

``run_mwem`` runs against ``MwemBackend``; ``PlainMwem`` is one on counts in the clear. On shares
(``bench.papers.mwem``) it is DistMWEM, the predecessor of the FLAIM paper's DistAIM.

All values here are public; the counts stay behind the backend, which charges before it opens.

Each choice and each measurement is epsilon_0-differentially private, with rounded noise of a whole scale; costs are
charged in zCDP, so that an MWEM of (epsilon, delta) is comparable with AIM of the same. The number of rows is measured
too, while the papers assume that it is known.

Source: Hardt, Ligett, McSherry (NeurIPS 2012); Pereira et al. (arXiv 2210.07332) for MPC. Deviations: candidates are
whole marginals (L1 distance, less the error that noise is expected to leave), not single counts; several passes are
made over all measurements so far (Hardt et al., section 3), and the last weights are kept, not averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import (
    MEASURE,
    SELECT,
    DiscreteLaplaceEvent,
    ExponentialEvent,
    Ledger,
    rho,
)
from mechanisms.domain import Clique
from mechanisms.errors import WorkloadError
from mechanisms.events import GRID_SLACK
from mechanisms.exact_noise import discrete_laplace_noise
from mechanisms.model import Model
from mechanisms.sampling import RandomBytes, random_uint64
from mechanisms.scores import (
    FRACTION_BITS,
    ScoreSpec,
    plain_scores,
    score_gain,
    score_offset,
    select_index,
)
from mechanisms.workload import Workload, count_marginals

MAX_CELLS = 1 << 22
PASSES = 50


@dataclass(frozen=True, slots=True)
class MwemPlan:
    """``rounds`` choices of ``epsilon`` each, and as many measurements plus one, of the rows, with a whole ``scale``.

    A choice is charged ``slack`` beyond its epsilon, for the inexactness of its probabilities.

    Raises ``ValueError`` for numbers that are not positive.
    """

    rounds: int
    epsilon: float
    scale: int
    slack: float = GRID_SLACK

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.scale < 1 or not self.epsilon > 0:
            raise ValueError("rounds and scale are at least 1, and epsilon is positive")

    @property
    def selection(self) -> ExponentialEvent:
        """Event that a choice is charged as."""
        return ExponentialEvent(self.epsilon + self.slack)

    @property
    def measurement(self) -> DiscreteLaplaceEvent:
        """Event that a measurement is charged as."""
        return DiscreteLaplaceEvent(float(self.scale))

    @property
    def rho(self) -> float:
        """Cost of a run in zCDP, rounded up: a ledger adds exactly."""
        choices = [rho(self.selection)] * self.rounds
        spent = math.fsum(choices + [rho(self.measurement)] * (self.rounds + 1))
        return math.nextafter(spent, math.inf)


def mwem_plan(budget: float, rounds: int, *, slack: float = GRID_SLACK) -> MwemPlan:
    """Returns the plan that spends ``budget`` (rho) on choices and measurements of one epsilon_0 each, as MWEM does.

    T (epsilon_0^2 / 8 + epsilon_0^2 / 2) + epsilon_0^2 / 2 = rho; the scale is 1 / epsilon_0 rounded up, and the rest
    of the budget goes to the choices. Raises ``ValueError`` if either is not positive.
    """
    if not budget > 0 or rounds < 1:
        raise ValueError(f"a budget of {budget} for {rounds} rounds; expected positive numbers")
    # 1 / epsilon_0 with epsilon_0^2 (5 T / 8 + 1/2) = rho.
    scale = math.ceil(math.sqrt((0.625 * rounds + 0.5) / budget))
    left = budget - (rounds + 1) * rho(DiscreteLaplaceEvent(float(scale)))
    # A little less, so that sums of rounded costs stay within the budget.
    epsilon = math.sqrt(8 * left / rounds) * (1 - 1e-12) - slack
    return MwemPlan(rounds, epsilon, scale, slack)


class MwemBackend(Protocol):
    """The counts, and the operations that release anything about them; each charges before it opens."""

    async def rows(self, scale: int) -> int:
        """Returns the number of rows with Laplace noise."""

    async def select(self, spec: ScoreSpec, epsilon: float) -> int:
        """Returns the position in ``spec`` chosen by the exponential mechanism."""

    async def measure(self, candidate: int, scale: int) -> NDArray[np.int64]:
        """Returns the counts (n_q,) of a candidate of the workload, each with Laplace noise."""


@dataclass(frozen=True, slots=True, eq=False)
class MwemResult:
    """The model, of one clique with all columns, the measured rows and the chosen candidates, in order."""

    model: Model
    total: int
    chosen: tuple[int, ...]


async def run_mwem(
    workload: Workload, plan: MwemPlan, backend: MwemBackend, *, max_rows: int
) -> MwemResult:
    """Runs MWEM over the workload's queries. ``max_rows`` is a public bound on the table.

    Raises ``WorkloadError`` for a domain of more than 2^22 cells, and the errors of the backend, such as
    ``BudgetExceeded``.
    """
    domain = workload.domain
    if (cells := math.prod(domain.shape)) > MAX_CELLS:
        raise WorkloadError(
            f"the domain has {cells} cells; MWEM keeps them all and takes at most {MAX_CELLS}: choose fewer columns"
        )
    total = min(max(1, await backend.rows(plan.scale)), max_rows)
    weights = np.full(domain.shape, 1 / cells)
    measured: dict[Clique, list[NDArray[np.float64]]] = {}
    chosen = []
    candidates = [workload.candidates.index(query) for query in workload.queries]
    for _ in range(plan.rounds):
        spec = _spec(workload, candidates, weights, plan, total=total, max_rows=max_rows)
        candidate = candidates[await backend.select(spec, plan.epsilon)]
        noisy = await backend.measure(candidate, plan.scale)
        query = workload.candidates[candidate]
        mean = noisy.reshape(domain.sizes(query)) / total
        measured.setdefault(query, []).append(mean)
        chosen.append(candidate)
        weights = _reweighted(workload, weights, measured)
    model = Model(domain, (domain.names,), (-1,), (weights,))
    return MwemResult(model, total, tuple(chosen))


def _spec(
    workload: Workload,
    candidates: Sequence[int],
    weights: NDArray[np.float64],
    plan: MwemPlan,
    *,
    total: int,
    max_rows: int,
) -> ScoreSpec:
    """Returns the scores epsilon / 2 (||x - y||_1 - E |noise| n_q): one row changes the distance by one."""
    sizes = [workload.offsets[i + 1] - workload.offsets[i] for i in candidates]
    gain = score_gain(plan.epsilon, 1, 1)
    # E |z| is about the scale; ``score_offset`` takes the deviation of a Gaussian with that E |z|.
    offsets = [score_offset(gain, plan.scale * math.sqrt(math.pi / 2), size) for size in sizes]
    answers = [_marginal(workload, weights, workload.candidates[i]).ravel() for i in candidates]
    scaled = np.floor(np.concatenate(answers) * (total << FRACTION_BITS) + 0.5)
    return ScoreSpec(
        tuple(candidates),
        np.array(sizes, np.int64),
        scaled.astype(np.uint32),
        (gain,) * len(sizes),
        tuple(offsets),
        max_rows,
    )


def _reweighted(
    workload: Workload,
    weights: NDArray[np.float64],
    measured: dict[Clique, list[NDArray[np.float64]]],
) -> NDArray[np.float64]:
    """Multiplies each cell by exp((measured - answered) / 2) of its cell in a marginal.

    Goes through the marginals one by one, in several passes.
    """
    for _ in range(PASSES):
        for query, means in measured.items():
            mean = np.mean(means, axis=0)
            off = (mean - _marginal(workload, weights, query)) / 2
            axes = {workload.domain.index(name) for name in query}
            shape = [n if i in axes else 1 for i, n in enumerate(workload.domain.shape)]
            weights = weights * np.exp(off.reshape(shape))
            weights /= weights.sum()
    return weights


def _marginal(
    workload: Workload, weights: NDArray[np.float64], query: Clique
) -> NDArray[np.float64]:
    inside = {workload.domain.index(name) for name in query}
    summed: NDArray[np.float64] = weights.sum(
        axis=tuple(i for i in range(weights.ndim) if i not in inside)
    )
    return summed


class PlainMwem:
    """Central MWEM, on a table of codes (rows, columns); the reference for the backend on shares."""

    def __init__(
        self,
        workload: Workload,
        plan: MwemPlan,
        *,
        codes: NDArray[np.int32],
        ledger: Ledger,
        random_bytes: RandomBytes,
    ) -> None:
        self._workload, self._plan, self._ledger = workload, plan, ledger
        self._random_bytes, self._rows = random_bytes, len(codes)
        self._expanded = workload.expand(count_marginals(codes, workload))

    async def rows(self, scale: int) -> int:
        """See ``MwemBackend.rows``."""
        self._ledger.charge(0, MEASURE, DiscreteLaplaceEvent(float(scale)))
        return self._rows + int(discrete_laplace_noise(self._random_bytes, scale, 1)[0])

    async def select(self, spec: ScoreSpec, epsilon: float) -> int:
        """See ``MwemBackend.select``."""
        self._ledger.charge(1, SELECT, self._plan.selection)
        scores = plain_scores(self._workload.gather(self._expanded, spec.candidates), spec)
        return select_index(scores, random_uint64(self._random_bytes))

    async def measure(self, candidate: int, scale: int) -> NDArray[np.int64]:
        """See ``MwemBackend.measure``."""
        self._ledger.charge(1, MEASURE, DiscreteLaplaceEvent(float(scale)))
        counts = self._expanded[self._workload.slice(candidate)].astype(np.int64)
        return counts + discrete_laplace_noise(self._random_bytes, scale, counts.size)
