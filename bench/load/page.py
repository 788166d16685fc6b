"""Output of the measurements of load: ``load.json`` and ``load.md`` in a folder.

A record is one command; the same command again replaces it, others stay. No output names the host, its user or its
paths.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.experiment.circumstances import circumstances
from bench.experiment.documents import Row, by_kind, command_records, sections
from bench.experiment.markdown import filled, listed, markdown_table, mb
from bench.load.services import SERVICES
from bench.load.soak import Grown

OWNERS, SOAK, LONG = "owners", "soak", "long"
_MEASURED = ("parties", "protocols", "mechanisms", "secagg", "bench/load")
_HEAD = """# Load, measured

Each table is of the command above it; `make bench-load` runs them. Servers and owners share one machine, with TLS
between them. Seconds are of the clock, on a machine that may have had other work; processor milliseconds say more.
"""
_OWNERS = """
## Many owners, a part of whom send garbage

Three `syncret serve study` processes with a mesh between them take uploads by rows (3.6 KB, 8 rows) over TLS with an
owner's certificate each, and count them in the end. `at once`: honest owners at work. Accepted: with receipts of all
three servers that hold. Lost: with receipts, and not counted. Unexpected: garbage that was answered otherwise than it
should.
"""
_SOAK = """
## Studies one after the other

Three `syncret serve` processes; a study has three owners and two rounds. Figures of each service from the end of the
third study to that of the last: memory at both and evenly between, its slope by least squares over the later half;
files and sockets, without up to eight connections to the two others, by medians of ten studies, threads by the most in
ten. Folders grow by what each study leaves (`[keep]` in settings.toml).
"""
_LONG = """
## Long runs and large tables

`syncret run` and `syncret run --method flaim` on generated tables of columns with 8 codes. Of the many clients of
`flaim` one in a hundred takes part in a round, drawn anew each time; `in a round` has how many are expected to. Peak:
all processes together, and the largest one. Of many rounds or clients the model is fitted by 5 iterations a round, not
100: it is those that are measured.
"""


def add(folder: Path, kind: str, command: str, result: Row) -> None:
    """Adds the ``result`` of ``command`` to the files in ``folder``, which is created if missing."""
    record = {"kind": kind, "command": command, **circumstances(_MEASURED), "result": result}
    DOCUMENT.add(folder, [record])


def markdown(records: Sequence[Row]) -> str:
    """Returns the page of all ``records``."""
    return "\n".join([_HEAD, _short(records), *sections(records, _SECTIONS)])


def _short(records: Sequence[Row]) -> str:
    """Returns a point for each kind of measurement that there is."""
    of = {kind: [r["result"] for r in records if r["kind"] == kind] for kind in _SECTIONS}
    points = []
    if of[OWNERS]:
        most = max(of[OWNERS], key=lambda result: int(result["owners"]))
        points.append(
            f"Of {most['owners']:,} owners, {most['accepted']:,} were accepted, {most['per_second']:.0f} a second, "
            f"beside {most['garbage']:,} pieces of garbage; {most['lost']:,} were lost, {most['twice']:,} counted "
            f"twice, and of the senders of garbage {most['uninvited']:,} were counted."
        )
    if of[SOAK]:
        longest = max(of[SOAK], key=lambda result: int(result["studies"]))
        problems = [text for grown in longest["services"] for text in Grown(**grown).problems]
        points.append(
            f"{longest['studies']} studies one after the other leave the services as they were."
            if not problems
            else f"After {longest['studies']} studies one after the other {len(problems)} resources have grown."
        )
    if of[LONG]:
        shapes = [result["shape"] for result in of[LONG]]
        most_of = ", ".join(
            f"{max(int(shape[name]) for shape in shapes):,} {said}"
            for name, said in (("clients", "clients"), ("rounds", "rounds"), ("rows", "rows"))
        )
        widest = max(int(shape["columns"]) for shape in shapes)
        points.append(f"The largest runs, one each: {most_of} and {widest:,} columns.")
    return "\n".join(["## In short", "", *(filled(f"- {point}", "  ") for point in points), ""])


def _owners(result: Mapping[str, Any]) -> str:
    low, high = min(result["per_second_by_quarter"]), max(result["per_second_by_quarter"])
    memory = [f"{mb(first)} to {mb(end)}" for first, end, _ in result["memory_mb"]]
    files = "; ".join(", ".join(map(str, one)) for one in result["descriptors"])
    rows = [
        ("honest owners, pieces of garbage", f"{result['owners']:,}, {result['garbage']:,}"),
        ("accepted, failed", f"{result['accepted']:,}, {len(result['failed'])}"),
        ("counted, lost, counted twice", _three(result, "counted", "lost", "twice")),
        (
            "senders of garbage counted, unexpected answers",
            _three(result, "uninvited", "unexpected"),
        ),
        ("accepted a second", f"{result['per_second']:.0f} ({low:.0f} to {high:.0f} by quarter)"),
        ("at once, tries again", f"{result['at_once']}, {result['retries']}"),
        ("an owner's seconds: median, 99 of 100, most", _seconds(result["latency_s"])),
        ("processor ms an accepted owner: servers; owners", _cpu(result)),
        ("servers' memory in MB, from a quarter to all in", listed(memory)),
        ("servers' files and sockets: before, at most, 2 s after", files),
        ("seconds from the last receipt to the run's end", f"{result['counting_s']:.1f}"),
    ]
    ends = [
        (kind, ", ".join(f"{end}: {count}" for end, count in sorted(by.items())))
        for kind, by in result["garbage_ends"].items()
    ]
    return "\n\n".join(
        [markdown_table(" | ", rows), markdown_table("garbage | answers (status: times)", ends)]
    )


def _three(result: Mapping[str, Any], *keys: str) -> str:
    return ", ".join(f"{result[key]:,}" for key in keys)


def _seconds(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _cpu(result: Mapping[str, Any]) -> str:
    servers = ", ".join(f"{value:.1f}" for value in result["server_cpu_ms"])
    return f"{servers}; {result['owners_cpu_ms']:.1f}"


def _soak(result: Mapping[str, Any]) -> str:
    rows = [
        (
            name,
            ", ".join(mb(value) for value in grown["memory_mb"]),
            f"{grown['kb_per_study']:.0f}",
            *(" and ".join(map(str, grown[key])) for key in ("descriptors", "threads")),
            *(" and ".join(map(str, grown[key])) for key in ("children", "listening")),
            f"{grown['folder_kb_per_study']:,.0f}",
        )
        for name, grown in zip(SERVICES, result["services"], strict=True)
    ]
    found = (
        f"{name}: {problem}"
        for name, grown in zip(SERVICES, result["services"], strict=True)
        for problem in Grown(**grown).problems
    )
    heads = "service | MB | KB a study | files, sockets | threads | processes | ports | folder KB a study"
    first, last = result["first_s"], result["last_s"]
    said = f"{result['studies']} studies in {result['seconds'] / 60:.0f} minutes; "
    said += f"the first five took {first:.1f} s each, the last five {last:.1f} s."
    said += f" Grown beyond the limits: {'; '.join(found) or 'nothing'}."
    return f"{said}\n\n{markdown_table(heads, rows)}"


def _long(result: Mapping[str, Any]) -> str:
    shape = result["shape"]
    row = (
        f"{shape['clients']:,}",
        f"{shape['clients'] * shape['participation']:,.0f}",
        f"{shape['rounds']:,}",
        f"{shape['rows']:,}",
        f"{shape['columns']:,}",
        f"{result['seconds']:,.0f}",
        f"{result['cpu_s']:,.0f}",
        f"{result['peak_mb']:,.0f}",
        f"{result['largest_mb']:,.0f}",
        f"{result['processes']}",
        f"{result['descriptors']:,}",
    )
    heads = (
        "owners | in a round | rounds | rows | columns | seconds | processor s | peak MB | largest MB"
        " | processes | files of one"
    )
    return markdown_table(heads, [row], right=range(11))


_SECTIONS = {OWNERS: (_OWNERS, _owners), SOAK: (_SOAK, _soak), LONG: (_LONG, _long)}
DOCUMENT = command_records("load", "syncret bench load", markdown, order=by_kind)
