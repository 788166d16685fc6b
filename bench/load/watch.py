"""Samples of processes under load (`bench.processes`)."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bench.processes import Figures, figures


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
