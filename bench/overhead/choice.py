"""The page's advice: what a bank, a hospital network and a phone fleet should choose, with the measured figures.

Provides ``choice``. Public. Figures are looked up in the records; without them the section is left out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.overhead.flaim import CONNECTION_BYTES
from bench.overhead.jobs import FLEET
from bench.overhead.markdown import listed, markdown_table, results_of
from bench.overhead.record import Record
from bench.overhead.utility import PARTICIPATION, UTILITY_COMMAND, Errors

_TABLE = "adult"
_ROUNDS = 10
_EVERYBODY = 1.0


def choice(
    clients: Sequence[Record],
    servers: Sequence[Record],
    errors: Sequence[Errors],
) -> str:
    """The section, or nothing where a figure is missing."""
    banks, hospitals = _client(clients, 5, _EVERYBODY), _client(clients, 20, _EVERYBODY)
    phones = _client(clients, FLEET, PARTICIPATION)
    bank_servers, hospital_servers = _servers(servers, 5), _servers(servers, 20)
    if not (banks and hospitals and phones and bank_servers and hospital_servers):
        return ""
    made = (banks, hospitals, phones, bank_servers, hospital_servers)
    commands = "\n".join(f"- `{record.command}`" for record in made)
    rows = (
        _row("banks", banks.document, bank_servers.document),
        _row("hospitals", hospitals.document, hospital_servers.document),
    )
    parts = (
        f"## What to choose\n\nAll on Adult's domain (2.9 million cells), T = {_ROUNDS}, from these records:",
        commands,
        markdown_table(_HEADS, rows),
        "FLAIM's figures assume one TLS connection held for the whole run. Each further one adds "
        f"{CONNECTION_BYTES / 1000:.1f} KB (handshake, greeting, goodbye).",
        _utility(errors),
        _bank(banks.document, bank_servers.document, errors),
        _network(hospitals.document, hospital_servers.document),
        _fleet(phones.document, errors),
    )
    return "\n\n".join(part for part in parts if part)


_HEADS = (
    "who", "owners", "DistAIM seeded: MB an owner, once", "its servers exchange, MB", "and store, MB, at least",
    f"FLAIM union: MB an owner over T = {_ROUNDS}", "rounds that an owner has to answer in",
)  # fmt: skip


def _bank(found: Mapping[str, Any], servers: Mapping[str, Any], errors: Sequence[Errors]) -> str:
    upload, plain = (_result(found, "distaim", form)["wire_mb"] for form in ("seeded", "plain"))
    flaim = _result(found, "flaim", "union")["wire_mb"]
    again = flaim + (_joined(found) - 1) * CONNECTION_BYTES / 1e6
    return (
        f"**A few banks** ({found['clients']} owners, each with a data centre and its share of the rows): DistAIM with "
        f"`seeded` uploads. {upload:.1f} MB an owner is a second of a 100 Mbit/s line; it is sent once and the owner "
        f"leaves. `plain` would be {plain:.0f} MB for nothing. The price is three operators who do not join forces, "
        f"and {_total_mb(servers):,.0f} MB between them in a run. FLAIM's owner moves {flaim:.2f} MB ({again:.2f} with "
        "a connection for each round), which saves such an owner nothing, and has to answer in "
        f"{_joined(found):.0f} rounds.{_verdict(errors, found)}"
    )


def _verdict(errors: Sequence[Errors], found: Mapping[str, Any]) -> str:
    pair = _pair(errors, _EVERYBODY, _ROUNDS) or _pair(errors, PARTICIPATION, _ROUNDS)
    if pair is None:
        return ""
    distaim, private = pair
    better = "DistAIM" if distaim.workload_error <= private.workload_error else "FLAIM"
    return (
        f" At the same T = {_ROUNDS} the lower error is {better}'s: {distaim.workload_error:.2f} with DistAIM and "
        f"{private.workload_error:.2f} with FLAIM (100 owners, {_share(distaim.participation)} of them in each round). "
        f"With {found['clients']} owners it was not measured."
    )


def _network(found: Mapping[str, Any], servers: Mapping[str, Any]) -> str:
    upload = _result(found, "distaim", "seeded")
    flaim = _result(found, "flaim", "union")["wire_mb"]
    stored, rounds = _stored(servers), f"{_joined(found):.0f}"
    return (
        f"**A hospital network** ({found['clients']} owners behind firewalls, where each connection has to be asked "
        f"for): DistAIM with `seeded` uploads as well. One outgoing connection to each of three servers, "
        f"{upload['wire_mb']:.1f} MB and {upload['client_cpu_s']:.1f} processor seconds, once; a hospital that is down "
        f"later is still counted. The servers store {stored} MB or more and exchange {_total_mb(servers):,.0f} MB. "
        f"With FLAIM every hospital answers in all of {rounds} rounds ({flaim:.2f} MB), and one that is down in a "
        f"round is missing from it. How good a table of {found['clients']} hospitals is was not measured; the nearest "
        "is that of 100 owners who all take part in every round. Where no three operators can be found, FLAIM is the "
        "one that works with a single server."
    )


def _fleet(found: Mapping[str, Any], errors: Sequence[Errors]) -> str:
    upload, phone = _result(found, "distaim", "seeded"), _result(found, "flaim", "union")
    by_query, joined = _result(found, "flaim", "query"), phone["rounds_joined"]
    kilobytes = 1000 * phone["wire_mb"]
    again = kilobytes + (joined - 1) * CONNECTION_BYTES / 1000
    come = 1 - (1 - found["participation"]) ** _ROUNDS
    gigabytes = f"{4 * float(found['maximal_cells']) * FLEET * come / 1e9:,.0f} GB"
    single = f"{by_query['single_choosers'] or 0:.0%}"
    return (
        f"**A phone fleet** ({FLEET:,} devices with a handful of rows, "
        f"{_share(found['participation'])} of them in a round): FLAIM with grouping `union`. A phone that takes "
        f"part moves {kilobytes:.0f} KB over T = {_ROUNDS} rounds (each in {joined:.1f} of them on "
        f"average; {again:.0f} KB with a connection for each), against "
        f"{upload['wire_mb']:.1f} MB for one upload to DistAIM's servers. {come:.0%} of the phones would come in those "
        f"rounds and upload; the second server would have to store {gigabytes} of theirs and pass them on to the third "
        "(4 bytes a cell and client, as the servers' tables confirm).\n\n"
        f"`union` rather than `query` because a phone moves {kilobytes:.0f} KB and not "
        f"{1000 * by_query['wire_mb']:.0f} KB, and because only `union` allows distributed noise. With noise added by "
        'the server (the default, `noise = "server"`) both groupings show it a lone chooser\'s counts before its '
        "noise: it knows who chose what, so that the zeros of all others in `union` are known zeros. Under `query` the "
        "counts of one or two choosers go without SecAgg besides. Here "
        f"{single} of the chosen queries had a single chooser. What hides their counts from the server is "
        '`noise = "distributed"`: every phone adds its part of the noise before its counts leave. It needs `union`; '
        f"its bytes are in no record here.{_fleet_utility(errors)}"
    )


def _fleet_utility(errors: Sequence[Errors]) -> str:
    pair = _pair(errors, PARTICIPATION, _ROUNDS)
    said = f"\n\nHow good a table of {FLEET:,} phones is was not measured."
    if pair is None:
        return said
    distaim, private = pair
    return (
        f"{said} With 100 clients, {_share(PARTICIPATION)} of them in a round, the error at T = {_ROUNDS} is "
        f"{private.workload_error:.2f} with FLAIM and {distaim.workload_error:.2f} with DistAIM."
    )


def _utility(errors: Sequence[Errors]) -> str:
    """Both errors at each T, and where FLAIM's is the lower one."""
    at = sorted({(-e.participation, e.rounds) for e in errors if e.dataset == _TABLE})
    rows = []
    for participation, rounds in ((-p, t) for p, t in at if -p in (_EVERYBODY, PARTICIPATION)):
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
    heads = ("participation", "T", "DistAIM", "FLAIM private", "repeats")
    return (
        "How good the tables are: mean workload error on Adult, 100 owners, clustering partition, epsilon = 1, from "
        f"`bench/results/utility.jsonl` (`{UTILITY_COMMAND}`). Other numbers of owners were not measured."
        f"{_low(errors)}\n\n{markdown_table(heads, rows)}"
    )


def _low(errors: Sequence[Errors]) -> str:
    """At which T FLAIM's error is the lower one where a tenth take part, table by table."""
    lower: dict[str, list[str]] = {}
    for one in sorted(errors, key=lambda one: (one.dataset, one.rounds)):
        pair = _pair(errors, PARTICIPATION, one.rounds, one.dataset)
        if pair is None or one.method != "private" or one.participation != PARTICIPATION:
            continue
        if pair[1].workload_error < pair[0].workload_error:
            lower.setdefault(one.dataset, []).append(f"{one.rounds}")
    if not lower:
        return ""
    where = "; ".join(f"{listed(rounds)} on {dataset}" for dataset, rounds in lower.items())
    return (
        f" With {_share(PARTICIPATION)} in a round FLAIM's table is the better one at T = {where}."
    )


def _pair(
    errors: Sequence[Errors], participation: float, rounds: int, dataset: str = _TABLE
) -> tuple[Errors, Errors] | None:
    """DistAIM's and FLAIM's errors at the same T, if both were measured."""
    asked = {
        one.method: one
        for one in errors
        if (one.dataset, one.participation, one.rounds) == (dataset, participation, rounds)
    }
    if not {"distaim", "private"} <= set(asked):
        return None
    return asked["distaim"], asked["private"]


def _share(participation: float) -> str:
    known = {PARTICIPATION: "a tenth", _EVERYBODY: "all"}
    return known.get(participation, f"{participation:g}")


def _row(who: str, found: Mapping[str, Any], servers: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        who,
        f"{found['clients']}",
        f"{_result(found, 'distaim', 'seeded')['wire_mb']:.1f}",
        f"{_total_mb(servers):,.0f}",
        _stored(servers),
        f"{_result(found, 'flaim', 'union')['wire_mb']:.3f}",
        f"1 against {_joined(found):.0f}",
    )


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


def _result(found: Mapping[str, Any], method: str, variant: str) -> Mapping[str, Any]:
    return results_of(found, method, variant, _ROUNDS)[0]


def _joined(found: Mapping[str, Any]) -> float:
    return float(_result(found, "flaim", "union")["rounds_joined"])


def _total_mb(servers: Mapping[str, Any]) -> float:
    return float(sum(sum(by_party) for by_party in servers["sent_by_step"].values()) / 1e6)


def _stored(servers: Mapping[str, Any]) -> str:
    """MB that the three stores had together, to two digits: what was seen is not sure to more."""
    megabytes = sum(servers["stored_bytes"]) / 1e6
    return f"{round(megabytes, 1 - math.floor(math.log10(megabytes))):,.0f}"
