"""Properties of this process and host: core dumps, imports without garbage collection, packages, memory.

``disable_core_dumps`` protects processes that hold shares, tables or keys: a crash writes no core file and passes none
to a system's crash collector, and other processes of the same user can neither trace this one nor read its memory. It
does not apply to children. Source: prctl(2), core(5). Known limits: the machine's administrator can read all memory;
memory may be swapped out; without Linux only core files are turned off.

``without_gc`` speeds up imports. ``require_server_packages`` checks for the packages of the extra ``server``, which a
data owner's installation lacks, before work begins. ``memory_bytes`` returns the memory available to a process.
"""

import contextlib
import ctypes
import gc
import importlib.util
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parties.foundation.errors import ExtraMissing

_PR_SET_DUMPABLE = 4


def disable_core_dumps() -> None:
    """Turns core dumps off for this process, as far as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0 if hard else hard))
    if sys.platform.startswith("linux"):
        # A limit of 0 does not keep the image from a collector that core_pattern pipes to; this does.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


@contextmanager
def without_gc() -> Iterator[None]:
    """Disables garbage collection while the block imports, and exempts the objects made from later collections.

    A hundred modules have so many objects that the collector goes over all of them several times: a seventh of the
    time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


SERVER_PACKAGES = (
    "matplotlib",
    "mpyc",
    "msgspec",
    "numba",
    "pandas",
    "prometheus_client",
    "pyparsing",
    "rich",
    "sqlalchemy",
    "threadpoolctl",
    "tomlkit",
)
"""Packages of servers and of whole runs on one machine: the service's database, figures, party runtime, DataFrames,
metrics, questions, progress, threads of products, loops of proofs and of large selections, forms and settings of the
admin API.
"""


def require_server_packages(what: str) -> None:
    """Raises ExtraMissing, naming ``what`` and the package to install, unless ``SERVER_PACKAGES`` are installed."""
    for module in SERVER_PACKAGES:
        if importlib.util.find_spec(module) is None:
            raise ExtraMissing(what, module)


_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Files with a container's memory limit, of both versions of control groups; "max" or a huge number mean no limit."""


def memory_bytes() -> int | None:
    """Returns the host's memory in bytes, or the container's if that is less; None if the system does not report it."""
    found: list[int] = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return min((size for size in found if size > 0), default=None)
