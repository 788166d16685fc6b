"""Pictures of pages: panels in rows, written without a date or a program's name."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure


@contextmanager
def panels(
    path: Path, rows: int, columns: int, size: tuple[float, float], *, share_y: bool = False
) -> Iterator[tuple[Figure, list[list[Axes]]]]:
    """Makes a figure of ``rows`` by ``columns`` panels, and writes it to ``path`` when it is drawn."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
    yield figure, [list(row) for row in axes]
    figure.savefig(path, dpi=110, metadata={"Software": None})


@contextmanager
def panel_of_each(path: Path, names: Sequence[str], label: str) -> Iterator[list[Axes]]:
    """Makes a panel for each of ``names``, four in a row, with both axes logarithmic and one ``label`` of y.

    One panel is left over for the legend.
    """
    columns = 4
    rows = len(names) // columns + 1
    with panels(path, rows, columns, (10, 3 * rows + 0.5), share_y=True) as (_, places):
        every = [panel for row in places for panel in row]
        for panel in every[len(names) :]:
            panel.set_axis_off()
        for panel, name in zip(every, names, strict=False):
            panel.set(xscale="log", yscale="log", title=name)
            panel.grid(alpha=0.3, which="both", lw=0.4)
        yield every[: len(names)]
        for row in places:
            row[0].set_ylabel(label)
        if names:
            every[-1].legend(*every[0].get_legend_handles_labels(), loc="center")


def mark(panel: Axes, values: Collection[int]) -> None:
    """Marks the values on the logarithmic axis, and nothing between them."""
    ticks = sorted(values)
    panel.set_xticks(ticks, [f"{x:,}" for x in ticks], fontsize=8)
    panel.set_xticks([], minor=True)
