"""The FLAIM paper's figures from the runs of a store: a picture each, what the paper's says, and what ours shows.

Provides `PICTURES` (names, in the paper's order) and `picture`. Public: everything. The paper prints no values for its
figures, so that its part is a sentence; ours is counted from the runs. What the store does not have is said to be
missing. Figures 4 and 5, which show tables and no runs, are `bench.utility.portraits`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.datasets import SYNTHFS
from bench.markdown import listed, markdown_table, spread
from bench.splits import NATURAL
from bench.utility import grid
from bench.utility.settings import Settings
from bench.utility.store import Entry, Store

COLOURS = {
    "aim": "#555555",
    "distaim": "#1b6ca8",
    "naive": "#c8553d",
    "oracle": "#e0a030",
    "private": "#3a7d44",
}
_PARTS = dict(
    zip(grid.ABLATIONS, ("#c8553d", "#e0a030", "#8e6c8a", "#1b6ca8", "#3a7d44"), strict=True)
)
_STEPS = dict(zip(("s = 1", "s = 2", "s = 4"), ("#9aa5b1", "#1b6ca8", "#3a7d44"), strict=True))
_LABELS = {"workload_error": "workload error", "nll": "NLL", "auc": "AUC"}

Line = tuple[str, list[tuple[float, list[Entry]]]]


@dataclass(frozen=True, slots=True)
class Plot:
    """One pair of axes: ``lines`` of ``measure`` over the values of ``label``, on the table ``title``."""

    title: str
    label: str
    lines: list[Line]
    measure: str = "workload_error"
    log: bool = True

    @property
    def varies(self) -> bool:
        """Whether there is more than one value to draw."""
        return len({value for _, points in self.lines for value, _ in points}) > 1

    def mean(self, line: str, value: float) -> float | None:
        """The mean of a line at a value; None where it was not run."""
        for name, points in self.lines:
            for at, entries in points:
                if (name, at) == (line, value) and (values := _values(entries, self.measure)):
                    return fmean(values)
        return None


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: its title, what the paper's says, the plots, and what ours is counted for."""

    title: str
    paper: str
    plots: Callable[[Store], list[Plot]]
    ours: Callable[[list[Plot]], str]
    colours: Mapping[str, str]


def picture(store: Store, folder: Path, name: str) -> list[str]:
    """Draw a figure into ``folder`` and return the page's parts on it."""
    of = PICTURES[name]
    head = f"## {of.title}\n"
    paper = f"The paper: {of.paper}\n"
    plots = [plot for plot in of.plots(store) if plot.varies]
    if not plots:
        return [head, paper, "Not run.\n"]
    _figure(plots, of.colours).savefig(folder / f"utility-{name}.png", dpi=90)
    lists = [f"{markdown_table(*_list_of(plot))}\n" for plot in plots]
    said = f"Ours: {of.ours(plots)}\n" if of.ours(plots) else ""
    return [head, f"![{of.title}](utility-{name}.png)\n", paper, said, *lists]


# Drawing.


def _figure(plots: Sequence[Plot], colours: Mapping[str, str]) -> Figure:
    columns = min(4, len(plots))
    rows = -(-len(plots) // columns)
    figure = Figure(figsize=(3.4 * columns + 0.6, 3.3 * rows), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, plot in zip(places, plots, strict=False):
        _draw(axes, plot, colours)
    for axes in places[len(plots) :]:
        axes.set_axis_off()
    places[0].legend(fontsize=7)
    return figure


def _draw(axes: Axes, plot: Plot, colours: Mapping[str, str]) -> None:
    for name, points in plot.lines:
        drawn = [(x, values) for x, runs in points if (values := _values(runs, plot.measure))]
        x, y = [x for x, _ in drawn], [fmean(values) for _, values in drawn]
        around = [stdev(values) if len(values) > 1 else 0.0 for _, values in drawn]
        style = {"marker": "o", "markersize": 3, "capsize": 2, "color": colours[name]}
        axes.errorbar(x, y, yerr=around, label=name, **style)  # type: ignore[arg-type]
    if plot.log:
        axes.set_xscale("log")
        ticks = sorted({value for _, points in plot.lines for value, _ in points})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
        axes.minorticks_off()
    axes.set_title(plot.title, fontsize=9)
    axes.set_xlabel(plot.label)
    axes.set_ylabel(_LABELS[plot.measure])
    axes.grid(alpha=0.3)


def _list_of(plot: Plot) -> tuple[str, list[tuple[str, ...]]]:
    """The numbers behind a plot, and how many runs each has at most."""
    values = sorted({value for _, points in plot.lines for value, _ in points})
    digits = 2 if plot.measure == "nll" else 3
    rows = []
    for name, points in plot.lines:
        by_value = dict(points)
        cells = [
            spread(_values(by_value[v], plot.measure), digits) if v in by_value else ""
            for v in values
        ]
        runs = [len(entries) for entries in by_value.values()]
        count = f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
        rows.append((name, *cells, count))
    head = f"{plot.title}: {_LABELS[plot.measure]} at {plot.label}"
    return " | ".join([head, *(f"{value:g}" for value in values), "runs"]), rows


def _values(entries: Sequence[Entry], name: str) -> list[float]:
    figures = (getattr(entry.result, name) for entry in entries)
    return [float(value) for value in figures if value is not None]


# Lines of runs.


def _lines(
    store: Store,
    values: Sequence[float],
    names: Sequence[str],
    make: Callable[[float, str], Settings],
) -> list[Line]:
    """For each name, the runs at each value that has any.

    One run of central AIM stands for every partition: it says nothing at a value that no other method was run at.
    """
    runs = {(m, v): store.all_of(make(v, m)) for m in names for v in values}
    shown = [v for v in values if any(runs[m, v] for m in names if m != "aim")]
    lines = [(m, [(v, runs[m, v]) for v in shown if runs[m, v]]) for m in names]
    return [line for line in lines if line[1]]


def _panel(store: Store, dataset: str, name: str) -> Plot:
    panel = grid.PANELS[name]
    lines = _lines(store, panel.values, grid.MAIN, lambda v, m: grid.of_panel(dataset, name, v, m))
    return Plot(dataset, panel.label, lines)


def _of_tables(name: str) -> Callable[[Store], list[Plot]]:
    """A panel of Figure 3 on the other tables."""
    return lambda store: [_panel(store, dataset, name) for dataset in grid.FIGURE_TABLES]


def _figure1(store: Store) -> list[Plot]:
    def make(value: float, method: str) -> Settings:
        return Settings(dataset=SYNTHFS, partition=NATURAL, method=method, skew=value)

    lines = _lines(store, grid.SKEWS, grid.MAIN, make)
    label = "skew"
    return [
        Plot(SYNTHFS, label, lines, measure, log=False) for measure in ("workload_error", "nll")
    ]


def _figure2(store: Store) -> list[Plot]:
    plots = []
    for dataset in grid.FIGURE2_TABLES:
        lines = _lines(
            store,
            grid.FIGURE2_ROUNDS,
            list(grid.ABLATIONS),
            lambda v, part, of=dataset: grid.of_parts(of, int(v), part),  # type: ignore[misc]
        )
        plots.append(Plot(dataset, "T", lines))
    return plots


def _figure3(store: Store) -> list[Plot]:
    return [_panel(store, "adult", name) for name in grid.PANELS]


def _local(store: Store) -> list[Plot]:
    plots = []
    for dataset in ("adult", *grid.FIGURE_TABLES):
        lines = _lines(
            store,
            grid.LOCAL_T,
            list(_STEPS),
            lambda v, name, of=dataset: grid.of_local(of, int(v), int(name[-1])),  # type: ignore[misc]
        )
        plots += [Plot(dataset, "T", lines, measure) for measure in ("workload_error", "auc")]
    return plots


# What ours shows, counted over the values of each plot.


def _compared(plot: Plot, left: str, right: str) -> list[float]:
    """The values at which both were run."""
    values = sorted({value for _, points in plot.lines for value, _ in points})
    return [v for v in values if plot.mean(left, v) is not None and plot.mean(right, v) is not None]


def _below(plot: Plot, left: str, right: str) -> str:
    """At which of the values ``left`` is below ``right``."""
    both = _compared(plot, left, right)
    found = [v for v in both if (plot.mean(left, v) or 0) < (plot.mean(right, v) or 0)]
    where = "nowhere" if not found else "everywhere" if found == both else f"at {_listed(found)}"
    return f"{left} is below {right} {where}"


def _worst(plot: Plot, name: str) -> str:
    """At how many of the values a line is the highest of those that were run."""
    values = sorted({v for line, points in plot.lines if line == name for v, _ in points})
    others = [line for line, _ in plot.lines if line != name]
    highest = [
        v for v in values if all((plot.mean(o, v) or 0) < (plot.mean(name, v) or 0) for o in others)
    ]
    return f"{name} is the worst at {len(highest)} of {len(values)} values"


def _ends(plot: Plot, name: str) -> str:
    """Where a line begins, is lowest, and ends."""
    points = next((points for line, points in plot.lines if line == name), [])
    means = [(x, y) for x, _ in points if (y := plot.mean(name, x)) is not None]
    if len(means) < 2:
        return f"{name} was run at one value"
    low = min(means, key=lambda point: point[1])
    return f"{name} goes from {means[0][1]:.3f} to {means[-1][1]:.3f}, least {low[1]:.3f} at {low[0]:g}"


def _each(plots: Sequence[Plot], say: Callable[[Plot], str]) -> str:
    return "; ".join(f"on {plot.title}, {say(plot)}" for plot in plots) + "."


def _ours_by_epsilon(plots: list[Plot]) -> str:
    return _each(
        plots,
        lambda p: listed(
            [_worst(p, "naive"), _below(p, "private", "distaim"), _below(p, "private", "oracle")]
        ),
    )


def _ours_by_rounds(plots: list[Plot]) -> str:
    return _each(plots, lambda p: listed([_ends(p, m) for m in ("distaim", "private", "naive")]))


def _ours_by_rate(plots: list[Plot]) -> str:
    return _each(plots, lambda p: listed([_ends(p, m) for m in ("distaim", "private", "aim")]))


def _ours_by_beta(plots: list[Plot]) -> str:
    return _each(plots, lambda p: listed([_ends(p, m) for m in ("naive", "private", "distaim")]))


def _ours_of_figure3(plots: list[Plot]) -> str:
    said = dict(
        zip(
            ("epsilon", "T", "p", "beta"),
            (_ours_by_epsilon, _ours_by_rounds, _ours_by_rate, _ours_by_beta),
            strict=True,
        )
    )
    return " ".join(f"By {p.label}: {said[p.label]([p])}" for p in plots)


def _ours_of_parts(plots: list[Plot]) -> str:
    naive, both = "naive", "private: both"
    parts = ("tau only", "filter-and-combine only")
    return _each(
        plots,
        lambda p: listed([*(_below(p, part, naive) for part in parts), _below(p, both, naive)]),
    )


def _ours_of_local(plots: list[Plot]) -> str:
    return _each(
        plots,
        lambda p: (
            f"{_LABELS[p.measure]}: "
            + listed([_below(p, "s = 4", "s = 1"), _ends(p, "s = 1"), _ends(p, "s = 4")])
        ),
    )


def _ours_of_figure1(plots: list[Plot]) -> str:
    return _each(plots[:1], lambda p: listed([_worst(p, "naive"), _below(p, "private", "distaim")]))


def _listed(values: Sequence[float]) -> str:
    return listed([f"{value:g}" for value in values])


PICTURES: Mapping[str, Picture] = {
    "fig1": Picture(
        "Figure 1: SynthFS by its skew",
        "all methods get better as clients become alike; naive is far behind, private near DistAIM.",
        _figure1,
        _ours_of_figure1,
        COLOURS,
    ),
    "fig2": Picture(
        "Figure 2: what each part of private does, over T at epsilon = 5",
        "on Adult and Covtype neither tau nor the proxy alone is below naive, and both with filter-and-combine are the "
        "lowest; on Credit each helps by itself.",
        _figure2,
        _ours_of_parts,
        _PARTS,
    ),
    "fig3": Picture(
        "Figures 3a to 3d: Adult by epsilon, T, participation p and label skew beta",
        "naive is the worst even at large epsilon, and private reaches DistAIM there; DistAIM falls with T, FLAIM "
        "rises at large T; DistAIM is nearly AIM from p = 0.5 on, private flattens; below beta = 0.1 all struggle.",
        _figure3,
        _ours_of_figure3,
        COLOURS,
    ),
    "fig6": Picture(
        "Figure 6: other tables by epsilon",
        "as on Adult: naive the worst, private below oracle and near DistAIM at larger epsilon.",
        _of_tables("epsilon"),
        _ours_by_epsilon,
        COLOURS,
    ),
    "fig7": Picture(
        "Figure 7: other tables by T",
        "DistAIM falls with T; FLAIM usually rises at large T; T from 5 to 30 is good everywhere.",
        _of_tables("rounds"),
        _ours_by_rounds,
        COLOURS,
    ),
    "fig8": Picture(
        "Figure 8: other tables by participation p",
        "DistAIM is nearly AIM from p = 0.5 on; private flattens.",
        _of_tables("participation"),
        _ours_by_rate,
        COLOURS,
    ),
    "fig9": Picture(
        "Figure 9: other tables by label skew beta",
        "below beta = 0.1 all struggle.",
        _of_tables("beta"),
        _ours_by_beta,
        COLOURS,
    ),
    "fig10": Picture(
        "Figures 3e, 3f, 10 and 11: private FLAIM by T and local rounds s",
        "errors are alike for small T and worse for s = 4 as T grows; AUC is better with s = 4 after fewer rounds.",
        _local,
        _ours_of_local,
        _STEPS,
    ),
}
"""By the name of their file; the paper's Figures 3e, 3f, 10 and 11 are one picture."""
