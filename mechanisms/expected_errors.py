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
from mechanisms.remaining_error import remaining_error
from mechanisms.scores import FRACTION_BITS
from mechanisms.workload import Workload


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
            found[i] = Expected(remaining_error(counts, interval.deviation), False)
    # What contains a marginal is at least as far away.
    numbers = {q: i for i, q in enumerate(workload.candidates)}
    for q in reversed(workload.candidates):
        error = found[numbers[q]].error
        for names in itertools.combinations(q, len(q) - 1):
            if names and found[numbers[names]].at_most and error < found[numbers[names]].error:
                found[numbers[names]] = Expected(error, True)
    return tuple(found)


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
