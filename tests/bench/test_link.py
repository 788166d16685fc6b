"""The benchmark of joins: the command, its figures and its page."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.cli import bench
from bench.engine.tasks import COLUMN_BITS, KEY_BITS
from protocols.link_costs import join
from protocols.link_plan import Linking


def test_link_measures_joins_and_writes_a_page(tmp_path: Path) -> None:
    arguments = ["--rows", "40", "--security", "semi-honest", "--repeat", "1", "--json"]
    result = CliRunner().invoke(bench, ["link", *arguments, "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    (found,) = record["results"]
    assert (found["rows"], found["security"], found["network"]) == (40, "semi-honest", "loopback")
    facts = Linking((40, 40), (COLUMN_BITS,) * 2, (1, 1), KEY_BITS)
    without_sort = join(facts, ())
    assert found["rounds"] > without_sort.rounds
    assert found["bytes_per_party"] > without_sort.sent[0]
    assert found["bytes_per_row"] == found["bytes_per_party"] / 80
    assert found["clear_seconds"] > 0
    assert len(record["notes"]) == 3
    assert json.loads((tmp_path / "link.json").read_text()) == record
    page = (tmp_path / "link.md").read_text()
    assert "| 40 | semi-honest | loopback |" in page
    assert "Mohassel" in page


@pytest.mark.parametrize("rows", ["many", "0", "10,0", ""])
def test_link_says_what_a_list_of_sizes_is(rows: str) -> None:
    result = CliRunner().invoke(bench, ["link", "--rows", rows])
    assert result.exit_code == 2
    assert "--rows" in result.output
