"""The FLAIM server's connections: who is there, over mutual TLS, and conversations with some of them.

Provides ``Connections``, which accepts the clients that the config names, one connection each, for as long as the run
lasts, and ``Conversation``, an exchange with the clients of one stage (a `secagg.server.Channel`). A client is known by
the common name of its certificate; its place in the config's list is its number. Who loses the connection is out at
once and may come back between rounds; nobody is waited for who is not there. What a client sends when nothing was asked
of it ends its connection. Secret: link keys, under which messages stand in the transcript. Public: who is connected,
sizes, times. Known limits: clients are identified, not counted on to be many people.
"""

import asyncio
import contextlib
import secrets
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from parties import tls
from parties.config import CertificateFiles, Config
from parties.config.differences import agreed_bytes
from parties.enrolment import Enrolment
from parties.errors import (
    CertificateError,
    ConfigError,
    FlaimProtocolError,
    PartyError,
    RoundTransportError,
    StoreError,
)
from parties.flaim.messages import (
    KEY_BYTES,
    SMALL_BYTES,
    TERMS_BYTES,
    Hello,
    Message,
    MessageKind,
    Welcome,
    is_secagg,
    pack_reason,
)
from parties.flaim.notes import JOINED, LEFT, REFUSED
from parties.flaim.refusals import Refusal, Refused
from parties.inlets import Handed, Inlets
from parties.rejections import Rejected, Rejection, unheard
from parties.secagg.frames import SIZE_BYTES, close, keep_alive, read_frame, write_frame
from parties.version import version


class ConnectionLog(Protocol):
    """Where every message of the server is written down."""

    def message(
        self, *, sent: bool, client: int, round: int | None, data: bytes, key: bytes
    ) -> None:
        """One message to or from ``client``; ``key`` is their link's."""

    def connection(self, *, name: str, certificate: bytes, what: str, reason: str = "") -> None:
        """``what`` is one of ``JOINED``, ``REFUSED`` and ``LEFT``; ``certificate`` is its own, in DER."""


@dataclass(eq=False, slots=True)
class Member:
    """A connected client. ``limit`` is the largest message it may send now; ``round`` the one it takes part in."""

    number: int
    name: str
    rows: int | None
    certificate: bytes
    writer: asyncio.StreamWriter
    key: bytes = field(repr=False)
    limit: int = SMALL_BYTES
    round: int | None = None
    conversation: "Conversation | None" = None


class TurnedAwayError(FlaimProtocolError):
    """This client may not take part, or not now."""


class OtherTermsError(FlaimProtocolError):
    """This client's configuration is another one."""


class Connections:
    """The listening server; ``async with`` opens and closes it. ``present`` are the members by number.

    ``sent`` and ``received`` count bytes of frames by client number, over all its connections; ``lost`` says why a
    client is no longer there.
    """

    def __init__(
        self,
        config: Config,
        files: CertificateFiles,
        *,
        workload_digest: str,
        log: ConnectionLog,
        on_change: Callable[[], None] = lambda: None,
        admit: Callable[[str], object] = lambda client: None,
        inlets: Inlets | None = None,
        rejected: Rejected = unheard,
        enrolment: Enrolment | None = None,
        known: Collection[int] = (),
    ) -> None:
        """``admit`` raises StoreError for a client that is not to be let in; ``inlets`` are instead of a port.

        ``rejected`` is told of whoever is not let in; ``enrolment`` says who is turned away; ``known`` are the numbers
        of those who were here in earlier attempts.

        Raises ConfigError where the config has no address or no clients.
        """
        section = config.require_flaim()
        self.names = section.clients
        self.present: dict[int, Member] = {}
        self.sent: Counter[int] = Counter()
        self.received: Counter[int] = Counter()
        self.lost: dict[int, str] = {}
        self._log = log
        self.stage_s = config.timeouts.receive_s
        self._config = config
        self._files = files
        self._terms = agreed_bytes(config)
        self._greeting = (bytes.fromhex(config.digest()), bytes.fromhex(workload_digest))
        self._numbers = {name: number for number, name in enumerate(section.clients)}
        self._changed = asyncio.Condition()
        self._on_change = on_change
        self._admit = admit
        self._enrolment = enrolment or Enrolment(config.owners, config.clients)
        self._known = set(known)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._inlets = inlets
        self._rejected = rejected
        self._listener: asyncio.Server | Handed | None = None
        self._closed = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        address = self._config.require_flaim().address
        if address is None:
            raise RuntimeError("the config was checked for an address")
        context = tls.server_context(self._files, self._no_tls)
        if self._inlets is not None:
            self._listener = Handed(self._inlets.ingest(), self._stream, context, self.stage_s)
            return self
        try:
            self._listener = await asyncio.start_server(
                self._accept,
                address.host,
                address.port,
                ssl=context,
                ssl_handshake_timeout=self.stage_s,
                backlog=1024,
            )
        except OSError as error:
            raise ConfigError(
                self._config.source,
                "flaim.address",
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
        await asyncio.gather(*self._sending, return_exceptions=True)
        members = list(self.present.values())
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(close(member.writer) for member in members))
        # Of those who were greeting or leaving, too.
        for writer in self._writers:
            writer.transport.abort()

    def _no_tls(self, error: ssl.SSLError) -> None:
        self._rejected(Rejection.TLS, tls.handshake_text(error))

    def _stream(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._accept)

    async def change(self, wait_s: float) -> None:
        """Wait until a client has come or gone, at most ``wait_s`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait()

    def conversation(self, numbers: Sequence[int], *, round: int | None) -> "Conversation":
        """An exchange with the members ``numbers``, whoever of them is still there."""
        return Conversation(self, numbers, round)

    def farewell(self, reason: str) -> None:
        """Tell everybody that the run is over; closing the connections waits for it."""
        for member in list(self.present.values()):
            self.post(member, Message(MessageKind.GOODBYE, 0, pack_reason(reason)).pack())

    def dismiss(self, refused: Refused) -> None:
        """Tell everybody why the run has failed; closing the connections waits for it."""
        for member in list(self.present.values()):
            self.post(member, refused.message().pack())

    def post(self, member: Member, data: bytes) -> None:
        """Send in the background; whoever does not take it in within the deadline is out."""
        # Counted and written down now: in the order in which things were decided.
        self.sent[member.number] += len(data) + SIZE_BYTES
        self._log.message(
            sent=True, client=member.number, round=member.round, data=data, key=member.key
        )
        _spawn(self._sending, self._send(member, data))

    def expel(self, member: Member, error: Exception) -> None:
        """Hang up on a client, for a reason that is written down."""
        self._gone(member, str(error))
        member.writer.transport.abort()

    async def _send(self, member: Member, data: bytes) -> None:
        try:
            await write_frame(member.writer, data, member.name, timeout_s=self.stage_s)
        except RoundTransportError as error:
            self.expel(member, error)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A handshake may be over only after the server has closed.
        if self._closed:
            writer.transport.abort()
            return
        self._writers.add(writer)
        _spawn(self._tasks, self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            member = await self._let_in(reader, writer)
        except (CertificateError, RoundTransportError, ssl.SSLError, OSError):
            member = None
        if member is not None:
            await self._listen(member, reader)
        await close(writer)
        self._writers.discard(writer)

    async def _let_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Member | None:
        """The new member, or None for whom the run has no place."""
        connection = writer.get_extra_info("ssl_object")
        name, certificate = tls.peer_name(connection), connection.getpeercert(binary_form=True)
        data = await read_frame(reader, name, limit=SMALL_BYTES, timeout_s=self.stage_s)
        number = self._numbers.get(name)
        try:
            hello = self._checked(Message.unpack(data, name), name, number)
        except PartyError as error:
            self._log.connection(
                name=name, certificate=certificate, what=REFUSED, reason=str(error)
            )
            reason = Rejection.MISFIT if number is not None else Rejection.STRANGER
            remote = str((writer.get_extra_info("peername") or [""])[0])
            self._rejected(reason, f"refused: {error}", client=name, remote=remote)
            away = isinstance(error, TurnedAwayError)
            refusal = Refusal.NOT_ENROLLED if away else Refusal.MISFIT
            if isinstance(error, OtherTermsError) and len(self._terms) <= TERMS_BYTES:
                terms = Message(MessageKind.TERMS, 0, self._terms).pack()
                await write_frame(writer, terms, name, timeout_s=self.stage_s)
            refused = Refused(refusal, str(error)).message().pack()
            await write_frame(writer, refused, name, timeout_s=self.stage_s)
            return None
        if number is None:
            raise RuntimeError("a greeting without a number was accepted")
        keep_alive(writer)
        key = secrets.token_bytes(KEY_BYTES)
        member = Member(number, name, hello.rows, certificate, writer, key)
        self.received[number] += len(data) + SIZE_BYTES
        self._log.connection(name=name, certificate=certificate, what=JOINED)
        self._log.message(sent=False, client=number, round=None, data=data, key=member.key)
        welcome = Welcome(number, len(self.names), member.key)
        self.present[number] = member
        self._known.add(number)
        self.post(member, Message(MessageKind.WELCOME, 0, welcome.pack()).pack())
        await self._tell()
        return member

    def _checked(self, message: Message, name: str, number: int | None) -> Hello:
        """The greeting of ``name``. Raises FlaimProtocolError where it cannot take part."""
        if message.kind is not MessageKind.HELLO:
            raise FlaimProtocolError(name, f"sent {message.kind.name}; expected HELLO")
        hello = Hello.unpack(message.body, name)
        # Who has taken part comes back whatever the time is.
        back = number in self._known
        away = self._enrolment.identity(name) if back else self._enrolment.turned_away(name)
        if away is not None:
            raise TurnedAwayError(name, f"{away.what}; expected {away.expected}")
        if number in self.present:
            raise FlaimProtocolError(name, "is connected already; expected one connection a client")
        for what, ours, theirs in zip(
            ("configuration", "workload"),
            self._greeting,
            (hello.config, hello.workload),
            strict=True,
        ):
            if ours != theirs:
                raise OtherTermsError(
                    name,
                    f"has another {what} ({theirs.hex()[:12]}, version {hello.version}); expected {ours.hex()[:12]}, "
                    f"version {version()}: the same file at the server and at all clients",
                )
        try:
            self._admit(name)
        except StoreError as error:
            # The server's paths are nothing to tell a client about.
            raise FlaimProtocolError(name, error.message) from error
        declared = self._config.require_flaim().sizes == "public"
        if declared != (hello.rows is not None):
            what = "no number of rows" if declared else "its number of rows"
            raise FlaimProtocolError(name, f"declares {what}, unlike flaim.sizes")
        bound = self._config.clients.rows_per_client
        if hello.rows is not None and not 0 <= hello.rows <= bound:
            raise FlaimProtocolError(name, f"declares {hello.rows} rows; expected at most {bound}")
        return hello

    async def _listen(self, member: Member, reader: asyncio.StreamReader) -> None:
        """Pass on what a member sends for as long as it is asked for anything."""
        patience = 40 * 86400.0  # Stages have their own deadlines, and rounds may be far apart.
        try:
            while True:
                # What it may send changes while we wait for it.
                data = await read_frame(
                    reader, member.name, limit=lambda: member.limit, timeout_s=patience
                )
                self.received[member.number] += len(data) + SIZE_BYTES
                self._log.message(
                    sent=False, client=member.number, round=member.round, data=data, key=member.key
                )
                if member.conversation is not None:
                    member.conversation.put(member, data)
                elif not _is_out(data, member.name):
                    raise FlaimProtocolError(member.name, "sent a message that nobody asked for")
        except (RoundTransportError, FlaimProtocolError) as error:
            self.expel(member, error)
        await self._tell()

    def _gone(self, member: Member, reason: str) -> None:
        if self.present.get(member.number) is member:
            del self.present[member.number]
            self.lost[member.number] = reason
            self._log.connection(
                name=member.name, certificate=member.certificate, what=LEFT, reason=reason
            )
            if member.conversation is not None:
                member.conversation.lost(member)

    async def _tell(self) -> None:
        self._on_change()
        async with self._changed:
            self._changed.notify_all()


class Conversation:
    """What is exchanged with some members in one stage; ids are places in ``numbers``. A `secagg.server.Channel`.

    ``async with`` makes its members' messages come here. A member that is lost is reported once.
    """

    def __init__(self, connections: Connections, numbers: Sequence[int], round: int | None) -> None:
        self.numbers = tuple(numbers)
        self._connections = connections
        self._round = round
        self._members = [connections.present.get(number) for number in self.numbers]
        self._ids = {number: place for place, number in enumerate(self.numbers)}
        self._inbox: asyncio.Queue[tuple[int, bytes | None]] = asyncio.Queue()
        self._unread: Counter[int] = Counter()

    @property
    def present(self) -> list[int]:
        """The ids whose members are there."""
        return [id for id, member in enumerate(self._members) if self._there(member)]

    def __enter__(self) -> Self:
        for member in self._members:
            if member is not None:
                member.conversation, member.round = self, self._round
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self._members:
            if member is not None and member.conversation is self:
                member.conversation, member.round, member.limit = None, None, SMALL_BYTES

    def allow(self, limit: int) -> None:
        """From now on messages of up to ``limit`` bytes are taken."""
        for member in self._members:
            if member is not None:
                member.limit = limit

    def name(self, client: int) -> str:
        """See ``Channel``."""
        return self._connections.names[self.numbers[client]]

    def post(self, client: int, message: bytes) -> None:
        """See ``Channel``."""
        member = self._members[client]
        if member is not None and self._there(member):
            self._connections.post(member, message)

    async def receive(self) -> tuple[int, bytes | None]:
        """See ``Channel``."""
        client, data = await self._inbox.get()
        if data is not None:
            self._unread[client] -= 1
        return client, data

    def expel(self, client: int, error: Exception) -> None:
        """See ``Channel``."""
        member = self._members[client]
        if member is not None:
            self._connections.expel(member, error)

    def put(self, member: Member, data: bytes) -> None:
        """A message of one of the members. Raises FlaimProtocolError where it sends more than it was asked for."""
        client = self._ids[member.number]
        self._unread[client] += 1
        if self._unread[client] > 2:
            raise FlaimProtocolError(member.name, "sent more than it was asked for")
        self._inbox.put_nowait((client, data))

    def lost(self, member: Member) -> None:
        """One of the members is gone."""
        self._inbox.put_nowait((self._ids[member.number], None))

    def _there(self, member: Member | None) -> bool:
        return member is not None and self._connections.present.get(member.number) is member


def _is_out(data: bytes, name: str) -> bool:
    """Whether a client gives up what the server may have given up at the same time."""
    return not is_secagg(data) and Message.unpack(data, name).kind is MessageKind.OUT


def _spawn(tasks: set[asyncio.Task[None]], work: Coroutine[None, None, None]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
