"""The connected participants of a run at its server, over any transport, and exchanges of messages with them.

``ConnectedClients`` admits the participants that the config names and records their connections. ``ClientChannel`` is
the connection of one participant; ``ClientExchange`` is an exchange with the participants of one stage (a
`secagg.server.Channel`). A transport derives from ``ConnectedClients``: TLS connections
(`parties.federation.tls_members`) or Flower's grid (`parties.federation.flower_members`). The transport identifies a
participant by a verified certificate, hands each of its messages to ``on_message`` and calls ``expel`` when the
connection is lost. A participant's number is its position in the config's list. A participant that loses its connection
is out at once and may come back between rounds; no sum waits for an absent participant. An unrequested
message ends its sender's connection. Secret: link keys, which key the messages' digests in the transcript. Public:
connected participants, sizes, times. Known limits: the server verifies the participants' identities, not that they are
different people.
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from parties.config import CertificateFiles, Config
from parties.config.diff import agreed_bytes
from parties.federation.key_directory import (
    ClientKeyDirectory,
    SignedClientKey,
    pack_client_keys,
    pack_members,
)
from parties.federation.messages import (
    HEADER_BYTES,
    KEY_BYTES,
    MAX_TERMS_BYTES,
    SMALL_MESSAGE_BYTES,
    ClientGreeting,
    FederationMessage,
    MessageKind,
    Refusal,
    RefusalMessage,
    Welcome,
    is_secagg_message,
    pack_reason,
)
from parties.federation.release_statements import statement_for
from parties.federation.sum_parameters import is_malicious
from parties.federation.transcript_schema import JOINED, LEFT, REFUSED
from parties.federation.unopened import UnopenedSigner
from parties.foundation.errors import (
    CertificateError,
    FederationProtocolError,
    PartyError,
    StoreError,
)
from parties.foundation.version import version
from parties.identity.signing import Issuer
from parties.network.frames import SIZE_BYTES
from parties.observability.events import OnRejection, Rejection, ignore_rejection
from parties.session.enrollment import Enrollment


class ClientMessageLog(Protocol):
    """Log of all messages of the server."""

    def message(
        self, *, sent: bool, client: int, round: int | None, data: bytes, key: bytes
    ) -> None:
        """Records one message to or from ``client``; ``key`` is the key of their link."""

    def connection(self, *, name: str, certificate: bytes, what: str, reason: str = "") -> None:
        """Records ``what``: ``JOINED``, ``REFUSED`` or ``LEFT``. ``certificate`` is the participant's own, in DER."""


class ClientChannel(Protocol):
    """The connection of one participant; ``member`` is set on admission."""

    member: "ConnectedClient | None"

    def send(self, data: bytes) -> None:
        """Sends in the background. A participant that does not receive the data within a deadline is out."""

    def abort(self) -> None:
        """Closes the connection immediately."""


@dataclass(eq=False, slots=True)
class ConnectedClient:
    """A connected participant.

    ``limit`` is the maximum size of its next message, in bytes; ``round`` is its current round; ``shown`` holds the
    other participants' cards that the server has sent to it. ``statement`` is its signed statement of what it releases
    in this run, "" without one.
    """

    number: int
    name: str
    rows: int | None
    certificate: bytes
    link: ClientChannel
    key: bytes = field(repr=False)
    limit: int = SMALL_MESSAGE_BYTES
    round: int | None = None
    exchange: "ClientExchange | None" = None
    shown: dict[int, SignedClientKey] = field(default_factory=dict)
    statement: str = ""


class TurnedAwayError(FederationProtocolError):
    """This participant may not take part, or not now."""


class ConfigMismatchError(FederationProtocolError):
    """This participant's configuration differs from the server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsSetup:
    """Inputs of an attempt at the run of ``config``, for its ``ConnectedClients`` over any transport.

    Attributes:
        workload_digest: Digest of the settings that all participants have to share, besides the configuration.
        on_change: Called when a participant has come or gone.
        admit: Raises StoreError for a participant that may not join.
        rejected: Receives each rejection.
        enrolment: Decides on refusals.
        known: Numbers of the participants of earlier attempts.
        statements: Returns the statements that are known of a certificate's key (DER), in JSON; blocks, may raise
            StoreError.
    """

    config: Config
    files: CertificateFiles
    workload_digest: str
    log: ClientMessageLog
    on_change: Callable[[], None] = lambda: None
    admit: Callable[[str], object] = lambda client: None
    rejected: OnRejection = ignore_rejection
    enrolment: Enrollment | None = None
    known: Collection[int] = ()
    statements: Callable[[bytes], bytes] = lambda certificate: b"[]"


class ConnectedClients:
    """The connected participants of a run; ``async with`` opens and closes the transport.

    Attributes:
        present: Connected participants by number.
        sent, received: Bytes of frames by participant's number, over all its connections.
        lost: Reasons for lost connections, by number.
        roster: In malicious mode, the cards of all participants that were ever connected.
    """

    def __init__(self, setup: ClientsSetup) -> None:
        """Prepares an attempt; connections begin with ``async with``.

        Raises ConfigError if the config lacks an address or participants.
        """
        config, files = setup.config, setup.files
        section = config.require_federation()
        self.names = section.clients
        self.present: dict[int, ConnectedClient] = {}
        self.sent: Counter[int] = Counter()
        self.received: Counter[int] = Counter()
        self.lost: dict[int, str] = {}
        self.stage_s = config.timeouts.receive_s
        self.roster = (
            ClientKeyDirectory(config, Issuer.load(files.ca)) if is_malicious(config) else None
        )
        self._log = setup.log
        self._config = config
        self._files = files
        self._terms = agreed_bytes(config)
        self._greeting = (bytes.fromhex(config.digest()), bytes.fromhex(setup.workload_digest))
        self._numbers = {name: number for number, name in enumerate(section.clients)}
        self._changed = asyncio.Condition()
        self._on_change = setup.on_change
        self._admit = setup.admit
        self._enrolment = setup.enrolment or Enrollment(config.owners, config.clients)
        self._known = set(setup.known)
        self._rejected = setup.rejected
        self._statements = setup.statements

    async def __aenter__(self) -> Self:
        raise NotImplementedError("what carries the messages opens itself")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raise NotImplementedError("what carries the messages closes itself")

    async def change(self, wait_s: float) -> None:
        """Waits until a participant has come or gone, at most ``wait_s`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait()

    def exchange(self, numbers: Sequence[int], *, round: int | None) -> "ClientExchange":
        """Returns an exchange with the members ``numbers``; only the connected ones take part."""
        return ClientExchange(self, numbers, round)

    def say_goodbye(self, reason: str) -> None:
        """Sends GOODBYE with ``reason`` to all participants; closing waits for the delivery."""
        for member in list(self.present.values()):
            self.post(member, FederationMessage(MessageKind.GOODBYE, 0, pack_reason(reason)).pack())

    def send_unopened(self) -> None:
        """Sends each participant the signed statement that nothing was opened; not in malicious mode."""
        if self.roster is not None:
            return
        # A server that cannot sign any more still says why it ends.
        with contextlib.suppress(CertificateError):
            signer = UnopenedSigner.load(self._config, self._files)
            for member in list(self.present.values()):
                body = signer.body(member.name)
                self.post(member, FederationMessage(MessageKind.UNOPENED, 0, body).pack())

    def send_refusal(self, refused: RefusalMessage) -> None:
        """Sends all participants the reason of the run's failure; closing waits for the delivery."""
        for member in list(self.present.values()):
            self.post(member, refused.message().pack())

    def post(self, member: ConnectedClient, data: bytes) -> None:
        """Sends in the background. A participant that does not receive the data within the deadline is out."""
        # Counts and transcript change here, before the transfer: they keep the order of the server's decisions.
        self.sent[member.number] += len(data) + SIZE_BYTES
        self._log.message(
            sent=True, client=member.number, round=member.round, data=data, key=member.key
        )
        member.link.send(data)

    def expel(self, member: ConnectedClient, error: Exception) -> None:
        """Disconnects a participant and records the reason."""
        self._drop_client(member, str(error))
        member.link.abort()

    def send_roster(self, member: ConnectedClient, members: Sequence[int]) -> None:
        """Sends the members of the next sum, and the cards of those that ``member`` does not know yet.

        Malicious mode only.
        """
        if self.roster is None:
            raise RuntimeError("only malicious mode has a roster")
        cards = self.roster.cards
        news = {
            number: cards[number]
            for number in members
            if number != member.number and member.shown.get(number) != cards[number]
        }
        for body in pack_client_keys(news):
            self.post(member, FederationMessage(MessageKind.ROSTER, member.round or 0, body).pack())
        member.shown |= news
        body = pack_members(members)
        self.post(member, FederationMessage(MessageKind.MEMBERS, member.round or 0, body).pack())

    async def answer_question(self, certificate: bytes, data: bytes) -> tuple[bytes, str]:
        """Returns the answer to the question ``data`` of a participant, and its statement, "" without a valid one."""
        own = statement_for(self._config, certificate, data[HEADER_BYTES:])
        try:
            known = await asyncio.to_thread(self._statements, certificate)
        except StoreError as error:
            # Participants do not learn the server's paths.
            return RefusalMessage(Refusal.FAILED, error.message).message().pack(), ""
        return FederationMessage(MessageKind.RELEASES, 0, known).pack(), own

    async def admit_client(
        self,
        name: str,
        certificate: bytes,
        data: bytes,
        link: ClientChannel,
        *,
        remote: str = "",
        statement: str = "",
    ) -> ConnectedClient | list[bytes]:
        """Returns the new member for the greeting ``data``, or the messages that refuse it.

        ``certificate`` is the participant's own (DER), verified, with the common name ``name``.
        """
        number = self._numbers.get(name)
        try:
            hello = self._checked_greeting(
                FederationMessage.unpack(data, name), name, number, certificate
            )
        except PartyError as error:
            self._log.connection(
                name=name, certificate=certificate, what=REFUSED, reason=str(error)
            )
            reason = Rejection.MISMATCH if number is not None else Rejection.UNKNOWN_PEER
            self._rejected(reason, f"refused: {error}", client=name, remote=remote)
            away = isinstance(error, TurnedAwayError)
            refusal = Refusal.NOT_ENROLLED if away else Refusal.MISMATCH
            answers = [RefusalMessage(refusal, str(error)).message().pack()]
            if isinstance(error, ConfigMismatchError) and len(self._terms) <= MAX_TERMS_BYTES:
                answers.insert(0, FederationMessage(MessageKind.TERMS, 0, self._terms).pack())
            return answers
        if number is None:
            raise RuntimeError("a greeting without a number was accepted")
        key = secrets.token_bytes(KEY_BYTES)
        member = ConnectedClient(number, name, hello.rows, certificate, link, key)
        self.received[number] += len(data) + SIZE_BYTES
        self._log.connection(name=name, certificate=certificate, what=JOINED)
        self._log.message(sent=False, client=number, round=None, data=data, key=member.key)
        link.member, member.statement = member, statement
        welcome = Welcome(number, len(self.names), member.key)
        self.present[number] = member
        self._known.add(number)
        self.post(member, FederationMessage(MessageKind.WELCOME, 0, welcome.pack()).pack())
        await self.tell()
        return member

    def on_message(self, member: ConnectedClient, data: bytes) -> None:
        """Handles a message of ``member``. Raises FederationProtocolError if the message is unrequested."""
        self.received[member.number] += len(data) + SIZE_BYTES
        self._log.message(
            sent=False, client=member.number, round=member.round, data=data, key=member.key
        )
        if member.exchange is not None:
            member.exchange.put(member, data)
        elif not _is_give_up(data, member.name):
            raise FederationProtocolError(member.name, "sent a message that nobody asked for")

    async def tell(self) -> None:
        """Notifies the waiting tasks that a participant has come or gone."""
        self._on_change()
        async with self._changed:
            self._changed.notify_all()

    def _checked_greeting(
        self, message: FederationMessage, name: str, number: int | None, certificate: bytes
    ) -> ClientGreeting:
        """Returns the verified greeting of ``name``. Raises FederationProtocolError if it cannot take part."""
        if message.kind is not MessageKind.HELLO:
            raise FederationProtocolError(name, f"sent {message.kind.name}; expected HELLO")
        hello = ClientGreeting.unpack(message.body, name)
        # A participant that has taken part before may come back at any time.
        back = number in self._known
        away = self._enrolment.identity(name) if back else self._enrolment.refusal(name)
        if away is not None:
            raise TurnedAwayError(name, f"{away.what}; expected {away.expected}")
        if number in self.present:
            raise FederationProtocolError(
                name, "is connected already; expected one connection a client"
            )
        for what, ours, theirs in zip(
            ("configuration", "workload"),
            self._greeting,
            (hello.config, hello.workload),
            strict=True,
        ):
            if ours != theirs:
                raise ConfigMismatchError(
                    name,
                    f"has another {what} ({theirs.hex()[:12]}, version {hello.version}); expected {ours.hex()[:12]}, "
                    f"version {version()}: the same file at the server and at all clients",
                )
        try:
            self._admit(name)
        except StoreError as error:
            # Participants do not learn the server's paths.
            raise FederationProtocolError(name, error.message) from error
        declared = self._config.require_federation().declares_rows
        if declared != (hello.rows is not None):
            what = "no number of rows" if declared else "its number of rows"
            raise FederationProtocolError(name, f"declares {what}, unlike flaim.sizes")
        bound = self._config.clients.rows_per_client
        if hello.rows is not None and not 0 <= hello.rows <= bound:
            raise FederationProtocolError(
                name, f"declares {hello.rows} rows; expected at most {bound}"
            )
        self._check_card(hello, name, number, certificate)
        return hello

    def _check_card(
        self, hello: ClientGreeting, name: str, number: int | None, certificate: bytes
    ) -> None:
        """Refuses a card that the other participants would refuse. Raises FederationProtocolError."""
        if self.roster is None or number is None:
            if hello.card:
                raise FederationProtocolError(name, "shows a card, which this run does not ask for")
            return
        card = SignedClientKey.unpack(hello.card, name)
        if card.certificate != certificate:
            raise FederationProtocolError(name, "shows a card of another certificate than its own")
        self.roster.learn(number, card)

    def _drop_client(self, member: ConnectedClient, reason: str) -> None:
        if self.present.get(member.number) is member:
            del self.present[member.number]
            self.lost[member.number] = reason
            self._log.connection(
                name=member.name, certificate=member.certificate, what=LEFT, reason=reason
            )
            if member.exchange is not None:
                member.exchange.lost(member)


ConnectedClientsFactory: TypeAlias = Callable[[ClientsSetup], ConnectedClients]
"""Factory of the connected participants of one attempt."""


class ClientExchange:
    """Exchange with some members in one stage; ids are positions in ``numbers``. A `secagg.server.Channel`.

    ``with`` routes the members' messages to this exchange. A lost member is reported once.
    """

    def __init__(
        self, members: ConnectedClients, numbers: Sequence[int], round: int | None
    ) -> None:
        self.numbers = tuple(numbers)
        self._clients = members
        self._round = round
        self._members = [members.present.get(number) for number in self.numbers]
        self._ids = {number: position for position, number in enumerate(self.numbers)}
        self._inbox: asyncio.Queue[tuple[int, bytes | None]] = asyncio.Queue()
        self._unread: Counter[int] = Counter()

    @property
    def present(self) -> list[int]:
        """Ids of the connected members."""
        return [id for id, member in enumerate(self._members) if self._is_connected(member)]

    def __enter__(self) -> Self:
        for member in self._members:
            if member is not None:
                member.exchange, member.round = self, self._round
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self._members:
            if member is not None and member.exchange is self:
                member.exchange, member.round, member.limit = None, None, SMALL_MESSAGE_BYTES

    def allow(self, limit: int) -> None:
        """Sets the maximum size of the members' further messages to ``limit`` bytes."""
        for member in self._members:
            if member is not None:
                member.limit = limit

    def send_roster(self, client: int) -> None:
        """Sends the members of the next sum to ``client``. Malicious mode only."""
        member = self._members[client]
        if member is not None and self._is_connected(member):
            self._clients.send_roster(member, self.numbers)

    def name(self, client: int) -> str:
        """See ``Channel``."""
        return self._clients.names[self.numbers[client]]

    def statement(self, client: int) -> tuple[bytes, str] | None:
        """Returns a participant's certificate and its statement, though it may have left; None without one."""
        member = self._members[client]
        return (member.certificate, member.statement) if member and member.statement else None

    def post(self, client: int, message: bytes) -> None:
        """See ``Channel``."""
        member = self._members[client]
        if member is not None and self._is_connected(member):
            self._clients.post(member, message)

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
            self._clients.expel(member, error)

    def put(self, member: ConnectedClient, data: bytes) -> None:
        """Queues a message of a member. Raises FederationProtocolError if the member sends more than requested."""
        client = self._ids[member.number]
        self._unread[client] += 1
        if self._unread[client] > 2:
            raise FederationProtocolError(member.name, "sent more than it was asked for")
        self._inbox.put_nowait((client, data))

    def lost(self, member: ConnectedClient) -> None:
        """Queues the loss of a member."""
        self._inbox.put_nowait((self._ids[member.number], None))

    def _is_connected(self, member: ConnectedClient | None) -> bool:
        return member is not None and self._clients.present.get(member.number) is member


def _is_give_up(data: bytes, name: str) -> bool:
    """True if the message gives up a sum; the server may have given the sum up at the same time."""
    return (
        not is_secagg_message(data) and FederationMessage.unpack(data, name).kind is MessageKind.OUT
    )
