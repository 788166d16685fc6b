"""Ports of this machine for processes that are about to start.

Provides ``LOOPBACK`` and ``free_ports``. Public.
"""

import contextlib
import secrets
import socket

LOOPBACK = "127.0.0.1"
# Below what systems give to outgoing connections, so that none takes a port before its server listens.
_LOWEST, _HIGHEST = 15_000, 32_767


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface that were free a moment ago. Raises OSError if there are too few."""
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        for _ in range(1000 + count):
            if len(ports) == count:
                return ports
            port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST + 1)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server((LOOPBACK, port)))
                ports.append(port)
    raise OSError(
        f"{count} free ports between {_LOWEST} and {_HIGHEST} were not found on {LOOPBACK}"
    )
