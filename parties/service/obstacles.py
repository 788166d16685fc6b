"""Obstacles of studies and servers in words, such as "beta: its disk is full".

``waits`` lists the obstacles of a study by server, ``troubles`` those of the servers themselves, and ``waits_text``
formats them. The words are this server's own: other servers send codes (`parties.observability.failure_causes`). A
server's statement about itself is shown with its name and has no effect here. All values here are public.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parties.observability.clocks import Clocks, off_text
from parties.observability.failure_causes import Cause, Obstacle, signal_name

CAUSE_TEXTS: Mapping[Cause, str] = {
    Cause.DISK_FULL: "its disk is full",
    Cause.DISK: "its disk does not read or write",
    Cause.READ_ONLY: "its disk can only be read",
    Cause.PERMISSION: "it may not use files of its own (owner or mode)",
    Cause.FOLDER: "a file or folder of its own is missing or another one",
    Cause.DAMAGED: "what its folder holds is damaged, or of another run or version",
    Cause.MEMORY: "it has too little memory",
    Cause.FILES: "it may not open more files",
    Cause.IN_USE: "what it needs is in use by another process",
    Cause.DATABASE: "its database does not answer",
    Cause.COMPUTE: "its cluster or GPU cannot be used",
    Cause.PACKAGE: "a package is not installed there",
    Cause.KEY: "its key is not where it was, or another one is there",
    Cause.VERSION: "it and another server have different versions; all three need the same",
    Cause.CLOCK: "a certificate is not valid yet by its clock",
    Cause.EXPIRED: "a certificate has expired by its clock",
    Cause.TOO_FEW: "too few owners by its clock",
    Cause.KILLED: "its process was killed, as where memory runs out",
    Cause.STOPPED: "its process was stopped and is started again",
    Cause.NETWORK: "it does not reach another server",
    Cause.FAULT: "its process has failed and is tried again",
    Cause.DECISION: "it cannot go on without a new decision",
    Cause.OTHER: "it has a problem of its own",
}


@dataclass(frozen=True, slots=True)
class ServerWait:
    """Obstacle of the server ``name``: a ``cause``, its ``detail``, and both in words."""

    name: str
    cause: Cause
    detail: int | None
    text: str

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        return {
            "name": self.name,
            "cause": self.cause.value,
            "detail": self.detail,
            "text": self.text,
        }


def waits(
    names: Sequence[str], obstacles: Mapping[int, Obstacle | None], clocks: Clocks
) -> list[ServerWait]:
    """Returns the obstacle of each server, without servers that only miss others if another server reports a cause."""
    found = {pid: item for pid, item in obstacles.items() if item is not None}
    own = {pid: item for pid, item in found.items() if item.cause is not Cause.NETWORK}
    return [
        ServerWait(names[pid], item.cause, item.detail, obstacle_text(pid, item, names, clocks))
        for pid, item in sorted((own or found).items())
    ]


def obstacle_text(pid: int, obstacle: Obstacle, names: Sequence[str], clocks: Clocks) -> str:
    """Returns an obstacle of server ``pid`` in words."""
    cause, detail = obstacle.cause, obstacle.detail
    if cause in (Cause.CLOCK, Cause.EXPIRED, Cause.TOO_FEW) and pid in clocks.off:
        return clock_text(clocks.off[pid])
    if cause is Cause.KILLED and detail is not None:
        return f"its process was killed ({signal_name(detail)}), as where memory runs out"
    if cause is Cause.NETWORK and detail is not None and detail < len(names) and detail != pid:
        return f"it does not reach {names[detail]}"
    return CAUSE_TEXTS[cause]


def clock_text(seconds: float) -> str:
    """Returns the text for a clock that is off by the two others' clocks; ``seconds`` is the offset."""
    return f"its clock is {off_text(seconds)}, by the two others'"


def troubles(
    names: Sequence[str], obstacles: Mapping[int, Obstacle | None], clocks: Clocks
) -> list[str]:
    """Returns the problems of the servers themselves, independent of any study, a sentence each."""
    texts = [f"{names[pid]}: {clock_text(seconds)}" for pid, seconds in sorted(clocks.off.items())]
    if clocks.disagree:
        texts.append("the clocks of all three servers differ: no two of them agree")
    return texts + [waits_text(wait) for wait in waits(names, obstacles, clocks)]


def waits_text(*found: ServerWait) -> str:
    """Returns all obstacles as one text."""
    return "; ".join(f"{wait.name}: {wait.text}" for wait in found)
