"""What has to be on the disk before anybody relies on it. Provides ``sync`` and ``write_whole``."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make a file, or the entries of a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data``, durably; after a kill at any moment it is there whole or not at all. Raises OSError."""
    beside = path.with_suffix(".part")
    with beside.open("wb") as file:
        file.write(data)
    sync(beside)
    beside.replace(path)
    sync(path.parent)
