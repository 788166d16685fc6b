"""From what the servers left behind to a report, and a trial's run folder.

Provides ``run_report`` (of a finished run, from the lead's folder), ``collect`` (a trial's results into its run
folder), ``utility`` (how good the synthetic table is, measured on the real one, which a trial has at hand; not private)
and ``tidy``. Secret: the real table.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.metrics import nll, table_answers, workload_error
from mechanisms.model import Model
from mechanisms.table import encode, read_table
from mechanisms.workload import Workload
from parties.comparison import compare_tables
from parties.config import ANNEALED, Config
from parties.errors import StoreError
from parties.outputs import read_attempts
from parties.planning import sampling_distance
from parties.records import LedgerEntry
from parties.report import (
    DISTAIM_TRUST,
    TRIAL_TRUST,
    Communication,
    Opened,
    Parameters,
    Privacy,
    ReportPictures,
    RunReport,
    Selected,
    Utility,
    WorkloadSize,
    write_report,
)
from parties.trial import Folder, Trial
from protocols.measure import DISTRIBUTED

DISTRIBUTED_TRUST = (
    "Each server added noise of its own: what one server does not know has the variance that is charged, and the "
    "counts carry 1.5 times that variance."
)
AIM_TRUST = (
    "Central AIM: one process held the whole table. Nothing but the result protected anyone from whoever ran it.",
    "The privacy guarantee is for one row added to or removed from the whole table.",
)


def read_synthetic(config: Config, directory: Path) -> NDArray[np.int32]:
    """The codes of ``synthetic.csv``. Raises DataError."""
    path = directory / "synthetic.csv"
    return encode(config.domain, read_table(path), source=path)


def utility(trial: Trial, synthetic: NDArray[np.int32], model: Model) -> Utility:
    """The written table's error on the workload, and the real table's likelihood under the model; not private."""
    answers = [table_answers(trial.workload, codes) for codes in (trial.codes, synthetic)]
    return Utility(
        "the pooled table of this trial",
        workload_error=workload_error(trial.workload, *answers),
        nll=nll(model, trial.codes),
    )


def pictures(trial: Trial, synthetic: NDArray[np.int32]) -> ReportPictures:
    """Errors by query and columns beside the real ones; not private."""
    return compare_tables(trial.workload, synthetic, trial.codes)


def write_lead_report(config: Config, directory: Path) -> None:
    """The lead's report.json and report.html, where no real table is at hand. Raises StoreError."""
    workload = config.build_workload()
    attempts = read_attempts(directory / "costs.json")
    total = sum(float(attempt["seconds"]["total"]) for attempt in attempts)
    report = run_report(config, workload, directory, dataset=config.run.id, wall_s={"total": total})
    shown = compare_tables(workload, read_synthetic(config, directory))
    write_report(directory, report.to_dict(), pictures=shown)


def collect(folder: Folder) -> None:
    """Copy transcripts, model and synthetic table into the run folder. Raises StoreError."""
    lead = folder.party(0)
    try:
        (folder.path / "transcripts").mkdir(exist_ok=True)
        for party in folder.parties:
            name = f"party-{party.name}" if party.name.isdecimal() else party.name
            target = folder.path / "transcripts" / f"{name}.jsonl"
            shutil.copyfile(party / "transcript.jsonl", target)
        shutil.copytree(lead / "model", folder.path / "model", dirs_exist_ok=True)
        shutil.copyfile(lead / "synthetic.csv", folder.path / "synthetic.csv")
    except OSError as error:
        where = Path(error.filename) if error.filename else folder.path
        raise StoreError(
            where,
            f"cannot be copied: {error.strerror or error}; expected a writable folder with space",
        ) from error


def finish_trial(trial: Trial, folder: Folder, report: RunReport) -> Mapping[str, object]:
    """Add what only a trial can know, write the report, leave nothing secret behind. Raises StoreError."""
    synthetic = read_synthetic(trial.config, folder.path)
    measured = utility(trial, synthetic, Model.load(folder.path / "model"))
    document = replace(report, utility=measured).to_dict()
    write_report(folder.path, document, pictures=pictures(trial, synthetic))
    folder.finish(trial.fingerprint)
    tidy(folder)
    return document


def tidy(folder: Folder) -> None:
    """Remove what only a restart would need: tables, shares, submission states and private keys."""
    shutil.rmtree(folder.owners, ignore_errors=True)
    for party in folder.parties:
        shutil.rmtree(party / "store", ignore_errors=True)
        for name in ("model", "synthetic.csv", "transcript.jsonl"):
            _remove(party / name)
    for path in folder.certificates.glob("*"):
        if path.suffix == ".key" or path.name.startswith("owner-"):
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def run_report(
    config: Config,
    workload: Workload,
    directory: Path,
    *,
    dataset: str,
    wall_s: Mapping[str, float],
    clients: int | None = None,
) -> RunReport:
    """The report of a finished run on shares, from the lead's ``directory``, without utility.

    ``wall_s`` are seconds by phase that the lead does not know, "total" among them; ``clients`` is how many there were
    if more than have submitted, which only a trial knows. Raises StoreError.
    """
    result = read_result(directory)
    opened = _opened(directory / "transcript.jsonl")
    traffic = result["client_bytes"]
    count = max(1, clients or traffic["clients"])
    trust = DISTAIM_TRUST + ((DISTRIBUTED_TRUST,) if config.run.noise == DISTRIBUTED else ())
    if clients is not None:
        trust += (TRIAL_TRUST,)
    # A sum of statistical distances counts for both of two neighbouring tables.
    return RunReport(
        method="distaim",
        trust=trust,
        dataset=dataset,
        parameters=parameters(config, clients or result["clients"]),
        privacy=Privacy(
            result["rho_total"],
            _ledger(result),
            (1 + math.exp(config.run.epsilon)) * sampling_distance(config, workload),
        ),
        workload=workload_size(workload),
        communication=Communication(
            traffic["sent"] / count,
            traffic["received"] / count,
            {step: (a, b, c) for step, (a, b, c) in result["sent_by_step"].items()},
            workload.cells * 8 * 6 / 1e6,
        ),
        time_s=_times(read_attempts(directory / "costs.json"), wall_s),
        opened=opened,
        selected=selected(result),
        seed=config.run.seed,
        synthetic_rows=config.run.rows or result["rows_estimated"],
        notes=notes(result, config),
        rounds_done=result["rounds_done"],
    )


def notes(result: Mapping[str, Any], config: Config) -> tuple[str, ...]:
    """What a reader should know of how the rounds went, from a result.json."""
    done, first = result["rounds_done"], result["sigma"]
    last = result["selected"][-1]["sigma"] if result["selected"] else first
    if config.run.schedule == ANNEALED:
        return (
            f"Annealed: {done} rounds, of {config.run.rounds} that the budget would have lasted for without; the "
            f"noise's deviation went from {first:.4g} rows to {last:.4g}.",
        )
    if done == config.run.rounds:
        return ()
    return (
        f"The run ended after {result['rounds_done']} of {config.run.rounds} rounds: values that were charged and "
        "lost in a crash had to be paid for again, and the rest of the budget did not cover a further round.",
    )


def read_result(directory: Path) -> dict[str, Any]:
    """A server's result.json. Raises StoreError."""
    path = directory / "result.json"
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(path, f"is not a result: {error}; expected a finished run") from error
    return document


def parameters(config: Config, clients: int) -> Parameters:
    """What was asked for."""
    run = config.run
    return Parameters(
        run.epsilon,
        run.delta,
        run.rounds,
        clients,
        config.clients.participation,
        run.noise,
        run.upload,
        run.schedule,
    )


def workload_size(workload: Workload) -> WorkloadSize:
    """How much was asked."""
    return WorkloadSize(len(workload.queries), len(workload.candidates), workload.cells)


def selected(result: Mapping[str, Any]) -> tuple[Selected, ...]:
    """The rounds of a result.json."""
    return tuple(
        Selected(
            item["round"],
            tuple(item["query"]),
            item["clients"],
            item["rows_estimated"],
            item["sigma"],
        )
        for item in result["selected"]
    )


def _ledger(result: Mapping[str, Any]) -> tuple[LedgerEntry, ...]:
    return tuple(LedgerEntry.from_dict(entry) for entry in result["ledger"])


def _opened(transcript: Path) -> tuple[Opened, ...]:
    """Every opening that the lead's transcript shows, those lost in a crash among them."""
    items = []
    with transcript.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"kind":"opened"'):
                record = json.loads(line)
                items.append(
                    Opened(record["round"] or 0, record["step"], record["what"], record["count"])
                )
    return tuple(items)


def _times(attempts: Sequence[Mapping[str, Any]], wall_s: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase at the lead, over all attempts, beside ``wall_s``; what is in neither is "other"."""
    phases = dict.fromkeys(("share", "select", "measure", "estimate", "write"), 0.0)
    names = {"finish": "write", "select": "select", "measure": "measure", "estimate": "estimate"}
    for attempt in attempts:
        phases["share"] += float(attempt["seconds"].get("share", 0.0))
        for step in attempt["steps"]:
            if step["step"] in names:
                phases[names[step["step"]]] += step["seconds"]
    earlier = sum(float(attempt["seconds"]["total"]) for attempt in attempts[:-1])
    total = wall_s["total"] + earlier
    times = {**{phase: s for phase, s in wall_s.items() if phase != "total"}, **phases}
    return {"total": total, **times, "other": max(0.0, total - sum(times.values()))}
