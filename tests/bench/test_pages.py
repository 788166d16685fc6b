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
from bench.experiment.appendix import LINES, SHORT, appendix_of, parted
from bench.experiment.documents import Document
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
from bench.quality.membership_runs import MEMBERSHIP
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


def engine_files() -> dict[str, str]:
    return parted("engine.md", engine_page(), engine_report.FRONT)


def of(document: Document[Any]) -> Callable[[], dict[str, str]]:
    return lambda: document.pages(document.read(RESULTS))


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(engine_files, id="engine"),
        pytest.param(lambda: {"flower.md": flower_page()}, id="flower"),
        pytest.param(lambda: {"link.md": link_page()}, id="link"),
        pytest.param(of(load_page.DOCUMENT), id="load"),
        pytest.param(of(mtl_page.RUNS), id="mtl"),
        pytest.param(of(pandemic_page.RUNS), id="pandemic"),
        pytest.param(of(quality_page.RUNS), id="quality"),
        pytest.param(of(MEMBERSHIP), id="membership"),
        pytest.param(of(robustness_page.DOCUMENT), id="robustness"),
        pytest.param(of(tables_page.RUNS), id="tables"),
        pytest.param(of(secagg_page.DOCUMENT), id="secagg"),
    ],
)
def test_a_published_page_is_that_of_its_records(files: Callable[[], dict[str, str]]) -> None:
    for name, text in files().items():
        assert (RESULTS / name).read_text(encoding="utf-8") == text


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
    for file in (name, appendix_of(name)):
        assert (there / file).read_text(encoding="utf-8") == (RESULTS / file).read_text(
            encoding="utf-8"
        )


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_is_short_and_says_first_what_was_found(path: Path) -> None:
    page = path.with_stem(path.stem.removesuffix("-appendix"))
    lines = page.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES
    sections = [line for line in lines if line.startswith("## ")]
    assert sections[0] == f"## {SHORT}" or f"**{SHORT}.** Means of the repeats." in lines
    if page != path:
        assert f"[The appendix]({path.name}) has:" in lines


NOTES = (RESULTS.parent / "README.md", *sorted((RESULTS.parent / "notes").glob("*.md")))


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.stem)
def test_notes_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES
