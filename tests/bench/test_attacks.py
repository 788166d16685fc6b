"""`syncret bench attacks`: what succeeds where nothing is proved ends the run where all is."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from bench.attacks.deviations import AtMessage
from bench.attacks.judge import (
    ABORTED,
    HARMLESS,
    MALICIOUS,
    SUCCEEDED,
    WAITING,
    Result,
    generic,
    spread,
)
from bench.attacks.mesh import run
from bench.attacks.programs import PROGRAMS
from bench.cli import bench
from protocols.verify import ProductVerifier


def attacked(*arguments: str) -> tuple[int, list[dict[str, object]]]:
    result = CliRunner().invoke(bench, ["attacks", "--json", *arguments])
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
    # D moves a highest bit, which no product is made of: it lies in the opening, and one party has the right value.
    before = name != "D"
    assert [found[1][word] for word in said] == [name, "malicious", True, before, False]


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
    sent = run(PROGRAMS["carries"], malicious=True, deviating=pid).sent
    last = [number for number, (_, size) in enumerate(sent) if size == 1]
    assert len(last) == 2
    for number in last:
        seen = run(
            PROGRAMS["carries"],
            malicious=True,
            deviating=pid,
            deviation=AtMessage("flip-kept", number),
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
    outcome = run(PROGRAMS["carries"], malicious=True, deviation=AtMessage("silence", 0))
    assert outcome.opened == {1: [], 2: []}


def test_spread_has_the_first_and_the_last() -> None:
    assert spread(3, 5) == [0, 1, 2]
    assert spread(100, 3) == [0, 50, 99]
    assert spread(100, 1) == [0]


@pytest.mark.slow
@pytest.mark.parametrize("program", [*PROGRAMS])
def test_every_kind_of_change_in_every_protocol(program: str) -> None:
    kinds = ("flip", "flip-kept", "constant", "ones", "replay", "silence")
    options = [part for kind in kinds for part in ("--attack", kind)]
    status, found = attacked(*options, "--program", program, "--messages", "12")
    assert status == 0, [r for r in found if r["outcome"] == SUCCEEDED]
