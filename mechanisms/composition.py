"""Privacy loss of a fixed schedule, composed numerically: an upper bound on delta close to the least one.

All values here are public. All events have to be decided beforehand; their outputs may depend on earlier outputs.
Budgets that add up from release to release, and annealed runs, use zCDP (``mechanisms.accounting``) or one Gaussian's
loss (``mechanisms.gaussian_privacy``).

Every event is dominated by a pair of distributions, the same in both directions (a row more, a row less), and pairs
compose:

* All noise is dominated by one Gaussian: mu^2 = sum of sensitivity^2 / variance. The variance of discrete Gaussians is
  reduced by half a row^2, and their probabilities have a factor exp(+- tau): README, "What the numeric accountant
  proves".
* A choice of range epsilon (``ExponentialEvent``). Its worst pairs have the losses t and t - epsilon, for a t from 0 to
  epsilon, with the curve H_t(x) = sum max(0, P - e^x Q) = (1 + e^(x-epsilon) - e^(x-t) - e^(t-epsilon)) /
  (1 - e^-epsilon) where x is between the two. The largest is at t = (x + epsilon) / 2:

      H(x) = (1 - e^((x-epsilon)/2))^2 / (1 - e^-epsilon)  for -epsilon <= x <= epsilon,

  0 beyond and 1 - e^x before. A supremum of curves is the curve of a dominating pair: its loss has the density
  e^((x-epsilon)/2) / 2(1 - e^-epsilon). The t of a choice may depend on earlier outputs.
* Discrete Laplace noise has the two losses +-epsilon of a randomised response.

Representation: losses lie on a grid of step h, a double. Straight lines between its points, over e^x, are at or above
the convex curve H, and are the curve of a loss with the probabilities 2 c w_j, w_j = e^((x_j-epsilon)/2) and
c = tanh(h/4) / (1 - e^-epsilon), at both ends half of that. Probabilities are whole numbers of 2^-160, rounded up, and
sums of losses are products of large integers. The Gaussian's curve is computed in integers and ``Decimal``: no
floating-point function decides anything, so that all machines compute the same figures to the last bit.

Source: Dong, Durfee, Rogers 2020 (worst choices); Zhu, Dong, Wang 2022 (dominating pairs, suprema, composition);
Doroshenko et al. 2022 (lines between the points); Balle, Wang 2018 (the Gaussian's curve); Kairouz, Liu, Steinke 2021
(sums of discrete Gaussians). Limits: a delta below 10^-30 and noise of a deviation below one row are left to zCDP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import floor, inf, isfinite

from mechanisms.accounting import (
    Plan,
    delta_from_rho,
    delta_left,
    epsilon_from_rho,
    rho,
    rho_from_epsilon_delta,
    round_up,
)
from mechanisms.events import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    SumOfDiscreteGaussiansEvent,
)

__all__ = ["delta_of", "epsilon_of", "largest_budget", "of_group"]

_DIGITS = 85
_PI = Decimal(
    "3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986"
)
# Probabilities are in units of 2^-160; losses and values of the Gaussian's curve are in units of 2^-192.
_MASS_BITS = 160
_BITS = 192
_ONE = 1 << _BITS
_SQUARE = 1 << 2 * _BITS
_SPARE = 32
# A bound on all errors of a value of the Gaussian's curve; tests compare it with sums in 60 digits.
_CURVE_SLACK = 1 << (_BITS - 120)
# Probabilities at the ends of the grid that are too small to be worth a value of the curve.
_TRIMMED = 1 << (_MASS_BITS - 130)
# Relative increase of the loss's variance by the grid.
_COARSENESS = Fraction(1, 1 << 11)
# Results are multiples of 2^-20 of themselves, or slightly smaller.
_MANTISSA_BITS = 20
# The variance that rounding at random takes from a discrete Gaussian, and the least variance for that, in rows^2.
_ROUNDED = Fraction(1, 2)
_LEAST_VARIANCE = 1
_NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class _Loss:
    """Loss of a composition: of a Gaussian pair with ``mu_squared``, and of the choices on a grid.

    The loss ``lowest`` + j ``step`` has the probability ``masses[j]`` 2^-160; ``above`` 2^-160 is the probability of an
    arbitrarily large loss. Probabilities are exact up to a factor exp(+- ``tau``).
    """

    mu_squared: Fraction
    tau: Decimal
    step: Fraction
    lowest: Fraction
    masses: tuple[int, ...]
    above: int


def delta_of(events: Sequence[Event], epsilon: float) -> float:
    """Returns a delta with which ``events``, decided beforehand, are (epsilon, delta)-private, rounded up.

    The result is never above the delta that their cost in zCDP implies. ``epsilon`` may be negative: then delta is a
    point of the curve. Raises ``ValueError`` unless epsilon is finite.
    """
    if not isfinite(epsilon):
        raise ValueError(f"epsilon = {epsilon}; it has to be finite")
    found = _numeric_delta(tuple(events), Fraction(epsilon))
    by_cost = delta_from_rho(_cost(events), epsilon) if epsilon > 0 else 1.0
    return by_cost if found is None else min(by_cost, round_up(found))


def epsilon_of(events: Sequence[Event], delta: float, *, distance: float = 0.0) -> float:
    """Returns an epsilon with which ``events``, decided beforehand, are (epsilon, delta)-private.

    The result is rounded up by 2^-20 of itself at most, and never above the epsilon that their cost in zCDP implies.
    ``distance`` is that of ``accounting.rho_from_epsilon_delta``; if delta does not cover it, the result is infinite.
    Raises ``ValueError`` unless delta lies between 0 and 1.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta = {delta}; it lies between 0 and 1")
    if not events:
        return 0.0
    return _epsilon_of(tuple(events), delta, distance)


@lru_cache(maxsize=256)
def _epsilon_of(events: tuple[Event, ...], delta: float, distance: float) -> float:
    by_cost = epsilon_from_rho(_cost(events), delta, distance=distance)

    def excess(epsilon: Fraction) -> Decimal | None:
        """Returns log(delta / delta allowed) at ``epsilon``; the guarantee holds at 0 or below."""
        return _excess(events, epsilon, delta, distance)

    if by_cost == inf:
        return inf
    high = _grid_index(Fraction(by_cost)) + 1
    if not _kept(excess(_grid_value(high))):
        return by_cost
    low, span = high, 1 << (_MANTISSA_BITS - 2)
    # If delta allows more than these events can do, any epsilon will do; the search goes down to about 2^-128.
    while _kept(excess(_grid_value(low))) and span < 1 << (_MANTISSA_BITS + 7):
        low, high, span = low - span, low, span * 2
    # From low, where the guarantee fails, to high, where it holds.
    best = _last(lambda k: excess(_grid_value(-k)), -high, -low)
    return min(by_cost, float(_grid_value(-best)))


def largest_budget(
    epsilon: float,
    delta: float,
    plan_of: Callable[[float], Plan],
    *,
    distance: float = 0.0,
) -> float:
    """Returns the largest zCDP budget whose fixed plan, ``plan_of(budget)``, is (epsilon, delta)-private.

    The result is at least ``accounting.rho_from_epsilon_delta``, whose other arguments these are; if it is larger it is
    a multiple of 2^-20 of itself, or more. That function's and a plan's arithmetic have to be the same on all machines.
    Raises ``ValueError`` as ``accounting.rho_from_epsilon_delta`` does.
    """
    least = rho_from_epsilon_delta(epsilon, delta, distance=distance)

    def excess(budget: Fraction) -> Decimal | None:
        plan = plan_of(float(budget))
        events = [event for r in (0, *[1] * plan.rounds) for event in plan.events(r)]
        return _excess(tuple(events), Fraction(epsilon), delta, distance)

    low, span = _grid_index(Fraction(least)) + 1, 1 << (_MANTISSA_BITS - 2)
    if not _kept(excess(_grid_value(low))):
        return least
    while _kept(excess(_grid_value(low + span))):
        low += span
    return float(_grid_value(_last(lambda k: excess(_grid_value(k)), low, low + span)))


def of_group(event: Event, rows: int) -> Event:
    """Returns ``event`` as seen by ``rows`` rows together, all possibly in one cell: ``rows`` times the sensitivity.

    A choice has ``rows`` times the epsilon: each row widens its range by as much as one does.
    """
    if rows == 1:
        return event
    if isinstance(event, ExponentialEvent):
        return ExponentialEvent(round_up(rows * Fraction(event.epsilon)))
    moved = round_up(rows * Fraction(event.sensitivity))
    if isinstance(event, SumOfDiscreteGaussiansEvent):
        return replace(event, sensitivity=moved, cells=rows * event.cells)
    return replace(event, sensitivity=moved)


def _grid_value(index: int) -> Fraction:
    """Returns number ``index`` of the ordered numbers with 21 bits: 2^20 ... 2^21 - 1 times each power of two."""
    exponent, mantissa = divmod(index, 1 << _MANTISSA_BITS)
    return ((1 << _MANTISSA_BITS) + mantissa) * Fraction(2) ** exponent


def _grid_index(value: Fraction) -> int:
    """Returns the index of the last ``_grid_value`` that is not above ``value``."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - _MANTISSA_BITS - 1
    while value >= Fraction(2) ** (exponent + _MANTISSA_BITS + 1):
        exponent += 1
    mantissa = floor(value / Fraction(2) ** exponent) - (1 << _MANTISSA_BITS)
    return (exponent << _MANTISSA_BITS) + mantissa


def _kept(excess: Decimal | None) -> bool:
    return excess is not None and excess <= 0


def _last(excess: Callable[[int], Decimal | None], low: int, high: int) -> int:
    """Returns the last index that keeps delta, between ``low``, which keeps it, and ``high``, which does not.

    The search interpolates logarithms linearly, which takes a fifth of the evaluations of bisection; each third step
    bisects.
    """
    at_low, at_high, step = excess(low), excess(high), 0
    while high - low > 1:
        middle = (low + high) // 2
        if at_low is not None and at_high is not None and at_high > at_low and step % 3 < 2:
            with localcontext() as context:
                context.prec = _DIGITS
                there = int(low + (high - low) * at_low / (at_low - at_high))
            # One step to the side, so that both ends of the interval move.
            there += 1 if step % 3 else 0
            middle = min(max(there, low + 1), high - 1)
        found = excess(middle)
        if _kept(found):
            low, at_low = middle, found
        else:
            high, at_high = middle, found
        step += 1
    return low


def _excess(
    events: tuple[Event, ...], epsilon: Fraction, delta: float, distance: float
) -> Decimal | None:
    """Returns log(delta of ``events`` / delta left by ``distance``), rounded up; None if undefined."""
    try:
        left = delta_left(float(epsilon), delta, distance)
    except ValueError:
        return None
    found = _numeric_delta(events, epsilon)
    if found is None:
        return None
    with localcontext() as context:
        context.prec = _DIGITS
        if found <= Fraction(left):
            # The rounding of the logarithm must not change its sign.
            return min(Decimal(0), (_decimal(found) / left).ln())
        return max(Decimal(10) ** -_DIGITS, (_decimal(found) / left).ln())


def _cost(events: Sequence[Event]) -> float:
    return round_up(sum((Fraction(rho(event)) for event in events), _NOTHING))


def _numeric_delta(events: tuple[Event, ...], epsilon: Fraction) -> Fraction | None:
    """Returns the bound of ``delta_of`` without zCDP's; None if noise is too small for a continuous Gaussian."""
    loss = _loss_of(frozenset(Counter(events).items()))
    return None if loss is None else _delta(loss, epsilon)


@lru_cache(maxsize=64)
def _loss_of(counted: frozenset[tuple[Event, int]]) -> _Loss | None:
    mu_squared, tau = _NOTHING, Decimal(0)
    choices: Counter[Fraction] = Counter()
    answers: Counter[Fraction] = Counter()
    # A set has no fixed order, and sums of decimals are rounded: the order is made the same on all machines.
    for event, times in sorted(counted, key=repr):
        if isinstance(event, ExponentialEvent):
            choices[Fraction(event.epsilon)] += times
        elif isinstance(event, DiscreteLaplaceEvent):
            answers[Fraction(event.sensitivity) / Fraction(event.scale)] += times
        else:
            noise = _gaussian(event)
            if noise is None:
                return None
            mu_squared += times * noise[0]
            with localcontext() as context:
                context.prec = _DIGITS
                tau += times * noise[1]
    step = _step(mu_squared, choices, answers)
    masses, lowest, above = [1 << _MASS_BITS], _NOTHING, 0
    for epsilons, atoms_of in ((choices, _choice), (answers, _answer)):
        for epsilon, times in sorted(epsilons.items()):
            # The range is rounded up to the grid of its own losses, which go from -epsilon to epsilon by whole steps.
            steps = -(-2 * epsilon // step)
            atoms, start, over = _power(atoms_of(steps, step), times)
            masses, first, cut = _trim(_product(masses, atoms))
            lowest += times * -steps * step / 2 + (start + first) * step
            above += over + cut
    # Twice: the factors of the cut-off parts sum to a few units more than 1.
    return _Loss(mu_squared, tau, step, lowest, tuple(masses), 2 * above)


def _gaussian(
    event: GaussianEvent | DiscreteGaussianEvent | SumOfDiscreteGaussiansEvent,
) -> tuple[Fraction, Decimal] | None:
    """Returns mu^2 of the Gaussian noise that dominates ``event``, and tau; None if its variance is too small."""
    moved = Fraction(event.sensitivity) ** 2
    variance = Fraction(event.sigma) ** 2
    if isinstance(event, GaussianEvent):
        return moved / variance, Decimal(0)
    with localcontext() as context:
        context.prec = _DIGITS
        apart, cells = Decimal(0), max(1, floor(moved))
        if isinstance(event, SumOfDiscreteGaussiansEvent):
            # README: a sum of m discrete Gaussians of variance s has a factor exp(+- 5 sum_k exp(-2 pi^2 s k / (k +
            # 1))).
            exponent = -2 * _PI**2 * _decimal(variance)
            shares = ((exponent * k / (k + 1)).exp() for k in range(1, event.parts))
            apart = 5 * sum(shares, Decimal(0))
            variance *= event.parts
            cells = min(cells, event.cells)
        if variance < _LEAST_VARIANCE:
            return None
        # README: random rounding with v = 1/2 leaves a Gaussian of variance s - v; v' = v (s - v) / s.
        left = variance - _ROUNDED
        spread = _decimal(_ROUNDED * left / variance)
        # tau of one cell: 11 exp(-pi^2 - 2 pi^2 v').
        rounded = 11 * (-(_PI**2) - 2 * _PI**2 * spread).exp()
        return moved / left, cells * (apart + rounded)


def _step(mu_squared: Fraction, *epsilons: Counter[Fraction]) -> Fraction:
    """Returns the step of the grid: the largest epsilon divided by a power of two.

    The step is small enough to hardly widen the loss.
    """
    counts = sum((Counter(each) for each in epsilons), Counter[Fraction]())
    if not counts:
        return Fraction(1)
    largest = max(counts)
    spread = mu_squared + sum(n * epsilon**2 for epsilon, n in counts.items()) / 3
    # A grid adds a sixth of its squared step to the variance of each loss.
    step = largest / 2
    while counts.total() * step**2 / 6 > _COARSENESS * spread:
        step /= 2
    return step


def _choice(steps: int, step: Fraction) -> list[int]:
    """Returns the probabilities of the losses of a choice, from -steps step / 2 on."""
    with localcontext() as context:
        context.prec = _DIGITS
        half = _decimal(step / 2)
        # tanh(h/4) = (e^(h/2) - 1) / (e^(h/2) + 1).
        ratio = half.exp()
        # c = tanh(h/4) / (1 - e^-epsilon), with epsilon = steps h / 2.
        c = (ratio - 1) / (ratio + 1) / (1 - (-half * steps).exp())
        # 2 c w_j with w_j = e^((x_j - epsilon)/2), where x_j - epsilon = (j - steps) h; half of that at both ends.
        found = [2 * c * (half * (j - steps)).exp() for j in range(steps + 1)]
        found[0], found[-1] = found[0] / 2, found[-1] / 2
        return [_mass(p) for p in found]


def _answer(steps: int, step: Fraction) -> list[int]:
    """Returns the probabilities of the two losses -+ steps step / 2 of a randomised response, and zeros between."""
    with localcontext() as context:
        context.prec = _DIGITS
        odds = _decimal(step * steps / 2).exp()
        return [_mass(1 / (1 + odds)), *[0] * (steps - 1), _mass(odds / (1 + odds))]


def _mass(probability: Decimal) -> int:
    """Returns a probability in units of 2^-160, rounded up, and one more for the rounding of decimals."""
    return int(probability * (1 << _MASS_BITS)) + 2


def _power(masses: list[int], times: int) -> tuple[list[int], int, int]:
    """Returns the probabilities of the sum of ``times`` losses, the steps its start moved up, and the part cut off."""
    found, start, above = [1 << _MASS_BITS], 0, 0
    for bit in bin(times)[2:]:
        found, first, cut = _trim(_product(found, found))
        start, above = 2 * start + first, 2 * above + cut
        if bit == "1":
            found, first, cut = _trim(_product(found, masses))
            start, above = start + first, above + cut
    return found, start, above


def _product(left: list[int], right: list[int]) -> list[int]:
    """Returns the probabilities of the sum of two losses, rounded up: an integer product (Kronecker substitution)."""
    width = (2 * _MASS_BITS + 8 + min(len(left), len(right)).bit_length()) // 8 + 1
    whole = _packed(left, width) * _packed(right, width)
    count = len(left) + len(right) - 1
    data = whole.to_bytes(count * width, "little")
    products = (int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width))
    return [-(-product >> _MASS_BITS) for product in products]


def _packed(masses: list[int], width: int) -> int:
    return int.from_bytes(b"".join(mass.to_bytes(width, "little") for mass in masses), "little")


def _trim(masses: list[int]) -> tuple[list[int], int, int]:
    """Cuts the least probabilities at both ends: low losses move up to the first that stays, high losses are cut off.

    Returns the rest, the steps that its start moved up, and the probability that was cut off.
    """
    first, below = 0, 0
    while first < len(masses) - 1 and below + masses[first] < _TRIMMED:
        below += masses[first]
        first += 1
    last, above = len(masses), 0
    while last > first + 1 and above + masses[last - 1] < _TRIMMED:
        last -= 1
        above += masses[last]
    return [below + masses[first], *masses[first + 1 : last]], first, above


def _delta(loss: _Loss, epsilon: Fraction) -> Fraction:
    """Returns an upper bound on delta at ``epsilon``: the Gaussian's curve, averaged over the losses of the choices."""
    with localcontext() as context:
        context.prec = _DIGITS
        # Factors exp(+- tau) of both distributions: the curve at x is at most e^tau times that at x - 2 tau.
        left = epsilon - Fraction(2 * loss.tau)
        start = _fixed(left - loss.lowest)
        step = _fixed(loss.step)
        curve = _curve(loss.mu_squared)
        total = sum(
            mass * (curve(start - j * step) + _CURVE_SLACK) for j, mass in enumerate(loss.masses)
        )
        delta = Fraction(total + (loss.above << _BITS), 1 << (_MASS_BITS + _BITS))
        return min(Fraction(1), delta * Fraction(loss.tau.exp()))


def _curve(mu_squared: Fraction) -> Callable[[int], int]:
    """Returns the curve of a Gaussian pair, Phi(a) - e^x Phi(b) with a = mu/2 - x/mu and b = a - mu, times 2^192.

    With phi the density and R(t) = Phi(-t) / phi(t), Phi(a) is phi(a) R(-a) or 1 - phi(a) R(a), and since e^x phi(b) =
    phi(a), e^x Phi(b) is phi(a) R(-b) or e^x - phi(a) R(b): R is needed only where it is at most R(0), so that no term
    grows.
    """
    if not mu_squared:
        return lambda x: _ONE - _exp(x) if x < 0 else 0
    root = _decimal(mu_squared).sqrt()
    mu, inverse = int(root * _ONE), int(_ONE / root)
    scale = int(_ONE / (2 * _PI).sqrt())

    def value(x: int) -> int:
        a = (mu >> 1) - (x * inverse >> _BITS)
        b = a - mu
        density = _exp(-(a * a) >> (_BITS + 1)) * scale >> _BITS
        one = density * _mills(abs(a)) >> _BITS
        other = density * _mills(abs(b)) >> _BITS
        return max(0, (one if a <= 0 else _ONE - one) - (other if b <= 0 else _exp(x) - other))

    return value


def _mills(t: int) -> int:
    """Returns R(t) = Phi(-t) / phi(t) for t >= 0: a series below 6, a continued fraction from there on.

    With n levels the error is about exp(-2 t sqrt(n)), and less where t^2 is above n: below 2^-140.
    """
    whole = t >> _BITS
    if whole >= 6:
        value = t
        for level in range(2600 // whole**2 + 32, 0, -1):
            value = t + level * _SQUARE // value
        return _SQUARE // value
    # Phi(t) - 1/2 = phi(t) (t + t^3/3 + t^5/(3 5) + ...).
    square, term, total, odd = t * t >> _BITS, t, 0, 1
    while term:
        total += term
        odd += 2
        term = (term * square >> _BITS) // odd
    return (_exp(square >> 1) * _constants()[1] >> _BITS) - total


@lru_cache(maxsize=1)
def _constants() -> tuple[int, int]:
    """Returns log 2 in units of 2^-224, and sqrt(pi / 2) in units of 2^-192."""
    with localcontext() as context:
        context.prec = _DIGITS
        return int(Decimal(2).ln() * (_ONE << _SPARE)), int((_PI / 2).sqrt() * _ONE)


def _exp(x: int) -> int:
    """Returns e^x in units of 2^-192, to about 2^-180 of itself or of a unit."""
    if x < -(256 << _BITS):
        return 0
    bits = _BITS + _SPARE
    # x = doublings log 2 + rest; e^rest is (e^(rest/256))^256, by its series and eight squarings.
    doublings, rest = divmod(x << _SPARE, _constants()[0])
    rest >>= 8
    term = total = 1 << bits
    k = 1
    while term:
        term = (term * rest >> bits) // k
        total += term
        k += 1
    for _ in range(8):
        total = total * total >> bits
    shift = doublings - _SPARE
    return total << shift if shift >= 0 else total >> -shift


def _fixed(value: Fraction) -> int:
    return floor(value * _ONE)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
