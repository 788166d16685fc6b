"""What has to be on the disk before anybody relies on it. Provides ``sync``."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make a file, or the entries of a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
