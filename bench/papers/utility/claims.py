"""Statements of the FLAIM paper's figures, checked against our runs.

Functions like `worst`, `below`, `near`, `rises` make the check of a claim. A claim is counted over cases: a table and a
value of the axis, or a table and a method. Means are compared, over the runs that the table under the picture counts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from bench.experiment.markdown import listed
from bench.papers.utility.plots import Plot

ALIKE = 0.1
"""Largest relative difference of two errors that count as alike."""


class Finding(NamedTuple):
    """Number of cases in which a claim holds, number of cases, and the figures."""

    holds: int
    of: int
    shown: str

    @property
    def verdict(self) -> str:
        """The finding in words."""
        if not self.of:
            return "not run"
        if self.holds == self.of:
            return "agrees"
        return "does not agree" if not self.holds else f"agrees at {self.holds} of {self.of}"


Look = Callable[[Sequence[Plot]], Finding]


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the paper's figure, the check of it in ours, and a reason why it may be otherwise here."""

    says: str
    look: Look
    why: str = ""


def _gathered(plots: Sequence[Plot], one: Callable[[Plot], Finding]) -> Finding:
    """Adds up the findings over all plots with cases."""
    found = [(plot, finding) for plot in plots if (finding := one(plot)).of]
    shown = "; ".join(f"{plot.title}: {finding.shown}" for plot, finding in found)
    return Finding(
        sum(f.holds for _, f in found), sum(f.of for _, f in found), shown or "nothing was run"
    )


def on(label: str, look: Look) -> Look:
    """Restricts a look to the axes with this label."""
    return lambda plots: look([plot for plot in plots if plot.label == label])


def of_tables(names: Sequence[str], look: Look) -> Look:
    """Restricts a look to these tables."""
    return lambda plots: look([plot for plot in plots if plot.title in names])


def together(*looks: Look) -> Look:
    """Combines several looks."""

    def look(plots: Sequence[Plot]) -> Finding:
        found = [one for each in looks if (one := each(plots)).of]
        shown = "; ".join(one.shown for one in found)
        return Finding(sum(one.holds for one in found), sum(one.of for one in found), shown)

    return look


def measured(measure: str, look: Look) -> Look:
    """Restricts a look to the plots of a measure."""
    return lambda plots: look([plot for plot in plots if plot.measure == measure])


def worst(name: str) -> Look:
    """Checks that a line is the highest of all at every value."""

    def one(plot: Plot) -> Finding:
        holds, values = 0, plot.shared(name)
        for value in values:
            others = [plot.at(other, value) for other, _ in plot.lines if other != name]
            holds += all(fmean(runs) < plot.mean(name, value) for runs in others if runs)
        return Finding(holds, len(values), f"{name} the worst at {holds} of {len(values)} values")

    return lambda plots: _gathered(plots, one)


def below(left: str, right: str, *, least: float = -math.inf) -> Look:
    """Checks that a line is below another at every value from ``least`` on."""

    def one(plot: Plot) -> Finding:
        values = [value for value in plot.shared(left, right) if value >= least]
        found = [v for v in values if plot.mean(left, v) < plot.mean(right, v)]
        where = (
            "nowhere" if not found else "everywhere" if found == values else f"at {_list(found)}"
        )
        return Finding(len(found), len(values), f"{left} below {right} {where}")

    return lambda plots: _gathered(plots, one)


def not_below(left: str, right: str) -> Look:
    """Checks that a line is nowhere below another by more than ``ALIKE``."""

    def one(plot: Plot) -> Finding:
        values = plot.shared(left, right)
        lower = [v for v in values if plot.mean(left, v) < (1 - ALIKE) * plot.mean(right, v)]
        where = f"at {_list(lower)}" if lower else "nowhere"
        shown = f"{left} below {right} by more than a tenth {where}"
        return Finding(len(values) - len(lower), len(values), shown)

    return lambda plots: _gathered(plots, one)


def lowest(name: str, others: Sequence[str]) -> Look:
    """Checks that a line is the lowest of some at every value, or within ``ALIKE`` of it."""

    def one(plot: Plot) -> Finding:
        values = plot.shared(name)
        found = []
        for value in values:
            rest = [fmean(runs) for other in others if (runs := plot.at(other, value))]
            if rest and plot.mean(name, value) <= (1 + ALIKE) * min(rest):
                found.append(value)
        where = "everywhere" if found == values else f"at {_list(found)}" if found else "nowhere"
        return Finding(
            len(found), len(values), f"{name} the lowest, or within a tenth of it, {where}"
        )

    return lambda plots: _gathered(plots, one)


def near(left: str, right: str, *, within: float, least: float = -math.inf) -> Look:
    """Checks that a line is at most ``within`` above another at every value from ``least`` on."""

    def one(plot: Plot) -> Finding:
        values = [value for value in plot.shared(left, right) if value >= least]
        ratios = {v: plot.mean(left, v) / plot.mean(right, v) for v in values}
        holds = sum(ratio <= 1 + within for ratio in ratios.values())
        shown = ", ".join(f"{ratio:.2f} at {value:g}" for value, ratio in ratios.items())
        return Finding(holds, len(values), f"{left} over {right} {shown}")

    return lambda plots: _gathered(plots, one)


def falls(names: Sequence[str]) -> Look:
    """Checks that lines end below their beginning."""

    def one(plot: Plot) -> Finding:
        ends = {n: (v[0], v[-1]) for n in names if len(v := plot.shared(n)) > 1}
        holds = sum(plot.mean(n, last) < plot.mean(n, first) for n, (first, last) in ends.items())
        shown = (
            f"{n} {plot.mean(n, a):.3f} at {a:g}, {plot.mean(n, b):.3f} at {b:g}"
            for n, (a, b) in ends.items()
        )
        return Finding(holds, len(ends), ", ".join(shown))

    return lambda plots: _gathered(plots, one)


def _long_lines(
    plot: Plot, names: Sequence[str], since: float, least: float
) -> Iterator[tuple[str, float]]:
    """Yields the lines that have ``since`` and end at ``least`` or more, with the value at their end."""
    for name in names:
        values = plot.shared(name)
        if since in values and values[-1] >= least:
            yield name, values[-1]


def rises(names: Sequence[str], *, since: float, least: float) -> Look:
    """Checks that lines end, at ``least`` or more, above ``since`` by more than twice the standard error.

    The comparison is not with their least value, which of many is low by chance.
    """

    def one(plot: Plot) -> Finding:
        holds, said = 0, []
        for name, last in _long_lines(plot, names, since, least):
            rise = plot.mean(name, last) - plot.mean(name, since)
            chance = _chance(plot.at(name, last), plot.at(name, since))
            holds += chance is not None and rise > 2 * chance > 0
            sure = "a single run" if chance is None else f"standard error {chance:.3f}"
            said.append(f"{name} {rise:+.3f} from {since:g} to {last:g} ({sure})")
        return Finding(holds, len(said), ", ".join(said))

    return lambda plots: _gathered(plots, one)


def varies(names: Sequence[str], *, since: float, least: float) -> Look:
    """Checks that at the last value, ``least`` or more, runs of a line deviate more than at ``since``."""

    def one(plot: Plot) -> Finding:
        holds, said = 0, []
        for name, last in _long_lines(plot, names, since, least):
            before, after = plot.at(name, since), plot.at(name, last)
            if min(len(before), len(after)) > 1:
                holds += stdev(after) > stdev(before)
                said.append(
                    f"{name} ± {stdev(before):.3f} at {since:g}, {stdev(after):.3f} at {last:g}"
                )
        return Finding(holds, len(said), ", ".join(said))

    return lambda plots: _gathered(plots, one)


def _chance(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Returns the standard error of a difference of means; None if one is of a single run."""
    if min(len(left), len(right)) < 2:
        return None
    return math.sqrt(sum(stdev(runs) ** 2 / len(runs) for runs in (left, right)))


def good_between(names: Sequence[str], low: float, high: float) -> Look:
    """Checks that at every value between ``low`` and ``high``, lines are at most a quarter above their least."""

    def one(plot: Plot) -> Finding:
        holds = of = 0
        said = []
        for name in names:
            values = plot.shared(name)
            inner = [v for v in values if low <= v <= high]
            if not inner or len(values) < 3:
                continue
            least = min(plot.mean(name, v) for v in values)
            worst_of = max(plot.mean(name, v) for v in inner) / least
            of += 1
            holds += worst_of <= 1.25
            said.append(f"{name} up to {worst_of:.2f} times its least")
        return Finding(holds, of, ", ".join(said))

    return lambda plots: _gathered(plots, one)


def flattens(name: str, *, least: float) -> Look:
    """Checks that from ``least`` on a line moves by less than ``ALIKE``."""

    def one(plot: Plot) -> Finding:
        values = [value for value in plot.shared(name) if value >= least]
        if len(values) < 2:
            return Finding(0, 0, "")
        first, last = plot.mean(name, values[0]), plot.mean(name, values[-1])
        shown = f"{name} {first:.3f} at {values[0]:g}, {last:.3f} at {values[-1]:g}"
        return Finding(int(abs(last - first) < ALIKE * first), 1, shown)

    return lambda plots: _gathered(plots, one)


def struggles(names: Sequence[str], *, under: float) -> Look:
    """Checks that lines are higher below a value, on the mean, than from it on."""

    def one(plot: Plot) -> Finding:
        holds, said = 0, []
        for name in names:
            few = [plot.mean(name, v) for v in plot.shared(name) if v < under]
            more = [plot.mean(name, v) for v in plot.shared(name) if v >= under]
            if few and more:
                holds += fmean(few) > fmean(more)
                said.append(
                    f"{name} {fmean(few):.3f} below {under:g}, {fmean(more):.3f} from it on"
                )
        return Finding(holds, len(said), ", ".join(said))

    return lambda plots: _gathered(plots, one)


def alike(left: str, right: str, *, most: float) -> Look:
    """Checks that up to a value two lines are within ``ALIKE`` of one another."""

    def one(plot: Plot) -> Finding:
        values = [value for value in plot.shared(left, right) if value <= most]
        ratios = {v: plot.mean(left, v) / plot.mean(right, v) for v in values}
        holds = sum(abs(ratio - 1) < ALIKE for ratio in ratios.values())
        shown = ", ".join(f"{ratio:.2f} at {value:g}" for value, ratio in ratios.items())
        return Finding(holds, len(values), f"{left} over {right} {shown}")

    return lambda plots: _gathered(plots, one)


def poor_annealed(names: Sequence[str], *, within: float) -> Look:
    """Checks that with annealing, lines are more than ``within`` above their least value with a fixed T."""

    def one(plot: Plot) -> Finding:
        holds, said = 0, []
        for name in names:
            values, level = plot.shared(name), plot.level(name)
            if values and level:
                ratio = fmean(level) / min(plot.mean(name, v) for v in values)
                holds += ratio > 1 + within
                said.append(f"{name} {ratio:.2f} times its least with a fixed T")
        return Finding(holds, len(said), ", ".join(said))

    return lambda plots: _gathered(plots, one)


def good_annealed(name: str, *, within: float) -> Look:
    """Checks that with annealing, a line is at most ``within`` above its least value with a fixed T."""

    def look(plots: Sequence[Plot]) -> Finding:
        poor = poor_annealed([name], within=within)(plots)
        return Finding(poor.of - poor.holds, poor.of, poor.shown)

    return look


def _list(values: Sequence[float]) -> str:
    return listed([f"{value:g}" for value in values])
