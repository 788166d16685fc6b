"""What a server's folder holds at one moment, taken while the server runs.

Provides ``snapshot``; ``database_copy`` for one file. Databases are copied by SQLite's own backup, in one read; the
files beside them are listed while no database changes, with the sizes that they have then. Files that rows name never
change, and of files that grow (transcripts, recordings) the first bytes never do: ``Snapshot.read`` gives what a server
that was killed at that moment would have left, from which it goes on. Secret: what the files hold. Source:
https://www.sqlite.org/backup.html.
"""

import contextlib
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
from parties.storage.database import FILE
from parties.storage.files import disk_errors

_SQLITE = b"SQLite format 3\0"
_DATABASE_SUFFIXES = ("-wal", "-shm", "-journal")
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}")
"""Files of `parties.storage.files.atomic_replacement` that have not taken their places."""
_TRANSIENT_FOLDERS = ("incoming",)
_SNAPSHOT_TRIES, _SNAPSHOT_PAUSE_S = 50, 0.1


class SnapshotOutdated(Exception):
    """A file is not there any more as it was listed: the server has gone on."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file ``path`` of the folder, ``size`` bytes long when it was listed; ``inode`` tells it from a later one."""

    path: Path
    size: int
    inode: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folder's ``files``, and its ``databases`` whole, by their names in it."""

    files: Mapping[str, ListedFile]
    databases: Mapping[str, bytes] = field(repr=False)

    @contextlib.contextmanager
    def read(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """A file, and how many of its bytes belong to the snapshot. Raises Moved, StoreError."""
        listed = self.files[name]
        try:
            with disk_errors(listed.path, "read"), listed.path.open("rb") as file:
                now = listed.path.stat()
                # One that was written anew is whole at any time, and says what it says.
                size = listed.size if now.st_ino == listed.inode else now.st_size
                if now.st_size < size:
                    raise SnapshotOutdated
                yield file, size
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise SnapshotOutdated from error
            raise


def snapshot(folder: Path) -> Snapshot:
    """The folder as it is. Raises StoreError: unreadable, damaged, or its databases never rest."""
    files: dict[str, ListedFile] = {}
    databases: dict[str, bytes] = {}
    runs = sorted({path.parent.parent for path in folder.rglob(f"{STORE_FOLDER}/{FILE}")})
    for subfolder in dict.fromkeys((*runs, folder)):
        others = [run for run in runs if run != subfolder and run.is_relative_to(subfolder)]
        found = _consistent_snapshot(subfolder, others)
        prefix = subfolder.relative_to(folder)
        files |= {_name(prefix / name): listed for name, listed in found.files.items()}
        databases |= {_name(prefix / name): data for name, data in found.databases.items()}
    return Snapshot(files, databases)


def database_copy(path: Path) -> bytes:
    """An SQLite database, as one read of it gives it, while others may write. Raises StoreError."""
    with _connection(path) as db:
        return _copy(path, db)


def _consistent_snapshot(folder: Path, without: Sequence[Path]) -> Snapshot:
    """One run's folder, or what else there is, at a moment at which none of its databases changes."""
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
    """The regular files below a folder, by name in it, but for those that pass."""
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
    """Whether a file belongs to the process that runs, and to no copy."""
    return (
        name.name == "lock"
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
    with disk_errors(path, "read"):
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=30.0)) as db:
            yield db


def _data_version(path: Path, db: sqlite3.Connection) -> int:
    """A number that grows with each change by another connection."""
    with disk_errors(path, "read"):
        return int(db.execute("PRAGMA data_version").fetchone()[0])


def _copy(path: Path, db: sqlite3.Connection) -> bytes:
    with disk_errors(path, "read"), contextlib.closing(sqlite3.connect(":memory:")) as copy:
        db.backup(copy)
        data = copy.serialize()
    # Bytes 18 and 19 say that there is a log beside it, which there is not (https://www.sqlite.org/fileformat.html).
    return data[:18] + b"\1\1" + data[20:]


def _name(path: Path) -> str:
    return str(PurePosixPath(path))
