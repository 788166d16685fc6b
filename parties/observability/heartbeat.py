"""That a slow run is at work, at what, and for how long still: said at intervals while there is nothing else to say.

Provides ``Heartbeat``, a ``Progress`` between those who report events and whoever shows them, and ``duration_text``, a
time for people. What it adds are events called ``progress.WORKING``, which pass: the next one takes their place on a
terminal. Times are extrapolated from iterations of the fit that is under way and from the rounds before: they are
guesses, and said as such. Public: everything; it knows rounds, steps and times, and nothing of what is computed.

Waits that speak: when something that goes on is said again, and why a connection did not come about.

Provides ``Throttle``, ``repeated_notice`` and ``network_reason``. Secret: nothing.
"""

import asyncio
import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from parties.observability.events import WORKING, FieldValue, Progress

HEARTBEAT_AFTER_S = 3.0
"""After so long without an event it is said that the work goes on."""
HEARTBEAT_INTERVAL_S = 1.0
_ROUNDS_KEPT = 5
_ROUND_END_EVENTS = ("round-done", "rounds")
"""Events that say that the round in ``done`` is over."""
_MIN_MEASURED_S = 2.0


def duration_text(seconds: float) -> str:
    """Such as 40 s, 12 min, 3.5 h; two digits at most, since it is a guess."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"{round(minutes)} min" if minutes < 90 else f"{minutes / 60:.1f} h"


@dataclass(frozen=True, slots=True)
class _FitProgress:
    """A model's fit that is under way: iterations, and when it began."""

    done: int
    of: int
    began: float

    def left_s(self, now: float) -> float | None:
        """Seconds that the rest takes if it goes on as it did; None where too little of it is over."""
        if not self.done or now - self.began < _MIN_MEASURED_S:
            return None
        return (now - self.began) / self.done * (self.of - self.done)


class Heartbeat:
    """Passes events on to ``inner``, and says what goes on where they do not come; ``running`` for as long as it lives.

    ``rounds`` is how many there are at most. ``doing`` says what is done now, None where there is nothing to say of it,
    such as while others are waited for; ``activity`` is said instead while its block runs. ``clock`` counts seconds.
    """

    def __init__(
        self,
        inner: Progress,
        *,
        rounds: int,
        activity: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._rounds = rounds
        self._activity = activity
        self._clock = clock
        self._activities: list[str] = []
        self._last_event_at = clock()
        self._round_ends: deque[tuple[int, float]] = deque(maxlen=_ROUNDS_KEPT + 1)
        self._fit: _FitProgress | None = None

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """See ``Progress``."""
        done = fields.get("done")
        if name in _ROUND_END_EVENTS and isinstance(done, int):
            self._round_ends.append((done, self._clock()))
        self._last_event_at = self._clock()
        self._inner.event(name, text, **fields)

    def iteration(self, done: int, of: int) -> None:
        """So many iterations of a fit are over; from any thread (``mechanisms.pgm.OnIteration``)."""
        began = self._fit.began if self._fit is not None and done else self._clock()
        self._fit = _FitProgress(done, of, began) if done < of else None

    @contextlib.contextmanager
    def activity(self, what: str) -> Iterator[None]:
        """What is done in the block."""
        self._activities.append(what)
        try:
            yield
        finally:
            self._activities.remove(what)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look at intervals whether it is time to say something."""

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
        """Say what goes on, if nothing was said for a while."""
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
            text += f"; about {duration_text(rounds_s)} for the {rounds} rounds left, at this pace"
            left_s = max(rounds_s, left_s or 0.0)
        fields["left_s"] = left_s
        self._inner.event(WORKING, text, **fields)

    def _rounds_left_s(self, now: float) -> float | None:
        """Seconds until the last round is over, if they take what the latest took; None before two were timed."""
        if len(self._round_ends) < 2:
            return None
        (first, began), (last, ended) = self._round_ends[0], self._round_ends[-1]
        left = self._rounds - last
        if left < 1 or last <= first:
            return None
        each = (ended - began) / (last - first)
        return max(left * each - (now - ended), each / 2)


NOTICE_AFTER_S = 3.0
"""A wait that is over sooner need not be spoken of."""
FIRST_NOTICE_S, LONGEST_NOTICE_S = 5.0, 60.0


class Throttle:
    """Of one thing that may go on for long, such as a wait. ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_text: str | None = None
        self._pause_s, self._due_at = FIRST_NOTICE_S, 0.0

    def due(self, text: str) -> bool:
        """Whether to say ``text`` now: it is another one than before, or was said long enough ago."""
        now = self._clock()
        if text != self._last_text:
            self._last_text, self._pause_s = text, FIRST_NOTICE_S
        elif now < self._due_at:
            return False
        else:
            self._pause_s = min(2 * self._pause_s, LONGEST_NOTICE_S)
        self._due_at = now + self._pause_s
        return True


@contextlib.asynccontextmanager
async def repeated_notice(
    say: Callable[[float], object], quiet_s: float = NOTICE_AFTER_S
) -> AsyncIterator[None]:
    """While the block goes on, ``say`` that it does, after ``quiet_s`` seconds and then at growing intervals.

    ``say`` is told how many seconds it has gone on.
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
    """A failure below HTTP without the library's decoration."""
    system = getattr(error, "os_error", error)
    number = system.errno if isinstance(system, OSError) else None
    if number == errno.ECONNREFUSED:
        return "nothing listens there"
    if number is not None and number > 0:
        return os.strerror(number)
    return getattr(system, "strerror", None) or str(error) or type(error).__name__
