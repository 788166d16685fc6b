"""The page of `syncret bench overhead`: tables from the kept records, each with the command that made it.

Provides ``write_page`` and ``page``. Public. Nothing here measures; a figure that no record has is left out, and of the
paper's own figures only those are shown that are known here.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.fetch import DatasetError
from bench.overhead.choice import choice, markdown_table
from bench.overhead.plot import plot_growth, plot_tables
from bench.overhead.record import Record, Records
from bench.overhead.tables import PAPER_ROUNDS
from bench.overhead.utility import UTILITY_COMMAND, Best, best_rounds

PAPER_DISTAIM_MB = {"adult": 140, "magic": 80, "credit": 93}
PAPER_RATIOS = (10, 1643)
_CLIENT_COMMAND = "`syncret bench overhead --dataset NAME --rounds 4,32,96 --json`"
FORMS = ("plain", "seeded")
GROUPINGS = ("union", "query")


def write_page(records: Records, folder: Path) -> None:
    """overhead.md and its pictures in ``folder``, beside the records. Raises DatasetError."""
    best = best_rounds(folder / "utility.jsonl")
    try:
        (folder / "overhead.md").write_text(page(records, best), encoding="utf-8")
        plot_tables(_papers(records.of("client")), folder / "overhead-tables.png")
        plot_growth(records.of("growth"), folder / "overhead-growth.png")
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be written: {error.strerror or error}") from error


def page(records: Records, best: Sequence[Best]) -> str:
    """overhead.md."""
    measured, servers = records.of("client"), records.of("servers")
    clients = _papers(measured)
    parts = [
        _opening(records),
        _distaim(clients),
        _flaim(clients),
        _ratios(clients),
        _table3(measured, best),
        _client_cost(clients),
        _servers(servers),
        _growth(records.of("growth")),
        choice(measured, servers, best),
        _commands(records),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _papers(records: Sequence[Record]) -> list[Mapping[str, Any]]:
    """The paper's Table 7: for each table, what was measured of its population at its numbers of rounds."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        document = record.document
        measured = [r for r in _all_results(document) if r["wire_mb"] is not None]
        at = [r for r in measured if r["rounds"] in PAPER_ROUNDS]
        if _is_papers_population(document) and at:
            before = found.setdefault(_name(document), {**document, "results": []})
            before["results"] += at
    return [
        {**document, "results": sorted(document["results"], key=lambda result: result["rounds"])}
        for document in found.values()
    ]


def _is_papers_population(found: Mapping[str, Any]) -> bool:
    return (found["clients"], found["participation"]) == (100, 0.1)


def _opening(records: Records) -> str:
    commits = {record.commit for record in records}
    dates = sorted({record.date for record in records})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    machine = next((record.machine for record in records), {})
    here = ", ".join(f"{key} {value}" for key, value in machine.items())
    made = f"{when}, {len(commits)} commits (`overhead.json` has each record's)"
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
it against relays between a deployed server and its clients, to 100 bytes (`tests/bench/test_overhead_flaim.py`).

Tables that are not at hand here are replaced by random rows of their published domain and marked "generated":
DistAIM's bytes do not depend on rows, FLAIM's only through what is chosen. Each table names its command; the last
section has all."""


def _distaim(tables: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for found in tables:
        by_form = {form: _results(found, "distaim", form)[:1] for form in FORMS}
        if not all(by_form.values()):
            continue
        plain, seeded = (by_form[form][0] for form in FORMS)
        rows.append(
            (
                _name(found),
                f"{found['candidates']}",
                f"{found['closure_cells']:,}",
                f"{found['maximal_cells']:,}",
                _paper(str(found["dataset"])),
                _mb(plain["formula_mb"]),
                _mb(plain["sent_mb"]),
                _mb(plain["wire_mb"]),
                _mb(seeded["sent_mb"]),
                _mb(seeded["wire_mb"]),
                _times(plain["formula_mb"], seeded["wire_mb"]),
            )
        )
    heads = (
        "table", "candidates", "cells", "maximal cells", "paper, MB", "formula", "plain sent", "plain wire",
        "seeded sent", "seeded wire", "formula / seeded wire",
    )  # fmt: skip
    return (
        f"## DistAIM's client\n\n{_CLIENT_COMMAND}\n\nOne upload, whatever T is. "
        "`plain` sends what the paper counts, but of the maximal queries only: the servers sum out the others.\n\n"
        + markdown_table(heads, rows)
    )


def _flaim(tables: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for found in tables:
        for grouping in GROUPINGS:
            rows += [
                (
                    _name(found),
                    grouping,
                    f"{one['rounds']}",
                    f"{one['rounds_joined']:.1f}",
                    _mb(one["formula_mb"]),
                    _mb(one["sent_mb"]),
                    _mb(one["received_mb"]),
                    _mb(one["wire_mb"]),
                    f"{one['single_choosers']:.0%}",
                )
                for one in _results(found, "flaim", grouping)
                if one["wire_mb"] is not None
            ]
    heads = (
        "table", "grouping", "T", "rounds of a client", "formula, MB", "sent", "received", "wire", "single"
    )  # fmt: skip
    return (
        f"## FLAIM's client (Table 7: T = 4, 32, 96)\n\n{_CLIENT_COMMAND}\n\n"
        '![tables](overhead-tables.png)\n\n"Rounds" counts the first one, of single columns only. "Single" is the '
        "share of chosen queries with one chooser: with `query`, its counts reach the server bare.\n\n"
        + markdown_table(heads, rows)
    )


def _ratios(tables: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for found in tables:
        distaim = {form: _results(found, "distaim", form) for form in FORMS}
        if not all(distaim.values()):
            continue
        for one in _results(found, "flaim", "union"):
            other = [r for r in _results(found, "flaim", "query") if r["rounds"] == one["rounds"]]
            if one["wire_mb"] is None or not other:
                continue
            plain, seeded = (distaim[form][0] for form in FORMS)
            rows.append(
                (
                    _name(found),
                    f"{one['rounds']}",
                    _times(plain["formula_mb"], one["formula_mb"]),
                    *(
                        _times(upload["wire_mb"], flaim["wire_mb"])
                        for upload in (plain, seeded)
                        for flaim in (one, other[0])
                    ),
                )
            )
    heads = (
        "table", "T", "by the formula", "plain / union", "plain / query", "seeded / union", "seeded / query",
    )  # fmt: skip
    low, high = PAPER_RATIOS
    return (
        f"## DistAIM over FLAIM\n\nThe paper's range is {low} to {high:,}. Where ours is higher, our FLAIM clients "
        "answer and get fewer cells than the paper's did: what those chose, and how large their models were, is not "
        "known here. All but the first column compare bytes on the wire; below 1, DistAIM's client would have less to "
        "move.\n\n" + markdown_table(heads, rows)
    )


def _table3(records: Sequence[Record], best: Sequence[Best]) -> str:
    if not best:
        return ""
    rows = []
    for one in best:
        moved = _moved(records, one)
        rows.append(
            (
                one.dataset,
                "DistAIM seeded" if one.method == "distaim" else f"FLAIM {one.method}, union",
                f"{one.rounds}",
                ", ".join(map(str, one.tried)),
                f"{one.repeats}",
                f"{one.workload_error:.3f}",
                f"{one.nll:.2f}",
                _mb(moved.get("formula_mb")),
                _mb(moved.get("wire_mb")),
            )
        )
    heads = (
        "table", "method", "T at lowest error", "of T", "repeats", "workload error", "NLL", "formula, MB", "wire, MB",
    )  # fmt: skip
    return (
        "## At the best T (Table 3)\n\nUtility is that of the clustering partition, epsilon = 1, means over repeats "
        f"at that T, from `bench/results/utility.jsonl` (`{UTILITY_COMMAND}`).\n\n"
        + markdown_table(heads, rows)
    )


def _moved(records: Sequence[Record], best: Best) -> Mapping[str, Any]:
    """A client's figures at the best T; DistAIM's are the same at every T. Empty where nothing was measured."""
    for record in records:
        found = record.document
        if found["dataset"] != best.dataset or not _is_papers_population(found):
            continue
        if best.method == "distaim":
            return _results(found, "distaim", "seeded")[0]
        for result in _results(found, "flaim", "union"):
            if result["rounds"] == best.rounds:
                return result
    return {}


def _client_cost(tables: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for found in tables:
        once = [_results(found, "distaim", form)[:1] for form in FORMS]
        for one in [*itertools.chain(*once), *_results(found, "flaim", "union")]:
            if one.get("client_cpu_s") is None:
                continue
            rows.append(
                (
                    _name(found),
                    one["method"],
                    _variant(one),
                    "any" if one["method"] == "distaim" else f"{one['rounds']}",
                    f"{one['client_cpu_s']:.2f}",
                    "" if one["client_peak_mb"] is None else f"{one['client_peak_mb']:.0f}",
                )
            )
    heads = ("table", "method", "form", "T", "processor s", "peak memory, MB")
    if not rows:
        return ""
    return (
        f"## What a client computes\n\n{_CLIENT_COMMAND}\n\nProcessor seconds and growth of resident memory of one "
        "client's process over the whole run; its modules and rows were loaded before (94 MB). FLAIM's are upper "
        "bounds: three clients and their server in one process, seconds divided by the clients and times the rounds "
        "that a client joins.\n\n" + markdown_table(heads, rows)
    )


def _servers(records: Sequence[Record]) -> str:
    parts = []
    for record in records:
        found = record.document
        sent: Mapping[str, Sequence[int]] = found["sent_by_step"]  # type: ignore[assignment]
        rows = [
            (step, *(_bytes(n) for n in by_party), _bytes(sum(by_party)))
            for step, by_party in sorted(sent.items(), key=lambda item: -sum(item[1]))
        ]
        heads = ("step", "server 0", "server 1", "server 2", "together")
        stored, cpu, peak = (found[key] for key in ("stored_bytes", "cpu_s", "peak_bytes"))
        rows.append(("all", *(_bytes(sum(s[i] for s in sent.values())) for i in range(3)),
                     _bytes(sum(map(sum, sent.values())))))  # fmt: skip
        rows.append(("storage at most", *map(_bytes, stored), _bytes(sum(stored))))  # type: ignore[call-overload]
        rows.append(("peak memory", *map(_bytes, peak), _bytes(sum(peak))))  # type: ignore[call-overload]
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
        "bytes a message, TLS 22 a record), a store's files at their largest, processes as the kernel sees them. The "
        "estimator is the short one, so processor time is less than in a real run; bytes are the same.\n\n"
        + "\n\n".join(parts)
    )


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
                    _mb(point["predicted_mb"]),
                    _mb(point["measured_mb"]),
                )
            )
    heads = ("axis", "at", "method", "form", "our formula, MB", "measured, MB")
    return (
        "## How it grows\n\n`syncret bench overhead --growth AXIS --json`\n\n![growth](overhead-growth.png)\n\nMB "
        "of messages, both directions, of one participating client; K = 100, participation 0.1, T = 10, Adult's domain "
        "and 440 random rows a client where the axis does not say otherwise. Lines are by formula, marks are measured. "
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


# Pieces


def _all_results(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(found["results"])


def _results(found: Mapping[str, Any], method: str, variant: str) -> list[Mapping[str, Any]]:
    return [r for r in _all_results(found) if r["method"] == method and _variant(r) == variant]


def _variant(result: Mapping[str, Any]) -> str:
    return str(result.get("upload", result.get("grouping")))


def _name(found: Mapping[str, Any]) -> str:
    return f"{found['dataset']}{' (generated)' if found['rows'] == 'generated' else ''}"


def _paper(dataset: str) -> str:
    return str(PAPER_DISTAIM_MB.get(dataset, ""))


def _mb(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def _bytes(value: float) -> str:
    return f"{_mb(value / 1e6)} MB" if value >= 10_000 else f"{value:,.0f} B"


def _times(large: float, small: float) -> str:
    ratio = large / small
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
