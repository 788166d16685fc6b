"""Replay log: a file with a server's keys, received messages and other inputs, in order.

``ReplayLog`` writes the file, ``read_replay_log`` reads it as a ``Recording``. SECRET: a log holds the server's keys,
its shares of every client's counts and all received messages; together with another server's log it reveals the data.
It is made for an auditor who may see one server's share, and only if ``record_replay`` is set
(`parties.mpc.replay.recorder`).

Representation: a magic line, then items: kind (1 byte), length of the name (2), length of the value (8), both. Names of
received messages are "peer/label".
"""

import os
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parties.storage.files import create, write_atomic
from protocols.context import Payload
from protocols.errors import CheckFailed

REPLAY_FOLDER, SERVER_FILE = "replay", "server.txt"
WARNING = (
    "record_replay is on: this server keeps its keys, its shares of every client's counts and everything it receives "
    "in {folder}. Two servers' recordings together are the data. Give it to nobody but an auditor who may see this "
    "server's share. It is kept when the run has ended and all else that is secret is deleted: delete it afterwards "
    "(syncret forget)."
)
_MAGIC = b"syncret tape 1\n"
_ITEM = struct.Struct("<cHQ")
_INPUT, _KEY, _RECEIVED = b"i", b"k", b"r"


class ReplayLog:
    """Writes a file in ``directory`` / replay, for the operator's eyes only. Raises OSError, StoreError.

    Calls may come from several threads. An item is in the file when its call returns, and on the disk after ``sync``.
    """

    def __init__(self, directory: Path, pid: int) -> None:
        self.folder = directory / REPLAY_FOLDER
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.folder.chmod(0o700)
        warning = WARNING.format(folder="this folder") + "\n"
        write_atomic(self.folder / "WARNING.txt", warning, secret=True)
        write_atomic(self.folder / SERVER_FILE, f"{pid}\n", secret=True)
        path = self.folder / f"attempt-{time.time_ns():020d}.tape"
        self._file = os.fdopen(create(path, secret=True), "wb")
        self._lock = threading.Lock()
        self._file.write(_MAGIC)
        self._file.flush()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def input(self, name: str, value: bytes) -> None:
        """Logs an input of this server other than a message."""
        self._write(_INPUT, name, value)

    def key(self, name: str, value: bytes) -> None:
        """Logs a key of this server."""
        self._write(_KEY, name, value)

    def received(self, peer: int, label: int, payload: Payload) -> None:
        """Logs a received message."""
        self._write(_RECEIVED, f"{peer}/{label}", payload.tobytes())

    def sync(self) -> None:
        """Flushes all items to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, kind: bytes, name: str, value: bytes) -> None:
        encoded = name.encode()
        with self._lock:
            self._file.write(_ITEM.pack(kind, len(encoded), len(value)) + encoded)
            self._file.write(value)
            self._file.flush()


@dataclass(frozen=True, slots=True, repr=False)
class Recording:
    """Content of a replay log: inputs in order, keys by name, received payloads by peer and label. Secret."""

    inputs: Sequence[tuple[str, bytes]]
    keys: Mapping[str, bytes]
    received: Mapping[tuple[int, int], bytes]


def read_replay_log(path: Path) -> Recording:
    """Content of a log up to its last whole item. Raises CheckFailed if it is no log, OSError."""
    try:
        return _read(path)
    except ValueError as error:
        raise CheckFailed(f"{path} is damaged: a name in it cannot be read") from error


def _read(path: Path) -> Recording:
    data = memoryview(path.read_bytes())
    first = bytes(data[: len(_MAGIC)])
    if not _MAGIC.startswith(first):
        raise CheckFailed(f"{path} is not a recording for a replay")
    inputs: list[tuple[str, bytes]] = []
    keys: dict[str, bytes] = {}
    received: dict[tuple[int, int], bytes] = {}
    offset = len(_MAGIC)
    while offset + _ITEM.size <= len(data):
        kind, name_size, size = _ITEM.unpack_from(data, offset)
        offset += _ITEM.size
        if offset + name_size + size > len(data):
            break
        name = bytes(data[offset : offset + name_size]).decode()
        value = bytes(data[offset + name_size : offset + name_size + size])
        offset += name_size + size
        if kind == _RECEIVED:
            peer, _, label = name.partition("/")
            received[int(peer), int(label)] = value
        elif kind == _KEY:
            keys[name] = value
        else:
            inputs.append((name, value))
    return Recording(inputs, keys, received)
