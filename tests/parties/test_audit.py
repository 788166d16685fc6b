"""The auditor: honest runs of every configuration pass, and every way of tampering is caught by the check that should.

A manipulation is one of a stranger, who cannot sign, or of a server that writes its own transcript anew and signs it;
some are of all three together. Each names the checks that have to fail; others may fail besides.
"""

import importlib.util
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import mechanisms.aim
from mechanisms.descent import Tables, Target
from mechanisms.domain import Clique
from mechanisms.inference import JunctionTree
from parties.audit.checks import costs, model_fit
from parties.audit.checks.privacy import RunTerms
from parties.audit.findings import LIMITS
from parties.audit.html import render_audit
from parties.audit.runner import Audit, audit_folder
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles
from parties.foundation.exit_codes import Status
from parties.foundation.version import AUDITED_WIRES
from parties.mpc import estimation
from parties.mpc.estimation import make_estimator
from parties.mpc.planning.budget import make_plan
from parties.mpc.steps import PASSED
from parties.session.study import Study
from protocols.steps import SELECT_CHOOSE, SELECT_SCORES, Step
from protocols.supply import AT_ONCE
from tests.parties.audit_runs import copy_run, make_run, read_lines, write_lines
from tests.parties.support import PARTIES, make_config
from tests.parties.tampering import (
    MANIPULATIONS,
    Forger,
    dropping,
    failed,
    later,
    setting,
)

SMALL = {"run.rounds": 2, "run.noise": "distributed", "run.final_iterations": 300}
Certificates = dict[str, CertificateFiles]


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    return make_run(folder, certificates, SMALL, estimator=make_estimator)


@pytest.fixture(scope="session")
def another(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    """The same again: another mesh of the same servers, with the same run id and configuration."""
    folder = tmp_path_factory.mktemp("another")
    return make_run(folder, certificates, SMALL, estimator=make_estimator)


def assert_clean(run: Path) -> Audit:
    audit = audit_folder(run)
    assert failed(audit) == set(), [c for c in audit.checks if c.status == "fail"]
    assert audit.ok
    return audit


# Honest runs.


@pytest.mark.parametrize("step", [SELECT_SCORES, SELECT_CHOOSE], ids=lambda step: str(step.name))
def test_an_interrupted_selection_may_have_been_among_fewer(step: Step[Any]) -> None:
    """Of 325 queries: among 256 more is sent than among all, in the form of which the limit has to know."""
    columns = [{"name": f"c{n}", "kind": "integer", "low": 0, "high": 1} for n in range(25)]
    config = make_config({"column": columns, "workload.degree": 2, "workload.count": 300})
    workload = config.build_workload()
    terms = RunTerms(config, workload, make_plan(Study(config, workload)))
    assert len(workload.candidates) == 325
    for pid in range(3):
        limit = costs._limit(costs.StepInRound(step.name, 1), SimpleNamespace(pid=pid), terms)
        for count in (1, 100, 256, 257, 325):
            facts = costs._selection(list(range(count)), terms.plan, terms, AT_ONCE)
            assert step.cost is not None
            assert step.cost(facts).sent[pid] <= limit


@pytest.mark.parametrize(
    "overrides",
    [
        {"run.noise": "discrete-gaussian"},
        {"run.noise": "box-muller", "run.rounds": 2},
        {"run.noise": "distributed", "run.upload": "plain", "run.rounds": 2},
        {"run.schedule": "annealed", "run.rounds": None, "run.epsilon": 4.0},
        {"run.rounds": 1, "workload.degree": 1, "clients.minimum": 1},
    ],
    ids=["exact", "box-muller", "distributed-plain", "annealed", "one-round"],
)
def test_audit_passes_an_honest_run(
    tmp_path: Path, certificates: Certificates, overrides: dict[str, object]
) -> None:
    audit = assert_clean(make_run(tmp_path, certificates, overrides))
    statuses = {check.name: check.status for check in audit.checks}
    # Without the model, which these runs do not have, nor any word on quality.
    without = {statuses.pop(name) for name in ("table", "model", "quality")}
    assert without == {"not applicable"}
    assert set(statuses.values()) == {"pass"}


DROWNED = SMALL | {
    "run.schedule": "annealed",
    "run.rounds": None,
    "run.epsilon": 0.5,
    "run.fallback": "columns",
}


def no_descent(
    tree: JunctionTree, targets: Mapping[Clique, Target], potentials: Tables, **_: object
) -> tuple[Tables, list[NDArray[np.float64]]]:
    return potentials, tree.marginals(potentials)


FITTED_BY_MBI = SMALL | {"run.estimator": "mbi", "run.iterations": 50, "run.final_iterations": 50}


def test_audit_of_a_run_whose_models_mbi_fitted(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The auditor fits by mbi, too; by another optimiser its models are others, and a fit of nothing surely is."""
    run = make_run(tmp_path, certificates, FITTED_BY_MBI, estimator=make_estimator)
    assert {check.status for check in assert_clean(run).checks} == {"pass"}

    model_fit.fits_of.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(estimation, "mbi_descent", no_descent)
        assert "model" in failed(audit_folder(run))

    model_fit.fits_of.cache_clear()
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mbi" else found(name)
    )
    without = {check.name: check for check in assert_clean(run).checks if check.status != "pass"}
    assert without.keys() == {"model", "quality"}
    assert all("pip install 'syncret[mbi]'" in check.detail for check in without.values())


def test_audit_passes_an_honest_run_of_columns_alone(
    tmp_path: Path, certificates: Certificates
) -> None:
    run = make_run(tmp_path, certificates, DROWNED, estimator=make_estimator)
    assert {check.status for check in assert_clean(run).checks} == {"pass"}


def test_audit_fails_servers_that_choose_among_drowned_pairs(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mechanisms.aim, "drowned", lambda *args, **kwargs: False)
    audit = audit_folder(make_run(tmp_path, certificates, DROWNED, estimator=make_estimator))
    (check,) = (check for check in audit.checks if check.name == "openings")
    assert check.status == "fail"
    assert "noise drowns" in check.detail


@pytest.mark.parametrize(
    "kill",
    [
        pytest.param((0, "connected", None), marks=pytest.mark.slow),
        (1, "waiting", None),
        pytest.param((2, "round", 0), marks=pytest.mark.slow),
        (0, "round", 2),
        pytest.param((1, "selected", 1), marks=pytest.mark.slow),
    ],
    ids=lambda kill: "-".join(map(str, kill)),
)
def test_audit_passes_an_honest_run_that_was_interrupted(
    tmp_path: Path, certificates: Certificates, kill: tuple[int, str, int | None]
) -> None:
    config = SMALL | {"run.rounds": 3}
    run = make_run(tmp_path, certificates, config, kill=kill, estimator=make_estimator)
    audit = assert_clean(run)
    assert {check.status for check in audit.checks} == {"pass"}


def test_audit_passes_when_a_record_was_torn_by_a_crash_and_the_run_went_on(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Killed without a chance to sign: what was not on the disk is lost, and a line is half written."""
    config = SMALL | {"run.rounds": 3}
    run = make_run(tmp_path, certificates, config, kill=(1, "round", 2), torn=True)
    kinds = [record["kind"] for record in read_lines(run, 1)]
    (again,) = (record for record in read_lines(run, 1) if record["kind"] == "resumed")
    assert again["cut"] > 0
    assert kinds[kinds.index("resumed") - 1] != "seal"
    assert_clean(run)


def test_audit_passes_when_a_server_lost_that_it_told_its_state(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Killed while data owners were awaited: the record of a message may be written after the seal."""
    run = make_run(tmp_path, certificates, SMALL, kill=(1, "waiting", None))
    lines = read_lines(run, 1)
    dropping("sent", step="agree")(lines)
    write_lines(run, 1, lines, certificates[PARTIES[1]])
    assert_clean(run)


def test_audit_wants_the_messages_of_an_opening_that_one_server_alone_wrote_down(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The attack: in a round that was interrupted a server writes down a value that nobody opened to it."""
    run = make_run(tmp_path, certificates, SMALL | {"run.rounds": 3}, kill=(1, "round", 2))
    assert_clean(run)
    lines = read_lines(run, 0)
    end = next(n for n, record in enumerate(lines) if record["kind"] == "resumed")
    begun = lines[: end - 1]
    assert not any(r["kind"] == "opened" and r["round"] == 2 for r in begun)
    copied = [
        record | {"t": begun[-1]["t"]}
        for record in lines[end:]
        if record.get("round") == 2
        and (record["kind"], record.get("what"))
        in {("opened", "select.index"), ("note", "selecting")}
    ]
    write_lines(run, 0, [*begun, *copied, *lines[end - 1 :]], certificates[PARTIES[0]])
    (openings,) = (check for check in audit_folder(run).checks if check.name == "openings")
    assert openings.status == "fail"
    assert "nobody else has this opening" in openings.detail


def test_audit_is_the_same_on_every_machine(honest: Path, tmp_path: Path) -> None:
    """Nothing depends on when and where it is made."""
    there = copy_run(honest, tmp_path)
    for path in there.rglob("*"):
        path.touch()
    assert audit_folder(there).to_dict() == audit_folder(honest).to_dict()


# Tampering. Each manipulation changes a copy of the honest run.


def test_audit_refuses_a_transcript_of_another_format_with_both_versions(
    honest: Path, certificates: Certificates, tmp_path: Path
) -> None:
    """Although its records have other fields, too."""
    forger = Forger(copy_run(honest, tmp_path), honest, certificates)

    def as_before(lines: list[dict[str, Any]]) -> None:
        lines[0]["format"] = 3
        for record in lines:
            record.pop("samples", None)

    forger.edit(as_before, 1)
    (check,) = (check for check in audit_folder(forger.run).checks if check.name == "form")
    assert check.status == "fail"
    assert "server 1's transcript has format 3, and this program reads 6" in check.detail


def test_audit_refuses_messages_of_another_version(
    honest: Path, certificates: Certificates, tmp_path: Path
) -> None:
    """Their sizes were others: an honest server would be told that it sent too much."""
    forger = Forger(copy_run(honest, tmp_path), honest, certificates)

    def older(lines: list[dict[str, Any]]) -> None:
        lines[0]["wire"] = AUDITED_WIRES[0] - 1

    for pid in range(3):
        forger.edit(older, pid)
    (check,) = (check for check in audit_folder(forger.run).checks if check.name == "form")
    assert check.status == "fail"
    assert f"has messages of version {AUDITED_WIRES[0] - 1}, and this program" in check.detail


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_audit_catches(
    name: str, honest: Path, another: Path, certificates: Certificates, tmp_path: Path
) -> None:
    manipulate, expected = MANIPULATIONS[name]
    forger = Forger(copy_run(honest, tmp_path), another, certificates)
    manipulate(forger)
    audit = audit_folder(forger.run)
    assert not audit.ok
    assert expected <= failed(audit), [c for c in audit.checks if c.status == "fail"]
    render_audit(audit)


def test_forging_by_itself_is_not_what_is_caught(
    honest: Path, another: Path, certificates: Certificates, tmp_path: Path
) -> None:
    """A control: written and signed anew without a change, everything still holds."""
    forger = Forger(copy_run(honest, tmp_path), another, certificates)
    forger.edit(lambda lines: None)
    audit = assert_clean(forger.run)
    assert {check.status for check in audit.checks} == {"pass"}


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_audit_finds_any_changed_byte(
    honest: Path, tmp_path: Path, pid: int, place: float, change: int
) -> None:
    run = tmp_path / "byte"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(honest, run)
    path = run / "transcripts" / f"party-{pid}.jsonl"
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= change
    path.write_bytes(data)
    audit = audit_folder(run)
    assert not audit.ok
    render_audit(audit)


_ANY = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 10**20), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.just([]), st.just({}),
)  # fmt: skip


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2), st.floats(0, 1, exclude_max=True), st.integers(0, 12), _ANY)
def test_audit_judges_any_transcript_that_a_server_can_sign(
    honest: Path, certificates: Certificates, tmp_path: Path, pid: int, place: float, field: int, value: object
) -> None:  # fmt: skip
    """Any value in a field gives an answer and a page."""
    run = tmp_path / "field"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(honest, run)
    lines = read_lines(run, pid)
    record = lines[int(place * len(lines))]
    name = list(record)[field % len(record)]
    assume(record["kind"] != "seal" or name not in ("kind", "reason", "t"))
    record[name] = value
    write_lines(run, pid, lines, certificates[PARTIES[pid]])
    render_audit(audit_folder(run))


def test_audit_tolerates_clocks_that_differ(
    honest: Path, another: Path, certificates: Certificates, tmp_path: Path
) -> None:
    forger = Forger(copy_run(honest, tmp_path), another, certificates)
    forger.edit(setting("header", "time", lambda t: t + 600), 1)
    forger.edit(later(900), 2)
    audit = assert_clean(forger.run)
    assert any("clocks differed by 900" in check.detail for check in audit.checks)


def test_each_finding_is_one_sentence(honest: Path) -> None:
    for check in audit_folder(honest).checks:
        assert check.detail.endswith(".")
        assert "\n" not in check.detail


# The command.


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run_command_line(cli, ["audit", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_command_prints_every_check_and_writes_the_page(
    honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_run(honest, tmp_path)
    status, output, said = run_command(capsys, str(run))
    assert status == Status.DONE
    assert not said
    for check in audit_folder(run).checks:
        assert check.name in output
    assert "Two servers that combine their shares" in output
    html = (run / "audit.html").read_text()
    assert "default-src 'none'" in html
    assert "<script" not in html
    assert all(sentence[:40].replace("'", "&#39;") in html for sentence in LIMITS)
    for step in ("select.scores", "measure.open", "estimate"):
        assert step in html
    opened = [record["what"] for record in read_lines(run, 0) if record["kind"] == "opened"]
    assert len(opened) - opened.count(PASSED.what) == 2 + 2 + 3
    assert html.count("opened to all") == len(opened)


def test_command_prints_json_and_fails_when_a_check_does(
    honest: Path, another: Path, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    run = copy_run(honest, tmp_path)
    status, output, _ = run_command(capsys, str(run), "--json")
    document = json.loads(output)
    assert (status, document["ok"]) == (Status.DONE, True)
    assert set(document) == {"ok", "headline", "questions", "checks", "files", "missing"}
    assert all(set(check) == {"name", "status", "detail"} for check in document["checks"])
    Forger(run, another, certificates).edit(dropping("sent"), 0, by=None)
    status, output, said = run_command(
        capsys, str(run), "--json", "--html", str(tmp_path / "x.html")
    )
    document = json.loads(output)
    assert (status, document["ok"]) == (Status.AUDIT, False)
    assert "chains" in said
    assert {c["name"]: c["status"] for c in document["checks"]}["chains"] == "fail"
    assert "FAIL" not in (tmp_path / "x.html").read_text()
    assert "Not everything holds." in (tmp_path / "x.html").read_text()


def test_command_takes_certificates_from_elsewhere(
    honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_run(honest, tmp_path)
    (run / "certificates").rename(tmp_path / "public")
    assert run_command(capsys, str(run))[0] == Status.AUDIT
    assert (
        run_command(capsys, str(run), "--certificates", str(tmp_path / "public"))[0] == Status.DONE
    )


def test_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(capsys)[0] == Status.USAGE
    status, _, said = run_command(capsys, str(tmp_path / "nowhere"))
    assert status == Status.STORAGE
    assert "nowhere: is not there" in said
    status, _, said = run_command(capsys, str(tmp_path))
    assert status == Status.STORAGE
    (tmp_path / "transcripts").mkdir()
    status, _, said = run_command(capsys, str(tmp_path))
    assert status == Status.AUDIT
    assert "files" in said
