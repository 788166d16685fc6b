"""Causes for which an attempt at a run ends, and who can cure each: codes that pass between processes and servers.

Provides ``Cause``, ``Obstacle``, which is one with a number beside it, ``cause_of`` an exception, ``cause_of_exit`` of
a process, and ``CURES``, which says of every cause who cures it. What one operator can cure alone, and what passes by
itself, is no failure: it is tried again for as long as a study lives. Nothing here reads a message: exceptions go by
their class, their errno and their database's code, along the chain of what they were raised from. Public: all of it.
"""

import enum
import errno
import signal
import socket
import sqlite3
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mechanisms.errors import BudgetExceeded, EstimationError
from parties.foundation.errors import (
    CertificateExpired,
    CertificateNotYetValid,
    ComputeError,
    ExtraMissing,
    FrameTransportError,
    IngestError,
    NotEnrolled,
    StoreIncompatible,
    StudyReleased,
    SubmitError,
    WithdrawalTooLate,
)
from parties.foundation.exit_codes import Status, TooFewClients, describe
from parties.foundation.process import SERVER_PACKAGES
from protocols.errors import ChannelError

MOST_DETAIL = 1 << 31


class Cause(enum.StrEnum):
    """Why an attempt ended; the values are what servers tell one another."""

    DISK_FULL = "disk-full"
    DISK = "disk"
    READ_ONLY = "read-only"
    PERMISSION = "permission"
    FOLDER = "folder"
    DAMAGED = "damaged"
    MEMORY = "memory"
    FILES = "files"
    IN_USE = "in-use"
    DATABASE = "database"
    COMPUTE = "compute"
    PACKAGE = "package"
    CLOCK = "clock"
    KILLED = "killed"
    STOPPED = "stopped"
    NETWORK = "network"
    EXPIRED = "expired"
    """A certificate, by this host's clock."""
    TOO_FEW = "too-few"
    """Owners, by the time at which no more are waited for."""
    FAULT = "fault"
    """None of the others: a defect, a peer that broke the protocol."""
    DECISION = "decision"
    OTHER = "other"
    """What another server named that this one does not know."""


class Cure(enum.Enum):
    """Who ends a cause."""

    OPERATOR = "the operator of that server alone"
    ITSELF = "nobody's decision: it passes"
    CLOCK = "the operator alone if that server's clock is off, a new decision if it is right"
    RARELY = "seldom anybody: a few tries, then a new decision"
    DECISION = "a new decision of all"


CURES: Mapping[Cause, Cure] = {
    Cause.DISK_FULL: Cure.OPERATOR,
    Cause.DISK: Cure.OPERATOR,
    Cause.READ_ONLY: Cure.OPERATOR,
    Cause.PERMISSION: Cure.OPERATOR,
    Cause.FOLDER: Cure.OPERATOR,
    Cause.DAMAGED: Cure.OPERATOR,
    Cause.MEMORY: Cure.OPERATOR,
    Cause.FILES: Cure.OPERATOR,
    Cause.IN_USE: Cure.OPERATOR,
    Cause.DATABASE: Cure.OPERATOR,
    Cause.COMPUTE: Cure.OPERATOR,
    Cause.PACKAGE: Cure.OPERATOR,
    Cause.CLOCK: Cure.OPERATOR,
    Cause.OTHER: Cure.OPERATOR,
    # The system's killer comes again or not; what it leaves is in the store.
    Cause.KILLED: Cure.ITSELF,
    Cause.STOPPED: Cure.ITSELF,
    Cause.NETWORK: Cure.ITSELF,
    Cause.EXPIRED: Cure.CLOCK,
    Cause.TOO_FEW: Cure.CLOCK,
    Cause.FAULT: Cure.RARELY,
    Cause.DECISION: Cure.DECISION,
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A ``cause``, and of NETWORK the server that was missing, of KILLED the signal, as ``detail``."""

    cause: Cause
    detail: int | None = None


_OF_ERRNO: Mapping[int, Cause] = {
    errno.ENOSPC: Cause.DISK_FULL,
    errno.EDQUOT: Cause.DISK_FULL,
    errno.EFBIG: Cause.DISK_FULL,
    errno.EIO: Cause.DISK,
    errno.ENXIO: Cause.DISK,
    errno.ENODEV: Cause.DISK,
    errno.ESTALE: Cause.DISK,
    errno.EROFS: Cause.READ_ONLY,
    errno.EACCES: Cause.PERMISSION,
    errno.EPERM: Cause.PERMISSION,
    errno.ENOENT: Cause.FOLDER,
    errno.EEXIST: Cause.FOLDER,
    errno.ENOTDIR: Cause.FOLDER,
    errno.EISDIR: Cause.FOLDER,
    errno.ELOOP: Cause.FOLDER,
    errno.ENAMETOOLONG: Cause.FOLDER,
    errno.ENOMEM: Cause.MEMORY,
    errno.EMFILE: Cause.FILES,
    errno.ENFILE: Cause.FILES,
    # A lock that another process holds, and the system's limit of processes.
    errno.EAGAIN: Cause.IN_USE,
    errno.EBUSY: Cause.IN_USE,
    errno.ETXTBSY: Cause.IN_USE,
    errno.EADDRINUSE: Cause.IN_USE,
    errno.EADDRNOTAVAIL: Cause.NETWORK,
    errno.EPIPE: Cause.NETWORK,
    errno.ECONNREFUSED: Cause.NETWORK,
    errno.ECONNRESET: Cause.NETWORK,
    errno.ECONNABORTED: Cause.NETWORK,
    errno.ETIMEDOUT: Cause.NETWORK,
    errno.EHOSTUNREACH: Cause.NETWORK,
    errno.EHOSTDOWN: Cause.NETWORK,
    errno.ENETUNREACH: Cause.NETWORK,
    errno.ENETDOWN: Cause.NETWORK,
    errno.ENETRESET: Cause.NETWORK,
}
_OF_SQLITE: Mapping[int, Cause] = {
    sqlite3.SQLITE_FULL: Cause.DISK_FULL,
    sqlite3.SQLITE_IOERR: Cause.DISK,
    sqlite3.SQLITE_IOERR_NOMEM: Cause.MEMORY,
    sqlite3.SQLITE_NOMEM: Cause.MEMORY,
    sqlite3.SQLITE_READONLY: Cause.READ_ONLY,
    sqlite3.SQLITE_PERM: Cause.PERMISSION,
    sqlite3.SQLITE_AUTH: Cause.PERMISSION,
    sqlite3.SQLITE_CANTOPEN: Cause.FOLDER,
    sqlite3.SQLITE_CORRUPT: Cause.DAMAGED,
    sqlite3.SQLITE_NOTADB: Cause.DAMAGED,
    sqlite3.SQLITE_BUSY: Cause.IN_USE,
    sqlite3.SQLITE_LOCKED: Cause.IN_USE,
    sqlite3.SQLITE_PROTOCOL: Cause.IN_USE,
}
"""By the extended code, or else by its last byte, the primary one."""
_OF_SQLSTATE: Mapping[str, Cause] = {
    "53100": Cause.DISK_FULL,
    "53200": Cause.MEMORY,
    "42501": Cause.PERMISSION,
    "25006": Cause.READ_ONLY,
    "08": Cause.DATABASE,
    "28": Cause.DATABASE,
    "3D": Cause.DATABASE,
    "40": Cause.DATABASE,
    "53": Cause.DATABASE,
    "55": Cause.DATABASE,
    "57": Cause.DATABASE,
    "58": Cause.DISK,
    "XX001": Cause.DAMAGED,
    "XX002": Cause.DAMAGED,
}
"""PostgreSQL's codes, or the class that their first two characters are (its manual, appendix A)."""
_OF_CLASS: tuple[tuple[type[BaseException], Cause], ...] = (
    (StudyReleased, Cause.DECISION),
    (StoreIncompatible, Cause.DAMAGED),
    (CertificateNotYetValid, Cause.CLOCK),
    (CertificateExpired, Cause.EXPIRED),
    (TooFewClients, Cause.TOO_FEW),
    (BudgetExceeded, Cause.DECISION),
    (EstimationError, Cause.DECISION),
    (WithdrawalTooLate, Cause.DECISION),
    (NotEnrolled, Cause.DECISION),
    (ExtraMissing, Cause.PACKAGE),
    (ComputeError, Cause.COMPUTE),
    (ChannelError, Cause.NETWORK),
    (FrameTransportError, Cause.NETWORK),
    (SubmitError, Cause.NETWORK),
    (IngestError, Cause.NETWORK),
    (MemoryError, Cause.MEMORY),
    (ConnectionError, Cause.NETWORK),
    (TimeoutError, Cause.NETWORK),
    (socket.gaierror, Cause.NETWORK),
)
"""Classes that say it all; others say it by their code, or by what they were raised from."""
_OF_STATUS: Mapping[Status, Cause] = {
    Status.USAGE: Cause.DECISION,
    Status.CONFIG: Cause.DECISION,
    Status.DATA: Cause.DECISION,
    Status.CERTIFICATE: Cause.DECISION,
    Status.BUDGET: Cause.DECISION,
    Status.CLIENTS: Cause.DECISION,
    Status.ESTIMATION: Cause.DECISION,
    Status.TOO_LATE: Cause.DECISION,
    Status.NOT_ENROLLED: Cause.DECISION,
    Status.NETWORK: Cause.NETWORK,
    Status.EXTRA: Cause.PACKAGE,
    Status.KILLED: Cause.KILLED,
    Status.INTERRUPTED: Cause.STOPPED,
    Status.TERMINATED: Cause.STOPPED,
}
"""Of what has no cause of its own; a status that is missing here is a FAULT."""
_NOT_YET_VALID, _HAS_EXPIRED = 9, 10
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""


def cause_of(error: BaseException) -> Obstacle:
    """The cause that ``error``, or the first of a group, is: of the outermost in its chain that has one."""
    for link in _chain(error):
        if (cause := _own_cause(link)) is not None:
            return Obstacle(cause, _detail(link))
    return Obstacle(_OF_STATUS.get(describe(error).status, Cause.FAULT))


def cause_of_exit(code: int) -> Obstacle:
    """The cause of a process that ended with ``code``, negative for a signal, and without a word."""
    if code < 0:
        return Obstacle(Cause.KILLED, -code)
    known = code in {status.value for status in Status}
    return Obstacle(_OF_STATUS.get(Status(code), Cause.FAULT) if known else Cause.FAULT)


def obstacle_of(code: object, detail: object) -> Obstacle:
    """What another process or server named: of a ``code`` that is not known OTHER, without a bad ``detail``."""
    known = isinstance(code, str) and code in {cause.value for cause in Cause}
    whole = isinstance(detail, int) and not isinstance(detail, bool) and 0 <= detail < MOST_DETAIL
    cause = Cause(str(code)) if known else Cause.OTHER
    return Obstacle(cause, detail if isinstance(detail, int) and whole and known else None)


def signal_name(number: int) -> str:
    """Such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on; what a database's driver said comes after what wraps it."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
            continue
        yield found
        driver = getattr(found, "orig", None)
        found = driver if isinstance(driver, BaseException) else found.__cause__


def _own_cause(error: BaseException) -> Cause | None:
    if isinstance(error, ssl.SSLError):  # Its errno is OpenSSL's own.
        verdict = getattr(error, "verify_code", None)
        return {_NOT_YET_VALID: Cause.CLOCK, _HAS_EXPIRED: Cause.EXPIRED}.get(verdict or 0)
    for kind, cause in _OF_CLASS:
        if isinstance(error, kind):
            return cause
    if isinstance(error, ModuleNotFoundError):
        return Cause.PACKAGE if error.name in SERVER_PACKAGES else None
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None) or 0
        return _OF_SQLITE.get(code, _OF_SQLITE.get(code & 0xFF))
    if isinstance(error, OSError):
        return _OF_ERRNO.get(error.errno or 0)
    return _of_server(error)


def _of_server(error: BaseException) -> Cause | None:
    """What a database's server says; its driver is not imported for that. No code: there is no connection."""
    if not hasattr(error, "sqlstate"):
        return None
    state = error.sqlstate
    if not isinstance(state, str):
        return Cause.DATABASE
    return _OF_SQLSTATE.get(state, _OF_SQLSTATE.get(state[:2]))


def _detail(error: BaseException) -> int | None:
    return error.pid if isinstance(error, ChannelError) else None
