"""Table 5 of the FLAIM paper: how heterogeneous the partitions of the benchmark tables are.

Provides `measure_splits`. Public: everything. 100 clients, the 64 queries of the utility benchmark.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench.heterogeneity import heterogeneity
from bench.utility.grid import TABLES
from bench.utility.problem import problem
from bench.utility.settings import Settings
from parties.files import write_whole

SPLITS: tuple[tuple[str, dict[str, float]], ...] = (
    ("iid", {}),
    ("clustering", {}),
    ("label-skew", {"beta": 0.1}),
    ("label-skew", {"beta": 0.8}),
)


def measure_splits(path: Path, *, progress: Callable[[str], None] = lambda line: None) -> None:
    """Write one record for each table and partition to `path`. Raises DatasetError, OSError, StoreError."""
    rows = []
    for dataset in TABLES:
        for partition, options in SPLITS:
            settings = Settings(
                dataset=dataset,
                method="distaim",
                partition=partition,
                **options,  # type: ignore[arg-type]
            )
            posed = problem(settings, progress=progress)
            if posed.partition is None:
                raise RuntimeError("every method but central AIM has a partition")
            distances = heterogeneity(posed.workload, posed.dataset.train, posed.partition.owners)
            sizes = posed.partition.sizes
            name = partition + "".join(f", {key} = {value:g}" for key, value in options.items())
            rows.append(
                {"dataset": dataset, "partition": name, **asdict(distances)}
                | {"smallest_client": int(sizes.min()), "largest_client": int(sizes.max())}
            )
            progress(f"{dataset}, {name}: {distances.mean:.3f}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(rows, indent=1) + "\n")
