"""The auditor on silos' servers: honest runs of every kind pass, and what a server cannot have done is found."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from parties.audit.checks import federation as audited
from parties.audit.html import render_audit
from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from parties.identity.tls import make_certificates
from protocols.transcript import round_ended
from tests.parties.audit_runs import Lines
from tests.parties.silos_support import (
    MALICIOUS,
    NAMES,
    SERVER,
    Tails,
    collect,
    leaving,
    play,
    silos_config,
)
from tests.parties.tampering import dropping, edit_server, failed, find, index, setting

Certificates = Mapping[str, CertificateFiles]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("silos"), [SERVER], NAMES)


@pytest.fixture(autouse=True)
def noisy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The auditor makes the tests' plan of a configuration."""
    monkeypatch.setattr(audited, "plan_of", Tails)


@pytest.mark.parametrize("kind", ["malicious", "exact"])
async def test_audit_passes_an_honest_run(
    certificates: Certificates, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = silos_config(certificates, MALICIOUS if kind == "malicious" else None)
    plan = Tails(config, noisy=kind != "exact")
    monkeypatch.setattr(audited, "plan_of", lambda read: Tails(read, noisy=kind != "exact"))
    await play(config, certificates, tmp_path, plan)
    run = collect(config, tmp_path, certificates)
    audit = audit_folder(run)
    assert failed(audit) == set(), audit.checks
    assert audit.ok
    assert "opened to all" in render_audit(audit)
    said = "added their parts" if kind == "malicious" else "had no noise"
    assert said in audit.limits[2]
    page = (run / "report.html").read_text()
    assert ("Not private" in page) == (kind == "exact")
    values = [
        json.loads(line)["value"]
        for line in (run / "transcripts" / "server.jsonl").read_text().splitlines()
        if json.loads(line)["kind"] == "opened"
    ]
    assert all(bool(value) == (kind != "exact") for value in values)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    """A run that a silo left in its second sum."""
    import asyncio

    folder = tmp_path_factory.mktemp("honest")
    config = silos_config(certificates)
    plan = Tails(config)
    gone = leaving(config, certificates, folder, plan, 4, at="secagg.inbox")
    asyncio.run(play(config, certificates, folder, plan, {4: gone}))
    return collect(config, folder, certificates)


def asked(**changes: Any) -> Callable[[Lines], object]:
    """Something else in what sum 2 was asked for with."""

    def change(lines: Lines) -> None:
        note = find(lines, "note", what="asked", round=2)
        head = json.loads(note["head"]) | changes
        note["head"] = json.dumps(head, sort_keys=True, separators=(",", ":"))

    return change


def paid_later(lines: Lines) -> None:
    """The charge of sum 2 stands behind its note."""
    charge, note = index(lines, "ledger", round=2), index(lines, "note", what="asked", round=2)
    lines[charge], lines[note] = (
        lines[note] | {"t": lines[charge]["t"]},
        lines[charge] | {"t": lines[note]["t"]},
    )


def counted_all_the_same(lines: Lines) -> None:
    """The silo that left is not said to have done so."""
    lines.pop(index(lines, "client", round=2, accepted=False))


FORGERIES: dict[str, tuple[Callable[[Lines], object], bool, str]] = {
    "bytes changed by a stranger": (setting("sent", "bytes", 1), False, "chains"),
    "message hidden": (dropping("received", step="secagg.masked"), True, "messages"),
    "message of an unknown kind": (setting("sent", "step", "silos.rows"), True, "messages"),
    "smaller vector": (
        setting("received", "bytes", 100, step="secagg.masked", round=3),
        True,
        "clients",
    ),
    "who left is counted": (counted_all_the_same, True, "clients"),
    "a stranger takes part": (setting("client", "client", "nobody"), True, "clients"),
    "another step asked for": (asked(step="rows"), True, "requests"),
    "less noise asked for": (asked(noise=["server", 1, 1]), True, "requests"),
    "wider bounds asked for": (asked(high=1 << 40), True, "requests"),
    "something else opened": (setting("opened", "what", "silos.rows"), True, "openings"),
    "longer sum": (setting("opened", "count", lambda n: n + 1), True, "openings"),
    "charge dropped": (dropping("ledger", round=2), True, "ledger"),
    "charge after the sum": (paid_later, True, "ledger"),
    "charged too little": (setting("ledger", "rho", 1e-9), True, "ledger"),
    "another budget": (setting("header", "rho_total", 9.0), True, "ledger"),
    "another plan": (setting("header", "plan_sha256", "0" * 64), True, "configuration"),
    "fewer sums": (setting("note", "sums", 2, what="finished"), True, "completeness"),
    "seal dropped": (dropping("seal", reason=round_ended(2)), True, "completeness"),
}


def test_audit_passes_the_run_that_is_tampered_with(honest: Path) -> None:
    assert failed(audit_folder(honest)) == set()


@pytest.mark.parametrize("name", FORGERIES)
def test_audit_finds(name: str, honest: Path, tmp_path: Path, certificates: Certificates) -> None:
    change, sealed, check = FORGERIES[name]
    run = tmp_path / "run"
    shutil.copytree(honest, run)
    edit_server(run, change, certificates[SERVER] if sealed else None)
    assert check in failed(audit_folder(run))


@pytest.mark.parametrize(
    ("name", "check"), [("totals.json", "files made"), ("report.json", "report")]
)
def test_audit_finds_another_file(name: str, check: str, honest: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(honest, run)
    path = run / name
    path.write_text(path.read_text().replace('"noise": "server"', '"noise": "distributed"') + " ")
    assert failed(audit_folder(run)) == {check}


@pytest.mark.parametrize(
    ("algorithm", "noise", "said"),
    [
        ("tda", "server", ["saw every sum before", "model and table", "privacy ledger of its own"]),
        (
            "tda",
            "distributed",
            ["added their parts", "model and table", "privacy ledger of its own"],
        ),
        ("mtl", "server", ["by its own noise", "mean of the models", "keeps what it spent"]),
    ],
)
def test_limits_are_those_of_the_algorithm(
    certificates: Certificates, algorithm: str, noise: str, said: list[str]
) -> None:
    config = silos_config(certificates, {"tda": None, algorithm: {"any": 1}, "silos.noise": noise})
    plan = Tails(config)
    object.__setattr__(plan, "private_answers", algorithm == "mtl")
    limits = audited.limits_of(audited.SilosTerms(config, plan))
    assert len(limits) == 6
    for sentence, words in zip(limits[2:5], said, strict=True):
        assert words in sentence
    assert ("before it" in limits[2]) == (said[0] == "saw every sum before")
