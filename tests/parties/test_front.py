"""Ports that studies share: whom a connection means is read without taking a byte, and TLS ends with that one."""

import asyncio
import contextlib
import functools
import itertools
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.config import Address
from parties.config.proxy import Proxy
from parties.foundation.errors import ConfigError
from parties.identity.tls import client_context, explain_tls_error, pinned_key_in, server_context
from parties.local.children import free_ports
from parties.network import proxy as proxy_module
from parties.network import sni_router as front_module
from parties.network.client_hello import MAX_HELLO_BYTES, ClientHello, HelloStatus
from parties.network.port_sharing import (
    INGEST,
    MESH,
    PassedSocketQueue,
    PassedSocketServer,
    SharedPorts,
    pass_socket,
    study_sni_name,
)
from parties.network.remote_address import listen_at
from parties.network.sni_router import SniRouter
from tests.parties.support import PARTIES, certificates
from tests.until import eventually

NAMES = tuple(study_sni_name(f"{number}" * 64) for number in (1, 2))


def hello_for(name: str | None) -> bytes:
    """The first bytes of OpenSSL's client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
@pytest.mark.parametrize("client", ["127.0.0.1", "::1"])
def test_a_port_at_all_addresses_takes_both_families(client: str) -> None:
    (port,) = free_ports(1)
    with listen_at(Address("::", port)) as listener:
        listener.settimeout(10)
        with socket.create_connection((client, port), timeout=10):
            connection, _ = listener.accept()
            connection.close()


@pytest.mark.parametrize("name", [*NAMES, "a.example"])
def test_look_reads_the_name_that_openssl_says(name: str) -> None:
    assert ClientHello.look(hello_for(name)) == ClientHello(HelloStatus.HELLO, name)


def test_look_finds_no_name_where_none_was_said() -> None:
    assert ClientHello.look(hello_for(None)) == ClientHello(HelloStatus.HELLO, None)


def test_look_waits_for_the_last_byte() -> None:
    data = hello_for(NAMES[0])
    for size in range(len(data)):
        assert ClientHello.look(data[:size]).seen is HelloStatus.INCOMPLETE
    assert ClientHello.look(data + b"more").name == NAMES[0]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01" + struct.pack(">H", MAX_HELLO_BYTES) + b"\x01",
        b"\x16\x03\x01\x00\x05\x02",  # A ServerHello.
        b"\x16\x02",
        b"\x00",
    ],
)
def test_look_knows_what_is_no_tls(data: bytes) -> None:
    assert ClientHello.look(data).seen is HelloStatus.OTHER


@given(st.integers(9, 200), st.binary(min_size=1, max_size=4))
def test_look_takes_any_damage(place: int, damage: bytes) -> None:
    data = bytearray(hello_for(NAMES[0]))
    data[place : place + len(damage)] = damage
    assert ClientHello.look(bytes(data)).seen in HelloStatus


@given(st.binary(max_size=300))
def test_look_takes_anything(data: bytes) -> None:
    ClientHello.look(data)
    ClientHello.look(b"\x16\x03\x01" + struct.pack(">H", len(data)) + data)


# A port with two studies behind it, each with a worker's end of the channel.


class Study:
    """The part of a worker that a test needs: it sends its own name to every peer that gets through."""

    def __init__(self, name: str, inlets: SharedPorts, party: str) -> None:
        self.inlets = inlets
        factory = functools.partial(self._protocol, name)
        self.server = PassedSocketServer(
            inlets.ingest(), factory, server_context(certificates()[party]), handshake_s=5
        )

    def _protocol(self, name: str) -> asyncio.Protocol:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(f"{name} has {(await reader.readline()).decode()}".encode())
            await writer.drain()
            writer.close()

        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), answer)


@contextlib.asynccontextmanager
async def two_studies() -> AsyncIterator[tuple[SniRouter, int]]:
    """A front with two studies of different servers' keys."""
    port = free_ports(1)[0]
    front = SniRouter.open("ingest", Address("127.0.0.1", port))
    studies, channels = [], []
    for name, party in zip(NAMES, PARTIES, strict=False):
        ours, theirs = socket.socketpair()
        front.routes[name] = functools.partial(pass_socket, ours, INGEST)
        studies.append(Study(name, SharedPorts(theirs), party))
        channels.append(ours)
    try:
        yield front, port
    finally:
        await front.close()
        for study in studies:
            study.server.close()
            await study.server.wait_closed()
            study.inlets.close()
        for channel in channels:
            channel.close()


async def ask(port: int, name: str | None, party: str, line: bytes = b"a row\n") -> bytes:
    context = client_context(certificates()["clinic-a"], pinned_key_in(certificates()[party].cert))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=name or ""
    )
    try:
        writer.write(line)
        return await reader.read()
    finally:
        writer.transport.abort()


async def test_front_hands_each_connection_to_the_study_it_names() -> None:
    async with two_studies() as (_, port):
        answers = await asyncio.gather(
            *(ask(port, NAMES[i % 2], PARTIES[i % 2]) for i in range(20))
        )
        assert answers == [f"{NAMES[i % 2]} has a row\n".encode() for i in range(20)]


async def test_front_cannot_end_the_tls_of_another_study() -> None:
    async with two_studies() as (_, port):
        with pytest.raises(ssl.SSLCertVerificationError, match="party-0"):
            await ask(port, NAMES[1], PARTIES[0])


@pytest.mark.parametrize("name", [study_sni_name("9" * 64), None])
async def test_front_says_that_a_study_is_not_there(name: str | None) -> None:
    async with two_studies() as (front, port):
        with pytest.raises(ssl.SSLError) as caught:
            await ask(port, name, PARTIES[0])
        assert "does not run this study" in str(explain_tls_error(caught.value, "party-0"))
        assert front.refused == 1


async def test_front_closes_what_is_no_tls_and_serves_the_others() -> None:
    async with two_studies() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 2) == b""
        writer.transport.abort()
        assert await ask(port, NAMES[0], PARTIES[0])


async def test_front_bears_connections_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "MAX_PENDING_HELLOS", 8)
    monkeypatch.setattr(front_module, "HELLO_TIMEOUT_S", 1.0)
    async with two_studies() as (front, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        slow = hello_for(NAMES[0])
        for number, (_, writer) in enumerate(silent):
            writer.write(slow[: number % 7])
        assert await ask(port, NAMES[1], PARTIES[1])
        assert len(front._pending) <= 8
        for reader, writer in silent:
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 4) == b""
            writer.transport.abort()
        assert not front._pending


async def test_front_keeps_to_its_places_when_thousands_come_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front_module, "MAX_PENDING_HELLOS", 8)
    async with two_studies() as (front, port):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        await eventually(lambda: sum(map(_is_open, silent)) <= 8)
        assert len(front._pending) <= 8
        for connection in silent:
            connection.close()


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


async def test_handed_ends_the_oldest_of_too_many_handshakes() -> None:
    waiting, context = PassedSocketQueue(), server_context(certificates()[PARTIES[0]])
    handed = PassedSocketServer(waiting, asyncio.Protocol, context, 60.0, 4)
    pairs = [socket.socketpair() for _ in range(9)]
    for _, theirs in pairs:
        theirs.setblocking(False)
        waiting.put(theirs)
    await eventually(lambda: [_is_open(ours) for ours, _ in pairs] == [False] * 5 + [True] * 4)
    handed.close()
    await handed.wait_closed()
    for ours, _ in pairs:
        ours.close()


class Unanswering:
    """One end of TLS on a socket; it takes part in the handshake, and says nothing after that."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, **side: Any) -> None:
        self.connection = connection
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, **side)

    async def go_on(self, turns: int) -> None:
        """Goes on with the handshake as far as the peer's data goes, for a number of turns of the event loop."""
        for _ in range(turns):
            with contextlib.suppress(BlockingIOError):
                self.incoming.write(self.connection.recv(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            if self.outgoing.pending:
                self.connection.send(self.outgoing.read())
            await asyncio.sleep(0)


def nonblocking_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    return ours, theirs


async def assert_nothing_is_watched(closed: socket.socket) -> None:
    """The next connections of this process, which have the descriptors that were freed, work; ``closed`` is soon so."""
    pairs = [nonblocking_pair() for _ in range(4)]
    for one, other in pairs:
        received = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(one, 1))
        await asyncio.sleep(0)
        other.send(b"1")
        assert await asyncio.wait_for(received, 5) == b"1"
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert closed.fileno() == -1
    for end in itertools.chain(*pairs):
        end.close()


MOMENTS = [*range(8), 40]
"""Turns of the event loop before an end: before a handshake, in its middle, as it is over, and later."""


@pytest.mark.parametrize("turns", MOMENTS)
async def test_a_server_that_stops_frees_no_descriptor_that_the_loop_watches(turns: int) -> None:
    class Connected(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            server.close()

    files, queue = certificates(), PassedSocketQueue()
    server = PassedSocketServer(queue, Connected, server_context(files[PARTIES[0]]), handshake_s=60)
    ours, theirs = nonblocking_pair()
    context = client_context(files["clinic-a"], pinned_key_in(files[PARTIES[0]].cert))
    queue.put(theirs)
    await Unanswering(ours, context, server_hostname=PARTIES[0]).go_on(turns)
    server.close()
    await server.wait_closed()
    await assert_nothing_is_watched(theirs)
    ours.close()


@pytest.mark.parametrize("turns", MOMENTS)
async def test_a_client_that_gives_up_in_a_tunnel_frees_no_descriptor_that_the_loop_watches(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tunnel(*_: object) -> socket.socket:
        return theirs

    monkeypatch.setattr(proxy_module, "open_tunnel", tunnel)
    files = certificates()
    ours, theirs = nonblocking_pair()
    context = client_context(files["clinic-a"], pinned_key_in(files[PARTIES[0]].cert))
    opening = asyncio.ensure_future(
        proxy_module.open_stream(
            Proxy("proxy.example", 3128, "a test"), "alpha", 1, context=context, name=PARTIES[0]
        )
    )
    await asyncio.sleep(0)
    peer = Unanswering(ours, server_context(files[PARTIES[0]]), server_side=True)
    await peer.go_on(turns)
    opening.cancel()
    await asyncio.wait([opening])
    if opening.cancelled():
        await assert_nothing_is_watched(theirs)
    else:
        opening.result()[1].transport.abort()
    ours.close()


async def test_front_takes_a_greeting_that_comes_in_pieces() -> None:
    async with two_studies() as (_, port):
        data = hello_for(NAMES[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for start in range(0, len(data), 100):
            writer.write(data[start : start + 100])
            await asyncio.sleep(0.02)
        # The study's ServerHello, a handshake record.
        assert (await reader.read(1))[0] == 22
        writer.transport.abort()


async def test_open_says_that_a_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match=r"cannot listen on .*--listen-mesh"):
            SniRouter.open("mesh", address)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
@pytest.mark.parametrize("hosts", [("127.0.0.1", "::1"), ("::1",), ("::1", "192.0.2.1")])
async def test_open_listens_at_all_addresses_of_its_name_that_this_host_has(
    monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...]
) -> None:
    resolve, (port,) = socket.getaddrinfo, free_ports(1)

    def resolved(host: str, *given: Any, **more: Any) -> list[Any]:
        names = hosts if host == "alpha.example" else (host,)
        return [info for name in names for info in resolve(name, *given, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    router = SniRouter.open("ingest", Address("alpha.example", port))
    try:
        for host in set(hosts) - {"192.0.2.1"}:
            _, writer = await asyncio.open_connection(host, port)
            writer.transport.abort()
    finally:
        await router.close()


# The worker's end.


@pytest.fixture
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def connected() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


async def test_inlets_close_what_nothing_is_open_for(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = channel
    inlets = SharedPorts(theirs)
    here, there = connected()
    assert pass_socket(ours, MESH, there)
    await eventually(lambda: not _is_open(here))
    here.close()
    inlets.close()


async def test_inlets_keep_what_was_sent_before_it_was_accepted(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = channel
    inlets = SharedPorts(theirs)
    mesh = inlets.mesh()
    here, there = connected()
    here.send(b"hello")
    assert pass_socket(ours, MESH, there)
    accepted = await asyncio.wait_for(mesh.accept(), 2)
    assert accepted.recv(5) == b"hello"
    accepted.close()
    here.close()
    inlets.close()


async def test_inlets_end_with_whoever_held_the_ports(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = channel
    inlets = SharedPorts(theirs)
    mesh = inlets.mesh()
    here, there = connected()
    assert pass_socket(ours, MESH, there)
    ours.close()
    await eventually(lambda: not _is_open(here))
    here.close()
    mesh.close()


def test_hand_over_says_that_nobody_takes_it(channel: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = channel
    theirs.close()
    here, there = connected()
    started = time.monotonic()
    assert not pass_socket(ours, MESH, there)
    assert time.monotonic() - started < 1
    assert here.recv(1) == b""
    here.close()
