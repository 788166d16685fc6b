"""What a data owner sends and receives: the paper's formula beside counted bytes (its Tables 3 and 7).

Provides ``Subject`` (a table's workload, its rows where they are at hand), ``published_domain``, ``Population``,
``formula_results``, ``measured_results`` and ``document``. DistAIM's uploads are measured by `upload`, FLAIM's rounds
by `flaim`. Figures are per participating client: one that takes part in at least one round. Public.

The domains of some tables are known without the tables. Columns and binning are those of `bench.datasets` (numbers in
32 bins); how many categories the others have is in the tables' published descriptions. Only the sizes are meant: the
columns hold the codes themselves. Known limits: `bench.datasets` reads categories from the table, and draws part of the
rows of intrusion, which may miss a rare category; census and marketing have too many to be listed here.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import datasets
from bench.datasets import BINS, RECIPES, TRAIN_SHARE
from bench.fetch import DatasetError
from bench.overhead.flaim import FlaimRun, Member, measure_flaim, measure_member
from bench.overhead.formula import MB, distaim_formula, flaim_formula
from bench.overhead.replay import (
    THREAT,
    Mean,
    Terms,
    check_members,
    mean_payload,
    private_settings,
    replay,
)
from bench.overhead.upload import Upload, measure_uploads
from bench.published import (
    ADULT_CODES,
    COVTYPE_COLUMNS,
    CREDIT_COLUMNS,
    INTRUSION_COLUMNS,
    MAGIC_COLUMNS,
    PUBLICATIONS,
)
from mechanisms.domain import Domain, Integer
from mechanisms.workload import Workload, draw_workload
from parties.trial.partition import iid
from protocols.upload import FORMS

GROUPINGS = ("union", "query")
PAPER_ROUNDS = (4, 32, 96)

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "adult": tuple(ADULT_CODES),
    "covtype": COVTYPE_COLUMNS,
    "credit": CREDIT_COLUMNS,
    "intrusion": INTRUSION_COLUMNS,
    "magic": MAGIC_COLUMNS,
}
# Of the columns that are neither binned nor whole numbers; UCI's and KDD's descriptions.
_CATEGORIES: Mapping[str, Mapping[str, int]] = {
    "covtype": {"cover_type": 7},
    "credit": {"Class": 2},
    "intrusion": {
        "protocol_type": 3,
        "service": 66,
        "flag": 11,
        "land": 2,
        "logged_in": 2,
        "root_shell": 2,
        "su_attempted": 3,
        "is_host_login": 1,
        "is_guest_login": 2,
        "label": 23,
    },
    "magic": {"class": 2},
}


def published_domain(name: str) -> Domain | None:
    """The domain of table ``name``, or None where only the table tells it."""
    if name not in _COLUMNS:
        return None
    recipe, categories = RECIPES[name], _CATEGORIES.get(name, {})
    sizes = {
        column: BINS if column in recipe.binned else {**(recipe.whole or {}), **categories}[column]
        for column in _COLUMNS[name]
        if column not in recipe.dropped
    }
    return Domain(tuple(Integer(column, 0, n - 1, n) for column, n in sizes.items()))


def published_rows(name: str) -> int:
    """The rows of table ``name`` that are split among clients: the published ones or the paper's part, less a tenth."""
    recipe = RECIPES[name]
    return round(TRAIN_SHARE * (recipe.rows or PUBLICATIONS[recipe.file or name].rows))


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A table by name: its drawn workload; ``rows`` of it are split among the clients.

    ``codes`` int32 (rows, columns) are None where only formulas are asked for. ``generated``: they are random, because
    only message sizes matter.
    """

    name: str
    workload: Workload
    rows: int
    codes: NDArray[np.int32] | None
    generated: bool = False

    @classmethod
    def load(cls, name: str, *, rows: bool, generated: bool = False, seed: int = 1) -> "Subject":
        """The table ``name`` with its rows if ``rows``; of a published domain, random ones if ``generated``.

        Raises DatasetError where the table is unknown or has to be read and cannot be.
        """
        if name not in datasets.NAMES:
            known = ", ".join(datasets.NAMES)
            raise DatasetError(f"unknown dataset {name!r}; expected one of {known}")
        domain = published_domain(name)
        if domain is not None and not rows:
            return cls(name, draw_workload(domain), published_rows(name), None)
        if generated:
            if domain is None:
                raise DatasetError(
                    f"{name}: its domain is not known without the table; expected no --generated"
                )
            shape, count = np.array(domain.shape), published_rows(name)
            drawn = np.random.default_rng(seed).integers(0, shape, (count, len(shape)))
            return cls(name, draw_workload(domain), count, drawn.astype(np.int32), generated=True)
        table = datasets.load(name)
        codes = table.train if rows else None
        return cls(name, draw_workload(table.domain), len(table.train), codes)


@dataclass(frozen=True, slots=True)
class Population:
    """``clients`` of equal size, each of which takes part in a round with probability ``participation``."""

    clients: int = 100
    participation: float = 0.1


@dataclass(frozen=True, slots=True)
class Result:
    """One client's traffic in bytes. ``variant`` is the upload form or the grouping; measured figures may be missing.

    ``formula`` is the paper's; ``sent`` and ``received`` are our messages, ``wire`` both directions with HTTP, frames
    and TLS; ``cpu_s`` and ``peak_bytes`` are of the client's process over the whole run. ``rounds_joined``: in how many
    a participating client takes part.
    """

    method: str
    variant: str
    rounds: int
    formula: float
    sent: float | None = None
    received: float | None = None
    wire: float | None = None
    rounds_joined: float | None = None
    cpu_s: float | None = None
    peak_bytes: float | None = None
    single_choosers: float | None = None

    def to_json(self) -> dict[str, object]:
        """In MB."""
        kind = "upload" if self.method == "distaim" else "grouping"
        in_mb = {
            "formula_mb": self.formula,
            "sent_mb": self.sent,
            "received_mb": self.received,
            "wire_mb": self.wire,
            "client_peak_mb": self.peak_bytes,
        }
        return {
            "method": self.method,
            kind: self.variant,
            "rounds": self.rounds,
            **{name: None if value is None else value / MB for name, value in in_mb.items()},
            "client_cpu_s": self.cpu_s,
            "rounds_joined": self.rounds_joined,
            "single_choosers": self.single_choosers,
        }


def formula_results(
    subject: Subject, rounds: Sequence[int], population: Population | None = None
) -> list[Result]:
    """The paper's formula for both methods, before any run: FLAIM's choices and models are those of a replayed one.

    Raises ValueError where the privacy budget has no room for so many rounds, or as ``check_members``.
    """
    population = population or Population()
    results = [
        Result("distaim", form, number, distaim_formula(subject.workload))
        for form in FORMS
        for number in rounds
    ]
    for grouping in GROUPINGS:
        for number in rounds:
            mean = _replayed(subject, number, population, grouping)
            formula = flaim_formula(mean.cells, mean.model_cells)
            results.append(Result("flaim", grouping, number, formula, rounds_joined=mean.rounds))
    return results


def _replayed(subject: Subject, rounds: int, population: Population, grouping: str) -> Mean:
    """The mean client of a replayed run. Raises ValueError where the budget is too small for so many rounds."""
    settings = private_settings(
        rounds,
        participation=population.participation,
        max_rows=max(1, subject.rows),
        grouping=grouping,
    )
    share = max(1, subject.rows // population.clients)
    run = replay(subject.workload, settings, clients=population.clients, rows=share)
    return mean_payload(subject.workload, run, grouping, Terms(subject.rows, THREAT))


def measured_results(
    subject: Subject, rounds: Sequence[int], population: Population | None = None, *, seed: int = 1
) -> list[Result]:
    """Both methods with real messages: uploads over TLS to three servers, FLAIM's clients with SecAgg.

    ``seed`` is that of FLAIM's draws, so that a table can be made again. Raises RuntimeError where a process fails,
    ValueError without rows, with a budget too small or with a population that has hardly any round.
    """
    if subject.codes is None:
        raise ValueError("there are no rows to measure with")
    population = population or Population()
    check_members(population.clients, population.participation)
    split = iid(len(subject.codes), clients=population.clients, seed=seed)
    tables = [subject.codes[split.rows_of(client)] for client in range(population.clients)]
    with tempfile.TemporaryDirectory(prefix="syncret-overhead-") as folder:
        uploads = asyncio.run(
            measure_uploads(subject.workload, tables[0], Path(folder), rounds=[max(rounds)])
        )
    member = asyncio.run(measure_member(subject.workload, tables[0], len(subject.codes)))
    # One upload serves any number of rounds: they change digits of a header.
    results = [
        _upload_result(subject.workload, upload, number) for upload in uploads for number in rounds
    ]
    for grouping in GROUPINGS:
        for number in rounds:
            settings = private_settings(
                number,
                participation=population.participation,
                max_rows=len(subject.codes),
                grouping=grouping,
            )
            run = asyncio.run(measure_flaim(subject.workload, tables, settings, seed=seed))
            results.append(_flaim_result(run, member))
    return results


def _upload_result(workload: Workload, upload: Upload, rounds: int) -> Result:
    return Result(
        "distaim",
        upload.form,
        rounds,
        distaim_formula(workload),
        upload.sent_bytes,
        upload.received_bytes,
        upload.wire_bytes,
        1.0,
        sum(upload.owner.cpu_s.values()),
        upload.owner.peak_bytes,
    )


def _flaim_result(run: FlaimRun, member: Member) -> Result:
    single = run.single_choosers / run.chosen_queries if run.chosen_queries else None
    return Result(
        "flaim",
        run.grouping,
        run.rounds_planned,
        flaim_formula(run.cells, run.model_cells),
        run.sent,
        run.received,
        run.wire,
        run.rounds,
        member.cpu_s * run.rounds,
        member.peak_bytes,
        single,
    )


def document(
    subject: Subject, results: Sequence[Result], population: Population | None = None
) -> dict[str, object]:
    """What ``--json`` prints."""
    population = population or Population()
    return {
        "dataset": subject.name,
        "candidates": len(subject.workload.candidates),
        "closure_cells": subject.workload.cells,
        "maximal_cells": subject.workload.maximal_cells,
        "clients": population.clients,
        "participation": population.participation,
        "rows": "generated" if subject.generated else "published",
        "results": [result.to_json() for result in results],
    }
