"""How a run's budget is divided, and how exact its noise has to be: computed from the config alone, alike everywhere.

Provides ``make_plan`` (the ``Schedule`` of a fresh run), ``release_of`` (what it costs an owner), ``released_costs``,
``sampling_distance`` and ``security_bits``. Public: everything. Source: FLAIM paper, Lemma 4.1 and Algorithm 2, lines
17 to 20.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

from mechanisms.accounting import Schedule, fixed_rounds_plan, rho, rho_from_epsilon_delta
from mechanisms.annealing import AnnealedPlan
from mechanisms.events import NOISE_KINDS, NoiseKind
from mechanisms.units import row_budget
from mechanisms.workload import Workload
from parties.budget import ROW, Release
from parties.config import ANNEALED, BY_KEY, PERSON, Config
from parties.errors import ConfigError
from protocols.discrete import LARGEST_SECURITY, SECURITY_BITS
from protocols.measure import BOX_MULLER, check_measure, release_distance
from protocols.select_spec import SELECTION_DISTANCE, SELECTION_SLACK

_STEP_BITS = 8
_SHARE_OF_DELTA = 2.0**-10


def make_plan(config: Config, workload: Workload) -> Schedule:
    """The division of the config's budget over its rounds, of a run that has not begun.

    What the noise's samplers and the selection's probabilities differ from the mechanisms that are charged comes out
    of delta and epsilon first. Raises ConfigError, which says what to change, where the run may come to a noise that
    cannot be sampled.
    """
    try:
        return _plan(config, workload)
    except ValueError as problem:
        expected = _remedies(config, workload)
        raise ConfigError(
            config.source, "run", f"cannot be carried out: {problem}; expected {expected}"
        ) from problem


def _plan(config: Config, workload: Workload) -> Schedule:
    """``make_plan``, with ValueError for what cannot be carried out."""
    plan, bits = _divided(config, workload), security_bits(config, workload)
    for sigma in plan.reach:
        check_measure(noise_kind(config), sigma, config.max_rows, security_bits=bits)
    return plan


def unit_budget(config: Config, workload: Workload) -> float:
    """The rho of the whole run for a unit of privacy: a row, or a person with all of its rows."""
    distance = sampling_distance(config, workload)
    return rho_from_epsilon_delta(config.run.epsilon, config.run.delta, distance=distance)


def _budget(config: Config, workload: Workload) -> float:
    """As ``unit_budget``, for a row, which plan and ledger count in."""
    return row_budget(unit_budget(config, workload), config.rows_of_unit)


def release_of(config: Config, workload: Workload) -> Release:
    """What taking part in the run may release of a table, at most: the whole run. Raises as ``make_plan``.

    It is charged what a unit is, which is no less than what any row of the table is.
    """
    plan = make_plan(config, workload)
    return Release(
        config=config.digest(),
        run=config.run.id,
        method="distaim",
        rho=plan.rho if config.rows_of_unit == 1 else unit_budget(config, workload),
        epsilon=config.run.epsilon,
        delta=config.run.delta,
        distance=sampling_distance(config, workload),
        unit=_unit(config),
    )


def _unit(config: Config) -> str:
    """What neighbouring tables differ in, for the budgets of owners."""
    if config.run.unit == PERSON:
        rows = config.rows_of_unit
        return PERSON if rows == 1 else f"person with up to {rows} rows"
    return "place in all sources" if config.sources and config.run.link != BY_KEY else ROW


def _divided(config: Config, workload: Workload) -> Schedule:
    """The division, whatever noise it comes to."""
    run, noise, columns = config.run, noise_kind(config), len(workload.one_way)
    budget = _budget(config, workload)
    if run.schedule == ANNEALED:
        return AnnealedPlan(
            budget,
            columns,
            measure_share=run.measure_share,
            selection_slack=SELECTION_SLACK,
            noise=noise,
        )
    return fixed_rounds_plan(
        budget,
        run.rounds,
        columns,
        measure_share=run.measure_share,
        selection_slack=SELECTION_SLACK,
        noise=noise,
    )


def _remedies(config: Config, workload: Workload) -> str:
    """Which keys to change so that a config without a plan gets one."""
    try:
        _budget(config, workload)
    except ValueError:
        least = _least_delta(config, workload)
        if config.run.delta > least:
            return "a smaller run.epsilon or a larger run.delta"
        return f"a run.delta of more than {least:.2g}"
    fine = _too_fine(config, workload)
    remedies = [f"a {'smaller' if fine else 'larger'} run.epsilon"]
    if config.run.schedule != ANNEALED and _works(config, workload, rounds=10_000 if fine else 1):
        remedies.append(f"{'more' if fine else 'fewer'} run.rounds")
    if config.run.noise != BOX_MULLER and _works(config, workload, noise=BOX_MULLER):
        remedies.append(f'run.noise = "{BOX_MULLER}"')
    return " or ".join(remedies)


def _least_delta(config: Config, workload: Workload) -> float:
    """What the finest samplers take out of delta, at an epsilon of 1 where the config's is larger."""
    measured = _marginals(config, workload)
    distance = _distance(config, measured * release_distance(config.run.noise, LARGEST_SECURITY))
    return (1 + math.exp(min(config.run.epsilon, 1.0))) * distance


def _too_fine(config: Config, workload: Workload) -> bool:
    """Whether the noise is too small for a sampler, and not too large; samplers begin below 1 and end far above."""
    try:
        return min(_divided(config, workload).reach) < 1
    except ValueError:
        return False


def _works(config: Config, workload: Workload, **changes: int | str) -> bool:
    try:
        _plan(replace(config, run=replace(config.run, **changes)), workload)  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


def noise_kind(config: Config) -> NoiseKind:
    """The config's noise, which has been checked, by its type."""
    return next(kind for kind in NOISE_KINDS if kind == config.run.noise)


def sampling_distance(config: Config, workload: Workload) -> float:
    """How far all noise and choices of a run are at most from what is charged for them, as a statistical distance."""
    measured = _marginals(config, workload)
    bits = security_bits(config, workload)
    return _distance(config, measured * release_distance(config.run.noise, bits))


def _distance(config: Config, of_noise: float) -> float:
    """With that of each choice, which is as exact as the finest noise."""
    return of_noise + config.run.rounds * SELECTION_DISTANCE


def security_bits(config: Config, workload: Workload) -> int:
    """n for which exact noise within 2^-n a sample takes at most a thousandth of delta: 64, for a large epsilon more.

    A distance counts (1 + e^epsilon) times, and that grows: 64 bits do up to an epsilon of about 20, 128 of about 70.
    ``make_plan`` refuses what even the most does not cover.
    """
    run = config.run
    if run.noise == BOX_MULLER:
        return SECURITY_BITS
    all_of_them = release_distance(run.noise, 0) * _marginals(config, workload)
    # In logarithms: e^epsilon may be more than a double holds, and a share of delta less.
    needed = math.log2(all_of_them) - math.log2(_SHARE_OF_DELTA) - math.log2(run.delta)
    needed += run.epsilon / math.log(2) + 1
    steps = math.ceil(max(0.0, min(needed, LARGEST_SECURITY) - SECURITY_BITS) / _STEP_BITS)
    return SECURITY_BITS + steps * _STEP_BITS


def _marginals(config: Config, workload: Workload) -> int:
    """The noisy marginals that a run releases at most."""
    return len(workload.one_way) + config.run.rounds


def released_costs(plan: Schedule, initial: int, sigmas: Sequence[float]) -> list[float]:
    """What a run has released cost: ``initial`` measurements of round 0, and rounds 1 .. n with these ``sigmas``."""
    then = copy.deepcopy(plan)
    costs = [rho(then.events(0)[0])] * initial
    then.resume(sigmas)
    return costs + [rho(event) for n in range(1, len(sigmas) + 1) for event in then.events(n)]
