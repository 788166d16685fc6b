"""Restarts, searched: whatever server dies when, and whatever one of them says, an opening happens once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mechanisms.accounting import LedgerEntry
from parties.mpc.records import Checkpoint, RoundInputs, RunningTotal
from parties.storage.privacy_ledger import DurableLedger
from protocols.context import NoiseKeys
from protocols.errors import ChannelError, CheckFailed, ProtocolViolation
from protocols.ring import R32
from protocols.shares import Share
from protocols.steps import MEASURE
from tests.parties.restarts import (
    EVERY_PACE,
    FORGED,
    Crash,
    Disk,
    Lie,
    Outcome,
    Pace,
    State,
    Stopped,
    attempt,
    check,
    check_end,
    crashes,
    simulated,
    study,
)

pytestmark = pytest.mark.timeout(
    600
)  # A search has no deadline of its own, and a busy machine is slow.
NAMED = (CheckFailed, ProtocolViolation, ChannelError, Stopped, type(None))
AT_ONCE: Sequence[Pace] = [pace for pace in EVERY_PACE if len(pace[1]) != 1]
"""The two others go on both, or neither."""


@pytest.fixture(autouse=True, scope="module")
def machine() -> Iterator[None]:
    with simulated():
        yield


def reached(states: Sequence[State], paces: Sequence[Pace] = EVERY_PACE) -> list[State]:
    """The states that a crash leads to from ``states``, each once, all of them sound."""
    found: dict[object, State] = {}
    for before in states:
        for state in crashes(before, paces=paces):
            if state.key() not in found:
                check(state)
                found[state.key()] = state
    return list(found.values())


# Crashes alone


def test_a_run_without_crashes_ends_with_the_plan() -> None:
    for rounds in (1, 2, 3):
        check_end(attempt(State(rounds)))


def test_a_crash_anywhere_leads_to_the_same_charges() -> None:
    """Every crash of one server in a run of a round, at every pace of the two others."""
    states = reached([State(1)])
    assert len(states) > 100
    for state in states:
        check_end(attempt(state))


def test_what_was_released_before_a_crash_stays() -> None:
    """A value that any server has seen opened is held by all in the end."""
    for state in reached([State(2, newcomers=False)], AT_ONCE):
        outcome = attempt(state)
        check_end(outcome)
        assert state.ghost.values <= outcome.state.ghost.values
        assert len(outcome.state.ghost.values) == 2 + 2 * 2


# One server that says anything


def _drop(*tables: str, keys: str = "") -> Callable[[Disk], None]:
    def forge(disk: Disk) -> None:
        for table in tables:
            disk.enter(f"DELETE FROM {table}", [()])  # noqa: S608
        if keys:
            disk.enter("DELETE FROM meta WHERE key LIKE ?", [(keys,)])

    return forge


def _silent(disk: Disk) -> None:
    _drop("paid", "ledger", "inputs", "checkpoint", "estimate", "total", "final")(disk)
    _drop(keys="noise_keys")(disk)
    _drop(keys="selected/%")(disk)


def _charge(times: int) -> Callable[[Disk], None]:
    def forge(disk: Disk) -> None:
        plan = study(1, "fixed").plan
        event, cost = plan.measurement, plan.accountant.cost
        names = [FORGED] if times == 1 else [f"{n:064x}" for n in range(times)]
        entries = [LedgerEntry(0, MEASURE.name, event, cost(event), name) for name in names]
        DurableLedger(disk).adopt(entries)

    return forge


def _records(**changes: object) -> Callable[[Disk], None]:
    def forge(disk: Disk) -> None:
        for inputs in disk.releases.inputs():
            disk.releases.save_inputs(replace(inputs, **changes))  # type: ignore[arg-type]

    return forge


def _next_record(disk: Disk) -> None:
    """Of the round after the last, with noise that was used before."""
    known = disk.releases.inputs()
    noise = known[-1].noise if known else FORGED
    disk.releases.save_inputs(
        RoundInputs(1 + max((i.round for i in known), default=-1), FORGED, noise, 3, 0)
    )


def _release(disk: Disk) -> None:
    for held in disk.releases.checkpoints():
        disk.releases.drop_checkpoint(held.round, held.candidate)
        disk.releases.save_checkpoint(replace(held, noisy=held.noisy + 4096.0))


def _next_release(disk: Disk) -> None:
    rounds = [held.round for held in disk.releases.checkpoints()]
    made = Checkpoint(1 + max(rounds, default=0), 2, 1.5, 3, np.full(4, 4096.0))
    disk.releases.save_checkpoint(made)


def _choice(disk: Disk) -> None:
    for number in (1, 2):
        kept = disk.meta(f"selected/{number}")
        disk.set_meta(f"selected/{number}", str((int(kept or 0) + 1) % 3))


def _keys(disk: Disk) -> None:
    disk.state.save_noise_keys(NoiseKeys(b"f" * 16, b"f" * 16, b"f" * 16))


def _models(disk: Disk) -> None:
    for number in disk.releases.estimates():
        disk.releases.save_estimate(number, disk.releases.estimate(number) + b"f")


def _totals(disk: Disk) -> None:
    for number in disk.totals.rounds():
        zeros = R32.zeros((study(1, "fixed").workload.maximal_cells,))
        disk.totals.save(RunningTotal(number, Share(R32, 0, zeros, zeros), [("x", FORGED)]))


def _final(disk: Disk) -> None:
    disk.enter("UPDATE final SET upload = ?", [(FORGED,)])


FORGERIES: dict[str, Callable[[Disk], None]] = {
    "holds nothing": _silent,
    "no charges": _drop("paid", "ledger"),
    "a charge more": _charge(1),
    "charges above the budget": _charge(200),
    "no records": _drop("inputs"),
    "other records": _records(digest=FORGED),
    "records with other noise": _records(noise=FORGED),
    "records with other samples": _records(made=9, skip=1),
    "a record more": _next_record,
    "no releases": _drop("checkpoint", keys="selected/%"),
    "no choices": _drop(keys="selected/%"),
    "other releases": _release,
    "a release more": _next_release,
    "other choices": _choice,
    "no noise keys": _drop(keys="noise_keys"),
    "other noise keys": _keys,
    "no models": _drop("estimate"),
    "other models": _models,
    "no totals": _drop("total"),
    "other totals": _totals,
    "nobody final": _drop("final"),
    "others final": _final,
}


def _flipped(payload: bytes, peer: int) -> bytes:
    return bytes([payload[0] ^ 1]) + payload[1:]


SENT = {
    "another digest of inputs": ("commit", _flipped),
    "something else to the next": (
        "agree",
        lambda payload, peer: payload + b" " if payload[:1] == b"{" and peer == 0 else payload,
    ),
    "no JSON": ("agree", lambda payload, peer: b"{" if payload[:1] == b"{" else payload),
    "another model": ("estimate", _flipped),
    "other clients": ("clients.agree", _flipped),
    "no totals that are": ("clients.resume", _flipped),
}


def lies(pid: int) -> list[Lie]:
    """Everything that server ``pid`` may say."""
    return [Lie(name, pid, forge) for name, forge in FORGERIES.items()] + [
        Lie(name, pid, step=step, send=send) for name, (step, send) in SENT.items()
    ]


def check_lie(outcome: Outcome, lie: Lie) -> None:
    """Checks the conditions after a lie: each honest server ended with a named reason, if it ended."""
    check(outcome.state)
    for pid, error in enumerate(outcome.ended):
        if pid != lie.pid:
            assert isinstance(error, NAMED), (lie.name, error)
            if isinstance(error, ProtocolViolation):
                # Of two whose words about a third one differ, nobody can tell which one lies: the error says so.
                either = f"or party {lie.pid} says so" in str(error)
                assert error.pid == lie.pid or either, (lie.name, error)


def taken_back(before: State, after: State, liar: int) -> tuple[State, bool]:
    """``after``, with the liar's disk as it was ``before`` where the others have not gone on since; whether so."""
    for pid in range(3):
        if pid != liar:
            for what in ("inputs", "charges", "totals"):
                if set(after.facts[pid][what]) - set(before.facts[pid].get(what, ())):
                    return after, False
    images, facts = list(after.images), list(after.facts)
    images[liar], facts[liar] = before.images[liar], before.facts[liar]
    return replace(after, images=tuple(images), facts=tuple(facts)), True


def said_once(before: State, lie: Lie) -> bool:
    """An attempt with a lie, and one without; whether the second one had to come to its end, and did."""
    outcome = attempt(before, lie=lie)
    check_lie(outcome, lie)
    after, demanded = taken_back(before, outcome.state, lie.pid)
    last = attempt(after)
    if demanded:
        check_end(last)
    check_lie(last, lie)
    return demanded


@pytest.mark.parametrize(
    ("liar", "every"),
    [(0, 27), *(pytest.param(liar, 9, marks=pytest.mark.slow) for liar in range(3))],
)
def test_what_one_server_says_after_a_crash_changes_nothing(liar: int, every: int) -> None:
    """Each lie after crashes of a run of a round, and then an honest attempt: it comes to its end."""
    states = reached([State(1, liar=liar)], AT_ONCE)
    said = 0
    for number, lie in enumerate(lies(liar)):
        for state in states[number % every :: every]:
            said += said_once(state, lie)
    assert said > 500 / every


# Beyond: up to three crashes, with a lie before each


PACES = st.sampled_from(EVERY_PACE)
STEPS = st.lists(st.tuples(PACES, st.integers(0, 120), st.integers(-1, 63)), min_size=1, max_size=3)
"""The server that dies, its number of events before, and the lie of that attempt, none for -1."""


def searched(
    rounds: int, schedule: str, liar: int | None, steps: list[tuple[Pace, int, int]]
) -> None:
    """After crashes, and lies of one server, everything that came out is sound; without lies the run then ends."""
    state = State(rounds, schedule=schedule, liar=liar)
    said = [] if liar is None else lies(liar)
    for (pid, go), event, number in steps:
        lie = said[number % len(said)] if said and number >= 0 else None
        outcome = attempt(state, Crash(pid, event, go), lie)
        if lie is not None:
            check_lie(outcome, lie)
        state = outcome.state
        check(state)
    last = attempt(state)
    if liar is None:
        check_end(last)
    else:
        check_lie(last, Lie("nothing", liar))


# Found here: a record whose name went by a claim of the attempt before could not be come to again.
@example(
    steps=[
        ((2, frozenset({1})), 31, -1),
        ((0, frozenset({1})), 55, -1),
        ((0, frozenset({1})), 33, -1),
    ],
    liar=None,
)
@example(
    steps=[
        ((2, frozenset()), 43, -1),
        ((0, frozenset({2})), 69, -1),
        ((0, frozenset({1, 2})), 31, -1),
    ],
    liar=None,
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, liar=st.sampled_from([None, 0, 1, 2]))
def test_three_crashes_and_one_liar_break_nothing(
    steps: list[tuple[Pace, int, int]], liar: int | None
) -> None:
    searched(2, "fixed", liar, steps)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=STEPS,
    liar=st.sampled_from([None, 0, 1, 2]),
    rounds=st.integers(1, 3),
    schedule=st.sampled_from(["fixed", "annealed"]),
)
def test_crashes_and_a_liar_break_nothing_for_hours(
    steps: list[tuple[Pace, int, int]], liar: int | None, rounds: int, schedule: str
) -> None:
    searched(rounds, schedule, liar, steps)
