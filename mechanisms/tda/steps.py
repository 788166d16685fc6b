"""The three kinds of sums of a run: length, resolution, noise, and cost of each.

Server and silos make them from their own settings: a request that differs is refused. All values here are public.

Sensitivities, of one row more or less. Mixtures: a row's terms over all continuous columns are one vector, shortened to
the norm ``row_norm`` sqrt(n_c). Frequencies: one count in each of n_c + n_d columns, hence sqrt(n_c + n_d). Second
moments: a row (1, X) is shortened to the norm R with R^2 = 1 + ``moment_norm`` l, hence R^2 / sqrt(2)
(`mechanisms.tda.covariance`). All are enforced on whole numbers, after rounding, and hold for every payload of the
server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import rho
from mechanisms.errors import BudgetExceeded
from mechanisms.events import Event
from mechanisms.fixed_point import decode
from mechanisms.silos import MAX_VALUE, Noise, Request, Sum, sum_noise
from mechanisms.tda.icdm import Scores
from mechanisms.tda.layout import Layout
from mechanisms.tda.mixture import Mixture
from mechanisms.tda.settings import TdaSettings

MIXTURE, FREQUENCIES, MOMENTS = "tda.mixture", "tda.frequencies", "tda.moments"

MAX_PLACE = 8.0
"""Largest distance, in deviations, of a value from its component's mean in exact sums; others are moved there."""

_MAX_BITS = 20
_EXACT_BITS = 40
_LEAST_PART = 3.0
# Exact samplers of noise take deviations below 2^20 units.
_MAX_DEVIATION = 1 << 19
# Rounding of budgets and variances stays within this, relatively.
_ROOM = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of sum: ``length`` values in [``low``, ``high``], in units of 2^-``scale_bits``.

    ``norm`` is the norm that rows are shortened to, in real numbers; ``noise`` and ``event`` are None in a run without
    noise.
    """

    name: str
    length: int
    low: int
    high: int
    scale_bits: int
    norm: float = 0.0
    noise: Noise | None = None
    event: Event | None = None

    def request(self, payload: bytes) -> Request:
        """Returns the server's request."""
        return Request(self.name, payload, self.length, self.low, self.high, self.noise, self.event)

    def check(self, request: Request) -> None:
        """Checks, at a silo, that the request is of this kind. Raises ``RequestRefused``."""
        request.check(self.request(b""))

    def real(self, total: Sum) -> NDArray[np.float64]:
        """Returns a sum (length,) as real numbers."""
        return decode(total.values, scale_bits=self.scale_bits)

    def deviation(self, total: Sum) -> float:
        """Returns the deviation of the noise in each number of ``real``; 0 without noise."""
        if self.noise is None:
            return 0.0
        return math.ldexp(self.noise.deviation(len(total.survivors)), -self.scale_bits)


@dataclass(frozen=True, slots=True)
class Steps:
    """The sums of a run.

    ``mixture`` is taken in each of ``iterations`` (0 without continuous columns), then ``frequencies`` and ``moments``.
    """

    mixture: Step
    frequencies: Step
    moments: Step
    iterations: int

    @classmethod
    def of(cls, layout: Layout, settings: TdaSettings) -> Steps:
        """Builds the steps. Raises ``ValueError`` if the budget is too small for noise that can be sampled."""
        iterations = settings.iterations if layout.continuous else 0
        if not settings.private_run:
            return cls(*_exact(layout, settings), iterations)
        budget = settings.rho * _ROOM
        # The mixtures' share, unused without continuous columns, goes to the second moments.
        left = 1 - settings.frequency_share - (settings.mixture_share if iterations else 0.0)
        return cls(
            _mixture(layout, settings, budget * settings.mixture_share / settings.iterations),
            _frequencies(layout, settings, budget * settings.frequency_share),
            _moments(layout, settings, budget * left),
            iterations,
        )

    @property
    def all(self) -> list[Step]:
        """Every sum of a whole run."""
        return [self.mixture] * self.iterations + [self.frequencies, self.moments]


def moment_scale(layout: Layout, settings: TdaSettings, ranked: Sequence[Scores]) -> float:
    """Returns the factor of rows (1, X) after which their squares are 1 + l on average, before they are shortened to R.

    A place or a drawn score has a square of 1 on average, a category's mean that of the column's variance. The factor
    is 1 in exact sums. 1 + l is R^2 for ``moment_norm`` = 1.
    """
    if not settings.private_run or settings.correlations == "scores":
        return 1.0
    square = len(layout.continuous) + sum(scores.variance for scores in ranked)
    # (1 + l) / E|(1, X)|^2.
    return math.sqrt((1 + layout.width) / (1 + square))


def cost(steps: Iterable[Step]) -> float:
    """Returns the cost of sums per row; 0 for sums that are not private."""
    return math.fsum(rho(step.event) for step in steps if step.event is not None)


def triangle(layout: Layout) -> int:
    """Returns the number of second moments of a row (1, X): (l + 1) (l + 2) / 2."""
    return (layout.width + 1) * (layout.width + 2) // 2


def _terms(layout: Layout) -> int:
    return 3 * layout.components * len(layout.continuous)


def _exact(layout: Layout, settings: TdaSettings) -> tuple[Step, Step, Step]:
    # As fine as sums of all rows leave room for: terms are at most 1, products of X at most 64.
    rows, most = settings.max_silo_rows, round(MAX_PLACE**2)
    spare = MAX_VALUE.bit_length() - 1 - (rows - 1).bit_length()
    fine = min(_EXACT_BITS, spare)
    products = min(_EXACT_BITS, spare - (most - 1).bit_length())
    bound = most * rows << products
    return (
        Step(MIXTURE, max(1, _terms(layout)), -rows << fine, rows << fine, fine),
        Step(FREQUENCIES, sum(layout.sizes), 0, rows, 0),
        Step(MOMENTS, triangle(layout), -bound, bound, products),
    )


def _mixture(layout: Layout, settings: TdaSettings, budget: float) -> Step:
    norm = settings.row_norm * math.sqrt(max(1, len(layout.continuous)))
    bits = _bits(norm / math.sqrt(2 * budget), settings)
    sensitivity = math.ldexp(norm, bits)
    return _noisy(settings, budget, MIXTURE, max(1, _terms(layout)), bits, norm, sensitivity)


def _frequencies(layout: Layout, settings: TdaSettings, budget: float) -> Step:
    columns = len(layout.sizes)
    length = sum(layout.sizes)
    sensitivity = math.nextafter(math.sqrt(columns), math.inf)
    bits = 0
    if settings.noise == "distributed":
        # Sums of a few silos' noise cost the same as a single one only if each is some units wide.
        part = sensitivity / math.sqrt(2 * budget * settings.honest)
        bits = max(0, math.ceil(math.log2(_LEAST_PART / part)))
    step = _noisy(
        settings,
        budget,
        FREQUENCIES,
        length,
        bits,
        0.0,
        math.ldexp(sensitivity, bits),
        cells=columns,
    )
    return replace(step, low=0, high=settings.max_silo_rows << bits)


def _moments(layout: Layout, settings: TdaSettings, budget: float) -> Step:
    square = 1 + settings.moment_norm * layout.width
    # Products are in units of 4^-bits.
    bits = _bits(square / math.sqrt(4 * budget), settings) // 2
    norm = math.sqrt(square)
    # The limit of a row is floor((2^bits norm)^2); 0.7071067811866 is above 1 / sqrt(2).
    sensitivity = math.ldexp(norm**2 * (1 + 2.0**-50), 2 * bits) * 0.7071067811866
    return _noisy(settings, budget, MOMENTS, triangle(layout), 2 * bits, norm, sensitivity)


def _bits(deviation: float, settings: TdaSettings) -> int:
    """Returns the fraction bits with which noise of this deviation, in real numbers, can be sampled."""
    bits = min(_MAX_BITS, math.floor(math.log2(_MAX_DEVIATION / deviation)))
    if bits < 0:
        raise ValueError(
            f"rho = {settings.rho} needs noise of a deviation of {deviation:.3g}, beyond {_MAX_DEVIATION}:"
            " a larger budget, fewer columns or fewer iterations"
        )
    return bits


def _noisy(
    settings: TdaSettings,
    budget: float,
    name: str,
    length: int,
    bits: int,
    norm: float,
    sensitivity: float,
    *,
    cells: int | None = None,
) -> Step:
    """Returns a step whose noise costs ``budget``; sensitivity in units."""
    # budget = sensitivity^2 / (2 sigma^2), solved for sigma.
    sigma = sensitivity / math.sqrt(2 * budget)
    noise, event = sum_noise(
        settings.noise,
        sigma,
        sensitivity=sensitivity,
        cells=cells or length,
        honest=settings.honest,
    )
    if rho(event) > budget / _ROOM:
        raise BudgetExceeded(f"{name!r} would cost {rho(event):.6g}, and has {budget:.6g}")
    bound = settings.max_silo_rows * math.ceil(sensitivity * math.sqrt(2))
    return Step(name, length, -bound, bound, bits, norm, noise, event)


def mixture_unit(mixture: Mixture, settings: TdaSettings) -> NDArray[np.float64]:
    """Returns the units of a mixture's terms, (n_c, T): 1 in exact sums, so that they have bounds.

    With noise, each component's deviation: a row then adds as much, and noise harms as much, in narrow components as in
    wide ones.
    """
    return mixture.deviation if settings.private_run else np.ones_like(mixture.mean)
