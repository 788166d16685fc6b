"""Records of studies and their states, without the database that keeps them.

The process of one study has them, too, and would take a quarter of a second longer to start with the database.
"""

import datetime
import enum
from collections.abc import Mapping
from dataclasses import dataclass

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
    """Computing, or taking submissions."""
    CLOSED = "closed"
    """Running, and closed to further owners."""
    FINISHED = "finished"
    """Over, with a result."""
    FAILED = "failed"
    """Over after a failure; it is tried again when all approve it once more."""
    CANCELLED = "cancelled"
    """Over by a decision of one operator; its secrets are deleted."""


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
