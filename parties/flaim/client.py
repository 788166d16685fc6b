"""A client of FLAIM as a process, or one of several in a process: its own connection, certificate, ledger and rows.

Provides ``run_client``. The connection is TLS 1.3 with certificates at both ends; the server's name is checked in the
handshake, before anything is sent. A lost connection is a dropout of the round; the client comes back for the next
one while the server is there. Secret: rows, keys, vectors. The folder holds the client's ledger of this run: what it
was ever asked to release, spent before it is sent. Another folder is another ledger, and charged to the table's budget
once more. Known limits: see
`parties.flaim.session`.
"""

import asyncio
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.flaim_client import FlaimClient
from mechanisms.workload import Workload
from parties import tls
from parties.config import CertificateFiles, Config
from parties.config.differences import differences_text
from parties.database import Database
from parties.enrolment import check_enrolled
from parties.errors import (
    ConfigError,
    FlaimProtocolError,
    RoundConnectError,
    RoundTransportError,
)
from parties.flaim.feasible import check_flaim
from parties.flaim.guarantee import Replaced
from parties.flaim.messages import (
    HEADER_BYTES,
    SMALL_BYTES,
    TERMS_BYTES,
    Hello,
    Message,
    MessageKind,
    Welcome,
)
from parties.flaim.refusals import sent_away
from parties.flaim.roster import Own
from parties.flaim.session import ClientSession, SharedBriefs
from parties.flaim.sums import is_malicious
from parties.inlets import study_name
from parties.ledger import LEDGER, DurableLedger
from parties.progress import Progress
from parties.reminder import Reminder, network_reason, saying
from parties.secagg.frames import SIZE_BYTES, close, keep_alive, read_frame, write_frame
from parties.statuses import FlaimRefused, Status
from parties.version import version

_RETRY_S = 0.2
_PATIENCE = 4
"""Stages of the server that a client waits for within a sum: its own, the others' and the server's arithmetic."""


@dataclass(slots=True)
class ClientReport:
    """What one client did in a run. Bytes are frames; ``rho_spent`` is by its own ledger, over all its processes.

    ``replaced`` says what that is for one row replaced by another, where sizes are public.
    """

    client: str
    rounds: int = 0
    sums: int = 0
    given_up: int = 0
    rho_spent: float = 0.0
    rho_total: float = 0.0
    replaced: str | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    connections: int = 0
    seconds: float = 0.0
    finished: bool = False

    def to_dict(self) -> dict[str, object]:
        """For programs."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(slots=True, eq=False)
class _Client:
    """What every part of one client's run needs."""

    config: Config
    workload: Workload
    files: CertificateFiles
    server: str
    rows: int | None
    card: bytes
    session: ClientSession
    report: ClientReport
    progress: Progress
    joining: asyncio.Semaphore
    welcomed: bool = field(default=False)


async def run_client(
    config: Config,
    codes: NDArray[np.int32],
    files: CertificateFiles,
    directory: Path,
    *,
    progress: Progress,
    spend: Callable[[str], object] | None = None,
    workload: Workload | None = None,
    briefs: SharedBriefs | None = None,
    joining: asyncio.Semaphore | None = None,
) -> ClientReport:
    """Take part in the run of ``config`` with ``codes`` (rows, columns) until the server says goodbye.

    ``directory`` keeps the ledger. ``spend`` charges all that this ledger allows, under the ledger's own name, to the
    table's budget before anything is sent (`parties.budget`); without it that is the caller's affair. Where clients
    share a process, ``workload`` and ``briefs`` save work, and ``joining`` limits how many open their ledgers and
    connect at once.

    Raises what ``spend`` raises, NotEnrolled, ConfigError, CertificateError, DataError (rows), StoreError,
    RoundTransportError (the server is not there, or lost for good), FlaimRefused, FlaimProtocolError, SecAggError,
    BudgetExceeded.
    """
    section = config.require_flaim()
    name = tls.load_identity(files).name
    if name not in section.clients:
        raise ConfigError(
            config.source, "flaim.clients", f"does not have {name!r}, the name in {files.cert}"
        )
    config.check_rows(len(codes))
    workload = workload or config.build_workload()
    settings = check_flaim(config, workload)
    inner = FlaimClient(codes, workload, settings, random_bytes=secrets.token_bytes)
    joining = joining or asyncio.Semaphore()
    async with joining:
        # Making a ledger waits for the disk.
        database = await asyncio.to_thread(Database, directory, config.digest(), [LEDGER])
    with database:
        ledger = DurableLedger(database, settings.rho)
        if not ledger.entries:
            # Who has taken part comes back whatever the time is.
            check_enrolled(config, name)
        if spend is not None:
            await asyncio.to_thread(spend, database.identity)
        own = Own.make(config, files) if is_malicious(config) else None
        session = ClientSession(
            config,
            workload,
            inner,
            ledger,
            server=section.server,
            random_bytes=secrets.token_bytes,
            decode=briefs,
            own=own,
        )
        report = ClientReport(name, rho_total=settings.rho)
        client = _Client(
            config,
            workload,
            files,
            section.server,
            inner.declared_rows,
            b"" if own is None else own.card.pack(),
            session,
            report,
            progress,
            joining,
        )
        started = time.monotonic()
        try:
            await _until_goodbye(client)
        finally:
            report.rounds, report.sums = session.tally.rounds, session.tally.sums
            report.given_up, report.rho_spent = session.tally.given_up, ledger.spent
            report.seconds = time.monotonic() - started
            charged = [entry.event for entry in ledger.entries]
            replaced = Replaced.of(section, charged, delta=config.run.delta)
            report.replaced = None if replaced is None else str(replaced)
    report.finished = True
    return report


async def _until_goodbye(client: _Client) -> None:
    """Converse, and come back after a lost connection for as long as the server can be reached."""
    lost_at: float | None = None
    while True:
        async with client.joining:
            reader, writer = await _connect(client)
        try:
            await _greet(client, reader, writer)
            await _converse(client, reader, writer)
            return
        except FlaimRefused as refused:
            # The server may not have noticed yet that the connection before this one is lost.
            if refused.status is not Status.PROTOCOL:
                raise
            if lost_at is None or time.monotonic() > lost_at + client.config.timeouts.connect_s:
                raise
            await asyncio.sleep(_RETRY_S)
        except RoundTransportError as error:
            if not client.welcomed:
                raise
            lost_at = time.monotonic()
            client.session.lost()
            client.progress.event("lost", f"{client.report.client}: {error}; connecting again")
        except BaseException:
            writer.transport.abort()
            raise
        finally:
            await close(writer)


async def _connect(client: _Client) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection; tries until timeouts.connect_s are over, since servers and clients start in any order."""
    address = client.config.require_flaim().address
    if address is None:
        raise RuntimeError("the config was checked for an address")
    deadline = time.monotonic() + client.config.timeouts.connect_s
    reminder = Reminder()
    context = tls.client_context(client.files, client.config.require_flaim().pinned)

    def silent(waited_s: float) -> None:
        if reminder.due("silent"):
            left_s = deadline - time.monotonic()
            text = _away_text(client, TimeoutError("no answer yet"), left_s)
            client.progress.event("retry", text)

    while True:
        left = deadline - time.monotonic()
        try:
            async with asyncio.timeout(max(0.1, left)), saying(silent):
                pair = await asyncio.open_connection(
                    address.host,
                    address.port,
                    ssl=context,
                    server_hostname=study_name(client.config.digest()),
                )
            client.report.connections += 1
            keep_alive(pair[1])
            return pair
        except (TimeoutError, OSError) as error:
            # A service may start the study, or start it again, at any time.
            unknown = tls.is_unknown_name(error)
            if isinstance(error, ssl.SSLError) and not unknown:
                meaning = tls.explain(error, client.server) or str(error)
                raise RoundConnectError(client.server, meaning) from error
            if time.monotonic() + _RETRY_S >= deadline:
                if unknown:
                    meaning = tls.explain(error, "it") or str(error)
                    raise RoundConnectError(client.server, meaning) from error
                raise RoundConnectError(
                    client.server,
                    f"{address} does not answer within {client.config.timeouts.connect_s:g} s "
                    f"({str(error) or 'silence'}); expected the server there (flaim.address)",
                ) from error
            if reminder.due("away"):
                client.progress.event("retry", _away_text(client, error, left))
            await asyncio.sleep(_RETRY_S)


def _away_text(client: _Client, error: Exception, left_s: float) -> str:
    """That the server is not there, what may be the reason, and how long it is tried."""
    name, address = client.report.client, client.config.require_flaim().address
    if tls.is_unknown_name(error):
        return f"{name}: {tls.explain(error, client.server)}; trying again for {left_s:.0f} s"
    why = "it may have ended after a failure" if client.welcomed else "it may not have been started"
    return (
        f"{name}: {client.server} at {address}: {network_reason(error)}; {why}, or the run is over; trying again for "
        f"{left_s:.0f} s"
    )


async def _converse(
    client: _Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One connection from the welcome to goodbye."""
    session, timeouts = client.session, client.config.timeouts
    idle_s = client.config.require_flaim().idle_s
    while not session.over:
        patience = _PATIENCE * timeouts.receive_s if session.busy else idle_s
        data = await _read(client, reader, session.limit, patience)
        # Scores and masks take a while; the loop serves the other clients of this process meanwhile.
        answer = await asyncio.to_thread(session.receive, data)
        if answer is not None:
            await _write(client, writer, answer)


async def _greet(
    client: _Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    hello = Hello(
        bytes.fromhex(client.config.digest()),
        bytes.fromhex(client.workload.digest()),
        client.rows,
        version(),
        client.card,
    )
    await _write(client, writer, Message(MessageKind.HELLO, 0, hello.pack()).pack())
    try:
        limit, patience_s = TERMS_BYTES + HEADER_BYTES, client.config.timeouts.receive_s
        data, differences = await _read(client, reader, limit, patience_s), ""
        if Message.unpack(data, client.server).kind is MessageKind.TERMS:
            terms = Message.unpack(data, client.server).body
            differences = f"; {differences_text(client.config, terms, client.server)}"
            data = await _read(client, reader, SMALL_BYTES, patience_s)
    except RoundTransportError as error:
        # In TLS 1.3 the server's verdict on our certificate comes after our first message.
        refused = reader.exception() or error.__cause__
        meaning = tls.explain(refused, client.server) if refused is not None else None
        if meaning is None:
            raise
        raise RoundConnectError(client.server, meaning) from error
    message = Message.unpack(data, client.server)
    if message.kind is MessageKind.REFUSED:
        raise sent_away(client.server, message.body, differences)
    if message.kind is not MessageKind.WELCOME:
        raise FlaimProtocolError(client.server, f"sent {message.kind.name}; expected WELCOME")
    welcome = Welcome.unpack(message.body, client.server)
    names = client.config.require_flaim().clients
    if welcome.clients != len(names) or names.index(client.report.client) != welcome.number:
        raise FlaimProtocolError(client.server, "numbers this run's clients otherwise")
    client.welcomed = True
    name = client.report.client
    client.progress.event("joined", f"{name} has joined run {client.config.run.id}", client=name)


async def _read(
    client: _Client, reader: asyncio.StreamReader, limit: int, timeout_s: float
) -> bytes:
    data = await read_frame(reader, client.server, limit=limit, timeout_s=timeout_s)
    client.report.received_bytes += len(data) + SIZE_BYTES
    return data


async def _write(client: _Client, writer: asyncio.StreamWriter, data: bytes) -> None:
    await write_frame(writer, data, client.server, timeout_s=client.config.timeouts.receive_s)
    client.report.sent_bytes += len(data) + SIZE_BYTES
