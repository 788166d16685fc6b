"""Resources of processes under load: memory, processor time, descriptors, threads (Linux, proc(5))."""

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Figures:
    """A process at one moment: resident memory, user and system seconds, open files and sockets, threads."""

    memory_bytes: int
    cpu_s: float
    descriptors: int
    threads: int


def figures(pid: int) -> Figures:
    """Returns the figures of a process. Raises OSError if there is none."""
    place = Path(f"/proc/{pid}")
    after_name = (place / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    cpu_s = (int(after_name[11]) + int(after_name[12])) * _TICKS_S
    pages, descriptors = int(after_name[21]), len(os.listdir(place / "fd"))
    return Figures(pages * _PAGE_BYTES, cpu_s, descriptors, int(after_name[17]))


@dataclass(slots=True)
class Watch:
    """Samples processes, by name, every ``every_s`` seconds while the block lasts; ``seen`` has time and figures."""

    pids: Mapping[str, int]
    every_s: float = 0.5
    seen: dict[str, list[tuple[float, Figures]]] = field(default_factory=dict)
    _looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.look()
        self._looking = asyncio.create_task(self._look_again())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        self.look()

    def look(self) -> None:
        """Takes one sample now; a process that has gone is left out."""
        for name, pid in self.pids.items():
            with contextlib.suppress(OSError, IndexError):
                self.seen.setdefault(name, []).append((time.monotonic(), figures(pid)))

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self.every_s)
            self.look()
