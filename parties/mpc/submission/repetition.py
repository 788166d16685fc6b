"""Repetition of a question to servers until a deadline: pauses that grow, and a word whenever the answer changes."""

import asyncio

from parties.observability.events import Progress

_GROWTH = 1.5


class Repetition:
    """Waits of ``wait_s`` seconds in all, from ``first_s`` to ``longest_s`` each; ``event`` names it in the log."""

    def __init__(
        self, wait_s: float, *, first_s: float, longest_s: float, event: str, progress: Progress
    ) -> None:
        self._deadline = asyncio.get_running_loop().time() + wait_s
        self._pause_s, self._longest_s = first_s, longest_s
        self._event, self._progress = event, progress
        self._said = ""

    @property
    def left_s(self) -> float:
        """Seconds to the deadline, 0 behind it."""
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def again(self, state: str = "") -> bool:
        """Says a new ``state`` and waits; returns False at once if the deadline comes before the next question."""
        if state and state != self._said:
            self._progress.event(self._event, state)
            self._said = state
        if self._pause_s > self.left_s:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(_GROWTH * self._pause_s, self._longest_s)
        return True
