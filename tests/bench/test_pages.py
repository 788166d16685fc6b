"""Published pages are those of the published records, byte for byte."""

import json
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from bench import flower, link
from bench.engine import report as engine_report
from bench.engine import whole as engine_whole
from bench.engine.measure import Peer, Result
from bench.engine.tasks import TASKS
from bench.load import page as load_page
from bench.overhead.jobs import Records
from bench.overhead.page import write_page as write_overhead
from bench.papers.mtl import page as mtl_page
from bench.papers.pandemic import page as pandemic_page
from bench.papers.tda.page import write_page as write_tda
from bench.papers.tda.store import open_store as tda_runs
from bench.papers.utility.report import write_report as write_utility
from bench.papers.utility.store import open_store as utility_runs
from bench.quality import report as quality_page
from bench.secagg import report as secagg_page
from bench.tables import page as tables_page
from tests.robustness import page as robustness_page

RESULTS = Path(__file__).parents[2] / "bench" / "results"


def kept(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def engine_page() -> str:
    record = kept("engine.json")
    runs = [engine_whole.Run(**run) for run in record["runs"]]
    return engine_report.markdown(record, [engine_result(row) for row in record["results"]], runs)


def engine_result(row: dict[str, Any]) -> Result:
    """The result that has this row in `engine.json`."""
    names = {item.name for item in fields(Result)}
    unit = TASKS[row["task"]].unit
    values = {name: value for name, value in row.items() if name in names}
    values |= {
        "size": row[unit],
        "unit": unit,
        "peer": Peer(**row["peer"]) if "peer" in row else None,
    }
    facts = {name: row[name] for name in row if name not in {*names, unit, "per_second"}}
    return Result(**values, facts=facts)


def link_page() -> str:
    record = kept("link.json")
    return link._page(record, [link.Joined(**result) for result in record["results"]])


def flower_page() -> str:
    record = kept("flower.json")
    return flower.page(record, [flower.Run(**run) for run in record["runs"]], 100)


@pytest.mark.parametrize(
    ("name", "markdown"),
    [
        ("engine.md", engine_page),
        ("flower.md", flower_page),
        ("link.md", link_page),
        ("load.md", lambda: load_page.markdown(kept("load.json")["records"])),
        ("mtl.md", lambda: mtl_page.markdown(mtl_page.RUNS.read(RESULTS))),
        ("pandemic.md", lambda: pandemic_page.markdown(pandemic_page.RUNS.read(RESULTS))),
        ("quality.md", lambda: quality_page.markdown(quality_page.RUNS.read(RESULTS))),
        ("robustness.md", lambda: robustness_page.markdown(kept("robustness.json")["records"])),
        ("tables.md", lambda: tables_page.markdown(tables_page.RUNS.read(RESULTS))),
        ("secagg.md", lambda: secagg_page.markdown(kept("secagg.json")["runs"])),
    ],
)
def test_a_published_page_is_that_of_its_records(name: str, markdown: Callable[[], str]) -> None:
    assert (RESULTS / name).read_text(encoding="utf-8") == markdown()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("overhead.md", lambda there: write_overhead(Records(there / "overhead.json"), there)),
        ("tda.md", lambda there: write_tda(tda_runs(there / "tda.jsonl"), there)),
        ("utility.md", lambda there: write_utility(utility_runs(there / "utility.jsonl"), there)),
    ],
)
def test_a_published_page_with_pictures_is_that_of_its_records(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    there = tmp_path / "results"
    shutil.copytree(RESULTS, there)
    write(there)
    assert (there / name).read_text(encoding="utf-8") == (RESULTS / name).read_text(
        encoding="utf-8"
    )
