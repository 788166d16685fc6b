"""Times as text: ISO 8601 in UTC, to the second. Nothing here is secret."""

import time


def iso_time(seconds: float | None = None) -> str:
    """Returns a time in seconds since the epoch, by default now, as in 2026-11-28T13:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
