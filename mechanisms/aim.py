"""AIM's loop of select, measure and estimate, independent of how the counts are held.

``run_aim`` is Algorithm 2 of the FLAIM paper, or Algorithm 3 with a backend on shares. It runs against two interfaces:
a ``Backend`` holds the counts and releases choices and noisy marginals; an ``Estimator`` turns the released values into
a model. A ``Schedule`` (``mechanisms.accounting``) decides the number of rounds and their noise.

All values here are public; the counts stay behind ``Backend``.

Source: McKenna et al. 2022; FLAIM paper, Algorithms 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Schedule
from mechanisms.choosing import choice_spec, drowned
from mechanisms.errors import BudgetExceeded, FinishedEarly
from mechanisms.remaining_error import remaining_errors
from mechanisms.scores import AIM, FRACTION_BITS, Rule, ScoreSpec, scale_answers
from mechanisms.totals import GrowingTotal, NoisyTotal
from mechanisms.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """A released marginal: ``noisy`` float64 (n_q,) counts of candidate ``candidate`` in C order.

    ``sigma`` is the deviation that each count was charged for, in rows. ``clients`` is the number of clients counted
    when the marginal was measured, in round ``round``. ``total`` is the sum of the counts, exactly rounded, with the
    variance that they were charged for; distributed noise has half as much again. For a column whose fine cells were
    measured (``mechanisms.resolving``) each count is the sum of ``merged`` released counts: a number for each count
    (n_q,), or their mean.
    """

    round: int
    candidate: int
    noisy: NDArray[np.float64]
    sigma: float
    clients: int
    merged: float | NDArray[np.float64] = 1.0
    total: NoisyTotal = field(init=False)

    def __post_init__(self) -> None:
        if self.noisy.ndim != 1 or not np.isfinite(self.noisy).all():
            raise ValueError("noisy counts are a vector of finite numbers")
        if not self.sigma > 0 or self.clients < 1:
            raise ValueError("sigma is positive, and at least one client was counted")
        if not np.all(np.asarray(self.merged) > 0):
            raise ValueError("merged is positive")
        rows = math.fsum(self.noisy.tolist())
        released = (
            self.noisy.size * self.merged
            if isinstance(self.merged, float)
            else float(self.merged.sum())
        )
        variance = released * self.sigma * self.sigma
        object.__setattr__(self, "total", NoisyTotal(rows, variance, self.clients))


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A model's answers: ``answers_q32`` uint32 (workload.cells,), probabilities in units of 2^-32.

    ``allowed`` bool (candidates,) marks the candidates that the next model may contain without growing too large.
    """

    allowed: NDArray[np.bool_]
    answers_q32: NDArray[np.uint32]


class Backend(Protocol):
    """The counts, and the only two operations that release anything about them.

    ``select`` and ``measure`` charge the backend's own ledger before they open anything. Both raise ``BudgetExceeded``
    instead of overspending.
    """

    async def begin_round(self, round: int) -> int:
        """Admits the round's clients and returns the number of clients counted so far, at least one.

        Raises ``BudgetExceeded``, before anything is charged, if the ledger cannot pay for the whole round;
        ``FinishedEarly`` if the operators end the run here, after round 0 alone.
        """

    async def select(self, spec: ScoreSpec, scale: float) -> int:
        """Returns the position in ``spec`` chosen by the exponential mechanism with epsilon = ``scale``."""

    async def measure(self, candidate: int, sigma: float) -> NDArray[np.float64]:
        """Returns the counts (n_q,) of a candidate of the workload, each with Gaussian noise ``sigma``."""


class Estimator(Protocol):
    """Public post-processing of the measurements."""

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """Returns the model after ``measurements``: for the selection of ``round``, or the final model."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundRecord:
    """Released measurements of a finished round, with the clients counted and the rows estimated by then."""

    round: int
    measurements: tuple[Measurement, ...]
    clients: int
    total: int


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A choice: the position in ``spec`` that was selected, and its measurement."""

    spec: ScoreSpec
    position: int
    measurement: Measurement


@dataclass(frozen=True, slots=True, eq=False)
class AimResult:
    """Result of a finished run.

    ``rounds_done`` is below the schedule's number of rounds if the ledger could not pay for more or the operators ended
    the run early. ``total`` is the estimated number of rows of all clients counted in the end. ``last`` is the choice
    of the last round; None if that choice was made before an interruption, or if there was none.
    """

    measurements: tuple[Measurement, ...]
    estimate: Estimate
    rounds_done: int
    clients: int
    total: int
    last: Chosen | None = None


async def run_aim(
    workload: Workload,
    plan: Schedule,
    backend: Backend,
    estimator: Estimator,
    *,
    max_rows: int,
    rule: Rule = AIM,
    history: Sequence[Measurement] = (),
    on_round: Callable[[RoundRecord], None] = lambda record: None,
) -> AimResult:
    """Runs AIM: one-way marginals first, then rounds of select and measure until ``plan`` is done.

    Args:
        max_rows: a public bound on the rows of the table.
        rule: the formula for the error that a measurement leaves, in choices and in an annealed plan's test of whether
            the model has settled.
        history: the measurements of an interrupted run. The loop continues after its last round, and completes round 0
            if that was cut short.
        on_round: called after each round.

    A run ends early if its ledger cannot pay for another whole round, or if the operators end it. Raises
    ``BudgetExceeded`` if the ledger cannot pay for round 0, ``EstimationError`` if the estimator allows no candidate
    that a query contains.
    """
    measurements = list(history)
    rounds_done = max((m.round for m in measurements), default=0)
    plan.resume([m.sigma for m in measurements if m.round > 0])

    # Alg. 2, lines 3 to 5: the initial model, from all one-way marginals.
    measured = {m.candidate for m in measurements}
    if missing := [i for i in workload.one_way if i not in measured]:
        clients = await backend.begin_round(0)
        for i in missing:
            noisy = await backend.measure(i, plan.initial_sigma)
            measurements.append(Measurement(0, i, noisy, plan.initial_sigma, clients))
        on_round(_record(measurements, 0, clients, max_rows))

    before: Estimate | None = None
    if rounds_done and plan.adaptive:
        earlier = [m for m in measurements if m.round < rounds_done]
        before = await estimator.estimate(earlier, round=rounds_done, final=False)

    # Alg. 2, lines 6 to 20: select the worst-answered candidate, measure it, estimate again.
    last: Chosen | None = None
    while rounds_done < plan.rounds:
        round = rounds_done + 1
        estimate = await estimator.estimate(measurements, round=round, final=False)
        if plan.adaptive:
            if before is not None:
                settled = _settled(
                    workload, plan, measurements, before, estimate, max_rows=max_rows, rule=rule
                )
            else:
                settled = rule != AIM and drowned(
                    workload,
                    estimate.answers_q32,
                    estimate.allowed,
                    total=_last_total(measurements, max_rows),
                    sigma=plan.noise_sigma,
                )
            plan.advance(round, settled=settled)
            if plan.rounds < round:
                break
        try:
            clients = await backend.begin_round(round)
        except (BudgetExceeded, FinishedEarly):
            break
        spec = choice_spec(
            workload,
            plan,
            estimate.answers_q32,
            estimate.allowed,
            measured=[m.candidate for m in measurements],
            round=round,
            total=estimated_total(measurements, clients, max_rows),
            max_rows=max_rows,
            rule=rule,
        )
        position = await backend.select(spec, plan.epsilon)
        candidate = spec.candidates[position]
        noisy = await backend.measure(candidate, plan.sigma)
        measurements.append(Measurement(round, candidate, noisy, plan.sigma, clients))
        last = Chosen(spec, position, measurements[-1])
        on_round(_record(measurements, round, clients, max_rows))
        before, rounds_done = estimate, round

    final = await estimator.estimate(measurements, round=rounds_done, final=True)
    clients = max(m.clients for m in measurements)
    total = estimated_total(measurements, clients, max_rows)
    return AimResult(tuple(measurements), final, rounds_done, clients, total, last)


def estimated_total(measurements: Sequence[Measurement], clients: int, max_rows: int) -> int:
    """Returns the estimated rows of the first ``clients`` clients, a whole number in 1 .. max_rows."""
    return min(max(1, round(rows_counted(measurements).at(clients))), max_rows)


def _last_total(measurements: Sequence[Measurement], max_rows: int) -> int:
    """Returns the estimated rows of the clients that were counted in the last measurement."""
    return estimated_total(measurements, measurements[-1].clients, max_rows)


def rows_counted(measurements: Sequence[Measurement]) -> GrowingTotal:
    """Returns the estimate of the counted clients' rows, from ``measurements``. Raises ``EstimationError`` if empty."""
    return GrowingTotal([m.total for m in measurements])


def _settled(
    workload: Workload,
    plan: Schedule,
    measurements: Sequence[Measurement],
    before: Estimate,
    after: Estimate,
    *,
    max_rows: int,
    rule: Rule,
) -> bool:
    """Returns whether the last measurement moved its own marginal no more than noise alone would (Alg. 2, line 17).

    By the papers' rule, ||M_q(after) - M_q(before)||_1 is compared with sqrt(2/pi) sigma n_q. By the new rule it is
    compared with half of the error that the noise leaves if the earlier model was right: a single choice, which noise
    influenced too, would otherwise say little about the other candidates. Both models are scaled to the rows estimated
    now.
    """
    last = measurements[-1]
    cells = workload.slice(last.candidate)
    difference = after.answers_q32[cells].astype(np.int64) - before.answers_q32[cells]
    total = _last_total(measurements, max_rows)
    # ||M_q(after) - M_q(before)||_1 in rows: answers are in units of 2^-32 of the table.
    moved = int(np.abs(difference).sum()) * total / 2**32
    if rule == AIM:
        # The expected L1 norm of Gaussian noise on n_q cells.
        return moved <= math.sqrt(2 / math.pi) * plan.noise_sigma * last.noisy.size
    answers = scale_answers(before.answers_q32[cells], total)
    (left,) = remaining_errors(
        answers, [answers.size], plan.noise_sigma, fraction_bits=FRACTION_BITS
    )
    return 2 * moved * (1 << FRACTION_BITS) <= left


def _record(
    measurements: Sequence[Measurement], round: int, clients: int, max_rows: int
) -> RoundRecord:
    of_round = tuple(m for m in measurements if m.round == round)
    return RoundRecord(round, of_round, clients, estimated_total(measurements, clients, max_rows))
