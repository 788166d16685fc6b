"""The report's section on fitting that ends once the loss is that of noise, beside fitting to the end.

The paper has no such thing: its authors stop by a number of steps. The loss of the right model is half the number of
measured cells on the mean, since only noise separates it from the measurements; a lower loss follows the noise
(`bench.methods.authors_fit`).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

from bench.experiment.markdown import filled, markdown_table, spread
from bench.experiment.means import values_of
from bench.methods.settings import STOPPING
from bench.papers.utility import grid
from bench.papers.utility.store import Entry, Store

_MEASURES = ("workload_error", 3), ("nll_raw", 2), ("auc", 3)


def stopping_section(store: Store) -> str:
    """Returns a table of both on the tables of the sweep, and advice to users."""
    title = "## Fitting that ends at the noise level\n\n"
    rows, better, worse = [], 0, 0
    for dataset, method in product(grid.STOPPING_TABLES, grid.STOPPING_METHODS):
        chosen = grid.default(dataset, method)
        runs = [store.all_of(chosen), store.all_of(replace(chosen, estimator=STOPPING))]
        if not all(runs):
            continue
        shown = [_spread(entries, name, digits) for name, digits in _MEASURES for entries in runs]
        seconds = (f"{fmean(entry.result.seconds for entry in entries):.0f}" for entries in runs)
        counts = ", ".join(str(len(entries)) for entries in runs)
        rows.append((dataset, method, *shown, *seconds, counts))
        before, after = (fmean(values_of(entries, "workload_error")) for entries in runs)
        better, worse = better + (after < before), worse + (after > before)
    if not rows:
        return title + "Not run.\n"
    heads = (
        "table | method | error: to the end | at the noise | NLL: to the end | at the noise | AUC: to the end"
        " | at the noise | seconds: to the end | at the noise | runs"
    )
    said = f"""
    `--estimator stopping`: as ours, but that each fit ends once its loss is half the number of measured cells, which
    is what noise alone makes of it. NLL is raw. Of {len(rows)} means of errors {better} are lower by it and {worse}
    higher.
    """
    return f"{title}{filled(said)}\n\n{markdown_table(heads, rows)}\n"


def _spread(entries: Sequence[Entry], name: str, digits: int) -> str:
    values = values_of(entries, name)
    return spread(values, digits) if values else ""
