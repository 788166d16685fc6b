"""Three services that get a new version one after the other, with a study under way."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from parties.foundation.exit_codes import Status
from parties.foundation.version import WIRE_VERSION
from parties.identity.study_setup import CERTIFICATES
from tests.parties.commands import ROOT
from tests.parties.serving import Cluster, cluster, syncret
from tests.until import nothing_runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_ANY = ("failed", "waiting", "running")


def git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no earlier version is here: {done.stderr.decode().strip()}")
    return done.stdout


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the latest version with other messages between servers."""
    where = ("-G", "^WIRE_VERSION = ", "--format=%H", "--", "parties/foundation/version.py")
    changed = git("log", "-1", *where).decode().strip()
    folder = tmp_path_factory.mktemp("before")
    archive = folder / "sources.tar"
    archive.write_bytes(git("archive", f"{changed}^"))
    subprocess.run(["tar", "-x", "-f", archive, "-C", folder], check=True)
    text = (folder / "parties" / "foundation" / "version.py").read_text()
    assert f"WIRE_VERSION = {WIRE_VERSION}\n" not in text
    return folder


@pytest.fixture
def three(tmp_path: Path, before: Path) -> Iterator[Cluster]:
    """Three services of the version before."""
    with cluster(tmp_path, sources=before) as made:
        yield made
        for serve in made.serves:
            assert serve.end() == int(Status.TERMINATED), serve.log
    nothing_runs(tmp_path)


def test_a_study_under_way_waits_while_versions_differ_and_ends_with_the_new_one(
    three: Cluster,
) -> None:
    """Two of its owners have sent to the version before; both sides say that versions differ, and which."""
    alpha, beta, gamma = three.serves
    digest = three.propose("upgraded", expected="3\nminimum = 3\nwait_s = 7200")
    three.approve(digest)
    for serve in three.serves:
        serve.until_state("upgraded", "running")
    three.submit("upgraded", "north")
    for serve in (alpha, beta):
        serve.end()
        serve.sources = ROOT
        serve.start()
        serve.until(
            lambda s: "gamma: it and another server have different v" in s["studies"][0]["why"],
            "says that versions differ",
        )
        assert "all three need the same" in serve.command("study", "list")
        gamma.until(lambda s: f"messages {WIRE_VERSION}" in json.dumps(s["peers"]), "says so, too")
    gamma.end()
    gamma.sources = ROOT
    gamma.start()
    # Versions up to 17 took the other version for a defect, and gave up after five tries: a decision of all three.
    if "failed" in {serve.until_state("upgraded", *_ANY)["state"] for serve in three.serves}:
        for serve in three.serves:
            serve.until_state("upgraded", "failed")
        three.approve(digest)
    for serve in three.serves:
        serve.until_state("upgraded", "running")
    three.submit("upgraded", "south", "west")
    for serve in three.serves:
        assert serve.until_state("upgraded", "finished")["reason"] == ""
    out = three.folder / "whole.zip"
    alpha.command("study", "result", "upgraded", "--out", str(out))
    config = three.folder / "study-upgraded" / "upgraded.toml"
    assert (config.parent / CERTIFICATES).is_dir()
    syncret("audit", str(out), "--config", str(config), cwd=three.folder)
