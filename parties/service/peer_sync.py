"""Exchange of states between services: over TLS at the mesh port, under an SNI name of its own, with pinned keys.

    GET  /v1/statement          this server's state (`parties.service.peer_state`)
    GET  /v1/studies/{digest}   a study of this server: configuration and certificates
    POST /v1/cards              a new card of this server for a study: {"card": text}

``PeerServer`` is this server's end, and ``Peer`` the client for another server. Nothing here is secret. The two others
see the answers; the network sees that the servers talk.
"""

import asyncio
import hashlib
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Protocol

import aiohttp
from aiohttp import web

from parties.foundation.errors import CertificateError, PartyError
from parties.identity import tls
from parties.network.http_connections import TlsConnector
from parties.network.port_sharing import PassedSocketQueue, PassedSocketServer
from parties.observability.clocks import ClockReading
from parties.observability.events import Progress
from parties.service.events import EventName
from parties.service.identity import ServerFile, ServiceIdentity
from parties.service.peer_state import (
    MAX_PEER_STATE_BYTES,
    BadPeerState,
    OtherPeerVersion,
    PeerState,
    printable,
)
from parties.service.rotation import Announcement
from parties.service.study_intake import MAX_DOCUMENT_BYTES

SERVICE_SNI = "service.syncret.invalid"
"""SNI name by which a service dials another one."""
PEER_STATE_TTL_S = 10.0
"""Time for which a server's state is valid, in seconds."""
_HANDSHAKE_S = 5.0
_MAX_HANDSHAKES = 64
_REQUEST_TIMEOUT_S = 4.0
_STUDY_TIMEOUT_S = 60.0
"""Time for a study to come, with a model of tens of megabytes, in seconds."""
_REPEAT_S, _CHANGED_S = 60.0, 10.0
"""Minimum intervals between log lines about a problem of a server, the same one and another one, in seconds."""


class PeerRequestHandler(Protocol):
    """Source of the answers to the other servers."""

    def statement(self) -> PeerState:
        """Returns this server's current state."""

    async def proposal(self, digest: str) -> Mapping[str, object] | None:
        """Returns the configuration and certificates of a study, or None if it is unknown. Raises StoreError."""

    async def new_card(self, kind: str) -> str:
        """Returns a new card for a study. Raises PartyError."""


class PeerServer:
    """HTTPS endpoint for the other servers; ``take`` accepts connections that the SNI router passes on."""

    def __init__(self, identity: ServiceIdentity, answering: PeerRequestHandler) -> None:
        self._identity = identity
        self._answering = answering
        self._inlet = PassedSocketQueue()
        self._runner: web.AppRunner | None = None
        self._handed: PassedSocketServer | None = None
        self.take = self._inlet.put

    async def start(self) -> None:
        """Starts the endpoint. Raises CertificateError."""
        context = tls.pinned_server_context(self._identity.files)
        app = web.Application(client_max_size=MAX_PEER_STATE_BYTES)
        app.add_routes(
            [
                web.get("/v1/statement", self._guarded(self._get_state)),
                web.get("/v1/studies/{digest}", self._guarded(self._get_study)),
                web.post("/v1/cards", self._guarded(self._make_card)),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=1.0, access_log=None)
        await self._runner.setup()
        manager = self._runner.server
        if manager is None:
            raise RuntimeError("the HTTP server was not set up")
        self._handed = PassedSocketServer(
            self._inlet, manager, context, _HANDSHAKE_S, _MAX_HANDSHAKES
        )

    async def restart(self) -> None:
        """Begins anew, without connections, after a change of this server's identity. Raises CertificateError."""
        await self.close()
        await self.start()

    async def close(self) -> None:
        """Closes the endpoint and its connections."""
        if self._handed is not None:
            self._handed.close()
            await self._handed.wait_closed()
        if self._runner is not None:
            await self._runner.cleanup()

    def _guarded(
        self, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Restricts a handler to the two others, and answers errors as JSON."""

        async def guarded(request: web.Request) -> web.Response:
            transport = request.transport
            connection = transport.get_extra_info("ssl_object") if transport else None
            if connection is None or self._peer_of_key(tls.peer_key(connection)) is None:
                return _refusal(HTTPStatus.FORBIDDEN, "only the two other servers may ask this")
            try:
                return await handler(request)
            except PartyError as error:
                return _refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))

        return guarded

    def _peer_of_key(self, key: str) -> int | None:
        for pid in self._identity.peers:
            if key in [server.key for server in self._identity.accepted(pid)]:
                return pid
        return None

    async def _get_state(self, request: web.Request) -> web.Response:
        return web.json_response(self._answering.statement().to_dict())

    async def _get_study(self, request: web.Request) -> web.Response:
        proposal = await self._answering.proposal(request.match_info["digest"])
        if proposal is None:
            return _refusal(HTTPStatus.NOT_FOUND, "no such study is here")
        return web.json_response(proposal)

    async def _make_card(self, request: web.Request) -> web.Response:
        return web.json_response({"card": await self._answering.new_card("distaim")})


def _refusal(status: int, what: str) -> web.Response:
    return web.json_response({"error": {"what": what}}, status=status)


class PeerUnavailable(PartyError):
    """Another server is unreachable or answers with an error."""


class Peer:
    """Client for another server, with its last state. ``problem`` is the last error, or "" if it answers.

    ``clock`` is the offset of its clock from this host's, by its last state. ``announced`` is the next key or
    certificate that it announces, ``presented`` the fingerprint of the certificate of its last handshake, and
    ``other_version`` is true while it answers with another version. A change of ``problem`` is an event of the bus
    ``events``, one of its text alone at a limited rate.
    """

    def __init__(self, identity: ServiceIdentity, pid: int, events: Progress | None = None) -> None:
        """Raises CertificateError."""
        self.pid = pid
        self.away_since: float | None = time.time()
        """Time since which the server does not answer, in seconds since the epoch; None while it does."""
        self._events = events or Progress()
        self._identity = identity
        self.announced: Announcement | None = None
        self.presented = ""
        self.other_version = False
        self.problem = "not asked yet"
        self.seen_at: float | None = None
        self.round_trip_s: float | None = None
        self._state: PeerState | None = None
        self._clock: ClockReading | None = None
        self._session: aiohttp.ClientSession | None = None
        self._said, self._said_at = "", 0.0
        self._context = self._new_context()

    def _new_context(self) -> ssl.SSLContext:
        def presents(certificate: bytes) -> None:
            self.presented = hashlib.sha256(certificate).hexdigest()

        pins = [server.pinned for server in self._identity.accepted(self.pid)]
        return tls.pinned_client_context(self._identity.files, pins, presents)

    async def renew(self) -> None:
        """Connects anew, after a change of this server's identity. Raises CertificateError."""
        session, self._session = self._session, None
        self.presented, self._context = "", self._new_context()
        if session is not None:
            await session.close()

    @property
    def server(self) -> ServerFile:
        """The server, as it is known."""
        return self._identity.servers[self.pid]

    @property
    def statement(self) -> PeerState | None:
        """Last state of the server, None if it has expired."""
        if self.seen_at is None or time.monotonic() - self.seen_at > PEER_STATE_TTL_S:
            return None
        return self._state

    @property
    def clock(self) -> ClockReading | None:
        """Offset of the server's clock from this host's, None if the state has expired."""
        return None if self.statement is None else self._clock

    async def listen(self) -> None:
        """Requests the server's state; an error becomes ``problem`` and is logged."""
        started, asked_at = time.monotonic(), time.time()
        try:
            self._state = _read_state(await self._request("GET", "/v1/statement"))
        except (PeerUnavailable, BadPeerState) as error:
            self.problem = str(error)
            self.other_version = isinstance(error, OtherPeerVersion)
            if isinstance(error, BadPeerState):
                self._state = None
        else:
            self.problem, self.seen_at = "", time.monotonic()
            self.other_version = False
            self.round_trip_s = trip = self.seen_at - started
            said = self._state.time
            self._clock = ClockReading.of(said, asked_at=asked_at, round_trip_s=trip)
            self._hear(self._state.announces)
        self._log_problem()

    def _hear(self, text: str) -> None:
        """Reads the server's announcement; one that its key has not signed is none, and a problem."""
        if not text or (self.announced is not None and self.announced.text == text):
            self.announced = self.announced if text else None
            return
        try:
            self.announced = Announcement.parse(text, self.server)
        except (CertificateError, ValueError) as error:
            self.announced, self.problem = None, str(error)

    async def study(self, digest: str) -> Mapping[str, object]:
        """Fetches a study from the server, with the model that it may start from. Raises PeerUnavailable."""
        return await self._request(
            "GET", f"/v1/studies/{digest}", limit_s=_STUDY_TIMEOUT_S, most=MAX_DOCUMENT_BYTES
        )

    async def new_card(self) -> str:
        """Fetches a new card of the server for a study. Raises PeerUnavailable."""
        return str((await self._request("POST", "/v1/cards")).get("card", ""))

    async def close(self) -> None:
        """Closes the connection."""
        if self._session is not None:
            await self._session.close()

    def _hint(self, error: Exception) -> str:
        """Returns the usual cause of a TLS failure between servers whose keys were replaced, "" for another error."""
        below = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
        below = below or error.__cause__ or error
        if not isinstance(below, ssl.SSLError) or tls.is_unknown_sni(below):
            return ""
        return " (is a folder there or here from before its key was replaced? expected the latest)"

    def _log_problem(self) -> None:
        if not self.problem:
            self.away_since = None
        elif self.away_since is None:
            self.away_since = time.time()
        turned = bool(self.problem) != bool(self._said)
        pause_s = _REPEAT_S if self.problem == self._said else _CHANGED_S
        if turned or (self.problem and time.monotonic() - self._said_at > pause_s):
            name, remote = self.server.name, str(self.server.mesh)
            if self.problem:
                self._events.event(
                    EventName.PEER_AWAY,
                    self.problem,
                    peer=name,
                    remote=remote,
                    reason=self.problem,
                )
            else:
                self._events.event(
                    EventName.PEER_THERE, f"{name} is there", peer=name, remote=remote
                )
            self._said, self._said_at = self.problem, time.monotonic()

    async def _request(
        self,
        method: str,
        path: str,
        *,
        limit_s: float = _REQUEST_TIMEOUT_S,
        most: int = MAX_PEER_STATE_BYTES,
    ) -> Mapping[str, object]:
        """Sends a request and returns the JSON answer of ``most`` bytes. Raises PeerUnavailable."""
        if self._session is None:
            connector = TlsConnector(self._context, limit=2)
            self._session = aiohttp.ClientSession(connector=connector)
        where = f"{self.server.name} at {self.server.mesh}"
        try:
            async with self._session.request(
                method,
                f"https://{self.server.mesh}{path}",
                server_hostname=SERVICE_SNI,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=limit_s),
            ) as response:
                data = await response.content.read(most)
                if not response.content.at_eof():
                    data = await _read_rest(response, data, most)
                document = _parse(data)
        except TimeoutError as error:
            raise PeerUnavailable(f"{where}: no answer within {limit_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PeerUnavailable(f"{where}: {_reason(error)}{self._hint(error)}") from error
        except (ValueError, RecursionError) as error:
            raise PeerUnavailable(f"{where}: its answer is not understood") from error
        if not isinstance(document, dict):
            raise PeerUnavailable(f"{where}: its answer is not understood")
        if response.status != HTTPStatus.OK:
            refusal = document.get("error")
            what = refusal.get("what") if isinstance(refusal, dict) else None
            raise PeerUnavailable(f"{where}: {printable(what or response.status)}")
        return document


def _read_state(document: Mapping[str, object]) -> PeerState:
    """Returns another server's state. Raises BadPeerState."""
    try:
        return PeerState.from_dict(document)
    except BadPeerState:
        raise
    except Exception as error:
        # What another server says must not end this one, whatever error a library raises.
        raise BadPeerState(f"a state cannot be read ({type(error).__name__})") from error


def _parse(data: bytes) -> object:
    """Returns a JSON answer. Raises ValueError, also for one of too many values."""
    # A long answer is a model in base64, which has none of these signs; values take far more memory than their text.
    if sum(data.count(sign) for sign in (b"[", b"{", b",")) > MAX_PEER_STATE_BYTES:
        raise ValueError("too many values")
    document: object = json.loads(data)
    return document


async def _read_rest(response: aiohttp.ClientResponse, data: bytes, most: int) -> bytes:
    """Returns the complete body of an answer of ``most`` bytes. Raises ValueError if it is too large."""
    read = bytearray(data)
    while chunk := await response.content.read(most - len(read) + 1):
        read += chunk
        if len(read) > most:
            raise ValueError("too large")
    return bytes(read)


def _reason(error: Exception) -> str:
    below = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if tls.is_unknown_sni(below):
        return "no `syncret serve` is there (something else holds the port)"
    try:
        meaning = tls.explain_tls_error(below, "it")
    except CertificateError:
        meaning = None
    if isinstance(below, ConnectionRefusedError):
        meaning = "nothing listens there: is `syncret serve` started?"
    return meaning or str(below) or type(below).__name__


async def poll_peers(peers: Mapping[int, Peer]) -> None:
    """Requests the states of all peers concurrently."""
    await asyncio.gather(*(peer.listen() for peer in peers.values()))
