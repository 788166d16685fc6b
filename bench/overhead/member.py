"""Processor time and memory of FLAIM's clients: ``python -m bench.overhead.member`` plays a small run in a process.

Provides ``measure_member``. Three clients, all in every round, and their server share one process, so that its figures
are more than the clients' own: processor seconds are divided by the clients and rounds, memory is the whole process's
growth. Secret: nothing; the rows are published or generated.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.networks import ROOT
from bench.overhead.replay import LEAST, private_settings
from bench.process_memory import forget_peak, memory
from mechanisms.domain import Domain
from mechanisms.workload import Workload
from parties.flaim.simulation import simulate

ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Member:
    """At most this much: processor seconds of a client in one round, growth of memory in bytes."""

    cpu_s: float
    peak_bytes: int


async def measure_member(workload: Workload, codes: NDArray[np.int32], max_rows: int) -> Member:
    """Clients that have ``codes`` (rows, columns) each. Raises RuntimeError where the process fails."""
    with tempfile.TemporaryDirectory(prefix="syncret-overhead-") as folder:
        path = Path(folder) / "codes.npy"
        np.save(path, codes, allow_pickle=False)
        orders = {
            "domain": workload.domain.to_dict(),
            "queries": workload.queries,
            "codes": str(path),
            "max_rows": max_rows,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.overhead.member",
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        output, errors = await process.communicate(json.dumps(orders).encode())
    if process.returncode != 0:
        words = errors.decode(errors="replace").strip().splitlines() or ["no word"]
        raise RuntimeError(f"FLAIM's clients failed: {words[-1]}")
    return Member(**json.loads(output))


def main() -> None:
    """Run the orders on standard input and print a ``Member``."""
    orders = json.load(sys.stdin)
    queries = tuple(tuple(query) for query in orders["queries"])
    workload = Workload(Domain.from_dict(orders["domain"]), queries)
    codes = np.load(orders["codes"], allow_pickle=False)
    settings = private_settings(ROUNDS, participation=1.0, max_rows=orders["max_rows"])
    forget_peak()
    loaded, before = memory("VmRSS"), time.process_time()
    asyncio.run(simulate([codes] * LEAST, workload, settings, secagg=True, seed=1))
    # Round 0 measures the single columns.
    cpu = (time.process_time() - before) / (LEAST * (ROUNDS + 1))
    member = Member(cpu, max(0, memory("VmHWM") - loaded))
    print(json.dumps(asdict(member)))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
