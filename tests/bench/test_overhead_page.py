"""The page: every record's command and figures on it, nothing that no record has; and what a sweep consists of."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.cli import bench
from bench.fetch import DatasetError
from bench.overhead.cli import overhead
from bench.overhead.formula import forwarded_payload
from bench.overhead.growth import AXES, cases
from bench.overhead.jobs import ClientJob, GrowthJob, ServersJob, sweep
from bench.overhead.page import page, write_page
from bench.overhead.record import Record, Records
from bench.overhead.servers import measure_servers
from bench.overhead.utility import Best, best_rounds
from mechanisms.domain import Domain, Integer
from mechanisms.workload import draw_workload


def client_document(
    clients: int, participation: float, when: tuple[int, ...] = (10, 32)
) -> dict[str, object]:
    def result(method: str, variant: str, rounds: int, wire: float) -> dict[str, object]:
        kind = "upload" if method == "distaim" else "grouping"
        single = None if method == "distaim" else 0.25
        return {
            "method": method, kind: variant, "rounds": rounds, "formula_mb": 2.5 * wire,
            "sent_mb": 0.6 * wire, "received_mb": 0.3 * wire, "wire_mb": wire, "client_peak_mb": 70.0,
            "client_cpu_s": 0.21, "rounds_joined": 1.5, "single_choosers": single,
        }  # fmt: skip

    wires = {
        ("distaim", "seeded"): 11.0, ("distaim", "plain"): 132.0, ("flaim", "union"): 0.0131,
        ("flaim", "query"): 0.0139,
    }  # fmt: skip
    return {
        "dataset": "adult", "candidates": 161, "closure_cells": 2_870_490, "maximal_cells": 2_743_713,
        "clients": clients, "participation": participation, "rows": "published",
        "results": [result(*key, rounds, w) for key, w in wires.items() for rounds in when],
    }  # fmt: skip


def servers_document(clients: int) -> dict[str, object]:
    return {
        "dataset": "adult", "clients": clients, "rounds": 10, "upload": "seeded",
        "sent_by_step": {"clients.forward": [0, 54_874_260, 0], "estimate": [777, 0, 0]},
        "seconds_by_step": {"estimate": 1.5}, "stored_bytes": [100, 55_000_000, 200],
        "cpu_s": [1.0, 2.0, 3.0], "peak_bytes": [10**9, 10**9, 10**9], "wall_s": 9.0,
        "forwarded_by_formula": 54_874_260,
    }  # fmt: skip


def growth_document(axis: str) -> dict[str, object]:
    points = [
        {"x": x, "method": "distaim", "variant": "seeded", "predicted_mb": 7.25, "measured_mb": m}
        for x, m in ((10, 7.5), (1000, 7.6))
    ]
    return {"axis": axis, "points": points}


@pytest.fixture
def records(tmp_path: Path) -> Records:
    found = Records(tmp_path / "overhead.json")
    documents: list[tuple[str, str, dict[str, object]]] = [
        (f"command {k} {p}", "client", client_document(k, p))
        for k, p in ((100, 0.1), (5, 1.0), (20, 1.0), (10_000, 0.1))
    ]
    documents.append(("command table 7", "client", client_document(100, 0.1, (4, 32, 96))))
    documents += [(f"command servers {k}", "servers", servers_document(k)) for k in (5, 20)]
    documents += [(f"command growth {axis}", "growth", growth_document(axis)) for axis in AXES]
    for command, kind, document in documents:
        found.add(Record(command, kind, document, "abc", "2026-11-01", {"cores": 2}))
    return found


def test_records_are_kept_and_read_again(records: Records) -> None:
    again = Records(records.path)
    assert list(again) == list(records)
    assert "command servers 5" in again
    assert "command servers 6" not in again
    assert [r.document["axis"] for r in again.of("growth")] == list(AXES)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"records": [{}]}', '{"records": 1}'])
def test_a_file_of_something_else_is_not_taken_for_records(tmp_path: Path, text: str) -> None:
    path = tmp_path / "overhead.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match="another folder"):
        Records(path)
    assert path.read_text() == text


def test_the_page_has_every_command_and_the_records_figures(records: Records) -> None:
    best = [
        Best("adult", "distaim", 10, (4, 10), 3, 0.305, 21.9),
        Best("adult", "private", 32, (4, 10, 32), 3, 0.43, 22.5),
    ]
    text = page(records, best)
    for record in records:
        assert f"`{record.command}`" in text
    assert "None" not in text
    for figure in ("2,870,490", "| 140 |", "132.0", "0.0131", "54.9 MB", "0.305", "22.50", "7.25"):
        assert figure in text, figure
    for word in ("bank", "hospital network", "phone fleet", "110 GB", "10 to 1,643"):
        assert word in text, word
    # Every row of a table has as many cells as its head.
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_the_page_leaves_out_what_no_record_has(tmp_path: Path) -> None:
    records = Records(tmp_path / "overhead.json")
    records.add(
        Record(
            "only",
            "client",
            client_document(100, 0.1, (4, 32, 96)),
            "abc",
            "2026-11-01",
            {"cores": 2},
        )
    )
    text = page(records, [])
    for part in ("What to choose", "at the best T", "How it grows", "servers move and keep"):
        assert part.lower() not in text.lower()


def test_the_page_and_its_pictures_are_written(records: Records, tmp_path: Path) -> None:
    write_page(records, tmp_path)
    assert (tmp_path / "overhead.md").read_text().startswith("# The overhead tables")
    for name in ("overhead-growth.png", "overhead-tables.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_the_best_number_of_rounds_is_that_of_the_lowest_mean_error(tmp_path: Path) -> None:
    settings = {
        "dataset": "adult", "method": "private", "partition": "clustering", "clients": 100,
        "participation": 0.1, "epsilon": 1.0, "tau": None, "combine": None, "annealed": False,
    }  # fmt: skip
    runs = [(4, 0.5, 1.0), (4, 0.7, 3.0), (32, 0.1, 8.0), (32, 0.9, 4.0), (96, 0.2, 9.0)]
    lines = [
        {"settings": {**settings, "rounds": rounds}, "result": {"workload_error": e, "nll": nll}}
        for rounds, e, nll in runs
    ]
    other = {
        "settings": {**settings, "partition": "iid", "rounds": 10},
        "result": lines[0]["result"],
    }
    path = tmp_path / "utility.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, other]) + '{"torn')
    assert best_rounds(path) == [Best("adult", "private", 96, (4, 32, 96), 1, 0.2, 9.0)]
    assert best_rounds(tmp_path / "nothing.jsonl") == []


# Commands


def test_every_command_of_the_sweep_is_one_that_can_be_typed() -> None:
    commands = [job.command for job in sweep()]
    assert len(set(commands)) == len(commands)
    for command in commands:
        words = command.split()
        assert words[:3] == ["syncret", "bench", "overhead"]
        overhead.make_context("overhead", words[3:])


class OneJob:
    """A job of a sweep that counts how often it is run."""

    kind = "client"
    command = "syncret bench overhead --dataset adult --json"

    def __init__(self) -> None:
        self.runs = 0

    def run(self) -> dict[str, object]:
        self.runs += 1
        return client_document(100, 0.1, (4, 32, 96))


def test_a_sweep_writes_the_page_and_does_not_measure_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = OneJob()
    monkeypatch.setattr("bench.overhead.cli.sweep", lambda: [job])
    for _ in range(2):
        done = CliRunner().invoke(bench, ["overhead", "--sweep", "--output", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert job.command in (tmp_path / "overhead.md").read_text()
    assert job.runs == 1
    (tmp_path / "overhead.json").write_text("{")
    done = CliRunner().invoke(bench, ["overhead", "--sweep", "--output", str(tmp_path)])
    assert done.exit_code == 1
    assert "another folder" in done.output


def test_a_job_says_the_command_that_makes_it() -> None:
    assert ClientJob("adult").command.endswith("--dataset adult --rounds 4,32,96 --json")
    assert "--servers --dataset adult --rounds 10 --clients 5" in ServersJob("adult", 10, 5).command
    assert GrowthJob("cells").command.endswith("--growth cells --json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--dataset, --growth and --sweep"),
        (["--dataset", "adult", "--growth", "cells"], "--dataset, --growth and --sweep"),
        (["--sweep"], "--output"),
        (["--dataset", "adult", "--output", "x"], "--output"),
        (["--growth", "cells", "--servers"], "--servers"),
        (["--dataset", "adult", "--servers", "--rounds", "4,8"], "one number"),
        (["--dataset", "adult", "--formula-only", "--generated"], "--generated"),
        (["--dataset", "adult", "--clients", "2"], "2"),
        (["--dataset", "adult", "--participation", "0"], "0"),
        (["--growth", "time"], "time"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(bench, ["overhead", *arguments])
    assert done.exit_code == 2
    assert said in done.output


def test_axes_change_one_thing() -> None:
    for axis in AXES:
        points = cases(axis)
        assert [case.x for case in points] == sorted({case.x for case in points})
    assert {case.x for case in cases("clients")} >= {10, 10_000}
    with pytest.raises(ValueError, match="expected one of"):
        cases("time")


# The servers' side


def test_servers_forward_and_store_what_the_formula_says() -> None:
    workload = draw_workload(Domain(tuple(Integer(f"c{i}", 0, 9, 10) for i in range(3))))
    codes = np.random.default_rng(0).integers(0, 10, (30, 3)).astype(np.int32)
    found = measure_servers(workload, codes, clients=3, rounds=1, upload="seeded")
    assert found.sent_by_step["clients.forward"] == [
        0,
        3 * forwarded_payload(workload, "seeded"),
        0,
    ]
    assert sum(found.sent_by_step["estimate"][1:]) == 0
    # The lead sends the model's answers, 4 bytes a cell, to two others, before the choice and at the end.
    assert found.sent_by_step["estimate"][0] >= 2 * 4 * workload.cells
    assert min(found.cpu_s) > 0
    assert min(found.peak_bytes) > 10**7
    assert max(found.stored_bytes) >= 3 * 4 * workload.maximal_cells
