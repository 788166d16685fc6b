"""Several clients of a FLAIM trial in one process: each with its own TLS connection, certificate, ledger and rows.

Provides ``play_clients``, and ``play_each``, which silos have, too. A hundred processes are no use to a machine with
two processors: the launcher starts one process a client where there are few, and otherwise a few processes that play a
share of them each. What a client sends is the same. Secret: the tables, which a trial has in one place. Known limits:
one event loop; counting runs in threads.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parties.budget import Account, Budget, Source
from parties.config import load_config
from parties.flaim.client import ClientReport, run_client
from parties.flaim.session import SharedBriefs
from parties.flaim.sums import release_of
from parties.progress import Progress
from parties.secagg.frames import read_little
from parties.statuses import ChildFailed, describe
from parties.trial.jobs import CONCURRENT, Job, OwnersJob, Receipt, append_receipt
from parties.trial.processes import allow_files


async def play_clients(path: Path, share: tuple[int, int], *, progress: Progress) -> None:
    """Play those clients of the job at ``path`` whose number is i modulo n, for ``share`` (i, n), to the run's end.

    Raises as ``play_each``.
    """
    job = OwnersJob.read(path)
    config = load_config(Path(job.config))
    workload = config.build_workload()
    briefs, joining = SharedBriefs(workload), asyncio.Semaphore(CONCURRENT)
    budget, release = Budget(Path(job.budget)), release_of(config)
    codes: NDArray[np.int32] = np.load(job.codes, mmap_mode="r", allow_pickle=False)
    owners: NDArray[np.int32] = np.load(job.owners, allow_pickle=False)

    async def take_part(index: int, name: str) -> ClientReport:
        return await run_client(
            config,
            np.ascontiguousarray(codes[owners == index]),
            job.files_of(name),
            Path(job.states) / name,
            progress=progress,
            spend=Account(budget, Source(name), release).spend,
            workload=workload,
            briefs=briefs,
            joining=joining,
        )

    await play_each(job, share, take_part, who="clients", progress=progress)


async def play_each(
    job: Job,
    share: tuple[int, int],
    take_part: Callable[[int, str], Awaitable[Receipt]],
    *,
    who: str,
    progress: Progress,
) -> None:
    """Those owners of ``job`` whose number is i modulo n, for ``share`` (i, n), ``take_part`` at once, each for itself.

    Raises ChildFailed, after everyone has ended, with the first failure and how many there were.
    """
    allow_files()
    read_little()
    mine = range(share[0], len(job.names), share[1])
    failures: list[tuple[str, Exception]] = []

    async def one(index: int) -> None:
        name = job.names[index]
        try:
            receipt = await take_part(index, name)
        except Exception as error:  # noqa: BLE001  # One owner's failure is not the others'.
            failures.append((name, error))
            progress.event("client-failed", f"{name}: {describe(error).message}", client=name)
            return
        append_receipt(Path(job.receipts), receipt)
        progress.event("client-done", f"{name} has finished", client=name)

    async with asyncio.TaskGroup() as group:
        for index in mine:
            group.create_task(one(index))
    if failures:
        name, error = failures[0]
        failure = describe(error)
        raise ChildFailed(
            f"{len(failures)} of {len(mine)} {who} did not finish; the first, {name}: {failure.message}",
            failure.status,
        )
