"""Figures of the bridge from MPyC programs: its protocols beside MPyC's own types, on the same secure numbers.

    python -m bench.mpyc_bridge -M3 --no-log

Party 0 prints a table in Markdown: rounds, bytes that the mean party sends by MPyC's own counters, and seconds,
conversions included. MPyC's programs are those of ``bench.engine.peer``; MPyC counts no rounds. Connections are plain
TCP on loopback for both. Data is generated and public.
"""

import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.engine.peer import CANDIDATES, GROUPS, PROGRAMS, SIGMA
from protocols.mpyc_bridge import Bridge, ErrorSelection, open_bridge

REPEAT = 3
MAX_ROWS = 10_000
"""Bound of all counts here, which are ones."""
OWN_ONCE = {"measure", "discrete_gaussian"}
"""Tasks that MPyC's types take long for, and run once."""

Task = Callable[[Bridge, Any, int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Figures:
    """Rounds (0 where nobody counts them), bytes sent by this party, and seconds, the median of several runs."""

    rounds: int
    sent_bytes: int
    seconds: float


def _groups(size: int, count: int) -> list[int]:
    ends = np.linspace(0, size, min(count, size) + 1).astype(int)
    return [int(n) for n in np.diff(ends)]


async def to_share(bridge: Bridge, x: Any, size: int) -> object:
    """Converts counts to shares, in one round."""
    return await bridge.to_share(x, bits=MAX_ROWS.bit_length() + 1)


async def to_share_exactly(bridge: Bridge, x: Any, size: int) -> object:
    """Converts all 32 bits of counts to shares, without a distance."""
    return await bridge.to_share(x)


async def there_and_back(bridge: Bridge, x: Any, size: int) -> object:
    """Converts counts to shares and back."""
    bits = MAX_ROWS.bit_length() + 1
    return await bridge.to_secure(
        await bridge.to_share(x, bits=bits), bridge.mpc.SecInt(32), bits=bits
    )


async def abs_error(bridge: Bridge, x: Any, size: int) -> object:
    """Computes sums of |x - y| in 64 groups, as secure numbers."""
    answers = (np.arange(size) * 7919 % 1000).astype(np.uint32)
    sizes = np.array(_groups(size, GROUPS))
    return await bridge.absolute_error(x, answers, sizes, max_rows=MAX_ROWS)


async def select(bridge: Bridge, x: Any, size: int) -> object:
    """Runs the exponential mechanism over the errors of 250 groups, and opens the index."""
    answers = [[1.5] * cells for cells in _groups(size, CANDIDATES)]
    return await bridge.select(x, ErrorSelection.of(answers, epsilon=1.0, max_rows=MAX_ROWS))


async def measure(bridge: Bridge, x: Any, size: int) -> object:
    """Opens counts with discrete Gaussian noise."""
    return await bridge.measure(x, sigma=SIGMA, max_rows=MAX_ROWS)


async def discrete_gaussian(bridge: Bridge, x: Any, size: int) -> object:
    """Draws discrete Gaussian samples, as secure numbers."""
    return await bridge.discrete_gaussian(bridge.mpc.SecInt(32), size, sigma=SIGMA)


async def box_muller(bridge: Bridge, x: Any, size: int) -> object:
    """Draws Gaussian samples by Box-Muller, as secure numbers."""
    return await bridge.box_muller(bridge.mpc.SecFxp(48, 24), size)


TASKS: dict[str, tuple[Task, int]] = {
    "to_share": (to_share, 10_000),
    "to_share_exactly": (to_share_exactly, 10_000),
    "there_and_back": (there_and_back, 10_000),
    "abs_error": (abs_error, 10_000),
    "select": (select, 10_000),
    "measure": (measure, 100),
    "discrete_gaussian": (discrete_gaussian, 100),
    "box_muller": (box_muller, 1_000),
}
"""Tasks of the bridge, with their numbers of cells or samples."""


async def _ours(bridge: Bridge, mpc: Any, task: str) -> Figures:
    run, size = TASKS[task]
    x = mpc.input(mpc.SecInt(32).array(np.ones(size, dtype=object)), senders=0)
    await mpc.gather(x)
    seconds, counted = [], (0, 0)
    for _ in range(REPEAT):
        await mpc.barrier()
        rounds, sent, started = bridge.rounds, _sent_bytes(mpc), time.perf_counter()
        await run(bridge, x, size)
        seconds.append(time.perf_counter() - started)
        counted = bridge.rounds - rounds, _sent_bytes(mpc) - sent
    return Figures(*counted, statistics.median(seconds))


async def _theirs(mpc: Any, task: str) -> Figures | None:
    if task not in PROGRAMS:
        return None
    prepare, program = PROGRAMS[task]
    size = TASKS[task][1]
    x = prepare(mpc, size)
    if x is not None:
        await mpc.gather(x)
    seconds, sent = [], 0
    for _ in range(1 if task in OWN_ONCE else REPEAT):
        await mpc.barrier()
        before, started = _sent_bytes(mpc), time.perf_counter()
        await program(mpc, x, size)
        seconds.append(time.perf_counter() - started)
        sent = _sent_bytes(mpc) - before
    return Figures(0, sent, statistics.median(seconds))


def _sent_bytes(mpc: Any) -> int:
    return sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)


def _cells(figures: Figures | None, sent: float) -> str:
    if figures is None:
        return "| | "
    return f"| {sent / 1000:,.0f} | {figures.seconds:.2g} "


async def _mean_bytes(mpc: Any, figures: Figures | None) -> float:
    if figures is None:
        return 0.0
    sent: list[int] = await mpc.output(
        mpc.input(mpc.SecInt(64)(figures.sent_bytes)), receivers=list(range(3))
    )
    return sum(map(int, sent)) / 3


async def _measure(mpc: Any, names: list[str]) -> None:
    rows = []
    async with mpc:
        bridge = await open_bridge(mpc)
        for task in names:
            ours, theirs = await _ours(bridge, mpc, task), await _theirs(mpc, task)
            sent = [await _mean_bytes(mpc, figures) for figures in (ours, theirs)]
            row = f"| `{task}`, {TASKS[task][1]:,} "
            row += f"| {ours.rounds} {_cells(ours, sent[0])}{_cells(theirs, sent[1])}|"
            rows.append(row)
    if mpc.pid == 0:
        head = "| task | rounds | KB | seconds | MPyC's types: KB | seconds |"
        sys.stdout.write("\n".join((head, "| --- " * 6 + "|", *rows)) + "\n")


def main() -> None:
    """Runs the tasks named on the command line, or all; the other options are MPyC's."""
    from mpyc.runtime import mpc  # Takes its options off the command line.

    mpc.run(_measure(mpc, sys.argv[1:] or list(TASKS)))


if __name__ == "__main__":
    main()
