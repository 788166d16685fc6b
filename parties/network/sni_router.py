"""Ports of a service, shared by SNI: a connection is passed to the handler for its name before any byte is read.

``SniRouter`` answers a connection without a name, or with one that has no handler, with TLS's alert unrecognized_name
and closes it; it closes a connection that is not TLS, or sends no name in time. Routing authenticates nothing:
certificates are checked where TLS ends. A proxy before a port has to pass TLS through, as mutual TLS demands anyway;
the name then stays. Public: names and addresses.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial

from parties.config import Address
from parties.foundation.errors import ConfigError
from parties.foundation.report_limit import ReportLimit
from parties.network.client_hello import MAX_HELLO_BYTES, ClientHello, HelloStatus
from parties.network.remote_address import listen_everywhere

HELLO_TIMEOUT_S = 5.0
"""Maximum time for a connection's ClientHello, in seconds."""
MAX_PENDING_HELLOS = 512
"""Maximum number of connections without a ClientHello at a port; a further one ends the oldest."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25
_UNRECOGNIZED_NAME = bytes((21, 3, 3, 0, 2, 2, 112))
"""TLS record of the fatal alert unrecognized_name: RFC 8446, 6."""

ConnectionHandler = Callable[[socket.socket], object]


def ignore_refusal(port: str, remote: str, reason: str) -> None:
    """Ignores a refused connection."""


class SniRouter:
    """One port; ``routes`` has the handler of each name, and ``fallback`` may handle any other name.

    ``on_refusal`` is called for refused connections, at a limited rate: with the port's name, the address, the reason.
    """

    def __init__(self, what: str, listeners: Sequence[socket.socket]) -> None:
        self.what = what
        self.routes: dict[str, ConnectionHandler] = {}
        self.fallback: Callable[[str, socket.socket], bool] = lambda name, connection: False
        self.on_refusal: Callable[[str, str, str], object] = ignore_refusal
        self.refused = 0
        self._listeners = listeners
        self._pending: dict[asyncio.Task[None], None] = {}
        self._reports = ReportLimit()
        self._accepting = [asyncio.ensure_future(self._accept(each)) for each in listeners]

    @classmethod
    def open(cls, what: str, address: Address) -> "SniRouter":
        """Listens at ``address``, a name's IPv4 and IPv6 alike; within an event loop. Raises ConfigError."""
        try:
            listeners = listen_everywhere(address)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                "service",
                what,
                f"cannot listen on {address}: {reason}; expected an address of this host and a free port, or where to "
                f"listen instead (--listen-{what})",
            ) from error
        for each in listeners:
            each.setblocking(False)
        return cls(what, listeners)

    async def close(self) -> None:
        """Stops listening and drops connections without a ClientHello."""
        tasks = [*self._accepting, *self._pending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._listeners:
            each.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listener)
            except OSError:  # The client has gone, or this process has too many open files.
                await asyncio.sleep(_LONGEST_PAUSE_S)
                continue
            if len(self._pending) >= MAX_PENDING_HELLOS:
                oldest = next(iter(self._pending))
                del self._pending[oldest]
                oldest.cancel()
            task = asyncio.ensure_future(self._route(connection, str(peer[0])))
            self._pending[task] = None
            task.add_done_callback(partial(self._routed, connection))
            # While connections are waiting, accepting does not suspend: other tasks, cancelled ones included, need a
            # turn.
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
                # Unread data would make the system reset the connection, and lose the alert.
                connection.recv(MAX_HELLO_BYTES)
        connection.close()

    def _refuse(self, peer: str, reason: str) -> None:
        """Counts a refusal, and reports it at a limited rate."""
        self.refused += 1
        if self._reports.admit() is not None:
            self.on_refusal(self.what, peer, reason)


async def _peek_hello(connection: socket.socket) -> ClientHello | None:
    """Returns the ClientHello of a connection; None if none came in time, or the client has gone."""
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
        # Peeked data stays in the buffer, so that waiting for input would return at once.
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return None
