"""Long or large runs: many rounds, many clients, many rows, many columns. Seconds and memory of each.

Each run is an ordinary command, `syncret run` or `syncret run --method flaim`, on a generated table; its processes are
sampled together while it runs. All values here are public; the table is random. Known limits: memory used between two
samples is missed, and shared memory counts for each process.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.processes import figures
from mechanisms.domain import Domain, Integer
from parties.config import Config, config_from_dict
from parties.local.processes import Child

CODES = 8
_LOOK_S = 0.5
_BLOCK = 1 << 16
OnProgress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """A run's size: ``clients`` who share ``rows`` of ``columns`` with 8 codes each, and ``rounds``.

    ``iterations`` fit the model after a round, 10 times as many at the end.
    """

    method: str
    clients: int
    rounds: int
    rows: int
    columns: int
    epsilon: float = 1.0
    participation: float = 1.0
    iterations: int = 100


@dataclass(frozen=True, slots=True)
class Kind:
    """A dimension to enlarge: the meaning of ``size``, its value in full, and the resulting shape."""

    size: str
    whole: int
    shape: Callable[[int], Shape]


DISTAIM, FLAIM = "run", "flaim"
"""Commands."""


def _fleet(clients: int) -> Shape:
    """Returns the shape of many clients with few rows; the model costs little, since the clients are measured."""
    return Shape(
        FLAIM,
        clients,
        100,
        5 * clients,
        8,
        epsilon=10.0,
        participation=max(0.01, 5 / clients),
        iterations=5,
    )


def _rounds(rounds: int) -> Shape:
    """Returns the shape of many rounds; the model costs little, since the servers are measured."""
    return Shape(DISTAIM, 20, rounds, 20_000, 12, epsilon=10.0, iterations=5)


KINDS: Mapping[str, Kind] = {
    "rounds": Kind("rounds of DistAIM", 200, _rounds),
    "clients": Kind(
        "clients of FLAIM, a hundredth of them in each of 100 rounds",
        10_000,
        _fleet,
    ),
    "rows": Kind("rows, counted by owners", 10**7, lambda n: Shape(DISTAIM, 10, 3, n, 4)),
    "columns": Kind("columns", 200, lambda n: Shape(DISTAIM, 10, 10, 20_000, n)),
}


@dataclass(frozen=True, slots=True)
class Long:
    """A finished run of a ``kind`` and ``size``: its shape, seconds, and the resources of its processes.

    ``peak_mb`` is of all its processes together in one sample, ``largest_mb`` of the largest; ``cpu_s`` the processor
    time of all as far as it was sampled; ``processes`` and ``descriptors`` (of one process) are maxima.
    """

    kind: str
    size: int
    shape: Shape
    seconds: float
    peak_mb: float
    largest_mb: float
    cpu_s: float
    processes: int
    descriptors: int

    def to_json(self) -> dict[str, object]:
        """Returns the fields for load.json."""
        return asdict(self)


async def measure_long(
    kind: str,
    size: int,
    folder: Path,
    *,
    limit_s: float,
    on_progress: OnProgress = lambda what, done: None,
) -> Long:
    """Runs ``kind`` in the empty ``folder``. Raises RuntimeError if it fails, TimeoutError after ``limit_s``."""
    shape = KINDS[kind].shape(size)
    on_progress("table", 0)
    await asyncio.to_thread(_write_table, folder / "table.csv", shape)
    config = folder / "config.toml"
    config.write_text(_config(shape).resolved_toml(), encoding="utf-8")
    arguments = [shape.method, str(config), "--data", str(folder / "table.csv")]
    # No --json: nobody reads the child's standard output, and a report of 10,000 clients is more than a pipe holds.
    arguments += ["--clients", str(shape.clients), "--out", str(folder / "run")]
    started, seen = time.monotonic(), _Seen()
    child = Child.start(f"syncret {shape.method}", arguments, log=folder / "log.txt")
    try:
        async with asyncio.timeout(limit_s):
            while child.running:
                seen.look(child.pid)
                on_progress("running", _rounds_done(folder / "log.txt"))
                await asyncio.sleep(_LOOK_S)
        if await child.wait() != 0:
            raise RuntimeError(child.describe_end())
    finally:
        await child.stop()
    report = json.loads((folder / "run" / "report.json").read_text(encoding="utf-8"))
    if not report:
        raise RuntimeError("the run has left no report")
    return Long(
        kind,
        size,
        shape,
        time.monotonic() - started,
        seen.peak_bytes / 1e6,
        seen.largest_bytes / 1e6,
        sum(seen.cpu_s.values()),
        seen.processes,
        seen.descriptors,
    )


class _Seen:
    """Maxima of a process and its descendants, over all samples."""

    def __init__(self) -> None:
        self.peak_bytes = self.largest_bytes = self.processes = self.descriptors = 0
        self.cpu_s: dict[int, float] = {}

    def look(self, pid: int) -> None:
        """Takes one sample now."""
        sizes = []
        for one in _family(pid):
            with contextlib.suppress(OSError, IndexError):
                found = figures(one)
                sizes.append(found.memory_bytes)
                self.cpu_s[one] = found.cpu_s
                self.descriptors = max(self.descriptors, found.descriptors)
        self.processes = max(self.processes, len(sizes))
        self.peak_bytes = max(self.peak_bytes, sum(sizes))
        self.largest_bytes = max(self.largest_bytes, *sizes, 0)


def _family(pid: int) -> list[int]:
    """Returns a process and its descendants."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                children = Path(f"/proc/{one}/task/{task}/children").read_text(encoding="ascii")
                found += [int(child) for child in children.split()]
    return found


def _rounds_done(log: Path) -> int:
    try:
        return log.read_bytes().count(b" done\n")
    except OSError:
        return 0


def _write_table(path: Path, shape: Shape) -> None:
    """Writes random rows with dependent columns: half of a row's values are one common value."""
    generator = np.random.default_rng(1)
    with path.open("wb") as file:
        file.write(",".join(_names(shape)).encode() + b"\n")
        for start in range(0, shape.rows, _BLOCK):
            count = min(_BLOCK, shape.rows - start)
            size = (count, shape.columns)
            common = generator.integers(0, CODES, (count, 1), np.uint8)
            own = generator.integers(0, CODES, size, np.uint8)
            codes = np.where(generator.random(size) < 0.5, common, own)
            # One digit and a separator for each value.
            text = np.full((count, 2 * shape.columns), ord(","), np.uint8)
            text[:, ::2] = codes + ord("0")
            text[:, -1] = ord("\n")
            file.write(text.tobytes())


def _names(shape: Shape) -> list[str]:
    return [f"c{number}" for number in range(shape.columns)]


def _config(shape: Shape) -> Config:
    document: dict[str, object] = {
        "run": {
            "id": "long",
            "epsilon": shape.epsilon,
            "delta": 1e-9,
            "rounds": shape.rounds,
            "rows": 1000,
            "iterations": shape.iterations,
            "final_iterations": 10 * shape.iterations,
        },
        "clients": {
            "expected": shape.clients,
            "rows_per_client": -(-shape.rows // shape.clients),
            "participation": shape.participation,
        },
        **({"flaim": {"variant": "private"}} if shape.method == FLAIM else {}),
        **Domain(tuple(Integer(name, 0, CODES - 1, CODES) for name in _names(shape))).to_dict(),
    }
    return config_from_dict(document, source="long", base=Path())
