"""Output of the engine's results: JSON with its circumstances, a table, a plot.

No output names the host, its user or its paths.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from bench.engine.goals import MP_SPDZ, judged
from bench.engine.measure import Result
from bench.engine.tasks import (
    CANDIDATES,
    DIFFERENCE_BITS,
    GROUPS,
    MALICIOUS,
    SELECTIONS,
    SEMI_HONEST,
    TASKS,
    TRUNCATED_BITS,
    selection,
)
from bench.engine.whole import Run, runs_markdown
from bench.experiment.appendix import parted
from bench.experiment.circumstances import commit, listed_machine, machine, today
from bench.experiment.documents import publish, write_json
from bench.experiment.markdown import markdown_table
from bench.networks import LOOPBACK, NETWORKS
from parties.foundation.version import version
from protocols import costs
from protocols.select_spec import bounds

_COLUMNS = (
    "task | network | size | seconds | fastest to slowest | per second | bytes each | on the wire"
    " | rounds | peak bytes each | processor s | floor s | peer s (at size) | peer / own, each"
)
_BOTH = (
    "task | network | size | SH s | M s | M / SH | SH bytes | M bytes | SH rounds | M rounds"
    " | MP-SPDZ SH | MP-SPDZ M"
)
FRONT = ("Both security modes", "Against the goals", "Whole runs")
"""Sections of the page that are not for its appendix."""
_FIRST = (
    ("abs_error", 1_000_000, "A grouped absolute error of 1,000,000 cells"),
    ("select", 1_000_000, "A select among 250 candidates of 1,000,000 cells"),
    ("discrete_gaussian", 32_768, "32,768 samples of discrete Gaussian noise"),
    ("count_rows", 48_842, "Counting Adult's 48,842 rows into 2.74 million cells"),
    ("join", 50_000, "Joining 50,000 rows with 50,000 others by a key"),
)
"""Tasks and sizes that the page names first."""
# Columns that fit a terminal, by shorter names; a column without one is left out.
_SHORT = ("task", "net", "size", "s", "", "per s", "bytes", "", "rounds", "peak", "", "floor s", "")
_SHORT_COLUMNS = {number: name for number, name in enumerate((*_SHORT, "peer x")) if name}


def document(results: Sequence[Result], repeat: int, runs: Sequence[Run] = ()) -> dict[str, object]:
    """Returns the whole content of engine.json and of ``--json``."""
    shapes = {name: shape for name, shape in NETWORKS.items() if shape is not None}
    return {
        "commit": commit(),
        "version": version(),
        "date": today(),
        "machine": machine(),
        "parameters": {
            "parties": 3,
            "repeat": repeat,
            "groups": GROUPS,
            "candidates": CANDIDATES,
            "difference_bits": DIFFERENCE_BITS,
            "truncated_bits": TRUNCATED_BITS,
            "networks": {
                name: {"rate_bits": shape.rate_bits, "round_trip_s": 2 * shape.delay_s}
                for name, shape in shapes.items()
            },
        },
        "results": [result.to_json() for result in results],
        "runs": [run.to_json() for run in runs],
    }


def _row(r: Result) -> tuple[str, ...]:
    shaping = "" if r.shaping == "none" else f" ({r.shaping})"
    peer = ("", "")
    if r.peer is not None:
        ratio = (r.peer.seconds / r.peer.size) / (r.seconds / r.size)
        peer = (f"{r.peer.seconds:.3g} ({r.peer.size:,})", f"{ratio:,.0f}")
    return (
        r.task if r.security == SEMI_HONEST else f"{r.task}, {r.security}",
        r.network + shaping,
        f"{r.size:,} {r.unit}",
        f"{r.seconds:.4f}",
        f"{r.fastest:.4f} to {r.slowest:.4f}",
        f"{r.per_second:,.0f}",
        f"{r.bytes_per_party / r.size:.1f}",
        f"{r.wire_bytes_per_party / r.size:.1f}",
        f"{r.rounds}",
        f"{r.peak_bytes_per_party / r.size:.1f}",
        f"{r.cpu_seconds:.3f}",
        f"{r.floor['seconds']:.4f}",
        *peer,
    )


def table(results: Sequence[Result]) -> Table:
    """Returns a table for a terminal, with the columns that fit."""
    shown = Table(title="Engine: three processes, TLS, transcripts", box=box.SIMPLE_HEAD)
    for number, name in _SHORT_COLUMNS.items():
        shown.add_column(name, justify="left" if number < 2 else "right")
    for result in results:
        row = _row(result)
        shown.add_row(*(row[number] for number in _SHORT_COLUMNS))
    return shown


def markdown(
    record: Mapping[str, object], results: Sequence[Result], runs: Sequence[Run] = ()
) -> str:
    """Returns the table and its circumstances in Markdown."""
    lines = [
        "# The engine's speed",
        "",
        f"Commit {record['commit']}, {record['date']}. {listed_machine(record)}.",
        "",
        "Three party processes on one machine, mutual TLS 1.3, every message hashed into a signed transcript.",
        "Seconds are medians of the slowest party; bytes are those sent by the mean party, for each cell or sample;",
        "processor seconds are those of the three parties together. `bench/notes/engine.md` says what columns mean.",
        "",
        *_in_short(results),
        *_both_modes(results),
        "## All figures",
        "",
        *_selections(results),
        markdown_table(_COLUMNS, map(_row, results)),
        "",
        *_goals(results),
        *runs_markdown(runs),
    ]
    return "\n".join(lines)


def _in_short(results: Sequence[Result]) -> list[str]:
    """Returns the seconds of a few tasks in both modes, beside the peer's, and how many goals are met."""
    known = {(r.task, r.size, r.security): r for r in results if r.network == LOOPBACK}
    points = []
    for task, size, what in _FIRST:
        parts = []
        for mode in (SEMI_HONEST, MALICIOUS):
            if (found := known.get((task, size, mode))) is not None:
                peer = MP_SPDZ.get((task, size, mode))
                beside = f" (MP-SPDZ: {peer.seconds:.3g} s)" if peer else ""
                parts.append(f"{found.seconds:.2g} s {mode}{beside}")
        if parts:
            points.append(f"- {what}: {', '.join(parts)}.")
    if goals := judged(results):
        met = sum(one.met for one in goals)
        points.append(f"- Of {len(goals)} goals {met} are met.")
    return ["## In short", "", *points, ""] if points else []


def _selections(results: Sequence[Result]) -> list[str]:
    """Explains a selection's figures: its noise is not made for one selection alone."""
    if not any(result.task in ("select", "select_kept") for result in results):
        return []
    samples, spec = SELECTIONS * CANDIDATES, selection(1_000_000)
    own, shared = (sum(costs.gumbel(n).sent) / 3e3 for n in (CANDIDATES, samples))
    first, later, kept = (
        costs.select(spec.sizes, *bounds(spec), samples=made, kept=by_bits).rounds
        for made, by_bits in ((samples, False), (0, False), (0, True))
    )
    return [
        f"`select` and `select_kept`: means of {SELECTIONS} selections that share one batch of noise, as a run's do.",
        f"By `protocols.costs`, without proofs, the first of a batch has {first} rounds and makes {samples:,} samples,",
        f"{shared:,.0f} KB sent by the mean party; the others have {later} ({kept} from kept bits) and make none.",
        f"Rows of {first} rounds were measured with noise for each selection alone, {own:,.0f} KB.",
        "",
    ]


def _both_modes(results: Sequence[Result]) -> list[str]:
    """Lists semi-honest and malicious figures side by side for tasks measured in both, with MP-SPDZ's figures."""
    known = {(r.network, r.task, r.size, r.security): r for r in results}
    rows = []
    for (network, task, size, security), mine in known.items():
        proved = known.get((network, task, size, MALICIOUS))
        if security == SEMI_HONEST and proved is not None:
            rows.append(
                (
                    task,
                    network,
                    f"{size:,} {mine.unit}",
                    f"{mine.seconds:.4f}",
                    f"{proved.seconds:.4f}",
                    f"{proved.seconds / mine.seconds:.1f}",
                    f"{mine.bytes_per_party / size:.1f}",
                    f"{proved.bytes_per_party / size:.1f}",
                    f"{mine.rounds}",
                    f"{proved.rounds}",
                    *(_of_peer(network, task, size, mode) for mode in (SEMI_HONEST, MALICIOUS)),
                )
            )
    if not rows:
        return []
    return [
        "## Both security modes",
        "",
        "Seconds, bytes a unit and party, and rounds in semi-honest (SH) and malicious (M) mode, proofs",
        "included; and what MP-SPDZ's replicated rings took in the same setting, where that was measured.",
        "",
        markdown_table(_BOTH, rows),
        "",
    ]


def _of_peer(network: str, task: str, size: int, security: str) -> str:
    found = MP_SPDZ.get((task, size, security)) if network == LOOPBACK else None
    return "" if found is None else f"{found.seconds:.3g} s, {found.bytes_a_unit:,.0f} B"


def _goals(results: Sequence[Result]) -> list[str]:
    rows = []
    for one in judged(results):
        goal, met = one.goal, "yes" if one.met else "no"
        bound = f"{'at least' if goal.at_least else 'at most'} {_short(goal.limit)}"
        rows.append((goal.what, goal.network, bound, _short(one.figure), goal.peer, met))
    if not rows:
        return []
    shown = markdown_table("figure | network | goal | here | MP-SPDZ | met", rows)
    return ["## Against the goals", "", shown, ""]


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 or figure == int(figure) else f"{figure:.3g}"


def plot(results: Sequence[Result], path: Path) -> None:
    """Plots seconds against size for each task, with the floor and the peer."""
    # Imported here, since drawing takes a second to import.
    from bench.experiment.pictures import panels

    tasks = [task for task in TASKS if any(r.task == task for r in results)]
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    with panels(path, rows, columns, (4.2 * columns, 3.4 * rows)) as (_, places):
        every = [axis for row in places for axis in row]
        for axis in every[len(tasks) :]:
            axis.remove()
        for axis, task in zip(every, tasks, strict=False):
            of_task = sorted((r for r in results if r.task == task), key=lambda r: r.size)
            for network, marker in zip(NETWORKS, "osD", strict=True):
                mine = [r for r in of_task if r.network == network and r.security == SEMI_HONEST]
                if mine:
                    label = f"Syncret, {network}"
                    axis.plot(
                        [r.size for r in mine],
                        [r.seconds for r in mine],
                        marker,
                        ls="-",
                        label=label,
                    )
                proved = [r for r in of_task if r.network == network and r.security != SEMI_HONEST]
                if proved:
                    label = f"Syncret, {network}, malicious"
                    axis.plot(
                        [r.size for r in proved],
                        [r.seconds for r in proved],
                        marker,
                        ls=":",
                        label=label,
                    )
                if mine and network == LOOPBACK:
                    floor = [r.floor["seconds"] for r in mine]
                    axis.plot([r.size for r in mine], floor, "k--", lw=1, label="floor, loopback")
                    peers = {(r.peer.size, r.peer.seconds) for r in mine if r.peer is not None}
                    if peers:
                        axis.plot(*zip(*sorted(peers), strict=True), "rx", label="MPyC, loopback")
            axis.set(
                title=task, xscale="log", yscale="log", xlabel=TASKS[task].unit, ylabel="seconds"
            )
            axis.grid(alpha=0.3)
            axis.legend(fontsize=7)


def write(
    record: Mapping[str, object],
    results: Sequence[Result],
    folder: Path,
    runs: Sequence[Run] = (),
) -> None:
    """Writes engine.json, engine.md and engine.png to ``folder``, which is created if missing."""
    write_json(folder / "engine.json", record)
    publish(folder, parted("engine.md", markdown(record, results, runs), FRONT))
    plot(results, folder / "engine.png")
