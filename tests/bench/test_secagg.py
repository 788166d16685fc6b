import json
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from bench.cli import bench
from bench.secagg import report as secagg_report
from bench.secagg import rounds
from secagg.masks import packed_bytes

_FIELDS = """
    implementation clients neighbours length dropout client_seconds_mean server_seconds wall_seconds
    client_sent_bytes_mean client_received_bytes_mean exact
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
    assert [line.split(" | ")[8] for line in lines] == ["", "25", ""]
    assert [line.endswith("| NO |") for line in lines] == [False, True, True]


@pytest.mark.parametrize("signed", [False, True])
def test_measure_keeps_within_the_traffic_a_client_is_promised(signed: bool) -> None:
    result = rounds.measure(12, 6, 5000, 0.1, signed=signed)
    bits = (12 * rounds.MAX_COUNT).bit_length()
    assert result.exact
    assert result.client_sent_bytes_mean <= 1.3 * packed_bytes(5000, bits) + 200 * 6


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
