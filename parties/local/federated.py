"""An algorithm between silos on one machine: one table split among silos, which run as processes with their server.

A public seed determines the owner of every row, so that a restart makes the same silos. The same request on the folder
of an interrupted run continues after its last sum. Secret: the table, which a trial has in one place; keys in the run
folder until the run is finished.
"""

import asyncio
import csv
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import DataError
from mechanisms.text_table import TextTable
from parties.config import Config
from parties.federation.algorithm import AlgorithmPlan
from parties.federation.session import TRANSCRIPT
from parties.federation.silos import check_silos
from parties.federation.sum_parameters import silos_section
from parties.foundation.errors import ConfigError
from parties.local.assemble import collect, open_run_folder, tidy
from parties.local.children import JOB_FILE
from parties.local.federation_launcher import SERVER, launch_federation, with_server
from parties.local.folder import RunFolder
from parties.local.jobs import SilosJob
from parties.local.launcher import prepare_certificates, receipts_path
from parties.local.partition import Partition, iid, label_skew, numbered_names
from parties.methods.federated_report import silos_report, write_silos_report
from parties.methods.registry import plan_of
from parties.observability.events import Progress
from parties.report.from_result import read_result
from parties.session.owner import Table
from parties.storage.files import disk_errors, write_atomic

_WAIT_S = 86400.0


@dataclass(frozen=True, slots=True, eq=False)
class SilosTrial:
    """A checked request: its config and plan, the pooled table, the owner of each row, and a digest of all of them."""

    config: Config
    plan: AlgorithmPlan
    table: TextTable
    partition: Partition
    dataset: str
    seed: int
    fingerprint: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the silos."""
        return numbered_names("silo", self.partition.clients)


@dataclass(frozen=True, slots=True)
class SiloSplit:
    """Split of the table: by the values of column ``by``, else among ``clients`` (None: clients.expected).

    ``beta`` None: at random; else each value of the column ``label`` (None: the last) by Dirichlet(beta) shares.
    """

    clients: int | None = None
    beta: float | None = None
    label: str | None = None
    by: str | None = None
    seed: int = 1


def load_silos_trial(config: Config, table: Table, split: SiloSplit) -> SilosTrial:
    """Checks config, table and split together. Raises ConfigError, DataError. Writes nothing."""
    text = table.text(config)
    if not len(text):
        raise DataError(f"{table.source.shown}: has a header but no rows; a trial needs some")
    partition, least = _partition(config, text, split), silos_section(config).minimum
    if partition.clients < least:
        raise ConfigError(
            config.source,
            "silos.minimum",
            f"is {least}; this split gives {partition.clients} silos",
        )
    text = table.kept(text, config)
    values: dict[str, object] = {
        "clients.expected": partition.clients,
        "clients.minimum": None,
        "clients.wait_s": _WAIT_S,
        "silos.clients": None,
        "silos.address": None,
        "party": None,
        "tls": None,
    }
    config = config.override(values)
    largest, bound = int(partition.sizes.max()), config.clients.rows_per_client
    if largest > bound:
        raise ConfigError(
            config.source,
            "clients.rows_per_client",
            f"is {bound}; this split gives one silo {largest} rows",
        )
    plan = plan_of(config)
    check_silos(config, plan)
    plan.check_table(text, table.source.shown)
    digest = hashlib.sha256(config.digest().encode())
    digest.update(json.dumps([split.beta, split.label, split.by, split.seed]).encode())
    digest.update(partition.owners.tobytes() + _csv(text, np.arange(len(text))).encode())
    return SilosTrial(
        config, plan, text, partition, table.source.name, split.seed, digest.hexdigest()
    )


def _partition(config: Config, table: TextTable, split: SiloSplit) -> Partition:
    clients = split.clients or config.clients.expected
    if split.by is not None:
        values, owners = np.unique(_column(table, split.by, "--by"), return_inverse=True)
        return Partition("by", len(values), owners.astype(np.int32), f"by {split.by}")
    if split.beta is None:
        return iid(len(table), clients=clients, seed=split.seed)
    names = list(table.columns)
    labels = np.unique(_column(table, split.label or names[-1], "--label"), return_inverse=True)[1]
    return label_skew(labels.astype(np.int32), clients=clients, seed=split.seed, beta=split.beta)


def _column(table: TextTable, name: str, option: str) -> NDArray[np.str_]:
    if name not in table.columns:
        raise ConfigError(
            "the table",
            "column",
            f"has no {name!r} for {option}; expected one of {', '.join(table.columns)}",
        )
    return np.array(table.columns[name], dtype=np.str_)


def open_silos_folder(trial: SilosTrial, out: Path | None) -> RunFolder:
    """Opens the folder ``out``, by default runs/ID-TIME: new, or of an interrupted run. Raises StoreError."""
    return open_run_folder(trial.config.run.id, trial.fingerprint, out, servers=(SERVER,))


async def run_silos_trial(
    trial: SilosTrial, folder: RunFolder, progress: Progress, *, processes: int | None = None
) -> Mapping[str, object]:
    """Runs ``trial`` in ``folder`` to its end; returns report.json. ``processes`` is the number for the silos.

    Raises ChildFailed with the server's message, StoreError, CertificateError.
    """
    launched = await launch_federation(
        silos_section(trial.config),
        trial.names,
        folder,
        lambda: _prepare(trial, folder),
        processes=processes,
        progress=progress,
    )
    return await asyncio.to_thread(_finish, trial, launched.config, folder)


def _prepare(trial: SilosTrial, folder: RunFolder) -> Config:
    """Writes config, certificates, the silos' tables and their job; keeps the certificates of an interrupted run."""
    section = silos_section(trial.config)
    with disk_errors(folder.path):
        prepare_certificates(folder, [section.server], trial.names)
        config = with_server(trial.config, folder, section, trial.names)
        write_atomic(folder.config, config.resolved_toml())
        tables, states = folder.owners / "tables", folder.owners / "states"
        for target in (tables, states):
            target.mkdir(exist_ok=True)
        for index, name in enumerate(trial.names):
            rows = trial.partition.rows_of(index)
            write_atomic(tables / f"{name}.csv", _csv(trial.table, rows), secret=True)
    SilosJob(
        config=str(folder.config),
        tables=str(tables),
        certificates=str(folder.certificates),
        states=str(states),
        receipts=str(receipts_path(folder)),
        budget=str(folder.owners / "budget.sqlite"),
        names=trial.names,
    ).write(folder.owners / JOB_FILE)
    return config


def _csv(table: TextTable, rows: NDArray[np.int64]) -> str:
    """Returns these rows of a table as CSV with a header."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.columns)
    columns = [[values[row] for row in rows] for values in table.columns.values()]
    writer.writerows(zip(*columns, strict=True))
    return file.getvalue()


def _finish(trial: SilosTrial, config: Config, folder: RunFolder) -> Mapping[str, object]:
    """Copies results into the run folder, adds the trial's own figures, writes the report, removes secrets.

    Raises StoreError.
    """
    lead = folder.party(0)
    result = read_result(lead)
    collect(folder, result["files"])
    report = silos_report(
        config,
        result,
        dataset=trial.dataset,
        transcript=lead / TRANSCRIPT,
        trial=True,
        utility=trial.plan.judge(folder.path, trial.table),
        seed=trial.seed,
    )
    write_silos_report(folder.path, report)
    folder.finish(trial.fingerprint)
    tidy(folder, result["files"])
    return report
