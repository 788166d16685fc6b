"""A participant of a federation's run, with its own connection, certificate, ledger and table.

``run_participant`` takes part in a run of any method, for which a ``Participation`` makes the session. A process may
run several participants. The connection is a `parties.federation.channel.ClientConnection`; the table's budget is
charged by what leaves over it (`parties.federation.participant_charge`). A lost connection is a dropout of the current
round; the participant comes back for the next one while the server is reachable. The folder holds the participant's
ledger of this run, charged before each answer is sent, and the method's own files. Another folder has another ledger,
which is charged to the table's budget again. ``silo_participation`` is that of a silo.
Secret: table, keys, numbers. Known limits: see `parties.federation.client_session`.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Generic, TypeVar

from mechanisms.accounting import Ledger
from mechanisms.text_table import TextTable
from mechanisms.units import unit_cost
from parties.config import CertificateFiles, Config
from parties.federation.algorithm import AlgorithmPlan, SiloContext, plan_digest
from parties.federation.channel import ClientConnection, until_goodbye
from parties.federation.client_session import ClientTally, SiloSession, SumSession
from parties.federation.key_directory import OwnClientKey
from parties.federation.participant_charge import ParticipantCharge, charge_text
from parties.federation.silos import check_silos
from parties.federation.sum_parameters import is_malicious
from parties.foundation.errors import ConfigError
from parties.identity import tls
from parties.observability.events import Progress
from parties.session.enrollment import check_enrolled
from parties.storage.database import Database
from parties.storage.owner_budget import BudgetAccount
from parties.storage.population_budget import APPROXIMATE, Release, person_or_row
from parties.storage.privacy_ledger import LEDGER, DurableLedger

Session = TypeVar("Session", bound=SumSession, covariant=True)


@dataclass(slots=True)
class ParticipantReport:
    """A participant's record of one run. Bytes are those of frames; ``rho_spent`` is the ledger's total over all
    processes. ``facts`` are the method's own, and ``guarantee`` its sentences for people.
    """

    client: str
    sums: int = 0
    given_up: int = 0
    rho_spent: float = 0.0
    rho_total: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    connections: int = 0
    seconds: float = 0.0
    finished: bool = False
    facts: Mapping[str, object] = field(default_factory=dict)
    guarantee: Sequence[str] = ()

    def to_dict(self) -> dict[str, object]:
        """Returns the report as a JSON object."""
        own = {item.name: getattr(self, item.name) for item in fields(self)[:-2]}
        return {**own, **self.facts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation(Generic[Session]):
    """A method's side of one participant, with its table.

    Attributes:
        digest: Hex digest of the settings that all participants have to share, besides the configuration.
        release: Maximum release of the table by participation; of infinite cost if it has no guarantee.
        session: Returns the participant's side of the run; its last argument is the signed key, in malicious mode.
            Raises DataError if the table does not fit: such a table costs nothing.
        facts: Returns the method's part of the participant's report.
        guarantee: Returns the guarantee of what was charged, in sentences.
        declared_rows: Number of the table's rows if it is public.
        rho: Budget of the participant's ledger in zCDP, which counts what a row costs; 0 if nothing is charged there.
        private: True if the release has a guarantee.
        own_epsilon: True if the participant may choose its own epsilon: its answers are private by themselves.
        keeps_secrets: True if the method keeps secret files in the participant's folder.
    """

    digest: str
    release: Release
    session: Callable[[SiloContext, Ledger, OwnClientKey | None], Session]
    facts: Callable[[ClientTally, Ledger], Mapping[str, object]]
    guarantee: Callable[[Ledger], Sequence[str]]
    rho: float
    declared_rows: int | None = None
    private: bool = True
    own_epsilon: bool = False
    keeps_secrets: bool = False


async def run_participant(
    config: Config,
    part: Participation[SumSession],
    files: CertificateFiles,
    directory: Path,
    *,
    progress: Progress,
    account: BudgetAccount | None = None,
    epsilon: float | None = None,
    joining: asyncio.Semaphore | None = None,
) -> ParticipantReport:
    """Takes part in the run of ``config`` until the server's goodbye.

    Args:
        directory: Folder of the ledger.
        account: Pays for the ledger's whole budget, under the ledger's name, before anything of the table is sent;
            without it nothing is charged.
        epsilon: The participant's own epsilon, if the method allows a choice.
        joining: Limit of participants of one process that open their ledgers and connect at once.

    Raises BudgetExceeded; NotEnrolled, ConfigError, CertificateError, DataError, StoreError;
    FrameTransportError if the server is unreachable or lost for good; FederationRefused, FederationProtocolError,
    SecAggError, MechanismError.
    """
    section = config.require_federation()
    name = tls.load_identity(files).name
    if name not in section.clients:
        raise ConfigError(
            config.source,
            f"{section.KEY}.clients",
            f"does not have {name!r}, the name in {files.cert}",
        )
    joining = joining or asyncio.Semaphore()
    async with joining:
        # The ledger's creation waits for the disk.
        database = await asyncio.to_thread(Database, directory, config.digest(), LEDGER)
    with database:
        ledger = DurableLedger(database, part.rho)
        if not ledger.entries:
            # A participant that has taken part before may come back at any time.
            check_enrolled(config, name)
        context = SiloContext(name, section.clients.index(name), directory, epsilon)
        own = OwnClientKey.make(config, files) if is_malicious(config) else None
        session = await asyncio.to_thread(part.session, context, ledger, own)
        charge = ParticipantCharge(
            account,
            database.identity,
            lambda: len(ledger.entries) + session.own_charges,
            returnable_charge(config, part),
        )
        await asyncio.to_thread(charge.intend)
        report = ParticipantReport(name, rho_total=part.rho)
        connection = ClientConnection(
            config,
            part.digest,
            files,
            section.server,
            part.declared_rows,
            b"" if own is None else own.card.pack(),
            session,
            report,
            progress,
            joining,
            charge,
        )
        started = time.monotonic()
        try:
            await until_goodbye(connection)
        finally:
            state = await asyncio.to_thread(charge.end, config, name, session.unopened)
            if account is not None and not session.over:
                progress.event("charge", f"{name}: {charge_text(state, config.run.id)}")
            report.sums, report.given_up = session.tally.sums, session.tally.given_up
            report.rho_spent, report.seconds = ledger.spent, time.monotonic() - started
            report.facts = part.facts(session.tally, ledger)
            report.guarantee = part.guarantee(ledger)
    report.finished = True
    return report


def returnable_charge(config: Config, part: Participation[SumSession]) -> bool:
    """Returns true if the server's statement returns a charge: the run's promise has to rest on the server.

    It does not in malicious mode, nor for answers that are private by themselves, whoever is corrupt.
    """
    return not is_malicious(config) and not part.own_epsilon


def with_epsilon(release: Release, epsilon: float) -> Release:
    """Returns the release of answers that are private by themselves, with the silo's own epsilon."""
    return replace(release, rho=epsilon**2 / 2, epsilon=epsilon, accountant=APPROXIMATE)


def silo_release(config: Config, plan: AlgorithmPlan) -> Release:
    """Returns the maximum release of a silo's table by participation in the run of ``plan``: the whole run."""
    run = config.run
    release = Release(
        config=config.digest(),
        run=run.id,
        method="" if config.algorithm is None else config.algorithm[0],
        rho=unit_cost(plan.rho, config.rows_of_unit),
        epsilon=run.epsilon,
        delta=run.delta,
        unit=person_or_row(config),
    )
    if not plan.private:
        return replace(release, rho=math.inf, epsilon=math.inf)
    return release if plan.rho else with_epsilon(release, run.epsilon)


def silo_participation(
    config: Config, plan: AlgorithmPlan, table: TextTable
) -> Participation[SiloSession]:
    """Returns the participation of a silo with ``table`` in the run of ``plan``. Raises ConfigError, DataError."""
    config.check_rows(len(table))
    check_silos(config, plan)

    def session(context: SiloContext, ledger: Ledger, own: OwnClientKey | None) -> SiloSession:
        silo, server = plan.silo(table, context, ledger), config.require_federation().server
        return SiloSession(config, silo, server=server, random_bytes=secrets.token_bytes, own=own)

    return Participation(
        digest=plan_digest(plan),
        release=silo_release(config, plan),
        session=session,
        facts=lambda tally, ledger: {"guarantee": plan.guarantee},
        guarantee=lambda ledger: (plan.guarantee,),
        rho=plan.rho if plan.private else 0.0,
        private=plan.private,
        own_epsilon=plan.private_answers,
        keeps_secrets=True,
    )
