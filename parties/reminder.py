"""Waits that speak: when something that goes on is said again, and why a connection did not come about.

Provides ``Reminder``, ``saying`` and ``network_reason``. Secret: nothing.
"""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import AsyncIterator, Callable

QUIET_S = 3.0
"""A wait that is over sooner need not be spoken of."""
FIRST_S, LONGEST_S = 5.0, 60.0


class Reminder:
    """Of one thing that may go on for long, such as a wait. ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: str | None = None
        self._pause_s, self._due_at = FIRST_S, 0.0

    def due(self, text: str) -> bool:
        """Whether to say ``text`` now: it is another one than before, or was said long enough ago."""
        now = self._clock()
        if text != self._said:
            self._said, self._pause_s = text, FIRST_S
        elif now < self._due_at:
            return False
        else:
            self._pause_s = min(2 * self._pause_s, LONGEST_S)
        self._due_at = now + self._pause_s
        return True


@contextlib.asynccontextmanager
async def saying(say: Callable[[float], object], quiet_s: float = QUIET_S) -> AsyncIterator[None]:
    """While the block goes on, ``say`` that it does, after ``quiet_s`` seconds and then at growing intervals.

    ``say`` is told how many seconds it has gone on.
    """

    async def speak() -> None:
        waited, pause_s = quiet_s, FIRST_S
        await asyncio.sleep(quiet_s)
        while True:
            say(waited)
            await asyncio.sleep(pause_s)
            waited, pause_s = waited + pause_s, min(2 * pause_s, LONGEST_S)

    task = asyncio.create_task(speak())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def network_reason(error: Exception) -> str:
    """A failure below HTTP without the library's decoration."""
    system = getattr(error, "os_error", error)
    number = system.errno if isinstance(system, OSError) else None
    if number == errno.ECONNREFUSED:
        return "nothing listens there"
    if number is not None and number > 0:
        return os.strerror(number)
    return getattr(system, "strerror", None) or str(error) or type(error).__name__
