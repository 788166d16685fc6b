"""A data owner as a process: ``python -m bench.overhead.owner`` counts, shares and uploads once, for `upload`.

Standard input is a ``Job`` as JSON, standard output a ``Done``. Memory is the kernel's high-water mark of this process,
started anew when its modules are loaded and its rows are at hand. Secret: nothing; the rows are published or generated.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.process_memory import forget_peak, memory
from mechanisms.workload import count_marginals
from parties.config import CertificateFiles, load_config
from parties.distaim.submit import deliver, prepare

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Job:
    """``config`` with the addresses to dial, ``codes`` int32 (rows, columns) as .npy, the owner's certificate."""

    config: str
    codes: str
    ca: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Done:
    """Bytes of HTTP bodies, bytes at the sockets by the kernel's count, processor seconds by phase, memory.

    ``loaded_bytes`` is the process with its modules and rows, ``peak_bytes`` the most that it grew beyond that.
    """

    sent_bytes: int
    received_bytes: int
    socket_sent_bytes: int
    socket_received_bytes: int
    cpu_s: dict[str, float]
    wall_s: float
    loaded_bytes: int
    peak_bytes: int


async def _work(job: Job) -> Done:
    config = load_config(Path(job.config))
    codes = np.load(job.codes, allow_pickle=False)
    files = CertificateFiles(Path(job.ca), Path(job.certificate), Path(job.key))
    client = files.cert.stem
    forget_peak()
    loaded, started = memory("VmRSS"), time.perf_counter()
    cpu: dict[str, float] = {}
    workload = _timed(cpu, "workload", config.build_workload)
    counts = _timed(cpu, "count", lambda: count_marginals(codes, workload))
    rounds = config.run.rounds
    prepared = _timed(
        cpu,
        "share",
        lambda: prepare(config, counts, client, workload=workload, first_round=rounds),
    )
    if prepared is None:
        raise RuntimeError("a client with a given round takes part")
    before = time.process_time()
    receipt = await deliver(config, prepared, files)
    cpu["upload"] = time.process_time() - before
    return Done(
        receipt.sent_bytes,
        receipt.received_bytes,
        sum(server.socket_sent_bytes or 0 for server in receipt.servers),
        sum(server.socket_received_bytes or 0 for server in receipt.servers),
        cpu,
        time.perf_counter() - started,
        loaded,
        max(0, memory("VmHWM") - loaded),
    )


def _timed(cpu: dict[str, float], phase: str, work: Callable[[], _T]) -> _T:
    before = time.process_time()
    try:
        return work()
    finally:
        cpu[phase] = time.process_time() - before


def main() -> None:
    """Upload, and print what it cost."""
    print(json.dumps(asdict(asyncio.run(_work(Job(**json.load(sys.stdin)))))))  # noqa: T201


if __name__ == "__main__":
    main()
