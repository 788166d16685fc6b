"""A run that starts from an earlier run's model: by three servers, with its audit and bundle, and what it costs."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mechanisms.model import Model
from parties.audit.bundle import unpacked_run
from parties.audit.packing import pack_run
from parties.audit.replay import replay_folder
from parties.audit.runner import Audit, audit_folder
from parties.config import START_FOLDER, CertificateFiles, load_config
from parties.local.resource_plan import document_of, lines_of, make_resource_plan
from parties.mpc.estimation import make_estimator
from parties.mpc.planning.resources import NetworkAssumptions
from parties.report.verdict import verdict
from parties.session.result_digests import model_digest
from tests.parties.audit_runs import copy_run, make_run
from tests.parties.support import make_config
from tests.parties.tampering import failed

Certificates = dict[str, CertificateFiles]
FEW: dict[str, object] = {"run.rounds": 2, "run.noise": "distributed", "run.final_iterations": 100}


def save_earlier(folder: Path) -> dict[str, object]:
    """A model in which all columns go together; the keys of a configuration that starts from it."""
    domain = make_config().domain
    joint = np.random.default_rng(1).dirichlet(np.full(domain.size(domain.names), 0.3))
    Model(domain, (domain.names,), (-1,), (joint.reshape(domain.shape),)).save(folder)
    return {"refresh.model": str(folder), "refresh.digest": model_digest(folder)}


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    folder = tmp_path_factory.mktemp("refreshed")
    keys = save_earlier(folder / "earlier")
    recorded = {**FEW, **keys, "run.record_replay": True}
    run = make_run(folder, certificates, recorded, estimator=make_estimator)
    shutil.copytree(folder / "earlier", run / START_FOLDER)
    return run


def statuses(audit: Audit) -> dict[str, str]:
    return {check.name: check.status for check in audit.checks}


def test_the_audit_of_a_refresh_passes_and_makes_the_model_anew(refreshed: Path) -> None:
    audit = audit_folder(refreshed)
    assert failed(audit) == set()
    assert statuses(audit)["model"] == "pass"
    assert statuses(audit)["quality"] == "pass"
    assert {f.name: f.status for f in audit.files}[f"{START_FOLDER}/model.json"] == "sealed"
    # The model is one that the earlier one shaped: three columns go together, of which two pairs at most were measured.
    assert len(Model.load(refreshed / "model").cliques) == 1


def test_the_report_of_a_refresh_knows_what_is_the_earlier_models(refreshed: Path) -> None:
    quality = json.loads((refreshed / "report.json").read_text())["quality"]
    measured = {tuple(m["columns"]) for m in quality["earlier"]["marginals"]}
    assert measured
    # A sum of fewer owners than came in the end has no noise over all rows.
    assert measured >= {tuple(m["columns"]) for m in quality["marginals"] if m["noise"] is not None}
    kinds = quality["dependencies"]
    joint = {pair for columns in measured for pair in itertools.combinations(columns, 2)}
    assert {tuple(pair) for pair in kinds["measured"]} == joint
    assert len(kinds["taken_over"]) == 3 - len(joint)
    assert kinds["through_others"] == kinds["independent"] == []
    said = " ".join([*quality["verdict"]["good_for"], *quality["verdict"]["not_for"]])
    assert ("Relations taken over from the earlier model" in said) == bool(kinds["taken_over"])


@pytest.mark.parametrize("part", ["taken_over", "changed"])
def test_the_audit_refuses_a_report_that_makes_more_of_the_earlier_model(
    refreshed: Path, tmp_path: Path, part: str
) -> None:
    run = copy_run(refreshed, tmp_path)
    document = json.loads((run / "report.json").read_text())
    quality = document["quality"]
    if part == "changed":
        for marginal in quality["earlier"]["marginals"]:
            marginal["changed"] = not marginal["changed"]
    else:
        kinds = quality["dependencies"]
        kinds["taken_over"], kinds["measured"] = kinds["measured"], kinds["taken_over"]
    quality["verdict"] = verdict(quality, make_config().domain)
    (run / "report.json").write_text(json.dumps(document))
    assert "quality" in failed(audit_folder(run))


def test_a_replay_of_the_lead_of_a_refresh_recomputes_its_messages(refreshed: Path) -> None:
    """The model is public and recorded: a replay does without the earlier one."""
    shutil.rmtree(refreshed.parent / "earlier")
    said = replay_folder(refreshed.parent / "server-0", refreshed / "transcripts")
    assert "messages of 1 mesh" in said


def test_the_audit_refuses_another_earlier_model(refreshed: Path, tmp_path: Path) -> None:
    run = copy_run(refreshed, tmp_path)
    model = Model.load(run / START_FOLDER)
    even = tuple(np.full(m.shape, 1 / m.size) for m in model.marginals)
    Model(model.domain, model.cliques, model.parents, even).save(run / START_FOLDER)
    (run / "config.toml").unlink()
    assert {"model", "quality", "contents"} <= failed(audit_folder(run))


def test_the_audit_does_not_judge_a_model_without_the_earlier_one(
    refreshed: Path, tmp_path: Path
) -> None:
    run = copy_run(refreshed, tmp_path)
    shutil.rmtree(run / START_FOLDER)
    audit = audit_folder(run)
    assert failed(audit) == set()
    assert statuses(audit)["model"] == "not applicable"


def test_the_audit_refuses_a_model_that_did_not_start_from_the_earlier_one(
    tmp_path: Path, certificates: Certificates
) -> None:
    """The attack: a lead that leaves the earlier model out."""

    def fresh(study, plan):  # type: ignore[no-untyped-def]
        return make_estimator(
            study.__class__(study.config.override({"refresh": None}), study.workload), plan
        )

    keys = save_earlier(tmp_path / "earlier")
    run = make_run(tmp_path, certificates, {**FEW, **keys}, estimator=fresh)
    shutil.copytree(tmp_path / "server-0" / "model", run / "model", dirs_exist_ok=True)
    shutil.copytree(tmp_path / "earlier", run / START_FOLDER)
    assert "model" in failed(audit_folder(run))


def test_a_bundle_has_the_earlier_model_and_no_path_to_it(refreshed: Path, tmp_path: Path) -> None:
    run = copy_run(refreshed, tmp_path)
    shutil.move(run / START_FOLDER, refreshed.parent / "earlier")
    names = pack_run(run, tmp_path / "run.zip", certificates=run / "certificates").names
    assert {f"{START_FOLDER}/model.json", f"{START_FOLDER}/marginals.npz"} <= {*names}
    with unpacked_run(tmp_path / "run.zip") as unpacked:
        assert "earlier" not in (unpacked.folder / "config.toml").read_text()
        digest = load_config(unpacked.folder / "config.toml").digest()
        assert digest == load_config(run / "config.toml").digest()
        assert failed(audit_folder(unpacked.folder)) == set()


def test_a_plan_says_what_four_quarters_cost_together(tmp_path: Path) -> None:
    network = NetworkAssumptions(1e9, 1e-3)
    keys = save_earlier(tmp_path / "earlier")
    for config in (make_config(), make_config(keys)):
        made = make_resource_plan(config, rows=None, capacity=None, memory=None, network=network)
        epsilon = document_of(made)["epsilon_in_a_year"]
        assert isinstance(epsilon, float)
        assert 1.9 < epsilon / config.run.epsilon < 4.0
        text = "\n".join(lines_of(made))
        assert f"cost a row that is in all of them epsilon {epsilon:.3g}"[:-1] in text
        assert ("starts from an earlier run's model" in text) == (config.refresh is not None)
