"""An admin API that answers while its process computes: on a thread and an event loop of its own.

Provides ``answering``: it can say that the computation hangs because it does not hang with it. Public: everything.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from aiohttp import web

_START_S = 10.0
_END_S = 5.0
_LINGER_S = 1.0
"""How long requests under way may take to end."""
_IDLE_S = 10.0
HANDSHAKE_S = 10.0
_SILENT = logging.getLogger("syncret.admin.requests")
"""What is no HTTP is answered with 400 and is worth no traceback; defects are logged by the application."""
_SILENT.disabled = True


@dataclass(frozen=True, slots=True)
class Listening:
    """A bound socket that takes connections, over TLS if there is a ``context``."""

    socket: socket.socket
    context: ssl.SSLContext | None = None


@contextlib.contextmanager
def answering(
    application: Callable[[], web.Application], listening: Sequence[Listening]
) -> Iterator[None]:
    """Answer at all sockets while the block runs, and close them. ``application`` is made on the API's own thread."""
    thread = _Thread(application, listening)
    thread.start()
    try:
        thread.ready()
        yield
    finally:
        thread.end()
        for one in listening:
            one.socket.close()


async def _opened(runner: web.AppRunner, one: Listening) -> asyncio.Server:
    """As aiohttp's SockSite, with a deadline of our own for handshakes."""
    if runner.server is None:
        raise RuntimeError("the HTTP server was not set up")
    return await asyncio.get_running_loop().create_server(
        runner.server,
        sock=one.socket,
        ssl=one.context,
        ssl_handshake_timeout=None if one.context is None else HANDSHAKE_S,
    )


class _Thread(threading.Thread):
    def __init__(
        self, application: Callable[[], web.Application], listening: Sequence[Listening]
    ) -> None:
        super().__init__(name="admin", daemon=True)
        self._application = application
        self._listening = listening
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # Told by ``ready``.
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            logger=_SILENT,
            shutdown_timeout=_LINGER_S,
            keepalive_timeout=_IDLE_S,
        )
        await runner.setup()
        servers: list[asyncio.Server] = []
        try:
            for one in self._listening:
                servers.append(await _opened(runner, one))
            self._ready.set()
            await self._over.wait()
            await self._accept_no_more()
        finally:
            for server in servers:
                server.close()
            await runner.cleanup()

    async def _accept_no_more(self) -> None:
        """Before the sockets are closed: asyncio loses the one of a connection that it is accepting just then."""
        loop = asyncio.get_running_loop()
        for one in self._listening:
            loop.remove_reader(one.socket.fileno())
        for _ in range(3):
            await asyncio.sleep(0)

    def ready(self) -> None:
        """Wait until it answers. Raises what keeps it from that."""
        if not self._ready.wait(_START_S):
            raise TimeoutError(f"the admin API did not start within {_START_S:g} s")
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Close all connections; what does not end in time ends with the process."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # It has ended already.
                self._loop.call_soon_threadsafe(self._over.set)
        self.join(_END_S)
