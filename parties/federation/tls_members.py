"""Connected participants over mutual TLS, at the server.

``TlsClients`` are the `ConnectedClients` that connect to a port, with one connection each for the whole run. A
participant is known by the common name of its certificate. Secret: link keys. Public: connected participants, sizes,
times.
"""

import asyncio
import ssl
from collections.abc import Coroutine
from types import TracebackType
from typing import Self

from parties.federation.members import ClientsSetup, ConnectedClient, ConnectedClients
from parties.federation.messages import SMALL_MESSAGE_BYTES, is_releases_question
from parties.foundation.errors import (
    CertificateError,
    ConfigError,
    FederationProtocolError,
    FrameTransportError,
)
from parties.identity import tls
from parties.network.frames import (
    close_writer,
    enable_keepalive,
    limit_tls_reads,
    read_frame,
    write_frame,
)
from parties.network.port_sharing import PassedSocketServer, SharedPorts
from parties.network.remote_address import ListeningServers, remote_address, serve_tls
from parties.observability.events import Rejection


class _TlsChannel:
    """The connection of one participant."""

    def __init__(self, connections: "TlsClients", writer: asyncio.StreamWriter) -> None:
        self.member: ConnectedClient | None = None
        self._connections = connections
        self._writer = writer

    def send(self, data: bytes) -> None:
        _spawn(self._connections.sending, self._send(data))

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        await close_writer(self._writer)

    async def _send(self, data: bytes) -> None:
        connections, member = self._connections, self.member
        try:
            name = "" if member is None else member.name
            await write_frame(self._writer, data, name, timeout_s=connections.stage_s)
        except FrameTransportError as error:
            if member is not None:
                connections.expel(member, error)


class TlsClients(ConnectedClients):
    """The listening server; ``async with`` opens and closes it. See ``ConnectedClients``."""

    def __init__(self, setup: ClientsSetup, *, inlets: SharedPorts | None = None) -> None:
        """Prepares an attempt; ``inlets`` replace a port of its own."""
        super().__init__(setup)
        self.sending: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._inlets = inlets
        self._listener: ListeningServers | PassedSocketServer | None = None
        self._closed = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        address = self._config.require_federation().address
        if address is None:
            raise RuntimeError("the config was checked for an address")
        limit_tls_reads()
        context = tls.server_context(self._files, self._handshake_failed)
        if self._inlets is not None:
            self._listener = PassedSocketServer(
                self._inlets.ingest(), self._stream, context, self.stage_s
            )
            return self
        try:
            self._listener = await serve_tls(
                self._stream, address, context, handshake_s=self.stage_s
            )
        except OSError as error:
            raise ConfigError(
                self._config.source,
                f"{self._config.federation_section}.address",
                f"is {address}, where this host cannot listen: {error.strerror or error}; expected an address of "
                "this host and a free port",
            ) from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._listener is not None:
            self._listener.close()
        await asyncio.gather(*self.sending, return_exceptions=True)
        links = [member.link for member in self.present.values()]
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in links if isinstance(link, _TlsChannel)))
        # Connections in greeting or closing end too.
        for writer in self._writers:
            writer.transport.abort()

    def _handshake_failed(self, error: ssl.SSLError) -> None:
        remote = remote_address()
        self._rejected(Rejection.TLS, tls.handshake_text(error, remote), remote=remote)

    def _stream(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._accept)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A handshake may end after the server has closed.
        if self._closed:
            writer.transport.abort()
            return
        self._writers.add(writer)
        _spawn(self._tasks, self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            member = await self._receive_greeting(reader, writer)
        except (CertificateError, FrameTransportError, ssl.SSLError, OSError):
            member = None
        if member is not None:
            await self._listen(member, reader)
        await close_writer(writer)
        self._writers.discard(writer)

    async def _receive_greeting(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ConnectedClient | None:
        """Returns the new member, or None if the run refuses the participant."""
        connection = writer.get_extra_info("ssl_object")
        name, certificate = tls.peer_name(connection), connection.getpeercert(binary_form=True)
        data = await read_frame(reader, name, limit=SMALL_MESSAGE_BYTES, timeout_s=self.stage_s)
        statement = ""
        if is_releases_question(data):
            answer, statement = await self.answer_question(certificate, data)
            await write_frame(writer, answer, name, timeout_s=self.stage_s)
            data = await read_frame(reader, name, limit=SMALL_MESSAGE_BYTES, timeout_s=self.stage_s)
        remote = str((writer.get_extra_info("peername") or [""])[0])
        found = await self.admit_client(
            name,
            certificate,
            data,
            _TlsChannel(self, writer),
            remote=remote,
            statement=statement,
        )
        if isinstance(found, list):
            for answer in found:
                await write_frame(writer, answer, name, timeout_s=self.stage_s)
            return None
        enable_keepalive(writer)
        return found

    async def _listen(self, member: ConnectedClient, reader: asyncio.StreamReader) -> None:
        """Hands a member's messages to ``on_message`` until the connection ends."""
        idle_timeout_s = (
            40 * 86400.0
        )  # Stages have their own deadlines, and rounds may be far apart.
        try:
            while True:
                # The limit may change during the wait.
                data = await read_frame(
                    reader, member.name, limit=lambda: member.limit, timeout_s=idle_timeout_s
                )
                self.on_message(member, data)
        except (FrameTransportError, FederationProtocolError) as error:
            self.expel(member, error)
        await self.tell()


def _spawn(tasks: set[asyncio.Task[None]], work: Coroutine[None, None, None]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
