"""The processes of a trial: three servers, and one that plays all data owners.

Provides ``Children`` and ``start_held_children``, which starts them held (`parties.local.processes`): they import what
they need while the table is read and certificates are made. Imports hardly anything itself, so that a command can hold
them first of all. Nothing here is secret.

Ports of this machine for processes that are about to start.

Provides ``LOOPBACK`` and ``free_ports``. Public.
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
    """The servers by pid, and the owners."""

    servers: tuple[Child, ...]
    owners: Child

    @property
    def all(self) -> tuple[Child, ...]:
        """Everybody."""
        return (*self.servers, self.owners)

    def kill(self) -> None:
        """End whoever still runs."""
        for child in self.all:
            child.kill()


def start_held_children(folder: RunFolder) -> Children:
    """Start the processes of a run in ``folder``, which need not be there yet. Raises OSError."""
    servers = tuple(_server_child(folder, pid) for pid in range(len(folder.servers)))
    arguments = ["owners", str(folder.owners / JOB_FILE), *_CHILD_OPTIONS]
    return Children(servers, Child.held("data owners", arguments, log=folder.owners / "log.txt"))


def _server_child(folder: RunFolder, pid: int) -> Child:
    directory = folder.party(pid)
    arguments = ["party", str(folder.config), "--pid", str(pid), "--dir", str(directory)]
    # A trial has its own: nothing is written outside its folder, and the next one may be the same again.
    arguments += ["--register", str(directory / REGISTRY_FILE), *_CHILD_OPTIONS]
    return Child.held(f"party {pid}", arguments, log=directory / "log.txt")


LOOPBACK = "127.0.0.1"
# Below what systems give to outgoing connections, so that none takes a port before its server listens.
_LOWEST, _HIGHEST = 15_000, 32_767
# So many ports stay this process's own after they were given.
_MAX_RESERVED = 1000
_reserved: deque[int] = deque()


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface that were free a moment ago. Raises OSError if there are too few.

    No other process of this user with the same temporary folder is given them as long as this one lives, or has been
    given a thousand more: a server may start, or start again, any time later. Where that folder has no locks of this
    user's, they were free and no more.
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
    """Lock the port's byte of a file of this user's. Raises OSError where somebody, this process too, has it."""
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
        # A file system without locks is no reason to have no ports.
        if problem.errno in (errno.EACCES, errno.EAGAIN):
            raise


@functools.cache
def _lock_file() -> int | None:
    """The file, where this user has one; whoever shares the folder can have made another one of its name."""
    # Locks end with the process, or when it closes the file: it stays open, and empty.
    path = Path(tempfile.gettempdir()) / f"syncret-ports-{os.getuid()}"
    try:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    if os.fstat(opened).st_uid == os.getuid():
        return opened
    os.close(opened)
    return None
