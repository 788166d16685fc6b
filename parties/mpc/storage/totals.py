"""Running totals in a store: this server's shares of the counts after the last rounds.

Secret: totals are shares. Public: the rounds, and their members.
"""

import hashlib
import io
import json
import secrets
from collections.abc import Sequence

import numpy as np

from parties.foundation.errors import StoreError
from parties.mpc.participants.finalized import Finalized, FinalizedStore
from parties.mpc.records import RunningTotal
from parties.mpc.storage.folder_files import FolderFiles, array_bytes, array_from
from parties.mpc.storage.submissions import SubmissionStore
from parties.storage.database import Database
from protocols.digests import KEY_BYTES
from protocols.ring import R32
from protocols.shares import Share

_COMMITMENT_KEY = "commitment_key"
_KEPT_TOTALS = 2
"""Number of totals kept. Servers may be one round apart after a kill, so the total before the latest is kept as well.
"""


class TotalStore:
    """Running totals of a store. All methods may be called from any thread; all may raise StoreError."""

    def __init__(
        self,
        database: Database,
        files: FolderFiles,
        finalized: FinalizedStore,
        submissions: SubmissionStore,
    ) -> None:
        self.directory = database.directory
        self._database = database
        self._files = files
        self._finalized = finalized
        self._submissions = submissions

    def save(self, total: RunningTotal) -> None:
        """Stores the running total after a round; durable on return. The one before it stays, older ones are deleted.

        Its members are counted for good, since every later opening may depend on them.
        """
        name = f"totals/round-{total.round:05d}-{secrets.token_hex(4)}.npy"
        data = array_bytes(np.stack([total.share.own, total.share.next]))
        self._files.write(name, data)
        row = (total.round, _members(total), hashlib.sha256(data).hexdigest(), name)
        with self._database.held(), self._database.transaction():
            self._database.enter("INSERT OR REPLACE INTO total VALUES (?, ?, ?, ?)", [row])
            self._finalized.add_finalized(Finalized(*who, total.round) for who in total.members)
            late = self._submissions.drop_late()
            self._database.enter(
                "DELETE FROM total WHERE round NOT IN (SELECT round FROM total ORDER BY round DESC LIMIT ?)",
                [(_KEPT_TOTALS,)],
            )
        self._files.drop_unnamed("total")
        if late:
            self._files.drop_unnamed("submission")
            self._files.drop_unnamed("outbox")

    def rounds(self) -> list[int]:
        """Rounds whose running total is here, oldest first."""
        return [row[0] for row in self._database.rows("SELECT round FROM total ORDER BY round")]

    def retain(self, rounds: Sequence[int]) -> None:
        """Keeps the totals of ``rounds`` only: not all three servers have the others."""
        others = [(number,) for number in self.rounds() if number not in rounds]
        self._database.enter("DELETE FROM total WHERE round = ?", others)
        self._files.drop_unnamed("total")

    def load(self, round: int, pid: int) -> RunningTotal:
        """Running total after ``round``, as server ``pid``'s share. Raises StoreError if it is missing or damaged."""
        row = self._database.row("SELECT clients, path, digest FROM total WHERE round = ?", round)
        if row is None:
            raise StoreError(self.directory, f"holds no running total of round {round}")
        own, next_ = array_from(self._files.read(row[1], row[2]))
        members = [(client, upload) for client, upload in json.loads(row[0])]
        return RunningTotal(round, Share(R32, pid, own, next_), members)

    def commitment_key(self) -> bytes:
        """Key of ``RunningTotal.commitment``: 32 random bytes, made at the first call; durable on return."""
        with self._database.held():
            key = self._database.meta(_COMMITMENT_KEY)
            if key is None:
                key = secrets.token_hex(KEY_BYTES)
                self._database.set_meta(_COMMITMENT_KEY, key)
        return bytes.fromhex(key)

    def discard_key(self) -> None:
        """Deletes the key of commitments."""
        self._database.drop_meta(_COMMITMENT_KEY)


def _members(total: RunningTotal) -> str:
    """Members of the total as JSON: a list of pairs."""
    text = io.StringIO()
    for member in total.members:
        text.write(("," if text.tell() else "[") + json.dumps(member))
    return text.getvalue() + "]" if text.tell() else "[]"
