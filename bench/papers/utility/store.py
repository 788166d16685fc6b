"""The runs of the utility benchmark and their results (`bench.experiment.runs`)."""

from pathlib import Path

from bench.experiment import runs
from bench.methods.settings import Settings
from bench.papers.utility.runs import Result

Entry = runs.Entry[Settings, Result]
Store = runs.RunStore[Settings, Result]


def open_store(path: Path) -> Store:
    """Opens a file of runs. Raises DatasetError for another file."""
    return runs.RunStore(path, "syncret bench utility", Settings, Result)
