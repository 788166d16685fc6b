import json
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from bench.cli import bench
from bench.secagg import report as secagg_report
from bench.secagg import rounds
from bench.secagg.security import FLOWER, MODEL, OURS, SIGNED, bits_of, shown
from secagg.graph import strength
from secagg.masks import packed_bytes

_FIELDS = """
    implementation clients neighbours threshold length dropout client_seconds_mean server_seconds wall_seconds
    client_sent_bytes_mean client_received_bytes_mean exact semi_honest_bits malicious_bits correctness_bits
"""
FIELDS = set(_FIELDS.split())


def test_secagg_prints_the_documented_json() -> None:
    arguments = ["secagg", "--clients", "6", "--neighbours", "4", "--length", "100", "--json"]
    result = CliRunner().invoke(bench, [*arguments, "--dropout", "0", "--dropout", "0.2"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["results"]
    assert [set(row) for row in rows] == [FIELDS, FIELDS]
    assert [row["dropout"] for row in rows] == [0.0, 0.2]
    assert all(row["exact"] is True and row["neighbours"] == 4 for row in rows)
    assert all(row["implementation"] == "syncret" for row in rows)


@pytest.mark.slow
def test_secagg_adds_its_rounds_to_the_files_of_a_folder(tmp_path: Path) -> None:
    small = ["secagg", "--clients", "6", "--length", "50", "--output", str(tmp_path)]
    for more in (["--dropout", "0"], ["--dropout", "0.2", "--signed"], ["--dropout", "0"]):
        result = CliRunner().invoke(bench, [*small, *more])
        assert result.exit_code == 0, result.output
    runs = json.loads((tmp_path / "secagg.json").read_text())["runs"]
    # The same command again replaces its run; where results go is not part of a command.
    start = "syncret bench secagg --clients 6 --length 50 --dropout"
    assert {run["command"] for run in runs} == {f"{start} 0.0", f"{start} 0.2 --signed"}
    assert all(set(row) == FIELDS for run in runs for row in run["results"])
    page = (tmp_path / "secagg.md").read_text()
    assert page.count("## `syncret bench secagg") == 2
    assert "| yes |" in page
    assert "| NO |" not in page
    assert str(tmp_path) not in page


def test_page_compares_with_flower_in_the_same_round_only() -> None:
    def row(implementation: str, neighbours: int, seconds: float) -> dict[str, object]:
        found: dict[str, object] = dict.fromkeys(FIELDS, 1000)
        return {
            **found,
            "implementation": implementation,
            "clients": 100,
            "neighbours": neighbours,
            "dropout": 0.1,
            "length": 32_768,
            "wall_seconds": seconds,
            "exact": implementation == "syncret",
        }

    rows = [row("syncret", 21, 2.0), row("flower", 20, 50.0), row("flower", 99, 300.0)]
    run = {"command": "c", "commit": "d", "date": "e", "peak_memory_mb": 1, "results": rows}
    lines = [line for line in secagg_report.markdown([run]).splitlines() if "32,768" in line]
    assert [line.split(" | ")[12] for line in lines] == ["", "25", ""]
    assert [line.endswith("| NO |") for line in lines] == [False, True, True]


@pytest.mark.parametrize("signed", [False, True])
def test_measure_keeps_within_the_traffic_a_client_is_promised(signed: bool) -> None:
    result = rounds.measure(12, 6, 5000, 0.1, signed=signed)
    bits = (12 * rounds.MAX_COUNT).bit_length()
    assert result.exact
    # Hybrid keys, shares, pair secrets and the box for the server; all else stays below 200 bytes a neighbour.
    keys = 2 * 1216 + 1136 + 6 * (1088 + (1088 + 32 + 20) // 2)
    assert result.client_sent_bytes_mean <= 1.3 * packed_bytes(5000, bits) + 200 * 6 + keys


def test_page_states_what_the_parameters_are_worth_for_every_recorded_round() -> None:
    recorded = json.loads(Path("bench/results/secagg.json").read_text())["runs"]
    rows = [row for run in recorded for row in run["results"]]
    assert all(set(row) == FIELDS for row in rows)
    for row in rows:
        of = [row[name] for name in ("implementation", "clients", "neighbours", "threshold")]
        assert {name: row[name] for name in bits_of(*of)} == bits_of(*of)
    assert Path("bench/results/secagg.md").read_text() == secagg_report.markdown(recorded)
    # Majorities of 21 neighbours of 100 are worth 21 bits; (28, 6) stands beside them, and what signatures need.
    worth = {
        (row["implementation"], row["neighbours"], row["threshold"]): row["semi_honest_bits"]
        for row in rows
        if row["clients"] == 100
    }
    assert worth[OURS, 21, 11] == pytest.approx(20.9, abs=0.1)
    assert worth[FLOWER, 20, 11] == pytest.approx(20.9, abs=0.1)
    assert worth[OURS, 28, 6] >= 40


def test_bits_of_counts_what_the_threat_model_counts() -> None:
    chosen = strength(100, 28, 6, MODEL)
    assert bits_of(OURS, 100, 28, 6) == {
        "semi_honest_bits": chosen.security_bits,
        "malicious_bits": 0.0,
        "correctness_bits": chosen.correctness_bits,
    }
    assert chosen.security_bits >= 40
    assert chosen.correctness_bits >= 20
    # With signatures a server that lies is withstood by thresholds above a majority, not by a bare one.
    assert bits_of(SIGNED, 100, 21, 12)["malicious_bits"] == 0
    assert bits_of(SIGNED, 100, 78, 45)["malicious_bits"] is None
    # 16 dropouts of 49 others leave 32 and the client itself.
    assert bits_of(OURS, 49, 48, 32)["correctness_bits"] == 0
    assert bits_of(FLOWER, 49, 48, 32)["correctness_bits"] is None
    assert [shown(bits) for bits in (None, 0.0, 40.437)] == ["certain", "0", "40.4"]


def test_secagg_takes_the_median_of_rounds_in_turn_with_the_threshold_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []

    def measured(clients: int, neighbours: int, *rest: object, **options: object) -> rounds.Result:
        taken.append(neighbours)
        wall = [3.0, 30.0, 1.0, 10.0, 2.0, 20.0][len(taken) - 1]
        return rounds.Result(OURS, clients, neighbours, 6, 50, 0.0, 0, 0, wall, 0, 0, exact=True)

    monkeypatch.setattr(rounds, "measure", measured)
    asked = "secagg --clients 100 --neighbours 21 --neighbours 28 --length 50 --dropout 0 --json"
    options = ["--threshold", "6", "--repeats", "3"]
    result = CliRunner().invoke(bench, [*asked.split(), *options])
    assert result.exit_code == 0, result.output
    assert taken == [21, 28] * 3
    rows = json.loads(result.stdout)["results"]
    assert [(row["neighbours"], row["wall_seconds"]) for row in rows] == [(21, 2.0), (28, 20.0)]


@pytest.mark.parametrize(
    ("threshold", "dropout", "expected"),
    [(None, 0.5, (10, 11)), (4, 0.1, (4, 26)), (4, 0.5, (4, 19))],
)
def test_measure_opens_sums_of_fewer_than_the_threat_model_has_only_with_a_majority(
    threshold: int | None, dropout: float, expected: tuple[int, int]
) -> None:
    # With a threshold asked for, all but 13 of 39 have to survive, or as many as do.
    found = rounds._thresholds(39, 18, threshold, dropout, signed=False)
    assert found == expected


def test_secagg_says_what_is_wrong_with_impossible_rounds() -> None:
    result = CliRunner().invoke(bench, ["secagg", "--clients", "11", "--neighbours", "5"])
    assert result.exit_code == 2
    assert "not both odd" in result.output


def test_secagg_says_how_to_get_flower() -> None:
    with mock.patch.object(rounds, "flower_available", return_value=False):
        result = CliRunner().invoke(bench, ["secagg", "--with", "flower"])
    assert result.exit_code == 2
    # By name it would come from the public index, where it is not ours.
    assert "pip install -c constraints-flower.txt -e '.[flower]'" in result.output
    assert "make bench-secagg" in result.output


@pytest.mark.parametrize(("clients", "dropout", "count"), [(10, 0.1, 1), (100, 0.1, 10), (7, 0, 0)])
def test_dropped_spreads_the_right_number(clients: int, dropout: float, count: int) -> None:
    found = rounds.dropped(clients, dropout)
    assert len(found) == count
    assert found <= set(range(clients))
