"""How a run's budget is divided, and how exact its noise has to be: computed from the config alone, alike everywhere.

Provides ``make_plan`` (the ``Schedule`` of a fresh run), ``sampling_distance`` and ``security_bits``. Public:
everything. Source: FLAIM paper, Lemma 4.1 and Algorithm 2, lines 17 to 20.
"""

import math

from mechanisms.accounting import Schedule, fixed_rounds_plan, rho_from_epsilon_delta
from mechanisms.annealing import AnnealedPlan
from mechanisms.events import NOISE_KINDS, NoiseKind
from mechanisms.workload import Workload
from parties.config import ANNEALED, Config
from parties.errors import ConfigError
from protocols.discrete import LARGEST_SECURITY, SECURITY_BITS
from protocols.measure import BOX_MULLER, check_measure, release_distance
from protocols.select import SELECTION_SLACK

_STEP_BITS = 8
_SHARE_OF_DELTA = 2.0**-10


def make_plan(config: Config, workload: Workload) -> Schedule:
    """The division of the config's budget over its rounds, of a run that has not begun.

    What the noise's samplers and the selection's probabilities differ from the mechanisms that are charged comes out
    of delta and epsilon first. Raises ConfigError where the run may come to a noise that cannot be sampled.
    """
    run, noise = config.run, noise_kind(config)
    bits, columns = security_bits(config, workload), len(workload.one_way)
    distance = sampling_distance(config, workload)
    try:
        budget = rho_from_epsilon_delta(run.epsilon, run.delta, distance=distance)
        plan: Schedule
        if run.schedule == ANNEALED:
            plan = AnnealedPlan(
                budget, columns,
                measure_share=run.measure_share, selection_slack=SELECTION_SLACK, noise=noise,
            )  # fmt: skip
        else:
            plan = fixed_rounds_plan(
                budget, run.rounds, columns,
                measure_share=run.measure_share, selection_slack=SELECTION_SLACK, noise=noise,
            )  # fmt: skip
        for sigma in plan.reach:
            check_measure(noise, sigma, config.max_rows, security_bits=bits)
    except ValueError as problem:
        raise ConfigError(config.source, "run", f"cannot be carried out: {problem}") from problem
    return plan


def noise_kind(config: Config) -> NoiseKind:
    """The config's noise, which has been checked, by its type."""
    return next(kind for kind in NOISE_KINDS if kind == config.run.noise)


def sampling_distance(config: Config, workload: Workload) -> float:
    """How far all noise of a run is at most from what is charged for it, as a statistical distance."""
    bits = security_bits(config, workload)
    return _marginals(config, workload) * release_distance(config.run.noise, bits)


def security_bits(config: Config, workload: Workload) -> int:
    """n for which exact noise within 2^-n a sample takes at most a thousandth of delta: 64, for a large epsilon more.

    A distance counts (1 + e^epsilon) times, and that grows: 64 bits do up to an epsilon of about 20, 128 of about 70.
    ``make_plan`` refuses what even the most does not cover.
    """
    run = config.run
    if run.noise == BOX_MULLER:
        return SECURITY_BITS
    all_of_them = release_distance(run.noise, 0) * _marginals(config, workload)
    # In logarithms: e^epsilon may be more than a double holds.
    needed = math.log2(all_of_them / (_SHARE_OF_DELTA * run.delta)) + run.epsilon / math.log(2) + 1
    steps = math.ceil(max(0.0, min(needed, LARGEST_SECURITY) - SECURITY_BITS) / _STEP_BITS)
    return SECURITY_BITS + steps * _STEP_BITS


def _marginals(config: Config, workload: Workload) -> int:
    """The noisy marginals that a run releases at most."""
    return len(workload.one_way) + config.run.rounds
