"""Consistent snapshot of a server's folder, taken while the server runs.

SQLite's backup copies databases in one read. The other files are listed while no database changes, with their sizes at
that time. Files that rows refer to never change, and growing files (transcripts, recordings) never change in their
first bytes. So ``Snapshot.read`` returns what a server killed at that moment would have left, from which it can
continue. Secret: the content of the files. Source: https://www.sqlite.org/backup.html.
"""

import contextlib
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from parties.foundation.errors import StoreError
from parties.mpc.outputs import STORE_FOLDER
from parties.service.process_info import LAST_BACKUP
from parties.storage.database import FILE
from parties.storage.files import disk_errors
from parties.storage.sqlite import connect_existing

_SQLITE = b"SQLite format 3\0"
_DATABASE_SUFFIXES = ("-wal", "-shm", "-journal")
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}")
"""Names of unfinished files of `parties.storage.files.atomic_replacement`."""
KEY_LINKS = ("own.key", "next.key")
"""Names of a server's private keys, which may be links to files outside."""
_TRANSIENT_FOLDERS = ("incoming",)
_SNAPSHOT_TRIES, _SNAPSHOT_PAUSE_S = 50, 0.1


class SnapshotOutdated(Exception):
    """A listed file has gone: the server has moved on."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file ``path``, ``size`` bytes long when it was listed; ``inode`` distinguishes it from a replacement."""

    path: Path
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folder's ``files``, the content of its ``databases``, and the targets of its ``links``, by relative name.

    Links are those to private keys outside; no others are followed or copied.
    """

    files: Mapping[str, ListedFile]
    databases: Mapping[str, bytes] = field(repr=False)
    links: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def read(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """Opens a file, and yields it with its number of bytes in the snapshot. Raises SnapshotOutdated, StoreError."""
        listed = self.files[name]
        try:
            with disk_errors(listed.path, "read"), listed.path.open("rb") as file:
                now = listed.path.stat()
                # A replaced file is complete at any time, so its new content is valid.
                size = listed.size if now.st_ino == listed.inode else now.st_size
                if now.st_size < size:
                    raise SnapshotOutdated
                yield file, size
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise SnapshotOutdated from error
            raise


def snapshot(folder: Path) -> Snapshot:
    """Returns a snapshot of the folder. Raises StoreError: unreadable, damaged, or databases that change constantly."""
    files: dict[str, ListedFile] = {}
    databases: dict[str, bytes] = {}
    runs = sorted({path.parent.parent for path in folder.rglob(f"{STORE_FOLDER}/{FILE}")})
    for subfolder in dict.fromkeys((*runs, folder)):
        others = [run for run in runs if run != subfolder and run.is_relative_to(subfolder)]
        found = _consistent_snapshot(subfolder, others)
        prefix = subfolder.relative_to(folder)
        files |= {_name(prefix / name): listed for name, listed in found.files.items()}
        databases |= {_name(prefix / name): data for name, data in found.databases.items()}
    return Snapshot(files, databases, _key_links(folder))


def _key_links(folder: Path) -> dict[str, str]:
    """Returns the targets of links to private keys outside, by relative name."""
    with disk_errors(folder, "read"):
        links = sorted(path for path in folder.rglob("*") if path.name in KEY_LINKS)
        return {
            _name(path.relative_to(folder)): os.readlink(path)
            for path in links
            if path.is_symlink()
        }


def database_copy(path: Path) -> bytes:
    """Returns a consistent copy of an SQLite database that others may be writing. Raises StoreError."""
    with _connection(path) as db:
        return _copy(path, db)


def _consistent_snapshot(folder: Path, without: Sequence[Path]) -> Snapshot:
    """Returns the snapshot of a run's folder, or of other files, at a moment without changes of its databases."""
    for _ in range(_SNAPSHOT_TRIES):
        listed = _listing(folder, without)
        paths = [path for path in listed.values() if _is_database(path)]
        with contextlib.ExitStack() as stack:
            opened = {path: stack.enter_context(_connection(path)) for path in paths}
            before = {path: _data_version(path, db) for path, db in opened.items()}
            copies = {path: _copy(path, db) for path, db in opened.items()}
            listed = _listing(folder, without)
            if before == {path: _data_version(path, db) for path, db in opened.items()}:
                return Snapshot(
                    {name: _stat(path) for name, path in listed.items() if path not in copies},
                    {name: copies[path] for name, path in listed.items() if path in copies},
                )
        time.sleep(_SNAPSHOT_PAUSE_S)
    raise StoreError(
        folder, "changes all the time; expected a moment between two rounds: try again"
    )


def _listing(folder: Path, without: Sequence[Path]) -> dict[str, Path]:
    """Returns the regular files below a folder by relative name, without transient ones."""
    found = {}
    with disk_errors(folder, "read"):
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if any(path.is_relative_to(other) for other in without) or _is_transient(name):
                continue
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISREG(path.lstat().st_mode):
                    found[_name(name)] = path
    return found


def _is_transient(name: Path) -> bool:
    """Returns true for a file that belongs to the running process, and not into a copy."""
    return (
        name.name in ("lock", LAST_BACKUP)
        or name.name.endswith(_DATABASE_SUFFIXES)
        or any(folder in name.parts[:-1] for folder in _TRANSIENT_FOLDERS)
        or _UNFINISHED.fullmatch(name.name) is not None
    )


def _stat(path: Path) -> ListedFile:
    with disk_errors(path, "read"):
        found = path.stat()
    return ListedFile(path, found.st_size, found.st_ino)


def _is_database(path: Path) -> bool:
    with disk_errors(path, "read"), path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


@contextlib.contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    with disk_errors(path, "read"), contextlib.closing(connect_existing(path)) as db:
        yield db


def _data_version(path: Path, db: sqlite3.Connection) -> int:
    """Returns a number that grows with each change by another connection."""
    with disk_errors(path, "read"):
        return int(db.execute("PRAGMA data_version").fetchone()[0])


def _copy(path: Path, db: sqlite3.Connection) -> bytes:
    with disk_errors(path, "read"), contextlib.closing(sqlite3.connect(":memory:")) as copy:
        db.backup(copy)
        data = copy.serialize()
    # Bytes 18 and 19 declare a write-ahead log, which a copy does not have (https://www.sqlite.org/fileformat.html).
    return data[:18] + b"\1\1" + data[20:]


def _name(path: Path) -> str:
    return str(PurePosixPath(path))
