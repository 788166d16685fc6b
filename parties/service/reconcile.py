"""Scheduler of a service: pure functions from its own studies and the states of the two others to actions.

``reconcile`` returns the actions that follow from an ``ObservedState``. All three servers approve a study; then server
0 decides on the order: it gives a study its turn when all three have capacity for one more, and the others start the
studies that have a turn. So no two servers wait for one another with different studies. A server that is away delays
only studies that have not started, and those could not run without it. All values here are public.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from parties.service.peer_state import PeerState, StudySnapshot
from parties.service.study_record import (
    ACTIVE,
    DISTAIM,
    ENDED,
    NOT_STARTED,
    StudyRecord,
    StudyState,
)

_MAX_FETCHES = 4
"""Maximum number of studies fetched in one step."""
_MAX_TURN_GAP = 1_000_000
"""Maximum gap between turns: a server that claims a later one for a study is lying, and the study gets no turn."""
_APPROVED_AGAIN = "it has failed there, and was approved again"
_FOR_GOOD = (StudyState.FINISHED, StudyState.CANCELLED)
"""Ends that no operator can take back; a study that has failed may still be approved again, or cancelled."""
ORDERING_SERVER = 0
"""Number of the server that decides on the order."""


@dataclass(frozen=True, slots=True)
class FetchStudy:
    """Fetch a study that server ``pid`` has and this one has not."""

    digest: str
    pid: int


@dataclass(frozen=True, slots=True)
class RecordApproval:
    """Record the approval by another server."""

    digest: str
    server: str


@dataclass(frozen=True, slots=True)
class QueueStudy:
    """Queue a study that all servers have approved."""

    digest: str


@dataclass(frozen=True, slots=True)
class StartStudy:
    """Start a study that has its turn."""

    digest: str
    turn: int


@dataclass(frozen=True, slots=True)
class EndStudy:
    """End a study that has ended at another server."""

    digest: str
    state: StudyState
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class RerunStudy:
    """Run a study again that is finished here, since another server needs its peers to finish."""

    digest: str


Action: TypeAlias = FetchStudy | RecordApproval | QueueStudy | StartStudy | EndStudy | RerunStudy


@dataclass(frozen=True, slots=True)
class ObservedState:
    """State that server ``pid`` of ``names`` observes: its ``studies``, its ``limit``, and the states of the others.

    Attributes:
        heard: Unexpired states of the others.
        refused: Studies that were checked and not accepted.
        rerunning: Finished studies whose process runs once more.
    """

    pid: int
    names: Sequence[str]
    limit: int
    studies: Mapping[str, StudyRecord]
    heard: Mapping[int, PeerState]
    refused: Mapping[str, str]
    rerunning: Collection[str] = ()

    @property
    def busy(self) -> int:
        """Number of studies of one server that run here, which are unknown to the others."""
        return sum(s.kind != DISTAIM and s.state in ACTIVE for s in self.studies.values())

    @property
    def order(self) -> dict[str, int]:
        """Turns that this server has decided on, by digest."""
        if self.pid != ORDERING_SERVER:
            return {}
        return {
            digest: study.turn
            for digest, study in self.studies.items()
            if study.turn is not None and study.kind == DISTAIM and study.state in ACTIVE
        }

    def needs(self, study: StudyRecord) -> set[str]:
        """Returns the names of the servers that have to approve the study."""
        return {self.names[self.pid]} if study.kind != DISTAIM else set(self.names)


def reconcile(view: ObservedState) -> list[Action]:
    """Returns the actions due now, in order; the next observed state includes their effects."""
    acts: list[Action] = list(_fetch_unknown(view))
    decided = view.heard.get(ORDERING_SERVER)
    order = decided.order if decided else {}
    # An earlier turn starts earlier, also if this server learns of both at once.
    for study in sorted(view.studies.values(), key=lambda study: order.get(study.digest, 0)):
        acts += _approvals(view, study)
        acts += _follow_peers(view, study)
    acts += _local_starts(view)
    if view.pid == ORDERING_SERVER:
        acts += _ordered_starts(view)
    return acts


def _fetch_unknown(view: ObservedState) -> Iterator[Action]:
    asked: set[str] = set()
    for pid, statement in view.heard.items():
        for digest, snapshot in statement.studies.items():
            known = digest in view.studies or digest in view.refused or digest in asked
            if not known and snapshot.state not in ENDED and len(asked) < _MAX_FETCHES:
                asked.add(digest)
                yield FetchStudy(digest, pid)


def _approvals(view: ObservedState, study: StudyRecord) -> Iterator[Action]:
    if study.kind != DISTAIM or study.state not in NOT_STARTED:
        return
    for pid, snapshot in _peer_snapshots(view, study):
        if snapshot.approved and view.names[pid] not in study.approvals:
            yield RecordApproval(study.digest, view.names[pid])


def _follow_peers(view: ObservedState, study: StudyRecord) -> Iterator[Action]:
    """Yields the action that follows for a study, at most one."""
    if study.state is StudyState.APPROVED and view.needs(study) <= study.approvals:
        yield QueueStudy(study.digest)
        return
    for pid, snapshot in _peer_snapshots(view, study):
        same = snapshot.turn == study.turn
        if snapshot.state is StudyState.CANCELLED and study.state not in _FOR_GOOD:
            yield EndStudy(study.digest, StudyState.CANCELLED, snapshot.reason, view.names[pid])
            return
        if snapshot.state is StudyState.FAILED and study.state in ACTIVE and same:
            yield EndStudy(study.digest, StudyState.FAILED, snapshot.reason, view.names[pid])
            return
        if snapshot.state in NOT_STARTED and study.state in ACTIVE and same:
            # The study waits for its next turn: its operators approved it again before the end of this turn was known.
            yield EndStudy(study.digest, StudyState.FAILED, _APPROVED_AGAIN, view.names[pid])
            return
        done = study.state is StudyState.FINISHED and study.digest not in view.rerunning
        if snapshot.calls and done and same:
            yield RerunStudy(study.digest)
            return
    decided = view.heard.get(ORDERING_SERVER)
    turn = decided.order.get(study.digest) if decided else None
    if turn is not None and study.state is StudyState.QUEUED and turn > (study.turn or 0):
        yield StartStudy(study.digest, turn)


def _local_starts(view: ObservedState) -> Iterator[Action]:
    """Yields starts of studies of one server, which wait for capacity at this server only."""
    running = sum(study.state in ACTIVE for study in view.studies.values())
    for study in _queued(view):
        if study.kind != DISTAIM and running < view.limit:
            running += 1
            yield StartStudy(study.digest, (study.turn or 0) + 1)


def _ordered_starts(view: ObservedState) -> Iterator[Action]:
    """Yields the starts that server 0 decides on."""
    if len(view.heard) < len(view.names) - 1:
        return
    others = list(view.heard.values())
    capacity = min([view.limit - view.busy, *(item.limit - item.busy for item in others)])
    running = {s.digest for s in view.studies.values() if s.kind == DISTAIM and s.state in ACTIVE}
    for item in others:
        running |= {d for d, snapshot in item.studies.items() if snapshot.state in ACTIVE}
    last = _last_turn(view, others)
    for study in _queued(view):
        peers = [item.studies.get(study.digest) for item in others]
        if study.kind != DISTAIM or len(running - {study.digest}) >= capacity:
            continue
        turn = _turn_under_way(study, peers) or _next_turn(peers, last)
        if turn is not None and turn <= last + _MAX_TURN_GAP:
            last = max(last, turn)
            running.add(study.digest)
            yield StartStudy(study.digest, turn)


def _next_turn(peers: Sequence[StudySnapshot | None], last: int) -> int | None:
    """Returns a turn for a study that both others have queued, None where they have not."""
    if not all(peer and peer.state is StudyState.QUEUED for peer in peers):
        return None
    # Each of the others starts a study only with a turn that is later than its own record of it.
    return 1 + max(last, *(peer.turn or 0 for peer in peers if peer))


def _turn_under_way(study: StudyRecord, peers: Sequence[StudySnapshot | None]) -> int | None:
    """Returns the turn that another server is in, and the third as well or not yet; None if there is none.

    This server decided on it, and has lost that with its folder.
    """
    turns = {peer.turn for peer in peers if peer and peer.state in ACTIVE}
    turn = turns.pop() if len(turns) == 1 else None
    if turn is None or turn <= (study.turn or 0):
        return None
    late = [peer for peer in peers if peer is None or peer.state not in ACTIVE]
    joins = all(
        peer and peer.state is StudyState.QUEUED and (peer.turn or 0) < turn for peer in late
    )
    return turn if joins else None


def _last_turn(view: ObservedState, others: Sequence[PeerState]) -> int:
    """Returns the last turn that this server knows, or, in case its disk was lost, that both others know.

    One other server's claim is not enough: it could use up all numbers, after which no study would have a turn.
    """
    own = max((study.turn or 0 for study in view.studies.values()), default=0)
    peer_turns = [max((s.turn or 0 for s in item.studies.values()), default=0) for item in others]
    return max(own, min(peer_turns, default=0))


def _queued(view: ObservedState) -> list[StudyRecord]:
    waiting = [study for study in view.studies.values() if study.state is StudyState.QUEUED]
    return sorted(waiting, key=lambda study: (study.proposed_at, study.digest))


def _peer_snapshots(view: ObservedState, study: StudyRecord) -> Iterator[tuple[int, StudySnapshot]]:
    for pid, statement in view.heard.items():
        if study.kind == DISTAIM and study.digest in statement.studies:
            yield pid, statement.studies[study.digest]
