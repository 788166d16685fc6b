"""`syncret run`: what is refused before anything is written, and what the summary says."""

from pathlib import Path

import pytest

from parties.cli.main import cli
from parties.cli.run import closing_lines
from parties.cli.runtime import run_command_line
from parties.foundation.exit_codes import Status
from tests.parties.commands import snapshot
from tests.parties.small import write_small


@pytest.mark.parametrize("method", ["distaim", "aim"])
@pytest.mark.parametrize("epsilon", ["0.001", "80"])
def test_run_refuses_an_epsilon_without_noise_before_it_writes_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str, epsilon: str
) -> None:
    config, data = write_small(tmp_path)
    before, out = snapshot(tmp_path), tmp_path / "out"
    arguments = ["run", str(config), "--data", str(data), "--epsilon", epsilon, "--method", method]
    assert run_command_line(cli, [*arguments, "--out", str(out)]) == Status.CONFIG
    said = capsys.readouterr().err
    assert said.startswith(f"syncret: error: {config}: run: cannot be carried out")
    assert "run.epsilon" in said
    assert snapshot(tmp_path) == before
    assert not out.exists()


def test_run_refuses_more_rows_than_a_table_may_have_before_it_writes_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, data = write_small(tmp_path)
    config.write_text(config.read_text().replace("[run]", "[run]\nrows = 99999999999"))
    out = tmp_path / "out"
    arguments = ["run", str(config), "--data", str(data), "--out", str(out)]
    assert run_command_line(cli, arguments) == Status.CONFIG
    assert f"{config}: run.rows: is 99999999999; expected at least 1" in capsys.readouterr().err
    assert not out.exists()


def test_summary_gives_a_small_budget_with_its_significant_digits() -> None:
    report = {
        "parameters": {"epsilon": 1e-3, "delta": 1e-9},
        "privacy": {"rho_spent": 1.234567e-8, "rho_total": 2.5e-8},
        "communication": {},
        "utility": {},
        "time": {"total_s": 1.0},
    }
    said = dict(closing_lines(report))["privacy"]
    assert said.endswith("rho 1.235e-08 of 2.5e-08 spent")
