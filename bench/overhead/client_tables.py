"""The page's sections on one participating client: its bytes by method, their ratios, its processor and memory.

Provides ``papers``, which gathers what the paper's tables need, and ``client_sections``. Public.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.overhead.markdown import (
    RATIO_HEADS,
    listed,
    markdown_table,
    mb,
    name,
    ratios,
    results_of,
    times,
    variant,
)
from bench.overhead.member import ROUNDS as MEMBER_ROUNDS
from bench.overhead.record import Record
from bench.overhead.replay import LEAST
from bench.overhead.tables import GROUPINGS, PAPER_ROUNDS

PAPER_DISTAIM_MB = {"adult": 140, "magic": 80, "credit": 93}
PAPER_RATIOS = (10, 1643)
FORMS = ("plain", "seeded")


def papers(records: Sequence[Record]) -> list[Mapping[str, Any]]:
    """The paper's Table 7: for each table, what was measured of its population at its numbers of rounds."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        document: Mapping[str, Any] = record.document
        measured = [r for r in document["results"] if r["wire_mb"] is not None]
        at = [r for r in measured if r["rounds"] in PAPER_ROUNDS]
        if is_papers_population(document) and at:
            before = found.setdefault(name(document), {**document, "results": []})
            before["results"] += at
    return [
        {**document, "results": sorted(document["results"], key=lambda result: result["rounds"])}
        for document in found.values()
    ]


def is_papers_population(found: Mapping[str, Any]) -> bool:
    """100 clients, a tenth of them in a round."""
    return (found["clients"], found["participation"]) == (100, 0.1)


def client_sections(tables: Sequence[Mapping[str, Any]], records: Sequence[Record]) -> list[str]:
    """In the page's order; empty ones where nothing was measured."""
    return [_distaim(tables), _flaim(tables), _ratios(tables), _others(records), _cost(tables)]


def _commands(tables: Sequence[Mapping[str, Any]]) -> str:
    """What makes the figures of ``tables``, as it is typed."""
    command = f"syncret bench overhead --dataset NAME --rounds {','.join(map(str, PAPER_ROUNDS))}"
    shown = []
    for generated, option in ((False, ""), (True, " --generated")):
        names = [
            str(found["dataset"]) for found in tables if (found["rows"] == "generated") is generated
        ]
        if names:
            shown.append(f"`{command}{option} --json` for {listed(names)}")
    return "; ".join(shown)


def _distaim(tables: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for found in tables:
        by_form = [results_of(found, "distaim", form)[:1] for form in FORMS]
        if not all(by_form):
            continue
        (plain,), (seeded,) = by_form
        rows.append(
            (
                name(found),
                f"{found['candidates']}",
                f"{found['closure_cells']:,}",
                f"{found['maximal_cells']:,}",
                str(PAPER_DISTAIM_MB.get(str(found["dataset"]), "")),
                mb(plain["formula_mb"]),
                mb(plain["sent_mb"]),
                mb(plain["wire_mb"]),
                mb(seeded["sent_mb"]),
                mb(seeded["wire_mb"]),
                times(plain["formula_mb"], seeded["wire_mb"]),
            )
        )
    heads = (
        "table", "candidates", "cells", "maximal cells", "paper, MB", "formula", "plain sent", "plain wire",
        "seeded sent", "seeded wire", "formula / seeded wire",
    )  # fmt: skip
    return (
        f"## DistAIM's client\n\n{_commands(tables)}\n\nOne upload, whatever T is. "
        "`plain` sends what the paper counts, but of the maximal queries only: the servers sum out the others.\n\n"
        + markdown_table(heads, rows)
    )


def _flaim(tables: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            name(found),
            grouping,
            f"{one['rounds']}",
            f"{one['rounds_joined']:.1f}",
            mb(one["formula_mb"]),
            mb(one["sent_mb"]),
            mb(one["received_mb"]),
            mb(one["wire_mb"]),
            f"{one['single_choosers']:.0%}",
        )
        for found in tables
        for grouping in GROUPINGS
        for one in results_of(found, "flaim", grouping)
    ]
    heads = (
        "table", "grouping", "T", "rounds of a client", "formula, MB", "sent", "received", "wire", "single"
    )  # fmt: skip
    return (
        f"## FLAIM's client (Table 7: T = {', '.join(map(str, PAPER_ROUNDS))})\n\n{_commands(tables)}\n\n"
        '![tables](overhead-tables.png)\n\n"Rounds" counts the first one, of single columns only. "Single" is the '
        "share of chosen queries with one chooser. With noise added by the server it sees that chooser's counts "
        'before its noise, under both groupings; `noise = "distributed"` hides them from it, and needs `union`.\n\n'
        + markdown_table(heads, rows)
    )


def _ratios(tables: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for found in tables:
        plain, seeded = (results_of(found, "distaim", form) for form in FORMS)
        for union in results_of(found, "flaim", "union"):
            query = results_of(found, "flaim", "query", union["rounds"])
            if plain and seeded and query:
                cells = ratios(plain[0], seeded[0], union, query[0])
                rows.append((name(found), f"{union['rounds']}", *cells))
    low, high = PAPER_RATIOS
    return (
        f"## DistAIM over FLAIM\n\n{_commands(tables)}\n\nThe paper's range is {low} to {high:,}. Where ours is "
        "higher, our FLAIM clients answer and get fewer cells than the paper's did: what those chose, and how large "
        "their models were, is not known here. All but the first column compare bytes on the wire; below 1, DistAIM's "
        "client would have less to move.\n\n" + markdown_table(("table", "T", *RATIO_HEADS), rows)
    )


def _others(records: Sequence[Record]) -> str:
    """Populations that are not the paper's: those that the advice is about."""
    asked = [r for r in records if not is_papers_population(r.document)]
    rows = [
        (
            f"{record.document['dataset']}",
            f"{record.document['clients']:,}",
            f"{record.document['participation']:g}",
            f"{one['method']} {variant(one)}",
            "any" if one["method"] == "distaim" else f"{one['rounds']}",
            f"{one['rounds_joined']:.1f}",
            mb(one["formula_mb"]),
            mb(one["sent_mb"]),
            mb(one["received_mb"]),
            mb(one["wire_mb"]),
            "" if one["client_cpu_s"] is None else f"{one['client_cpu_s']:.2f}",
            "" if one["single_choosers"] is None else f"{one['single_choosers']:.0%}",
        )
        for record in asked
        for one in _once_uploads(record.document)
    ]
    heads = (
        "table", "clients", "participation", "method", "T", "rounds of a client", "formula, MB", "sent", "received",
        "wire", "processor s", "single",
    )  # fmt: skip
    if not rows:
        return ""
    commands = "\n".join(f"- `{record.command}`" for record in asked)
    return f"## Other populations\n\n{commands}\n\n{markdown_table(heads, rows)}"


def _once_uploads(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The measured results, an upload at the first T only: it is the same at every T."""
    first = found["results"][0]["rounds"]
    return [
        r
        for r in found["results"]
        if r["wire_mb"] is not None and (r["method"] == "flaim" or r["rounds"] == first)
    ]


def _cost(tables: Sequence[Mapping[str, Any]]) -> str:
    if not tables:
        return ""
    rows = []
    for found in tables:
        by_form = [results_of(found, "distaim", form) for form in FORMS]
        flaim = results_of(found, "flaim", "union")
        at = [results_of(found, "flaim", "union", number) for number in PAPER_ROUNDS]
        memory = [r["client_peak_mb"] for r in flaim if r["client_peak_mb"] is not None]
        rows.append(
            (
                name(found),
                *(cell for uploads in by_form for cell in (_seconds(uploads), _memory(uploads))),
                *map(_seconds, at),
                f"{max(memory):.0f}" if memory else "",
            )
        )
    heads = (
        "table", "plain, s", "plain, MB", "seeded, s", "seeded, MB",
        *(f"FLAIM T = {number}, s" for number in PAPER_ROUNDS), "FLAIM, MB",
    )  # fmt: skip
    return (
        f"## What a client computes\n\n{_commands(tables)}\n\nProcessor seconds, and growth of resident memory "
        "beyond modules and rows, of one client's process over the whole run. DistAIM's are those of the uploads "
        f"above. FLAIM's come from one run with T = {MEMBER_ROUNDS} and {LEAST} clients, all in every round, who share "
        "a process with their server. Seconds are those of the process by client and round, times the rounds that a "
        "client joins; memory is the whole process's, the largest of the records. Both are more than a client of such "
        f"a run needs. At other T than {MEMBER_ROUNDS} nothing was timed: a model grows with T, and its share of the "
        "seconds is left as it was.\n\n" + markdown_table(heads, rows)
    )


def _seconds(results: Sequence[Mapping[str, Any]]) -> str:
    known = [r["client_cpu_s"] for r in results[:1] if r["client_cpu_s"] is not None]
    return f"{known[0]:.2f}" if known else ""


def _memory(results: Sequence[Mapping[str, Any]]) -> str:
    known = [r["client_peak_mb"] for r in results[:1] if r["client_peak_mb"] is not None]
    return f"{known[0]:.0f}" if known else ""
