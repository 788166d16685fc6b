"""The plots of the overhead page. Provides ``plot_growth`` and ``plot_tables``. Public."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from bench.overhead.record import Record

_LABELS = {
    "cells": "cells of the workload's closure",
    "clients": "clients K (a tenth take part in a round)",
    "rounds": "rounds T",
    "attributes": "columns of 32 codes",
}
_COLOURS = {
    ("distaim", "plain"): "C3",
    ("distaim", "seeded"): "C1",
    ("flaim", "union"): "C0",
    ("flaim", "query"): "C2",
}


def plot_growth(records: Sequence[Record], path: Path) -> None:
    """One panel for each axis: our formula as lines, measured points as marks, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, 2, figsize=(10, 7.5), squeeze=False, sharey=True, layout="constrained"
    )
    by_axis = {str(record.document["axis"]): record for record in records}
    for panel, (axis, label) in zip(axes.flat, _LABELS.items(), strict=True):
        record = by_axis.get(axis)
        points: Sequence[Mapping[str, Any]] = record.document["points"] if record else []  # type: ignore[assignment]
        for (method, variant), colour in _COLOURS.items():
            mine = sorted(
                (p for p in points if (p["method"], p["variant"]) == (method, variant)),
                key=lambda point: point["x"],
            )
            lines = [(p["x"], p["predicted_mb"]) for p in mine]
            marks = [(p["x"], p["measured_mb"]) for p in mine]
            name = {"distaim": "DistAIM", "flaim": "FLAIM"}[method]
            if mine:
                # What lies over another line is dashed, and its marks are hollow.
                over = variant == "query"
                panel.plot(
                    *zip(*lines, strict=True),
                    "--" if over else "-",
                    color=colour,
                    lw=1.2,
                    label=f"{name} {variant}",
                )
                inside = "none" if over else colour
                panel.plot(*zip(*marks, strict=True), "o", color=colour, mfc=inside, ms=5 + over)
        panel.set(xscale="log", yscale="log", xlabel=label, ylabel="MB of one client")
        _ticks(panel, {p["x"] for p in points})
        panel.grid(alpha=0.3, which="both", lw=0.4)
    if records:
        axes[0, 0].legend(fontsize=8)
    figure.suptitle("Messages of one participating client: lines by formula, marks measured")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def plot_tables(tables: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Table 7 as a picture: for each table, bytes on the wire by T, with the paper's formula dashed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # One panel is left over for the legend.
    columns = 4
    rows = len(tables) // columns + 1
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(10, 3 * rows + 0.5), squeeze=False, sharey=True, layout="constrained"
    )  # fmt: skip
    for panel in axes.flat[len(tables) :]:
        panel.set_axis_off()
    for panel, table in zip(axes.flat, tables, strict=False):
        results: Sequence[Mapping[str, Any]] = table["results"]
        for (method, variant), colour in _COLOURS.items():
            mine = [
                r
                for r in results
                if r["method"] == method and r.get("upload", r.get("grouping")) == variant
            ]
            name = {"distaim": "DistAIM", "flaim": "FLAIM"}[method]
            measured = [(r["rounds"], r["wire_mb"]) for r in mine if r["wire_mb"] is not None]
            if measured:
                panel.plot(
                    *zip(*measured, strict=True),
                    "o-",
                    color=colour,
                    ms=4,
                    label=f"{name} {variant}",
                )
            if variant in ("plain", "union") and mine:
                formula = [(r["rounds"], r["formula_mb"]) for r in mine]
                panel.plot(
                    *zip(*formula, strict=True),
                    "--",
                    color=colour,
                    lw=1,
                    label=f"{name}, paper's formula",
                )
        panel.set(xscale="log", yscale="log", xlabel="T", title=str(table["dataset"]))
        panel.grid(alpha=0.3, which="both", lw=0.4)
        _ticks(panel, {r["rounds"] for r in results})
    for panel in axes[:, 0]:
        panel.set_ylabel("MB of one client on the wire")
    if tables:
        axes[-1, -1].legend(*axes[0, 0].get_legend_handles_labels(), loc="center")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _ticks(panel: Axes, values: set[int]) -> None:
    """Marks the measured values on the logarithmic axis, and nothing between them."""
    ticks = sorted(values)
    panel.set_xticks(ticks, [f"{x:,}" for x in ticks], fontsize=8)
    panel.set_xticks([], minor=True)
