"""Privacy cost of a release, division of the budget, and a ledger that never overspends.

An ``Accountant`` charges events; ``ZCDP`` charges each event its ``rho`` (``mechanisms.gaussian_privacy`` has the other
accountant). A ``Schedule`` divides a budget over rounds; ``Plan`` is the fixed division of Lemma 4.1
(``mechanisms.annealing`` has the adaptive one). The events of ``mechanisms.events`` are exported here too.

All values here are public.

Representation: costs are zero-concentrated differential privacy (zCDP), in double precision. Every cost is computed
exactly or to 50 digits and rounded up; budgets and epsilons are rounded down and sigmas up. Sums are compared with the
budget as exact rationals.

Source: FLAIM paper, Lemma A.2 (conversion) and Lemma 4.1 (division); Canonne, Kamath, Steinke 2020 (Gaussians, discrete
or not); Cesar, Rogers 2021 (exponential mechanism); Kairouz, Liu, Steinke 2021, Proposition 14 (sums). Limits: no
subsampling amplification.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, Overflow, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias, get_args

from mechanisms.errors import BudgetExceeded
from mechanisms.events import (
    GRID_SLACK,
    SMALLEST_PART,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    NoiseKind,
    SumOfDiscreteGaussiansEvent,
    check_positive,
    event_from_dict,
    event_to_dict,
    measurement_event,
    noise_deviation,
)

__all__ = [
    "ZCDP",
    "Accountant",
    "DiscreteGaussianEvent",
    "DiscreteLaplaceEvent",
    "Event",
    "ExponentialEvent",
    "GaussianEvent",
    "Ledger",
    "LedgerEntry",
    "Plan",
    "Schedule",
    "SumOfDiscreteGaussiansEvent",
    "Variant",
    "check_budget",
    "delta_from_rho",
    "delta_left",
    "epsilon_from_rho",
    "fixed_rounds_plan",
    "largest_epsilon",
    "least_sigma",
    "rho",
    "rho_from_epsilon_delta",
    "round_up",
]

Variant: TypeAlias = Literal["aim", "distaim", "naive", "oracle", "private", "random", "naivebayes"]

_ONE_WAY_EACH_ROUND = ("private", "naivebayes")
_UNSELECTIVE = ("random", "naivebayes")

_DIGITS = 50
# Decimal functions are correctly rounded; some dozen of them stay within this, relatively.
_SLOP = Decimal(10) ** -45
_PI_BELOW = Decimal("3.14159265358979323846264338327950288419716939937510")


@lru_cache(maxsize=4096)
def rho(event: Event) -> float:
    """Returns the cost of an event in zCDP, rounded up.

    * Gaussian and discrete Gaussian noise: sensitivity^2 / (2 sigma^2).
    * A choice by the exponential mechanism: epsilon^2 / 8.
    * Discrete Laplace noise: epsilon^2 / 2 with epsilon = sensitivity / scale (Bun, Steinke 2016, Proposition 1.4).
    * A sum of m discrete Gaussians, with a = sensitivity / (sqrt(m) sigma) and tau = 10 sum_{k=1}^{m-1} exp(-2 pi^2
      sigma^2 k / (k + 1)): the smaller of (a + tau sqrt(cells))^2 / 2 and a^2 / 2 + tau cells. Only counts that differ
      add to the divergence, so ``cells`` is the number of counts that a row changes, not the number released.
    """
    if isinstance(event, ExponentialEvent):
        return round_up(Fraction(event.epsilon) ** 2 / 8)
    if isinstance(event, SumOfDiscreteGaussiansEvent):
        return _rho_of_sum(event)
    if isinstance(event, DiscreteLaplaceEvent):
        return round_up((Fraction(event.sensitivity) / Fraction(event.scale)) ** 2 / 2)
    return round_up(Fraction(event.sensitivity) ** 2 / (2 * Fraction(event.sigma) ** 2))


class Accountant(Protocol):
    """Charges events in a currency whose costs add up over a run, and in which the run's budget is stated."""

    @property
    def name(self) -> str:
        """Name in configurations and reports."""

    @property
    def choice_factor(self) -> float:
        """Charge of a choice, in eighths of its squared epsilon."""

    def cost(self, event: Event) -> float:
        """Returns the cost of an event, rounded up."""

    def reserve(self, event: Event) -> float:
        """Returns the budget that has to remain after an event for its cost to hold, rounded up."""

    def budget(self, epsilon: float, delta: float, *, distance: float = 0.0) -> float:
        """Returns the largest sum of costs that implies (epsilon, delta), rounded down.

        ``rho_from_epsilon_delta`` explains ``distance``.
        """

    def distance(self, noise: NoiseKind, budget: float) -> float:
        """Returns the statistical distance between a cell of noise of cost at most ``budget`` and the charged noise."""

    def __hash__(self) -> int:
        """Returns the same number for accountants that are equal, which charge alike."""


@dataclass(frozen=True, slots=True)
class _ConcentratedPrivacy:
    """Costs in zCDP: ``rho``."""

    name: str = "zcdp"
    choice_factor: float = 1.0

    def cost(self, event: Event) -> float:
        """See ``Accountant.cost``."""
        return rho(event)

    def reserve(self, event: Event) -> float:
        """Returns zero: zCDP needs no reserve."""
        return 0.0

    def budget(self, epsilon: float, delta: float, *, distance: float = 0.0) -> float:
        """See ``Accountant.budget``."""
        return rho_from_epsilon_delta(epsilon, delta, distance=distance)

    def distance(self, noise: NoiseKind, budget: float) -> float:
        """Returns zero: zCDP charges the noise as it is drawn."""
        return 0.0


ZCDP: Accountant = _ConcentratedPrivacy()
"""The accountant that charges each event its ``rho``."""


def _rho_of_sum(event: SumOfDiscreteGaussiansEvent) -> float:
    with localcontext() as context:
        context.prec = _DIGITS
        # Kairouz, Liu, Steinke 2021, Proposition 14, with pi rounded down so that tau is rounded up.
        a = Decimal(event.sensitivity) / (Decimal(event.parts).sqrt() * Decimal(event.sigma))
        exponent = -2 * (_PI_BELOW * Decimal(event.sigma)) ** 2
        terms = ((exponent * k / (k + 1)).exp() for k in range(1, event.parts))
        tau = 10 * sum(terms, Decimal(0))
        # The two bounds: (a + tau sqrt(cells))^2 / 2 and a^2 / 2 + tau cells.
        together = (a + tau * Decimal(event.cells).sqrt()) ** 2 / 2
        apart = a**2 / 2 + tau * event.cells
        return round_up(Fraction(min(together, apart) * (1 + _SLOP)))


@lru_cache(maxsize=4096)
def delta_from_rho(rho: float, epsilon: float) -> float:
    """Returns a delta for which rho-zCDP implies (epsilon, delta)-differential privacy (Lemma A.2), rounded up.

    The minimum over alpha > 1 of exp((alpha-1)(alpha rho - epsilon))/(alpha-1) (1-1/alpha)^alpha.
    Every alpha gives a valid delta, so that an inexact minimum errs on the safe side.
    """
    if rho == 0:
        return 0.0
    with localcontext() as context:
        context.prec = _DIGITS
        # An infinite bound counts as 1, and a bound that underflows as the least double.
        context.traps[Overflow] = False
        alpha, cost = Decimal(_best_alpha(rho, epsilon)), Decimal(rho)
        # The logarithm of Lemma A.2's bound, but for the factor 1 / (alpha - 1).
        exponent = (alpha - 1) * (alpha * cost - Decimal(epsilon)) + alpha * (1 - 1 / alpha).ln()
        delta = exponent.exp() / (alpha - 1) * (1 + _SLOP)
        return 1.0 if delta >= 1 else max(round_up(Fraction(delta)), math.ulp(0.0))


def _best_alpha(rho: float, epsilon: float) -> float:
    """Returns nearly the minimum's alpha: the exponent is convex, so the sign of its slope is bisected."""
    low, high = 1.0 + 1e-9, (epsilon + 1) / (2 * rho) + 2
    while low < (alpha := (low + high) / 2) < high:
        slope = (2 * alpha - 1) * rho - epsilon + math.log1p(-1 / alpha)
        low, high = (alpha, high) if slope < 0 else (low, alpha)
    return high


def rho_from_epsilon_delta(epsilon: float, delta: float, *, distance: float = 0.0) -> float:
    """Returns the largest zCDP budget that implies (epsilon, delta)-differential privacy, rounded down.

    ``distance`` bounds the statistical distance between everything that a run samples and the distributions that its
    events state: it takes (1 + e^epsilon) distance out of delta, for both of two neighbouring tables.

    Raises ``ValueError`` unless epsilon is positive and finite, delta lies between 0 and 1, and at least 2^-1022 of
    delta remains.
    """
    check_positive("epsilon", epsilon)
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}; it lies between 0 and 1")
    left = delta_left(epsilon, delta, distance)
    low, high = 0.0, epsilon + 1
    while low < (middle := (low + high) / 2) < high and high - low > 1e-15 * high:
        low, high = (
            (middle, high) if _log_delta(middle, epsilon) <= math.log(left) else (low, middle)
        )
    # At the alpha found, rho solves "Lemma A.2's bound = delta" exactly, in 50 digits.
    with localcontext() as context:
        context.prec = _DIGITS
        alpha = Decimal(_best_alpha(high, epsilon))
        room = left.ln() + (alpha - 1).ln() - alpha * (1 - 1 / alpha).ln()
        budget = (Decimal(epsilon) + room / (alpha - 1)) / alpha * (1 - _SLOP)
    largest = -round_up(-Fraction(budget))
    while delta_from_rho(largest, epsilon) > left:
        largest = math.nextafter(largest, 0.0)
    return largest


def epsilon_from_rho(rho: float, delta: float, *, distance: float = 0.0) -> float:
    """Returns nearly the least epsilon for which rho-zCDP implies (epsilon, delta)-differential privacy.

    The inverse of ``rho_from_epsilon_delta``, with the same ``distance``. Infinite where delta does not cover
    ``distance``.
    """

    def holds(epsilon: float) -> bool:
        try:
            return delta_from_rho(rho, epsilon) <= delta_left(epsilon, delta, distance)
        except ValueError:
            return False

    low, high = 0.0, 1e-6 if rho else 0.0
    while not holds(high):
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _log_delta(rho: float, epsilon: float) -> float:
    alpha = _best_alpha(rho, epsilon)
    exponent = (alpha - 1) * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha)
    return exponent - math.log(alpha - 1)


def delta_left(epsilon: float, delta: float, distance: float) -> Decimal:
    """Returns the part of ``delta`` that a statistical ``distance`` of all samples leaves, rounded down.

    Raises ``ValueError`` if that is less than 2^-1022, or the distance is out of range.
    """
    if not 0 <= distance < 1:
        raise ValueError(f"distance = {distance}; it lies between 0 and 1")
    with localcontext() as context:
        context.prec = _DIGITS
        context.traps[Overflow] = False
        taken = Decimal(0)
        if distance:
            taken = (1 + Decimal(epsilon).exp()) * Decimal(distance) * (1 + _SLOP)
        left = Decimal(delta) - taken
    # Below this, doubles are too sparse to be rounded to.
    if left < sys.float_info.min:
        raise ValueError(
            f"delta = {delta}: it does not cover a statistical distance of {distance:g} at this epsilon"
        )
    return left


def round_up(exact: Fraction) -> float:
    """Returns the least double that is not below ``exact``; infinity counts as one."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


@lru_cache(maxsize=1024)
def least_sigma(budget: Fraction, noise: NoiseKind, accountant: Accountant = ZCDP) -> float:
    """Returns the least deviation, up to rounding up, with which one marginal costs no more than ``budget``."""

    def fits(sigma: float) -> bool:
        cost = accountant.cost(measurement_event(noise, sigma))
        return cost < math.inf and Fraction(cost) <= budget

    # rho = 1 / (2 sigma^2), solved for sigma; the search corrects it upwards.
    sigma = math.sqrt(1 / (2 * float(budget)))
    if noise == "distributed":
        sigma = max(sigma, SMALLEST_PART * math.sqrt(2) * (1 + 1e-15))
    return _first_that_fits(sigma, fits)


def _first_that_fits(start: float, fits: Callable[[float], bool]) -> float:
    """Returns the first double from ``start`` on that fits, for ``fits`` that stays true once it is."""
    step = math.ulp(start)
    while not fits(start + step):
        step *= 2
    if fits(start):
        return start
    low, high = start, start + step
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def largest_epsilon(budget: Fraction, slack: float, accountant: Accountant = ZCDP) -> float:
    """Returns the largest epsilon, up to rounding down, that with ``slack`` costs no more than ``budget``.

    Raises ``ValueError`` if nothing is left for it.
    """
    # factor (epsilon + slack)^2 / 8 = budget, solved for epsilon; the loop corrects it downwards.
    epsilon = math.sqrt(8 * float(budget) / accountant.choice_factor) - slack
    while epsilon > 0 and Fraction(accountant.cost(ExponentialEvent(epsilon + slack))) > budget:
        epsilon = min(math.nextafter(epsilon, 0.0), epsilon - math.ulp(slack))
    check_positive("epsilon", epsilon)
    return epsilon


class Schedule(Protocol):
    """Division of a run's budget over round 0 and at most ``rounds`` more, as ``run_aim`` uses it.

    ``sigma``, ``epsilon``, ``measurement`` and ``selection`` describe the round that is next or in progress. A schedule
    may keep state: each server of each run has its own object.
    """

    @property
    def rho(self) -> float:
        """Budget, in the currency of ``accountant``."""

    @property
    def accountant(self) -> Accountant:
        """Accountant that charges the events."""

    @property
    def rounds(self) -> int:
        """Number of the last round, as far as known; it may decrease, never increase."""

    @property
    def noise(self) -> NoiseKind:
        """Kind of noise of every measurement."""

    @property
    def sigma(self) -> float:
        """Deviation that a measurement is charged for, in rows."""

    @property
    def initial_sigma(self) -> float:
        """Deviation that a measurement of round 0 is charged for, in rows."""

    @property
    def initial(self) -> Event:
        """Event that one measurement of round 0 is charged as."""

    @property
    def noise_sigma(self) -> float:
        """Deviation of the noise in a measurement, in rows: ``sigma`` or, with distributed noise, more."""

    @property
    def epsilon(self) -> float:
        """Epsilon that a selection is computed with."""

    @property
    def measurement(self) -> Event:
        """Event that one measurement is charged as."""

    @property
    def selection(self) -> Event:
        """Event that one selection is charged as, including the slack for its inexactness."""

    @property
    def adaptive(self) -> bool:
        """True if ``advance`` makes use of ``settled``."""

    @property
    def tree_rounds(self) -> int:
        """Number of rounds, from round 1 on, that choose among pairs of columns which join parts of the model."""

    @property
    def columns_alone(self) -> bool:
        """True if all rounds measure single columns, one after the other."""

    @property
    def reach(self) -> tuple[float, float]:
        """Bounds on ``sigma`` over all rounds including round 0, for every possible course of the run."""

    @property
    def sharpest(self) -> float:
        """Largest ``epsilon`` of all rounds, for every possible course of the run."""

    @property
    def cheapest(self) -> tuple[Event, ...]:
        """Cheapest measurement, and cheapest selection if there are any, of all rounds in every course of the run."""

    def events(self, round: int) -> tuple[Event, ...]:
        """Returns the events that a whole round is charged as; ``round`` is at most the next one."""

    def spent_after(self, round: int) -> float:
        """Returns the cost of rounds 0 .. ``round`` together; an undecided round counts like the one before."""

    def resume(self, sigmas: Sequence[float]) -> None:
        """Continues after rounds 1 .. n that were measured with these deviations."""

    def write_off(self, charged: Sequence[float], *, initial: int, sigmas: Sequence[float]) -> None:
        """Records, before ``resume``, the charges of an interrupted run as spent.

        The interrupted run released ``initial`` measurements of round 0, and rounds 1 .. n measured with ``sigmas``.
        Any part of ``charged`` beyond these was lost in the interruption, including a selection whose round was not
        measured.
        """

    def advance(self, round: int, *, settled: bool) -> None:
        """Decides on ``round``, the next; ``settled`` if the last measurement hardly moved the model.

        Round 1 is ``settled`` if noise would drown the pairs of columns.
        """


@dataclass(frozen=True, slots=True)
class Plan:
    """A ``Schedule`` with a fixed division of the budget ``rho`` over an initial round 0 and ``rounds`` more.

    Round 0 measures ``columns`` one-way marginals. Each further round has ``local_rounds`` selections with ``epsilon``,
    each followed by a measurement, and ``local_measurements`` more.

    Variant ``private`` measures the one-way marginals in every round instead of round 0, ``naivebayes`` does nothing
    else; ``random`` and ``naivebayes`` select nothing, and their epsilon is 0. Every measurement has noise ``sigma``,
    in rows, of the kind ``noise``; those of round 0 have ``initial_sigma``, by default ``sigma``. A selection is
    charged ``selection_slack`` beyond ``epsilon`` because it is computed inexactly, by 64 random bits or on shares.

    Raises ``ValueError`` if a number is out of range or the whole costs more than ``rho``.
    """

    rho: float
    rounds: int
    columns: int
    sigma: float
    epsilon: float
    selection_slack: float = GRID_SLACK
    noise: NoiseKind = "box-muller"
    variant: Variant = "aim"
    local_rounds: int = 1
    local_measurements: int = 0
    initial_sigma: float = 0.0
    accountant: Accountant = ZCDP

    def __post_init__(self) -> None:
        if self.initial_sigma == 0:
            object.__setattr__(self, "initial_sigma", self.sigma)
        for name in ("rho", "rounds", "columns", "sigma", "initial_sigma"):
            check_positive(name, getattr(self, name))
        if self.selects:
            check_positive("epsilon", self.epsilon)
        if not self.selection_slack >= 0:
            raise ValueError(f"selection_slack = {self.selection_slack}; it cannot be negative")
        _check_variant(self.variant, self.local_rounds, self.local_measurements)
        cost = self.accountant.cost
        charges = [cost(event) for r in (0, *[1] * self.rounds) for event in self.events(r)]
        if math.inf in charges or sum(map(Fraction, charges)) > Fraction(self.rho):
            raise ValueError(f"the plan costs {self.spent_after(self.rounds)}, above {self.rho}")

    @property
    def measurement(self) -> Event:
        """See ``Schedule.measurement``."""
        return measurement_event(self.noise, self.sigma)

    @property
    def initial(self) -> Event:
        """See ``Schedule.initial``."""
        return measurement_event(self.noise, self.initial_sigma)

    @property
    def selection(self) -> ExponentialEvent:
        """See ``Schedule.selection``."""
        return ExponentialEvent(self.epsilon + self.selection_slack)

    @property
    def noise_sigma(self) -> float:
        """See ``Schedule.noise_sigma``."""
        return noise_deviation(self.noise, self.sigma)

    @property
    def adaptive(self) -> bool:
        """False: every round is like the first."""
        return False

    @property
    def tree_rounds(self) -> int:
        """Zero."""
        return 0

    @property
    def columns_alone(self) -> bool:
        """False: every round is like the first."""
        return False

    @property
    def selects(self) -> bool:
        """True if the variant selects by the exponential mechanism."""
        return self.variant not in _UNSELECTIVE

    def events(self, round: int) -> tuple[Event, ...]:
        """See ``Schedule.events``."""
        if round > 0:
            return self.round_events(self.epsilon, self.measurement)
        return () if self.variant in _ONE_WAY_EACH_ROUND else (self.initial,) * self.columns

    def round_events(self, epsilon: float, measurement: Event) -> tuple[Event, ...]:
        """Returns the events of a round after round 0, with these parameters."""
        selections, measurements = _round_counts(self.variant, self.columns, self.local_rounds)
        measurements += self.local_measurements
        if not selections:
            return (measurement,) * measurements
        selection = ExponentialEvent(epsilon + self.selection_slack)
        rest = measurements - selections
        return (selection, measurement) * selections + (measurement,) * rest

    def spent_after(self, round: int) -> float:
        """See ``Schedule.spent_after``."""
        cost = self.accountant.cost
        first, further = ([cost(event) for event in self.events(r)] for r in (0, 1))
        return math.fsum(first + further * round)

    @property
    def reach(self) -> tuple[float, float]:
        """See ``Schedule.reach``: ``sigma`` and ``initial_sigma``, the smaller one first."""
        return min(self.sigma, self.initial_sigma), max(self.sigma, self.initial_sigma)

    @property
    def sharpest(self) -> float:
        """See ``Schedule.sharpest``: ``epsilon``."""
        return self.epsilon

    @property
    def cheapest(self) -> tuple[Event, ...]:
        """See ``Schedule.cheapest``: a measurement with the larger deviation, and the selection of every round."""
        measurement = measurement_event(self.noise, self.reach[1])
        return (measurement, self.selection) if self.selects else (measurement,)

    def resume(self, sigmas: Sequence[float]) -> None:
        """Does nothing: all rounds are alike."""

    def write_off(self, charged: Sequence[float], *, initial: int, sigmas: Sequence[float]) -> None:
        """Does nothing: a round that the ledger cannot pay for does not take place."""

    def advance(self, round: int, *, settled: bool) -> None:
        """Does nothing: every round is decided beforehand."""


def fixed_rounds_plan(
    rho: float,
    rounds: int,
    columns: int,
    *,
    measure_share: float = 0.9,
    selection_slack: float = GRID_SLACK,
    noise: NoiseKind = "box-muller",
    variant: Variant = "aim",
    local_rounds: int = 1,
    local_measurements: int = 0,
    initial_share: float | None = None,
    accountant: Accountant = ZCDP,
) -> Plan:
    """Divides ``rho`` over a fixed number of rounds T (Lemma 4.1), with s = ``local_rounds``.

    sigma = sqrt((T s + d) / (2 r rho)), or sqrt(T (s + d) / (2 r rho)) for ``private``, and epsilon = sqrt(8 (1 - r)
    rho / (T s)), less the slack that a selection is charged besides. sigma is larger where a sum of discrete Gaussians
    costs more than one. The ``local_measurements`` of each round, which the lemma leaves out, are added to s in sigma.
    Without selections r is 1.

    With ``initial_share``, this share of the measuring budget goes to round 0, which then has a deviation of its own,
    and the rounds divide the rest as before; without it all measurements are alike, as in the lemma.

    Raises ``ValueError`` if a number is out of range, or the variant has no round 0 for the share.
    """
    for name, number in (("rho", rho), ("rounds", rounds), ("columns", columns)):
        check_positive(name, number)
    if not 0 < measure_share < 1:
        raise ValueError(f"measure_share = {measure_share}; it lies between 0 and 1")
    _check_variant(variant, local_rounds, local_measurements)
    # T s selections (0 for unselective variants) and T s, T (s + d) or T d measurements; d more for round 0 below.
    selections, measurements = (
        rounds * count for count in _round_counts(variant, columns, local_rounds)
    )
    measurements += rounds * local_measurements
    share = Fraction(measure_share) if selections else Fraction(1)
    left, initial_sigma = Fraction(rho), 0.0
    if initial_share is not None:
        if not (0 < initial_share < 1 and variant not in _ONE_WAY_EACH_ROUND):
            raise ValueError(
                f"initial_share = {initial_share} with variant = {variant!r}; it lies between 0 and 1"
            )
        first = Fraction(initial_share) * share * left
        initial_sigma = least_sigma(first / columns, noise, accountant)
        left -= first
    elif variant not in _ONE_WAY_EACH_ROUND:
        measurements += columns
    # sigma from r rho / measurements each, epsilon from (1 - r) rho / selections each.
    sigma = least_sigma(share * left / measurements, noise, accountant)
    epsilon = 0.0
    if selections:
        epsilon = largest_epsilon((1 - share) * left / selections, selection_slack, accountant)
    return Plan(
        rho,
        rounds,
        columns,
        sigma,
        epsilon,
        selection_slack=selection_slack,
        noise=noise,
        variant=variant,
        local_rounds=local_rounds,
        local_measurements=local_measurements,
        initial_sigma=initial_sigma,
        accountant=accountant,
    )


def _round_counts(variant: Variant, columns: int, local_rounds: int) -> tuple[int, int]:
    """Returns the numbers of selections and of measurements of one round after round 0."""
    selections = 0 if variant in _UNSELECTIVE else local_rounds
    measurements = 0 if variant == "naivebayes" else local_rounds
    if variant in _ONE_WAY_EACH_ROUND:
        measurements += columns
    return selections, measurements


def _check_variant(variant: Variant, local_rounds: int, local_measurements: int) -> None:
    if variant not in get_args(Variant):
        raise ValueError(f"variant = {variant!r}; it is one of {', '.join(get_args(Variant))}")
    check_positive("local_rounds", local_rounds)
    if not 0 <= local_measurements < local_rounds:
        raise ValueError(
            f"local_measurements = {local_measurements}; fewer than local_rounds, from 0"
        )
    if local_rounds > 1 and variant in ("aim", "distaim"):
        raise ValueError(f"local_rounds = {local_rounds}: only the federated variants have them")


# Purposes of a charge: a choice, a client's own measurements that its choices depend on, noisy counts.
SELECT, LOCAL, MEASURE = "select", "local", "measure"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One charge: ``rho`` for ``event`` in ``step`` of ``round``; a repeated round is charged again.

    ``rho`` is in the currency of the ledger's accountant. ``opening`` names the opening that the charge pays for, if
    openings have names: an opening repeated with the same inputs and the same noise reveals nothing new, and is not
    charged again.

    Raises ``ValueError`` unless the cost is positive and finite.
    """

    round: int
    step: str
    event: Event
    rho: float
    opening: str = ""

    def __post_init__(self) -> None:
        check_positive("rho", self.rho)

    @property
    def event_text(self) -> str:
        """The event as JSON, the same text for equal events."""
        return json.dumps(event_to_dict(self.event), sort_keys=True)

    def to_dict(self) -> dict[str, object]:
        """Returns an exact representation for JSON, read by ``from_dict``."""
        document: dict[str, object] = {
            "round": self.round,
            "step": self.step,
            "event": self.event_text,
            "rho": self.rho,
        }
        return document | ({"opening": self.opening} if self.opening else {})

    @classmethod
    def from_dict(cls, value: Mapping[str, object]) -> LedgerEntry:
        """Reads the output of ``to_dict``. Raises ``ValueError`` on anything else."""
        number, step, text, cost = (value.get(key) for key in ("round", "step", "event", "rho"))
        opening = value.get("opening", "")
        if not all(isinstance(part, str) for part in (step, text, opening)):
            raise ValueError("not a ledger entry: step, event and opening are text")
        if len(value) != 4 + ("opening" in value):
            raise ValueError("not a ledger entry: it has other fields")
        if not (type(number) is int and number >= 0 and isinstance(cost, float)):
            raise ValueError("not a ledger entry: round and rho are numbers")
        event = json.loads(str(text))
        if not isinstance(event, dict):
            raise ValueError("not a ledger entry: the event is no table")
        return cls(number, str(step), event_from_dict(event), cost, str(opening))


class Ledger:
    """Charges against a budget, in memory; ``entries`` are charges made before."""

    def __init__(
        self,
        budget: float,
        entries: Sequence[LedgerEntry] = (),
        *,
        accountant: Accountant = ZCDP,
    ) -> None:
        self.budget = budget
        self.accountant = accountant
        self._entries = list(entries)

    @property
    def entries(self) -> list[LedgerEntry]:
        """All charges, in order of entry."""
        return list(self._entries)

    @property
    def spent(self) -> float:
        """Cost of all entries."""
        return math.fsum(entry.rho for entry in self.entries)

    def charge(self, round: int, step: str, event: Event, *, opening: str = "") -> LedgerEntry:
        """Enters a charge; call it before anything is opened.

        Raises ``BudgetExceeded``, and enters nothing, if the budget does not cover it.
        """
        (entry,) = self.charge_all(round, [(step, event)], opening=opening)
        return entry

    def charge_all(
        self, round: int, charges: Sequence[tuple[str, Event]], *, opening: str = ""
    ) -> Sequence[LedgerEntry]:
        """Enters (step, event) charges, all or none, as ``charge`` does."""
        steps = ", ".join(dict.fromkeys(step for step, _ in charges))
        self.require([event for _, event in charges], where=f"round {round}, {steps}: ")
        cost = self.accountant.cost
        entries = [LedgerEntry(round, step, event, cost(event), opening) for step, event in charges]
        self._enter(entries)
        return entries

    def require(self, events: Sequence[Event], *, where: str = "") -> None:
        """Raises ``BudgetExceeded`` if the budget does not cover all of ``events``."""
        charged = [entry.rho for entry in self.entries]
        check_budget(self.budget, charged, events, where=where, accountant=self.accountant)

    def _enter(self, entries: Sequence[LedgerEntry]) -> None:
        self._entries += entries


def check_budget(
    budget: float,
    charged: Sequence[float],
    events: Sequence[Event],
    *,
    where: str = "",
    accountant: Accountant = ZCDP,
) -> None:
    """Raises ``BudgetExceeded`` if ``charged`` and the costs of ``events``, in this order, exceed ``budget``.

    The only rule for all ledgers. Sums are exact, with no allowance for rounding; after each event its reserve has to
    remain. ``where`` begins the message.
    """
    costs = [accountant.cost(event) for event in events]
    # fsum rounds the exact sum once. Rounding keeps order, so only a tie needs the exact comparison.
    total = math.fsum((*charged, *costs))
    if total == budget:
        fits = sum(map(Fraction, (*charged, *costs)), Fraction(0)) <= Fraction(budget)
    else:
        fits = total < budget
    if fits:
        left = Fraction(budget) - sum(map(Fraction, charged), Fraction(0))
        for event, cost in zip(events, costs, strict=True):
            left -= Fraction(cost)
            fits = fits and Fraction(accountant.reserve(event)) <= left
    if not fits:
        raise BudgetExceeded(
            f"{where}a release of rho = {math.fsum(costs):.6g} was refused: {math.fsum(charged):.6g} of the"
            f" budget of {budget:.6g} is spent"
        )
