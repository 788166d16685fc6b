"""FLAIM: synthetic data from clients that choose queries themselves and reveal noisy sums only.

``run_flaim`` is the server's side of Algorithm 1 of the FLAIM paper, for every variant. It runs against two interfaces:
``Federation`` (the clients) and ``FlaimEstimator`` (the model).

The client's side is ``mechanisms.flaim_client``; messages are ``mechanisms.flaim_messages``;
``mechanisms.flaim_participants`` draws the participants of a round.

All values here are public. Counts stay behind ``Federation``.

Source: FLAIM paper, Algorithm 1. Deviations: see README.md, FLAIM.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import LOCAL, MEASURE, SELECT, Ledger, Schedule
from mechanisms.descent import Target, merge
from mechanisms.errors import (
    BudgetExceeded,
    EstimationError,
    FinishedEarly,
    FlaimError,
    RoundLost,
)
from mechanisms.events import DiscreteGaussianEvent, Event
from mechanisms.flaim_client import selectable
from mechanisms.flaim_messages import Brief, Layout
from mechanisms.flaim_settings import FlaimSettings
from mechanisms.model import Model
from mechanisms.totals import NoisyTotal, rows_per_client
from mechanisms.workload import Workload


@dataclass(frozen=True, slots=True)
class Participant:
    """A client of the run: its number, and the rows it declared if sizes are public (else None)."""

    client: int
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class SumRequest:
    """A requested sum: its layout, and its ``members``, numbers of clients, ascending."""

    layout: Layout
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """A noisy sum: ``counts`` float64 (layout.cells,) in rows, over the clients ``survivors``.

    ``deviation`` is that of the noise in each count.
    """

    counts: NDArray[np.float64]
    survivors: tuple[int, ...]
    deviation: float


class Federation(Protocol):
    """The clients, and the only two operations that release anything about their rows."""

    @property
    def population(self) -> Sequence[Participant]:
        """All clients of the run, whether or not they take part in a round."""

    async def begin_round(self, round: int) -> Sequence[int]:
        """Draws the round's participants, at least the agreed minimum, and returns their numbers.

        Raises ``RoundLost`` if too few clients are left, ``FinishedEarly`` if the operator ends the run here.
        """

    async def choices(self, brief: Brief) -> Mapping[int, tuple[int, ...]]:
        """Returns the choices of each of the round's participants, by client number, without those that left."""

    async def aggregate(self, requests: Sequence[SumRequest]) -> Sequence[Sums | None]:
        """Returns the noisy sum for each request, None if too few of its members are left.

        Nobody learns anything about a sum before it has its noise, except the server with ``server`` noise.
        """


class FlaimEstimator(Protocol):
    """Public post-processing of the measurements."""

    async def estimate(
        self, targets: Sequence[tuple[int, Target]], *, spent: float, final: bool
    ) -> tuple[Model, NDArray[np.bool_]]:
        """Returns the model of (candidate, target) pairs, and the candidates (candidates,) that the next may contain.

        ``spent`` is the share of the budget used so far, 0 to 1.
        """


@dataclass(frozen=True, slots=True, eq=False)
class FlaimMeasurement:
    """A released sum: ``noisy`` float64 (n_q,) counts of candidate ``candidate``, in C order, in rows.

    ``deviation`` is that of the noise in each count; ``contributors`` are the clients whose rows are in it. ``one_way``
    is true if the marginal was measured of all participants rather than chosen (with the variant pairs, all are).
    """

    round: int
    candidate: int
    noisy: NDArray[np.float64]
    deviation: float
    contributors: tuple[int, ...]
    one_way: bool


@dataclass(frozen=True, slots=True, eq=False)
class FlaimRound:
    """A finished round: its participants, the choosers by candidate, and the measurements.

    ``lost``: too few participants were left, so that nothing was opened though it was charged.
    """

    round: int
    participants: tuple[int, ...]
    choosers: Mapping[int, tuple[int, ...]]
    measurements: tuple[FlaimMeasurement, ...]
    lost: bool


@dataclass(frozen=True, slots=True, eq=False)
class FlaimResult:
    """Result of a finished run.

    Attributes:
        total: rows of all clients, declared or estimated.
        rounds_done: the last round that took place.
        lost_rounds: rounds that were charged and opened nothing.
        chosen_queries: number of pairs of a query and a round.
        single_choosers: number of ``chosen_queries`` with one chooser.
        stopped: the reason why there were no more rounds, or empty.
        population: all clients of the run, whether or not they took part.
    """

    model: Model
    rounds: tuple[FlaimRound, ...]
    total: int
    rounds_done: int
    lost_rounds: tuple[int, ...]
    chosen_queries: int
    single_choosers: int
    stopped: str
    population: tuple[Participant, ...]


async def run_flaim(
    workload: Workload,
    settings: FlaimSettings,
    schedule: Schedule,
    federation: Federation,
    estimator: FlaimEstimator,
    ledger: Ledger,
    *,
    on_round: Callable[[FlaimRound], None] = lambda done: None,
    history: Sequence[FlaimRound] = (),
) -> FlaimResult:
    """Runs FLAIM; ``schedule`` is ``settings.schedule`` of its ``common`` marginals.

    Args:
        on_round: called after each round.
        history: the rounds of an interrupted run, 0 first, which are not repeated; not allowed with an adaptive
            schedule.

    Every release is charged to ``ledger`` before any client is asked for it. A round that loses too many participants
    is charged and opens nothing, and the next one follows. The run ends early, as ``rounds_done`` and ``stopped``
    report, if the ledger cannot pay for another whole round, there are too few clients for one, or the operator ends
    it.

    Raises ``RoundLost`` if too few clients stay for the first sums, ``BudgetExceeded`` if these cannot be paid for,
    ``EstimationError`` if no query may be chosen, ``FlaimError`` for clients that do not fit the settings.
    """
    if history and schedule.adaptive:
        raise ValueError("an adaptive schedule begins anew: what was decided before is not known")
    run = _Run(workload, settings, schedule, federation, ledger, history)
    run.check()
    stopped = ""

    # One-way marginals first, for the first model to score against. If they are measured in every round, these are the
    # first round's.
    if not history:
        first = await run.measure(0, await federation.begin_round(0), {}, one_way=True)
        if first.lost:
            raise RoundLost("too few clients stayed for the first sums: no model can be made")
        on_round(first)

    # Algorithm 1, lines 3 to 15: every participant chooses, the sums are taken, the model is fitted.
    before: Model | None = None
    number = next_round(settings, history)
    while number <= last_round(settings, schedule):
        model, allowed = await estimator.estimate(run.targets(), spent=run.spent, final=False)
        if schedule.adaptive:
            schedule.advance(number, settled=before is not None and run.settled(before, model))
            if schedule.rounds < number:
                break
        try:
            ledger.require(round_events(workload, settings, schedule, number))
            members = await federation.begin_round(number)
        except (BudgetExceeded, FinishedEarly, RoundLost) as error:
            stopped = str(error)
            break
        choosers = await run.choose(number, members, model, allowed)
        one_way = settings.one_way_each_round and number > 1
        done = await run.measure(number, members, choosers, one_way=one_way)
        on_round(done)
        before, number = model, number + 1

    model, _ = await estimator.estimate(run.targets(), spent=run.spent, final=True)
    return run.result(model, number - 1, stopped)


def next_round(settings: FlaimSettings, history: Sequence[FlaimRound]) -> int:
    """Returns the number of the round after the first sums, or after those of ``history``."""
    first = 1 if settings.chosen else 2
    return max([first, *(done.round + 1 for done in history)])


def last_round(settings: FlaimSettings, schedule: Schedule) -> int:
    """Returns the number of the last round, as far as known: more than clients pay for if they take turns."""
    return settings.rounds if settings.turns < settings.rounds else schedule.rounds


def round_events(
    workload: Workload, settings: FlaimSettings, schedule: Schedule, number: int
) -> tuple[Event, ...]:
    """Returns the events that round ``number`` still has to be charged.

    The one-way marginals of the first round are paid already.
    """
    if settings.is_paid(number):
        return ()
    events = schedule.events(number)
    if number == 1 and settings.one_way_each_round:
        return events[: -len(workload.one_way)]
    return events


class _Run:
    """State of a run in progress: the releases so far, and the steps of one round."""

    def __init__(
        self,
        workload: Workload,
        settings: FlaimSettings,
        schedule: Schedule,
        federation: Federation,
        ledger: Ledger,
        history: Sequence[FlaimRound],
    ) -> None:
        self._workload = workload
        self._settings = settings
        self._schedule = schedule
        self._federation = federation
        self._ledger = ledger
        self._rounds = list(history)
        self._common = settings.common(workload)

    def check(self) -> None:
        """Raises ``FlaimError`` if the clients or the workload do not fit the settings."""
        settings, population = self._settings, self._federation.population
        if len(population) < settings.min_participants:
            raise FlaimError(
                f"{len(population)} clients; min_participants = {settings.min_participants}"
            )
        if len({p.client for p in population}) < len(population):
            raise FlaimError("two clients have the same number")
        for participant in population:
            if (participant.rows is None) != (settings.sizes == "estimated"):
                raise FlaimError("clients declare their rows if sizes = 'public', and only then")
            if not 0 <= (participant.rows or 0) <= settings.max_client_rows:
                raise FlaimError(
                    f"client {participant.client} declares {participant.rows} rows; "
                    f"0 to max_client_rows = {settings.max_client_rows} were agreed on"
                )

    @property
    def spent(self) -> float:
        """Share of the budget used so far."""
        return min(1.0, self._ledger.spent / self._settings.rho)

    async def choose(
        self, number: int, members: Sequence[int], model: Model, allowed: NDArray[np.bool_]
    ) -> Mapping[int, tuple[int, ...]]:
        """Asks the participants for their choices and returns the choosers by candidate.

        Charges the choices and the clients' own measurements before.
        """
        settings, workload, schedule = self._settings, self._workload, self._schedule
        if not settings.chosen:
            return {}
        allowed = selectable(workload, settings, allowed)
        if not allowed.any():
            raise EstimationError(
                "the size limit of the model leaves no candidate; raise max_model_mb"
            )
        brief = Brief(
            workload,
            number,
            schedule.epsilon if settings.selects else 0.0,
            schedule.sigma,
            settings.sum_noise(schedule.sigma).deviation(len(members)),
            self._rows_of_each() if settings.sizes == "estimated" else 0,
            allowed,
            model if settings.selects else None,
            self._one_way() if settings.tau == "proxy" else None,
        )
        if settings.selects:
            self._charge(number, SELECT, (schedule.selection,) * settings.local_rounds)
            local = DiscreteGaussianEvent(schedule.sigma)
            self._charge(number, LOCAL, (local,) * settings.local_measurements)
        choices = await self._federation.choices(brief)
        if not set(choices) <= set(members):
            raise FlaimError("a client chose that takes no part in the round")
        choosers: dict[int, list[int]] = {}
        for client in sorted(choices):
            self._check_choice(choices[client], allowed)
            for candidate in choices[client]:
                choosers.setdefault(candidate, []).append(client)
        return {q: tuple(choosers[q]) for q in sorted(choosers)}

    def _check_choice(self, chosen: Sequence[int], allowed: NDArray[np.bool_]) -> None:
        if not len(set(chosen)) == len(chosen) <= self._settings.local_rounds:
            raise FlaimError("a client chose too many queries, or one twice")
        if not all(0 <= q < len(allowed) and allowed[q] for q in chosen):
            raise FlaimError("a client chose a query that was not allowed")

    async def measure(
        self,
        number: int,
        members: Sequence[int],
        choosers: Mapping[int, tuple[int, ...]],
        *,
        one_way: bool,
    ) -> FlaimRound:
        """Takes the round's sums, charged first; clients that left before they chose are not asked."""
        settings = self._settings
        chooses = settings.chosen > 0 and number > 0
        there = {client for clients in choosers.values() for client in clients}
        present = tuple(sorted(there if chooses else members))
        measurements: list[FlaimMeasurement] = []
        if len(present) >= settings.min_participants:
            marginals = settings.chosen * chooses + len(self._common) * one_way
            event = settings.sum_noise(self._schedule.sigma).event
            if not settings.is_paid(number):
                self._charge(number, MEASURE, (event,) * marginals)
            requests = self._requests(number, present, choosers, one_way=one_way)
            sums = await self._federation.aggregate(requests)
            for request, total in zip(requests, sums, strict=True):
                if total is not None:
                    measurements += self._measurements(request, total, choosers)
        done = FlaimRound(
            number, tuple(members), choosers, tuple(measurements), lost=not measurements
        )
        self._rounds.append(done)
        return done

    def _requests(
        self,
        number: int,
        present: tuple[int, ...],
        choosers: Mapping[int, tuple[int, ...]],
        *,
        one_way: bool,
    ) -> list[SumRequest]:
        sigma = self._schedule.sigma
        if self._settings.grouping == "union":
            more = self._common[len(self._workload.one_way) :] if one_way else ()
            layout = Layout(number, 0, len(present), sigma, one_way, more or tuple(choosers))
            return [SumRequest(layout, present)]
        parts: list[tuple[bool, tuple[int, ...], tuple[int, ...]]] = []
        if one_way:
            parts.append((True, (), present))
        parts += [(False, (q,), clients) for q, clients in choosers.items()]
        return [
            SumRequest(Layout(number, group, len(clients), sigma, everybody, chosen), clients)
            for group, (everybody, chosen, clients) in enumerate(parts)
        ]

    def _measurements(
        self, request: SumRequest, total: Sums, choosers: Mapping[int, tuple[int, ...]]
    ) -> Iterator[FlaimMeasurement]:
        layout, survivors, common = request.layout, set(total.survivors), set(self._common)
        if total.counts.shape != (layout.cells(self._workload),) or not survivors:
            raise FlaimError("a sum does not have its layout's length, or is over nobody")
        start = 0
        for candidate in layout.marginals(self._workload):
            cells = self._workload.slice(candidate)
            end = start + cells.stop - cells.start
            everybody = layout.one_way and candidate in common
            members = request.members if everybody else choosers[candidate]
            contributors = tuple(client for client in members if client in survivors)
            # If all its choosers have left, the marginal is noise and nothing else.
            if contributors:
                yield FlaimMeasurement(
                    layout.round,
                    candidate,
                    total.counts[start:end],
                    total.deviation,
                    contributors,
                    everybody,
                )
            start = end

    def _charge(self, number: int, step: str, events: Sequence[Event]) -> None:
        self._ledger.require(events)
        for event in events:
            self._ledger.charge(number, step, event)

    @property
    def _measured(self) -> list[FlaimMeasurement]:
        return [m for done in self._rounds for m in done.measurements]

    def _rate(self) -> float:
        """Returns the average rows of one client, from the sums of one-way marginals."""
        return rows_per_client(
            [
                NoisyTotal(
                    math.fsum(m.noisy.tolist()), m.noisy.size * m.deviation**2, len(m.contributors)
                )
                for m in self._measured
                if m.one_way
            ]
        )

    def _rows_of_each(self) -> int:
        return min(max(1, round(self._rate())), self._settings.max_client_rows)

    def _declared(self) -> Mapping[int, int]:
        """Returns the rows of every client: declared, or one estimate for all."""
        population = self._federation.population
        if self._settings.sizes == "public":
            return {p.client: p.rows or 0 for p in population}
        rows = self._rows_of_each()
        return {p.client: rows for p in population}

    def targets(self) -> list[tuple[int, Target]]:
        """Returns the targets of the model: all measurements, normalised by their contributors' rows N_q.

        The weight is (N_q / sigma)^2 if weighted; else (N / sigma)^2, as if all had been measured over the same rows.
        """
        settings, rows = self._settings, self._declared()
        typical = max(1, settings.participation * sum(rows.values()))
        targets = []
        for m in self._measured:
            total = sum(rows[client] for client in m.contributors)
            if not total or (m.one_way and settings.selects and self._only_for_tau(m)):
                continue
            weight = ((total if settings.weighted else typical) / m.deviation) ** 2
            sizes = self._workload.domain.sizes(self._workload.candidates[m.candidate])
            targets.append((m.candidate, Target(m.noisy.reshape(sizes) / total, weight)))
        return targets

    def _only_for_tau(self, m: FlaimMeasurement) -> bool:
        """Returns whether a one-way marginal serves tau alone: in later rounds, without combining.

        The one-way marginals of round 0 make the first model.
        """
        return m.round > 0 and not self._settings.combine

    def _one_way(self) -> NDArray[np.float64]:
        """Returns one-way estimates (cells of all columns,) from all one-way measurements, as distributions."""
        rows = self._declared()
        merged = merge(
            (
                self._workload.candidates[m.candidate],
                Target(m.noisy / total, (total / m.deviation) ** 2),
            )
            for m in self._measured
            if m.one_way and (total := sum(rows[client] for client in m.contributors))
        )
        parts = []
        for name, size in zip(
            self._workload.domain.names, self._workload.domain.shape, strict=True
        ):
            known = merged.get((name,))
            estimate = np.ones(size) if known is None else np.maximum(known.mean, 0.0)
            total = estimate.sum()
            parts.append(estimate / total if total > 0 else np.full(size, 1 / size))
        return np.concatenate(parts)

    def settled(self, before: Model, after: Model) -> bool:
        """Returns whether the last round's choices moved the model, at them, by no more than noise alone would.

        The test is sum over q of N_q ||M_q(after) - M_q(before)||_1 <= sum of sqrt(2/pi) sigma n_q, line 17 of
        Algorithm 2 summed over q, or the same for any single q.
        """
        rows = self._declared()
        last = [m for m in self._rounds[-1].measurements if not m.one_way]
        cliques = [self._workload.candidates[m.candidate] for m in last]
        # N_q ||M_q(after) - M_q(before)||_1 - sqrt(2/pi) sigma n_q for each q.
        beyond = []
        for m, old, new in zip(last, before.answers(cliques), after.answers(cliques), strict=True):
            total = sum(rows[client] for client in m.contributors)
            noise = math.sqrt(2 / math.pi) * m.deviation * m.noisy.size
            beyond.append(total * float(np.abs(new - old).sum()) - noise)
        judge = min if self._settings.settles == "any" else math.fsum
        return bool(last) and judge(beyond) <= 0

    def result(self, model: Model, rounds_done: int, stopped: str) -> FlaimResult:
        """Returns the result of the finished run."""
        choosers = [clients for done in self._rounds for clients in done.choosers.values()]
        rows = (
            sum(self._declared().values())
            if self._settings.sizes == "public"
            else round(self._rate() * len(self._federation.population))
        )
        return FlaimResult(
            model,
            tuple(self._rounds),
            max(1, rows),
            rounds_done,
            tuple(done.round for done in self._rounds if done.lost),
            len(choosers),
            sum(len(clients) == 1 for clients in choosers),
            stopped,
            tuple(self._federation.population),
        )
