"""A service's database: the module makes one in a folder, and reads one that an earlier tree has made."""

import datetime
from dataclasses import asdict, replace
from pathlib import Path

from parties.service.database import database_url, open_service_database
from parties.service.studies import StudyEvent, StudyRepository
from parties.service.study_record import StoredProposal, StudyRecord, StudyState

SERVER = "ab" * 32
_FIRST, _SECOND = "c1" * 32, "c2" * 32
_AT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def make_service(folder: Path) -> None:
    """The new database in ``folder`` has a study that runs, one that is proposed, and the events of both."""
    with open_service_database(database_url(folder), SERVER) as engine:
        book = StudyRepository(engine, folder)
        study = StudyRecord(_FIRST, "distaim", "stays", "alpha", _AT, StudyState.PROPOSED, _AT)
        proposed = StoredProposal("[run]", {"ca.crt": "PEM"})
        book.add(study, proposed, StudyEvent(_AT, _FIRST, "alpha", "proposed", "words"))
        both = frozenset({"alpha", "beta"})
        running = replace(study, state=StudyState.RUNNING, approvals=both, turn=2, started_at=_AT)
        book.change(running, StudyEvent(_AT, _FIRST, "beta", "started"))
        other = replace(study, digest=_SECOND, kind="flaim", reason="none", proposer="beta")
        book.add(other, proposed, StudyEvent(_AT, _SECOND, "beta", "proposed"))


def service_in(folder: Path) -> dict[str, object]:
    """The document has everything that the database in ``folder`` holds."""
    with open_service_database(database_url(folder), SERVER) as engine:
        book = StudyRepository(engine, folder)
        studies = [
            {**asdict(study), "approvals": sorted(study.approvals)} for study in book.studies()
        ]
        return {
            "studies": studies,
            "proposed": [asdict(book.proposed(digest)) for digest in (_FIRST, _SECOND)],
            "entries": [entry.to_dict() for entry in book.entries()],
            "of the first": [entry.to_dict() for entry in book.entries(_FIRST)],
        }
