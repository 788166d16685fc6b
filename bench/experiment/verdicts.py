"""Verdicts on the agreement of our figures with the paper's, by one rule for all tables.

The rule. The paper prints no deviations; each of its figures is a mean of ten runs. Ours agrees if the two differ by
less than 5 % of the paper's, or by less than its two digits show. If they differ by more, the question is if that
is more than chance: as if the paper's runs scattered as ours do, n runs of ours with deviation s would differ from its
ten by less than t s sqrt(1/n + 1/10) in 95 % of cases, t being Student's for n - 1 degrees of freedom. Below that the
verdict is `within spread`, which is no agreement: nothing can be said. A single run says only on which side it is.
Of a hundred cells that truly agree, up to five are called otherwise by this rule.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, stdev
from typing import Final

NEAR: Final = 0.05
"""Largest difference of two figures that agree, as a share of the paper's."""
ROUNDING: Final = 0.005
PAPERS_RUNS: Final = 10
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for a two-sided 95 %, by degrees of freedom from 1; more are taken as 9."""


class Kind(StrEnum):
    """Kinds of verdicts, in the order of the summary's columns."""

    AGREE = "agree"
    WITHIN = "within spread"
    ONE = "one run"
    BETTER = "better"
    WORSE = "worse"
    SMOOTHED = "cannot be compared: smoothed"
    NARROW = "cannot be compared: narrow kernel"
    NO_TABLE = "cannot be compared: no table"
    MISSING = "not run"


DECIDED = (Kind.BETTER, Kind.WORSE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict; `change` is ours over the paper's figure, less 1; None without a comparison."""

    kind: Kind
    change: float | None = None

    def word(self, lower: str = "better", higher: str = "worse") -> str:
        """Returns the word of a cell; `lower` and `higher` stand for a smaller and a larger figure than the paper's."""
        if self.kind is Kind.ONE:
            return f"{self.kind}, {lower if (self.change or 0) < 0 else higher}"
        return {Kind.BETTER: lower, Kind.WORSE: higher}.get(self.kind, str(self.kind))

    def text(self, lower: str = "better", higher: str = "worse") -> str:
        """Returns the word, and the relative change where ours does not agree."""
        if self.kind is Kind.AGREE or self.change is None:
            return str(self.kind)
        return f"{self.word(lower, higher)}, {_percent(self.change)}"


def _percent(change: float) -> str:
    """Returns a percentage, or a factor where a percentage would be long."""
    if change > 9:
        return f"{change + 1:,.0f} times"
    return f"{change:+.0%}"


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of the paper beside ours. `where` is the paper's table, `column` the way of ours."""

    where: str
    dataset: str
    method: str
    measure: str
    column: str
    verdict: Verdict


def judged(printed: float, values: Sequence[float], *, slack: float | None = None) -> Verdict:
    """Returns the verdict on the mean of `values`, which is better where it is lower; see the module.

    `slack`: largest distance of two figures that agree, in place of 5 % of the paper's.
    """
    if not values:
        return Verdict(Kind.MISSING)
    deviation = stdev(values) if len(values) > 1 else None
    return compared(printed, fmean(values), deviation, len(values), slack=slack)


def compared(
    printed: float, mean: float, deviation: float | None, runs: int, *, slack: float | None = None
) -> Verdict:
    """As `judged`, for a mean with a known deviation between so many runs; None for one run."""
    apart = mean - printed
    change = apart / abs(printed)
    near = NEAR * abs(printed) if slack is None else slack
    if abs(apart) <= max(near, ROUNDING):
        return Verdict(Kind.AGREE, change)
    if deviation is None or runs < 2:
        return Verdict(Kind.ONE, change)
    student = _STUDENT[min(runs - 1, len(_STUDENT)) - 1]
    if abs(apart) <= student * deviation * math.sqrt(1 / runs + 1 / PAPERS_RUNS):
        return Verdict(Kind.WITHIN, change)
    return Verdict(Kind.BETTER if apart < 0 else Kind.WORSE, change)


def counted(printed: float, figure: float, *, slack: float | None = None) -> Verdict:
    """As `judged`, for a figure that does not vary."""
    return compared(printed, figure, 0.0, PAPERS_RUNS, slack=slack)


def smoothed(printed: float, values: Sequence[float], gaps: Sequence[float]) -> Verdict:
    """Returns the verdict on likelihoods that were smoothed where the paper's were not.

    Smoothing lowers a negative log-likelihood, so that one that is worse stays worse. Another verdict stands only where
    the greatest of `gaps`, raw less smoothed in other runs of the method, is nothing beside the paper's figure.
    """
    found = judged(printed, values)
    worse = found.kind is Kind.WORSE or (found.kind is Kind.ONE and (found.change or 0) > 0)
    near = gaps and max(gaps) <= NEAR * abs(printed)
    if worse or near or found.kind is Kind.MISSING:
        return found
    return Verdict(Kind.SMOOTHED)


def tally(cells: Iterable[Compared]) -> Counter[Kind]:
    """Counts the cells by verdict."""
    return Counter(cell.verdict.kind for cell in cells)
