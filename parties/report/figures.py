"""Pictures of a report, drawn by matplotlib and returned as SVG text.

No value here is secret: the report already has all values that are drawn. Names of columns and categories are the
user's: they are drawn as plain text (never as formulas), cut to a length, with unprintable characters replaced.
Representation: figures are made without pyplot, so calls share no state and need no display. The same input gives the
same SVG.
"""

import io
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from parties.report.model import Associations, ColumnShares, ExpectedError, QueryError

BLUE, ORANGE, GREEN, GREY, INK = "#2b6cb0", "#dd7a1f", "#3f8f6b", "#c3cad3", "#2d3640"
"""Colours that differ with the common colour-vision deficiencies, and in grey."""
LIKELY = "#8b95a3"
"""Colour of a darker part of a GREY bar."""
MAX_COLUMNS_DRAWN = 24
MAX_QUERIES_NAMED = 10
MAX_COLUMNS_NUMBERED = 10
"""Maximum number of columns for numbers in the cells of the matrix of pairs."""
PAIRS = mpl.colormaps["Blues"]
_WIDTH_IN = 9.0


def _style(*, grid_axis: Literal["x", "y", "both"] = "y") -> AbstractContextManager[None]:
    """Returns a context with the settings for drawing and writing a figure; it restores matplotlib's own afterwards."""
    return mpl.rc_context(
        {
            "text.parse_math": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "syncret",
            "font.family": "sans-serif",
            "font.size": 9.0,
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": GREY,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "axes.grid": True,
            "axes.grid.axis": grid_axis,
            "grid.color": "#e7eaee",
            "axes.titlesize": 9.5,
            "axes.titlelocation": "left",
            "legend.frameon": False,
        }
    )


def to_svg(figure: Figure) -> str:
    """Returns the figure as an SVG document, without date or maker."""
    buffer = io.StringIO()
    with warnings.catch_warnings(), _style():
        # The browser has fonts for glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def plain_label(text: str, *, longest: int = 28) -> str:
    """Returns `text` in one line of at most `longest` characters, with unprintable characters replaced."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def _set_margins(
    figure: Figure, *, left: float, right: float, bottom: float, top: float, between: float = 0.0
) -> None:
    """Sets margins in inches by hand, since matplotlib takes as long to find them as to draw."""
    width, height = figure.get_size_inches()
    columns = max(1, len(figure.axes))
    inside = (width - left - right - (columns - 1) * between) / columns
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        bottom=bottom / height,
        top=1 - top / height,
        wspace=between / inside,
    )


def _width_in(labels: Sequence[str], size: float = 9.0) -> float:
    """Returns the approximate width of the longest label in inches; a letter is 0.56 of its height wide on average."""
    return 0.56 * size / 72 * max(map(len, labels), default=0)


def _set_margins_of_two(figure: Figure, names: Sequence[str]) -> None:
    """Sets the margins of a plot with `names` at its left, and one with numbers beside it."""
    _set_margins(
        figure, left=0.15 + _width_in(names), right=0.12, bottom=0.5, top=0.3, between=0.45
    )


def draw_attacker(points: Sequence[tuple[float, float]]) -> Figure:
    """Draws the share of the present that the best attacker finds, by its falsely suspected share of the absent."""
    with _style(grid_axis="both"):
        figure = Figure(figsize=(_WIDTH_IN / 2, _WIDTH_IN / 2.2))
        axes = figure.subplots()
        suspected, found = zip(*points, strict=True)
        axes.fill_between(suspected, suspected, found, color=GREY)
        axes.plot(suspected, found, color=BLUE)
        axes.plot((0, 1), (0, 1), color=ORANGE, linestyle="--")
        axes.set(
            xlabel="falsely suspected of the absent",
            ylabel="found of the present, at most",
            xlim=(0, 1),
            ylim=(0, 1),
        )
        _set_margins(figure, left=0.6, right=0.12, bottom=0.5, top=0.15)
    return figure


def draw_query_errors(errors: Sequence[QueryError]) -> Figure:
    """Draws the largest errors by query, and beside them all errors, largest first, with their mean."""
    ordered = sorted(errors, key=lambda item: -item.error)
    named = ordered[:MAX_QUERIES_NAMED]
    with _style(grid_axis="x"):
        height = 0.9 + 0.24 * max(6, len(named))
        figure = Figure(figsize=(_WIDTH_IN, height))
        largest, every = figure.subplots(1, 2, width_ratios=(2, 1))
        positions = np.arange(len(named))
        largest.barh(positions, [item.error for item in named], height=0.7, color=BLUE)
        names = [plain_label(" × ".join(item.query), longest=52) for item in named]
        _set_margins_of_two(figure, names)
        largest.set_yticks(positions, names)
        largest.set_ylim(max(6, len(named)) - 0.4, -0.6)
        largest.grid(visible=False, axis="y")
        largest.set(title="The largest", xlabel="L1 error (0 to 2)", xlim=(0, None))
        _draw_all_errors(every, [item.error for item in ordered])
    return figure


def draw_expected_errors(errors: Sequence[ExpectedError]) -> Figure:
    """Draws the intervals of the queries with the smallest bounds, by name, and beside them all, smallest first."""
    ordered = sorted(errors, key=lambda item: item.high)
    named = ordered[:MAX_QUERIES_NAMED]
    with _style(grid_axis="x"):
        height = 0.9 + 0.24 * max(6, len(named))
        figure = Figure(figsize=(_WIDTH_IN, height))
        best, every = figure.subplots(1, 2, width_ratios=(2, 1))
        for position, item in enumerate(named):
            best.plot((item.low, item.high), (position, position), color=GREY, linewidth=5)
            if item.likely is not None:
                best.plot((item.low, item.likely), (position, position), color=LIKELY, linewidth=5)
            best.plot(item.expected, position, "o", color=BLUE, markersize=4.5)
        names = [plain_label(" × ".join(item.query), longest=52) for item in named]
        _set_margins_of_two(figure, names)
        best.set_yticks(range(len(named)), names)
        best.set_ylim(max(6, len(named)) - 0.4, -0.6)
        best.grid(visible=False, axis="y")
        best.set(title="Known best", xlabel="L1 error (0 to 2)", xlim=(0, None))
        positions = range(1, len(ordered) + 1)
        every.bar(
            positions, [item.high for item in ordered], width=0.8, color=GREY, label="at most"
        )
        if all(item.likely is not None for item in ordered):
            likely = [item.likely or 0.0 for item in ordered]
            every.bar(positions, likely, width=0.8, color=LIKELY, label="likely")
        every.plot(
            positions, [item.expected for item in ordered], ".", color=BLUE, label="expected"
        )
        every.grid(visible=False, axis="x")
        every.set(title="All, best first", xlabel="queries", ylim=(0, 2.05))
        every.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        every.legend(loc="upper left")
    return figure


def _draw_all_errors(axes: Axes, values: Sequence[float]) -> None:
    mean = sum(values) / len(values)
    axes.bar(range(1, len(values) + 1), values, width=0.8, color=BLUE)
    axes.axhline(mean, color=ORANGE, linewidth=1.4)
    axes.annotate(
        f"mean {mean:.3f}",
        (1.0, mean),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=ORANGE,
        fontweight="bold",
    )
    axes.grid(visible=False, axis="x")
    axes.set(title="All, worst first", xlabel="queries", ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.set_xlim(0.4, len(values) + 0.6)


def draw_associations(found: Associations) -> Figure:
    """Draws the matrix of the synthetic table, and of the real one if at hand; the diagonal is left out."""
    matrices = [("synthetic", found.synthetic)]
    if found.real is not None:
        matrices.insert(0, ("real (not private)", found.real))
    size = len(found.columns)
    levels = np.linspace(0.0, 1.0, 11)
    with _style():
        height = min(4.7 if len(matrices) == 2 else 5.6, 2.2 + 0.4 * size)
        figure = Figure(figsize=(_WIDTH_IN, height))
        grid = figure.subplots(1, len(matrices), squeeze=False, sharey=True)[0]
        names = [plain_label(name, longest=18) for name in found.columns]
        room = 0.15 + _width_in(names, _pair_size(size))
        _set_margins(figure, left=room, right=1.0, bottom=room, top=0.3, between=0.15)
        # Ten steps: an eye distinguishes no more, and the scale stays a vector drawing.
        scale = ScalarMappable(BoundaryNorm(levels, PAIRS.N), PAIRS)
        for axes, (title, matrix) in zip(grid, matrices, strict=True):
            values = np.ma.masked_array(matrix, mask=np.eye(size, dtype=bool))
            axes.pcolormesh(values, cmap=PAIRS, norm=scale.norm, edgecolors="white", linewidth=0.5)
            _label_pairs(axes, names, first=axes is grid[0])
            axes.set(title=title, aspect="equal", ylim=(size, 0))
            if size <= MAX_COLUMNS_NUMBERED:
                _write_numbers(axes, values)
        beside = figure.add_axes((1 - 0.85 / _WIDTH_IN, 0.3, 0.2 / _WIDTH_IN, 0.5))
        figure.colorbar(scale, cax=beside, ticks=levels[::2], label="Cramér's V")
    return figure


def _pair_size(columns: int) -> float:
    """Returns the size of the letters beside a matrix, smaller for many columns."""
    return 8.0 if columns <= 16 else max(5.2, 120.0 / columns)


def _label_pairs(axes: Axes, labels: Sequence[str], *, first: bool) -> None:
    positions = np.arange(len(labels)) + 0.5
    axes.grid(visible=False)
    axes.set_xticks(positions, labels, rotation=90)
    axes.set_yticks(positions, labels)
    axes.tick_params(length=0, labelsize=_pair_size(len(labels)), labelleft=first)
    for side in axes.spines.values():
        side.set_visible(False)


def _write_numbers(
    axes: Axes, values: "np.ma.MaskedArray[tuple[int, int], np.dtype[np.float64]]"
) -> None:
    for (i, j), value in np.ndenumerate(values.filled(-1.0)):
        if value >= 0:
            colour = "white" if value > 0.6 else INK
            axes.text(
                j + 0.5,
                i + 0.5,
                f"{value:.2f}",
                ha="center",
                va="center",
                color=colour,
                fontsize=7.0,
            )


def draw_budget(ledger: Sequence[tuple[int, str, float]], *, rho_total: float) -> Figure:
    """Draws the charges (round, step, rho): per round stacked by step, and the sum so far against the budget."""
    with _style():
        figure = Figure(figsize=(_WIDTH_IN, 2.9))
        per_round, so_far = figure.subplots(1, 2)
        _set_margins(figure, left=0.75, right=0.12, bottom=0.5, top=0.3, between=0.65)
        rounds = np.arange(max((entry[0] for entry in ledger), default=0) + 1)
        steps = list(dict.fromkeys(step for _, step, _ in ledger))
        bottom = np.zeros(len(rounds))
        for position, step in enumerate(steps):
            height = np.zeros(len(rounds))
            for number, name, rho in ledger:
                height[number] += rho if name == step else 0.0
            colour = (BLUE, ORANGE, GREEN, GREY)[position % 4]
            per_round.bar(rounds, height, bottom=bottom, color=colour, label=plain_label(step))
            bottom += height
        if steps:
            per_round.legend(loc="upper right")
        per_round.set(title="Charged in each round", xlabel="round", ylabel="rho (zCDP)")
        so_far.step(rounds, np.cumsum(bottom), where="mid", color=BLUE, linewidth=2, label="spent")
        so_far.axhline(rho_total, color=INK, linestyle="--", linewidth=1.2, label="budget")
        so_far.set(title="Spent so far", xlabel="round", ylim=(0, rho_total * 1.12))
        so_far.legend(loc="lower right")
        for axes in (per_round, so_far):
            axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    return figure


def draw_bytes(by_step: Mapping[str, Sequence[int]]) -> Figure:
    """Draws the bytes that each server sent in each step, stacked by server, largest step first."""
    ordered = sorted(by_step.items(), key=lambda item: -sum(item[1]))
    with _style(grid_axis="x"):
        figure = Figure(figsize=(_WIDTH_IN, 1.1 + 0.32 * len(ordered)))
        axes = figure.subplots()
        names = [plain_label(step) for step, _ in ordered]
        _set_margins(figure, left=0.15 + _width_in(names), right=0.12, bottom=0.5, top=0.12)
        positions = np.arange(len(ordered))
        left = np.zeros(len(ordered))
        servers = len(ordered[0][1])
        for pid, colour in enumerate((BLUE, ORANGE, GREEN)[:servers]):
            sent = np.array([float(row[pid]) for _, row in ordered])
            axes.barh(positions, sent, left=left, height=0.7, color=colour, label=f"P{pid}")
            left += sent
        for position, total in zip(positions, left, strict=True):
            axes.annotate(
                format_bytes(total),
                (total, position),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
            )
        axes.set_yticks(positions, names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        who = "the server" if servers == 1 else "the three servers"
        axes.set(xlabel=f"sent by {who}", xlim=(0, max(1.0, left.max(initial=0.0)) * 1.14))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
        if servers > 1:
            axes.legend(loc="lower right", ncols=3)
    return figure


def draw_columns(columns: Sequence[ColumnShares]) -> Figure:
    """Draws at most `MAX_COLUMNS_DRAWN` one-way marginals: real as bars if at hand, synthetic as dots over them."""
    shown = columns[:MAX_COLUMNS_DRAWN]
    across = min(3, len(shown))
    down = -(-len(shown) // across)
    with _style():
        height = 0.4 + 2.0 * down
        margins = {"left": 0.06, "right": 0.985, "bottom": 0.3 / height, "top": 1 - 0.6 / height}
        figure = Figure(figsize=(_WIDTH_IN, height))
        grid = figure.subplots(
            down, across, squeeze=False, gridspec_kw={**margins, "wspace": 0.22, "hspace": 0.42}
        )
        for axes, item in zip(grid.flat, shown, strict=False):
            _draw_column(axes, item)
        for axes in grid.flat[len(shown) :]:
            axes.set_axis_off()
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", ncols=2)
    return figure


def _draw_column(axes: Axes, item: ColumnShares) -> None:
    positions = np.arange(len(item.labels))
    if item.real is None:
        axes.bar(positions, item.synthetic, color=BLUE, width=0.85, label="synthetic")
    else:
        axes.bar(positions, item.real, color=GREY, width=0.85, label="real (not private)")
        size = 4.5 if len(positions) <= 20 else 3.0
        axes.plot(positions, item.synthetic, "o", color=BLUE, markersize=size, label="synthetic")
    axes.set_title(plain_label(item.column, longest=36))
    axes.set_ylim(0, None)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
    # About 36 characters fit below a column, so at most five labels; always the last, which may be missing values.
    stride = max(1, -(-len(positions) // 5))
    ticks = [i for i in positions[::stride] if i + stride / 2 < len(positions) - 1] + [
        len(positions) - 1
    ]
    longest = 36 // len(ticks)
    axes.set_xticks(ticks, [plain_label(item.labels[i], longest=longest) for i in ticks])
    axes.tick_params(labelsize=7.5)


def format_bytes(size: float) -> str:
    """Returns a size in decimal units, with three digits."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} B"
