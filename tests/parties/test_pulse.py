"""Messages of a slow run: passing lines while nothing happens, and guesses of the end that are guesses."""

import asyncio
import io
import re
from dataclasses import dataclass, field

import pytest

import parties.observability.events
import parties.observability.heartbeat
from parties.mpc.planning.budget import make_plan
from parties.mpc.progress_text import activity_text
from parties.mpc.steps import CLIENTS_AGREE, ESTIMATE, STEPS
from parties.observability.events import WORKING, Event, FieldValue, Progress, TextLines
from parties.observability.heartbeat import HEARTBEAT_AFTER_S, Heartbeat, duration_text
from parties.session.study import Study
from protocols.context import Costs, StepCost
from tests.parties.support import make_config


@dataclass
class Heard:
    """Reported events, by name."""

    events: list[tuple[str, str, dict[str, FieldValue]]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        self.events.append((event.name, event.text, dict(event.fields)))

    @property
    def working(self) -> list[str]:
        return [text for name, text, _ in self.events if name == WORKING]


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def make_pulse(rounds: int = 10) -> tuple[Heartbeat, Heard, Clock]:
    heard, clock = Heard(), Clock()
    return (
        Heartbeat(Progress(heard), rounds=rounds, activity=lambda: "at work", clock=clock),
        heard,
        clock,
    )


def test_look_says_nothing_until_it_was_quiet_for_a_while() -> None:
    pulse, heard, clock = make_pulse()
    clock.now += HEARTBEAT_AFTER_S - 0.1
    pulse.look()
    assert heard.events == []
    clock.now += 0.2
    pulse.look()
    assert heard.working == ["at work"]
    pulse.progress.event("selected", "a query")
    pulse.look()
    assert heard.events[1:] == [("selected", "a query", {})]


def test_look_says_nothing_where_others_are_waited_for() -> None:
    heard, clock = Heard(), Clock()
    pulse = Heartbeat(Progress(heard), rounds=3, clock=clock)
    clock.now += 60
    pulse.look()
    assert heard.events == []
    with pulse.activity("estimating the model"):
        pulse.look()
    pulse.look()
    assert heard.working == ["estimating the model"]


def test_look_tells_iterations_and_how_long_the_rest_takes() -> None:
    pulse, heard, clock = make_pulse()
    pulse.iteration(0, 100)
    clock.now += 30
    pulse.iteration(25, 100)
    pulse.look()
    assert heard.events == [
        (
            WORKING,
            "at work, iteration 25 of 100, about 90 s more".replace("90 s", duration_text(90)),
            {"iteration": 25, "of": 100, "left_s": 90.0},
        )
    ]
    # The next fit has a time of its own, and one that is over says nothing.
    pulse.iteration(100, 100)
    pulse.look()
    assert heard.working[1:] == ["at work"]
    pulse.iteration(0, 1000)
    clock.now += 1
    pulse.iteration(1, 1000)
    pulse.look()
    assert heard.working[2:] == ["at work, iteration 1 of 1000"]


def test_look_tells_how_long_the_rounds_left_take_at_the_pace_of_the_latest() -> None:
    pulse, heard, clock = make_pulse(rounds=40)
    for number in range(1, 11):
        clock.now += 10.0 if number < 5 else 60.0
        pulse.progress.event("round-done", f"round {number}", done=number)
    clock.now += 20
    pulse.look()
    # Five rounds of 60 s each, of which 20 s of the 11th are over.
    assert heard.working == ["at work; about 30 min for at most 30 more rounds, at this pace"]
    assert heard.events[-1][2] == {"left_s": pytest.approx(30 * 60 - 20)}


def test_look_makes_no_guess_without_two_rounds_or_with_none_left() -> None:
    pulse, heard, clock = make_pulse(rounds=2)
    for number in (1, 2):
        clock.now += 10
        pulse.progress.event("round-done", "", done=number)
        clock.now += 10
        pulse.look()
    assert heard.working == ["at work", "at work"]


async def test_beating_looks_at_intervals_and_leaves_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parties.observability.heartbeat, "HEARTBEAT_INTERVAL_S", 0.01)
    monkeypatch.setattr(parties.observability.heartbeat, "HEARTBEAT_AFTER_S", 0.0)
    heard = Heard()
    pulse = Heartbeat(Progress(heard), rounds=3, activity=lambda: "at work")
    async with pulse.running(), asyncio.timeout(10):
        while len(heard.working) < 2:  # noqa: ASYNC110 -- a list that another task fills
            await asyncio.sleep(0.005)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (40, "40 s"), (600, "10 min"), (12_600, "3.5 h")]
)
def test_duration_has_two_digits(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


# What is shown.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_on_a_terminal_take_the_place_of_one_another() -> None:
    stream = Terminal()
    lines = Progress(TextLines("party 0", stream))
    lines.event("round", "round 1")
    lines.event(WORKING, "a")
    lines.event(WORKING, "b" * 500)
    lines.event("round", "round 2")
    first, a, b, last = re.split(r"\r\x1b\[2K|\n(?=.)", stream.getvalue())
    assert first.endswith("party 0: round 1")
    assert a.endswith("party 0: a")
    assert len(b) < 500
    assert last.endswith("party 0: round 2\n")


def test_lines_elsewhere_come_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = Clock(), io.StringIO()
    monkeypatch.setattr(parties.observability.events.time, "monotonic", clock)
    lines = Progress(TextLines("", stream))
    written: list[float] = []
    for _ in range(200):
        clock.now += 1
        before = stream.tell()
        lines.event(WORKING, "at work")
        if stream.tell() > before:
            written.append(clock.now - 100)
    assert written == [10, 30, 70, 150]
    assert "\r" not in stream.getvalue()


# What a server is at.


@pytest.mark.parametrize("lead", [False, True])
def test_doing_knows_every_step_that_takes_long(lead: bool) -> None:
    config = make_config()
    plan = make_plan(Study.of(config))
    said = {
        name: activity_text(Costs([StepCost(name, 3)]), plan, lead=lead)
        for name in STEPS
        if not name.startswith("clients.") and name != "prepare"
    }
    assert all(text is not None and text.startswith("round 3 of 4: ") for text in said.values())
    whose = "estimating" if lead else "party 0 is at work: estimating"
    assert said[ESTIMATE.name] == f"round 3 of 4: {whose} the model"
    assert activity_text(Costs([StepCost(CLIENTS_AGREE.name, 0)]), plan, lead=lead) is None
    assert activity_text(Costs(), plan, lead=lead) is None
