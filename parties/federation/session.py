"""One attempt at a run by a federation's server: its folder, ledger, registry and transcript; and its run status.

``open_session`` opens the folder. ``watch_run``, ``watch_orders`` and ``watch_members`` connect the run status to
ledger, transcript, operator commands and participants. Secret: none. Public: the contents of the transcript.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from parties.config import CertificateFiles, Config
from parties.federation.members import ConnectedClients
from parties.federation.transcript import FederationTranscript
from parties.foundation.process_limits import raise_file_limit
from parties.identity.tls import check_pinned_identity
from parties.observability.status import (
    BudgetUse,
    ParticipantState,
    ParticipantStatus,
    RunStatus,
    StepTotals,
)
from parties.session.operator_commands import OperatorCommands
from parties.storage.database import Database
from parties.storage.files import disk_errors
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


def server_certificate_files(config: Config) -> CertificateFiles:
    """Returns the server's certificate files, verified. Raises ConfigError, CertificateError."""
    section = config.require_federation()
    return check_pinned_identity(
        config.require_tls(name=section.server),
        section.pinned,
        f"{section.KEY}.server",
    )


@dataclass(eq=False, slots=True)
class ServerSession:
    """One attempt at a run, with its open folder.

    Attributes:
        before: Ledger with the charges of earlier attempts.
        earlier: Cost of earlier attempts in rho, at the start.
        members: The connected participants, once the server listens.
        seconds: Durations by phase.
    """

    config: Config
    directory: Path
    files: CertificateFiles
    database: Database
    before: DurableLedger
    earlier: float
    registered: StudyRegistration
    members: ConnectedClients | None = None
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def release(self, ledger: DurableLedger) -> None:
        """Registers, before a request, that something of the connected participants is released. Raises StoreError."""
        present = self.members.present.values() if self.members else ()
        self.registered.release([member.name for member in present], len(ledger.entries))

    def open_transcript(
        self, protocol: str, facts: Mapping[str, Value], naming: Callable[[bytes], str]
    ) -> FederationTranscript:
        """Returns the transcript, new or continued; the method's ``facts`` end its header. Raises StoreError.

        ``naming`` is the function from a message to its step's name.
        """
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


@contextlib.contextmanager
def open_session(
    config: Config, directory: Path, rho: float, *, tables: Sequence[str], register: Path | None
) -> Iterator[ServerSession]:
    """Opens an attempt while this process holds ``directory``; the database has ``tables`` besides a ledger's.

    ``rho`` is the run's budget; ``register`` is the file of this server's studies, None for its usual path. Raises
    ConfigError, CertificateError, StoreError (StudyReleased if another folder has released this configuration),
    CheckFailed (for an invalid transcript).
    """
    files, name = server_certificate_files(config), config.require_federation().server
    raise_file_limit()
    with Database(directory / "store", config.digest(), [*LEDGER, *tables]) as database:
        study = RegisteredFolder(config.digest(), name, config.run.id, database.identity, directory)
        registered = StudyRegistration.begin(registry_path(register), study)
        before = DurableLedger(database, rho)
        with disk_errors(directory):
            adopt_charges(before, directory / TRANSCRIPT, config.digest())
        yield ServerSession(config, directory, files, database, before, before.spent, registered)
