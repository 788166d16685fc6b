"""Finished runs of `syncret bench quality` in a JSON file, a line each, to which more can be added.

The file is replaced whole after every run, so that a stopped sweep continues. All values here are public.
"""

import datetime
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.experiment.circumstances import commit
from bench.fetch import DatasetError
from bench.quality.methods import Budget
from bench.quality.runs import Job, Record
from parties.storage.files import write_atomic

FILE = "quality.json"
_MEASURED = ("mechanisms", "parties", "bench/quality", "bench/methods", "bench/*.py", "examples")


@dataclass(frozen=True, slots=True)
class Entry:
    """A job, its record, and the commit and date of the run."""

    job: Job
    record: Record
    commit: str
    date: str

    def to_dict(self) -> dict[str, object]:
        """Returns a line of the file, and of `--json`."""
        record = {
            name: value for name, value in asdict(self.record).items() if value not in (None, ())
        }
        circumstances = {"command": self.job.command, "commit": self.commit, "date": self.date}
        return {"job": self.job.to_dict(), "record": record, **circumstances}


def entry_of(job: Job, record: Record) -> Entry:
    """Makes an entry with the current commit and date."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Entry(job, record, commit(_MEASURED), today)


def read_entries(folder: Path) -> list[Entry]:
    """Reads the entries of quality.json in a folder; none without the file. Raises DatasetError."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        lines = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return [_entry(line) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(
            f"{path}: is not a result of `syncret bench quality`; name another folder"
        ) from error


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Locks the folder's records for this process: commands may run side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_entries(folder: Path, entries: Sequence[Entry]) -> None:
    """Writes all entries, in the order of their jobs."""
    ordered = sorted(entries, key=lambda entry: entry.job.key)
    lines = ",\n".join(json.dumps(entry.to_dict(), sort_keys=True) for entry in ordered)
    write_atomic(folder / FILE, f'{{"runs": [\n{lines}\n]}}\n')


def _entry(line: dict[str, Any]) -> Entry:
    values = dict(line["job"])
    names = ("dataset", "method", "columns", "rows", "repeat")
    own = {name: values.pop(name) for name in names}
    job = Job(**own, budget=Budget(**values))
    return Entry(job, Record.from_dict(line["record"]), line["commit"], line["date"])
