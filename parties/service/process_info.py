"""Process id, memory and processor time of this process, and disk and last backup of its folder.

All values here are public.
"""

import contextlib
import os
import resource
import shutil
import sys
import time
from pathlib import Path

LAST_BACKUP = "last-backup"
"""Name of the file in a server's folder whose time is that of its last backup; no part of one."""
_STATM = Path("/proc/self/statm")


def process_dict() -> dict[str, object]:
    """Returns the part ``process`` of a status, memory in bytes; ``memory_bytes`` is None if it is unknown.

    ``cpu_s`` is the processor time of all its threads, in seconds.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = used.ru_maxrss
    return {
        "pid": os.getpid(),
        "memory_bytes": _resident(),
        # Kibibytes, except on macOS, where it is bytes.
        "peak_bytes": peak if sys.platform == "darwin" else peak * 1024,
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
    }


def folder_dict(folder: Path) -> dict[str, object]:
    """Returns the part ``folder`` of a status: bytes on its disk, and the age of its last backup; None if unknown."""
    free = total = age = None
    with contextlib.suppress(OSError):
        disk = shutil.disk_usage(folder)
        free, total = disk.free, disk.total
    with contextlib.suppress(OSError):
        age = max(0.0, round(time.time() - os.stat(folder / LAST_BACKUP).st_mtime, 1))
    return {"free_bytes": free, "total_bytes": total, "backup_age_s": age}


def _resident() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    return None
