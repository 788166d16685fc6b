"""Durable state of one compute server: a folder with a database and files, and a class for each concern.

A ``Store`` is a `parties.storage.database.Database` with files beside it (`parties.mpc.storage.folder_files`). One disk
write makes several concurrent entries durable (`parties.storage.database.Database.flush`). The server's privacy ledger
is in the same database (`parties.storage.privacy_ledger`).

Submissions are stored as opened bodies; uploads to be forwarded are stored sealed (`parties.mpc.storage.outbox`).

Secret: submissions and totals are one server's shares, and are deleted when the run has ended (``discard_shares``).
Public: releases. Source: `protocols` README section 2. Known limits: a folder belongs to one run.
"""

from pathlib import Path

from parties.foundation.version import STORE_VERSION
from parties.mpc.exclusion import Exclusion
from parties.mpc.participants.finalized import FinalizedStore
from parties.mpc.participants.registry import ParticipantRegistry
from parties.mpc.storage.folder_files import BODY_FOLDERS, FolderFiles
from parties.mpc.storage.outbox import Outbox
from parties.mpc.storage.participant_records import RecordStore
from parties.mpc.storage.releases import ReleaseStore
from parties.mpc.storage.run_state import RunState
from parties.mpc.storage.submissions import SubmissionStore
from parties.mpc.storage.tables import STORE_MIGRATIONS, STORE_SCHEMA
from parties.mpc.storage.totals import TotalStore
from parties.mpc.storage.traffic import ClientTraffic
from parties.storage.database import Database

_SHARES = tuple(table for table in BODY_FOLDERS if table not in ("checkpoint", "estimate"))


class Store(Database):
    """One server's folder for one run. All methods may be called from any thread; all may raise StoreError.

    Attributes:
        state: State of the run (closed, ended, given up), and its noise keys.
        registry: Participants that are held, counted or excluded, in this process.
        finalized: Participants that are decided on for good.
        outbox: Uploads that wait for other servers.
        submissions: Submissions, and their bodies.
        totals: Running totals.
        records: Participants' records of the latest round.
        releases: Released measurements, and the inputs and models that they go by.
        traffic: Traffic of each client.
    """

    def __init__(self, directory: Path, config_digest: str) -> None:
        """Opens or creates ``directory``. Raises StoreError: unwritable, in use, or of another run or configuration."""
        super().__init__(
            directory, config_digest, STORE_SCHEMA, version=STORE_VERSION, steps=STORE_MIGRATIONS
        )
        self._assemble(FolderFiles(self))
        try:
            self._files.make_folders()
            self.outbox.drop_delivered()
            self._files.sweep()
        except BaseException:
            self.close()
            raise

    def _assemble(self, files: FolderFiles) -> None:
        """Makes the classes of all concerns."""
        self._files = files
        self.state = RunState(self)
        self.registry = ParticipantRegistry(self)
        self.finalized = FinalizedStore(self)
        self.outbox = Outbox(self)
        self.submissions = SubmissionStore(
            self, files, state=self.state, finalized=self.finalized, outbox=self.outbox
        )
        self.totals = TotalStore(self, files, self.finalized, self.submissions)
        self.records = RecordStore(self, self.submissions)
        self.releases = ReleaseStore(self, files)
        self.traffic = ClientTraffic(self)

    def counted_from(self, client: str) -> int | None:
        """First round that counts ``client``'s submission, or may: a round's list closes before it begins.

        None if there is no submission, or no round will count it. Raises StoreError.
        """
        first = self.submissions.first_round(client)
        record = self.records.find(client)
        if record is not None and record.excluded is not Exclusion.INCOMPLETE:
            return record.round if record.excluded is None else None
        if first is None or self.state.closed_to_clients:
            return None
        begun = max(self.totals.rounds(), default=-1)
        # A client of first round 1 is in the measurements of round 0 before it, if it comes in time.
        return max(0 if first == 1 else first, begun + 1)

    def discard_shares(self) -> None:
        """Deletes submissions and totals, and their rows and digests. May be repeated."""
        for table in _SHARES:
            self._files.discard(table)
        # The folder may hold an opened body that came after the run's end.
        self._files.discard_incoming()
        with self.transaction():
            self.submissions.forget_digests()
            self.enter("DELETE FROM body", [()])
            for table in _SHARES:
                if table != "submission":
                    self.enter(f"DELETE FROM {table}", [()])  # noqa: S608
            self.totals.discard_key()
            self.state.discard_keys()
        self.scrub()
