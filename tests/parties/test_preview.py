"""Before it is sent: `submit --check` shows everything and changes nothing, and a terminal is asked."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parties.cli import submit as command
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import CertificateFiles, Config
from parties.foundation.exit_codes import Status
from parties.mpc.submission import resubmit
from parties.mpc.submission.withdrawal_client import WithdrawalProgress
from parties.storage.owner_budget import OwnerBudget
from tests.parties.commands import snapshot
from tests.parties.support import PARTIES, make_config, running_servers

Certificates = dict[str, CertificateFiles]
OWNER = "clinic-a"


class Place:
    """An owner's folder: its configuration, its table and its budget."""

    def __init__(self, folder: Path, config: Config, files: CertificateFiles) -> None:
        self.folder, self.config = folder, config
        self.folder.mkdir()
        tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
        self.toml, self.table = folder / "study.toml", folder / "table.csv"
        self.toml.write_text(config.override({"tls": tls}).resolved_toml())
        self.table.write_text("sex,ward,age\n" + "f,x,1\nm,x,9\nf,y,3\n")
        self.budget = folder / "budget"

    def submit(self, *options: str) -> int:
        arguments = ["join", str(self.toml), "--data", str(self.table)]
        return run_command_line(cli, [*arguments, "--budget", str(self.budget), *options])

    @property
    def charged(self) -> list[int]:
        """Number of releases of each dataset."""
        datasets = OwnerBudget(self.budget).datasets() if self.budget.exists() else []
        return [len(dataset.runs) for dataset in datasets]


class Servers:
    """The ingest APIs of the run in a thread of their own: a command has its own event loop."""

    def __init__(self, config: Config, folder: Path, certificates: Certificates) -> None:
        self._all = (config, folder, certificates)
        self._up, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        async with running_servers(*self._all):
            self._up.set()
            await asyncio.to_thread(self._stop.wait)

    def __enter__(self) -> "Servers":
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def config() -> Config:
    return make_config({"timeouts.connect_s": 1.0})


@pytest.fixture
def place(tmp_path: Path, config: Config, certificates: Certificates) -> Place:
    return Place(tmp_path / "owner", config, certificates[OWNER])


@pytest.fixture
def servers(tmp_path: Path, config: Config, certificates: Certificates) -> Iterator[Servers]:
    with Servers(config, tmp_path / "servers", certificates) as running:
        yield running


def test_check_shows_everything_and_changes_nothing(
    place: Place, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(place.folder)
    assert place.submit("--check") == Status.DONE
    text = capsys.readouterr().out
    for said in (
        "3 rows",
        "sex   categorical; f 2, m 1",
        "age   integer; 1 to 9",
        "as many for every table of at most 100 rows",
        "sealed for each (form seeded, 56 cells",
        "population table: new; this release sets its lifetime limit",
        f"{PARTIES[2]} at 127.0.0.1:",
        "takes submissions",
        "nothing was sent, and nothing was charged",
    ):
        assert said in text
    assert snapshot(place.folder) == before
    assert place.submit("--check", "--json") == Status.DONE
    shown = json.loads(capsys.readouterr().out)
    assert (shown["rows"], shown["cells"], shown["earlier"]) == (3, 56, False)
    assert shown["columns"][1]["frequent"] == [["x", 2], ["y", 1]]
    assert [server["takes"] for server in shown["servers"]] == [True] * 3
    assert (shown["cost"]["covered"], shown["cost"]["new"]) == (True, True)
    assert snapshot(place.folder) == before
    # What it said is what is sent then.
    assert place.submit("--json") == Status.DONE
    assert json.loads(capsys.readouterr().out)["sent_bytes"] == shown["sent_bytes"]
    assert place.charged == [1]
    before = snapshot(place.folder)
    assert place.submit("--check", "--json") == Status.DONE
    again = json.loads(capsys.readouterr().out)
    assert (again["earlier"], again["cost"]["rho"], again["cost"]["new"]) == (True, 0.0, False)
    assert {server["says"] for server in again["servers"]} == {"has a submission of yours"}
    assert snapshot(place.folder) == before


def test_check_fails_as_a_submission_would(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens; and then the budget is spent by another configuration."""
    assert place.submit("--check") == Status.NETWORK
    said = capsys.readouterr()
    assert "3 rows" in said.out
    assert said.out.count("cannot be reached: nothing listens there") == 3
    place.table.write_text("sex,ward,age\nf,x,10\n")
    assert place.submit("--check") == Status.DATA
    assert "column 'age'" in capsys.readouterr().err
    place.table.write_text("sex,ward,age\nf,x,1\n")
    assert place.submit("--check", "--status") == Status.USAGE


def test_check_says_that_the_budget_does_not_cover_it(
    place: Place, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.submit() == Status.DONE
    capsys.readouterr()
    (place.folder / ".table.csv.trial.clinic-a.submission").unlink()
    assert place.submit("--check") == Status.BUDGET
    said = capsys.readouterr()
    assert "DOES NOT COVER" in said.out
    assert "does not cover this release, and nothing was sent" in said.err
    assert place.charged == [1]


def test_command_replaces_and_withdraws(
    place: Place,
    servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ingest alone, so that the servers never meet: everything waits for that, and is said so."""
    take_back = resubmit.await_withdrawal

    async def hasty(*given: Any, **named: Any) -> WithdrawalProgress:
        return await take_back(*given, **{**named, "limit_s": 0.0})

    monkeypatch.setattr(resubmit, "await_withdrawal", hasty)
    assert place.submit() == Status.DONE
    assert place.submit("--replace", "--withdraw") == Status.USAGE
    assert place.submit("--status", "--check") == Status.USAGE
    place.table.write_text("sex,ward,age\nf,x,1\n")
    capsys.readouterr()
    assert place.submit() == Status.STORAGE
    assert "or --replace, to send this table in its place" in capsys.readouterr().err
    assert place.submit("--replace", "--check", "--json") == Status.DONE
    shown = json.loads(capsys.readouterr().out)
    assert (shown["rows"], shown["cost"]["rho"], shown["earlier"]) == (1, 0.0, False)
    for _ in range(2):
        assert place.submit("--replace", "--json") == Status.DONE
        found = json.loads(capsys.readouterr().out)
        assert (found["version"], found["rows"], found["complete"]) == (2, 1, True)
        assert found["former"]["waiting"] == list(PARTIES)
    assert place.submit("--status") == Status.DONE
    said = capsys.readouterr().out
    assert "the former submission is not gone yet: party-0, party-1 and party-2 know of it" in said
    assert run_command_line(cli, ["budget", "--budget", str(place.budget)]) == Status.DONE
    assert "replaced by another submission: not spent" in capsys.readouterr().out
    assert place.submit("--withdraw") == Status.DONE
    said = capsys.readouterr().out
    assert "the withdrawal of clinic-a is on its way" in said
    assert "is given back once two of three servers have signed" in said
    assert len(list(place.folder.glob(".table.csv.trial.clinic-a.submission.former-1"))) == 1


class Terminal:
    """Somebody sits there."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "sent"), [("n", 0), ("y", 3)])
def test_submit_asks_in_a_terminal(
    place: Place,
    servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    sent: int,
) -> None:
    asked: list[str] = []

    def prompt(text: str, **_: object) -> bool:
        asked.append(text)
        return answer == "y"

    monkeypatch.setattr(command, "in_terminal", lambda: True)
    monkeypatch.setattr(command.click, "confirm", prompt)
    assert place.submit() == (Status.DONE if sent else Status.INTERRUPTED)
    said = capsys.readouterr()
    assert "3 rows" in said.err
    assert "takes of your table's privacy epsilon 1" in said.err
    assert asked == ["Send it?"]
    assert place.charged == ([1] if sent else [])
    assert place.submit("--yes") == Status.DONE
    assert asked == ["Send it?"]


def test_nobody_is_asked_who_is_not_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not command.in_terminal()
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert not command.in_terminal()
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert command.in_terminal()
