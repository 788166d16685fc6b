"""Incoming bodies of a server's store: small ones in memory, others each in a file that vanishes unless accepted.

Secret: the written content, in files of mode 0600.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from parties.storage.files import create, disk_errors

SMALL_BYTES = 1 << 16
"""Maximum size in bytes of bodies in the database: a file and its directory entry would cost three more disk writes."""


class IncomingBody:
    """Incoming body: once it is not small, a file at ``path`` that vanishes unless the store accepts it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        self._small = bytearray()
        self._file: IO[bytes] | None = None

    @property
    def small(self) -> bytes | None:
        """Written content; None if it is in the file."""
        return bytes(self._small) if self._file is None else None

    def write(self, chunk: bytes) -> None:
        """Appends ``chunk``. Raises StoreError if the disk fails."""
        self._hash.update(chunk)
        self.size += len(chunk)
        if self._file is None:
            self._small += chunk
            if self.size > SMALL_BYTES:
                with disk_errors(self.path):
                    self._file = os.fdopen(create(self.path, secret=True), "wb", 0)
                self._append(self._file, self._small)
                self._small.clear()
        else:
            self._append(self._file, chunk)

    def _append(self, file: IO[bytes], data: bytes | bytearray) -> None:
        with disk_errors(self.path), memoryview(data) as left:
            written = 0
            while written < len(data):
                written += file.write(left[written:])

    def digest(self) -> str:
        """Hex SHA-256 of the written content."""
        return self._hash.hexdigest()

    def read(self) -> bytes:
        """Written content. Raises StoreError."""
        if self._file is None:
            return bytes(self._small)
        with disk_errors(self.path, "read"):
            return self.path.read_bytes()

    def sync(self) -> None:
        """Makes the file durable, if there is one. Raises StoreError."""
        if self._file is not None:
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
        if self._file is not None:
            self._file.close()
            self.path.unlink(missing_ok=True)


class OutgoingUpload(NamedTuple):
    """A ``whole`` upload, whose parts the servers ``pids`` are to get."""

    whole: IncomingBody
    pids: Sequence[int]
