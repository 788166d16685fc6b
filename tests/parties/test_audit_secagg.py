"""The auditor on a SecAgg server's transcript."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from parties.audit.html import render_audit
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from parties.foundation.errors import StoreError
from protocols.fields import encode
from secagg.noise import server_noise
from tests.parties.audit_runs import Lines
from tests.parties.tampering import doubling, dropping, edit_server, failed, find, setting
from tests.parties.test_secagg_record import NAMES, SERVER, files, play
from tests.secagg.support import session

assert files  # The fixture of this name.


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, files: dict[str, CertificateFiles]) -> Path:
    return make(tmp_path_factory.mktemp("session"), files, absent=(2,))


def make(
    folder: Path, files: dict[str, CertificateFiles], *, absent: tuple[int, ...], noisy: bool = True
) -> Path:
    noise = {"noise": server_noise(3.0)} if noisy else {}
    parameters = session(5, False, threshold=2, min_survivors=4, length=50, **noise)
    run = folder / "run"
    (run / "transcripts").mkdir(parents=True)
    (run / "certificates").mkdir()
    shutil.copyfile(files[SERVER].cert, run / "certificates" / f"{SERVER}.crt")
    shutil.copyfile(files[SERVER].ca, run / "certificates" / "ca.crt")
    asyncio.run(play(files, run / "transcripts" / "server.jsonl", parameters, absent))
    return run


@pytest.mark.parametrize(("absent", "noisy"), [((2,), True), ((), False), ((2, 3), True)])
def test_audit_passes_an_honest_session(
    tmp_path: Path, files: dict[str, CertificateFiles], absent: tuple[int, ...], noisy: bool
) -> None:
    audit = audit_folder(make(tmp_path, files, absent=absent, noisy=noisy))
    assert audit.ok, [c for c in audit.checks if c.status == "fail"]
    assert "secagg.announce" in render_audit(audit)


@pytest.mark.parametrize("name", ["synthetic.csv", "report.html", "config.toml", "proof.pdf"])
def test_audit_fails_files_beside_a_session_that_makes_none(
    name: str, honest: Path, tmp_path: Path
) -> None:
    """The attack: a session of anybody's, and under it a table that nobody made."""
    run = Path(shutil.copytree(honest, tmp_path / "copy"))
    (run / name).write_text("epsilon = 0.01")
    assert failed(audit_folder(run)) == {"contents"}
    assert failed(audit_folder(honest, left_out=[name])) == {"contents"}


def test_audit_refuses_transcripts_of_two_runs(honest: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(honest, tmp_path / "copy"))
    (run / "transcripts" / "party-0.jsonl").touch()
    with pytest.raises(StoreError, match="expected the transcripts of one run"):
        audit_folder(run)


MANIPULATIONS: dict[str, tuple[Callable[[Lines], object], bool, str]] = {
    "changed by a stranger": (setting("sent", "bytes", 1), False, "chains"),
    "message hidden": (dropping("received"), True, "messages"),
    "message of another kind": (setting("sent", "step", "raw"), True, "messages"),
    "two sums": (doubling("opened"), True, "openings"),
    "another opening": (setting("opened", "what", "secagg.vector"), True, "openings"),
    "shorter sum": (setting("opened", "value", encode(bytes(8))), True, "openings"),
    "fewer survivors": (
        lambda lines: [r.update(accepted=False) for r in lines if r["kind"] == "client"], True, "clients",
    ),
    "a client left out": (dropping("client"), True, "clients"),
    "a shorter vector": (setting("received", "bytes", 9, step="secagg.masked"), True, "clients"),
    "a vector that never came": (
        setting("received", "step", "secagg.reveal", step="secagg.masked"), True, "clients",
    ),
    "other parameters": (setting("header", "parameters_sha256", "0" * 64), True, "configuration"),
    "parameters are garbage": (setting("header", "parameters", "00"), True, "configuration"),
    "another client": (lambda lines: find(lines, "header")["clients"].pop(), True, "configuration"),
    "no sum": (dropping("opened"), True, "completeness"),
}  # fmt: skip


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_audit_catches(
    name: str, honest: Path, files: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    change, signed, expected = MANIPULATIONS[name]
    run = Path(shutil.copytree(honest, tmp_path / "copy"))
    edit_server(run, change, files[SERVER] if signed else None)
    assert expected in failed(audit_folder(run))


def test_audit_names_the_signer(
    honest: Path, files: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(honest, tmp_path / "copy"))
    edit_server(run, lambda lines: None, files[NAMES[0]])
    assert failed(audit_folder(run)) == {"signatures"}
