"""The SecAgg server as a process: accepts the clients over mutual TLS and drives a `secagg.SecAggServer`.

``run_secagg_session`` runs the stages of one session over any ``Channel``; ``RoundServer`` runs a whole session on a
port of its own. A ``RoundServer`` knows a client by the common name of its certificate, which has to be one of the
session's names; the client's id is the name's position among them. Each stage has a deadline, and a lost connection
counts as a dropout at once. Secret: the values that the state machine recovers. Public: connected clients, sizes,
times. Known limits: a client has one connection and cannot reconnect; stages are not resumed after a crash of the
server (clients start a new session).
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from parties.config import CertificateFiles
from parties.foundation.errors import CertificateError, FrameTimeout, FrameTransportError
from parties.identity import tls
from parties.network.frames import close_writer, limit_tls_reads, read_frame, write_frame
from secagg import wire
from secagg.errors import RoundAborted, SecAggError
from secagg.server import Outgoing, SecAggServer


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines in seconds: for all clients' connections, for the answers of one stage, for one write to a client."""

    join_s: float = 60.0
    stage_s: float = 60.0
    write_s: float = 30.0

    def __post_init__(self) -> None:
        if min(self.join_s, self.stage_s, self.write_s) <= 0:
            raise ValueError("deadlines are positive numbers of seconds")


class Channel(Protocol):
    """The connections of one session's clients, by id."""

    def name(self, client: int) -> str:
        """Returns the client's name."""

    def post(self, client: int, message: bytes) -> None:
        """Sends in the background; does nothing if the client is gone."""

    async def receive(self) -> tuple[int, bytes | None]:
        """Returns the next message of any client; None, once, for a client with a lost connection."""

    def expel(self, client: int, error: Exception) -> None:
        """Disconnects a client that broke the protocol or a deadline."""


async def run_secagg_session(
    server: SecAggServer, channel: Channel, *, present: Collection[int], stage_s: float
) -> None:
    """Runs the whole session of ``server`` with the clients ``present``, each stage in at most ``stage_s`` seconds.

    Raises RoundAborted if there is no sum; the goodbye to the clients is queued by then.
    """
    try:
        _post(channel, server.start())
        for client in range(server.parameters.clients):
            if client not in present:
                _post(channel, server.drop(client))
        await _stages(server, channel, stage_s)
    except RoundAborted as error:
        _post(channel, server.farewell(str(error)))
        raise


async def _stages(server: SecAggServer, channel: Channel, stage_s: float) -> None:
    stage, ends = server.stage, time.monotonic() + stage_s
    while not server.over:
        if server.stage is not stage:
            stage, ends = server.stage, time.monotonic() + stage_s
        try:
            async with asyncio.timeout(max(0.0, ends - time.monotonic())):
                client, message = await channel.receive()
        except TimeoutError:
            for client in server.waiting:
                waited = f"did not answer stage {stage.name.lower()} within {stage_s:g} s"
                channel.expel(client, FrameTimeout(channel.name(client), waited))
            _post(channel, await asyncio.to_thread(server.close_stage))
            continue
        if message is None:
            _post(channel, await asyncio.to_thread(server.drop, client))
            continue
        try:
            _post(channel, await asyncio.to_thread(server.receive, client, message))
        except RoundAborted:
            raise
        except SecAggError as error:
            # Over TLS only the client itself can have sent this: it is out.
            channel.expel(client, error)
            _post(channel, await asyncio.to_thread(server.drop, client))


def _post(channel: Channel, outgoing: Outgoing) -> None:
    for client, message in outgoing:
        channel.post(client, message)


class SessionLog(Protocol):
    """Log of a session (`parties.federation.transcript.SecaggTranscript`)."""

    def message(self, *, sent: bool, client: int, data: bytes) -> None:
        """Records one message to or from ``client``."""

    def left(self, client: int, reason: str) -> None:
        """Records that a client's connection has ended."""

    def finished(self, server: SecAggServer) -> None:
        """Records the sum."""

    def aborted(self, reason: str) -> None:
        """Records that there is no sum."""


class RoundServer:
    """One session on one listening port; ``async with`` opens and closes it, ``run`` runs the round.

    ``port`` is the bound port. ``sent_bytes`` and ``received_bytes`` count frames' bytes by client id; ``violations``
    has the clients' errors, by client id.
    """

    def __init__(
        self,
        server: SecAggServer,
        names: Sequence[str],
        *,
        files: CertificateFiles,
        host: str = "127.0.0.1",
        port: int = 0,
        deadlines: Deadlines | None = None,
        log: SessionLog | None = None,
    ) -> None:
        """``names`` are the common names of the session's clients, by id. Raises ValueError if they do not fit."""
        if len(set(names)) != server.parameters.clients or len(names) != len(set(names)):
            raise ValueError(
                f"{len(names)} names for {server.parameters.clients} clients; expected one each, all different"
            )
        self.server = server
        self.host = host
        self.port = port
        self.sent_bytes = [0] * len(names)
        self.received_bytes = [0] * len(names)
        self.violations: dict[int, Exception] = {}
        self._ids = {name: client for client, name in enumerate(names)}
        self._names = list(names)
        self._files = files
        self._deadlines = deadlines or Deadlines()
        self._log = log
        self._limit = wire.max_body(server.parameters) + wire.OVERHEAD_BYTES
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._inbox: asyncio.Queue[tuple[int, bytes | None]] = asyncio.Queue()
        # An unread message keeps its client's next message in the socket: a flood fills no memory, and the first
        # surplus message reveals it.
        self._room = [asyncio.Semaphore() for _ in names]
        self._complete = asyncio.Event()
        self._started = False
        self._listening: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> "RoundServer":
        limit_tls_reads()
        self._listener = await asyncio.start_server(
            self._accept,
            self.host,
            self.port,
            ssl=tls.server_context(self._files),
            ssl_handshake_timeout=self._deadlines.join_s,
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._listener is not None:
            self._listener.close()
        self._started = True  # A handshake that ends from now on is too late.
        tasks = self._listening | self._sending
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(close_writer(writer) for writer in self._writers.values()))

    async def run(self) -> SecAggServer:
        """Waits for the clients, runs the round, and returns the server with its result.

        A client that has not connected after ``join_s`` seconds counts as a dropout. Raises RoundAborted if there is no
        sum; the clients have been notified by then.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._deadlines.join_s):
                await self._complete.wait()
        self._started = True
        try:
            await run_secagg_session(
                self.server, self, present=self._writers.keys(), stage_s=self._deadlines.stage_s
            )
            if self._log is not None:
                self._log.finished(self.server)
        except RoundAborted as error:
            if self._log is not None:
                self._log.aborted(str(error))
            raise
        finally:
            await self._flush()
        return self.server

    def name(self, client: int) -> str:
        """See ``Channel``."""
        return self._names[client]

    def post(self, client: int, message: bytes) -> None:
        """Sends in the background, so that one slow client does not delay the others."""
        if client in self._writers:
            if self._log is not None:
                self._log.message(sent=True, client=client, data=message)
            _spawn(self._sending, self._send(client, message))

    async def receive(self) -> tuple[int, bytes | None]:
        """See ``Channel``."""
        client, message = await self._inbox.get()
        if message is not None:
            self._room[client].release()
        if self._log is not None:
            if message is None:
                self._log.left(client, str(self.violations.get(client, "closed")))
            else:
                self._log.message(sent=False, client=client, data=message)
        return client, message

    def expel(self, client: int, error: Exception) -> None:
        """See ``Channel``. Keeps the first reason."""
        self.violations.setdefault(client, error)
        if client in self._writers:
            self._writers[client].transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("ssl_object")
        try:
            client = self._ids.get(tls.peer_name(connection))
        except (CertificateError, ssl.SSLError, OSError):
            client = None
        if client is None or client in self._writers or self._started:
            # An unknown peer, a second connection of the same client, or a late one.
            await close_writer(writer)
            return
        self._writers[client] = writer
        _spawn(self._listening, self._listen(client, reader))
        if len(self._writers) == len(self._names):
            self._complete.set()

    async def _listen(self, client: int, reader: asyncio.StreamReader) -> None:
        name = self._names[client]
        # Stages have their own deadlines; a connection may be silent for as long as the round can last.
        idle_timeout_s = self._deadlines.join_s + 6 * self._deadlines.stage_s
        try:
            while True:
                await self._room[client].acquire()
                message = await read_frame(
                    reader, name, limit=self._limit, timeout_s=idle_timeout_s
                )
                self.received_bytes[client] += len(message) + 4
                self._inbox.put_nowait((client, message))
        except FrameTransportError as error:
            if not self.server.over:
                self.violations.setdefault(client, error)
            self._inbox.put_nowait((client, None))

    async def _send(self, client: int, message: bytes) -> None:
        try:
            await write_frame(
                self._writers[client],
                message,
                self._names[client],
                timeout_s=self._deadlines.write_s,
            )
            self.sent_bytes[client] += len(message) + 4
        except FrameTransportError as error:
            self.violations.setdefault(client, error)
            self._inbox.put_nowait((client, None))

    async def _flush(self) -> None:
        """Waits for the messages in flight, each within its own deadline, and closes the connections."""
        await asyncio.gather(*self._sending, return_exceptions=True)
        await asyncio.gather(*(close_writer(writer) for writer in self._writers.values()))


def _spawn(tasks: set[asyncio.Task[None]], work: Coroutine[None, None, None]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
