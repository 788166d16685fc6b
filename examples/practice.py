"""The other people of a study, played on this machine for the tutorials: operators, coordinator, data owners.

python examples/practice.py owner         plays all but one data owner
python examples/practice.py coordinator   plays all but the coordinator
python examples/practice.py operator      plays all but the operator of alpha
python examples/practice.py go            the last data owner, who waits for this, takes part

Their folders are in `practice`. What they would send comes to this folder, and what they would read out by telephone
is printed. They compare no words themselves: on hosts of their own people do.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from parties.local.children import free_ports

STUDY = Path(__file__).resolve().parent / "three-hosts" / "study.toml"
NAME = "stays-2026"
SERVERS = ("alpha", "beta", "gamma")
_HERE = Path.cwd()
_PRACTICE = _HERE / "practice"
_GO = _PRACTICE / "go"
_ROWS = 1000
_PAUSE_S = 2.0


def main(role: str) -> None:
    """Plays everybody but `role` until Ctrl-C, or lets the last data owner go."""
    if role == "go":
        _GO.touch()
        return
    if _PRACTICE.exists():
        raise SystemExit("the folder practice is there: remove it, or go to another folder")
    _PRACTICE.mkdir()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    practice = Practice()
    try:
        {"owner": _owner, "coordinator": _coordinator, "operator": _operator}[role](practice)
        signal.pause()
    except KeyboardInterrupt:
        say("")
    finally:
        practice.close()


def _owner(practice: "Practice") -> None:
    practice.serve(SERVERS, practice.init(SERVERS))
    practice.propose("alpha")
    practice.approve(SERVERS)
    invitation = _HERE / f"{NAME}.invitation"
    config = _PRACTICE / "study" / "stays.toml"
    practice.run("coordinator", "study", "invite", str(config), "--out", str(invitation))
    practice.table(config, _HERE / "stays.csv", seed=1)
    for seed, who in enumerate(("north", "south"), 2):
        practice.table(config, _owners_folder(who) / "stays.csv", seed=seed)
    practice.join("north", invitation)
    say(f"you have {invitation.name} and stays.csv; the practice is ready")
    late = ["south"]
    while not practice.studies("alpha", "finished"):
        practice.admit()
        if late and _GO.exists():
            practice.join(late.pop(), invitation)
        time.sleep(_PAUSE_S)
    say("the study is finished")


def _coordinator(practice: "Practice") -> None:
    practice.serve(SERVERS, practice.init(SERVERS))
    say("alpha, beta and gamma serve; the practice is ready")
    practice.approve(SERVERS)
    invitation = wait(lambda: next(_HERE.glob("*.invitation"), None))
    owners = ("north", "south", "west")
    for seed, who in enumerate(owners, 1):
        practice.table(
            _HERE / "study" / f"{NAME}.toml", _owners_folder(who) / "stays.csv", seed=seed
        )
        practice.join(who, invitation)
    for who in owners:
        say(f"{who} reads: {practice.words_of_request(who)}")
    wait(lambda: practice.studies("alpha", "finished"))
    say("the study is finished")


def _operator(practice: "Practice") -> None:
    others = SERVERS[1:]
    files = practice.init(others)
    for file in files:
        shutil.copy(file, _HERE)
    say("you have beta.server and gamma.server; the practice is ready")
    yours = wait(lambda: next(_HERE.glob("alpha.server"), None))
    say("beta and gamma have alpha.server, and hear its words from you")
    practice.serve(others, [yours, *files])
    practice.propose("beta")
    practice.approve(others)


class Practice:
    """The processes of everybody but the reader."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def init(self, names: Sequence[str]) -> list[Path]:
        """Operators make their servers' keys and public files, and read out the words."""
        for name in names:
            mesh, ingest = (f"127.0.0.1:{port}" for port in free_ports(2))
            ports = ("--mesh", mesh, "--ingest", ingest)
            said = self.run(name, "serve", "init", name, *ports, "--dir", name, "--json")
            say(f"the operator of {name} reads the server's words: {json.loads(said)['words']}")
        return [_PRACTICE / f"{name}.server" for name in names]

    def serve(self, names: Sequence[str], files: Sequence[Path]) -> None:
        """Operators take the three files, and start their services."""
        for name in names:
            self.run(name, "serve", "join", *map(str, files), "--dir", name)
            self._start(name, _PRACTICE, "serve", "--dir", name)
        for name in names:
            wait(partial(self._try, name, "study", "list", "--dir", name))

    def propose(self, server: str) -> None:
        """The coordinator proposes the study, once all three servers are there."""
        shutil.copy(STUDY, _PRACTICE / "stays.toml")
        self.run("coordinator", "certs", "authority")
        proposal = ("study", "propose", "stays.toml", "--dir", server)
        wait(lambda: self._try("coordinator", *proposal))
        say("the coordinator has proposed the study")

    def approve(self, servers: Sequence[str]) -> None:
        """Operators read out the words of the study that is proposed, and approve it."""
        for name in servers:
            study = wait(partial(self.studies, name, "proposed"))[0]
            say(f"the operator of {name} reads the study's words: {study['words']}")
            self.run(name, "study", "approve", study["digest"], "--dir", name)

    def studies(self, server: str, state: str) -> list[dict[str, str]]:
        """The studies in a state at a server."""
        said = self.run(server, "study", "list", "--state", state, "--dir", server, "--json")
        return list(json.loads(said)["studies"])

    def admit(self) -> None:
        """The coordinator admits all data owners that ask."""
        at = ("--dir", "alpha")
        said = self.run("coordinator", "study", "requests", NAME, *at, "--json")
        for request in json.loads(said)["requests"]:
            if request["state"] == "pending":
                self.run("coordinator", "study", "admit", NAME, request["key"], *at)
                say(f"the coordinator hears of {request['name']}, and admits: {request['words']}")

    def words_of_request(self, who: str) -> str:
        """The words of a data owner's request, which its own command shows, too."""

        def found() -> str | None:
            said = self.run("alpha", "study", "requests", NAME, "--dir", "alpha", "--json")
            rows = json.loads(said)["requests"]
            return next((str(row["words"]) for row in rows if row["name"] == who), None)

        return str(wait(found))

    def table(self, config: Path, path: Path, *, seed: int) -> None:
        """A data owner's table is invented."""
        rows = ("--rows", str(_ROWS), "--seed", str(seed))
        self.run(path.stem, "demo", "--config", str(config), *rows, "--table", str(path))

    def join(self, who: str, invitation: Path) -> None:
        """A data owner takes part with its table, and waits for the end."""
        words = ("join", str(invitation), "--data", "stays.csv", "--name", who, "--yes")
        self._start(who, _owners_folder(who), *words)

    def run(self, who: str, *arguments: str) -> str:
        """Returns what somebody's command prints. Raises SystemExit if it fails."""
        done = self._done(who, arguments)
        if done.returncode:
            raise SystemExit(f"{who}: syncret {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def close(self) -> None:
        """Ends all processes, as a supervisor would."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()

    def _try(self, who: str, *arguments: str) -> bool:
        return self._done(who, arguments).returncode == 0

    def _done(self, who: str, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        command, env = _command(arguments), _environment(who)
        return subprocess.run(command, cwd=_PRACTICE, env=env, capture_output=True, text=True)

    def _start(self, who: str, folder: Path, *arguments: str) -> None:
        with (_PRACTICE / f"{who}.log").open("ab") as log:
            process = subprocess.Popen(
                _command(arguments),
                cwd=folder,
                env=_environment(who),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this program, which ends them.
            )
        self._running.append(process)


def wait(found: Callable[[], Any]) -> Any:
    """Waits for the first result that is true, and returns it."""
    while not (result := found()):
        time.sleep(_PAUSE_S)
    return result


def say(text: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _owners_folder(who: str) -> Path:
    folder = _PRACTICE / who
    folder.mkdir(exist_ok=True)
    return folder


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "parties", *arguments]


def _environment(who: str) -> dict[str, str]:
    """Budgets and registers are in everybody's own home, as they are on hosts of their own."""
    rest = {k: v for k, v in os.environ.items() if not k.startswith(("SYNCRET_", "XDG_"))}
    return {**rest, "HOME": str(_PRACTICE / "homes" / who)}


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("owner", "coordinator", "operator", "go"):
        raise SystemExit(__doc__)
    main(sys.argv[1])
