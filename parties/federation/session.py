"""One attempt at a run by a federation's server: its folder, ledger, registry, connections and run status.

``open_session`` opens the folder. ``ServerSession.serve`` admits participants for an algorithm and leaves a closed
transcript and result.json. The algorithm decides on the computation and on the rounds of earlier attempts that count.
``watch_run``, ``watch_orders`` and ``watch_members`` connect the run status to ledger, transcript, operator commands
and participants. Secret: none. Public: the contents of transcript and result.json.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from parties.config import CertificateFiles, Config
from parties.federation.attendance import Attendance
from parties.federation.members import ConnectedClients, ConnectedClientsFactory
from parties.federation.messages import refusal_of
from parties.federation.result import RESULT
from parties.federation.transcript import FederationTranscript
from parties.federation.transcript_schema import flaim_step_of
from parties.foundation.process_limits import raise_file_limit
from parties.identity.tls import check_pinned_identity
from parties.observability.events import Progress
from parties.observability.status import (
    BudgetUse,
    ParticipantState,
    ParticipantStatus,
    Phase,
    RunStatus,
    StepTotals,
)
from parties.session.enrollment import Enrollment
from parties.session.operator_commands import OperatorCommands
from parties.storage.database import Database
from parties.storage.files import disk_errors, write_json
from parties.storage.privacy_ledger import LEDGER, DurableLedger, adopt_charges
from parties.storage.release_registry import RegisteredFolder, StudyRegistration
from parties.storage.user_paths import registry_path
from protocols.transcript import Value


def watch_run(board: RunStatus, ledger: DurableLedger, record: FederationTranscript) -> None:
    """Lets ``board`` show the charges and the costs of the steps from now on."""

    def spent() -> BudgetUse:
        charges = [entry.rho for entry in ledger.entries]
        return BudgetUse(ledger.budget, sum(charges), len(charges))

    board.sources.spent = spent
    board.sources.steps = lambda: _steps(record)
    board.sources.now = lambda: record.at[1] if record.at else None


def watch_orders(board: RunStatus, orders: OperatorCommands, server: str) -> None:
    """Lets ``board`` show the commands of the ``server``'s operator from now on; they need nobody else's consent."""

    def update() -> None:
        orders.tell([orders.asked])

    orders.on_command = update
    orders.on_change = board.touch
    update()
    board.sources.asked = lambda: orders.shown([server])


def watch_members(board: RunStatus, members: ConnectedClients) -> None:
    """Lets ``board`` show the connected participants from now on."""
    board.sources.owners = lambda: owners_of(members)


def owners_of(members: ConnectedClients) -> Sequence[ParticipantStatus]:
    """Returns the status of all participants in the configuration: connected, gone, or not seen yet."""
    # Atomic copies: members come and go in another thread.
    present, lost = set(members.present), dict(members.lost)
    return [
        ParticipantStatus(name, ParticipantState.HERE)
        if number in present
        else ParticipantStatus(name, ParticipantState.GONE, reason=lost[number])
        if number in lost
        else ParticipantStatus(name, ParticipantState.ABSENT)
        for number, name in enumerate(members.names)
    ]


def _steps(record: FederationTranscript) -> dict[str, StepTotals]:
    return {
        name: StepTotals(
            seconds=cost.seconds,
            sent_bytes=cost.sent,
            received_bytes=cost.received,
            messages=cost.messages,
        )
        for name, cost in dict(record.by_step).items()
    }


TRANSCRIPT = "transcript.jsonl"
_NOUNS = {"flaim": ("clients", "round"), "silos": ("silos", "sum")}
"""Nouns for participants and for rounds in texts, by the configuration's section."""


def server_certificate_files(config: Config) -> CertificateFiles:
    """Returns the server's certificate files, verified. Raises ConfigError, CertificateError."""
    section = config.require_federation()
    return check_pinned_identity(
        config.require_tls(name=section.server),
        section.pinned,
        f"{config.federation_section}.server",
    )


@dataclass(eq=False, slots=True)
class ServerSession:
    """One attempt at a run, with its open folder.

    Attributes:
        before: Ledger with the charges of earlier attempts.
        earlier: Cost of earlier attempts in rho, at the start.
        closed: Set when no more participants will come.
        seconds: Durations by phase.
    """

    config: Config
    directory: Path
    files: CertificateFiles
    database: Database
    before: DurableLedger
    earlier: float
    registered: StudyRegistration
    progress: Progress
    closed: asyncio.Event
    clients_factory: ConnectedClientsFactory
    board: RunStatus
    orders: OperatorCommands
    enrolment: Enrollment
    members: ConnectedClients | None = None
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def present(self) -> list[str]:
        """Names of the connected participants."""
        present = self.members.present.values() if self.members else ()
        return [member.name for member in present]

    def open_transcript(
        self,
        protocol: str,
        facts: Mapping[str, Value],
        naming: Callable[[bytes], str] = flaim_step_of,
    ) -> FederationTranscript:
        """Returns the transcript, new or continued; the algorithm's ``facts`` end its header. Raises StoreError."""
        config, section = self.config, self.config.require_federation()
        header: dict[str, Value] = {
            "protocol": protocol,
            "run": config.run.id,
            "name": section.server,
            "config": cast("Value", config.agreed()),
            "config_sha256": config.digest(),
            **facts,
        }
        path, names = self.directory / TRANSCRIPT, section.clients
        return FederationTranscript.open(
            path, self.files, names, header=header, spent=self.earlier, naming=naming
        )

    async def serve(
        self,
        work: Callable[[ConnectedClients], Awaitable[Mapping[str, object]]],
        record: FederationTranscript,
        ledger: DurableLedger,
        *,
        digest: str,
        known: Sequence[int],
    ) -> None:
        """Admits participants, awaits ``work`` with them, closes the transcript and writes result.json.

        ``work`` returns the content of result.json. ``digest`` is of the settings that all participants have to share;
        ``known`` are the participants of earlier attempts. Raises the errors of ``work``, after notifying the
        participants; StoreError.
        """
        watch_orders(self.board, self.orders, self.config.require_federation().server)
        watch_run(self.board, ledger, record)
        record.tracing = self.progress.step
        try:
            with disk_errors(self.directory):
                document = await self._run_with_clients(work, record, digest, known)
                record.transcript.close()
                # result.json comes last: its existence says that the run is over.
                write_json(self.directory / RESULT, document, durable=True)
        except BaseException as error:
            with contextlib.suppress(OSError, ValueError):
                record.transcript.close(f"failed: {refusal_of(error).words}")
            raise
        finally:
            self.board.freeze()

    async def _run_with_clients(
        self,
        work: Callable[[ConnectedClients], Awaitable[Mapping[str, object]]],
        record: FederationTranscript,
        digest: str,
        known: Sequence[int],
    ) -> Mapping[str, object]:
        who, _ = _NOUNS[self.config.federation_section]

        def arrived() -> None:
            here, expected = len(members.present), len(members.names)
            text = f"{here} of {expected} {who} are connected"
            self.progress.event("clients", text, done=here)

        members = self.members = self.clients_factory(
            self.config,
            self.files,
            workload_digest=digest,
            log=record,
            on_change=arrived,
            admit=self.registered.check_client,
            rejected=self.board.rejected,
            enrolment=self.enrolment,
            known=known,
        )
        watch_members(self.board, members)
        async with members:
            address = self.config.require_federation().address
            self.progress.event("listening", f"taking {who} at {address}")
            try:
                return await work(members)
            except BaseException as error:
                members.send_refusal(refusal_of(error))
                raise

    def attendance(self, members: ConnectedClients, least: int, before: int) -> Attendance:
        """Returns the wait for ``members``; see ``Attendance``."""
        return Attendance(
            self.config,
            members,
            self.enrolment,
            self.orders,
            self.progress,
            self.closed,
            least,
            before,
            *_NOUNS[self.config.federation_section],
        )

    def begin_computing(self, started: float) -> None:
        """Ends the wait for participants and begins the computing phase.

        ``started`` is the `time.perf_counter` of the wait's begin.
        """
        self.seconds["join"] = time.perf_counter() - started
        self.board.enter(Phase.COMPUTING)


@contextlib.contextmanager
def open_session(
    config: Config,
    directory: Path,
    rho: float,
    *,
    tables: Sequence[str] = (),
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None,
    clients_factory: ConnectedClientsFactory,
    board: RunStatus,
    orders: OperatorCommands | None,
) -> Iterator[ServerSession]:
    """Opens the attempt while this process holds ``directory``; the database has ``tables`` besides a ledger's.

    ``rho`` is the run's budget; ``register`` is the file of this server's studies, None for its usual path. Raises
    ConfigError, CertificateError, StoreError (StudyReleased if another folder has released this configuration),
    CheckFailed (for an invalid transcript).
    """
    files, name = server_certificate_files(config), config.require_federation().server
    orders = orders or OperatorCommands()
    raise_file_limit()
    with Database(directory / "store", config.digest(), [*LEDGER, *tables]) as database:
        study = RegisteredFolder(config.digest(), name, config.run.id, database.identity, directory)
        registered = StudyRegistration.begin(registry_path(register), study)
        before = DurableLedger(database, rho)
        with disk_errors(directory):
            adopt_charges(before, directory / TRANSCRIPT, config.digest())
        orders.keep_in(database)
        yield ServerSession(
            config,
            directory,
            files,
            database,
            before,
            before.spent,
            registered,
            progress,
            closed,
            clients_factory,
            board,
            orders,
            Enrollment.of(config, orders, database),
        )
