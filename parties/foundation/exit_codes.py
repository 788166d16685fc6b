"""Exit statuses of the `syncret` command, and the message of a failure.

``describe`` turns any exception into a status and a message without a traceback. Messages name the problem, its place,
and the expected state; they hold no secret. Known limit: an exception of another class than ours is a defect of this
program; its message is its type and text, and ``--debug`` shows its origin.
"""

import asyncio
import enum
from dataclasses import dataclass

from mechanisms.errors import BudgetExceeded, EstimationError, MechanismError
from parties.foundation.errors import (
    CertificateError,
    ComputeError,
    ConfigError,
    ExtraMissing,
    FederationProtocolError,
    FrameTransportError,
    IngestError,
    NotEnrolled,
    PartyError,
    ResultMissing,
    SealError,
    StoreError,
    SubmitError,
    WithdrawalTooLate,
)
from parties.foundation.process import SERVER_PACKAGES
from parties.foundation.untrusted_text import printable
from protocols.errors import ChannelError, ConfigurationError, ProtocolError


class Status(enum.IntEnum):
    """Exit statuses. Each has its meaning, and what is to be done."""

    DONE = 0
    """Success: the command has done what it was asked for.

    Nothing is to be done.
    """
    DEFECT = 1
    """Defect of this program.

    Run the command with `--debug`, and report what it shows.
    """
    USAGE = 2
    """Wrong usage of the command line.

    `--help` of the command has its arguments and an example.
    """
    CONFIG = 3
    """Configuration, or an address in it, that cannot be used.

    Change the key that the message names.
    """
    DATA = 4
    """Table that cannot be read or does not fit its domain, or wrong domain or workload.

    Change the table at the line that the message names, or the columns of the configuration.
    """
    CERTIFICATE = 5
    """Certificate or key that is missing, expired, or of a wrong name or authority; backup that does not open.

    Renew the certificate, or use the file that the message expects.
    """
    NETWORK = 6
    """Server that is missing, lost or silent; submission that did not get through.

    Run the same command again: a run goes on after its last finished round.
    """
    STORAGE = 7
    """Folder or file that is unwritable, full, in use, of another run, or damaged.

    Make room, change the permissions, or name another folder.
    """
    BUDGET = 8
    """Privacy budget that does not cover the request.

    Ask for a smaller epsilon, or look at what was spent with `syncret budget`.
    """
    PROTOCOL = 9
    """Peer that broke the protocol, or servers that disagree (configuration, version, state).

    Compare versions and configurations. If they agree, ask the operator of the server that the message names.
    """
    CLIENTS = 10
    """Fewer data owners than `clients.minimum`.

    Wait for more owners, and run the same command again.
    """
    ESTIMATION = 11
    """Model that cannot be fitted.

    Ask for a smaller workload, or for a larger `run.max_model_mb`.
    """
    KILLED = 12
    """Process of a local run that was killed from outside.

    Give it more memory, and start the run again.
    """
    AUDIT = 13
    """Audit that found a violated check.

    Read the checks that failed, and do not rely on the result before they are explained.
    """
    EXTRA = 14
    """Package of an extra that is not installed.

    Install the extra that the message names.
    """
    TOO_LATE = 15
    """Withdrawal or replacement that comes too late: the rows are counted.

    Nothing can be done: what was released stays released, and charged.
    """
    NOT_RUNNING = 16
    """Server that does not run although its run is not finished (`syncret status`).

    Start it again with the same command.
    """
    NOT_ENROLLED = 17
    """Data owner that may not take part, or not now: it is not on the list, revoked, refused, too early or too late.
    Study that ended without a result.

    Ask the coordinator of the study, or come back when it is open.
    """
    NOT_YET = 18
    """Wait that ended before its event: nobody has admitted the data owner, the study is not over, or a part of `study
    apply` is for later.

    Run the same command again; it goes on.
    """
    DIFFERS = 19
    """Study that is not as its file says (`syncret study apply`): with `--dry-run`, or because that takes a decision.

    Apply the file without `--dry-run`, or take the decision that the message names.
    """
    INTERRUPTED = 130
    """Stop by Ctrl-C.

    Run the same command again if it shall go on.
    """
    TERMINATED = 143
    """Stop by SIGTERM. Under a supervisor (NOTIFY_SOCKET, or SYNCRET_SUPERVISED=1) SIGTERM ends in order, with 0.

    Run the same command again if it shall go on.
    """


class TooFewClients(PartyError):
    """Fewer data owners than the configured minimum reached all three servers in time."""


class Stopped(PartyError):
    """The process was stopped: by Ctrl-C, by SIGTERM, or by the end of its launcher."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status

    def with_advice(self, text: str) -> "Stopped":
        """Returns a copy with a further sentence; itself for an empty one."""
        return Stopped(f"{self}; {text}", self.status) if text else self


class FederationRefused(PartyError):
    """The federation's server refuses this client; ``status`` is the exit status of the client's command."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status


class ServiceRefused(PartyError):
    """A service of studies refuses an operator's command, or does not run."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status


class NotYet(PartyError):
    """A command's wait ended before the event that it waited for; the same command goes on later."""


class NotAdmitted(PartyError):
    """A data owner's request for admission was refused."""


class AuditFailed(PartyError):
    """An audit found a violated check."""


class ChildFailed(PartyError):
    """A process that the launcher started has failed; ``message`` is the child's own."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Failure:
    """End of a command: its exit status and its message."""

    status: Status
    message: str


_STATUSES: tuple[tuple[type[BaseException], Status], ...] = (
    (ConfigError, Status.CONFIG),
    (CertificateError, Status.CERTIFICATE),
    (SealError, Status.CERTIFICATE),
    (StoreError, Status.STORAGE),
    (TooFewClients, Status.CLIENTS),
    (AuditFailed, Status.AUDIT),
    (ExtraMissing, Status.EXTRA),
    (ComputeError, Status.NETWORK),
    (WithdrawalTooLate, Status.TOO_LATE),
    (NotEnrolled, Status.NOT_ENROLLED),
    (NotAdmitted, Status.NOT_ENROLLED),
    (ResultMissing, Status.NOT_ENROLLED),
    (NotYet, Status.NOT_YET),
    (SubmitError, Status.NETWORK),
    (FrameTransportError, Status.NETWORK),
    (FederationProtocolError, Status.PROTOCOL),
    (IngestError, Status.NETWORK),
    (ConfigurationError, Status.CONFIG),
    (ChannelError, Status.NETWORK),
    (ProtocolError, Status.PROTOCOL),
    (BudgetExceeded, Status.BUDGET),
    (EstimationError, Status.ESTIMATION),
    (MechanismError, Status.DATA),
    (OSError, Status.STORAGE),
)


def describe(error: BaseException) -> Failure:
    """Returns the exit status and message for ``error``, or for the first error of a group.

    The message is safe for a terminal and limited in length, whatever a file or another party contributed to it.
    """
    found = _described(error)
    return Failure(found.status, printable(found.message))


def _described(error: BaseException) -> Failure:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, Stopped | ChildFailed | FederationRefused | ServiceRefused):
        return Failure(error.status, str(error))
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError):
        return Failure(Status.INTERRUPTED, "stopped by Ctrl-C")
    if isinstance(error, ModuleNotFoundError) and error.name in SERVER_PACKAGES:
        error = ExtraMissing("this", error.name)
    for kind, status in (*_STATUSES, *_secure_sum_statuses()):
        if isinstance(error, kind):
            return Failure(status, _text(error))
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Failure(Status.DEFECT, f"internal error: {text} (--debug shows where)")


def _secure_sum_statuses() -> tuple[tuple[type[BaseException], Status], ...]:
    # Local import: SecAgg takes as long to import as all of the above, and most commands do not need it.
    from secagg.errors import RoundAborted, SecAggError

    return (RoundAborted, Status.CLIENTS), (SecAggError, Status.PROTOCOL)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}; expected a place that can be read and written"
    if isinstance(error, ChannelError):
        return f"{error}; started again by the same command, the servers go on after the last finished round"
    return str(error) or type(error).__name__
