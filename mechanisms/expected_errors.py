"""Expected errors of a synthetic table's marginals: estimates, beside the bounds of `intervals`.

All values here are public, as post-processing of released values.

The error of a measured marginal is taken to be that of its noisy counts, projected to non-negative counts with the
right sum, if the real marginal were the synthetic one. A marginal that was not measured has no estimate; the error at
which the last choice would have selected it, without a margin for chance, is reported as the most that is likely.
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
    """Expected L1 ``error`` of a normalised marginal.

    With ``at_most`` it is the largest likely error instead of an estimate.
    """

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
    """Returns one ``Expected`` for each candidate.

    ``synthetic`` (workload.cells,) has the table's counts; ``rows`` is the number of real rows. Raises ``ValueError``
    without rows.
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
    # A marginal that contains another one is at least as far from the data.
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
    """Returns for each candidate of the choice the error at which its score would equal that of the chosen one."""
    spec, one = choice.spec, choice.released
    parts = np.split(spec.answers / 2**FRACTION_BITS, np.cumsum(spec.sizes)[:-1])
    # L1 distance between the measurement and the model at the chosen candidate, in units of 2^-FRACTION_BITS rows.
    off = float(np.abs(one.noisy - parts[choice.position]).sum()) * 2**FRACTION_BITS
    best = spec.gains[choice.position] * off - spec.offsets[choice.position]
    errors = []
    for i, answers, gain, offset in zip(
        spec.candidates, parts, spec.gains, spec.offsets, strict=True
    ):
        # ||s - M / n||_1, then ||M - real||_1 / n solved from gain * error - offset = best.
        moved = float(np.abs(shares[workload.slice(i)] - answers / rows).sum())
        at_most = max(0.0, best + offset) / gain / 2**FRACTION_BITS if gain else math.inf
        errors.append(moved + at_most / rows)
    return errors
