"""The run status: its content for the events it receives, and its display while things change under it."""

import threading

import pytest

from parties.foundation.errors import StoreError
from parties.mpc.exclusion import Exclusion
from parties.mpc.progress_text import participant_statuses
from parties.mpc.records import ParticipantRecord
from parties.observability.events import WORKING, Progress
from parties.observability.status import (
    FORMAT,
    BudgetUse,
    ParticipantState,
    ParticipantStatus,
    Phase,
    RunInfo,
    RunStatus,
    StepTotals,
)
from tests.parties.mesh import Recording
from tests.parties.support import make_config

NOON = 1_800_000_000.0


class Clock:
    """Seconds since the epoch that pass when a test says so."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> RunStatus:
    return RunStatus(RunInfo.of_server(make_config(), 1), clock=clock)


def test_status_of_a_server_that_starts_says_who_it_is(board: RunStatus) -> None:
    status = board.status()
    assert status["format"] == FORMAT
    assert status["party"] == {"name": "party-1", "pid": 1}
    assert status["study"] == {"id": "trial", "config": make_config_digest(board)}
    assert (status["phase"], status["running"]) == ("starting", True)
    assert status["since"] == "2027-01-15T08:00:00Z"
    assert status["rounds"] == {"done": None, "now": None, "of": 4, "at_most": False}
    assert [peer["name"] for peer in peers(board)] == ["party-0", "party-2"]


def make_config_digest(board: RunStatus) -> str:
    return board.about.config


def peers(board: RunStatus) -> list[dict[str, object]]:
    found = board.status()["peers"]
    assert isinstance(found, list)
    return found


def test_events_lead_through_the_phases(board: RunStatus) -> None:
    seen = []
    for name, fields in (
        ("listening", {}),
        ("connected", {}),
        ("waiting", {"done": 1}),
        ("round", {"round": 0}),
        ("round-done", {"done": 0}),
        ("round", {"round": 1}),
        ("writing", {}),
        ("finished", {}),
    ):
        Progress(board).event(name, name, **fields)
        rounds = board.status()["rounds"]
        assert isinstance(rounds, dict)
        seen.append((board.phase.value, rounds["done"], rounds["now"]))
    assert seen == [
        ("connecting", None, None),
        ("waiting", None, None),
        ("waiting", None, None),
        ("computing", None, 0),
        ("computing", 0, None),
        ("computing", 0, 1),
        ("writing", 0, 1),
        ("finished", 0, None),
    ]


def test_peers_are_connected_when_the_mesh_is(board: RunStatus) -> None:
    Progress(board).event("listening", "")
    board.peer(2, connected=False, problem="nothing listens there")
    assert peers(board)[1]["problem"] == "nothing listens there"
    Progress(board).event("connected", "")
    assert [(peer["connected"], peer["problem"]) for peer in peers(board)] == [(True, "")] * 2


def test_time_to_go_passes_as_it_was_said(board: RunStatus, clock: Clock) -> None:
    Progress(board).event(WORKING, "round 2 of 4", left_s=30.0)
    clock.now += 10
    time = board.status()["time"]
    assert time == {
        "started": "2027-01-15T08:00:00Z",
        "elapsed_s": 10.0,
        "left_s": 20.0,
        "closing_s": None,
    }
    clock.now += 60
    assert board.status()["time"] == {
        "started": "2027-01-15T08:00:00Z",
        "elapsed_s": 70.0,
        "left_s": 0.0,
        "closing_s": None,
    }
    Progress(board).event("finished", "")
    time = board.status()["time"]
    assert isinstance(time, dict)
    assert time["left_s"] is None


def test_owners_are_counted_by_state(board: RunStatus) -> None:
    owners = [
        ParticipantStatus("a", ParticipantState.COUNTED, round=0, since=NOON),
        ParticipantStatus("b", ParticipantState.INCOMPLETE, ("party-2",)),
        ParticipantStatus("c", ParticipantState.EXCLUDED, reason="out of bounds"),
    ]
    board.sources.owners = lambda: owners
    found = board.status()["owners"]
    assert isinstance(found, dict)
    assert (found["expected"], found["minimum"], found["here"], found["short"]) == (3, 3, 2, 1)
    assert found["states"] == {"incomplete": 1, "counted": 1, "excluded": 1}
    assert found["list"][0]["since"] == "2027-01-15T08:00:00Z"
    assert found["list"][1]["missing"] == ["party-2"]


def test_errors_and_rejections_keep_the_latest_and_count_all(board: RunStatus) -> None:
    Progress(board).event("lost", "round 3 is lost")
    for number in range(100):
        board.rejected("tls", f"stranger {number}")
    status = board.status()
    assert [one["text"] for one in listed(status["errors"])] == ["round 3 is lost"]
    assert [one["text"] for one in listed(status["rejected"])][-1] == "stranger 99"
    assert len(listed(status["rejected"])) == 20
    assert status["rejections"] == {"tls": 100}


def test_a_round_that_is_lost_is_an_error_and_one_that_is_done_is_none(board: RunStatus) -> None:
    Progress(board).event("round-done", "round 1 of 4 done", done=1, lost=False)
    Progress(board).event("round-done", "round 2 is lost", done=2, lost=True)
    assert [one["text"] for one in listed(board.status()["errors"])] == ["round 2 is lost"]


def listed(value: object) -> list[dict[str, str]]:
    assert isinstance(value, list)
    return value


def test_freeze_keeps_what_the_sources_said_last(board: RunStatus) -> None:
    board.sources.spent = lambda: BudgetUse(1.0, 0.25, 2)
    board.sources.steps = lambda: {"select": StepTotals(1, 0.5, 10, 20, 3)}
    board.freeze()
    status = board.status()
    assert status["budget"] == {
        "epsilon": 1.0,
        "delta": 1e-5,
        "rho": 1.0,
        "spent": 0.25,
        "charges": 2,
    }
    assert status["steps"] == {
        "select": {
            "count": 1,
            "seconds": 0.5,
            "sent_bytes": 10,
            "received_bytes": 20,
            "messages": 3,
        }
    }


def test_status_asks_again_where_the_store_was_closed_meanwhile(board: RunStatus) -> None:
    def closed() -> BudgetUse:
        board.sources = type(board.sources)()
        raise StoreError(".", "is closed")

    board.sources.spent = closed
    assert board.status()["running"]
    broken = board.sources

    def always() -> BudgetUse:
        raise StoreError(".", "is damaged")

    broken.spent = always
    with pytest.raises(StoreError, match="damaged"):
        board.status()


def test_listeners_hear_every_change_until_they_end(board: RunStatus) -> None:
    heard: list[int] = []
    end = board.listen(lambda: heard.append(1))
    Progress(board).event("listening", "")
    board.rejected("tls", "a stranger")
    board.enter(Phase.FAILED)
    assert len(heard) == 3
    end()
    Progress(board).event("finished", "")
    assert len(heard) == 3


def test_status_can_be_asked_from_many_threads_while_it_changes(board: RunStatus) -> None:
    over = threading.Event()
    looked: list[bool] = []

    def look() -> None:
        while not over.is_set():
            board.status()
        looked.append(True)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(300):
        Progress(board).event("round", "", round=number)
        board.rejected(f"reason {number % 7}", "")
        board.peer(0, connected=bool(number % 2))
    over.set()
    for thread in threads:
        thread.join(10)
    assert looked == [True] * 3


def test_watched_passes_events_on(board: RunStatus) -> None:
    recording = Recording()
    recording.also(board).event("listening", "at 127.0.0.1:1", port=1)
    assert (recording.events, board.phase) == (["listening"], Phase.CONNECTING)


def test_owners_of_has_a_withdrawn_owner_that_sent_again_as_here() -> None:
    standings = [ParticipantRecord("north", "aa", 0, Exclusion.WITHDRAWN)]

    def rows(query: str) -> list[tuple[str, float]]:
        return received if "received_at" in query else []

    received: list[tuple[str, float]] = []
    (owner,) = participant_statuses(rows, ("alpha", "beta", "gamma"), standings)
    assert owner.state is ParticipantState.WITHDRAWN
    received.append(("north", 5.0))
    (owner,) = participant_statuses(rows, ("alpha", "beta", "gamma"), standings)
    assert (owner.state, owner.since) == (ParticipantState.HERE, 5.0)
