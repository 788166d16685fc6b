"""Decisions of a service: with any delays, all three run the same studies, in one order, within their limits."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parties.observability.clocks import ClockReading, Clocks
from parties.observability.failure_causes import CURES, Cause, Cure, Obstacle
from parties.service.attempts import RetryState, decide_retry
from parties.service.peer_state import BadPeerState, PeerState, StudySnapshot
from parties.service.reconcile import (
    Action,
    EndStudy,
    FetchStudy,
    ObservedState,
    QueueStudy,
    RecordApproval,
    RerunStudy,
    StartStudy,
    reconcile,
)
from parties.service.study_record import ACTIVE, DISTAIM, ENDED, FLAIM, StudyRecord, StudyState

NAMES = ("alpha", "beta", "gamma")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def digest(number: int) -> str:
    return f"{number:064x}"


def study(number: int, state: StudyState = StudyState.PROPOSED, **changes: object) -> StudyRecord:
    at = START + datetime.timedelta(seconds=number)
    made = StudyRecord(digest(number), DISTAIM, f"run-{number}", "alpha", at, state, at)
    return replace(made, **changes)  # type: ignore[arg-type]


def said(pid: int, studies: Mapping[str, StudySnapshot], **changes: object) -> PeerState:
    return replace(PeerState(NAMES[pid], 2, 0, studies), **changes)  # type: ignore[arg-type]


def view(
    own: list[StudyRecord], heard: dict[int, PeerState], *, pid: int = 0, limit: int = 2
) -> ObservedState:
    return ObservedState(pid, NAMES, limit, {item.digest: item for item in own}, heard, {})


ALL = frozenset(NAMES)


def test_conclude_fetches_what_another_server_has() -> None:
    heard = {1: said(1, {digest(1): StudySnapshot(StudyState.PROPOSED)})}
    assert reconcile(view([], heard)) == [FetchStudy(digest(1), 1)]
    over = {1: said(1, {digest(1): StudySnapshot(StudyState.CANCELLED)})}
    assert reconcile(view([], over)) == []
    refused = replace(view([], heard), refused={digest(1): "no"})
    assert reconcile(refused) == []


def test_conclude_hears_approvals_and_queues_with_all_three() -> None:
    one = study(1, StudyState.APPROVED, approvals=frozenset({"alpha", "beta"}))
    heard = {2: said(2, {digest(1): StudySnapshot(StudyState.APPROVED, approved=True)})}
    assert reconcile(view([one], heard)) == [RecordApproval(digest(1), "gamma")]
    assert reconcile(view([one], {})) == []
    everybody = replace(one, approvals=ALL)
    assert reconcile(view([everybody], {})) == [QueueStudy(digest(1))]


def test_conclude_does_not_queue_what_its_own_operator_has_not_approved() -> None:
    heard = {
        p: said(p, {digest(1): StudySnapshot(StudyState.APPROVED, approved=True)}) for p in (1, 2)
    }
    acts = reconcile(view([study(1)], heard))
    assert acts == [RecordApproval(digest(1), "beta"), RecordApproval(digest(1), "gamma")]


@pytest.mark.parametrize("missing", [1, 2])
def test_conclude_starts_only_with_both_others_ready(missing: int) -> None:
    own = study(1, StudyState.QUEUED, approvals=ALL)
    ready = {
        p: said(p, {digest(1): StudySnapshot(StudyState.QUEUED, approved=True)}) for p in (1, 2)
    }
    assert reconcile(view([own], ready)) == [StartStudy(digest(1), 1)]
    away = {pid: statement for pid, statement in ready.items() if pid != missing}
    assert reconcile(view([own], away)) == []
    behind = ready | {missing: said(missing, {digest(1): StudySnapshot(StudyState.APPROVED)})}
    assert reconcile(view([own], behind)) == []


def test_conclude_leaves_the_order_to_server_0() -> None:
    own = study(1, StudyState.QUEUED, approvals=ALL)
    queued = {digest(1): StudySnapshot(StudyState.QUEUED, approved=True)}
    heard = {0: said(0, queued), 2: said(2, queued)}
    assert reconcile(view([own], heard, pid=1)) == []
    decided = heard | {0: said(0, queued, order={digest(1): 7})}
    assert reconcile(view([own], decided, pid=1)) == [StartStudy(digest(1), 7)]
    # Of an earlier try.
    again = replace(own, turn=7)
    assert reconcile(view([again], decided, pid=1)) == []


def test_conclude_keeps_to_the_smallest_limit() -> None:
    own = [study(n, StudyState.QUEUED, approvals=ALL) for n in (1, 2, 3)]
    queued = {item.digest: StudySnapshot(StudyState.QUEUED, approved=True) for item in own}
    heard = {1: said(1, queued, limit=3, busy=1), 2: said(2, queued, limit=3)}
    starts = reconcile(view(own, heard, limit=5))
    assert starts == [StartStudy(digest(1), 1), StartStudy(digest(2), 2)]


def test_conclude_lets_no_server_use_up_the_turns() -> None:
    most = (1 << 31) - 1
    own = [study(number, StudyState.QUEUED, approvals=ALL) for number in (1, 2)]
    queued = {item.digest: StudySnapshot(StudyState.QUEUED, 4, approved=True) for item in own}
    others = {digest(3): StudySnapshot(StudyState.FINISHED, most)}
    heard = {1: said(1, queued), 2: said(2, queued | others)}
    assert reconcile(view(own, heard)) == [StartStudy(digest(1), 5), StartStudy(digest(2), 6)]
    # Of the study itself: that one does not start, another one does.
    liar = queued | {digest(1): StudySnapshot(StudyState.QUEUED, most, approved=True)}
    assert reconcile(view(own, {1: said(1, queued), 2: said(2, liar)})) == [
        StartStudy(digest(2), 5)
    ]


def test_conclude_ends_what_ended_elsewhere() -> None:
    own = study(1, StudyState.RUNNING, approvals=ALL, turn=3)
    failed = {1: said(1, {digest(1): StudySnapshot(StudyState.FAILED, 3, True, False, "no disk")})}
    assert reconcile(view([own], failed)) == [
        EndStudy(digest(1), StudyState.FAILED, "no disk", "beta")
    ]
    earlier = {1: said(1, {digest(1): StudySnapshot(StudyState.FAILED, 2, True, False, "no disk")})}
    assert reconcile(view([own], earlier)) == []
    cancelled = {1: said(1, {digest(1): StudySnapshot(StudyState.CANCELLED)})}
    assert reconcile(view([own], cancelled)) == [
        EndStudy(digest(1), StudyState.CANCELLED, "", "beta")
    ]
    # What has failed here could be approved again: it is over for good then.
    over = replace(own, state=StudyState.FAILED)
    assert reconcile(view([over], cancelled)) == [
        EndStudy(digest(1), StudyState.CANCELLED, "", "beta")
    ]
    for state in (StudyState.FINISHED, StudyState.CANCELLED):
        assert reconcile(view([replace(own, state=state)], cancelled)) == []


def test_conclude_ends_what_failed_elsewhere_and_waits_for_another_turn_there() -> None:
    """Two operators were quicker than this server's next look: it would wait for theirs, and they for its."""
    own = study(1, StudyState.WAITING, approvals=ALL, turn=3)
    for state in (StudyState.APPROVED, StudyState.QUEUED):
        heard = {1: said(1, {digest(1): StudySnapshot(state, 3, approved=True)})}
        (act,) = reconcile(view([own], heard))
        assert isinstance(act, EndStudy)
        assert (act.state, act.by) == (StudyState.FAILED, "beta")
        assert "approved again" in act.reason
    # That one has yet to hear of this turn.
    for turn in (None, 2):
        heard = {1: said(1, {digest(1): StudySnapshot(StudyState.QUEUED, turn, approved=True)})}
        assert reconcile(view([own], heard)) == []


def test_conclude_helps_a_server_that_has_to_end_it_too_once() -> None:
    own = study(1, StudyState.FINISHED, approvals=ALL, turn=3)
    calls = {1: said(1, {digest(1): StudySnapshot(StudyState.WAITING, 3, True, calls=True)})}
    assert reconcile(view([own], calls)) == [RerunStudy(digest(1))]
    assert reconcile(replace(view([own], calls), rerunning=[digest(1)])) == []


def test_conclude_runs_flaim_with_its_own_operators_word() -> None:
    own = study(1, StudyState.APPROVED, kind=FLAIM, approvals=frozenset({"alpha"}))
    assert reconcile(view([own], {})) == [QueueStudy(digest(1))]
    queued = replace(own, state=StudyState.QUEUED)
    assert reconcile(view([queued], {})) == [StartStudy(digest(1), 1)]
    full = [study(n, StudyState.RUNNING, approvals=ALL, turn=n) for n in (2, 3)]
    assert reconcile(view([queued, *full], {})) == []


# Three of them, with what they say arriving late or not at all.


@dataclass
class Server:
    """One of three, with the acts of `conclude` carried out on its own studies alone."""

    pid: int
    limit: int
    studies: dict[str, StudyRecord] = field(default_factory=dict)
    heard: dict[int, PeerState] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    broken: Cause | None = None
    """Obstacle to its attempts, which its operator can cure."""
    clock_s: float = 0.0
    tries: dict[str, RetryState] = field(default_factory=dict)
    obstacles: dict[str, Obstacle] = field(default_factory=dict)

    def view(self) -> ObservedState:
        return ObservedState(self.pid, NAMES, self.limit, self.studies, self.heard, {})

    def statement(self) -> PeerState:
        standings = {
            key: StudySnapshot(
                s.state,
                s.turn,
                NAMES[self.pid] in s.approvals,
                key in self.obstacles,
                s.reason,
                self.obstacles.get(key),
            )
            for key, s in self.studies.items()
        }
        order = self.view().order
        text = PeerState(NAMES[self.pid], self.limit, 0, standings, {}, order).to_dict()
        return PeerState.from_dict(text)

    def do(self, act: Action) -> None:
        if isinstance(act, FetchStudy):
            self.studies[act.digest] = study(int(act.digest, 16))
            return
        own = self.studies[act.digest]
        match act:
            case RecordApproval():
                own = replace(own, approvals=own.approvals | {act.server})
            case QueueStudy():
                own = replace(own, state=StudyState.QUEUED)
            case StartStudy():
                assert own.state is StudyState.QUEUED
                self.started.append(act.digest)
                own = replace(own, state=StudyState.RUNNING, turn=act.turn)
                running = [s for s in self.studies.values() if s.state in ACTIVE]
                assert len(running) < self.limit
            case EndStudy():
                own = replace(own, state=act.state, reason=act.reason)
        self.studies[act.digest] = own

    def attempt(self, servers: list["Server"]) -> None:
        """One attempt at each study that is under way, which ends where this server or another one is broken."""
        if all(server.broken is None for server in servers):
            return
        readings = {
            other.pid: ClockReading(other.clock_s - self.clock_s, 0.1)
            for other in servers
            if other is not self
        }
        ended = Obstacle(self.broken or Cause.NETWORK)
        for key, own in self.studies.items():
            if own.state in ACTIVE:
                after = decide_retry(
                    self.tries.get(key, RetryState()), ended, Clocks.of(self.pid, readings)
                )
                self.tries[key], self.obstacles[key] = after.tries, after.obstacle
                state = StudyState.FAILED if after.over else StudyState.WAITING
                self.studies[key] = replace(own, state=state)

    def approve(self, key: str) -> None:
        own = self.studies.get(key)
        if own is not None and own.state is StudyState.PROPOSED:
            approvals = own.approvals | {NAMES[self.pid]}
            self.studies[key] = replace(own, state=StudyState.APPROVED, approvals=approvals)


def finish(servers: list[Server]) -> None:
    """A study can only be computed where all three run it."""
    for key in list(servers[0].studies):
        at_all = [server.studies.get(key) for server in servers]
        if all(s is not None and s.state in ACTIVE for s in at_all):
            assert len({s.turn for s in at_all if s}) == 1
            for server in servers:
                server.studies[key] = replace(server.studies[key], state=StudyState.FINISHED)
                server.obstacles.pop(key, None)


def step(servers: list[Server], pid: int, other: int) -> None:
    """One server hears another one, and does what follows; its operator approves what is there."""
    server = servers[pid]
    if other != pid:
        server.heard[other] = servers[other].statement()
    for act in reconcile(server.view()):
        server.do(act)
    for key in list(server.studies):
        server.approve(key)


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=150)


@settings(deadline=None)
@given(
    limits=st.tuples(*[st.integers(1, 3)] * 3),
    proposed=st.lists(st.integers(0, 2), min_size=1, max_size=5),
    steps=STEPS,
)
def test_conclude_lets_every_study_run_whatever_comes_late(
    limits: tuple[int, int, int], proposed: list[int], steps: list[tuple[int, int, bool]]
) -> None:
    servers = [Server(pid, limit) for pid, limit in enumerate(limits)]
    for number, pid in enumerate(proposed, 1):
        servers[pid].studies[digest(number)] = study(number)
    in_order = [
        (a, b, done) for _ in range(40) for done in (True,) for a in range(3) for b in range(3)
    ]
    for pid, other, done in steps + in_order:
        step(servers, pid, other)
        if done:
            finish(servers)
    for server in servers:
        assert {s.state for s in server.studies.values()} == {StudyState.FINISHED}
        assert len(server.studies) == len(proposed)
        assert server.started == servers[0].started


RESTORES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 80), st.integers(0, 80)), max_size=2
)
"""Servers whose folder is lost after so many steps, and the step of the backup, if it was before."""


# Server 0 is lost when one other has heard of a turn, and when both have.
@example(limits=(1, 1, 1), proposed=[0], steps=[], restores=[(0, 31, 0)])
@example(limits=(1, 1, 1), proposed=[0], steps=[], restores=[(0, 60, 20)])
@settings(deadline=None, max_examples=60)
@given(
    limits=st.tuples(*[st.integers(1, 3)] * 3),
    proposed=st.lists(st.integers(0, 2), min_size=1, max_size=3),
    steps=STEPS,
    restores=RESTORES,
)
def test_what_is_under_way_finishes_after_restores_of_any_age(
    limits: tuple[int, int, int],
    proposed: list[int],
    steps: list[tuple[int, int, bool]],
    restores: list[tuple[int, int, int]],
) -> None:
    """Of one server at a time: its operator approves again what it had not approved then, and the others nothing."""
    servers = [Server(pid, limit) for pid, limit in enumerate(limits)]
    for number, pid in enumerate(proposed, 1):
        servers[pid].studies[digest(number)] = study(number)
    backups: dict[tuple[int, int], dict[str, StudyRecord]] = {}
    in_order = [(a, b, False) for _ in range(15) for a in range(3) for b in range(3)]
    for number, (pid, other, _) in enumerate([*steps[:80], *in_order]):
        for who, lost_at, kept_at in restores:
            if number == kept_at:
                backups[who, kept_at] = dict(servers[who].studies)
            if number == lost_at and (who, kept_at) in backups:
                servers[who].studies = dict(backups[who, kept_at])
                servers[who].heard.clear()
        step(servers, pid, other)
    for _ in range(len(proposed)):
        finish(servers)
        for pid, other, _ in in_order:
            step(servers, pid, other)
    for server in servers:
        assert [s.state for s in server.studies.values()] == [StudyState.FINISHED] * len(proposed)


CURABLE = [cause for cause, cure in CURES.items() if cure in (Cure.OPERATOR, Cure.ITSELF)]
BY_A_CLOCK = [cause for cause, cure in CURES.items() if cure is Cure.CLOCK]
TROUBLES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.one_of(st.none(), st.sampled_from(CURABLE), st.sampled_from(BY_A_CLOCK)),
        st.integers(1, 12),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(limits=st.tuples(*[st.integers(1, 3)] * 3), studies=st.integers(1, 4), troubles=TROUBLES)
def test_what_operators_can_cure_alone_never_ends_a_study(
    limits: tuple[int, int, int], studies: int, troubles: list[tuple[int, Cause | None, int]]
) -> None:
    """However often an attempt ends: nobody has to approve again, and after the cure all studies finish."""
    servers = [Server(pid, limit) for pid, limit in enumerate(limits)]
    servers[0].studies.update({digest(n): study(n) for n in range(1, studies + 1)})
    for pid, cause, attempts in [*troubles, (0, None, 0), (1, None, 0), (2, None, 0)]:
        # One clock of three at most is off at a time.
        for server in servers:
            if server.broken in BY_A_CLOCK and cause in BY_A_CLOCK:
                server.broken, server.clock_s = None, 0.0
        servers[pid].broken = cause
        servers[pid].clock_s = 612.0 if cause in BY_A_CLOCK else 0.0
        for _ in range(attempts):
            turn(servers)
    for _ in range(40):
        turn(servers)
    for server in servers:
        assert [s.state for s in server.studies.values()] == [StudyState.FINISHED] * studies
        # Each was started once: no approval came a second time.
        assert sorted(server.started) == sorted(server.studies)


def turn(servers: list[Server]) -> None:
    """Everybody hears everybody, does what follows, and makes an attempt at what is under way."""
    for server in servers:
        server.heard = {o.pid: o.statement() for o in servers if o is not server}
        for act in reconcile(server.view()):
            server.do(act)
        for key in list(server.studies):
            server.approve(key)
    for server in servers:
        server.attempt(servers)
    if all(server.broken is None for server in servers):
        finish(servers)


STATES = st.sampled_from(list(StudyState))
OBSTACLES = st.one_of(
    st.none(), st.builds(Obstacle, st.sampled_from(list(Cause)), st.integers(0, 9))
)


@given(
    own=STATES,
    theirs=st.tuples(STATES, STATES),
    turns=st.tuples(*[st.one_of(st.none(), st.integers(1, 2))] * 3),
    claims=st.tuples(OBSTACLES, OBSTACLES, OBSTACLES),
    pid=st.integers(0, 2),
)
def test_a_cause_that_another_server_claims_leads_to_no_act(
    own: StudyState,
    theirs: tuple[StudyState, StudyState],
    turns: tuple[int | None, int | None, int | None],
    claims: tuple[Obstacle | None, Obstacle | None, Obstacle | None],
    pid: int,
) -> None:
    here = study(1, own, turn=turns[0], approvals=ALL)
    others = [p for p in range(3) if p != pid]

    def heard(*said_of: Obstacle | None) -> dict[int, PeerState]:
        return {
            p: said(
                p,
                {digest(1): StudySnapshot(state, at, True, False, "", obstacle)},
                obstacle=claims[2] if obstacle else None,
            )
            for p, state, at, obstacle in zip(others, theirs, turns[1:], said_of, strict=True)
        }

    silent, claiming = heard(None, None), heard(*claims[:2])
    assert reconcile(view([here], claiming, pid=pid)) == reconcile(view([here], silent, pid=pid))


# What is said, and what is no statement.

GOOD = said(
    1, {digest(1): StudySnapshot(StudyState.RUNNING, 3, True, False, "words")}, order={digest(1): 3}
)


def test_statement_comes_back_as_it_was_said() -> None:
    assert PeerState.from_dict(GOOD.to_dict()) == GOOD


@pytest.mark.parametrize(
    "changes",
    [
        {"name": 1},
        {"limit": "2"},
        {"busy": None},
        {"studies": []},
        {"studies": {"x": StudySnapshot(StudyState.RUNNING).to_dict()}},
        {"studies": {digest(1): {}}},
        {
            "studies": {
                digest(1): StudySnapshot(StudyState.RUNNING).to_dict() | {"state": "sleeping"}
            }
        },
        {"studies": {digest(1): StudySnapshot(StudyState.RUNNING).to_dict() | {"turn": 0}}},
        {"studies": {digest(1): StudySnapshot(StudyState.RUNNING).to_dict() | {"turn": True}}},
        {"refused": {"../../etc": "no"}},
        {"order": {digest(1): -1}},
        {"order": {digest(1): True}},
        {"order": {digest(n): n for n in range(1, 5_002)}},
        {"time": None},
        {"time": "now"},
        {"time": float("nan")},
        {"time": -1.0},
        {"time": 1e300},
        {"obstacle": "disk-full"},
        {"studies": {digest(1): StudySnapshot(StudyState.RUNNING).to_dict() | {"obstacle": 3}}},
    ],
)
def test_statement_of_another_form_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadPeerState):
        PeerState.from_dict(GOOD.to_dict() | changes)


@pytest.mark.parametrize(
    "changes", [{"exchange": 1}, {"program": "9.9, messages 99"}, {"exchange": None}]
)
def test_statement_of_another_version_is_refused_with_both(changes: dict[str, object]) -> None:
    with pytest.raises(BadPeerState, match="expected the same at all three"):
        PeerState.from_dict({"studies": 7} | GOOD.to_dict() | changes)


def test_statement_has_an_obstacle_that_is_not_known_as_another() -> None:
    full = Obstacle(Cause.DISK_FULL)
    waiting = replace(
        GOOD,
        obstacle=full,
        studies={digest(1): StudySnapshot(StudyState.WAITING, 3, obstacle=full)},
    )
    assert PeerState.from_dict(waiting.to_dict()) == waiting
    for code in ("disk-on-fire", "x" * 10_000, None, ["disk-full"]):
        document = waiting.to_dict() | {"obstacle": {"cause": code, "detail": 3, "more": "words"}}
        assert PeerState.from_dict(document).obstacle == Obstacle(Cause.OTHER)


def test_statement_is_shown_without_what_moves_a_cursor() -> None:
    document = GOOD.to_dict() | {"name": "beta\x1b[2J\n" + "x" * 500}
    name = PeerState.from_dict(document).name
    assert name.isprintable()
    assert len(name) <= 80


def test_over_states_are_not_active() -> None:
    assert not set(ENDED) & set(ACTIVE)
