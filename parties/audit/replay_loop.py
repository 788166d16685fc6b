"""Event loop of a replay, which finds out that all its tasks wait for what the recording does not have.

In a run that was interrupted, protocols ran side by side: some waited for messages that never came, others went on. In
a replay each of them has to go as far, so a task that lacks a recorded item waits until nothing else goes on.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
_POLL_S = 0.001


class ReplayEnded(Exception):
    """Raised at the end of the recording, where the attempt ended."""


class ReplayLoop(asyncio.SelectorEventLoop):
    """Event loop that counts callbacks and jobs of threads. Timers count for nothing: no message depends on one."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0
        self._jobs = 0
        self._waiting_threads = 0
        self._watch: asyncio.Task[None] | None = None
        self._over = threading.Event()

    def call_soon(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """See ``asyncio.AbstractEventLoop``."""
        self._calls += 1
        return super().call_soon(callback, *args, context=context)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[Arguments]], T],
        *args: *Arguments,
    ) -> "asyncio.Future[T]":
        """See ``asyncio.AbstractEventLoop``."""
        self._jobs += 1
        future = super().run_in_executor(executor, func, *args)
        # Runs before the task that waits for it goes on.
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: "asyncio.Future[Any]") -> None:
        self._jobs -= 1

    async def end(self) -> NoReturn:
        """Raises ReplayEnded once every task and thread of this loop lacks a recorded item."""
        if self._watch is None:
            self._watch = self.create_task(self._watch_others())
        await asyncio.shield(self._watch)
        raise ReplayEnded

    def end_thread(self) -> NoReturn:
        """As ``end``, in a thread."""
        self.call_soon_threadsafe(self._thread_waits)
        self._over.wait()
        raise ReplayEnded

    def _thread_waits(self) -> None:
        self._waiting_threads += 1
        if self._watch is None:
            self._watch = self.create_task(self._watch_others())

    async def _watch_others(self) -> None:
        try:
            while True:
                before = self._calls
                # A pass of the loop: whatever is due runs before this task does again, which is one call.
                await asyncio.sleep(0)
                if self._jobs > self._waiting_threads:
                    await asyncio.sleep(_POLL_S)
                elif self._calls == before + 1:
                    return
        finally:
            self._over.set()


def running_loop() -> ReplayLoop:
    """Returns the loop of the replay that runs. Raises TypeError outside of one."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, ReplayLoop):
        raise TypeError(f"{type(loop).__name__} is no loop of a replay")
    return loop
