"""Every error that can end an attempt has its row in one table, whatever its message says."""

import errno
import os
import signal
import socket
import sqlite3
import ssl
from pathlib import Path

import pytest
from psycopg import errors as postgres
from sqlalchemy.exc import OperationalError

from mechanisms.errors import BudgetExceeded, DataError, EstimationError
from parties.cli.runtime import make_private
from parties.config import load_config
from parties.crypto.hpke import read_private
from parties.foundation.errors import (
    CertificateError,
    CertificateExpired,
    CertificateNotYetValid,
    ComputeError,
    ConfigError,
    ExtraMissing,
    FederationProtocolError,
    FrameTimeout,
    OutsideKeyError,
    SealError,
    StoreError,
    StoreIncompatible,
    StudyReleased,
)
from parties.foundation.exit_codes import Status, Stopped, TooFewClients
from parties.mpc.planning.validation import check_memory
from parties.observability.failure_causes import (
    CURES,
    Cause,
    Cure,
    Obstacle,
    cause_of,
    cause_of_exit,
    obstacle_of,
    signal_name,
)
from parties.service.database import database_errors as service_database_errors
from parties.service.obstacles import CAUSE_TEXTS
from parties.storage.database import Database
from parties.storage.files import database_errors, disk_errors, write_atomic
from protocols.errors import (
    CheckFailed,
    ConfigurationError,
    ConnectTimeout,
    OtherVersion,
    PeerClosed,
    ProtocolViolation,
    ReceiveTimeout,
)
from secagg.errors import TooFewSurvivors
from tests.parties.support import make_config

AT = Path("/somewhere")


def refused(number: int) -> StoreError:
    """Error that the code raises for a system call that fails."""
    with pytest.raises(StoreError) as raised, disk_errors(AT):
        raise OSError(number, os.strerror(number), str(AT))
    return raised.value


def verified(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code = code
    return error


def sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("whatever it says")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        # Disks, and what a host may use.
        (refused(errno.ENOSPC), Cause.DISK_FULL),
        (refused(errno.EDQUOT), Cause.DISK_FULL),
        (refused(errno.EFBIG), Cause.DISK_FULL),
        (refused(errno.EIO), Cause.DISK),
        (refused(errno.EROFS), Cause.READ_ONLY),
        (refused(errno.EACCES), Cause.PERMISSION),
        (refused(errno.EPERM), Cause.PERMISSION),
        (refused(errno.ENOENT), Cause.FOLDER),
        (refused(errno.ENOTDIR), Cause.FOLDER),
        (refused(errno.ENOMEM), Cause.MEMORY),
        (MemoryError(), Cause.MEMORY),
        (refused(errno.EMFILE), Cause.FILES),
        (refused(errno.ENFILE), Cause.FILES),
        (BlockingIOError(errno.EAGAIN, "no more processes"), Cause.IN_USE),
        (refused(errno.EADDRINUSE), Cause.IN_USE),
        (StoreIncompatible(AT, "is damaged"), Cause.DAMAGED),
        # Databases.
        (sqlite(sqlite3.SQLITE_FULL), Cause.DISK_FULL),
        (sqlite(sqlite3.SQLITE_IOERR_WRITE), Cause.DISK),
        (sqlite(sqlite3.SQLITE_IOERR_NOMEM), Cause.MEMORY),
        (sqlite(sqlite3.SQLITE_READONLY_DBMOVED), Cause.READ_ONLY),
        (sqlite(sqlite3.SQLITE_CANTOPEN), Cause.FOLDER),
        (sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), Cause.IN_USE),
        (sqlite(sqlite3.SQLITE_LOCKED), Cause.IN_USE),
        (sqlite(sqlite3.SQLITE_CORRUPT), Cause.DAMAGED),
        (sqlite(sqlite3.SQLITE_CONSTRAINT_UNIQUE), Cause.FAULT),
        (postgres.OperationalError("connection refused"), Cause.DATABASE),
        (postgres.DiskFull(), Cause.DISK_FULL),
        (postgres.OutOfMemory(), Cause.MEMORY),
        (postgres.TooManyConnections(), Cause.DATABASE),
        (postgres.AdminShutdown(), Cause.DATABASE),
        (postgres.CannotConnectNow(), Cause.DATABASE),
        (postgres.InvalidPassword(), Cause.DATABASE),
        (postgres.ReadOnlySqlTransaction(), Cause.READ_ONLY),
        (postgres.InsufficientPrivilege(), Cause.PERMISSION),
        (postgres.UniqueViolation(), Cause.FAULT),
        # Clocks.
        (CertificateNotYetValid("valid only from tomorrow"), Cause.CLOCK),
        (verified(9), Cause.CLOCK),
        (CertificateExpired("expired"), Cause.EXPIRED),
        (verified(10), Cause.EXPIRED),
        (TooFewClients("two"), Cause.TOO_FEW),
        # The network, and peers.
        (ConnectTimeout("nobody", 1), Cause.NETWORK),
        (ReceiveTimeout("silent", 1), Cause.NETWORK),
        (PeerClosed("gone", 1), Cause.NETWORK),
        (FrameTimeout("north", "silent"), Cause.NETWORK),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Cause.NETWORK),
        (refused(errno.EHOSTUNREACH), Cause.NETWORK),
        (TimeoutError(), Cause.NETWORK),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), Cause.NETWORK),
        # What else a host has or has not.
        (ComputeError("no workers"), Cause.COMPUTE),
        (ExtraMissing("this", "rich"), Cause.PACKAGE),
        (ModuleNotFoundError("no rich", name="rich"), Cause.PACKAGE),
        (Stopped("stopped by its operator", Status.TERMINATED), Cause.STOPPED),
        (OutsideKeyError("of another key"), Cause.KEY),
        (OtherVersion("messages 17", 1), Cause.VERSION),
        # What needs a new decision.
        (ConfigError("a.toml", "run.id", "is wrong"), Cause.DECISION),
        (ConfigurationError("port"), Cause.DECISION),
        (DataError("line 3"), Cause.DECISION),
        (CertificateError("of another authority"), Cause.DECISION),
        (SealError("does not open"), Cause.DECISION),
        (StudyReleased(AT, "was released from another folder"), Cause.DECISION),
        (BudgetExceeded("spent"), Cause.DECISION),
        (EstimationError("overflow"), Cause.DECISION),
        (TooFewSurvivors("two"), Cause.DECISION),
        # What is tried some times.
        (ProtocolViolation("sent garbage", 1), Cause.FAULT),
        (CheckFailed("differ"), Cause.FAULT),
        (FederationProtocolError("north", "sent garbage"), Cause.FAULT),
        (ZeroDivisionError("division"), Cause.FAULT),
        (StoreError(AT, "servers disagree"), Cause.FAULT),
        (OSError(errno.EINVAL, "invalid"), Cause.FAULT),
        (ssl.SSLError(1, "something of TLS"), Cause.FAULT),
    ],
)
def test_each_error_has_its_row(error: Exception, cause: Cause) -> None:
    assert cause_of(error).cause is cause
    assert cause_of(ExceptionGroup("both", [error, ValueError()])).cause is cause


def test_a_message_decides_nothing() -> None:
    assert cause_of(StoreError(AT, "No space left on device")).cause is Cause.FAULT
    assert cause_of(RuntimeError("database is locked")).cause is Cause.FAULT


def test_a_peer_that_is_missing_is_named() -> None:
    assert cause_of(PeerClosed("gone", 2)) == Obstacle(Cause.NETWORK, 2)


# The errors as the code raises them, of a real system.


def test_a_full_device_is_known_where_it_comes_from() -> None:
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115  # Closed below, whatever it takes.
    with pytest.raises(StoreError) as raised, disk_errors(AT), full:
        full.write(b"x")
    assert cause_of(raised.value).cause is Cause.DISK_FULL


def test_a_full_database_is_known_where_it_comes_from(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None)
    database.execute("CREATE TABLE x (y BLOB)")
    database.execute("PRAGMA max_page_count = 3")
    with pytest.raises(StoreError) as raised, database_errors(AT):
        database.execute("INSERT INTO x VALUES (zeroblob(100000))")
    database.close()
    assert cause_of(raised.value).cause is Cause.DISK_FULL


def test_a_file_without_a_folder_is_known_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as raised:
        write_atomic(tmp_path / "file" / "below", "x")
    assert cause_of(raised.value).cause is Cause.FOLDER
    with pytest.raises(StoreError) as raised:
        make_private(tmp_path / "file" / "below")
    assert cause_of(raised.value).cause is Cause.FOLDER


def test_open_folders_and_keys_are_known_where_they_come_from(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(StoreError) as store:
        make_private(tmp_path / "open")
    assert cause_of(store.value).cause is Cause.PERMISSION
    (tmp_path / "key").write_text("")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(CertificateError) as key:
        read_private(tmp_path / "key", "key", "a PEM file")
    assert cause_of(key.value).cause is Cause.PERMISSION
    with pytest.raises(CertificateError) as missing:
        read_private(tmp_path / "none", "key", "a PEM file")
    assert cause_of(missing.value).cause is Cause.FOLDER


def test_a_configuration_that_cannot_be_read_is_no_wrong_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path)
    assert cause_of(raised.value).cause is Cause.FOLDER
    (tmp_path / "wrong.toml").write_text("[run\n")
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / "wrong.toml")
    assert cause_of(raised.value).cause is Cause.DECISION


def test_a_host_with_too_little_memory_is_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        check_memory(make_config(), 1 << 30, "this server", memory=1 << 20)
    assert cause_of(raised.value).cause is Cause.MEMORY


def test_a_folder_in_use_or_of_another_run_is_known(tmp_path: Path) -> None:
    with Database(tmp_path, "a" * 64, []):
        with pytest.raises(StoreError) as raised:
            Database(tmp_path, "a" * 64, [])
        assert cause_of(raised.value).cause is Cause.IN_USE
    with pytest.raises(StoreError) as raised:
        Database(tmp_path, "b" * 64, [])
    assert cause_of(raised.value).cause is Cause.DAMAGED


def test_what_a_services_database_says_is_known() -> None:
    with pytest.raises(StoreError) as raised, service_database_errors(AT):
        raise OperationalError("UPDATE", None, sqlite(sqlite3.SQLITE_FULL))
    assert cause_of(raised.value).cause is Cause.DISK_FULL
    with pytest.raises(StoreError) as raised, service_database_errors(AT):
        raise OperationalError("UPDATE", None, postgres.OperationalError("refused"))
    assert cause_of(raised.value).cause is Cause.DATABASE


# Processes without a word, and words of other processes and servers.


@pytest.mark.parametrize(
    ("code", "obstacle"),
    [
        (-signal.SIGKILL, Obstacle(Cause.KILLED, signal.SIGKILL)),
        (-signal.SIGSEGV, Obstacle(Cause.KILLED, signal.SIGSEGV)),
        (Status.CONFIG, Obstacle(Cause.DECISION)),
        (Status.EXTRA, Obstacle(Cause.PACKAGE)),
        (Status.NETWORK, Obstacle(Cause.NETWORK)),
        (Status.TERMINATED, Obstacle(Cause.STOPPED)),
        (Status.STORAGE, Obstacle(Cause.FAULT)),
        (Status.DEFECT, Obstacle(Cause.FAULT)),
        (97, Obstacle(Cause.FAULT)),
    ],
)
def test_a_process_without_a_word_goes_by_its_status(code: int, obstacle: Obstacle) -> None:
    assert cause_of_exit(code) == obstacle


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_cure_and_words_and_travels(cause: Cause) -> None:
    assert cause in CURES
    assert CAUSE_TEXTS[cause]
    assert obstacle_of(cause.value, 2) == Obstacle(cause, 2)


@pytest.mark.parametrize("code", ["", "disk-on-fire", None, 7, ["disk-full"], "x" * 10**6])
def test_an_unknown_code_is_a_problem_of_its_own(code: object) -> None:
    assert obstacle_of(code, 3) == Obstacle(Cause.OTHER)
    assert CURES[Cause.OTHER] is Cure.OPERATOR


@pytest.mark.parametrize("detail", [-1, 1 << 31, True, 1.5, "2", None])
def test_a_bad_detail_is_left_out(detail: object) -> None:
    assert obstacle_of("network", detail) == Obstacle(Cause.NETWORK)


def test_signals_have_names() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(1000) == "signal 1000"
