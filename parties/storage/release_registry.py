"""Registry of a server's releases, outside the studies' folders: prevents a second release from another folder.

``ReleaseRegistry`` is a file of the operator that outlives every run, ``RegisteredFolder`` one folder of a run, and
``StudyRegistration`` the two together, which a server consults before it starts, before it admits an owner, and before
its first release. Studies are identified by configuration and server, and their folders by a random number in each: a
moved folder keeps its identity, and an old copy lacks charges that the registry has. A second release of a
configuration would have fresh noise that no owner has paid for; it needs a new configuration, which owners charge anew.

With a release come the submissions in it, as their owners signed them, or statements of a federation's participants,
and the agreed configuration: ``released_to`` returns those of an owner's key over all studies, for a budget that was
put back from an older copy.

All values here are public; paths are for the operator only. A transaction is durable at its end. Known limits: without
the file, or on another host, earlier releases are unknown; the owners' budgets (`parties.storage.owner_budget`) and the
two other servers' registries still have them.
"""

import hashlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parties.config import Config
from parties.foundation.errors import StudyReleased
from parties.foundation.times import iso_time
from parties.storage.shared_database import SharedDatabase

_KIND = b"SYNR"
_SCHEMA = (
    """CREATE TABLE study (
    config TEXT NOT NULL, server TEXT NOT NULL, store TEXT NOT NULL, run TEXT NOT NULL, folder TEXT NOT NULL,
    seal TEXT NOT NULL, begun_at REAL NOT NULL, released_at REAL, ended_at REAL, charges INTEGER NOT NULL,
    PRIMARY KEY (config, server, store)) STRICT""",
    """CREATE TABLE owner (
    config TEXT NOT NULL, server TEXT NOT NULL, store TEXT NOT NULL, client TEXT NOT NULL,
    PRIMARY KEY (config, server, client, store)) STRICT""",
    """CREATE TABLE IF NOT EXISTS signed (
    key TEXT NOT NULL, config TEXT NOT NULL, upload TEXT NOT NULL, PRIMARY KEY (key, config, upload)) STRICT""",
    """CREATE TABLE IF NOT EXISTS agreed (config TEXT PRIMARY KEY, document TEXT NOT NULL) STRICT""",
)
"""``signed`` has released uploads and statements by the hash of their owner's key, ``agreed`` the configurations that
they are for.

Older files have neither, and get both when they are opened: nothing is told of their studies.
"""


@dataclass(frozen=True, slots=True)
class RegisteredFolder:
    """A ``folder`` with a store of identity ``store``, of ``server`` in the run of configuration ``config``.

    ``seal`` is the hash of the public half of its sealing key, "" without one.
    """

    config: str
    server: str
    run: str
    store: str
    folder: Path
    seal: str = ""

    @classmethod
    def of_server(cls, config: Config, pid: int, store: str, folder: Path) -> "RegisteredFolder":
        """Returns the folder of compute server ``pid``."""
        party = config.require_parties()[pid]
        seal = hashlib.sha256(party.seal_to.public).hexdigest()
        return cls(config.digest(), party.name, config.run.id, store, folder, seal)

    @property
    def key(self) -> tuple[str, str, str]:
        """Primary key of the folder."""
        return self.config, self.server, self.store


@dataclass(frozen=True, slots=True)
class SignedInputs:
    """Inputs of a release: the ``agreed`` configuration (JSON), signed ``uploads`` by the hash of an owner's key."""

    agreed: str = ""
    uploads: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class FolderRecord:
    """A registry's record of a folder: number of charges and requested rounds, and ``ended`` if its run has ended."""

    charges: int
    ended: bool


class ReleaseRegistry:
    """Registry file at ``path``. All methods may be called from any thread and process; all may raise StoreError."""

    def __init__(self, path: Path) -> None:
        """Opens or makes the file. Raises StoreError: unwritable, damaged."""
        self.path = path
        self._shared = SharedDatabase(path, _KIND, _SCHEMA)

    def begin(self, study: RegisteredFolder) -> None:
        """Registers a folder at its start. Raises StudyReleased if another one has released this configuration."""
        with self._shared.transaction() as db:
            self._require_first(db, study)
            db.execute(
                "INSERT INTO study VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL, 0) "
                "ON CONFLICT DO UPDATE SET folder = ?5",
                (*study.key, study.run, str(study.folder.absolute()), study.seal, time.time()),
            )

    def release(
        self,
        study: RegisteredFolder,
        clients: Iterable[str],
        charges: int = 0,
        *,
        inputs: SignedInputs | None = None,
    ) -> None:
        """Records, before it happens, a release of ``clients`` from this folder.

        ``charges`` counts the folder's charges, and a federation's requested rounds with them; ``inputs`` are what the
        clients have signed. Raises as ``begin``.
        """
        with self._shared.transaction() as db:
            self._require_first(db, study)
            db.execute(
                "UPDATE study SET released_at = coalesce(released_at, ?), charges = max(charges, ?) "
                "WHERE config = ? AND server = ? AND store = ?",
                (time.time(), charges, *study.key),
            )
            db.executemany(
                "INSERT OR IGNORE INTO owner VALUES (?, ?, ?, ?)",
                ((*study.key, client) for client in clients),
            )
            if inputs is not None:
                db.execute(
                    "INSERT OR IGNORE INTO agreed VALUES (?, ?)", (study.config, inputs.agreed)
                )
                db.executemany(
                    "INSERT OR IGNORE INTO signed VALUES (?, ?, ?)",
                    ((key, study.config, upload) for key, upload in inputs.uploads),
                )

    def released_to(self, key: str) -> list[tuple[str, str]]:
        """Returns the released uploads that the owner with this key's hash has signed: configuration and upload."""
        query = "SELECT config, upload FROM signed WHERE key = ? ORDER BY rowid"
        with self._shared.reading() as db:
            return db.execute(query, (key,)).fetchall()

    def agreed_with(self, key: str, config: str) -> str | None:
        """Returns a configuration (JSON) of which this owner's key has a released upload; None without one."""
        query = (
            "SELECT document FROM agreed JOIN signed USING (config) WHERE config = ? AND key = ?"
        )
        with self._shared.reading() as db:
            row = db.execute(query, (config, key)).fetchone()
        return None if row is None else str(row[0])

    def record(self, config: str, store: str) -> FolderRecord | None:
        """Returns the record of the folder with this store in the run of ``config``; None for an unknown one."""
        with self._shared.reading() as db:
            row = db.execute(
                "SELECT max(charges), max(ended_at) FROM study WHERE config = ? AND store = ?",
                (config, store),
            ).fetchone()
        return None if row[0] is None else FolderRecord(int(row[0]), row[1] is not None)

    def check_charges(self, study: RegisteredFolder, charges: int) -> None:
        """Raises StudyReleased if this folder had more than ``charges`` before: it is an old copy."""
        with self._shared.reading() as db:
            row = db.execute(
                "SELECT charges FROM study WHERE config = ? AND server = ? AND store = ?", study.key
            ).fetchone()
        if row is not None and row[0] > charges:
            raise StudyReleased(
                study.folder,
                f"is an old copy of run {study.run}: it knows of {charges} charges and requests, all servers together "
                f"of no more, and {row[0]} were made (by {self.path}). Expected the folder as it was left, or a new "
                "configuration, which its data owners charge to their budgets anew",
            )

    def end(self, study: RegisteredFolder) -> None:
        """Records the end of this folder's run, after which its sealing key is no longer needed."""
        with self._shared.transaction() as db:
            db.execute(
                "UPDATE study SET ended_at = coalesce(ended_at, ?) WHERE config = ? AND server = ? AND store = ?",
                (time.time(), *study.key),
            )

    def check_client(self, study: RegisteredFolder, client: str) -> None:
        """Raises StudyReleased if ``client`` is in a release of this configuration from another folder."""
        with self._shared.reading() as db:
            row = db.execute(
                "SELECT released_at FROM owner JOIN study USING (config, server, store) "
                "WHERE config = ? AND server = ? AND store <> ? AND client = ? AND released_at IS NOT NULL",
                (*study.key, client),
            ).fetchone()
        if row is not None:
            raise StudyReleased(
                study.folder,
                f"client {client!r} is in a release of this configuration already, of {iso_time(row[0])}",
            )

    def released_elsewhere(self, study: RegisteredFolder) -> bool:
        """Returns true if this configuration has a release from another folder."""
        with self._shared.reading() as db:
            row = db.execute(
                "SELECT 1 FROM study WHERE config = ? AND server = ? AND store <> ? "
                "AND released_at IS NOT NULL LIMIT 1",
                study.key,
            ).fetchone()
        return row is not None

    def has_released_client(self, config: str, server: str, client: str) -> bool:
        """Returns true if ``client`` may be in a release of this configuration by ``server``, from any folder.

        It may be in one whose clients are not recorded: the others had made it before this server had lost its record.
        """
        owners = "SELECT client FROM owner AS o WHERE o.config = s.config AND o.server = s.server AND o.store = s.store"
        query = (
            "SELECT 1 FROM study AS s WHERE s.config = ? AND s.server = ? AND s.released_at IS NOT NULL "  # noqa: S608
            f"AND (? IN ({owners}) OR NOT EXISTS ({owners})) LIMIT 1"
        )
        with self._shared.reading() as db:
            row = db.execute(query, (config, server, client)).fetchone()
        return row is not None

    def sharing_seal(self, study: RegisteredFolder) -> Sequence[str]:
        """Returns the folders of other open studies with the same sealing key."""
        with self._shared.reading() as db:
            rows = db.execute(
                "SELECT folder FROM study WHERE seal = ? AND ended_at IS NULL "
                "AND NOT (config = ? AND server = ? AND store = ?)",
                (study.seal, *study.key),
            ).fetchall()
        return [row[0] for row in rows] if study.seal else []

    def _require_first(self, db: sqlite3.Connection, study: RegisteredFolder) -> None:
        row = db.execute(
            "SELECT folder, released_at FROM study WHERE config = ? AND server = ? AND store <> ? "
            "AND released_at IS NOT NULL",
            study.key,
        ).fetchone()
        if row is not None:
            raise StudyReleased(
                study.folder,
                f"run {study.run} of {study.server}, configuration {study.config[:12]}, was released from {row[0]} "
                f"({iso_time(row[1])}, by {self.path}). From here it would be released again, with fresh noise. "
                "Expected that folder, or a new configuration, which its data owners charge to their budgets anew",
            )


_SOLE_USE_S = 1.0


@dataclass(slots=True, eq=False)
class StudyRegistration:
    """A study in its registry."""

    register: ReleaseRegistry
    study: RegisteredFolder
    _released: str = ""
    """Digest of the clients last recorded in the registry."""
    _charges: int = -1
    _alone_until: float = 0.0
    """Monotonic time until which a recent check, without releases from another folder, is valid."""

    @classmethod
    def begin(cls, path: Path, study: RegisteredFolder) -> "StudyRegistration":
        """Registers ``study`` in the file at ``path``. Raises as ``ReleaseRegistry.begin``."""
        register = ReleaseRegistry(path)
        register.begin(study)
        return cls(register, study)

    def resume(self, charges: int) -> None:
        """Continues this folder after ``charges``, the number known to all servers together. Raises StudyReleased."""
        self.register.check_charges(self.study, charges)
        if charges:
            self.release((), charges)

    def release(
        self,
        clients: Collection[str],
        charges: int = 0,
        *,
        inputs: Callable[[], SignedInputs] | None = None,
    ) -> None:
        """See ``ReleaseRegistry.release``; does nothing if this process has recorded the same already.

        ``clients`` may be very many, and are iterated without being stored; ``inputs`` is called for new ones.
        """
        digest = hashlib.sha256()
        for client in clients:
            digest.update(client.encode() + b"\n")
        same = digest.hexdigest() == self._released
        if not same or charges > self._charges:
            signed = None if same or inputs is None or not clients else inputs()
            self.register.release(self.study, () if same else clients, charges, inputs=signed)
            self._released, self._charges = digest.hexdigest(), charges

    def keep(self, inputs: SignedInputs) -> None:
        """Records what participants have signed, before a release of theirs. Raises as ``ReleaseRegistry.begin``."""
        self.register.release(self.study, (), inputs=inputs)

    def check_client(self, client: str) -> None:
        """See ``ReleaseRegistry.check_client``; a clean result is valid for a second.

        It saves an owner a vain upload: ``release`` makes the binding check, within a transaction.
        """
        now = time.monotonic()
        if now < self._alone_until:
            return
        if not self.register.released_elsewhere(self.study):
            self._alone_until = now + _SOLE_USE_S
            return
        self.register.check_client(self.study, client)

    def end(self) -> None:
        """See ``ReleaseRegistry.end``."""
        self.register.end(self.study)

    def sharing_seal(self) -> Sequence[str]:
        """See ``ReleaseRegistry.sharing_seal``."""
        return self.register.sharing_seal(self.study)
