"""Launcher of a DistAIM run on one machine: servers and owners as processes, over mutual TLS on loopback.

``launch`` makes certificates and ports, starts three servers and a process for all data owners, and supervises them. If
one process fails, the others are stopped and its message is the error; no process is left in any case
(`parties.local.processes`). The folder of an interrupted run is resumed: servers continue after their last finished
round, owners without a receipt submit.

Secret: keys, shares and tables in the run folder, in folders of mode 0700; removed when the run is finished. Known
limits: one machine holds everything, so that a trial protects nobody; ports are chosen a moment before their use.
"""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from parties.config import Config, load_config
from parties.config.algorithms import silo_algorithms
from parties.foundation.exit_codes import ChildFailed, Status
from parties.identity.tls import make_certificates, public_keys
from parties.local.children import JOB_FILE, LOOPBACK, Children, free_ports, start_held_children
from parties.local.folder import RunFolder
from parties.local.jobs import OwnersJob, read_receipts
from parties.local.processes import Child, FailedChild
from parties.local.request import Trial
from parties.observability.events import WORKING, Progress
from parties.storage.files import disk_errors

SERVER_NAMES = ("party-0", "party-1", "party-2")
_CAUSE_S = 2.0
"""Wait for other servers' messages after a failure, in seconds: the message with the cause may come later."""
_PEER_LOSS_RANK = 3
"""Rank of a failure by the loss of a server that has itself ended: the least informative one."""
_DRAWING_MODULE = "parties.report.html"
_FORWARDED_EVENTS = (
    "recording",
    "inputs",
    "waiting",
    "counting",
    "round",
    "selected",
    "writing",
    "resumed",
    WORKING,
)
"""Events of server 0 that the launcher passes to its user."""


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """A finished run: the config of its processes, and seconds until the three servers were connected."""

    config: Config
    setup_s: float


async def launch(
    trial: Trial, folder: RunFolder, *, progress: Progress, children: Children | None = None
) -> LaunchResult:
    """Runs ``trial`` in ``folder`` to its end, by ``children`` if they are held already.

    Raises ChildFailed with the message of the process that failed first, StoreError, CertificateError.
    """
    started = time.perf_counter()
    connected: list[float] = []
    children = children or start_held_children(folder)
    try:
        config = await asyncio.to_thread(prepare, trial, folder)
        progress.event("prepared", "certificates, ports and owners' tables are ready")
        await _run_processes(folder, children, connected, progress)
    finally:
        await asyncio.shield(_stop(children.all))
    return LaunchResult(config, connected[0] - started if connected else 0.0)


def prepare(trial: Trial, folder: RunFolder) -> Config:
    """Writes config, certificates and the owners' job; keeps the certificates of an interrupted run.

    Raises StoreError.
    """
    return prepare_trial(trial, folder, SERVER_NAMES, with_servers)


def prepare_trial(
    trial: Trial,
    folder: RunFolder,
    servers: Sequence[str],
    configure: Callable[[Trial, RunFolder], Config],
) -> Config:
    """Does the work of ``prepare`` for ``servers`` of these names; ``configure`` makes the config with addresses."""
    with disk_errors(folder.path):
        prepare_certificates(folder, servers, trial.names)
        config = configure(trial, folder)
        folder.write_config(config)
        np.save(folder.owners / "codes.npy", trial.shared(config), allow_pickle=False)
        np.save(folder.owners / "owners.npy", trial.partition.owners, allow_pickle=False)
        states = folder.owners / "states"
        states.mkdir(exist_ok=True)
        OwnersJob(
            config=str(folder.config),
            codes=str(folder.owners / "codes.npy"),
            owners=str(folder.owners / "owners.npy"),
            certificates=str(folder.certificates),
            states=str(states),
            receipts=str(receipts_path(folder)),
            budget=str(folder.owners / "budget.sqlite"),
            names=trial.names,
            capacity=trial.request.capacity,
        ).write(folder.owners / JOB_FILE)
    return config


def prepare_certificates(folder: RunFolder, servers: Sequence[str], clients: Sequence[str]) -> None:
    """Creates the folder's certificates, all or none, unless they exist."""
    if not folder.certificates.exists():
        partial = folder.certificates.with_name("certificates.partial")
        shutil.rmtree(partial, ignore_errors=True)
        make_certificates(partial, servers, clients)
        partial.chmod(0o700)
        partial.rename(folder.certificates)


def receipts_path(folder: RunFolder) -> Path:
    """Path of the owners' receipts."""
    return folder.owners / "receipts.jsonl"


def with_servers(trial: Trial, folder: RunFolder) -> Config:
    """Returns the config with three servers on free ports of this machine and the trial's certificates."""
    ports = free_ports(6)
    parties = [
        {
            "name": name,
            "mesh": f"{LOOPBACK}:{ports[2 * pid]}",
            "ingest": f"{LOOPBACK}:{ports[2 * pid + 1]}",
            **keys,
        }
        for pid, (name, keys) in enumerate(_public_keys(folder).items())
    ]
    certificates = folder.certificates.resolve()
    tls = {
        "ca": str(certificates / "ca.crt"),
        "cert": str(certificates / "party-{pid}.crt"),
        "key": str(certificates / "party-{pid}.key"),
    }
    others = dict.fromkeys(("silos", *silo_algorithms()))
    return trial.config.override({**others, "party": parties, "tls": tls})


def _public_keys(folder: RunFolder) -> dict[str, dict[str, str]]:
    """Public keys by server.

    For an interrupted run they come from its config, since an ended server keeps no sealing key.
    """
    if folder.config.exists():
        known = load_config(folder.config).require_parties()
        return {party.name: {"key": party.key, "seal": party.seal} for party in known}
    files = folder.certificates
    return {
        name: public_keys(files / f"{name}.crt", files / f"{name}.seal") for name in SERVER_NAMES
    }


async def _run_processes(
    folder: RunFolder, children: Children, connected: list[float], progress: Progress
) -> None:
    """Starts all processes in order and watches them until the three servers have ended well.

    Appends the time of the servers' connection to ``connected``.
    """

    def on_event(pid: int, name: str) -> None:
        if name == "listening":
            listening[pid].set()
        elif name == "connected" and pid == 0:
            connected.append(time.perf_counter())
        elif name == "round-done" and pid == 0 and not drawing.is_set():
            # The drawing module imports slowly, and this process is idle meanwhile.
            drawing.set()
            threading.Thread(target=import_module, args=(_DRAWING_MODULE,), daemon=True).start()

    drawing = threading.Event()
    listening = [asyncio.Event() for _ in range(3)]
    watchers: list[asyncio.Task[None]] = []
    try:
        for pid, child in enumerate(children.servers):
            child.begin()
            watchers.append(asyncio.create_task(_watch_server(child, pid, on_event, progress)))
        pids = _pids(children.servers)
        progress.event("servers", "three compute servers are starting", pids=pids)
        owners = asyncio.create_task(_run_owners_process(folder, children, listening, progress))
        watchers.append(owners)
        await _wait_for_all(watchers, children.servers)
    finally:
        for task in watchers:
            task.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)


def _pids(children: Sequence[Child]) -> str:
    return " ".join(str(child.pid) for child in children)


async def _watch_server(
    child: Child, pid: int, on_event: Callable[[int, str], None], progress: Progress
) -> None:
    """Handles a server's events until it ends; forwards those of server 0 alone. Raises ChildFailed."""
    async for event in child.events():
        name, text = str(event["event"]), str(event.get("text", ""))
        on_event(pid, name)
        done = event.get("done")
        if pid != 0:
            continue
        if name == "round-done" and isinstance(done, int):
            progress.event("rounds", text, done=done)
        elif name in _FORWARDED_EVENTS:
            progress.event(name, text)
    await child.end_well()


async def _run_owners_process(
    folder: RunFolder, children: Children, listening: Sequence[asyncio.Event], progress: Progress
) -> None:
    """Lets the owners submit once all servers listen, then tells the servers that no more owners will come."""
    child = children.owners
    child.begin()
    for ready in listening:
        await ready.wait()
    child.command("go")
    async for event in child.events():
        done = event.get("done")
        if event["event"] == "uploads" and isinstance(done, int):
            progress.event("uploads", str(event["text"]), done=done)
    await child.end_well()
    count = len(read_receipts(receipts_path(folder)))
    progress.event("owners", f"all {count} data owners have finished")
    for server in children.servers:
        server.command("go")


async def _wait_for_all(watchers: Sequence[asyncio.Task[None]], servers: Sequence[Child]) -> None:
    """Waits until every watcher has ended. After a failure, raises the failure that best names the cause."""
    done, pending = await asyncio.wait(watchers, return_when=asyncio.FIRST_EXCEPTION)
    if not any(task.exception() for task in done):
        return
    # The message of a server that lost its peer may come before the peer's own: wait a little for it.
    more, _ = await asyncio.wait(pending, timeout=_CAUSE_S) if pending else (set(), set())
    failures = [error for task in (*done, *more) if (error := task.exception()) is not None]
    first = min(failures, key=lambda error: _rank(error, servers))
    silent = [server.name for server in servers if server.running]
    if _rank(first, servers) == _PEER_LOSS_RANK and len(silent) == 1:
        # The others waited for one another, and one of them for the silent server.
        raise ChildFailed(f"{silent[0]} is there and silent; {first}", Status.NETWORK) from first
    raise first


def _rank(error: BaseException, servers: Sequence[Child]) -> int:
    """Rank of a failure by its information on the cause; the lowest is the most informative.

    0: killed from outside. 1: any failure of its own. 2: loss of a server that still runs, silently. 3: loss of another
    server (``_PEER_LOSS_RANK``).
    """
    if not isinstance(error, FailedChild):
        return 1
    if error.child.failure is None:
        return 0
    if error.status != Status.NETWORK:
        return 1
    accused = error.child.blamed_server
    return 2 if accused is not None and servers[accused].running else _PEER_LOSS_RANK


async def _stop(children: Sequence[Child]) -> None:
    await asyncio.gather(*(child.stop() for child in children))
