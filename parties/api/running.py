"""Coroutines run to their end from any program, a notebook among them, whose own event loop is running already.

Provides ``run_anywhere`` and ``Callback``, which passes progress on. Nothing here is secret.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from parties.progress import FieldValue, Progress, Silent

Result = TypeVar("Result")
_START_S = 5.0
"""How long a thread may take to start."""


@dataclass(frozen=True, slots=True)
class Callback:
    """Gives each event's sentence to ``hear``, which is called in another thread than the one that waits."""

    hear: Callable[[str], object]

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """Pass on the sentence."""
        self.hear(text)


def progress_to(hear: Callable[[str], object] | None) -> Progress:
    """Events for a function that takes sentences, such as ``print``; None is silence."""
    return Silent() if hear is None else Callback(hear)


def run_anywhere(main: Callable[[], Awaitable[Result]]) -> Result:
    """What ``main`` returns, run on an event loop of its own in a thread of its own.

    Raises what ``main`` raises. Ctrl-C (KeyboardInterrupt) cancels ``main`` and is raised when that has cleaned up.
    """
    place: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[object] | None]] = Future()
    ended: Future[Result] = Future()

    async def whole() -> None:
        place.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        try:
            ended.set_result(await main())
        except BaseException as error:  # noqa: BLE001  # It is raised where it is waited for.
            ended.set_exception(error)

    thread = threading.Thread(target=lambda: asyncio.run(whole()), name="syncret", daemon=True)
    try:
        thread.start()
        result = ended.result()
    except KeyboardInterrupt:
        # Without a place there is nothing to clean up: the thread was not even started.
        with contextlib.suppress(TimeoutError):
            loop, task = place.result(_START_S)
            if task is not None and not ended.done():
                loop.call_soon_threadsafe(task.cancel)
            # Processes and folders are gone then; a thread that still computes for nobody is not waited for.
            ended.exception()
        raise
    thread.join()
    return result
