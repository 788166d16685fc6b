"""The ports of a service: who dials says by name (SNI) whom it means, and is handed there before a byte is taken.

Provides ``SniRouter``. What has no name, or one that nobody has at present, is answered with TLS's alert
unrecognized_name and closed; what is no TLS, or takes too long to say what it wants, is closed. Nobody is believed
here: certificates are checked where TLS ends. A proxy before a port has to leave TLS alone, as mutual TLS demands
anyway; then the name stays. Public: names and addresses.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from functools import partial

from parties.config import Address
from parties.foundation.errors import ConfigError
from parties.network.client_hello import MAX_HELLO_BYTES, ClientHello, HelloStatus

logger = logging.getLogger("syncret.front")

HELLO_TIMEOUT_S = 5.0
"""How long a connection may take to say whom it means."""
MAX_PENDING_HELLOS = 512
"""Connections that have not said it yet, at one port; one more ends the oldest."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25
_UNRECOGNIZED_NAME = bytes((21, 3, 3, 0, 2, 2, 112))
"""TLS's record of a fatal alert: RFC 8446, 6."""
_LOG_S = 10.0

ConnectionHandler = Callable[[socket.socket], object]


class SniRouter:
    """One port; ``routes`` has by name who takes a connection over, ``fallback`` may take one of any other name."""

    def __init__(self, what: str, listener: socket.socket) -> None:
        self.what = what
        self.routes: dict[str, ConnectionHandler] = {}
        self.fallback: Callable[[str, socket.socket], bool] = lambda name, connection: False
        self.refused = 0
        self._listener = listener
        self._pending: dict[asyncio.Task[None], None] = {}
        self._logged_at = -_LOG_S
        self._accepting = asyncio.ensure_future(self._accept())

    @classmethod
    def open(cls, what: str, address: Address) -> "SniRouter":
        """Listen at ``address``; within an event loop. Raises ConfigError."""
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            listener = socket.create_server(
                (address.host, address.port), family=family, backlog=1024
            )
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                "service",
                what,
                f"cannot listen on {address}: {reason}; expected an address of this host and a free port",
            ) from error
        listener.setblocking(False)
        return cls(what, listener)

    async def close(self) -> None:
        """Listen no more; who has not said whom it means is dropped."""
        tasks = [self._accepting, *self._pending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(self._listener)
            except OSError:  # Gone again, or this process has too many files open.
                await asyncio.sleep(_LONGEST_PAUSE_S)
                continue
            if len(self._pending) >= MAX_PENDING_HELLOS:
                oldest = next(iter(self._pending))
                del self._pending[oldest]
                oldest.cancel()
            task = asyncio.ensure_future(self._route(connection, str(peer[0])))
            self._pending[task] = None
            task.add_done_callback(partial(self._routed, connection))
            # While more are waiting, accepting gives nobody else a turn, nor closes who was cancelled.
            await asyncio.sleep(0)

    def _routed(self, connection: socket.socket, task: "asyncio.Task[None]") -> None:
        self._pending.pop(task, None)
        if task.cancelled():
            connection.close()

    async def _route(self, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        hello = await _peek_hello(connection)
        if hello is None or hello.seen is not HelloStatus.HELLO:
            self._refuse(peer, "it said nothing in time" if hello is None else hello.seen.value)
        elif taker := self.routes.get(hello.name or ""):
            taker(connection)
            return
        elif hello.name and self.fallback(hello.name, connection):
            return
        else:
            self._refuse(peer, "it asked for no study" if hello.name is None else "no such study")
            with contextlib.suppress(OSError):
                connection.send(_UNRECOGNIZED_NAME)
                # What it has sent is taken, or the system would reset the connection and the alert with it.
                connection.recv(MAX_HELLO_BYTES)
        connection.close()

    def _refuse(self, peer: str, reason: str) -> None:
        """Say so, but not for each of thousands."""
        self.refused += 1
        if time.monotonic() - self._logged_at >= _LOG_S:
            self._logged_at = time.monotonic()
            logger.warning("%s: refused a connection from %s: %s", self.what, peer, reason)


async def _peek_hello(connection: socket.socket) -> ClientHello | None:
    """What a connection wants; None where it did not say so in time, or is gone."""
    pause_s, deadline = _FIRST_PAUSE_S, time.monotonic() + HELLO_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            data = connection.recv(MAX_HELLO_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            data = None
        except OSError:
            return None
        if data is not None:
            hello = ClientHello.look(data)
            if hello.seen is not HelloStatus.INCOMPLETE or not data:
                return hello if data else None
        # What was looked at is still there, so that waiting for input would return at once.
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return None
