"""The page of `syncret bench overhead`: tables from the kept records, each with the command that made it.

Provides ``write_page`` and ``page``. Public. Nothing here measures; a figure that no record has is left out, and of the
paper's own figures only those are shown that are known here.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.fetch import DatasetError
from bench.overhead.best_tables import table3
from bench.overhead.choice import choice
from bench.overhead.client_tables import client_sections, papers
from bench.overhead.growth import CELL_COLUMNS, CODES
from bench.overhead.markdown import markdown_table, mb, size
from bench.overhead.plot import plot_growth, plot_tables
from bench.overhead.record import Record, Records
from bench.overhead.utility import Errors, best_rounds, errors_by_rounds


def write_page(records: Records, folder: Path) -> None:
    """overhead.md and its pictures in ``folder``, beside the records. Raises DatasetError."""
    errors = errors_by_rounds(folder / "utility.jsonl")
    try:
        (folder / "overhead.md").write_text(page(records, errors), encoding="utf-8")
        plot_tables(papers(records.of("client")), folder / "overhead-tables.png")
        plot_growth(records.of("growth"), folder / "overhead-growth.png")
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be written: {error.strerror or error}") from error


def page(records: Records, errors: Sequence[Errors]) -> str:
    """overhead.md."""
    clients, servers = records.of("client"), records.of("servers")
    *client, cost = client_sections(papers(clients), clients)
    parts = [
        _opening(records),
        *client,
        table3(clients, best_rounds(errors)),
        cost,
        _servers(servers),
        _growth(records.of("growth")),
        choice(clients, servers, errors),
        _commands(records),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(records: Records) -> str:
    # A commit of changes that were not committed ends in a plus.
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
and noise added by the server, unless a table says otherwise. DistAIM's figures are counted by a relay between one
client's process and three ingest servers. FLAIM's messages are those of whole runs in one process: choices by the
exponential mechanism on the clients' rows, real SecAgg sessions; the models are fitted with one iteration of PGM in
place of a hundred, which changes no size. FLAIM's wire adds what a deployed connection has by formula; a test holds
it against relays between a deployed server and its clients, to 100 bytes (`tests/bench/test_overhead_flaim.py`). It
assumes one TLS connection of a client for the whole run.

Tables that are not at hand here are replaced by random rows of their published domain and marked "generated":
DistAIM's bytes do not depend on rows, FLAIM's only through what is chosen. Each table names its command; the last
section has all."""


def _servers(records: Sequence[Record]) -> str:
    parts = []
    for record in records:
        found = record.document
        sent: Mapping[str, Sequence[int]] = found["sent_by_step"]  # type: ignore[assignment]
        rows = [
            (step, *(size(n) for n in by_party), size(sum(by_party)))
            for step, by_party in sorted(sent.items(), key=lambda item: -sum(item[1]))
        ]
        heads = ("step", "server 0", "server 1", "server 2", "together")
        stored, cpu, peak = (found[key] for key in ("stored_bytes", "cpu_s", "peak_bytes"))
        rows.append(("all", *(size(sum(s[i] for s in sent.values())) for i in range(3)),
                     size(sum(map(sum, sent.values())))))  # fmt: skip
        rows.append(("storage at most", *map(size, stored), size(sum(stored))))  # type: ignore[call-overload]
        rows.append(("peak memory", *map(size, peak), size(sum(peak))))  # type: ignore[call-overload]
        shown = [f"{s:.1f} s" for s in cpu]  # type: ignore[attr-defined]
        rows.append(("processor time", *shown, f"{sum(cpu):.1f} s"))  # type: ignore[call-overload]
        parts.append(
            f"### {found['dataset']}, {found['upload']}: {found['clients']} clients, all in every round, "
            f"T = {found['rounds']}\n\n`{record.command}`\n\n" + markdown_table(heads, rows)
        )
    if not parts:
        return ""
    return (
        "## What DistAIM's servers move and keep\n\nMessages between the three servers by step (payload; frames add 12 "
        "bytes a message, TLS 22 a record), processes as the kernel sees them. Storage is the most that a store's "
        f"files had at {_looks(records)}. The estimator is the short one, so processor time is less than in a real "
        "run; bytes are the same.\n\n" + "\n\n".join(parts)
    )


def _looks(records: Sequence[Record]) -> str:
    """How storage was seen; early records do not say it and had a look every half second."""
    every = sorted({float(str(record.document.get("look_s", 0.5))) for record in records})
    looks = " or ".join(f"{1000 * seconds:.0f}" for seconds in every)
    return f"looks every {looks} ms: peaks between looks are missed, and runs differ by about 15 %"


def _growth(records: Sequence[Record]) -> str:
    if not records:
        return ""
    rows = []
    for record in records:
        points: Sequence[Mapping[str, Any]] = record.document["points"]  # type: ignore[assignment]
        for point in points:
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
    heads = ("axis", "at", "method", "form", "our formula, MB", "measured, MB")
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
        "on other clients or rounds; what it has beyond the formula are three receipts, 0.7 KB.\n\n"
        + _models(rows)
        + markdown_table(heads, rows)
    )


def _models(rows: Sequence[Sequence[str]]) -> str:
    """Where FLAIM's client has more to move than a seeded upload, as measured."""
    measured = {(axis, at, f"{method} {form}"): mb for axis, at, method, form, _, mb in rows if mb}
    found = [
        f"{axis} {at}: {mb} MB against {seeded}"
        for (axis, at, name), mb in measured.items()
        if name == "flaim union"
        and (seeded := measured.get((axis, at, "distaim seeded")))
        and _number(mb) > _number(seeded)
    ]
    if not found:
        return ""
    return (
        "**FLAIM's client can be the one with more to move.** It is sent the model in every round that it joins, 4 "
        "bytes a cell, and a model may have 10 million cells (`max_model_mb` = 80). Up to 8 columns all three-way "
        "queries are asked for: their weights are equal, choices spread over all pairs of columns and soon make one "
        "large clique. Of a random workload over more columns clients choose the few queries of least size and "
        "weight, and the model stays small. Measured, FLAIM `union` against DistAIM `seeded`: "
        + "; ".join(found)
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
