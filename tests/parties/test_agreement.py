"""Resuming an interrupted run: the power of a lying server beside one that has forgotten something."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import parties.mpc.server
from parties.config import CertificateFiles
from parties.mpc import agreement
from parties.mpc.records import Checkpoint
from parties.mpc.restart import ReportedState, _contradicted, _held_by_two
from parties.mpc.storage.store import Store
from protocols.errors import CheckFailed, ProtocolViolation
from tests.parties.mesh import EVERYONE, Cluster, Recording, make_uniform
from tests.parties.support import make_config

INITIAL = (2, 5)
ALL = [(0, 2), (0, 5), (1, 7), (2, 3), (3, 7)]
Place = tuple[int, int]


def state(
    places: list[Place] | set[Place], selections: dict[int, int] | None = None
) -> ReportedState:
    kept = {(r, c): Checkpoint(r, c, 1.5, 3, np.array([r, c], np.float64)) for r, c in places}
    return ReportedState(kept, selections or {}, ())


def places(history: list[Checkpoint]) -> list[Place]:
    return [(checkpoint.round, checkpoint.candidate) for checkpoint in history]


@given(st.integers(0, 5), st.integers(0, 5), st.sets(st.sampled_from(ALL)))
def test_held_by_two_has_no_gap_and_all_that_both_honest_servers_hold(
    first: int, second: int, claimed: set[Place]
) -> None:
    """Honest servers hold a run as far as they came, or remember it; the third says anything that was released."""
    history, _ = _held_by_two([state(ALL[:first]), state(claimed), state(ALL[:second])], INITIAL)
    assert places(history) == ALL[: len(history)]
    assert min(first, second) <= len(history) <= max(first, second)


def test_held_by_two_keeps_no_choice_that_comes_after_a_gap() -> None:
    """The candidates of a round that is run again may be others."""
    mine = state(ALL[:3], {1: 7, 2: 3, 3: 7})
    history, selections = _held_by_two([mine, mine, state([])], INITIAL)
    assert places(history) == ALL[:3]
    assert selections == {1: 7, 2: 3}
    assert _held_by_two([state(ALL[:1], {1: 7})] * 3, INITIAL)[1] == {}


def test_held_by_two_refuses_two_releases_of_one_round() -> None:
    """The liar holds, with a server that was restored from an old copy, what was lost and released anew since."""
    old, new = [*ALL[:3], (2, 9)], ALL[:4]
    with pytest.raises(CheckFailed, match="different releases of round 2"):
        _held_by_two([state(old), state({*old, *new}), state(new)], INITIAL)


def test_held_by_two_takes_what_two_hold_alike_and_neither_of_two_that_differ() -> None:
    whole, short = state(ALL[:4], {1: 7, 2: 3}), state(ALL[:3], {1: 7})
    other = ReportedState(
        whole.checkpoints | {(2, 3): replace(whole.checkpoints[2, 3], noisy=np.zeros(2))},
        {1: 7, 2: 9},
        (),
    )
    history, selections = _held_by_two([whole, other, whole], INITIAL)
    assert (places(history), selections) == (ALL[:4], {1: 7, 2: 3})
    assert history[3] is whole.checkpoints[2, 3]
    history, selections = _held_by_two([other, short, whole], INITIAL)
    assert (places(history), selections) == (ALL[:3], {1: 7})
    for states in ([whole, other, whole], [other, short, whole]):
        assert _contradicted(states) == (2,)
    assert _contradicted([whole, short, whole]) == ()


@pytest.mark.parametrize(
    ("killed_in", "forgotten", "denied"),
    [(4, {4, 5}, {4}), (1, {0, 1}, {0})],
    ids=["a round", "of round 0"],
)
async def test_run_party_goes_on_before_a_gap_when_a_liar_and_a_forgetful_server_make_one(
    killed_in: int,
    forgotten: set[int],
    denied: set[int],
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The attack: a run went on without a round that it had released, or with columns measured twice.

    Server 1 has forgotten some releases, by their places among all; server 0 denies the first of them alone.
    """
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    cluster = Cluster(make_config(), tmp_path, certificates)
    await cluster.run(owners=EVERYONE, kill=(1, "round", killed_in))
    for pid, dropped in ((1, forgotten), (0, denied)):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            for place, kept in enumerate(store.releases.checkpoints()):
                if place in dropped:
                    store.releases.drop_checkpoint(kept.round, kept.candidate)
    recording = Recording()
    assert await cluster.run(records={2: recording}) == [None] * 3
    assert "lost" in recording.events
    for pid in range(3):
        with Store(cluster.directory(pid) / "store", cluster.config.digest()) as store:
            held = places(store.releases.checkpoints())
        assert [candidate for number, candidate in held if number == 0] == [0, 1, 2]
        assert sorted(number for number, _ in held) == [0, 0, *range(held[-1][0] + 1)]


@pytest.mark.parametrize(
    "claimed",
    [
        {"round": 10**30},
        {"round": 5},
        {"step": "lunch"},
        {"rho": 1e-9},
        {"rho": 1.7e308},
        {"event": json.dumps({"kind": "gaussian", "sigma": 1e-9, "sensitivity": 1.0})},
    ],
    ids=lambda claimed: next(iter(claimed)),
)
async def test_run_party_names_who_claims_a_charge_that_no_plan_has(
    claimed: dict[str, object],
    tmp_path: Path,
    certificates: dict[str, CertificateFiles],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The attack: adopted charges stay, and a number that no database takes ended every later start."""
    monkeypatch.setattr(parties.mpc.server, "make_estimator", make_uniform)
    cluster = Cluster(make_config(), tmp_path, certificates)
    await cluster.run(owners=EVERYONE, kill=(1, "round", 1))
    before = agreement.release_state

    def lying(store: Store, rounds: int) -> dict[str, object]:
        state = before(store, rounds)
        entries = state["ledger"]
        assert isinstance(entries, list)
        if store.directory.is_relative_to(cluster.directory(2)):
            state["ledger"] = [*entries, entries[-1] | claimed]
        return state

    monkeypatch.setattr(agreement, "release_state", lying)
    ended = await cluster.run()
    assert None not in ended
    assert any(isinstance(error, ProtocolViolation) and error.pid == 2 for error in ended)
    monkeypatch.setattr(agreement, "release_state", before)
    assert await cluster.run() == [None] * 3
