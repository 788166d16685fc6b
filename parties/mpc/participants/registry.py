"""Registry of participants that are held for a batch, counted or excluded, as the three servers have agreed.

``ParticipantRegistry`` lives in a server's database, so that memory does not grow with the number of participants. A
registry belongs to one process: a restarted server begins a new one from the running total that it resumes with. The
record of the clients counted for good is in `parties.mpc.participants.finalized`, so the registry is written with
relaxed durability: a power failure may undo it. All values here are public.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from parties.mpc.exclusion import Exclusion
from parties.mpc.records import CountedMember, ParticipantRecord, StoredSubmission
from parties.storage.database import Database, Row

TABLES = (
    """CREATE TABLE IF NOT EXISTS roll (
    client TEXT PRIMARY KEY, version INTEGER NOT NULL, upload TEXT NOT NULL, kind TEXT NOT NULL,
    capacity INTEGER NOT NULL, place INTEGER, round INTEGER, excluded TEXT, servers TEXT NOT NULL)
    STRICT, WITHOUT ROWID""",
    "CREATE UNIQUE INDEX IF NOT EXISTS roll_place ON roll (place) WHERE place IS NOT NULL",
    """CREATE TABLE IF NOT EXISTS gone (client TEXT PRIMARY KEY, version INTEGER NOT NULL)
    STRICT, WITHOUT ROWID""",
)
"""Tables of the registry.

In ``roll``, ``place`` is the position of a counted participant in the total, and ``kind`` the form's
``InputForm.together``; a participant that is neither counted nor ``excluded`` is held. In ``gone``, ``version`` is the
version up to which all three servers know that a participant has withdrawn, or is revoked.
"""
_INSERT = "INSERT OR REPLACE INTO roll VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_HELD = "place IS NULL AND excluded IS NULL"
_AMONG_NAMES = "client IN (SELECT value FROM json_each(?))"
_PAGE_ROWS = 1000
"""Rows in memory at a time, while all are iterated over."""


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """The upload of ``client`` and its ``version``, decided on or held; for a removed participant without an upload."""

    client: str
    version: int
    upload: str
    counted: bool
    excluded: Exclusion | None

    @property
    def held(self) -> bool:
        """True if the upload waits for a batch."""
        return not self.counted and self.excluded is None

    @property
    def gone(self) -> bool:
        """True if the participant has withdrawn, or is revoked: there is nothing to take out of the total."""
        return self.excluded in (Exclusion.WITHDRAWN, Exclusion.REVOKED)


class CountedMembers(Collection[CountedMember]):
    """Counted clients and their uploads in the order of the total, read from the registry on each access."""

    def __init__(self, registry: "ParticipantRegistry") -> None:
        self._registry = registry

    def __len__(self) -> int:
        return self._registry.counted

    def __iter__(self) -> Iterator[CountedMember]:
        return self._registry.counted_from()

    def __contains__(self, item: object) -> bool:
        return any(item == member for member in self)

    @property
    def names(self) -> "CountedNames":
        """Names of the counted clients."""
        return CountedNames(self)


class CountedNames(Collection[str]):
    """Names of ``members``, in their order."""

    def __init__(self, members: CountedMembers) -> None:
        self._members = members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return (client for client, _ in self._members)

    def __contains__(self, item: object) -> bool:
        return any(item == name for name in self)


class ParticipantRegistry:
    """Registry in a server's database. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sizes: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.directory})"

    # Numbers

    @property
    def counted(self) -> int:
        """Number of counted participants."""
        return self._size()[0]

    @property
    def held(self) -> int:
        """Number of held participants."""
        return self._size()[1]

    @property
    def known(self) -> int:
        """Number of held, counted and excluded participants."""
        return self._size()[2]

    def _size(self) -> tuple[int, int, int]:
        if (sizes := self._sizes) is None:
            query = f"SELECT count(place), count(*) FILTER (WHERE {_HELD}), count(*) FROM roll"  # noqa: S608
            found = self._database.row(query)
            sizes = self._sizes = (0, 0, 0) if found is None else (found[0], found[1], found[2])
        return sizes

    def held_by_kind(self) -> list[tuple[str, int, int]]:
        """Kinds (``InputForm.together``), each with its number of held participants and their capacity in rows."""
        query = f"SELECT kind, count(*), sum(capacity) FROM roll WHERE {_HELD} GROUP BY kind"  # noqa: S608
        return [(kind, owners, rows) for kind, owners, rows in self._database.rows(query)]

    # Entries

    def find(self, clients: Iterable[str]) -> dict[str, RegistryEntry]:
        """Entries of those ``clients`` that are in the registry."""
        query = f"SELECT client, version, upload, place, excluded FROM roll WHERE {_AMONG_NAMES}"  # noqa: S608
        return {
            client: RegistryEntry(
                client,
                version,
                upload,
                position is not None,
                None if word is None else Exclusion(word),
            )
            for client, version, upload, position, word in self._rows_of(query, clients)
        }

    def settled(self, clients: Iterable[str]) -> dict[str, int]:
        """Version up to which all three servers have decided on each of ``clients``; a held upload is undecided."""
        names = list(clients)
        query = f"SELECT client, version FROM roll WHERE {_AMONG_NAMES} AND NOT ({_HELD})"  # noqa: S608
        settled: dict[str, int] = dict(self._rows_of(query, names))
        gone = self._rows_of(f"SELECT client, version FROM gone WHERE {_AMONG_NAMES}", names)  # noqa: S608
        return settled | {client: max(v, settled.get(client, 0)) for client, v in gone}

    def _rows_of(self, query: str, clients: Iterable[str]) -> Sequence[Row]:
        return self._database.rows(query, json.dumps(list(clients)))

    @property
    def members(self) -> CountedMembers:
        """Counted clients and their uploads, as a collection."""
        return CountedMembers(self)

    def counted_from(self) -> Iterator[CountedMember]:
        """Counted clients and their uploads, in the order of the total."""
        query = "SELECT place, client, upload FROM roll WHERE place > ? ORDER BY place LIMIT ?"
        return ((client, upload) for _, client, upload in self._paged(query, -1))

    def records(self) -> Iterator[ParticipantRecord]:
        """Records of all decided participants, by name."""
        columns = "client, upload, round, excluded, servers"
        query = (
            f"SELECT {columns} FROM roll WHERE client > ? AND NOT ({_HELD}) ORDER BY client LIMIT ?"  # noqa: S608
        )
        return (ParticipantRecord.from_row(*row) for row in self._paged(query, ""))

    def _paged(self, query: str, before: int | str) -> Iterator[Row]:
        """Rows whose first column is behind ``before``, one page in memory at a time."""
        while page := self._database.rows(query, before, _PAGE_ROWS):
            yield from page
            before = page[-1][0]

    # Decisions

    def begin(
        self, members: Iterable[CountedMember], rounds: Mapping[str, int], round: int
    ) -> None:
        """Begins a new registry with the ``members`` of the resumed total.

        ``rounds`` has the round in which each was counted; for others it is ``round``.
        """
        rows = (
            (client, 0, upload, "", 0, position, rounds.get(client, round), None, "[]")
            for position, (client, upload) in enumerate(members)
        )
        with self._database.relaxed_durability():
            for table in ("roll", "gone"):
                self._database.enter(f"DELETE FROM {table}", [()])  # noqa: S608
            self._database.enter(_INSERT, rows)
        self._sizes = None

    def hold(self, submissions: Iterable[StoredSubmission], kind: str) -> None:
        """Holds submissions that are at all three servers, until a batch is full."""
        self._insert((*_leading_columns(s, kind), None, None, None, "[]") for s in submissions)

    def release(self) -> None:
        """Drops all held entries: the servers have to agree on them anew."""
        with self._database.relaxed_durability():
            self._database.enter(f"DELETE FROM roll WHERE {_HELD}", [()])  # noqa: S608
        self._sizes = None

    def count(self, submissions: Iterable[StoredSubmission], kind: str, round: int) -> None:
        """Counts submissions, behind the members of the total."""
        last = self._database.row("SELECT max(place) FROM roll")
        position = 0 if last is None or last[0] is None else last[0] + 1
        self._insert(
            (*_leading_columns(s, kind), number, round, None, "[]")
            for number, s in enumerate(submissions, start=position)
        )

    def exclude(self, records: Iterable[tuple[ParticipantRecord, int]]) -> None:
        """Enters records of excluded participants, each with the version that the record covers."""
        self._insert(
            (s.client, version, s.digest, "", 0, None, s.round, s.excluded, json.dumps(s.by))
            for s, version in records
        )

    def drop(self, clients: Iterable[str]) -> None:
        """Drops the entries of ``clients``, so that nothing is decided on them."""
        with self._database.relaxed_durability():
            self._database.enter(
                "DELETE FROM roll WHERE client = ?", ((client,) for client in clients)
            )
        self._sizes = None

    def end(self, client: str, version: int) -> None:
        """Enters that, as all three servers know, nothing of ``client`` up to ``version`` is to be counted."""
        with self._database.relaxed_durability():
            self._database.enter(
                "INSERT INTO gone VALUES (?1, ?2) ON CONFLICT DO UPDATE SET version = max(version, ?2)",
                [(client, version)],
            )

    def _insert(self, rows: Iterable[Sequence[object]]) -> None:
        with self._database.relaxed_durability():
            self._database.enter(_INSERT, rows)
        self._sizes = None


def _leading_columns(stored: StoredSubmission, kind: str) -> tuple[object, ...]:
    """First columns of the table ``roll``."""
    said = stored.submission
    return (said.client, said.version, stored.upload, kind, said.capacity)
