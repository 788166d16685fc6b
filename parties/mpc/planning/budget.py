"""Budget of a run: its division over rounds, and the required precision of its noise, from the config alone.

All servers and participants compute the same plan. All values here are public. Source: FLAIM paper, Lemma 4.1 and
Algorithm 2, lines 17 to 20.
"""

import contextlib
import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from mechanisms.accounting import (
    ZCDP,
    Accountant,
    Schedule,
    epsilon_from_rho,
    fixed_rounds_plan,
    rho_from_epsilon_delta,
)
from mechanisms.annealing import CENTRAL_ROUNDS, AnnealedPlan
from mechanisms.choosing import tree_rounds
from mechanisms.composition import epsilon_of, of_group
from mechanisms.events import NOISE_KINDS, NoiseKind
from mechanisms.gaussian_privacy import GAUSSIAN, ROUNDINGS, GaussianAccountant, factor_for
from mechanisms.resolving import first_spread
from mechanisms.scores import AIM, RULES, Rule
from mechanisms.units import row_budget
from mechanisms.workload import Workload
from parties.config import ANNEALED, BY_KEY, PERSON, Config, RunSection
from parties.foundation.errors import ConfigError
from parties.session.study import Study
from parties.storage.population_budget import Release, person_or_row
from protocols.discrete import LARGEST_SECURITY, SECURITY_BITS
from protocols.measure import check_measure, release_distance
from protocols.noise_kinds import BOX_MULLER
from protocols.select_spec import SELECTION_SLACK, selection_distance

INITIAL_SHARE, TREE_SHARE = 0.2, 0.25
"""Default shares unless the config sets them or uses AIM's own rule.

The first is the initial measurements' share of the measuring budget; the second is the tree rounds' share of the rest.
"""
_STEP_BITS = 8
_SHARE_OF_DELTA = 2.0**-10
_USUAL_DELTA = 1e-9


def make_plan(study: Study) -> Schedule:
    """Division of the config's budget over the rounds of a run that has not begun.

    Delta and epsilon first pay for the distance of the noise samplers and the selection probabilities from the
    mechanisms that are charged. Raises ConfigError, with the change to make, if the run may need a noise that cannot be
    sampled.
    """
    try:
        return _plan(study)
    except ValueError as problem:
        expected = _remedies(study)
        raise ConfigError(
            study.config.source, "run", f"cannot be carried out: {problem}; expected {expected}"
        ) from problem


def _plan(study: Study) -> Schedule:
    """As ``make_plan``, but raises ValueError for an infeasible run."""
    plan, bits = _divided(study), security_bits(study)
    for sigma in plan.reach:
        check_measure(noise_kind(study.config), sigma, study.config.max_rows, security_bits=bits)
    return plan


def unit_budget(study: Study) -> float:
    """Rho of the whole run for a unit of privacy: a row, or a person with all of its rows.

    Rho is in the currency of the plan's accountant; in each of them it implies as much zCDP.
    """
    return _sampling(study).budget


def unit_loss(study: Study) -> tuple[str, float, float]:
    """Returns the run's accountant, the cost of a unit of privacy in its currency, and the distance of its samples.

    Raises ValueError if delta does not cover that distance.
    """
    found = _sampling(study)
    return found.accountant.name, found.budget, found.distance


def distaim_release(study: Study) -> Release:
    """Release of a table that participation permits at most: the whole run. Raises as ``make_plan``.

    The charge is that of a unit, which is no less than that of any row of the table.
    """
    plan = make_plan(study)
    return Release(
        config=study.config.digest(),
        run=study.config.run.id,
        method="distaim",
        rho=plan.rho if study.config.rows_of_unit == 1 else unit_budget(study),
        epsilon=study.config.run.epsilon,
        delta=study.config.run.delta,
        distance=sampling_distance(study),
        unit=_unit(study.config),
        accountant=plan.accountant.name,
    )


def _unit(config: Config) -> str:
    """Unit in which neighbouring tables differ, for the budgets of participants."""
    if config.run.unit != PERSON and config.sources and config.run.link != BY_KEY:
        return "place in all sources"
    return person_or_row(config)


def _divided(study: Study) -> Schedule:
    """Division of the budget, even if its noise cannot be sampled."""
    rows, spread = study.config.rows_of_unit, first_spread(study.config.domain)
    return divide(study.config.run, study.workload, rows=rows, spread=spread)


def divide(run: RunSection, workload: Workload, *, rows: int = 1, spread: float = 1.0) -> Schedule:
    """Division of a run's budget for a unit of privacy of ``rows`` rows, even if its noise cannot be sampled.

    ``spread`` is that of the domain (``mechanisms.resolving.first_spread``). Raises ValueError if delta does not cover
    the cost of sampling.
    """
    shape = _WorkloadShape.of(workload, spread)
    found = _sampling_of(run, rows, shape)
    return _division(run, shape, row_budget(found.budget, rows), found.accountant)


@dataclass(frozen=True, slots=True)
class _WorkloadShape:
    """Facts of a workload that a division needs.

    It has so many columns, pairs that join them, and candidates of a choice; values are private with so much noise.

    ``spread`` is ``mechanisms.resolving.first_spread``.
    """

    columns: int
    pairs: int
    candidates: int
    spread: float

    @classmethod
    def of(cls, workload: Workload, spread: float) -> "_WorkloadShape":
        return cls(len(workload.one_way), tree_rounds(workload), len(workload.candidates), spread)

    @classmethod
    def of_study(cls, study: Study) -> "_WorkloadShape":
        return cls.of(study.workload, first_spread(study.config.domain))


def _division(
    run: RunSection, shape: _WorkloadShape, budget: float, accountant: Accountant = ZCDP
) -> Schedule:
    """Division of a row's ``budget``."""
    columns = shape.columns
    if run.schedule == ANNEALED:
        return AnnealedPlan(
            budget,
            columns,
            measure_share=run.measure_share,
            selection_slack=SELECTION_SLACK,
            noise=_kind(run),
            initial_share=_initial_share(run, shape),
            tree_rounds=shape.pairs,
            tree_share=_tree_share(run),
            may_fall_back=run.may_fall_back,
            accountant=accountant,
        )
    return fixed_rounds_plan(
        budget,
        run.rounds,
        columns,
        measure_share=run.measure_share,
        selection_slack=SELECTION_SLACK,
        noise=_kind(run),
        initial_share=_initial_share(run, shape),
        accountant=accountant,
    )


def _accountants(run: RunSection, shape: _WorkloadShape) -> list[Accountant]:
    """Accountants for the run's events: zCDP always, and a Gaussian's loss if a choice has a known factor."""
    if run.accountant != GAUSSIAN:
        return [ZCDP]
    rounds = CENTRAL_ROUNDS * shape.columns if run.schedule == ANNEALED else run.rounds
    measured = rounds + (shape.columns if _initial_share(run, shape) is None else 0)
    share = Fraction(run.measure_share)
    ratio = factor_for((1 - share) / rounds, share / measured)
    roundings = ROUNDINGS[:1] if run.noise == BOX_MULLER else ROUNDINGS
    if ratio is None:
        return [ZCDP]
    return [ZCDP, *(GaussianAccountant(ratio, rounding) for rounding in roundings)]


def rule_of(config: Config) -> Rule:
    """The config's rule, already validated, by its type."""
    return next(rule for rule in RULES if rule == config.run.rule)


def composed_epsilon(study: Study) -> float | None:
    """Epsilon of the whole run from numerical composition of its events; None if no better value is proven.

    None for annealed runs, for noise so fine that it is not composed, and for runs whose budget is a Gaussian's
    already. The value holds for a run in which nothing is lost and charged again. No budget uses it. Raises as
    ``make_plan``.
    """
    plan = make_plan(study)
    if plan.adaptive or plan.accountant != ZCDP:
        return None
    events = [event for number in range(plan.rounds + 1) for event in plan.events(number)]
    of_unit = [of_group(event, study.config.rows_of_unit) for event in events]
    found = epsilon_of(of_unit, study.config.run.delta, distance=sampling_distance(study))
    return found if found < study.config.run.epsilon else None


def zcdp_epsilon(study: Study) -> float | None:
    """Epsilon of the whole run by zCDP alone; None if its budget is of zCDP. Raises as ``make_plan``."""
    if make_plan(study).accountant == ZCDP:
        return None
    found = _sampling(study)
    return epsilon_from_rho(found.budget, study.config.run.delta, distance=found.distance)


def _initial_share(run: RunSection, shape: _WorkloadShape) -> float | None:
    """The config's share, or by the rule the default one, with a floor for private values.

    Errors fall with the root of a part's budget: A / sqrt(s) + B / sqrt(1 - s) is least at s / (1 - s) = (A / B)^(2/3).
    The default is right where A is the noise of a column's own cells; private values have ``spread`` times that.
    """
    if run.initial_share is not None or run.rule == AIM:
        return run.initial_share
    if shape.spread == 1.0:
        return INITIAL_SHARE
    odds = INITIAL_SHARE / (1 - INITIAL_SHARE) * math.pow(shape.spread, 2 / 3)
    # Few digits, the same on every machine.
    return round(odds / (1 + odds), 3)


def _tree_share(run: RunSection) -> float:
    if run.tree_share is not None:
        return run.tree_share
    return 0.0 if run.rule == AIM else TREE_SHARE


def _remedies(study: Study) -> str:
    """Keys to change so that an infeasible config gets a plan."""
    try:
        _plan(study)
    except _DeltaExceeded:
        least = _least_delta(study)
        if study.config.run.delta > least:
            return "a smaller run.epsilon or a larger run.delta"
        return f"a run.delta of more than {least:.2g}"
    except ValueError:
        pass
    fine = _is_noise_too_small(study)
    remedies = [f"a {'smaller' if fine else 'larger'} run.epsilon"]
    if study.config.run.schedule != ANNEALED and _is_feasible(study, rounds=10_000 if fine else 1):
        remedies.append(f"{'more' if fine else 'fewer'} run.rounds")
    if study.config.run.noise != BOX_MULLER and _is_feasible(study, noise=BOX_MULLER):
        remedies.append(f'run.noise = "{BOX_MULLER}"')
    return " or ".join(remedies)


def _least_delta(study: Study) -> float:
    """Part of delta that the finest samplers take, at an epsilon of at most 1."""
    run, shape = study.config.run, _WorkloadShape.of_study(study)
    paid = _ChargeLimits.planned(run, shape)
    with contextlib.suppress(ValueError):
        # A usual delta is enough here: the number of charges hardly depends on the budget.
        paid = paid.most(_division(run, shape, rho_from_epsilon_delta(run.epsilon, _USUAL_DELTA)))
    distance = paid.distance(run, shape, rows=study.config.rows_of_unit, bits=LARGEST_SECURITY)
    return (1 + math.exp(min(run.epsilon, 1.0))) * distance


def _is_noise_too_small(study: Study) -> bool:
    """True if the noise is too small for a sampler, not too large; samplers begin below 1 and end far above."""
    try:
        return min(_divided(study).reach) < 1
    except ValueError:
        return False


def _is_feasible(study: Study, **changes: int | str) -> bool:
    try:
        changed = replace(study.config.run, **changes)  # type: ignore[arg-type]
        _plan(Study(replace(study.config, run=changed), study.workload))
    except ValueError:
        return False
    return True


def noise_kind(config: Config) -> NoiseKind:
    """The config's noise, already validated, by its type."""
    return _kind(config.run)


def _kind(run: RunSection) -> NoiseKind:
    return next(kind for kind in NOISE_KINDS if kind == run.noise)


def sampling_distance(study: Study) -> float:
    """Maximum statistical distance of all noise and choices of a run from the mechanisms that are charged.

    The bound covers everything that the run's ledger can ever pay for, including lost and repeated openings: as many
    marginals as its cheapest measurement fits into the budget, each with as many samples as a unit has rows, and as
    many choices as its cheapest selection fits. Raises ValueError if delta does not cover it.
    """
    return _sampling(study).distance


def security_bits(study: Study) -> int:
    """Number n of bits for which exact noise within 2^-n a sample takes at most a thousandth of delta.

    64, and more for a large epsilon: a distance counts (1 + e^epsilon) times; 64 bits suffice up to an epsilon of about
    20, 128 up to about 70. Raises ValueError if even the maximum does not cover it.
    """
    return _sampling(study).bits


class _DeltaExceeded(ValueError):
    """Delta does not cover the distance."""


@dataclass(frozen=True, slots=True)
class _ChargeLimits:
    """Limits of a ledger's charges: maximum numbers of noisy marginals and of choices."""

    marginals: int
    choices: int

    @classmethod
    def planned(cls, run: RunSection, shape: _WorkloadShape) -> "_ChargeLimits":
        """Limits of a run without interruptions."""
        return cls(shape.columns + run.rounds, run.rounds)

    def most(self, plan: Schedule) -> "_ChargeLimits":
        """These limits or, if larger, those that ``plan``'s budget can pay for."""
        cost = plan.accountant.cost
        measurement, selection = (Fraction(cost(event)) for event in plan.cheapest)
        budget = Fraction(plan.rho)
        return _ChargeLimits(
            max(self.marginals, int(budget / measurement)),
            max(self.choices, int(budget / selection)),
        )

    def distance(self, run: RunSection, shape: _WorkloadShape, *, rows: int, bits: int) -> float:
        """Distance of all charges for a unit of ``rows`` rows. A choice is as exact as the finest noise."""
        choices = self.choices * selection_distance(shape.candidates)
        return self._of_noise(run, rows, bits) + choices

    def bits(self, run: RunSection, rows: int) -> int:
        """See ``security_bits``."""
        if run.noise == BOX_MULLER:
            return SECURITY_BITS
        # In logarithms, since e^epsilon may overflow a double, and a share of delta underflow it.
        needed = math.log2(self._of_noise(run, rows, 0)) - math.log2(_SHARE_OF_DELTA)
        needed += run.epsilon / math.log(2) + 1 - math.log2(run.delta)
        steps = math.ceil(max(0.0, min(needed, LARGEST_SECURITY) - SECURITY_BITS) / _STEP_BITS)
        return SECURITY_BITS + steps * _STEP_BITS

    def _of_noise(self, run: RunSection, rows: int, bits: int) -> float:
        return self.marginals * release_distance(run.noise, bits, rows=rows)


@dataclass(frozen=True, slots=True)
class _SamplingPlan:
    """Precision of a run's samples, their maximum distance, and the budget that epsilon and delta leave for a unit.

    ``distance`` includes the distance between the noise and the noise that ``accountant`` assumes.
    """

    bits: int
    distance: float
    budget: float
    accountant: Accountant


def _sampling(study: Study) -> _SamplingPlan:
    return _sampling_of(study.config.run, study.config.rows_of_unit, _WorkloadShape.of_study(study))


@lru_cache(maxsize=256)
def _sampling_of(run: RunSection, rows: int, shape: _WorkloadShape) -> _SamplingPlan:
    """Sampling plan of the accountant whose largest deviation is the smallest: that of zCDP, or a better one."""
    plain, *others = _accountants(run, shape)
    best = _sampling_by(plain, run, rows, shape)
    least = _largest_sigma(best, run, rows, shape)
    for accountant in others:
        with contextlib.suppress(ValueError):
            found = _sampling_by(accountant, run, rows, shape)
            if (sigma := _largest_sigma(found, run, rows, shape)) < least:
                best, least = found, sigma
    return best


def _largest_sigma(
    found: _SamplingPlan, run: RunSection, rows: int, shape: _WorkloadShape
) -> float:
    return _division(run, shape, row_budget(found.budget, rows), found.accountant).reach[1]


def _sampling_by(
    accountant: Accountant, run: RunSection, rows: int, shape: _WorkloadShape
) -> _SamplingPlan:
    """Sampling plan by fixed point: the ledger's charges depend on the budget, and the budget on the charges.

    Charge limits begin with the plan's and are raised until they cover the budget that they leave.
    """
    paid = _ChargeLimits.planned(run, shape)
    # No budget is larger than the one without any distance.
    largest = row_budget(_covered(accountant, run, 0.0), rows)
    rounded = rows * accountant.distance(_kind(run), largest)
    while True:
        bits = paid.bits(run, rows)
        distance = paid.distance(run, shape, rows=rows, bits=bits) + paid.marginals * rounded
        budget = _covered(accountant, run, distance)
        most = paid.most(_division(run, shape, row_budget(budget, rows), accountant))
        if most == paid:
            return _SamplingPlan(bits, distance, budget, accountant)
        paid = most


def _covered(accountant: Accountant, run: RunSection, distance: float) -> float:
    """Budget that is left when delta pays for ``distance``. Raises _DeltaExceeded if delta does not cover it."""
    try:
        return accountant.budget(run.epsilon, run.delta, distance=distance)
    except ValueError as problem:
        raise _DeltaExceeded(str(problem)) from problem


def released_costs(plan: Schedule, initial: int, sigmas: Sequence[float]) -> list[float]:
    """Costs of a run's releases: ``initial`` measurements of round 0, and rounds 1 .. n with these ``sigmas``."""
    then = copy.deepcopy(plan)
    cost = then.accountant.cost
    costs = [cost(then.events(0)[0])] * initial
    then.resume(sigmas)
    return costs + [cost(event) for n in range(1, len(sigmas) + 1) for event in then.events(n)]
