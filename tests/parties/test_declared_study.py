"""Studies that a file declares: the file, what follows from it in each state, and that nothing follows twice."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from parties.config import load_config
from parties.foundation.errors import ConfigError
from parties.identity.join_documents import fingerprint_words
from parties.service.declared_study import (
    Change,
    DecisionNeeded,
    DeclaredStudy,
    StudyPlan,
    Wanted,
    WordsOfAnother,
    check_same,
    find_study,
    load_declared_study,
    plan,
    proposed_before,
)
from parties.service.study_record import StudyState
from tests.parties.small import write_small

DIGEST, OTHER = "ab" * 32, "cd" * 32
WORDS = fingerprint_words(DIGEST)


def study(state: str, digest: str = DIGEST, run: str = "small") -> dict[str, Any]:
    words = fingerprint_words(digest)
    return {"run": run, "digest": digest, "words": words, "state": state, "reason": "because"}


def declared(state: Wanted = Wanted.RUNNING, *revoked: str, words: str = WORDS) -> DeclaredStudy:
    return DeclaredStudy("small", words=words, state=state, revoked=revoked)


def commands(found: StudyPlan) -> list[tuple[str, Mapping[str, object]] | None]:
    return [change.command for change in found.changes]


def planned(wanted: DeclaredStudy, state: str, **given: Any) -> StudyPlan:
    return plan(wanted, study(state), given or {}, server="alpha")


APPROVE = ("approve", {"digest": WORDS})


@pytest.mark.parametrize(
    ("state", "wanted", "order"),
    [
        ("proposed", Wanted.RUNNING, [APPROVE]),
        ("approved", Wanted.RUNNING, []),
        ("queued", Wanted.RUNNING, []),
        ("running", Wanted.RUNNING, []),
        ("running", Wanted.CLOSED, [("close", {})]),
        ("running", Wanted.FINISHED, [("finish", {})]),
        ("closed", Wanted.FINISHED, [("finish", {})]),
        ("finished", Wanted.FINISHED, []),
        ("finished", Wanted.RUNNING, []),
        ("running", Wanted.CANCELLED, [("cancel", {"reason": ""})]),
        ("failed", Wanted.CANCELLED, [("cancel", {"reason": ""})]),
        ("cancelled", Wanted.CANCELLED, []),
    ],
)
def test_a_state_is_reached_by_one_command_or_none(
    state: str, wanted: Wanted, order: list[Any]
) -> None:
    found = planned(declared(wanted), state)
    assert (commands(found), found.waits) == (order, ())


@pytest.mark.parametrize("state", StudyState)
def test_without_words_nothing_is_ever_approved(state: StudyState) -> None:
    nothing = DeclaredStudy("small", config=Path("small.toml"))
    if state in (StudyState.FAILED, StudyState.CANCELLED):
        with pytest.raises(DecisionNeeded):
            planned(nothing, state)
    else:
        assert planned(nothing, state).changes == ()
    assert commands(plan(nothing, None, None, server="alpha")) == [None]


@pytest.mark.parametrize("state", ["failed", "cancelled"])
@pytest.mark.parametrize("wanted", [Wanted.RUNNING, Wanted.CLOSED, Wanted.FINISHED])
def test_what_has_failed_or_was_ended_takes_a_decision(state: str, wanted: Wanted) -> None:
    with pytest.raises(DecisionNeeded, match=f"small is {state} .because.: .*expected"):
        planned(declared(wanted), state)
    with pytest.raises(DecisionNeeded, match="finished"):
        planned(declared(Wanted.CANCELLED), "finished")


def test_commands_that_were_given_are_not_given_again() -> None:
    wanted = declared(Wanted.CLOSED, "east", "west")
    first = planned(wanted, "running", revoked=["east"])
    assert commands(first) == [("close", {}), ("revoke", {"owner": "west"})]
    assert planned(wanted, "running", close=True, revoked=["west", "east"]).changes == ()


@pytest.mark.parametrize("state", ["proposed", "approved", "queued", "running"])
def test_commands_wait_until_a_process_takes_them(state: str) -> None:
    found = plan(declared(Wanted.CLOSED, "east"), study(state), None, server="alpha")
    assert len(found.waits) == 2
    assert commands(found) == ([APPROVE] if state == "proposed" else [])


@pytest.mark.parametrize(
    ("first", "after", "waits"),
    [(None, "by one of two", True), ("operator anna", None, True), ("operator ben", "yes", False)],
)
def test_where_two_approve_one_of_them_approves_nothing(
    first: str | None, after: str | None, *, waits: bool
) -> None:
    here = study("proposed") | {"approved_first": first}
    found = plan(declared(), here, {}, server="alpha", four_eyes="operator anna")
    assert [change.after for change in found.changes] == ([] if after is None else [after])
    assert [text.partition(" at ")[0] for text in found.waits] == [
        "a second approver is needed"
    ] * waits


def test_a_study_is_found_by_its_words_and_no_other_is_taken_for_it() -> None:
    here = [study("proposed", OTHER), study("running", OTHER[::-1], "another")]
    with pytest.raises(WordsOfAnother, match="NOT THOSE OF small HERE"):
        find_study(declared(), here)
    with pytest.raises(WordsOfAnother):
        find_study(declared(words=here[1]["words"]), here)
    assert find_study(declared(), here[1:]) is None
    assert find_study(declared(), [*here, study("proposed")]) == study("proposed")
    without = DeclaredStudy("small")
    assert find_study(without, here) == here[0]
    with pytest.raises(DecisionNeeded, match="2 studies here are called small"):
        find_study(without, [*here, study("proposed")])


def write(folder: Path, text: str) -> Path:
    path = folder / "small.study.toml"
    path.write_text(text)
    return path


def test_a_file_is_read_with_its_paths_beside_it(tmp_path: Path) -> None:
    config, _ = write_small(tmp_path)
    slip = WORDS.upper().replace(" ", "  ")
    found = load_declared_study(
        write(
            tmp_path,
            f'config = "{config.name}"\nwords = "{slip}"\nstate = "closed"\nrevoked = ["east"]\n',
        )
    )
    assert found == DeclaredStudy(
        "small",
        config=config,
        words=WORDS,
        state=Wanted.CLOSED,
        revoked=("east",),
        authority=tmp_path / "authority",
        out=tmp_path / "study",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run: is missing"),
        ('run = "small"\nepsilon = 1', "epsilon: is unknown; expected config, run"),
        ('run = "a/b"', "run: is 'a/b'"),
        ('run = "other"\nconfig = "small.toml"', "run: is 'other'; expected 'small', as in config"),
        ('run = "small"\nwords = "ab"', "words: are digits"),
        (f'run = "small"\nwords = "{DIGEST}"', "words: are digits"),
        ('run = "small"\nwords = "legal winner"', "words: these are 2 words"),
        ('run = "small"\nstate = "closed"', "words: is missing"),
        ('run = "small"\nrevoked = ["east"]', "words: is missing"),
        ('run = "small"\nstate = "open"', "state: is 'open'; expected running, closed"),
        (f'run = "small"\nwords = "{WORDS}"\nrevoked = "east"', "revoked: is 'east'"),
        (f'run = "small"\nwords = "{WORDS}"\nrevoked = ["<b>"]', "revoked: has '<b>'"),
        (f'run = "small"\nwords = "{WORDS}"\nreason = "no"', "reason: is for state"),
        ('run = "small"\ndays = -1', "days: is -1"),
        ("run = 7", "run: is 7; expected text"),
        ("run =", "is not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, message: str) -> None:
    write_small(tmp_path)
    with pytest.raises(ConfigError, match=r"small\.study\.toml") as caught:
        load_declared_study(write(tmp_path, text))
    assert message in str(caught.value)


def test_a_study_of_another_configuration_is_never_taken_for_the_declared_one(
    tmp_path: Path,
) -> None:
    config, _ = write_small(tmp_path)
    text = config.read_text()
    wanted = DeclaredStudy("small", config=config, out=tmp_path / "study")
    check_same(wanted, study("proposed") | {"config": text})
    with pytest.raises(
        DecisionNeeded, match=r"run\.epsilon is 2\.0 in the file, 3\.0 in the study"
    ):
        check_same(
            wanted, study("proposed") | {"config": text.replace("epsilon = 2.0", "epsilon = 3.0")}
        )
    # Files of a former attempt are proposed again, if they are of this study.
    assert proposed_before(wanted) is None
    (tmp_path / "study").mkdir()
    made = tmp_path / "study" / config.name
    made.write_text(text)
    assert proposed_before(wanted) == made
    config.write_text(text.replace("epsilon = 2.0", "epsilon = 3.0"))
    with pytest.raises(DecisionNeeded, match="expected another folder"):
        proposed_before(wanted)
    assert load_config(made).run.epsilon == 2.0


def test_a_change_is_a_line_for_people() -> None:
    assert str(Change("closing", "not asked", "asked")) == "closing: not asked -> asked"
