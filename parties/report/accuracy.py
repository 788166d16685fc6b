"""Accuracy of a run's pairs of columns beside what shuffled columns and a trusted party would have; and by epsilon.

All values here are public, as post-processing of released values: the shares of the synthetic table stand for those of
the real one, and ``remaining_error`` gives the error that noise leaves in them, as for `syncret plan` with even counts.

The trusted party holds all rows, knows without asking which pairs are worth measuring, and spends the whole budget on
these: of noise a_i sigma_i in pair i the sum is least where sigma_i^-2 is in proportion to a_i^(2/3). It could run this
run's algorithm, too, so it is never worse than the run. It has no other knowledge; a party that publishes a model of
the rows by better means is not bounded by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.metrics import table_answers
from mechanisms.remaining_error import LARGEST, remaining_errors
from mechanisms.workload import Workload
from parties.report.attacker import attacker_of, budget_of
from parties.report.axes import error_bars
from parties.report.comparison import compare_tables
from parties.report.document import items, number, optional, section, tables
from parties.report.model import Accuracy, PairErrors, ReportFigures
from parties.report.privacy_text import is_private

_ROUND_STEPS = (1.0, 2.0, 5.0)
_REACH = 10.0
"""Factor between the run's epsilon and the largest, and the least and the run's, in a report."""
_SPLITS = 3
"""Number of times that the budget is split anew among the pairs that are worth it."""
_LEAST = 1e-9
_FRACTION_BITS = 20


def report_figures(
    report: Mapping[str, object],
    workload: Workload,
    synthetic: NDArray[np.int32],
    *,
    real: NDArray[np.int32] | None = None,
) -> ReportFigures:
    """Returns the data of all pictures of a report, from its figures and the codes (rows, columns) of its tables."""
    found = compare_tables(workload, synthetic, real)
    claims = {c["column"]: c for c in tables(optional(report, "quality").get("columns"))}
    summaries = {c["column"]: c for c in tables(report.get("columns"))}
    shares = tuple(
        replace(of, errors=error_bars(column, claims[of.column], summaries.get(of.column, {})))
        if of.column in claims
        else of
        for column, of in zip(workload.domain.columns, found.columns, strict=True)
    )
    return replace(found, columns=shares, accuracy=_accuracy(report, workload, synthetic))


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Counts of P measured pairs in the real number of rows, one after the other (cells,), and figures (P,) of each.

    ``noise`` is the deviation in rows, ``independent`` the error of independent columns as a share of the rows.
    """

    counts: NDArray[np.float64]
    sizes: NDArray[np.int64]
    noise: NDArray[np.float64]
    independent: NDArray[np.float64]

    def errors(self, sigma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the shares of the rows (P,) that noise ``sigma`` (P,) leaves in a wrong cell."""
        # In units of the noise, all pairs have a noise of 1.
        scaled = self.counts / np.repeat(sigma, self.sizes)
        bits = max(0, min(_FRACTION_BITS, 30 - math.frexp(max(1.0, float(scaled.max())))[1]))
        most = 2.0 ** (31 - bits)
        cells = np.rint(np.minimum(scaled, most) * (1 << bits)).astype(np.uint32)
        left = remaining_errors(cells, self.sizes.tolist(), 1.0, fraction_bits=bits)
        rows = np.add.reduceat(self.counts, np.cumsum(self.sizes) - self.sizes) / sigma
        return np.minimum(LARGEST, np.array(left, np.float64) / (1 << bits) / rows) / 2

    def trusted(self, rho: float) -> float:
        """Returns the least mean error found for a party that splits ``rho`` among the pairs that are worth it.

        The pairs where most is to be gained are tried alone: the first, the first two, four and so on.
        """
        order = np.argsort(-self.independent, kind="stable")
        best, of = float(self.independent.mean()), 1
        while True:
            kept = np.zeros(len(order), np.bool_)
            kept[order[:of]] = True
            best = min(best, self._split(rho, kept & (self.independent > 0)))
            if of >= len(order):
                return best
            of = min(2 * of, len(order))

    def _split(self, rho: float, kept: NDArray[np.bool_]) -> float:
        """Returns the least mean error of some splits of ``rho`` among the ``kept`` pairs (P,) that it helps."""
        weights, best = kept.astype(np.float64), math.inf
        for _ in range(_SPLITS):
            if not weights.any():
                break
            weights /= weights.sum()
            # Gaussian noise of deviation sigma costs 1 / (2 sigma^2).
            sigma = 1 / np.sqrt(2 * rho * np.maximum(weights, _LEAST))
            errors = self.errors(sigma)
            left = np.where(weights > 0, np.minimum(errors, self.independent), self.independent)
            best = min(best, float(left.mean()))
            helped = (weights > 0) & (errors < self.independent)
            weights = np.where(helped, (errors / sigma) ** (2 / 3), 0.0)
        return best


def _accuracy(
    report: Mapping[str, object], workload: Workload, synthetic: NDArray[np.int32]
) -> Accuracy | None:
    """Returns the errors; None without a guarantee, or without a measured pair that has an estimate."""
    pairs = _pairs(report, workload, synthetic)
    if pairs is None or not is_private(report):
        return None
    found = optional(optional(report, "quality"), "shuffling")
    rho, bound = number(section(report, "privacy")["rho_total"]), attacker_of(report)
    epsilon = bound.epsilon
    if not (rho > 0 and 0 < epsilon < math.inf):
        return None
    independent = float(pairs.independent.mean())
    budget = budget_of(bound, epsilon)
    # What the report says of this run's pairs, and this module's estimate of it, differ by roundings alone.
    said = number(found["expected"])

    def at(other: float) -> PairErrors:
        ratio = 1.0 if other == epsilon else budget_of(bound, other) / budget
        table = said if other == epsilon else float(pairs.errors(pairs.noise * ratio**-0.5).mean())
        return PairErrors(other, table, independent, min(table, pairs.trusted(rho * ratio)))

    every = [at(other) for other in _epsilons(epsilon)]
    # More budget is never worse, since it need not be spent.
    least = np.minimum.accumulate([one.trusted for one in every]).tolist()
    every = [replace(one, trusted=trusted) for one, trusted in zip(every, least, strict=True)]
    return Accuracy(next(one for one in every if one.epsilon == epsilon), tuple(every))


def _pairs(
    report: Mapping[str, object], workload: Workload, synthetic: NDArray[np.int32]
) -> _Pairs | None:
    quality = optional(report, "quality")
    noise = {_names(m): m["noise"] for m in tables(quality.get("marginals"))}
    numbers = {clique: i for i, clique in enumerate(workload.candidates)}
    each = tables(optional(quality, "shuffling").get("each"))
    known = [(_names(pair), pair) for pair in each]
    known = [(names, pair) for names, pair in known if names in numbers and noise.get(names)]
    if not known:
        return None
    answers = table_answers(workload, synthetic)
    parts = [answers[workload.slice(numbers[names])] for names, _ in known]
    rows = _rows(report) or len(synthetic)
    return _Pairs(
        np.concatenate(parts) * (rows / len(synthetic)),
        np.array([part.size for part in parts], np.int64),
        np.array([number(noise[names]) for names, _ in known]),
        np.array([number(pair["independent"]) for _, pair in known]),
    )


def _names(item: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(map(str, items(item["columns"])))


def _rows(report: Mapping[str, object]) -> float:
    """Returns the estimated number of real rows, 0 if the report has none."""
    chosen = tables(report.get("selected"))
    return max((number(item["rows_estimated"]) for item in chosen[-1:]), default=0.0)


def _epsilons(epsilon: float) -> list[float]:
    """Returns the run's epsilon, and the round ones around it."""
    low, high = epsilon / _REACH, epsilon * _REACH
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = [float(f"{m * 10.0**k:.6g}") for k in range(first, last + 1) for m in _ROUND_STEPS]
    return sorted({epsilon, *(e for e in steps if low * (1 - 1e-9) <= e <= high * (1 + 1e-9))})
