"""Contract of every run of three servers, also where one of them was killed.

The servers have counted what owners sent, an auditor passes the run and finds lies, and each server's messages can be
computed again.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from parties.audit.replay import replay_folder
from parties.audit.runner import audit_folder
from tests.parties.audit_runs import Finished, Lines, copy_run, read_lines
from tests.parties.run_scenarios import SCENARIOS, Scenario
from tests.parties.tampering import (
    Certificates,
    Forger,
    chosen_otherwise,
    dropping,
    failed,
    find,
    flip,
    setting,
)


@pytest.fixture(scope="module", params=SCENARIOS)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return SCENARIOS[request.param]


@pytest.fixture(scope="module")
def finished(
    scenario: Scenario, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Finished:
    return scenario.run(tmp_path_factory.mktemp("contract"), certificates)


def test_servers_count_what_owners_sent(scenario: Scenario, finished: Finished) -> None:
    codes = scenario.counted(finished.config)
    finished.check_counts(codes)
    with pytest.raises(AssertionError):
        # The control: one row fewer is told.
        finished.check_counts(codes[1:])


def test_audit_passes(finished: Finished) -> None:
    audit = audit_folder(finished.run)
    assert failed(audit) == set(), [check for check in audit.checks if check.status == "fail"]


@pytest.mark.parametrize("pid", [0, 1, 2])
def test_replay_makes_the_same_messages(finished: Finished, pid: int) -> None:
    said = replay_folder(finished.folder / f"server-{pid}", finished.run / "transcripts")
    assert "messages of 2 meshes were recomputed" in said


def another_count(forger: Forger) -> None:
    """One server tells another value of the last opening of counts."""

    def change(lines: Lines) -> None:
        last = [r for r in lines if r["kind"] == "opened" and r["what"] == "measure.counts"][-1]
        last["value"] = flip(last["value"])

    forger.edit(change, 1)


def an_owner_less(forger: Forger) -> None:
    """All three leave out an owner that was counted."""
    name = find(read_lines(forger.run, 0), "client")["client"]

    def change(lines: Lines) -> None:
        # Each attempt lists it.
        lines[:] = [r for r in lines if (r["kind"], r.get("client")) != ("client", name)]

    forger.edit(change)


def a_charge_less(forger: Forger) -> None:
    """All three leave out a measurement's charge."""
    forger.edit(dropping("ledger", step="measure"))


def another_choice(forger: Forger) -> None:
    """All three note another choice than the one that was opened."""
    forger.edit(chosen_otherwise)


def another_message(forger: Forger) -> None:
    """One server has another digest of a message than its sender, of the mesh that was interrupted."""
    forger.edit(setting("received", "digest", flip, step="agree", peer=0), 2)


LIES: dict[str, tuple[Callable[[Forger], None], set[str]]] = {
    lie.__name__: (lie, checks)
    for lie, checks in (
        (another_count, {"values"}),
        (an_owner_less, {"clients"}),
        (a_charge_less, {"ledger"}),
        (another_choice, {"values"}),
        (another_message, {"messages 0-2"}),
    )
}


@pytest.mark.parametrize("name", LIES)
def test_audit_finds_a_lie(
    name: str, finished: Finished, tmp_path: Path, certificates: Certificates
) -> None:
    """Signed by those who tell it."""
    lie, checks = LIES[name]
    forger = Forger(copy_run(finished.run, tmp_path), finished.run, certificates)
    lie(forger)
    audit = audit_folder(forger.run)
    assert checks <= failed(audit), [c for c in audit.checks if c.status == "fail"]
