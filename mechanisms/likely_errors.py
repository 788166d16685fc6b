"""An error that nine of ten marginals of a run stay below, calibrated on public tables; bounds are in `intervals`.

Provides ``likely_errors``, ``SHARE``, ``TABLES`` and ``parts_of`` a model. Public: everything; it is post-processing of
released values.

A bound of `intervals` holds for every table and for all marginals at once, and is far above most errors. Here an
estimate is multiplied by a constant. Of a measured marginal it is what noise leaves and what drawing rows adds, which
is known; of another one the geometric mean of two: the error at which the last choice would have taken it, mostly too
much, and the error that measuring it would have left, mostly too little; to both is added what a choice cannot tell
apart. This goes for runs that end when the model has settled; after a fixed number of rounds the former alone is taken.
The constant is the smallest, in steps of a tenth, with which at least ``SHARE`` of the marginals of each of ``TABLES``
public tables are below. README.md, Likely errors, has how it was found, and what it gave on other tables.

Limits: measured, not proven. It is a share of a run's marginals, and says nothing of the tenth that is beyond, which
``Interval.high`` bounds. A table unlike all of those may have fewer below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
"""Of a run's marginals, so many are expected to be no farther off."""
TABLES = 5
"""Public tables that the factors come from."""

FACTOR = 1.1
"""Of an estimate: by so much more are nine of ten errors covered."""


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
) -> tuple[float, ...]:
    """One for each candidate, between the ends of its interval.

    ``synthetic`` (workload.cells,): the counts of the table, which was drawn from ``model``. ``rows``: how many real
    ones there are. ``settled``: the run was to go on until its model is as near as measuring would be. ``intervals``
    and ``expected`` are what ``marginal_intervals`` and ``expected_errors`` made of the same. Where nothing is
    expected, it is the upper end. Raises ``ValueError`` without rows.
    """
    total = float(synthetic[workload.slice(0)].sum())
    if not (total > 0 and rows > 0):
        raise ValueError("tables without rows have no marginals")
    parts = parts_of(workload.domain.names, model.cliques)
    known = [i for i, error in enumerate(expected) if error.error < LARGEST]
    answers = _answers(workload, model, known)
    apart = {} if choice is None else _indistinct(choice, rows)
    found = [interval.high for interval in intervals]
    for i in known:
        clique, interval, error = workload.candidates[i], intervals[i], expected[i]
        drawn = float(np.abs(answers[i] - synthetic[workload.slice(i)] / total).sum())
        if not error.at_most:
            likely = FACTOR * math.hypot(error.error, drawn)
        elif settled and choice is not None and len({parts[name] for name in clique}) == 1:
            left = remaining_error(answers[i] * rows, choice.released.deviation)
            left = math.hypot(left, drawn, apart.get(i, 0.0))
            likely = FACTOR * math.sqrt((error.error + apart.get(i, 0.0)) * left)
        else:
            # Of what is independent in the model, nothing that joins it was looked at; and a run that has ended early
            # leaves more than noise would.
            likely = error.error + apart.get(i, 0.0)
        found[i] = min(max(likely, interval.low), interval.high)
    return tuple(found)


def parts_of(columns: Clique, cliques: Sequence[Clique]) -> dict[str, str]:
    """By column a name for its part of a model with ``cliques``: columns of two parts are independent."""
    parts = {name: name for name in columns}
    for clique in cliques:
        joined = {parts[name] for name in clique}
        first = parts[clique[0]]
        parts = {name: first if part in joined else part for name, part in parts.items()}
    return parts


def _indistinct(choice: Choice, rows: float) -> dict[int, float]:
    """By candidate of the choice the error that makes its score larger by one nat: less is chance."""
    spec = choice.spec
    return {
        i: 2.0 ** (SCORE_BITS - FRACTION_BITS) / gain / rows
        for i, gain in zip(spec.candidates, spec.gains, strict=True)
        if gain > 0
    }


def _answers(
    workload: Workload, model: Model, candidates: Sequence[int]
) -> dict[int, NDArray[np.float64]]:
    """The model's probabilities (n_q,) of some candidates."""
    units = model.answers_q32([workload.candidates[i] for i in candidates])
    found, start = {}, 0
    for i in candidates:
        size = workload.offsets[i + 1] - workload.offsets[i]
        found[i] = units[start : start + size] / 2.0**32
        start += size
    return found
