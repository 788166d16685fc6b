"""`syncret run` with real processes: what it leaves, what it survives, and that nothing outlives it."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from parties.audit.runner import audit_folder
from parties.foundation.exit_codes import ChildFailed, Status
from parties.local import launcher
from parties.local.processes import Child, FailedChild
from tests.parties.commands import Run, snapshot
from tests.parties.small import write_small
from tests.until import count_of, nothing_runs, process_of


def start(folder: Path, *options: str, rounds: int = 3, receive_s: float = 20.0) -> Run:
    config, data = write_small(folder, rounds=rounds, receive_s=receive_s)
    return Run("run", str(config), "--data", str(data), "--out", str(folder / "out"), *options)


def server(folder: Path, pid: int) -> int:
    """The process id of one compute server."""
    return process_of(folder, f"--pid {pid} ")


def test_run_leaves_the_run_folder_and_prints_only_json(tmp_path: Path) -> None:
    run = start(tmp_path, "--json", "--epsilon", "3")
    status, output = run.end()
    assert status == 0, run.said
    out = tmp_path / "out"
    report = json.loads(output)
    assert report == json.loads((out / "report.json").read_text())
    assert all("true_error" in marginal for marginal in report["quality"]["marginals"])
    assert all(0 <= column["distance"] <= 1 for column in report["columns"])
    audit = audit_folder(out)
    assert {check.status for check in audit.checks} == {"pass"}, audit.checks
    assert report["parameters"]["epsilon"] == 3
    assert report["privacy"]["rho_spent"] == pytest.approx(report["privacy"]["rho_total"])
    opened = Counter(item["what"] for item in report["opened"])
    assert opened == {"measure.counts": 3 + 3, "select.index": 3}
    # Rows are smaller than counts here, and of three owners with 100 rows each nothing else is opened.
    assert report["parameters"]["input"] == "auto"
    assert report["workload"]["rows_capacity"] == 300
    cells = 2 * 3 + 2 * 10 + 3 * 10
    assert report["communication"]["client_sent_bytes_mean"] == 100 + 144 + 3 * 1136
    assert report["communication"]["paper_formula_mb"] == (cells + 2 + 3 + 10) * 48 / 1e6
    names = {path.name for path in out.iterdir()}
    assert names >= {"config.toml", "report.json", "report.html", "synthetic.csv", "model"}
    assert {p.name for p in (out / "transcripts").iterdir()} == {
        f"party-{pid}.jsonl" for pid in range(3)
    }
    assert (out / "synthetic.csv").read_text().splitlines()[0] == "sex,ward,age"
    # Nothing secret is left: no table, no share, no key.
    left = [str(path) for path in out.rglob("*")]
    assert not [
        path for path in left if path.endswith((".key", ".npy", ".sqlite")) or "state" in path
    ]
    nothing_runs(tmp_path)
    before = snapshot(out)
    # As a kill between the end of the run and its clean-up would leave it.
    (out / "owners").mkdir()
    (out / "owners" / "codes.npy").write_bytes(b"rows")
    again = start(tmp_path, "--json", "--epsilon", "3")
    status, output = again.end()
    assert (status, output) == (Status.STORAGE, "")
    assert "holds a finished run" in again.said[-1]
    assert snapshot(out) == before


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        (0, "round 2 of 3: selected"),
        pytest.param(1, "servers are starting", marks=pytest.mark.slow),
        pytest.param(2, "round 0 of 3: 3 data owners", marks=pytest.mark.slow),
    ],
)
def test_run_goes_on_after_a_server_was_killed(tmp_path: Path, victim: int, moment: str) -> None:
    first = start(tmp_path, rounds=3)
    first.wait_for(moment)
    os.kill(server(tmp_path, victim), signal.SIGKILL)
    status, _ = first.end()
    assert status == Status.KILLED
    assert f"party {victim} was killed by SIGKILL" in first.said[-1]
    nothing_runs(tmp_path)
    other = start(tmp_path, "--epsilon", "1.5")
    assert other.end()[0] == Status.STORAGE
    assert "unfinished run of another config" in other.said[-1]
    second = start(tmp_path, "--json", rounds=3)
    status, output = second.end()
    assert status == 0, second.said
    report = json.loads(output)
    spent = Counter((entry["round"], entry["step"]) for entry in report["privacy"]["ledger"])
    planned = Counter({(0, "measure"): 3})
    for number in (1, 2, 3):
        planned += Counter({(number, "select"): 1, (number, "measure"): 1})
    # Paid for twice are at most the value that was under way and one that a single server held; the budget holds in any
    # case.
    assert (spent - planned).total() <= 2
    assert report["privacy"]["rho_spent"] <= report["privacy"]["rho_total"] * (1 + 1e-9)
    nothing_runs(tmp_path)


def test_run_names_a_stopped_server_and_leaves_nothing(tmp_path: Path) -> None:
    run = start(tmp_path, rounds=200, receive_s=2.0)
    run.wait_for("round 1 of 200: 3 data owners")
    os.kill(server(tmp_path, 1), signal.SIGSTOP)
    stopped = time.monotonic()
    status, _ = run.end()
    assert status == Status.NETWORK
    assert "party 1" in run.said[-1]
    assert "2 s" in run.said[-1]
    assert time.monotonic() - stopped < 30
    nothing_runs(tmp_path)


async def test_a_silent_server_is_named_where_the_others_waited_for_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose wait for its neighbour began before the neighbour's own is the first to fail, and blames that one."""
    monkeypatch.setattr(launcher, "_CAUSE_S", 0.1)
    servers = [child_of(tmp_path, pid, "sleep" if pid == 1 else "true") for pid in range(3)]
    async with asyncio.TaskGroup() as group:
        watchers = []
        for pid, accused in ((0, 2), (1, None), (2, 0)):
            child = servers[pid]
            if accused is not None:
                child.failure = (Status.NETWORK, f"party {accused} has left")
                child.blamed_server = accused
                await child.wait()
                watchers.append(asyncio.create_task(fail(child)))
            else:
                watchers.append(group.create_task(asyncio.sleep(60)))
        try:
            with pytest.raises(
                ChildFailed, match=r"^party 1 is there and silent; party \d: "
            ) as it:
                await launcher._wait_for_all(watchers, servers)
            assert it.value.status == Status.NETWORK
        finally:
            watchers[1].cancel()
            servers[1].kill()


def child_of(folder: Path, pid: int, command: str) -> Child:
    return Child(f"party {pid}", subprocess.Popen([command, "60"]), folder / "log")


async def fail(child: Child) -> None:
    raise FailedChild(child, Status.NETWORK)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="ctrl-c"),
        pytest.param(signal.SIGTERM, 143, id="sigterm", marks=pytest.mark.slow),
    ],
)
def test_run_stops_everything_when_it_is_interrupted(
    tmp_path: Path, number: int, status: int
) -> None:
    run = start(tmp_path, rounds=200)
    run.wait_for("round 1 of 200: 3 data owners")
    run.process.send_signal(number)
    sent = time.monotonic()
    assert run.end()[0] == status
    assert time.monotonic() - sent < 10
    assert "stopped by" in run.said[-1]
    assert f"the same command with --out {tmp_path / 'out'} goes on" in run.said[-1]
    assert not [line for line in run.said if "Traceback" in line]
    nothing_runs(tmp_path)


def test_run_leaves_no_orphans_when_it_is_killed(tmp_path: Path) -> None:
    run = start(tmp_path, rounds=200)
    run.wait_for("round 0 of 200: 3 data owners")
    assert count_of(tmp_path, "", 4)
    run.process.kill()
    run.end()
    nothing_runs(tmp_path)


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ("column", Status.DATA, "column 'height' is not in the domain"),
        ("category", Status.DATA, "line 3, column 'ward'"),
        ("range", Status.DATA, "line 3, column 'age'"),
        ("empty", Status.DATA, "small.csv"),
        ("missing", Status.DATA, "small.csv"),
        ("config", Status.CONFIG, "did you mean 'epsilon'?"),
        ("out", Status.STORAGE, "file"),
    ],
)
def test_run_refuses_bad_input_before_it_makes_anything(
    tmp_path: Path, change: str, status: Status, said: str
) -> None:
    config, data = write_small(tmp_path)
    out = tmp_path / "out"
    tables = {
        "column": "sex,ward,age,height\nf,x,1,170\n",
        "category": "sex,ward,age\nf,x,1\nf,q,1\n",
        "range": "sex,ward,age\nf,x,1\nf,x,99\n",
        "empty": "",
    }
    if change in tables:
        data.write_text(tables[change])
    elif change == "missing":
        data.unlink()
    elif change == "config":
        config.write_text(config.read_text().replace("epsilon", "epsillon"))
    else:
        (tmp_path / "file").write_text("")
        out = tmp_path / "file" / "out"
    run = Run("run", str(config), "--data", str(data), "--out", str(out))
    ended, output = run.end()
    assert (ended, output) == (status, "")
    assert len(run.said) == 1
    assert said in run.said[0]
    assert not out.exists()
