"""Figures 4 and 5 of the FLAIM paper: the owners' tables, drawn from the tables and no runs.

Figure 4 is SynthFS, rows of a few clients by two features; Figure 5 Adult's rows at UMAP's points, coloured by client,
age, hours and income.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from bench.methods.problem import problem
from bench.methods.settings import Settings
from bench.methods.splits import embedded

FIGURE4_SKEWS = (1.0, 2.0, 5.0)
_CLIENTS = 8
_SHOWN_ROWS = 6000
_COLUMNS = ("age", "hours-per-week", "income>50K")
_NAMES = {
    "fig4": (
        "Figure 4: SynthFS, eight clients by two features",
        "with a small exponent of the Zipf law clients' means lie apart, with a large one on one another.",
    ),
    "fig5": (
        "Figure 5: Adult's rows as UMAP places them",
        "the clusters that become clients are groups by age, hours and income, not random parts of the plane.",
    ),
}


def draw_portraits(folder: Path, *, progress: Callable[[str], None] = lambda line: None) -> None:
    """Draws both into `folder`. Raises DatasetError if a table is not available, ImportError without UMAP."""
    folder.mkdir(parents=True, exist_ok=True)
    _synthfs().savefig(folder / "utility-fig4.png", dpi=90)
    _adult(progress).savefig(folder / "utility-fig5.png", dpi=90)


def portraits_section(folder: Path) -> list[str]:
    """Returns the page's parts on the pictures that exist."""
    return [
        f"## {title}\n\n![{title}](utility-{name}.png)\n\nThe paper's and ours: {said}\n"
        for name, (title, said) in _NAMES.items()
        if (folder / f"utility-{name}.png").exists()
    ]


def _synthfs() -> Figure:
    figure = Figure(figsize=(9, 3), layout="constrained")
    for axes, skew in zip(figure.subplots(1, len(FIGURE4_SKEWS)), FIGURE4_SKEWS, strict=True):
        settings = Settings(dataset="synthfs", method="distaim", partition="natural", skew=skew)
        posed = problem(settings)
        if posed.partition is None:
            raise RuntimeError("SynthFS has owners")
        codes, rng = posed.dataset.train, np.random.default_rng(0)
        for client in range(_CLIENTS):
            rows = codes[posed.partition.rows_of(client)][:, :2]
            # Codes are whole numbers: a small random shift keeps points from hiding others.
            x, y = (rows + rng.uniform(-0.4, 0.4, rows.shape)).T
            axes.scatter(x, y, s=2, alpha=0.5, color=f"C{client}")
        axes.set_title(f"skew {skew:g}", fontsize=9)
        axes.set_xlabel("feature 0")
        axes.set_ylabel("feature 1")
    return figure


def _adult(progress: Callable[[str], None]) -> Figure:
    posed = problem(Settings(dataset="adult", method="distaim"), progress=progress)
    if posed.partition is None:
        raise RuntimeError("clustering is a partition")
    dataset = posed.dataset
    points = embedded(dataset, seed=0, progress=progress)
    shown = np.random.default_rng(0).permutation(len(points))[:_SHOWN_ROWS]
    columns = {"client": posed.partition.owners} | {
        name: dataset.train[:, dataset.domain.index(name)] for name in _COLUMNS
    }
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    for axes, (name, values) in zip(figure.subplots(1, len(columns)), columns.items(), strict=True):
        colours = "prism" if name == "client" else "viridis"
        axes.scatter(*points[shown].T, c=values[shown], s=1, cmap=colours)
        axes.set_title(name, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
    return figure
