"""A bundle of a run between silos on one machine is charged and bound, and has nothing of the real table."""

import json
import math
from pathlib import Path

import pytest

from mechanisms.accounting import rho_from_epsilon_delta
from parties.audit.bundle import unpacked_run
from parties.audit.runner import Audit, audit_folder
from parties.config import load_config
from parties.foundation.exit_codes import Status
from parties.local.publication import is_local_run, local_release
from parties.methods.federated_report import SILOS_TRIAL_TRUST
from parties.methods.registry import plan_of
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import OwnerBudget
from parties.storage.population_budget import APPROXIMATE
from tests.parties.test_audit_contents import PAGE, REPORT, read
from tests.parties.test_publication import Publisher

TDA, MTL = "tda", "mtl"
RESULTS = {TDA: {"model.json", "synthetic.csv"}, MTL: {"mean.json"}}


@pytest.fixture(params=[TDA, MTL])
def silos(request: pytest.FixtureRequest, tmp_path: Path) -> Publisher:
    return Publisher(tmp_path, request.param)


def audit(path: Path) -> Audit:
    with unpacked_run(path) as run:
        return audit_folder(run.folder, left_out=run.left_out)


def test_nothing_leaves_without_a_word(
    silos: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert silos.bundle() == Status.CONFIG
    assert "made on one machine" in capsys.readouterr().err
    assert not silos.out.exists()
    assert not silos.budget.exists()


def test_a_run_is_charged_once_for_all_its_bundles(
    silos: Publisher, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in (["--new-population", "stays"], ["--population", "stays"], []):
        assert silos.bundle(*options) == Status.DONE
        assert silos.charged == {"stays": [silos.report["method"]]}
    config = load_config(silos.run / "config.toml")
    ((item,),) = (dataset.spending for dataset in OwnerBudget(silos.budget).datasets())
    assert item.state is ChargeState.RELEASED
    assert item.release.epsilon == config.run.epsilon
    if silos.report["method"] == TDA:
        assert item.release.rho == plan_of(config).rho
        assert item.release.rho <= rho_from_epsilon_delta(config.run.epsilon, config.run.delta)
    else:
        assert item.release.accountant == APPROXIMATE
    # Another run of the same study has another transcript, and is another release.
    transcript = silos.run / "transcripts" / "server.jsonl"
    transcript.write_text(transcript.read_text() + "\n")
    silos.out.unlink()
    capsys.readouterr()
    assert silos.bundle("--population", "stays") == Status.BUDGET
    said = capsys.readouterr().err
    assert "does not cover this release, and nothing was published" in said
    assert "nothing was sent" not in said
    assert not silos.out.exists()


@pytest.mark.parametrize("options", [["--new-population", "stays"], ["--uncharged", "made up"]])
def test_a_bundle_has_what_an_audit_reads_and_nothing_of_the_real_table(
    silos: Publisher, options: list[str]
) -> None:
    assert silos.bundle(*options) == Status.DONE
    files = read(silos.out)
    assert RESULTS[silos.report["method"]] <= files.keys()
    assert not {"silos.json", "run.json", "tables.sealed", "parties"} & {
        name.partition("/")[0] for name in files
    }
    published = json.loads(files[REPORT])
    assert published["utility"] == {}
    assert published["account"]["charged"] is ("stays" in options)
    for value in silos.report["utility"].values():
        assert str(value) not in files[REPORT].decode()
    assert b"Against the real table" not in files[PAGE]
    assert (b"charged to no budget" in files[PAGE]) is ("made up" in options)
    found = audit(silos.out)
    assert found.ok, [check for check in found.checks if check.status == "fail"]
    assert "account" in found.headline


def test_a_changed_result_in_a_bundle_fails(silos: Publisher, tmp_path: Path) -> None:
    import zipfile

    assert silos.bundle("--uncharged", "made up") == Status.DONE
    for changed in RESULTS[silos.report["method"]]:
        path = tmp_path / "changed.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in read(silos.out).items():
                archive.writestr(name, data + b" " if name == changed else data)
        assert not audit(path).ok


def test_a_run_without_a_guarantee_costs_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silos = Publisher(tmp_path, TDA)
    report = {**silos.report, "private": False}
    config = load_config(silos.run / "config.toml")
    assert math.isinf(local_release(config, report).rho)
    exact = config.override({"tda.privacy": "none"})
    assert local_release(exact, silos.report).not_private
    (silos.run / REPORT).write_text(json.dumps(report))
    word = ("--new-population", "stays")
    assert silos.bundle(*word) == Status.CONFIG
    assert "--not-private" in capsys.readouterr().err
    assert silos.bundle(*word, "--not-private") == Status.DONE
    assert OwnerBudget(silos.budget).dataset("stays").not_private


def test_figures_of_the_real_table_cost_everything(silos: Publisher) -> None:
    word = ("--new-population", "stays", "--real-figures")
    assert silos.bundle(*word) == Status.CONFIG
    assert silos.bundle(*word, "--not-private") == Status.DONE
    assert OwnerBudget(silos.budget).dataset("stays").not_private


def test_a_run_between_machines_is_its_silos(silos: Publisher) -> None:
    """They have charged it when they took part."""
    trust = [line for line in silos.report["trust"] if "trial" not in line]
    report = {**silos.report, "trust": trust, "utility": {}, "not_private": []}
    (silos.run / REPORT).write_text(json.dumps(report))
    config = load_config(silos.run / "config.toml")
    assert is_local_run(silos.run, config, {})
    (silos.run / "run.json").unlink()
    assert not is_local_run(silos.run, config, report)
    assert is_local_run(silos.run, config, {**report, "trust": [*trust, SILOS_TRIAL_TRUST]})
    assert silos.bundle("--new-population", "stays") == Status.CONFIG
    assert silos.bundle() == Status.DONE
    assert not silos.budget.exists()
    assert "account" not in json.loads(read(silos.out)[REPORT])


@pytest.mark.parametrize("name", ["../run.json", "run.json", "silos.json", "certificates"])
def test_a_report_cannot_bring_other_files_into_a_bundle(silos: Publisher, name: str) -> None:
    report = {**silos.report, "files": [*silos.report["files"], name]}
    (silos.run / REPORT).write_text(json.dumps(report))
    assert silos.bundle("--new-population", "stays") == Status.STORAGE
    assert not silos.out.exists()
    assert silos.charged == {}
