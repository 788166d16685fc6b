"""Repository of a service's studies: a record of each, its approvals, and an event log.

``StudyRepository`` is backed by the service's database. A change, its event and the event's line in the operators' log
are one transaction. All methods block, may be called from any thread, and raise StoreError. All values here are public.
"""

import datetime
import json
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import Connection, Engine, RowMapping, insert, select, update

from parties.observability.events import FieldValue
from parties.service.database import database_errors
from parties.service.events import Actor, EventName, event_words
from parties.service.operators_log import LogPage, OperatorsLog
from parties.service.study_record import StoredProposal, StudyRecord, StudyState
from parties.service.tables import APPROVALS, EVENTS, STUDIES

_COLUMNS = [
    name
    for name in STUDIES.c.keys()  # noqa: SIM118  # A collection of columns, no mapping.
    if name not in ("config", "certificates")
]


@dataclass(frozen=True, slots=True)
class StudyEvent:
    """Entry of the history: ``actor`` is a server's name or an operator; ``what`` is the event's name.

    ``fields`` are further ones, which the operators' log and the service's log have.
    """

    at: datetime.datetime
    digest: str | None
    actor: str
    what: str
    text: str = ""
    fields: Mapping[str, FieldValue] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form: ``event`` is the name, ``what`` the same in words."""
        named = {"event": self.what} if self.what in _EVENT_NAMES else {}
        what, text = event_words(self.what), self.text
        if self.what == EventName.STUDY_COMMANDED:
            what, text = f"{what} {text}", ""
        return {
            "at": self.at.isoformat(timespec="seconds"),
            "digest": self.digest,
            "actor": self.actor,
            "what": what,
            **named,
            "text": text,
        }

    def logged(self, study: str | None, state: str | None) -> dict[str, FieldValue]:
        """Returns the fields of the event, of a ``study`` by its run's name and in this ``state``."""
        subject = self.actor.subject if isinstance(self.actor, Actor) else ""
        of_study = {} if study is None else {"study": study, "digest": self.digest, "state": state}
        known = {**of_study, "actor": str(self.actor), "subject": subject, "reason": self.text}
        return {
            **self.fields,
            **{name: value for name, value in known.items() if value not in ("", None)},
        }


_EVENT_NAMES = frozenset(EventName)


def event_of(state: StudyState) -> EventName:
    """Returns the event of a study that enters this state."""
    return EventName(f"study.{state.value}")


def utc_now() -> datetime.datetime:
    """Returns the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


class StudyRepository:
    """Studies in a database; ``shown`` is the database's name in errors, ``log`` the operators' log, if it has one."""

    def __init__(self, engine: Engine, shown: Path, log: OperatorsLog | None = None) -> None:
        self._engine = engine
        self._location = shown
        self._log = log
        self._writing = threading.Lock()
        """Held by a transaction that writes: an entry of the log follows from the one before."""

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
        with self._writing, self._transaction() as connection:
            connection.execute(insert(STUDIES).values(values))
            self._insert_event(connection, entry, study.run, state=study.state.value)

    def change(self, study: StudyRecord, entry: StudyEvent) -> StudyRecord:
        """Stores the study's state, reason, turn, times and approvals; returns the study with its ``changed_at``."""
        study = replace(study, changed_at=entry.at)
        kept = ("state", "reason", "turn", "changed_at", "started_at", "ended_at")
        values = {name: getattr(study, name) for name in kept} | {"state": study.state.value}
        with self._writing, self._transaction() as connection:
            where = STUDIES.c.digest == study.digest
            connection.execute(update(STUDIES).where(where).values(values))
            approved = select(APPROVALS.c.server).where(APPROVALS.c.digest == study.digest)
            for server in sorted(study.approvals - set(connection.scalars(approved))):
                row = {"digest": study.digest, "server": server, "at": entry.at}
                connection.execute(insert(APPROVALS).values(row))
            self._insert_event(connection, entry, study.run, state=study.state.value)
        return study

    def note(self, entry: StudyEvent, study: StudyRecord | None = None) -> None:
        """Records an event without a change of a ``study``."""
        run, state = (None, None) if study is None else (study.run, study.state.value)
        with self._writing, self._transaction() as connection:
            self._insert_event(connection, entry, run, state=state)

    def log_page(self, after: int, limit: int) -> LogPage:
        """Returns lines of the operators' log that follow entry ``after``, ``limit`` at most."""
        if self._log is None:
            raise RuntimeError("the repository has no log")
        with self._writing, self._transaction() as connection:
            page = self._log.page(connection, after, limit)
        # A signature may take a while, by a key that another program holds: changes need not wait for it.
        return self._log.sealed(page)

    def _insert_event(
        self, connection: Connection, entry: StudyEvent, study: str | None, *, state: str | None
    ) -> None:
        connection.execute(
            insert(EVENTS).values(
                at=entry.at,
                digest=entry.digest,
                actor=str(entry.actor),
                what=entry.what,
                text=entry.text,
            )
        )
        if self._log is not None:
            at = entry.at.isoformat(timespec="milliseconds")
            fields = entry.logged(study, state)
            self._log.append(connection, {**fields, "at": at, "event": entry.what})

    def entries(
        self, digest: str | None = None, limit: int = 100, words: Collection[str] = ()
    ) -> list[StudyEvent]:
        """Returns the latest events of one study or of all, the oldest first; with ``words``, those of these alone."""
        query = select(EVENTS).order_by(EVENTS.c.id.desc()).limit(limit)
        if digest is not None:
            query = query.where(EVENTS.c.digest == digest)
        if words:
            query = query.where(EVENTS.c.what.in_(words))
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


def _record_of(row: RowMapping, approvals: set[str]) -> StudyRecord:
    known = {"state": StudyState(row["state"]), "approvals": frozenset(approvals)}
    return StudyRecord(**{**row, **known})
