"""AIM's loop of select, measure and estimate, written once for every way of computing it.

Provides ``run_aim`` (Algorithm 2 of the FLAIM paper; with a backend on shares, Algorithm 3) and the
two interfaces it runs against: ``Backend`` holds the counts and releases choices and noisy
marginals, ``Estimator`` turns what was released into a model.

How many rounds there are, and how fine they are, is up to a ``Schedule`` (``mechanisms.accounting``).

Public: everything that passes through here; the counts stay behind ``Backend``.

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
from mechanisms.choosing import choice_spec
from mechanisms.errors import BudgetExceeded, FinishedEarly
from mechanisms.remaining_error import remaining_errors
from mechanisms.scores import AIM, FRACTION_BITS, Rule, ScoreSpec, scale_answers
from mechanisms.totals import GrowingTotal, NoisyTotal
from mechanisms.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """A released marginal: ``noisy`` float64 (n_q,) counts of candidate ``candidate`` in C order.

    ``sigma`` is the deviation that each count was charged for, in rows; ``clients`` is how many clients
    were counted when it was taken, in round ``round``. ``total``: the sum of the counts, exactly rounded, with the
    variance that they were charged for; distributed noise has half as much again. Each count is the sum of ``merged``
    released ones, on average: of a column whose fine cells were measured, see ``mechanisms.resolving``.
    """

    round: int
    candidate: int
    noisy: NDArray[np.float64]
    sigma: float
    clients: int
    merged: float = 1.0
    total: NoisyTotal = field(init=False)

    def __post_init__(self) -> None:
        if self.noisy.ndim != 1 or not np.isfinite(self.noisy).all():
            raise ValueError("noisy counts are a vector of finite numbers")
        if not self.sigma > 0 or self.clients < 1:
            raise ValueError("sigma is positive, and at least one client was counted")
        if not self.merged > 0:
            raise ValueError("merged is positive")
        rows = math.fsum(self.noisy.tolist())
        variance = self.noisy.size * self.merged * self.sigma * self.sigma
        object.__setattr__(self, "total", NoisyTotal(rows, variance, self.clients))


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """What a model says: ``answers_q32`` uint32 (workload.cells,), probabilities in units of 2^-32.

    ``allowed`` bool (candidates,): those that the next model may contain without growing too large.
    """

    allowed: NDArray[np.bool_]
    answers_q32: NDArray[np.uint32]


class Backend(Protocol):
    """The counts, and the only two ways in which anything about them is released.

    ``select`` and ``measure`` charge the backend's own ledger before they open anything, and raise
    ``BudgetExceeded`` instead of overspending.
    """

    async def begin_round(self, round: int) -> int:
        """Counts the round's clients in and returns how many are counted so far, at least one.

        Raises ``BudgetExceeded``, before it charges anything, if the ledger cannot pay for the
        whole round; ``FinishedEarly`` where those who run it end it here, after round 0 alone.
        """

    async def select(self, spec: ScoreSpec, scale: float) -> int:
        """The position in ``spec`` chosen by the exponential mechanism with epsilon = ``scale``."""

    async def measure(self, candidate: int, sigma: float) -> NDArray[np.float64]:
        """The counts (n_q,) of a candidate of the workload, each with Gaussian noise ``sigma``."""


class Estimator(Protocol):
    """Public post-processing of what was measured."""

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """The model after ``measurements``, for the selection of ``round``; or the final one."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundRecord:
    """What a finished round released, with the clients counted and the rows estimated by then."""

    round: int
    measurements: tuple[Measurement, ...]
    clients: int
    total: int


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A choice: the position in ``spec`` that came out, and what was measured of it then."""

    spec: ScoreSpec
    position: int
    measurement: Measurement


@dataclass(frozen=True, slots=True, eq=False)
class AimResult:
    """A finished run. ``rounds_done`` is below the schedule's when the ledger could not pay for more, or was to be.

    ``total`` is the estimated number of rows of all clients counted in the end. ``last``: the choice of the last round;
    None where an interrupted run had made it, or there was none.
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

    ``max_rows`` is a public bound on the table. ``rule`` says what error a measurement is taken to leave, in choices
    and where an annealed plan asks whether the model has settled. ``history`` is what an interrupted run measured:
    the loop goes on after its last round, and completes round 0 if that was cut short. A run whose
    ledger cannot pay for a whole further round, or that is to finish early, ends there. ``on_round``
    is called after each round.

    Raises ``BudgetExceeded`` if the ledger cannot pay for round 0, ``EstimationError`` if the
    estimator allows no candidate that a query contains.
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
            settled = before is not None and _settled(
                workload, plan, measurements, before, estimate, max_rows=max_rows, rule=rule
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
    """The estimated rows of the first ``clients`` clients, a whole number in 1 .. max_rows."""
    return min(max(1, round(rows_counted(measurements).at(clients))), max_rows)


def rows_counted(measurements: Sequence[Measurement]) -> GrowingTotal:
    """What ``measurements`` say about the rows of the clients counted. Raises ``EstimationError`` if empty."""
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
    """Whether the last measurement moved its own marginal by no more than noise alone would (line 17).

    ||M_q(after) - M_q(before)||_1 against sqrt(2/pi) sigma n_q; by the new rule against half of what the noise leaves
    if the model before was right: of one choice, which noise made, too, less would say little of the others. Both
    models are scaled to the rows estimated now.
    """
    last = measurements[-1]
    cells = workload.slice(last.candidate)
    difference = after.answers_q32[cells].astype(np.int64) - before.answers_q32[cells]
    total = estimated_total(measurements, last.clients, max_rows)
    moved = int(np.abs(difference).sum()) * total / 2**32
    if rule == AIM:
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
