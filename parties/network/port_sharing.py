"""Sharing of a server's ports between studies: SNI names, and connections that are passed to a process unread.

Clients use ``study_sni_name`` as SNI; the process with the ports passes connections on with ``pass_socket``. In the
process of a single study, ``SharedPorts`` receives them and ``PassedSocketServer`` serves them. A connection is passed
as a descriptor, before any byte was read: TLS ends in the study's own process, with the study's own pins, and no byte
is relayed. Public: the name; a network sees in any case that a connection belongs to a study.

Known limits: Unix only, since descriptors are passed. The name selects a route and proves nothing: a client with a
wrong one fails at the pins and at the configuration's digest.
"""

import array
import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from parties.network.frames import end_connection
from parties.network.remote_address import set_remote
from protocols.mesh import Inlet

logger = logging.getLogger("syncret.inlets")

MESH, INGEST = b"m", b"i"
"""Kinds of connections: for the mesh, and for ingest."""
_SUFFIX = ".syncret.invalid"
_DIGITS = 32
_MAX_QUEUED = 128
"""Maximum number of connections that wait for acceptance; further ones are dropped."""


def study_sni_name(digest: str) -> str:
    """Returns the SNI name of the study with configuration ``digest``: 128 bits of it below .invalid (RFC 6761)."""
    return digest[:_DIGITS] + _SUFFIX


def admission_sni_name(digest: str) -> str:
    """Returns the SNI name at which a study's server takes requests of owners that have no certificate yet."""
    return f"{digest[:_DIGITS]}.admission{_SUFFIX}"


def result_sni_name(digest: str) -> str:
    """Returns the SNI name at which a service hands out the result of a study whose participants speak frames."""
    return f"{digest[:_DIGITS]}.result{_SUFFIX}"


def pass_socket(channel: socket.socket, kind: bytes, connection: socket.socket) -> bool:
    """Passes a connection to the process at the other end of ``channel``, and closes it here; False if that fails."""
    rights = array.array("i", [connection.fileno()])
    try:
        channel.sendmsg([kind], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    except OSError:
        return False
    finally:
        connection.close()
    return True


class PassedSocketQueue:
    """Queue of passed connections that wait for acceptance, an ``Inlet``; ``closing`` is called at its end."""

    def __init__(self, closing: Callable[[], None] = lambda: None) -> None:
        self._waiting: asyncio.Queue[socket.socket] = asyncio.Queue(_MAX_QUEUED)
        self._closing = closing

    def put(self, connection: socket.socket) -> None:
        """Adds a connection; closes it if too many wait."""
        try:
            self._waiting.put_nowait(connection)
        except asyncio.QueueFull:
            connection.close()

    async def accept(self) -> socket.socket:
        """See ``Inlet``."""
        return await self._waiting.get()

    def close(self) -> None:
        """See ``Inlet``."""
        self._closing()
        while not self._waiting.empty():
            self._waiting.get_nowait().close()


class SharedPorts:
    """Receiver of the connections from ``channel``; made within the event loop. ``close`` ends it.

    A connection of a kind without an open queue is closed at once, as at a port without a listener.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._queues: dict[bytes, PassedSocketQueue] = {}
        channel.setblocking(False)
        asyncio.get_running_loop().add_reader(channel.fileno(), self._receive)

    def mesh(self) -> Inlet:
        """Returns the inlet for connections of the other servers, from now on."""
        return self._open_queue(MESH)

    def ingest(self) -> Inlet:
        """Returns the inlet for connections of owners, and of servers that forward uploads, from now on."""
        return self._open_queue(INGEST)

    def close(self) -> None:
        """Stops receiving and closes the queues."""
        with contextlib.suppress(OSError, ValueError):
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
        self._channel.close()
        for inlet in list(self._queues.values()):
            inlet.close()

    def _open_queue(self, kind: bytes) -> Inlet:
        inlet = self._queues[kind] = PassedSocketQueue(lambda: self._close_queue(kind, inlet))
        return inlet

    def _close_queue(self, kind: bytes, inlet: PassedSocketQueue) -> None:
        if self._queues.get(kind) is inlet:
            del self._queues[kind]

    def _receive(self) -> None:
        cloexec = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        try:
            kind, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1, cloexec)
        except BlockingIOError:
            return
        except OSError:
            kind, descriptors = b"", []
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            if inlet := self._queues.get(kind):
                inlet.put(connection)
            else:
                connection.close()
        if not kind:
            # The process with the ports has ended.
            self.close()


class PassedSocketServer:
    """Counterpart of ``asyncio.Server`` with TLS for the connections of an ``inlet``; made within the event loop."""

    sockets: tuple[socket.socket, ...] = ()

    def __init__(
        self,
        inlet: Inlet,
        factory: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        handshake_s: float,
        most: int | None = None,
    ) -> None:
        """``most`` limits the concurrent handshakes, if given; a further one ends the oldest."""
        self._inlet = inlet
        self._factory = factory
        self._context = context
        self._handshake_s = handshake_s
        self._most = most
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._unhandled: set[socket.socket] = set()
        self._accepting = asyncio.ensure_future(self._accept())

    def close(self) -> None:
        """Stops accepting; handshakes under way end."""
        self._accepting.cancel()
        self._inlet.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Waits until all tasks have ended."""
        await asyncio.gather(self._accepting, *self._tasks, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            connection = await self._inlet.accept()
            if self._most is not None and len(self._tasks) >= self._most:
                oldest = next(iter(self._tasks))
                del self._tasks[oldest]
                oldest.cancel()
            self._unhandled.add(connection)
            task = asyncio.ensure_future(self._handshake(connection))
            self._tasks[task] = None
            task.add_done_callback(partial(self._end_handshake, connection))
            # While connections are waiting, accepting does not suspend: other tasks need a turn.
            await asyncio.sleep(0)

    def _end_handshake(self, connection: socket.socket, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if connection in self._unhandled:
            # The task was cancelled before it began.
            self._unhandled.remove(connection)
            connection.close()
        elif task.cancelled():
            end_connection(connection)

    async def _handshake(self, connection: socket.socket) -> None:
        self._unhandled.remove(connection)
        loop = asyncio.get_running_loop()
        set_remote(connection)
        try:
            await loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_s,
            )
        except (OSError, TimeoutError) as error:
            logger.debug("a connection did not get through TLS: %s", error)
