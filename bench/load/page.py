"""Output of the measurements of load: ``load.json`` and ``load.md`` in a folder.

A record is one command; the same command again replaces it, others stay. No output names the host, its user or its
paths.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.engine.report import commit, machine, made_by
from bench.load.services import SERVICES
from bench.load.soak import Grown
from bench.markdown import listed, markdown_table, mb
from parties.storage.files import write_atomic

OWNERS, SOAK, LONG, FUZZ, KILLS = "owners", "soak", "long", "fuzz", "kills"
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
_FUZZ = """
## Damaged inputs

Messages and files of a run, damaged; each reader takes or refuses them, each server goes on serving honest peers. Read:
those that were taken for real. A find would be a crash, a hang, growing memory, or words that nobody can read.
"""
_KILLS = """
## Faults at every point

Three servers and three owners; at one point of one server's work a fault. Went on: all three ended well the first
time. Finished: by the same commands, given again; ledgers and audit are then as they should be. Servers are `syncret
serve study` in a run of two rounds; with `--of services` `syncret serve`, which take such a study from its proposal to
its end, or until it is cancelled, and leave no process, port, key or share of it behind.
"""


def sources() -> str:
    """Returns the measured commit, as `bench.engine.report.commit` does."""
    return commit(_MEASURED)


def add(folder: Path, kind: str, command: str, result: Mapping[str, Any]) -> None:
    """Adds the ``result`` of ``command`` to the files in ``folder``, which is created if missing. Raises StoreError."""
    path = folder / "load.json"
    records = json.loads(path.read_text(encoding="utf-8"))["records"] if path.exists() else []
    record = {
        "kind": kind,
        "command": command,
        "commit": sources(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "result": result,
    }
    records = [other for other in records if other["command"] != command] + [record]
    records.sort(key=lambda item: (item["kind"], item["command"]))
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps({"records": records}, indent=1) + "\n")
    write_atomic(folder / "load.md", markdown(records))


def markdown(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns the page of all ``records``."""
    parts = [_HEAD]
    for kind, head, section in (
        (OWNERS, _OWNERS, _owners),
        (SOAK, _SOAK, _soak),
        (LONG, _LONG, _long),
        (KILLS, _KILLS, _kills),
    ):
        if mine := [record for record in records if record["kind"] == kind]:
            parts.append(head)
            parts += [f"{made_by(record)}\n\n{section(record['result'])}\n" for record in mine]
    if mine := [record for record in records if record["kind"] == FUZZ]:
        sources = "\n\n".join(map(made_by, mine))
        parts += [_FUZZ, f"{sources}\n\n{_fuzz([record['result'] for record in mine])}\n"]
    return "\n".join(parts)


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


def _fuzz(results: Sequence[Mapping[str, Any]]) -> str:
    """Returns a table with a row for each seed, and one of all."""
    rows = [(result["seed"], *_damage(result["targets"])) for result in results]
    rows.append(("all", *_damage([one for result in results for one in result["targets"]])))
    heads = (
        "seed | inputs | readers, servers | read | seconds | slowest s | most growth, MB | finds"
    )
    return markdown_table(heads, rows, right=range(5))


def _damage(targets: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the totals of inputs, over all targets."""
    slowest = max(targets, key=lambda one: float(one["slowest_s"]))
    grown = max(targets, key=lambda one: int(one["grown_bytes"]))
    return (
        f"{sum(one['inputs'] for one in targets):,}",
        f"{len({one['target'] for one in targets})}",
        f"{sum(one['taken'] for one in targets):,}",
        f"{sum(one['seconds'] for one in targets):,.0f}",
        f"{slowest['slowest_s']:.1f} ({slowest['target']})",
        f"{mb(grown['grown_bytes'] / 1e6)} ({grown['target']})",
        f"{sum(len(one['finds']) for one in targets)}",
    )


def _kills(result: Mapping[str, Any]) -> str:
    return markdown_table(result["heads"], result["rows"])
