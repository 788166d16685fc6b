"""Files whole or not at all: full disks, kills, folders in the way, and who may read what is secret."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from parties.foundation.errors import StoreError
from parties.storage.files import (
    atomic_replacement,
    disk_errors,
    write_atomic,
    write_json,
    write_new,
)
from tests.parties.support import file_size_limit


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("durable", [False, True])
def test_write_whole_puts_the_new_in_place_of_the_old(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "file"
    write_atomic(path, "größer", durable=durable)
    assert path.read_text(encoding="utf-8") == "größer"
    write_atomic(path, b"\x00\xff", durable=durable)
    assert path.read_bytes() == b"\x00\xff"
    assert list(tmp_path.iterdir()) == [path]


def test_write_whole_keeps_the_old_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    with (
        file_size_limit(1000),
        pytest.raises(StoreError, match="file: cannot be written: File too large; expected a wri"),
    ):
        write_atomic(path, bytes(2000))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_whole_names_the_file_whose_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written: No such file") as caught:
        write_atomic(tmp_path / "gone" / "file", b"")
    assert caught.value.path == tmp_path / "gone" / "file"


def test_write_json_refuses_a_number_that_json_does_not_have(tmp_path: Path) -> None:
    write_json(tmp_path / "file", {"a": 0.1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "file", {"a": float("inf")})
    assert (tmp_path / "file").read_text() == '{"a": 0.1}\n'


def test_replacing_keeps_the_old_when_the_writer_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write(error: BaseException) -> None:
        with atomic_replacement(path) as beside:
            beside.write_bytes(b"half")
            raise error

    for error in (ValueError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            write(error)
    with pytest.raises(StoreError, match="file: cannot be written: no more"):
        write(OSError(28, "no more"))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_atomic(path, b"key", secret=True),
        lambda path: write_json(path, {"key": 1}, durable=True, secret=True),
        lambda path: write_new(path, b"key", secret=True),
    ],
)
def test_secret_files_are_never_open_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> None:
    """Not even before anything is in them: the mode is that of the call which makes the file."""
    modes: list[int] = []

    def opening(path: Path, flags: int, mode: int = 0o777, **options: int) -> int:
        descriptor = real(path, flags, mode, **options)
        if flags & os.O_CREAT:
            modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    real = os.open
    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "open", opening)
        write(tmp_path / "file")
        write_atomic(tmp_path / "public", b"")
    finally:
        os.umask(before)
    assert modes == [0o600, 0o666]
    assert mode_of(tmp_path / "file") == 0o600


def test_write_new_leaves_what_is_there_and_no_half_a_file(tmp_path: Path) -> None:
    write_new(tmp_path / "file", b"first")
    with pytest.raises(StoreError, match="file: cannot be written: File exists"):
        write_new(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    with file_size_limit(1000), pytest.raises(StoreError, match="File too large"):
        write_new(tmp_path / "other", bytes(2000))
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_disk_errors_names_the_path_where_another_stands_in_its_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "below"
    with pytest.raises(StoreError, match="cannot be made: ") as caught, disk_errors(below, "made"):
        below.mkdir(parents=True)
    assert caught.value.path == below


def test_disk_errors_names_the_file_that_was_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught, disk_errors(tmp_path, "read"):
        (tmp_path / "gone").read_bytes()
    assert caught.value.path == tmp_path / "gone"
    assert "cannot be read: No such file or directory; expected a file" in str(caught.value)
    with pytest.raises(StoreError) as caught, disk_errors(tmp_path):
        (tmp_path / "gone").rename(tmp_path / "there")
    assert caught.value.path == tmp_path / "there"
    with (
        pytest.raises(StoreError, match="opened: locked") as caught,
        disk_errors(tmp_path, "opened"),
    ):
        raise sqlite3.OperationalError("locked")
    assert caught.value.path == tmp_path


WRITER = """
import sys
from pathlib import Path
from parties.storage.files import write_atomic

for number in range(10**9):
    write_atomic(Path(sys.argv[1]), str(number % 10) * 10**6)
    print(number, flush=True)
"""


def test_write_whole_leaves_a_whole_file_after_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "file"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) == 20:
            break
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    text = path.read_text()
    assert len(text) == 10**6
    assert len(set(text)) == 1
