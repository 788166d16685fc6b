"""Limits of this process on open files and connections."""

import contextlib
import resource
import sys


def raise_file_limit() -> None:
    """Raises this process's limit on files and connections to the maximum: a thousand clients exceed the default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_files() -> int:
    """Returns the maximum number of files and connections of a process, after ``raise_file_limit``."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard
