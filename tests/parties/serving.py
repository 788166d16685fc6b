"""Three services as processes, and what their operators and the owners of their studies do."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from parties.config import Address, load_config
from parties.identity.join_documents import ensure_join_request
from parties.identity.study_setup import CERTIFICATES, issue_certificates
from parties.identity.tls import Authority
from parties.local.children import free_ports
from parties.service.identity import create_identity, join_servers
from parties.service.status_client import NotRunning, get_document, request_document
from tests.parties.commands import ROOT
from tests.parties.openapi import check_answer
from tests.parties.small import write_small

SERVERS = ("alpha", "beta", "gamma")
OWNERS = ("north", "south", "west")
LIMIT_S = 90.0


def make_identities(
    folder: Path, servers: tuple[str, ...] = SERVERS, *, keys: Mapping[str, Path] | None = None
) -> list[Path]:
    """Services' folders, made and joined; with free ports of this machine. Some `keys` may be outside."""
    ports, folders, files = iter(free_ports(2 * len(servers))), [], []
    for name in servers:
        ends = [Address("127.0.0.1", next(ports)) for _ in range(2)]
        folders.append(folder / name)
        folders[-1].mkdir(mode=0o700)
        create_identity(folders[-1], name, *ends, key_file=(keys or {}).get(name))
        files.append(folders[-1] / f"{name}.server")
    for own in folders:
        join_servers(own, files)
    return folders


@dataclass
class Serve:
    """`syncret serve` of one server."""

    folder: Path
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    sources: Path = ROOT
    """Of the version that runs."""
    process: "subprocess.Popen[str] | None" = None

    @property
    def log(self) -> str:
        return (self.folder.parent / f"{self.folder.name}.log").read_text()

    def start(self) -> None:
        with (self.folder.parent / f"{self.folder.name}.log").open("a") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "parties",
                    "serve",
                    "--dir",
                    str(self.folder),
                    *self.options,
                ],
                cwd=self.sources,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": self._paths(), **self.environment},
                text=True,
            )

    def _paths(self) -> str:
        return os.pathsep.join([str(self.sources), os.environ.get("PYTHONPATH", "")])

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)

    def ask(
        self, method: str, target: str, document: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        status, answer = request_document(self.folder, method, target, document)
        check_answer(method, target, status, answer)
        return status, answer

    def get(self, target: str) -> dict[str, Any]:
        status, answer = self.ask("GET", target)
        assert status == 200, answer
        return answer

    def until(self, holds: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """Its status once it is so."""
        deadline, status = time.monotonic() + LIMIT_S, {}
        while time.monotonic() < deadline:
            with contextlib.suppress(NotRunning):
                status = get_document(self.folder)
                if holds(status):
                    check_answer("GET", "/status", 200, status)
                    return status
            time.sleep(0.1)
        raise AssertionError(f"{self.folder.name}: not {what} in {status}\n{self.log[-3000:]}")

    def until_state(self, run: str, *states: str) -> dict[str, Any]:
        """The study's document once it is in one of these states."""

        def there(status: dict[str, Any]) -> bool:
            return any(s["run"] == run and s["state"] in states for s in status["studies"])

        status = self.until(there, f"{run} {states}")
        return next(item for item in status["studies"] if item["run"] == run)

    def command(self, *arguments: str) -> str:
        """Runs `syncret ARGUMENTS` with this service and returns the output; the command has to succeed."""
        return syncret(*arguments, "--dir", str(self.folder), cwd=self.folder.parent)


def syncret(
    *arguments: str, cwd: Path, status: int = 0, environment: Mapping[str, str] | None = None
) -> str:
    """Runs a command that ends with `status`, and returns its output and errors."""
    done = subprocess.run(
        [sys.executable, "-m", "parties", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        check=False,
    )
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


@dataclass
class Cluster:
    """Three of them, a coordinator's authority and three owners' keys."""

    folder: Path
    serves: list[Serve]

    def start(self) -> None:
        for serve in self.serves:
            serve.start()
        for serve in self.serves:
            serve.until(lambda status: all(p["there"] for p in status["peers"]), "all there")

    def study(self, run: str, **changes: object) -> Path:
        """A study of the owners, without servers."""
        path, _ = write_small(self.folder)
        text = path.read_text().replace('id = "small"', f'id = "{run}"')
        for key, value in changes.items():
            text = text.replace(f"\n{key} = ", f"\n{key} = {value} #")
        path = self.folder / f"{run}.toml"
        path.write_text(text)
        return path

    def propose(self, run: str, by: int = 0, **changes: object) -> str:
        """Propose a study, with the owners admitted, each with a key of its own for it; its digest, known to all three.

        With the same key the servers would tell them of the studies before, whose budgets are other files here.
        """
        path, out = self.study(run, **changes), self.folder / f"study-{run}"
        authority = self.folder / f"authority-{run}"
        if not authority.exists():
            Authority.make(authority, 10)
        arguments = ("--authority", str(authority), "--out", str(out), "--json")
        said = self.serves[by].command("study", "propose", str(path), *arguments)
        digest = str(json.loads(said)["digest"])
        requests = [self.folder / name / f"{run}.request" for name in OWNERS]
        for request in requests:
            keys = request.parent / f"tls-{run}"
            ensure_join_request(request.parent.name, keys=keys, path=request)
        issue_certificates(requests, authority=authority, out=out / CERTIFICATES, valid_days=9)
        for serve in self.serves:
            serve.until_state(run, "proposed")
        assert load_config(out / path.name).digest() == digest
        return digest

    def approve(self, digest: str, *pids: int) -> None:
        for pid in pids or range(3):
            status, answer = self.serves[pid].ask(
                "POST", f"/studies/{digest}/approve", {"digest": digest}
            )
            assert status == 200, answer

    def submit(self, run: str, *owners: str, away: str | None = None) -> None:
        """Each owner sends its table, from a folder as people have it; a server that is ``away`` may have it later.

        So may the two others, whose attempt ends with that server's.
        """
        with ThreadPoolExecutor() as pool:
            for said in pool.map(partial(self._sent, run), owners or OWNERS):
                kept = away is not None and "kept for " in said
                assert kept or "receipts signed by alpha, beta, gamma" in said, said

    def submit_when_running(self, run: str) -> None:
        """All owners send once all three servers run the study, which then ends."""
        for serve in self.serves:
            serve.until_state(run, "running")
        self.submit(run)
        for serve in self.serves:
            serve.until_state(run, "finished")

    def _sent(self, run: str, name: str) -> str:
        host = self.folder / name
        link = host / f"study-{run}"
        if not link.exists():
            link.symlink_to(self.folder / f"study-{run}")
        _, table = write_small(host)
        return syncret(
            "join",
            f"study-{run}/{run}.toml",
            "--data",
            str(table),
            "--state",
            f"{run}.state",
            "--yes",
            "--key",
            f"tls-{run}/own.key",
            cwd=host,
            environment={"SYNCRET_BUDGET": str(host / f"{run}.sqlite")},
        )


@contextlib.contextmanager
def cluster(
    folder: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    keys: Mapping[str, Path] | None = None,
    databases: Mapping[str, str] | None = None,
    sources: Path = ROOT,
) -> Iterator[Cluster]:
    """Three services that run, and end with the block; each may have a clock of its own, in a file.

    Some `keys` may be outside, and `databases` on PostgreSQL; `sources` are those of another version.
    """
    Authority.make(folder / "authority", 10)
    for name in OWNERS:
        (folder / name).mkdir()
        ensure_join_request(
            name, keys=folder / name / "tls", path=folder / name / f"{name}.request"
        )
    identities = make_identities(folder, keys=keys)
    serves = []
    for identity in identities:
        clock = folder / f"{identity.name}.clock"
        clock.write_text("0")
        # A server keeps its registry, whichever test has started it again.
        places = {
            "CLOCK_FILE": str(clock),
            "SYNCRET_REGISTER": str(folder / f"{identity.name}.register"),
        }
        if databases is not None:
            places["SYNCRET_DATABASE"] = databases[identity.name]
        given = {**places, **(environment or {})}
        serves.append(Serve(identity, options, given, sources))
    made = Cluster(folder, serves)
    try:
        made.start()
        yield made
    finally:
        for serve in made.serves:
            if serve.process is not None and serve.process.poll() is None:
                serve.process.kill()
                serve.process.wait()
