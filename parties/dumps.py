"""Processes that hold shares, tables or keys leave no image of their memory behind.

Provides ``no_core_dumps``: a crash writes no core file and hands none to a system's crash collector, and other
processes of the same user can neither trace this one nor read its memory. Children of it are on their own. Nothing
here is secret. Source: prctl(2), core(5). Known limits: the administrator of the machine reads what it likes; memory
may be swapped out; without Linux only core files are turned off.
"""

import contextlib
import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def no_core_dumps() -> None:
    """Turn core dumps off for this process, as far as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0 if hard else hard))
    if sys.platform.startswith("linux"):
        # A limit of 0 does not keep a collector that core_pattern pipes to from getting the image; this does.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
