"""Pictures of a report, drawn by matplotlib and returned as SVG text.

No value here is secret: the report already has all values that are drawn. Names of columns and categories are the
user's: they are drawn as plain text (never as formulas), cut to a length, with unprintable characters replaced.
Representation: every picture is narrow, so that it can be read on a telephone and stands beside others on a wide
screen; its ground is transparent. Figures are made without pyplot, so calls share no state and need no display. The
same input gives the same SVG.
"""

import io
import unicodedata
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

from parties.report.model import (
    Accuracy,
    ColumnShares,
    ErrorBar,
    ExpectedError,
    QueryError,
)

BLUE, ORANGE, GREEN, GREY, INK = "#2b6cb0", "#dd7a1f", "#3f8f6b", "#c3cad3", "#2d3640"
"""Colours that differ with the common colour-vision deficiencies, and in grey."""
LIKELY = "#8b95a3"
"""Colour of a darker part of a GREY bar."""
MAX_COLUMNS_DRAWN = 24
MAX_QUERIES_NAMED = 10
MAX_COLUMNS_NUMBERED = 10
"""Maximum number of columns for numbers in the cells of the matrix of pairs."""
PAIRS = mpl.colormaps["Blues"]
_WIDTH_IN = 4.6
"""Width of a picture: on a telephone its letters are three quarters of their size."""
_HEIGHT_IN = 3.4
_COLUMN_IN = 3.5
_LONGEST = 26
"""Maximum number of letters in a line beside a plot."""
_LONGEST_VALUE = 20
_BARS_DRAWN = 10
"""Maximum number of bars of a column of categories."""
TRUE = "real (not private)"


def _style(*, grid_axis: Literal["x", "y", "both"] = "y") -> AbstractContextManager[None]:
    """Returns a context with the settings for drawing and writing a figure; it restores matplotlib's own afterwards."""
    return mpl.rc_context(
        {
            "text.parse_math": False,
            "svg.fonttype": "none",
            "svg.hashsalt": "syncret",
            "font.family": "sans-serif",
            "font.size": 9.0,
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
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
    """Returns the width of the longest line of the labels in inches, in a wide font."""
    lines = (line for text in labels for line in text.split("\n"))
    return size / 72 * max((sum(map(_letter_width, line)) for line in lines), default=0.0)


def _letter_width(letter: str) -> float:
    """Returns the width of a letter in parts of its height, as in the widest of the usual fonts or more."""
    if letter in "mwMW@%\N{HORIZONTAL ELLIPSIS}" or unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    if letter in "iljtfrI.,:;'|!()[] ":
        return 0.42
    return 0.79 if letter.isupper() else 0.64


def _stacked(names: Sequence[str], rows: float) -> tuple[Figure, Axes, Axes]:
    """Returns a figure of two plots, one with ``names`` at its left, so many rows, above one of all queries."""
    upper, lower, between = 0.24 * rows, 1.5, 1.05
    height = 0.3 + upper + between + lower + 0.5
    figure = Figure(figsize=(_WIDTH_IN, height))
    left, wide = 0.15 + _width_in(names), _WIDTH_IN - 0.12
    first = figure.add_axes(
        (left / _WIDTH_IN, 1 - (0.3 + upper) / height, (wide - left) / _WIDTH_IN, upper / height)
    )
    second = figure.add_axes(
        (0.5 / _WIDTH_IN, 0.5 / height, (wide - 0.5) / _WIDTH_IN, lower / height)
    )
    return figure, first, second


def _rows_of(names: Sequence[str]) -> float:
    """Returns the height of the names in rows, of at least six; a name in two lines needs half a row more."""
    return max(6.0, len(names) * (1.5 if any("\n" in name for name in names) else 1.0))


def _two_lines(text: str, longest: int) -> str:
    """Returns a text, in two lines if it is longer than one, cut at a space or sign near the middle."""
    if len(text) <= longest:
        return text
    half = len(text) // 2
    signs = [
        i + 1 for i, c in enumerate(text) if not c.isalnum() and abs(i + 1 - half) <= half // 2
    ]
    cut = min(signs, key=lambda i: abs(i - half), default=half)
    return f"{text[:cut].rstrip()}\n{text[cut:]}"


def _query_label(columns: Sequence[str]) -> str:
    """Returns the name of a query in one line, or in two if it is long."""
    whole = plain_label(" \N{MULTIPLICATION SIGN} ".join(columns), longest=2 * _LONGEST)
    return _two_lines(whole, _LONGEST)


def draw_attacker(points: Sequence[tuple[float, float]]) -> Figure:
    """Draws the share of the present that the best attacker finds, by its falsely suspected share of the absent."""
    with _style(grid_axis="both"):
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN))
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
        names = [_query_label(item.query) for item in named]
        figure, largest, every = _stacked(names, _rows_of(names))
        positions = np.arange(len(named))
        largest.barh(positions, [item.error for item in named], height=0.7, color=BLUE)
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
        names = [_query_label(item.query) for item in named]
        figure, best, every = _stacked(names, _rows_of(names))
        for position, item in enumerate(named):
            best.plot((item.low, item.high), (position, position), color=GREY, linewidth=5)
            if item.likely is not None:
                best.plot((item.low, item.likely), (position, position), color=LIKELY, linewidth=5)
            best.plot(item.expected, position, "o", color=BLUE, markersize=4.5)
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


def draw_association(
    columns: Sequence[str], matrix: Sequence[Sequence[float]], title: str
) -> Figure:
    """Draws the associations of each two columns; the diagonal is left out."""
    size = len(columns)
    levels = np.linspace(0.0, 1.0, 11)
    with _style():
        names = [_two_lines(plain_label(name, longest=36), 18) for name in columns]
        room, right, above, scale_in = 0.15 + _width_in(names, _pair_size(size)), 0.12, 0.3, 0.62
        inside = min(_WIDTH_IN - room - right, 0.5 * size)
        height = above + inside + room + scale_in
        figure = Figure(figsize=(_WIDTH_IN, height))
        axes = figure.add_axes(
            (room / _WIDTH_IN, (room + scale_in) / height, inside / _WIDTH_IN, inside / height)
        )
        # Ten steps: an eye distinguishes no more, and the scale stays a vector drawing.
        norm = BoundaryNorm(levels, PAIRS.N)
        scale = ScalarMappable(norm, PAIRS)
        values = np.ma.masked_array(matrix, mask=np.eye(size, dtype=bool))
        axes.pcolormesh(values, cmap=PAIRS, norm=norm, edgecolors="white", linewidth=0.5)
        _label_pairs(axes, names)
        axes.set(title=title, aspect="equal", ylim=(size, 0))
        if size <= MAX_COLUMNS_NUMBERED:
            _write_numbers(axes, values)
        below = figure.add_axes(
            (room / _WIDTH_IN, 0.42 / height, (_WIDTH_IN - room - 0.3) / _WIDTH_IN, 0.12 / height)
        )
        figure.colorbar(
            scale, cax=below, orientation="horizontal", ticks=levels[::2], label="Cramér's V"
        )
    return figure


def _pair_size(columns: int) -> float:
    """Returns the size of the letters beside a matrix, smaller for many columns."""
    return 8.0 if columns <= 14 else max(6.5, 112.0 / columns)


def _label_pairs(axes: Axes, labels: Sequence[str]) -> None:
    positions = np.arange(len(labels)) + 0.5
    axes.grid(visible=False)
    axes.set_xticks(positions, labels, rotation=90)
    axes.set_yticks(positions, labels)
    axes.tick_params(length=0, labelsize=_pair_size(len(labels)))
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
        figure = Figure(figsize=(_WIDTH_IN, 5.2))
        per_round, so_far = figure.subplots(
            2,
            1,
            gridspec_kw={"left": 0.16, "right": 0.97, "bottom": 0.1, "top": 0.94, "hspace": 0.5},
        )
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
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
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
        axes.set(xlabel=f"sent by {who}", xlim=(0, max(1.0, left.max(initial=0.0)) * 1.3))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
        if servers > 1:
            axes.legend(loc="lower right", ncols=3)
    return figure


def draw_accuracy(found: Accuracy, *, log_step: float = 2.5) -> Figure:
    """Draws the expected error of pairs by epsilon: of runs like this one, of a trusted party, of shuffled columns."""
    with _style(grid_axis="both"):
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN))
        axes = figure.subplots()
        epsilons = [one.epsilon for one in found.by_epsilon]
        # Room for the legend above the dashed line; very private runs like this one may be out of sight.
        top = 1.75 * max(found.run.independent, found.run.table)
        compared = found.run.independent > 0
        if compared:
            axes.axhline(
                found.run.independent, color=ORANGE, linestyle="--", label="columns shuffled"
            )
        axes.plot(
            epsilons,
            [one.table for one in found.by_epsilon],
            color=BLUE,
            label="runs like this one",
        )
        if compared:
            axes.plot(
                epsilons,
                [one.trusted for one in found.by_epsilon],
                color=GREEN,
                linestyle="-.",
                label="a trusted party",
            )
        axes.plot(found.run.epsilon, found.run.table, "o", color=BLUE, label="this run")
        axes.set(xlabel="epsilon: less private to the right", ylabel="pairs off, share of the rows")
        axes.set(xscale="log", ylim=(0, top), xlim=(epsilons[0], epsilons[-1]))
        shown = [
            e
            for i, e in enumerate(epsilons)
            if i == 0 or e >= log_step * epsilons[i - 1] or _is_ten(e)
        ]
        axes.set_xticks(shown, [f"{e:g}" for e in shown])
        axes.minorticks_off()
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(_in_percent))
        axes.legend(loc="upper right")
        _set_margins(figure, left=0.7, right=0.2, bottom=0.5, top=0.15)
    return figure


def _is_ten(value: float) -> bool:
    return float(np.log10(value)).is_integer()


def _in_percent(share: float, _: object = None) -> str:
    return f"{100 * share:.3g} %"


def draw_column(item: ColumnShares) -> Figure:
    """Draws a one-way marginal with the intervals of its figures, and the real ones if at hand.

    Categories are bars from left to right, the commonest first; numbers and dates stand on their axis, with their
    quantiles and mean below.
    """
    with _style(grid_axis="x" if item.ticks is None else "y"):
        return _draw_categories(item) if item.ticks is None else _draw_numbers(item)


def _draw_categories(item: ColumnShares) -> Figure:
    order = sorted(range(len(item.labels)), key=lambda i: (-item.synthetic[i], i))
    shown = order[:_BARS_DRAWN] if len(order) > _BARS_DRAWN + 1 else order
    names = [_two_lines(plain_label(item.labels[i], longest=44), _LONGEST_VALUE) for i in shown]
    row = 0.34 if any("\n" in name for name in names) else 0.24
    figure = Figure(figsize=(_COLUMN_IN, 0.45 + row * len(shown)))
    axes = figure.subplots()
    _set_margins(figure, left=0.15 + _width_in(names, 8.0), right=0.2, bottom=0.3, top=0.1)
    axes.barh(
        range(len(shown)), [item.synthetic[i] for i in shown], height=0.7, color=BLUE, alpha=0.55
    )
    bars = {bar.name: bar for bar in item.errors}
    for position, i in enumerate(shown):
        bar = bars.get(item.labels[i].removeprefix("= "))
        if bar is not None:
            _interval_line(axes, bar, position)
        real = None if item.real is None else item.real[i]
        if real is not None:
            axes.plot(real, position, "D", color=ORANGE, markersize=4.5, label=TRUE)
    axes.set_yticks(range(len(shown)), names)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, None)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(_in_percent))
    axes.tick_params(labelsize=8.0)
    if len(shown) < len(order):
        rest = sum(item.synthetic[i] for i in order[_BARS_DRAWN:])
        axes.annotate(
            f"{len(order) - len(shown)} more: {_in_percent(rest)}",
            (1, 0),
            xycoords="axes fraction",
            ha="right",
            va="bottom",
            fontsize=8.0,
        )
    return figure


def _interval_line(axes: Axes, bar: ErrorBar, position: float) -> None:
    axes.errorbar(
        (bar.low + bar.high) / 2,
        position,
        xerr=(bar.high - bar.low) / 2,
        color=INK,
        capsize=2.5,
        linewidth=1.2,
    )


def _draw_numbers(item: ColumnShares) -> Figure:
    strip = 0.2 * len(item.errors)
    height = 0.1 + 1.25 + 0.38 + (strip + 0.1 if strip else 0.0)
    figure = Figure(figsize=(_COLUMN_IN, height))
    left, width = 0.62 / _COLUMN_IN, 1 - 0.82 / _COLUMN_IN
    axes = figure.add_axes((left, 1 - 1.35 / height, width, 1.25 / height))
    positions = np.arange(len(item.labels))
    axes.bar(positions, item.synthetic, color=BLUE, alpha=0.55, width=0.92)
    if item.real is not None:
        size = 4.5 if len(positions) <= 20 else 3.0
        axes.plot(positions, item.real, "D", color=ORANGE, markersize=size, label=TRUE)
    axes.set_ylim(0, None)
    axes.set_xlim(-0.6, len(positions) - 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(_in_percent))
    axes.tick_params(labelsize=8.0)
    ticks = item.ticks or ()
    axes.set_xticks([tick.position for tick in ticks], [plain_label(tick.text) for tick in ticks])
    if strip:
        below = figure.add_axes((left, 0.08 / height, width, strip / height))
        for position, bar in enumerate(item.errors):
            _interval_line(below, bar, position)
            if bar.synthetic is not None:
                below.plot(bar.synthetic, position, "o", color=BLUE, markersize=4.5)
            if bar.true is not None:
                below.plot(bar.true, position, "D", color=ORANGE, markersize=4.5, label=TRUE)
        below.set_yticks(range(len(item.errors)), [bar.name for bar in item.errors])
        below.set(ylim=(len(item.errors) - 0.4, -0.6), xlim=axes.get_xlim())
        below.set_xticks([tick.position for tick in ticks], [""] * len(ticks))
        below.tick_params(labelsize=8.0, length=0)
        below.grid(visible=True, axis="x")
        below.grid(visible=False, axis="y")
        for side in below.spines.values():
            side.set_visible(False)
    return figure


def format_bytes(size: float) -> str:
    """Returns a size in decimal units, with three digits."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} B"
