"""A study for many owners on this machine: authority, configuration, and three servers as `syncret serve study`
processes.

The table is small, since the measurement is of the owners' intake: six columns of 8 codes, one round. Nothing here is
secret: rows are random. Known limits: as of `parties.local.launcher`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.trial_servers import server_sections
from mechanisms.domain import Domain, Integer
from mechanisms.workload import draw_workload
from parties.config import ROWS_INPUT, Config, config_from_dict
from parties.identity.tls import make_certificates
from parties.local.folder import REGISTRY_FILE
from parties.local.processes import Child
from parties.report.from_result import read_result

SERVERS = ("party-0", "party-1", "party-2")
COLUMNS, CODES, CAPACITY = 6, 8, 8
_START_S = 60.0


@dataclass(frozen=True, slots=True)
class Study:
    """A ``config`` in ``folder``, and beside it the certificates of its authority."""

    folder: Path
    config: Config

    @classmethod
    def make(cls, folder: Path, owners: int, submit_s: float) -> "Study":
        """Makes a study of ``owners`` in the empty ``folder``; ``submit_s`` is an owner's deadline in seconds."""
        certificates = folder / "certificates"
        make_certificates(certificates, SERVERS, ())
        config = config_from_dict(
            _document(owners, certificates, submit_s), source="load", base=folder
        )
        (folder / "config.toml").write_text(config.resolved_toml(), encoding="utf-8")
        return cls(folder, config)

    @property
    def certificates(self) -> Path:
        """Folder of the authority, and of all certificates and keys."""
        return self.folder / "certificates"

    def server(self, pid: int) -> Path:
        """Returns a server's folder."""
        return self.folder / f"server-{pid}"

    def counted(self, pid: int) -> list[str]:
        """Returns the owners that server ``pid`` has counted, from its result. Raises StoreError."""
        return [item["client"] for item in read_result(self.server(pid))["counted"]]

    @contextlib.asynccontextmanager
    async def servers(self) -> AsyncIterator["Servers"]:
        """Starts the three servers, connected to one another. Raises RuntimeError if one does not start."""
        children = [self._start(pid) for pid in range(3)]
        servers = Servers(children)
        try:
            await servers.connected()
            yield servers
        finally:
            await asyncio.gather(*(child.stop() for child in children))
            servers.forget()

    def _start(self, pid: int) -> Child:
        directory = self.server(pid)
        directory.mkdir(mode=0o700)
        path = str(self.folder / "config.toml")
        arguments = ["serve", "study", path, "--pid", str(pid), "--dir", str(directory)]
        arguments += ["--register", str(directory / REGISTRY_FILE), "--json", "--watch-stdin"]
        return Child.start(f"server {pid}", arguments, log=self.folder / f"server-{pid}.log")


class Servers:
    """Three running servers."""

    def __init__(self, children: Sequence[Child]) -> None:
        self.children = children
        self._connected = [asyncio.Event() for _ in children]
        self._watchers = [
            asyncio.create_task(self._watch(child, event))
            for child, event in zip(children, self._connected, strict=True)
        ]

    async def _watch(self, child: Child, connected: asyncio.Event) -> None:
        async for event in child.events():
            if event["event"] == "connected":
                connected.set()
        if await child.wait() != 0:
            raise RuntimeError(child.describe_end())

    async def connected(self) -> None:
        """Waits until the servers have found one another. Raises RuntimeError."""
        there = asyncio.create_task(self._all_connected())
        try:
            tasks = [there, *self._watchers]
            await asyncio.wait(tasks, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
            self.check()
            if not there.done():
                raise RuntimeError(f"the servers have not found one another in {_START_S:g} s")
        finally:
            there.cancel()

    async def _all_connected(self) -> None:
        for event in self._connected:
            await event.wait()

    def check(self) -> None:
        """Raises RuntimeError if a server has ended before its time."""
        for watcher, child in zip(self._watchers, self.children, strict=True):
            if watcher.done():
                watcher.result()
                raise RuntimeError(f"{child.name} has ended before its time; see {child.log}")

    async def finish(self, limit_s: float) -> None:
        """Ends the intake: the servers count, and end the run. Raises RuntimeError, TimeoutError."""
        for child in self.children:
            child.command("go")
        async with asyncio.timeout(limit_s):
            await asyncio.gather(*self._watchers)

    def forget(self) -> None:
        """Stops reading the servers' output."""
        for watcher in self._watchers:
            watcher.cancel()


def _document(owners: int, certificates: Path, submit_s: float) -> dict[str, object]:
    domain = Domain(tuple(Integer(f"c{i}", 0, CODES - 1, CODES) for i in range(COLUMNS)))
    workload = draw_workload(domain)
    return {
        "run": {
            "id": "load",
            "epsilon": 1.0,
            "delta": 1e-9,
            "rounds": 1,
            "rows": 100,
            "input": ROWS_INPUT,
        },
        "workload": {"queries": [list(query) for query in workload.queries]},
        "clients": {
            "expected": owners,
            "minimum": 1,
            "rows_per_client": CAPACITY,
            "wait_s": 86_400,
        },
        "timeouts": {"submit_s": submit_s},
        **server_sections(certificates, SERVERS),
        **domain.to_dict(),
    }
