"""The error that a synthetic table's marginals are expected to have: estimates, beside the bounds of `intervals`.

Provides ``Expected`` and ``expected_errors``. Public: everything; it is post-processing of released values.

A measured marginal's error is taken for that of its noisy counts, brought back to counts that are not negative and have
the right sum, if the real marginal were the synthetic one. What was not measured has no estimate; what the last choice
makes of it, without room for bad luck, is said to be the most that it is likely to be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.intervals import LARGEST, Choice, Interval
from mechanisms.scores import FRACTION_BITS
from mechanisms.workload import Workload

_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Expected:
    """A marginal's ``error``, L1 of normalised marginals; with ``at_most`` no estimate but the most that is likely."""

    error: float
    at_most: bool


def expected_errors(
    workload: Workload,
    synthetic: NDArray[np.float64],
    intervals: Sequence[Interval],
    *,
    rows: float,
    choice: Choice | None = None,
) -> tuple[Expected, ...]:
    """One for each candidate. ``synthetic`` (workload.cells,): the table's counts; ``rows``: how many real ones.

    Raises ``ValueError`` without rows.
    """
    total = float(synthetic[workload.slice(0)].sum())
    if not (total > 0 and rows > 0):
        raise ValueError("tables without rows have no marginals")
    found = [Expected(LARGEST, True)] * len(workload.candidates)
    if choice is not None:
        for i, error in zip(
            choice.spec.candidates,
            _unchosen(workload, synthetic / total, choice, rows),
            strict=True,
        ):
            found[i] = Expected(min(error, LARGEST), True)
    for i, interval in enumerate(intervals):
        if interval.deviation is not None:
            counts = synthetic[workload.slice(i)] * (rows / total)
            found[i] = Expected(noise_error(counts, interval.deviation), False)
    # What contains a marginal is at least as far away.
    numbers = {q: i for i, q in enumerate(workload.candidates)}
    for q in reversed(workload.candidates):
        error = found[numbers[q]].error
        for names in itertools.combinations(q, len(q) - 1):
            if names and found[numbers[names]].at_most and error < found[numbers[names]].error:
                found[numbers[names]] = Expected(error, True)
    return tuple(found)


def noise_error(counts: NDArray[np.float64], deviation: float) -> float:
    """What is left, normalised, of Gaussian noise on ``counts`` (n,) after projecting on what counts can be.

    The projection on non-negative counts with the same sum lowers all by one t and cuts at 0; t is the one for which
    the sum is right on average. Each count's expected error is then known in closed form. Raises ``ValueError``
    without rows.
    """
    values, times = np.unique(counts, return_counts=True)
    total = float(values @ times)
    if not total > 0:
        raise ValueError("a marginal without rows has no error")
    units = values / deviation
    low, high = 0.0, float(units.max()) + 10.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        too_much = float(_mean_above(units - middle) @ times) > total / deviation
        low, high = (middle, high) if too_much else (low, middle)
    t = np.array([low])
    # E |max(X, 0) - p| for X = p - t + noise: above p, and below it but for what is cut.
    error = _mean_above(-t) + _mean_above(t) - _mean_above(t - units)
    return min(LARGEST, float(error @ times) * deviation / total)


def _mean_above(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """E max(x + Z, 0) for a standard normal Z."""
    # An approximation within 2e-7 of erfc (Abramowitz and Stegun, 7.1.26) does for an estimate.
    z = np.abs(x) / math.sqrt(2)
    k = 1 / (1 + 0.3275911 * z)
    series = (
        ((1.061405429 * k - 1.453152027) * k + 1.421413741) * k - 0.284496736
    ) * k + 0.254829592
    tail = series * k * np.exp(-z * z) / 2
    below = np.where(x < 0, tail, 1 - tail)
    return np.asarray(x * below + np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def _unchosen(
    workload: Workload, shares: NDArray[np.float64], choice: Choice, rows: float
) -> list[float]:
    """For each candidate of the choice: the error at which its score would have been that of the chosen one."""
    spec, one = choice.spec, choice.released
    parts = np.split(spec.answers / 2**FRACTION_BITS, np.cumsum(spec.sizes)[:-1])
    off = float(np.abs(one.noisy - parts[choice.position]).sum()) * 2**FRACTION_BITS
    best = spec.gains[choice.position] * off - spec.offsets[choice.position]
    errors = []
    for i, answers, gain, offset in zip(
        spec.candidates, parts, spec.gains, spec.offsets, strict=True
    ):
        moved = float(np.abs(shares[workload.slice(i)] - answers / rows).sum())
        at_most = max(0.0, best + offset) / gain / 2**FRACTION_BITS if gain else math.inf
        errors.append(moved + at_most / rows)
    return errors
