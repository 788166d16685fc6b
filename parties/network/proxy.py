"""The tunnel through an HTTP proxy, in which TLS with the pinned server goes end to end.

The proxy is asked to CONNECT; it sees names, sizes and times, as a router does. Secret: a proxy's password. Source: RFC
9110, section 9.3.6.
"""

import asyncio
import socket
import ssl

from parties.config.proxy import EXPECTED, Proxy
from parties.foundation.errors import ProxyRefused
from parties.network.frames import end_connection

_MOST_HEAD_BYTES = 16 << 10


async def open_stream(
    proxy: Proxy | None, host: str, port: int, *, context: ssl.SSLContext | None, name: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns a connection to ``host``, through the proxy if there is one; with a ``context`` TLS for server ``name``.

    Raises ProxyRefused, or OSError; a deadline is the caller's.
    """
    if proxy is None:
        return await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    tunnel = await open_tunnel(proxy, host, port)
    try:
        return await asyncio.open_connection(sock=tunnel, ssl=context, server_hostname=name)
    except BaseException:
        end_connection(tunnel)
        raise


async def open_tunnel(proxy: Proxy, host: str, port: int) -> socket.socket:
    """Returns a connection to ``host`` through the proxy, on which TLS can begin; the caller closes it.

    Raises ProxyRefused, or OSError where the proxy cannot be reached; a deadline is the caller's.
    """
    authority = _authority(host, port)
    connection = await _connected(proxy)
    try:
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        lines += [f"{name}: {value}" for name, value in proxy.headers.items()]
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, "\r\n".join([*lines, "", ""]).encode())
        status, phrase = _status_of(await _head(connection, proxy), proxy)
        if not 200 <= status < 300:
            raise ProxyRefused(proxy.refusal(status, phrase))
    except BaseException:
        connection.close()
        raise
    return connection


def _authority(host: str, port: int) -> str:
    """Returns the server's name and port for a header. Raises ProxyRefused for a name that would be more than that."""
    try:
        name = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not name or not name.isascii() or not name.isprintable() or " " in name:
        raise ProxyRefused(
            f"{host!r} is no name of a server; expected the server's own, in the config"
        )
    return f"{name}:{port}"


async def _connected(proxy: Proxy) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OSError(proxy.unreachable(f"no address is known: {error.strerror}")) from error
    failure: OSError | None = None
    for family, kind, protocol, _, address in found:
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address)
        except OSError as error:
            connection.close()
            failure = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise OSError(proxy.unreachable(str(failure))) from failure


async def _head(connection: socket.socket, proxy: Proxy) -> bytes:
    """Returns the head of the proxy's answer. Nothing comes after it before TLS begins, which this side does."""
    loop, head = asyncio.get_running_loop(), bytearray()
    while not head.endswith(b"\r\n\r\n"):
        byte = await loop.sock_recv(connection, 1)
        if not byte or len(head) >= _MOST_HEAD_BYTES:
            raise ProxyRefused(
                f"the proxy {proxy} ({proxy.source}) answers nothing that is HTTP; {EXPECTED}"
            )
        head += byte
    return bytes(head)


def _status_of(head: bytes, proxy: Proxy) -> tuple[int, str]:
    version, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    number, _, phrase = rest.partition(" ")
    if not version.startswith("HTTP/1.") or not (number.isascii() and number.isdigit()):
        raise ProxyRefused(
            f"the proxy {proxy} ({proxy.source}) answers nothing that is HTTP; {EXPECTED}"
        )
    return int(number), phrase
