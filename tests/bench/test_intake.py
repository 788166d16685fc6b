"""Intake of owners: what is measured of a few real ones, and the command."""

import json

import pytest
from click.testing import CliRunner

from bench.cli import bench
from bench.intake import intake_workload


@pytest.mark.parametrize("form", ["seeded", "plain"])
def test_intake_counts_one_connection_an_owner_and_what_sealing_adds(form: str) -> None:
    result = CliRunner().invoke(
        bench, ["intake", "--owners", "3", "--columns", "3", "--form", form, "--json"]
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    cells = intake_workload(3).maximal_cells
    assert (found["owners"], found["cells"], found["form"]) == (3, cells, form)
    assert found["connections"] == 1
    content = (48 if form == "plain" else 4) * cells
    # Boxes, keys, headers of HTTP, and TLS with both certificates.
    assert content + 3 * 1136 < found["sent_bytes"] < content + 3 * 1136 + 4000
    assert 0 < found["received_bytes"] < 6000
    assert found["seconds"] > 0
    kept = 48 * cells if form == "plain" else 64 + 8 * cells
    assert found["stored_bytes"] == kept
