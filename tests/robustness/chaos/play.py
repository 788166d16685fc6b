"""A chaos study: proposed, approved, submitted to and finished on three services, while the script's faults happen.

Operators approve once; they approve again only at a server that was restored from a backup of before its approval.
Supervisors start ended services again, and owners repeat their commands. In the end the study is finished at all three,
its whole result is fetched, and passes its audit. All values here are public.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parties.config import load_config
from parties.foundation.errors import PartyError, StoreError
from parties.identity.study_setup import CERTIFICATES
from parties.local.children import free_ports
from parties.service.status_client import NotRunning
from tests.parties.commands import ROOT
from tests.parties.serving import OWNERS, Serve, syncret
from tests.parties.small import write_small
from tests.robustness.chaos import script
from tests.robustness.chaos.hosts import Host, Hosts, three_hosts
from tests.robustness.chaos.script import FIRST_ROUND, Fault, stage_text
from tests.robustness.kills.judging import Finished, judged
from tests.robustness.kills.network import Network
from tests.until import nothing_runs

RUN = "chaos"
LIMIT_S = 420.0
"""Largest time for one stage; a machine that does other work takes its time."""
_LOOK_S = 0.1
_OWNER_TRIES = 30
_SETTINGS: dict[str, Any] = {
    "rounds": script.ROUNDS,
    "expected": "3\nminimum = 3\nwait_s = 7200.0",
    "receive_s": 15.0,
    "submit_s": 30.0,
}
_OVER = ("failed", "cancelled")
_NOTHING_OF = re.compile(r"this server has nothing of ([^:]+):")
_COUNTED = "cannot be counted anew"


class WrongEnd(Exception):
    """Raised with a description of what came out otherwise than it should."""


@dataclass(frozen=True, slots=True)
class ChaosOutcome:
    """Outcome of a seed: what is ``wrong`` ("" if nothing is), and what happened.

    Attributes:
        missed: Faults that the study's end came before.
        approvals: Approvals beyond the first three, at servers restored from before their own.
        restarts: Services that were started again.
        tries: Owners' commands.
        log: Faults and stages with their times.
    """

    seed: int
    wrong: str
    seconds: float
    missed: tuple[str, ...]
    approvals: int
    restarts: int
    tries: int
    log: tuple[str, ...]


def play(seed: int, folder: Path, faults: Sequence[Fault] | None = None) -> ChaosOutcome:
    """Plays the study of a seed in a new ``folder``, which is deleted unless something is wrong.

    ``faults`` replace those of the seed.
    """
    began = time.monotonic()
    folder.mkdir(parents=True)
    wrong, study = "", None
    try:
        with three_hosts(folder, seed) as hosts:
            study = ChaosStudy(hosts, script.drawn(seed) if faults is None else list(faults))
            study.play()
        nothing_runs(folder)
    except (WrongEnd, AssertionError, OSError, PartyError) as error:
        wrong = f"{type(error).__name__}: {str(error)[:3000]}"
    if wrong:
        (folder / "wrong").write_text(wrong)
    else:
        shutil.rmtree(folder)
    seconds = time.monotonic() - began
    if study is None:
        return ChaosOutcome(seed, wrong, seconds, (), 0, 0, 0, ())
    missed = tuple(str(fault) for fault in study.left)
    restarts = sum(len(host.codes) for host in study.hosts)
    log = tuple(study.log)
    return ChaosOutcome(seed, wrong, seconds, missed, study.approvals, restarts, study.tries, log)


@dataclass
class ChaosStudy:
    """The study under way; ``left`` are the faults that have not begun."""

    around: Hosts
    left: list[Fault]
    log: list[str] = field(default_factory=list)
    approvals: int = 0
    tries: int = 0

    def __post_init__(self) -> None:
        self.hosts = self.around.hosts
        self._began = self._last = time.monotonic()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._digest = ""
        self._stage = script.PROPOSED
        self._backups: dict[str, Path] = {}
        self._to_approve: set[str] = set()
        self._seen: dict[str, str] = {}
        self._finishing = False
        self._lost = set[str]()
        """Owners of whose submissions a server says that it has nothing."""

    # The study.

    def play(self) -> None:
        """Plays it all. Raises WrongEnd, AssertionError."""
        self._digest = self.around.cluster.propose(RUN, **_SETTINGS)
        self._say(f"proposed; {', '.join(map(str, self.left))}")
        self._faults_of(script.PROPOSED)
        self._to_approve = {host.name for host in self.hosts}
        self._wait(lambda: not self._to_approve, "approved by all")
        self._faults_of(script.APPROVED)
        self._wait(lambda: self._states() <= {"running", "closed"}, "running at all three")
        self._faults_of(script.RUNNING)
        for number in range(len(OWNERS)):
            self._send(number)
            if number < len(OWNERS) - 1:
                self._faults_of(script.ONE_OWNER + number)
        self._stage = FIRST_ROUND
        # Rounds take a while, as between hosts far apart, so that faults find them.
        self.around.network.lag()
        while not self._is_finished():
            self._wait(lambda: self._is_finished() or bool(self._lost), "finished")
            for name in sorted(self._lost):
                self._send_again(name)
        self._wait(self._are_alone, "without processes")
        self._check_result()

    def _faults_of(self, stage: int) -> None:
        """Holds the study at a stage until its faults have begun."""
        self._stage = stage
        self._say(stage_text(stage))
        self._wait(lambda: all(self._waits_for_owner(f) for f in self.left), "faults begun")

    def _waits_for_owner(self, fault: Fault) -> bool:
        owners = (script.KILL_OWNER, script.SLOW_OWNER)
        return fault.stage > self._stage or fault.kind in owners

    def _send(self, number: int) -> None:
        """Sends an owner's table: its command, again until it has succeeded."""
        name = OWNERS[number]
        host = self.around.folder / name
        shutil.copytree(self.around.folder / f"study-{RUN}", host / "study")
        write_small(host)
        mine = [f for f in self.left if f.kind in _OWNERS_FAULTS and f.victim == number]
        kills = [f for f in mine if f.kind == script.KILL_OWNER]
        with contextlib.ExitStack() as stack:
            for fault in mine:
                self._begin(fault)
                if fault.kind == script.SLOW_OWNER:
                    self._slow_down(stack, host / "study" / f"{RUN}.toml", int(fault.amount))
            for number_of_try in range(_OWNER_TRIES):
                kill = kills[0].lasts_s if kills and number_of_try == 0 else None
                if self._command_of(host, kill) == 0:
                    self._say(f"{name} has sent")
                    return
        raise WrongEnd(f"{name} could not send: {(host / 'join.log').read_text()[-2000:]}")

    def _command_of(self, host: Path, kill_after_s: float | None, *more: str) -> int:
        """Runs an owner's command to its end, or kills it; returns its status."""
        words = ("join", f"study/{RUN}.toml", "--data", "small.csv", "--state", f"{RUN}.state")
        key = ("--yes", "--key", f"tls-{RUN}/own.key")
        places = {"PYTHONPATH": str(ROOT), "SYNCRET_BUDGET": str(host / f"{RUN}.sqlite")}
        self.tries += 1
        with (host / "join.log").open("a") as log:
            command = [sys.executable, "-m", "parties", *words, *key, *more]
            process = subprocess.Popen(
                command, cwd=host, stdout=log, stderr=log, env={**os.environ, **places}
            )
        try:
            if kill_after_s is not None:
                until = time.monotonic() + kill_after_s
                self._wait(
                    lambda: process.poll() is not None or time.monotonic() > until, "to kill"
                )
                process.send_signal(signal.SIGKILL)
            self._wait(lambda: process.poll() is not None, f"the command of {host.name} ended")
        finally:
            process.kill()
            process.wait()
        return process.returncode

    def _slow_down(self, stack: contextlib.ExitStack, config: Path, size: int) -> None:
        """Leads an owner's connections over ways that drip."""
        text, ways = config.read_text(), dict[int, int]()
        for party, port in zip(load_config(config).parties, free_ports(3), strict=True):
            ways[port] = party.ingest.port
            text = text.replace(str(party.ingest), f"127.0.0.1:{port}")
        config.write_text(text)
        network = stack.enter_context(Network(ways, 0))
        network.drip(ways, size)

    def _is_finished(self) -> bool:
        return self._states() == {"finished"} and not self._due

    def _send_again(self, name: str) -> None:
        """Sends an owner's table again, where a server that was restored says that it has nothing of it."""
        self._say(f"{name} sends again")
        if self._command_of(self.around.folder / name, None, "--replace") == 0:
            self._lost.discard(name)

    def _check_result(self) -> None:
        """Fetches the whole result and audits it. Raises WrongEnd."""
        folder, alpha = self.around.folder, self.hosts[0]
        config = folder / f"study-{RUN}" / f"{RUN}.toml"
        words = ("study", "result", RUN, "--out", str(folder / "result.zip"))
        syncret(*words, "--dir", str(alpha.serve.folder), cwd=folder)
        said = syncret("audit", str(folder / "result.zip"), "--config", str(config), cwd=folder)
        self._say(said.strip().splitlines()[-1])
        self._check_ledgers()
        for host in self.hosts:
            happened = host.serve.get(f"/studies/{self._digest}")["history"]
            what = [entry["what"] for entry in happened]
            if "failed" in what:
                raise WrongEnd(f"{host.name} has failed it: {what}")

    def _check_ledgers(self) -> None:
        """Raises WrongEnd unless the three ledgers have the same charges, within the budget."""
        folder = self.around.folder / f"study-{RUN}"
        found = [host.serve.get(f"/studies/{self._digest}") for host in self.hosts]
        runs = [Path(study["folder"]) / "run" for study in found]
        certificates = {path.name: path for path in (folder / CERTIFICATES).iterdir()}
        config = load_config(folder / f"{RUN}.toml")
        run = Finished(config, runs, certificates, self.around.folder / "collected")
        if wrong := judged(run):
            raise WrongEnd(wrong)

    # Waiting, while things happen.

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            self._tick()
            if holds():
                return
            if time.monotonic() > deadline:
                raise WrongEnd(f"not {what} at {stage_text(self._stage)}: {self._shown()}")
            time.sleep(_LOOK_S)

    def _tick(self) -> None:
        for host in self.hosts:
            host.supervise()
        now = time.monotonic()
        for due in [due for due in self._due if due[0] <= now]:
            self._due.remove(due)
            due[1]()
        self._operate()
        self._back_up()
        if self._stage >= FIRST_ROUND:
            self._stage = max(self._stage, self._round())
        for fault in self.left:
            if fault.stage > self._stage or now - self._last < fault.pause_s:
                break
            if fault.kind not in _OWNERS_FAULTS:
                self._begin(fault)
                break

    def _operate(self) -> None:
        """Approves where an operator has to, and raises WrongEnd if the study is over in a wrong way."""
        for host in self.hosts:
            study = self._study(host)
            state = str(study["state"]) if study else "-"
            if state != self._seen.get(host.name):
                self._seen[host.name] = state
                self._say(f"{host.name}: {state} {study['why'] if study else ''}")
            if study and (lost := _NOTHING_OF.search(str(study["why"]))):
                self._lost |= {owner for owner in OWNERS if owner in lost[1]}
            if study and _COUNTED in str(study["why"]) and not self._finishing:
                self._finish()
            if state in _OVER:
                raise WrongEnd(f"{host.name}: it is {state}: {study and study['reason']}")
            if state == "proposed" and host.name in self._to_approve:
                target = f"/studies/{self._digest}/approve"
                with contextlib.suppress(NotRunning, StoreError):
                    host.serve.ask("POST", target, {"digest": self._digest})
            elif state not in ("-", "proposed"):
                self._to_approve.discard(host.name)

    def _finish(self) -> None:
        """Ends the study with the rounds done, by all three operators, where a server has lost shares for good."""
        self._finishing = True
        self._say("the operators end it with the rounds done")
        for host in self.hosts:
            host.serve.ask("POST", f"/studies/{self._digest}/finish", {})

    def _study(self, host: Host) -> dict[str, Any] | None:
        """Returns the study as a service shows it; None without an answer."""
        if host.away:
            return None
        with contextlib.suppress(NotRunning, StoreError, AssertionError):
            found = host.serve.get("/status")["studies"]
            return next((study for study in found if study["digest"] == self._digest), None)
        return None

    def _states(self) -> set[str]:
        return {self._seen.get(host.name, "-") for host in self.hosts}

    def _are_alone(self) -> bool:
        studies = [self._study(host) for host in self.hosts]
        return all(study is not None and study["process"] is None for study in studies)

    def _round(self) -> int:
        """Returns the stage of the latest round that a server has done."""
        done = 0
        for host in self.hosts:
            with contextlib.suppress(NotRunning, StoreError, AssertionError):
                status = host.serve.get(f"/studies/{self._digest}/status")
                done = max(done, int(status["rounds"]["done"] or 0))
        return FIRST_ROUND + done - 1

    def _shown(self) -> str:
        found = []
        for host in self.hosts:
            study = self._study(host)
            why = study and (study["state"], study["why"], study["process"])
            found.append(f"{host.name}: {why}, ended with {host.codes}: {_tail(host.serve)}")
        return "\n".join(found)

    def _say(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self._began:6.1f} {text}")
        with (self.around.folder / "chaos.log").open("a") as file:
            file.write(self.log[-1] + "\n")

    # Faults.

    def _begin(self, fault: Fault) -> None:
        """Begins a fault that is due, and plans its cure."""
        if not self._happens(fault):
            return
        self.left.remove(fault)
        self._last = time.monotonic()
        self._say(f"-> {fault}, {fault.lasts_s:.1f} s, {fault.amount:g}")

    def _happens(self, fault: Fault) -> bool:
        """Lets a fault happen; returns False if it cannot yet."""
        if fault.kind in _OWNERS_FAULTS:
            return True
        host = self.hosts[fault.victim]
        network = self.around.network
        match fault.kind:
            case script.KILL_SERVICE:
                host.kill()
            case script.KILL_WORKER:
                return self._kill_worker(host)
            case script.CUT:
                cut = self.hosts if fault.victim < 0 else [host]
                ports = [each.port for each in cut]
                network.down(ports)
                self._later(fault, lambda: network.up(ports))
            case script.CLOCK:
                host.set_clock(fault.amount)
                self._later(fault, lambda: host.set_clock(0))
            case script.FULL:
                host.fill(full=True)
                self._later(fault, lambda: host.fill(full=False))
            case script.RESTORE:
                return self._lose(host, fault)
        return True

    def _kill_worker(self, host: Host) -> bool:
        """Kills the study's process at a host, once there is one."""
        study = self._study(host)
        process = study and study["process"]
        if not process or not process["id"]:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(process["id"], signal.SIGKILL)
        return True

    def _lose(self, host: Host, fault: Fault) -> bool:
        """Loses a folder, and restores it later; not while nothing of it is to be lost any more."""
        backup = self._backups.get(host.name)
        if backup is None or "finished" in self._states():
            return False
        host.lose()

        def restored() -> None:
            host.restore(backup)
            if fault.backup == script.PROPOSED and self._stage > script.PROPOSED:
                # Its operator's decision is in none of the files any more.
                self._to_approve.add(host.name)
                self.approvals += 1

        self._later(fault, restored)
        return True

    def _back_up(self) -> None:
        """Makes the backups that are due."""
        for fault in self.left:
            if fault.kind != script.RESTORE or fault.backup > self._stage:
                continue
            host = self.hosts[fault.victim]
            if host.name not in self._backups:
                path = self.around.folder / f"{host.name}.backup"
                host.back_up(path)
                self._backups[host.name] = path
                self._say(f"backup of {host.name}")

    def _later(self, fault: Fault, act: Callable[[], None]) -> None:
        def cure() -> None:
            act()
            self._say(f"<- {fault}")

        self._due.append((time.monotonic() + fault.lasts_s, cure))


_OWNERS_FAULTS = (script.KILL_OWNER, script.SLOW_OWNER)


def _tail(serve: Serve) -> str:
    return " ".join(serve.log[-600:].split())
