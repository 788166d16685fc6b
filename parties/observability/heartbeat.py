"""Heartbeats of a slow run (activity and remaining time, in the absence of other events), and throttled notices.

``Heartbeat`` is a sink of the events that it waits for. It emits ``WORKING`` events (`parties.observability.events`),
which are transient: the next one replaces them on a terminal. Remaining times are extrapolated from the iterations of
the current fit and from earlier rounds; they are estimates, and called so. All values here are public: rounds, steps
and times.

``Throttle`` and ``repeated_notice`` limit the rate of notices about a wait, and ``network_reason`` explains a failed
connection.
"""

import asyncio
import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from parties.observability.events import WORKING, Event, FieldValue, Progress

HEARTBEAT_AFTER_S = 3.0
"""Time without an event after which the activity is reported, in seconds."""
HEARTBEAT_INTERVAL_S = 1.0
_ROUNDS_KEPT = 5
_ROUND_END_EVENTS = ("round-done", "rounds")
"""Events at the end of the round in their field ``done``."""
_MIN_MEASURED_S = 2.0


def duration_text(seconds: float) -> str:
    """Returns a duration such as 40 s, 12 min, 3.5 h; with two digits at most, since it is an estimate."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"{round(minutes)} min" if minutes < 90 else f"{minutes / 60:.1f} h"


@dataclass(frozen=True, slots=True)
class _FitProgress:
    """Progress of the current fit of a model: iterations, and the time of its begin."""

    done: int
    of: int
    began: float

    def left_s(self, now: float) -> float | None:
        """Returns the remaining seconds at the same pace; None if too little of the fit is done."""
        if not self.done or now - self.began < _MIN_MEASURED_S:
            return None
        return (now - self.began) / self.done * (self.of - self.done)


class Heartbeat:
    """Reports the activity on ``bus``, while ``running``, in the absence of events on ``progress``.

    Args:
        bus: Bus that receives the reports; ``progress`` is the bus of its sinks and of this one.
        rounds: Maximum number of rounds.
        activity: Returns the current activity, None if there is nothing to report, such as during a wait for others.
            The method ``activity`` takes precedence while its block runs.
        clock: Returns a time in seconds.
    """

    def __init__(
        self,
        bus: Progress,
        *,
        rounds: int,
        activity: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self.progress = bus.also(self)
        self._rounds = rounds
        self._activity = activity
        self._clock = clock
        self._activities: list[str] = []
        self._last_event_at = clock()
        self._round_ends: deque[tuple[int, float]] = deque(maxlen=_ROUNDS_KEPT + 1)
        self._fit: _FitProgress | None = None

    def take(self, event: Event) -> None:
        """Records the time of an event, and of a round's end."""
        done = event.fields.get("done")
        if event.name in _ROUND_END_EVENTS and isinstance(done, int):
            self._round_ends.append((done, self._clock()))
        self._last_event_at = self._clock()

    def iteration(self, done: int, of: int) -> None:
        """Records the progress of a fit, from any thread (``mechanisms.pgm.OnIteration``)."""
        began = self._fit.began if self._fit is not None and done else self._clock()
        self._fit = _FitProgress(done, of, began) if done < of else None

    @contextlib.contextmanager
    def activity(self, what: str) -> Iterator[None]:
        """Reports ``what`` as the activity while the block runs."""
        self._activities.append(what)
        try:
            yield
        finally:
            self._activities.remove(what)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Reports at intervals while the block runs."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(HEARTBEAT_INTERVAL_S)
                self.look()

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def look(self) -> None:
        """Reports the activity unless there was an event recently."""
        what = self._activities[-1] if self._activities else self._activity()
        if what is None or self._clock() - self._last_event_at < HEARTBEAT_AFTER_S:
            return
        fit, now = self._fit, self._clock()
        fields: dict[str, FieldValue] = {}
        text, left_s = what, None
        if fit is not None:
            text += f", iteration {fit.done} of {fit.of}"
            fields |= {"iteration": fit.done, "of": fit.of}
            if (left_s := fit.left_s(now)) is not None:
                text += f", about {duration_text(left_s)} more"
        if (rounds_s := self._rounds_left_s(now)) is not None:
            rounds = self._rounds - self._round_ends[-1][0]
            text += (
                f"; about {duration_text(rounds_s)} for at most {rounds} more rounds, at this pace"
            )
            left_s = max(rounds_s, left_s or 0.0)
        fields["left_s"] = left_s
        self._bus.event(WORKING, text, **fields)

    def _rounds_left_s(self, now: float) -> float | None:
        """Returns the seconds to the end of the last round, at the latest pace; None before two rounds were timed."""
        if len(self._round_ends) < 2:
            return None
        (first, began), (last, ended) = self._round_ends[0], self._round_ends[-1]
        left = self._rounds - last
        if left < 1 or last <= first:
            return None
        each = (ended - began) / (last - first)
        return max(left * each - (now - ended), each / 2)


NOTICE_AFTER_S = 3.0
"""Duration of a wait before its first notice, in seconds."""
FIRST_NOTICE_S, LONGEST_NOTICE_S = 5.0, 60.0
LONGEST_GATHERING_S = 3600.0
"""Longest pause between notices on participants who are waited for, which takes days, in seconds."""


class Throttle:
    """Limits repeated notices about one thing, such as a wait.

    ``clock`` returns seconds; pauses grow to ``longest_s`` seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        longest_s: float = LONGEST_NOTICE_S,
    ) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._last_text: str | None = None
        self._pause_s, self._due_at = FIRST_NOTICE_S, 0.0

    def due(self, text: str) -> bool:
        """Returns true if ``text`` is due now: it differs from the last one, or its pause is over."""
        now = self._clock()
        if text != self._last_text:
            self._last_text, self._pause_s = text, FIRST_NOTICE_S
        elif now < self._due_at:
            return False
        else:
            self._pause_s = min(2 * self._pause_s, self._longest_s)
        self._due_at = now + self._pause_s
        return True


@contextlib.asynccontextmanager
async def repeated_notice(
    say: Callable[[float], object], quiet_s: float = NOTICE_AFTER_S
) -> AsyncIterator[None]:
    """Calls ``say`` while the block runs, after ``quiet_s`` seconds and then at growing intervals.

    The argument of ``say`` is the time since the block's begin, in seconds.
    """

    async def speak() -> None:
        waited, pause_s = quiet_s, FIRST_NOTICE_S
        await asyncio.sleep(quiet_s)
        while True:
            say(waited)
            await asyncio.sleep(pause_s)
            waited, pause_s = waited + pause_s, min(2 * pause_s, LONGEST_NOTICE_S)

    task = asyncio.create_task(speak())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def network_reason(error: Exception) -> str:
    """Returns the reason of a network failure without the library's decoration."""
    system = getattr(error, "os_error", error)
    number = system.errno if isinstance(system, OSError) else None
    if number == errno.ECONNREFUSED:
        return "nothing listens there"
    if number is not None and number > 0:
        return os.strerror(number)
    return getattr(system, "strerror", None) or str(error) or type(error).__name__
