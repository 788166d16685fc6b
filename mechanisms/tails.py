"""Tail bounds on the noise of a marginal, in sums over its cells.

All values here are public.

Noise is a sum of independent discrete Gaussians, each times a constant; sigma^2 is the sum of their variance parameters
times the constants' squares. Its characteristic function is above the Gaussian's, so that E e^(t |X|) is at most that
of a Gaussian of deviation sigma; see README.md, Intervals, for the proof. Everything here is Chernoff's bound on that,
at the best t of a grid: any t is valid, so that an inexact search makes a bound larger and never wrong.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

_TS = np.geomspace(1e-5, 50.0, 1500)


@cache
def _log_moments() -> NDArray[np.float64]:
    """Returns log E e^(t max(X, 0)) for a standard Gaussian X: log(1/2 + e^(t^2 / 2) Phi(t)), at each t of the grid."""
    below = np.array([math.erfc(-t / math.sqrt(2)) / 2 for t in _TS.tolist()])
    return np.asarray(np.logaddexp(math.log(0.5), _TS * _TS / 2 + np.log(below)))


def positive_sum_bound(cells: int, sigma: float, *, log_chance: float) -> float:
    """Returns a bound on the sum of the positive parts of ``cells`` independent cells' noise.

    The sum exceeds the bound with a small chance, whose natural logarithm is ``log_chance`` (negative). For all subsets
    of ``cells`` out of n cells at once, subtract ``log_subsets(n, cells)`` from it.
    """
    if cells == 0:
        return 0.0
    # Chernoff: min over t of (cells log E e^(t X+) - log chance) / t.
    return sigma * float(((cells * _log_moments() - log_chance) / _TS).min())


def linear_bound(cells: int, sigma: float, *, log_chance: float) -> float:
    """Returns a bound on a sum of ``cells`` cells' noise, with signs that do not depend on the noise.

    The sum exceeds the bound with a small chance, whose natural logarithm is ``log_chance``.
    """
    return sigma * math.sqrt(2 * cells * -log_chance)


def log_subsets(cells: int, chosen: int) -> float:
    """Returns the logarithm of the number of subsets of ``chosen`` out of ``cells``."""
    return (
        math.lgamma(cells + 1) - math.lgamma(chosen + 1) - math.lgamma(cells - chosen + 1)
        if 0 < chosen < cells
        else 0.0
    )
