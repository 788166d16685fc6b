"""Run folder of a trial: collected results, quality measured on the real table, removal of secrets.

A trial has the real table and measures the synthetic table's quality on it; these figures are not private. Secret: the
real table.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.metrics import nll, table_answers, workload_error
from mechanisms.model import Model
from parties.local.folder import REGISTRY_FILE, RunFolder, default_run_folder
from parties.local.request import DISTAIM, Trial
from parties.report.accuracy import report_figures
from parties.report.claims import column_claims
from parties.report.columns import column_summaries
from parties.report.from_result import SyntheticTable, read_result, read_table_of
from parties.report.model import RunReport, Utility
from parties.report.quality import QUALITY, read_quality, with_truth
from parties.report.shuffling import shuffling_with_truth
from parties.report.verdict import verdict
from parties.report.writing import drawn_page, write_report_files
from parties.storage.files import disk_errors

RESULT_FILES = ("model", "synthetic.csv")
"""Results of a run that makes a synthetic table, in the lead's folder."""


def open_run_folder(
    run: str, fingerprint: str, out: Path | None, *, servers: Sequence[str]
) -> RunFolder:
    """Opens the folder ``out`` of a trial, by default runs/RUN-TIME: new, or of an interrupted run.

    Raises StoreError.
    """
    folder = RunFolder(out or default_run_folder(run), servers)
    if folder.finished:
        tidy(folder)  # That run may have been killed between its end and its clean-up.
    folder.open(fingerprint)
    return folder


def utility(trial: Trial, synthetic: NDArray[np.int32], model: Model) -> Utility:
    """The written table's error on the workload, and the real table's likelihood under the model; not private."""
    answers = [table_answers(trial.workload, codes) for codes in (trial.codes, synthetic)]
    return Utility(
        "the pooled table of this trial",
        workload_error=workload_error(trial.workload, *answers),
        nll=nll(model, trial.codes),
    )


def collect(folder: RunFolder, files: Sequence[str] = RESULT_FILES) -> None:
    """Copies transcripts, and ``files`` and folders of results, into the run folder. Raises StoreError."""
    lead = folder.party(0)
    with disk_errors(folder.path, "copied"):
        (folder.path / "transcripts").mkdir(exist_ok=True)
        for party in folder.parties:
            name = f"party-{party.name}" if party.name.isdecimal() else party.name
            target = folder.path / "transcripts" / f"{name}.jsonl"
            shutil.copyfile(party / "transcript.jsonl", target)
        for name in files:
            source, target = lead / name, folder.path / name
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, target)


def finish_trial(
    trial: Trial, folder: RunFolder, report: RunReport, *, read_s: float | None = None
) -> Mapping[str, object]:
    """Adds the trial's own measurements, writes the report, removes all secrets; returns report.json.

    ``read_s`` are the seconds in which the table was read and checked, if they are known. They are added to the
    report's, as are those of this function; the page lacks the latter, since it is drawn in them. Raises StoreError.
    """
    started = time.perf_counter()
    model = Model.load(folder.path / "model")
    if trial.config.domain != model.domain:
        trial = trial.on(model.domain)
    synthetic = read_table_of(trial.config, folder.path)
    measured = utility(trial, synthetic.codes, model)
    columns = column_summaries(trial.config.domain, synthetic.values, trial.values or None)
    quality = _quality(trial, folder, synthetic)
    seconds = report.time_s if read_s is None else _with_phase(report.time_s, "read", read_s)
    report = replace(report, utility=measured, columns=columns, quality=quality, time_s=seconds)
    document = report.to_dict()
    shown = report_figures(document, trial.workload, synthetic.codes, real=trial.codes)
    page = drawn_page(document, shown)
    seconds = _with_phase(seconds, "report", time.perf_counter() - started)
    document = replace(report, time_s=seconds).to_dict()
    write_report_files(folder.path, document, page)
    folder.finish(trial.fingerprint)
    tidy(folder)
    return document


def _with_phase(time_s: Mapping[str, float], phase: str, seconds: float) -> dict[str, float]:
    """Returns seconds by phase with those of one more, which their total has too."""
    return {**time_s, "total": time_s["total"] + seconds, phase: seconds}


def _quality(
    trial: Trial, folder: RunFolder, synthetic: SyntheticTable
) -> Mapping[str, object] | None:
    """The run's quality figures of its table, with the true errors beside them; not private. Raises StoreError."""
    quality = read_quality(folder.party(0))
    if quality is None:
        return None
    counted = _counted_owners(trial, folder)
    real = trial.counted(counted)
    domain = trial.config.domain
    quality["columns"] = column_claims(quality, domain, synthetic.codes, synthetic.values)
    quality["verdict"] = verdict(quality, domain)
    # Values exist for all owners together; for some of them there are only cells.
    values = trial.values if counted.all() else ()
    found = with_truth(
        quality, trial.workload, synthetic.codes, real, values=(synthetic.values, values)
    )
    if trial.pairs is not None and counted.all() and "shuffling" in found:
        found["shuffling"] = shuffling_with_truth(found["shuffling"], trial.pairs, synthetic.text)
    return found


def _counted_owners(trial: Trial, folder: RunFolder) -> NDArray[np.bool_]:
    """Mask of the owners in the result: those that DistAIM's server counted; all owners with other methods."""
    if trial.request.method != DISTAIM:
        return np.ones(trial.partition.clients, bool)
    names = {item["client"] for item in read_result(folder.party(0))["counted"]}
    return np.array([name in names for name in trial.names])


def tidy(folder: RunFolder, files: Sequence[str] = RESULT_FILES) -> None:
    """Removes files that only a restart would need, and servers' own copies of ``files``.

    A restart needs tables, shares, submission states, private keys and the participants' certificates.
    """
    shutil.rmtree(folder.owners, ignore_errors=True)
    for party in folder.parties:
        shutil.rmtree(party / "store", ignore_errors=True)
        for name in (*files, QUALITY, "transcript.jsonl", REGISTRY_FILE):
            _remove(party / name)
    for path in folder.certificates.glob("*"):
        if path.suffix in (".key", ".seal") or path.name.startswith(("owner-", "silo-")):
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
