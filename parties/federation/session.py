"""One attempt of a federation's server at a run: all that it has open, and how it closes.

``open_session`` opens folder, ledger and release registry, and closes them with a reason; a run that is not over yet
begins the transcript, which shows in the run status (`parties.federation.shown_status`). Secret: none. Public: the
contents of the transcript.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from mechanisms.accounting import LedgerEntry
from parties.config import CertificateFiles, Config
from parties.federation.members import ConnectedClients
from parties.federation.messages import refusal_of
from parties.federation.release_statements import signed_statements
from parties.federation.shown_status import watch_orders, watch_run
from parties.federation.transcript import FederationTranscript
from parties.foundation.errors import StoreError
from parties.foundation.process_limits import raise_file_limit
from parties.identity.tls import check_pinned_identity
from parties.observability.events import Progress
from parties.observability.status import RunStatus
from parties.session.operator_commands import OperatorCommands
from parties.storage.database import Database
from parties.storage.files import disk_errors
from parties.storage.privacy_ledger import LEDGER, DurableLedger, adopt_charges
from parties.storage.release_registry import RegisteredFolder, StudyRegistration
from parties.storage.requested_rounds import REQUESTED_TABLE_SQL, RequestedRounds
from parties.storage.user_paths import registry_path
from protocols.transcript import END, Value

TRANSCRIPT = "transcript.jsonl"


def server_certificate_files(config: Config) -> CertificateFiles:
    """Returns the server's certificate files, verified. Raises ConfigError, CertificateError."""
    section = config.require_federation()
    return check_pinned_identity(
        config.require_tls(name=section.server),
        section.pinned,
        f"{section.KEY}.server",
    )


@dataclass(eq=False, slots=True, kw_only=True)
class FederationSession:
    """One attempt at a run, with its open folder.

    Attributes:
        before: Ledger with the charges of earlier attempts.
        earlier: Cost of earlier attempts in rho, at the start.
        requested: Rounds that participants were asked for, those of earlier attempts first.
        orders: Commands of the operator.
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
    requested: RequestedRounds
    progress: Progress
    status: RunStatus
    orders: OperatorCommands
    members: ConnectedClients | None = None
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _record: FederationTranscript | None = None
    _stated: set[tuple[bytes, str]] = field(default_factory=set)
    """Participants' certificates and statements that the registry has of this attempt."""

    def begin(
        self, protocol: str, facts: Mapping[str, Value], naming: Callable[[bytes], str]
    ) -> tuple[FederationTranscript, DurableLedger]:
        """Opens the transcript, new or continued, and the ledger, whose charges stand in it.

        The method's ``facts`` end the header; ``naming`` is the function from a message to its step's name. Raises
        StoreError.
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
        record = self._record = FederationTranscript.open(
            path, self.files, names, header=header, spent=self.earlier, naming=naming
        )
        self.registered.resume(self._releases)

        def first(entry: LedgerEntry) -> None:
            self._release()
            record.charge(entry)

        ledger = DurableLedger(self.database, self.before.budget, first=first)
        watch_orders(self.status, self.orders, section.server)
        watch_run(self.status, ledger, record)
        record.tracing = self.progress.step
        return record, ledger

    def request_round(self, number: int, participants: Sequence[int]) -> None:
        """Enters round ``number`` before its first request, in this folder and in the registry. Raises StoreError.

        A round without a charge is entered too, so that an old copy of this folder cannot repeat it.
        """
        self.requested.enter(number, participants)
        self._release()

    @property
    def _releases(self) -> int:
        """Number of charges and requested rounds of this folder."""
        return len(self.before.entries) + self.requested.count

    def _release(self) -> None:
        """Registers that something of the connected participants is about to be released."""
        present = self.members.present.values() if self.members else ()
        self.registered.release([member.name for member in present], self._releases)

    def keep_statements(self, said: Collection[tuple[bytes, str]]) -> None:
        """Enters participants' certificates and statements in the registry, those that it does not have yet.

        Raises StoreError.
        """
        if new := sorted(set(said) - self._stated):
            self.registered.keep(signed_statements(self.config, new))
            self._stated.update(new)

    def close(self, reason: str | None = None) -> None:
        """Closes the transcript, if one is open, with the ``reason`` of a failure. Raises StoreError."""
        record, self._record = self._record, None
        if record is not None:
            with disk_errors(self.directory):
                record.transcript.close(END if reason is None else f"failed: {reason}")


@contextlib.contextmanager
def open_session(
    config: Config,
    directory: Path,
    *,
    rho: float,
    tables: Sequence[str],
    register: Path | None,
    progress: Progress,
    status: RunStatus,
    orders: OperatorCommands,
) -> Iterator[FederationSession]:
    """Opens an attempt in ``directory``, and closes it with the reason for which the block ends.

    ``rho`` is the run's budget; the database has ``tables`` besides a ledger's; ``register`` is the file of this
    server's studies, None for its usual path. Raises ConfigError, CertificateError, StoreError (StudyReleased if
    another folder has released this configuration), CheckFailed (for an invalid transcript).
    """
    files, name = server_certificate_files(config), config.require_federation().server
    raise_file_limit()
    schema = [*LEDGER, REQUESTED_TABLE_SQL, *tables]
    with Database(directory / "store", config.digest(), schema) as database:
        study = RegisteredFolder(config.digest(), name, config.run.id, database.identity, directory)
        registered = StudyRegistration.begin(registry_path(register), study)
        before = DurableLedger(database, rho)
        with disk_errors(directory):
            adopt_charges(before, directory / TRANSCRIPT, config.digest())
        orders.keep_in(database)
        session = FederationSession(
            config=config,
            directory=directory,
            files=files,
            database=database,
            before=before,
            earlier=before.spent,
            registered=registered,
            requested=RequestedRounds(database),
            progress=progress,
            status=status,
            orders=orders,
        )
        try:
            with disk_errors(directory):
                yield session
            session.close()
        except BaseException as error:
            with contextlib.suppress(StoreError):
                session.close(refusal_of(error).words)
            raise
        finally:
            status.freeze()
