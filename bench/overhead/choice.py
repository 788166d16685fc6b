"""The page's advice: what a bank, a hospital network and a phone fleet should choose, with the measured figures.

Provides ``choice``, and ``markdown_table`` for the whole page. Public. Figures are looked up in the records; without
them the section is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.overhead.jobs import FLEET
from bench.overhead.record import Record
from bench.overhead.utility import Best

_TABLE = "adult"
_ROUNDS = 10


def choice(
    clients: Sequence[Record],
    servers: Sequence[Record],
    best: Sequence[Best],
) -> str:
    """The section, or nothing where a figure is missing."""
    banks, hospitals = _client(clients, 5, 1.0), _client(clients, 20, 1.0)
    phones = _client(clients, FLEET, 0.1)
    bank_servers, hospital_servers = _servers(servers, 5), _servers(servers, 20)
    if not (banks and hospitals and phones and bank_servers and hospital_servers):
        return ""
    return "\n\n".join(
        (
            f"## What to choose\n\nAll on Adult's domain (2.9 million cells), T = {_ROUNDS}, from the records above.",
            markdown_table(
                _HEADS,
                (
                    _row("banks", banks, bank_servers),
                    _row("hospitals", hospitals, hospital_servers),
                ),
            ),
            _bank(banks, bank_servers, best),
            _network(hospitals, hospital_servers),
            _fleet(phones),
        )
    )


_HEADS = (
    "who", "owners", "DistAIM seeded: MB an owner, once", "its servers exchange, MB", "and store, MB",
    f"FLAIM union: MB an owner over T = {_ROUNDS}", "rounds that an owner has to answer in",
)  # fmt: skip


def _bank(found: Mapping[str, Any], servers: Mapping[str, Any], best: Sequence[Best]) -> str:
    upload, plain = (_result(found, "distaim", form)["wire_mb"] for form in ("seeded", "plain"))
    flaim = _result(found, "flaim", "union")["wire_mb"]
    return (
        f"**A few banks** ({found['clients']} owners, each with a data centre and its share of the rows): DistAIM with "
        f"`seeded` uploads. {upload:.1f} MB an owner is a second of a 100 Mbit/s line; it is sent once and the owner "
        f"leaves. `plain` would be {plain:.0f} MB for nothing. The price is three operators who do not join forces, "
        f"and {_total_mb(servers):,.0f} MB between them in a run. FLAIM's owner moves {flaim:.2f} MB, which saves such "
        f"an owner nothing, and has to answer in {_joined(found):.0f} rounds.{_utility(best)}"
    )


def _network(found: Mapping[str, Any], servers: Mapping[str, Any]) -> str:
    upload = _result(found, "distaim", "seeded")
    flaim = _result(found, "flaim", "union")["wire_mb"]
    stored, rounds = _mb(sum(servers["stored_bytes"])), f"{_joined(found):.0f}"
    return (
        f"**A hospital network** ({found['clients']} owners behind firewalls, where each connection has to be asked "
        f"for): DistAIM with `seeded` uploads as well. One outgoing connection to each of three servers, "
        f"{upload['wire_mb']:.1f} MB and {upload['client_cpu_s']:.1f} processor seconds, once; a hospital that is down "
        f"later is still counted. The servers store {stored} MB and exchange {_total_mb(servers):,.0f} MB. With FLAIM "
        f"every hospital answers in all of {rounds} rounds ({flaim:.2f} MB), and one that is down in a round is "
        "missing from it. Where no three operators can be found, FLAIM is the one that works with a single server."
    )


def _fleet(found: Mapping[str, Any]) -> str:
    upload, phone = _result(found, "distaim", "seeded"), _result(found, "flaim", "union")
    by_query = _result(found, "flaim", "query")
    gigabytes = f"{4 * float(found['maximal_cells']) * FLEET / 1e9:,.0f} GB"
    rounds, single = f"{phone['rounds_joined']:.1f}", f"{by_query['single_choosers'] or 0:.0%}"
    return (
        f"**A phone fleet** ({FLEET:,} devices with a handful of rows, a tenth of them in a round): FLAIM with "
        f"grouping `union`. A phone that takes part moves {1000 * phone['wire_mb']:.0f} KB over T = {_ROUNDS} rounds "
        f"(each in {rounds} of them on average), against "
        f"{upload['wire_mb']:.1f} MB for one upload to DistAIM's servers, of which the second would have to store "
        f"{gigabytes} and pass them on to the third (4 bytes a cell and client, as the servers' tables confirm). "
        f"`query` costs a phone {1000 * by_query['wire_mb']:.0f} KB, and {single} of its queries had a single chooser, "
        "whose counts the server then sees before it adds noise: it is not for people who do not trust the server."
    )


def _row(who: str, found: Mapping[str, Any], servers: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        who,
        f"{found['clients']}",
        f"{_result(found, 'distaim', 'seeded')['wire_mb']:.1f}",
        f"{_total_mb(servers):,.0f}",
        _mb(sum(servers["stored_bytes"])),
        f"{_result(found, 'flaim', 'union')['wire_mb']:.3f}",
        f"1 against {_joined(found):.0f}",
    )


def _utility(best: Sequence[Best]) -> str:
    """Table 3's errors, where the utility benchmark has them."""
    errors = {one.method: one for one in best if one.dataset == _TABLE}
    if len(errors) < 2:
        return ""
    distaim, private = errors["distaim"], errors["private"]
    if private.workload_error < distaim.workload_error:
        verdict = "Its table is better, though"
    else:
        verdict = "Nor is its table better"
    return (
        f" {verdict}: on the clustering partition the workload error is {private.workload_error:.2f} with FLAIM and "
        f"{distaim.workload_error:.2f} with DistAIM, each at the T that suits it."
    )


def _client(records: Sequence[Record], clients: int, participation: float) -> Mapping[str, Any]:
    wanted = {"dataset": _TABLE, "clients": clients, "participation": participation}
    return _first(records, wanted)


def _servers(records: Sequence[Record], clients: int) -> Mapping[str, Any]:
    wanted = {"dataset": _TABLE, "clients": clients, "rounds": _ROUNDS, "upload": "seeded"}
    return _first(records, wanted)


def _first(records: Sequence[Record], wanted: Mapping[str, object]) -> Mapping[str, Any]:
    for record in records:
        if all(record.document.get(key) == value for key, value in wanted.items()):
            return record.document
    return {}


def _result(found: Mapping[str, Any], method: str, variant: str) -> Mapping[str, Any]:
    results: Sequence[Mapping[str, Any]] = found["results"]
    return next(
        r
        for r in results
        if r["method"] == method
        and r.get("upload", r.get("grouping")) == variant
        and r["rounds"] == _ROUNDS
    )


def _joined(found: Mapping[str, Any]) -> float:
    return float(_result(found, "flaim", "union")["rounds_joined"])


def _total_mb(servers: Mapping[str, Any]) -> float:
    return float(sum(sum(by_party) for by_party in servers["sent_by_step"].values()) / 1e6)


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f}"


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
