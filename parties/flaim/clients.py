"""Several clients of a FLAIM trial in one process: each with its own TLS connection, certificate, ledger and rows.

Provides ``play_clients``. A hundred processes are no use to a machine with two processors: the launcher starts one
process a client where there are few, and otherwise a few processes that play a share of them each. What a client
sends is the same. Secret: the tables, which a trial has in one place. Known limits: one event loop; counting runs in
threads.
"""

import asyncio
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parties.budget import Account, Budget, Source
from parties.config import CertificateFiles, load_config
from parties.flaim.client import ClientReport, run_client
from parties.flaim.session import SharedBriefs
from parties.flaim.sums import release_of
from parties.progress import Progress
from parties.statuses import ChildFailed, describe
from parties.trial.jobs import CONCURRENT, OwnersJob
from parties.trial.processes import allow_files


async def play_clients(path: Path, share: tuple[int, int], *, progress: Progress) -> None:
    """Play those clients of the job at ``path`` whose number is i modulo n, for ``share`` (i, n), to the run's end.

    Raises ChildFailed, after everyone has ended, with the first failure and how many there were.
    """
    job = OwnersJob.read(path)
    config = load_config(Path(job.config))
    workload = config.build_workload()
    briefs, joining = SharedBriefs(workload), asyncio.Semaphore(CONCURRENT)
    budget, release = Budget(Path(job.budget)), release_of(config)
    allow_files()
    codes: NDArray[np.int32] = np.load(job.codes, mmap_mode="r", allow_pickle=False)
    owners: NDArray[np.int32] = np.load(job.owners, allow_pickle=False)
    mine = range(share[0], len(job.names), share[1])
    failures: list[tuple[str, Exception]] = []

    async def one(index: int) -> None:
        name, folder = job.names[index], Path(job.certificates)
        files = CertificateFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
        rows = np.ascontiguousarray(codes[owners == index])
        try:
            report = await run_client(
                config,
                rows,
                files,
                Path(job.states) / name,
                progress=progress,
                spend=Account(budget, Source(name), release).spend,
                workload=workload,
                briefs=briefs,
                joining=joining,
            )
        except Exception as error:  # noqa: BLE001  # One client's failure is not the others'.
            failures.append((name, error))
            progress.event("client-failed", f"{name}: {describe(error).message}", client=name)
            return
        _append(Path(job.receipts), report)
        progress.event("client-done", f"{name} has finished", client=name)

    async with asyncio.TaskGroup() as group:
        for index in mine:
            group.create_task(one(index))
    if failures:
        name, error = failures[0]
        failure = describe(error)
        raise ChildFailed(
            f"{len(failures)} of {len(mine)} clients did not finish; the first, {name}: {failure.message}",
            failure.status,
        )


def _append(path: Path, report: ClientReport) -> None:
    with path.open("ab") as file:
        file.write(json.dumps(report.to_dict()).encode() + b"\n")
