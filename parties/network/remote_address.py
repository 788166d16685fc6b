"""Address of the peer of a connection that is being accepted, for handshakes that fail before anything is known of it.

`ssl` tells nobody whose handshake it is. A ``listener`` remembers the address in the context of the
task that accepts a connection, which asyncio passes on to all callbacks of that connection; ``set_remote`` does so for
a connection that comes from elsewhere. ``remote_address`` reads it. Public: addresses.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
import sys
import weakref
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from parties.config import Address

_REMOTE: ContextVar[str] = ContextVar("remote", default="")
_BACKLOG = 1024


def remote_address() -> str:
    """Returns the address of the connection that this task, or callback, is accepting; "" if it is unknown."""
    return _REMOTE.get()


def set_remote(connection: socket.socket) -> None:
    """Remembers the address of a connection's peer for this task."""
    name: object = ""
    with contextlib.suppress(OSError):
        name = connection.getpeername()
    _REMOTE.set(str(name[0]) if isinstance(name, tuple) else "")


class _Listener(socket.socket):
    """Listening socket; it closes connections at once while ``most`` of those that it has accepted are open."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.most = sys.maxsize
        self._accepted = weakref.WeakSet[socket.socket]()

    def accept(self) -> tuple[socket.socket, Any]:
        """See ``socket.socket``. Raises ConnectionAbortedError, which asyncio passes over, for one too many."""
        connection, address = super().accept()
        if self.most < sys.maxsize:
            if sum(each.fileno() >= 0 for each in self._accepted) >= self.most:
                connection.close()
                raise ConnectionAbortedError
            self._accepted.add(connection)
        _REMOTE.set(str(address[0]) if isinstance(address, tuple) else "")
        return connection, address

    def dup(self) -> "_Listener":
        """See ``socket.socket``."""
        made = super().dup()
        made.most = self.most
        return made


class ListeningServers:
    """Counterpart of ``asyncio.Server`` for all addresses of a name, each with a server of its own."""

    def __init__(self, servers: Sequence[asyncio.Server]) -> None:
        self._servers = servers

    @property
    def sockets(self) -> tuple[socket.socket | TransportSocket, ...]:
        """Sockets that listen."""
        return tuple(each for server in self._servers for each in server.sockets)

    def close(self) -> None:
        """Stops listening."""
        for server in self._servers:
            server.close()

    async def wait_closed(self) -> None:
        """Waits for the end of all servers."""
        await asyncio.gather(*(server.wait_closed() for server in self._servers))


async def serve_tls(
    factory: Callable[[], asyncio.BaseProtocol],
    address: Address,
    context: ssl.SSLContext,
    *,
    handshake_s: float,
) -> ListeningServers:
    """Accepts TLS connections at all addresses that ``address`` stands for.

    Raises OSError if this host cannot listen at one of them.
    """
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[asyncio.Server] = []
    try:
        for family, _, _, _, name in dict.fromkeys(infos):
            server = await loop.create_server(
                factory,
                sock=listener(family, name),
                ssl=context,
                ssl_handshake_timeout=handshake_s,
                backlog=_BACKLOG,
            )
            made.append(server)
    except BaseException:
        for server in made:
            server.close()
        raise
    return ListeningServers(made)


def listen_at(address: Address, *, most: int | None = None) -> socket.socket:
    """Returns a socket that listens at ``address``: at :: for IPv6 and IPv4. Raises what sockets raise.

    With ``most``, that many connections are open at a time, handshakes included; further ones are closed at once.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    both = address.host == "::" and socket.has_dualstack_ipv6()
    made = listener(family, (address.host, address.port), both=both)
    if most is not None:
        made.most = most
    return made


def listen_everywhere(address: Address) -> list[socket.socket]:
    """Returns a socket that listens at each address of ``address``, which may be a name with IPv4, IPv6 or both.

    Addresses that this host does not have are left out where it has another. Raises what sockets raise.
    """
    if ":" in address.host:
        return [listen_at(address)]
    infos = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    missing: OSError | None = None
    for family, _, _, _, name in dict.fromkeys(infos):
        try:
            made.append(listener(family, name))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                for each in made:
                    each.close()
                raise
            missing = error
    if not made and missing is not None:
        raise missing
    return made


def listener(family: int, name: tuple[Any, ...], *, both: bool = False) -> _Listener:
    """Returns a socket that listens at ``name``, a socket address; with ``both`` at IPv4, too. Raises OSError."""
    raw = _Listener(family, socket.SOCK_STREAM)
    try:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both))
        raw.bind(name)
        raw.listen(_BACKLOG)
    except BaseException:
        raw.close()
        raise
    return raw
