"""A whole run on one machine: three compute servers and all data owners as processes, over mutual TLS on loopback.

Provides ``launch``: certificates and ports, the three servers, the owners, and their supervision. If one process
fails the rest are stopped and its message is the error; on any way out no process is left
(`parties.local.processes`). A folder left by an interrupted run is taken up: servers go on after their last finished
round, owners without a receipt submit.

Secret: keys, shares and tables in the run folder, in folders of mode 0700; removed when the run is finished. Known
limits: one machine holds everything, so that a trial protects nobody; ports are chosen a moment before they are used.
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

from parties.config import SILO_ALGORITHMS, Config, load_config
from parties.foundation.exit_codes import ChildFailed, Status
from parties.identity.tls import make_certificates, public_keys
from parties.local.children import JOB_FILE, LOOPBACK, Children, free_ports, start_held_children
from parties.local.folder import RunFolder
from parties.local.jobs import OwnersJob, read_receipts
from parties.local.processes import Child
from parties.local.request import Trial
from parties.observability.events import WORKING, Progress
from parties.storage.files import disk_errors, write_atomic

SERVER_NAMES = ("party-0", "party-1", "party-2")
_CAUSE_S = 2.0
"""How long to wait for other servers' messages after one has failed: the one that names the cause may come later."""
_PEER_LOSS_RANK = 3
"""How little the lack of a server that has gone itself says about the cause."""
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
"""Events of party 0 that the launcher's own user is told."""


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """A finished run: the config that its processes used, and seconds until the three servers were connected."""

    config: Config
    setup_s: float


async def launch(
    trial: Trial, folder: RunFolder, *, progress: Progress, children: Children | None = None
) -> LaunchResult:
    """Run ``trial`` in ``folder`` to its end, by ``children`` that are held already.

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
    """Write config, certificates and the owners' job; what an interrupted run left of them stays. Raises StoreError."""
    return prepare_trial(trial, folder, SERVER_NAMES, with_servers)


def prepare_trial(
    trial: Trial,
    folder: RunFolder,
    servers: Sequence[str],
    configure: Callable[[Trial, RunFolder], Config],
) -> Config:
    """As ``prepare``, for ``servers`` of these names; ``configure`` gives the config with their addresses."""
    with disk_errors(folder.path):
        prepare_certificates(folder, servers, trial.names)
        config = configure(trial, folder)
        write_atomic(folder.config, config.resolved_toml())
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
    """The folder's certificates, all of them or none, unless they are there."""
    if not folder.certificates.exists():
        partial = folder.certificates.with_name("certificates.partial")
        shutil.rmtree(partial, ignore_errors=True)
        make_certificates(partial, servers, clients)
        partial.chmod(0o700)
        partial.rename(folder.certificates)


def receipts_path(folder: RunFolder) -> Path:
    """Where the owners' receipts are."""
    return folder.owners / "receipts.jsonl"


def with_servers(trial: Trial, folder: RunFolder) -> Config:
    """The config with three servers on free ports of this machine and the trial's certificates."""
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
    others = dict.fromkeys(("silos", *SILO_ALGORITHMS))
    return trial.config.override({**others, "party": parties, "tls": tls})


def _public_keys(folder: RunFolder) -> dict[str, dict[str, str]]:
    """By server; of an interrupted run as its config has them, for a server that had ended keeps no sealing key."""
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
    """Let everybody begin in order and watch it until the three servers have ended well.

    Notes in ``connected`` when they had found one another.
    """

    def on_event(pid: int, name: str) -> None:
        if name == "listening":
            listening[pid].set()
        elif name == "connected" and pid == 0:
            connected.append(time.perf_counter())
        elif name == "round-done" and pid == 0 and not drawing.is_set():
            # What draws the report takes a while to import, and this process has nothing else to do.
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
    """Pass on a server's events until it ends; party 0 speaks for all three. Raises ChildFailed."""
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
    await _check_end(child)


async def _run_owners_process(
    folder: RunFolder, children: Children, listening: Sequence[asyncio.Event], progress: Progress
) -> None:
    """Once all servers listen, let the owners submit, then tell the servers that no more will come."""
    child = children.owners
    child.begin()
    for ready in listening:
        await ready.wait()
    child.command("go")
    async for event in child.events():
        done = event.get("done")
        if event["event"] == "uploads" and isinstance(done, int):
            progress.event("uploads", str(event["text"]), done=done)
    await _check_end(child)
    count = len(read_receipts(receipts_path(folder)))
    progress.event("owners", f"all {count} data owners have answered and left")
    for server in children.servers:
        server.command("go")


async def _check_end(child: Child) -> None:
    code = await child.wait()
    if code != 0:
        status = Status.KILLED if code < 0 else Status.DEFECT
        status = child.failure[0] if child.failure else status
        raise _FailedChild(child, status)


class _FailedChild(ChildFailed):
    """A child has failed; which one."""

    def __init__(self, child: Child, status: Status) -> None:
        super().__init__(child.describe_end(), status)
        self.child = child


async def _wait_for_all(watchers: Sequence[asyncio.Task[None]], servers: Sequence[Child]) -> None:
    """Until every watcher has ended. Raises the failure that names the cause, if one has failed."""
    done, pending = await asyncio.wait(watchers, return_when=asyncio.FIRST_EXCEPTION)
    if not any(task.exception() for task in done):
        return
    # A server that lost its peer may be heard before the peer: wait a little for who has more to say.
    more, _ = await asyncio.wait(pending, timeout=_CAUSE_S) if pending else (set(), set())
    failures = [error for task in (*done, *more) if (error := task.exception()) is not None]
    first = min(failures, key=lambda error: _rank(error, servers))
    silent = [server.name for server in servers if server.running]
    if _rank(first, servers) == _PEER_LOSS_RANK and len(silent) == 1:
        # The others waited for one another, one of them for it.
        raise ChildFailed(f"{silent[0]} is there and silent; {first}", Status.NETWORK) from first
    raise first


def _rank(error: BaseException, servers: Sequence[Child]) -> int:
    """What says most about the cause comes first.

    Killed from outside; any failure of its own; the lack of a server that is still there and silent; of another
    (``_PEER_LOSS_RANK``).
    """
    if not isinstance(error, _FailedChild):
        return 1
    if error.child.failure is None:
        return 0
    if error.status != Status.NETWORK:
        return 1
    accused = error.child.blamed_server
    return 2 if accused is not None and servers[accused].running else _PEER_LOSS_RANK


async def _stop(children: Sequence[Child]) -> None:
    await asyncio.gather(*(child.stop() for child in children))
