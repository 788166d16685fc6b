"""Participants of a trial in shared processes: DistAIM's owners, FLAIM's clients, silos.

Every participant has a connection over mutual TLS, a certificate, a table and a state of its own; only the process is
shared, and the messages are the same as from a process each. ``run_owners`` plays all of DistAIM's owners in one
process; owners with a receipt are done, and an interrupted owner sends the same submission again. ``run_flaim_clients``
and ``run_silo_clients`` play a share of the clients or silos: the launcher starts one process each for few
participants, and otherwise a few processes, since a hundred processes are of no use to a machine with two processors.

Secret: the tables, which a trial has in one place, and the owners' seeds, in files of mode 0600 below the run folder,
removed when the run is finished. Known limits: one event loop; ``run_owners`` counts and shares for one owner at a
time, and a few uploads overlap; FLAIM's clients and silos compute in threads.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.dialect import Dialect
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from parties.config import CertificateFiles, Config, load_config
from parties.federation.client import (
    ParticipantReport,
    Participation,
    run_participant,
    silo_participation,
)
from parties.federation.client_session import SumSession
from parties.foundation.errors import SubmitError
from parties.foundation.exit_codes import ChildFailed, describe
from parties.foundation.process_limits import raise_file_limit
from parties.local.jobs import (
    CONCURRENT_OWNERS,
    OwnersJob,
    ParticipantsJob,
    SilosJob,
    append_receipt,
    read_receipts,
)
from parties.methods.registry import plan_of
from parties.mpc.inputs.own import capacity_for
from parties.mpc.planning.budget import distaim_release
from parties.mpc.submission.submit import Submitted, refresh_receipts, submit
from parties.network.frames import limit_tls_reads
from parties.observability.events import Progress
from parties.session.source_rows import source_sizes
from parties.session.study import Study
from parties.storage.owner_budget import BudgetAccount, OwnerBudget
from parties.storage.populations import TableIdentity

_CONFIRMATION_POLL_S = 0.5


async def run_owners(path: Path, *, progress: Progress) -> None:
    """Submits for every owner of the job at ``path`` that has no receipt yet.

    Raises SubmitError, after all owners have tried, with the first failure and the number of failures.
    """
    job = OwnersJob.read(path)
    receipts_path = Path(job.receipts)
    done = read_receipts(receipts_path)
    _truncate_torn_line(receipts_path)
    config = load_config(Path(job.config))
    workload = config.build_workload()
    rows = _rows_by_owner(job, config)
    finished, failures = len(done), list[str]()
    at_once = asyncio.Semaphore(CONCURRENT_OWNERS)
    budget, release = OwnerBudget(Path(job.budget)), distaim_release(Study(config, workload))

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
                    spend=BudgetAccount(budget, TableIdentity(name), release).spend,
                )
                receipt = await _await_confirmation(receipt, config, files, state)
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
    _raise_failures(failures, len(job.names))


async def _await_confirmation(
    receipt: Submitted, config: Config, files: CertificateFiles, state: Path
) -> Submitted:
    """Waits until all three servers have confirmed the receipt, since a trial's servers all run. Raises SubmitError."""
    if receipt.first_round is None:
        return receipt
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(config.timeouts.submit_s):
            while not receipt.complete:
                await asyncio.sleep(_CONFIRMATION_POLL_S)
                receipt = await refresh_receipts(config, files, state)
    if not receipt.complete:
        away = ", ".join(receipt.kept_for)
        raise SubmitError(
            f"the submission has not reached {away} in {config.timeouts.submit_s:g} s"
        )
    return receipt


def trial_capacity(rows: int, declared: int | None, bound: int) -> int:
    """Returns the declared number of rows of an owner with ``rows`` rows.

    In a real study an owner declares a public figure, such as its beds. A trial without a ``declared`` figure uses the
    owner's rows rounded up to two digits, at most the run's ``bound``.
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


def _raise_failures(failures: Sequence[str], owners: int) -> None:
    if failures:
        raise SubmitError(
            f"{len(failures)} of {owners} data owners could not submit; the first: {failures[0]}"
        )


def _truncate_torn_line(path: Path) -> None:
    if path.exists():
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)


async def run_flaim_clients(path: Path, share: tuple[int, int], *, progress: Progress) -> None:
    """Plays the clients of the job at ``path`` with number i modulo n, for ``share`` (i, n), to the run's end.

    Raises as ``run_each_participant``.
    """
    job = OwnersJob.read(path)
    config = load_config(Path(job.config))
    workload = config.build_workload()
    # Local import: other participants compute nothing of FLAIM's.
    from parties.methods.flaim.client import BriefCache, flaim_participation

    briefs = BriefCache(workload)
    codes: NDArray[np.int32] = np.load(job.codes, mmap_mode="r", allow_pickle=False)
    owners: NDArray[np.int32] = np.load(job.owners, allow_pickle=False)

    def participation(index: int) -> Participation[SumSession]:
        rows = np.ascontiguousarray(codes[owners == index])
        return flaim_participation(config, rows, workload, briefs)

    await run_each_participant(job, share, config, participation, progress=progress)


async def run_silo_clients(path: Path, share: tuple[int, int], *, progress: Progress) -> None:
    """Plays the silos of the job at ``path`` with number i modulo n, for ``share`` (i, n), to the run's end.

    Raises as ``run_each_participant``.
    """
    job = SilosJob.read(path)
    config = load_config(Path(job.config))
    plan = plan_of(config)

    def participation(index: int) -> Participation[SumSession]:
        table = Path(job.tables) / f"{job.names[index]}.csv"
        source = TableSource(str(table), None, Dialect(",", None, "utf-8"))
        return silo_participation(config, plan, read_text(source))

    await run_each_participant(job, share, config, participation, progress=progress)


async def run_each_participant(
    job: ParticipantsJob,
    share: tuple[int, int],
    config: Config,
    participation: Callable[[int], Participation[SumSession]],
    *,
    progress: Progress,
) -> None:
    """Runs at once the participants of ``job`` with number i modulo n, for ``share`` (i, n).

    ``participation`` returns a participant's part by its number. Raises ChildFailed, after all have ended, with the
    first failure and the number of failures.
    """
    raise_file_limit()
    limit_tls_reads()
    mine, who = range(share[0], len(job.names), share[1]), config.require_federation().WHO
    failures: list[tuple[str, Exception]] = []
    budget, joining = OwnerBudget(Path(job.budget)), asyncio.Semaphore(CONCURRENT_OWNERS)

    async def take_part(index: int, name: str) -> ParticipantReport:
        part = await asyncio.to_thread(participation, index)
        account = BudgetAccount(budget, TableIdentity(name), part.release)
        return await run_participant(
            config,
            part,
            job.files_of(name),
            Path(job.states) / name,
            progress=progress,
            account=account,
            joining=joining,
        )

    async def one(index: int) -> None:
        name = job.names[index]
        try:
            receipt = await take_part(index, name)
        except Exception as error:  # noqa: BLE001  # One owner's failure does not stop the others.
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
