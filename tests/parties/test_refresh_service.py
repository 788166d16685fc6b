"""A study that starts from an earlier run's model, through services: its files go with the proposal and the result.

Owners by invitation have the model's digest alone, and its files with the result, where their audit judges the model.
"""

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechanisms.model import MARGINALS_FILE, TREE_FILE, Model
from parties.audit.bundle import unpacked_run
from parties.audit.runner import audit_folder
from parties.cli.proposals import _proposal
from parties.config import START_FOLDER, earlier_model, load_config
from parties.foundation.exit_codes import Status
from parties.identity.invitation import accept_invitation, load_invitation
from parties.identity.study_setup import create_study
from parties.identity.tls import Authority
from parties.service import start_files
from parties.service.identity import ServiceIdentity
from parties.service.start_files import START, encoded_start
from parties.service.study_intake import (
    ProposalRefused,
    check_proposal,
    make_study_folder,
    new_card,
)
from tests.parties.serving import Cluster, cluster, make_identities, syncret
from tests.parties.small import write_small
from tests.until import nothing_runs

pytestmark = pytest.mark.timeout(600)
LAST = "last.zip"
FILES = (TREE_FILE, MARGINALS_FILE)


def write_last(folder: Path, seed: int = 1) -> None:
    """The bundle, as far as a refresh reads it, of an earlier run in which all columns go together."""
    config, _ = write_small(folder)
    domain = load_config(config).domain
    joint = np.random.default_rng(seed).dirichlet(np.full(domain.size(domain.names), 0.3))
    model = Model(domain, (domain.names,), (-1,), (joint.reshape(domain.shape),))
    model.save(folder / "last")
    with zipfile.ZipFile(folder / LAST, "w") as archive:
        for name in FILES:
            archive.write(folder / "last" / name, f"model/{name}")


def refresh_study(path: Path) -> Path:
    """Lets the study in a file start from the last run."""
    write_last(path.parent)
    path.write_text(path.read_text() + f'\n[refresh]\nmodel = "{LAST}"\n')
    return path


class Refreshing(Cluster):
    """Three services whose studies start from the last run."""

    def study(self, run: str, **changes: object) -> Path:
        return refresh_study(super().study(run, **changes))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refreshing]:
    folder = tmp_path_factory.mktemp("refreshing")
    with cluster(folder) as made:
        yield Refreshing(made.folder, made.serves)
        for serve in made.serves:
            assert serve.end() == int(Status.TERMINATED), serve.log
    nothing_runs(folder)


def test_a_refresh_goes_from_the_proposal_to_the_audited_result(three: Refreshing) -> None:
    digest, north = three.propose("quarter"), three.folder / "north"
    folders = [Path(serve.get(f"/studies/{digest}")["folder"]) for serve in three.serves]
    for folder in folders:
        for name in FILES:
            there = folder / "study" / START_FOLDER / name
            assert there.read_bytes() == (three.folder / "last" / name).read_bytes()
    three.approve(digest)
    # Owners by invitation have no file of the earlier model, and no path of the coordinator's.
    invitation = three.folder / "quarter.invitation"
    syncret("study", "invite", "study-quarter/quarter.toml", cwd=three.folder)
    assert LAST not in invitation.read_text()
    accepted = accept_invitation(load_invitation(invitation), north)
    assert load_config(accepted).digest() == digest
    three.submit("quarter")
    said = syncret(
        *("result", str(accepted), "--key", "tls-quarter/own.key", "--wait", "120", "--json"),
        *("--cert", "study-quarter/certificates/north.crt"),
        cwd=north,
    )
    found, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert found["audit"]["ok"], found
    with unpacked_run(north / "quarter.zip") as unpacked:
        audit = audit_folder(unpacked.folder, agreed=accepted)
        assert {check.name: check.status for check in audit.checks}["model"] == "pass"
        quality = json.loads((unpacked.folder / "report.json").read_text())["quality"]
        assert len(quality["dependencies"]["taken_over"]) < 3
        assert {f.name: f.status for f in audit.files}[f"{START_FOLDER}/{TREE_FILE}"] == "sealed"
        # The model is the earlier one's: all three columns go together.
        assert len(Model.load(unpacked.folder / "model").cliques) == 1
    # A server collects the same.
    zipped = three.folder / "alpha.zip"
    three.serves[0].command("study", "result", digest, "--out", str(zipped))
    assert zipped.read_bytes() == (north / "quarter.zip").read_bytes()


def proposal_of(folder: Path) -> tuple[ServiceIdentity, dict[str, Any]]:
    """A refresh, as `study propose` sends it, and its first server."""
    Authority.make(folder / "authority", 10)
    cards = []
    for at in (folders := make_identities(folder)):
        cards.append(folder / f"{at.name}.card")
        cards[-1].write_text(new_card(ServiceIdentity.load(at), "distaim"))
    path, _ = write_small(folder)
    refresh_study(path)
    create_study(path, cards, authority=folder / "authority", out=folder / "out", valid_days=9)
    return ServiceIdentity.load(folders[0]), _proposal(load_config(folder / "out" / path.name))


def test_a_proposal_has_the_earlier_models_files_and_no_path(tmp_path: Path) -> None:
    identity, document = proposal_of(tmp_path)
    assert LAST not in document["config"]
    proposal = check_proposal(document, identity)
    made = make_study_folder(identity, proposal)
    earlier = earlier_model(load_config(made.config))
    assert earlier is not None
    assert encoded_start(earlier) == {START: document[START]}
    # A path that a proposer leaves in is not looked at.
    named = document["config"].replace("[refresh]", '[refresh]\nmodel = "/etc/passwd"')
    assert check_proposal({**document, "config": named}, identity).config.digest() == (
        proposal.config.digest()
    )


def _other(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    write_last(folder, seed=2)
    files = {name: (folder / "last" / name).read_bytes() for name in FILES}
    return {START: encoded_start(start_files.EarlierModel(files))[START]}


Change = Callable[[dict[str, Any], Path], dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d, _: {START: None}, "without the files"),
        (lambda d, _: {START: {TREE_FILE: d[START][TREE_FILE]}}, "without the files"),
        (lambda d, _: {START: {**d[START], "more": "AAAA"}}, "without the files"),
        (lambda d, _: {START: {**d[START], TREE_FILE: 7}}, "not base64"),
        (lambda d, _: {START: {**d[START], TREE_FILE: "?"}}, "not base64"),
        (lambda d, _: {START: {**d[START], TREE_FILE: "AAAA"}}, "files of another model"),
        (_other, "files of another model"),
    ],
)
def test_a_proposal_without_its_earlier_model_is_refused(
    tmp_path: Path, change: Change, says: str
) -> None:
    identity, document = proposal_of(tmp_path)
    with pytest.raises(ProposalRefused, match=says):
        check_proposal({**document, **change(document, tmp_path)}, identity)


def test_an_earlier_model_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, document = proposal_of(tmp_path)
    monkeypatch.setattr(start_files, "MAX_START_BYTES", 100)
    with pytest.raises(ProposalRefused, match="more than 100 bytes"):
        check_proposal(document, identity)


def test_an_earlier_model_of_more_memory_than_the_study_may_have_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, document = proposal_of(tmp_path)
    monkeypatch.setattr(start_files, "_MOST_MB", 0)
    monkeypatch.setattr(start_files.EarlierModel, "model", None)
    with pytest.raises(ProposalRefused, match="the earlier model takes 1 MB"):
        check_proposal(document, identity)


def test_an_earlier_model_of_other_columns_is_refused_with_the_column(tmp_path: Path) -> None:
    """The digest fits and the columns do not: a proposer's program that did not look."""
    identity, document = proposal_of(tmp_path)
    text = document["config"].replace('"x",', '"u",')
    assert text != document["config"]
    with pytest.raises(ProposalRefused, match="'ward' has other values"):
        check_proposal({**document, "config": text}, identity)
