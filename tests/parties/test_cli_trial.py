"""`syncret run`: what is refused before anything is written, and what the summary says."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from parties.cli import run as run_module
from parties.cli import run_federation
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


class Asked(Exception):
    """A run that would begin now."""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The run of `syncret run OPTIONS`, at the moment before it begins."""
    config, data = write_small(tmp_path)

    def begin(trial: Any, *_: object, **options: object) -> None:
        raise Asked({"config": trial.config, **options})

    monkeypatch.setattr(run_module, "run_method", begin)
    monkeypatch.setattr(run_federation, "run_flaim", begin)

    def run(*options: str) -> dict[str, Any]:
        command = ["run", str(config), "--data", str(data), "--out", str(tmp_path / "out")]
        ended = CliRunner().invoke(cli, [*command, *options])
        assert isinstance(ended.exception, Asked), ended.output
        shutil.rmtree(tmp_path / "out")
        return dict(ended.exception.args[0])

    return run


def test_options_of_distaim_are_the_runs(asked: Callable[..., dict[str, Any]]) -> None:
    method = ("--method", "aim")
    usual = asked(*method)["config"].run
    assert (usual.input, usual.upload, usual.schedule) == ("auto", "seeded", "fixed")
    run = asked(*method, "--input", "counts", "--upload", "plain")["config"].run
    assert (run.input, run.upload) == ("counts", "plain")
    assert asked(*method, "--schedule", "annealed")["config"].run.schedule == "annealed"


def test_options_of_flaim_are_the_runs(asked: Callable[..., dict[str, Any]]) -> None:
    method = ("--method", "flaim", "--clients", "3")
    begun = asked(*method, "--local-rounds", "2", "--processes", "2")
    assert (begun["config"].flaim.local_rounds, begun["processes"]) == (2, 2)
    begun = asked(*method)
    assert (begun["config"].flaim.local_rounds, begun["processes"]) == (1, None)
