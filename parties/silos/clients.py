"""Several silos of a trial in one process: each with its own TLS connection, certificate, ledger and table.

Provides ``play_silos`` and ``SilosJob``, what the launcher tells it. Secret: the tables, which a trial has in one
place. Known limits: one event loop; silos compute in threads.
"""

import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from mechanisms.dialect import Dialect
from mechanisms.reading import read_text
from mechanisms.source import TableSource
from parties.budget import Account, Budget, Source
from parties.config import CertificateFiles, load_config
from parties.errors import StoreError
from parties.files import write_json
from parties.progress import Progress
from parties.silos.algorithms import plan_of
from parties.silos.client import SiloReport, release_of, run_silo
from parties.statuses import ChildFailed, describe
from parties.trial.jobs import CONCURRENT
from parties.trial.processes import allow_files


@dataclass(frozen=True, slots=True)
class SilosJob:
    """Paths: the ``config``; folders of ``tables`` (NAME.csv), ``certificates`` and the silos' own ``states``.

    ``reports`` is appended to, ``budget`` is the file that they charge, ``names`` are the silos.
    """

    config: str
    tables: str
    certificates: str
    states: str
    reports: str
    budget: str
    names: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write the job for ``read``. Raises StoreError."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> "SilosJob":
        """The job that ``write`` wrote. Raises StoreError where it is missing or damaged."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**fields, "names": tuple(fields["names"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StoreError(path, f"is not a job for silos: {error}") from error


async def play_silos(path: Path, share: tuple[int, int], *, progress: Progress) -> None:
    """Play those silos of the job at ``path`` whose number is i modulo n, for ``share`` (i, n), to the run's end.

    Raises ChildFailed, after everyone has ended, with the first failure and how many there were.
    """
    job = SilosJob.read(path)
    config = load_config(Path(job.config))
    plan, joining = plan_of(config), asyncio.Semaphore(CONCURRENT)
    release = release_of(config, plan)
    allow_files()
    mine = job.names[share[0] :: share[1]]
    failures: list[tuple[str, Exception]] = []

    async def one(name: str) -> None:
        folder = Path(job.certificates)
        files = CertificateFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
        place = TableSource(
            str(Path(job.tables) / f"{name}.csv"), None, Dialect(",", None, "utf-8")
        )
        spend = None
        if release is not None:
            spend = Account(Budget(Path(job.budget)), Source(name), release).spend
        try:
            report = await run_silo(
                config,
                await asyncio.to_thread(read_text, place),
                files,
                Path(job.states) / name,
                progress=progress,
                spend=spend,
                joining=joining,
                plan=plan,
            )
        except Exception as error:  # noqa: BLE001  # One silo's failure is not the others'.
            failures.append((name, error))
            progress.event("client-failed", f"{name}: {describe(error).message}", client=name)
            return
        _append(Path(job.reports), report)
        progress.event("client-done", f"{name} has finished", client=name)

    async with asyncio.TaskGroup() as group:
        for name in mine:
            group.create_task(one(name))
    if failures:
        name, error = failures[0]
        failure = describe(error)
        raise ChildFailed(
            f"{len(failures)} of {len(mine)} silos did not finish; the first, {name}: {failure.message}",
            failure.status,
        )


def _append(path: Path, report: SiloReport) -> None:
    with path.open("ab") as file:
        file.write(json.dumps(report.to_dict()).encode() + b"\n")
