"""Runs of `syncret bench tables`: drawn tables with keys, measured beside the real ones, kept in ``tables.json``.

All values here are public: the tables are made up. The noise of a run is the real one; what is drawn from its models
comes of the job's seed.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.experiment.circumstances import commit, today
from bench.quality.environment import NotWithinError, ThirdPartyError
from bench.tables.data import SHAPES, made_tables
from bench.tables.measures import figures, within
from bench.tables.methods import HALVES, OURS, SDV, Budget, real_histories, synthesize

MEASURED = ("mechanisms", "parties", "bench/tables", "bench/*.py")
"""Code that a run measures, for its commit."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: ``persons`` of ``dataset``, by ``method``."""

    dataset: str
    method: str
    persons: int
    repeat: int
    budget: Budget

    def to_dict(self) -> dict[str, object]:
        """Returns all settings of the run, flat: no budget where nothing is spent."""
        values = {name: value for name, value in asdict(self).items() if name != "budget"}
        if self.method in OURS:
            values |= {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        return values | ({"limit_s": self.budget.limit_s} if self.method == SDV else {})

    @property
    def key(self) -> str:
        """Key of the run, the same for the same settings."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @property
    def command(self) -> str:
        """Command that repeats this run, and all repeats before it."""
        values = self.to_dict()
        names = ("dataset", "method", "persons", "epsilon", "delta")
        given = [f"--{name} {values[name]}" for name in names if name in values]
        given += [f"--limit {self.budget.limit_s:g}"] * (self.method == SDV)
        return " ".join(["syncret bench tables", *given, f"--repeats {self.repeat + 1}"])

    @property
    def seed(self) -> int:
        """Seed of the run's randomness."""
        return int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class Run:
    """A job and its result.

    ``figures`` are those of `bench.tables.measures.Figures`, ``real`` the real table's ``spread``, ``lag`` and
    ``stay``, ``counted`` the number of a person's rows that counted. ``failed`` is the reason for a missing result, and
    ``late`` is True if the run needed more processor time than it had.
    """

    job: Job
    figures: Mapping[str, Any] | None
    real: Mapping[str, Mapping[str, float]] | None
    seconds: float | None
    counted: int | None
    maker: str | None
    failed: str | None
    late: bool | None
    commit: str
    date: str

    def to_dict(self) -> dict[str, object]:
        """Returns a line of the file, and of `--json`."""
        values = {name: getattr(self, name) for name in _RESULTS}
        record = {name: value for name, value in values.items() if value is not None}
        made = {"command": self.job.command, "commit": self.commit, "date": self.date}
        return {"job": self.job.to_dict(), "record": record, **made}

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> "Run":
        """Returns the run of a line of the file. Raises KeyError or TypeError for another one."""
        values = dict(line["job"])
        own = {name: values.pop(name) for name in ("dataset", "method", "persons", "repeat")}
        job = Job(**own, budget=Budget(**values))
        results = {name: line["record"].get(name) for name in _RESULTS}
        return cls(job, **results, commit=line["commit"], date=line["date"])


_RESULTS = ("figures", "real", "seconds", "counted", "maker", "failed", "late")


def measure(job: Job) -> Run:
    """Draws and measures; a third party's failure is a run, too. Raises our methods' errors."""
    shape, tables = SHAPES[job.dataset], made_tables(job.dataset, job.persons)
    real, made = real_histories(shape, tables), (commit(MEASURED), today())
    if job.method == HALVES:
        one, other = real.halves(job.seed)
        found = figures(shape, one, other).to_dict()
        return Run(job, found, _rounded(within(shape, real)), None, None, None, None, None, *made)
    with tempfile.TemporaryDirectory(prefix="syncret-tables-") as folder:
        try:
            drawn = synthesize(
                job.method, shape, tables, budget=job.budget, seed=job.seed, folder=Path(folder)
            )
        except ThirdPartyError as error:
            late = isinstance(error, NotWithinError) or None
            return Run(job, None, None, None, None, None, str(error), late, *made)
    return Run(
        job,
        figures(shape, real, drawn.histories).to_dict(),
        _rounded(within(shape, real)),
        round(drawn.seconds, 1) or None,
        drawn.counted,
        drawn.maker,
        None,
        None,
        *made,
    )


def _rounded(figures: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {
        measure: {name: round(value, 4) for name, value in by_column.items()}
        for measure, by_column in figures.items()
    }
