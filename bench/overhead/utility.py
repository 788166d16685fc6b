"""Utility results beside the costs: errors by T, the T of the lowest error, and the page's sections.

Section ``table3`` has bytes and ratios at the T of the lowest error, ``choice`` costs and errors side by side for a few
banks, a hospital network and a phone fleet; its conclusions are written by hand, in bench/results/overhead-choice.md.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.experiment.markdown import listed, markdown_table, mb
from bench.overhead.client_tables import (
    RATIO_HEADS,
    Document,
    is_papers_population,
    ratios,
    results_of,
)
from bench.overhead.flaim import CONNECTION_BYTES
from bench.overhead.jobs import FLEET, Record
from protocols.upload import ROWS

METHODS = ("distaim", "private")
UTILITY_COMMAND = "make bench-utility"
"""Command that makes the file of errors."""
PARTICIPATION = 0.1
EVERYBODY = 1.0
_TABLE = "adult"
_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Errors:
    """Means over ``repeats`` runs of ``method`` at T = ``rounds``: 100 clients, clustering partition, epsilon 1."""

    dataset: str
    method: str
    participation: float
    rounds: int
    repeats: int
    workload_error: float
    nll: float


@dataclass(frozen=True, slots=True)
class Best:
    """Best T: of the numbers of rounds ``tried``, ``rounds`` has the lowest mean error over ``repeats`` runs."""

    dataset: str
    method: str
    rounds: int
    tried: tuple[int, ...]
    repeats: int
    workload_error: float
    nll: float


def errors_by_rounds(path: Path) -> list[Errors]:
    """Reads errors by dataset, method, participation and T; none without the file. Other settings are skipped."""
    runs: dict[tuple[str, str, float, int], list[Mapping[str, Any]]] = defaultdict(list)
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
        entry = json.loads(line)
        settings, result = entry["settings"], entry["result"]
        if _is_papers(settings):
            keys = ("dataset", "method", "participation", "rounds")
            dataset, method, participation, rounds = (settings[key] for key in keys)
            runs[dataset, method, participation, rounds].append(result)
    return [
        Errors(
            *key,
            len(results),
            statistics.fmean(result["workload_error"] for result in results),
            statistics.fmean(result["nll"] for result in results),
        )
        for key, results in sorted(runs.items())
    ]


def best_rounds(errors: Sequence[Errors]) -> list[Best]:
    """Returns the best T by dataset and method, where a tenth of the clients take part in a round."""
    by_method: dict[tuple[str, str], list[Errors]] = defaultdict(list)
    for one in errors:
        if one.participation == PARTICIPATION:
            by_method[one.dataset, one.method].append(one)
    lowest = []
    for (dataset, method), tried in sorted(by_method.items()):
        best = min(tried, key=lambda one: (one.workload_error, one.rounds))
        all_rounds = tuple(sorted(one.rounds for one in tried))
        lowest.append(
            Best(
                dataset,
                method,
                best.rounds,
                all_rounds,
                best.repeats,
                best.workload_error,
                best.nll,
            )
        )
    return lowest


def _is_papers(settings: Mapping[str, Any]) -> bool:
    wanted = {
        "partition": "clustering",
        "clients": 100,
        "epsilon": 1.0,
        "tau": None,
        "combine": None,
        "annealed": False,
    }
    # A record has these only if they differ from the default: as in the authors' code, or other sizes.
    others = {"estimator", "first", "sizes"}
    named = settings["method"] in METHODS and settings.get("local_rounds", 1) == 1
    usual = named and not others & set(settings)
    return usual and all(settings.get(key) == value for key, value in wanted.items())


# Table 3.


def table3(records: Sequence[Record], best: Sequence[Best]) -> str:
    """Returns the section; empty without utility."""
    if not best:
        return ""
    rows = [
        (
            one.dataset,
            "DistAIM" if one.method == "distaim" else f"FLAIM {one.method}",
            f"{one.rounds}",
            ", ".join(map(str, one.tried)),
            f"{one.repeats}",
            f"{one.workload_error:.3f}",
            f"{one.nll:.2f}",
        )
        for one in best
    ]
    heads = "table | method | T at lowest error | of T | repeats | workload error | NLL"
    return (
        "## At the best T (Table 3)\n\nUtility is that of the clustering partition, K = 100, participation 0.1, "
        f"epsilon = 1, means over repeats at that T, from `bench/results/utility.jsonl` (`{UTILITY_COMMAND}`)."
        f"{_left_out(records, best)}\n\n" + markdown_table(heads, rows) + _bytes(records, best)
    )


def _left_out(records: Sequence[Record], best: Sequence[Best]) -> str:
    known = {one.dataset for one in best}
    names = [str(r.document["dataset"]) for r in records if r.document["rows"] == "generated"]
    without = [name for name in dict.fromkeys(names) if name not in known]
    if not without:
        return ""
    return (
        f" Not in these tables: {listed(without)}, whose rows are not at hand; generated rows have the right sizes, "
        "but no utility."
    )


def _bytes(records: Sequence[Record], best: Sequence[Best]) -> str:
    """Returns a client's traffic at FLAIM's best T, by form and grouping, and ratios; uploads are as large at any T."""
    moved, over, commands = [], [], []
    for one in best:
        record = None if one.method == "distaim" else _record(records, one)
        if record is None:
            continue
        document: Document = record.document
        plain, seeded = (
            results_of(document, "distaim", form, one.rounds)[0] for form in ("plain", "seeded")
        )
        union, query = (
            results_of(document, "flaim", grouping, one.rounds)[0]
            for grouping in ("union", "query")
        )
        at = one.dataset, f"{one.rounds}"
        figures = (plain["wire_mb"], seeded["wire_mb"], union["formula_mb"])
        rest = (union["wire_mb"], query["wire_mb"])
        moved.append((*at, *map(mb, (plain["formula_mb"], *figures, *rest))))
        over.append((*at, *ratios(plain, seeded, union, query)))
        commands.append(f"- `{record.command}`")
    if not moved:
        return ""
    heads = (
        "table | FLAIM's T | DistAIM formula, MB | plain wire | seeded wire | FLAIM formula, MB"
        " | union wire | query wire"
    )
    return (
        "\n\nWhat a client moves for it, DistAIM's by one upload whatever T is, FLAIM's at its best T:\n\n"
        + "\n".join(commands)
        + "\n\n"
        + markdown_table(heads, moved)
        + "\n\nDistAIM over FLAIM, each at its best T:\n\n"
        + markdown_table(f"table | FLAIM's T | {RATIO_HEADS}", over)
    )


def _record(records: Sequence[Record], best: Best) -> Record | None:
    """Returns the measured record of the paper's population at the best T."""
    for record in records:
        document: Document = record.document
        if document["dataset"] == best.dataset and is_papers_population(document):
            results = results_of(document, "flaim", "union", best.rounds)
            if results and results[0]["wire_mb"] is not None:
                return record
    return None


# Advice.


def choice(
    clients: Sequence[Record],
    servers: Sequence[Record],
    errors: Sequence[Errors],
    formulas: Sequence[Record] = (),
) -> str:
    """Returns the section; empty if a figure is missing. The traffic of owners of rows is by formula."""
    banks, hospitals = _client(clients, 5, EVERYBODY), _client(clients, 20, EVERYBODY)
    phones = _client(clients, FLEET, PARTICIPATION)
    bank_servers, hospital_servers = _servers(servers, 5), _servers(servers, 20)
    if not (banks and hospitals and phones and bank_servers and hospital_servers):
        return ""
    records = (banks, hospitals, phones, bank_servers, hospital_servers)
    owners = (
        _owners_row("banks", banks.document, bank_servers.document),
        _owners_row("hospitals", hospitals.document, hospital_servers.document),
    )
    who = {"banks": banks, "hospitals": hospitals, "phones": phones}
    rounds = [_rounds_row(name, record.document) for name, record in who.items()]
    by_rows = [
        _by_rows_row(name, found.document)
        for name, one in who.items()
        if (found := _same_population(formulas, one))
    ]
    parts = (
        "## What to choose\n\nCosts and errors side by side, for a few banks, a hospital network and a phone fleet; "
        "what follows from them is in [What to choose](overhead-choice.md). All on Adult's domain "
        f"(2.9 million cells), T = {_ROUNDS}, from these records:",
        "\n".join(f"- `{record.command}`" for record in records),
        markdown_table(_OWNERS_HEADS, owners),
        "FLAIM's figures assume one TLS connection held for the whole run. Each further one adds "
        f"{CONNECTION_BYTES / 1000:.1f} KB (handshake, greeting, goodbye). Owners that come in one of the rounds send "
        "DistAIM's servers an upload, of which the second and the third store 4 bytes a cell each:",
        markdown_table(_ROUNDS_HEADS, rounds),
        _BY_ROWS + markdown_table(_BY_ROWS_HEADS, by_rows) if by_rows else "",
        _errors_table(errors),
    )
    return "\n\n".join(part for part in parts if part)


_OWNERS_HEADS = (
    "who | owners | DistAIM seeded: MB an owner, once | its servers exchange, MB"
    f" | and store, MB, at least | FLAIM union: MB an owner over T = {_ROUNDS}"
    " | rounds that an owner has to answer in"
)
_ROUNDS_HEADS = (
    "who | owners | in a round | rounds of an owner | FLAIM union, MB | with a connection for each"
    " round | FLAIM query, MB | owners that come | their uploads at the second server, GB"
)


_BY_ROWS = (
    "Owners who send rows instead, all of whom come, by formula: what one moves on the wire, once; what of uploads the "
    "second and the third server store each; what counting costs each server.\n\n"
)
_BY_ROWS_HEADS = (
    "who | owners | rows of an owner | MB an owner, once | uploads at the second server, MB | counting: MB a server"
    " sends | seconds of a core"
)


def _by_rows_row(who: str, table: Document) -> tuple[str, ...]:
    counting = table["counting"]
    return (
        who,
        f"{table['clients']:,}",
        f"{table['owner_rows']:,}",
        mb(results_of(table, "distaim", ROWS)[0]["predicted_wire_mb"]),
        mb(table["packed_rows_mb"] * table["clients"]),
        f"{counting['mb_per_server']:,.0f}",
        f"{counting['core_seconds_per_server']:.0f}",
    )


def _same_population(formulas: Sequence[Record], one: Record) -> Record | None:
    names = ("dataset", "clients", "participation")
    return _first(formulas, {name: one.document[name] for name in names})


def _owners_row(who: str, client: Document, servers: Document) -> tuple[str, ...]:
    sent = (*servers["sent_by_step"].values(), servers.get("passed_on_bytes", ()))
    exchanged = sum(map(sum, sent)) / 1e6
    return (
        who,
        f"{client['clients']}",
        f"{_result(client, 'distaim', 'seeded')['wire_mb']:.1f}",
        f"{exchanged:,.0f}",
        _stored(servers),
        f"{_result(client, 'flaim', 'union')['wire_mb']:.3f}",
        f"1 against {_result(client, 'flaim', 'union')['rounds_joined']:.0f}",
    )


def _stored(servers: Document) -> str:
    """Returns the MB of the three stores together, to two digits, as sampling is no more exact."""
    megabytes = sum(servers["stored_bytes"]) / 1e6
    return f"{round(megabytes, 1 - math.floor(math.log10(megabytes))):,.0f}"


def _rounds_row(who: str, client: Document) -> tuple[str, ...]:
    union, query = (_result(client, "flaim", grouping) for grouping in ("union", "query"))
    again = (union["rounds_joined"] - 1) * CONNECTION_BYTES / 1e6
    come = 1 - (1 - client["participation"]) ** _ROUNDS
    return (
        who,
        f"{client['clients']:,}",
        f"{client['participation']:.0%}",
        f"{union['rounds_joined']:.1f}",
        mb(union["wire_mb"]),
        mb(union["wire_mb"] + again),
        mb(query["wire_mb"]),
        f"{come:.0%}",
        mb(4 * client["maximal_cells"] * client["clients"] * come / 1e9),
    )


def _errors_table(errors: Sequence[Errors]) -> str:
    """Returns both errors at each T at which both were measured."""
    at = sorted({(-e.participation, e.rounds) for e in errors if e.dataset == _TABLE})
    rows = []
    for participation, rounds in ((-p, t) for p, t in at if -p in (EVERYBODY, PARTICIPATION)):
        pair = _pair(errors, participation, rounds)
        if pair is None:
            continue
        distaim, private = pair
        rows.append(
            (
                f"{participation:g}",
                f"{rounds}",
                f"{distaim.workload_error:.3f}",
                f"{private.workload_error:.3f}",
                f"{distaim.repeats}, {private.repeats}",
            )
        )
    if not rows:
        return ""
    return (
        "How good the tables are: mean workload error on Adult, 100 owners, clustering partition, epsilon = 1, from "
        f"`bench/results/utility.jsonl` (`{UTILITY_COMMAND}`). Other numbers of owners were not measured.\n\n"
        + markdown_table("participation | T | DistAIM | FLAIM private | repeats", rows)
    )


def _pair(
    errors: Sequence[Errors], participation: float, rounds: int
) -> tuple[Errors, Errors] | None:
    """Returns DistAIM's and FLAIM's errors at the same T, if both were measured."""
    asked = {
        one.method: one
        for one in errors
        if (one.dataset, one.participation, one.rounds) == (_TABLE, participation, rounds)
    }
    if not set(METHODS) <= set(asked):
        return None
    return asked["distaim"], asked["private"]


def _client(records: Sequence[Record], clients: int, participation: float) -> Record | None:
    wanted = {"dataset": _TABLE, "clients": clients, "participation": participation}
    return _first(records, wanted)


def _servers(records: Sequence[Record], clients: int) -> Record | None:
    wanted = {"dataset": _TABLE, "clients": clients, "rounds": _ROUNDS, "upload": "seeded"}
    return _first(records, wanted)


def _first(records: Sequence[Record], wanted: Mapping[str, object]) -> Record | None:
    for record in records:
        if all(record.document.get(key) == value for key, value in wanted.items()):
            return record
    return None


def _result(document: Document, method: str, variant: str) -> Document:
    return results_of(document, method, variant, _ROUNDS)[0]
