"""Cost of joining two sources on shares: seconds, bytes and rounds in both security modes, beside a plain join.

Three party processes over mutual TLS with transcripts run the task ``join`` of `bench.engine.measure`: two sources of
as many rows, keys of 96 bits, columns of 32 bits each. Rows are random, since no message's size and no step's work
depends on them. The plain join is pandas' merge of two tables with half of the keys in common. All values here are
public.
"""

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import pandas as pd

from bench.engine.measure import Result, measure
from bench.engine.tasks import COLUMN_BITS, KEY_BITS, SECURITIES
from bench.experiment.circumstances import commit, listed_machine, machine
from bench.experiment.commands import failures, json_object_option, output_option, whole_numbers
from bench.experiment.documents import publish, write_json
from bench.experiment.markdown import markdown_table, mb
from bench.networks import NETWORKS, opened
from parties.foundation.version import version

GOAL_ROWS, GOAL_SECONDS = 50_000, 60.0
_MERGES = 5
NOTES = (
    "Published, on other machines: Mohassel, Rindal and Schoppmann (CCS 2020) join two tables of a million rows in "
    "4.9 s, three parties, semi-honest, in C++, by cuckoo hashing and 13 rounds of LowMC.",
    "Published: a radix sort on shares (Asharov et al., CCS 2022) sends about 32 bytes a row and bit of the key, in 6 "
    "rounds a bit: by formula 3.6 KB a row and 680 rounds for 113 bits.",
    "Published: Fu, Gu, Shi and Wang (USENIX Security 2026) make two-way marginals of Adult, split by columns, for AIM "
    "in 24 minutes on a WAN, by DPFs, and join nothing on shares.",
)


@dataclass(frozen=True, slots=True)
class Joined:
    """One join of two sources of ``rows`` each. Bytes are those of the mean party; ``clear_seconds`` are pandas'."""

    rows: int
    security: str
    network: str
    seconds: float
    fastest: float
    slowest: float
    repeat: int
    bytes_per_party: float
    bytes_per_row: float
    rounds: int
    cpu_seconds: float
    peak_bytes_per_party: int
    clear_seconds: float

    @classmethod
    def of(cls, result: Result, clear_seconds: float) -> "Joined":
        """Makes the record of the engine's result and of a join in the clear."""
        return cls(
            result.size,
            result.security,
            result.network,
            result.seconds,
            result.fastest,
            result.slowest,
            result.repeat,
            result.bytes_per_party,
            result.bytes_per_party / (2 * result.size),
            result.rounds,
            result.cpu_seconds,
            result.peak_bytes_per_party,
            clear_seconds,
        )


def merge_seconds(rows: int) -> float:
    """Median seconds of pandas' inner joins of two tables of ``rows`` rows with 12-byte keys, half in common."""
    generator = np.random.default_rng(rows)
    keys = generator.integers(0, 256, (rows + -(-rows // 2), KEY_BITS // 8), np.uint8)
    texts = np.array([row.tobytes().hex() for row in keys])
    tables = [
        pd.DataFrame({"key": generator.permutation(own), f"value{number}": np.arange(rows)})
        for number, own in enumerate((texts[:rows], texts[-rows:]))
    ]
    seconds = []
    for _ in range(_MERGES):
        started = time.perf_counter()
        tables[0].merge(tables[1], on="key", how="inner")
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


@click.command(epilog="Example: syncret bench link --rows 1000,10000 --security semi-honest --json")
@click.option(
    "--rows",
    "sizes",
    default="1000,10000,50000,100000",
    show_default=True,
    type=whole_numbers(10**7, "1000,10000"),
    help="Rows of each of the two sources, with commas between.",
)
@click.option(
    "--security",
    "securities",
    multiple=True,
    type=click.Choice(SECURITIES),
    default=SECURITIES,
    show_default=True,
    help="Whether servers prove what they compute (malicious); may be given twice.",
)
@click.option(
    "--network",
    type=click.Choice(list(NETWORKS)),
    default="loopback",
    show_default=True,
    help="lan: 1 Gbit/s, 1 ms a round trip; wan: 100 Mbit/s, 40 ms.",
)
@click.option(
    "--repeat",
    default=3,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Repetitions; the median counts.",
)
@json_object_option
@output_option("Write link.json and link.md to this folder.")
def link(
    sizes: tuple[int, ...],
    securities: tuple[str, ...],
    network: str,
    repeat: int,
    as_json: bool,
    output: Path | None,
) -> None:
    """Measure joins of two sources on shares, beside pandas' join in the clear."""
    results = []
    with failures(RuntimeError), opened(network) as where:
        for rows in sizes:
            clear = merge_seconds(rows)
            for security in dict.fromkeys(securities):
                click.echo(f"joining {rows:,} with {rows:,} rows, {security}", err=True)
                found = measure("join", rows, repeat=repeat, network=where, security=security)
                results.append(Joined.of(found, clear))
    record = _document(results)
    if output is not None:
        write_json(output / "link.json", record)
        publish(output, {"link.md": _page(record, results)})
    click.echo(json.dumps(record) if as_json else _table(results))


def _document(results: Sequence[Joined]) -> dict[str, object]:
    return {
        "commit": commit(),
        "version": version(),
        "machine": machine(),
        "parameters": {
            "sources": 2,
            "key_bits": KEY_BITS,
            "column_bits": COLUMN_BITS,
            "goal": {"rows": GOAL_ROWS, "seconds": GOAL_SECONDS},
        },
        "results": [asdict(result) for result in results],
        "notes": list(NOTES),
    }


def _table(results: Sequence[Joined]) -> str:
    heads = (
        "rows a source | security | network | seconds | fastest to slowest | MB a party | bytes a row | rounds"
        " | processor s, three parties | peak MB a party | pandas s"
    )
    rows = (
        (
            f"{r.rows:,}",
            r.security,
            r.network,
            f"{r.seconds:.2f}",
            f"{r.fastest:.2f} to {r.slowest:.2f}",
            mb(r.bytes_per_party / 1e6),
            f"{r.bytes_per_row:,.0f}",
            r.rounds,
            f"{r.cpu_seconds:.1f}",
            mb(r.peak_bytes_per_party / 1e6),
            f"{r.clear_seconds:.3f}",
        )
        for r in results
    )
    return markdown_table(heads, rows, right=(0, *range(3, 11)))


def _page(record: dict[str, object], results: Sequence[Joined]) -> str:
    at_goal = [r for r in results if r.rows == GOAL_ROWS and r.network == "loopback"]
    lines = [
        "# What joining sources on shares costs",
        "",
        f"`syncret bench link`, commit {record['commit']}. {listed_machine(record)}.",
        "",
        f"Two sources of as many rows, keys of {KEY_BITS} bits, columns of {COLUMN_BITS} bits each. Three party",
        "processes on one machine, mutual TLS 1.3, every message hashed into a signed transcript. Seconds are medians",
        "of the slowest party; bytes those sent by the mean party, a row of either source; pandas' seconds are of an",
        "inner join of as many rows in the clear. The order of the shuffled rows decides how many rounds there are.",
        "",
        "## In short",
        "",
        *(
            f"- {r.security}: {GOAL_ROWS:,} rows are joined with {GOAL_ROWS:,} others in {r.seconds:.1f} s; the "
            f"goal of {GOAL_SECONDS:.0f} s is {'met' if r.seconds <= GOAL_SECONDS else 'not met'}."
            for r in at_goal
        ),
        *(
            []
            if at_goal
            else [f"No two sources of {GOAL_ROWS:,} rows were joined, which the goal is for."]
        ),
        "",
        "## Figures",
        "",
        _table(results),
        "",
        "## Published figures",
        "",
        *(f"- {note}" for note in NOTES),
        "",
    ]
    return "\n".join(lines)
