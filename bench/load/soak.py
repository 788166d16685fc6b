"""Studies one after the other on three services, for any time, to find resources that grow.

Three `syncret serve` processes; each study is proposed by another of them with `syncret study propose`, approved by
all, submitted to by three owners, and run to its end. After each, once its processes have gone, the services are
sampled. All values here are public; rows are random.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.load.services import (
    OWNERS,
    SERVICES,
    Trio,
    children,
    rows_of,
    study_config,
    study_of,
)
from bench.processes import Figures, figures
from parties.config import Config, load_config
from parties.local.processes import Child
from parties.mpc.submission.submit import submit
from parties.service.status_client import NotRunning
from parties.service.study_record import StudyState

WARM_UP = 3
"""Number of studies after which a service has imported, opened and cached everything."""
GROWTH_KB, ROOM_MB = 40.0, 4.0
"""Largest growth of a service's memory per study, in kB, over the later half of the studies, once it has grown by
``ROOM_MB`` since the warm-up: its caches fill in the earlier half, and its event log remembers every study.
"""
WINDOW, SWING = 10, 1
"""Largest growth of the median of a service's files and sockets, from the first to the last ``WINDOW`` studies."""
CONNECTIONS = 8
"""Connections that do not count as files: to each of the two others a service keeps one, or two after asking for two
things at once (`parties.service.peer_sync`), and so do the others.
"""
_STEP_S, _LOOK_S = 120.0, 0.1
OnProgress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Looked:
    """Sample of a service after a study: its process, its study's remaining processes, TCP ports and its folder's size.

    ``files`` counts its files and sockets, except up to ``CONNECTIONS`` connected ones.
    """

    own: Figures
    files: int
    children: int
    listening: int
    folder_bytes: int


@dataclass(frozen=True, slots=True)
class Grown:
    """Figures of one service, from the end of the warm-up to the last study: then and now.

    ``memory_mb`` are five, evenly apart; ``kb_per_study`` is the memory's slope, by least squares over the later half,
    ``folder_kb_per_study`` that of its folder over all: transcripts and results stay (`settings.toml`, [keep]).
    ``descriptors`` are medians over ``WINDOW`` studies, ``threads`` the most over them.
    """

    memory_mb: tuple[float, ...]
    kb_per_study: float
    descriptors: tuple[int, int]
    threads: tuple[int, int]
    children: tuple[int, int]
    listening: tuple[int, int]
    folder_kb_per_study: float

    @classmethod
    def of(cls, looks: Sequence[Looked]) -> "Grown":
        """Computes the figures from the samples after each study of the whole soak."""
        seen = looks[min(WARM_UP, len(looks)) - 1 :]
        first, last = seen[0], seen[-1]
        early, late = seen[:WINDOW], seen[-WINDOW:]
        quarters = (seen[round(part / 4 * (len(seen) - 1))] for part in range(5))
        return cls(
            tuple(item.own.memory_bytes / 1e6 for item in quarters),
            _slope([item.own.memory_bytes / 1e3 for item in seen[len(seen) // 2 :]]),
            (_usual(early), _usual(late)),
            (max(item.own.threads for item in early), max(item.own.threads for item in late)),
            (first.children, last.children),
            (first.listening, last.listening),
            _slope([item.folder_bytes / 1e3 for item in seen]),
        )

    @property
    def problems(self) -> list[str]:
        """Descriptions of resources that have grown."""
        pairs = {
            "files and sockets": (self.descriptors, SWING),
            "processes": (self.children, 0),
            "ports": (self.listening, 0),
            "threads": (self.threads, 0),
        }
        grown = [
            f"{what}: {a}, then {b}" for what, ((a, b), swing) in pairs.items() if b > a + swing
        ]
        grew_mb = self.memory_mb[-1] - self.memory_mb[0]
        if self.kb_per_study > GROWTH_KB and grew_mb > ROOM_MB:
            grown.append(f"memory: {self.kb_per_study:.0f} KB a study")
        return grown


@dataclass(frozen=True, slots=True)
class Soak:
    """``studies`` in ``seconds``; mean seconds of the first five and of the last five; growth of each service."""

    studies: int
    seconds: float
    first_s: float
    last_s: float
    services: tuple[Grown, ...] = field(default_factory=tuple)

    @property
    def problems(self) -> list[str]:
        """Descriptions of resources that have grown, with the service's name."""
        return [
            f"{name}: {text}"
            for name, grown in zip(SERVICES, self.services, strict=True)
            for text in grown.problems
        ]

    def to_json(self) -> dict[str, object]:
        """Returns the fields for load.json."""
        return asdict(self)


async def measure_soak(
    folder: Path,
    *,
    minutes: float,
    studies: int | None = None,
    on_progress: OnProgress = lambda what, done: None,
) -> Soak:
    """Runs studies for ``minutes``, and ``studies`` at most, in the empty ``folder``.

    Raises RuntimeError if a service or a study fails, TimeoutError if one makes no progress.
    """
    soak = _Soaking(folder)
    began, took = time.monotonic(), list[float]()
    async with AsyncExitStack() as exits:
        for name in SERVICES:
            exits.push_async_callback(soak.start(name).stop)
        await soak.together()
        for number in itertools.count():
            over = time.monotonic() > began + 60 * minutes
            if (over and number >= WARM_UP) or number == studies:
                break
            started = time.monotonic()
            await soak.study(number)
            took.append(time.monotonic() - started)
            on_progress("studies", number + 1)
    return Soak(
        len(took),
        time.monotonic() - began,
        float(np.mean(took[:5])),
        float(np.mean(took[-5:])),
        tuple(Grown.of(soak.looks[name]) for name in SERVICES),
    )


class _Soaking:
    """Three services at work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trio = Trio(folder)
        self.looks: dict[str, list[Looked]] = {name: [] for name in SERVICES}
        self._children: dict[str, Child] = {}

    def start(self, name: str) -> Child:
        """Starts `syncret serve`."""
        child = Child.start(name, self.trio.serve(name), log=self.folder / f"{name}.log")
        self._children[name] = child
        return child

    async def together(self) -> None:
        """Waits until each service has found the two others."""
        for name in SERVICES:
            await self._until(
                name, lambda status: all(peer["there"] for peer in status["peers"]), "together"
            )

    async def study(self, number: int) -> None:
        """Runs one study from its proposal to the end of its processes."""
        config = await self._proposed(f"soak-{number}", SERVICES[number % 3])
        digest = config.digest()
        for name in SERVICES:
            await self._until(name, lambda status: study_of(status, digest), "proposed")
            self.trio.ask(name, "POST", f"/studies/{digest}/approve", {"digest": digest})
        await asyncio.gather(*(self._submitted(config, place) for place in range(len(OWNERS))))
        for name in SERVICES:
            await self._until(name, lambda status: _is_over(study_of(status, digest)), "finished")
            self.looks[name].append(self._looked(name))

    async def _proposed(self, run: str, by: str) -> Config:
        path, out = self.folder / f"{run}.toml", self.folder / f"study-{run}"
        path.write_text(study_config(run).resolved_toml(), encoding="utf-8")
        arguments, log = self.trio.propose(path, by, out), self.folder / "propose.log"
        child = Child.start("syncret study propose", arguments, log=log)
        try:
            async with asyncio.timeout(_STEP_S):
                if await child.wait() != 0:
                    raise RuntimeError(child.describe_end())
        finally:
            await child.stop()
        return load_config(out / path.name)

    async def _submitted(self, config: Config, place: int) -> None:
        await submit(config, rows_of(place), self.trio.certificates(OWNERS[place]), first_round=1)

    async def _until(self, name: str, holds: Callable[[dict[str, Any]], object], what: str) -> None:
        """Waits until a service's status satisfies ``holds``. Raises RuntimeError, TimeoutError."""
        try:
            async with asyncio.timeout(_STEP_S):
                while not self._holds(name, holds):
                    if not self._children[name].running:
                        raise RuntimeError(self._children[name].describe_end())
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError as error:
            raise TimeoutError(f"{name}: not {what} in {_STEP_S:g} s") from error

    def _holds(self, name: str, holds: Callable[[dict[str, Any]], object]) -> bool:
        try:
            return bool(holds(self.trio.ask(name, "GET", "/status")))
        except NotRunning:
            return False

    def _looked(self, name: str) -> Looked:
        pid = self._children[name].pid
        own, connected = figures(pid), _sockets(pid, _CONNECTED)
        files = own.descriptors - min(connected, CONNECTIONS)
        listening = _sockets(pid, _LISTENING)
        return Looked(own, files, len(children(pid)), listening, _bytes(self.folder / name))


def _is_over(study: dict[str, Any] | None) -> bool:
    """Returns True if a study has finished, and its process has gone. Raises RuntimeError for another end."""
    state = "" if study is None else study["state"]
    if state in (StudyState.FAILED, StudyState.CANCELLED):
        raise RuntimeError(f"a study: {study}")
    return study is not None and state == StudyState.FINISHED and study["process"] is None


_CONNECTED, _LISTENING = "01", "0A"


def _sockets(pid: int, state: str) -> int:
    """Counts a process's TCP sockets in a state of the kernel's; a socket closed by its peer has another state."""
    rows = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    found = {fields[9] for fields in (row.split() for row in rows) if fields[3] == state}
    links = (_link(Path(f"/proc/{pid}/fd/{number}")) for number in os.listdir(f"/proc/{pid}/fd"))
    return sum(link.removeprefix("socket:[").removesuffix("]") in found for link in links)


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def _usual(looks: Sequence[Looked]) -> int:
    """Returns the median number of files and sockets of a service."""
    return round(median(item.files for item in looks))


def _slope(values: Sequence[float]) -> float:
    """Returns the slope of values sampled one after the other, in their unit per value."""
    return float(np.polyfit(range(len(values)), values, 1)[0]) if len(values) > 1 else 0.0
