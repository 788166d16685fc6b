"""A silo as a process, or one of several in a process: its own connection, certificate, ledger and table.

Provides ``run_silo``; its connection is a `parties.federation.channel.ClientConnection`. A lost connection is a dropout
of the sum; the silo comes back for the next one while the server is there. Secret: table, keys, numbers. The folder
holds the silo's ledger of this run: what it was ever asked to release, spent before it is sent; and what the algorithm
keeps there. Known limits: see `parties.federation.client_session`.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from mechanisms.text_table import TextTable
from parties.config import CertificateFiles, Config
from parties.federation.algorithm import AlgorithmPlan, SiloContext, plan_digest
from parties.federation.channel import ClientConnection, until_goodbye
from parties.federation.client_session import SiloSession
from parties.federation.flaim_parameters import is_malicious
from parties.federation.key_directory import OwnClientKey
from parties.federation.sum_parameters import check_silos
from parties.foundation.errors import ConfigError
from parties.identity import tls
from parties.observability.events import Progress
from parties.session.enrollment import check_enrolled
from parties.storage.database import Database
from parties.storage.owner_budget import ROW, Release
from parties.storage.privacy_ledger import LEDGER, DurableLedger


@dataclass(slots=True)
class SiloReport:
    """What one silo did in a run. Bytes are frames; ``rho_spent`` is by its own ledger, over all its processes."""

    client: str
    guarantee: str = ""
    sums: int = 0
    given_up: int = 0
    rho_spent: float = 0.0
    rho_total: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    connections: int = 0
    seconds: float = 0.0
    finished: bool = False

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def federated_release(config: Config, plan: AlgorithmPlan) -> Release | None:
    """What taking part may release of a table, at most, in zCDP; None where the run charges none."""
    if not plan.rho:
        return None
    return Release(
        config=config.digest(),
        run=config.run.id,
        method="" if config.algorithm is None else config.algorithm[0],
        rho=plan.rho,
        epsilon=config.run.epsilon,
        delta=config.run.delta,
        unit=ROW,
    )


async def run_silo(
    config: Config,
    table: TextTable,
    files: CertificateFiles,
    directory: Path,
    *,
    plan: AlgorithmPlan,
    progress: Progress,
    spend: Callable[[str], object] | None = None,
    epsilon: float | None = None,
    joining: asyncio.Semaphore | None = None,
) -> SiloReport:
    """Take part in the run of ``config`` with ``table`` until the server says goodbye.

    ``directory`` keeps the ledger. ``spend`` charges all that this ledger allows, under the ledger's own name, to the
    table's budget before anything is sent. ``epsilon`` is this silo's own, where the algorithm lets it choose.
    ``joining`` limits how many silos of a process connect at once.

    Raises what ``spend`` raises, NotEnrolled, ConfigError, CertificateError, DataError, StoreError, RoundTransportError
    (the server is not there, or lost for good), FlaimRefused, FlaimProtocolError, SecAggError, MechanismError.
    """
    section = config.require_federation()
    name = tls.load_identity(files).name
    if name not in section.clients:
        raise ConfigError(
            config.source,
            f"{config.federation_section}.clients",
            f"does not have {name!r}, the name in {files.cert}",
        )
    config.check_rows(len(table))
    check_silos(config, plan)
    with await asyncio.to_thread(Database, directory, config.digest(), LEDGER) as database:
        ledger = DurableLedger(database, plan.rho)
        if not ledger.entries:
            # Who has taken part comes back whatever the time is.
            check_enrolled(config, name)
        context = SiloContext(name, section.clients.index(name), directory, epsilon)
        # A table that does not fit is charged nothing.
        silo = await asyncio.to_thread(plan.silo, table, context, ledger)
        if spend is not None:
            await asyncio.to_thread(spend, database.identity)
        own = OwnClientKey.make(config, files) if is_malicious(config) else None
        session = SiloSession(
            config, silo, server=section.server, random_bytes=secrets.token_bytes, own=own
        )
        report = SiloReport(name, plan.guarantee, rho_total=plan.rho)
        connection = ClientConnection(
            config,
            plan_digest(plan),
            files,
            section.server,
            None,
            b"" if own is None else own.card.pack(),
            session,
            report,
            progress,
            joining or asyncio.Semaphore(),
        )
        started = time.monotonic()
        try:
            await until_goodbye(connection)
        finally:
            report.sums, report.given_up = session.tally.sums, session.tally.given_up
            report.rho_spent, report.seconds = ledger.spent, time.monotonic() - started
    report.finished = True
    return report
