"""Output of the rounds of `syncret bench secagg --output`: ``secagg.json`` and ``secagg.md`` in a folder.

A run is one command; running the same command again replaces it, other runs stay. No output names the host, its user or
its paths.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.experiment.circumstances import circumstances
from bench.experiment.documents import Row, command_records
from bench.experiment.markdown import markdown_table
from bench.processes import memory
from bench.secagg.rounds import MAX_COUNT
from bench.secagg.security import FLOWER, recommended, shown
from secagg.masks import packed_bytes

_MEASURED = ("secagg", "bench/secagg")
_COLUMNS = (
    " | n | k | t | private | lying | sum | cells | drop | client s | server s | wall s | times"
    " | KB up | of bound | KB down | exact"
)
_HEAD = """# SecAgg, measured

Whole rounds in one process, every message packed and parsed, no network; `make bench-secagg` runs all the commands
below. Seconds per client are a mean over all, bytes a mean over those that stay. `exact`: the sum is compared with
the sum of the survivors' plaintext vectors, cell by cell. Flower 1.41's SecAgg+ runs in the same process on the
same vectors; "times" is its time by ours. "of bound": bytes sent by 1.3 times the packed vector and 200 bytes per
neighbour. Seconds are of the clock, on a machine that may have had other work.

## What the parameters are worth

k neighbours, threshold t, under our own threat model: 5 % corrupt clients in league with the server and 33 % dropouts,
by the formulas of `secagg/graph.py`, in bits (-log2 of a bound on the probability). `private`: the server does no more
than look; what goes wrong is that t corrupt clients are among some client's neighbours, or that the honest survivors
fall apart. `lying`: the same against a server that lies about who survived; without signatures nothing is promised.
`sum`: some secret has fewer than t holders left and the sum fails. "certain": it cannot happen; 0: the bound says
nothing. The thresholds of rounds without `--threshold` are majorities, as the other library has them: on sparse graphs
they stand few dropouts, and 21 neighbours of 100 are worth 21 bits. Flower's rows are judged by their parameters, as if
its graph were drawn as ours is; that a client keeps a share of its own secrets is counted. What 40 and 20 bits take
(`secagg.choose`):

"""


def write(folder: Path, arguments: Sequence[str], results: Sequence[Row]) -> None:
    """Adds the ``results`` of ``syncret bench secagg`` with ``arguments`` to the files in ``folder``."""
    command = shlex.join(["syncret", "bench", "secagg", *arguments])
    run = {
        "command": command,
        **circumstances(_MEASURED),
        "peak_memory_mb": _peak_mb(),
        "results": list(results),
    }
    DOCUMENT.add(folder, [run])


def markdown(runs: Sequence[Row]) -> str:
    """Returns the page of all ``runs``."""
    head, worth = _HEAD.split("## ", 1)
    return "\n".join(
        [f"{head}{_short(runs)}\n## {worth}{recommended()}\n", *(_section(run) for run in runs)]
    )


def _short(runs: Sequence[Row]) -> str:
    """Returns how many sums are exact, and time and bytes beside the peer's and the goal's."""
    rows = [row for run in runs for row in run["results"]]
    own = [row for row in rows if row["implementation"] != FLOWER]
    exact = sum(bool(row["exact"]) for row in own)
    points = [f"- Exact sums: {exact} of {len(own)} kinds of rounds."]
    ratios = [
        _number(row, "wall_seconds") / _number(beside[_job(row)], "wall_seconds")
        for run in runs
        if (beside := {_job(row): row for row in run["results"] if row["implementation"] != FLOWER})
        for row in run["results"]
        if row["implementation"] == FLOWER and _job(row) in beside
    ]
    if ratios:
        points.append(
            f"- Flower's SecAgg+ takes {min(ratios):.0f} to {max(ratios):.0f} times as long for the same vectors."
        )
    if own:
        share = max(_number(row, "client_sent_bytes_mean") / _bound(row) for row in own)
        points.append(f"- A client sends at most {share:.0%} of the bytes that the goal allows.")
    return "\n".join(["## In short", "", *points, ""])


def _peak_mb() -> float | None:
    try:
        return round(memory("VmHWM") / 1e6)
    except OSError:
        return None


def _section(run: Row) -> str:
    rows: Sequence[Row] = run["results"]
    own = {_job(row): row for row in rows if row["implementation"] != FLOWER}
    lines = [
        f"## `{run['command']}`\n",
        f"Commit {str(run['commit'])[:12]}, {run['date']}; peak memory of the process {run['peak_memory_mb']} MB.\n",
        markdown_table(_COLUMNS, (_cells(row, own) for row in rows), right=range(1, 16)),
        "",
    ]
    return "\n".join(lines)


def _cells(row: Row, own: Mapping[tuple[object, ...], Row]) -> tuple[object, ...]:
    """Returns a round's cells under ``_COLUMNS``; ``own`` are ours, by job."""
    times, share = "", ""
    if row["implementation"] == FLOWER and _job(row) in own:
        ratio = _number(row, "wall_seconds") / _number(own[_job(row)], "wall_seconds")
        times = f"{ratio:.0f}"
    elif row["implementation"] != FLOWER:
        share = f"{_number(row, 'client_sent_bytes_mean') / _bound(row):.0%}"
    return (
        row["implementation"],
        f"{row['clients']:,}",
        row["neighbours"],
        row["threshold"],
        *(_worth(row, name) for name in ("semi_honest", "malicious", "correctness")),
        f"{row['length']:,}",
        f"{_number(row, 'dropout'):.0%}",
        f"{_number(row, 'client_seconds_mean'):.4f}",
        f"{_number(row, 'server_seconds'):.3f}",
        f"{_number(row, 'wall_seconds'):.2f}",
        times,
        f"{_number(row, 'client_sent_bytes_mean') / 1e3:.1f}",
        share,
        f"{_number(row, 'client_received_bytes_mean') / 1e3:.1f}",
        "yes" if row["exact"] else "NO",
    )


def _worth(row: Row, name: str) -> str:
    """Returns the bits of ``name`` as text."""
    value = row[f"{name}_bits"]
    return shown(None if value is None else _number(row, f"{name}_bits"))


def _job(row: Row) -> tuple[object, ...]:
    """Key of a round; Flower counts a client among its own neighbours and needs an odd number of them."""
    complete = _number(row, "neighbours") >= _number(row, "clients") - 1
    return row["clients"], complete, row["length"], row["dropout"]


def _bound(row: Row) -> float:
    """Returns the goal's limit of a client's bytes: 1.3 times the packed vector, and 200 bytes per neighbour."""
    bits = (int(_number(row, "clients")) * MAX_COUNT).bit_length()
    packed = packed_bytes(int(_number(row, "length")), bits)
    return 1.3 * packed + 200 * _number(row, "neighbours")


def _number(row: Row, name: str) -> float:
    value = row[name]
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name} of a round is {value!r}; expected a number")
    return float(value)


DOCUMENT = command_records(
    "secagg",
    "syncret bench secagg",
    markdown,
    order=lambda run: max(row["clients"] for row in run["results"]),
    field="runs",
)
