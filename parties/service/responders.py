"""TLS endpoints for studies at a service's own process: one for each study that is asked for, and few at a time.

A ``StudyResponder`` terminates TLS on connections that it is passed, and answers each HTTP request; a ``ResponderPool``
makes responders when a connection comes, and ends the least recently used ones.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from parties.network.port_sharing import PassedSocketQueue, PassedSocketServer

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

HANDSHAKE_S = 10.0
MAX_HANDSHAKES = 128
MAX_CONNECTIONS = 256
"""Limits of one endpoint."""
_LINGER_S = 1.0
_MAX_RESPONDERS = 64
"""Maximum number of studies with a responder; the least recently used one is closed."""
_RESPONDER_IDLE_S = 60.0
"""Idle time after which a responder is closed, in seconds: its TLS context takes 40 KB."""


class Responder(Protocol):
    """Endpoint of one study; ``answering`` is the number of requests under way."""

    asked_at: float
    answering: int

    @property
    def put(self) -> Callable[[socket.socket], None]:
        """Function that takes over a connection."""

    def has_room(self) -> bool:
        """Returns true if a further connection may be taken."""

    async def close(self) -> None:
        """Ends all connections."""


class _BriefConnection(web.RequestHandler):
    """A connection that ends after a time, whatever its peer does."""

    def __init__(
        self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, limit_s: float
    ) -> None:
        super().__init__(manager, loop=loop, auto_decompress=False)
        self._limit_s = limit_s
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        if isinstance(transport, asyncio.Transport):
            self._end = loop.call_later(self._limit_s, transport.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        """See asyncio.Protocol."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)


class StudyResponder:
    """Endpoint of one study; ``answering`` is the number of requests under way.

    With ``limit_s`` a connection ends after so many seconds, and the oldest one where there are too many: for peers
    that nobody knows, of whom few addresses would otherwise keep all others away.
    """

    def __init__(
        self, answer: Answer, context: ssl.SSLContext, *, limit_s: float | None = None
    ) -> None:
        self.asked_at = 0.0
        self.answering = 0
        self._answer = answer
        self._ends_oldest = limit_s is not None
        inlet = PassedSocketQueue()
        self.put = inlet.put
        server = self._server = web.Server(self._answer_request, access_log=None)
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.BaseProtocol:
            if limit_s is None:
                return server()
            return _BriefConnection(server, loop=loop, limit_s=limit_s)

        self._handed = PassedSocketServer(inlet, connection, context, HANDSHAKE_S, MAX_HANDSHAKES)

    async def close(self) -> None:
        """Ends all connections."""
        self._handed.close()
        await self._server.shutdown(_LINGER_S)
        await self._handed.wait_closed()

    def has_room(self) -> bool:
        """Returns true if a further connection may be taken, after the end of the oldest one if there are too many."""
        transports = [each.transport for each in self._server.connections]
        there = [each for each in transports if each is not None and not each.is_closing()]
        if len(there) < MAX_CONNECTIONS:
            return True
        if self._ends_oldest and isinstance(there[0], asyncio.Transport):
            there[0].abort()
            return True
        return False

    async def _answer_request(self, request: web.BaseRequest) -> web.StreamResponse:
        self.answering += 1
        try:
            response = await self._answer(request)
        except TimeoutError as error:
            raise ConnectionError("the requester takes nothing") from error
        finally:
            self.answering -= 1
        response.force_close()
        return response


class ResponderPool:
    """Responders by the digests of studies."""

    def __init__(self) -> None:
        self._responders: dict[str, Responder] = {}
        """Responders, the least recently used one first."""
        self._ending: set[asyncio.Task[None]] = set()

    def take(self, digest: str, connection: socket.socket, make: Callable[[], Responder]) -> None:
        """Passes a connection to the study's responder, which ``make`` returns if there is none; raises its errors."""
        responder = self._responders.pop(digest, None) or make()
        self._responders[digest] = responder
        if not responder.has_room():
            connection.close()
            return
        responder.put(connection)
        responder.asked_at = time.monotonic()
        for old, kept in list(self._responders.items()):
            if kept.answering or kept is responder:
                continue
            if (
                len(self._responders) <= _MAX_RESPONDERS
                and kept.asked_at > responder.asked_at - _RESPONDER_IDLE_S
            ):
                break
            self._end(old)

    def _end(self, digest: str) -> None:
        task = asyncio.ensure_future(self._responders.pop(digest).close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Closes all connections."""
        for digest in list(self._responders):
            self._end(digest)
        await asyncio.gather(*self._ending)
