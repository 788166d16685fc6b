"""Three servers under many owners, a part of which sends garbage: accepted per second, and outcomes of each.

Three `syncret serve study` processes take uploads by rows, meet over them while they come, count them in the end and
finish the run; processes of `bench.load.fleet` play the owners. The owners counted in the servers' own results are
compared with the owners that have receipts. All values here are public. Known limits: owners and servers share the
processors.
"""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.children import last_word, start_child
from bench.load.fleet import DONE, PLAYED, READY, Job, Played
from bench.load.garbage import KINDS
from bench.load.study import Servers, Study
from bench.load.watch import Watch
from bench.processes import Figures

_FLEET = "bench.load.fleet"
_PER_OWNER_S = 1.0
"""Largest seconds per owner of any step, besides a minute for the rest."""
_LINE_BYTES = 1 << 28
SUBMIT_S = 30.0
OnProgress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class OwnersLoad:
    """Outcome of ``owners`` honest ones and ``garbage`` pieces besides.

    ``per_second`` accepted, from the first connection to the last receipt, and ``per_second_by_quarter`` of them;
    ``latency_s`` of an honest owner: median, 99 of 100, most. ``lost`` have receipts and were not counted, ``twice``
    were counted more than once, ``uninvited`` were counted and sent garbage. ``unexpected`` ends of garbage have the
    wrong status. ``counting_s``: from the last receipt to the run's end. Of each server: processor milliseconds per
    accepted owner, memory when the first quarter was in, at the end of the intake and at most, files and sockets at
    the start, at most and 2 s after the intake, threads at most.
    """

    owners: int
    garbage: int
    at_once: int
    accepted: int
    seconds: float
    per_second: float
    per_second_by_quarter: tuple[float, ...]
    latency_s: tuple[float, float, float]
    retries: int
    failed: dict[str, str]
    counted: int
    lost: int
    twice: int
    uninvited: int
    garbage_ends: dict[str, dict[str, int]]
    unexpected: int
    counting_s: float
    server_cpu_ms: tuple[float, ...]
    owners_cpu_ms: float
    memory_mb: tuple[tuple[float, float, float], ...]
    descriptors: tuple[tuple[int, int, int], ...]
    threads: tuple[int, ...]

    @property
    def problems(self) -> list[str]:
        """Descriptions of what should not be."""
        said = {
            "honest owners were not accepted": len(self.failed),
            "owners with receipts were not counted": self.lost,
            "owners were counted twice": self.twice,
            "senders of garbage were counted": self.uninvited,
            "pieces of garbage were answered as they should not be": self.unexpected,
        }
        return [f"{count} {what}" for what, count in said.items() if count]

    def to_json(self) -> dict[str, object]:
        """Returns the fields for load.json."""
        return asdict(self)


async def measure_owners(
    folder: Path,
    *,
    owners: int,
    garbage: float,
    at_once: int,
    processes: int,
    submit_s: float = SUBMIT_S,
    on_progress: OnProgress = lambda what, done: None,
) -> OwnersLoad:
    """Measures ``owners`` honest ones and a fraction of ``garbage`` besides, in the empty ``folder``.

    ``processes`` play them, ``at_once`` of them all at a time; each has ``submit_s`` seconds, and slow ones take twice
    as long. Raises RuntimeError if a process fails, TimeoutError.
    """
    limit_s = 60 + _PER_OWNER_S * owners
    pieces = round(owners * garbage / (1 - garbage))
    study = Study.make(folder, owners + pieces, submit_s)
    jobs = _jobs(study, owners, pieces, at_once, processes)
    async with _fleets(jobs, limit_s, on_progress) as fleets, study.servers() as servers:
        pids = {child.name: child.pid for child in servers.children}
        async with Watch(pids) as watch:
            played = await _played(fleets, servers, limit_s, on_progress)
            ended = max((at for one in played for at in one.accepted.values()), default=0.0)
            await asyncio.sleep(2)
        on_progress("counting", 0)
        begun = time.monotonic()
        await servers.finish(limit_s)
        counting_s = time.monotonic() - begun
    counted = [study.counted(pid) for pid in range(3)]
    return judged(played, counted, watch, ended, at_once=at_once, counting_s=counting_s)


def _jobs(study: Study, owners: int, pieces: int, at_once: int, processes: int) -> list[Job]:
    kinds = list(KINDS)
    honest = [f"owner-{number}" for number in range(owners)]
    senders = [(f"other-{number}", kinds[number % len(kinds)]) for number in range(pieces)]
    return [
        Job(
            str(study.folder / "config.toml"),
            str(study.certificates),
            tuple(honest[place::processes]),
            tuple(senders[place::processes]),
            max(1, at_once // processes),
        )
        for place in range(processes)
    ]


class _Player:
    """A process of `bench.load.fleet`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.done = 0

    def tell(self, line: str) -> None:
        if self.process.stdin is not None:
            self.process.stdin.write(line.encode() + b"\n")

    async def hear(self, key: str) -> Any:
        """Returns the process's output under ``key``. Raises RuntimeError if the process ends before."""
        while self.process.stdout is not None and (line := await self.process.stdout.readline()):
            said = json.loads(line)
            if key in said:
                return said[key]
            self.done = said.get(DONE, self.done)
        _, errors = await self.process.communicate()
        raise RuntimeError(f"owners' process: {last_word(errors.decode(errors='replace'))}")


@contextlib.asynccontextmanager
async def _fleets(
    jobs: Sequence[Job], limit_s: float, on_progress: OnProgress
) -> AsyncIterator[list[_Player]]:
    """Starts the owners' processes, and waits until they are prepared."""
    on_progress("preparing", 0)
    # The limit is large because the answer is one long line.
    players: list[_Player] = []
    try:
        for job in jobs:
            players.append(_Player(await start_child(_FLEET, limit=_LINE_BYTES)))
            players[-1].tell(json.dumps(asdict(job)))
        async with asyncio.timeout(limit_s):
            await asyncio.gather(*(player.hear(READY) for player in players))
        yield players
    finally:
        for player in players:
            if player.process.returncode is None:
                player.process.kill()
        await asyncio.gather(*(player.process.communicate() for player in players))


async def _played(
    fleets: Sequence[_Player], servers: Servers, limit_s: float, on_progress: OnProgress
) -> list[Played]:
    """Returns the owners' outcomes, when all are through."""
    for fleet in fleets:
        fleet.tell("go")
    hearing = asyncio.gather(*(fleet.hear(PLAYED) for fleet in fleets))
    try:
        async with asyncio.timeout(limit_s):
            while not (await asyncio.wait([hearing], timeout=0.5))[0]:
                servers.check()
                on_progress("accepted", sum(fleet.done for fleet in fleets))
        return [Played(**said) for said in hearing.result()]
    finally:
        hearing.cancel()


def judged(
    played: Sequence[Played],
    counted: Sequence[Sequence[str]],
    watch: Watch,
    ended: float,
    *,
    at_once: int,
    counting_s: float,
) -> OwnersLoad:
    """Combines the reports of the owners' processes and of the servers; ``ended`` is the time of the last receipt."""
    accepted = {name: at for one in played for name, at in one.accepted.items()}
    failed = {name: why for one in played for name, why in one.failed.items()}
    times = np.sort(np.array([*accepted.values()]))
    started, seconds = (
        min(one.started for one in played),
        np.array([one_s for one in played for one_s in one.seconds]),
    )
    quarters = np.array_split(times, 4)
    borders = [started, *(quarter[-1] for quarter in quarters)]
    seen = [watch.seen[name] for name in sorted(watch.seen)]
    first = float(borders[1])
    ends = _ends(played)
    return OwnersLoad(
        owners=len(accepted) + len(failed),
        garbage=sum(sum(by.values()) for by in ends.values()),
        at_once=at_once,
        accepted=len(accepted),
        seconds=ended - started,
        per_second=len(accepted) / (ended - started),
        per_second_by_quarter=tuple(
            len(quarter) / (end - begin)
            for quarter, begin, end in zip(quarters, borders, borders[1:], strict=False)
        ),
        latency_s=(
            float(np.median(seconds)),
            float(np.quantile(seconds, 0.99)),
            float(seconds.max()),
        ),
        retries=sum(one.retries for one in played),
        failed=failed,
        counted=len(counted[0]),
        lost=sum(len(accepted.keys() - set(names)) for names in counted),
        twice=sum(len(names) - len(set(names)) for names in counted),
        uninvited=sum(len(set(names) - accepted.keys() - failed.keys()) for names in counted),
        garbage_ends=ends,
        unexpected=sum(
            count
            for kind, by in ends.items()
            for end, count in by.items()
            if end not in KINDS[kind].expected
        ),
        counting_s=counting_s,
        server_cpu_ms=tuple(
            1e3 * (_at(one, ended).cpu_s - one[0][1].cpu_s) / len(accepted) for one in seen
        ),
        owners_cpu_ms=1e3 * sum(one.cpu_s for one in played) / len(accepted),
        memory_mb=tuple(
            (
                _at(one, first).memory_bytes / 1e6,
                _at(one, ended).memory_bytes / 1e6,
                max(item.memory_bytes for _, item in one) / 1e6,
            )
            for one in seen
        ),
        descriptors=tuple(
            (one[0][1].descriptors, max(i.descriptors for _, i in one), one[-1][1].descriptors)
            for one in seen
        ),
        threads=tuple(max(item.threads for _, item in one) for one in seen),
    )


def _at(seen: Sequence[tuple[float, Figures]], time: float) -> Figures:
    """Returns the figures of the first sample after ``time``."""
    return next((item for at, item in seen if at >= time), seen[-1][1])


def _ends(played: Sequence[Played]) -> dict[str, dict[str, int]]:
    """Returns the number of each ending, by kind of garbage."""
    return {
        kind: dict(sum((Counter(one.garbage.get(kind, {})) for one in played), Counter()))
        for kind in KINDS
    }
