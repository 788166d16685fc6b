"""An owner asks whether it was counted: each server says for itself what became of its submission."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.cli.submit import submitted_text
from parties.config import CertificateFiles, Config
from parties.foundation.exit_codes import Status
from parties.mpc.exclusion import Exclusion
from parties.mpc.planning.budget import distaim_release
from parties.mpc.records import ParticipantRecord
from parties.mpc.submission.status import (
    ServerAnswer,
    SubmissionStatus,
    ask_submission_status,
    submission_statuses,
)
from parties.mpc.submission.submit import Submitted, refresh_receipts, submit
from parties.session.study import Study
from parties.storage.owner_budget import OwnerBudget
from parties.storage.populations import TableIdentity
from tests.parties.support import (
    PARTIES,
    make_codes,
    make_config,
    make_total,
    running_servers,
)

Certificates = dict[str, CertificateFiles]
OWNER = "clinic-a"


async def test_ask_standings_tells_what_each_server_says(
    tmp_path: Path, certificates: Certificates
) -> None:
    """One server says that the owner was left out, where another has counted it: the owner sees who says what."""
    config = make_config({"timeouts.connect_s": 0.5})
    async with running_servers(config, tmp_path, certificates, (0, 1)) as stores:
        nothing = await ask_submission_status(config, certificates[OWNER])
        assert [told.text for told in nothing] == ["not there"] * 2
        sent = await submit(config, make_codes(20), certificates[OWNER])
        waiting = await ask_submission_status(config, certificates[OWNER])
        assert [told.text for told in waiting] == [
            "there, to be counted from the start (round 0) on"
        ] * 2
        upload = str(sent.upload)
        stores[0].records.save([ParticipantRecord(OWNER, upload, 0)])
        stores[1].records.save(
            [ParticipantRecord(OWNER, upload, 0, Exclusion.COMPONENTS_DIFFER, (1,))]
        )
        told = await ask_submission_status(config, certificates[OWNER])
        assert told == (
            SubmissionStatus(PARTIES[0], upload, True, 0, None, 0),
            SubmissionStatus(PARTIES[1], upload, False, 0, "components differ"),
        )
        texts = [
            "counted from the start on (round 0)",
            "not counted, in round 0: components differ",
        ]
        assert [each.text for each in told] == texts
        other = await ask_submission_status(config, certificates["clinic-b"])
        assert [each.text for each in other] == ["not there"] * 2


async def test_receipt_and_status_tell_the_round_from_which_rows_count(
    tmp_path: Path, certificates: Certificates
) -> None:
    """An owner draws round 1 and comes when round 18 has begun: its rows count from round 19 on, at the earliest."""
    config, state = make_config({"run.rounds": 30}), tmp_path / "state"
    async with running_servers(config, tmp_path, certificates) as stores:
        for store in stores.values():
            store.totals.save(make_total(18, (), np.zeros(56, np.uint32)))
        sent = await submit(config, make_codes(20), certificates[OWNER], state=state, first_round=1)
        assert (sent.rows, sent.first_round, sent.counted_from) == (20, 1, 19)
        text = submitted_text(sent)
        assert "20 rows, to be counted from round 19 on" in text
        told = await ask_submission_status(config, certificates[OWNER])
        assert {each.text for each in told} == {"there, to be counted from round 19 on"}
        # It was counted a round later still: --status says so, the receipt does not say otherwise.
        for store in stores.values():
            store.records.save([ParticipantRecord(OWNER, str(sent.upload), 20)])
        again = await refresh_receipts(config, certificates[OWNER], state)
        assert (again.earlier, again.rows) == (True, 20)
        told = await ask_submission_status(config, certificates[OWNER])
        assert "20 rows, counted from round 20 on" in submitted_text(again, told)
        for store in stores.values():
            store.records.save([])
            store.state.close_to_clients()
        told = await ask_submission_status(config, certificates[OWNER])
        assert {each.text for each in told} == {"there and not counted: no round is left"}


def test_status_says_nothing_that_an_answer_contradicts() -> None:
    sent = Submitted("trial", OWNER, 1, "seeded", 100, 56, counted_from=0, upload="ab" * 32)
    there = SubmissionStatus(PARTIES[0], "ab" * 32, False, None, None, 0)
    assert "to be counted from the start" in submitted_text(sent, [there])
    for answer in (
        replace(there, upload=None, counted_from=None),
        replace(there, upload="cd" * 32),
        replace(there, excluded="components differ", round=0, counted_from=None),
        replace(there, counted_from=None),
        replace(there, upload=None, settled=1, counted_from=None),
    ):
        text = submitted_text(sent, [there, answer])
        assert "is at all three servers" not in text or answer.upload == sent.upload
        if answer.counted_from is None:
            assert "to be counted" not in text
        if answer.upload != sent.upload:
            assert "is not, or not any more, at party-0, as they say" in text


async def test_ask_standings_is_empty_where_no_server_answers(certificates: Certificates) -> None:
    config = make_config({"timeouts.connect_s": 0.5})
    assert await ask_submission_status(config, certificates[OWNER]) == ()


def written(config: Config, folder: Path, files: CertificateFiles) -> tuple[Path, Path]:
    """The configuration as an owner has it, and its table."""
    tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
    path, table = folder / "study.toml", folder / "table.csv"
    path.write_text(config.override({"tls": tls}).resolved_toml())
    table.write_text("sex,ward,age\nf,x,1\n")
    return path, table


@pytest.mark.parametrize("as_json", [False, True])
def test_command_says_what_servers_say_of_a_submission_that_all_have(
    tmp_path: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
) -> None:
    config = make_config()
    path, table = written(config, tmp_path, certificates[OWNER])
    told = (SubmissionStatus(PARTIES[0], "ab" * 32, True, 0, None),)

    async def nothing(*_: object) -> tuple[ServerAnswer, ...]:
        return ()

    state = tmp_path / "state"

    async def known_status(*_: object) -> Submitted:
        return Submitted(config.run.id, OWNER, None, "seeded", 100, 56)

    monkeypatch.setattr("parties.cli.submit.refresh_receipts", known_status)
    monkeypatch.setattr("parties.cli.submit.ask_servers", nothing)
    monkeypatch.setattr("parties.cli.submit.submission_statuses", lambda heard: told)
    arguments = ["join", str(path), "--data", str(table), "--state", str(state), "--status"]
    assert run_command_line(cli, [*arguments, *(["--json"] if as_json else [])]) == Status.DONE
    output = capsys.readouterr().out
    if as_json:
        assert json.loads(output)["standings"] == [told[0].to_dict()]
    else:
        assert "party-0 says: counted from the start on (round 0)" in output
    told = ()
    assert run_command_line(cli, arguments) == Status.DONE
    assert "no server answers whether it is counted" in capsys.readouterr().out


def test_status_enters_a_charge_that_an_older_copy_of_the_budget_lacks(
    tmp_path: Path,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The larger wins: one server's word where nothing is known, two servers' where two have returned the charge."""
    config, submission, upload = make_config(), "5b" * 32, "ab" * 32
    path, table = written(config, tmp_path, certificates[OWNER])
    budget = tmp_path / "budget.sqlite"
    counted = SubmissionStatus(PARTIES[0], upload, True, 1, None)
    told: tuple[SubmissionStatus, ...] = ()

    async def nothing(*_: object) -> tuple[ServerAnswer, ...]:
        return ()

    async def known_status(*_: object) -> Submitted:
        made = Submitted(config.run.id, OWNER, 1, "seeded", 100, 56)
        return replace(made, digest=submission, upload=upload)

    monkeypatch.setattr("parties.cli.submit.refresh_receipts", known_status)
    monkeypatch.setattr("parties.cli.submit.ask_servers", nothing)
    monkeypatch.setattr("parties.cli.submit.submission_statuses", lambda heard: told)
    arguments = ["join", str(path), "--data", str(table), "--status", "--budget", str(budget)]
    arguments += ["--state", str(tmp_path / "state")]

    def ask(*answers: SubmissionStatus) -> tuple[list[int], str]:
        nonlocal told
        told = answers
        assert run_command_line(cli, arguments) == Status.DONE
        found = OwnerBudget(budget).datasets() if budget.exists() else []
        return [len(item.spending) for item in found], capsys.readouterr().err

    # Of another upload, or waiting: nothing is known to be counted.
    assert ask(replace(counted, upload="cd" * 32), replace(counted, counted=False)) == ([], "")
    spending, said = ask(counted)
    assert spending == [1]
    assert "which is counted, as party-0 said; it is charged to table now" in said
    (item,) = OwnerBudget(budget).datasets()[0].runs
    assert (item.release, item.submission) == (distaim_release(Study.of(config)), submission)
    assert ask(counted) == ([1], "")
    OwnerBudget(budget).give_back(config.digest(), [submission], "signed by two")
    assert ask(counted) == ([0], "")
    spending, said = ask(counted, replace(counted, party=PARTIES[1]))
    assert spending == [1]
    assert "as party-0 and party-1 said" in said
    # An older copy, whose limit another study has used, takes the charge as well: it took place.
    budget.unlink()
    other = replace(item.release, config="0e" * 32)
    OwnerBudget(budget).charge(TableIdentity.of_file(table), other, "other")
    assert ask(counted)[0] == [2]
    assert OwnerBudget(budget).datasets()[0].left == 0


def test_a_servers_words_move_no_cursor() -> None:
    says = {"upload": None, "counted": False, "round": 1, "excluded": "late\x1b[2J\u202e"}
    (found,) = submission_statuses([ServerAnswer(make_config().parties[0], says)])
    assert found.text == "not counted, in round 1: late?[2J?"
