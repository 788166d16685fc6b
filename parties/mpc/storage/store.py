"""Durable state of one compute server: submissions, running totals, participant records, checkpoints.

A store is a `parties.storage.database.Database` with files beside it. A file is written under another name, synced and
renamed before the row that names it is committed: after a kill at any moment every row is whole and its file complete,
and leftovers are deleted when the store is opened. Small bodies are in the database, named like files: one disk write
makes several concurrent ones durable (`parties.storage.database.Database.flush`). The server's privacy ledger is in the
same database (`parties.storage.privacy_ledger`).

Submissions are stored as opened bodies; uploads to be forwarded are stored sealed (`parties.mpc.storage.outbox`). A
client may have several versions, until the three servers have agreed on one (`parties.mpc.participants.listing`).

Secret: submissions and totals are one server's shares; their files have mode 0600, in folders of mode 0700, and are
deleted when the run has ended (``discard_shares``). Public: checkpoints. Source: `protocols` README section 2. Known
limits: a folder belongs to one run.
"""

import hashlib
import io
import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.foundation.errors import (
    RunClosed,
    RunFull,
    StoreError,
    StoreIncompatible,
    SubmissionConflict,
    SubmissionCounted,
    SubmissionTombstoned,
)
from parties.foundation.version import STORE_VERSION
from parties.mpc.exclusion import Exclusion
from parties.mpc.noise_keys import pack_keys, unpack_keys
from parties.mpc.participants.finalized import Finalized, FinalizedStore
from parties.mpc.participants.listing import MAX_PENDING_VERSIONS, Page
from parties.mpc.participants.registry import ParticipantRegistry
from parties.mpc.records import (
    Checkpoint,
    ParticipantRecord,
    RoundInputs,
    RunningTotal,
    StoredSubmission,
)
from parties.mpc.storage.bodies import OUTBOX, SUBMISSIONS, read_body
from parties.mpc.storage.incoming import IncomingBody, OutgoingUpload
from parties.mpc.storage.queries import (
    all_submissions,
    find_submission,
    missing_clients,
    undecided_page,
    unregistered_finalized,
)
from parties.mpc.storage.tables import STORE_MIGRATIONS, STORE_SCHEMA
from parties.mpc.submission.messages import Submission
from parties.mpc.submission.sealed_upload import SignedUpload
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.storage.database import Database
from parties.storage.files import disk_errors, write_atomic
from protocols.context import NoiseKeys
from protocols.digests import KEY_BYTES
from protocols.durable import sync
from protocols.ring import R32
from protocols.shares import Share

_BODY_FOLDERS = {
    "submission": SUBMISSIONS,
    "outbox": OUTBOX,
    "total": "totals",
    "checkpoint": "checkpoints",
    "estimate": "estimates",
}
"""Folder of the files that a table's rows name, by table."""
_SHARES = tuple(table for table in _BODY_FOLDERS if table not in ("checkpoint", "estimate"))
ENDED, FORGOTTEN, RHO = "ended", "forgotten", "rho"
"""Keys of the table ``meta``: time of the run's end, time of giving it up, and its whole budget."""
_COMMITMENT_KEY, _NOISE_KEYS = "commitment_key", "noise_keys"
PARTICIPANT_RECORD_QUERY = "SELECT client, digest, round, excluded, servers FROM standing"
_KEPT_TOTALS = 2
"""Number of totals kept. Servers may be one round apart after a kill, so the total before the latest is kept as well.
"""


class Store(Database):
    """One server's folder for one run. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, directory: Path, config_digest: str) -> None:
        """Opens or creates ``directory``. Raises StoreError: unwritable, in use, or of another run or configuration."""
        self.registry = ParticipantRegistry(self)
        self.admit: Callable[[str], object] = lambda client: None
        """Raises StoreError for a client that is not to be admitted here."""
        super().__init__(
            directory, config_digest, STORE_SCHEMA, version=STORE_VERSION, steps=STORE_MIGRATIONS
        )
        try:
            with disk_errors(directory, "opened"):
                for name in ("incoming", *_BODY_FOLDERS.values()):
                    (directory / name).mkdir(exist_ok=True, mode=0o700)
            self._sweep()
        except BaseException:
            self.close()
            raise

    def _sweep(self) -> None:
        """Deletes the files that no row names, which a kill left behind.

        An outbox row without a file was already delivered; the power failure came before its row was deleted.
        """
        waiting = self.rows(
            "SELECT path FROM outbox WHERE refused IS NULL AND path NOT IN (SELECT path FROM body)"
        )
        gone = [row for row in waiting if not (self.directory / row[0]).exists()]
        self.enter("DELETE FROM outbox WHERE path = ? AND refused IS NULL", gone)
        for table in _BODY_FOLDERS:
            self._drop_unnamed(table)
        self._empty("incoming")

    def _drop_unnamed(self, table: str) -> None:
        self._unlink_unnamed(table)
        self.enter(
            f"DELETE FROM body WHERE path LIKE ? AND path NOT IN (SELECT path FROM {table})",  # noqa: S608
            [(f"{_BODY_FOLDERS[table]}/%",)],
        )

    def _unlink_unnamed(self, table: str) -> None:
        with disk_errors(self.directory, "cleaned"):
            if not (there := list((self.directory / _BODY_FOLDERS[table]).iterdir())):
                return
            named = {row[0] for row in self.rows(f"SELECT path FROM {table}")}  # noqa: S608
            for path in there:
                if f"{_BODY_FOLDERS[table]}/{path.name}" not in named:
                    path.unlink()

    @property
    def closed_to_clients(self) -> bool:
        """True if the run takes no submissions any more."""
        return self.meta("closed_to_clients") is not None

    def close_to_clients(self) -> None:
        """Takes no submissions from now on."""
        self.set_meta("closed_to_clients", "yes")

    # The end

    @property
    def ended(self) -> bool:
        """True if all three servers are done, so that no share is needed any more."""
        return self.meta(ENDED) is not None

    def end(self) -> None:
        """Marks the run as done at all three servers; its secrets are due for deletion."""
        self._mark(ENDED)

    @property
    def forgotten(self) -> str | None:
        """Time at which the run was given up for good (ISO 8601, UTC), or None."""
        return self.meta(FORGOTTEN)

    def forget(self) -> None:
        """Gives the run up for good; its secrets are due for deletion."""
        self._mark(FORGOTTEN)

    def _mark(self, key: str) -> None:
        if self.meta(key) is None:
            self.set_meta(key, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    def discard_shares(self) -> None:
        """Deletes submissions and totals, and their rows and digests. May be repeated."""
        for table in _SHARES:
            self.discard_files(table)
        # The folder may hold an opened body that came after the run's end.
        self._empty("incoming")
        with self.transaction():
            # Participants and their uploads' digests are public, and stay.
            self.enter(
                "UPDATE submission SET body_digest = '', own_digest = '', next_digest = ''", [()]
            )
            self.enter("DELETE FROM body", [()])
            for table in _SHARES:
                if table != "submission":
                    self.enter(f"DELETE FROM {table}", [()])  # noqa: S608
            self.drop_meta(_COMMITMENT_KEY)
            self.drop_meta(_NOISE_KEYS)
        self.scrub()

    def discard_files(self, table: str) -> None:
        """Deletes the files that a table's rows name; small bodies stay."""
        self._empty(_BODY_FOLDERS[table])

    def _empty(self, name: str) -> None:
        folder = self.directory / name
        with disk_errors(folder, "deleted"):
            for path in folder.iterdir():
                path.unlink(missing_ok=True)
            sync(folder)

    # Submissions

    def incoming(self) -> IncomingBody:
        """New body to write to; leaving its ``with`` block drops it."""
        return IncomingBody(self.directory / "incoming" / secrets.token_hex(16))

    def check_upload(self, upload: SignedUpload, limit: int) -> bool:
        """True if this server's part of exactly this upload is stored already; False if it may be stored.

        Raises SubmissionConflict (another submission of this client is stored, of the same version or a later one),
        SubmissionTombstoned, SubmissionCounted, RunClosed, RunFull (``limit`` clients).
        """
        submission = upload.submission
        client = submission.client
        known = self.rows(
            "SELECT version, digest FROM submission WHERE client = ? ORDER BY version", client
        )
        if known and known[-1] == (submission.version, upload.upload.digest()):
            return True
        self._check_version(submission, [version for version, _ in known])
        self.admit(client)
        if self.closed_to_clients:
            raise RunClosed(self.directory, f"run {submission.run!r} takes no submissions any more")
        if not known and self._is_full(limit):
            raise RunFull(
                self.directory, f"run {submission.run!r} has its {limit} expected clients already"
            )
        return False

    def _check_version(self, submission: Submission, known: Sequence[int]) -> None:
        """Verifies that a version may be stored beside the known ones. Raises as ``check_upload``."""
        client, version = submission.client, submission.version
        if final := FinalizedStore(self).final(client):
            raise SubmissionCounted(
                self.directory,
                f"client {client!r} is counted in round {final.round}: what is released depends on it, and nothing "
                "can be taken back",
            )
        if version <= FinalizedStore(self).version(client):
            raise SubmissionTombstoned(
                self.directory,
                f"client {client!r} has withdrawn this submission, or replaced it",
            )
        if known and version <= max(known):
            raise SubmissionConflict(
                self.directory, f"client {client!r} is stored with another submission"
            )
        if len(known) >= MAX_PENDING_VERSIONS:
            raise SubmissionConflict(
                self.directory,
                f"client {client!r} has {len(known)} versions here that the servers have not met over",
            )

    def accept(
        self,
        upload: SignedUpload,
        body: IncomingBody,
        components: tuple[str, str],
        *,
        limit: int,
        outgoing: OutgoingUpload | None = None,
    ) -> bool:
        """Stores this server's ``body`` for good, and the upload to be forwarded; durable on return, all or nothing.

        False: the body was stored already. ``components`` are the hex digests of the own and next component. Raises as
        ``check_upload``.
        """
        body.sync()
        if outgoing is not None:
            outgoing.whole.sync()
        name = _file_name(upload.upload.digest())
        with self.held():
            known = self.check_upload(upload, limit)
            kept = [] if known else [(f"{SUBMISSIONS}/{name}", body)]
            kept += [] if outgoing is None else [(f"{OUTBOX}/{name}", outgoing.whole)]
            try:
                for file_name, incoming in kept:
                    if incoming.small is None:
                        self._move(incoming.path, file_name)
                with self.relaxed_durability():
                    for file_name, incoming in kept:
                        if incoming.small is not None:
                            row = (file_name, incoming.small)
                            self.enter("INSERT OR REPLACE INTO body VALUES (?, ?)", [row])
                    if not known:
                        # An earlier version need not be forwarded any more.
                        self._drop_outgoing(upload.submission.client)
                        self._enter_submission(upload, body, components, kept[0][0])
                    if outgoing is not None:
                        client = upload.submission.client
                        rows = [(client, pid, kept[-1][0], None) for pid in outgoing.pids]
                        self.enter("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?)", rows)
            except StoreError:
                self._unlink_unnamed("submission")
                self._unlink_unnamed("outbox")
                raise
            if upload.submission.version > 1:
                self._drop_unnamed("outbox")
        self.flush()
        return not known

    def _drop_outgoing(self, client: str) -> None:
        """Drops a client's outbox entries, whose upload is not the newest any more, or was withdrawn."""
        for table in ("outbox", "receipt"):
            self.enter(f"DELETE FROM {table} WHERE client = ?", [(client,)])  # noqa: S608

    def _enter_submission(
        self, upload: SignedUpload, body: IncomingBody, components: tuple[str, str], name: str
    ) -> None:
        submission = upload.submission
        row = (
            submission.client,
            submission.version,
            submission.canonical(),
            upload.upload.digest(),
            upload.to_json(),
            body.digest(),
            *components,
            submission.first_round,
            body.size,
            name,
            time.time(),
        )
        marks = ", ".join("?" * len(row))
        self.enter(f"INSERT INTO submission VALUES ({marks})", [row])  # noqa: S608

    def submissions(self) -> list[StoredSubmission]:
        """See ``parties.mpc.storage.queries.all_submissions``."""
        return all_submissions(self)

    def page(self, up_to_round: int, after: str, revoked: Collection[str] = ()) -> Page:
        """See ``parties.mpc.storage.queries.undecided_page``."""
        return undecided_page(self, up_to_round, after, revoked)

    def stored(self, client: str, upload: str) -> StoredSubmission:
        """See ``parties.mpc.storage.queries.find_submission``."""
        return find_submission(self, client, upload)

    def missing(self, clients: Collection[str]) -> list[str]:
        """See ``parties.mpc.storage.queries.missing_clients``."""
        return missing_clients(self, clients)

    def submission_count(self) -> int:
        """Number of clients with a stored submission."""
        row = self.row("SELECT count(DISTINCT client) FROM submission")
        return 0 if row is None else int(row[0])

    def _is_full(self, limit: int) -> bool:
        """True if at least ``limit`` clients' submissions are stored.

        They are counted only if the largest row number reaches ``limit``.
        """
        row = self.row("SELECT max(rowid) FROM submission")
        at_most = 0 if row is None or row[0] is None else int(row[0])
        return at_most >= limit and self.submission_count() >= limit

    def _newest(self, column: str, client: str) -> Any:
        query = f"SELECT {column} FROM submission WHERE client = ? ORDER BY version DESC LIMIT 1"  # noqa: S608
        row = self.row(query, client)
        return None if row is None else row[0]

    def upload_digest(self, client: str) -> str | None:
        """Digest of the newest upload whose part is stored for ``client``, or None."""
        digest: str | None = self._newest("digest", client)
        return digest

    def newest_version(self, client: str) -> int:
        """Version of the newest upload, 0 without one."""
        return self._newest("version", client) or 0

    def upload(self, client: str) -> SignedUpload | None:
        """Newest upload whose part is stored for ``client``, as its participant signed it, or None."""
        proof = self._newest("proof", client)
        return None if proof is None else SignedUpload.from_json(proof)

    def read_submission(self, client: str, version: int = 1) -> bytes:
        """Body of a version of ``client``. Raises StoreError if there is none or it is damaged."""
        row = self.row(
            "SELECT path, body_digest FROM submission WHERE client = ? AND version = ?",
            client,
            version,
        )
        if row is None:
            raise StoreError(
                self.directory, f"holds no submission of client {client!r}, version {version}"
            )
        return self._read(*row)

    # Finalized and settled clients

    def settle(self, client: str, version: int, withdrawal: SignedWithdrawal | None = None) -> None:
        """Records that nothing of ``client`` up to ``version`` will be counted; deletes its shares; durable on return.

        The reason is ``withdrawal``, or without one a later version.
        """
        with self.held():
            with self.transaction():
                FinalizedStore(self).settle(client, version)
                if withdrawal is not None:
                    FinalizedStore(self).add_withdrawal(withdrawal)
                self.enter(
                    "DELETE FROM submission WHERE client = ? AND version <= ?", [(client, version)]
                )
                if self.upload_digest(client) is None:
                    self._drop_outgoing(client)
            self._drop_unnamed("submission")
            self._drop_unnamed("outbox")

    def finalized(self) -> list[Finalized]:
        """See ``FinalizedStore.finalized``."""
        return FinalizedStore(self).finalized()

    def finalized_among(self, clients: Iterable[str]) -> dict[str, str]:
        """See ``FinalizedStore.finalized_among``."""
        return FinalizedStore(self).finalized_among(clients)

    def unregistered_finalized(self, after: str, upto: str | None) -> dict[str, str]:
        """See ``parties.mpc.storage.queries.unregistered_finalized``."""
        return unregistered_finalized(self, after, upto)

    def save_finalized(self, finals: Sequence[Finalized]) -> None:
        """See ``FinalizedStore.save_finalized``."""
        FinalizedStore(self).save_finalized(finals)

    def counted_from(self, client: str) -> int | None:
        """First round that counts ``client``'s submission, or may: a round's list closes before it begins.

        None if there is no submission, or no round will count it. Raises StoreError.
        """
        row = self._newest("first_round", client)
        record = self.participant_record(client)
        if record is not None and record.excluded is not Exclusion.INCOMPLETE:
            return record.round if record.excluded is None else None
        if row is None or self.closed_to_clients:
            return None
        first, begun = int(row), max(self.total_rounds(), default=-1)
        # A client of first round 1 is in the measurements of round 0 before it, if it comes in time.
        return max(0 if first == 1 else first, begun + 1)

    # Traffic of each client

    def add_traffic(self, client: str, *, received: int, sent: int) -> None:
        """Counts a request of ``client``: body bytes ``received`` and ``sent``.

        The entry survives a kill at once, but a power failure only after the next durable entry: it is not worth a disk
        write.
        """
        with self.relaxed_durability():
            self.enter(
                "INSERT INTO traffic VALUES (?1, 1, ?2, ?3) ON CONFLICT (client) DO UPDATE SET "
                "requests = requests + 1, received = received + ?2, sent = sent + ?3",
                [(client, received, sent)],
            )

    def traffic(self) -> dict[str, tuple[int, int, int]]:
        """Requests, body bytes received and body bytes sent, by client; refused requests included."""
        rows = self.rows("SELECT client, requests, received, sent FROM traffic ORDER BY client")
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    def traffic_bytes(self) -> tuple[int, int]:
        """Body bytes received and sent, of all clients."""
        row = self.row("SELECT total(received), total(sent) FROM traffic")
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    # Running totals

    def save_total(self, total: RunningTotal) -> None:
        """Stores the running total after a round; durable on return. The one before it stays, older ones are deleted.

        Its members are counted for good, since every later opening may depend on them.
        """
        name = f"totals/round-{total.round:05d}-{secrets.token_hex(4)}.npy"
        data = _npy(np.stack([total.share.own, total.share.next]))
        self._write(name, data)
        row = (total.round, _members(total), hashlib.sha256(data).hexdigest(), name)
        with self.held(), self.transaction():
            self.enter("INSERT OR REPLACE INTO total VALUES (?, ?, ?, ?)", [row])
            FinalizedStore(self).add_finalized(
                Finalized(*who, total.round) for who in total.members
            )
            late = self._drop_late()
            self.enter(
                "DELETE FROM total WHERE round NOT IN (SELECT round FROM total ORDER BY round DESC LIMIT ?)",
                [(_KEPT_TOTALS,)],
            )
        self._drop_unnamed("total")
        if late:
            self._drop_unnamed("submission")
            self._drop_unnamed("outbox")

    def _drop_late(self) -> bool:
        """Deletes versions that came too late to replace a counted one; True if there were any."""
        late = self.rows(
            "SELECT s.rowid, s.client FROM submission s JOIN final f ON s.client = f.client "
            "WHERE s.digest <> f.upload"
        )
        for number, client in late:
            self.enter("DELETE FROM submission WHERE rowid = ?", [(number,)])
            self._drop_outgoing(client)
        return bool(late)

    def total_rounds(self) -> list[int]:
        """Rounds whose running total is here, oldest first."""
        return [row[0] for row in self.rows("SELECT round FROM total ORDER BY round")]

    def retain_totals(self, rounds: Sequence[int]) -> None:
        """Keeps the totals of ``rounds`` only: not all three servers have the others."""
        others = [(number,) for number in self.total_rounds() if number not in rounds]
        self.enter("DELETE FROM total WHERE round = ?", others)
        self._drop_unnamed("total")

    def load_total(self, round: int, pid: int) -> RunningTotal:
        """Running total after ``round``, as server ``pid``'s share. Raises StoreError if it is missing or damaged."""
        row = self.row("SELECT clients, path, digest FROM total WHERE round = ?", round)
        if row is None:
            raise StoreError(self.directory, f"holds no running total of round {round}")
        own, next_ = self._read_array(row[1], row[2])
        members = [(client, upload) for client, upload in json.loads(row[0])]
        return RunningTotal(round, Share(R32, pid, own, next_), members)

    def commitment_key(self) -> bytes:
        """Key of ``RunningTotal.commitment``: 32 random bytes, made at the first call; durable on return."""
        with self.held():
            key = self.meta(_COMMITMENT_KEY)
            if key is None:
                key = secrets.token_hex(KEY_BYTES)
                self.set_meta(_COMMITMENT_KEY, key)
        return bytes.fromhex(key)

    # Participant records

    def save_records(self, records: Iterable[ParticipantRecord]) -> None:
        """Replaces the records of participants; durable on return."""
        rows = (
            (s.client, s.digest, s.round, s.excluded and s.excluded.value, json.dumps(s.by))
            for s in records
        )
        with self.transaction():
            self.enter("DELETE FROM standing", [()])
            self.enter("INSERT INTO standing VALUES (?, ?, ?, ?, ?)", rows)

    def records(self) -> list[ParticipantRecord]:
        """Records saved last, by client."""
        rows = self.rows(f"{PARTICIPANT_RECORD_QUERY} ORDER BY client")
        return [ParticipantRecord.from_row(*row) for row in rows]

    def participant_record(self, client: str) -> ParticipantRecord | None:
        """Record of ``client``; None while the servers wait for it or for a later submission of it."""
        row = self.row(f"{PARTICIPANT_RECORD_QUERY} WHERE client = ?", client)
        found = None if row is None else ParticipantRecord.from_row(*row)
        if found is None or found.excluded in (None, Exclusion.INCOMPLETE):
            return found
        return found if self.upload_digest(client) in (None, found.digest) else None

    # Inputs of openings

    def noise_keys(self) -> NoiseKeys | None:
        """Keys that openings' noise is drawn from, as long as the run lasts. Secret."""
        kept = self.meta(_NOISE_KEYS)
        return None if kept is None else unpack_keys(bytes.fromhex(kept))

    def save_noise_keys(self, keys: NoiseKeys) -> None:
        """Stores the keys of openings' noise; durable on return."""
        self.set_meta(_NOISE_KEYS, pack_keys(keys).hex())

    def inputs(self) -> list[RoundInputs]:
        """Recorded inputs of rounds."""
        rows = self.rows("SELECT round, digest, noise, made, skip FROM inputs ORDER BY round")
        return [RoundInputs(*row) for row in rows]

    def save_inputs(self, inputs: RoundInputs) -> None:
        """Records a round's inputs, replacing an earlier record; durable on return."""
        self.enter("INSERT OR REPLACE INTO inputs VALUES (?, ?, ?, ?, ?)", [inputs.to_list()])

    def save_estimate(self, round: int, estimate: bytes) -> None:
        """Stores the model's answers of ``round``; durable on return. Only the last two rounds are kept."""
        digest = hashlib.sha256(estimate).hexdigest()
        if self.estimates().get(round) == digest:
            return
        name = f"estimates/round-{round:05d}-{digest[:16]}"
        self._write(name, estimate)
        with self.transaction():
            self.enter("INSERT OR REPLACE INTO estimate VALUES (?, ?, ?)", [(round, digest, name)])
            self.enter("DELETE FROM estimate WHERE round < ?", [(round - 1,)])
        self._drop_unnamed("estimate")

    def note_estimate(self, round: int, digest: str) -> None:
        """Registers a model's digest without its content, in a replay."""
        self.enter("INSERT OR IGNORE INTO estimate VALUES (?, ?, '')", [(round, digest)])

    def estimates(self) -> dict[int, str]:
        """Digests of the stored models' answers, by round."""
        return dict(self.rows("SELECT round, digest FROM estimate ORDER BY round"))

    def estimate(self, round: int) -> bytes:
        """The model's answers of ``round``. Raises StoreError if they are missing or damaged."""
        row = self.row("SELECT path, digest FROM estimate WHERE round = ?", round)
        if row is None:
            raise StoreError(self.directory, f"holds no model of round {round}")
        return self._read(*row)

    # Released measurements

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Stores a released measurement; durable on return. Raises StoreError if a different one is stored."""
        key = (checkpoint.round, checkpoint.candidate)
        data = _npy(checkpoint.noisy)
        row = (*key, checkpoint.sigma, checkpoint.clients, hashlib.sha256(data).hexdigest())
        with self.held():
            known = self.row(
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
                self.enter("INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?)", [(*row, name)])

    def drop_checkpoint(self, round: int, candidate: int) -> None:
        """Drops a measurement that only this server had."""
        self.enter("DELETE FROM checkpoint WHERE round = ? AND candidate = ?", [(round, candidate)])
        # Its file is deleted when the store is opened next, like every file that no row names.

    def checkpoints(self) -> list[Checkpoint]:
        """Released measurements, by round, then in the order in which they were saved."""
        rows = self.rows(
            "SELECT round, candidate, sigma, clients, path, digest FROM checkpoint ORDER BY round, rowid"
        )
        return [
            Checkpoint(number, candidate, sigma, clients, self._read_array(path, digest))
            for number, candidate, sigma, clients, path, digest in rows
        ]

    # Files and rows

    def _move(self, source: Path, name: str) -> None:
        """Renames a synced file to ``name`` in this folder, durably."""
        target = self.directory / name
        with disk_errors(target):
            source.replace(target)
            sync(target.parent)

    def _write(self, name: str, data: bytes) -> None:
        write_atomic(self.directory / name, data, durable=True, secret=True)

    def _read(self, name: str, digest: str) -> bytes:
        data = read_body(self, name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreIncompatible(
                self.directory / name, "is damaged: its SHA-256 is not the one in the database"
            )
        return data

    def _read_array(self, name: str, digest: str) -> NDArray[Any]:
        data = self._read(name, digest)
        array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
        return array


def _file_name(upload: str) -> str:
    """Name of an upload's files, by its digest."""
    return upload[:32]


def _members(total: RunningTotal) -> str:
    """Members of the total as JSON: a list of pairs."""
    text = io.StringIO()
    for member in total.members:
        text.write(("," if text.tell() else "[") + json.dumps(member))
    return text.getvalue() + "]" if text.tell() else "[]"


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
