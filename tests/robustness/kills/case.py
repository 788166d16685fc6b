"""One case: a run of three servers, one of which meets a fault at a point; then the same commands again, and the audit.

Every server ends in its own error or goes on; started again, the three finish; their ledgers are alike and within the
budget; the audit passes, except that it reports a server's clock that is hours off. All values here are public: the
owners' rows are random. Known limits: OpenSSL does not see the shifted clock; a disk is full for a process's writes
alone, not for others.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from parties.config import CertificateFiles, Config
from parties.foundation.exit_codes import Status, describe
from parties.local.children import free_ports
from parties.mpc.server import run_mpc_server
from parties.mpc.submission.submit import submit
from parties.observability.events import Progress
from tests.robustness.fuzzing.corpus import OWNERS, PARTIES, Corpus, codes_of
from tests.robustness.kills import judging, points
from tests.robustness.kills.children import continue_stopped, imported, started
from tests.robustness.kills.judging import Finished
from tests.robustness.kills.network import Network
from tests.robustness.kills.outcome import Case, Outcome

LIMIT_S = 60.0
_RECEIVE_S = 4.0
"""Deadline for messages between servers, in seconds."""
_STOP_S, _HANG_S = 0.3, _RECEIVE_S + 1.5
_POLL_S = 0.01
_TRIES = 3
"""Largest number of restarts by the same commands: a busy machine may let a deadline pass."""
imported(__name__)


@dataclass(frozen=True, slots=True)
class Run:
    """The study in a folder of its own: ``configs`` by server, and the owners' configuration and certificates."""

    folder: Path
    configs: tuple[Config, ...]
    owners: Config
    certificates: dict[str, CertificateFiles]
    ways: dict[int, int]

    @classmethod
    def new(cls, corpus: Corpus, folder: Path, victim: int) -> "Run":
        """Makes a run with free ports, own sealing keys, and relays on the ways to and from ``victim``."""
        folder.mkdir(parents=True)
        ports = free_ports(10)
        own = {name: _copied(corpus.certificates[name], folder / name) for name in PARTIES}
        table = list(corpus.config.to_dict()["party"])  # type: ignore[call-overload]
        others = [pid for pid in range(3) if pid != victim]
        dials = [(victim, pid) for pid in others] + [(pid, victim) for pid in others]
        relays = dict(zip(dials, ports[6:], strict=True))
        ways = {relay: ports[2 * target] for (_, target), relay in relays.items()}

        def seen_by(pid: int) -> list[dict[str, object]]:
            return [
                {
                    **party,
                    "mesh": f"127.0.0.1:{relays.get((pid, other), ports[2 * other])}",
                    "ingest": f"127.0.0.1:{ports[2 * other + 1]}",
                }
                for other, party in enumerate(table)
            ]

        def config(pid: int) -> Config:
            files = own[PARTIES[pid]]
            tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
            timeouts = {"connect_s": 20.0, "receive_s": _RECEIVE_S, "submit_s": 30.0}
            return corpus.config.override(
                {
                    "party": seen_by(pid),
                    "tls": tls,
                    "timeouts": timeouts,
                    "run.noise": "distributed",
                }
            )

        configs = (config(0), config(1), config(2))
        return cls(folder, configs, configs[0], {**corpus.certificates, **own}, ways)

    def directory(self, pid: int) -> Path:
        """Returns a server's folder."""
        return self.folder / f"server-{pid}"


def _copied(files: CertificateFiles, folder: Path) -> CertificateFiles:
    """Copies a server's certificates: it deletes its sealing key at the end of its run."""
    folder.mkdir()
    for path in (files.ca, files.cert, files.key, files.seal):
        shutil.copy(path, folder)
    return CertificateFiles(*(folder / path.name for path in (files.ca, files.cert, files.key)))


# In processes of their own.


def _serve(run: Run, pid: int, case: Case | None) -> None:
    log = os.open(run.folder / f"server-{pid}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.disable()
    run.directory(pid).mkdir(exist_ok=True)
    point = points.watch(case.number, case.fault, run.folder / "hit") if case else None
    try:
        asyncio.run(
            run_mpc_server(
                run.configs[pid],
                pid,
                run.directory(pid),
                progress=Progress(),
                closed=asyncio.Event(),
                register=run.folder / f"register-{pid}.sqlite",
            )
        )
    except BaseException as error:  # noqa: BLE001  # its status is what is looked at
        failure = describe(error)
        with contextlib.suppress(OSError):
            print(failure.message, file=sys.stderr)  # into the log
        sys.exit(int(failure.status))
    if point is not None:
        (run.folder / "points").write_text(str(point.count))


def _submit(run: Run) -> None:
    logging.disable()

    async def everybody() -> None:
        await asyncio.gather(
            *(
                submit(
                    run.owners,
                    codes_of(number),
                    run.certificates[name],
                    first_round=1,
                    state=run.folder / f"{name}.state",
                )
                for number, name in enumerate(OWNERS)
            ),
            return_exceptions=True,
        )

    asyncio.run(everybody())


# The case.


def count_points(corpus: Corpus, folder: Path, victim: int) -> int:
    """Counts the points that server ``victim`` passes in a run without a fault. Raises RuntimeError if that fails."""
    run = Run.new(corpus, folder, victim)
    with Network(run.ways, 0) as network:
        ended = attempt(run, network, Case("", victim, 0))
    if ended != (0, 0, 0):
        raise RuntimeError(f"a run without a fault failed: the servers ended with {ended}")
    count = int((folder / "points").read_text())
    shutil.rmtree(folder)
    return count


def play(case: Case, corpus: Corpus, folder: Path) -> Outcome:
    """Plays the case in ``folder``, which is created, and deleted in the end unless something is wrong."""
    began, tries, wrong = time.monotonic(), 0, ""
    run = Run.new(corpus, folder, case.victim)
    with Network(run.ways, secrets.randbits(32)) as network:
        ended = attempt(run, network, case)
        wrong = _unexpected(run, case, ended)
        again = ended
        while not wrong and again != (0, 0, 0) and tries < _TRIES:
            tries += 1
            again = attempt(run, network, None)
            wrong = _unexpected(run, None, again)
    if not wrong and again != (0, 0, 0):
        wrong = f"does not finish: started {tries} times again, the servers ended with {again}"
    wrong = wrong or judged(run, case)
    hit = run.folder / "hit"
    at = hit.read_text() if hit.exists() else ""
    if not wrong:
        shutil.rmtree(folder)
    return Outcome(case, at, ended, tries, time.monotonic() - began, wrong)


def attempt(run: Run, network: Network, case: Case | None) -> tuple[int | None, ...]:
    """Runs the three servers until all have ended; returns their exit codes, None for one that does not end."""
    with contextlib.ExitStack() as exits:
        servers = [
            exits.enter_context(
                started(_serve, run, pid, case if case and case.victim == pid else None)
            )
            for pid in range(3)
        ]
        exits.enter_context(started(_submit, run))
        _wait(run, network, case, servers)
        return tuple(server.exitcode for server in servers)


def _wait(
    run: Run, network: Network, case: Case | None, servers: Sequence[ForkServerProcess]
) -> None:
    """Waits until all have ended; faults outside the victim's process happen once it has passed its point."""
    until, since = time.monotonic() + LIMIT_S, 0.0
    fault = case.fault if case else ""
    while any(server.is_alive() for server in servers) and time.monotonic() < until:
        if fault and (run.folder / "hit").exists():
            since = since or time.monotonic()
            passed = time.monotonic() - since
            if fault == points.CUT:
                network.cut()
                fault = ""
            elif fault == points.LAG:
                network.lag()
                fault = ""
            elif passed > {points.STOP: _STOP_S, points.HANG: _HANG_S}.get(fault, LIMIT_S):
                fault = "" if case is None or continue_stopped(servers[case.victim]) else fault
        time.sleep(_POLL_S)


def _unexpected(run: Run, case: Case | None, ended: Sequence[int | None]) -> str:
    """Describes a server that ended by a defect or by an unexpected signal, or that did not end; else ""."""
    for pid, code in enumerate(ended):
        killed = case is not None and case.fault == points.KILL and case.victim == pid
        if code is None:
            return f"server {pid} does not end"
        if code == Status.DEFECT or (code < 0 and not (killed and code == -signal.SIGKILL)):
            log = (run.folder / f"server-{pid}.log").read_text(errors="replace")
            return f"server {pid} ended with {code}: {log.strip()[-300:]}"
    return ""


def judged(run: Run, case: Case) -> str:
    """Describes the violated conditions of a finished run; "" without any."""
    certificates = {f"{name}.crt": run.certificates[name].cert for name in PARTIES}
    certificates["ca.crt"] = run.certificates[PARTIES[0]].ca
    directories = [run.directory(pid) for pid in range(3)]
    finished = Finished(run.configs[0], directories, certificates, run.folder / "run")
    return judging.judged(finished, clocks_apart=case.fault in (points.AHEAD, points.BEHIND))
