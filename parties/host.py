"""What this host has: the memory that a process here may use. Public: everything."""

import contextlib
import os
from pathlib import Path

_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""What a container may have, of either version of control groups; "max" or a huge number where that is everything."""


def memory_bytes() -> int | None:
    """The host's memory, or the container's if that is less; None where the system does not say."""
    found: list[int] = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return min((size for size in found if size > 0), default=None)
