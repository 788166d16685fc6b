"""A client's line to its server: TLS, greeting, conversation, and coming back after a lost connection.

Provides ``Line`` and ``until_goodbye``, for FLAIM's clients and for silos. The connection is TLS 1.3 with certificates
at both ends; the server's name is checked in the handshake, before anything is sent. What is answered to a message is
the ``Conversant``'s affair, which knows no socket. Secret: what the conversant holds. Public: sizes, times.
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
    SMALL_BYTES,
    TERMS_BYTES,
    Hello,
    Message,
    MessageKind,
    Welcome,
    sent_away,
)
from parties.foundation.errors import FlaimProtocolError, RoundConnectError, RoundTransportError
from parties.foundation.exit_codes import FlaimRefused, Status
from parties.foundation.version import version
from parties.identity import tls
from parties.network.frames import SIZE_BYTES, close, keep_alive, read_frame, write_frame
from parties.network.port_sharing import study_name
from parties.observability.events import Progress
from parties.observability.heartbeat import Reminder, network_reason, saying

_RETRY_S = 0.2
_PATIENCE = 4
"""Stages of the server that a client waits for within a sum: its own, the others' and the server's arithmetic."""


class Conversant(Protocol):
    """One client's side of a run, without I/O."""

    over: bool
    """Whether the server has said goodbye."""

    @property
    def limit(self) -> int:
        """The largest message that the server may send now."""

    @property
    def busy(self) -> bool:
        """Whether the server's next message is due within its deadlines."""

    def lost(self) -> None:
        """The connection is lost."""

    def receive(self, data: bytes) -> bytes | None:
        """The answer to one message; None where none is due. The connection has to be closed after any error."""


class Traffic(Protocol):
    """What a line counts: bytes are frames."""

    client: str
    sent_bytes: int
    received_bytes: int
    connections: int


@dataclass(slots=True, eq=False)
class Line:
    """What every part of one client's conversation needs.

    ``rows`` and ``card`` are what its greeting says besides the digests of configuration and workload. ``joining``
    limits how many clients of a process connect at once.
    """

    config: Config
    workload_digest: str
    files: CertificateFiles
    server: str
    rows: int | None
    card: bytes
    session: Conversant
    report: Traffic
    progress: Progress
    joining: asyncio.Semaphore
    welcomed: bool = field(default=False)


async def until_goodbye(line: Line) -> None:
    """Converse, and come back after a lost connection for as long as the server can be reached."""
    lost_at: float | None = None
    while True:
        async with line.joining:
            reader, writer = await _connect(line)
        try:
            await _greet(line, reader, writer)
            await _converse(line, reader, writer)
            return
        except FlaimRefused as refused:
            # The server may not have noticed yet that the connection before this one is lost.
            if refused.status is not Status.PROTOCOL:
                raise
            if lost_at is None or time.monotonic() > lost_at + line.config.timeouts.connect_s:
                raise
            await asyncio.sleep(_RETRY_S)
        except RoundTransportError as error:
            if not line.welcomed:
                raise
            lost_at = time.monotonic()
            line.session.lost()
            line.progress.event("lost", f"{line.report.client}: {error}; connecting again")
        except BaseException:
            writer.transport.abort()
            raise
        finally:
            await close(writer)


async def _connect(line: Line) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection; tries until timeouts.connect_s are over, since servers and clients start in any order."""
    address = line.config.require_meeting().address
    if address is None:
        raise RuntimeError("the config was checked for an address")
    deadline = time.monotonic() + line.config.timeouts.connect_s
    reminder = Reminder()
    context = tls.client_context(line.files, line.config.require_meeting().pinned)

    def silent(waited_s: float) -> None:
        if reminder.due("silent"):
            left_s = deadline - time.monotonic()
            text = _away_text(line, TimeoutError("no answer yet"), left_s)
            line.progress.event("retry", text)

    while True:
        left = deadline - time.monotonic()
        try:
            async with asyncio.timeout(max(0.1, left)), saying(silent):
                pair = await asyncio.open_connection(
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=study_name(line.config.digest()),
                )
            line.report.connections += 1
            keep_alive(pair[1])
            return pair
        except (TimeoutError, OSError) as error:
            # A service may start the study, or start it again, at any time.
            unknown = tls.is_unknown_name(error)
            if isinstance(error, ssl.SSLError) and not unknown:
                meaning = tls.explain(error, line.server) or str(error)
                raise RoundConnectError(line.server, meaning) from error
            if time.monotonic() + _RETRY_S >= deadline:
                if unknown:
                    meaning = tls.explain(error, "it") or str(error)
                    raise RoundConnectError(line.server, meaning) from error
                raise RoundConnectError(
                    line.server,
                    f"{address} does not answer within {line.config.timeouts.connect_s:g} s "
                    f"({str(error) or 'silence'}); expected the server there ({line.config.meeting}.address)",
                ) from error
            if reminder.due("away"):
                line.progress.event("retry", _away_text(line, error, left))
            await asyncio.sleep(_RETRY_S)


def _away_text(line: Line, error: Exception, left_s: float) -> str:
    """That the server is not there, what may be the reason, and how long it is tried."""
    name, address = line.report.client, line.config.require_meeting().address
    if tls.is_unknown_name(error):
        return f"{name}: {tls.explain(error, line.server)}; trying again for {left_s:.0f} s"
    why = "it may have ended after a failure" if line.welcomed else "it may not have been started"
    return (
        f"{name}: {line.server} at {address}: {network_reason(error)}; {why}, or the run is over; trying again for "
        f"{left_s:.0f} s"
    )


async def _converse(line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection from the welcome to goodbye."""
    session, timeouts = line.session, line.config.timeouts
    idle_s = line.config.require_meeting().idle_s
    while not session.over:
        patience = _PATIENCE * timeouts.receive_s if session.busy else idle_s
        data = await _read(line, reader, session.limit, patience)
        # Scores and masks take a while; the loop serves the other clients of this process meanwhile.
        answer = await asyncio.to_thread(session.receive, data)
        if answer is not None:
            await _write(line, writer, answer)


async def _greet(line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    hello = Hello(
        bytes.fromhex(line.config.digest()),
        bytes.fromhex(line.workload_digest),
        line.rows,
        version(),
        line.card,
    )
    await _write(line, writer, Message(MessageKind.HELLO, 0, hello.pack()).pack())
    try:
        limit, patience_s = TERMS_BYTES + HEADER_BYTES, line.config.timeouts.receive_s
        data, differences = await _read(line, reader, limit, patience_s), ""
        if Message.unpack(data, line.server).kind is MessageKind.TERMS:
            terms = Message.unpack(data, line.server).body
            differences = f"; {differences_text(line.config, terms, line.server)}"
            data = await _read(line, reader, SMALL_BYTES, patience_s)
    except RoundTransportError as error:
        # In TLS 1.3 the server's verdict on our certificate comes after our first message.
        refused = reader.exception() or error.__cause__
        meaning = tls.explain(refused, line.server) if refused is not None else None
        if meaning is None:
            raise
        raise RoundConnectError(line.server, meaning) from error
    message = Message.unpack(data, line.server)
    if message.kind is MessageKind.REFUSED:
        raise sent_away(line.server, message.body, differences)
    if message.kind is not MessageKind.WELCOME:
        raise FlaimProtocolError(line.server, f"sent {message.kind.name}; expected WELCOME")
    welcome = Welcome.unpack(message.body, line.server)
    names = line.config.require_meeting().clients
    if welcome.clients != len(names) or names.index(line.report.client) != welcome.number:
        raise FlaimProtocolError(line.server, "numbers this run's clients otherwise")
    line.welcomed = True
    name = line.report.client
    line.progress.event("joined", f"{name} has joined run {line.config.run.id}", client=name)


async def _read(line: Line, reader: asyncio.StreamReader, limit: int, timeout_s: float) -> bytes:
    data = await read_frame(reader, line.server, limit=limit, timeout_s=timeout_s)
    line.report.received_bytes += len(data) + SIZE_BYTES
    return data


async def _write(line: Line, writer: asyncio.StreamWriter, data: bytes) -> None:
    await write_frame(writer, data, line.server, timeout_s=line.config.timeouts.receive_s)
    line.report.sent_bytes += len(data) + SIZE_BYTES
