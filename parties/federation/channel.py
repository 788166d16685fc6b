"""A participant's connection to its server: TLS, greeting, exchange of messages, reconnection after a loss.

The connection is TLS 1.3 with certificates at both ends; the handshake verifies the server's name before the
participant sends anything. A ``MessageHandler``, which has no I/O, makes the answers. Clients of FLAIM and participants
of sums (silos) use the same connection. Secret: the handler's state. Public: sizes, times.
"""

import asyncio
import ssl
import time
from dataclasses import dataclass, field
from typing import Protocol

from parties.config import CertificateFiles, Config
from parties.config.diff import differences_text
from parties.federation.messages import (
    HEADER_BYTES,
    MAX_TERMS_BYTES,
    SMALL_MESSAGE_BYTES,
    ClientGreeting,
    FederationMessage,
    MessageKind,
    Welcome,
    refused_error,
)
from parties.federation.participant_charge import ParticipantCharge
from parties.federation.release_question import ask_releases
from parties.foundation.errors import (
    FederationProtocolError,
    FrameConnectError,
    FrameTransportError,
    ProxyRefused,
    ServerAway,
)
from parties.foundation.exit_codes import FederationRefused, Status
from parties.foundation.version import version
from parties.identity import tls
from parties.network.frames import (
    SIZE_BYTES,
    close_writer,
    enable_keepalive,
    read_frame,
    write_frame,
)
from parties.network.port_sharing import study_sni_name
from parties.network.proxy import open_stream
from parties.observability.events import Progress
from parties.observability.heartbeat import Throttle, network_reason, repeated_notice

_RETRY_S = 0.2
_KEEPALIVE_STAGES = 4
"""Maximum wait within a sum, in stages: the participant's own, the others', and the server's arithmetic."""


class MessageHandler(Protocol):
    """One participant's side of a run, without I/O."""

    over: bool
    """True once the server has said goodbye."""

    @property
    def limit(self) -> int:
        """Maximum size of the server's next message, in bytes."""

    @property
    def busy(self) -> bool:
        """True if the server's next message is due within the server's deadlines."""

    def lost(self) -> None:
        """Handles the loss of the connection."""

    def receive(self, data: bytes) -> bytes | None:
        """Returns the answer to one message, or None if none is due.

        The caller closes the connection after any error.
        """


class TrafficCounter(Protocol):
    """Counters of a connection; bytes are those of frames."""

    client: str
    sent_bytes: int
    received_bytes: int
    connections: int


@dataclass(slots=True, eq=False)
class ClientConnection:
    """Inputs and state of one participant's connection to the server.

    ``rows`` and ``card`` go into the greeting, besides the digests of configuration and workload. ``joining`` limits
    the simultaneous connection attempts of one process. ``charge`` hears of each answer before it leaves.
    """

    config: Config
    workload_digest: str
    files: CertificateFiles
    server: str
    rows: int | None
    card: bytes
    session: MessageHandler
    report: TrafficCounter
    progress: Progress
    joining: asyncio.Semaphore
    charge: ParticipantCharge = field(default_factory=ParticipantCharge)
    welcomed: bool = field(default=False)


async def until_goodbye(connection: ClientConnection) -> None:
    """Exchanges messages until the server's goodbye; reconnects after a loss while the server can be reached."""
    lost_at: float | None = None
    while True:
        async with connection.joining:
            reader, writer = await _connect_with_retries(connection)
        try:
            await _greet(connection, reader, writer)
            await _exchange_messages(connection, reader, writer)
            return
        except FederationRefused as refused:
            # The server may not have noticed yet that the connection before this one is lost.
            if refused.status is not Status.PROTOCOL:
                raise
            if lost_at is None or time.monotonic() > lost_at + connection.config.timeouts.connect_s:
                raise
            await asyncio.sleep(_RETRY_S)
        except FrameTransportError as error:
            if not connection.welcomed:
                raise
            lost_at = time.monotonic()
            connection.session.lost()
            connection.progress.event(
                "lost", f"{connection.report.client}: {error}; connecting again"
            )
        except BaseException:
            writer.transport.abort()
            raise
        finally:
            await close_writer(writer)


async def _connect_with_retries(
    connection: ClientConnection,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns a connection.

    Retries for timeouts.connect_s seconds, since servers and participants start in any order.
    """
    address = connection.config.require_federation().address
    if address is None:
        raise RuntimeError("the config was checked for an address")
    deadline = time.monotonic() + connection.config.timeouts.connect_s
    reminder = Throttle()
    context = tls.client_context(connection.files, connection.config.require_federation().pinned)

    def silent(waited_s: float) -> None:
        if reminder.due("silent"):
            left_s = deadline - time.monotonic()
            text = _unreachable_text(connection, TimeoutError("no answer yet"), left_s)
            connection.progress.event("retry", text)

    while True:
        left = deadline - time.monotonic()
        try:
            async with asyncio.timeout(max(0.1, left)), repeated_notice(silent):
                pair = await open_stream(
                    connection.config.proxy_to(address.host),
                    address.host,
                    address.port,
                    context=context,
                    name=study_sni_name(connection.config.digest()),
                )
            connection.report.connections += 1
            enable_keepalive(pair[1])
            return pair
        except ProxyRefused as error:
            raise FrameConnectError(
                connection.server, f"{address} cannot be reached: {error}"
            ) from error
        except (TimeoutError, OSError) as error:
            # A service may start the study, or start it again, at any time.
            unknown = tls.is_unknown_sni(error)
            if isinstance(error, ssl.SSLError) and not unknown:
                meaning = tls.explain_tls_error(error, connection.server) or str(error)
                raise FrameConnectError(connection.server, meaning) from error
            if time.monotonic() + _RETRY_S >= deadline:
                if unknown:
                    meaning = tls.explain_tls_error(error, "it") or str(error)
                    raise ServerAway(connection.server, meaning) from error
                raise ServerAway(
                    connection.server,
                    f"{address} does not answer within {connection.config.timeouts.connect_s:g} s "
                    f"({str(error) or 'silence'}); expected the server there "
                    f"({connection.config.federation_section}.address)",
                ) from error
            if reminder.due("away"):
                connection.progress.event("retry", _unreachable_text(connection, error, left))
            await asyncio.sleep(_RETRY_S)


def _unreachable_text(connection: ClientConnection, error: Exception, left_s: float) -> str:
    """Text of a retry notice: the server is unreachable, the likely reason, and the remaining seconds of retrying."""
    name, address = connection.report.client, connection.config.require_federation().address
    if tls.is_unknown_sni(error):
        return f"{name}: {tls.explain_tls_error(error, connection.server)}; trying again for {left_s:.0f} s"
    why = (
        "it may have ended after a failure"
        if connection.welcomed
        else "it may not have been started"
    )
    return (
        f"{name}: {connection.server} at {address}: {network_reason(error)}; {why}, or the run is over; trying "
        f"again for {left_s:.0f} s"
    )


async def _exchange_messages(
    connection: ClientConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serves one connection from the welcome to the goodbye."""
    session, timeouts = connection.session, connection.config.timeouts
    idle_s = connection.config.require_federation().idle_s
    while not session.over:
        idle_timeout_s = _KEEPALIVE_STAGES * timeouts.receive_s if session.busy else idle_s
        data = await _read(connection, reader, session.limit, idle_timeout_s)
        # Scores and masks take a while; the loop serves the other clients of this process meanwhile.
        answer = await asyncio.to_thread(session.receive, data)
        if answer is not None:
            if connection.charge.due(answer):
                await asyncio.to_thread(connection.charge.before, answer)
            await _write(connection, writer, answer)


async def _greet(
    connection: ClientConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    hello = ClientGreeting(
        bytes.fromhex(connection.config.digest()),
        bytes.fromhex(connection.workload_digest),
        connection.rows,
        version(),
        connection.card,
    )
    try:
        await _enter_earlier(connection, reader, writer)
        greeting = FederationMessage(MessageKind.HELLO, 0, hello.pack()).pack()
        await _write(connection, writer, greeting)
        limit, idle_timeout_s = MAX_TERMS_BYTES + HEADER_BYTES, connection.config.timeouts.receive_s
        data, differences = await _read(connection, reader, limit, idle_timeout_s), ""
        if FederationMessage.unpack(data, connection.server).kind is MessageKind.TERMS:
            terms = FederationMessage.unpack(data, connection.server).body
            differences = f"; {differences_text(connection.config, terms, connection.server)}"
            data = await _read(connection, reader, SMALL_MESSAGE_BYTES, idle_timeout_s)
    except FrameTransportError as error:
        # In TLS 1.3 the server's verdict on our certificate comes after our first message.
        refused = reader.exception() or error.__cause__
        meaning = tls.explain_tls_error(refused, connection.server) if refused is not None else None
        if meaning is None:
            raise
        raise FrameConnectError(connection.server, meaning) from error
    message = FederationMessage.unpack(data, connection.server)
    if message.kind is MessageKind.REFUSED:
        raise refused_error(connection.server, message.body, differences)
    if message.kind is not MessageKind.WELCOME:
        raise FederationProtocolError(
            connection.server, f"sent {message.kind.name}; expected WELCOME"
        )
    welcome = Welcome.unpack(message.body, connection.server)
    names = connection.config.require_federation().clients
    if welcome.clients != len(names) or names.index(connection.report.client) != welcome.number:
        raise FederationProtocolError(connection.server, "has other numbers for this run's clients")
    connection.welcomed = True
    name = connection.report.client
    connection.progress.event(
        "joined", f"{name} has joined run {connection.config.run.id}", client=name
    )


async def _enter_earlier(
    connection: ClientConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Charges what the server has kept of this participant's key and its budget lacks; tells it of this run."""
    charge = connection.charge
    if charge.account is None:
        return
    own = await asyncio.to_thread(charge.statement, connection.files)
    known = await ask_releases(
        connection.config, connection.files, reader=reader, writer=writer, own=own
    )
    for line in await asyncio.to_thread(charge.enter_earlier, known, connection.server):
        connection.progress.event("adopted", line)


async def _read(
    connection: ClientConnection, reader: asyncio.StreamReader, limit: int, timeout_s: float
) -> bytes:
    data = await read_frame(reader, connection.server, limit=limit, timeout_s=timeout_s)
    connection.report.received_bytes += len(data) + SIZE_BYTES
    return data


async def _write(connection: ClientConnection, writer: asyncio.StreamWriter, data: bytes) -> None:
    await write_frame(
        writer, data, connection.server, timeout_s=connection.config.timeouts.receive_s
    )
    connection.report.sent_bytes += len(data) + SIZE_BYTES
