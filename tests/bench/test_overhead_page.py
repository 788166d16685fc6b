"""The page: every record's command and figures on it, nothing that no record has; and what a sweep consists of."""

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bench.cli import bench
from bench.fetch import DatasetError
from bench.overhead.cli import overhead
from bench.overhead.client_tables import ratios
from bench.overhead.flaim import CONNECTION_BYTES, HANDSHAKE_BYTES
from bench.overhead.formula import passed_on_payload
from bench.overhead.growth import AXES, cases
from bench.overhead.jobs import ClientJob, GrowthJob, Record, Records, ServersJob, sweep
from bench.overhead.page import page, write_page
from bench.overhead.servers import measure_servers
from bench.overhead.utility import Best, Errors, best_rounds, errors_by_rounds
from mechanisms.domain import Domain, Integer
from mechanisms.workload import draw_workload
from parties.mpc.inputs import input_form
from parties.mpc.submission.sealed_upload import UploadSizes
from tests.bench.pages import whole

# MB on the wire by method and variant at T = 10: no two figures of a document are alike.
WIRES = {
    ("distaim", "seeded"): 11.0,
    ("distaim", "plain"): 132.0,
    ("flaim", "union"): 0.0125,
    ("flaim", "query"): 0.0175,
}
FORMULA = {"distaim": 140.0, "flaim": 0.02}
CPU = {"seeded": 0.11, "plain": 0.52, "union": 0.3, "query": 0.3}
PEAK = {"seeded": 69.0, "plain": 277.0, "union": 150.0, "query": 150.0}


def client_document(
    clients: int, participation: float, when: tuple[int, ...] = (10, 32), dataset: str = "adult"
) -> dict[str, object]:
    def result(method: str, variant: str, rounds: int, wire: float) -> dict[str, object]:
        kind = "upload" if method == "distaim" else "grouping"
        # FLAIM's figures grow with T, uploads do not.
        grown = 1.0 if method == "distaim" else rounds / 10
        single = None if method == "distaim" else 0.25 if variant == "union" else 0.35
        return {
            "method": method,
            kind: variant,
            "rounds": rounds,
            "formula_mb": grown * FORMULA[method],
            "sent_mb": 0.6 * grown * wire,
            "received_mb": 0.3 * grown * wire,
            "wire_mb": grown * wire,
            "client_peak_mb": PEAK[variant] + (rounds if method == "flaim" else 0),
            "client_cpu_s": grown * CPU[variant],
            "rounds_joined": grown + (method == "flaim"),
            "single_choosers": single,
        }

    return {
        "dataset": dataset,
        "candidates": 161,
        "closure_cells": 2_870_490,
        "maximal_cells": 2_743_713,
        "clients": clients,
        "participation": participation,
        "rows": "published",
        "results": [result(*key, rounds, w) for key, w in WIRES.items() for rounds in when],
    }


def servers_document(clients: int) -> dict[str, object]:
    return {
        "dataset": "adult",
        "clients": clients,
        "rounds": 10,
        "upload": "seeded",
        "sent_by_step": {"clients.forward": [0, 54_874_260, 0], "estimate": [777, 0, 0]},
        "seconds_by_step": {"estimate": 1.5},
        "stored_bytes": [100, 55_000_000, 200],
        "cpu_s": [1.0, 2.0, 3.0],
        "peak_bytes": [10**9, 10**9, 10**9],
        "wall_s": 9.0,
        "forwarded_by_formula": 54_874_260,
    }


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
        # One commit, once with changes on top of it.
        commit = "abc+" if command == "command servers 5" else "abc"
        found.add(Record(command, kind, document, commit, "2026-11-01", {"cores": 2}))
    return found


ERRORS = [
    Errors("adult", "distaim", 0.1, 4, 3, 0.511, 24.0),
    Errors("adult", "distaim", 0.1, 10, 3, 0.305, 21.9),
    Errors("adult", "distaim", 1.0, 10, 2, 0.193, 19.0),
    Errors("adult", "private", 0.1, 4, 3, 0.487, 23.5),
    Errors("adult", "private", 0.1, 10, 3, 0.425, 22.0),
    Errors("adult", "private", 0.1, 32, 3, 0.415, 22.5),
    Errors("adult", "private", 1.0, 10, 2, 0.297, 20.0),
]


def rows_below(text: str, heading: str) -> list[str]:
    """The rows of all tables of a section, heads among them."""
    section = text.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith("|")]


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
    text = page(records, ERRORS)
    for record in records:
        assert f"`{record.command}`" in text
    assert "None" not in text
    for figure in ("2,870,490", "| 140 |", "132.0", "0.0125", "54.9 MB", "0.305", "22.50", "7.25"):
        assert figure in text, figure
    for word in ("bank", "hospital network", "phone fleet", "15 to 3,990"):
        assert word in text, word
    # Every row of a table has as many cells as its head.
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_a_row_of_each_table_has_the_records_figures_under_its_heads(records: Records) -> None:
    text = page(records, ERRORS)
    upload = (
        "| adult | 161 | 2,870,490 | 2,743,713 | 140 | 140.0 | 79.2 | 132.0 | 6.6 | 11.0 | 13 |"
    )
    assert rows_below(text, "DistAIM's client")[2] == upload
    assert rows_below(text, "FLAIM's client")[2:][:2] == [
        "| adult | union | 4 | 1.4 | 0.008 | 0.003 | 0.0015 | 0.005 | 25% |",
        "| adult | union | 32 | 4.2 | 0.064 | 0.024 | 0.012 | 0.04 | 25% |",
    ]


def test_ratios_are_distaims_bytes_over_flaims_under_their_heads(records: Records) -> None:
    rows = rows_below(page(records, ERRORS), "DistAIM over FLAIM")
    heads = "| table | T | paper's FLAIM, MB | paper's ratio | by the formula | plain / union | plain / query |"
    assert rows[0] == f"{heads} seeded / union | seeded / query |"
    # 140 / 0.008; 132 / 0.005; 132 / 0.007; 11 / 0.005; 11 / 0.007.
    assert rows[2] == "| adult | 4 | 0.035 | 3,990 | 17,500 | 26,400 | 18,857 | 2,200 | 1,571 |"
    of = [{"formula_mb": 1.0, "wire_mb": wire} for wire in (8.0, 2.0, 4.0, 16.0)]
    assert ratios(*of) == ("1", "2", "0.5", "0.5", "0.12")


def test_table_3_has_each_form_and_grouping_at_the_best_t(records: Records) -> None:
    rows = rows_below(page(records, ERRORS), "At the best T (Table 3)")
    assert rows[2:4] == [
        "| adult | DistAIM | 10 | 4, 10 | 3 | 0.305 | 21.90 |",
        "| adult | FLAIM private | 32 | 4, 10, 32 | 3 | 0.415 | 22.50 |",
    ]
    assert rows[4] == (
        "| table | FLAIM's T | DistAIM formula, MB | plain wire | seeded wire | FLAIM formula, MB | union wire | "
        "query wire |"
    )
    assert rows[6] == "| adult | 32 | 140.0 | 132.0 | 11.0 | 0.064 | 0.04 | 0.056 |"
    assert rows[9] == "| adult | 32 | 2,188 | 3,300 | 2,357 | 275 | 196 |"
    assert len(rows) == 10


def test_tables_without_utility_are_named(records: Records) -> None:
    generated = {**client_document(100, 0.1, (4, 32, 96), "magic"), "rows": "generated"}
    records.add(Record("command magic", "client", generated, "abc", "2026-11-01", {"cores": 2}))
    text = page(records, ERRORS)
    assert "Not in these tables: magic, whose rows" in text
    # What stands above the tables of several datasets can be typed for each.
    options = "--rounds 4,32,96 --generated --json` for magic"
    assert "--rounds 4,32,96 --json` for adult;" in text
    assert text.count(options) == 4
    for line in re.findall(r"`(syncret bench overhead --dataset NAME [^`]*)`", text):
        overhead.make_context("overhead", line.replace("NAME", "magic").split()[3:])


def test_other_populations_have_a_row_and_a_command_each(records: Records) -> None:
    text = page(records, ERRORS)
    section = text.split("## Other populations", 1)[1].split("\n## ", 1)[0]
    for clients, participation in ((5, 1.0), (20, 1.0), (10_000, 0.1)):
        assert f"`command {clients} {participation}`" in section
    assert "`command 100 0.1`" not in section
    rows = rows_below(text, "Other populations")[2:]
    assert len(rows) == 3 * (2 + 2 * 2)
    assert rows[:3] == [
        "| adult | 5 | 1 | distaim seeded | any | 1.0 | 140.0 | 6.6 | 3.3 | 11.0 | 0.11 |  |",
        "| adult | 5 | 1 | distaim plain | any | 1.0 | 140.0 | 79.2 | 39.6 | 132.0 | 0.52 |  |",
        "| adult | 5 | 1 | flaim union | 10 | 2.0 | 0.02 | 0.0075 | 0.00375 | 0.0125 | 0.30 | 25% |",
    ]


def test_a_clients_seconds_and_memory_stand_under_their_heads(records: Records) -> None:
    rows = rows_below(page(records, ERRORS), "What a client computes")
    assert rows[0] == (
        "| table | plain, s | plain, MB | seeded, s | seeded, MB | FLAIM T = 4, s | FLAIM T = 32, s | "
        "FLAIM T = 96, s | FLAIM, MB |"
    )
    assert rows[2:] == ["| adult | 0.52 | 277 | 0.11 | 69 | 0.12 | 0.96 | 2.88 | 246 |"]


def test_errors_stand_beside_the_costs_where_both_methods_were_measured(records: Records) -> None:
    rows = rows_below(page(records, ERRORS), "What to choose")
    assert rows[-3:] == [
        "| 1 | 10 | 0.193 | 0.297 | 2, 2 |",
        "| 0.1 | 4 | 0.511 | 0.487 | 3, 3 |",
        "| 0.1 | 10 | 0.305 | 0.425 | 3, 3 |",
    ]
    # Without runs in which all take part, those of a tenth.
    rows = rows_below(
        page(records, [one for one in ERRORS if one.participation < 1]), "What to choose"
    )
    assert rows[-3].startswith("| --- ")


def test_a_choice_counts_uploads_of_phones_that_come_and_connections(records: Records) -> None:
    text = page(records, ERRORS)
    rows = rows_below(text, "What to choose")
    assert rows[2] == "| banks | 5 | 11.0 | 55 | 55 | 0.013 | 1 against 2 |"
    assert CONNECTION_BYTES > HANDSHAKE_BYTES
    assert f"adds {CONNECTION_BYTES / 1000:.1f} KB" in text
    # Two rounds, one of them with a connection of its own; 1 - 0.9^10 of 10,000 phones, 4 bytes a cell.
    again = 12.5 + CONNECTION_BYTES / 1000
    phones = f"| phones | 10,000 | 10% | 2.0 | 0.0125 | {again / 1000:.3g} | 0.0175 | 65% | 71.5 |"
    assert rows[6:8] == [
        f"| banks | 5 | 100% | 2.0 | 0.0125 | {again / 1000:.3g} | 0.0175 | 100% | 0.0549 |",
        f"| hospitals | 20 | 100% | 2.0 | 0.0125 | {again / 1000:.3g} | 0.0175 | 100% | 0.219 |",
    ]
    assert rows[8] == phones


def test_the_advice_has_the_published_pages_figures() -> None:
    """It is written by hand: what it says of MB, GB, shares and errors has to stand in a table of the page."""
    results = Path(__file__).parents[2] / "bench" / "results"
    published = whole(results / "overhead.md")
    cells = {
        cell.strip().removesuffix("%")
        for line in published.splitlines()
        if line.startswith("|")
        for cell in line.split("|")
    }
    advice = (results / "overhead-choice.md").read_text(encoding="utf-8")
    figures = re.findall(r"([0-9][0-9.,]*)\s(?:MB|GB|%)", advice) + re.findall(
        r"0\.\d{3}\b", advice
    )
    assert len(figures) >= 20
    assert set(figures) <= cells


def test_the_page_says_what_each_noise_shows_the_server(records: Records) -> None:
    text = page(records, ERRORS)
    for words in (
        "With noise added by the server it sees that chooser's counts before its noise",
        "under both groupings",
        '`noise = "distributed"`',
        "needs `union`",
    ):
        assert words in text, words
    assert "reach the server bare" not in text


def test_the_page_says_of_what_commits_and_looks_it_is(records: Records) -> None:
    total = len(list(records))
    text = page(records, ERRORS)
    assert f"1 commit; 1 of {total} records with uncommitted changes" in text
    assert "looks every 500 ms" in text
    closer = {**servers_document(100), "look_s": 0.05}
    records.add(Record("command closer", "servers", closer, "abc", "2026-11-01", {"cores": 2}))
    assert "looks every 50 or 500 ms" in page(records, ERRORS)


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
    assert whole(tmp_path / "overhead.md").startswith("# The overhead tables")
    for name in ("overhead-growth.png", "overhead-tables.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_the_best_number_of_rounds_is_that_of_the_lowest_mean_error(tmp_path: Path) -> None:
    settings = {
        "dataset": "adult",
        "method": "private",
        "partition": "clustering",
        "clients": 100,
        "participation": 0.1,
        "epsilon": 1.0,
        "tau": None,
        "combine": None,
        "annealed": False,
    }
    runs = [(4, 0.5, 1.0), (4, 0.7, 3.0), (32, 0.1, 8.0), (32, 0.9, 4.0), (96, 0.2, 9.0)]
    lines = [
        {"settings": {**settings, "rounds": rounds}, "result": {"workload_error": e, "nll": nll}}
        for rounds, e, nll in runs
    ]
    other = {
        "settings": {**settings, "partition": "iid", "rounds": 10},
        "result": lines[0]["result"],
    }
    everybody = {
        "settings": {**settings, "participation": 1.0, "rounds": 10},
        "result": {"workload_error": 0.01, "nll": 1.0},
    }
    path = tmp_path / "utility.jsonl"
    path.write_text(
        "".join(json.dumps(line) + "\n" for line in [*lines, other, everybody]) + '{"torn'
    )
    errors = errors_by_rounds(path)
    runs_of = [(e.participation, e.rounds, e.repeats) for e in errors]
    assert runs_of == [(0.1, 4, 2), (0.1, 32, 2), (0.1, 96, 1), (1.0, 10, 1)]
    assert errors[1] == Errors("adult", "private", 0.1, 32, 2, 0.5, 6.0)
    # Only runs of the paper's participation compete.
    assert best_rounds(errors) == [Best("adult", "private", 96, (4, 32, 96), 1, 0.2, 9.0)]
    assert errors_by_rounds(tmp_path / "nothing.jsonl") == []


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
        assert job.command in whole(tmp_path / "overhead.md")
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
        (["--dataset", "adult", "--formula-only", "--upload", "rows"], "--upload"),
        (["--growth", "cells", "--upload", "rows"], "--dataset"),
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


def test_servers_pass_on_and_store_what_the_formula_says() -> None:
    workload = draw_workload(Domain(tuple(Integer(f"c{i}", 0, 9, 10) for i in range(3))))
    codes = np.random.default_rng(0).integers(0, 10, (30, 3)).astype(np.int32)
    found = measure_servers(workload, codes, clients=3, rounds=1, upload="seeded")
    sizes = UploadSizes.of(input_form("seeded", workload), 10)
    passed_on = [sum(sizes.passed_on(to) for to in range(3) if to != via) for via in range(3)]
    # Each upload comes to any one server, and goes on from there.
    assert sum(found.passed_on_bytes) in {sum(c) for c in product(passed_on, repeat=3)}
    assert np.mean(passed_on) == pytest.approx(passed_on_payload(workload, "seeded"))
    assert found.sent_bytes > sum(found.passed_on_bytes)
    # The lead sends the model's answers, compressed, to two others, before the choice and at the end; all say what
    # they heard, 32 bytes to each of two.
    assert found.sent_by_step["estimate"][1:] == [2 * 2 * 32] * 2
    assert 2 * 2 * 32 < found.sent_by_step["estimate"][0] < 2 * 2 * 4 * workload.cells
    assert min(found.cpu_s) > 0
    assert min(found.peak_bytes) > 10**7
    assert max(found.stored_bytes) >= 3 * 4 * workload.maximal_cells
