"""Likely errors: values above nine of ten marginals' errors in a run, calibrated on public tables.

All values here are public, as post-processing of released values.

A bound of `intervals` holds for every table and for all marginals at once, and is far above most errors. Here an
estimate is multiplied by a constant. The estimate for a measured marginal combines the error that noise leaves with the
known error of drawing rows. The estimate for any other marginal is the geometric mean of two errors: the error at which
the last choice would have taken it, mostly too large, and the error that measuring it would have left, mostly too
small; to both the error that a choice cannot resolve is added. This holds for runs that end when the model has settled;
after a fixed number of rounds the former error alone is used.

The constant is the smallest, in steps of a tenth, with which at least ``SHARE`` of the marginals of each of ``TABLES``
public tables are below. README.md, Likely errors, has the calibration and its results on other tables.

Limits: measured, not proven. The tenth of the marginals beyond has no limit here; ``Interval.high`` bounds it. A table
unlike all of those may have fewer marginals below.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Clique
from mechanisms.expected_errors import Expected
from mechanisms.intervals import LARGEST, Choice, Interval
from mechanisms.model import Model
from mechanisms.remaining_error import remaining_error
from mechanisms.scores import FRACTION_BITS, SCORE_BITS
from mechanisms.workload import Workload

SHARE = 0.9
"""Share of a run's marginals that are expected to have no larger error."""
TABLES = 5
"""Number of public tables used for the factors."""

FACTOR = 1.1
"""Factor of an estimate that covers nine of ten errors."""
SPREAD = NormalDist().inv_cdf(SHARE) * math.sqrt(math.pi / 2 - 1)
"""The same for one cell that nothing but its own noise decides, less one, where noise is small beside the count.

``SHARE``'s normal quantile, times the deviation of |Z| over its mean; with n cells it is divided by sqrt(n).
"""


def likely_errors(
    workload: Workload,
    synthetic: NDArray[np.float64],
    intervals: Sequence[Interval],
    expected: Sequence[Expected],
    *,
    model: Model,
    rows: float,
    choice: Choice | None = None,
    settled: bool = False,
    alone: bool = False,
    taken_over: Collection[Clique] = (),
) -> tuple[float, ...]:
    """Returns one likely error for each candidate, between the ends of its interval.

    ``synthetic`` (workload.cells,) has the counts of the table, which was drawn from ``model``. ``rows`` is the number
    of real rows. ``settled`` is true for a run that continues until its model is as near as measuring would be.
    ``alone`` is true for a run that may measure single columns alone. ``taken_over`` are pairs
    that a refresh has from its earlier model alone.
    ``intervals`` and ``expected`` are those of ``marginal_intervals`` and ``expected_errors`` for the same run. Without
    an expected error the result is the upper end. Raises ``ValueError`` without rows.
    """
    total = float(synthetic[workload.slice(0)].sum())
    if not (total > 0 and rows > 0):
        raise ValueError("tables without rows have no marginals")
    parts = parts_of(workload.domain.names, model.cliques)
    believed = {frozenset(pair) for pair in taken_over}
    known = [i for i, error in enumerate(expected) if error.error < LARGEST]
    answers = _answers(workload, model, known)
    apart = {} if choice is None else _indistinct(choice, rows)
    alone = alone and all(len(clique) == 1 for clique in model.cliques)
    found = [interval.high for interval in intervals]
    for i in known:
        clique, interval, error = workload.candidates[i], intervals[i], expected[i]
        drawn = float(np.abs(answers[i] - synthetic[workload.slice(i)] / total).sum())
        if not error.at_most:
            # FACTOR sqrt(E^2 + drawing^2). A pair's measurement shows something of its columns, too: without pairs
            # the error varies more than FACTOR allows for.
            factor = max(FACTOR, 1 + SPREAD / math.sqrt(answers[i].size)) if alone else FACTOR
            likely = factor * math.hypot(error.error, drawn)
        elif (
            settled
            and choice is not None
            and len({parts[name] for name in clique}) == 1
            and not any(pair <= {*clique} for pair in believed)
        ):
            left = remaining_error(answers[i] * rows, choice.released.deviation)
            left = math.hypot(left, drawn, apart.get(i, 0.0))
            # FACTOR sqrt((E + apart) sqrt(left^2 + drawing^2 + apart^2)), the geometric mean.
            likely = FACTOR * math.sqrt((error.error + apart.get(i, 0.0)) * left)
        else:
            # Of parts that the model holds independent no joint marginal was measured, a run that ended early leaves
            # more than noise would, and an earlier model says nothing of this table.
            likely = error.error + apart.get(i, 0.0)
        found[i] = min(max(likely, interval.low), interval.high)
    return tuple(found)


def parts_of(columns: Clique, cliques: Sequence[Clique]) -> dict[str, str]:
    """Returns for each column the name of its part of a model with ``cliques``: two parts are independent."""
    parts = {name: name for name in columns}
    for clique in cliques:
        joined = {parts[name] for name in clique}
        first = parts[clique[0]]
        parts = {name: first if part in joined else part for name, part in parts.items()}
    return parts


def _indistinct(choice: Choice, rows: float) -> dict[int, float]:
    """Returns for each candidate of the choice the error worth one nat of its score: smaller differences are chance."""
    spec = choice.spec
    return {
        i: 2.0 ** (SCORE_BITS - FRACTION_BITS) / gain / rows
        for i, gain in zip(spec.candidates, spec.gains, strict=True)
        if gain > 0
    }


def _answers(
    workload: Workload, model: Model, candidates: Sequence[int]
) -> dict[int, NDArray[np.float64]]:
    """Returns the model's probabilities (n_q,) of some candidates."""
    units = model.answers_q32([workload.candidates[i] for i in candidates])
    found, start = {}, 0
    for i in candidates:
        size = workload.offsets[i + 1] - workload.offsets[i]
        found[i] = units[start : start + size] / 2.0**32
        start += size
    return found
