"""Runs of the quality benchmark: one synthetic table, judged by a third party's score, a classifier and its atoms.

All values here are public; the tables are published. A run's randomness is drawn from the job, so that it can be
repeated on the same machine; with `mpc`, and in smartnoise, it is the real one.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.metrics import auc_on_held_out
from bench.quality.environment import SCORE, NotWithinError, ThirdPartyError, ask
from bench.quality.forms import FORMS
from bench.quality.methods import (
    FEDERATED,
    NOT_PRIVATE,
    OURS,
    PERMUTED,
    PGM_AIM,
    REAL,
    THEIRS,
    Budget,
    synthesize,
)
from bench.quality.pairs import pair_distance
from bench.quality.survival import survival
from bench.quality.tables import (
    PRIVATE,
    SHAPED,
    UNIFORM,
    RealTable,
    features,
    load_table,
)
from mechanisms.metrics import table_answers, workload_error
from mechanisms.table import encode
from mechanisms.workload import draw_workload


@dataclass(frozen=True, slots=True)
class Job:
    """One run: `rows` of `dataset` at most, by `method`, with `columns` as `uniform`, `shaped` or `private`."""

    dataset: str
    method: str
    columns: str
    rows: int
    repeat: int
    budget: Budget

    def to_dict(self) -> dict[str, object]:
        """Returns all settings of the run, flat: no budget where nothing is spent, no owners where there are none."""
        values = {name: value for name, value in asdict(self).items() if name != "budget"}
        if self.method not in (REAL, PERMUTED, *NOT_PRIVATE):
            values |= {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        if self.method in FEDERATED:
            values["clients"] = self.budget.clients
        if self.method in THEIRS:
            values["limit_s"] = self.budget.limit_s
        return values | ({"mpc": True} if self.mpc else {})

    @property
    def mpc(self) -> bool:
        """True if servers and owners run as processes."""
        return self.budget.mpc and self.method in ("distaim", "standard-distaim")

    @property
    def key(self) -> str:
        """Key of the run, the same for the same settings."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @property
    def command(self) -> str:
        """Command that repeats this run, and all repeats before it."""
        names = ("dataset", "method", "columns", "rows", "epsilon", "delta", "clients")
        values = self.to_dict()
        given = [f"--{name} {values[name]}" for name in names if name in values]
        limit = [f"--limit {values['limit_s']:g}"] if "limit_s" in values else []
        mpc = ["--mpc"] * self.mpc
        words = ["syncret bench quality", *given, *limit, *mpc, f"--repeats {self.repeat + 1}"]
        return " ".join(words)

    @property
    def seed(self) -> int:
        """Seed of the run's randomness."""
        return int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:7], "big")


@dataclass(frozen=True, slots=True)
class Atom:
    """A value with a cell of its own in the shaped domain, and its share of the rows in either table."""

    column: str
    value: float
    real: float
    synthetic: float


@dataclass(frozen=True, slots=True)
class Record:
    """Result of a job.

    `shapes` and `pairs` are the score's, 0 to 1; `distance` is that of pairs in values (`bench.quality.pairs`); `auc`
    of trees trained on the synthetic rows and tested on held-out ones; `error` of 64 marginals, 0 to 2, on the cells of
    equal bins for any columns; `kept` is the kept part of the atoms' rows: the sum of min(real, synthetic)
    by that of real; None without atoms. Of an ugly table `survived` is the share of its checks that pass, `lost` the
    names of the others (`bench.quality.survival`).
    `failed` is the reason for a missing result, and `late` is True if the run needed more processor time than it had;
    everything else is None then.
    """

    shapes: float | None = None
    pairs: float | None = None
    auc: float | None = None
    error: float | None = None
    distance: float | None = None
    kept: float | None = None
    atoms: tuple[Atom, ...] = ()
    survived: float | None = None
    lost: tuple[str, ...] = ()
    train_rows: int | None = None
    synthetic_rows: int | None = None
    seconds: float | None = None
    scorer: str | None = None
    failed: str | None = None
    late: bool | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Record":
        """Makes a record from the result of `asdict`. Raises TypeError for unknown names."""
        atoms = tuple(Atom(**atom) for atom in values.get("atoms", ()))
        return cls(**{**values, "atoms": atoms, "lost": tuple(values.get("lost", ()))})


def columns_of(dataset: str, method: str, rows: int) -> tuple[str, ...]:
    """Returns the descriptions that a method is run with.

    private-pgm takes codes, SDV has a description of its own, private bins are central AIM's here, and some tables have
    no other.
    """
    if method == PGM_AIM:
        return (SHAPED,)
    domains = load_table(dataset, rows).domains
    one = method in (REAL, PERMUTED, *NOT_PRIVATE) or domains[UNIFORM] == domains[SHAPED]
    given = (UNIFORM,) if one else (UNIFORM, SHAPED)
    found = method in ("aim", "standard") and domains[PRIVATE] != domains[UNIFORM]
    return (*given, PRIVATE) if found else given


def measure(job: Job) -> Record:
    """Runs and judges; a third party's failure is a record, too. Raises DatasetError, MechanismError."""
    table = load_table(job.dataset, job.rows)
    with tempfile.TemporaryDirectory(prefix="syncret-quality-") as place:
        folder = Path(place)
        try:
            drawn, seconds = synthesize(
                job.method, table, job.columns, job.budget, seed=job.seed, folder=folder
            )
        except ThirdPartyError as error:
            late = isinstance(error, NotWithinError) or None
            return Record(failed=str(error), late=late)
        drawn = drawn[list(table.train.columns)]
        answer = _scored(table, drawn, folder)
    atoms = atom_shares(table, drawn)
    checks = survival(table.name, table.train, drawn)
    real = sum(atom.real for atom in atoms)
    return Record(
        shapes=round(float(str(answer["shapes"])), 4),
        pairs=round(float(str(answer["pairs"])), 4),
        auc=_auc(table, drawn),
        error=workload_error_of(table, drawn) if _has_cells(job) else None,
        distance=round(
            pair_distance(table.plain(table.train), table.plain(drawn), table.numbers), 4
        ),
        kept=round(sum(min(a.real, a.synthetic) for a in atoms) / real, 4) if real else None,
        atoms=atoms,
        survived=round(sum(c.passed for c in checks) / len(checks), 4) if checks else None,
        lost=tuple(check.name for check in checks if not check.passed),
        train_rows=len(table.train),
        synthetic_rows=len(drawn),
        seconds=round(seconds, 2),
        scorer=str(answer["scorer"]),
    )


def _has_cells(job: Job) -> bool:
    """True if all that a method draws is a value of the domain, so that its marginals have an error."""
    if job.method in (PERMUTED, *OURS):
        return True
    return job.method in THEIRS and job.method not in NOT_PRIVATE and job.dataset not in FORMS


def atom_shares(table: RealTable, drawn: pd.DataFrame) -> tuple[Atom, ...]:
    """Returns every atom with its share of the real and of the synthetic rows."""
    shares = []
    frames = [table.plain(frame) for frame in (table.train, drawn)]
    for column, value in table.atoms:
        real, synthetic = (
            float((pd.to_numeric(frame[column], errors="coerce") == value).mean())
            for frame in frames
        )
        shares.append(Atom(column, value, round(real, 5), round(synthetic, 5)))
    return tuple(shares)


def workload_error_of(table: RealTable, drawn: pd.DataFrame) -> float:
    """Returns the average L1 error, 0 to 2, of the workload of equal bins, counted on their cells."""
    domain = table.domains[UNIFORM]
    workload = draw_workload(domain, min(3, len(domain.columns)))
    real, synthetic = (
        table_answers(workload, encode(domain, frame, source=table.name, ignore_extra=True))
        for frame in (table.train, drawn)
    )
    return round(workload_error(workload, real, synthetic), 4)


def _scored(table: RealTable, drawn: pd.DataFrame, folder: Path) -> Mapping[str, object]:
    paths = {"real": folder / "real.csv", "synthetic": folder / "drawn.csv"}
    for path, frame in zip(paths.values(), (table.train, drawn), strict=True):
        table.plain(frame).to_csv(path, index=False)
    request = {name: str(path) for name, path in paths.items()} | {"kinds": table.kinds}
    # A score that fails is a fault of the benchmark and not a finding.
    return ask(SCORE, request, limit_s=600)


def _auc(table: RealTable, drawn: pd.DataFrame) -> float | None:
    (_, held_out, synthetic), label = features(
        table.kinds,
        table.target,
        [table.plain(frame) for frame in (table.train, table.test, drawn)],
    )
    if len(np.unique(held_out[:, label])) < 2:
        return None
    return round(auc_on_held_out(synthetic, held_out, label), 4)
