"""A participant of a federation's run, with its own connection, certificate, ledger and table.

A process may run several participants. The connection is a `parties.federation.channel.ClientConnection`. A lost
connection is a dropout of the current sum; the participant comes back for the next sum while the server is reachable.
The folder holds the participant's ledger of this run, charged before each answer is sent, and the algorithm's own
files. Secret: table, keys, numbers. Known limits: see `parties.federation.client_session`.
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
    """A participant's record of one run. Bytes are those of frames; ``rho_spent`` is the ledger's total over all
    processes.
    """

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
        """Returns the report as a JSON object."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def federated_release(config: Config, plan: AlgorithmPlan) -> Release | None:
    """Returns the maximum release of a table by participation, in zCDP; None if the run charges nothing."""
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
    """Takes part in the run of ``config`` with ``table`` until the server's goodbye.

    Args:
        directory: Folder of the ledger.
        spend: Charges the ledger's whole budget, under the ledger's name, to the table's budget before anything is
            sent.
        epsilon: The participant's own epsilon, if the algorithm allows a choice.
        joining: Limit of simultaneous connection attempts in one process.

    Raises the errors of ``spend``; NotEnrolled, ConfigError, CertificateError, DataError, StoreError;
    FrameTransportError if the server is unreachable or lost for good; FederationRefused, FederationProtocolError,
    SecAggError, MechanismError.
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
            # A participant that has taken part before may come back at any time.
            check_enrolled(config, name)
        context = SiloContext(name, section.clients.index(name), directory, epsilon)
        # The table is checked before the charge: a table that does not fit costs nothing.
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
