"""Processes of a DistAIM trial and their ports: three servers, and one process for all data owners.

``start_held_children`` starts the processes held (`parties.local.processes`): they import their modules while the
launcher reads the table and makes certificates. This module itself imports little, so that a command can start them
first. Nothing here is secret.
"""

import contextlib
import errno
import fcntl
import functools
import os
import secrets
import socket
import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from parties.local.folder import REGISTRY_FILE, RunFolder
from parties.local.processes import Child

JOB_FILE = "job.json"
_CHILD_OPTIONS = ("--json", "--watch-stdin")


@dataclass(frozen=True, slots=True)
class Children:
    """Processes of a trial: the servers by index, and the owners' process."""

    servers: tuple[Child, ...]
    owners: Child

    @property
    def all(self) -> tuple[Child, ...]:
        """All processes."""
        return (*self.servers, self.owners)

    def kill(self) -> None:
        """Kills the processes that still run."""
        for child in self.all:
            child.kill()


def start_held_children(folder: RunFolder) -> Children:
    """Starts the processes of a run in ``folder``, which need not exist yet. Raises OSError."""
    servers = tuple(_server_child(folder, pid) for pid in range(len(folder.servers)))
    arguments = ["internal", "owners", str(folder.owners / JOB_FILE), *_CHILD_OPTIONS]
    return Children(servers, Child.held("data owners", arguments, log=folder.owners / "log.txt"))


def _server_child(folder: RunFolder, pid: int) -> Child:
    directory = folder.party(pid)
    arguments = [
        "internal",
        "server",
        str(folder.config),
        "--pid",
        str(pid),
        "--dir",
        str(directory),
    ]
    # A trial has its own registry: nothing is written outside its folder, and the same trial may run again.
    arguments += ["--register", str(directory / REGISTRY_FILE), *_CHILD_OPTIONS]
    return Child.held(f"party {pid}", arguments, log=directory / "log.txt")


LOOPBACK = "127.0.0.1"
# Below the systems' ranges for outgoing connections, so that none takes a port before its server listens.
_LOWEST, _HIGHEST = 15_000, 32_767
# Number of returned ports that this process keeps reserved.
_MAX_RESERVED = 1000
_reserved: deque[int] = deque()


def free_ports(count: int) -> list[int]:
    """Returns different ports of the loopback interface that were free a moment ago. Raises OSError if there are too
    few.

    Other processes of this user with the same temporary folder do not receive these ports while this process lives, or
    until it has returned a thousand more: a server may start, or start again, any time later. If that folder has no
    locks of this user's, the ports were free and are not reserved.
    """
    register, ports = _lock_file(), list[int]()
    with contextlib.ExitStack() as held:
        for _ in range(1000 + count):
            if len(ports) == count:
                return ports
            port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST + 1)
            with contextlib.suppress(OSError):
                _reserve(register, port)
                held.enter_context(socket.create_server((LOOPBACK, port)))
                ports.append(port)
    raise OSError(
        f"{count} free ports between {_LOWEST} and {_HIGHEST} were not found on {LOOPBACK}"
    )


def _reserve(register: int | None, port: int) -> None:
    """Locks the port's byte in this user's lock file. Raises OSError if any process, this one included, has it."""
    if port in _reserved:
        raise OSError(f"port {port} was given already")
    _reserved.append(port)
    oldest = _reserved.popleft() if len(_reserved) > _MAX_RESERVED else None
    if register is None:
        return
    if oldest is not None:
        fcntl.lockf(register, fcntl.LOCK_UN, 1, oldest)
    try:
        fcntl.lockf(register, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError as problem:
        # On a file system without locks the port is used without a reservation.
        if problem.errno in (errno.EACCES, errno.EAGAIN):
            raise


@functools.cache
def _lock_file() -> int | None:
    """Returns this user's lock file, or None; another user of the folder may have created a file of the same name."""
    # Locks end with the process, or when it closes the file: the file stays open, and empty.
    path = Path(tempfile.gettempdir()) / f"syncret-ports-{os.getuid()}"
    try:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    if os.fstat(opened).st_uid == os.getuid():
        return opened
    os.close(opened)
    return None
