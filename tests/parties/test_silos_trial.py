"""`syncret run --method tda`, `silos-server` and the silos as real processes: what they leave, what they survive."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import tomli_w

from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import load_config
from parties.foundation.exit_codes import Status
from parties.local.recorded_tables import RECORD
from parties.methods.registry import plan_of
from tests.parties.commands import Run, snapshot
from tests.parties.small import write_small
from tests.until import nothing_runs, process_of


def files(folder: Path, *, rounds: int = 4, table: str = "") -> list[str]:
    config, data = write_small(folder, rounds=rounds)
    config.write_text(config.read_text() + f"\n[tda]\ncomponents = 3\n{table}")
    return [str(config), "--data", str(data), "--out", str(folder / "out")]


def start(folder: Path, *options: str, rounds: int = 4, clients: int = 4, table: str = "") -> Run:
    return Run(
        "run",
        "--method",
        "tda",
        *files(folder, rounds=rounds, table=table),
        "--clients",
        str(clients),
        *options,
    )


def test_tda_leaves_the_run_folder_and_an_audit_that_passes(tmp_path: Path) -> None:
    run = start(tmp_path, "--json", "--beta", "0.5", "--label", "ward", "--security", "malicious",
                "--noise", "distributed")  # fmt: skip
    status, output = run.end()
    assert status == 0, run.said
    out = tmp_path / "out"
    report = json.loads(output)
    assert report == json.loads((out / "report.json").read_text())
    assert (report["method"], report["private"]) == ("tda", True)
    assert report["guarantee"].startswith("epsilon = 2")
    assert report["privacy"]["rho_spent"] <= report["privacy"]["rho_total"]
    assert (report["sums"]["taken"], report["sums"]["least_survivors"]) == (6, 4)
    assert 0 <= report["utility"]["workload_error"] <= 2
    assert report["not_private"] == ["utility"]
    lines = (out / "synthetic.csv").read_text().splitlines()
    assert lines[0] == "sex,ward,age"
    assert len(lines) == 1 + report["result"]["synthetic_rows"]
    assert {p.name for p in (out / "certificates").iterdir()} == {"ca.crt", "silos-server.crt"}
    # Nothing secret is left: no table, no ledger of a silo, no key.
    left = [str(path) for path in out.rglob("*")]
    assert not [path for path in left if path.endswith((".key", ".sqlite")) or "silo-" in path]
    assert not (out / "owners").exists()
    assert (out / RECORD).exists()
    nothing_runs(tmp_path)
    assert run_command_line(cli, ["audit", str(out)]) == Status.DONE
    before = snapshot(out)
    again = start(tmp_path, "--beta", "0.5", "--label", "ward")
    assert again.end() == (Status.STORAGE, "")
    assert snapshot(out) == before


def silo(folder: Path, index: int) -> int:
    """The process id of the silo that has process number ``index``."""
    return process_of(folder, f"--share {index}/")


@pytest.mark.slow
def test_tda_goes_on_without_a_silo_that_was_killed(tmp_path: Path) -> None:
    run = start(tmp_path, "--json", clients=5, rounds=40)
    run.wait_for("sum 1 of at most 42 done")
    os.kill(silo(tmp_path, 3), signal.SIGKILL)
    status, output = run.end()
    assert status == 0, run.said
    assert any("silo-003 was killed by SIGKILL" in line for line in run.said)
    sums = json.loads(output)["sums"]
    assert (sums["taken"], sums["given_up"], sums["least_survivors"]) == (42, 0, 4)
    nothing_runs(tmp_path)


@pytest.mark.slow
def test_tda_ends_where_its_server_is_killed_and_goes_on_when_started_again(tmp_path: Path) -> None:
    run = start(tmp_path, rounds=60)
    run.wait_for("sum 2 of at most 62 done")
    os.kill(process_of(tmp_path, " silos-server "), signal.SIGKILL)
    assert run.end()[0] == Status.KILLED
    nothing_runs(tmp_path)
    again = start(tmp_path, "--json", rounds=60)
    status, output = again.end()
    assert status == 0, again.said
    report = json.loads(output)
    assert report["sums"]["before"] >= 2
    assert report["result"]["iterations_lost"] <= 1
    assert report["privacy"]["rho_spent"] <= report["privacy"]["rho_total"]
    assert run_command_line(cli, ["audit", str(tmp_path / "out")]) == Status.DONE


@pytest.mark.slow
def test_tda_stops_everything_when_it_is_interrupted(tmp_path: Path) -> None:
    run = start(tmp_path, rounds=300)
    run.wait_for("sum 1 of at most 302 done")
    run.process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    assert run.end()[0] == 130
    assert time.monotonic() - sent < 15
    assert "goes on after the last sum" in run.said[-1]
    assert not [line for line in run.said if "Traceback" in line]
    nothing_runs(tmp_path)


@pytest.mark.parametrize(
    ("options", "table", "status", "said"),
    [
        (("--clients", "2"), "", Status.USAGE, "2"),
        (("--by", "sex", "--beta", "0.1"), "", Status.USAGE, "without --clients, --beta"),
        (("--by", "colour"), "", Status.CONFIG, "has no 'colour' for --by"),
        (("--by", "sex"), "", Status.CONFIG, "silos.minimum: is 3; this split gives 2 silos"),
        (("--security", "malicious"), "", Status.CONFIG, "silos.noise: is 'server'"),
        ((), 'privacy = "some"', Status.CONFIG, "privacy"),
        ((), "component = 3", Status.CONFIG, "did you mean 'components'?"),
        (("--rounds", "0"), "", Status.CONFIG, "run.rounds"),
    ],
)
def test_tda_refuses_what_cannot_be_before_it_makes_anything(
    tmp_path: Path,
    options: tuple[str, ...],
    table: str,
    status: Status,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = files(tmp_path, table=table)
    assert run_command_line(cli, ["run", "--method", "tda", *given, *options]) == status
    shown = capsys.readouterr()
    assert said in shown.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", ["[flaim]", "[tda]", '[mtl]\nlabel = "sex"'])
def test_server_without_an_address_leaves_no_folder(
    tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _ = write_small(tmp_path)
    config.write_text(f"{config.read_text()}\n{method}\n")
    given = ["serve", "study", str(config), "--dir", str(tmp_path / "out")]
    assert run_command_line(cli, given) == Status.CONFIG
    assert "address: is missing" in capsys.readouterr().err
    assert run_command_line(cli, [*given, "--pid", "0"]) == Status.USAGE
    assert "has one server" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_server_of_three_asks_for_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _ = write_small(tmp_path)
    given = ["serve", "study", str(config), "--dir", str(tmp_path / "out")]
    assert run_command_line(cli, given) == Status.USAGE
    assert "give --pid 0, 1 or 2" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("command", "table"), [("mtl", "tda"), ("tda", 'mtl]\nlabel = "sex"\n#')])
def test_trial_of_another_algorithm_names_its_command(
    tmp_path: Path, command: str, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config, data = write_small(tmp_path)
    config.write_text(f"{config.read_text()}\n[{table}]\n")
    given = ["run", str(config), "--method", command, "--data", str(data)]
    given += ["--out", str(tmp_path / "out")]
    assert run_command_line(cli, given) == Status.CONFIG
    assert f"is of the method {table[:3]}; expected [{command}]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_tda_without_privacy_says_so_everywhere(tmp_path: Path) -> None:
    run = start(tmp_path, "--by", "ward", table='privacy = "none"', clients=3)
    # --by and --clients do not go together.
    assert run.end()[0] == Status.USAGE
    by = Run("run", "--method", "tda", *files(tmp_path, table='privacy = "none"'), "--by", "ward")
    status, output = by.end()
    assert status == 0, by.said
    assert "No privacy guarantee" in output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "Not private" in (tmp_path / "out" / "report.html").read_text()
    assert report["private"] is False
    assert set(report["not_private"]) == {"result", "files", "tables", "opened", "utility"}
    assert report["parameters"]["clients"] == 3
    assert json.loads((tmp_path / "out" / "model.json").read_text())["privacy"] == "none"


def test_every_key_of_tda_is_the_runs(tmp_path: Path) -> None:
    config, _ = write_small(tmp_path)
    changes = {
        "components": 3,
        "tolerance": 0.01,
        "mixture_share": 0.3,
        "frequency_share": 0.3,
        "row_norm": 2.0,
        "moment_norm": 0.5,
        "order": "frequency",
        "assignment": "argmax",
        "correlations": "scores",
    }
    config.write_text(config.read_text() + f"\n[tda]\n{tomli_w.dumps(changes)}")
    document = plan_of(load_config(config)).document
    assert {name: document[name] for name in changes} == changes
