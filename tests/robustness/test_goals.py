"""Adversaries that want something: what they get of real servers, and that a broken rule gives it to them."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from click.testing import CliRunner

from mechanisms.accounting import LedgerEntry
from parties.audit.findings import FAIL, PASS, Check
from parties.mpc import restart
from parties.mpc.estimation import ModelCache
from parties.mpc.participants.admission import Admission
from protocols import base
from protocols.context import Context
from protocols.ring import Ring, RingArray
from tests.robustness.attacks.goals.attacker import Attacker
from tests.robustness.attacks.goals.catalogue import GOALS
from tests.robustness.attacks.goals.joins import bend, link
from tests.robustness.attacks.goals.people import blamed
from tests.robustness.attacks.goals.results import Try, tried
from tests.robustness.attacks.judge import MALICIOUS, SEMI_HONEST
from tests.robustness.cli import robustness

BURN, PICK, EXCLUDE = "burn-the-budget", "pick-the-query", "exclude-an-owner"


def tries(goal: str, *ways: str, modes: Sequence[str] = (MALICIOUS,)) -> list[Try]:
    return tried(goal, GOALS[goal], ways, modes)


def test_attacks_says_what_was_wanted_what_it_got_and_what_the_others_saw() -> None:
    """A study ends within its plan after a server left again and again."""
    result = CliRunner().invoke(robustness, ["attacks", "--json", "--goal", "keep-from-ending"])
    document = json.loads(result.stdout)
    assert (result.exit_code, document["ok"], document["attacks"]) == (0, True, [])
    assert [t["mode"] for t in document["goals"]] == [SEMI_HONEST, MALICIOUS]
    for each in document["goals"]:
        assert not each["reached"]
        assert "9 charges" in each["got"]


@pytest.mark.slow
def test_no_budget_is_burnt_by_what_a_server_says_at_a_restart() -> None:
    found = {(t.way, t.mode): t for t in tries(BURN, modes=(SEMI_HONEST, MALICIOUS))}
    assert len(found) == 8
    assert not any(t.reached for t in found.values())
    assert all("0 and 0 entries more" in t.got for t in found.values())
    assert all("then all 2 rounds" in t.got for t in found.values())
    assert "says that it has charged 60" in found["within", MALICIOUS].seen
    assert "in all; the plan has" in found["above", MALICIOUS].seen


def test_charges_adopted_on_ones_word_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def adopted(states: Sequence[restart.ReportedState]) -> list[LedgerEntry]:
        return sorted({e for s in states for e in s.entries}, key=lambda e: (e.round, e.opening))

    monkeypatch.setattr(restart, "_charged_by_two", adopted)
    (found,) = tries(BURN, "within")
    assert found.reached
    assert "60 and 60 entries more" in found.got
    assert not found.as_it_should_be


@pytest.mark.parametrize(
    "way",
    [
        way if way == "leaves" else pytest.param(way, marks=pytest.mark.slow)
        for way in GOALS[PICK].ways
    ],
)
def test_a_choice_is_drawn_once_whatever_a_server_says_after_it_saw_it(way: str) -> None:
    (found,) = tries(PICK, way)
    assert not found.reached, found
    draws = found.got.partition(" in ")[0].split()[1:]
    assert len(draws) == (1 if way == "lost-keys" else 10)
    assert "charged 1 times; then all 2 rounds" in found.got


def test_noise_that_is_drawn_anew_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a draw for each start, of which the server takes the one that it likes."""
    monkeypatch.setattr(Context, "noise", Context.common)
    assert any(t.reached for t in tries(PICK, "leaves", modes=(MALICIOUS, SEMI_HONEST)))
    # Of two counts, the same noise comes again once in some thousand times: not in both.
    found = [t for t in tries("learn-first") if t.reached]
    assert found
    assert all("others after a restart" in t.got for t in found)


def test_a_lead_that_changes_a_kept_model_keeps_a_study_from_ending_where_followers_take_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def untaught(*_: object) -> None:
        """No follower shows the lead what two have kept."""

    monkeypatch.setattr(ModelCache, "receive_missing", untaught)
    monkeypatch.setattr(ModelCache, "take", ModelCache.save)
    (found,) = tries(PICK, "another-model")
    assert found.reached
    assert "the study does not end" in found.got


def test_what_was_learnt_first_is_what_the_others_get() -> None:
    assert not any(t.reached for t in tries("learn-first"))


@pytest.mark.slow
def test_an_owner_is_excluded_by_none_but_who_says_that_it_has_nothing_of_it() -> None:
    found = {t.way: t for t in tries(EXCLUDE)}
    assert [way for way, t in found.items() if t.reached] == ["never-arrived"]
    assert all(t.as_it_should_be for t in found.values())
    assert found["never-arrived"].seen == "clinic-a's upload is not at server-1"
    assert "parties 1 do not list" in found["no-totals"].seen
    assert "has not signed" in found["withdrawn"].seen


def test_a_round_that_is_counted_without_somebody_keeps_a_study_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not each time: a server that sees other inputs first stops the others before they have kept the other total."""
    monkeypatch.setattr(Admission, "_lost", lambda self, round: {})
    found = next((t for _ in range(8) for t in tries(EXCLUDE, "no-totals") if t.reached), None)
    assert found is not None
    assert "the study does not end" in found.got


@pytest.mark.slow
def test_no_honest_server_is_named_for_what_another_did() -> None:
    found = tries("blame-an-honest-server")
    assert not any(t.reached for t in found), found
    assert all(t.seen for t in found if t.way != "accuses-and-shows")


def test_blamed_reads_who_an_audit_names_without_the_deviating_one() -> None:
    claims = Check("charges", PASS, "Each follows. Server 2 claimed 3 charges at a restart.")
    failed = Check("owners", FAIL, "server 0's transcript says otherwise")
    both = Check("owners", FAIL, "server 0's and server 1's transcripts differ")
    assert blamed([claims, failed, both], ended=True) == {0, 2}
    assert blamed([failed, both], ended=False) == set()


def test_joins_are_bent_where_nothing_is_proved_and_end_before_a_charge_where_all_is() -> None:
    found = tries("bend-a-join", modes=(SEMI_HONEST, MALICIOUS))
    assert all(t.as_it_should_be for t in found), found
    assert {t.mode for t in found if t.reached} == {SEMI_HONEST}
    assert all("charged 0 openings" in t.got for t in found if t.mode == MALICIOUS)
    assert not bend(Attacker(), SEMI_HONEST).reached


def test_a_server_that_helps_an_owner_sees_nothing_but_uniform_bytes() -> None:
    assert not link(SEMI_HONEST).reached


def test_products_without_masks_are_seen_in_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> RingArray:
        return ring.zeros(shape)

    monkeypatch.setattr(base, "zero", bare)
    assert link(SEMI_HONEST).reached


def test_a_goal_that_is_reached_where_it_should_not_is_told() -> None:
    reached = Try(BURN, "within", MALICIOUS, "", "", "", reached=True, expected=False)
    assert not reached.as_it_should_be
    assert replace(reached, expected=True).as_it_should_be


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("goal", GOALS)
def test_every_way_to_every_goal_in_both_modes(goal: str) -> None:
    found = tries(goal, modes=(SEMI_HONEST, MALICIOUS))
    assert all(t.as_it_should_be for t in found), found
