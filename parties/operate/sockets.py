"""The Unix socket in a server's own folder by which its operator speaks to it: who may enter the folder may ask.

Provides ``listen``, ``connected`` and ``NAME``. The socket has mode 0600 before anybody can connect. A path of any
length will do: what is too long for a socket's address is reached by the folder's descriptor, where the system has
/proc. Secret: nothing. Source: unix(7).
"""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from parties.errors import StoreError
from parties.files import disk_errors

NAME = "admin.sock"
_LONGEST = 100
"""Bytes of a socket's path: 107 on Linux, 103 elsewhere."""
_WAITING = 16


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A name of ``path`` that is short enough for as long as the block runs. Raises StoreError where there is none."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{folder}/{path.name}"
        if not Path(short).parent.exists():
            text = f"is too long for a socket; expected at most {_LONGEST} bytes on this system"
            raise StoreError(path, text)
        yield short
    finally:
        os.close(folder)


def connected(path: Path, timeout_s: float) -> socket.socket:
    """A connection to whoever listens at ``path``. Raises OSError where nobody does."""
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        raw.settimeout(timeout_s)
        with reachable(path) as name:
            raw.connect(name)
    except BaseException:
        raw.close()
        raise
    return raw


def listen(path: Path) -> socket.socket:
    """A listening socket at ``path``, in the place of one that a killed process left.

    Raises StoreError: somebody listens there, or the folder is not writable.
    """
    with disk_errors(path):
        if path.is_socket():
            if _answers(path):
                text = "is in use by another process; expected a folder of its own"
                raise StoreError(path, text) from OSError(
                    errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)
                )
            path.unlink()
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with reachable(path) as name:
                raw.bind(name)
            # Nobody can connect before it listens.
            path.chmod(0o600)
            raw.listen(_WAITING)
        except BaseException:
            raw.close()
            raise
    return raw


def _answers(path: Path) -> bool:
    try:
        connected(path, 1.0).close()
    except OSError as error:
        return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True
