"""Owners with an invitation, until the audited result, and one service as a process: FLAIM, and between silos."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from parties.config import load_config
from parties.foundation.exit_codes import Status
from parties.identity.tls import Authority
from parties.storage.owner_budget import OwnerBudget
from tests.parties.commands import ROOT
from tests.parties.serving import LIMIT_S, OWNERS, Serve, make_identities, syncret
from tests.parties.small import write_small
from tests.parties.test_taking_part import waiting
from tests.until import nothing_runs, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

SECTIONS = {
    "flaim": f"[flaim]\nclients = {list(OWNERS)}\n",
    "tda": f'[silos]\nnoise = "distributed"\nclients = {list(OWNERS)}\n\n[tda]\ncomponents = 2\n',
}


@dataclass
class Hub:
    """One service, alone, and the owners that it invites."""

    folder: Path
    serve: Serve

    def invite(self, run: str, method: str, **changes: str) -> tuple[str, Path]:
        """A study of one server, proposed and not approved; its digest and its invitation."""
        path, _ = write_small(self.folder, rounds=2)
        text = path.read_text().replace('id = "small"', f'id = "{run}"')
        for key, value in changes.items():
            text = text.replace(f"\n{key} = ", f"\n{key} = {value} #")
        path = self.folder / f"{run}.toml"
        path.write_text(text.replace("\n[[column]]", f"\n{SECTIONS[method]}\n[[column]]", 1))
        authority, out = self.folder / f"{run}-authority", self.folder / f"study-{run}"
        Authority.make(authority, 10)
        arguments = ("--authority", str(authority), "--out", str(out), "--json")
        said = self.serve.command("study", "propose", str(path), *arguments)
        invitation = self.folder / f"{run}.invitation"
        syncret("study", "invite", str(out / path.name), "--out", str(invitation), cwd=self.folder)
        return str(json.loads(said)["digest"]), invitation

    def host(self, name: str, invitation: Path) -> Path:
        """The owner's folder, with its table alone."""
        host = self.folder / f"{invitation.stem}-{name}"
        if not host.exists():
            host.mkdir()
            write_small(host)
            (host / "small.toml").unlink()
        return host

    def join(self, name: str, invitation: Path, *more: str) -> "subprocess.Popen[str]":
        """`syncret join INVITATION` of an owner."""
        host = self.host(name, invitation)
        command = [sys.executable, "-m", "parties", "join", str(invitation), "--data", "small.csv"]
        with (host / "errors").open("a") as errors:
            return subprocess.Popen(
                [*command, "--name", name, "--yes", *more],
                cwd=host,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "SYNCRET_BUDGET": str(host / "budget.sqlite"),
                },
            )

    def errors(self, name: str, invitation: Path) -> str:
        return (self.host(name, invitation) / "errors").read_text()

    def admit(self, digest: str, run: str, *names: str) -> dict[str, str]:
        """Admits owners by the words of their requests, and returns these."""
        asked = waiting(self.serve, digest, *names)
        for name in names:
            authority = ("--authority", str(self.folder / f"{run}-authority"))
            self.serve.command("study", "admit", digest, asked[name]["words"], *authority)
        return {name: asked[name]["words"] for name in names}

    def approve(self, digest: str) -> None:
        status, answer = self.serve.ask("POST", f"/studies/{digest}/approve", {"digest": digest})
        assert status == 200, answer


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("one-server")
    (identity,) = make_identities(folder, ("hub",))
    serve = Serve(identity, ("--max-running", "2"), {"SYNCRET_REGISTER": str(folder / "register")})
    serve.start()
    try:
        serve.until(lambda status: status["service"] == "hub", "there")
        yield Hub(folder, serve)
        assert serve.end() == int(Status.TERMINATED), serve.log
    finally:
        if serve.process is not None and serve.process.poll() is None:
            serve.process.kill()
            serve.process.wait()
    nothing_runs(folder)


@pytest.mark.parametrize("method", SECTIONS)
def test_one_command_goes_from_the_invitation_to_the_audited_result(hub: Hub, method: str) -> None:
    run = f"one-{method}"
    digest, invitation = hub.invite(run, method)
    joining = {name: hub.join(name, invitation, "--json") for name in OWNERS}
    words = hub.admit(digest, run, *OWNERS)
    # It waits for the operator; killed there, the same command goes on.
    until(lambda: "has not begun" in hub.errors("north", invitation), "north waits", LIMIT_S)
    joining["north"].kill()
    joining["north"].communicate()
    joining["north"] = hub.join("north", invitation, "--json")
    hub.approve(digest)
    for name, process in joining.items():
        out, _ = process.communicate(timeout=2 * LIMIT_S)
        errors = hub.errors(name, invitation)
        assert process.returncode == 0, (name, out, errors, hub.serve.log[-3000:])
        assert words[name].split()[0] in errors
        assert f"You take part in the study {run}" in errors
        said = json.loads(out)
        assert said["participation"]["finished"]
        assert said["result"]["audit"]["ok"], said
    bundles = {(hub.host(n, invitation) / f"{run}.zip").read_bytes() for n in OWNERS}
    assert len(bundles) == 1
    with zipfile.ZipFile(hub.host("north", invitation) / f"{run}.zip") as bundle:
        names = set(bundle.namelist())
    assert {"transcripts/server.jsonl", "synthetic.csv", "certificates/hub.crt"} < names
    # Each has paid once.
    for name in OWNERS:
        budget = OwnerBudget(hub.host(name, invitation) / "budget.sqlite")
        (charged,) = budget.datasets()[0].runs
        assert (charged.release.run, charged.returned) == (run, None)
    # The server has the same file, and the same command is at the end already.
    zipped = hub.folder / f"{run}-hub.zip"
    hub.serve.command("study", "result", digest, "--out", str(zipped))
    assert zipped.read_bytes() in bundles
    again = hub.join("north", invitation)
    out, _ = again.communicate(timeout=LIMIT_S)
    assert again.returncode == 0, hub.errors("north", invitation)
    assert "Everything that can be checked holds" in out


def test_a_killed_participant_and_a_killed_service_go_on(hub: Hub) -> None:
    digest, invitation = hub.invite("killed", "flaim", epsilon="1.0")
    joining = {name: hub.join(name, invitation) for name in OWNERS}
    hub.admit(digest, "killed", *OWNERS)
    hub.serve.end(9)
    hub.serve.start()
    hub.serve.until_state("killed", "proposed")
    hub.approve(digest)

    def all_joined() -> bool:
        return all("has joined run killed" in hub.errors(name, invitation) for name in OWNERS[:2])

    until(all_joined, "joined", LIMIT_S)
    joining["north"].kill()
    joining["north"].communicate()
    hub.serve.end(9)
    joining["north"] = hub.join("north", invitation)
    hub.serve.start()
    for name, process in joining.items():
        out, _ = process.communicate(timeout=2 * LIMIT_S)
        assert process.returncode == 0, (name, out, hub.errors(name, invitation))
        assert "Everything that can be checked holds" in out


def test_a_cancelled_study_ends_every_command_for_good(hub: Hub) -> None:
    digest, invitation = hub.invite("ended", "tda", epsilon="1.5")
    joining = hub.join("north", invitation)
    hub.admit(digest, "ended", "north")
    hub.approve(digest)
    until(
        lambda: "has joined run ended" in hub.errors("north", invitation), "north is here", LIMIT_S
    )
    hub.serve.command("study", "cancel", digest, "--yes")
    out, _ = joining.communicate(timeout=LIMIT_S)
    errors = hub.errors("north", invitation)
    assert joining.returncode == Status.NOT_ENROLLED, (out, errors)
    assert "ended has no result: hub answered 410: the study ended was cancelled" in errors
    budget = OwnerBudget(hub.host("north", invitation) / "budget.sqlite")
    assert not [run for dataset in budget.datasets() for run in dataset.runs]
    # So does the request of an owner that comes now, and the question for the result.
    late = hub.join("south", invitation)
    late.communicate(timeout=LIMIT_S)
    assert late.returncode == Status.NOT_ENROLLED
    host = hub.host("north", invitation)
    said = syncret("result", str(invitation), cwd=host, status=Status.NOT_ENROLLED)
    assert "has no result" in said


def test_nobody_else_asks_for_a_study_that_lists_its_owners(hub: Hub) -> None:
    digest, invitation = hub.invite("listed", "flaim")
    stranger = hub.join("east", invitation)
    stranger.communicate(timeout=LIMIT_S)
    errors = hub.errors("east", invitation)
    assert stranger.returncode == Status.CERTIFICATE, errors
    assert "no owner called 'east'; expected one of north, south and west" in errors
    assert not hub.serve.get(f"/studies/{digest}/requests")["requests"]
    assert load_config(hub.folder / "study-listed" / "listed.toml").digest() == digest
