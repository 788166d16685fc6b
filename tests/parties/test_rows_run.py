"""A run that takes rows and counts: real servers, the same total, an audit and a replay that know both."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parties.audit.runner import audit_folder
from parties.config import CertificateFiles
from parties.mpc.steps import CLIENTS_COUNT, PASSED
from parties.mpc.transcript_schema import COUNTING
from protocols.steps import OF_COUNTING
from tests.parties.audit_runs import Lines, copy_run, make_run, read_lines
from tests.parties.mesh import EVERYONE
from tests.parties.tampering import Forger, doubling, dropping, failed, find, index, setting

Certificates = dict[str, CertificateFiles]
BOTH = {
    "run.rounds": 2,
    "run.noise": "distributed",
    "run.input": "auto",
    "clients.rows_per_client": 1000,
}
"""Counts are 224 bytes, rows one each: who declares less than 224 rows sends rows."""
CAPACITIES = {EVERYONE[0]: 40, EVERYONE[2]: 25}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    return make_run(tmp_path_factory.mktemp("mixed"), certificates, BOTH, capacities=CAPACITIES)


def test_run_counts_owners_that_send_rows_and_owners_that_send_counts(mixed: Path) -> None:
    lines = read_lines(mixed, 0)
    note = find(lines, "note", what=COUNTING.what)
    assert (note["form"], note["capacities"]) == ("rows", CAPACITIES)
    # The one who sent counts has a bit; the others cannot weigh more than they say.
    assert [record["count"] for record in lines if record.get("what") == PASSED.what] == [1]


def test_audit_passes_a_run_of_both_and_its_report_says_what_there_was(mixed: Path) -> None:
    audit = audit_folder(mixed)
    assert failed(audit) == set(), [check for check in audit.checks if check.status == "fail"]
    (limits,) = (check.detail for check in audit.checks if check.name == "limits")
    assert "1 owners were checked" in limits
    assert "2 owners sent rows, 65 at most" in limits
    report = json.loads((mixed / "report.json").read_text())
    assert report["parameters"]["input"] == "auto"
    assert report["workload"]["rows_capacity"] == 65
    notes = " ".join(report["notes"])
    assert (
        "2 data owners sent their rows, which the servers counted; together they declared at most 65 rows."
        in notes
    )
    assert "The other 1 sent counts." in notes
    # Two rounds alike: what they cost when they are composed numerically stands beside.
    assert "By zCDP alone the same release would have epsilon " in notes
    sent = report["communication"]["server_sent_bytes_by_step"]
    assert all(min(sent[step.name]) > 0 for step in OF_COUNTING)
    assert report["time"]["count_s"] > 0


def test_transcripts_do_not_depend_on_how_many_rows_there_are(
    mixed: Path, tmp_path: Path, certificates: Certificates
) -> None:
    """The same owners with more rows each, and one without any: all records of counting have the same sizes."""
    make_run(tmp_path, certificates, BOTH, capacities=CAPACITIES, rows=25)
    assert sizes(read_lines(tmp_path / "run", 1)) == sizes(read_lines(mixed, 1))


def sizes(lines: Lines) -> list[tuple[object, ...]]:
    """Messages sent in steps of counting: step, peer and bytes."""
    steps = {CLIENTS_COUNT.name, *(step.name for step in OF_COUNTING)}
    found = [r for r in lines if r["kind"] == "sent" and r["step"] in steps]
    return sorted((r["step"], r["peer"], r["bytes"]) for r in found)


COUNTED = {"what": COUNTING.what}


def capacities(**values: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda old: {**old, **values}


def checked_instead(lines: Lines) -> None:
    """Somebody's rows are said to be checked counts."""
    find(lines, "note", **COUNTED)["capacities"].pop(EVERYONE[0])


def moved_behind(lines: Lines) -> None:
    """The batch is named after its owners are listed."""
    place = index(lines, "note", **COUNTED)
    note = lines.pop(place)
    last = index(lines, "client", client=EVERYONE[2])
    lines.insert(last + 1, note | {"t": lines[last]["t"]})


MANIPULATIONS: dict[str, tuple[Callable[[Lines], object], set[str]]] = {
    "no batch": (dropping("note", **COUNTED), {"limits", "costs"}),
    "a batch twice": (doubling("note", **COUNTED), {"limits", "costs"}),
    "a batch after its owners": (moved_behind, {"limits"}),
    "another form": (setting("note", "form", "seeded", **COUNTED), {"limits"}),
    "a form that there is not": (setting("note", "form", "columns", **COUNTED), {"limits"}),
    "nobody in it": (setting("note", "capacities", {}, **COUNTED), {"limits"}),
    "not everybody in it": (checked_instead, {"limits", "costs", "report"}),
    "somebody else in it": (
        setting("note", "capacities", capacities(nobody=9), **COUNTED),
        {"limits", "costs"},
    ),
    "more rows than were counted": (
        setting("note", "capacities", capacities(**{EVERYONE[0]: 140}), **COUNTED),
        {"costs", "report"},
    ),
    "more rows than anybody may have": (
        setting("note", "capacities", capacities(**{EVERYONE[0]: 1001}), **COUNTED),
        {"limits"},
    ),
    "no number of rows": (
        setting("note", "capacities", capacities(**{EVERYONE[0]: "40"}), **COUNTED),
        {"limits"},
    ),
    "excluded after its rows were counted": (
        lambda lines: find(lines, "client", client=EVERYONE[0]).update(
            accepted=False, reason="out of bounds"
        ),
        {"limits"},
    ),
}


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_audit_catches(name: str, mixed: Path, tmp_path: Path, certificates: Certificates) -> None:
    """Told alike by all three servers, and signed by them."""
    change, expected = MANIPULATIONS[name]
    forger = Forger(copy_run(mixed, tmp_path), mixed, certificates)
    forger.edit(change)
    audit = audit_folder(forger.run)
    assert expected <= failed(audit), [c for c in audit.checks if c.status == "fail"]


def test_audit_catches_servers_that_tell_differently_whose_rows_they_count(
    mixed: Path, tmp_path: Path, certificates: Certificates
) -> None:
    forger = Forger(copy_run(mixed, tmp_path), mixed, certificates)
    forger.edit(setting("note", "capacities", capacities(**{EVERYONE[0]: 41}), **COUNTED), 1)
    assert "limits" in failed(audit_folder(forger.run))


def test_audit_wants_rows_of_everybody_where_nothing_else_may_be_sent(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A run by rows alone: an owner that is counted by a bit of its own did not send rows."""
    make_run(
        tmp_path, certificates, {"run.rounds": 1, "run.noise": "distributed", "run.input": "rows"}
    )
    assert failed(audit_folder(tmp_path / "run")) == set()
    forger = Forger(copy_run(tmp_path / "run", tmp_path), tmp_path / "run", certificates)
    forger.edit(checked_instead)
    audit = audit_folder(forger.run)
    (limits,) = (check.detail for check in audit.checks if check.name == "limits")
    assert "did not send rows" in limits
