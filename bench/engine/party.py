"""One party process of an engine measurement: ``python -m bench.engine.party``, its orders as JSON on standard input.

A party runs as in production: mutual TLS, and a signed transcript in a file that hashes every message. The task's input
is made before the clock starts, and the parties meet before each repetition. The process prints one ``Report`` as JSON.
Benchmark data is public.
"""

import asyncio
import gc
import json
import math
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.engine import floor
from bench.engine.tasks import MALICIOUS, TASKS, Job
from bench.processes import forget_peak, memory
from bench.trial_servers import credentials
from protocols import cells
from protocols.context import Context
from protocols.frames import HEADER
from protocols.memory import keep_freed_memory
from protocols.runtime import PartyRuntime
from protocols.transcript import Transcript, Value
from protocols.verify import ProductVerifier

NAMES = ("party-0", "party-1", "party-2")
DEADLINE_S = 600.0
_POLL_S = 0.001
# Linux' struct tcp_info: bytes_sent and bytes_retrans, 64 bits each.
_TCP_INFO_BYTES = 216
_SENT_OFFSET = 200


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders of one party process; ``view`` and ``floor_view`` are the addresses of the mesh and the floor's ring.

    ``security`` is one of ``tasks.SECURITIES``; ``compare`` asks for turns with the paired task.
    """

    pid: int
    view: list[tuple[str, int]]
    floor_view: list[tuple[str, int]]
    folder: str
    task: str
    size: int
    repeat: int
    security: str
    compare: bool


@dataclass(frozen=True, slots=True)
class Report:
    """Measurements of a party: seconds by repetition, and bytes sent per repetition, as counted at three levels.

    ``payload_bytes`` are those of the per-step counters, ``frame_bytes`` those of the exchangers, ``wire_bytes`` the
    kernel's count on the TCP connections, all without the meetings between repetitions. ``cpu_s`` is processor time of
    all threads, in seconds. ``floor`` has seconds by part. ``turns`` are seconds of one execution of the task and of
    the paired task, in turns; none without a paired task.
    """

    seconds: list[float]
    cpu_s: float
    payload_bytes: float
    messages: float
    frame_bytes: float
    wire_bytes: float
    rounds: int
    peak_bytes: int
    floor: dict[str, float]
    turns: list[tuple[float, float]]


class CountingTranscript(Transcript):
    """A transcript that counts the messages handed to the kernel, by peer: one thread writes to each."""

    def __init__(
        self, path: Path, *, sign: Callable[[bytes], bytes], header: Mapping[str, Value]
    ) -> None:
        super().__init__(path, sign=sign, header=header)
        self.written = dict.fromkeys(range(3), 0)

    def message(
        self,
        *,
        step: str,
        round: int | None,
        direction: str,
        peer: int,
        label: int,
        size: int,
        digest: bytes,
    ) -> None:
        """Counts a message that was sent or received."""
        super().message(
            step=step,
            round=round,
            direction=direction,
            peer=peer,
            label=label,
            size=size,
            digest=digest,
        )
        if direction == "sent":
            self.written[peer] += 1


def main() -> None:
    """Reads the orders, works, and prints the report."""
    fields = json.load(sys.stdin)
    for name in ("view", "floor_view"):
        fields[name] = [(host, port) for host, port in fields[name]]
    keep_freed_memory()
    # As in a server, the garbage collector skips imported objects.
    gc.freeze()
    report = asyncio.run(_work(Orders(**fields)))
    sys.stdout.write(json.dumps(asdict(report)) + "\n")


async def _work(orders: Orders) -> Report:
    folder, name = Path(orders.folder), NAMES[orders.pid]
    tls, seals, sign = credentials(folder, orders.pid, NAMES)
    header: dict[str, Value] = {
        "run": "bench",
        "party": orders.pid,
        "task": orders.task,
        "size": orders.size,
    }
    recorder = CountingTranscript(folder / f"{name}.jsonl", sign=sign, header=header)
    runtime = PartyRuntime(
        orders.pid,
        orders.view,
        tls=tls,
        seals=seals,
        session="bench",
        timeout_s=DEADLINE_S,
        recorder=recorder,
    )
    async with runtime:
        report = await _repeat(runtime, recorder, orders)
        if orders.compare:
            report.turns.extend(await _turns(runtime.context(), orders))
        work = await _load(runtime.context(), orders, report)
    recorder.close()
    report.floor.update(floor.measure(orders.pid, orders.floor_view, tls, work))
    return report


async def _repeat(runtime: PartyRuntime, recorder: CountingTranscript, orders: Orders) -> Report:
    """Measures the task, after a small run of it that does all loading."""
    task, ctx = TASKS[orders.task], runtime.context()
    cells.load_for(orders.size)
    with ctx.step("warm") as c:
        await _run(orders, task.prepare(ctx.child(), min(orders.size, task.warm)), c)
    before = memory("VmRSS")
    job = task.prepare(ctx.child(), orders.size)
    forget_peak()
    meeting = await _meeting_wire_bytes(runtime, recorder)
    first, frames, wire = len(runtime.costs.steps), _frame_bytes(runtime), _wire_bytes()
    met = (ctx.cost.sent_bytes, ctx.cost.messages)
    seconds, busy, rounds = [], 0.0, 0.0
    for _ in range(orders.repeat):
        await _meet(ctx)
        started, used = time.perf_counter(), time.process_time()
        with ctx.step(orders.task) as c:
            await _run(orders, job, c)
        seconds.append((time.perf_counter() - started) / task.times)
        busy += time.process_time() - used
        rounds = (c.cost.rounds + c.cost.apart) / task.times
    peak = memory("VmHWM") - before
    await _meet(ctx)
    await _flushed(runtime, recorder)
    # Nested steps keep their own counts. There is one more meeting than repetitions between the readings.
    steps, meetings, done = (
        runtime.costs.steps[first:],
        orders.repeat + 1,
        orders.repeat * task.times,
    )
    met_frames = ctx.cost.sent_bytes - met[0] + HEADER.size * (ctx.cost.messages - met[1])
    return Report(
        seconds=seconds,
        cpu_s=busy / done,
        payload_bytes=sum(step.sent_bytes for step in steps) / done,
        messages=sum(step.messages for step in steps) / done,
        frame_bytes=(_frame_bytes(runtime) - frames - met_frames) / done,
        wire_bytes=(_wire_bytes() - wire - meetings * meeting) / done,
        rounds=math.ceil(rounds),
        peak_bytes=peak,
        floor={},
        turns=[],
    )


async def _turns(ctx: Context, orders: Orders) -> list[tuple[float, float]]:
    """Measures seconds of one execution of the task and of the paired task, in turns."""
    task = TASKS[orders.task]
    job, other = (one.prepare(ctx.child(), orders.size) for one in (task, TASKS[task.beside]))

    async def seconds(job: Job, times: int) -> float:
        await _meet(ctx)
        started = time.perf_counter()
        for _ in range(times):
            with ctx.step(orders.task) as c:
                await _run(orders, job, c)
        return (time.perf_counter() - started) / task.times

    # The first run of the paired task does all loading.
    await seconds(other, 1)
    return [(await seconds(job, 1), await seconds(other, task.times)) for _ in range(orders.repeat)]


async def _run(orders: Orders, job: Job, ctx: Context) -> None:
    """Runs the job; in malicious mode proves everything that the job multiplied, as before an opening."""
    if orders.security == MALICIOUS:
        ctx.verifier = ProductVerifier()
    await job(ctx)
    if ctx.verifier is not None:
        await ctx.verifier.settle(ctx)


async def _load(ctx: Context, orders: Orders, report: Report) -> floor.Load:
    """Returns the task's load at the mean party; the same at all three."""
    everyone = [
        json.loads(message)
        for message in await ctx.exchange(
            json.dumps([report.payload_bytes, report.rounds]).encode()
        )
    ]
    task = TASKS[orders.task]
    return floor.load(
        sent=int(sum(sent for sent, _ in everyone) / len(everyone)),
        rounds=max(rounds for _, rounds in everyone),
        held=task.held_bytes * orders.size,
        drawn=task.drawn_bytes * orders.size,
    )


async def _meet(ctx: Context) -> None:
    """Waits until all parties are here and earlier messages have arrived."""
    await ctx.exchange(b"ready")


async def _flushed(runtime: PartyRuntime, recorder: CountingTranscript) -> None:
    """Waits until the kernel has everything that this party has sent."""
    costs = [runtime.context().cost, *runtime.costs.steps]
    posted = sum(cost.messages for cost in costs)
    while sum(recorder.written.values()) < posted:  # noqa: ASYNC110  # the writing threads know no event
        await asyncio.sleep(_POLL_S)


async def _meeting_wire_bytes(runtime: PartyRuntime, recorder: CountingTranscript) -> int:
    """Returns the bytes that one meeting sends, by the kernel's count."""
    await _flushed(runtime, recorder)
    before = _wire_bytes()
    await _meet(runtime.context())
    await _flushed(runtime, recorder)
    return _wire_bytes() - before


def _frame_bytes(runtime: PartyRuntime) -> int:
    others = (party for party in runtime.parties if party.pid != runtime.pid)
    return sum(int(party.protocol.nbytes_sent) for party in others)


def _wire_bytes() -> int:
    """Returns the bytes sent on this process's TCP connections by the kernel's count: TLS records, no retransmissions.

    The count goes over all descriptors, not over the engine's list, so that no connection is left out.
    """
    total = 0
    for entry in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(int(entry)).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(entry)))
        except OSError:
            continue  # The listing's own descriptor is closed by now.
        with copy:
            internet = copy.family in (socket.AF_INET, socket.AF_INET6)
            if internet and copy.type == socket.SOCK_STREAM:
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                sent, again = struct.unpack_from("=QQ", info, _SENT_OFFSET)
                total += sent - again
    return total


if __name__ == "__main__":
    main()
