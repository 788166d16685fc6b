"""Limit of reports that others can cause: so many in a window of time, and a count of those left out.

Nothing here is secret.
"""

import math
import time


class ReportLimit:
    """Limit of ``most`` reports in ``seconds``, from one event loop or thread."""

    def __init__(self, seconds: float = 10.0, most: int = 1) -> None:
        self._seconds, self._most = seconds, most
        self._since, self._count = -math.inf, 0

    def admit(self) -> int | None:
        """Counts a report. Returns None for one to be left out, else the number left out since the last one."""
        now, more = time.monotonic(), 0
        if now - self._since >= self._seconds:
            more = max(0, self._count - self._most)
            self._since, self._count = now, 0
        self._count += 1
        return more if self._count <= self._most else None
