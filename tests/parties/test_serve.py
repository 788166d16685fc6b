"""`syncret serve` as three processes: studies side by side through the same ports, kills, a queue, bad input."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import load_config
from parties.foundation.exit_codes import Status
from parties.identity import join_documents
from parties.identity.join_documents import fingerprint_words, load_server_card
from parties.identity.study_setup import CERTIFICATES, create_study, issue_certificates
from parties.service.identity import ServiceIdentity
from parties.storage.charge_state import ChargeState
from parties.storage.owner_budget import OwnerBudget
from tests.browser import browser, needs_browser, playwright
from tests.parties.commands import ROOT
from tests.parties.serving import OWNERS, Cluster, cluster, syncret
from tests.parties.small import write_small
from tests.until import count_of, nothing_runs, process_of, processes

__all__ = ["browser"]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three services that the tests of this file share."""
    folder = tmp_path_factory.mktemp("serve")
    with cluster(folder, "--max-running", "2") as made:
        yield made
        for serve in made.serves:
            assert serve.end() == int(Status.TERMINATED), serve.log
    nothing_runs(folder)


WORKER = " worker "
KEY = "tls-{}/own.key"


def test_two_studies_run_side_by_side_and_outlive_a_killed_service(three: Cluster) -> None:
    """It takes 20 s: what makes a service of three hosts is seen nowhere else."""
    first, second = three.propose("first", 0), three.propose("second", 1)
    # Two of three do not start anything.
    three.approve(first, 0, 1)
    time.sleep(2.5)  # Sleeps: quiet.
    states = [serve.until_state("first", "approved", "proposed")["state"] for serve in three.serves]
    assert states == ["approved", "approved", "proposed"]
    assert processes(three.folder, WORKER) == {}
    three.approve(first, 2)
    three.approve(second)
    for serve in three.serves:
        serve.until_state("first", "running")
        serve.until_state("second", "running")
    assert count_of(three.folder, WORKER, 6) == 6
    alpha = three.serves[0]
    revoked = ("study", "revoke", second, "east", "--dir", str(alpha.folder))
    assert f"{second}: asked to revoke" in syncret(*revoked, cwd=three.folder)
    assert alpha.get(f"/studies/{second}/status")["asked"]["here"]["revoked"] == ["east"]
    # Owners of both, through the same ports.
    three.submit("first")
    three.submit("second", "north")
    for serve in three.serves:
        serve.until_state("first", "finished")
    _was_finished(three, first)
    alpha, _, gamma = three.serves
    listed = syncret("status", str(alpha.folder), cwd=three.folder)
    assert re.search(r"first +[0-9a-f]{12} +finished", listed)
    assert max(map(len, listed.splitlines())) <= 80
    gamma.end(signal.SIGKILL)
    # The folders of its studies say how far they came.
    left = syncret(
        "status", str(gamma.folder), "--json", cwd=three.folder, status=Status.NOT_RUNNING
    )
    assert {json.loads(line)["study"]["id"] for line in left.splitlines()} == {"first", "second"}
    # Its workers end with it.
    nothing_runs(gamma.folder, WORKER)
    away = alpha.until(lambda s: any(not p["there"] for p in s["peers"]), "gamma away")
    assert "nothing listens there" in json.dumps(away["peers"])
    gamma.start()
    for serve in three.serves:
        serve.until_state("second", "running")
    three.submit("second", "south", "west")
    for serve in three.serves:
        assert serve.until_state("second", "finished")["reason"] == ""
    nothing_runs(three.folder, WORKER)
    for run in ("first", "second"):
        _is_told_to_its_owners(three, run)


def _was_finished(three: Cluster, digest: str) -> None:
    places = [Path(serve.get(f"/studies/{digest}")["folder"]) for serve in three.serves]
    for name in ("synthetic.csv", "report.html"):
        assert (places[0] / "run" / name).exists()
    for place in places:
        # Keys and shares are gone with the run.
        assert not (place / "tls" / "own.seal").exists()
        assert (place.stat().st_mode & 0o777) == 0o700
        assert load_config(next((place / "study").glob("*.toml"))).digest() == digest


def _is_told_to_its_owners(three: Cluster, run: str) -> None:
    """An owner whose budget is lost hears of a study that is over from the services, and of no other key's studies."""
    own = three.folder / "north"
    lost = own / f"lost-{run}.sqlite"
    options = ("--new-population", "stays", "--budget", str(lost), "--json")
    config, key = f"study-{run}/{run}.toml", KEY.format(run)
    said = json.loads(syncret("budget", "reconcile", config, "--key", key, *options, cwd=own))
    assert said["answered"] == ["alpha", "beta", "gamma"]
    assert [item["servers"] for item in said["entered"]] == [["alpha", "beta", "gamma"]]
    ((paid,), (found,)) = (
        OwnerBudget(path).datasets()[0].runs for path in (own / f"{run}.sqlite", lost)
    )
    assert (found.release, found.submission) == (paid.release, paid.submission)


def flaim_study(three: Cluster, run: str) -> tuple[Path, str]:
    """A study of one server, alpha, proposed to it; its folder and digest."""
    path = three.study(run)
    section = "\n[flaim]\nclients = ['north', 'south', 'west']\n"
    path.write_text(path.read_text().replace("\n[[column]]", f"{section}\n[[column]]", 1))
    out, authority = three.folder / f"study-{run}", three.folder / "authority"
    arguments = ("--authority", str(authority), "--out", str(out), "--json")
    said = three.serves[0].command("study", "propose", str(path), *arguments)
    requests = [three.folder / name / f"{name}.request" for name in OWNERS]
    issue_certificates(requests, authority=authority, out=out / CERTIFICATES, valid_days=9)
    return out / path.name, str(json.loads(said)["digest"])


def _flaim_client(host: Path, config: Path) -> "subprocess.Popen[bytes]":
    """`syncret join` of the owner whose folder this is."""
    _, table = write_small(host)
    certificates, name = config.parent / CERTIFICATES, host.name
    files = ("--ca", certificates / "ca.crt", "--cert", certificates / f"{name}.crt")
    arguments = [config, "--data", table, "--dir", "flaim-ledger", "--key", "tls/own.key", *files]
    with (host / "flaim.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "parties", "flaim-client", *map(str, arguments)],
            cwd=host,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "SYNCRET_BUDGET": str(host / "flaim.sqlite"),
            },
            stdout=log,
            stderr=log,
        )


@pytest.mark.slow
def test_a_flaim_study_is_served_to_clients_that_were_there_before_it(three: Cluster) -> None:
    """They are told that it has not begun, and take part once its operator has approved it; nobody else has to."""
    config, digest = flaim_study(three, "by-flaim")

    logs = [three.folder / name / "flaim.log" for name in OWNERS]
    clients = [_flaim_client(three.folder / name, config) for name in OWNERS]
    waits = "alpha does not run this study: it has not begun there yet, is over"
    deadline = time.monotonic() + 60
    while not all(waits in log.read_text() for log in logs) and time.monotonic() < deadline:
        time.sleep(0.1)
    three.approve(digest, 0)
    three.serves[0].until_state("by-flaim", "finished")
    assert [client.wait(60) for client in clients] == [0, 0, 0]
    for name, log in zip(OWNERS, logs, strict=True):
        assert waits in log.read_text()
        assert f"{name} took part in" in log.read_text()
    place = Path(three.serves[0].get(f"/studies/{digest}")["folder"])
    assert (place / "run" / "report.html").exists()
    _is_told_to_its_clients(three, config, "after the end")
    assert three.serves[0].end() == int(Status.TERMINATED)
    three.serves[0].start()
    three.serves[0].until_state("by-flaim", "finished")
    _is_told_to_its_clients(three, config, "after a restart")


def _is_told_to_its_clients(three: Cluster, config: Path, when: str) -> None:
    """Clients whose budgets are lost hear of a study that is over from the service."""
    for name in OWNERS:
        own, certificates = three.folder / name, config.parent / CERTIFICATES
        lost = own / f"lost {when}.sqlite"
        files = ("--ca", certificates / "ca.crt", "--cert", certificates / f"{name}.crt")
        options = ("--key", "tls/own.key", "--budget", lost, "--new-population", "stays", "--json")
        given = ("budget", "reconcile", config, *files, *options)
        said = json.loads(syncret(*map(str, given), cwd=own))
        assert said["answered"] == ["alpha"]
        ((paid,), (found,)) = (
            OwnerBudget(path).datasets()[0].runs for path in (own / "flaim.sqlite", lost)
        )
        assert (found.release, found.submission) == (paid.release, paid.submission)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again(three: Cluster) -> None:
    digest = three.propose("killed")
    three.approve(digest)
    for serve in three.serves:
        serve.until_state("killed", "running")
    os.kill(process_of(three.serves[1].folder, WORKER), signal.SIGKILL)
    three.serves[1].until(
        lambda s: any((study["process"] or {}).get("restarts", 0) > 0 for study in s["studies"]),
        "started again",
    )
    for serve in three.serves:
        serve.until_state("killed", "running")
    three.submit("killed")
    for serve in three.serves:
        serve.until_state("killed", "finished")


@pytest.mark.slow
def test_a_third_study_waits_for_its_turn_and_is_cancelled_for_all(three: Cluster) -> None:
    digests = [three.propose(f"turn-{number}", number) for number in range(3)]
    for digest in digests:
        three.approve(digest)
    for serve in three.serves:
        serve.until_state("turn-0", "running")
        serve.until_state("turn-1", "running")
        serve.until_state("turn-2", "queued")
    three.serves[1].ask("POST", f"/studies/{digests[0]}/cancel", {"reason": "not needed"})
    for serve in three.serves:
        assert "not needed" in serve.until_state("turn-0", "cancelled")["reason"]
        serve.until_state("turn-2", "running")
    for digest in digests[1:]:
        three.serves[2].ask("POST", f"/studies/{digest}/cancel", {})
    for serve in three.serves:
        serve.until_state("turn-1", "cancelled")
        serve.until_state("turn-2", "cancelled")
    nothing_runs(three.folder, WORKER)


def test_a_cancelled_study_gives_back_what_was_charged(three: Cluster) -> None:
    """Nothing of it was opened: two servers sign that, and the owner's own command gives the charge back."""
    digest = three.propose("given-back")
    three.approve(digest)
    for serve in three.serves:
        serve.until_state("given-back", "running")
    three.submit("given-back", "north")
    three.serves[0].ask("POST", f"/studies/{digest}/cancel", {"reason": "wrong columns"})
    for serve in three.serves:
        serve.until_state("given-back", "cancelled")
    # One of the three is away for good; two signatures are enough.
    three.serves[2].end()
    host = three.folder / "north"
    budget = OwnerBudget(host / "given-back.sqlite")
    assert [run.returned for dataset in budget.datasets() for run in dataset.runs] == [None]

    def said(*options: str, owner: str = "north", status: int = 0) -> str:
        own = three.folder / owner
        link = own / "study-given-back"
        if not link.exists():
            link.symlink_to(three.folder / "study-given-back")
        write_small(own)
        paths = (
            "--data",
            "small.csv",
            "--state",
            "given-back.state",
            "--key",
            KEY.format("given-back"),
        )
        config, budget = "study-given-back/given-back.toml", str(own / "given-back.sqlite")
        return syncret(
            *("join", config, *paths, "--yes", *options),
            cwd=own,
            status=status,
            environment={"SYNCRET_BUDGET": budget},
        )

    for options in (["--withdraw"], ["--status"], ["--withdraw"]):
        shown = said(*options)
        assert (
            "have signed that nothing of the submission of north was opened" in shown
            or "withdrawn" in shown
        )
    (run,) = [run for dataset in budget.datasets() for run in dataset.runs]
    assert run.returned is not None
    # An owner that comes later is told so, and charged nothing.
    assert "was cancelled" in said(owner="south", status=Status.NOT_ENROLLED)
    late = OwnerBudget(three.folder / "south" / "given-back.sqlite")
    assert [run for dataset in late.datasets() for run in dataset.runs] == []
    three.serves[2].start()
    for serve in three.serves:
        serve.until(lambda status: all(p["there"] for p in status["peers"]), "all there")


def test_a_study_that_ended_for_too_few_owners_gives_back_what_an_owner_withdraws(
    three: Cluster,
) -> None:
    """It may be approved again: its status takes nothing back, a withdrawal does, at once, with two servers there."""
    digest = three.propose("too-few", expected="3\nminimum = 3\nwait_s = 20.0")
    three.approve(digest)
    for serve in three.serves:
        serve.until_state("too-few", "running")
    three.submit("too-few", "north")
    for serve in three.serves:
        assert "data owners" in serve.until_state("too-few", "failed")["reason"]
    own = three.folder / "north"
    budget = OwnerBudget(own / "too-few.sqlite")

    def state() -> list[ChargeState]:
        return [run.state for dataset in budget.datasets() for run in dataset.runs]

    def said(option: str) -> str:
        paths = ("--data", "small.csv", "--state", "too-few.state", "--key", KEY.format("too-few"))
        return syncret(
            *("join", "study-too-few/too-few.toml", *paths, "--yes", option),
            cwd=own,
            environment={"SYNCRET_BUDGET": str(budget.path)},
        )

    assert "what was charged stays charged" in said("--status")
    assert state() == [ChargeState.CHARGED]
    three.serves[1].end()
    assert "is given back to population small: rho 0 of" in said("--withdraw")
    assert state() == [ChargeState.RETURNED]
    three.serves[1].start()
    for serve in three.serves:
        serve.until(lambda status: all(p["there"] for p in status["peers"]), "all there")
    # An operator may still end it for all, for good.
    three.serves[2].ask("POST", f"/studies/{digest}/cancel", {})
    for serve in three.serves:
        serve.until_state("too-few", "cancelled")


Says = Callable[..., str]


@needs_browser
def test_an_operator_approves_and_follows_a_study_in_a_browser(
    three: Cluster, browser: playwright.Browser
) -> None:
    alpha, beta, _ = three.serves
    digest = three.propose("looked-at", 1)
    evil = "<img src=x onerror=window.hacked=1>"
    three.propose("given-up", 1, epsilon=3.0)
    with console(alpha.folder) as address, browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(address)
        page.get_by_role("row", name="given-up").wait_for()
        beta.command("study", "cancel", "given-up", "--yes", "--reason", evil)
        page.get_by_text(evil).wait_for()
        page.get_by_role("table").get_by_role("link", name="looked-at").click()
        page.get_by_text("proposed by beta").first.wait_for()
        page.get_by_role("link", name="Approve").click()
        words = join_documents.fingerprint_words(digest)
        page.get_by_text(words).wait_for()
        for name in ("beta", "gamma"):
            page.get_by_label(f"I have heard the operator of {name}").check()
        page.get_by_label("The twelve words").fill(words)
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("Approved here.").wait_for()
        assert alpha.get(f"/studies/{digest}")["state"] == "approved"
        three.approve(digest, 1, 2)
        # What only its process knows is on the page as soon as that runs.
        page.get_by_text("0 of 3 here; 3 more needed").wait_for()
        assert page.get_by_role("link", name="Take no more owners").is_visible()
        page.get_by_role("link", name="Turn an owner away").click()
        page.get_by_label("The owner's name").fill("stranger")
        page.get_by_role("button", name="Turn an owner away").click()
        asked = "Asked by alpha, not yet by beta and gamma: turn stranger away."
        page.get_by_text(asked).wait_for()
        three.submit("looked-at")
        page.frame_locator("iframe").get_by_text("Privacy: epsilon").wait_for()
        with page.expect_download() as waiting:
            page.get_by_role("link", name="synthetic.csv").click()
        assert waiting.value.suggested_filename == "looked-at-synthetic.csv"
        assert page.evaluate("window.hacked") is None


@contextlib.contextmanager
def console(folder: Path) -> Iterator[str]:
    """The console of a service; its address."""
    command = [sys.executable, "-m", "parties", "console", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["address"])
        finally:
            process.terminate()


@pytest.fixture
def says(three: Cluster, capsys: pytest.CaptureFixture[str]) -> Says:
    """Output of `syncret ARGUMENTS` for alpha's operator, in this process; the command ends with `status`."""

    def said(*arguments: str, status: Status = Status.DONE) -> str:
        folder = () if "--dir" in arguments else ("--dir", str(three.serves[0].folder))
        assert run_command_line(cli, [*arguments, *folder]) == status
        captured = capsys.readouterr()
        return captured.out + captured.err

    return said


def test_card_is_of_one_server_or_of_one_of_three(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for options, ends in (((), {"mesh", "ingest"}), (("--flaim",), {"address"})):
        says("study", "card", *options)
        assert set(load_server_card(tmp_path / "alpha.card").ends) == ends
        (tmp_path / "alpha.card").unlink()


def test_commands_show_what_there_is_and_say_what_is_wrong(three: Cluster, says: Says) -> None:
    digest, same = three.propose("shown"), three.propose("shown-2")
    listed = says("study", "list")
    assert digest[:12] in listed
    assert len(max(listed.splitlines(), key=len)) <= 100
    document = json.loads(says("study", "list", "--json", "--state", "proposed"))
    assert {item["digest"] for item in document["studies"]} >= {digest, same}
    shown = says("study", "show", digest[:12])
    assert "epsilon = 2" in shown
    assert "gamma: not approved" in shown
    for arguments, status, words in (
        (("show", "ffffffffffff"), Status.USAGE, "no study here by the name"),
        (("show", digest[:4]), Status.USAGE, "8 of its digits"),
        (("approve", digest[:12]), Status.USAGE, "not this study's"),
        (("approve", same[:16] + digest[16:]), Status.USAGE, "no study here"),
        (("close", digest), Status.USAGE, "shown is proposed; expected one that runs"),
        (("list", "--state", "asleep"), Status.USAGE, "no state is called"),
    ):
        assert words in says("study", *arguments, status=status)
    nobody = ("study", "list", "--dir", str(three.folder / "nobody"))
    assert "no service runs" in says(*nobody, status=Status.NOT_RUNNING)
    alpha = str(three.serves[0].folder)
    for order in (["close", alpha], ["finish", alpha], ["revoke", alpha, "north"]):
        refused = CliRunner().invoke(cli, order)
        assert refused.exit_code == Status.USAGE
        assert f"syncret study {order[0]} STUDY" in refused.output
    twelve = str(three.serves[0].get(f"/studies/{digest}")["words"])
    slip = f"{twelve.rsplit(' ', 1)[0]} prety"
    wrong = says("study", "approve", slip, status=Status.USAGE)
    assert "word 12, prety, is no such word: pretty?" in wrong
    elsewhere = fingerprint_words("ab" * 32)
    loud = says("study", "approve", elsewhere, status=Status.USAGE)
    assert "NO STUDY HERE HAS THESE WORDS, and nothing was approved" in loud
    target = f"/studies/{digest}/approve"
    status, answer = three.serves[0].ask("POST", target, {"digest": slip})
    assert (status, answer["error"]["what"]) == (409, "word 12, prety, is no such word: pretty?")
    assert three.serves[0].ask("POST", target, {"digest": elsewhere})[0] == 409
    assert three.serves[0].get(f"/studies/{digest}")["state"] == "proposed"
    assert "not approved yet by beta and gamma" in says("study", "approve", twelve)
    # To approve twice is fine, and is one approval.
    assert "not approved yet by beta and gamma" in says("study", "approve", twelve)
    history = three.serves[0].get(f"/studies/{digest}")["history"]
    assert [entry["what"] for entry in history].count("approved") == 1
    for one in (digest, same):
        assert "cancelled" in says("study", "cancel", one, "--yes")
    again = says("study", "approve", digest, status=Status.USAGE)
    assert "it is cancelled; expected one that is proposed, or has failed\n" in again


def test_a_study_is_as_a_file_declares_it_and_applying_it_again_does_nothing(
    three: Cluster, says: Says, tmp_path: Path
) -> None:
    config, alpha = three.study("declared"), three.serves[0]
    file = tmp_path / "declared.study.toml"
    text = (
        f'config = "{config}"\nauthority = "{three.folder / "authority"}"\n'
        f'out = "{tmp_path / "study"}"\n'
    )
    file.write_text(text)

    def apply(*arguments: str, by: int = 0, status: Status = Status.DONE) -> str:
        folder = str(three.serves[by].folder)
        return says("study", "apply", str(file), "--dir", folder, *arguments, status=status)

    assert "proposal: none -> " in apply("--dry-run", status=Status.DIFFERS)
    assert "would change" in apply("--dry-run", status=Status.DIFFERS)
    document, _ = json.JSONDecoder().raw_decode(apply("--json"))
    digest = document["digest"]
    assert document["changes"][0]["what"] == "proposal"
    assert document["done"]
    for _ in range(2):
        assert "nothing to do" in apply()
    for serve in three.serves:
        serve.until_state("declared", "proposed")
    # No program writes the words into the file; those of another study approve nothing.
    assert "Not approved: its words are for the file" in apply()
    file.write_text(f'{text}words = "{fingerprint_words("ab" * 32)}"\n')
    assert "THE WORDS ARE NOT THOSE OF declared HERE" in apply(status=Status.PROTOCOL)
    assert alpha.get(f"/studies/{digest}")["state"] == "proposed"
    # Another operator has no configuration, only the name and the words; closing waits for the process.
    words = f'words = "{document["words"]}"\n'
    file.write_text(f'run = "declared"\nstate = "closed"\nrevoked = ["east"]\n{words}')
    for by in (1, 2):
        said = apply(by=by, status=Status.NOT_YET)
        assert re.search("approved by (beta|gamma): no -> yes", said)
        assert "closing is asked once the study runs" in said
    file.write_text(f"{text}{words}")
    assert "approved by alpha: no -> yes" in apply()
    for serve in three.serves:
        serve.until_state("declared", "running")
    file.write_text(f'{text}{words}state = "closed"\nrevoked = ["east"]\n')
    assert "closing: not asked -> asked" in apply("--dry-run", status=Status.DIFFERS)
    assert "turning east away: not asked -> asked" in apply()
    here = alpha.get(f"/studies/{digest}/status")["asked"]["here"]
    assert here == {"close": True, "finish": False, "revoked": ["east"]}
    assert "nothing to do" in apply("--dry-run")
    # A file of another budget changes nothing.
    config.write_text(config.read_text().replace("epsilon = 2.0", "epsilon = 1.0"))
    assert "run.epsilon is 1.0 in the file, 2.0 in the study" in apply(status=Status.DIFFERS)
    config.write_text(config.read_text().replace("epsilon = 1.0", "epsilon = 2.0"))
    file.write_text(f'{text}{words}state = "cancelled"\nreason = "a trial"\n')
    assert "state: running -> cancelled" in apply()
    for serve in three.serves:
        serve.until_state("declared", "cancelled")
    assert "nothing to do" in apply()
    file.write_text(f"{text}{words}")
    assert "cancelled by alpha: a trial" in apply(status=Status.DIFFERS)
    history = alpha.get(f"/studies/{digest}")["history"]
    did = [entry["what"] for entry in history if entry["actor"].startswith("operator ")]
    assert did == ["proposed", "approved", "asked to close", "asked to revoke east", "cancelled"]


def test_card_is_for_a_coordinator_who_merges_by_hand(
    three: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = []
    for serve in three.serves:
        assert run_command_line(cli, ["study", "card", "--dir", str(serve.folder)]) == Status.DONE
        paths.append(tmp_path / f"{serve.folder.name}.card")
    study, out = three.study("by-hand"), tmp_path / "study"
    create_study(study, paths, authority=three.folder / "authority", out=out, valid_days=9)
    merged = out / study.name
    for by in (three.serves[2], three.serves[0]):
        # Proposed twice it is the same study.
        arguments = ["study", "propose", str(merged), "--dir", str(by.folder)]
        assert run_command_line(cli, arguments) == Status.DONE
        for serve in three.serves:
            assert serve.until_state("by-hand", "proposed")["proposer"] == "gamma"
    three.serves[0].ask("POST", "/studies/by-hand/cancel", {})


def test_a_second_service_does_not_start_in_the_same_folder(three: Cluster) -> None:
    # As processes: Playwright's event loop runs in this one.
    serve = ("serve", "--dir", str(three.serves[0].folder))
    said = syncret(*serve, cwd=three.folder, status=Status.STORAGE)
    assert "another `syncret serve` runs in this folder" in said
    said = syncret(*serve, "--pid", "2", cwd=three.folder, status=Status.CONFIG)
    assert "this is server 0" in said


def test_the_ports_bear_strangers(three: Cluster) -> None:
    for server in ServiceIdentity.load(three.serves[0].folder).servers:
        for end in (server.mesh, server.ingest):
            for data in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(300), b"\x16\x03\x01\x40"):
                with socket.create_connection((end.host, end.port), 5) as raw:
                    raw.sendall(data)
    three.serves[1].until(lambda s: all(p["there"] for p in s["peers"]), "all there")
    assert "Traceback" not in "".join(serve.log for serve in three.serves)
