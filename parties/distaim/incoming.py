"""Bodies on their way into a server's store: each in a file of its own, which is gone unless the store accepts it.

Provides ``Incoming`` and ``Outgoing``. Secret: what is written, in files of mode 0600.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from parties.files import create, disk_errors


class Incoming:
    """A body on its way in: written to a file of its own that vanishes unless the store accepts it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        with disk_errors(path):
            self._file: IO[bytes] = os.fdopen(create(path, secret=True), "wb", 0)

    def write(self, chunk: bytes) -> None:
        """Append ``chunk``. Raises StoreError where the disk does not take it."""
        with disk_errors(self.path):
            written = 0
            while written < len(chunk):
                written += self._file.write(memoryview(chunk)[written:])
        self._hash.update(chunk)
        self.size += len(chunk)

    def digest(self) -> str:
        """Hex SHA-256 of what was written."""
        return self._hash.hexdigest()

    def read(self) -> bytes:
        """All that was written. Raises StoreError."""
        with disk_errors(self.path, "read"):
            return self.path.read_bytes()

    def sync(self) -> None:
        """Make what was written durable. Raises StoreError."""
        with disk_errors(self.path):
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


class Outgoing(NamedTuple):
    """A ``whole`` upload, of which the servers ``pids`` are to get their parts."""

    whole: Incoming
    pids: Sequence[int]
