"""What is played, and what came of it.

Provides ``Case`` and ``Outcome``, whose form is a line of JSON. Public.
"""

import json
from dataclasses import asdict, dataclass

RUNS, FINISHED, CANCELLED = "runs", "finished", "cancelled"
"""What a case is of: three servers of one run, or three services whose study ends in this state."""


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """At its point ``number`` server ``victim`` meets ``fault``."""

    fault: str
    victim: int
    number: int
    of: str = RUNS


@dataclass(frozen=True, slots=True)
class Outcome:
    """``at``: the point's name, "" where the run was over before. ``ended``: how each server ended the first time.

    ``tries``: how often they were started again. ``failed``: whether a study failed, and was approved again. ``wrong``:
    what is not as it should be; "" where all is. A service that was there until the studies were over has ended with 0.
    """

    case: Case
    at: str
    ended: tuple[int | None, ...]
    tries: int
    seconds: float
    wrong: str = ""
    failed: bool = False

    def to_json(self, commit: str) -> str:
        """For a file's line, with the sources that were played."""
        return json.dumps({"commit": commit, **asdict(self)})

    @classmethod
    def from_json(cls, line: str) -> tuple[str | None, "Outcome"]:
        """The inverse; None of a line that does not say its sources. Older lines are of runs, and do not say it."""
        fields = json.loads(line)
        commit = fields.pop("commit", None)
        case, ended = Case(**fields.pop("case")), tuple(fields.pop("ended"))
        return commit, cls(case=case, ended=ended, **fields)
