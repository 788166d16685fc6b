"""The page's first section: owners of rows beside FLAIM's clients and owners of counts, and the servers' cost.

FLAIM's figure is that of the cheaper grouping. Figures of 100 owners are measured, those of every population are by our
formulas.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.experiment.markdown import filled, listed, markdown_table, mb
from bench.experiment.pictures import mark, panel_of_each
from bench.overhead.client import GROUPINGS, PAPER_ROUNDS
from bench.overhead.client_tables import (
    Document,
    Merged,
    is_papers_population,
    results_of,
    table_name,
)
from bench.overhead.jobs import Record
from protocols.upload import ROWS, SEEDED

_FACTOR, _BOXES_KB, _WIRE_KB, _FIVE_ROWS_KB = 1.1, 4.5, 5.0, 15.0
"""The design's goals: sent is this multiple of the packed rows and so many KB, on the wire so many KB more."""


def rows_section(
    tables: Sequence[Merged], uploads: Sequence[Record], formulas: Sequence[Record]
) -> str:
    """Returns the section; empty if no upload of rows was measured."""
    formulas = at_papers_rounds(formulas)
    known = [table for table in tables if _rows_kb(table, "wire_mb") is not None]
    if not known:
        return ""
    parts = (
        _verdict(known),
        "![rows](overhead-rows.png)",
        markdown_table(_HEADS, map(_row, known)),
        _goals(known, uploads, formulas),
        _populations(formulas),
        _servers(formulas),
    )
    return "## Rows, FLAIM and counts\n\n" + "\n\n".join(part for part in parts if part)


def in_short(tables: Sequence[Merged], formulas: Sequence[Record]) -> str:
    """Returns the section of an owner's KB on Adult by each form, and the servers' price; empty without Adult."""
    adult = [t for t in tables if t["dataset"] == "adult" and _rows_kb(t, "wire_mb") is not None]
    if not adult:
        return ""
    table = adult[0]
    counts = [f"{1000 * one['wire_mb']:,.0f}" for one in results_of(table, "distaim", SEEDED)[:1]]
    flaim = {number: _flaim_kb(table, number, "wire_mb") for number in PAPER_ROUNDS}
    points = [
        f"An owner of {table['owner_rows']:,} rows of Adult, one of 100, moves {_kb(_rows_kb(table, 'wire_mb'))} KB "
        "by rows, once.",
        *(f"By counts it moves {kb} KB." for kb in counts),
        "A client of private FLAIM moves "
        + listed([f"{_kb(kb)} KB (T = {number})" for number, kb in flaim.items() if kb is not None])
        + ".",
    ]
    populations: list[Document] = [record.document for record in at_papers_rounds(formulas)]
    for population in populations:
        if population["dataset"] == "adult" and is_papers_population(population):
            counting = population["counting"]
            points.append(
                f"The servers pay for rows: each sends {mb(counting['mb_per_server'])} MB to count them, by formula."
            )
    points.append("[What to choose](overhead-choice.md) has advice for three kinds of owners.")
    return "## In short\n\n" + "\n".join(filled(f"- {point}", "  ") for point in points)


_HEADS = (
    "table | rows of an owner | packed, KB | sent | on the wire | "
    + " | ".join(f"FLAIM T = {number}" for number in PAPER_ROUNDS)
    + " | rows are less from T = | counts (seeded), KB | counts / rows"
)


def _row(table: Document) -> tuple[str, ...]:
    wire = _known(_rows_kb(table, "wire_mb"))
    counts = [1000 * one["wire_mb"] for one in results_of(table, "distaim", SEEDED)[:1]]
    return (
        table_name(table),
        f"{table['owner_rows']:,}",
        _kb(1000 * table["packed_rows_mb"]),
        _kb(_known(_rows_kb(table, "sent_mb"))),
        _kb(wire),
        *(_kb(_flaim_kb(table, number, "wire_mb")) for number in PAPER_ROUNDS),
        _less_from(table, wire, "wire_mb"),
        *(f"{kb:,.0f}" for kb in counts),
        *(f"{kb / wire:,.0f}" for kb in counts),
    )


def _verdict(tables: Sequence[Document]) -> str:
    """States in words on which tables rows beat FLAIM's client."""
    said = []
    for number in PAPER_ROUNDS:
        less, more = list[str](), list[str]()
        for table in tables:
            flaim, wire = _flaim_kb(table, number, "wire_mb"), _known(_rows_kb(table, "wire_mb"))
            if flaim is not None:
                (less if wire < flaim else more).append(table_name(table))
        if less or more:
            said.append(f"- T = {number}: less on {listed(less) or 'none'}; {_but(more)}.")
    return (
        "An owner that sends its rows sends them once, and T makes no difference. On the wire, both directions, with "
        "100 owners and, for FLAIM, participation 0.1 and the cheaper of `union` and `query`, it moves\n\n"
        + "\n".join(said)
        + "\n\nFLAIM's bytes follow what is chosen, those of rows the table: with many rows and few rounds FLAIM's "
        "client is the one with less to move. Rows are sealed, sent and signed for as in a run (one connection, three "
        "boxes of 1,136 bytes more than their contents); an owner sends as many as its public capacity, here the "
        "largest part of an even split. The records of counts were made before uploads were sealed (3.5 KB less)."
    )


def _but(more: Sequence[str]) -> str:
    return f"more on {listed(more)}" if more else "more on none"


def at_papers_rounds(formulas: Sequence[Record]) -> list[Record]:
    """Returns the records by formula that have every T of the paper."""
    return [
        record
        for record in formulas
        if set(PAPER_ROUNDS)
        <= {one["rounds"] for one in results_of(record.document, "flaim", "union")}
    ]


# Goals.


def _goals(
    tables: Sequence[Document], uploads: Sequence[Record], formulas: Sequence[Record]
) -> str:
    rows = [*_adult_goals(tables), *_table_goals(tables), *_five_rows(uploads, formulas)]
    text = markdown_table("goal of the design | found | met", rows)
    return f"### Goals\n\n{text}" if rows else ""


def _adult_goals(tables: Sequence[Document]) -> Iterable[tuple[str, str, str]]:
    for table in tables:
        if table["dataset"] != "adult":
            continue
        bound = _FACTOR * 1000 * table["packed_rows_mb"] + _BOXES_KB
        sent, wire = (_known(_rows_kb(table, name)) for name in ("sent_mb", "wire_mb"))
        goal = f"Adult, 100 owners: sent at most {_FACTOR} x the packed rows + {_BOXES_KB} KB"
        yield goal, f"{_kb(sent)} KB of {_kb(bound)} KB", _met(sent <= bound)
        yield (
            f"on the wire at most {_WIRE_KB:g} KB more than that",
            f"{_kb(wire)} KB of {_kb(bound + _WIRE_KB)} KB ({_kb(wire - sent)} KB more than is sent)",
            _met(wire <= bound + _WIRE_KB),
        )


def _table_goals(tables: Sequence[Document]) -> Iterable[tuple[str, str, str]]:
    """Goals below FLAIM's client: at T = 32 on every table, at T = 4 on Adult."""
    adult = [table for table in tables if table["dataset"] == "adult"]
    for number, asked, where in ((32, tables, "every table"), (4, adult, "Adult")):
        pairs = [
            (table_name(table), _known(_rows_kb(table, "wire_mb")), flaim)
            for table in asked
            if (flaim := _flaim_kb(table, number, "wire_mb")) is not None
        ]
        missed = [
            f"{name} {_kb(wire)} against {_kb(flaim)} KB"
            for name, wire, flaim in pairs
            if wire >= flaim
        ]
        if pairs:
            most = max(wire / flaim for _, wire, flaim in pairs)
            found = f"{len(pairs) - len(missed)} of {len(pairs)}, at most {most:.2f} of FLAIM's"
            yield (
                f"below FLAIM's client at T = {number} on {where}",
                f"{found}; not {listed(missed)}" if missed else found,
                _met(not missed),
            )


def _five_rows(
    uploads: Sequence[Record], formulas: Sequence[Record]
) -> Iterable[tuple[str, str, str]]:
    for record in (*uploads, *formulas):
        table = record.document
        if table["dataset"] == "adult" and table["owner_rows"] == 5:
            name = "predicted_wire_mb" if record in formulas else "wire_mb"
            wire = _known(_rows_kb(table, name))
            goal = f"an owner of five rows of Adult below {_FIVE_ROWS_KB:g} KB on the wire"
            yield goal, f"{_kb(wire)} KB", _met(wire < _FIVE_ROWS_KB)
            return


def _met(yes: bool) -> str:
    return "yes" if yes else "**no**"


# Populations.


_POPULATION_HEADS = (
    "table | owners | in a round | rows of an owner | rows | "
    + " | ".join(f"FLAIM T = {number}" for number in PAPER_ROUNDS)
    + " | rows are less from T = | counts (seeded) | counts (plain)"
)


def _populations(formulas: Sequence[Record]) -> str:
    if not formulas:
        return ""
    rows = [_population_row(record.document) for record in formulas]
    return (
        "### Every population, by formula\n\n`syncret bench overhead --dataset NAME --rounds 4,32,96 --clients K "
        "--participation P --formula-only --json`\n\nKB on the wire of one participating client, both directions. An "
        "upload's size is exact but for some 100 bytes of its connection; FLAIM's client is that of a replayed run. "
        "With few owners each has thousands of rows, and their bits are dearer than the small models of few rounds. "
        "Where the table at hand above has fewer rows than the published one, these are of the published one. The "
        "paper's own formula is in the records.\n\n" + markdown_table(_POPULATION_HEADS, rows)
    )


def _population_row(table: Document) -> tuple[str, ...]:
    rows, seeded, plain = (
        1000 * results_of(table, "distaim", form)[0]["predicted_wire_mb"]
        for form in (ROWS, SEEDED, "plain")
    )
    return (
        str(table["dataset"]),
        f"{table['clients']:,}",
        f"{table['participation']:.0%}",
        f"{table['owner_rows']:,}",
        _kb(rows),
        *(_kb(_flaim_kb(table, number, "predicted_wire_mb")) for number in PAPER_ROUNDS),
        _less_from(table, rows, "predicted_wire_mb"),
        f"{seeded:,.0f}",
        f"{plain:,.0f}",
    )


# Servers.


_SERVERS_HEADS = (
    "table | rows counted | cells | counting: MB a server sends | seconds of a core of a server | uploads passed on,"
    " MB | rows: all servers send, MB | counts (seeded): all servers send, MB"
)


def _servers(formulas: Sequence[Record]) -> str:
    tables = [record.document for record in formulas if is_papers_population(record.document)]
    if not tables:
        return ""
    return (
        "### What servers pay instead\n\nBy formula, 100 owners who come together, from the same records. Everything "
        "after the counting (selection, measurement, estimate) is the same for both forms and is left out: counts are "
        "passed on and added. Seconds are those of one core of a 2026 server, and sums are on all its cores. A "
        "population of another size costs as much but for absent rows. The bytes of counting are exact: a whole run "
        "by rows is in the appendix, under what servers move.\n\n"
        + markdown_table(_SERVERS_HEADS, map(_servers_row, tables))
    )


def _servers_row(table: Document) -> tuple[str, ...]:
    counting, passed_on = table["counting"], table["passed_on_mb"]
    return (
        str(table["dataset"]),
        f"{counting['rows']:,}",
        f"{table['maximal_cells']:,}",
        mb(counting["mb_per_server"]),
        f"{counting['core_seconds_per_server']:.1f}",
        mb(passed_on[ROWS]),
        mb(3 * counting["mb_per_server"] + passed_on[ROWS]),
        mb(passed_on[SEEDED]),
    )


# Figures.


def _rows_kb(table: Document, name: str) -> float | None:
    for one in results_of(table, "distaim", ROWS):
        return None if one[name] is None else 1000 * float(one[name])
    return None


def _flaim_kb(table: Document, rounds: int, name: str) -> float | None:
    """Returns KB of FLAIM's client in the cheaper grouping."""
    found = [
        1000 * float(one[name])
        for grouping in GROUPINGS
        for one in results_of(table, "flaim", grouping, rounds)
        if one.get(name) is not None
    ]
    return min(found, default=None)


def _less_from(table: Document, rows_kb: float, name: str) -> str:
    """Returns the least known T from which on rows are less than FLAIM."""
    known = {number: _flaim_kb(table, number, name) for number in PAPER_ROUNDS}
    least = ""
    for number in sorted(known, reverse=True):
        flaim = known[number]
        if flaim is None:
            continue
        if rows_kb >= flaim:
            return least or f"above {number}"
        least = str(number)
    return least


def _known(value: float | None) -> float:
    if value is None:
        raise ValueError("a figure is missing; expected a record of `bench overhead --upload rows`")
    return value


def _kb(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def plot_rows(formulas: Sequence[Record], path: Path) -> None:
    """Plots a panel for each table: KB of a client by the number of owners, rows beside FLAIM at each T, by formula."""
    names = list(dict.fromkeys(str(record.document["dataset"]) for record in formulas))
    with panel_of_each(path, names, "KB of one client on the wire") as every:
        for panel, name in zip(every, names, strict=True):
            tables = [r.document for r in formulas if r.document["dataset"] == name]
            owners = [int(str(table["clients"])) for table in tables]
            for label, style, line in _lines(tables):
                panel.plot(owners, line, style, ms=4, lw=1.4, label=label)
            panel.set(xlabel="owners (5, 20: all in every round)")
            mark(panel, owners)


def _lines(tables: Sequence[Document]) -> Iterable[tuple[str, str, list[float]]]:
    """Yields label, style and KB by population."""
    name = "predicted_wire_mb"
    yield "DistAIM rows, any T", "C4o-", [_known(_rows_kb(table, name)) for table in tables]
    for number, style in zip(PAPER_ROUNDS, ("C0^:", "C0s--", "C0D-"), strict=True):
        flaim = [_known(_flaim_kb(table, number, name)) for table in tables]
        yield f"FLAIM, T = {number}", style, flaim
    seeded = [1000 * results_of(table, "distaim", SEEDED)[0][name] for table in tables]
    yield "DistAIM counts (seeded)", "C1-", seeded
