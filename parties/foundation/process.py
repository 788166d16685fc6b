"""Processes that hold shares, tables or keys leave no image of their memory behind.

Provides ``disable_core_dumps``: a crash writes no core file and hands none to a system's crash collector, and other
processes of the same user can neither trace this one nor read its memory. Children of it are on their own. Nothing
here is secret. Source: prctl(2), core(5). Known limits: the administrator of the machine reads what it likes; memory
may be swapped out; without Linux only core files are turned off.

Imports without garbage collection. Provides ``without_gc``. Nothing here is secret.

What a data owner's installation leaves out: the packages of the extra ``server``.

Provides ``SERVER_PACKAGES`` and ``require_server_packages``, which asks for them before work begins rather than when it
is half done.

What this host has: the memory that a process here may use. Public: everything.
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
    """Turn core dumps off for this process, as far as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0 if hard else hard))
    if sys.platform.startswith("linux"):
        # A limit of 0 does not keep a collector that core_pattern pipes to from getting the image; this does.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


@contextmanager
def without_gc() -> Iterator[None]:
    """No garbage collection while the block imports, and none later of what it has made, which stays anyway.

    A hundred modules are so many objects that the collector goes over all of them several times: a seventh of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


SERVER_PACKAGES = (
    "alembic",
    "jinja2",
    "matplotlib",
    "mpyc",
    "numba",
    "pandas",
    "prometheus_client",
    "rich",
    "sqlalchemy",
    "threadpoolctl",
)
"""Of servers and of whole runs on one machine: the service's database, console, pictures, party runtime, DataFrames,
metrics, progress, threads of products, loops of proofs and of large selections."""


def require_server_packages(what: str) -> None:
    """Raises ExtraMissing, with what to install, unless all packages of ``SERVER_PACKAGES`` are there for ``what``."""
    for module in SERVER_PACKAGES:
        if importlib.util.find_spec(module) is None:
            raise ExtraMissing(what, module)


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
