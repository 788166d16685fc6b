"""What a service concludes from its own studies and from what the two others say of theirs: pure, without I/O.

Provides ``View``, what is known at a moment, and ``conclude``, the acts that follow. All three approve, then server 0
decides on the order: it gives a study its turn when all three have a place for one more, and the others start what has
a turn. So no two servers wait for one another with different studies. A server that is away holds up what is not
started, which could not run without it anyway. Public: everything.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from parties.service.peer_state import Standing, Statement
from parties.service.studies import ACTIVE, BEFORE, FLAIM, OVER, State, Study

_AT_ONCE = 4
"""Studies that are fetched before anything else is looked at again."""
_FARTHEST = 1_000_000
"""A study that another server says to have been started so much later than all others has no turn: it lies."""
_AGAIN = "it has failed there, and was approved again"
DECIDES = 0
"""The server that decides on the order."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """A study that server ``pid`` has, and this one not."""

    digest: str
    pid: int


@dataclass(frozen=True, slots=True)
class Approved:
    """Another server has approved it."""

    digest: str
    server: str


@dataclass(frozen=True, slots=True)
class Queue:
    """All have approved it."""

    digest: str


@dataclass(frozen=True, slots=True)
class Start:
    """It has its turn."""

    digest: str
    turn: int


@dataclass(frozen=True, slots=True)
class End:
    """It has ended at another server, and so here."""

    digest: str
    state: State
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class Help:
    """It is finished here, and another server needs the others once more to finish it."""

    digest: str


Act: TypeAlias = Fetch | Approved | Queue | Start | End | Help


@dataclass(frozen=True, slots=True)
class View:
    """What server ``pid`` of ``names`` knows: its ``studies``, how many it runs at once, what the others say now.

    ``heard`` has only statements that are fresh; ``refused`` are studies that were looked at and not taken; ``helped``
    are finished ones whose process runs once more.
    """

    pid: int
    names: Sequence[str]
    limit: int
    studies: Mapping[str, Study]
    heard: Mapping[int, Statement]
    refused: Mapping[str, str]
    helped: Collection[str] = ()

    @property
    def busy(self) -> int:
        """Studies of FLAIM that run here, which the others know nothing of."""
        return sum(s.kind == FLAIM and s.state in ACTIVE for s in self.studies.values())

    @property
    def order(self) -> dict[str, int]:
        """The turns that this server has decided on."""
        if self.pid != DECIDES:
            return {}
        return {
            digest: study.turn
            for digest, study in self.studies.items()
            if study.turn is not None and study.kind != FLAIM and study.state in ACTIVE
        }

    def needs(self, study: Study) -> set[str]:
        """Whose approval a study needs."""
        return {self.names[self.pid]} if study.kind == FLAIM else set(self.names)


def conclude(view: View) -> list[Act]:
    """What is to be done now, in this order; the next view shows what follows from it."""
    acts: list[Act] = list(_unknown(view))
    decided = view.heard.get(DECIDES)
    order = decided.order if decided else {}
    # What has its turn earlier starts earlier, also where this server hears of both at once.
    for study in sorted(view.studies.values(), key=lambda study: order.get(study.digest, 0)):
        acts += _approvals(view, study)
        acts += _from_others(view, study)
    acts += _own_turns(view)
    if view.pid == DECIDES:
        acts += _turns(view)
    return acts


def _unknown(view: View) -> Iterator[Act]:
    asked: set[str] = set()
    for pid, statement in view.heard.items():
        for digest, standing in statement.studies.items():
            known = digest in view.studies or digest in view.refused or digest in asked
            if not known and standing.state not in OVER and len(asked) < _AT_ONCE:
                asked.add(digest)
                yield Fetch(digest, pid)


def _approvals(view: View, study: Study) -> Iterator[Act]:
    if study.kind == FLAIM or study.state not in BEFORE:
        return
    for pid, standing in _standings(view, study):
        if standing.approved and view.names[pid] not in study.approvals:
            yield Approved(study.digest, view.names[pid])


def _from_others(view: View, study: Study) -> Iterator[Act]:
    """What follows for a study, one act at the most."""
    if study.state is State.APPROVED and view.needs(study) <= study.approvals:
        yield Queue(study.digest)
        return
    for pid, standing in _standings(view, study):
        same = standing.turn == study.turn
        if standing.state is State.CANCELLED and study.state not in OVER:
            yield End(study.digest, State.CANCELLED, standing.reason, view.names[pid])
            return
        if standing.state is State.FAILED and study.state in ACTIVE and same:
            yield End(study.digest, State.FAILED, standing.reason, view.names[pid])
            return
        if standing.state in BEFORE and study.state in ACTIVE and same:
            # It waits for the next turn: this one's end was not heard before the operators there approved it again.
            yield End(study.digest, State.FAILED, _AGAIN, view.names[pid])
            return
        done = study.state is State.FINISHED and study.digest not in view.helped
        if standing.calls and done and same:
            yield Help(study.digest)
            return
    decided = view.heard.get(DECIDES)
    turn = decided.order.get(study.digest) if decided else None
    if turn is not None and study.state is State.QUEUED and turn > (study.turn or 0):
        yield Start(study.digest, turn)


def _own_turns(view: View) -> Iterator[Act]:
    """Of FLAIM's studies, which wait for a place at this server alone."""
    running = sum(study.state in ACTIVE for study in view.studies.values())
    for study in _queued(view):
        if study.kind == FLAIM and running < view.limit:
            running += 1
            yield Start(study.digest, (study.turn or 0) + 1)


def _turns(view: View) -> Iterator[Act]:
    """The decisions of server 0."""
    if len(view.heard) < len(view.names) - 1:
        return
    others = list(view.heard.values())
    places = min([view.limit - view.busy, *(item.limit - item.busy for item in others)])
    running = {s.digest for s in view.studies.values() if s.kind != FLAIM and s.state in ACTIVE}
    for item in others:
        running |= {d for d, standing in item.studies.items() if standing.state in ACTIVE}
    last = _last_turn(view, others)
    for study in _queued(view):
        ready = [item.studies.get(study.digest) for item in others]
        if study.kind == FLAIM or len(running) >= places:
            continue
        if all(standing and standing.state is State.QUEUED for standing in ready):
            # Each of the others starts what has a later turn than it knows of that study.
            turn = 1 + max(last, *(standing.turn or 0 for standing in ready if standing))
            if turn > last + _FARTHEST:
                continue
            last = turn
            running.add(study.digest)
            yield Start(study.digest, turn)


def _last_turn(view: View, others: Sequence[Statement]) -> int:
    """The last turn that this server knows, or (its disk may be lost) that both others do.

    One other's word is not enough: it could use up all numbers, and no study would have a turn ever again.
    """
    own = max((study.turn or 0 for study in view.studies.values()), default=0)
    told = [max((s.turn or 0 for s in item.studies.values()), default=0) for item in others]
    return max(own, min(told, default=0))


def _queued(view: View) -> list[Study]:
    waiting = [study for study in view.studies.values() if study.state is State.QUEUED]
    return sorted(waiting, key=lambda study: (study.proposed_at, study.digest))


def _standings(view: View, study: Study) -> Iterator[tuple[int, Standing]]:
    for pid, statement in view.heard.items():
        if study.kind != FLAIM and study.digest in statement.studies:
            yield pid, statement.studies[study.digest]
