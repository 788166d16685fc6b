"""Lines of runs over an axis: axes of a picture, a table of figures, and the values at a point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.experiment.markdown import markdown_table, spread
from bench.experiment.means import values_of
from bench.papers.utility.store import Entry

LABELS = {"workload_error": "workload error", "nll": "NLL", "auc": "AUC"}

Line = tuple[str, list[tuple[float, list[Entry]]]]


@dataclass(frozen=True, slots=True)
class Plot:
    """One pair of axes: ``lines`` of ``measure`` over the values of ``label``, on the table ``title``.

    ``levels``: values of a line without the axis (an annealed T), drawn across.
    """

    title: str
    label: str
    lines: list[Line]
    measure: str = "workload_error"
    log: bool = True
    levels: Mapping[str, list[Entry]] = field(default_factory=dict)

    @property
    def varies(self) -> bool:
        """True if there is more than one value to draw."""
        return len(self.values) > 1

    @property
    def values(self) -> list[float]:
        """All values of the axis."""
        return sorted({value for _, points in self.lines for value, _ in points})

    def at(self, line: str, value: float) -> list[float]:
        """Returns the runs' results of a line at a value; empty if it was not run."""
        runs = next((points for name, points in self.lines if name == line), [])
        return values_of(next((entries for x, entries in runs if x == value), []), self.measure)

    def mean(self, line: str, value: float) -> float:
        """Returns the mean of a line at a value at which it was run."""
        return fmean(self.at(line, value))

    def level(self, line: str) -> list[float]:
        """Returns the results of a line's runs without the axis."""
        return values_of(self.levels.get(line, []), self.measure)

    def shared(self, *names: str) -> list[float]:
        """Returns the values that all these lines were run at."""
        return [value for value in self.values if all(self.at(name, value) for name in names)]


# Drawing.


def figure_of(plots: Sequence[Plot], colours: Mapping[str, str]) -> Figure:
    """Draws all plots beside one another, four in a row."""
    columns = min(4, len(plots))
    rows = -(-len(plots) // columns)
    figure = Figure(figsize=(3.4 * columns + 0.6, 3.3 * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, plot in zip(places, plots, strict=False):
        _draw(axes, plot, colours)
    for axes in places[len(plots) :]:
        axes.set_axis_off()
    named = {
        name: handle
        for axes in places
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    # Below all axes, so that the legend covers no line.
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=3, fontsize=7
    )
    return figure


def _draw(axes: Axes, plot: Plot, colours: Mapping[str, str]) -> None:
    for name, points in plot.lines:
        drawn = [(x, values) for x, runs in points if (values := values_of(runs, plot.measure))]
        x, y = [x for x, _ in drawn], [fmean(values) for _, values in drawn]
        around = [stdev(values) if len(values) > 1 else 0.0 for _, values in drawn]
        style = {"marker": "o", "markersize": 3, "capsize": 2, "color": colours[name]}
        axes.errorbar(x, y, yerr=around, label=name, **style)  # type: ignore[arg-type]
    for name, entries in plot.levels.items():
        if values := values_of(entries, plot.measure):
            axes.axhline(fmean(values), color=colours[name], linestyle="--", linewidth=0.8)
    if plot.log:
        axes.set_xscale("log")
        ticks = plot.values
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
        axes.minorticks_off()
    axes.set_title(plot.title, fontsize=9)
    axes.set_xlabel(plot.label)
    axes.set_ylabel(LABELS[plot.measure])
    axes.grid(alpha=0.3)


def listed_plot(plot: Plot) -> str:
    """Returns the numbers behind a plot as a table, with the least and the largest number of runs."""
    digits = 2 if plot.measure == "nll" else 3
    rows = []
    for name, points in plot.lines:
        cells = [spread(found, digits) if (found := plot.at(name, v)) else "" for v in plot.values]
        if plot.levels:
            cells.append(spread(found, digits) if (found := plot.level(name)) else "")
        runs = [len(entries) for _, entries in points]
        count = f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
        rows.append((name, *cells, count))
    head = f"{plot.title}: {LABELS[plot.measure]} at {plot.label}"
    heads = [head, *(f"{value:g}" for value in plot.values), *(["annealed"] if plot.levels else [])]
    return markdown_table(" | ".join([*heads, "runs"]), rows)
