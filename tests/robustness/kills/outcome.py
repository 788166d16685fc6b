"""Cases of faults and their outcomes, whose form is a line of JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

RUNS, FINISHED, CANCELLED = "runs", "finished", "cancelled"
"""Subjects of a case: three servers of one run, or three services whose study ends in this state."""


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """Server ``victim`` meets ``fault`` at its point ``number``."""

    fault: str
    victim: int
    number: int
    of: str = RUNS


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a case. ``at``: name of the point, "" if the run was over before.

    ``ended``: first exit code of each server, 0 for a service that stayed until the studies were over. ``tries``:
    number of restarts. ``failed``: True if a study failed, and was approved again. ``wrong``: description of what is
    wrong, or "".
    """

    case: Case
    at: str
    ended: tuple[int | None, ...]
    tries: int
    seconds: float
    wrong: str = ""
    failed: bool = False

    def to_row(self, commit: str) -> dict[str, object]:
        """Returns a line of the file, with the commit of the sources."""
        return {"commit": commit, **asdict(self)}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> tuple[str | None, "Outcome"]:
        """Reads a line; the commit is None if missing. Older lines are of runs, and lack ``of``."""
        fields = dict(row)
        commit = fields.pop("commit", None)
        case, ended = Case(**fields.pop("case")), tuple(fields.pop("ended"))
        return commit, cls(case=case, ended=ended, **fields)
