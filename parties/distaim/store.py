"""The durable state of one compute server: submissions, running totals, checkpoints and the privacy ledger.

A folder with an SQLite database (WAL, synchronous=FULL) and files. A file is written beside its place, synced and
renamed before the row that names it is committed, so that after a kill at any moment every row is whole and its file
complete; what a kill left behind is swept away when the store is opened. One process at a time may open a folder.

Secret: submissions and totals are one server's shares; the folder is made with mode 0700. Public:
checkpoints and ledger. ``charge`` is durable before it returns and refuses what the budget does not cover.
Source: `protocols` README section 2; https://www.sqlite.org/atomiccommit.html. Known limits: a charge that a crash left
without a release stays spent; a folder belongs to one run.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import math
import os
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import BudgetExceeded
from parties.distaim.stored import Checkpoint, LedgerEntry, StoredSubmission, Total
from parties.distaim.submission import Submission
from parties.errors import RunClosed, RunFull, StoreError, SubmissionConflict
from parties.files import create, disk_errors, write_whole
from protocols.durable import sync
from protocols.ring import R32
from protocols.shares import Share

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS submission (
    client TEXT PRIMARY KEY, header TEXT NOT NULL, digest TEXT NOT NULL, body_digest TEXT NOT NULL,
    own_digest TEXT NOT NULL, next_digest TEXT NOT NULL, first_round INTEGER NOT NULL, size INTEGER NOT NULL,
    path TEXT NOT NULL, received_at REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS traffic (
    client TEXT PRIMARY KEY, requests INTEGER NOT NULL, received INTEGER NOT NULL, sent INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS total (
    round INTEGER PRIMARY KEY, clients TEXT NOT NULL, digest TEXT NOT NULL, path TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS checkpoint (
    round INTEGER, candidate INTEGER, sigma REAL NOT NULL, clients INTEGER NOT NULL, digest TEXT NOT NULL,
    path TEXT NOT NULL, PRIMARY KEY (round, candidate)) STRICT;
CREATE TABLE IF NOT EXISTS ledger (
    entry INTEGER PRIMARY KEY, round INTEGER NOT NULL, step TEXT NOT NULL, event TEXT NOT NULL, rho REAL NOT NULL,
    charged_at REAL NOT NULL) STRICT;
"""
_FOLDERS = ("incoming", "submissions", "totals", "checkpoints")
_KEPT_TOTALS = 2
"""Servers may be one round apart when one is killed: the total before the latest is kept as well."""


class Incoming:
    """A body on its way in: written to a file of its own that vanishes unless the store accepts it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        with disk_errors(path):
            self._file: IO[bytes] = os.fdopen(create(path, secret=True), "wb", 0)

    def write(self, chunk: bytes) -> None:
        """Append ``chunk``. Raises StoreError where the disk does not take it."""
        with disk_errors(self.path):
            written = 0
            while written < len(chunk):
                written += self._file.write(memoryview(chunk)[written:])
        self._hash.update(chunk)
        self.size += len(chunk)

    def digest(self) -> str:
        """Hex SHA-256 of what was written."""
        return self._hash.hexdigest()

    def read(self) -> bytes:
        """All that was written. Raises StoreError."""
        with disk_errors(self.path, "read"):
            return self.path.read_bytes()

    def sync(self) -> None:
        """Make what was written durable. Raises StoreError."""
        with disk_errors(self.path):
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


class Store:
    """One server's folder for one run. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, directory: Path, config_digest: str) -> None:
        """Open or make ``directory``. Raises StoreError: unwritable, in use, or of another run or configuration."""
        self.directory = directory
        self._lock = threading.RLock()
        self._parsed: dict[int, StoredSubmission] = {}
        with disk_errors(directory, "opened"):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in _FOLDERS:
                (directory / name).mkdir(exist_ok=True, mode=0o700)
            self._held = (directory / "lock").open("ab")
        try:
            self._take_lock()
            with disk_errors(directory / "store.sqlite", "opened"):
                self._db = sqlite3.connect(
                    directory / "store.sqlite", isolation_level=None, check_same_thread=False
                )
            try:
                self._prepare(config_digest)
            except BaseException:
                self._db.close()
                raise
        except BaseException:
            self._held.close()
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                self.directory, "is in use by another process; expected a folder of its own"
            ) from error

    def _prepare(self, config_digest: str) -> None:
        with disk_errors(self.directory / "store.sqlite", "opened"):
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            with self._transaction():
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
        known = self.meta("config_digest")
        if known is None:
            self.set_meta("config_digest", config_digest)
        elif known != config_digest:
            raise StoreError(
                self.directory,
                "belongs to another run or configuration; expected an empty folder or the config it was made with",
            )
        self._sweep()

    def _sweep(self) -> None:
        """Delete the files that no row names: a kill came between file and row."""
        with disk_errors(self.directory, "cleaned"):
            for folder, table in (
                ("submissions", "submission"),
                ("totals", "total"),
                ("checkpoints", "checkpoint"),
            ):
                named = {row[0] for row in self._db.execute(f"SELECT path FROM {table}")}  # noqa: S608
                for path in (self.directory / folder).iterdir():
                    if f"{folder}/{path.name}" not in named:
                        path.unlink()
            for path in (self.directory / "incoming").iterdir():
                path.unlink()

    def close(self) -> None:
        """Close the database and let go of the folder."""
        with self._lock:
            self._db.close()
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Plain values of the run

    def meta(self, key: str) -> str | None:
        """The value kept under ``key``, or None."""
        row = self._one("SELECT value FROM meta WHERE key = ?", key)
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        """Keep ``value`` under ``key``; durable on return."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    @property
    def closed_to_clients(self) -> bool:
        """Whether the run takes no submissions any more."""
        return self.meta("closed_to_clients") is not None

    def close_to_clients(self) -> None:
        """Take no submissions from now on."""
        self.set_meta("closed_to_clients", "yes")

    # Submissions

    def incoming(self) -> Incoming:
        """A new body to write to; leave its ``with`` block to drop it."""
        return Incoming(self.directory / "incoming" / secrets.token_hex(16))

    def check_submission(self, submission: Submission, body_digest: str, limit: int) -> bool:
        """Whether exactly this submission is stored already; False: it may be stored.

        Raises SubmissionConflict (another one of this client is stored), RunClosed, RunFull (``limit`` clients).
        """
        row = self._one(
            "SELECT digest, body_digest FROM submission WHERE client = ?", submission.client
        )
        if row is not None:
            if tuple(row) == (submission.digest(), body_digest):
                return True
            raise SubmissionConflict(
                self.directory,
                f"client {submission.client!r} is stored with another submission",
            )
        if self.closed_to_clients:
            raise RunClosed(self.directory, f"run {submission.run!r} takes no submissions any more")
        if self._count("submission") >= limit:
            raise RunFull(
                self.directory, f"run {submission.run!r} has its {limit} expected clients already"
            )
        return False

    def accept(
        self,
        submission: Submission,
        incoming: Incoming,
        components: tuple[str, str],
        *,
        limit: int,
    ) -> bool:
        """Keep a whole body for good; durable on return. False: exactly this one was stored already.

        ``components`` are the hex digests of the own and next component. Raises as ``check_submission``.
        """
        incoming.sync()
        digest = incoming.digest()
        with self._lock:
            if self.check_submission(submission, digest, limit):
                return False
            name = f"submissions/{_file_name(submission.client)}"
            row = (
                submission.client,
                submission.canonical(),
                submission.digest(),
                digest,
                *components,
                submission.first_round,
                incoming.size,
                name,
                time.time(),
            )
            self._move(incoming.path, name)
            try:
                with self._transaction():
                    self._db.execute(
                        "INSERT INTO submission VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row
                    )
            except StoreError:
                (self.directory / name).unlink(missing_ok=True)
                raise
            return True

    def submissions(self, up_to_round: int | None = None) -> list[StoredSubmission]:
        """The stored submissions, by client name; with ``up_to_round`` those first counted in it or before."""
        # Rows are only ever added, and this is asked again and again while clients come: each is parsed once.
        with self._lock:
            rows = self._all(
                "SELECT rowid, header, body_digest, own_digest, next_digest, size, received_at FROM submission "
                "WHERE rowid > ? ORDER BY rowid",
                max(self._parsed, default=0),
            )
            for number, header, *rest in rows:
                submission = Submission.from_canonical(header)
                self._parsed[number] = StoredSubmission(submission, *rest)
            stored = list(self._parsed.values())
        due = [s for s in stored if up_to_round is None or s.submission.first_round <= up_to_round]
        return sorted(due, key=lambda s: s.submission.client)

    def submission_count(self) -> int:
        """How many submissions are stored."""
        return self._count("submission")

    def submission_digest(self, client: str) -> str | None:
        """The digest of the submission stored for ``client``, or None."""
        row = self._one("SELECT digest FROM submission WHERE client = ?", client)
        return None if row is None else str(row[0])

    def read_submission(self, client: str) -> bytes:
        """The body of ``client``. Raises StoreError where there is none or it is damaged."""
        row = self._one("SELECT path, body_digest FROM submission WHERE client = ?", client)
        if row is None:
            raise StoreError(self.directory, f"holds no submission of client {client!r}")
        return self._read(*row)

    # What each client cost

    def add_traffic(self, client: str, *, received: int, sent: int) -> None:
        """Count a request of ``client``: body bytes ``received`` and ``sent``.

        Survives a kill at once, a power failure only after the next durable entry: it is not worth a disk write.
        """
        with self._lock, disk_errors(self.directory / "store.sqlite"):
            self._db.execute("PRAGMA synchronous=NORMAL")
            try:
                with self._transaction():
                    self._db.execute(
                        "INSERT INTO traffic VALUES (?1, 1, ?2, ?3) ON CONFLICT (client) DO UPDATE SET "
                        "requests = requests + 1, received = received + ?2, sent = sent + ?3",
                        (client, received, sent),
                    )
            finally:
                self._db.execute("PRAGMA synchronous=FULL")

    def traffic(self) -> dict[str, tuple[int, int, int]]:
        """By client: requests, body bytes received, body bytes sent; refused requests included."""
        rows = self._all("SELECT client, requests, received, sent FROM traffic ORDER BY client")
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    # Running totals

    def save_total(self, total: Total) -> None:
        """Keep the running total after a round; durable on return. The one before it stays, older ones go."""
        name = f"totals/round-{total.round:05d}-{secrets.token_hex(4)}.npy"
        data = _npy(np.stack([total.share.own, total.share.next]))
        self._write(name, data)
        row = (total.round, json.dumps(total.clients), hashlib.sha256(data).hexdigest(), name)
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO total VALUES (?, ?, ?, ?)", row)
            self._db.execute(
                "DELETE FROM total WHERE round NOT IN (SELECT round FROM total ORDER BY round DESC LIMIT ?)",
                (_KEPT_TOTALS,),
            )
        kept = {row[0] for row in self._all("SELECT path FROM total")}
        with disk_errors(self.directory / "totals", "cleaned"):
            for path in (self.directory / "totals").iterdir():
                if f"totals/{path.name}" not in kept:
                    path.unlink()

    def total_rounds(self) -> list[int]:
        """The rounds whose running total is here, oldest first."""
        return [row[0] for row in self._all("SELECT round FROM total ORDER BY round")]

    def load_total(self, round: int, pid: int) -> Total:
        """The running total after ``round``, as server ``pid``'s share. Raises StoreError: none is here, or damaged."""
        row = self._one("SELECT clients, path, digest FROM total WHERE round = ?", round)
        if row is None:
            raise StoreError(self.directory, f"holds no running total of round {round}")
        own, next_ = self._read_array(row[1], row[2])
        return Total(round, tuple(json.loads(row[0])), Share(R32, pid, own, next_))

    # Released measurements

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a released measurement; durable on return. Raises StoreError where a different one is stored."""
        key = (checkpoint.round, checkpoint.candidate)
        data = _npy(checkpoint.noisy)
        row = (*key, checkpoint.sigma, checkpoint.clients, hashlib.sha256(data).hexdigest())
        with self._lock:
            known = self._one(
                "SELECT round, candidate, sigma, clients, digest FROM checkpoint "
                "WHERE round = ? AND candidate = ?",
                *key,
            )
            if known is not None and known != row:
                raise StoreError(
                    self.directory,
                    f"round {key[0]}, candidate {key[1]} is stored with another measurement; servers disagree",
                )
            if known is None:
                name = f"checkpoints/round-{key[0]:05d}-{key[1]}.npy"
                self._write(name, data)
                with self._transaction():
                    self._db.execute(
                        "INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?)", (*row, name)
                    )

    def adopt_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Keep the measurements that a peer has and this server lost. Raises StoreError where they contradict."""
        for checkpoint in checkpoints:
            self.save_checkpoint(checkpoint)

    def checkpoints(self) -> list[Checkpoint]:
        """The released measurements, by round, then in the order in which they were saved."""
        rows = self._all(
            "SELECT round, candidate, sigma, clients, path, digest FROM checkpoint ORDER BY round, rowid"
        )
        return [
            Checkpoint(number, candidate, sigma, clients, self._read_array(path, digest))
            for number, candidate, sigma, clients, path, digest in rows
        ]

    # The privacy ledger

    def charge(
        self, round: int, step: str, event_json: str, rho: float, budget_rho: float
    ) -> LedgerEntry:
        """Enter a charge, before anything is opened; durable on return.

        Raises BudgetExceeded, and enters nothing, where the budget does not cover it.
        """
        entry = LedgerEntry(round, step, event_json, rho)
        with self._transaction():
            spent = self.spent()
            # In exact arithmetic, as ``mechanisms.accounting.check_budget``.
            after = sum(map(Fraction, (*self._costs(), rho)))
            if not (math.isfinite(budget_rho) and after <= Fraction(budget_rho)):
                raise BudgetExceeded(
                    f"round {round}, {step}: a release of rho = {rho:.6g} was refused; {spent:.6g} of the budget "
                    f"of {budget_rho:.6g} is spent"
                )
            self._enter(entry)
        return entry

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is entered within becomes durable at its end, all or nothing."""
        with self._transaction():
            yield

    def ledger(self) -> list[LedgerEntry]:
        """All charges, in the order in which they were entered."""
        rows = self._all("SELECT round, step, event, rho FROM ledger ORDER BY entry")
        return [LedgerEntry(*row) for row in rows]

    def spent(self) -> float:
        """The zCDP cost of all charges."""
        return math.fsum(self._costs())

    def _costs(self) -> list[float]:
        return [entry.rho for entry in self.ledger()]

    def adopt_entries(self, entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        """Enter the charges that a peer has and this server lacks; durable on return. Returns what was entered.

        Equal charges are told apart by number: a peer that made one three times raises ours to three. The budget
        does not limit this: what a peer may have opened is spent.
        """
        missing = []
        with self._transaction():
            have = Counter(self.ledger())
            for entry in entries:
                have[entry] -= 1
                if have[entry] < 0:
                    missing.append(entry)
                    self._enter(entry)
        return missing

    def _enter(self, entry: LedgerEntry) -> None:
        row = (entry.round, entry.step, entry.event, entry.rho, time.time())
        self._db.execute(
            "INSERT INTO ledger (round, step, event, rho, charged_at) VALUES (?, ?, ?, ?, ?)", row
        )

    # Files and rows

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, durable at the end. Nests: the outermost one commits."""
        with self._lock, disk_errors(self.directory / "store.sqlite"):
            if self._db.in_transaction:
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, disk_errors(self.directory / "store.sqlite", "read"):
            return self._db.execute(query, values).fetchall()

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._all(query, *values)
        return rows[0] if rows else None

    def _count(self, table: str) -> int:
        row = self._one(f"SELECT count(*) FROM {table}")  # noqa: S608
        return 0 if row is None else int(row[0])

    def _move(self, source: Path, name: str) -> None:
        """Rename a synced file to ``name`` in this folder, durably."""
        target = self.directory / name
        with disk_errors(target):
            source.replace(target)
            sync(target.parent)

    def _write(self, name: str, data: bytes) -> None:
        write_whole(self.directory / name, data, durable=True, secret=True)

    def _read(self, name: str, digest: str) -> bytes:
        path = self.directory / name
        with disk_errors(path, "read"):
            data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(path, "is damaged: its SHA-256 is not the one in the database")
        return data

    def _read_array(self, name: str, digest: str) -> NDArray[Any]:
        data = self._read(name, digest)
        array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
        return array


def _file_name(client: str) -> str:
    """Client names may differ in case only, which some file systems do not tell apart."""
    return hashlib.sha256(client.encode()).hexdigest()[:32]


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
