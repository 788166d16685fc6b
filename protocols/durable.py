"""What has to be on the disk before anybody relies on it. Provides ``sync`` and ``sync_content``."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make a file, or the entries of a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_content(path: Path) -> None:
    """Make what is in a file durable, and its size; not its times, where the system can leave them. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        getattr(os, "fdatasync", os.fsync)(descriptor)
    finally:
        os.close(descriptor)
