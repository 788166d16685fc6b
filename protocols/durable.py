"""Durability of files: flushes them to the disk before any other code relies on them."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Makes a file, or the entries of a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_content(path: Path) -> None:
    """Makes a file's content and size durable; not its times, where the system can leave them. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        getattr(os, "fdatasync", os.fsync)(descriptor)
    finally:
        os.close(descriptor)
