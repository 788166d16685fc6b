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
    """Exit statuses; the README lists them."""

    DONE = 0
    DEFECT = 1
    USAGE = 2
    CONFIG = 3
    DATA = 4
    CERTIFICATE = 5
    NETWORK = 6
    STORAGE = 7
    BUDGET = 8
    PROTOCOL = 9
    CLIENTS = 10
    ESTIMATION = 11
    KILLED = 12
    AUDIT = 13
    EXTRA = 14
    TOO_LATE = 15
    NOT_RUNNING = 16
    NOT_ENROLLED = 17
    NOT_YET = 18
    DIFFERS = 19
    INTERRUPTED = 130
    TERMINATED = 143


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
