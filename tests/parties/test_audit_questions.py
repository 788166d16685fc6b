"""Five questions of an officer: each is answered in words, with all checks folded under them."""

import json
from pathlib import Path

import pytest

from parties.audit.findings import FAIL, PASS, Check
from parties.audit.html import render_audit
from parties.audit.questions import QUESTIONS
from parties.audit.runner import Audit, audit_folder
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.foundation.exit_codes import Status
from tests.golden.archives import RUNS, SUFFIX, unpack

NAMES = ("counts", "person", "linked", "flaim", "tda", "mtl")


def recorded(name: str, folder: Path) -> Path:
    return unpack(RUNS / f"{name}{SUFFIX}", folder / name)


def answers_of(audit: Audit) -> dict[str, str]:
    return {answer.key: " ".join(answer.sentences) for answer in audit.answers}


@pytest.mark.parametrize("name", NAMES)
def test_every_check_is_under_exactly_one_question(name: str, tmp_path: Path) -> None:
    audit = audit_folder(recorded(name, tmp_path))
    folded = [check for answer in audit.answers for check in answer.checks]
    assert sorted(folded) == sorted(check.name for check in audit.checks)
    assert [answer.key for answer in audit.answers] == list(QUESTIONS)
    assert {answer.status for answer in audit.answers} == {PASS}
    assert all(answer.sentences for answer in audit.answers)
    assert all("Not known: " not in said for said in answers_of(audit).values())


def test_answers_have_what_an_officer_asks(tmp_path: Path) -> None:
    said = answers_of(audit_folder(recorded("counts", tmp_path)))
    assert "Three servers held shares of the rows: party-0, party-1, party-2." in said["took_part"]
    assert "3 data owners were counted: owner-000, owner-001, owner-002." in said["took_part"]
    assert "The computation ran from 2026-11-28 03:54 UTC" in said["took_part"]
    assert "epsilon = 5, delta = 1e-05, for one row added to or removed" in said["spent"]
    assert (
        "falsely suspects 1 % of the absent rows, it finds at most 11.5 % of the present ones"
        in said["spent"]
    )
    assert "in two studies like this one" in said["spent"]
    assert "2 chosen queries" in said["opened"]
    assert "5 sets of noisy counts" in said["opened"]
    assert said["follows"].startswith("Yes: ")
    assert "Not checked: " in said["not_shown"]
    assert "lawful basis" in said["not_shown"]
    person = answers_of(audit_folder(recorded("person", tmp_path)))
    assert "knows all rows of everybody else" in person["spent"]
    silos = answers_of(audit_folder(recorded("tda", tmp_path)))
    assert "3 silos were there: silo-000, silo-001, silo-002." in silos["took_part"]
    assert "Each silo: epsilon = 5" in silos["spent"]
    flaim = answers_of(audit_folder(recorded("flaim", tmp_path)))
    assert "3 noisy sums over clients" in flaim["opened"]


def test_answer_says_which_checks_contradict_it(tmp_path: Path) -> None:
    run = recorded("counts", tmp_path)
    (run / "synthetic.csv").write_text((run / "synthetic.csv").read_text() + "f,x,1\n")
    audit = audit_folder(run)
    statuses = {answer.key: answer.status for answer in audit.answers}
    assert statuses == {key: FAIL if key == "follows" else PASS for key in QUESTIONS}
    assert "No: published, table" in answers_of(audit)["follows"]
    (run / "transcripts" / "party-1.jsonl").write_bytes(b"{}\n")
    audit = audit_folder(run)
    assert "Not known: " in answers_of(audit)["spent"]
    assert "checks below contradict them (" in answers_of(audit)["took_part"]


def test_terminal_json_and_page_have_the_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded("flaim", tmp_path)
    assert run_command_line(cli, ["audit", str(run)]) == Status.DONE
    printed = capsys.readouterr().out
    page = (run / "audit.html").read_text()
    assert run_command_line(cli, ["audit", str(run), "--json"]) == Status.DONE
    document = json.loads(capsys.readouterr().out)
    for number, (item, question) in enumerate(
        zip(document["questions"], QUESTIONS.values(), strict=True)
    ):
        assert item["question"] == question
        assert f"{number + 1}. {question}" in printed
        assert f"<h2>{question}</h2>" in page
    # What programs have read so far is as it was.
    assert document["ok"] is True
    assert all(set(check) == {"name", "status", "detail"} for check in document["checks"])
    assert page.count("<details>") == 4
    assert render_audit(audit_folder(run)).count("<details>") == 4


def test_recordings_alone_answer_no_question() -> None:
    check = Check("replay 0", PASS, "The messages are those of the transcript.")
    assert Audit((check,), None, None, recordings_alone=True).answers == ()
    assert len(Audit((check,), None, None).answers) == len(QUESTIONS)
