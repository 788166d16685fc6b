"""Table 5 of the FLAIM paper: heterogeneity of the benchmark tables' partitions.

A record is over `QUERIES` or `ALL`. 100 clients; over the 64 queries of the utility benchmark, and on the paper's two
tables over all marginals of one to three columns, as in the paper.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from bench.experiment.documents import Row, read_records, write_json
from bench.methods.problem import problem
from bench.methods.settings import Settings
from bench.papers.utility.grid import TABLES
from bench.papers.utility.heterogeneity import all_marginals, heterogeneity
from bench.papers.utility.paper import TABLE5

SPLITS: tuple[tuple[str, dict[str, float]], ...] = (
    ("iid", {}),
    ("label-skew", {"beta": 0.1}),
    ("label-skew", {"beta": 0.8}),
    # Last: it needs an embedding, which takes minutes.
    ("clustering", {}),
)
QUERIES, ALL = "queries", "all"
DRAWS = 5
"""Number of draws of label shares behind Table 5."""
SPLITS_FILE = "utility-splits.json"
_DEGREE = 3


def read_splits(path: Path) -> list[Row]:
    """Reads the file of `measure_splits`; empty without a file. Raises DatasetError for another file."""
    # The first records were over the queries, and did not say so.
    return read_records(path, "syncret bench utility", lambda row: {"over": QUERIES, **row})


def measure_splits(path: Path, *, progress: Callable[[str], None] = lambda line: None) -> None:
    """Adds a record for each missing table and partition to `path`, one by one, and further draws if they are missing.

    Raises DatasetError, OSError, StoreError.
    """
    rows = [dict(row) for row in read_splits(path)]
    known = {(row["dataset"], row["partition"], row["over"]): row for row in rows}
    for dataset, over, (partition, options) in _wanted():
        name = partition + "".join(f", {key} = {value:g}" for key, value in options.items())
        if (row := known.get((dataset, name, over))) is None:
            row = {**_measured(dataset, partition, options, over, progress), "partition": name}
            rows.append(row)
        elif "draws" in row or not _drawn(partition, over):
            continue
        if _drawn(partition, over):
            # The first draw is that of all runs.
            again = [
                _measured(dataset, partition, {**options, "partition_seed": seed}, over, progress)
                for seed in range(1, DRAWS)
            ]
            row["draws"] = [row["mean"], *(other["mean"] for other in again)]
        write_json(path, rows)
        progress(f"{dataset}, {name}, {over}: {row['mean']:.3f}")


def _drawn(partition: str, over: str) -> bool:
    """Returns True if draws of the partition differ altogether: label shares do, clusters are found again."""
    return partition == "label-skew" and over == ALL


def _wanted() -> Iterator[tuple[str, str, tuple[str, dict[str, float]]]]:
    papers = list(dict.fromkeys(dataset for dataset, _ in TABLE5))
    yield from product(papers, (ALL,), SPLITS)
    yield from product(TABLES, (QUERIES,), SPLITS)


def _measured(
    dataset: str,
    partition: str,
    options: Mapping[str, float],
    over: str,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    settings = Settings(dataset=dataset, method="distaim", partition=partition, **options)  # type: ignore[arg-type]
    posed = problem(settings, progress=progress)
    if posed.partition is None:
        raise RuntimeError("every method but central AIM has a partition")
    domain = posed.workload.domain
    marginals = all_marginals(domain, _DEGREE) if over == ALL else posed.workload.queries
    distances = heterogeneity(domain, marginals, posed.dataset.train, posed.partition.owners)
    sizes = posed.partition.sizes
    return {
        "dataset": dataset,
        "over": over,
        "marginals": len(marginals),
        **asdict(distances),
        "smallest_client": int(sizes.min()),
        "largest_client": int(sizes.max()),
    }
