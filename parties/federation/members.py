"""The clients of a FLAIM run as its server knows them, whatever carries their messages, and conversations with them.

Provides ``ConnectedClients``, which lets in the clients that the config names and knows who is there,
``ClientChannel``, one client's line, and ``ClientExchange``, an exchange with the clients of one stage (a
`secagg.server.Channel`). What carries messages derives from ``ConnectedClients``: TLS connections
(`parties.federation.tls_members`), or Flower's grid (`parties.flaim.flower`). It says who a client is by a certificate
that it has verified, hands every message of it to ``on_message`` and tells ``gone`` when the line is lost. A client's
place in the config's list is its number; who loses the line is out at once and may come back between rounds; nobody is
waited for who is not there. What a client sends when nothing was asked of it ends its line. Secret: link keys, under
which messages stand in the transcript. Public: who is there, sizes, times. Known limits: clients are identified, not
counted on to be many people.
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from parties.config import CertificateFiles, Config
from parties.config.diff import agreed_bytes
from parties.federation.flaim_parameters import is_malicious
from parties.federation.key_directory import (
    ClientKeyDirectory,
    SignedClientKey,
    pack_client_keys,
    pack_members,
)
from parties.federation.messages import (
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
from parties.federation.transcript_schema import JOINED, LEFT, REFUSED
from parties.foundation.errors import FederationProtocolError, PartyError, StoreError
from parties.foundation.version import version
from parties.identity.signing import Issuer
from parties.network.frames import SIZE_BYTES
from parties.observability.events import OnRejection, Rejection, ignore_rejection
from parties.session.enrollment import Enrollment


class ClientMessageLog(Protocol):
    """Where every message of the server is written down."""

    def message(
        self, *, sent: bool, client: int, round: int | None, data: bytes, key: bytes
    ) -> None:
        """One message to or from ``client``; ``key`` is their link's."""

    def connection(self, *, name: str, certificate: bytes, what: str, reason: str = "") -> None:
        """``what`` is one of ``JOINED``, ``REFUSED`` and ``LEFT``; ``certificate`` is its own, in DER."""


class ClientChannel(Protocol):
    """One client's line; ``member`` is whose, once it is let in."""

    member: "ConnectedClient | None"

    def send(self, data: bytes) -> None:
        """Send in the background; whoever does not take it in within a deadline is out."""

    def abort(self) -> None:
        """Hang up, now."""


@dataclass(eq=False, slots=True)
class ConnectedClient:
    """A client that is there. ``limit`` is the largest message it may send now; ``round`` the one it takes part in.

    ``shown`` are the other clients' cards that it has been sent.
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


class TurnedAwayError(FederationProtocolError):
    """This client may not take part, or not now."""


class ConfigMismatchError(FederationProtocolError):
    """This client's configuration is another one."""


class ConnectedClients:
    """See the module; ``async with`` opens and closes what carries the messages.

    ``present`` are those who are there, by number. ``sent`` and ``received`` count bytes of frames by client number,
    over all its connections; ``lost`` says why a client is no longer there. ``roster``: in malicious mode, the cards of
    all that were ever there.
    """

    def __init__(
        self,
        config: Config,
        files: CertificateFiles,
        *,
        workload_digest: str,
        log: ClientMessageLog,
        on_change: Callable[[], None] = lambda: None,
        admit: Callable[[str], object] = lambda client: None,
        rejected: OnRejection = ignore_rejection,
        enrolment: Enrollment | None = None,
        known: Collection[int] = (),
    ) -> None:
        """``admit`` raises StoreError for a client that is not to be let in.

        ``rejected`` is told of whoever is not let in; ``enrolment`` says who is turned away; ``known`` are the numbers
        of those who were here in earlier attempts.

        Raises ConfigError where the config has no address or no clients.
        """
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
        self._log = log
        self._config = config
        self._files = files
        self._terms = agreed_bytes(config)
        self._greeting = (bytes.fromhex(config.digest()), bytes.fromhex(workload_digest))
        self._numbers = {name: number for number, name in enumerate(section.clients)}
        self._changed = asyncio.Condition()
        self._on_change = on_change
        self._admit = admit
        self._enrolment = enrolment or Enrollment(config.owners, config.clients)
        self._known = set(known)
        self._rejected = rejected

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
        """Wait until a client has come or gone, at most ``wait_s`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait()

    def exchange(self, numbers: Sequence[int], *, round: int | None) -> "ClientExchange":
        """An exchange with the members ``numbers``, whoever of them is still there."""
        return ClientExchange(self, numbers, round)

    def farewell(self, reason: str) -> None:
        """Tell everybody that the run is over; closing waits for it."""
        for member in list(self.present.values()):
            self.post(member, FederationMessage(MessageKind.GOODBYE, 0, pack_reason(reason)).pack())

    def send_refusal(self, refused: RefusalMessage) -> None:
        """Tell everybody why the run has failed; closing waits for it."""
        for member in list(self.present.values()):
            self.post(member, refused.message().pack())

    def post(self, member: ConnectedClient, data: bytes) -> None:
        """Send in the background; whoever does not take it in within the deadline is out."""
        # Counted and written down now: in the order in which things were decided.
        self.sent[member.number] += len(data) + SIZE_BYTES
        self._log.message(
            sent=True, client=member.number, round=member.round, data=data, key=member.key
        )
        member.link.send(data)

    def expel(self, member: ConnectedClient, error: Exception) -> None:
        """Hang up on a client, for a reason that is written down."""
        self._drop_client(member, str(error))
        member.link.abort()

    def send_roster(self, member: ConnectedClient, members: Sequence[int]) -> None:
        """Malicious mode: say who is in the next sum, with the cards of those whom ``member`` does not know yet."""
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

    async def admit_client(
        self, name: str, certificate: bytes, data: bytes, link: ClientChannel, *, remote: str = ""
    ) -> ConnectedClient | list[bytes]:
        """The new member that says ``data``, its greeting; or what it is told instead, for whom there is no place.

        ``certificate`` is its own (DER), verified, with the common name ``name``.
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
            reason = Rejection.MISFIT if number is not None else Rejection.UNKNOWN_PEER
            self._rejected(reason, f"refused: {error}", client=name, remote=remote)
            away = isinstance(error, TurnedAwayError)
            refusal = Refusal.NOT_ENROLLED if away else Refusal.MISFIT
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
        link.member = member
        welcome = Welcome(number, len(self.names), member.key)
        self.present[number] = member
        self._known.add(number)
        self.post(member, FederationMessage(MessageKind.WELCOME, 0, welcome.pack()).pack())
        await self.tell()
        return member

    def on_message(self, member: ConnectedClient, data: bytes) -> None:
        """A message of ``member``. Raises FlaimProtocolError where nobody asked for it."""
        self.received[member.number] += len(data) + SIZE_BYTES
        self._log.message(
            sent=False, client=member.number, round=member.round, data=data, key=member.key
        )
        if member.exchange is not None:
            member.exchange.put(member, data)
        elif not _is_give_up(data, member.name):
            raise FederationProtocolError(member.name, "sent a message that nobody asked for")

    async def tell(self) -> None:
        """Somebody has come or gone."""
        self._on_change()
        async with self._changed:
            self._changed.notify_all()

    def _checked_greeting(
        self, message: FederationMessage, name: str, number: int | None, certificate: bytes
    ) -> ClientGreeting:
        """The greeting of ``name``. Raises FlaimProtocolError where it cannot take part."""
        if message.kind is not MessageKind.HELLO:
            raise FederationProtocolError(name, f"sent {message.kind.name}; expected HELLO")
        hello = ClientGreeting.unpack(message.body, name)
        # Who has taken part comes back whatever the time is.
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
            # The server's paths are nothing to tell a client about.
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
        """What the other clients would refuse is refused here. Raises FlaimProtocolError."""
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


class ConnectedClientsFactory(Protocol):
    """What makes a run's ``ConnectedClients``; arguments are theirs."""

    def __call__(
        self,
        config: Config,
        files: CertificateFiles,
        *,
        workload_digest: str,
        log: ClientMessageLog,
        on_change: Callable[[], None],
        admit: Callable[[str], object],
        rejected: OnRejection,
        enrolment: Enrollment,
        known: Collection[int],
    ) -> ConnectedClients:
        """The members of one attempt."""


class ClientExchange:
    """What is exchanged with some members in one stage; ids are places in ``numbers``. A `secagg.server.Channel`.

    ``async with`` makes its members' messages come here. A member that is lost is reported once.
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
        """The ids whose members are there."""
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
        """From now on messages of up to ``limit`` bytes are taken."""
        for member in self._members:
            if member is not None:
                member.limit = limit

    def send_roster(self, client: int) -> None:
        """Malicious mode: say who is in the sum that follows."""
        member = self._members[client]
        if member is not None and self._is_connected(member):
            self._clients.send_roster(member, self.numbers)

    def name(self, client: int) -> str:
        """See ``Channel``."""
        return self._clients.names[self.numbers[client]]

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
        """A message of one of the members. Raises FlaimProtocolError where it sends more than it was asked for."""
        client = self._ids[member.number]
        self._unread[client] += 1
        if self._unread[client] > 2:
            raise FederationProtocolError(member.name, "sent more than it was asked for")
        self._inbox.put_nowait((client, data))

    def lost(self, member: ConnectedClient) -> None:
        """One of the members is gone."""
        self._inbox.put_nowait((self._ids[member.number], None))

    def _is_connected(self, member: ConnectedClient | None) -> bool:
        return member is not None and self._clients.present.get(member.number) is member


def _is_give_up(data: bytes, name: str) -> bool:
    """Whether a client gives up what the server may have given up at the same time."""
    return (
        not is_secagg_message(data) and FederationMessage.unpack(data, name).kind is MessageKind.OUT
    )
