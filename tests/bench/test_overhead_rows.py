"""The page's section on rows: where they beat FLAIM's client and where not, the goals, and what servers pay."""

import re
from pathlib import Path

import numpy as np
import pytest

from bench.overhead.client_tables import papers
from bench.overhead.jobs import ClientJob, Record, Records, ServersJob, sweep
from bench.overhead.page import page, write_page
from bench.overhead.servers import _trial
from mechanisms.domain import Domain, Integer
from mechanisms.workload import draw_workload
from tests.bench.test_overhead_page import client_document, rows_below

ROUNDS = (4, 32, 96)
SECTION = "Rows, FLAIM and counts"


def rows_document(
    clients: int,
    participation: float,
    wire_kb: float,
    dataset: str = "adult",
    *,
    measured: bool,
    rounds: tuple[int, ...] = ROUNDS,
) -> dict[str, object]:
    """A record by formula with all forms, or of one measured upload."""
    document = client_document(clients, participation, rounds, dataset)
    found = document["results"]
    assert isinstance(found, list)
    for one in found:
        one["predicted_wire_mb"] = one["wire_mb"]
    figures = {"sent_mb": 0.0071, "wire_mb": wire_kb / 1000, "predicted_wire_mb": wire_kb / 1000}
    rows = {"method": "distaim", "upload": "rows", "formula_mb": 0.0071, **figures}
    alone = {"client_peak_mb": 2.0, "client_cpu_s": 0.03, "single_choosers": None}
    each = [{**rows, **alone, "rounds": number, "rounds_joined": 1.0} for number in rounds]
    return {
        **document,
        "results": each[:1] if measured else [*found, *each],
        "owner_rows": 5 if clients == 10_000 else 440,
        "packed_rows_mb": 0.003575,
        "counting": {"rows": 44_000, "mb_per_server": 763.0, "core_seconds_per_server": 8.02},
        "passed_on_mb": {"rows": 0.7, "seeded": 1463.6, "plain": 8780.0},
    }


def make(path: Path, wire_kb: float = 20.0) -> Records:
    """FLAIM's cheaper grouping moves 5, 40 and 120 KB at T = 4, 32 and 96."""
    records = Records(path / "overhead.json")
    documents = [
        ("client", client_document(100, 0.1, ROUNDS)),
        ("upload", rows_document(100, 0.1, wire_kb, measured=True)),
        ("formula", rows_document(100, 0.1, wire_kb, measured=False)),
        ("formula", rows_document(10_000, 0.1, 9.2, measured=False)),
        ("formula", rows_document(100, 0.1, 55.5, measured=False, rounds=(10,))),
    ]
    for number, (kind, document) in enumerate(documents):
        records.add(Record(f"{kind} {number}", kind, document, "abc", "2026-11-01", {"cores": 2}))
    return records


def test_rows_stand_beside_flaim_with_the_t_from_which_they_are_less(tmp_path: Path) -> None:
    text = page(make(tmp_path), [])
    assert text.index(f"## {SECTION}") < text.index("## DistAIM's client")
    assert rows_below(text, SECTION)[2] == (
        "| adult | 440 | 3.6 | 7.1 | 20.0 | 5.0 | 40.0 | 120.0 | 32 | 11,000 | 550 |"
    )
    assert "- T = 4: less on none; more on adult." in text
    assert "- T = 32: less on adult; more on none." in text
    # Every row of a table has as many cells as its head, and no figure of another T is in it.
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table
    assert "55.5" not in text


@pytest.mark.parametrize(
    ("wire_kb", "wire", "below"),
    [
        (12.7, "12.7 KB of 13.4 KB (5.6 KB more than is sent) | yes", "0.32 of FLAIM's | yes"),
        (41.0, "41.0 KB of 13.4 KB (33.9 KB more than is sent) | **no**", "KB | **no**"),
    ],
)
def test_goals_say_whether_they_are_met(
    tmp_path: Path, wire_kb: float, wire: str, below: str
) -> None:
    text = page(make(tmp_path, wire_kb), [])
    assert "| 7.1 KB of 8.4 KB | yes |" in text
    assert wire in text
    every = next(line for line in text.splitlines() if "at T = 32 on every table" in line)
    assert below in every
    assert ("adult 41.0 against 40.0 KB" in every) == (wire_kb > 40)
    assert "| an owner of five rows of Adult below 15 KB on the wire | 9.2 KB | yes |" in text


def test_every_population_and_what_servers_pay_are_by_formula(tmp_path: Path) -> None:
    text = page(make(tmp_path), [])
    assert "| adult | 10,000 | 10% | 5 | 9.2 | 5.0 | 40.0 | 120.0 | 32 | 11,000 | 132,000 |" in text
    assert "| adult | 44,000 | 2,743,713 | 763.0 | 8.0 | 0.7 | 2,289.7 | 1,463.6 |" in text


def test_an_upload_stands_at_every_t_of_its_table_and_of_no_other(tmp_path: Path) -> None:
    records = make(tmp_path)
    magic = rows_document(100, 0.1, 10.0, "magic", measured=True)
    records.add(Record("upload magic", "upload", magic, "abc", "2026-11-01", {"cores": 2}))
    (table,) = papers(records.of("client"), records.of("upload"))
    rows = [one for one in table["results"] if one.get("upload") == "rows"]
    assert [(one["rounds"], one["wire_mb"]) for one in rows] == [(t, 0.02) for t in ROUNDS]
    assert "magic" not in page(records, []).split("### Every population")[0].split(SECTION)[1]


def test_without_an_upload_of_rows_there_is_no_section(tmp_path: Path) -> None:
    records = Records(tmp_path / "overhead.json")
    document = client_document(100, 0.1, ROUNDS)
    records.add(Record("client", "client", document, "abc", "2026-11-01", {"cores": 2}))
    assert SECTION not in page(records, [])


def test_the_pictures_are_drawn(tmp_path: Path) -> None:
    write_page(make(tmp_path), tmp_path)
    for name in ("overhead-rows.png", "overhead-tables.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_servers_are_measured_on_owners_that_send_rows() -> None:
    workload = draw_workload(Domain(tuple(Integer(f"c{i}", 0, 9, 10) for i in range(3))))
    codes = np.zeros((31, 3), np.int32)
    rows = _trial(workload, codes, clients=4, rounds=1, upload="rows")
    assert (rows.config.run.input, rows.request.capacity) == ("rows", 8)
    counts = _trial(workload, codes, clients=4, rounds=1, upload="plain")
    assert (counts.config.run.input, counts.config.run.upload) == ("counts", "plain")


def test_a_sweep_has_rows_of_every_table_and_population() -> None:
    jobs = list(sweep())
    clients = [job for job in jobs if isinstance(job, ClientJob)]
    names = {"adult", "census", "covtype", "marketing", "magic", "credit", "intrusion"}
    assert {job.dataset for job in clients if job.upload == "rows"} == names
    populations = {
        (job.dataset, job.population.clients)
        for job in clients
        if job.formula_only and job.rounds == ROUNDS
    }
    assert populations == {(name, k) for name in names for k in (5, 20, 100, 10_000)}
    assert ServersJob("adult", 4, 100, "rows") in jobs
