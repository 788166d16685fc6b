"""Three services as processes on hosts of their own: supervisors, clocks, disks, backups, and the network between them.

``Host`` is one server: its service is started again a moment after it has ended, as by a supervisor. A clock is shifted
in all processes of a host (``HOOK``), a disk is full for all of them. Public: everything; the owners' rows are random.
"""

import contextlib
import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.load.services import SERVICES, Trio
from parties.identity.tls import Authority
from tests.parties.commands import ROOT
from tests.parties.serving import OWNERS, Cluster, Serve, syncret
from tests.robustness.kills.network import Network
from tests.until import nothing_runs, processes

HOOK = '''
"""A host whose clock is off by what a file says, and services that try again often."""
import datetime
import os
import time

import parties.identity.tls
import parties.service.attempts

_real, _real_ns = time.time, time.time_ns


def _offset():
    with open(os.environ["CLOCK_FILE"]) as file:
        return float(file.read() or 0)


time.time = lambda: _real() + _offset()
time.time_ns = lambda: _real_ns() + int(_offset() * 1e9)
parties.identity.tls._now = lambda: datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
parties.service.attempts.LONGEST_PAUSE_S = 3.0
'''
_RESTART_S = 1.0
"""Time until a supervisor starts an ended service again."""


@dataclass
class Host:
    """A server's host: its service, and the way of the others to it, ``port``."""

    serve: Serve
    port: int
    full: bool = False
    away: bool = False
    """True while its folder is lost: nobody starts the service."""
    codes: list[int] = field(default_factory=list)
    """Statuses with which the service has ended."""
    _ended_at: float = 0.0

    @property
    def name(self) -> str:
        """Name of the server."""
        return self.serve.folder.name

    def supervise(self) -> None:
        """Starts the service again if it has ended a while ago."""
        process = self.serve.process
        if process is None or self.away or process.poll() is None:
            return
        now = time.monotonic()
        if not self._ended_at:
            self._ended_at = now
            self.codes.append(process.returncode)
        elif now - self._ended_at > _RESTART_S:
            self.start()

    def start(self) -> None:
        """Starts the service."""
        self.away, self._ended_at = False, 0.0
        self.serve.start()
        if self.full:
            self.fill(full=True)

    def kill(self) -> None:
        """Kills the service; its studies' processes end with it."""
        process = self.serve.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def set_clock(self, seconds: float) -> None:
        """Sets the host's clock this far ahead."""
        # Renamed, so that no process reads half of it.
        path = Path(self.serve.environment["CLOCK_FILE"])
        beside = path.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.rename(path)

    def fill(self, *, full: bool) -> None:
        """Lets no file of the host's processes grow, or lets them grow again."""
        self.full = full
        for pid in processes(self.serve.folder):
            with contextlib.suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if full else hard, hard))

    def back_up(self, to: Path) -> None:
        """Copies the folder into the file ``to``, which the key of ``Hosts`` opens."""
        self._command(
            *("backup", str(self.serve.folder), "--to", str(to)),
            *("--for", str(to.parent / "offsite.backup-pub")),
        )

    def lose(self) -> None:
        """Loses the folder, and with it the processes that work in it."""
        self.away = True
        self.kill()
        nothing_runs(self.serve.folder)
        shutil.rmtree(self.serve.folder)

    def restore(self, backup: Path) -> None:
        """Restores the folder from a backup as the guide says, and starts the service."""
        words = ("restore", str(backup), "--to", str(self.serve.folder))
        key = ("--key", str(backup.parent / "offsite.backup-key"))
        try:
            self._command(*words, *key)
        except AssertionError as error:
            if "--behind" not in str(error):
                raise
            self._command(*words, *key, "--behind")
        self.start()

    def _command(self, *words: str) -> None:
        folder = self.serve.folder.parent
        syncret(*words, cwd=folder, environment=self.serve.environment)


@dataclass
class Hosts:
    """The three hosts, what their operators and the owners do (``cluster``), and the network."""

    cluster: Cluster
    hosts: list[Host]
    network: Network

    @property
    def folder(self) -> Path:
        """Folder of all."""
        return self.cluster.folder


@contextlib.contextmanager
def three_hosts(folder: Path, seed: int) -> Iterator[Hosts]:
    """Yields three hosts whose services run and know one another; nothing of them runs afterwards."""
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    trio = Trio(folder, relays=True)
    Authority.make(folder / "coordinator", 10)
    for name in OWNERS:
        (folder / name).mkdir()
    syncret("certs", "backup-key", "offsite", cwd=folder)
    hosts = []
    for name, port in zip(SERVICES, trio.ways, strict=True):
        environment = {
            "CLOCK_FILE": str(folder / f"{name}.clock"),
            "SYNCRET_REGISTER": str(folder / f"{name}.register"),
            "PYTHONPATH": os.pathsep.join([str(hook), str(ROOT)]),
        }
        options = tuple(trio.serve(name)[3:])
        hosts.append(Host(Serve(folder / name, options, environment), port))
        hosts[-1].set_clock(0)
    cluster = Cluster(folder, [host.serve for host in hosts])
    with Network(trio.ways, seed) as network:
        try:
            cluster.start()
            yield Hosts(cluster, hosts, network)
        finally:
            for host in hosts:
                host.kill()
