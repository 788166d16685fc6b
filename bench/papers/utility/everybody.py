"""The report's section on DistAIM by rows with all owners beside private FLAIM with a tenth of them, and their bytes.

DistAIM is its loop on counts in the clear: servers that count rows have the same sums, and with all owners counted from
the start a partition makes no difference. Bytes are by formula, from the records of `syncret bench overhead` beside the
report; without them the cells are empty.
"""

from collections.abc import Sequence
from pathlib import Path

from bench.experiment.markdown import markdown_table, spread
from bench.experiment.means import values_of
from bench.methods.settings import Settings
from bench.overhead.client_tables import Document, is_papers_population, results_of
from bench.overhead.jobs import FORMULA, Records
from bench.papers.utility import grid
from bench.papers.utility.store import Entry, Store
from protocols.upload import ROWS

OVERHEAD = "overhead.json"
"""File of the records of bytes beside the report."""
_COMMAND = "syncret bench utility --sweep rows --results bench/results/utility.jsonl --output bench/results"
_HEADS = (
    "table | T | DistAIM by rows, p = 1: error | NLL | AUC | runs | FLAIM private, p = 0.1, clustering: error | NLL"
    " | AUC | runs | iid: error | NLL | AUC | runs | rows: an owner's KB, once | FLAIM: a client's KB"
)


def everybody_section(store: Store, folder: Path) -> str:
    """Returns the section; tables without a run are left out. Raises DatasetError for damaged records."""
    title = "## Rows: everybody takes part\n\n"
    records = Records(folder / OVERHEAD).of(FORMULA)
    rows = [
        row
        for dataset in grid.ROWS_TABLES
        if (row := _row(store, dataset, [record.document for record in records]))
    ]
    if not rows:
        return title + "Not run.\n"
    return (
        f"{title}`{_COMMAND}` (goes on where it was)\n\n"
        "An owner that sends rows sends them once, whoever else comes, so that all can take part from the start; by\n"
        "rows DistAIM's result is that of counts. A FLAIM client takes part in a tenth of the rounds. Bytes: both\n"
        "directions on the wire of one owner of an even split, by the formulas of `syncret bench overhead\n"
        "--formula-only` (`overhead.json`), FLAIM's of a client that takes part at all, grouping `union`.\n\n"
        f"{markdown_table(_HEADS, rows)}\n"
    )


def _row(store: Store, dataset: str, documents: Sequence[Document]) -> tuple[str, ...] | None:
    distaim = [
        entry
        for partition in ("iid", "clustering")
        for entry in store.all_of(grid.everybody(dataset, partition))
    ]
    private = [
        store.all_of(Settings(dataset=dataset, method="private", partition=partition))
        for partition in ("clustering", "iid")
    ]
    if not distaim:
        return None
    rounds = distaim[0].settings.rounds
    cells = [cell for runs in (distaim, *private) for cell in _cells(runs)]
    return (dataset, str(rounds), *cells, *_bytes(documents, dataset, rounds))


def _cells(entries: Sequence[Entry]) -> tuple[str, ...]:
    if not entries:
        return "not run", "", "", "0"
    aucs = values_of(entries, "auc")
    return (
        spread(values_of(entries, "workload_error"), 3),
        spread(values_of(entries, "nll"), 2),
        spread(aucs, 3) if aucs else "-",
        str(len(entries)),
    )


def _bytes(documents: Sequence[Document], dataset: str, rounds: int) -> tuple[str, str]:
    """Returns KB of an owner of rows and of FLAIM's client at this T; empty without records."""
    for document in documents:
        if document["dataset"] == dataset and is_papers_population(document):
            rows = results_of(document, "distaim", ROWS, rounds)
            flaim = results_of(document, "flaim", "union", rounds)
            if rows and flaim:
                own, client = (1000 * one[0]["predicted_wire_mb"] for one in (rows, flaim))
                return f"{own:.1f}", f"{client:.1f}"
    return "", ""
