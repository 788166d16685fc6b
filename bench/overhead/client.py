"""Traffic of a data owner: the paper's formula beside counted bytes (its Tables 3 and 7).

A ``Subject`` is a table's workload with its rows, if available. DistAIM's uploads are measured by `upload`, FLAIM's
rounds by `flaim`. Figures are per participating client: one that takes part in at least one round. All values here are
public.

The domains of some tables are known without the tables. Columns and binning are those of `bench.datasets` (numbers in
32 bins); the others' numbers of categories are in the tables' published descriptions. Only the sizes matter: the
columns hold the codes themselves. Known limits: `bench.datasets` reads categories from the table; census and marketing
have too many to be listed here.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import datasets
from bench.datasets import BINS, RECIPES, TRAIN_SHARE
from bench.fetch import DatasetError
from bench.overhead.flaim import (
    FlaimRun,
    Member,
    measure_flaim,
    measure_member,
    replayed_wire,
)
from bench.overhead.formula import (
    MB,
    UPLOAD_RECEIVED_BYTES,
    Counting,
    distaim_formula,
    flaim_formula,
    owner_rows,
    packed_rows,
    passed_on_payload,
    upload_payload,
    upload_wire,
)
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
from parties.local.partition import iid
from protocols.upload import ROWS, WHOLE

GROUPINGS = ("union", "query")
PAPER_ROUNDS = (4, 32, 96)

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "adult": tuple(ADULT_CODES),
    "covtype": COVTYPE_COLUMNS,
    "credit": CREDIT_COLUMNS,
    "intrusion": INTRUSION_COLUMNS,
    "magic": MAGIC_COLUMNS,
}
# Numbers of categories of the columns that are neither binned nor whole numbers; UCI's and KDD's descriptions.
_CATEGORIES: Mapping[str, Mapping[str, int]] = {
    "covtype": {"cover_type": 7},
    "credit": {"Class": 2},
    "intrusion": {
        "protocol_type": 3,
        "service": 66,
        "flag": 11,
        "label": 5,
    },
    "magic": {"class": 2},
}


def published_domain(name: str) -> Domain | None:
    """Returns the domain of table ``name``, or None if only the table has it."""
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
    """Returns the rows of table ``name`` to split among clients: published rows or the paper's part, less a tenth."""
    recipe = RECIPES[name]
    return round(TRAIN_SHARE * (recipe.rows or PUBLICATIONS[recipe.file or name].rows))


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A table by name: its drawn workload; ``rows`` of it are split among the clients.

    ``codes`` int32 (rows, columns) are None if only formulas are needed. With ``generated`` they are random, since only
    message sizes matter.
    """

    name: str
    workload: Workload
    rows: int
    codes: NDArray[np.int32] | None
    generated: bool = False

    @classmethod
    def load(cls, name: str, *, rows: bool, generated: bool = False, seed: int = 1) -> "Subject":
        """Loads the table ``name``, with its rows if ``rows``; of a published domain, random rows if ``generated``.

        Raises DatasetError if the table is unknown, or has to be read and is not available.
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

    ``formula`` is the paper's, or our upload's for rows, which the paper does not have. ``predicted`` is the size of
    our messages by our own formulas, both directions, ``predicted_wire`` with the connection's overhead. ``sent`` and
    ``received`` are our messages as counted, ``wire`` both directions with HTTP, frames and TLS; ``cpu_s`` and
    ``peak_bytes`` are of the client's process over the whole run. ``rounds_joined``: number of rounds of a
    participating client.
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
    predicted: float | None = None
    predicted_wire: float | None = None

    def to_json(self) -> dict[str, object]:
        """Returns the fields for JSON, sizes in MB."""
        kind = "upload" if self.method == "distaim" else "grouping"
        in_mb = {
            "formula_mb": self.formula,
            "sent_mb": self.sent,
            "received_mb": self.received,
            "wire_mb": self.wire,
            "predicted_mb": self.predicted,
            "predicted_wire_mb": self.predicted_wire,
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
    """Computes both methods by formulas, before any run: FLAIM's choices and models are those of a replayed one.

    Raises ValueError if the privacy budget has no room for so many rounds, or as ``check_members``.
    """
    population = population or Population()
    capacity = owner_rows(subject.rows, population.clients)
    results = [
        _predicted(subject.workload, form, number, capacity) for form in WHOLE for number in rounds
    ]
    for grouping in GROUPINGS:
        for number in rounds:
            mean, wire = _replayed(subject, number, population, grouping)
            formula = flaim_formula(mean.cells, mean.model_cells)
            results.append(
                Result(
                    "flaim",
                    grouping,
                    number,
                    formula,
                    rounds_joined=mean.rounds,
                    predicted=mean.sent + mean.received,
                    predicted_wire=wire,
                )
            )
    return results


def _predicted(workload: Workload, form: str, rounds: int, capacity: int) -> Result:
    """Computes an upload by formula alone."""
    payload = upload_payload(workload, form, capacity)
    return Result(
        "distaim",
        form,
        rounds,
        payload if form == ROWS else distaim_formula(workload),
        predicted=payload + UPLOAD_RECEIVED_BYTES,
        predicted_wire=upload_wire(payload),
    )


def _replayed(
    subject: Subject, rounds: int, population: Population, grouping: str
) -> tuple[Mean, float]:
    """Returns the mean client of a replayed run, and its bytes on the wire.

    Raises ValueError if the budget is too small for so many rounds.
    """
    settings = private_settings(
        rounds,
        participation=population.participation,
        max_rows=max(1, subject.rows),
        grouping=grouping,
    )
    share = max(1, subject.rows // population.clients)
    run = replay(subject.workload, settings, clients=population.clients, rows=share)
    terms = Terms(subject.rows, THREAT)
    mean = mean_payload(subject.workload, run, grouping, terms)
    return mean, replayed_wire(subject.workload, run, grouping, terms)


def measured_results(
    subject: Subject, rounds: Sequence[int], population: Population | None = None, *, seed: int = 1
) -> list[Result]:
    """Measures both methods with real messages: uploads over TLS to three servers, FLAIM's clients with SecAgg.

    ``seed`` is that of FLAIM's draws, so that a table can be made again. Raises RuntimeError if a process fails,
    ValueError without rows, with a budget too small or with a population that has hardly any round.
    """
    population = population or Population()
    check_members(population.clients, population.participation)
    tables = _tables(subject, population, seed)
    results = _uploads(subject, rounds, tables, WHOLE)
    member = asyncio.run(measure_member(subject.workload, tables[0], subject.rows))
    for grouping in GROUPINGS:
        for number in rounds:
            settings = private_settings(
                number,
                participation=population.participation,
                max_rows=subject.rows,
                grouping=grouping,
            )
            run = asyncio.run(measure_flaim(subject.workload, tables, settings, seed=seed))
            results.append(_flaim_result(run, member))
    return results


def upload_results(
    subject: Subject,
    rounds: Sequence[int],
    form: str,
    population: Population | None = None,
    *,
    seed: int = 1,
) -> list[Result]:
    """Measures DistAIM's client alone, in one form: a single upload. Raises as ``measured_results``."""
    tables = _tables(subject, population or Population(), seed)
    return _uploads(subject, rounds, tables, [form])


def _tables(subject: Subject, population: Population, seed: int) -> list[NDArray[np.int32]]:
    """Returns each client's codes. Raises ValueError without rows."""
    if subject.codes is None:
        raise ValueError("there are no rows to measure with")
    split = iid(len(subject.codes), clients=population.clients, seed=seed)
    return [subject.codes[split.rows_of(client)] for client in range(population.clients)]


def _uploads(
    subject: Subject,
    rounds: Sequence[int],
    tables: Sequence[NDArray[np.int32]],
    forms: Sequence[str],
) -> list[Result]:
    """Measures the first client's upload in these forms."""
    capacity = owner_rows(subject.rows, len(tables))
    with tempfile.TemporaryDirectory(prefix="syncret-overhead-") as folder:
        uploads = asyncio.run(
            measure_uploads(
                subject.workload,
                tables[0],
                Path(folder),
                rounds=[max(rounds)],
                forms=forms,
                capacity=capacity,
            )
        )
    # One upload serves any number of rounds: they change only digits of a header.
    return [
        _upload_result(subject.workload, upload, number, capacity)
        for upload in uploads
        for number in rounds
    ]


def _upload_result(workload: Workload, upload: Upload, rounds: int, capacity: int) -> Result:
    return replace(
        _predicted(workload, upload.form, rounds, capacity),
        sent=upload.sent_bytes,
        received=upload.received_bytes,
        wire=upload.wire_bytes,
        rounds_joined=1.0,
        cpu_s=sum(upload.owner.cpu_s.values()),
        peak_bytes=upload.owner.peak_bytes,
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
    """Returns the document for ``--json``."""
    population = population or Population()
    workload, clients = subject.workload, population.clients
    capacity = owner_rows(subject.rows, clients)
    counting = Counting.of(workload, capacity, clients)
    return {
        "dataset": subject.name,
        "candidates": len(workload.candidates),
        "closure_cells": workload.cells,
        "maximal_cells": workload.maximal_cells,
        "clients": clients,
        "participation": population.participation,
        "rows": "generated" if subject.generated else "published",
        "owner_rows": capacity,
        "packed_rows_mb": packed_rows(workload, capacity) / MB,
        "counting": {
            "rows": counting.rows,
            "mb_per_server": counting.server_bytes / MB,
            "core_seconds_per_server": counting.core_seconds,
        },
        "passed_on_mb": {
            form: clients * passed_on_payload(workload, form, capacity) / MB for form in WHOLE
        },
        "results": [result.to_json() for result in results],
    }
