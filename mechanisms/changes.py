"""Comparison of a run's measured marginals with the answers of an earlier model: which of them have changed.

``changes`` says of each measured marginal how far it is from the earlier model, and if noise explains that. It is all
that a run knows of its distance from the earlier model: of what was not measured, that model says how things were.

All values here are public, as post-processing of released values. Noise is taken as normal. Against counts that are in
proportion to the earlier shares, the squares of the differences, in deviations of the noise, sum to a chi-square
variable of one degree less than there are cells, once the number of rows is fitted. ``CONFIDENCE`` is for all marginals
of a run together.

A marginal that differs need not have changed: the earlier model may have been wrong of its own table.

Source of the tail bound: Laurent, Massart, "Adaptive estimation of a quadratic functional", Annals of Statistics 28
(2000), Lemma 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mechanisms.domain import Clique
from mechanisms.intervals import CONFIDENCE, Released
from mechanisms.model import Model
from mechanisms.workload import Workload


@dataclass(frozen=True, slots=True)
class Change:
    """A measured marginal of the columns ``clique`` beside the earlier model's answer, as shares of the rows.

    ``apart`` is their distance, ``noise`` what noise alone is expected to make of it; ``changed``: noise does not
    explain it.
    """

    clique: Clique
    apart: float
    noise: float
    changed: bool


def changes(workload: Workload, earlier: Model, released: Sequence[Released]) -> tuple[Change, ...]:
    """Returns a ``Change`` for each measured candidate, by its least noisy measurement, in their order."""
    best: dict[int, Released] = {}
    for one in released:
        if one.candidate not in best or one.deviation < best[one.candidate].deviation:
            best[one.candidate] = one
    numbers = sorted(best)
    answers = earlier.answers([workload.candidates[i] for i in numbers])
    return tuple(
        _change(workload.candidates[i], best[i], answer.reshape(-1), share=1 / len(numbers))
        for i, answer in zip(numbers, answers, strict=True)
    )


def _change(
    clique: Clique,
    measured: Released,
    answer: np.ndarray[tuple[int], np.dtype[np.float64]],
    *,
    share: float,
) -> Change:
    """Returns the comparison of one measurement; ``share`` is its part of the chance of an error."""
    noisy, sigma = measured.noisy, measured.deviation
    off = noisy - answer * float(noisy @ answer / (answer @ answer))
    free, log = max(0, noisy.size - 1), math.log(1 / ((1 - CONFIDENCE) * share))
    limit = free + 2 * math.sqrt(free * log) + 2 * log
    rows = max(1.0, float(noisy.sum()))
    return Change(
        clique,
        min(1.0, float(np.abs(noisy / rows - answer).sum()) / 2),
        min(1.0, sigma * math.sqrt(2 / math.pi) * noisy.size / rows / 2),
        float(off @ off) / sigma**2 > limit,
    )
