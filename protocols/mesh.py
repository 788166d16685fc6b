"""Mesh of the three parties: each party dials both peers and is dialled by both, over mutual TLS 1.3.

A connection carries one direction only (see ``exchanger``): the dialler sends. Identity is the certificate's common
name together with its public key, which is pinned: both sides check it, so that an issuer of certificates cannot pass
for a party. A party that shares its port with other meshes takes its connections from an ``Inlet``; the dialler names
the mesh by ``server_name`` (SNI). Unknown peers, garbage and wrong certificates cost nothing but their own connection;
a peer that restarts while the mesh waits for another one takes its old place. A dialler sends its version first, in a
form that stays: peers of different versions refuse one another at once. When all four connections are there, each end
shows the share that its greeting had committed to, sealed to the peer's pinned post-quantum key (`pairing`). Everything
runs on the event loop, so that a cancelled attempt leaves no task, thread or socket behind. All messages here are
public. TLS carries identity and integrity, and no secret rests on its key agreement alone; its groups are those that
the library offers, X25519MLKEM768 first where OpenSSL has it (from 3.5).

Known limit: a flood of new connections to the port can keep the peers out until the connect deadline.
"""

import asyncio
import contextlib
import hashlib
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar, cast

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from protocols.errors import (
    ConfigurationError,
    ConnectTimeout,
    OtherVersion,
    PeerClosed,
    ProtocolViolation,
)

T = TypeVar("T")
Connections = dict[int, ssl.SSLSocket]

_HANDSHAKE_S = 10.0
_RETRY_S = 0.1
_BACKLOG = 16
# Largest number of half-made connections; one more ends the oldest.
_MAX_WELCOMES = 64
_ACCEPTED = b"\1"
_OTHER_SESSION = b"\0"
_STRANGER = b"\2"
_OTHER_VERSION = b"\3"
"""Answer to another version; the answerer's version follows, in the form of a dialler's."""
_GREETING = b"syncret-mesh-3\n"
VERSION_BYTES = 64
# Greetings of older programs have no version, and are longer than the first read of a greeting.
_OLDER = b"syncret-mesh-"
_KEY = re.compile(r"[0-9a-f]{64}")


def key_hash(certificate: x509.Certificate) -> str:
    """Returns the pin of a certificate: hex SHA-256 of its public key (SubjectPublicKeyInfo, DER)."""
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(key).hexdigest()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of this party's credentials, and the three parties' common names and pins (``key_hash``)."""

    ca: Path
    cert: Path
    key: Path
    names: tuple[str, str, str]
    pins: tuple[str, str, str]

    def __post_init__(self) -> None:
        if len(set(self.names)) != 3:
            raise ConfigurationError(
                f"the parties' certificates have to have three different common names; got {self.names}"
            )
        if len(set(self.pins)) != 3 or not all(map(_KEY.fullmatch, self.pins)):
            raise ConfigurationError(
                f"the parties' keys have to be three different SHA-256 digests in hex; got {self.pins}"
            )

    def other_than(self, peer: int, connection: ssl.SSLSocket) -> str | None:
        """Returns the reason why the other end of the connection is not ``peer``; None where it is."""
        name, pin = common_name(connection), _pin(connection)
        if name != self.names[peer]:
            return f"its certificate is for {name!r}, not for {self.names[peer]!r}"
        if pin != self.pins[peer]:
            return (
                f"its certificate for {name!r} has another key (SHA-256 {pin[:16]}...) than the configuration "
                f"({self.pins[peer][:16]}...)"
            )
        return None

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Returns a TLS 1.3 context that demands the peer's certificate; names are checked after the handshake."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        if server:
            context.num_tickets = 0  # Sessions are never resumed.
        try:
            context.load_verify_locations(cafile=self.ca)
        except (OSError, ssl.SSLError) as problem:
            raise ConfigurationError(
                f"cannot use the certificate authority's file {self.ca}: {problem}"
            ) from problem
        try:
            # The empty password makes an encrypted key an error instead of a question on the terminal.
            context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ssl.SSLError) as problem:
            raise ConfigurationError(
                f"cannot use the certificate {self.cert} with the unencrypted key {self.key}: {problem}"
            ) from problem
        return context


class _RefusedError(ConnectionError):
    """The other side is there and is not the expected peer."""


@dataclass(frozen=True, slots=True)
class _Problem:
    text: str
    refusal: bool = False


class Greeter(Protocol):
    """Interface for the first bytes of a connection, in both roles; ``PartyRuntime`` is one.

    ``version`` is that of the messages and of the program, which all three have to have in common.
    """

    pid: int
    version: str

    def hello(self, peer: int) -> bytes:
        """Returns the dialler's first bytes to ``peer``."""

    def hello_size(self, peer: int) -> int:
        """Returns the length of the hello of ``peer``."""

    def accept_hello(self, peer: int, hello: bytes) -> None:
        """Checks the hello of ``peer``; raises ProtocolViolation."""

    def reveal(self, peer: int) -> bytes:
        """Returns the dialler's bytes to ``peer`` once the mesh is there."""

    def reveal_size(self, peer: int) -> int:
        """Returns the length of the reveal of ``peer``."""

    def accept_reveal(self, peer: int, data: bytes) -> None:
        """Checks the reveal of ``peer``; raises ProtocolViolation."""


class Inlet(Protocol):
    """Interface of a source of incoming connections."""

    async def accept(self) -> socket.socket:
        """Returns the next connection, non-blocking, with nothing read from it."""

    def close(self) -> None:
        """Stops taking connections, and drops those that were not accepted."""


class _Port:
    """``Inlet`` of this party's own: a port that it listens on."""

    def __init__(self, pid: int, address: tuple[str, int]) -> None:
        """Opens the port. Raises ConfigurationError where this host cannot listen there."""
        try:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
            # Of a name with both, IPv4.
            family, _, _, _, name = min(found, key=lambda each: each[0] != socket.AF_INET)
            self._socket = socket.create_server(name, family=family, backlog=_BACKLOG)
        except (OSError, OverflowError, UnicodeError) as problem:
            raise ConfigurationError(
                f"party {pid} cannot listen on {_show(address)}: {problem};"
                " it needs an address of this host and a free port"
            ) from problem
        self._socket.setblocking(False)

    async def accept(self) -> socket.socket:
        """Accepts a connection; see ``Inlet``."""
        while True:
            await _ready(self._socket)
            try:
                raw, _ = self._socket.accept()
            except OSError:  # The dialler has gone again, or this process has too many files open.
                await asyncio.sleep(_RETRY_S)
                continue
            raw.setblocking(False)
            return raw

    def close(self) -> None:
        """Closes the port; see ``Inlet``."""
        self._socket.close()


class Mesh:
    """One party's part in building the mesh; good for one ``connect``.

    ``inlet`` opens a replacement for the own address; ``server_name`` is sent to each dialled peer; ``on_stranger``
    gets the reason why a connection of no party was refused.
    """

    def __init__(
        self,
        greeter: Greeter,
        addresses: Sequence[tuple[str, int]],
        *,
        tls: TlsFiles,
        timeout_s: float,
        inlet: Callable[[], Inlet] | None = None,
        server_name: str | None = None,
        on_stranger: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._greeter = greeter
        self._on_stranger = on_stranger
        self._open = inlet or (lambda: _Port(greeter.pid, addresses[greeter.pid]))
        self._server_name = server_name
        self._addresses = addresses
        self._tls = tls
        self._timeout_s = timeout_s
        self._peers = [peer for peer in range(3) if peer != greeter.pid]
        self._outgoing: Connections = {}
        self._incoming: Connections = {}
        # Last problem by peer, while dialling it and while being dialled by it.
        self._dialling: dict[int, _Problem] = {}
        self._welcoming: dict[int, _Problem] = {}
        self._welcomes: dict[asyncio.Task[None], None] = {}
        self._settled = asyncio.Event()
        self._violation: ProtocolViolation | None = None

    async def connect(self) -> tuple[Connections, Connections]:
        """Returns outgoing and incoming connections by peer, in blocking mode; the caller closes them.

        Raises ConfigurationError for unusable certificates or names or an address in use, ProtocolViolation for an
        authenticated peer of another session, ConnectTimeout with the last problem of each missing peer, PeerClosed for
        one that has greeted and gone.
        """
        client, server = self._tls.context(server=False), self._tls.context(server=True)
        inlet = self._open()
        jobs: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._settled.wait()),
            asyncio.ensure_future(self._accept(inlet, server)),
            *(asyncio.ensure_future(self._dial(peer, client)) for peer in self._peers),
        ]
        try:
            await self._wait(jobs)
            await self._reveal_all()
        except BaseException:
            self._close()
            raise
        finally:
            inlet.close()
        for connection in (*self._outgoing.values(), *self._incoming.values()):
            connection.setblocking(True)
        return self._outgoing, self._incoming

    async def _wait(self, jobs: Sequence["asyncio.Future[Any]"]) -> None:
        """Waits until the mesh is settled; afterwards no task is left."""
        try:
            finished, _ = await asyncio.wait(
                jobs, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            for job in finished:
                job.result()
            if self._violation is not None:
                raise self._violation
            if not finished:
                raise self._timeout()
        finally:
            tasks = [*jobs, *self._welcomes]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _reveal_all(self) -> None:
        """Exchanges with every peer the shares behind the greetings, all of which are there by now."""
        try:
            # A peer may still be waiting for the third party, as long as this one has waited.
            async with asyncio.timeout(self._timeout_s), asyncio.TaskGroup() as group:
                for peer in self._peers:
                    group.create_task(self._reveal(peer))
        except TimeoutError as error:
            raise ConnectTimeout(
                f"a peer did not finish its greeting within {self._timeout_s:g} s"
            ) from error
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _reveal(self, peer: int) -> None:
        outgoing, incoming = self._outgoing[peer], self._incoming[peer]
        data = self._greeter.reveal(peer)
        try:
            await _retried(outgoing, lambda: outgoing.send(data))
            shown = await _read_exactly(incoming, self._greeter.reveal_size(peer))
        except OSError as problem:
            raise PeerClosed(f"party {peer} was lost in the greeting: {problem}", peer) from problem
        self._greeter.accept_reveal(peer, shown)

    def _close(self) -> None:
        for connection in (*self._outgoing.values(), *self._incoming.values()):
            connection.close()

    def _timeout(self) -> ConnectTimeout:
        missing = self.missing()
        details = "; ".join(
            f"party {peer} ({self._tls.names[peer]}) at {_show(self._addresses[peer])}: {problem}"
            for peer, problem in missing.items()
        )
        return ConnectTimeout(
            f"the mesh was not complete after {self._timeout_s:g} s: {details}",
            min(missing, default=None),
        )

    def missing(self) -> dict[int, str]:
        """Returns the peers that are not connected in both directions, and the last problem with each."""
        there = self._outgoing.keys() & self._incoming.keys()
        return {peer: self._problem(peer) for peer in self._peers if peer not in there}

    def _problem(self, peer: int) -> str:
        if peer not in self._outgoing:
            return self._dialling.get(peer, _Problem("it does not answer")).text
        return self._welcoming.get(peer, _Problem("it has not connected to this party")).text

    def _add(self, table: Connections, peer: int, connection: ssl.SSLSocket) -> None:
        """Enters a connection in the place of an older one; the mesh is settled when all four are there and alive."""
        self._drop(table, peer)
        table[peer] = connection
        (self._dialling if table is self._outgoing else self._welcoming).pop(peer, None)
        for kept in (self._outgoing, self._incoming):
            for other in [other for other, found in kept.items() if _ended(found)]:
                self._drop(kept, other)
        if len(self._outgoing) == len(self._incoming) == len(self._peers):
            self._settled.set()

    @staticmethod
    def _drop(table: Connections, peer: int) -> None:
        if peer in table:
            table.pop(peer).close()

    # Dialling.

    async def _dial(self, peer: int, context: ssl.SSLContext) -> NoReturn:
        """Keeps a connection to ``peer``: dials until it is there, and again when the peer has gone away."""
        while True:
            if peer in self._outgoing and _ended(self._outgoing[peer]):
                self._drop(self._outgoing, peer)
            if peer not in self._outgoing:
                try:
                    async with asyncio.timeout(_HANDSHAKE_S):
                        connection = await self._dial_once(peer, context)
                    self._add(self._outgoing, peer, connection)
                except OSError as problem:
                    _note(self._dialling, peer, problem)
                except UnicodeError as problem:
                    raise ConfigurationError(
                        f"party {peer} is not to be found at {_show(self._addresses[peer])}: no host can have this name"
                        f" ({problem}); expected an address, or a name whose labels have 1 to 63 characters each"
                    ) from problem
            await asyncio.sleep(_RETRY_S)

    async def _dial_once(self, peer: int, context: ssl.SSLContext) -> ssl.SSLSocket:
        with contextlib.ExitStack() as stack:
            raw = await _connected(self._addresses[peer], stack)
            connection = await _secured(raw, context, stack, name=self._server_name)
            if other := self._tls.other_than(peer, connection):
                raise _RefusedError(other)
            hello = _preamble(self._greeter.version) + self._greeter.hello(peer)
            await _retried(connection, lambda: connection.send(hello))
            # A TLS 1.3 client is done before its certificate is checked, hence the answer of one byte.
            answer = await _retried(connection, lambda: connection.recv(1))
            if answer == _OTHER_SESSION:
                self._violated(ProtocolViolation(f"party {peer} runs another session", peer))
            if answer == _STRANGER:
                raise _RefusedError("it does not take this party's certificate for a peer's")
            if answer == _OTHER_VERSION:
                said = await _read_exactly(connection, VERSION_BYTES)
                self._violated(self._other_version(peer, _shown(said)))
            if answer != _ACCEPTED:
                raise ConnectionError("it closed the connection in the greeting")
            stack.pop_all()
        return connection

    def _other_version(self, peer: int, theirs: str) -> OtherVersion:
        return OtherVersion(
            f"party {peer} ({self._tls.names[peer]}) has another version of syncret: {theirs}; here "
            f"{self._greeter.version}. Expected the same one at all three servers",
            peer,
        )

    def _violated(self, violation: ProtocolViolation) -> None:
        self._violation = self._violation or violation
        self._settled.set()

    # Being dialled.

    async def _accept(self, inlet: Inlet, context: ssl.SSLContext) -> NoReturn:
        while True:
            raw = await inlet.accept()
            if len(self._welcomes) == _MAX_WELCOMES:
                next(iter(self._welcomes)).cancel()
            task = asyncio.ensure_future(self._welcome(raw, context))
            self._welcomes[task] = None
            task.add_done_callback(partial(self._welcomed, raw))

    def _welcomed(self, raw: socket.socket, task: "asyncio.Task[None]") -> None:
        del self._welcomes[task]
        raw.close()  # Only open where the task was cancelled before it began.

    async def _welcome(self, raw: socket.socket, context: ssl.SSLContext) -> None:
        """Identifies the dialler. Only a peer of another session or version ends the whole attempt."""
        peer: int | None = None
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                with contextlib.ExitStack() as stack:
                    connection = await _secured(raw, context, stack, server=True)
                    peer = self._identify(connection)
                    if peer is None:
                        self._on_stranger(
                            f"the certificate of {common_name(connection)!r} is none of a party's"
                        )
                        connection.send(_STRANGER)
                        return
                    if not await self._same_version(peer, connection):
                        return
                    hello = await _read_exactly(connection, self._greeter.hello_size(peer))
                    try:
                        self._greeter.accept_hello(peer, hello)
                    except ProtocolViolation as violation:
                        self._violated(violation)
                        connection.send(_OTHER_SESSION)
                        return
                    await _retried(connection, lambda: connection.send(_ACCEPTED))
                    stack.pop_all()
            self._add(self._incoming, peer, connection)
        except OSError as problem:
            if peer is not None:
                _note(self._welcoming, peer, problem)
            elif isinstance(problem, ssl.SSLError):
                self._on_stranger(_describe(problem).text)

    async def _same_version(self, peer: int, connection: ssl.SSLSocket) -> bool:
        """Returns True if the dialler has this party's version; else both sides learn it, and the attempt ends."""
        mine = _preamble(self._greeter.version)
        said = await _read_exactly(connection, len(mine))
        if said == mine:
            return True
        if said.startswith(_GREETING):
            theirs, answer = _shown(said[len(_GREETING) :]), mine[len(_GREETING) :]
            connection.send(_OTHER_VERSION + answer)
        elif said.startswith(_OLDER):
            theirs = "an older one, whose greeting has no version"
            connection.send(_OTHER_SESSION)
        else:
            raise ConnectionError("its greeting is no party's")
        self._violated(self._other_version(peer, theirs))
        return False

    def _identify(self, connection: ssl.SSLSocket) -> int | None:
        return next((p for p in self._peers if self._tls.other_than(p, connection) is None), None)


def _preamble(version: str) -> bytes:
    """Returns the first bytes of a dialler: their form and length are the same in all versions."""
    return _GREETING + version.encode("ascii", "replace")[:VERSION_BYTES].ljust(
        VERSION_BYTES, b"\0"
    )


def _shown(version: bytes) -> str:
    """Returns a peer's version, for people."""
    text = version.rstrip(b"\0").decode("ascii", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def common_name(connection: ssl.SSLSocket) -> str:
    """Returns the common name of the peer's verified certificate; an empty string where it has none."""
    certificate = connection.getpeercert() or {}
    subject = cast(tuple[tuple[tuple[str, str], ...], ...], certificate.get("subject", ()))
    fields = dict(field for part in subject for field in part)
    return fields.get("commonName", "")


def _pin(connection: ssl.SSLSocket) -> str:
    """Returns the ``key_hash`` of the peer's certificate; an empty string where it has none."""
    certificate = connection.getpeercert(binary_form=True)
    return key_hash(x509.load_der_x509_certificate(certificate)) if certificate else ""


# Non-blocking sockets on the event loop. asyncio's own TLS cannot hand a connection over to a blocking thread.


async def _ready(connection: socket.socket, *, write: bool = False) -> None:
    """Waits until the socket can be read or written."""
    loop = asyncio.get_running_loop()
    event, descriptor = asyncio.Event(), connection.fileno()
    (loop.add_writer if write else loop.add_reader)(descriptor, event.set)
    try:
        await event.wait()
    finally:
        (loop.remove_writer if write else loop.remove_reader)(descriptor)


async def _retried(connection: ssl.SSLSocket, operation: Callable[[], T]) -> T:
    """Runs a TLS operation, again whenever the socket lets it go on."""
    while True:
        try:
            return operation()
        except ssl.SSLWantReadError:
            await _ready(connection)
        except ssl.SSLWantWriteError:
            await _ready(connection, write=True)


async def _connected(address: tuple[str, int], stack: contextlib.ExitStack) -> socket.socket:
    """Returns a TCP connection to the first address of a host that takes one; ``stack`` closes it."""
    loop = asyncio.get_running_loop()
    problem = OSError(f"the name {address[0]!r} has no address")
    for family, kind, number, _, resolved in await loop.getaddrinfo(
        *address, type=socket.SOCK_STREAM
    ):
        raw = stack.enter_context(socket.socket(family, kind, number))
        raw.setblocking(False)
        try:
            await loop.sock_connect(raw, resolved)
        except OSError as refused:
            problem = refused
        else:
            return raw
    raise problem


async def _secured(
    raw: socket.socket,
    context: ssl.SSLContext,
    stack: contextlib.ExitStack,
    *,
    server: bool = False,
    name: str | None = None,
) -> ssl.SSLSocket:
    """Returns the TLS connection on ``raw``, after the handshake; ``stack`` closes it."""
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    raw.getpeername()  # Raises where it is already reset; wrap_socket would then forget to close it.
    connection = context.wrap_socket(
        raw, server_side=server, do_handshake_on_connect=False, server_hostname=name
    )
    stack.enter_context(connection)
    await _retried(connection, connection.do_handshake)
    return connection


async def _read_exactly(connection: ssl.SSLSocket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        step = await _retried(connection, partial(connection.recv_into, view))
        if step == 0:
            raise ConnectionError("it closed the connection in the greeting")
        view = view[step:]
    return bytes(data)


def _ended(connection: ssl.SSLSocket) -> bool:
    """Returns True if the peer has closed the connection; looks beneath TLS and takes nothing from it."""
    try:
        return socket.socket.recv(connection, 1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _show(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _note(problems: dict[int, _Problem], peer: int, error: OSError) -> None:
    """Keeps the last problem; but a refusal is kept over the errors that follow when the peer has given up."""
    problem = _describe(error)
    if problem.refusal or peer not in problems or not problems[peer].refusal:
        problems[peer] = problem


def _describe(error: OSError) -> _Problem:
    if isinstance(error, _RefusedError):
        return _Problem(str(error), refusal=True)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _Problem(f"its certificate was refused: {error.verify_message}", refusal=True)
    if isinstance(error, ssl.SSLError) and "UNRECOGNIZED_NAME" in (error.reason or ""):
        return _Problem("it is there, and has not started this session yet, or not any more")
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        alert = (error.reason or "").replace("_", " ").lower()
        return _Problem(f"it refused this party's certificate: {alert}", refusal=True)
    if isinstance(error, ConnectionRefusedError):
        return _Problem("nothing listens there")
    if isinstance(error, TimeoutError):
        return _Problem(f"it did not answer within {_HANDSHAKE_S:g} s")
    return _Problem(str(error) or type(error).__name__)
