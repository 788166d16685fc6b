"""Atomic files, and one error class for failures of a disk.

``write_atomic`` and ``write_json`` replace a file, and ``atomic_replacement`` does so for files that a library writes.
``write_new`` and ``create`` make a new file, ``open_private`` one to append to. After a failure or a kill at any
moment, a path holds the old content or all of the new one. With ``durable`` the new content is on the disk on return,
also after a power failure. With ``secret`` the file has mode 0600 from the beginning, whatever the umask. Known limits:
a kill may leave a hidden file beside the path; a link is replaced, not followed.
"""

import contextlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from parties.foundation.errors import StoreError
from protocols.durable import sync

_PRIVATE, _SHARED = 0o600, 0o666
"""File modes; the process's umask narrows the second."""
_EXPECTED = {
    "read": "a file or folder that can be read",
    "deleted": "a folder of this user's that can be written",
}
_WRITABLE = "a writable folder with free space"


def write_atomic(
    path: Path, content: bytes | str, *, durable: bool = False, secret: bool = False
) -> None:
    """Replaces the file at ``path`` by ``content`` (text as UTF-8). Raises StoreError."""
    data = content.encode() if isinstance(content, str) else content
    with atomic_replacement(path, durable=durable, secret=secret) as beside:
        beside.write_bytes(data)


def write_json(
    path: Path, document: Mapping[str, object], *, durable: bool = False, secret: bool = False
) -> None:
    """Writes a line of JSON as ``write_atomic``. Raises StoreError, ValueError for a number that JSON does not have."""
    text = json.dumps(document, allow_nan=False) + "\n"
    write_atomic(path, text, durable=durable, secret=secret)


@contextlib.contextmanager
def atomic_replacement(
    path: Path, *, durable: bool = False, secret: bool = False
) -> Iterator[Path]:
    """Yields an empty file beside ``path`` for writing; replaces ``path`` with it at the end unless the block raises.

    Raises StoreError, also for an OSError of the block.
    """
    # A unique name: two processes that write one file do not write into one another's.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        os.close(create(beside, secret=secret))
        yield beside
        if durable:
            sync(beside)
        os.replace(beside, path)
        if durable:
            sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _store_error(error, path, "written") from error
        raise


def write_new(path: Path, data: bytes, *, secret: bool = False) -> None:
    """Makes a new file; an existing one stays. Raises StoreError, and leaves no partial file."""
    made = False
    try:
        descriptor = create(path, secret=secret)
        made = True
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        if made:
            with contextlib.suppress(OSError):
                path.unlink()
        raise _store_error(error, path, "written") from error


def create(path: Path, *, secret: bool) -> int:
    """Returns the descriptor of a new empty file for writing. Raises OSError, also if the file exists."""
    mode = _PRIVATE if secret else _SHARED
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    if secret:
        os.fchmod(descriptor, _PRIVATE)
    return descriptor


def open_private(path: Path) -> IO[bytes]:
    """Opens a file of mode 0600 to append to; makes it if necessary. Raises OSError."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _PRIVATE), "ab")
    os.fchmod(file.fileno(), _PRIVATE)
    return file


@contextlib.contextmanager
def disk_errors(path: Path, done: str = "written") -> Iterator[None]:
    """Raises errors of the disk, or of a database on it, as StoreError for ``path``, or for the file in it concerned.

    ``done`` is the failed operation: "written", "read", "opened", "made". Network errors within the block need another
    class beforehand.
    """
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        # For a rename, the second name is the target.
        names = (getattr(error, "filename2", None), getattr(error, "filename", None))
        named = [Path(name) for name in names if isinstance(name, str | os.PathLike)]
        inside = (name for name in named if name.is_relative_to(path))
        raise _store_error(error, next(inside, path), done) from error


@contextlib.contextmanager
def database_errors(path: Path, done: str = "written") -> Iterator[None]:
    """As ``disk_errors``, for a database: for a damaged one SQLite may quote bytes that are no text."""
    with disk_errors(path, done):
        try:
            yield
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("it is damaged") from error


def _store_error(error: Exception, path: Path, done: str) -> StoreError:
    reason = getattr(error, "strerror", None) or str(error)
    expected = _EXPECTED.get(done, _WRITABLE)
    return StoreError(path, f"cannot be {done}: {reason}; expected {expected}")
