"""Tables and pictures of the utility benchmark, from all the runs of a store.

Provides `write_report`. Public: everything. Every figure is computed from the stored runs; the paper's are beside them
(`bench.utility.beside_paper`). What the store does not have is said to be missing.

Source of the comparison: FLAIM paper, Tables 1, 2 and 5, Figures 1 to 3.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.datasets import SYNTHFS
from bench.fetch import DatasetError
from bench.markdown import markdown_table, spread
from bench.splits import NATURAL
from bench.utility import grid
from bench.utility.beside_paper import beside_paper
from bench.utility.everybody import everybody_section
from bench.utility.flaim import flaim_settings
from bench.utility.settings import METHODS, Settings
from bench.utility.splits import QUERIES, SPLITS_FILE, read_splits
from bench.utility.store import Entry, Store
from mechanisms.accounting import epsilon_from_rho
from mechanisms.replacement import rho_of_replacing
from parties.errors import StoreError
from parties.files import disk_errors, write_whole

_COLOURS = {
    "aim": "#555555",
    "distaim": "#1b6ca8",
    "naive": "#c8553d",
    "oracle": "#e0a030",
    "private": "#3a7d44",
    "random": "#8e6c8a",
    "naivebayes": "#9aa5b1",
}


def write_report(store: Store, folder: Path) -> None:
    """Write utility.md and its pictures into `folder`. Raises DatasetError where that cannot be written."""
    parts = [
        _head(store),
        beside_paper(store, read_splits(folder / SPLITS_FILE)),
        *(table(store) for table in (_methods, _partitions, _rounds)),
        everybody_section(store, folder),
        _splits(folder),
    ]
    try:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name in _PICTURES:
                parts += _picture(store, folder, name)
        write_whole(folder / "utility.md", "\n".join(parts))
    except StoreError as error:
        raise DatasetError(str(error)) from error


def _picture(store: Store, folder: Path, name: str) -> list[str]:
    """Draw a figure, and the page's parts on it."""
    figure, title = _PICTURES[name](store), _TITLES[name]
    if figure is None:
        return [f"## {title}\n\nNot run.\n"]
    figure.savefig(folder / f"utility-{name}.png", dpi=110)
    return [f"## {title}\n\n![{title}](utility-{name}.png)\n", _LISTS[name](store)]


def _head(store: Store) -> str:
    return (
        "# Utility\n\n"
        "Made by `make bench-utility` from `utility.jsonl`; the methods and what was found are in `../README.md`.\n"
        "Unless said otherwise: K = 100 clients, clustering, p = 0.1, T = 10, epsilon = 1, delta = 1e-5, r = 0.9, 64\n"
        "random three-way queries (seed 123), 100 PGM iterations a round and 1,000 at the end, 90 % of the rows to\n"
        "work from. Error: average L1 distance, 0 to 2, between normalised marginals of synthetic and training\n"
        "rows over the 64 queries (closure: over them and their subsets). NLL: mean over held-out rows, in nats.\n"
        "AUC: of boosted trees trained on synthetic rows, on held-out rows. ± is the deviation between repeats.\n\n"
        f"{_sizes()}\n\n"
        f"{store.count} runs.\n"
    )


def _sizes() -> str:
    """For which neighbours epsilon is."""
    settings = flaim_settings(Settings(dataset="adult", method="private"))
    schedule = settings.schedule(1)
    events = [event for round in range(schedule.rounds + 1) for event in schedule.events(round)]
    cost = rho_of_replacing(events)
    return (
        "Epsilon is for one row added to or removed from the table. FLAIM's sizes are public here, as in the paper:\n"
        "each client declares its number of rows, and epsilon is for tables of the same declared sizes. For one row\n"
        f"replaced by another rho is {cost / settings.rho:.3g} times as much with naive, oracle and private, epsilon = "
        f"{epsilon_from_rho(cost, 1e-5):.3g} for 1; twice\n"
        "as much with random and naivebayes. FLAIM's default is estimated sizes (`--sizes estimated`): see\n"
        "`mechanisms/README.md`."
    )


def _methods(store: Store) -> str:
    rows = [
        _method_row(dataset, method, entries)
        for dataset, method in product(grid.TABLES, METHODS)
        if (entries := store.all_of(grid.default(dataset, method)))
    ]
    heads = "table | method | repeats | error | closure | NLL | AUC | seconds"
    lines = [
        "## Methods at epsilon = 1, T = 10",
        "",
        markdown_table(heads, rows),
        "",
        "`random` has models of 8 MB at most, everything else of 80. The seconds are those of one process on the",
        "machine that ran it, whatever else that did.",
        "",
    ]
    return "\n".join(lines)


def _method_row(dataset: str, method: str, entries: Sequence[Entry]) -> tuple[str, ...]:
    return (
        dataset,
        method,
        str(len(entries)),
        _spread(entries, "workload_error", 3),
        _spread(entries, "closure_error", 3),
        _spread(entries, "nll", 2),
        _spread(entries, "auc", 3),
        f"{_mean(entries, 'seconds'):.0f}",
    )


def _partitions(store: Store) -> str:
    rows = []
    for dataset, method in product(grid.TABLES, grid.MAIN):
        runs = [
            store.all_of(Settings(dataset=dataset, method=method, partition=partition))
            for partition in ("clustering", "label-skew", "iid")
        ]
        if method != "aim" and any(runs[1:]):
            errors = (
                _spread(entries, "workload_error", 3) if entries else "not run" for entries in runs
            )
            rows.append((dataset, method, *errors))
    if not rows:
        return "## Other partitions\n\nNot run.\n"
    return (
        "## The same under other partitions\n\n"
        "Workload error; label-skew with beta = 0.1. Central AIM has no partition.\n\n"
        f"{markdown_table('table | method | clustering | label-skew | iid', rows)}\n"
    )


def _rounds(store: Store) -> str:
    """Errors and likelihoods by T, of which the overhead tables take the best (Table 3)."""
    title = "## By the number of rounds T\n\n"
    runs_of = {
        (dataset, method, number): entries
        for dataset in grid.TABLES
        for method in grid.TABLE3_METHODS
        for number in sorted({*grid.TABLE3_ROUNDS, *grid.ROUNDS})
        if (entries := store.all_of(Settings(dataset=dataset, method=method, rounds=number)))
    }
    if not runs_of:
        return title + "Not run.\n"
    numbers = sorted({number for _, _, number in runs_of})
    rows = []
    for dataset, method in dict.fromkeys((dataset, method) for dataset, method, _ in runs_of):
        runs = [runs_of.get((dataset, method, number), []) for number in numbers]
        for name, kind, digits in (("workload_error", "error", 3), ("nll", "NLL", 2)):
            cells = [_spread(entries, name, digits) if entries else "" for entries in runs]
            rows.append((dataset, method, kind, *cells))
    heads = " | ".join(["table | method | ", *(f"T = {number}" for number in numbers)])
    return f"{title}{markdown_table(heads, rows)}\n"


def _splits(folder: Path) -> str:
    """What `bench.utility.splits` measured over the 64 queries; Table 5 itself is beside the paper."""
    title = "## Heterogeneity of the partitions over the 64 queries\n\n"
    rows = [row for row in read_splits(folder / SPLITS_FILE) if row["over"] == QUERIES]
    if not rows:
        return title + "Not measured.\n"
    cells = [
        (
            row["dataset"],
            row["partition"],
            f"{row['mean']:.3f} ± {row['deviation']:.3f}",
            f"{row['least']:.3f}",
            f"{row['greatest']:.3f}",
            f"{row['smallest_client']} to {row['largest_client']}",
        )
        for row in rows
    ]
    heads = "table | partition | mean | least | greatest | rows of a client"
    return (
        f"{title}Total variation distance (half the L1 distance) between a client's marginals and everybody's, "
        "averaged over\nthe 64 queries: mean over the clients ± deviation, least and greatest client.\n\n"
        f"{markdown_table(heads, cells)}\n"
    )


def _values(entries: Sequence[Entry], name: str) -> list[float]:
    figures = (getattr(entry.result, name) for entry in entries)
    return [float(value) for value in figures if value is not None]


def _mean(entries: Sequence[Entry], name: str) -> float:
    return fmean(_values(entries, name))


def _spread(entries: Sequence[Entry], name: str, digits: int) -> str:
    return spread(_values(entries, name), digits)


_Make = Callable[[float, str], Settings]
Line = tuple[str, list[tuple[float, list[Entry]]]]


def _lines(
    store: Store,
    values: Sequence[float],
    methods: Sequence[str],
    make: _Make,
) -> list[Line]:
    """For each method, the runs at each value that has any.

    One run of central AIM stands for every partition: it says nothing at a value that no other method was run at.
    """
    runs = {(m, v): store.all_of(make(v, m)) for m in methods for v in values}
    shown = [v for v in values if any(runs[m, v] for m in methods if m != "aim")]
    lines = [(m, [(v, runs[m, v]) for v in shown if runs[m, v]]) for m in methods]
    return [line for line in lines if line[1]]


def _draw(axes: Axes, lines: Sequence[Line], label: str, *, log: bool, measure: str) -> None:
    for method, points in lines:
        x = [value for value, _ in points]
        y = [_mean(entries, measure) for _, entries in points]
        spread = [
            stdev(_values(entries, measure)) if len(entries) > 1 else 0.0 for _, entries in points
        ]
        style = {"marker": "o", "markersize": 3, "capsize": 2, "color": _COLOURS[method]}
        axes.errorbar(x, y, yerr=spread, label=method, **style)  # type: ignore[arg-type]
    if log:
        axes.set_xscale("log")
        ticks = sorted({value for _, points in lines for value, _ in points})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    axes.set_xlabel(label)
    axes.set_ylabel("workload error" if measure == "workload_error" else "NLL")
    axes.grid(alpha=0.3)


@dataclass(frozen=True, slots=True)
class _Panel:
    """One setting of Adult's runs that varies over ``values``."""

    label: str
    values: Sequence[float]
    make: _Make
    methods: Sequence[str] = grid.MAIN


def _adult(method: str, **changed: Any) -> Settings:
    return Settings(dataset="adult", method=method, **changed)


_FIGURE3: Mapping[str, _Panel] = {
    "epsilon": _Panel("epsilon", grid.EPSILONS, lambda v, m: _adult(m, epsilon=v)),
    "rounds": _Panel("rounds T", grid.ROUNDS, lambda v, m: _adult(m, rounds=int(v))),
    "participation": _Panel("participation p", grid.RATES, lambda v, m: _adult(m, participation=v)),
    "beta": _Panel(
        "label skew beta", grid.BETAS, lambda v, m: _adult(m, partition="label-skew", beta=v)
    ),
    "local rounds": _Panel(
        "local rounds s",
        grid.LOCAL,
        lambda v, m: _adult(m, local_rounds=int(v)),
        methods=("naive", "private"),
    ),
}


def _figure1_lines(store: Store) -> list[Line]:
    def make(value: float, method: str) -> Settings:
        return Settings(dataset=SYNTHFS, partition=NATURAL, method=method, skew=value)

    return _lines(store, grid.SKEWS, grid.MAIN, make)


def _figure1(store: Store) -> Figure | None:
    lines = _figure1_lines(store)
    if not lines:
        return None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, measure in zip(figure.subplots(1, 2), ("workload_error", "nll"), strict=True):
        _draw(axes, lines, "skew (exponent of the Zipf law)", log=False, measure=measure)
    figure.axes[0].legend(fontsize=8)
    return figure


def _ablations(store: Store) -> list[tuple[str, str, list[Entry]]]:
    runs = []
    for dataset in grid.TABLES:
        for name, changes in grid.ABLATIONS.items():
            if entries := store.all_of(Settings(dataset=dataset, **changes)):
                runs.append((dataset, name, entries))
    return runs


def _figure2(store: Store) -> Figure | None:
    ablations = _ablations(store)
    datasets = [name for name in grid.TABLES if any(dataset == name for dataset, _, _ in ablations)]
    if not any(name in ("tau only", "filter-and-combine only") for _, name, _ in ablations):
        return None
    figure = Figure(figsize=(2.6 * len(datasets) + 1, 3.8), layout="constrained")
    places = figure.subplots(1, len(datasets), squeeze=False)[0]
    for axes, dataset in zip(places, datasets, strict=True):
        bars = [(name, entries) for of, name, entries in ablations if of == dataset]
        spread = [
            stdev(_values(entries, "workload_error")) if len(entries) > 1 else 0.0
            for _, entries in bars
        ]
        heights = [_mean(entries, "workload_error") for _, entries in bars]
        names = [name for name, _ in bars]
        axes.bar(range(len(bars)), heights, yerr=spread, capsize=2, color="#3a7d44")
        axes.set_xticks(range(len(bars)), names, rotation=40, ha="right", fontsize=7)
        axes.set_title(dataset, fontsize=9)
    figure.axes[0].set_ylabel("workload error")
    return figure


def _panel(store: Store, name: str) -> list[Line]:
    panel = _FIGURE3[name]
    return _lines(store, panel.values, panel.methods, panel.make)


def _varies(lines: Sequence[Line]) -> bool:
    """Whether there is more than one value to draw."""
    return len({value for _, points in lines for value, _ in points}) > 1


def _figure3(store: Store) -> Figure | None:
    panels = [
        (panel.label, lines, name)
        for name, panel in _FIGURE3.items()
        if _varies(lines := _panel(store, name))
    ]
    if not panels:
        return None
    figure = Figure(figsize=(3.4 * len(panels), 3.6), layout="constrained")
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (label, lines, name) in zip(places, panels, strict=True):
        _draw(axes, lines, label, log=name != "local rounds", measure="workload_error")
    figure.axes[0].legend(fontsize=7)
    return figure


def _list_of(lines: Sequence[Line], label: str) -> str:
    """The numbers behind a picture."""
    values = sorted({value for _, points in lines for value, _ in points})
    rows = []
    for method, points in lines:
        by_value = dict(points)
        cells = [_spread(by_value[v], "workload_error", 3) if v in by_value else "" for v in values]
        rows.append((method, *cells))
    heads = " | ".join([label, *(f"{value:g}" for value in values)])
    return f"{markdown_table(heads, rows)}\n"


def _list1(store: Store) -> str:
    return _list_of(_figure1_lines(store), "error at skew")


def _list2(store: Store) -> str:
    rows = [
        (
            dataset,
            name,
            len(entries),
            _spread(entries, "workload_error", 3),
            _spread(entries, "nll", 2),
        )
        for dataset, name, entries in _ablations(store)
    ]
    return f"{markdown_table('table | FLAIM with | repeats | error | NLL', rows)}\n"


def _list3(store: Store) -> str:
    text = []
    for name, panel in _FIGURE3.items():
        lines, label = _panel(store, name), panel.label
        text.append(
            _list_of(lines, f"error at {label}") if _varies(lines) else f"{label}: not run.\n"
        )
    return "\n".join(text)


_TITLES = {
    "fig1": "Figure 1: SynthFS by its skew",
    "fig2": "What each part of private does, epsilon = 1, T = 10 (the paper's Figure 2: over T, epsilon = 5)",
    "fig3": "Figure 3: Adult by epsilon, rounds, participation, label skew and local rounds",
}
_PICTURES: Mapping[str, Callable[[Store], Figure | None]] = {
    "fig1": _figure1,
    "fig2": _figure2,
    "fig3": _figure3,
}
_LISTS: Mapping[str, Callable[[Store], str]] = {"fig1": _list1, "fig2": _list2, "fig3": _list3}
