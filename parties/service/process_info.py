"""Process id and memory of this process, for its status. All values here are public."""

import contextlib
import os
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")


def process_dict() -> dict[str, object]:
    """Returns the part ``process`` of a status, memory in bytes; ``memory_bytes`` is None if it is unknown."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "pid": os.getpid(),
        "memory_bytes": _resident(),
        # Kibibytes, except on macOS, where it is bytes.
        "peak_bytes": peak if sys.platform == "darwin" else peak * 1024,
    }


def _resident() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    return None
