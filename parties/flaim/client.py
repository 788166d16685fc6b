"""A client of FLAIM as a process, or one of several in a process: its own connection, certificate, ledger and rows.

Provides ``run_client``; its connection is a `parties.flaim.line.Line`. A lost connection is a dropout of the round; the
client comes back for the next one while the server is there. Secret: rows, keys, vectors. The folder holds the client's
ledger of this run: what it was ever asked to release, spent before it is sent. Another folder is another ledger, and
charged to the table's budget once more. Known limits: see `parties.flaim.session`.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.flaim_client import FlaimClient
from mechanisms.workload import Workload
from parties import tls
from parties.config import CertificateFiles, Config
from parties.database import Database
from parties.enrolment import check_enrolled
from parties.errors import (
    ConfigError,
)
from parties.flaim.feasible import check_flaim
from parties.flaim.guarantee import Replaced
from parties.flaim.line import Line, until_goodbye
from parties.flaim.roster import Own
from parties.flaim.session import ClientSession, SharedBriefs
from parties.flaim.sums import is_malicious
from parties.ledger import LEDGER, DurableLedger
from parties.progress import Progress


@dataclass(slots=True)
class ClientReport:
    """What one client did in a run. Bytes are frames; ``rho_spent`` is by its own ledger, over all its processes.

    ``replaced`` says what that is for one row replaced by another, where sizes are public.
    """

    client: str
    rounds: int = 0
    sums: int = 0
    given_up: int = 0
    rho_spent: float = 0.0
    rho_total: float = 0.0
    replaced: str | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    connections: int = 0
    seconds: float = 0.0
    finished: bool = False

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


async def run_client(
    config: Config,
    codes: NDArray[np.int32],
    files: CertificateFiles,
    directory: Path,
    *,
    progress: Progress,
    spend: Callable[[str], object] | None = None,
    workload: Workload | None = None,
    briefs: SharedBriefs | None = None,
    joining: asyncio.Semaphore | None = None,
) -> ClientReport:
    """Take part in the run of ``config`` with ``codes`` (rows, columns) until the server says goodbye.

    ``directory`` keeps the ledger. ``spend`` charges all that this ledger allows, under the ledger's own name, to the
    table's budget before anything is sent (`parties.budget`); without it that is the caller's affair. Where clients
    share a process, ``workload`` and ``briefs`` save work, and ``joining`` limits how many open their ledgers and
    connect at once.

    Raises what ``spend`` raises, NotEnrolled, ConfigError, CertificateError, DataError (rows), StoreError,
    RoundTransportError (the server is not there, or lost for good), FlaimRefused, FlaimProtocolError, SecAggError,
    BudgetExceeded.
    """
    section = config.require_flaim()
    name = tls.load_identity(files).name
    if name not in section.clients:
        raise ConfigError(
            config.source, "flaim.clients", f"does not have {name!r}, the name in {files.cert}"
        )
    config.check_rows(len(codes))
    workload = workload or config.build_workload()
    settings = check_flaim(config, workload)
    inner = FlaimClient(codes, workload, settings, random_bytes=secrets.token_bytes)
    joining = joining or asyncio.Semaphore()
    async with joining:
        # Making a ledger waits for the disk.
        database = await asyncio.to_thread(Database, directory, config.digest(), LEDGER)
    with database:
        ledger = DurableLedger(database, settings.rho)
        if not ledger.entries:
            # Who has taken part comes back whatever the time is.
            check_enrolled(config, name)
        if spend is not None:
            await asyncio.to_thread(spend, database.identity)
        own = Own.make(config, files) if is_malicious(config) else None
        session = ClientSession(
            config,
            workload,
            inner,
            ledger,
            server=section.server,
            random_bytes=secrets.token_bytes,
            decode=briefs,
            own=own,
        )
        report = ClientReport(name, rho_total=settings.rho)
        line = Line(
            config,
            workload.digest(),
            files,
            section.server,
            inner.declared_rows,
            b"" if own is None else own.card.pack(),
            session,
            report,
            progress,
            joining,
        )
        started = time.monotonic()
        try:
            await until_goodbye(line)
        finally:
            report.rounds, report.sums = session.tally.rounds, session.tally.sums
            report.given_up, report.rho_spent = session.tally.given_up, ledger.spent
            report.seconds = time.monotonic() - started
            charged = [entry.event for entry in ledger.entries]
            replaced = Replaced.of(section, charged, delta=config.run.delta)
            report.replaced = None if replaced is None else str(replaced)
    report.finished = True
    return report
