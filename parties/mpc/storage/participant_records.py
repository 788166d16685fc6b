"""Participants' records in a store, as the servers agreed on them at the beginning of the latest round.

All values here are public.
"""

import json
from collections.abc import Iterable

from parties.mpc.exclusion import Exclusion
from parties.mpc.records import ParticipantRecord
from parties.mpc.storage.submissions import SubmissionStore
from parties.storage.database import Database

PARTICIPANT_RECORD_QUERY = "SELECT client, digest, round, excluded, servers FROM standing"


class RecordStore:
    """Participants' records of a store. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, database: Database, submissions: SubmissionStore) -> None:
        self._database = database
        self._submissions = submissions

    def save(self, records: Iterable[ParticipantRecord]) -> None:
        """Replaces the records of participants; durable on return."""
        rows = (
            (s.client, s.digest, s.round, s.excluded and s.excluded.value, json.dumps(s.by))
            for s in records
        )
        with self._database.transaction():
            self._database.enter("DELETE FROM standing", [()])
            self._database.enter("INSERT INTO standing VALUES (?, ?, ?, ?, ?)", rows)

    def all(self) -> list[ParticipantRecord]:
        """Records saved last, by client."""
        rows = self._database.rows(f"{PARTICIPANT_RECORD_QUERY} ORDER BY client")
        return [ParticipantRecord.from_row(*row) for row in rows]

    def find(self, client: str) -> ParticipantRecord | None:
        """Record of ``client``; None while the servers wait for it or for a later submission of it."""
        row = self._database.row(f"{PARTICIPANT_RECORD_QUERY} WHERE client = ?", client)
        found = None if row is None else ParticipantRecord.from_row(*row)
        if found is None or found.excluded in (None, Exclusion.INCOMPLETE):
            return found
        newest = self._submissions.upload_digest(client)
        return found if newest in (None, found.digest) else None
