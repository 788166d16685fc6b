"""Finished runs of `syncret bench quality`: a job, its record, and the commit and date. All values here are public."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.experiment.circumstances import commit, today
from bench.quality.methods import Budget
from bench.quality.runs import Job, Record

MEASURED = ("mechanisms", "parties", "bench/quality", "bench/methods", "bench/*.py", "examples")
"""Code that a run measures, for its commit."""


@dataclass(frozen=True, slots=True)
class QualityEntry:
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

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> "QualityEntry":
        """Returns the entry of a line of the file. Raises KeyError or TypeError for another one."""
        values = dict(line["job"])
        names = ("dataset", "method", "columns", "rows", "repeat")
        own = {name: values.pop(name) for name in names}
        job = Job(**own, budget=Budget(**values))
        return cls(job, Record.from_dict(line["record"]), line["commit"], line["date"])


def entry_of(job: Job, record: Record) -> QualityEntry:
    """Makes an entry with the current commit and date."""
    return QualityEntry(job, record, commit(MEASURED), today())
