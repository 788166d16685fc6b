"""The methods of the utility benchmark, each from a table split among owners to a model.

Nothing here is secret; see `bench.papers.utility.runs`.

DistAIM without MPC is AIM's loop on a backend that holds the counts in the clear and lets clients arrive as the servers
do: a client takes part in each round with the rate of participation, is counted from its first round on, and those of
round 1 are counted in the initial measurements already (FLAIM paper, Algorithm 3); with `first` once these are of
another draw of clients, as in the authors' code, with fresh each of its own. tests/parties/test_same_choices.py shows
that the choice on shares is the same for the same seeds. Only central AIM takes a domain with private bins; its
workload is of the domain's `stand_in`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.methods.authors_fit import aim_estimator, judged
from bench.methods.flaim import run_flaim
from bench.methods.fresh import FreshFirst
from bench.methods.mpc import run_distaim
from bench.methods.problem import Outcome, Problem
from bench.methods.settings import KEPT, ONCE, Settings
from mechanisms.accounting import Ledger, Schedule, fixed_rounds_plan, rho_from_epsilon_delta
from mechanisms.aim import Measurement, run_aim
from mechanisms.annealing import CENTRAL_ROUNDS, AnnealedPlan
from mechanisms.events import noise_deviation
from mechanisms.plaintext import PlaintextBackend, measure_fine
from mechanisms.resolving import coarse_codes, coarse_measurement, first_spread, resolve
from mechanisms.sampling import RandomBytes
from mechanisms.scores import AIM, RULES, Rule
from mechanisms.workload import Workload, count_marginals
from parties.config import ANNEALED, FIXED, MAX_ROWS, RunSection
from parties.local.partition import Partition
from parties.mpc.planning.budget import divide


async def run_method(settings: Settings, posed: Problem, rng: np.random.Generator) -> Outcome:
    """Runs `settings.method`. Raises MechanismError; with `mpc` also the errors of a launched run."""
    if settings.flaim:
        return await run_flaim(settings, posed, rng)
    if settings.mpc:
        return await run_distaim(settings, posed)
    plan = _schedule(settings, posed)
    ledger = Ledger(plan.rho, accountant=plan.accountant)
    if settings.method == "aim":
        workload, codes, history = _measured(posed, plan, ledger, rng.bytes)
        arrivals = {0: (1, count_marginals(codes, workload))}
    else:
        workload, history = posed.workload, []
        if settings.first != KEPT:
            fresh = _fresh_first(settings, posed, plan, ledger, rng)
            return await _run_aim(settings, posed, workload, plan, fresh, history)
        arrivals = arrival_counts(workload, posed.dataset.train, _owners(posed), settings, rng)
    backend = PlaintextBackend(
        workload,
        plan,
        arrivals=arrivals,
        ledger=ledger,
        random_bytes=rng.bytes,
        measured=len(history),
    )
    return await _run_aim(settings, posed, workload, plan, backend, history)


def _owners(posed: Problem) -> Partition:
    if posed.partition is None:
        raise RuntimeError("every method but central AIM has a partition")
    return posed.partition


def _fresh_first(
    settings: Settings,
    posed: Problem,
    plan: Schedule,
    ledger: Ledger,
    rng: np.random.Generator,
) -> FreshFirst:
    workload, codes, partition = posed.workload, posed.dataset.train, _owners(posed)

    def draw() -> NDArray[np.uint32]:
        """Returns the counts of the clients of one draw, repeated while it is empty."""
        while not (comes := rng.random(partition.clients) < settings.participation).any():
            pass
        return count_marginals(codes[comes[partition.owners]], workload)

    of_all = draw() if settings.first == ONCE else None
    return FreshFirst(
        workload,
        plan,
        arrivals=arrival_counts(workload, codes, partition, settings, rng),
        draw=draw if of_all is None else lambda: of_all,
        expected=max(1, round(settings.participation * partition.clients)),
        ledger=ledger,
        random_bytes=rng.bytes,
    )


def _measured(
    posed: Problem, plan: Schedule, ledger: Ledger, random_bytes: RandomBytes
) -> tuple[Workload, NDArray[np.int32], list[Measurement]]:
    """Measures private bins; returns the workload, the codes, and the measurements of round 0."""
    fine, codes = posed.dataset.domain, posed.dataset.train
    histograms = measure_fine(fine, plan, codes=codes, ledger=ledger, random_bytes=random_bytes)
    if not histograms:
        return posed.workload, codes, []
    domain = resolve(fine, histograms, noise_deviation(plan.noise, plan.initial_sigma))
    history = [
        coarse_measurement(domain, i, noisy, sigma=plan.initial_sigma, clients=1)
        for i, noisy in histograms.items()
    ]
    workload = Workload(domain, posed.workload.queries, posed.workload.targets)
    return workload, coarse_codes(fine, domain, codes), history


async def _run_aim(
    settings: Settings,
    posed: Problem,
    workload: Workload,
    plan: Schedule,
    backend: PlaintextBackend,
    history: Sequence[Measurement],
) -> Outcome:
    estimator = aim_estimator(settings, workload, plan, rows=len(posed.dataset.train))
    result = await run_aim(
        workload,
        plan,
        backend,
        estimator,
        max_rows=MAX_ROWS,
        rule=_rule(settings),
        history=history,
    )
    if estimator.model is None:
        raise RuntimeError("the final estimate made no model")
    return Outcome(estimator.model, result.total, result.rounds_done, judged(estimator))


def _schedule(settings: Settings, posed: Problem) -> Schedule:
    """Returns the papers' schedule for their rule, and a study's for another."""
    workload = posed.workload
    if settings.rule != AIM:
        spread = first_spread(posed.dataset.domain)
        return divide(study_section(settings, workload), workload, spread=spread)
    rho = rho_from_epsilon_delta(settings.epsilon, settings.delta)
    columns = len(workload.one_way)
    if settings.annealed:
        return AnnealedPlan(rho, columns, measure_share=settings.measure_share)
    return fixed_rounds_plan(rho, settings.rounds, columns, measure_share=settings.measure_share)


def study_section(settings: Settings, workload: Workload) -> RunSection:
    """Returns the section [run] of a study."""
    rounds = CENTRAL_ROUNDS * len(workload.one_way) if settings.annealed else settings.rounds
    return RunSection(
        id="bench",
        epsilon=settings.epsilon,
        delta=settings.delta,
        rounds=rounds,
        schedule=ANNEALED if settings.annealed else FIXED,
        rule=settings.rule,
        measure_share=settings.measure_share,
    )


def _rule(settings: Settings) -> Rule:
    return next(rule for rule in RULES if rule == settings.rule)


def arrival_counts(
    workload: Workload,
    codes: NDArray[np.int32],
    partition: Partition,
    settings: Settings,
    rng: np.random.Generator,
) -> dict[int, tuple[int, NDArray[np.uint32]]]:
    """Returns, by round, the number of clients counted from it on, and the sum of their counts (maximal_cells,).

    Draws again while nobody comes to round 1, which the initial measurements need.
    """
    while True:
        first = rng.geometric(settings.participation, partition.clients)
        if (first == 1).any():
            break
    arrivals = {}
    for round in np.unique(first):
        clients = first == round
        counts = count_marginals(codes[clients[partition.owners]], workload)
        arrivals[0 if round == 1 else int(round)] = (int(clients.sum()), counts)
    return arrivals
