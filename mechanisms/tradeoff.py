"""The power of an attacker who tells two neighbouring tables apart, bounded from a mechanism's privacy profile.

The attacker decides, by everything that is released, whether a row (or a person) was there. It falsely suspects a share
of the absent (false positives), and finds a share of the present (``found_at_most``). All values here are public.

A profile delta(epsilon) says that P(S) <= e^epsilon Q(S) + delta for every set S and both directions. So of an attacker
with false positives a, which finds b: b <= delta + e^epsilon a, and 1 - a <= delta + e^epsilon (1 - b). The least of
these bounds, over all epsilon, is the trade-off curve of the profile (Wasserman, Zhou 2010; Dong, Roth, Su 2022,
Proposition 2.12). Every epsilon makes a valid bound, so an inexact minimum errs on the safe side. Samples at a
statistical ``distance`` from the distributions of the profile move a and b by no more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from mechanisms.accounting import delta_from_rho
from mechanisms.gaussian_privacy import gaussian_delta

__all__ = ["Profile", "found_at_most", "gaussian_profile", "stated_profile", "zcdp_profile"]

_Curve: TypeAlias = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Profile:
    """Privacy profile of a mechanism.

    ``delta`` is a function from an epsilon of at least 0 to a delta with which the mechanism is (epsilon,
    delta)-private. ``nearly`` is about the same function in floats: a search uses it, no bound does.
    """

    delta: _Curve
    nearly: _Curve


_ROOT_2 = math.sqrt(2)
_SMALLEST, _LARGEST = 1 / 64, 64.0
_NEGLIGIBLE = 1e-12
"""A delta; an epsilon beyond one with this delta makes no bound that is lower by more."""
_STEPS, _ZOOMS = 16, 6
_SLACK = 1e-12
"""Relative bound on the rounding of a bound's four operations."""


def gaussian_profile(cost: float) -> Profile:
    """Returns the exact profile of Gaussian noise of this cost in the currency of ``gaussian_privacy``."""
    mu = math.sqrt(2 * cost)

    def nearly(epsilon: float) -> float:
        if mu == 0:
            return 0.0
        above, below = (epsilon / mu + sign * mu / 2 for sign in (-1, 1))
        tails = math.erfc(above / _ROOT_2) - math.exp(epsilon) * math.erfc(below / _ROOT_2)
        return max(0.0, tails / 2)

    return Profile(lambda epsilon: gaussian_delta(cost, epsilon), nearly)


def zcdp_profile(rho: float) -> Profile:
    """Returns a profile that every mechanism with ``rho``-zCDP has."""

    def delta(epsilon: float) -> float:
        return delta_from_rho(rho, epsilon) if epsilon > 0 else 1.0

    return Profile(delta, delta)


def stated_profile(epsilon: float, delta: float) -> Profile:
    """Returns the profile of a mechanism of which no more is known than that it is (epsilon, delta)-private."""

    def of(tried: float) -> float:
        return delta if tried >= epsilon else 1.0

    return Profile(of, of)


def found_at_most(
    profile: Profile, false_positives: float, *, distance: float = 0.0, stated: float | None = None
) -> float:
    """Returns the largest share of the present that an attacker with these false positives finds, rounded up.

    ``stated`` is an epsilon to try besides. Raises ValueError unless the shares lie between 0 and 1.
    """
    if not (0 <= false_positives <= 1 and 0 <= distance <= 1):
        raise ValueError(
            f"false positives {false_positives} and distance {distance}; they lie between 0 and 1"
        )
    suspected = min(1.0, false_positives + distance)

    def bound(curve: _Curve, epsilon: float) -> float:
        delta = curve(epsilon)
        if delta >= 1:
            return 1.0
        rising = delta + math.exp(epsilon) * suspected
        falling = 1 - math.exp(-epsilon) * (1 - delta - suspected)
        return min(rising, falling)

    tried = [0.0] if stated is None else [0.0, stated]
    low, high = 0.0, _SMALLEST
    while high < _LARGEST and profile.nearly(high) > _NEGLIGIBLE:
        high *= 2
    for _ in range(_ZOOMS):
        step = (high - low) / _STEPS
        grid = [low + step * number for number in range(_STEPS + 1)]
        best = min(grid, key=partial(bound, profile.nearly))
        tried.append(best)
        low, high = max(0.0, best - step), best + step
    found = min(bound(profile.delta, epsilon) for epsilon in tried) + distance
    return min(1.0, max(false_positives, found * (1 + _SLACK) + _SLACK))
