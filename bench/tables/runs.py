"""Runs of `syncret bench tables`: drawn tables with keys, measured beside the real ones, kept in ``tables.json``.

All values here are public: the tables are made up. The noise of a run is the real one; what is drawn from its models
comes of the job's seed.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bench.experiment.circumstances import commit, today
from bench.quality.environment import QUALITY, NotWithinError, ThirdPartyError
from bench.tables.data import SHAPES, Shape, made_tables
from bench.tables.measures import Histories, figures, within
from bench.tables.methods import HALVES, OURS, THEIRS, Budget, real_histories, synthesize
from bench.tables.scores import scores

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
        return values | ({"limit_s": self.budget.limit_s} if self.method in THEIRS else {})

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
        given += [f"--limit {self.budget.limit_s:g}"] * (self.method in THEIRS)
        return " ".join(["syncret bench tables", *given, f"--repeats {self.repeat + 1}"])

    @property
    def seed(self) -> int:
        """Seed of the run's randomness."""
        return int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class Run:
    """A job and its result.

    ``figures`` are those of `bench.tables.measures.Figures`, ``real`` the real table's ``spread``, ``lag`` and
    ``stay``, ``counted`` the number of a person's rows that counted. ``scores`` are SDMetrics', which older runs and
    those of machines without SDMetrics lack; ``unscored`` is the reason if it failed. ``failed`` is the reason for a
    missing result, and ``late`` is True if the run needed more processor time than it had.
    """

    job: Job
    commit: str
    date: str
    figures: Mapping[str, Any] | None = None
    scores: Mapping[str, Any] | None = None
    unscored: str | None = None
    real: Mapping[str, Mapping[str, float]] | None = None
    seconds: float | None = None
    counted: int | None = None
    maker: str | None = None
    failed: str | None = None
    late: bool | None = None

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
        return cls(job, line["commit"], line["date"], **results)


_RESULTS = tuple(field.name for field in fields(Run) if field.name not in ("job", "commit", "date"))


def measure(job: Job) -> Run:
    """Draws and measures; a third party's failure is a run, too. Raises our methods' errors."""
    shape, tables = SHAPES[job.dataset], made_tables(job.dataset, job.persons)
    real, made = real_histories(shape, tables), (commit(MEASURED), today())
    plain = _rounded(within(shape, real))
    if job.method == HALVES:
        one, other = real.halves(job.seed)
        return Run(job, *made, **_beside(shape, one, other), real=plain)
    with tempfile.TemporaryDirectory(prefix="syncret-tables-") as folder:
        try:
            drawn = synthesize(
                job.method, shape, tables, budget=job.budget, seed=job.seed, folder=Path(folder)
            )
        except ThirdPartyError as error:
            late = isinstance(error, NotWithinError) or None
            return Run(job, *made, failed=str(error), late=late)
    return Run(
        job,
        *made,
        **_beside(shape, real, drawn.histories),
        real=plain,
        seconds=round(drawn.seconds, 1) or None,
        counted=drawn.counted,
        maker=drawn.maker,
    )


def _beside(shape: Shape, real: Histories, drawn: Histories) -> dict[str, Any]:
    """Returns our figures and, where SDMetrics is there, its scores or the reason for none."""
    found: dict[str, Any] = {"figures": figures(shape, real, drawn).to_dict()}
    if not QUALITY.there:
        return found
    with tempfile.TemporaryDirectory(prefix="syncret-scores-") as folder:
        try:
            return found | {"scores": scores(shape, real, drawn, folder=Path(folder))}
        except ThirdPartyError as error:
            return found | {"unscored": str(error)}


def _rounded(figures: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {
        measure: {name: round(value, 4) for name, value in by_column.items()}
        for measure, by_column in figures.items()
    }
