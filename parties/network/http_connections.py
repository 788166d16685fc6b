"""Connections of HTTP requests over TLS that are all closed when their session is.

Where a server closes after its answer, the HTTP library begins TLS's own farewell and forgets the connection; it stays
open until the server answers that, at most 30 s, and longer than the event loop of a command. An answer's length is
said in HTTP, so that nothing depends on the farewell.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import Any

import aiohttp
from aiohttp.connector import AddrInfoType

_CLOSE_S = 1.0
"""Longest wait for sockets to be closed whose connections have been ended."""


class TlsConnector(aiohttp.TCPConnector):
    """A connector of ``aiohttp.ClientSession``; ``options`` are those of TCPConnector."""

    def __init__(self, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(ssl=context, socket_factory=self._make_socket, **options)
        self._sockets: list[socket.socket] = []

    @property
    def open_sockets(self) -> list[socket.socket]:
        """The sockets of connections that are not closed yet."""
        return [item for item in self._sockets if item.fileno() != -1]

    async def close(self, *, abort_ssl: bool = True) -> None:
        """Closes every connection, whatever its server does."""
        await super().close(abort_ssl=abort_ssl)
        for item in self.open_sockets:
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                while self.open_sockets:  # noqa: ASYNC110  # A socket sets no event.
                    await asyncio.sleep(0)

    def _make_socket(self, address: AddrInfoType) -> socket.socket:
        made = socket.socket(*address[:3])
        made.setblocking(False)
        self._sockets = [*self.open_sockets, made]
        return made
