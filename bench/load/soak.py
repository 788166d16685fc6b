"""Studies one after the other on three services, for as long as one likes: whether anything grows that should not.

Provides ``measure_soak`` and ``Soak``. Three `syncret serve` processes; each study is proposed by another of them with
`syncret study propose`, approved by all, submitted to by three owners, and run to its end. After each, once its
processes have gone, the services are looked at. Public; rows are random.
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
from bench.load.watch import Figures, figures
from parties.config import Config, load_config
from parties.local.processes import Child
from parties.mpc.submission.submit import submit
from parties.service.status_client import NotRunning
from parties.service.studies import StudyState

WARM_UP = 3
"""Studies after which a service has imported, opened and cached all that it will."""
GROWTH_KB, ROOM_MB = 40.0, 4.0
"""Of a service's memory in a study, at most, in the later half of them and once it has grown by some megabytes since
the warm-up: its caches fill in the earlier half, and it remembers every study in its book."""
WINDOW, SWING = 10, 1
"""Of a service's files and sockets, how far the median after the last studies may be above that after the first."""
CONNECTIONS = 8
"""Not counted among them: to each of the two others a service keeps one connection, or two if it once asked for two
things at once (`parties.service.peer_sync`), and so do they."""
_STEP_S, _LOOK_S = 120.0, 0.1
OnProgress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Looked:
    """A service after a study: its process, its study's processes that are left, TCP ports and its folder's size.

    ``files`` are its files and sockets, but for up to ``CONNECTIONS`` that are connected.
    """

    own: Figures
    files: int
    children: int
    listening: int
    folder_bytes: int


@dataclass(frozen=True, slots=True)
class Grown:
    """Of one service, from the end of the warm-up to the last study: figures then and now.

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
        """From what was seen after each study of the whole soak."""
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
        """What has grown."""
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
    """``studies`` in ``seconds``; the mean of the first and of the last five, in seconds; each of the services."""

    studies: int
    seconds: float
    first_s: float
    last_s: float
    services: tuple[Grown, ...] = field(default_factory=tuple)

    @property
    def problems(self) -> list[str]:
        """What has grown where."""
        return [
            f"{name}: {text}"
            for name, grown in zip(SERVICES, self.services, strict=True)
            for text in grown.problems
        ]

    def to_json(self) -> dict[str, object]:
        """For load.json."""
        return asdict(self)


async def measure_soak(
    folder: Path,
    *,
    minutes: float,
    studies: int | None = None,
    on_progress: OnProgress = lambda what, done: None,
) -> Soak:
    """Studies for so many ``minutes``, and ``studies`` at most, in the empty ``folder``.

    Raises RuntimeError where a service or a study fails, TimeoutError where one makes no progress.
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
        """`syncret serve`."""
        child = Child.start(name, self.trio.serve(name), log=self.folder / f"{name}.log")
        self._children[name] = child
        return child

    async def together(self) -> None:
        """Until each service has found the two others."""
        for name in SERVICES:
            await self._until(
                name, lambda status: all(peer["there"] for peer in status["peers"]), "together"
            )

    async def study(self, number: int) -> None:
        """One from its proposal to the end of its processes."""
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
        """Until a service's status has it. Raises RuntimeError, TimeoutError."""
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
    """Whether it has finished, and its process has gone. Raises RuntimeError where it has ended otherwise."""
    state = "" if study is None else study["state"]
    if state in (StudyState.FAILED, StudyState.CANCELLED):
        raise RuntimeError(f"a study: {study}")
    return study is not None and state == StudyState.FINISHED and study["process"] is None


_CONNECTED, _LISTENING = "01", "0A"


def _sockets(pid: int, state: str) -> int:
    """How many TCP sockets of it are in a state of the kernel's; one that its peer has closed is in another."""
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
    """How many files and sockets a service has after most of the studies."""
    return round(median(item.files for item in looks))


def _slope(values: Sequence[float]) -> float:
    """Of values that were seen one after the other, in their unit for each."""
    return float(np.polyfit(range(len(values)), values, 1)[0]) if len(values) > 1 else 0.0
