"""Limits of this process: how many files and connections it may have open."""

import contextlib
import resource
import sys


def raise_file_limit() -> None:
    """Let this process have as many files and connections as it may: a thousand clients are more than the default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_files() -> int:
    """How many files and connections a process of this host may have open, after ``raise_file_limit``."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard
