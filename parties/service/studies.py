"""What a service remembers of its studies: a record of each, who approved it, and what happened.

Provides ``StudyState``, ``StudyRecord``, ``StoredProposal``, ``StudyEvent`` and ``StudyRepository``, which keeps them
in a service's database. A change and the event that tells of it are one transaction. All methods block, may be called
from any thread, and raise StoreError. Public: everything in it.
"""

import datetime
import enum
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Connection, Engine, RowMapping, insert, select, update

from parties.service.database import database_errors
from parties.service.tables import APPROVALS, EVENTS, STUDIES

DISTAIM, FLAIM = "distaim", "flaim"


class StudyState(enum.StrEnum):
    """Where a study stands at this server."""

    PROPOSED = "proposed"
    """Known, and not approved here."""
    APPROVED = "approved"
    """Approved here, and not by all."""
    QUEUED = "queued"
    """Approved by all; waits for a place among those that run."""
    WAITING = "waiting"
    """Started; the other servers are not there, or it is started again after a failure."""
    RUNNING = "running"
    CLOSED = "closed"
    """Runs, and takes no more owners."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


_COLUMNS = [
    name
    for name in STUDIES.c.keys()  # noqa: SIM118  # A collection of columns, no mapping.
    if name not in ("config", "certificates")
]

NOT_STARTED = (StudyState.PROPOSED, StudyState.APPROVED, StudyState.QUEUED)
ACTIVE = (StudyState.WAITING, StudyState.RUNNING, StudyState.CLOSED)
ENDED = (StudyState.FINISHED, StudyState.FAILED, StudyState.CANCELLED)


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study that the server ``proposer`` has proposed, and where it stands; ``turn`` is the number of its start.

    What was proposed is some 12 KB and stays in the book (``Book.proposed``).
    """

    digest: str
    kind: str
    run: str
    proposer: str
    proposed_at: datetime.datetime
    state: StudyState
    changed_at: datetime.datetime
    reason: str = ""
    turn: int | None = None
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    approvals: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredProposal:
    """What a study is: its configuration in TOML, and certificates, PEM texts by file name."""

    config: str
    certificates: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StudyEvent:
    """Something that happened: ``actor`` is a server's name or an operator; ``what`` is a word for programs."""

    at: datetime.datetime
    digest: str | None
    actor: str
    what: str
    text: str = ""

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "at": self.at.isoformat(timespec="seconds"),
            "digest": self.digest,
            "actor": self.actor,
            "what": self.what,
            "text": self.text,
        }


def utc_now() -> datetime.datetime:
    """UTC."""
    return datetime.datetime.now(datetime.UTC)


class StudyRepository:
    """The studies in a database, which errors call ``shown``."""

    def __init__(self, engine: Engine, shown: Path) -> None:
        self._engine = engine
        self._location = shown

    def studies(self) -> list[StudyRecord]:
        """All of them, in the order in which they came."""
        with self._transaction() as connection:
            columns = [STUDIES.c[name] for name in _COLUMNS]
            rows = connection.execute(select(*columns).order_by(STUDIES.c.proposed_at)).mappings()
            approvals: dict[str, set[str]] = {}
            for row in connection.execute(select(APPROVALS.c.digest, APPROVALS.c.server)):
                approvals.setdefault(row.digest, set()).add(row.server)
            return [_record_of(row, approvals.get(row["digest"], set())) for row in rows]

    def proposed(self, digest: str) -> StoredProposal:
        """What a study that is here is."""
        query = select(STUDIES.c.config, STUDIES.c.certificates).where(STUDIES.c.digest == digest)
        with self._transaction() as connection:
            row = connection.execute(query).one()
            return StoredProposal(row.config, json.loads(row.certificates))

    def add(self, study: StudyRecord, proposed: StoredProposal, entry: StudyEvent) -> None:
        """A new study."""
        values = {name: getattr(study, name) for name in _COLUMNS} | {"state": study.state.value}
        texts = {"config": proposed.config, "certificates": json.dumps(dict(proposed.certificates))}
        values |= texts
        with self._transaction() as connection:
            connection.execute(insert(STUDIES).values(values))
            _insert_event(connection, entry)

    def change(self, study: StudyRecord, entry: StudyEvent) -> StudyRecord:
        """Keep a study's state, reason, turn and approvals as they are now; the study with the time of that."""
        study = replace(study, changed_at=entry.at)
        kept = ("state", "reason", "turn", "changed_at", "started_at", "ended_at")
        values = {name: getattr(study, name) for name in kept} | {"state": study.state.value}
        with self._transaction() as connection:
            where = STUDIES.c.digest == study.digest
            connection.execute(update(STUDIES).where(where).values(values))
            approved = select(APPROVALS.c.server).where(APPROVALS.c.digest == study.digest)
            for server in sorted(study.approvals - set(connection.scalars(approved))):
                row = {"digest": study.digest, "server": server, "at": entry.at}
                connection.execute(insert(APPROVALS).values(row))
            _insert_event(connection, entry)
        return study

    def note(self, entry: StudyEvent) -> None:
        """Something that changed no study."""
        with self._transaction() as connection:
            _insert_event(connection, entry)

    def entries(self, digest: str | None = None, limit: int = 100) -> list[StudyEvent]:
        """What happened last, of one study or of all, the oldest first."""
        query = select(EVENTS).order_by(EVENTS.c.id.desc()).limit(limit)
        if digest is not None:
            query = query.where(EVENTS.c.digest == digest)
        with self._transaction() as connection:
            rows = connection.execute(query).mappings().all()
        return [
            StudyEvent(row["at"], row["digest"], row["actor"], row["what"], row["text"])
            for row in reversed(rows)
        ]

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with database_errors(self._location), self._engine.begin() as connection:
            yield connection


def _insert_event(connection: Connection, entry: StudyEvent) -> None:
    connection.execute(
        insert(EVENTS).values(
            at=entry.at,
            digest=entry.digest,
            actor=entry.actor,
            what=entry.what,
            text=entry.text,
        )
    )


def _record_of(row: RowMapping, approvals: set[str]) -> StudyRecord:
    known = {"state": StudyState(row["state"]), "approvals": frozenset(approvals)}
    return StudyRecord(**{**row, **known})
