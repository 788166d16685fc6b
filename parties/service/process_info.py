"""This process as the system sees it: its number and its memory. Public: everything."""

import contextlib
import os
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def process_dict() -> dict[str, object]:
    """The part ``process`` of a status: memory in bytes; ``memory_bytes`` is None where the system does not say."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "pid": os.getpid(),
        "memory_bytes": _resident(),
        # Kibibytes, but on macOS.
        "peak_bytes": peak if sys.platform == "darwin" else peak * 1024,
    }


def _resident() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    return None
