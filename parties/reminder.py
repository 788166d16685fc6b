"""When something that goes on is said again: at once where it is new, and then at growing intervals.

Provides ``Reminder``. Secret: nothing.
"""

import time
from collections.abc import Callable

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
