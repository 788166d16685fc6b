"""The page of the utility benchmark, from all the runs of a store.

Every figure is computed from the stored runs; the paper's are beside them (`bench.papers.utility.beside_paper`,
`bench.papers.utility.figures`). Missing runs are marked.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

from bench.experiment.appendix import parted
from bench.experiment.documents import publish
from bench.experiment.markdown import markdown_table, spread
from bench.experiment.means import values_of
from bench.experiment.verdicts import Kind, tally
from bench.fetch import DatasetError
from bench.methods.flaim import flaim_settings
from bench.methods.settings import METHODS, Settings
from bench.overhead.jobs import Records
from bench.papers.gan.outcomes import read_outcomes
from bench.papers.mwem.cli import mwem_section
from bench.papers.utility import grid
from bench.papers.utility.beside_paper import Sources, beside_paper
from bench.papers.utility.everybody import OVERHEAD, everybody_section
from bench.papers.utility.figures import PICTURES, picture
from bench.papers.utility.portraits import portraits_section
from bench.papers.utility.scope import scope_section
from bench.papers.utility.sizes import SIZES_FILE, read_sizes
from bench.papers.utility.smoothing import Gaps, smoothing_section
from bench.papers.utility.splits import QUERIES, SPLITS_FILE, read_splits
from bench.papers.utility.stopping import stopping_section
from bench.papers.utility.store import Entry, Store
from bench.papers.utility.summary import summary
from mechanisms.accounting import epsilon_from_rho
from mechanisms.replacement import rho_of_replacing
from parties.foundation.errors import StoreError
from parties.storage.files import disk_errors

FRONT = ("What is run", "Where Syncret goes beyond")
"""Sections of the page that are not for its appendix."""


def write_report(store: Store, folder: Path) -> None:
    """Writes utility.md and its pictures into `folder`. Raises DatasetError if that cannot be written."""
    beside = beside_paper(
        store,
        Sources(
            read_splits(folder / SPLITS_FILE),
            read_outcomes(folder),
            read_sizes(folder / SIZES_FILE),
            Records(folder / OVERHEAD),
        ),
    )
    undecided = tally(beside.cells)[Kind.SMOOTHED]
    parts = [
        _head(store),
        summary(store, beside.cells),
        scope_section(store),
        beside.text,
        smoothing_section(Gaps.of(store), undecided),
        stopping_section(store),
        *(table(store) for table in (_methods, _parts, _partitions, _rounds)),
        everybody_section(store, folder),
        mwem_section(folder),
        _splits(folder),
    ]
    try:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name in PICTURES:
                # Figures 4 and 5 have no runs.
                parts += portraits_section(folder) if name == "fig6" else []
                parts += picture(store, folder, name)
            publish(folder, parted("utility.md", "\n".join(parts), FRONT))
    except StoreError as error:
        raise DatasetError(str(error)) from error


def _head(store: Store) -> str:
    return (
        "# Utility\n\n"
        "Made by `make bench-utility` from `utility.jsonl`, DP-CTGAN's rows from `utility-gan.json`, DistMWEM's from\n"
        "`utility-mwem.json`, Tables 4 and 5 from `utility-tables.json` and `utility-splits.json`, bytes from\n"
        "`overhead.json`; the methods and what was found are in `../notes/utility.md`.\n"
        "Unless said otherwise: K = 100 clients, clustering, p = 0.1, T = 10, epsilon = 1, delta = 1e-5, r = 0.9, 64\n"
        "random three-way queries (seed 123), 100 PGM iterations a round and 1,000 at the end, 90 % of the rows to\n"
        "work from. Error: average L1 distance, 0 to 2, between normalised marginals of synthetic and training\n"
        "rows over the 64 queries (closure: over them and their subsets). NLL: mean over held-out rows, in nats.\n"
        "AUC: of boosted trees trained on synthetic rows, on held-out rows. ± is the deviation between repeats.\n\n"
        f"{_sizes()}\n\n"
        f"{store.count} runs.\n"
    )


def _sizes() -> str:
    """Explains the neighbouring tables that epsilon is for."""
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
        for dataset, method in product(grid.PAPERS_TABLES, METHODS)
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


def _parts(store: Store) -> str:
    """Returns the ablations of Figure 2 at T = 10."""
    rows = []
    for dataset, (part, changes) in product(grid.TABLES, grid.ABLATIONS.items()):
        if entries := store.all_of(Settings(dataset=dataset, **changes)):
            errors, likelihoods = _spread(entries, "workload_error", 3), _spread(entries, "nll", 2)
            rows.append((dataset, part, str(len(entries)), errors, likelihoods))
    if not rows:
        return "## What each part of private does\n\nNot run.\n"
    table = markdown_table("table | FLAIM with | repeats | error | NLL", rows)
    return f"## What each part of private does, epsilon = 1, T = 10\n\n{table}\n"


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
    """Returns errors and likelihoods by T, of which the overhead tables take the best (Table 3)."""
    title = "## By the number of rounds T\n\n"
    runs_of = {
        (dataset, method, number): entries
        for dataset in grid.TABLE3_TABLES
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
    """Returns the figures of `bench.papers.utility.splits` over the 64 queries; Table 5 itself is beside the paper."""
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


def _mean(entries: Sequence[Entry], name: str) -> float:
    return fmean(values_of(entries, name))


def _spread(entries: Sequence[Entry], name: str, digits: int) -> str:
    return spread(values_of(entries, name), digits)
