"""Causes of an attempt's end, as codes that processes and servers exchange, and the cure of each.

``Obstacle`` is a ``Cause`` with a number; ``cause_of`` determines it for an exception, ``cause_of_exit`` for a process,
and ``CURES`` maps each cause to its cure. A cause that one operator can cure alone, or that passes by itself, is no
failure: it is retried for as long as a study lives. Messages are never parsed: exceptions are classified by their
class, errno and database code, along the chain of their causes. All values here are public.
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
    OutsideKeyError,
    StoreIncompatible,
    StudyReleased,
    SubmitError,
    WithdrawalTooLate,
)
from parties.foundation.exit_codes import Status, TooFewClients, describe
from parties.foundation.process import SERVER_PACKAGES
from protocols.errors import ChannelError, OtherVersion

MOST_DETAIL = 1 << 31


class Cause(enum.StrEnum):
    """Causes of an attempt's end; the values are exchanged between servers."""

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
    KEY = "key"
    """A key outside of the server's folder is not there, or is another one."""
    VERSION = "version"
    """Another server has another version, as while they are upgraded one by one."""
    CLOCK = "clock"
    KILLED = "killed"
    STOPPED = "stopped"
    NETWORK = "network"
    EXPIRED = "expired"
    """A certificate has expired by this host's clock."""
    TOO_FEW = "too-few"
    """Too few owners at the end of the waiting time."""
    FAULT = "fault"
    """Any other failure: a defect, or a peer that broke the protocol."""
    DECISION = "decision"
    OTHER = "other"
    """A code of another server that is unknown to this one."""


class Cure(enum.Enum):
    """Cure of a cause."""

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
    Cause.KEY: Cure.OPERATOR,
    Cause.VERSION: Cure.OPERATOR,
    Cause.CLOCK: Cure.OPERATOR,
    Cause.OTHER: Cure.OPERATOR,
    # The out-of-memory killer may come again or not; finished work is in the store.
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
    """A ``cause`` with its ``detail``: of NETWORK the missing server, of KILLED the signal."""

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
    # EAGAIN: a lock that another process holds, or the system's limit on processes.
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
"""Causes by SQLite's extended code, or else by its last byte, the primary code."""
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
"""Causes by PostgreSQL's code, or by its class, the first two characters (PostgreSQL's manual, appendix A)."""
_OF_CLASS: tuple[tuple[type[BaseException], Cause], ...] = (
    (StudyReleased, Cause.DECISION),
    (StoreIncompatible, Cause.DAMAGED),
    (OutsideKeyError, Cause.KEY),
    (OtherVersion, Cause.VERSION),
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
"""Exception classes that determine the cause; others are classified by their code, or by their own causes."""
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
"""Causes by exit status, for errors without another cause; a missing status is a FAULT."""
_NOT_YET_VALID, _HAS_EXPIRED = 9, 10
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""


def cause_of(error: BaseException) -> Obstacle:
    """Returns the obstacle for ``error`` or the first of a group: the outermost in its chain that has a cause."""
    for link in _chain(error):
        if (cause := _own_cause(link)) is not None:
            return Obstacle(cause, _detail(link))
    return Obstacle(_OF_STATUS.get(describe(error).status, Cause.FAULT))


def cause_of_exit(code: int) -> Obstacle:
    """Returns the obstacle for a process that ended with ``code``, negative for a signal, without a message."""
    if code < 0:
        return Obstacle(Cause.KILLED, -code)
    known = code in {status.value for status in Status}
    return Obstacle(_OF_STATUS.get(Status(code), Cause.FAULT) if known else Cause.FAULT)


def obstacle_of(code: object, detail: object) -> Obstacle:
    """Parses an obstacle from another process or server: an unknown ``code`` is OTHER, a bad ``detail`` is dropped."""
    known = isinstance(code, str) and code in {cause.value for cause in Cause}
    whole = isinstance(detail, int) and not isinstance(detail, bool) and 0 <= detail < MOST_DETAIL
    cause = Cause(str(code)) if known else Cause.OTHER
    return Obstacle(cause, detail if isinstance(detail, int) and whole and known else None)


def signal_name(number: int) -> str:
    """Returns a signal's name, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and its chain of causes; a database driver's error comes after the one that wraps it."""
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
    """Returns the cause in a database server's code, without an import of its driver. No code means no connection."""
    if not hasattr(error, "sqlstate"):
        return None
    state = error.sqlstate
    if not isinstance(state, str):
        return Cause.DATABASE
    return _OF_SQLSTATE.get(state, _OF_SQLSTATE.get(state[:2]))


def _detail(error: BaseException) -> int | None:
    return error.pid if isinstance(error, ChannelError) else None
