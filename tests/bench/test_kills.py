"""Faults at any point of a run: a sample of cases, all of them where there is time, and that a wrong end is seen."""

import json
import sqlite3
from pathlib import Path

import pytest

from bench.load.fuzzing.corpus import Corpus
from bench.load.kills.case import Case, Run, attempt, judged, play
from bench.load.kills.cli import cases_of, known, play_all, table_rows
from bench.load.kills.network import Network
from bench.load.kills.points import FAULTS
from parties.database import FILE

# What servers pass in the small study, at least; a case beyond a run's last point is a run without a fault.
POINTS = (150, 150, 150)
RESULTS = Path(__file__).parents[2] / "build" / "kills.jsonl"
"""Kept, so that an interrupted run of all goes on."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


# Another seed draws others. To stop a server beyond the others' deadline takes that long.
SAMPLE = cases_of(POINTS, [fault for fault in FAULTS if fault != "hang"], seed=5)[:3]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda c: f"{c.fault}-{c.victim}-{c.number}")
def test_a_run_is_finished_whatever_happens_to_a_server(
    corpus: Corpus, tmp_path: Path, case: Case
) -> None:
    outcome = play(case, corpus, tmp_path / "case")
    assert outcome.wrong == "", outcome


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
    drawn = cases_of((3, 2, 4), tuple(FAULTS), seed=1)
    assert len(set(drawn)) == len(drawn) == 9 * len(FAULTS)
    assert [case.fault for case in drawn[: len(FAULTS)]] == list(FAULTS)
    assert drawn == cases_of((3, 2, 4), tuple(FAULTS), seed=1)
    assert drawn != cases_of((3, 2, 4), tuple(FAULTS), seed=2)


def test_outcomes_that_a_file_has_are_known(tmp_path: Path) -> None:
    path = tmp_path / "kills.jsonl"
    line = {
        "case": {"fault": "kill", "victim": 1, "number": 7},
        "at": "after seal agreed",
        "ended": [6, -9, None],
        "tries": 1,
        "seconds": 2.5,
        "wrong": "",
    }
    path.write_text(json.dumps(line) + "\n")
    (outcome,) = known(path)
    assert outcome.case == Case("kill", 1, 7)
    assert table_rows([outcome]) == [("kill", "SIGKILL", 1, 1, 0, 1, "-9: 1, 6: 1", 0)]
    assert known(tmp_path / "none") == known(None) == []


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_thousand_runs_are_finished(corpus: Corpus, tmp_path: Path) -> None:
    """Goes on where it was interrupted; delete the file to begin anew."""
    RESULTS.parent.mkdir(exist_ok=True)
    outcomes = known(RESULTS)
    done = {outcome.case for outcome in outcomes}
    cases = [c for c in cases_of(POINTS, tuple(FAULTS), seed=1)[:1000] if c not in done]
    with RESULTS.open("a") as file:
        for outcome in play_all(cases, corpus, tmp_path, jobs=2):
            outcomes.append(outcome)
            file.write(outcome.to_json() + "\n")
            file.flush()
    assert [outcome for outcome in outcomes if outcome.wrong] == []
