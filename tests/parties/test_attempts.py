"""Consequences of a failed attempt, and of three clocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.observability.clocks import OFF_S, ClockReading, Clocks, off_text, offset_text
from parties.observability.failure_causes import CURES, Cause, Cure, Obstacle
from parties.service.attempts import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MAX_FAILURES,
    RetryState,
    decide_retry,
)
from parties.service.obstacles import CAUSE_TEXTS, troubles, waits, waits_text

NAMES = ("alpha", "beta", "gamma")
UNKNOWN = Clocks(0, {}, known=False)
RIGHT = Clocks(0, {}, known=True)
OFF = Clocks(0, {0: 700.0}, known=True)
OTHER_OFF = Clocks(0, {2: 700.0}, known=True)


def after(cause: Cause, times: int, clocks: Clocks) -> tuple[Obstacle, int | None]:
    """The obstacle that is shown at last, and after which failure it was over, if it was."""
    tries = RetryState()
    for number in range(1, times + 1):
        result = decide_retry(tries, Obstacle(cause, 1), clocks)
        if result.over:
            return result.obstacle, number
        tries = result.tries.after_pause()
    return result.obstacle, None


@pytest.mark.parametrize("clocks", [UNKNOWN, RIGHT, OFF, OTHER_OFF])
@pytest.mark.parametrize("cause", Cause)
def test_each_cause_ends_a_study_or_does_not(cause: Cause, clocks: Clocks) -> None:
    shown, over = after(cause, 500, clocks)
    match CURES[cause]:
        case Cure.OPERATOR | Cure.ITSELF:
            assert (shown, over) == (Obstacle(cause, 1), None)
        case Cure.RARELY:
            assert over == MAX_FAILURES + 1
        case Cure.DECISION:
            assert over == 1
        case Cure.CLOCK if clocks is OFF:
            assert (shown, over) == (Obstacle(Cause.CLOCK), None)
        case Cure.CLOCK:
            waits_for_the_others = cause is Cause.EXPIRED and clocks is UNKNOWN
            assert over == (None if waits_for_the_others else 1)


def test_defects_among_what_passes_are_counted_and_nothing_else() -> None:
    tries, over = RetryState(), []
    for cause in [Cause.DISK_FULL, Cause.FAULT, Cause.NETWORK] * (MAX_FAILURES + 1):
        result = decide_retry(tries, Obstacle(cause), RIGHT)
        tries = result.tries
        over.append(result.over)
    # The last of them is of the network: what is over is not asked again.
    assert over[:-2] == [False] * (len(over) - 2)
    assert over[-2]


def test_pauses_grow_up_to_a_ceiling() -> None:
    tries, pauses = RetryState(), []
    for _ in range(20):
        pauses.append(tries.pause_s)
        tries = decide_retry(tries, Obstacle(Cause.DISK_FULL), RIGHT).tries.after_pause()
    assert pauses[0] == FIRST_PAUSE_S
    assert pauses == sorted(pauses)
    assert set(pauses[8:]) == {LONGEST_PAUSE_S}


# Clocks.


def test_reading_takes_half_of_the_round_trip_for_the_way_back() -> None:
    reading = ClockReading.of(1010.2, asked_at=1000.0, round_trip_s=0.4)
    assert reading.offset_s == pytest.approx(10.0)
    assert reading.within_s == pytest.approx(0.2)


@given(
    offset=st.floats(-1e6, 1e6), there=st.floats(0, 2), back=st.floats(0, 2), at=st.floats(1e9, 2e9)
)
def test_reading_is_right_within_what_it_says(
    offset: float, there: float, back: float, at: float
) -> None:
    said = at + there + offset
    reading = ClockReading.of(said, asked_at=at, round_trip_s=there + back)
    assert abs(reading.offset_s - offset) <= reading.within_s + 1e-3


def clocks_of(own: int, times: dict[int, float | None]) -> Clocks:
    """By server `own`, whose clock shows what `times` says, and who hears those that are not None."""
    here = times[own] or 0.0
    readings = {
        pid: None if at is None else ClockReading(at - here, 0.1)
        for pid, at in times.items()
        if pid != own
    }
    return Clocks.of(own, readings)


@pytest.mark.parametrize("own", range(3))
@pytest.mark.parametrize("off", range(3))
@pytest.mark.parametrize("seconds", [-612.0, 612.0, 4e7])
def test_all_three_say_whose_clock_is_off_and_by_how_much(
    own: int, off: int, seconds: float
) -> None:
    found = clocks_of(own, {0: 0.0, 1: 0.0, 2: 0.0} | {off: seconds})
    assert found.known
    assert found.off == pytest.approx({off: seconds})


def test_no_clock_is_off_without_a_majority() -> None:
    away = clocks_of(0, {0: 0.0, 1: 700.0, 2: None})
    assert (away.known, away.off, away.disagree) == (False, {}, False)
    three = clocks_of(0, {0: 0.0, 1: 700.0, 2: -700.0})
    assert (three.known, three.off, three.disagree) == (False, {}, True)
    alone = Clocks.of(0, {})
    assert (alone.known, alone.off) == (False, {})


@given(lie=st.floats(-1e12, 1e12), apart=st.floats(0, OFF_S))
def test_one_that_lies_makes_no_other_clock_look_wrong(lie: float, apart: float) -> None:
    found = clocks_of(0, {0: 0.0, 1: apart, 2: lie})
    assert set(found.off) <= {2}


def test_clocks_in_words() -> None:
    assert off_text(-612.4) == "10 min 12 s behind"
    assert off_text(75.0) == "1 min 15 s ahead"
    assert off_text(2 * 86400 + 3700.0) == "2 d 1 h ahead"
    assert off_text(2.0) == "2 s ahead"
    assert offset_text(0.004, 0.03) == "within 0.03 s of this one"
    assert offset_text(-612.0, 0.03) == "10 min 12 s behind"


# In words.


def test_waits_name_the_server_and_what_it_waits_for() -> None:
    full = Obstacle(Cause.DISK_FULL)
    everybody = {0: Obstacle(Cause.NETWORK, 1), 1: full, 2: Obstacle(Cause.NETWORK, 1)}
    assert waits_text(*waits(NAMES, everybody, RIGHT)) == "beta: its disk is full"
    network = {0: Obstacle(Cause.NETWORK, 1), 1: None, 2: Obstacle(Cause.NETWORK)}
    said = "alpha: it does not reach beta; gamma: it does not reach another server"
    assert waits_text(*waits(NAMES, network, RIGHT)) == said
    assert waits(NAMES, {0: None}, RIGHT) == []


@pytest.mark.parametrize("detail", [None, 0, 2, 3, 1 << 30])
@pytest.mark.parametrize("cause", Cause)
def test_waits_have_words_for_whatever_a_server_claims(cause: Cause, detail: int | None) -> None:
    (wait,) = waits(NAMES, {2: Obstacle(cause, detail)}, OTHER_OFF)
    assert wait.name == "gamma"
    assert wait.text
    assert len(wait.text) < 100


def test_a_clock_is_told_from_what_is_measured_here() -> None:
    clocks = Clocks(0, {1: -612.0}, known=True)
    text = "beta: its clock is 10 min 12 s behind, by the two others'"
    assert waits_text(*waits(NAMES, {1: Obstacle(Cause.CLOCK)}, clocks)) == text
    assert troubles(NAMES, {}, clocks) == [text]
    # What another one says of its clock alone is not believed.
    claimed = waits_text(*waits(NAMES, {2: Obstacle(Cause.CLOCK)}, clocks))
    assert claimed == f"gamma: {CAUSE_TEXTS[Cause.CLOCK]}"
    assert troubles(NAMES, {}, Clocks(0, {}, known=False, disagree=True)) == [
        "the clocks of all three servers differ: no two of them agree"
    ]
    assert troubles(NAMES, {2: Obstacle(Cause.DATABASE)}, RIGHT) == [
        "gamma: its database does not answer"
    ]
