"""Table 4 of the FLAIM paper: how large the benchmark tables are, as they are coded here.

Provides `TableSize`, `measure_sizes`, `read_sizes` and the file's name `SIZES_FILE`. Public: everything.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.datasets import load
from bench.fetch import DatasetError
from bench.utility.paper import TABLE4
from parties.storage.files import write_atomic

SIZES_FILE = "utility-tables.json"


@dataclass(frozen=True, slots=True)
class TableSize:
    """`rows` in all, `train` of them to work from; `columns` with the target; `classes` None without one."""

    dataset: str
    rows: int
    train: int
    columns: int
    classes: int | None


def read_sizes(path: Path) -> list[TableSize]:
    """What `measure_sizes` wrote; nothing where there is no file. Raises DatasetError for another file."""
    try:
        return [TableSize(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise DatasetError(f"{path}: cannot be used: {error}") from error


def measure_sizes(path: Path, *, progress: Callable[[str], None] = lambda line: None) -> None:
    """Add what `path` lacks of the paper's tables; one that cannot be had is passed over. Raises DatasetError."""
    sizes = read_sizes(path)
    known = {size.dataset for size in sizes}
    for dataset in TABLE4:
        if dataset in known:
            continue
        try:
            table = load(dataset)
        except DatasetError as error:
            progress(f"{dataset}: left out of Table 4: {error}")
            continue
        shape = table.domain.shape
        classes = None if table.label is None else shape[table.label]
        rows = len(table.train) + len(table.test)
        sizes.append(TableSize(dataset, rows, len(table.train), len(shape), classes))
    path.parent.mkdir(parents=True, exist_ok=True)
    rows_of = [asdict(size) for size in sizes]
    write_atomic(path, json.dumps(rows_of, indent=1) + "\n")
