"""Privacy loss of a run, bounded by that of one Gaussian: costs that add up like zCDP's and convert exactly.

``GaussianAccountant`` is an ``accounting.Accountant`` that charges events in the currency below; ``gaussian_budget``
and ``gaussian_epsilon`` convert its costs. All values here are public.

The currency: mechanisms whose costs add up to g are, together, no easier to tell apart on two neighbouring tables than
N(0, 1) and N(sqrt(2 g), 1), in both directions. That is Gaussian differential privacy with mu^2 = 2 g. It implies
g-zCDP, and is converted to (epsilon, delta) by the Gaussian's own curve, which at epsilon 1 and delta 1e-5 allows a g
1.18 times as large as zCDP does. Costs may depend on earlier releases, as long as their sum stays within a budget that
was fixed beforehand: from the last release back, each mechanism beside a Gaussian of the budget left after it is
dominated by one of the budget left before it.

* Gaussian noise costs sensitivity^2 / 2 variance.
* Discrete Gaussian noise, and sums of it, cost that of a variance smaller by ``rounding`` rows^2: up to a statistical
  distance (``rounding_distance``) they are such a Gaussian, rounded at random.
* A choice of range epsilon costs ``factor`` epsilon^2 / 8, provided that epsilon^2 / (8 ``ratio``) is left after it:
  its coin beside a Gaussian is dominated by that much of a Gaussian. Each of ``FACTORS`` is a ratio with its factor; a
  test computes them. The factor of a choice alone would be pi / 2.

Proofs: README, "A choice beside noise is a Gaussian". Source: Dong, Roth, Su 2022 (Gaussian differential privacy);
Smith, Thakurta 2022 and Koskela, Tobaben, Honkela 2023 (adaptively chosen costs); Dong, Durfee, Rogers 2020 (worst
choices).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from mechanisms.accounting import delta_left, round_up
from mechanisms.composition import delta_of, epsilon_of
from mechanisms.events import (
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    NoiseKind,
    SumOfDiscreteGaussiansEvent,
    check_positive,
    measurement_event,
)

__all__ = [
    "FACTORS",
    "GAUSSIAN",
    "ROUNDINGS",
    "GaussianAccountant",
    "factor_for",
    "gaussian_budget",
    "gaussian_delta",
    "gaussian_epsilon",
    "rounding_distance",
]

GAUSSIAN = "gaussian"
"""Name of the accountant in configurations and budgets."""
FACTORS: tuple[tuple[float, float], ...] = (
    (1 / 64, 1.003),
    (1 / 32, 1.006),
    (1 / 16, 1.011),
    (1 / 8, 1.021),
    (1 / 4, 1.041),
    (1 / 2, 1.077),
    (1.0, 1.139),
    (2.0, 1.234),
    (4.0, 1.349),
)
"""Pairs of a ratio, (a quarter of a choice's squared range) / (mu^2 of the Gaussian beside it), and a cost factor.

The choice costs factor x epsilon^2 / 8.
"""
ROUNDINGS = (1, 2, 3)
"""Reductions of the variance of discrete noise to choose from, in rows^2."""
_DIGITS = 50
_PI_BELOW = Decimal("3.14159265358979323846264338327950288419716939937510")
# Tolerance of the proportion between the costs of choices and of noise.
_ALMOST = 1 + 2.0**-10
_MANTISSA_BITS = 30
_LOWEST, _HIGHEST = -900 << _MANTISSA_BITS, 32 << _MANTISSA_BITS
_ROOT_2 = math.sqrt(2)


@dataclass(frozen=True, slots=True)
class GaussianAccountant:
    """Costs in the module's currency, for choices with at least ``ratio`` of noise left, one of ``FACTORS``.

    ``rounding`` is one of ``ROUNDINGS``. Raises ``ValueError`` for other values.
    """

    ratio: float
    rounding: int = 1

    def __post_init__(self) -> None:
        if self.ratio not in dict(FACTORS):
            raise ValueError(f"ratio = {self.ratio}; there are factors for {list(dict(FACTORS))}")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"rounding = {self.rounding}; it is one of {ROUNDINGS}")

    @property
    def name(self) -> str:
        """See ``Accountant.name``."""
        return GAUSSIAN

    @property
    def choice_factor(self) -> float:
        """See ``Accountant.choice_factor``."""
        return dict(FACTORS)[self.ratio]

    def cost(self, event: Event) -> float:
        """See ``Accountant.cost``: rounded up, and infinite for noise whose variance is all rounding.

        Discrete Laplace noise is, at worst, a coin whose range is twice its epsilon.
        """
        return _cost(event, self.rounding, self.choice_factor)

    def reserve(self, event: Event) -> float:
        """See ``Accountant.reserve``."""
        if isinstance(event, ExponentialEvent | DiscreteLaplaceEvent):
            return round_up(_coin(event) / (2 * Fraction(self.ratio)))
        return 0.0

    def budget(self, epsilon: float, delta: float, *, distance: float = 0.0) -> float:
        """See ``gaussian_budget``."""
        return gaussian_budget(epsilon, delta, distance=distance)

    def distance(self, noise: NoiseKind, budget: float) -> float:
        """See ``rounding_distance``."""
        return rounding_distance(noise, budget, self.rounding)


@lru_cache(maxsize=4096)
def _cost(event: Event, rounding: int, factor: float) -> float:
    if isinstance(event, ExponentialEvent | DiscreteLaplaceEvent):
        # factor mu^2 / 2 with mu^2 = epsilon^2 / 4.
        return round_up(Fraction(factor) * _coin(event) / 2)
    variance = Fraction(event.sigma) ** 2
    if isinstance(event, SumOfDiscreteGaussiansEvent):
        variance *= event.parts
    if not isinstance(event, GaussianEvent):
        # README: up to ``rounding_distance``, discrete noise is a Gaussian of a variance less by ``rounding``, rounded
        # at random.
        variance -= rounding
    return (
        math.inf if variance <= 0 else round_up(Fraction(event.sensitivity) ** 2 / (2 * variance))
    )


def _coin(event: ExponentialEvent | DiscreteLaplaceEvent) -> Fraction:
    """Returns a quarter of the squared range of the event's loss."""
    if isinstance(event, ExponentialEvent):
        return Fraction(event.epsilon) ** 2 / 4
    return (Fraction(event.sensitivity) / Fraction(event.scale)) ** 2


def factor_for(choosing: Fraction, measuring: Fraction) -> float | None:
    """Returns the least ratio of ``FACTORS`` that the noise behind each choice allows.

    Choices cost ``choosing``, each followed by noise of ``measuring``. None if the noise is too little.
    """
    for ratio, factor in FACTORS:
        if choosing * Fraction(_ALMOST) <= measuring * Fraction(ratio) * Fraction(factor):
            return ratio
    return None


@lru_cache(maxsize=1024)
def rounding_distance(noise: NoiseKind, budget: float, rounding: int) -> float:
    """Returns the statistical distance of a cell of discrete noise from a rounded Gaussian, rounded up.

    The noise costs at most ``budget``. 0 for continuous noise, infinite if no bound is known.
    """
    if noise == "box-muller":
        return 0.0
    check_positive("budget", budget)
    with localcontext() as context:
        context.prec = _DIGITS
        # No noise that the budget pays for has a smaller variance.
        free = Decimal(1) / (2 * Decimal(budget))
        variance = free + rounding
        event = measurement_event("discrete-gaussian", 1.0)
        apart = Decimal(0)
        if noise == "distributed":
            event = measurement_event("distributed", 2.0)
        if isinstance(event, SumOfDiscreteGaussiansEvent):
            part = variance / event.parts
            if part < Decimal("0.25"):
                return math.inf
            # exp(+- 5 sum_k exp(-2 pi^2 s k / (k + 1))) for a sum of discrete Gaussians of variance s (README).
            exponent = -2 * _PI_BELOW**2 * part
            shares = ((exponent * k / (k + 1)).exp() for k in range(1, event.parts))
            apart = 5 * sum(shares, Decimal(0))
        # tau = 11 exp(-2 pi^2 (v + v')) for rounding with variance v, v' = v (s - v) / s (README).
        spread = rounding * free / variance
        rounded = 11 * (-2 * _PI_BELOW**2 * (rounding + spread)).exp()
        # Probabilities within a factor exp(+- tau) differ by tau at most, for tau up to 1.
        found = (apart + rounded) * (1 + Decimal(10) ** -40)
        return math.inf if found > 1 else round_up(Fraction(found))


def gaussian_epsilon(cost: float, delta: float, *, distance: float = 0.0) -> float:
    """Returns an epsilon for which ``cost`` implies (epsilon, delta)-differential privacy, rounded up.

    ``distance`` is that of ``accounting.rho_from_epsilon_delta``. Infinite if delta does not cover it.
    """
    return epsilon_of([_gaussian(Fraction(cost))], delta, distance=distance) if cost else 0.0


@lru_cache(maxsize=4096)
def gaussian_delta(cost: float, epsilon: float) -> float:
    """Returns the delta for which ``cost`` implies (epsilon, delta)-differential privacy, rounded up."""
    return delta_of([_gaussian(Fraction(cost))], epsilon) if cost else 0.0


@lru_cache(maxsize=256)
def gaussian_budget(epsilon: float, delta: float, *, distance: float = 0.0) -> float:
    """Returns the largest cost that implies (epsilon, delta)-differential privacy: up to 2^-30 of itself, rounded down.

    The same to the last bit on every machine. Raises as ``accounting.rho_from_epsilon_delta`` does.
    """
    check_positive("epsilon", epsilon)
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}; it lies between 0 and 1")
    left = delta_left(epsilon, delta, distance)

    def kept(index: int) -> bool:
        return Decimal(delta_of([_gaussian(_grid(index))], epsilon)) <= left

    # Floats only say where to look: what is kept is decided above, and the same wherever the search begins.
    low, high = _bracket(kept, _guess(epsilon, float(left)))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return float(_grid(low))


def _bracket(kept: Callable[[int], bool], start: int) -> tuple[int, int]:
    """Returns an index that is kept and a higher one that is not, found by growing steps from ``start``."""
    step = 1
    if kept(start):
        while start + step < _HIGHEST and kept(start + step):
            start, step = start + step, 2 * step
        return start, min(start + step, _HIGHEST)
    while start - step > _LOWEST and not kept(start - step):
        start, step = start - step, 2 * step
    return max(start - step, _LOWEST), start


def _guess(epsilon: float, delta: float) -> int:
    """Returns an index close to the largest cost that ``delta`` allows, where floats suffice for the curve."""

    def value(log_mu: float) -> float:
        mu = math.exp(log_mu)
        a = mu / 2 - epsilon / mu
        with contextlib.suppress(OverflowError):
            return (math.erfc(-a / _ROOT_2) - math.exp(epsilon) * math.erfc((mu - a) / _ROOT_2)) / 2
        return 0.0

    low, high = -300.0, 11.0
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) <= delta else (low, middle)
    mantissa, exponent = math.frexp(math.exp(2 * low) / 2)
    return (exponent - 1 << _MANTISSA_BITS) + int((2 * mantissa - 1) * (1 << _MANTISSA_BITS))


def _grid(index: int) -> Fraction:
    """Returns number ``index`` of the ordered numbers with 31 bits."""
    exponent, mantissa = divmod(index, 1 << _MANTISSA_BITS)
    return (1 + Fraction(mantissa, 1 << _MANTISSA_BITS)) * Fraction(2) ** exponent


def _gaussian(cost: Fraction) -> GaussianEvent:
    """Returns the Gaussian of this cost, or a little more."""
    with localcontext() as context:
        context.prec = _DIGITS
        exact = (2 * Decimal(cost.numerator) / Decimal(cost.denominator)).sqrt()
        return GaussianEvent(1.0, round_up(Fraction(exact * (1 + Decimal(10) ** -40))))
