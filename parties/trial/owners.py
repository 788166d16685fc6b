"""A trial's data owners: one process that plays all of them, each as a real upload over mutual TLS.

Provides ``run_owners``. Every owner has a certificate, a table and a submission of its own; only the process is shared.
Owners whose receipt is there already do nothing, and one that was cut off sends the same submission again. Secret: the
tables and the owners' seeds, in files of mode 0600 below the run folder, removed when the run is finished. Known
limits: the process counts and shares for one owner at a time, a few uploads overlap.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parties.budget import Account, Budget, Source
from parties.config import CertificateFiles, Config, load_config
from parties.distaim.inputs.own import capacity_for
from parties.distaim.planning import release_of
from parties.distaim.submit import Submitted, status, submit
from parties.errors import SubmitError
from parties.linkage import source_sizes
from parties.progress import Progress
from parties.trial.jobs import CONCURRENT, OwnersJob, append_receipt, read_receipts

_LOOK_S = 0.5


async def run_owners(path: Path, *, progress: Progress) -> None:
    """Submit for every owner of the job at ``path`` that has no receipt yet.

    Raises SubmitError, after everyone has tried, with the first failure and how many there were.
    """
    job = OwnersJob.read(path)
    receipts_path = Path(job.receipts)
    done = read_receipts(receipts_path)
    _end_torn_line(receipts_path)
    config = load_config(Path(job.config))
    workload = config.build_workload()
    rows = _rows_by_owner(job, config)
    finished, failures = len(done), list[str]()
    at_once = asyncio.Semaphore(CONCURRENT)
    budget, release = Budget(Path(job.budget)), release_of(config, workload)

    async def submit_rows(index: int, name: str) -> None:
        nonlocal finished
        state = Path(job.states) / f"{name}.json"
        async with at_once:
            try:
                files = job.files_of(name)
                receipt = await submit(
                    config,
                    rows[index],
                    files,
                    state=state,
                    capacity=trial_capacity(
                        len(rows[index]), job.capacity, config.clients.rows_per_client
                    ),
                    workload=workload,
                    spend=Account(budget, Source(name), release).spend,
                )
                receipt = await _confirmed(receipt, config, files, state)
            except SubmitError as error:
                failures.append(f"{name}: {error}")
                return
        append_receipt(receipts_path, receipt)
        finished += 1
        text = f"{finished} of {len(job.names)} data owners have submitted"
        progress.event("uploads", text, done=finished)

    async with asyncio.TaskGroup() as group:
        for index, name in enumerate(job.names):
            if name not in done:
                group.create_task(submit_rows(index, name))
    _report(failures, len(job.names))


async def _confirmed(
    receipt: Submitted, config: Config, files: CertificateFiles, state: Path
) -> Submitted:
    """The receipt once all three servers have confirmed it: a trial's servers are all there. Raises SubmitError."""
    if receipt.first_round is None:
        return receipt
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(config.timeouts.submit_s):
            while not receipt.complete:
                await asyncio.sleep(_LOOK_S)
                receipt = await status(config, files, state)
    if not receipt.complete:
        away = ", ".join(receipt.kept_for)
        raise SubmitError(
            f"the submission has not reached {away} in {config.timeouts.submit_s:g} s"
        )
    return receipt


def trial_capacity(rows: int, declared: int | None, bound: int) -> int:
    """What an owner of so many rows declares: in earnest what it knows from elsewhere, such as its beds.

    Here, where nothing else was ``declared``, its rows rounded up to two digits; at most the run's ``bound``.
    """
    return capacity_for(rows, bound) if declared is None else min(declared, bound)


def _rows_by_owner(job: OwnersJob, config: Config) -> list[NDArray[np.int32]]:
    """The coded rows (rows, columns) of each owner, in the order of the table; with sources, its source's columns."""
    codes: NDArray[np.int32] = np.load(job.codes, allow_pickle=False)
    owners: NDArray[np.int32] = np.load(job.owners, allow_pickle=False)
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], np.arange(1, len(job.names)))
    tables = np.split(codes[order], starts)
    if not config.sources:
        return tables
    widths = [len(source_sizes(config, config.source_of(name))) for name in job.names]
    return [table[:, :width] for table, width in zip(tables, widths, strict=True)]


def _report(failures: Sequence[str], owners: int) -> None:
    if failures:
        raise SubmitError(
            f"{len(failures)} of {owners} data owners could not submit; the first: {failures[0]}"
        )


def _end_torn_line(path: Path) -> None:
    if path.exists():
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)
