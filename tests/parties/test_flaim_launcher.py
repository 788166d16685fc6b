"""`syncret run --method flaim`, its server and clients as real processes: what they leave, what they survive."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import load_config
from parties.foundation.exit_codes import Status
from parties.identity.tls import pinned_key_in
from parties.local import federation_launcher
from parties.local.children import free_ports
from tests.parties.commands import Run, snapshot
from tests.parties.small import write_small
from tests.until import count_of, nothing_runs, process_of


def start(
    folder: Path,
    *options: str,
    clients: int = 4,
    rounds: int = 3,
    alike: bool = False,
    variant: str = "private",
) -> Run:
    """``alike``: all pairs of columns have nine cells, so that a client with little epsilon chooses at random."""
    config, data = write_small(folder, rounds=rounds)
    if alike:
        text = config.read_text().replace('["f", "m"]', '["f", "m", "d"]')
        config.write_text(text.replace("high = 9", "high = 9\nbins = 3"))
    files = [str(config), "--data", str(data), "--out", str(folder / "out")]
    options = ("--variant", variant, "--clients", str(clients), *options)
    return Run("run", "--method", "flaim", *files, *options)


def client(folder: Path, index: int) -> int:
    """The process id of the client that has process number ``index``."""
    return process_of(folder, f"--share {index}/")


def test_clients_share_as_few_processes_as_may_open_their_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for files, clients, expected in (
        (20_000, 8, 8),
        (20_000, 100, 2),
        (20_000, 10_000, 4),
        (1_024, 1_000, 8),
        (10**9, 10_000, 2),
    ):
        monkeypatch.setattr(federation_launcher, "most_files", lambda files=files: files)
        assert federation_launcher.default_process_count(clients) == expected


def test_flaim_leaves_the_run_folder_and_prints_only_json(tmp_path: Path) -> None:
    run = start(tmp_path, "--json", "--noise", "distributed", "--epsilon", "3")
    status, output = run.end()
    assert status == 0, run.said
    out = tmp_path / "out"
    report = json.loads(output)
    assert report == json.loads((out / "report.json").read_text())
    assert report["method"] == "flaim-private"
    assert report["rounds_done"] == 3
    assert report["privacy"]["rho_spent"] <= report["privacy"]["rho_total"]
    assert report["parameters"]["noise"] == "distributed"
    guarantee = report["flaim"]["guarantee"]
    assert guarantee["against_the_server"].startswith("epsilon = 3")
    assert guarantee["single_clients_counts_hidden_from_the_server"] is True
    # Sizes are estimated by default: the unit is a row, and nothing is declared.
    assert guarantee["unit"] == "one row added to or removed from one client's table"
    assert "replaced" not in guarantee
    assert report["flaim"]["sums"]["by_secagg"] == 4
    assert 0 <= report["utility"]["workload_error"] <= 2
    assert all("true_error" in marginal for marginal in report["quality"]["marginals"])
    assert all(0 <= column["distance"] <= 1 for column in report["columns"])
    assert report["communication"]["client_sent_bytes_mean"] > 1000
    names = {path.name for path in out.iterdir()}
    assert names >= {"config.toml", "report.json", "report.html", "synthetic.csv", "model"}
    assert [p.name for p in (out / "transcripts").iterdir()] == ["server.jsonl"]
    assert {p.name for p in (out / "certificates").iterdir()} == {"ca.crt", "flaim-server.crt"}
    assert (out / "synthetic.csv").read_text().splitlines()[0] == "sex,ward,age"
    assert load_config(out / "config.toml").require_flaim().clients == tuple(
        f"owner-{index:03d}" for index in range(4)
    )
    # Nothing secret is left: no table, no ledger of a client, no key.
    left = [str(path) for path in out.rglob("*")]
    assert not [path for path in left if path.endswith((".key", ".npy", ".sqlite"))]
    assert not (out / "owners").exists()
    nothing_runs(tmp_path)
    before = snapshot(out)
    again = start(tmp_path, "--json", "--noise", "distributed", "--epsilon", "3")
    status, output = again.end()
    assert (status, output) == (Status.STORAGE, "")
    assert "holds a finished run" in again.said[-1]
    assert snapshot(out) == before


@pytest.mark.slow
def test_flaim_lets_clients_take_turns_by_default(tmp_path: Path) -> None:
    config, data = write_small(tmp_path, rounds=2)
    files = [str(config), "--data", str(data), "--out", str(tmp_path / "out")]
    run = Run(
        "run", "--method", "flaim", *files, "--clients", "7", "--participation", "0.5", "--json"
    )
    status, output = run.end()
    assert status == 0, run.said
    report = json.loads(output)
    assert (report["method"], report["rounds_done"]) == ("flaim-pairs", 2)
    sums = report["flaim"]["sums"]
    assert (sums["by_secagg"], sums["least_clients_behind_one"]) == (2, 3)
    assert report["flaim"]["setting"]["clients_that_came"] == 7
    # One sum of three columns and three pairs is paid for, as no client is in both.
    assert len(report["privacy"]["ledger"]) == 6
    assert 0.999 < report["privacy"]["rho_spent"] / report["privacy"]["rho_total"] <= 1
    assert report["flaim"]["choosers"]["chosen_queries"] == 0
    assert any("took turns" in sentence for sentence in report["trust"])
    nothing_runs(tmp_path)


def test_flaim_goes_on_without_a_client_that_was_killed(tmp_path: Path) -> None:
    run = start(tmp_path, "--json", "--epsilon", "0.1", clients=5, rounds=40, alike=True)
    run.wait_for("round 1 of 40 done")
    os.kill(client(tmp_path, 3), signal.SIGKILL)
    status, output = run.end()
    assert status == 0, run.said
    assert any("owner-003 was killed by SIGKILL" in line for line in run.said)
    report = json.loads(output)
    assert report["rounds_done"] == 40
    assert report["flaim"]["setting"]["clients_that_came"] == 5
    assert report["flaim"]["sums"]["least_clients_behind_one"] == 4
    # Four that choose one of three pairs at random leave nobody alone with probability 0.26, in 39 rounds 1e-23.
    # The server adds the noise, and knows whose counts those of a lone chooser are.
    assert report["flaim"]["choosers"]["with_a_single_chooser"] > 0
    guarantee = report["flaim"]["guarantee"]
    assert guarantee["single_clients_counts_hidden_from_the_server"] is False
    assert guarantee["against_the_server"].startswith("none")
    assert any("had a single chooser" in sentence for sentence in report["trust"])
    nothing_runs(tmp_path)


@pytest.mark.slow
def test_flaim_ends_where_its_server_is_killed_and_goes_on_when_started_again(
    tmp_path: Path,
) -> None:
    run = start(tmp_path, rounds=60)
    run.wait_for("round 2 of 60 done")
    os.kill(process_of(tmp_path, " flaim-server "), signal.SIGKILL)
    assert run.end()[0] == Status.KILLED
    assert "server was killed by SIGKILL" in run.said[-1]
    nothing_runs(tmp_path)
    again = start(tmp_path, "--json", rounds=60)
    status, output = again.end()
    assert status == 0, again.said
    report = json.loads(output)
    assert report["rounds_done"] == 60
    assert report["flaim"]["sums"]["rounds_lost"] <= 1
    assert report["privacy"]["rho_spent"] <= report["privacy"]["rho_total"]
    assert any("stays spent" in note for note in report["notes"])


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="ctrl-c"),
        pytest.param(signal.SIGTERM, 143, id="sigterm", marks=pytest.mark.slow),
    ],
)
def test_flaim_stops_everything_when_it_is_interrupted(
    tmp_path: Path, number: int, status: int
) -> None:
    run = start(tmp_path, rounds=300)
    run.wait_for("round 1 of 300 done")
    run.process.send_signal(number)
    sent = time.monotonic()
    assert run.end()[0] == status
    assert time.monotonic() - sent < 15
    assert "stopped by" in run.said[-1]
    assert not [line for line in run.said if "Traceback" in line]
    nothing_runs(tmp_path)


@pytest.mark.slow
def test_flaim_leaves_no_orphans_when_it_is_killed(tmp_path: Path) -> None:
    run = start(tmp_path, rounds=300)
    run.wait_for("round 1 of 300 done")
    assert count_of(tmp_path, "", 5)
    run.process.kill()
    run.end()
    nothing_runs(tmp_path)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--variant", "best"), Status.USAGE, "'best' is not one of"),
        (
            ("--participation", "0"),
            Status.CONFIG,
            "clients.participation: is 0.0; expected above 0",
        ),
        (("--variant", "oracle"), Status.CONFIG, "needs the pooled table"),
        (
            ("--minimum", "5"),
            Status.CONFIG,
            "flaim.minimum: is 5; expected at most clients.expected, 4",
        ),
        (("--noise", "distributed", "--grouping", "query"), Status.CONFIG, "grouping"),
        (("--rounds", "100000"), Status.CONFIG, "run.rounds"),
        (("--clients", "2"), Status.USAGE, "2"),
    ],
)
def test_flaim_refuses_bad_options_before_it_makes_anything(
    tmp_path: Path,
    options: tuple[str, ...],
    status: Status,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config, data = write_small(tmp_path)
    out = tmp_path / "out"
    given = ["--data", str(data), "--clients", "4", "--out", str(out), *options]
    assert run_command_line(cli, ["run", "--method", "flaim", str(config), *given]) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert not out.exists()


@pytest.mark.parametrize("variant", ["oracle", "naive"])
def test_flaim_simulates_in_one_process(tmp_path: Path, variant: str) -> None:
    run = start(tmp_path, "--json", "--simulate", "--variant", variant)
    status, output = run.end()
    assert status == 0, run.said
    report = json.loads(output)
    assert report["method"] == f"flaim-{variant}"
    assert report["rounds_done"] == 3
    assert report["communication"]["client_sent_bytes_mean"] > 1000
    assert report["flaim"]["sums"]["by_secagg"] == 4
    assert report["flaim"]["sums"]["without_secagg_from_one_or_two_clients"] == 0
    none = report["flaim"]["guarantee"]["against_everybody_but_the_server"].startswith("none")
    assert none == (variant == "oracle")


@pytest.mark.slow
def test_simulation_and_processes_send_the_same_bytes(tmp_path: Path) -> None:
    """FedNaiveBayes' sums do not depend on chance, so that every message has its size in both."""
    reports = {}
    for name, options in (("simulated", ("--simulate",)), ("processes", ())):
        folder = tmp_path / name
        folder.mkdir()
        run = start(folder, "--json", "--variant", "naivebayes", *options)
        status, output = run.end()
        assert status == 0, run.said
        reports[name] = json.loads(output)
    sent, received = (
        {
            name: report["communication"][f"client_{way}_bytes_mean"]
            for name, report in reports.items()
        }
        for way in ("sent", "received")
    )
    # A connection also has HELLO up, WELCOME and GOODBYE down.
    assert sent["processes"] - sent["simulated"] == 4 + 10 + 104
    assert received["processes"] - received["simulated"] == (4 + 10 + 40) + (
        4 + 10 + len("the run is finished")
    )
    assert reports["processes"]["flaim"]["sums"] == reports["simulated"]["flaim"]["sums"]


@pytest.mark.slow
def test_server_and_clients_on_hosts_of_their_own(tmp_path: Path) -> None:
    """The operators' steps: certificates, one config for all, a server, and clients with tables of their own."""
    config, data = write_small(tmp_path)
    tls, names = tmp_path / "tls", ("north", "south", "west")
    made = Run(
        "certs",
        "trial",
        str(tls),
        "--party",
        "flaim-server",
        *(x for name in names for x in ("--client", name)),
    )
    assert made.end()[0] == 0
    (port,) = free_ports(1)
    text = config.read_text()
    config.write_text(
        text
        + f'\n[flaim]\nvariant = "naive"\naddress = "127.0.0.1:{port}"\nclients = ["north", "south", "west"]\n'
        + f'key = "{pinned_key_in(tls / "flaim-server.crt").key}"\n'
        + f'\n[tls]\nca = "{tls}/ca.crt"\ncert = "{tls}/flaim-server.crt"\nkey = "{tls}/flaim-server.key"\n'
    )
    rows = data.read_text().splitlines()
    server = Run("serve", "study", str(config), "--dir", str(tmp_path / "server"))
    clients = []
    for index, name in enumerate(names):
        table = tmp_path / f"{name}.csv"
        table.write_text("\n".join([rows[0], *rows[1 + 100 * index : 101 + 100 * index]]) + "\n")
        own = ["--cert", str(tls / f"{name}.crt"), "--key", str(tls / f"{name}.key")]
        own += ["--budget", str(tmp_path / f"{name}.sqlite")]
        clients.append(Run("join", str(config), "--data", str(table), "--json", *own))
    for running in clients:
        status, output = running.end()
        assert status == 0, running.said
        report = json.loads(output)
        assert (report["finished"], report["rounds"], report["sums"]) == (True, 4, 4)
        assert 0 < report["rho_spent"] <= report["rho_total"]
    assert server.end()[0] == 0, server.said
    left = {path.name for path in (tmp_path / "server").iterdir()}
    assert left >= {"report.html", "report.json", "synthetic.csv", "model", "transcript.jsonl"}
    # The same run again, killed before it had its report: nothing is left to do but that.
    (tmp_path / "server" / "report.html").unlink()
    before = snapshot(tmp_path / "server")
    again = Run("serve", "study", str(config), "--dir", str(tmp_path / "server"))
    assert again.end()[0] == 0
    after = snapshot(tmp_path / "server")
    assert set(after) - set(before) == {"report.html"}
    assert [name for name in before if before[name] != after[name] and "store" not in name] == []
    # With the certificate of a client nothing is written.
    config.write_text(config.read_text().replace("tls/flaim-server.", "tls/north."))
    wrong = Run("serve", "study", str(config), "--dir", str(tmp_path / "other"))
    assert wrong.end()[0] == Status.CERTIFICATE
    assert not (tmp_path / "other").exists()
    nothing_runs(tmp_path)
