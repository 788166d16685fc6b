"""DistAIM with private bins: real servers measure fine cells in round 0 and count coarse ones from then on."""

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import parties.mpc.server
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from parties.foundation.errors import ConfigError
from parties.foundation.version import AUDITED_WIRES
from parties.methods.distaim import write_lead_report
from parties.mpc.estimation import make_estimator
from parties.mpc.planning.validation import validate_run
from parties.mpc.transcript_schema import COUNTING, RECOUNTING
from parties.session.study import Study
from protocols.fields import encode
from tests.parties.audit_runs import Lines, collect, copy_run, make_run, read_lines
from tests.parties.mesh import EVERYONE, Cluster
from tests.parties.support import make_config
from tests.parties.tampering import Forger, dropping, failed, find

Certificates = dict[str, CertificateFiles]
COLUMNS: Sequence[dict[str, object]] = (
    {"name": "sex", "kind": "categorical", "categories": ["f", "m"]},
    {"name": "ward", "kind": "categorical", "categories": ["x", "y", "z"]},
    {"name": "age", "kind": "integer", "low": 0, "high": 9, "bins": "private", "coarse": 4},
)
PRIVATE = {
    "run.rounds": 2,
    "run.epsilon": 20.0,
    "run.iterations": 20,
    "run.final_iterations": 40,
    "run.noise": "distributed",
    "run.input": "auto",
    "clients.rows_per_client": 1000,
    "column": list(COLUMNS),
}
CAPACITIES = dict.fromkeys(EVERYONE, 40)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    folder = tmp_path_factory.mktemp("private")
    return make_run(folder, certificates, PRIVATE, capacities=CAPACITIES, estimator=make_estimator)


def test_run_measures_fine_cells_in_round_0_and_counts_coarse_ones_after_it(finished: Path) -> None:
    lines = read_lines(finished, 0)
    opened = [r["count"] for r in lines if r.get("what") == "measure.counts" and r["round"] == 0]
    assert opened == [2, 3, 10]
    notes = [(r["what"], r["round"]) for r in lines if r.get("what") in _COUNTED]
    assert notes == [(COUNTING.what, 0), (RECOUNTING.what, 1)]


_COUNTED = (COUNTING.what, RECOUNTING.what)


def test_audit_passes_and_computes_the_bins_anew(finished: Path) -> None:
    audit = audit_folder(finished)
    assert failed(audit) == set(), [check for check in audit.checks if check.status == "fail"]
    passed = {check.name for check in audit.checks if check.status == "pass"}
    assert {"costs", "model", "table", "openings", "limits"} <= passed
    report = json.loads((finished / "report.json").read_text())
    assert min(report["communication"]["server_sent_bytes_by_step"]["count.recode"]) > 0


@pytest.mark.parametrize("wire", [wire for wire in AUDITED_WIRES if wire < 18])
def test_audit_accuses_no_server_of_a_version_that_chose_other_cells(
    wire: int, finished: Path, certificates: Certificates, tmp_path: Path
) -> None:
    forger = Forger(copy_run(finished, tmp_path), finished, certificates)
    forger.edit(lambda lines: lines[0].update(wire=wire))
    details = {c.detail for c in audit_folder(forger.run).checks if c.status == "fail"}
    said = f"has messages of version {wire}, in which noisy counts chose other cells of a column"
    assert details, "a run of an older version passes"
    assert all(said in detail for detail in details), details


def test_lead_report_is_of_the_bins_that_were_chosen(finished: Path, tmp_path: Path) -> None:
    lead = shutil.copytree(finished.parent / "server-0", tmp_path / "lead")
    write_lead_report(make_config(PRIVATE), lead)
    report = json.loads((lead / "report.json").read_text())
    assert report["synthetic_rows"] > 0
    assert [column["column"] for column in report["columns"]] == ["sex", "ward", "age"]


def test_owner_of_a_later_round_is_counted_by_the_bins_of_round_0(
    tmp_path: Path, certificates: Certificates
) -> None:
    changes = {"run.rounds": 3, "clients.participation": 0.5, "clients.minimum": 1}
    cluster = Cluster(make_config(PRIVATE | changes), tmp_path, certificates)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parties.mpc.server, "make_estimator", make_estimator)
        ended = asyncio.run(
            cluster.run(owners=EVERYONE, first_rounds={EVERYONE[2]: 2}, capacities=CAPACITIES)
        )
    assert ended == [None] * 3
    run = collect(cluster, tmp_path / "run", model=True)
    assert failed(audit_folder(run)) == set()
    notes = [
        (r["what"], r["round"], len(r["capacities"]))
        for r in read_lines(run, 0)
        if r.get("what") in _COUNTED
    ]
    assert notes == [(COUNTING.what, 0, 2), (RECOUNTING.what, 1, 2), (COUNTING.what, 2, 1)]


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param((1, "round", 0), marks=pytest.mark.slow),
        pytest.param((0, "selected", 1), marks=pytest.mark.slow),
    ],
)
def test_killed_server_goes_on_with_the_same_bins(
    tmp_path: Path, certificates: Certificates, kill: tuple[int, str, int]
) -> None:
    run = make_run(
        tmp_path, certificates, PRIVATE, kill=kill, capacities=CAPACITIES, estimator=make_estimator
    )
    audit = audit_folder(run)
    assert failed(audit) == set(), [check for check in audit.checks if check.status == "fail"]


RECOUNTED = {"what": RECOUNTING.what}
FINE = {"what": "measure.counts", "round": 0}
MANIPULATIONS: dict[str, tuple[Callable[[Lines], object], set[str]]] = {
    "nobody is counted again": (dropping("note", **RECOUNTED), {"costs"}),
    "not everybody is counted again": (
        lambda lines: find(lines, "note", **RECOUNTED)["capacities"].pop(EVERYONE[0]),
        {"limits", "costs"},
    ),
    "somebody else is counted again": (
        lambda lines: find(lines, "note", **RECOUNTED)["capacities"].update(nobody=40),
        {"limits", "costs"},
    ),
    "other bins": (
        lambda lines: [r for r in lines if r.get("what") == FINE["what"]][2].update(
            value=encode(np.full(10, 2**20, "<u4").tobytes())
        ),
        {"model"},
    ),
}


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_audit_catches(
    name: str, finished: Path, tmp_path: Path, certificates: Certificates
) -> None:
    """Told alike by all three servers, and signed by them."""
    change, expected = MANIPULATIONS[name]
    forger = Forger(copy_run(finished, tmp_path), finished, certificates)
    forger.edit(change)
    audit = audit_folder(forger.run)
    assert expected <= failed(audit), [c for c in audit.checks if c.status == "fail"]


def test_counts_are_refused_beside_private_bins() -> None:
    config = make_config(PRIVATE | {"run.input": "counts"})
    with pytest.raises(ConfigError, match=r"run.input.*'age'.*expected \"rows\""):
        validate_run(Study.of(config))
