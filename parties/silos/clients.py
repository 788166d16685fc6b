"""Several silos of a trial in one process: each with its own TLS connection, certificate, ledger and table.

Provides ``play_silos``. Secret: the tables, which a trial has in one place. Known limits: one event loop; silos compute
in threads.
"""

import asyncio
from pathlib import Path

from mechanisms.dialect import Dialect
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from parties.budget import Account, Budget, Source
from parties.config import load_config
from parties.flaim.clients import play_each
from parties.progress import Progress
from parties.silos.algorithms import plan_of
from parties.silos.client import SiloReport, release_of, run_silo
from parties.trial.jobs import CONCURRENT, SilosJob


async def play_silos(path: Path, share: tuple[int, int], *, progress: Progress) -> None:
    """Play those silos of the job at ``path`` whose number is i modulo n, for ``share`` (i, n), to the run's end.

    Raises as `parties.flaim.clients.play_each`.
    """
    job = SilosJob.read(path)
    config = load_config(Path(job.config))
    plan, joining = plan_of(config), asyncio.Semaphore(CONCURRENT)
    release = release_of(config, plan)

    async def take_part(index: int, name: str) -> SiloReport:
        table = Path(job.tables) / f"{name}.csv"
        spend = None
        if release is not None:
            spend = Account(Budget(Path(job.budget)), Source(name), release).spend
        return await run_silo(
            config,
            await asyncio.to_thread(
                read_text, TableSource(str(table), None, Dialect(",", None, "utf-8"))
            ),
            job.files_of(name),
            Path(job.states) / name,
            progress=progress,
            spend=spend,
            joining=joining,
            plan=plan,
        )

    await play_each(job, share, take_part, who="silos", progress=progress)
