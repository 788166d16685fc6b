"""The servers' side of a DistAIM run: bytes sent to one another by step, storage, processor time and memory.

``measure_servers`` runs as `syncret run` does, three server processes and the data owners' uploads over mutual TLS,
except for the estimator: one iteration of PGM in place of a hundred, since sizes do not depend on it. Meanwhile the
stores' folders and the servers' processes are sampled every ``LOOK_S`` seconds. Values are public except the rows,
which are published or generated. Known limits: a peak of storage between two samples is missed.
"""

import asyncio
import contextlib
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.processes import figures, memory
from mechanisms.workload import Workload
from parties.config import COUNTS_INPUT, MAX_ROWS, ROWS_INPUT, config_from_dict
from parties.local.folder import RunFolder
from parties.local.launcher import launch
from parties.local.partition import iid
from parties.local.request import Trial, TrialRequest
from parties.mpc.outputs import read_attempts
from parties.observability.events import Event, Progress
from parties.report.from_result import read_result
from protocols.upload import ROWS, SEEDED

LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class ServersRun:
    """A finished run of ``clients`` owners and ``rounds`` rounds; lists are by server 0, 1, 2.

    ``sent_by_step`` in bytes, ``seconds_by_step`` of the lead; ``passed_on_bytes`` are each server's forwarded bytes of
    owners' uploads, outside any step. ``stored_bytes`` is the largest size of a store's files, sampled every ``look_s``
    while the run lasted, ``cpu_s`` and ``peak_bytes`` those of the server's process, interpreter included.
    """

    clients: int
    rounds: int
    upload: str
    sent_by_step: dict[str, list[int]]
    passed_on_bytes: list[int]
    seconds_by_step: dict[str, float]
    stored_bytes: list[int]
    cpu_s: list[float]
    peak_bytes: list[int]
    wall_s: float
    look_s: float

    @property
    def sent_bytes(self) -> int:
        """Bytes sent by all servers in all steps, and owners' uploads that they forward."""
        in_steps = sum(sum(sent) for sent in self.sent_by_step.values())
        return in_steps + sum(self.passed_on_bytes)


def measure_servers(
    workload: Workload, codes: NDArray[np.int32], *, clients: int, rounds: int, upload: str
) -> ServersRun:
    """Runs DistAIM on ``codes`` (rows, columns), split evenly among ``clients`` who all take part.

    Raises ChildFailed or StoreError if the run fails.
    """
    with tempfile.TemporaryDirectory(prefix="syncret-overhead-") as name:
        folder = RunFolder(Path(name) / "run")
        trial = _trial(workload, codes, clients=clients, rounds=rounds, upload=upload)
        folder.open(trial.fingerprint)
        watch = _Watch(folder)
        started = time.perf_counter()
        asyncio.run(_launched(trial, folder, watch))
        wall = time.perf_counter() - started
        result = read_result(folder.party(0))
        attempts = read_attempts(folder.party(0) / "costs.json")
    seconds: dict[str, float] = {}
    for step in (step for attempt in attempts for step in attempt["steps"]):
        seconds[step["step"]] = seconds.get(step["step"], 0.0) + float(step["seconds"])
    sent = {step: [int(n) for n in by_party] for step, by_party in result["sent_by_step"].items()}
    return ServersRun(
        clients,
        rounds,
        upload,
        sent,
        [int(n) for n in result["passed_on_bytes"]],
        seconds,
        watch.stored,
        watch.cpu,
        watch.peak,
        wall,
        LOOK_S,
    )


def _trial(
    workload: Workload, codes: NDArray[np.int32], *, clients: int, rounds: int, upload: str
) -> Trial:
    """Makes a trial on codes in place of a table; owners of rows declare the largest capacity. Raises ConfigError."""
    capacity = min(-(-len(codes) // clients), MAX_ROWS // clients)
    by_rows = upload == ROWS
    document: dict[str, object] = {
        "run": {
            "id": "overhead",
            "epsilon": 1.0,
            "delta": 1e-5,
            "rounds": rounds,
            "input": ROWS_INPUT if by_rows else COUNTS_INPUT,
            "upload": SEEDED if by_rows else upload,
            "iterations": 1,
            "final_iterations": 1,
            "rows": 1,
        },
        "workload": {"queries": [list(query) for query in workload.queries]},
        "clients": {
            "expected": clients,
            "rows_per_client": capacity,
            "wait_s": 3600,
        },
        "timeouts": {"submit_s": 600, "receive_s": 300},
        **workload.domain.to_dict(),
    }
    config = config_from_dict(document, source="overhead", base=Path())
    partition = iid(len(codes), clients=clients, seed=1)
    request = TrialRequest("distaim", "overhead", clients, "iid", None, 1, capacity)
    return Trial(request, config, workload, codes, partition, "overhead")


async def _launched(trial: Trial, folder: RunFolder, watch: "_Watch") -> None:
    looking = asyncio.create_task(watch.look())
    try:
        await launch(trial, folder, progress=Progress(watch))
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


@dataclass(slots=True)
class _Watch:
    """Notes the servers' process ids from the launcher's events, and the largest figures of each."""

    folder: RunFolder
    pids: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=lambda: [0] * 3)
    cpu: list[float] = field(default_factory=lambda: [0.0] * 3)
    peak: list[int] = field(default_factory=lambda: [0] * 3)

    def take(self, event: Event) -> None:
        """Handles an event of the launcher."""
        if event.name == "servers":
            self.pids = [int(pid) for pid in str(event.fields["pids"]).split()]

    async def look(self) -> None:
        """Samples until cancelled."""
        while True:
            for party, pid in enumerate(self.pids):
                with contextlib.suppress(OSError):
                    self.cpu[party] = figures(pid).cpu_s
                    self.peak[party] = max(self.peak[party], memory("VmHWM", pid))
            for party in range(3):
                stored = _tree_bytes(self.folder.party(party) / "store")
                self.stored[party] = max(self.stored[party], stored)
            await asyncio.sleep(LOOK_S)


def _tree_bytes(folder: Path) -> int:
    """Returns the size of all files below ``folder``, without files that vanish meanwhile."""
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(inside, name)).st_size
    return total
