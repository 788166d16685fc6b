"""Releases in a store: recorded inputs of rounds, models, and released measurements. All values here are public."""

import hashlib

from parties.foundation.errors import StoreError
from parties.mpc.records import Checkpoint, RoundInputs
from parties.mpc.storage.folder_files import FolderFiles, array_bytes, array_from
from parties.storage.database import Database


class ReleaseStore:
    """Releases of a store, and what they go by. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, database: Database, files: FolderFiles) -> None:
        self._database = database
        self._files = files

    # Inputs of openings

    def inputs(self) -> list[RoundInputs]:
        """Recorded inputs of rounds."""
        query = "SELECT round, digest, noise, made, skip FROM inputs ORDER BY round"
        return [RoundInputs(*row) for row in self._database.rows(query)]

    def save_inputs(self, inputs: RoundInputs) -> None:
        """Records a round's inputs, replacing an earlier record; durable on return."""
        statement = "INSERT OR REPLACE INTO inputs VALUES (?, ?, ?, ?, ?)"
        self._database.enter(statement, [inputs.to_list()])

    def save_estimate(self, round: int, estimate: bytes) -> None:
        """Stores the model's answers of ``round``; durable on return. Only the last two rounds are kept."""
        digest = hashlib.sha256(estimate).hexdigest()
        if self.estimates().get(round) == digest:
            return
        name = f"estimates/round-{round:05d}-{digest[:16]}"
        self._files.write(name, estimate)
        with self._database.transaction():
            row = (round, digest, name)
            self._database.enter("INSERT OR REPLACE INTO estimate VALUES (?, ?, ?)", [row])
            self._database.enter("DELETE FROM estimate WHERE round < ?", [(round - 1,)])
        self._files.drop_unnamed("estimate")

    def note_estimate(self, round: int, digest: str) -> None:
        """Registers a model's digest without its content, in a replay."""
        statement = "INSERT OR IGNORE INTO estimate VALUES (?, ?, '')"
        self._database.enter(statement, [(round, digest)])

    def estimates(self) -> dict[int, str]:
        """Digests of the stored models' answers, by round."""
        return dict(self._database.rows("SELECT round, digest FROM estimate ORDER BY round"))

    def estimate(self, round: int) -> bytes:
        """The model's answers of ``round``. Raises StoreError if they are missing or damaged."""
        row = self._database.row("SELECT path, digest FROM estimate WHERE round = ?", round)
        if row is None:
            raise StoreError(self._database.directory, f"holds no model of round {round}")
        return self._files.read(*row)

    # Released measurements

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Stores a released measurement; durable on return. Raises StoreError if a different one is stored."""
        key = (checkpoint.round, checkpoint.candidate)
        data = array_bytes(checkpoint.noisy)
        row = (*key, checkpoint.sigma, checkpoint.clients, hashlib.sha256(data).hexdigest())
        with self._database.held():
            known = self._database.row(
                "SELECT round, candidate, sigma, clients, digest FROM checkpoint "
                "WHERE round = ? AND candidate = ?",
                *key,
            )
            if known is not None and known != row:
                raise StoreError(
                    self._database.directory,
                    f"round {key[0]}, candidate {key[1]} is stored with another measurement; servers disagree",
                )
            if known is None:
                name = f"checkpoints/round-{key[0]:05d}-{key[1]}.npy"
                self._files.write(name, data)
                statement = "INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?)"
                self._database.enter(statement, [(*row, name)])

    def drop_checkpoint(self, round: int, candidate: int) -> None:
        """Drops a measurement that only this server had."""
        statement = "DELETE FROM checkpoint WHERE round = ? AND candidate = ?"
        self._database.enter(statement, [(round, candidate)])
        # Its file is deleted when the store is opened next, like every file that no row names.

    def checkpoints(self) -> list[Checkpoint]:
        """Released measurements, by round, then in the order in which they were saved."""
        rows = self._database.rows(
            "SELECT round, candidate, sigma, clients, path, digest FROM checkpoint ORDER BY round, rowid"
        )
        return [
            Checkpoint(
                number, candidate, sigma, clients, array_from(self._files.read(path, digest))
            )
            for number, candidate, sigma, clients, path, digest in rows
        ]
