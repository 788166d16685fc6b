"""An owner's way from an invitation to the audited result, with three services as processes."""

import base64
import contextlib
import html
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from email.message import Message
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

import pytest
import trustme

from parties.foundation.exit_codes import Status
from parties.identity.join_documents import fingerprint_words
from parties.identity.tls import Authority
from parties.network.port_sharing import study_sni_name
from parties.service.identity import ServiceIdentity
from tests.parties.commands import ROOT
from tests.parties.serving import LIMIT_S, Cluster, Serve, cluster, syncret
from tests.parties.small import write_small
from tests.until import nothing_runs, until

pytestmark = pytest.mark.timeout(600)


JOINING: "list[subprocess.Popen[str]]" = []
"""Owners' commands, which end with the tests of this file."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three services that the tests of this file share."""
    folder = tmp_path_factory.mktemp("taking-part")
    with cluster(folder, "--max-running", "2", "--log-format", "json") as made:
        yield made
        for process in JOINING:
            process.kill()
            process.communicate()
        for serve in made.serves:
            assert serve.end() == int(Status.TERMINATED), serve.log
            assert all(line["party"] == serve.folder.name for line in lines(serve))
    nothing_runs(folder)


def lines(serve: Serve) -> list[dict[str, Any]]:
    """All lines of a service's log, each of which is JSON."""
    whole, _, _ = serve.log.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def result(host: Path, run: str, *more: str, status: int = 0) -> str:
    arguments = ("result", f"study-{run}/{run}.toml", "--key", f"tls-{run}/own.key", *more)
    return syncret(*arguments, cwd=host, status=status)


def test_an_owner_fetches_the_result_and_its_audit_and_a_server_does_the_same(
    three: Cluster,
) -> None:
    digest, north = three.propose("fetched"), three.folder / "north"
    (north / "study-fetched").symlink_to(three.folder / "study-fetched")
    assert "has not begun" in result(north, "fetched", status=Status.NOT_YET)
    three.approve(digest)
    for serve in three.serves:
        serve.until_state("fetched", "running")
    assert "under way" in result(north, "fetched", status=Status.NOT_YET)
    # Asking is no refusal that an operator has to look at.
    for serve in three.serves:
        assert not serve.get(f"/studies/{digest}/status")["rejections"]
    three.submit("fetched")
    said = result(north, "fetched", "--wait", "120", "--json")
    found, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert found["audit"]["ok"], found
    with zipfile.ZipFile(north / "fetched.zip") as bundle:
        names = set(bundle.namelist())
    assert {f"transcripts/party-{pid}.jsonl" for pid in range(3)} < names
    assert {"synthetic.csv", "model/model.json", "report.html", "certificates/alpha.crt"} < names
    # The lead has what the others have by the protocol, and so has a server without table and model.
    for serve in (three.serves[0], three.serves[2]):
        zipped = three.folder / f"{serve.folder.name}.zip"
        serve.command("study", "result", digest, "--out", str(zipped))
        assert zipped.read_bytes() == (north / "fetched.zip").read_bytes()
        assert "collected the result" in serve.command("study", "show", digest)
        folder = Path(serve.get(f"/studies/{digest}")["folder"]) / "run"
        assert (folder / "bundle.zip").exists()
        assert not (folder / "result").exists()
    refused = syncret(
        "study",
        "result",
        digest,
        "--out",
        "gamma.zip",
        "--dir",
        "gamma",
        cwd=three.folder,
        status=7,
    )
    assert "is there already" in refused


def test_a_study_without_a_result_says_so_for_good(three: Cluster) -> None:
    digest, south = three.propose("cancelled"), three.folder / "south"
    (south / "study-cancelled").symlink_to(three.folder / "study-cancelled")
    three.serves[1].command("study", "cancel", digest, "--yes")
    for serve in three.serves:
        serve.until_state("cancelled", "cancelled")
    said = result(south, "cancelled", "--wait", "100", status=Status.NOT_ENROLLED)
    assert "has no result" in said
    assert "was cancelled" in said
    said = syncret(
        "study", "result", digest, "--dir", "beta", cwd=three.folder, status=Status.USAGE
    )
    assert "is cancelled" in said


def owner_by_invitation(
    three: Cluster, name: str, invitation: Path, *more: str
) -> "subprocess.Popen[str]":
    """`syncret join INVITATION` of an owner who has nothing but that file and a table, in a folder of its own.

    Each study has owners with other keys and budgets: rows that one has released are spent for the next.
    """
    host = three.folder / f"{invitation.stem}-{name}"
    host.mkdir(exist_ok=True)
    _, table = write_small(host)
    (host / "small.toml").unlink()
    command = [sys.executable, "-m", "parties", "join", str(invitation), "--data", str(table)]
    process = subprocess.Popen(
        [*command, "--name", name, *more],
        cwd=host,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SYNCRET_BUDGET": str(host / "budget.sqlite"),
        },
    )
    JOINING.append(process)
    return process


def waiting(serve: Serve, digest: str, *names: str) -> dict[str, dict[str, str]]:
    """The requests at a server, by name, once these are there."""
    deadline, found = time.monotonic() + LIMIT_S, {}
    while time.monotonic() < deadline:
        found = {r["name"]: r for r in serve.get(f"/studies/{digest}/requests")["requests"]}
        if set(names) <= found.keys():
            return found
        time.sleep(0.2)
    raise AssertionError(f"{names} are not all in {found}")


def authority_of(three: Cluster, run: str) -> Path:
    """The authority of one study, under which a name has one key."""
    return three.folder / f"{run}-authority"


def propose_and_invite(three: Cluster, run: str) -> tuple[str, Path]:
    """A study that nobody is admitted to yet, and the invitation."""
    path, out = three.study(run), three.folder / f"study-{run}"
    if not authority_of(three, run).exists():
        Authority.make(authority_of(three, run), 10)
    arguments = ("--authority", str(authority_of(three, run)), "--out", str(out), "--json")
    said = three.serves[0].command("study", "propose", str(path), *arguments)
    for serve in three.serves:
        serve.until_state(run, "proposed")
    invitation = three.folder / f"{run}.invitation"
    syncret("study", "invite", str(out / path.name), "--out", str(invitation), cwd=three.folder)
    return str(json.loads(said)["digest"]), invitation


def test_one_command_goes_from_the_invitation_to_the_audited_result(three: Cluster) -> None:
    digest, invitation = propose_and_invite(three, "invited")
    alpha = three.serves[0]
    joining = {
        name: owner_by_invitation(three, name, invitation, "--yes", "--json")
        for name in ("north", "south", "west")
    }
    asked = {serve.folder.name: waiting(serve, digest, *joining) for serve in three.serves}
    # All three servers show the same words, and the names.
    words = {name: each["words"] for name, each in asked["alpha"].items()}
    for found in asked.values():
        assert {name: each["words"] for name, each in found.items()} == words
        assert {each["state"] for each in found.values()} == {"pending"}
    assert words["north"].split()[0] in alpha.command("study", "requests", digest)
    for name in joining:
        authority = ("--authority", str(authority_of(three, "invited")))
        said = alpha.command("study", "admit", digest, words[name], *authority)
        assert f"{name} is admitted" in said
    # They wait for the operators' approval, send, and wait for the end.
    three.approve(digest)
    for name, process in joining.items():
        out, errors = process.communicate(timeout=2 * LIMIT_S)
        assert process.returncode == 0, (name, out, errors)
        assert words[name].split()[0] in errors
        assert "You take part in the study invited" in errors
        said = json.loads(out)
        assert len(said["submission"]["receipts"]) == 3
        assert said["result"]["audit"]["ok"], said
        host = three.folder / f"invited-{name}"
        assert (host / "tls" / "own.key").stat().st_mode & 0o777 == 0o600
        assert (host / "invited.zip").exists()
    bundles = {(three.folder / f"invited-{n}" / "invited.zip").read_bytes() for n in joining}
    assert len(bundles) == 1
    history = alpha.command("study", "show", digest)
    assert history.count(": admitted, ") == 3
    # The same command goes on where it was: at the end.
    again = owner_by_invitation(three, "north", invitation, "--yes")
    out, errors = again.communicate(timeout=LIMIT_S)
    assert again.returncode == 0, errors
    assert "Everything that can be checked holds" in out


def test_nobody_is_admitted_by_another_key_or_without_the_authority(three: Cluster) -> None:
    digest, invitation = propose_and_invite(three, "guarded")
    alpha = three.serves[0]
    late = owner_by_invitation(three, "north", invitation, "--yes", "--wait", "0")
    out, errors = late.communicate(timeout=LIMIT_S)
    assert late.returncode == Status.NOT_YET, (out, errors)
    assert "the request waits at alpha, beta, gamma" in errors
    # A stranger asks by the same name; both are shown.
    host = three.folder / "stranger"
    host.mkdir()
    ask = ("certs", "request", "north", "--to", str(invitation))
    said = syncret(*ask, cwd=host, status=Status.NOT_YET)
    found = alpha.get(f"/studies/{digest}/requests")["requests"]
    assert [each["name"] for each in found] == ["north", "north"]
    true = next(each for each in found if each["words"].split()[0] not in said)
    # Another authority's certificate is nobody's.
    other = three.folder / "other-authority"
    syncret("certs", "authority", "--dir", str(other), cwd=three.folder)
    arguments = ("study", "admit", digest, true["words"], "--dir", str(alpha.folder))
    said = syncret(*arguments, "--authority", str(other), cwd=three.folder, status=Status.CONFIG)
    assert "none of the run's authority" in said
    said = alpha.command(*arguments[:4], "--authority", str(authority_of(three, "guarded")))
    assert "north is admitted" in said
    # The name is given away: the authority refuses the stranger, and so does the operator.
    fake = next(each for each in found if each != true)
    arguments = ("study", "admit", digest, fake["words"], "--dir", str(alpha.folder))
    said = syncret(
        *arguments, "--authority", str(authority_of(three, "guarded")),
        cwd=three.folder, status=Status.CERTIFICATE,
    )  # fmt: skip
    assert "admitted already, with another key" in said
    alpha.command("study", "refuse", digest, fake["words"])
    assert "was refused" in syncret(*ask, cwd=host, status=Status.NOT_ENROLLED)
    # A killed service has what it had.
    alpha.end(9)
    alpha.start()
    assert "was refused" in syncret(*ask, "--wait", "60", cwd=host, status=Status.NOT_ENROLLED)
    syncret(
        "certs", "request", "north", "--to", str(invitation),
        cwd=three.folder / "guarded-north", status=0,
    )  # fmt: skip
    # Not begun: the verb that checks says so, and the one command waits.
    late = owner_by_invitation(three, "north", invitation, "--yes", "--wait", "0")
    out, errors = late.communicate(timeout=LIMIT_S)
    assert late.returncode == Status.NOT_YET, (out, errors)
    assert "has not begun" in errors


class Browser:
    """A browser without scripts, in the console whose address it opened."""

    def __init__(self, address: str) -> None:
        self._at = urlsplit(address)
        self._cookie = ""
        _, headers, _ = self.ask("GET", f"{self._at.path}?{self._at.query}")
        self._cookie = headers["Set-Cookie"].split(";")[0]

    def ask(
        self, method: str, path: str, form: dict[str, str] | None = None
    ) -> tuple[int, Message, str]:
        connection = HTTPConnection(self._at.hostname or "", self._at.port, timeout=LIMIT_S)
        headers = {"Cookie": self._cookie}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        body = None if form is None else urlencode(form)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        said = answer.status, answer.headers, html.unescape(answer.read().decode())
        connection.close()
        return said


@contextlib.contextmanager
def console(serve: Serve, *options: str) -> Iterator[Browser]:
    command = [sys.executable, "-m", "parties", "console", str(serve.folder), "--json", *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        yield Browser(json.loads(process.stdout.readline())["address"])
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)


def test_console_admits_an_owner_whose_words_were_typed_where_the_authority_is(
    three: Cluster,
) -> None:
    digest, invitation = propose_and_invite(three, "by-console")
    alpha, host = three.serves[0], three.folder / "asks-console"
    host.mkdir()
    ask = ("certs", "request", "east", "--to", str(invitation))
    syncret(*ask, cwd=host, status=Status.NOT_YET)
    owner = waiting(alpha, digest, "east")["east"]
    words, study = owner["words"], f"/console/studies/{digest}"
    form = f"{study}/requests/{owner['key']}"

    def pending() -> bool:
        return waiting(alpha, digest, "east")["east"]["state"] == "pending"

    with console(alpha) as browser:
        page = browser.ask("GET", study)[2]
        assert "--authority authority" in page
        assert form not in page
        assert "syncret study admit by-console 'TWELVE WORDS'" in browser.ask("GET", form)[2]
        csrf = re.search(r'name="csrf" value="([^"]+)"', browser.ask("GET", f"{study}/approve")[2])
        assert csrf is not None
        status, _, _ = browser.ask("POST", form, {"csrf": csrf[1], "words": words})
        assert (status, pending()) == (409, True)
    with console(alpha, "--authority", str(authority_of(three, "by-console"))) as browser:
        assert f'href="{form}"' in browser.ask("GET", study)[2]
        page = browser.ask("GET", form)[2]
        # The words are to be heard, and are not beside the field that they are typed into.
        assert words not in page
        csrf = re.search(r'name="csrf" value="([^"]+)"', page)
        assert csrf is not None
        assert browser.ask("POST", form, {"csrf": "x", "words": words})[0] == 403
        for typed, said in (
            (f"{words.rsplit(' ', 1)[0]} prety", "word 12, prety, is no such word: pretty?"),
            (fingerprint_words("ab" * 32), "these are not the words of east's request"),
            ("", "these are 0 words; expected all twelve"),
        ):
            status, _, page = browser.ask("POST", form, {"csrf": csrf[1], "words": typed})
            assert status == 200
            assert said in page
            assert pending()
        assert browser.ask("GET", f"{study}/requests/{'ab' * 32}")[0] == 404
        status, headers, _ = browser.ask("POST", form, {"csrf": csrf[1], "words": words})
        assert (status, headers["Location"]) == (303, f"{study}?admitted=east")
        assert "east is admitted" in browser.ask("GET", headers["Location"])[2]
        assert not pending()
        assert browser.ask("GET", form)[0] == 404
    syncret(*ask, cwd=host)
    assert (host / "by-console" / "certificates" / "east.crt").exists()
    nobody = ("console", str(alpha.folder), "--authority", str(host))
    assert "ca.key" in syncret(*nobody, cwd=host, status=Status.CERTIFICATE)


def test_what_was_charged_comes_back_where_the_study_ends_without_a_result(three: Cluster) -> None:
    digest, invitation = propose_and_invite(three, "ended")
    alpha = three.serves[0]
    joining = owner_by_invitation(three, "north", invitation, "--yes")
    words = waiting(alpha, digest, "north")["north"]["words"]
    authority = ("--authority", str(authority_of(three, "ended")))
    alpha.command("study", "admit", digest, words, *authority)
    three.approve(digest)
    alpha.until_state("ended", "running")

    def is_here() -> bool:
        # A study that runs answers once its process has begun.
        status, answer = alpha.ask("GET", f"/studies/{digest}/status")
        return status == 200 and bool(answer["owners"]["here"])

    until(is_here, "north is here", LIMIT_S)
    alpha.command("study", "cancel", digest, "--yes")
    out, errors = joining.communicate(timeout=LIMIT_S)
    assert joining.returncode == Status.NOT_ENROLLED, (out, errors)
    assert "ended has no result" in errors
    assert "run ended is over" in out


def test_an_invited_owner_is_asked_or_says_yes(three: Cluster) -> None:
    _, invitation = propose_and_invite(three, "asked")
    silent = owner_by_invitation(three, "west", invitation)
    _, errors = silent.communicate(timeout=LIMIT_S)
    assert silent.returncode == Status.USAGE
    assert "give --yes" in errors
    assert not (three.folder / "asked-west" / "asked").exists()


class Hooks(BaseHTTPRequestHandler):
    """A webhook's receiver, with what came."""

    came: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.came.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Writes nothing."""


@contextlib.contextmanager
def receiving(folder: Path) -> Iterator[str]:
    """A webhook's receiver by HTTPS; yields its settings for the service in `folder`."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    (folder / "notify").mkdir()
    authority.cert_pem.write_to_path(folder / "notify" / "ca.pem")
    secret = folder / "notify" / "webhook.secret"
    secret.write_text(base64.b64encode(bytes(32)).decode())
    secret.chmod(0o600)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hooks) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f'[notify]\nurl = "https://localhost:{server.server_port}/"\nca = "notify/ca.pem"\n'
        server.shutdown()


def test_what_happens_is_in_the_log_in_a_signed_export_and_at_the_operators_webhook(
    three: Cluster,
) -> None:
    alpha = three.serves[0]
    with receiving(alpha.folder) as settings:
        assert alpha.end() == int(Status.TERMINATED)
        (alpha.folder / "settings.toml").write_text(settings)
        alpha.start()
        alpha.until(lambda status: all(p["there"] for p in status["peers"]), "all there")
        digest = three.propose("logged", 1)
        until(
            lambda: any(each["data"].get("study") == "logged" for each in Hooks.came), "a webhook"
        )
        three.approve(digest)
        alpha.until_state("logged", "running")
        refused_by_study(alpha, digest)
        until(lambda: any(line["event"] == "rejected" for line in lines(alpha)), "a rejection")
        reason = ("--reason", "wrong columns")
        alpha.command("study", "cancel", digest, *reason, "--yes")
        until(lambda: any(each["type"] == "study.cancelled" for each in Hooks.came), "the end")
    waits = next(each for each in Hooks.came if each["data"].get("study") == "logged")
    assert waits["type"] == "study.waits-here"
    assert (waits["data"]["server"], waits["data"]["reason"]) == ("alpha", "approval")
    assert "wrong columns" not in repr(Hooks.came)
    of_study = [line for line in lines(alpha) if line["study"] == "logged"]
    rejected = next(line for line in of_study if line["event"] == "rejected")
    assert (rejected["reason"], rejected["remote"]) == ("tls", "127.0.0.1")
    assert {line["event"] for line in of_study} >= {"study.approved", "study.running", "listening"}
    file = alpha.folder.parent / "alpha.operators"
    alpha.command("study", "log", "--export", str(file))
    said = syncret(
        *("study", "check-log", str(file), "--server", str(alpha.folder / "alpha.server")),
        cwd=three.folder,
    )
    assert "entries of alpha, whole and in order" in said
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    of_study = [entry for entry in entries if entry.get("study") == "logged"]
    ended = next(entry for entry in of_study if entry["event"] == "study.cancelled")
    assert ended["subject"] == f"unix uid {os.getuid()}"
    assert "study.cancelled" in alpha.command("study", "log")
    file.write_text(file.read_text().replace("wrong columns", "right columns"))
    arguments = ("study", "check-log", str(file))
    assert "its signature is not right" in syncret(
        *arguments, cwd=three.folder, status=int(Status.AUDIT)
    )


def refused_by_study(serve: Serve, digest: str) -> None:
    """Connects to the study's own process without a certificate."""
    own = ServiceIdentity.load(serve.folder).own
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((own.ingest.host, own.ingest.port), 10) as raw,
        contextlib.suppress(OSError),
        context.wrap_socket(raw, server_hostname=study_sni_name(digest)) as connection,
    ):
        connection.recv(1)
