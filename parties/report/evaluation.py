"""Evaluation of a run's synthetic table against a real one at hand: errors of queries, and distances of columns.

Secret: the real table, at its owner. The figures are computed from it without noise and are not private; they are for
its owner, and stand in no report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from mechanisms.column_values import as_measured, column_values
from mechanisms.metrics import query_errors, table_answers
from mechanisms.sampling import public_generator
from mechanisms.table import encode
from parties.config import load_config
from parties.report.columns import distance
from parties.report.from_result import read_table_of
from parties.report.public import measured_config
from parties.session.owner import Table
from parties.session.study import Study


@dataclass(frozen=True, slots=True)
class QueryDistance:
    """The L1 distance, 0 to 2, of the synthetic table from the real one in one query's ``columns``.

    ``shuffled`` is that of the real table with each column shuffled: what no joint distribution is worth.
    """

    columns: tuple[str, ...]
    error: float
    shuffled: float


@dataclass(frozen=True, slots=True)
class ColumnDistance:
    """The distance, 0 to 1, of a column's values: total variation of texts, Kolmogorov's of numbers and dates."""

    column: str
    distance: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Distances of a synthetic table from a real one of ``rows`` rows; not private."""

    rows: int
    queries: tuple[QueryDistance, ...]
    columns: tuple[ColumnDistance, ...]

    @property
    def error(self) -> float:
        """Mean error of the queries."""
        return float(np.mean([query.error for query in self.queries]))

    @property
    def shuffled(self) -> float:
        """Mean error of the real table with each column shuffled."""
        return float(np.mean([query.shuffled for query in self.queries]))

    def to_dict(self) -> Mapping[str, object]:
        """Returns all figures, for JSON."""
        return {**asdict(self), "error": self.error, "shuffled": self.shuffled}

    def __str__(self) -> str:
        worst = sorted(self.columns, key=lambda column: -column.distance)[:3]
        shown = ", ".join(f"{column.column} {column.distance:.3f}" for column in worst)
        return (
            f"{len(self.queries)} queries are off by {self.error:.3f} on average (of at most 2; shuffled columns: "
            f"{self.shuffled:.3f}); the columns that differ most: {shown} (of at most 1). Not private: computed from "
            "the real table without noise"
        )


def evaluate_run(folder: Path, table: Table) -> Evaluation:
    """Compares the synthetic table of the run in ``folder`` with a real ``table``.

    Raises ConfigError or StoreError if the folder has no run, DataError for a table that does not fit its columns.
    """
    config = measured_config(load_config(folder / "config.toml"), folder)
    study = Study.of(config)
    made = read_table_of(config, folder)
    text = table.text(config)
    codes = encode(config.domain, text, source=table.source.shown, ignore_extra=table.ignore_extra)
    if not len(codes):
        raise ValueError("a real table without rows compares with nothing")
    shuffled = codes.copy()
    generator = public_generator(len(codes))
    for i in range(codes.shape[1]):
        shuffled[:, i] = generator.permutation(codes[:, i])
    real, synthetic, apart = (
        table_answers(study.workload, of) for of in (codes, made.codes, shuffled)
    )
    errors = query_errors(study.workload, real, synthetic).tolist()
    beside = query_errors(study.workload, real, apart).tolist()
    values = {
        of.column: of for of in as_measured(config.domain, column_values(config.domain, text))
    }
    return Evaluation(
        len(codes),
        tuple(
            QueryDistance(query, error, other)
            for query, error, other in zip(study.workload.queries, errors, beside, strict=True)
        ),
        tuple(
            ColumnDistance(of.column, distance(of, values[of.column]))
            for of in made.values
            if of.column in values
        ),
    )
