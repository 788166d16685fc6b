"""Privacy loss of sampled Gaussian noise, composed numerically: the cost of all steps of DP-SGD together.

``SampledGaussian`` is one step; ``SampledLedger`` charges steps. All values here are public. Neighbouring tables: one
example is present or absent, and the declared number of rows stays. Steps may be chosen adaptively.

A step is dominated by a pair of distributions on the line, one for each direction (Zhu, Dong, Wang 2022, Theorem 11): P
= N(0, 1) and the mixture M = (1-q) P + q N(1/z, 1), whose loss log M/P grows with the answer. Pairs compose; delta is
the larger one of the two directions.

Representation: losses on a grid of step h, doubles. The probability between two points of the grid is split between
these two so that it stays the same under both distributions: that is a straight line, over e^x, above a convex curve
(Doroshenko et al. 2022), and adds at most h^2 / 4 to a variance. Losses beyond the grid are moved up, or counted as
delta. Sums of losses are powers of one Fourier transform of the probabilities p e^(t x) in place of p, with t such that
their mean is about epsilon: rounding errors are then small beside delta itself, for every delta. The part that the
transform's period folds over adds to delta if it comes from below; if it comes from above, Markov's bound on e^(t x) is
added. Delta is raised by 1e-6 of itself for rounding.

Discrete noise of a variance 4 units^2 larger costs no more than continuous noise, except for a distance of 1e-33 for
each coordinate (README, "What a step of DP-SGD costs"): ``multiplier_on_lattice``. For 10^10 coordinates, all steps
together, that is 1e-23 (1 + e^epsilon) of delta, which is added to each.

Source: Koskela, Jalko, Honkela 2020 (Fourier transforms); Gopi, Lee, Wutschitz 2021; the names above. Never above the
result of ``rdp``. Limits: a delta below 1e-15 and an epsilon above 40 are left to ``rdp``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms import rdp
from mechanisms.errors import BudgetExceeded
from mechanisms.events import check_positive

__all__ = [
    "SampledGaussian",
    "SampledLedger",
    "delta_of",
    "epsilon_of",
    "least_multiplier",
    "multiplier_on_lattice",
]

_REACH = 13.0
"""Deviations beyond which a normal variable has a probability below 1e-38."""
_POINTS_A_DEVIATION = 24
_DEVIATIONS = 14
_MOST_LINES, _MOST_POINTS = 1 << 16, 1 << 22
_STEEPEST = 600.0
_FADED = 16.0
"""Markov's bound on the losses above the grid is e^-16 of delta, or less."""
_SLACK = 1 + 1e-6
_ROUNDED = 1e-23
_LEAST_DELTA, _MOST_EPSILON = 1e-15, 40.0
_LARGEST = 500.0
"""Loss beyond which probabilities count as delta."""


@dataclass(frozen=True, slots=True, order=True)
class SampledGaussian:
    """A noisy sum over a Poisson sample: every row is in it with probability at most ``q``.

    ``z`` is the noise's deviation in multiples of the largest contribution of one row to the sum, in Euclidean norm.
    Raises ``ValueError`` unless q lies in (0, 1] and z is positive and finite.
    """

    q: float
    z: float

    def __post_init__(self) -> None:
        check_positive("z", self.z)
        if not 0 < self.q <= 1:
            raise ValueError(f"q = {self.q}; a sampling rate lies above 0 and is at most 1")


Steps = Mapping[SampledGaussian, int]
"""Number of steps of each kind."""


def multiplier_on_lattice(z: float, units: float) -> float:
    """Returns the multiplier of discrete noise that costs no more than continuous noise of ``z``.

    One row adds ``units`` at most.
    """
    return math.sqrt(z * z + 4 / (units * units)) * (1 + 1e-15)


def delta_of(steps: Steps, epsilon: float) -> float:
    """Returns a delta with which ``steps`` together are (epsilon, delta)-private; 1 if unknown, as for epsilon > 40.

    Raises ``ValueError`` unless epsilon is positive and finite.
    """
    check_positive("epsilon", epsilon)
    if not sum(steps.values()):
        return 0.0
    if epsilon > _MOST_EPSILON:
        return 1.0
    return _bounded([_composed(steps, epsilon, added=added) for added in (True, False)], epsilon)


def epsilon_of(steps: Steps, delta: float) -> float:
    """Returns an epsilon with which ``steps`` together are (epsilon, delta)-private, to 1e-6.

    It is never above that of the Renyi curves. Raises ``ValueError`` unless delta lies between 0 and 1.
    """
    by_curve = rdp.epsilon_of(_curve(steps), delta)
    if not sum(steps.values()):
        return 0.0
    if delta < _LEAST_DELTA or not 0 < by_curve < _MOST_EPSILON:
        return by_curve
    found = by_curve
    for _ in range(2):
        # Tilted for one epsilon, the probabilities serve for nearby ones: repeated once for the result.
        parts = [_composed(steps, found, added=added) for added in (True, False)]
        low, high = 0.0, by_curve
        while high - low > 1e-7 * by_curve:
            middle = (low + high) / 2
            low, high = (low, middle) if _bounded(parts, middle) <= delta else (middle, high)
        found = min(by_curve, high * (1 + 1e-7))
    # Far from it rounding may exceed the result: the last check is tilted for the result itself.
    return found if delta_of(steps, found) <= delta else by_curve


def least_multiplier(steps_of: Callable[[float], Steps], epsilon: float, delta: float) -> float:
    """Returns the least noise multiplier z, to 1e-6 and rounded up, for which ``steps_of(z)`` keeps (epsilon, delta).

    Raises ``ValueError`` for numbers out of range, or if not even z = 10^6 is enough.
    """
    high = rdp.least_multiplier(lambda z: _curve(steps_of(z)), epsilon, delta)
    if delta < _LEAST_DELTA or epsilon > _MOST_EPSILON:
        return high

    def keeps(z: float) -> bool:
        return delta_of(steps_of(z), epsilon) <= delta

    low = high / 2
    while keeps(low):
        low, high = low / 2, low
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class SampledEntry:
    """``steps`` releases of one kind, ``event``, for the purpose ``name``."""

    name: str
    event: SampledGaussian
    steps: int


class SampledLedger:
    """The releases of one silo, against its own (``epsilon``, ``delta``), in memory.

    Raises ``ValueError`` for numbers out of range.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        check_positive("epsilon", epsilon)
        if not 0 < delta < 1:
            raise ValueError(f"delta = {delta}; it lies between 0 and 1")
        self.epsilon, self.delta = epsilon, delta
        self._spent = Counter[SampledGaussian]()
        self._affordable = Counter[SampledGaussian]()
        self._entries: list[SampledEntry] = []

    def __repr__(self) -> str:
        return f"SampledLedger(spent={self.spent:.4g} of {self.epsilon:.4g}, delta={self.delta:g})"

    @property
    def spent(self) -> float:
        """Epsilon, at ``delta``, of all charges; 0 without charges."""
        return min(self.epsilon, epsilon_of(self._spent, self.delta))

    @property
    def entries(self) -> list[SampledEntry]:
        """All charges, in order."""
        return list(self._entries)

    def require(self, name: str, event: SampledGaussian, steps: int) -> None:
        """Raises ``BudgetExceeded`` if ``steps`` more are above the budget; otherwise fewer steps are not either."""
        check_positive(f"{name}: steps", steps)
        after = self._spent + Counter({event: steps})
        if after <= self._affordable:
            return
        if rdp.epsilon_of(_curve(after), self.delta) > self.epsilon:
            found = delta_of(after, self.epsilon)
            if found > self.delta:
                raise BudgetExceeded(
                    f"{name}: {steps} steps were refused: with them delta is {found:.6g} at epsilon "
                    f"{self.epsilon:.6g}, and the budget is {self.delta:g}"
                )
        self._affordable = after

    def charge(self, name: str, event: SampledGaussian, steps: int) -> None:
        """Enters ``steps`` releases of ``event``; call it before anything of them is computed.

        Raises ``BudgetExceeded``, and enters nothing, if that exceeds the budget.
        """
        self.require(name, event, steps)
        self._spent[event] += steps
        self._entries.append(SampledEntry(name, event, steps))


def _bounded(directions: Sequence[_Composed], epsilon: float) -> float:
    """Returns the larger delta of both directions, raised by the errors of rounding and of noise on a lattice."""
    off = _ROUNDED * (1 + math.exp(epsilon))
    return min(1.0, max(each.delta(epsilon) for each in directions) * _SLACK + off)


def _curve(steps: Steps) -> NDArray[np.float64]:
    total = np.zeros(len(rdp.ORDERS))
    for event, count in steps.items():
        total += count * rdp.sampled_gaussian(event.q, event.z)
    return total


@dataclass(frozen=True, slots=True, eq=False)
class _Composed:
    """The sum of all losses: the loss ``losses`` (n,) has the probability ``tilted`` e^(``scale`` - ``tilt`` loss).

    ``beyond`` is a part of delta for every epsilon.
    """

    losses: NDArray[np.float64]
    tilted: NDArray[np.float64]
    tilt: float
    scale: float
    beyond: float

    def delta(self, epsilon: float) -> float:
        """Returns delta at ``epsilon``: E max(0, 1 - e^(epsilon - loss))."""
        over = self.losses > epsilon
        losses = self.losses[over]
        # A large exponent means that epsilon is far from the tilted one; rounding alone exceeds any delta there.
        exponents = np.minimum(self.scale - self.tilt * losses, _STEEPEST)
        weights = -np.expm1(epsilon - losses) * np.exp(exponents)
        return float(self.tilted[over] @ weights) + self.beyond


_NOTHING = _Composed(np.zeros(0), np.zeros(0), 1.0, 0.0, 1.0)
"""A sum of losses of which nothing is known."""


@dataclass(frozen=True, slots=True, eq=False)
class _Tilted:
    """``weights``: probabilities times e^(t loss), normalised; the logarithm of their sum, and the losses' moments."""

    weights: NDArray[np.float64]
    log: float
    mean: float
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Logarithms of the probabilities of the losses ``(first + i) h`` of one kind of step.

    ``beyond`` is the probability of an arbitrarily large loss.
    """

    first: int
    logs: NDArray[np.float64]
    beyond: float
    count: int

    def tilted(self, tilt: float, step: float) -> _Tilted:
        """Returns one step's losses under the tilted probabilities p e^(t loss)."""
        losses = step * (self.first + np.arange(self.logs.size))
        exponents = self.logs + tilt * losses
        peak = float(exponents.max())
        weights = np.exp(exponents - peak)
        total = float(weights.sum())
        weights /= total
        mean = float(weights @ losses)
        variance = float(weights @ (losses - mean) ** 2)
        return _Tilted(weights, peak + math.log(total), mean, variance)


def _composed(steps: Steps, epsilon: float, *, added: bool) -> _Composed:
    """Returns the sum of all losses, tilted for ``epsilon``; ``added``: the direction with the example present."""
    used = {event: count for event, count in steps.items() if count}
    step = _step(used)
    parts = [_part(event, count, step, added=added) for event, count in sorted(used.items())]
    beyond = sum(part.count * part.beyond for part in parts)
    if beyond > 0.5:
        return _NOTHING
    tilt = _tilt(parts, step, epsilon)
    moments = [part.tilted(tilt, step) for part in parts]
    mean = sum(part.count * m.mean for part, m in zip(parts, moments, strict=True))
    variance = sum(part.count * m.variance for part, m in zip(parts, moments, strict=True))
    reach = _DEVIATIONS * math.sqrt(variance) + max(p.logs.size for p in parts) * step
    low, high = mean - reach, max(mean, epsilon) + reach + _FADED / tilt
    least = step * sum(part.count * part.first for part in parts)
    most = least + step * sum(part.count * (part.logs.size - 1) for part in parts)
    low, high = max(low, least), min(high, most + step)
    if (high - low) / step > _MOST_POINTS:
        return _NOTHING
    points = 1 << math.ceil((high - low) / step).bit_length()
    transform = np.ones(points // 2 + 1, np.complex128)
    start, scale = 0, 0.0
    for part, moment in zip(parts, moments, strict=True):
        folded = np.zeros(points)
        folded[: moment.weights.size] = moment.weights
        transform *= np.fft.rfft(folded) ** part.count
        start += part.count * part.first
        scale += part.count * moment.log
    sums = np.fft.irfft(transform, points)
    # Position k is of the loss (start + k) h, up to a multiple of the period.
    first = math.ceil(low / step)
    positions = (first + np.arange(points) - start) % points
    top = step * (first + points)
    # Markov: P(loss >= top) <= E e^(t loss) e^(-t top), for losses that fold over from above.
    above = 0.0 if top > most else math.exp(min(0.0, scale - tilt * top))
    losses: NDArray[np.float64] = step * (first + np.arange(points, dtype=np.float64))
    tilted = np.maximum(0.0, sums[positions])
    return _Composed(losses, tilted, tilt, scale, beyond + above)


def _tilt(parts: Sequence[_Part], step: float, epsilon: float) -> float:
    """Returns a t for which the tilted losses have a mean of about ``epsilon``."""
    low, high = 1e-3, 1e3
    for _ in range(24):
        middle = math.sqrt(low * high)
        mean = sum(part.count * part.tilted(middle, step).mean for part in parts)
        low, high = (low, middle) if mean > epsilon else (middle, high)
    return high


def _step(steps: Steps) -> float:
    """Returns the step of the grid: small enough to hardly widen the losses, unless that takes too many points."""
    least, span = min(_deviation(event) for event in steps), max(_span(event) for event in steps)
    return max(least / _POINTS_A_DEVIATION, span / _MOST_LINES)


def _span(event: SampledGaussian) -> float:
    """Returns the distance between the least and the largest loss of one step that is considered."""
    low, high = _ends(event)
    return high - low


def _deviation(event: SampledGaussian) -> float:
    """Returns about the deviation of one loss with the example present.

    The variance under P is (e^(1/z^2) - 1) q^2 at small q.
    """
    return min(event.q * math.sqrt(math.expm1(min(50.0, event.z**-2))), 1 / event.z)


def _part(event: SampledGaussian, count: int, step: float, *, added: bool) -> _Part:
    """Returns the probabilities of one step's loss on the grid."""
    q, mu = event.q, 1 / event.z
    least, most = _ends(event)
    lines = np.arange(math.floor(least / step), math.ceil(most / step) + 1)
    ends = np.full(lines.size, -np.inf)
    # The answer y with loss log M/P = l: e^l = 1 - q + q e^(mu y - mu^2 / 2), solved for y.
    odds = (np.expm1(lines * step) + q) / q
    ends[odds > 0] = np.log(odds[odds > 0]) / mu + mu / 2
    if q == 1:
        ends = lines * step / mu + mu / 2
    absent, shifted = _between(ends), _between(ends - mu)
    present = (1 - q) * absent + q * shifted
    of_absent_below, of_shifted_below = _below(np.array([ends[0], ends[0] - mu])).tolist()
    of_absent_above, of_shifted_above = _below(np.array([-ends[-1], mu - ends[-1]])).tolist()
    of_present_below = (1 - q) * of_absent_below + q * of_shifted_below
    of_present_above = (1 - q) * of_absent_above + q * of_shifted_above
    masses = np.zeros(lines.size)
    width = -math.expm1(-step)
    if added:
        # Between lines j and j + 1, with the likelihood ratios e^l, the upper one gets (M - P e^(l_j)) / (1 - e^-h).
        upper = np.clip((present - absent * np.exp(lines[:-1] * step)) / width, 0, present)
        masses[1:] += upper
        masses[:-1] += present - upper
        masses[0] += of_present_below
        return _Part(int(lines[0]), _log(masses), of_present_above, count)
    # The loss is log P/M, so its upper end is the lower line.
    upper = np.clip((absent - present * np.exp(-lines[1:] * step)) / width, 0, absent)
    masses[:-1] += upper
    masses[1:] += absent - upper
    masses[-1] += of_absent_above
    return _Part(-int(lines[-1]), _log(masses[::-1]), of_absent_below, count)


def _log(masses: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(masses)


def _ends(event: SampledGaussian) -> tuple[float, float]:
    """Returns the ends of the losses log M/P: from log(1-q), or the least considered, to that of the largest answer."""
    q, mu = event.q, 1 / event.z
    moved = math.log(q) + mu * (_REACH + mu / 2)
    if q == 1:
        return -min(_LARGEST, mu * (_REACH + mu / 2)), min(_LARGEST, moved)
    return math.log1p(-q), min(_LARGEST, float(np.logaddexp(math.log1p(-q), moved)))


def _between(ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the normal probabilities between neighbours, from the smaller tail, so that little cancels."""
    below, above = _below(ends), _below(-ends)
    between: NDArray[np.float64] = np.where(ends[:-1] > 0, -np.diff(above), np.diff(below))
    return between


def _below(ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the normal probability of a smaller value."""
    return np.array([math.erfc(-end * math.sqrt(0.5)) / 2 for end in ends.tolist()])
