"""Output of `fuzz` and `kills`: ``robustness.json`` and ``robustness.md`` in a folder.

A record is one command; the same command again replaces it, others stay. No output names the host, its user or its
paths.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.experiment.circumstances import circumstances, commit, made_by
from bench.experiment.documents import Row, by_kind, command_records, sections
from bench.experiment.markdown import markdown_table, mb

FUZZ, KILLS = "fuzz", "kills"
_MEASURED = ("parties", "protocols", "mechanisms", "secagg", "bench/load", "tests/robustness")
_HEAD = """# Faults and damaged inputs

Each table is of the command above it; `make robustness` runs them. A record with a command `syncret bench load fuzz` or
`kills` is of a time when `python -m tests.robustness fuzz` and `kills` were called so. Servers and owners share one
machine, with TLS between them. Seconds are of the clock, on a machine that may have had other work.
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
    """Returns the measured commit, as `bench.experiment.circumstances.commit` does."""
    return commit(_MEASURED)


def add(folder: Path, kind: str, command: str, result: Row) -> None:
    """Adds the ``result`` of ``command`` to the files in ``folder``, which is created if missing."""
    record = {"kind": kind, "command": command, **circumstances(_MEASURED), "result": result}
    DOCUMENT.add(folder, [record])


def markdown(records: Sequence[Row]) -> str:
    """Returns the page of all ``records``."""
    parts = [_HEAD, _short(records), *sections(records, {KILLS: (_KILLS, _kills)})]
    if mine := [record for record in records if record["kind"] == FUZZ]:
        sources = "\n\n".join(map(made_by, mine))
        parts += [_FUZZ, f"{sources}\n\n{_fuzz([record['result'] for record in mine])}\n"]
    return "\n".join(parts)


def _short(records: Sequence[Row]) -> str:
    """Returns how many faults and damaged inputs there were, and how many ended as they should not."""
    of = {kind: [r["result"] for r in records if r["kind"] == kind] for kind in (KILLS, FUZZ)}
    points = []
    if of[KILLS]:
        cases, otherwise = (
            sum(
                int(row[result["heads"].split(" | ").index(head)])
                for result in of[KILLS]
                for row in result["rows"]
            )
            for head in ("cases", "otherwise than it should")
        )
        points.append(
            f"- Of {cases:,} faults at any point of a server's work {otherwise:,} ended otherwise than they should."
        )
    if of[FUZZ]:
        targets = [one for result in of[FUZZ] for one in result["targets"]]
        inputs, finds = (
            sum(one["inputs"] for one in targets),
            sum(len(one["finds"]) for one in targets),
        )
        points.append(
            f"- Of {inputs:,} damaged inputs {finds:,} crashed a reader, stopped it or made it grow."
        )
    return "\n".join(["## In short", "", *points, ""])


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


DOCUMENT = command_records("robustness", "python -m tests.robustness", markdown, order=by_kind)
