"""Faults at any point of a run: a sample of cases, all of them where there is time, and that a wrong end is seen."""

import json
import multiprocessing
import os
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from bench.load.services import Trio
from parties.crypto.hpke import SealKey
from parties.storage.database import FILE
from parties.storage.files import write_new
from tests.robustness import page
from tests.robustness.fuzzing.corpus import Corpus
from tests.robustness.kills import cli, services
from tests.robustness.kills.case import Run, attempt, judged, play
from tests.robustness.kills.children import continue_stopped, started
from tests.robustness.kills.cli import cases_of, known, outcomes_of, table_rows
from tests.robustness.kills.leftovers import left_behind, until_ended
from tests.robustness.kills.network import Network
from tests.robustness.kills.outcome import CANCELLED, FINISHED, RUNS, Case, Outcome
from tests.robustness.kills.points import CUT, FAULTS, FULL, HANG, KILL
from tests.until import becoming, later, process_of, processes, until, until_stopped

# What servers pass in the small study, at least; a case beyond a run's last point is a run without a fault.
POINTS = {RUNS: (150, 150, 150)}
SERVICE_POINTS = {FINISHED: (110, 110, 110), CANCELLED: (90, 90, 90)}
RESULTS = Path(__file__).parents[2] / "build" / "kills-test.jsonl"
"""Kept, so that an interrupted run of all goes on, where the sources are the same."""
COMMIT = 40 * "a"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


# Another seed draws others. To stop a server beyond the others' deadline takes that long.
SAMPLE = cases_of(POINTS, [fault for fault in FAULTS if fault != HANG], seed=5)[:3]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda c: f"{c.fault}-{c.victim}-{c.number}")
def test_a_run_is_finished_whatever_happens_to_a_server(
    corpus: Corpus, tmp_path: Path, case: Case
) -> None:
    outcome = play(case, corpus, tmp_path / "case")
    assert outcome.wrong == "", outcome


# A service that is killed while its study runs, a disk that is full when it is cancelled, a network that breaks.
SERVICE_SAMPLE = [
    Case(KILL, 0, 80, FINISHED),
    Case(FULL, 2, 70, CANCELLED),
    Case(CUT, 1, 40, FINISHED),
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", SERVICE_SAMPLE, ids=lambda c: f"{c.fault}-{c.victim}-{c.number}")
def test_a_study_of_services_is_over_whatever_happens_to_one(tmp_path: Path, case: Case) -> None:
    outcome = services.play(case, tmp_path / "case")
    assert outcome.wrong == "", outcome
    assert outcome.at


@pytest.mark.timeout(400)
def test_what_services_leave_behind_and_a_lost_charge_are_seen(tmp_path: Path) -> None:
    """The control: a sealing key, a half made card, a share, a port, a charge that one service has forgotten."""
    (tmp_path / "case").mkdir()
    trio = Trio(tmp_path / "case", relays=True)
    playing = services.Playing(trio, Case("", 0, 0, FINISHED))
    assert playing.played() == ""
    for path, what in (
        (playing.place("beta").seal, "own.seal"),
        (trio.folder / "gamma" / "cards" / ".half", "half made"),
        (playing.place("alpha").work / "store" / "totals" / "one.npy", "one.npy"),
    ):
        path.touch()
        assert what in left_behind(trio, playing.config)
        path.unlink(missing_ok=True)  # A store deletes what it does not know.
    assert playing.failed is False
    with sqlite3.connect(playing.place("beta").work / "store" / FILE) as database:
        database.execute("INSERT INTO body VALUES ('one', x'00')")
        database.execute("INSERT INTO meta VALUES ('commitment_key', '00')")
    found = left_behind(trio, playing.config)
    assert "shares, in body" in found
    assert "the commitments' key" in found
    with sqlite3.connect(playing.place("beta").work / "store" / FILE) as database:
        database.execute("DELETE FROM body")
        database.execute("DELETE FROM meta WHERE key = 'commitment_key'")
    key = SealKey.generate()
    card = trio.folder / "alpha" / "cards" / "one" / "tls"
    card.mkdir(parents=True)
    write_new(card / "own.seal", key.pem(), secret=True)
    first, *others = playing.config.parties
    parties = (replace(first, seal=str(key.public)), *others)
    assert "sealing key" in left_behind(trio, replace(playing.config, parties=parties))
    with becoming(f"{trio.folder}/\udcff") as process:
        assert left_behind(trio, playing.config) == ""
        assert process.stdin is not None
        process.stdin.close()
        until(lambda: "sleep" in left_behind(trio, playing.config), "a process that is left")
        process.kill()
    with socket.create_server(("127.0.0.1", trio.listening[2])):
        assert f"port {trio.listening[2]}" in left_behind(trio, playing.config)
    assert left_behind(trio, playing.config) == playing.judged() == ""
    with sqlite3.connect(playing.place("gamma").work / "store" / FILE) as database:
        database.execute("DELETE FROM ledger WHERE round = 1 AND step = 'measure'")
    assert playing.judged().startswith("the ledgers differ")


def test_processes_that_end_in_a_moment_are_waited_for(tmp_path: Path) -> None:
    trio = Trio(tmp_path)
    with becoming(f"{tmp_path}/") as process:
        assert process.stdin is not None
        process.stdin.close()
        process_of(tmp_path, "sleep")
        until_ended(trio, 0.2)
        assert len(processes(tmp_path)) == 1
        later(process.kill)
        until_ended(trio, 20.0)
        assert processes(tmp_path) == {}


def test_a_process_is_continued_once_it_has_stopped() -> None:
    """The control: a signal to continue that comes before its stop is lost."""
    with started(time.sleep, 60) as process:
        assert process.pid is not None
        assert continue_stopped(process) is False
        os.kill(process.pid, signal.SIGSTOP)
        until_stopped(process.pid)
        assert continue_stopped(process) is True
        until(lambda: not continue_stopped(process), "a process that runs")
        process.kill()
        process.join()
        assert continue_stopped(process) is True


async def test_a_study_that_fails_without_a_fault_and_an_owner_that_does_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controls: neither is in what servers ended with."""
    playing = services.Playing(Trio(tmp_path), Case("", 0, 0, FINISHED))
    playing._failed("alpha", {"state": "failed", "reason": "why"})
    failed = Outcome(playing.case, "", (0, 0, 0), 0, 1.0, failed=playing.failed)
    monkeypatch.setattr(services, "play", lambda *_, **__: failed)
    with pytest.raises(RuntimeError, match="went wrong"):
        services.count_points(tmp_path, 0, FINISHED)
    with started(sys.exit, 3) as process:
        process.join()
        with pytest.raises(Exception, match="an owner's process ended with 3"):
            services._submitted(process)


def test_a_service_that_does_not_come_back_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what it ended with is told, where the same command does not go on."""
    monkeypatch.setattr(services, "_TRIES", 0)
    outcome = services.play(Case(KILL, 1, 5, CANCELLED), tmp_path / "case")
    assert outcome.wrong.startswith("beta ended 1 times, now with -9")
    assert (outcome.ended, outcome.tries) == ((0, -9, 0), 1)


def test_a_run_without_a_fault_is_judged_right_and_a_lost_charge_is_seen(
    corpus: Corpus, tmp_path: Path
) -> None:
    """The control: a server that has forgotten a charge, and a transcript that has lost a line."""
    run = Run.new(corpus, tmp_path / "case", 0)
    with Network(run.ways, 0) as network:
        assert attempt(run, network, None) == (0, 0, 0)
    case = Case("kill", 0, 1)
    assert judged(run, case) == ""
    transcript = run.directory(1) / "transcript.jsonl"
    lines = transcript.read_bytes().splitlines(keepends=True)
    transcript.write_bytes(b"".join(lines[:-3] + lines[-2:]))
    assert "chains" in judged(run, case)
    transcript.write_bytes(b"".join(lines))
    with sqlite3.connect(run.directory(2) / "store" / FILE) as database:
        database.execute("DELETE FROM ledger WHERE round = 1 AND step = 'measure'")
    assert judged(run, case).startswith("the ledgers differ")


def test_cases_are_drawn_by_seed_and_take_all_faults_in_turn() -> None:
    drawn = cases_of({RUNS: (3, 2, 4)}, tuple(FAULTS), seed=1)
    assert len(set(drawn)) == len(drawn) == 9 * len(FAULTS)
    assert [case.fault for case in drawn[: len(FAULTS)]] == list(FAULTS)
    assert drawn == cases_of({RUNS: (3, 2, 4)}, tuple(FAULTS), seed=1)
    assert drawn != cases_of({RUNS: (3, 2, 4)}, tuple(FAULTS), seed=2)
    both = cases_of({FINISHED: (3, 2, 4), CANCELLED: (1, 1, 1)}, (KILL,), seed=1)
    assert sorted({case.of for case in both}) == [CANCELLED, FINISHED]
    assert len(set(both)) == len(both) == 12


def outcome(number: int, wrong: str = "") -> Outcome:
    return Outcome(Case("kill", 1, number), "after seal agreed", (6, -9, None), 1, 2.5, wrong)


def test_outcomes_of_the_same_sources_are_known(tmp_path: Path) -> None:
    path = tmp_path / "kills.jsonl"
    bare = outcome(9, "old").to_row(COMMIT)
    del bare["commit"]
    rows = [
        outcome(7).to_row(COMMIT),
        outcome(8, "of others").to_row(40 * "b"),
        outcome(8, "modified").to_row(COMMIT + "+"),
        bare,
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"commit": "torn')
    assert known(path, COMMIT) == {Case("kill", 1, 7): outcome(7)}
    assert known(path, COMMIT + "+") == known(path, "unknown") == {}
    old = json.loads(json.dumps(outcome(7).to_row(COMMIT)))
    del old["case"]["of"]
    assert Outcome.of_row(old) == (COMMIT, outcome(7))
    assert known(tmp_path / "none", COMMIT) == known(None, COMMIT) == {}
    row = ("kill", "SIGKILL", 1, 1, 0, 0, 0, 1, "-9: 1, 6: 1", 0)
    assert table_rows([outcome(7)]) == [row]
    passed_by = Outcome(Case("kill", 0, 200), "", (0, 0, 0), 0, 2.5, failed=True)
    row = ("kill", "SIGKILL", 2, 1, 1, 1, 1, 1, "-9: 1, 6: 1", 0)
    assert table_rows([outcome(7), passed_by]) == [row]


def test_only_what_is_drawn_and_not_known_is_played_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[int] = []

    def playing(cases: Sequence[Case], *_: object) -> Iterator[Outcome]:
        for case in cases:
            played.append(case.number)
            yield outcome(case.number)

    monkeypatch.setattr(cli, "play_all", playing)
    path = tmp_path / "kills.jsonl"
    path.write_text(json.dumps(outcome(99, "not drawn").to_row(COMMIT)) + '\n{"torn')
    nowhere: Any = None

    def numbers(cases: Sequence[int], commit: str) -> list[int]:
        drawn = [Case("kill", 1, number) for number in cases]
        told = outcomes_of(drawn, nowhere, tmp_path, results=path, commit=commit)
        return [one.case.number for one in told if not one.wrong]

    assert numbers([1, 2], COMMIT) == [1, 2] == played
    assert sorted(numbers([1, 2, 3], COMMIT)) == [1, 2, 3]
    assert played == [1, 2, 3]
    # Other sources, modified ones, unknown ones: all anew, each time.
    for commit in (40 * "b", COMMIT + "+", COMMIT + "+", "unknown", "unknown"):
        played.clear()
        assert numbers([1, 2], commit) == [1, 2] == played


def test_a_signal_at_a_childs_start_leaves_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    start = ForkServerProcess.start

    def interrupted(self: ForkServerProcess) -> None:
        start(self)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ForkServerProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), started(time.sleep, 60):
        pytest.fail("interrupted before")
    assert multiprocessing.active_children() == []


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_thousand_runs_are_finished(corpus: Corpus, tmp_path: Path) -> None:
    """Goes on where it was interrupted, of the same commit."""
    RESULTS.parent.mkdir(exist_ok=True)
    cases = cases_of(POINTS, tuple(FAULTS), seed=1)[:1000]
    outcomes = outcomes_of(cases, corpus, tmp_path, jobs=2, results=RESULTS, commit=page.sources())
    played = list(outcomes)
    assert [outcome for outcome in played if outcome.wrong] == []
    # A run has some points that another one passed by: not many.
    assert sum(not outcome.at for outcome in played) < 0.05 * len(played)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_thousand_studies_of_services_are_over(corpus: Corpus, tmp_path: Path) -> None:
    """Goes on where it was interrupted, of the same commit."""
    RESULTS.parent.mkdir(exist_ok=True)
    cases = cases_of(SERVICE_POINTS, tuple(FAULTS), seed=1)[:1000]
    outcomes = outcomes_of(cases, corpus, tmp_path, jobs=2, results=RESULTS, commit=page.sources())
    played = list(outcomes)
    assert [outcome for outcome in played if outcome.wrong] == []
    # A run has some points that another one passed by: not many.
    assert sum(not outcome.at for outcome in played) < 0.05 * len(played)
