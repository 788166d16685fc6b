"""Repository of a service's studies: a record of each, its approvals, and an event log.

``StudyRepository`` is backed by the service's database. A change and its event are one transaction. All methods block,
may be called from any thread, and raise StoreError. All values here are public.
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

DISTAIM, FLAIM, SILOS = "distaim", "flaim", "silos"
"""Kinds of studies; the latter two have one server."""


class StudyState(enum.StrEnum):
    """State of a study at this server."""

    PROPOSED = "proposed"
    """Known, and not approved here."""
    APPROVED = "approved"
    """Approved here, and not by all."""
    QUEUED = "queued"
    """Approved by all; waits for its turn."""
    WAITING = "waiting"
    """Started; the other servers are missing, or it is restarted after a failure."""
    RUNNING = "running"
    CLOSED = "closed"
    """Running, and closed to further owners."""
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
    """State of a study that the server ``proposer`` has proposed; ``turn`` is the number of its last start.

    The proposal has some 12 KB and stays in the repository (``StudyRepository.proposed``).
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
    """Content of a study: its configuration in TOML, and certificates as PEM texts by file name."""

    config: str
    certificates: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StudyEvent:
    """Entry of the event log: ``actor`` is a server's name or an operator; ``what`` is a machine-readable word."""

    at: datetime.datetime
    digest: str | None
    actor: str
    what: str
    text: str = ""

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {
            "at": self.at.isoformat(timespec="seconds"),
            "digest": self.digest,
            "actor": self.actor,
            "what": self.what,
            "text": self.text,
        }


def utc_now() -> datetime.datetime:
    """Returns the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


class StudyRepository:
    """Studies in a database; ``shown`` is the database's name in errors."""

    def __init__(self, engine: Engine, shown: Path) -> None:
        self._engine = engine
        self._location = shown

    def studies(self) -> list[StudyRecord]:
        """Returns all studies in the order of their proposals."""
        with self._transaction() as connection:
            columns = [STUDIES.c[name] for name in _COLUMNS]
            rows = connection.execute(select(*columns).order_by(STUDIES.c.proposed_at)).mappings()
            approvals: dict[str, set[str]] = {}
            for row in connection.execute(select(APPROVALS.c.digest, APPROVALS.c.server)):
                approvals.setdefault(row.digest, set()).add(row.server)
            return [_record_of(row, approvals.get(row["digest"], set())) for row in rows]

    def proposed(self, digest: str) -> StoredProposal:
        """Returns the proposal of a known study."""
        query = select(STUDIES.c.config, STUDIES.c.certificates).where(STUDIES.c.digest == digest)
        with self._transaction() as connection:
            row = connection.execute(query).one()
            return StoredProposal(row.config, json.loads(row.certificates))

    def add(self, study: StudyRecord, proposed: StoredProposal, entry: StudyEvent) -> None:
        """Adds a new study."""
        values = {name: getattr(study, name) for name in _COLUMNS} | {"state": study.state.value}
        texts = {"config": proposed.config, "certificates": json.dumps(dict(proposed.certificates))}
        values |= texts
        with self._transaction() as connection:
            connection.execute(insert(STUDIES).values(values))
            _insert_event(connection, entry)

    def change(self, study: StudyRecord, entry: StudyEvent) -> StudyRecord:
        """Stores the study's state, reason, turn, times and approvals; returns the study with its ``changed_at``."""
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
        """Records an event without a change of a study."""
        with self._transaction() as connection:
            _insert_event(connection, entry)

    def entries(self, digest: str | None = None, limit: int = 100) -> list[StudyEvent]:
        """Returns the latest events of one study or of all, the oldest first."""
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
