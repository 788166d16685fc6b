"""Table 4 of the FLAIM paper: sizes of the benchmark tables, as they are coded here."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.datasets import load
from bench.experiment.documents import read_records, write_json
from bench.fetch import DatasetError
from bench.papers.utility.paper import TABLE4

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
    """Reads the file of `measure_sizes`; empty without a file. Raises DatasetError for another file."""
    return read_records(path, "syncret bench utility", lambda row: TableSize(**row))


def measure_sizes(path: Path, *, progress: Callable[[str], None] = lambda line: None) -> None:
    """Adds the paper's tables that `path` lacks; skips one that is not available. Raises DatasetError."""
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
    write_json(path, [asdict(size) for size in sizes])
