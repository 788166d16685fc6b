"""One case of services: a study from proposal to end on three `syncret serve`, one of which meets a fault.

The study runs and is finished, or runs, has an owner's shares, and is cancelled. Operators and owners repeat unanswered
commands, and a service that has ended is started again by the same command. Then the study is over in that way at all
three, a finished one with equal ledgers and a passing audit; the services end in order; no process, port, sealing key
or share of it is left. All values here are public: the owners' rows are random.

Known limits: OpenSSL and studies' processes do not see a shifted clock; breaks and lags of connections affect all three
services.
"""

import asyncio
import contextlib
import logging
import os
import resource
import secrets
import shutil
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import parties.service.reconciliation
import parties.service.secret_deletion
import parties.service.study_fetcher
from bench.load.services import (
    OWNERS,
    SERVICES,
    Trio,
    children,
    rows_of,
    study_config,
    study_of,
)
from parties.cli.main import cli
from parties.cli.runtime import exit_now, run_command_line
from parties.config import Config, load_config
from parties.foundation.errors import PartyError, StoreError
from parties.foundation.exit_codes import Status
from parties.identity.study_setup import CERTIFICATES
from parties.mpc.submission.submit import submit
from parties.service.database import FILE
from parties.service.peer_sync import PEER_STATE_TTL_S
from parties.service.status_client import NotRunning
from parties.service.study_intake import StudyFolder
from parties.service.study_record import ACTIVE, StudyState
from tests.robustness.kills import judging, points, service_points
from tests.robustness.kills.children import continue_stopped, imported, started
from tests.robustness.kills.judging import Finished
from tests.robustness.kills.leftovers import left_behind, until_ended
from tests.robustness.kills.network import Network
from tests.robustness.kills.outcome import CANCELLED, FINISHED, Case, Outcome

LIMIT_S = 240.0
_STOP_S, _HANG_S, _ROOM_S = 0.3, PEER_STATE_TTL_S + 1, 2.0
_POLL_S, _AGAIN_S = 0.2, 2.0
"""Seconds between questions of services, and seconds until a retry that normally comes after a minute."""
_DELETED_S, _END_S = 30.0, 20.0
_LOOK_S = 0.1
_QUICK = {"iterations": 5, "final_iterations": 5, "noise": "distributed"}
_TIMEOUTS = {"connect_s": 10.0, "receive_s": 10.0}
_TRIES = 3
_RUN = "small"
_PROPOSES, _CANCELS = {FINISHED: "gamma", CANCELLED: "beta"}, "alpha"
"""Services whose operator acts: each service decides once, and once hears of a decision."""
imported(__name__, "parties.cli.serve", "parties.cli.study", "parties.service.main")


class _WrongEnd(Exception):
    """Raised with a description of the wrong end."""


# In processes of their own.


def _command(arguments: Sequence[str], log: Path, case: Case | None) -> None:
    """Runs `syncret ARGUMENTS` as its console script does, with the fault of ``case``."""
    into = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(into, 1)
    os.dup2(into, 2)
    logging.getLogger().handlers.clear()
    parties.service.reconciliation.POLL_S = _POLL_S
    parties.service.secret_deletion._AGAIN_S = _AGAIN_S
    parties.service.study_fetcher._FETCH_AGAIN_S = _AGAIN_S
    hit = log.parent / "hit"
    point = service_points.watch(case.number, case.fault, hit) if case else None
    status = run_command_line(cli, list(arguments))
    if point is not None and point.fault == "":
        (log.parent / "points").write_text("\n".join(point.names))
    exit_now(status)


def _owners(trio: Trio, config: Config, numbers: Sequence[int]) -> None:
    """Submits for these owners, again and again if that fails."""
    logging.disable()

    async def one(number: int) -> None:
        name, state = OWNERS[number], trio.folder / f"{config.run.id}-{number}.state"
        while True:
            with contextlib.suppress(PartyError):
                await submit(
                    config,
                    rows_of(number),
                    trio.certificates(name),
                    first_round=1,
                    state=state,
                )
                return
            await asyncio.sleep(_LOOK_S)

    async def everybody() -> None:
        await asyncio.gather(*(one(number) for number in numbers))

    asyncio.run(everybody())


# The case.


def count_points(folder: Path, victim: int, of: str) -> int:
    """Counts the points that service ``victim`` passes without a fault. Raises RuntimeError if that goes wrong."""
    outcome = play(Case("", victim, 0, of), folder, keep=True)
    if outcome.wrong or outcome.tries or outcome.failed:
        raise RuntimeError(f"services without a fault went wrong: {outcome}")
    count = len((folder / "points").read_text().splitlines())
    shutil.rmtree(folder)
    return count


def play(case: Case, folder: Path, *, keep: bool = False) -> Outcome:
    """Plays the case in a new ``folder``, deleted in the end unless something is wrong, or with ``keep``."""
    began = time.monotonic()
    folder.mkdir(parents=True)
    playing = Playing(Trio(folder, relays=True), case)
    wrong = playing.played()
    hit = folder / "hit"
    at = hit.read_text() if hit.exists() else ""
    if not wrong and not keep:
        shutil.rmtree(folder)
    seconds = time.monotonic() - began
    return Outcome(case, at, playing.ended, playing.tries, seconds, wrong, playing.failed)


class Playing:
    """The case under way: ``ended`` has each service's first exit code, ``tries`` the number of restarts."""

    def __init__(self, trio: Trio, case: Case) -> None:
        self.trio = trio
        self.case = case
        self.tries = 0
        self._codes: dict[str, int] = {}
        self._exits = contextlib.ExitStack()
        self._processes: dict[str, ForkServerProcess] = {}
        self._config: Config | None = None
        self._doing, self._cancelled_at, self._failures = "starting", 0.0, 0

    @property
    def ended(self) -> tuple[int | None, ...]:
        """First exit codes by service: 0 for a service that stayed until the studies were over."""
        return tuple(self._codes.get(name, 0) for name in SERVICES)

    def played(self) -> str:
        """Plays the case and describes what is wrong; "" if nothing is."""
        with Network(self.trio.ways, secrets.randbits(32)) as network, self._exits:
            try:
                asyncio.run(self._played(network))
            except _WrongEnd as error:
                return str(error)
        try:
            until_ended(self.trio, _END_S)
            wrong = left_behind(self.trio, self.config) or self._unwritten()
            return wrong or ("" if self.case.of == CANCELLED else self.judged())
        except (OSError, PartyError) as error:
            return f"cannot be judged: {type(error).__name__}: {error}"

    @property
    def failed(self) -> bool:
        """True if the study failed at one of them, and was approved again."""
        return self._failures > 0

    @property
    def config(self) -> Config:
        """Configuration of the study, once it is proposed."""
        if self._config is None:
            raise _WrongEnd("there is no study yet")
        return self._config

    def _unwritten(self) -> str:
        """Names services whose event log lacks the study's end."""
        expected = [(self.config.digest(), self.case.of)]
        for name in SERVICES:
            path = self.trio.folder / name / FILE
            with contextlib.closing(sqlite3.connect(path)) as database:
                found = database.execute("SELECT digest, state FROM studies").fetchall()
            if found != expected:
                return f"the book of {name} has {found}"
        return ""

    def judged(self) -> str:
        """Describes the violated conditions of the finished run."""
        places = [self.place(name) for name in SERVICES]
        folder = places[0].path / "study" / CERTIFICATES
        certificates = {path.name: path for path in folder.iterdir()}
        runs = [place.work for place in places]
        finished = Finished(self.config, runs, certificates, self.trio.folder / "run")
        return judging.judged(finished)

    def place(self, name: str) -> StudyFolder:
        """Returns a service's folder of the study."""
        return StudyFolder(self.trio.folder / name, _RUN, self.config.digest())

    async def _played(self, network: Network) -> None:
        for number, name in enumerate(SERVICES):
            self._start(name, self.case if number == self.case.victim else None)
        tasks = [asyncio.create_task(self._keep(network)), asyncio.create_task(self._study())]
        try:
            done, _ = await asyncio.wait(
                tasks, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
            if not done:
                raise _WrongEnd(f"not in {LIMIT_S:g} s: {self._doing}; {await self._stand()}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # No answer can come from a stopped process.
            for process in self._processes.values():
                _continue(process)
        await self._stop()

    # The services.

    def _start(self, name: str, case: Case | None) -> None:
        log = self.trio.folder / f"{name}.log"
        process = started(_command, self.trio.serve(name), log, case)
        self._processes[name] = self._exits.enter_context(process)

    async def _keep(self, network: Network) -> None:
        """Causes faults outside the victim's process, and repeats the command of a service that has ended."""
        fault, since = self.case.fault, 0.0
        while True:
            for name, process in self._processes.items():
                if not process.is_alive():
                    self._again(name, process.exitcode)
            if fault and (self.trio.folder / "hit").exists():
                since = since or time.monotonic()
                fault = self._outside(fault, time.monotonic() - since, network)
            await asyncio.sleep(_LOOK_S / 10)

    def _again(self, name: str, code: int | None) -> None:
        victim = name == SERVICES[self.case.victim]
        if code is None or code == Status.DEFECT or not victim:
            raise _WrongEnd(f"{name} ended with {code}: {self._log(name)}")
        if code < 0 and (code != -signal.SIGKILL or not self._may_be_killed(name)):
            raise _WrongEnd(f"{name} was ended by signal {-code}")
        self._codes.setdefault(name, code)
        self.tries += 1
        if self.tries > _TRIES:
            raise _WrongEnd(f"{name} ended {self.tries} times, now with {code}: {self._log(name)}")
        self._start(name, None)

    def _may_be_killed(self, name: str) -> bool:
        """Returns True if the case's fault is a kill of this service."""
        return name == SERVICES[self.case.victim] and self.case.fault == points.KILL

    def _log(self, name: str) -> str:
        text = (self.trio.folder / f"{name}.log").read_text(errors="replace")
        return " ".join(text[-600:].split())

    def _outside(self, fault: str, passed_s: float, network: Network) -> str:
        """Does what is due; returns the fault, or "" if nothing more is to do."""
        process = self._processes[SERVICES[self.case.victim]]
        after = {points.STOP: _STOP_S, points.HANG: _HANG_S, points.FULL: _ROOM_S}
        if passed_s < after.get(fault, 0.0):
            return fault
        match fault:
            case points.CUT:
                network.cut()
            case points.LAG:
                network.lag()
            case points.STOP | points.HANG:
                return "" if continue_stopped(process) else fault
            case points.FULL:
                _make_room(process)
        return ""

    async def _stop(self) -> None:
        """Sends SIGTERM, as an operator or a supervisor does. The fault may come as late as this."""
        for process in self._processes.values():
            process.terminate()
        for name, process in self._processes.items():
            until = time.monotonic() + LIMIT_S
            while process.is_alive() and time.monotonic() < until:
                _continue(process)
                await asyncio.sleep(_LOOK_S)
            code = process.exitcode
            if self._may_be_killed(name) and code == -signal.SIGKILL:
                self._codes.setdefault(name, code)
            elif code != Status.TERMINATED:
                raise _WrongEnd(f"{name}, told to end, ended with {code}: {self._log(name)}")

    # The study.

    async def _study(self) -> None:
        self._doing = "it is proposed"
        self._config = await self._proposed(_PROPOSES[self.case.of])
        self._doing = "it is approved and submitted to"
        cancelled = self.case.of == CANCELLED
        # A cancelled study still waits for the other owners at that time.
        numbers = range(1 if cancelled else len(OWNERS))
        with started(_owners, self.trio, self.config, numbers) as submitting:
            await _until(
                partial(
                    self._is_everywhere, StudyState.RUNNING if cancelled else StudyState.FINISHED
                )
            )
            if cancelled:
                await _until(partial(_has_ended, submitting))
                _submitted(submitting)
        if cancelled:
            self._doing = "it is cancelled"
            await _until(self._is_cancelled)
            self._doing, self._cancelled_at = "it is deleted", time.monotonic()
            await _until(self._is_deleted)
        # A service that has just been restarted takes no order to end before it answers.
        await _until(self._is_answered)

    async def _proposed(self, by: str) -> Config:
        """Proposes by an operator's command, which is repeated."""
        path = self.trio.folder / f"{_RUN}.toml"
        path.write_text(study_config(_RUN, 2, run=_QUICK, timeouts=_TIMEOUTS).resolved_toml())
        out, log = self.trio.folder / "study", self.trio.folder / "propose.log"
        merged = out / path.name
        while True:
            arguments = self.trio.propose(merged if merged.exists() else path, by, out)
            with started(_command, arguments, log, None) as process:
                await _until(partial(_has_ended, process))
                if process.exitcode == 0:
                    return load_config(merged)

    async def _is_everywhere(self, state: StudyState) -> bool:
        """Returns True if all three are in ``state``; approves where a service waits for that, or has failed."""
        digest, there = self.config.digest(), list[bool]()
        for name in SERVICES:
            study = await self._seen(name)
            if study is not None and study["state"] in (StudyState.PROPOSED, StudyState.FAILED):
                await self._asked(name, "POST", f"/studies/{digest}/approve", {"digest": digest})
            if study is not None and study["state"] in (StudyState.FAILED, StudyState.CANCELLED):
                self._failed(name, study)
            gone = study is not None and (state in ACTIVE or study["process"] is None)
            there.append(study is not None and study["state"] == state and gone)
        return all(there)

    def _failed(self, name: str, study: dict[str, Any]) -> None:
        self._failures += 1
        if study["state"] == StudyState.CANCELLED or self._failures > 3 * _TRIES:
            raise _WrongEnd(f"{name}: it is {study['state']}: {study['reason']}")

    async def _is_cancelled(self) -> bool:
        """Returns True if all three have cancelled; the operator repeats the order until then."""
        digest = self.config.digest()
        states = [study["state"] if (study := await self._seen(name)) else "" for name in SERVICES]
        if states[SERVICES.index(_CANCELS)] not in ("", StudyState.CANCELLED):
            target = f"/studies/{digest}/cancel"
            await self._asked(_CANCELS, "POST", target, {"reason": "not needed"})
        return set(states) == {StudyState.CANCELLED}

    async def _is_deleted(self) -> bool:
        """Returns True if the secrets are gone, or are overdue."""
        late = time.monotonic() > self._cancelled_at + _DELETED_S
        return late or not any(self.place(name).seal.exists() for name in SERVICES)

    async def _is_answered(self) -> bool:
        return None not in [await self._seen(name) for name in SERVICES]

    async def _seen(self, name: str) -> dict[str, Any] | None:
        """Returns the study as a service shows it."""
        status = await self._asked(name, "GET", "/status")
        return study_of(status, self.config.digest()) if status else None

    async def _stand(self) -> str:
        found = [(study or {}).get("state") for study in [await self._seen(n) for n in SERVICES]]
        return f"{found}; {' | '.join(self._log(name) for name in SERVICES)}"

    async def _asked(
        self, name: str, method: str, target: str, document: dict[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Returns a service's answer; None without one, and if it refuses: then its state says why."""
        with contextlib.suppress(NotRunning, StoreError, RuntimeError):
            return await asyncio.to_thread(self.trio.ask, name, method, target, document)
        return None


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    # Changes in other processes set no event.
    while not await holds():  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)


def _submitted(owners: ForkServerProcess) -> None:
    if owners.exitcode != 0:
        raise _WrongEnd(f"an owner's process ended with {owners.exitcode}")


async def _has_ended(process: ForkServerProcess) -> bool:
    return not process.is_alive()


def _continue(process: ForkServerProcess) -> None:
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)


def _make_room(process: ForkServerProcess) -> None:
    """Lets the files of this process and of its children grow again."""
    with contextlib.suppress(FileNotFoundError):
        for pid in [process.pid or 0, *children(process.pid or 0)]:
            with contextlib.suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
