"""Files that are there whole or not at all, and one error for whatever a disk refuses.

Provides ``write_atomic``, ``write_json`` and, for what a library writes itself, ``atomic_replacement``; for a file that
may not be there yet ``write_new``, and ``create`` where it is written bit by bit; ``open_private``, for one that stays;
``disk_errors``. After a failure or a kill at any moment a path holds what it held before or all of what is new;
``durable`` says that this stands on the disk on return, after a power failure too. ``secret`` makes the file with mode
0600, whatever the umask: nobody else can read it, not even for a moment. Known limits: a kill may leave a hidden file
beside the path; a link is replaced, not followed.
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
"""Modes; the process's umask narrows the second."""
_EXPECTED = {
    "read": "a file or folder that can be read",
    "deleted": "a folder of this user's that can be written",
}
_WRITABLE = "a writable folder with free space"


def write_atomic(
    path: Path, content: bytes | str, *, durable: bool = False, secret: bool = False
) -> None:
    """Put ``content`` (text as UTF-8) in place of what is at ``path``. Raises StoreError."""
    data = content.encode() if isinstance(content, str) else content
    with atomic_replacement(path, durable=durable, secret=secret) as beside:
        beside.write_bytes(data)


def write_json(
    path: Path, document: Mapping[str, object], *, durable: bool = False, secret: bool = False
) -> None:
    """As ``write_atomic``, one line of JSON. Raises StoreError, ValueError for a number that JSON does not have."""
    text = json.dumps(document, allow_nan=False) + "\n"
    write_atomic(path, text, durable=durable, secret=secret)


@contextlib.contextmanager
def atomic_replacement(
    path: Path, *, durable: bool = False, secret: bool = False
) -> Iterator[Path]:
    """An empty file beside ``path`` to be written within; it takes that place at the end, if all went well.

    Raises StoreError, for an OSError within too.
    """
    # A name of its own: two processes that write one file do not write into one another's.
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
    """Make a file; what is at ``path`` already stays. Raises StoreError, and leaves no half a file."""
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
    """The descriptor of a new empty file, to be written. Raises OSError, also where there is one."""
    mode = _PRIVATE if secret else _SHARED
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    if secret:
        os.fchmod(descriptor, _PRIVATE)
    return descriptor


def open_private(path: Path) -> IO[bytes]:
    """A file of mode 0600, made where there is none, to append to. Raises OSError."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _PRIVATE), "ab")
    os.fchmod(file.fileno(), _PRIVATE)
    return file


@contextlib.contextmanager
def disk_errors(path: Path, done: str = "written") -> Iterator[None]:
    """What the disk, or a database on it, refuses within, as StoreError: of ``path``, or the file in it that is named.

    ``done`` is what cannot be: "written", "read", "opened", "made". Errors of the network need another class by then.
    """
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        # Of a renaming, the second name is where the file should be.
        names = (getattr(error, "filename2", None), getattr(error, "filename", None))
        named = [Path(name) for name in names if isinstance(name, str | os.PathLike)]
        inside = (name for name in named if name.is_relative_to(path))
        raise _store_error(error, next(inside, path), done) from error


@contextlib.contextmanager
def database_errors(path: Path, done: str = "written") -> Iterator[None]:
    """As ``disk_errors``, of a database: of a damaged one SQLite may quote bytes that are no text."""
    with disk_errors(path, done):
        try:
            yield
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("it is damaged") from error


def _store_error(error: Exception, path: Path, done: str) -> StoreError:
    reason = getattr(error, "strerror", None) or str(error)
    expected = _EXPECTED.get(done, _WRITABLE)
    return StoreError(path, f"cannot be {done}: {reason}; expected {expected}")
