"""`python -m tests.robustness attacks`: what succeeds where nothing is proved ends the run where all is."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from parties.mpc.steps import AGREE, CLIENTS_RESUME
from protocols.verify import ProductVerifier
from tests.robustness.attacks.deviations import EQUIVOCATION, AtMessage
from tests.robustness.attacks.judge import (
    ABORTED,
    HARMLESS,
    MALICIOUS,
    RIGHTFUL,
    SEMI_HONEST,
    SUCCEEDED,
    WAITING,
    Result,
    generic,
    spread,
    without_control,
)
from tests.robustness.attacks.mesh import run
from tests.robustness.attacks.programs import PROGRAMS, TARGETS
from tests.robustness.cli import robustness


def attacked(*arguments: str) -> tuple[int, list[dict[str, object]]]:
    result = CliRunner().invoke(robustness, ["attacks", "--json", *arguments])
    return result.exit_code, json.loads(result.stdout)["attacks"]


@pytest.mark.parametrize("name", ["A-below", "A-above", "D"])
def test_structured_attacks_succeed_in_semi_honest_mode_and_are_noticed_in_malicious_mode(
    name: str,
) -> None:
    status, found = attacked("--attack", name)
    assert status == 0
    assert [(r["security"], r["outcome"]) for r in found] == [
        ("semi-honest", SUCCEEDED),
        ("malicious", ABORTED),
    ]
    assert "select." in str(found[1]["noticed"])
    said = ("name", "mode", "aborted", "before_opening", "learnt")
    assert [found[0][word] for word in said] == [name, "semi-honest", False, False, True]
    assert [found[1][word] for word in said] == [name, "malicious", True, True, False]
    # D moves a highest bit, which no product is made of: it lies in the opening, and one party has the right value.
    assert found[1]["opened"] == ("rightful" if name == "D" else "nothing")


@pytest.mark.parametrize("name", ["B", "C-counts"])
def test_noise_that_one_party_shapes_is_noticed(name: str) -> None:
    status, found = attacked("--attack", name, "--messages", "2")
    assert status == 0
    assert found[0]["outcome"] == SUCCEEDED
    assert {r["outcome"] for r in found[1:]} == {ABORTED}


@pytest.mark.parametrize("program", ["carries", "inner-product", "random-bits"])
def test_every_changed_message_ends_the_run_or_changes_nothing(program: str) -> None:
    for result in generic([program], ["flip-kept", "constant", "zeros"], 2):
        assert result.outcome in (ABORTED, WAITING), result


@pytest.mark.parametrize("pid", range(3))
def test_a_party_that_takes_back_its_last_word_ends_the_run(pid: int) -> None:
    """The word is a constant of the program: who changes its own may not change the others' in this process."""
    step = "setup.verify"
    sent = [s for s in run(PROGRAMS["carries"], malicious=True).sent[pid] if s.step == step]
    last = [number for number, s in enumerate(sent) if s.size == 1]
    assert [sent[number].told_both for number in last] == [False, True]
    for number in last:
        seen = run(
            PROGRAMS["carries"],
            malicious=True,
            deviating=pid,
            deviation=AtMessage("flip-kept", step, number),
        )
        assert "did not find right" in str(seen.errors)


def test_an_attack_that_changes_nothing_is_no_success_of_proofs() -> None:
    found = Result("A", MALICIOUS, "select", 0, None, None, HARMLESS)
    assert not found.as_it_should_be
    assert replace(found, outcome=WAITING).as_it_should_be


def test_changes_succeed_where_nothing_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with proofs that prove nothing some consistent change is opened, and is said to have succeeded."""

    async def trusting(self: ProductVerifier, ctx: object) -> None:
        return None

    monkeypatch.setattr(ProductVerifier, "settle", trusting)
    outcomes = {result.outcome for result in generic(["inner-product"], ["constant"], 3)}
    assert SUCCEEDED in outcomes


def test_silence_keeps_honest_parties_waiting_and_opens_nothing() -> None:
    (first, *_) = generic(["carries"], ["silence"], 1)
    assert first.outcome == WAITING
    silent = AtMessage("silence", "setup", 0)
    outcome = run(PROGRAMS["carries"], malicious=True, deviating=0, deviation=silent)
    assert outcome.opened == {1: [], 2: []}


def test_a_wrong_opening_ends_one_honest_party_and_shows_the_other_what_is_right() -> None:
    """An opened value was proved; a party that hears another value than the two holders have ends, for any value."""
    found = list(generic(["inner-product"], ["wrong-opening"], None))
    assert {(r.outcome, r.opened) for r in found} == {(ABORTED, RIGHTFUL)}
    assert {r.deviating for r in found} == {0, 1, 2}
    assert all(r.to_dict()["before_opening"] for r in found)
    assert all("different components" in r.noticed for r in found)


@pytest.mark.parametrize("security", [SEMI_HONEST, MALICIOUS])
def test_an_altered_greeting_of_a_pair_is_noticed_in_either_mode(security: str) -> None:
    found = list(generic(["keys"], ["flip"], None, [security]))
    assert len(found) == 12
    assert {r.outcome for r in found} == {ABORTED}
    assert all("does not open" in r.noticed or "sealing key" in r.noticed for r in found)


@pytest.mark.parametrize("security", [SEMI_HONEST, MALICIOUS])
def test_whole_runs_notice_who_tells_two_servers_different_things(security: str) -> None:
    found = list(generic(["run-restarted"], [EQUIVOCATION], 1, [security]))
    public = [r for r in found if r.step in (AGREE.name, CLIENTS_RESUME.name)]
    assert [r.outcome for r in public] == [ABORTED] * 2


def test_changed_rows_change_what_is_measured_where_nothing_is_proved() -> None:
    modes = [SEMI_HONEST, MALICIOUS]
    found = list(generic(["recoding"], ["constant"], 3, modes))
    by_mode = [{r.outcome for r in found if r.security == security} for security in modes]
    assert SUCCEEDED in by_mode[0]
    assert by_mode[1] == {ABORTED}


def test_a_program_in_which_nothing_succeeds_is_told_to_have_no_control() -> None:
    tame = Result("flip", SEMI_HONEST, "select", 0, None, None, HARMLESS)
    assert without_control([tame]) == ["select"]
    assert without_control([tame, replace(tame, outcome=SUCCEEDED)]) == []
    assert without_control([replace(tame, program="keys")]) == []


def test_spread_comes_to_other_messages_in_each_turn() -> None:
    assert spread(3, 5) == [0, 1, 2]
    assert spread(100, 4) == [0, 25, 50, 75]
    tried = {number for turn in range(9) for number in spread(10, 2, turn)}
    assert len(tried) >= 9


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", [*TARGETS])
def test_every_kind_of_change_in_every_protocol(program: str) -> None:
    kinds = ("flip", "flip-kept", "constant", "ones", "replay", "silence")
    options = [part for kind in kinds for part in ("--attack", kind)]
    messages = "1" if TARGETS[program].whole else "6"
    status, found = attacked(*options, "--program", program, "--messages", messages)
    assert status == 0, [r for r in found if not r["aborted"] and r["mode"] == MALICIOUS]
