"""The page of `syncret bench overhead`: tables and pictures from the kept records, each with its command.

Nothing here measures; a figure without a record is left out, and of the paper's own figures only known ones are shown.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.experiment.appendix import parted
from bench.experiment.documents import publish
from bench.experiment.markdown import markdown_table, mb, size
from bench.experiment.pictures import mark, panel_of_each, panels
from bench.overhead.client_tables import Document, client_sections, papers
from bench.overhead.growth import CELL_COLUMNS, CODES
from bench.overhead.jobs import CLIENT, FORMULA, GROWTH, SERVERS, UPLOAD, Record, Records
from bench.overhead.rows_tables import at_papers_rounds, in_short, plot_rows, rows_section
from bench.overhead.utility import Errors, best_rounds, choice, errors_by_rounds, table3
from parties.storage.files import disk_errors

FRONT = ("Rows, FLAIM and counts", "What to choose")
"""Sections of the page that are not for its appendix."""


def write_page(records: Records, folder: Path) -> None:
    """Writes overhead.md and its pictures to ``folder``, beside the records. Raises StoreError."""
    errors = errors_by_rounds(folder / "utility.jsonl")
    publish(folder, parted("overhead.md", page(records, errors), FRONT))
    with disk_errors(folder):
        tables = papers(records.of(CLIENT), records.of(UPLOAD))
        plot_tables(tables, folder / "overhead-tables.png")
        plot_rows(at_papers_rounds(records.of(FORMULA)), folder / "overhead-rows.png")
        plot_growth(records.of(GROWTH), folder / "overhead-growth.png")


def page(records: Records, errors: Sequence[Errors]) -> str:
    """Returns the text of overhead.md."""
    clients, servers = records.of(CLIENT), records.of(SERVERS)
    uploads, formulas = records.of(UPLOAD), records.of(FORMULA)
    tables = papers(clients, uploads)
    *client, cost = client_sections(tables, clients)
    parts = [
        _opening(records),
        in_short(tables, formulas),
        rows_section(tables, uploads, formulas),
        *client,
        table3(clients, best_rounds(errors)),
        cost,
        _servers(servers),
        _growth(records.of(GROWTH)),
        choice(clients, servers, errors, formulas),
        _commands(records),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(records: Records) -> str:
    # The commit of a modified working tree ends in a plus.
    commits = {record.commit.rstrip("+") for record in records}
    changed = [record for record in records if record.commit.endswith("+")]
    dates = sorted({record.date for record in records})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    machine = next((record.machine for record in records), {})
    here = ", ".join(f"{key} {value}" for key, value in machine.items())
    made = (
        f"{when}, {len(commits)} commit{'s' * (len(commits) > 1)}; {len(changed)} of {len(list(records))} records "
        "with uncommitted changes (`overhead.json` has each record's)"
    )
    return f"# The overhead tables, on the wire\n\nMeasured {made}; {here}.\n\n{_PREFACE}"


_PREFACE = """\
What one participating client sends and receives: one that takes part in at least one round. "Formula" is the FLAIM
paper's count: DistAIM 48 bytes for each cell of the workload's closure, FLAIM 8 for each cell of the marginals that
the client answers (what it chose, and all single columns, in each round that it takes part in) and of the models that
it is sent. "Sent" and "received" are our messages: HTTP bodies, or FLAIM's and SecAgg's messages. "Wire" is both
directions with HTTP, frames and TLS 1.3, as TCP carries them (TCP and IP headers are in no figure). 1 MB is 10^6
bytes.

K = 100 clients, participation 0.1, epsilon = 1, 64 three-way queries drawn with seed 123, private FLAIM with SecAgg
and noise added by the server, unless a table says otherwise. FLAIM's sizes are public, as the paper has them: its
epsilon is for tables of the same declared sizes. Estimated ones, the default, change no message's size. DistAIM's
figures are counted by a relay between one client's process and three ingest servers. FLAIM's messages are those of
whole runs in one process: choices by the exponential mechanism on the clients' rows, real SecAgg sessions; the models
are fitted with one iteration of PGM in place of a hundred, which changes no size. FLAIM's wire adds what a deployed
connection has by formula; a test holds it against relays between a deployed server and its clients, to 100 bytes
(`tests/bench/test_overhead_flaim.py`). It assumes one TLS connection of a client for the whole run.

Tables that are not at hand here are replaced by random rows of their published domain and marked "generated":
DistAIM's bytes do not depend on what rows say, FLAIM's only through what is chosen. Each table names its command; the
last section has all."""


def _servers(records: Sequence[Record]) -> str:
    if not records:
        return ""
    parts = [
        f"### {run['dataset']}, {run['upload']}: {run['clients']} clients, all in every round, "
        f"T = {run['rounds']}\n\n`{command}`\n\n"
        + markdown_table("step | server 0 | server 1 | server 2 | together", _servers_rows(run))
        for command, run in ((record.command, record.document) for record in records)
    ]
    return (
        "## What DistAIM's servers move and keep\n\nMessages between the three servers by step (payload; frames add 12 "
        "bytes a message, TLS 22 a record), processes as the kernel sees them. Storage is the most that a store's "
        f"files had at {_looks(records)}. The estimator is the short one, so processor time is less than in a real "
        "run; bytes are the same. Records with the step `clients.forward` were made before uploads were sealed: server "
        "2 got its part over the mesh then, and now owners' uploads are passed on beside all steps.\n\n"
        + "\n\n".join(parts)
    )


def _servers_rows(run: Document) -> list[tuple[str, ...]]:
    """Returns rows by step, the most expensive first, then traffic outside steps; each with the sum of the three."""
    sent: Mapping[str, Sequence[int]] = run["sent_by_step"]
    steps = sorted(sent.items(), key=lambda item: -sum(item[1]))
    passed_on = run.get("passed_on_bytes", [0, 0, 0])
    whole = [sum(by_party[pid] for by_party in (*sent.values(), passed_on)) for pid in range(3)]
    bytes_of = [
        *([("uploads passed on", passed_on)] if any(passed_on) else []),
        *steps,
        ("all", whole),
        ("storage at most", run["stored_bytes"]),
        ("peak memory", run["peak_bytes"]),
    ]
    rows = [(name, *map(size, by_party), size(sum(by_party))) for name, by_party in bytes_of]
    seconds = [f"{of:.1f} s" for of in (*run["cpu_s"], sum(run["cpu_s"]))]
    return [*rows, ("processor time", *seconds)]


def _looks(records: Sequence[Record]) -> str:
    """Describes the sampling of storage; early records do not name the interval, which was half a second."""
    every = sorted({float(str(record.document.get("look_s", 0.5))) for record in records})
    looks = " or ".join(f"{1000 * seconds:.0f}" for seconds in every)
    return f"looks every {looks} ms: peaks between looks are missed, and runs differ by about 15 %"


def _growth(records: Sequence[Record]) -> str:
    if not records:
        return ""
    rows = []
    for record in records:
        for point in _points(record):
            rows.append(
                (
                    str(record.document["axis"]),
                    f"{point['x']:,}",
                    point["method"],
                    point["variant"],
                    mb(point["predicted_mb"]),
                    mb(point["measured_mb"]),
                )
            )
    heads = "axis | at | method | form | our formula, MB | measured, MB"
    return (
        "## How it grows\n\n`syncret bench overhead --growth AXIS --json`\n\n![growth](overhead-growth.png)\n\nMB "
        "of messages, both directions, of one participating client; K = 100, participation 0.1, T = 10, Adult's domain "
        "and 440 random rows a client where the axis does not say otherwise. Lines are by formula, marks are measured. "
        f"The cells axis has {CELL_COLUMNS} equal columns of {CODES[0]} to {CODES[-1]} codes and asks for all "
        f"{math.comb(CELL_COLUMNS, 3)} triples, the saturated case; a random workload of as many cells over more "
        "columns has a far smaller model (attributes axis, from 11 columns on). "
        "FLAIM's formula is the mean of five replayed runs, whose choices are drawn by a public score "
        "(`bench/overhead/replay.py`); a measured point is one run, its choices by the real mechanism. Where queries "
        "overlap much the model grows by chance, and runs differ by a factor of up to three. An upload does not depend "
        "on other clients or rounds; what it has beyond the formula are the receipts, 0.7 to 0.9 KB.\n\n"
        + _models(rows)
        + markdown_table(heads, rows)
    )


def _points(record: Record) -> Sequence[Document]:
    points: Sequence[Document] = record.document["points"]  # type: ignore[assignment]
    return points


def _models(rows: Sequence[Sequence[str]]) -> str:
    """Lists the cases in which FLAIM's client moves more than a seeded upload, as measured."""
    measured = {(axis, at, f"{method} {form}"): mb for axis, at, method, form, _, mb in rows if mb}
    dearer = [
        f"{axis} {at}: {mb} MB against {seeded}"
        for (axis, at, name), mb in measured.items()
        if name == "flaim union"
        and (seeded := measured.get((axis, at, "distaim seeded")))
        and _number(mb) > _number(seeded)
    ]
    if not dearer:
        return ""
    return (
        "**FLAIM's client can be the one with more to move.** It is sent the model in every round that it joins, 4 "
        "bytes a cell, and a model may have 10 million cells (`max_model_mb` = 80). Up to 8 columns all three-way "
        "queries are asked for: their weights are equal, choices spread over all pairs of columns and soon make one "
        "large clique. Of a random workload over more columns clients choose the few queries of least size and "
        "weight, and the model stays small. Measured, FLAIM `union` against DistAIM `seeded`: "
        + "; ".join(dearer)
        + ".\n\n"
    )


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _commands(records: Records) -> str:
    lines = [f"- `{record.command}`" for record in records]
    return (
        "## Commands\n\n`make bench-overhead` runs all of these and writes this page; each prints its part.\n\n"
        + "\n".join(lines)
    )


# Pictures.


_LABELS = {
    "cells": "cells of the workload's closure",
    "clients": "clients K (a tenth take part in a round)",
    "rounds": "rounds T",
    "attributes": "columns of 32 codes",
}
_NAMES = {"distaim": "DistAIM", "flaim": "FLAIM"}
_COLOURS = {
    ("distaim", "plain"): "C3",
    ("distaim", "seeded"): "C1",
    ("distaim", "rows"): "C4",
    ("flaim", "union"): "C0",
    ("flaim", "query"): "C2",
}


def plot_growth(records: Sequence[Record], path: Path) -> None:
    """Plots one panel for each axis: our formula as lines, measured points as marks, both axes logarithmic."""
    by_axis = {str(record.document["axis"]): record for record in records}
    with panels(path, 2, 2, (10, 7.5), share_y=True) as (figure, places):
        every = [panel for row in places for panel in row]
        for panel, (axis, label) in zip(every, _LABELS.items(), strict=True):
            points = _points(by_axis[axis]) if axis in by_axis else []
            for (method, variant), colour in _COLOURS.items():
                mine = sorted(
                    (p for p in points if (p["method"], p["variant"]) == (method, variant)),
                    key=lambda point: point["x"],
                )
                lines = [(p["x"], p["predicted_mb"]) for p in mine]
                marks = [(p["x"], p["measured_mb"]) for p in mine]
                if mine:
                    # A line over another line is dashed, and its marks are hollow.
                    over = variant == "query"
                    panel.plot(
                        *zip(*lines, strict=True),
                        "--" if over else "-",
                        color=colour,
                        lw=1.2,
                        label=f"{_NAMES[method]} {variant}",
                    )
                    inside = "none" if over else colour
                    panel.plot(
                        *zip(*marks, strict=True), "o", color=colour, mfc=inside, ms=5 + over
                    )
            panel.set(xscale="log", yscale="log", xlabel=label, ylabel="MB of one client")
            mark(panel, {p["x"] for p in points})
            panel.grid(alpha=0.3, which="both", lw=0.4)
        if records:
            every[0].legend(fontsize=8)
        figure.suptitle("Messages of one participating client: lines by formula, marks measured")


def plot_tables(tables: Sequence[Document], path: Path) -> None:
    """Plots Table 7: for each table, bytes on the wire by T, with the paper's formula dashed."""
    names = [str(table["dataset"]) for table in tables]
    with panel_of_each(path, names, "MB of one client on the wire") as every:
        for panel, table in zip(every, tables, strict=True):
            results: Sequence[Document] = table["results"]
            for (method, variant), colour in _COLOURS.items():
                mine = [
                    r
                    for r in results
                    if r["method"] == method and r.get("upload", r.get("grouping")) == variant
                ]
                measured = [(r["rounds"], r["wire_mb"]) for r in mine if r["wire_mb"] is not None]
                if measured:
                    panel.plot(
                        *zip(*measured, strict=True),
                        "o-",
                        color=colour,
                        ms=4,
                        label=f"{_NAMES[method]} {variant}",
                    )
                if variant in ("plain", "union") and mine:
                    formula = [(r["rounds"], r["formula_mb"]) for r in mine]
                    panel.plot(
                        *zip(*formula, strict=True),
                        "--",
                        color=colour,
                        lw=1,
                        label=f"{_NAMES[method]}, paper's formula",
                    )
            panel.set(xlabel="T")
            mark(panel, {r["rounds"] for r in results})
