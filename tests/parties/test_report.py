"""report.json holds what the design lists, report.html needs nothing from outside, and names stay names."""

import base64
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mechanisms.accounting import LedgerEntry
from mechanisms.events import ExponentialEvent, GaussianEvent
from parties.cli.run import closing_lines
from parties.foundation.errors import StoreError
from parties.report.html import render_html
from parties.report.model import (
    NOT_PRIVATE,
    Associations,
    ColumnShares,
    Communication,
    ExcludedOwner,
    Parameters,
    Privacy,
    QueryError,
    ReportedOpening,
    ReportFigures,
    RunReport,
    SelectedQuery,
    Utility,
    WorkloadSize,
    check_report,
    excluded_text,
)
from parties.report.privacy_text import ColumnDescription, ReportHeader
from parties.report.writing import write_report

HOSTILE = "<script>alert('x')</script>\"&$\\frac{$ \x07"

LEDGER = (
    LedgerEntry(0, "measure", GaussianEvent(20.0), 0.01),
    LedgerEntry(1, "select", ExponentialEvent(0.1), 0.005),
    LedgerEntry(1, "measure", GaussianEvent(20.0), 0.01),
)


def example(name: str = "stays") -> RunReport:
    return RunReport(
        method="distaim",
        dataset=name,
        parameters=Parameters(1.0, 1e-5, 1, 24, 1.0, "box-muller", "seeded"),
        privacy=Privacy(0.030557, LEDGER, 1e-12),
        workload=WorkloadSize(20, 41, 34_000),
        communication=Communication(
            122_500.0, 900.0, {name: (0, 7, 0), "select": (10, 20, 30)}, 1.632
        ),
        time_s={"total": 12.5, "share": 1.0, "select": 0.5, "measure": 0.25, "estimate": 9.0},
        opened=(
            ReportedOpening(0, "measure", "measure.counts", 20),
            ReportedOpening(1, "select", name, 1),
        ),
        selected=(SelectedQuery(1, ("age", name), 24, 6012, 20.5),),
        utility=Utility("the trial's table", workload_error=0.125, nll=8.5),
        seed=7,
        synthetic_rows=6012,
        notes=(name,),
        about=ReportHeader(
            name,
            "ab" * 32,
            "2026-11-21T19:19:05Z",
            "0.2.0",
            "one row of the whole table",
            (
                ColumnDescription(name, "categorical", 3, name),
                ColumnDescription("age", "integer", 5, "0 to 9"),
            ),
        ),
    )


def shown(name: str = "age", *, real: bool = True) -> ReportFigures:
    return ReportFigures(
        (QueryError(("age", name), 0.25), QueryError(("sex", "ward"), 0.5)) if real else (),
        (ColumnShares(name, (name, "b"), (0.4, 0.6), (0.5, 0.5) if real else None),),
        Associations(
            (name, "ward", "b"),
            ((1.0, 0.1, 0.2), (0.1, 1.0, 0.95), (0.2, 0.95, 1.0)),
            ((1.0, 0.3, 0.2), (0.3, 1.0, 0.9), (0.2, 0.9, 1.0)) if real else None,
        ),
    )


class Page(HTMLParser):
    """Tags with their attributes, and the text outside of style sheets."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] != "style":
            self.text += data

    @property
    def pictures(self) -> list[str]:
        prefix = "data:image/svg+xml;base64,"
        sources = [attrs["src"] or "" for tag, attrs in self.tags if tag == "img"]
        assert all(source.startswith(prefix) for source in sources)
        return [base64.b64decode(s.removeprefix(prefix)).decode("utf-8") for s in sources]


def test_to_dict_has_every_key_of_the_design() -> None:
    document = example().to_dict()
    sections = {
        "parameters": "epsilon delta rounds clients participation noise upload",
        "privacy": "rho_total rho_spent ledger delta_implementation",
        "workload": "queries candidates cells",
        "utility": "workload_error nll",
        "communication": "client_sent_bytes_mean client_received_bytes_mean client_throughput_mb_mean "
        "server_sent_bytes server_sent_bytes_by_step server_passed_on_bytes paper_formula_mb",
        "time": "total_s share_s select_s measure_s estimate_s",
    }
    assert {"method", "dataset", "seed", "opened", *sections} <= set(document)
    for section, keys in sections.items():
        table = document[section]
        assert isinstance(table, dict)
        assert set(keys.split()) <= set(table)
    assert document["opened"] == [
        {"round": 0, "step": "measure", "what": "measure.counts", "count": 20},
        {"round": 1, "step": "select", "what": "stays", "count": 1},
    ]


def test_to_dict_adds_up_bytes_and_charges() -> None:
    document = example().to_dict()
    assert document["communication"]["server_sent_bytes"] == [10, 27, 30]  # type: ignore[index]
    assert document["communication"]["client_throughput_mb_mean"] == pytest.approx(0.1234)  # type: ignore[index]
    assert document["privacy"]["rho_spent"] == pytest.approx(0.025)  # type: ignore[index]


def test_to_dict_leaves_out_what_is_not_known() -> None:
    document = replace(example(), seed=None, utility=None, synthetic_rows=None).to_dict()
    assert "seed" not in document
    assert "synthetic_rows" not in document
    assert document["utility"] == {}
    check_report(document)


def test_write_report_writes_the_dictionary_and_a_page(tmp_path: Path) -> None:
    document = example().to_dict()
    json_path, html_path = write_report(tmp_path, document, pictures=shown())
    assert json.loads(json_path.read_text(encoding="utf-8")) == document
    assert html_path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


def test_render_html_needs_nothing_from_outside() -> None:
    source = render_html(example().to_dict(), shown())
    page = Page(source)
    assert not {"script", "link", "iframe", "object", "form"} & {tag for tag, _ in page.tags}
    addressed = [attrs for _, attrs in page.tags if {"srcset", "action"} & set(attrs)]
    assert addressed == []
    links = [attrs["href"] or "" for _, attrs in page.tags if "href" in attrs]
    anchors = {f"#{attrs['id']}" for _, attrs in page.tags if "id" in attrs}
    assert links
    assert set(links) <= anchors
    assert "url(" not in source
    assert len(page.pictures) == 7
    for picture in page.pictures:
        elements = ElementTree.fromstring(picture).iter()
        links = [v for e in elements for k, v in e.attrib.items() if k.endswith(("href", "src"))]
        assert all(link.startswith("#") for link in links)


def test_render_html_shows_names_as_text_when_they_are_hostile() -> None:
    page = Page(render_html(example(HOSTILE).to_dict(), shown(HOSTILE)))
    tags = {tag for tag, _ in page.tags}
    assert tags == {tag for tag, _ in Page(render_html(example().to_dict(), shown())).tags}
    assert page.text.count("<script>alert('x')</script>") >= 6
    assert all(not name.startswith("on") for _, attrs in page.tags for name in attrs)
    for picture in page.pictures:
        assert "script" not in {
            e.tag.rpartition("}")[2] for e in ElementTree.fromstring(picture).iter()
        }


def test_render_html_says_which_figures_are_not_private() -> None:
    with_real = Page(render_html(example().to_dict(), shown()))
    assert with_real.text.count(NOT_PRIVATE) == 4
    without = replace(example(), utility=None)
    page = Page(render_html(without.to_dict(), shown(real=False)))
    assert NOT_PRIVATE not in page.text
    assert "Largest errors" not in page.text
    assert "Synthetic columns" in page.text
    assert "columns that go together most" in page.text
    assert len(page.pictures) == 5


def test_render_html_begins_with_what_people_look_at_first() -> None:
    """The table and its privacy, then pictures, then the inputs, then the accounting, folded."""
    source = render_html(example().to_dict(), shown())
    text = Page(source).text
    first = (
        "A synthetic table of 6,012 rows and 2 columns, made by DistAIM of the tables of 24 data owners, with Syncret "
        "0.2.0, on 21 November 2026 at 19:19 UTC."
    )
    meaning = (
        "If it falsely suspects 1 % of the absent rows, it finds at most 2.1 % of the present ones; if it falsely "
        "suspects 10 %, at most 16.5 %. Guessing finds 1 % and 10 %."
    )
    order = (
        first, "budget spent", meaning, "81.8 % of it was spent (measure 80 %, select 20 %)",
        "Real against synthetic columns", "Strength of the relation of two columns", "Largest errors",
        "What was measured", "The columns", "Who had to be trusted", "Details for an audit",
        "Privacy budget: 3 charges", "What was opened: 2 openings",
    )  # fmt: skip
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    folded = source.partition(">Accounting</h2>")[2]
    assert folded.count("<details>") == 5


def test_render_html_names_the_pairs_that_differ_most() -> None:
    source = render_html(example().to_dict(), shown())
    pairs = source.partition("pairs that differ most")[2].partition("</table>")[0]
    assert pairs.index("age × ward") < pairs.index("ward × b") < pairs.index("age × b")
    assert "<td>0.30</td><td>0.10</td>" in pairs
    source = render_html(example().to_dict(), shown(real=False))
    pairs = source.partition("columns that go together most")[2].partition("</table>")[0]
    assert pairs.index("ward × b") < pairs.index("age × b") < pairs.index("age × ward")


def marginal(*columns: str, low: float, high: float, query: bool = True) -> dict[str, object]:
    """As the section quality of a report has it."""
    return {
        "columns": list(columns),
        "query": query,
        "cells": 15,
        "low": low,
        "high": high,
        "basis": "measured",
        "noise": 20.5,
        "expected": (low + high) / 2,
        "expected_is": "noise",
    }


QUALITY = {
    "confidence": 0.95,
    "marginals": [
        marginal("age", low=0.0, high=0.02, query=False),
        marginal("age", "stays", low=0.1, high=0.3),
        {**marginal("sex", "ward", low=0.2, high=1.2), "expected_is": "at most"},
    ],
    "dependencies": {"measured": [["age", "stays"]], "through_others": [], "independent": []},
    "verdict": {"good_for": ["Shares of age."], "not_for": ["Pairs of sex | ward."]},
}


def test_render_html_shows_errors_to_expect_where_no_real_table_is_at_hand() -> None:
    document = {**replace(example(), utility=None).to_dict(), "quality": QUALITY}
    source = render_html(document, ReportFigures())
    assert ">Errors to expect</h2>" in source
    assert "the range of the true distance; all ranges hold together with 95% confidence" in source
    assert NOT_PRIVATE not in source
    drawn = next(p for p in Page(source).pictures if "Known best" in p)
    assert drawn.index("age × stays") < drawn.index("sex × ward")


def test_render_html_draws_true_errors_without_intervals_in_a_trial() -> None:
    source = render_html({**example().to_dict(), "quality": QUALITY}, shown("stays"))
    assert ">Largest errors</h2>" in source
    assert "Errors to expect" not in source


def test_render_html_says_which_queries_were_measured_with_what_noise() -> None:
    chosen = (
        SelectedQuery(1, ("age", "stays"), 24, 6012, 20.5),
        SelectedQuery(2, ("stays",), 24, 6012, 20.5),
        SelectedQuery(3, ("age", "stays"), 23, 6012, 10.0),
    )
    source = render_html(replace(example(), selected=chosen).to_dict(), ReportFigures())
    text = Page(source).text
    assert "Every column by itself was measured first, with noise of 20 rows in a cell." in text
    assert "Then, in 3 rounds, 2 queries were chosen and measured, 3 times in all." in text
    table = source.partition("owners counted")[2].partition("</table>")[0]
    cells = [part.partition("<")[0] for part in table.replace(' class="n"', "").split("<td>")[1:]]
    assert cells == [
        "age × stays", "15", "1, 3", "10 to 20.5", "23 to 24",
        "stays", "3", "2", "20.5", "24",
    ]  # fmt: skip
    assert "numbers" not in text.rpartition("Words")[0]
    assert "What was measured" not in render_html(
        replace(example(), selected=()).to_dict(), ReportFigures()
    )


def test_render_html_shows_reports_of_older_runs() -> None:
    text = Page(render_html(replace(example(), about=None).to_dict(), shown())).text
    assert (
        "A synthetic table of 6,012 rows, made by DistAIM of the tables of 24 data owners." in text
    )
    assert "for one row added to or removed from the whole table" in text
    assert "The columns" not in text


def test_render_html_shows_openings_trust_and_notes() -> None:
    text = Page(render_html(example().to_dict(), ReportFigures())).text
    for part in (
        "measure.counts",
        "Two servers acting together",
        "gaussian, sensitivity 1, sigma 20",
        "6,012",
    ):
        assert part in text
    assert "81.8 %" in text


def test_excluded_owners_stand_at_the_beginning_of_report_and_page() -> None:
    excluded = (
        ExcludedOwner("clinic-a", 0, "out of bounds", (), "its counts are too heavy"),
        ExcludedOwner(HOSTILE, 2, "incomplete", (1, 2), "it was not there"),
    )
    document = replace(example(), excluded=excluded).to_dict()
    assert list(document)[:3] == ["method", "dataset", "excluded"]
    assert document["excluded"] == [asdict(item) for item in excluded]
    assert excluded_text(document) is not None
    source = render_html(document, ReportFigures())
    text = Page(source).text
    assert "2 data owners were not counted. clinic-a: its counts are too heavy;" in text
    assert "<script" not in source
    assert text.index("not counted") < text.index("budget spent")
    lines = closing_lines(document)
    assert lines[0] == ("not counted", excluded_text(document))


@pytest.mark.parametrize("excluded", [None, ()])
def test_report_says_nothing_of_exclusions_where_there_are_none(
    excluded: tuple[ExcludedOwner, ...] | None,
) -> None:
    document = replace(example(), excluded=excluded).to_dict()
    assert ("excluded" in document) == (excluded is not None)
    assert "not counted" not in render_html(document, ReportFigures())
    assert "not counted" not in dict(closing_lines(document))


def test_render_html_puts_a_ledgers_events_into_words() -> None:
    event = GaussianEvent(20.885931)
    report = replace(example(), privacy=Privacy(0.1, (LedgerEntry(0, "measure", event, 0.01),)))
    text = Page(render_html(report.to_dict(), ReportFigures())).text
    assert "gaussian, sensitivity 1, sigma 20.8859" in text


def test_render_html_repeats_itself() -> None:
    document = example().to_dict()
    assert render_html(document, shown()) == render_html(document, shown())


@pytest.mark.parametrize(
    ("section", "key"),
    [("", "opened"), ("privacy", "rho_spent"), ("communication", "server_sent_bytes_by_step")],
)
def test_write_report_names_the_key_when_one_is_missing(
    tmp_path: Path, section: str, key: str
) -> None:
    document = example().to_dict()
    table = document[section] if section else document
    assert isinstance(table, dict)
    del table[key]
    with pytest.raises(ValueError, match=key):
        write_report(tmp_path, document, pictures=ReportFigures())
    assert list(tmp_path.iterdir()) == []


def test_write_report_refuses_a_number_that_json_does_not_have(tmp_path: Path) -> None:
    document = replace(example(), utility=Utility("x", nll=float("nan"))).to_dict()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_report(tmp_path, document, pictures=ReportFigures())
    assert list(tmp_path.iterdir()) == []


def test_write_report_names_the_file_when_the_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"report\.json: cannot be written: No such file"):
        write_report(tmp_path / "gone", example().to_dict(), pictures=ReportFigures())


def test_write_report_keeps_the_old_file_when_the_new_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = write_report(tmp_path, example().to_dict(), pictures=ReportFigures())
    before = path.read_text(encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("parties.storage.files.os.replace", full)
    with pytest.raises(StoreError, match="No space left on device"):
        write_report(tmp_path, example("other").to_dict(), pictures=ReportFigures())
    assert path.read_text(encoding="utf-8") == before
    assert sorted(item.name for item in tmp_path.iterdir()) == ["report.html", "report.json"]


def test_privacy_refuses_a_ledger_above_the_budget() -> None:
    with pytest.raises(ValueError, match="above the budget"):
        Privacy(0.0249, LEDGER)
    Privacy(0.025, LEDGER)


@pytest.mark.parametrize("sent", [(1, 2), (1, 2, -3)])
def test_communication_refuses_bytes_that_are_not_three_counts(sent: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"'select'.*one figure per server"):
        Communication(0.0, 0.0, {"select": sent}, 0.0)


def test_column_shares_refuse_lengths_that_differ() -> None:
    with pytest.raises(ValueError, match="differ in number"):
        ColumnShares("age", ("a", "b"), (1.0,))


@pytest.mark.parametrize("side", [((1.0,),), ((1.0, 0.0), (0.0,))])
def test_associations_refuse_what_is_no_square(side: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ValueError, match="no square"):
        Associations(("a", "b"), side)


def test_run_report_refuses_times_without_a_total() -> None:
    with pytest.raises(ValueError, match="expected total"):
        replace(example(), time_s={"share": 1.0})


def test_report_lists_the_keys_that_are_not_private() -> None:
    column = {"column": "age", "kind": "integer", "zeros": {"synthetic": 0.5, "real": 0.25}}
    of_trial = replace(example(), columns=({**column, "distance": 0.25},)).to_dict()
    assert of_trial["not_private"] == [
        "utility",
        "columns[].*.real",
        "columns[].values[].real",
        "columns[].distance",
    ]
    text = Page(render_html(of_trial, ReportFigures())).text
    assert "50 % (25 %)" in text
    assert NOT_PRIVATE in text
    deployed = replace(example(), utility=None, columns=({**column, "zeros": {"synthetic": 0.5}},))
    assert "not_private" not in deployed.to_dict()
    text = Page(render_html(deployed.to_dict(), ReportFigures())).text
    assert "Columns as they are written" in text
    assert NOT_PRIVATE not in text


def test_closing_lines_have_the_verdict_and_say_where_the_rest_is() -> None:
    document = example().to_dict()
    document["quality"] = {
        "verdict": {"good_for": ["Sums."], "not_for": [f"{n}." for n in range(5)], "confidence": []}
    }
    lines = closing_lines(document)
    first = lines.index(("good for", "Sums."))
    assert lines[first + 1 : first + 5] == [
        ("not for", "0."),
        ("", "1."),
        ("", "2."),
        ("", "2 more in report.html"),
    ]
    del document["quality"]
    assert "good for" not in dict(closing_lines(document))
