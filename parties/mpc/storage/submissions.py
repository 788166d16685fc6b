"""Submissions in a store: this server's opened bodies, and the acceptance of uploads with the parts to be forwarded.

A client may have several versions, until the three servers have agreed on one (`parties.mpc.participants.listing`).
Secret: the bodies are one server's shares. Public: clients, versions, digests.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from parties.foundation.errors import (
    RunClosed,
    RunFull,
    StoreError,
    SubmissionConflict,
    SubmissionCounted,
    SubmissionTombstoned,
)
from parties.mpc.participants.finalized import FinalizedStore
from parties.mpc.participants.listing import MAX_PENDING_VERSIONS, Page
from parties.mpc.records import StoredSubmission
from parties.mpc.storage.bodies import OUTBOX, SUBMISSIONS
from parties.mpc.storage.folder_files import FolderFiles
from parties.mpc.storage.incoming import IncomingBody, OutgoingUpload
from parties.mpc.storage.outbox import Outbox
from parties.mpc.storage.queries import (
    all_submissions,
    find_submission,
    missing_clients,
    signed_uploads,
    undecided_page,
)
from parties.mpc.storage.run_state import RunState
from parties.mpc.submission.messages import Submission
from parties.mpc.submission.sealed_upload import SignedUpload
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.storage.database import Database


class SubmissionStore:
    """Submissions of a store. All methods may be called from any thread; all may raise StoreError."""

    def __init__(
        self,
        database: Database,
        files: FolderFiles,
        *,
        state: RunState,
        finalized: FinalizedStore,
        outbox: Outbox,
    ) -> None:
        self.directory = database.directory
        self._database = database
        self._files = files
        self._state = state
        self._finalized = finalized
        self._outbox = outbox
        self.admit: Callable[[str], object] = lambda client: None
        """Raises StoreError for a client that is not to be admitted here."""

    # Acceptance

    def incoming(self) -> IncomingBody:
        """See ``FolderFiles.incoming``."""
        return self._files.incoming()

    def check_upload(self, upload: SignedUpload, limit: int) -> bool:
        """True if this server's part of exactly this upload is stored already; False if it may be stored.

        Raises SubmissionConflict (another submission of this client is stored, of the same version or a later one),
        SubmissionTombstoned, SubmissionCounted, RunClosed, RunFull (``limit`` clients).
        """
        submission = upload.submission
        client = submission.client
        known = self._database.rows(
            "SELECT version, digest FROM submission WHERE client = ? ORDER BY version", client
        )
        if known and known[-1] == (submission.version, upload.upload.digest()):
            return True
        self._check_version(submission, [version for version, _ in known])
        self.admit(client)
        if self._state.closed_to_clients:
            raise RunClosed(self.directory, f"run {submission.run!r} takes no submissions any more")
        if not known and self._is_full(limit):
            raise RunFull(
                self.directory, f"run {submission.run!r} has its {limit} expected clients already"
            )
        return False

    def _check_version(self, submission: Submission, known: Sequence[int]) -> None:
        """Verifies that a version may be stored beside the known ones. Raises as ``check_upload``."""
        client, version = submission.client, submission.version
        if final := self._finalized.final(client):
            raise SubmissionCounted(
                self.directory,
                f"client {client!r} is counted in round {final.round}: what is released depends on it, and nothing "
                "can be taken back",
            )
        if version <= self._finalized.version(client):
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
        with self._database.held():
            known = self.check_upload(upload, limit)
            kept = [] if known else [(f"{SUBMISSIONS}/{name}", body)]
            kept += [] if outgoing is None else [(f"{OUTBOX}/{name}", outgoing.whole)]
            try:
                for file_name, incoming in kept:
                    if incoming.small is None:
                        self._files.take(incoming, file_name)
                with self._database.relaxed_durability():
                    for file_name, incoming in kept:
                        if incoming.small is not None:
                            row = (file_name, incoming.small)
                            self._database.enter("INSERT OR REPLACE INTO body VALUES (?, ?)", [row])
                    if not known:
                        # An earlier version need not be forwarded any more.
                        self._outbox.drop(upload.submission.client)
                        self._enter(upload, body, components, kept[0][0])
                    if outgoing is not None:
                        self._outbox.add(upload.submission.client, outgoing.pids, kept[-1][0])
            except StoreError:
                self._files.unlink_unnamed("submission")
                self._files.unlink_unnamed("outbox")
                raise
            if upload.submission.version > 1:
                self._files.drop_unnamed("outbox")
        self._database.flush()
        return not known

    def _enter(
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
        self._database.enter(f"INSERT INTO submission VALUES ({marks})", [row])  # noqa: S608

    def _is_full(self, limit: int) -> bool:
        """True if at least ``limit`` clients' submissions are stored.

        They are counted only if the largest row number reaches ``limit``.
        """
        row = self._database.row("SELECT max(rowid) FROM submission")
        at_most = 0 if row is None or row[0] is None else int(row[0])
        return at_most >= limit and self.count() >= limit

    # Stored submissions

    def all(self) -> list[StoredSubmission]:
        """See ``parties.mpc.storage.queries.all_submissions``."""
        return all_submissions(self._database)

    def page(self, up_to_round: int, after: str, revoked: Collection[str] = ()) -> Page:
        """See ``parties.mpc.storage.queries.undecided_page``."""
        return undecided_page(self._database, up_to_round, after, revoked)

    def stored(self, client: str, upload: str) -> StoredSubmission:
        """See ``parties.mpc.storage.queries.find_submission``."""
        return find_submission(self._database, client, upload)

    def missing(self, clients: Collection[str]) -> list[str]:
        """See ``parties.mpc.storage.queries.missing_clients``."""
        return missing_clients(self._database, clients)

    def signed(self, clients: Collection[str]) -> list[str]:
        """See ``parties.mpc.storage.queries.signed_uploads``."""
        return signed_uploads(self._database, clients)

    def count(self) -> int:
        """Number of clients with a stored submission."""
        row = self._database.row("SELECT count(DISTINCT client) FROM submission")
        return 0 if row is None else int(row[0])

    def read(self, client: str, version: int = 1) -> bytes:
        """Body of a version of ``client``. Raises StoreError if there is none or it is damaged."""
        row = self._database.row(
            "SELECT path, body_digest FROM submission WHERE client = ? AND version = ?",
            client,
            version,
        )
        if row is None:
            raise StoreError(
                self.directory,
                f"holds no submission of client {client!r}, version {version}",
            )
        return self._files.read(*row)

    # The newest version of a client

    def upload(self, client: str) -> SignedUpload | None:
        """Newest upload whose part is stored for ``client``, as its participant signed it, or None."""
        proof = self._newest("proof", client)
        return None if proof is None else SignedUpload.from_json(proof)

    def upload_digest(self, client: str) -> str | None:
        """Digest of the newest upload whose part is stored for ``client``, or None."""
        digest: str | None = self._newest("digest", client)
        return digest

    def newest_version(self, client: str) -> int:
        """Version of the newest upload, 0 without one."""
        return self._newest("version", client) or 0

    def first_round(self, client: str) -> int | None:
        """First round that the newest submission asks to be counted in, or None."""
        number: int | None = self._newest("first_round", client)
        return number

    def _newest(self, column: str, client: str) -> Any:
        query = f"SELECT {column} FROM submission WHERE client = ? ORDER BY version DESC LIMIT 1"  # noqa: S608
        row = self._database.row(query, client)
        return None if row is None else row[0]

    # Deletion

    def settle(self, client: str, version: int, withdrawal: SignedWithdrawal | None = None) -> None:
        """Records that nothing of ``client`` up to ``version`` will be counted; deletes its shares; durable on return.

        The reason is ``withdrawal``, or without one a later version.
        """
        with self._database.held():
            with self._database.transaction():
                self._finalized.settle(client, version)
                if withdrawal is not None:
                    self._finalized.add_withdrawal(withdrawal)
                self._database.enter(
                    "DELETE FROM submission WHERE client = ? AND version <= ?", [(client, version)]
                )
                if self.upload_digest(client) is None:
                    self._outbox.drop(client)
            self._files.drop_unnamed("submission")
            self._files.drop_unnamed("outbox")

    def drop_late(self) -> bool:
        """Deletes versions that came too late to replace a counted one; True if there were any."""
        late = self._database.rows(
            "SELECT s.rowid, s.client FROM submission s JOIN final f ON s.client = f.client "
            "WHERE s.digest <> f.upload"
        )
        for number, client in late:
            self._database.enter("DELETE FROM submission WHERE rowid = ?", [(number,)])
            self._outbox.drop(client)
        return bool(late)

    def forget_digests(self) -> None:
        """Deletes the digests of bodies and components. Clients and their uploads' digests are public, and stay."""
        self._database.enter(
            "UPDATE submission SET body_digest = '', own_digest = '', next_digest = ''", [()]
        )


def _file_name(upload: str) -> str:
    """Name of an upload's files, by its digest."""
    return upload[:32]
