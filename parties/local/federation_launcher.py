"""Launcher of a federation on one machine: the server and all participants as processes, over mutual TLS on loopback.

``launch_federation`` starts the server and the participants, and supervises them; ``with_server`` makes their
configuration. The server's failure ends the run with its message; a participant that fails or is killed has dropped
out, and the run continues without it as far as the protocol allows. No process is left in any case
(`parties.local.processes`). Secret: keys and tables in the run folder, in folders of mode 0700; removed when the run is
finished. Known limits: one machine holds everything, so that a trial protects nobody.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from parties.config import Config, FederationSection
from parties.foundation.process_limits import most_files
from parties.identity.tls import pinned_key_in
from parties.local.children import LOOPBACK, free_ports
from parties.local.folder import REGISTRY_FILE, RunFolder
from parties.local.processes import Child
from parties.observability.events import WORKING, Progress

SERVER = "server"
MAX_SINGLE_CLIENT_PROCESSES = 8
"""Maximum number of clients with a process each."""
_CLIENT_FILES, _OTHER_FILES = 6, 200
"""Open files of a client, and of a process besides its clients.

A client has its connection, its ledger's lock and database, and SQLite's side files.
"""
_GOODBYE_S = 10.0
_CHILD_OPTIONS = ("--json", "--watch-stdin")
_SHOWN_EVENTS = ("listening", "writing", "resumed", "algorithm", WORKING)


@dataclass(slots=True)
class FederationLaunch:
    """A finished run: its config, the number of client processes, the failed clients, seconds to the server's start."""

    config: Config
    processes: int
    failed: list[str] = field(default_factory=list)
    setup_s: float = 0.0


async def launch_federation(
    section: FederationSection,
    names: tuple[str, ...],
    folder: RunFolder,
    prepare: Callable[[], Config],
    *,
    processes: int | None,
    progress: Progress,
) -> FederationLaunch:
    """Runs the server of ``section`` and the participants ``names`` in ``folder``, to the end.

    ``prepare`` writes configuration, certificates and the participants' job, and returns the configuration;
    ``processes`` is the number for the participants (None: one each, or a few). Raises ChildFailed with the server's
    message, StoreError, CertificateError.
    """
    started = time.perf_counter()
    config = await asyncio.to_thread(prepare)
    progress.event("prepared", f"certificates, port and {section.WHO}' tables are ready")
    count = min(processes or default_process_count(len(names)), len(names))
    launched = FederationLaunch(config, count)
    run = _FederationProcesses(names, folder, f"{section.KEY}-clients", progress, launched)
    try:
        await run.play(started)
    finally:
        await asyncio.shield(asyncio.gather(*(child.stop() for child in run.children)))
    return launched


def default_process_count(clients: int) -> int:
    """One process for each client if they are few, else as many as processors, at least two.

    The number is larger if the clients of one process would exceed its limit of open files.
    """
    if clients <= MAX_SINGLE_CLIENT_PROCESSES:
        return clients
    each = max(1, (most_files() - _OTHER_FILES) // _CLIENT_FILES)
    return max(2, os.cpu_count() or 1, -(-clients // each))


def with_server(
    config: Config, folder: RunFolder, section: FederationSection, names: Sequence[str]
) -> Config:
    """Returns ``config`` with the ``section``'s server on a free local port, the clients ``names``, and TLS files."""
    certificates, server = folder.certificates.resolve(), section.server
    return config.override(
        {
            f"{section.KEY}.address": f"{LOOPBACK}:{free_ports(1)[0]}",
            f"{section.KEY}.clients": list(names),
            f"{section.KEY}.key": pinned_key_in(certificates / f"{server}.crt").key,
            "tls": {
                "ca": str(certificates / "ca.crt"),
                "cert": str(certificates / f"{server}.crt"),
                "key": str(certificates / f"{server}.key"),
            },
        }
    )


@dataclass(eq=False, slots=True)
class _FederationProcesses:
    """The processes of one run."""

    names: tuple[str, ...]
    folder: RunFolder
    clients_command: str
    progress: Progress
    launched: FederationLaunch
    children: list[Child] = field(default_factory=list)
    here: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    listening: asyncio.Event = field(default_factory=asyncio.Event)

    async def play(self, started: float) -> None:
        """Starts the server, then the clients; watches until the server has ended well."""
        directory = self.folder.party(0)
        arguments = [
            "internal",
            "server",
            str(self.folder.config),
            "--dir",
            str(directory),
            *_CHILD_OPTIONS,
        ]
        arguments += ["--register", str(directory / REGISTRY_FILE)]
        server = Child.start(SERVER, arguments, log=directory / "log.txt")
        self.children.append(server)
        self.progress.event("server", "the server is starting", pids=str(server.pid))
        serving = asyncio.create_task(self._watch_server(server, started))
        clients = asyncio.create_task(self._clients(server))
        try:
            await asyncio.wait((serving, clients), return_when=asyncio.FIRST_EXCEPTION)
            if clients.done() and clients.exception() is not None and not serving.done():
                await clients
            await serving
            # The clients have received the server's goodbye and write their last lines.
            await asyncio.wait((clients,), timeout=_GOODBYE_S)
        finally:
            for task in (serving, clients):
                task.cancel()
            await asyncio.gather(serving, clients, return_exceptions=True)

    async def _watch_server(self, server: Child, started: float) -> None:
        async for event in server.events():
            name, text, done = str(event["event"]), str(event.get("text", "")), event.get("done")
            if name == "listening":
                self.listening.set()
                self.launched.setup_s = time.perf_counter() - started
            if name == "clients" and isinstance(done, int):
                self.progress.event("uploads", text, done=done)
            elif name == "round-done" and isinstance(done, int):
                self.progress.event("rounds", text, done=done)
            elif name in _SHOWN_EVENTS:
                self.progress.event(name, text)
        self.listening.set()
        await server.end_well()

    async def _clients(self, server: Child) -> None:
        """Starts the clients' processes once the server listens, and watches them to their ends."""
        await self.listening.wait()
        count = self.launched.processes
        watchers: list[asyncio.Task[None]] = []
        for index in range(count):
            names = self.names[index::count]
            label = names[0] if len(names) == 1 else f"{len(names)} clients"
            share = ("--share", f"{index}/{count}")
            arguments = [
                "internal",
                self.clients_command,
                str(self.folder.owners / "job.json"),
                *share,
                *_CHILD_OPTIONS,
            ]
            log = self.folder.owners / f"log-{index}.txt"
            child = Child.start(label, arguments, log=log)
            self.children.append(child)
            watchers.append(asyncio.create_task(self._watch_clients(child, names, server)))
        pids = " ".join(str(child.pid) for child in self.children[1:])
        self.progress.event("started", f"{count} processes play the clients", pids=pids)
        await asyncio.gather(*watchers)

    async def _watch_clients(self, child: Child, names: tuple[str, ...], server: Child) -> None:
        async for event in child.events():
            name, who = str(event["event"]), event.get("client")
            if name == "joined" and isinstance(who, str):
                self._mark_joined({who}, server)
            elif name == "client-failed" and isinstance(who, str):
                self._mark_failed({who}, str(event.get("text", "")), server)
            elif name == "client-done" and isinstance(who, str):
                self.gone.add(who)
        code = await child.wait()
        left = set(names) - self.gone
        if code != 0 and left:
            self._mark_failed(left, child.describe_end(), server)

    def _mark_joined(self, names: set[str], server: Child) -> None:
        self.here |= names
        if self.here | self.gone >= set(self.names):
            server.command("go")

    def _mark_failed(self, names: set[str], text: str, server: Child) -> None:
        self.gone |= names
        self.launched.failed.append(text)
        self.progress.event("client-left", text)
        self._mark_joined(set(), server)
