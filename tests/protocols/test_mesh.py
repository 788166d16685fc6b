"""Building the mesh: in any order, against strangers, wrong certificates, silent and restarted peers."""

import asyncio
import contextlib
import dataclasses
import datetime
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
from cryptography.hazmat.primitives import serialization

from protocols import mesh as mesh_module
from protocols.errors import ConfigurationError, ConnectTimeout, ProtocolViolation
from protocols.mesh import Connections, Mesh, TlsFiles, common_name
from tests.protocols.network import NAMES, Address, Authority, free_addresses
from tests.until import connected_to

pytestmark = pytest.mark.usefixtures("nothing_left")

SUPPORTED_GROUPS, X25519MLKEM768 = 10, 0x11EC


@dataclass
class Greeter:
    """The smallest ``mesh.Greeter``: party and session."""

    pid: int
    session: bytes = b"session-1"
    version: str = "1.0, messages 1"
    greeted: list[int] = field(default_factory=list)

    def hello(self, peer: int) -> bytes:
        return self.session

    def hello_size(self, peer: int) -> int:
        return len(self.session)

    def reveal(self, peer: int) -> bytes:
        return b"shown"

    def reveal_size(self, peer: int) -> int:
        return len(b"shown")

    def accept_reveal(self, peer: int, data: bytes) -> None:
        assert data == b"shown"

    def accept_hello(self, peer: int, hello: bytes) -> None:
        if hello != self.session:
            raise ProtocolViolation(f"party {peer} runs another session", peer)
        self.greeted.append(peer)


@pytest.fixture
def addresses() -> list[Address]:
    return free_addresses()


@contextlib.asynccontextmanager
async def closing(*meshes: Connections) -> AsyncIterator[None]:
    yield
    for connections in meshes:
        for connection in connections.values():
            connection.close()


def part(
    pid: int,
    addresses: Sequence[Address],
    tls: TlsFiles,
    *,
    timeout_s: float = 10.0,
    session: bytes = b"session-1",
    version: str = "1.0, messages 1",
) -> Mesh:
    greeter = Greeter(pid, session, version=version)
    return Mesh(greeter, addresses, tls=tls, timeout_s=timeout_s)


async def all_connect(
    addresses: Sequence[Address],
    tls: Sequence[TlsFiles],
    *,
    delays: Sequence[float] = (0, 0, 0),
    after: "asyncio.Task[None] | None" = None,
) -> None:
    """Three parties connect, and every connection carries a byte from its dialler to the right peer.

    Parties 1 and 2 begin when the task ``after`` has ended.
    """

    async def one(pid: int) -> tuple[Connections, Connections]:
        if pid and after:
            await after
        await asyncio.sleep(delays[pid])  # Sleeps: slow.
        return await part(pid, addresses, tls[pid]).connect()

    ends = await asyncio.gather(*(one(pid) for pid in range(3)))
    async with closing(*(table for end in ends for table in end)):
        for dialler, (outgoing, _) in enumerate(ends):
            for peer, connection in outgoing.items():
                connection.sendall(bytes([dialler]))
                assert ends[peer][1][dialler].recv(10) == bytes([dialler])
                assert common_name(connection) == NAMES[peer]
                assert connection.version() == "TLSv1.3"


@pytest.mark.parametrize("delays", [(0, 0, 0), (0, 0.25, 0.5), (0.5, 0.25, 0), (0, 0.5, 0)])
async def test_connect_joins_the_right_peers_in_any_order(
    addresses: list[Address], tls: list[TlsFiles], delays: tuple[float, float, float]
) -> None:
    await all_connect(addresses, tls, delays=delays)


@contextlib.asynccontextmanager
async def waiting(*meshes: Mesh) -> AsyncIterator[None]:
    """Other parties that go on trying for as long as the test looks at one."""
    tasks = [asyncio.ensure_future(mesh.connect()) for mesh in meshes]
    yield
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(result, BaseException):  # It found all others.
            async with closing(*result):
                pass


async def test_strangers_are_told_of_while_peers_are_awaited(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    told: list[str] = []
    mesh = Mesh(
        Greeter(0, b"session-1"), addresses, tls=tls[0], timeout_s=1.0, on_stranger=told.append
    )
    async with waiting(mesh):
        reader, writer = await connected_to(*addresses[0])
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
    assert len(told) == 1


async def test_connect_names_the_missing_peer(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    async with waiting(part(2, addresses, tls[2])):
        with pytest.raises(ConnectTimeout) as caught:
            await part(0, addresses, tls[0], timeout_s=0.5).connect()
    assert caught.value.pid == 1
    assert str(caught.value) == (
        "the mesh was not complete after 0.5 s:"
        f" party 1 (party-1) at 127.0.0.1:{addresses[1][1]}: nothing listens there"
    )


async def test_connect_ends_at_its_deadline_when_a_peer_accepts_and_is_silent(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    """As a stopped process does: its kernel takes the connection, nobody answers."""
    with socket.create_server(addresses[1]):
        started = time.monotonic()
        with pytest.raises(ConnectTimeout, match=r"party 1 .*does not answer"):
            await part(0, addresses, tls[0], timeout_s=0.5).connect()
        assert time.monotonic() - started < 2


async def test_connect_dials_again_when_a_handshake_hangs(
    addresses: list[Address], tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh_module, "_HANDSHAKE_S", 0.2)
    with socket.create_server(addresses[1]), pytest.raises(ConnectTimeout, match=r"within 0\.2 s"):
        await part(0, addresses, tls[0], timeout_s=0.5).connect()


async def one_bad_party(
    addresses: list[Address], tls: list[TlsFiles], bad: TlsFiles
) -> tuple[str, str]:
    """Party 2 has other credentials: what an honest party says of it at its deadline, and what it says itself."""
    async with waiting(part(1, addresses, tls[1])):
        honest, alone = await asyncio.gather(
            part(0, addresses, tls[0], timeout_s=1.0).connect(),
            part(2, addresses, bad, timeout_s=1.2).connect(),
            return_exceptions=True,
        )
    assert isinstance(honest, ConnectTimeout)
    assert honest.pid == 2
    assert "party 1 (" not in str(honest)
    assert isinstance(alone, ConnectTimeout)
    assert alone.pid == 0
    return str(honest), str(alone)


async def test_connect_refuses_an_expired_certificate(
    addresses: list[Address], tls: list[TlsFiles], authority: Authority
) -> None:
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    expired = authority.files(
        "party-2",
        "expired",
        not_before=yesterday - datetime.timedelta(days=1),
        not_after=yesterday,
    )
    honest, bad = await one_bad_party(addresses, tls, expired)
    assert "its certificate was refused: certificate has expired" in honest
    assert "refused this party's certificate: sslv3 alert certificate expired" in bad


async def test_connect_refuses_an_unknown_authority(
    addresses: list[Address], tls: list[TlsFiles], tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger")).files("party-2")
    fooled = TlsFiles(
        ca=tls[0].ca, cert=stranger.cert, key=stranger.key, names=NAMES, pins=tls[0].pins
    )
    honest, bad = await one_bad_party(addresses, tls, fooled)
    assert "its certificate was refused: unable to get local issuer" in honest
    assert "refused this party's certificate: tlsv1 alert unknown ca" in bad


async def test_connect_refuses_the_right_authority_with_another_name(
    addresses: list[Address], tls: list[TlsFiles], authority: Authority
) -> None:
    honest, bad = await one_bad_party(addresses, tls, authority.files("hospital-7"))
    assert "its certificate is for 'hospital-7', not for 'party-2'" in honest
    assert "does not take this party's certificate for a peer's" in bad


async def test_connect_refuses_a_second_certificate_of_the_authority_for_a_party_s_name(
    addresses: list[Address], tls: list[TlsFiles], authority: Authority
) -> None:
    """The authority's holder can issue one; the key is not the pinned one, in either direction."""
    honest, bad = await one_bad_party(addresses, tls, authority.files("party-2", "minted"))
    assert "its certificate for 'party-2' has another key (SHA-256 " in honest
    assert "does not take this party's certificate for a peer's" in bad


@pytest.mark.parametrize(
    "pins", [("ab" * 32,) * 3, ("ab" * 32, "cd" * 32, "EF" * 32), ("", "a", "b")]
)
def test_tls_files_refuse_pins_that_are_none(
    tls: list[TlsFiles], pins: tuple[str, str, str]
) -> None:
    with pytest.raises(ConfigurationError, match="three different SHA-256 digests"):
        dataclasses.replace(tls[0], pins=pins)


async def test_connect_refuses_the_name_of_another_party(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    """Party 1's certificate at party 2's place."""
    results = await asyncio.gather(
        *(part(pid, addresses, tls[min(pid, 1)], timeout_s=0.7).connect() for pid in (0, 2)),
        return_exceptions=True,
    )
    assert isinstance(results[0], ConnectTimeout)
    assert "its certificate is for 'party-1', not for 'party-2'" in str(results[0])
    assert isinstance(results[1], ConnectTimeout)


async def test_connect_ends_both_sides_at_once_when_sessions_differ(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    started = time.monotonic()
    results = await asyncio.gather(
        part(0, addresses, tls[0], session=b"session-1").connect(),
        part(2, addresses, tls[2], session=b"session-2").connect(),
        return_exceptions=True,
    )
    assert time.monotonic() - started < 5
    for error, peer in zip(results, (2, 0), strict=True):
        assert isinstance(error, ProtocolViolation)
        assert error.pid == peer
        assert "session" in str(error)


async def test_connect_tells_the_dialler_when_sessions_differ(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    """The other side may be unable to dial back, and so to hear of it itself."""
    lost = [*free_addresses(1), *addresses[1:]]
    started = time.monotonic()
    results = await asyncio.gather(
        part(0, addresses, tls[0], session=b"session-1").connect(),
        part(2, lost, tls[2], session=b"session-2").connect(),
        return_exceptions=True,
    )
    assert time.monotonic() - started < 5
    assert [type(error) for error in results] == [ProtocolViolation] * 2


async def test_connect_ends_both_sides_at_once_with_words_when_versions_differ(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    """Before the session is looked at, though that is another one, too."""
    started = time.monotonic()
    results = await asyncio.gather(
        part(0, addresses, tls[0]).connect(),
        part(
            2, addresses, tls[2], version="2.0, messages 7", session=b"longer than that"
        ).connect(),
        return_exceptions=True,
    )
    assert time.monotonic() - started < 5
    assert [str(error) for error in results] == [
        "party 2 (party-2) has another version of syncret: 2.0, messages 7; here 1.0, messages 1. "
        "Expected the same one at all three servers",
        "party 0 (party-0) has another version of syncret: 1.0, messages 1; here 2.0, messages 7. "
        "Expected the same one at all three servers",
    ]
    assert all(isinstance(error, ProtocolViolation) for error in results)


async def test_connect_tells_the_dialler_when_versions_differ(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    lost = [*free_addresses(1), *addresses[1:]]
    results = await asyncio.gather(
        part(0, addresses, tls[0]).connect(),
        part(2, lost, tls[2], version="2.0").connect(),
        return_exceptions=True,
    )
    assert ["another version" in str(error) for error in results] == [True, True]


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (b"syncret-mesh-2\n" + bytes(66), "an older one, whose greeting has no version"),
        (b"syncret-mesh-3\n" + b"1.0\x1b[2J".ljust(64, b"\0"), r"1\.0\?\[2J; here"),
        (b"GET / HTTP/1.1\r\n" + bytes(80), "the mesh was not complete"),
    ],
    ids=["older", "unprintable", "none"],
)
async def test_connect_refuses_the_greeting_of_a_peer_that_has_none_of_this_version(
    addresses: list[Address], tls: list[TlsFiles], greeting: bytes, words: str
) -> None:
    connecting = asyncio.ensure_future(part(0, addresses, tls[0], timeout_s=1.0).connect())
    context = tls[1].context(server=False)
    _, writer = await connected_to(*addresses[0], ssl=context, server_hostname="")
    writer.write(greeting)
    with pytest.raises((ProtocolViolation, ConnectTimeout), match=words):
        await connecting
    writer.transport.abort()


async def test_connect_remembers_a_refusal_when_the_peer_has_given_up(
    addresses: list[Address], tls: list[TlsFiles], authority: Authority
) -> None:
    patient = part(0, addresses, tls[0], timeout_s=1.5)

    async def come_and_go() -> None:
        async with waiting(part(2, addresses, authority.files("hospital-7"))):
            while "hospital-7" not in patient.missing()[2]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    error, _ = await asyncio.gather(patient.connect(), come_and_go(), return_exceptions=True)
    assert "its certificate is for 'hospital-7'" in str(error)


async def test_connect_names_the_address_when_the_port_is_in_use(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    with (
        socket.create_server(addresses[0]),
        pytest.raises(ConfigurationError, match=rf"listen on 127\.0\.0\.1:{addresses[0][1]}:"),
    ):
        await part(0, addresses, tls[0]).connect()


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
async def test_connect_names_a_peer_whose_host_name_is_impossible(
    addresses: list[Address], tls: list[TlsFiles], host: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"party 1 .*no host can have this name") as caught:
        await part(0, [addresses[0], (host, 7000), addresses[2]], tls[0]).connect()
    assert host in str(caught.value)


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "no-such-host.invalid", "fe80::1:2:3:4", "a..b", "x" * 64 + ".example"]
)
async def test_connect_names_the_address_when_it_is_not_of_this_host(
    addresses: list[Address], tls: list[TlsFiles], host: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"party 0 cannot listen on"):
        await part(0, [(host, 7000), *addresses[1:]], tls[0]).connect()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_a_port_may_have_a_name_that_stands_for_ipv6_alone(
    monkeypatch: pytest.MonkeyPatch, addresses: list[Address]
) -> None:
    port = addresses[0][1]
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **more: found)
    opened = mesh_module._Port(0, ("alpha.example", port))
    monkeypatch.undo()
    socket.create_connection(("::1", port), timeout=10).close()
    opened.close()


@pytest.mark.parametrize("files", ["cert", "key", "ca", "mismatched", "encrypted", "garbage"])
async def test_connect_names_the_file_when_credentials_are_unusable(
    addresses: list[Address],
    tls: list[TlsFiles],
    authority: Authority,
    tmp_path: "pytest.TempPathFactory",
    files: str,
) -> None:
    good, path = tls[0], authority.folder / f"{files}.bad"
    if files == "garbage":
        path.write_text("not a certificate")
    if files == "encrypted":
        key = serialization.load_pem_private_key(good.key.read_bytes(), None)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"secret"),
            )
        )
    bad = {
        "cert": TlsFiles(good.ca, path, good.key, NAMES, good.pins),
        "key": TlsFiles(good.ca, good.cert, path, NAMES, good.pins),
        "ca": TlsFiles(path, good.cert, good.key, NAMES, good.pins),
        "mismatched": TlsFiles(good.ca, good.cert, tls[1].key, NAMES, good.pins),
        "encrypted": TlsFiles(good.ca, good.cert, path, NAMES, good.pins),
        "garbage": TlsFiles(path, good.cert, good.key, NAMES, good.pins),
    }[files]
    named = tls[1].key if files == "mismatched" else path
    with pytest.raises(ConfigurationError) as caught:
        await part(0, addresses, bad).connect()
    assert str(named) in str(caught.value)


@pytest.mark.parametrize("server", [False, True])
def test_tls_files_accept_no_older_protocol_and_no_peer_without_certificate(
    tls: list[TlsFiles], server: bool
) -> None:
    context = tls[0].context(server=server)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_tls_files_are_refused_when_two_parties_share_a_name(tls: list[TlsFiles]) -> None:
    with pytest.raises(ConfigurationError, match="three different"):
        TlsFiles(tls[0].ca, tls[0].cert, tls[0].key, ("a", "b", "a"), tls[0].pins)


# Strangers at the port.


async def dialled(address: Address) -> socket.socket:
    """A TCP connection, as soon as somebody listens."""
    loop = asyncio.get_running_loop()
    while True:
        raw = socket.socket()
        raw.setblocking(False)
        try:
            await loop.sock_connect(raw, address)
        except ConnectionRefusedError:
            raw.close()
            await asyncio.sleep(0.01)
        else:
            return raw


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\x16\x03\x01\x02\x00\x01", b"\xff" * 100_000],
    ids=["silence", "http", "zeros", "half a hello", "noise"],
)
async def test_connect_is_not_held_up_by_strangers(
    addresses: list[Address], tls: list[TlsFiles], said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More strangers than there are places; half of them go away at once, with a reset."""
    monkeypatch.setattr(mesh_module, "_MAX_WELCOMES", 10)
    strangers: list[socket.socket] = []

    async def annoy() -> None:
        for count in range(30):
            raw = await dialled(addresses[0])
            with contextlib.suppress(OSError):
                raw.send(said)
            if count % 2:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0] + [0] * 4))
                raw.close()
            else:
                strangers.append(raw)

    started = time.monotonic()
    try:
        await all_connect(addresses, tls, after=asyncio.create_task(annoy()))
    finally:
        for raw in strangers:
            raw.close()
    assert time.monotonic() - started < 5


async def test_connect_keeps_no_more_strangers_than_there_are_places(
    addresses: list[Address], tls: list[TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more silent stranger ends the oldest."""
    monkeypatch.setattr(mesh_module, "_MAX_WELCOMES", 4)
    loop = asyncio.get_running_loop()
    connecting = asyncio.ensure_future(part(0, addresses, tls[0]).connect())
    strangers = [await dialled(addresses[0]) for _ in range(10)]
    try:
        async with asyncio.timeout(5):
            assert [await loop.sock_recv(raw, 1) for raw in strangers[:6]] == [b""] * 6
        for raw in strangers[6:]:
            with pytest.raises(BlockingIOError):
                raw.recv(1)
    finally:
        for raw in strangers:
            raw.close()
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)


async def test_connect_ignores_those_without_the_right_certificate(
    addresses: list[Address], tls: list[TlsFiles], authority: Authority
) -> None:
    """A client of the same authority, one without a certificate, and one that drips its bytes."""
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.load_verify_locations(authority.ca)
    nobody.check_hostname = False
    contexts = [authority.files("client-9").context(server=False), nobody]

    def speak(raw: socket.socket, context: ssl.SSLContext) -> bytes:
        raw.settimeout(5)
        try:
            with context.wrap_socket(raw) as stranger:
                stranger.sendall(b"session-1")
                return stranger.recv(10)
        except OSError:
            return b""

    async def annoy() -> list[bytes]:
        raws = [await dialled(addresses[0]) for _ in contexts]
        pairs = zip(raws, contexts, strict=True)
        return await asyncio.gather(*(asyncio.to_thread(speak, *pair) for pair in pairs))

    _, answers = await asyncio.gather(all_connect(addresses, tls, delays=(0, 0.5, 0.5)), annoy())
    assert answers == [mesh_module._STRANGER, b""]


async def test_connect_gives_a_restarted_peer_its_old_place(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    """Party 1 comes, dies and comes again while party 2 is still missing."""
    patient = asyncio.ensure_future(part(0, addresses, tls[0]).connect())
    first = part(1, addresses, tls[1], timeout_s=0.7)
    with pytest.raises(ConnectTimeout, match="party 2"):
        await first.connect()
    others = await asyncio.gather(*(part(pid, addresses, tls[pid]).connect() for pid in (1, 2)))
    outgoing, incoming = await patient
    async with closing(outgoing, incoming, *(table for end in others for table in end)):
        outgoing[1].sendall(b"x")
        assert others[0][1][0].recv(1) == b"x"
        others[0][0][0].sendall(b"y")
        assert incoming[1].recv(1) == b"y"


async def test_connect_names_a_peer_that_came_and_went(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    async def come_and_go() -> None:
        async with waiting(part(1, addresses, tls[1])):
            await asyncio.sleep(0.4)  # Sleeps: lasts.

    patient = part(0, addresses, tls[0], timeout_s=1.0).connect()
    error, _ = await asyncio.gather(patient, come_and_go(), return_exceptions=True)
    assert isinstance(error, ConnectTimeout)
    assert f"party 1 (party-1) at 127.0.0.1:{addresses[1][1]}: nothing listens" in str(error)
    assert "party 2 (" in str(error)


async def test_connect_does_not_count_a_connection_of_a_dead_peer(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    """Party 1 comes again and can be dialled, but cannot dial: what it had opened before is no use."""
    lost = [*free_addresses(1), *addresses[1:]]
    patient = asyncio.ensure_future(part(0, addresses, tls[0]).connect())
    async with waiting(part(1, [*addresses[:2], *free_addresses(1)], tls[1])):
        await asyncio.sleep(0.4)  # Sleeps: lasts.
    async with waiting(part(1, lost, tls[1]), part(2, addresses, tls[2])):
        await asyncio.sleep(0.8)  # Sleeps: quiet.
        assert not patient.done()
    patient.cancel()
    await asyncio.gather(patient, return_exceptions=True)


async def test_connect_takes_the_newer_connection_of_a_peer(
    addresses: list[Address], tls: list[TlsFiles]
) -> None:
    """The older one may be half-open: its end has gone and could not say so."""
    meshes = [part(pid, addresses, tls[pid]) for pid in range(3)]
    patient = asyncio.ensure_future(meshes[0].connect())
    (await dialled(addresses[0])).close()
    older = await meshes[1]._dial_once(0, tls[1].context(server=False))
    others = await asyncio.gather(*(mesh.connect() for mesh in meshes[1:]))
    outgoing, incoming = await patient
    async with closing(outgoing, incoming, {0: older}, *(table for end in others for table in end)):
        others[0][0][0].sendall(b"newer")
        incoming[1].settimeout(5)
        assert incoming[1].recv(10) == b"newer"


@pytest.mark.parametrize("after_s", [0, 0.001, 0.02, 0.1, 0.4])
async def test_connect_leaves_nothing_when_cancelled(
    addresses: list[Address], tls: list[TlsFiles], after_s: float
) -> None:
    """With one peer connected, one missing and a stranger in the greeting. The port is free again."""
    tasks = [asyncio.ensure_future(part(pid, addresses, tls[pid]).connect()) for pid in (0, 1)]
    await asyncio.sleep(after_s)  # Sleeps: head start.
    with socket.socket() as stranger:
        stranger.setblocking(False)
        stranger.connect_ex(addresses[0])
        await asyncio.sleep(0.01)  # Sleeps: head start.
        for task in tasks:
            task.cancel()
        started = time.monotonic()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    assert time.monotonic() - started < 1
    socket.create_server(addresses[0]).close()


def groups_offered(context: ssl.SSLContext) -> list[int]:
    """The key agreements of the first thing that a TLS client says, by their numbers at IANA."""
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    said = outgoing.read()
    at = 5 + 4 + 2 + 32  # Headers of record and message, version, random.
    at += 1 + said[at]  # Session.
    at += 2 + int.from_bytes(said[at : at + 2], "big")  # Cipher suites.
    at += 1 + said[at] + 2  # Compression; length of the extensions.
    while at < len(said):
        kind, size = struct.unpack_from(">HH", said, at)
        if kind == SUPPORTED_GROUPS:
            count = struct.unpack_from(">H", said, at + 4)[0] // 2
            return list(struct.unpack_from(f">{count}H", said, at + 6))
        at += 4 + size
    raise AssertionError("no groups are offered")


def test_context_offers_every_key_agreement_of_the_library_and_the_hybrid_one_where_it_has_it(
    tls: list[TlsFiles],
) -> None:
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    plain.minimum_version, plain.check_hostname = ssl.TLSVersion.TLSv1_3, False
    offered = groups_offered(tls[0].context(server=False))
    assert offered == groups_offered(plain)
    if ssl.OPENSSL_VERSION_INFO >= (3, 5):
        assert X25519MLKEM768 in offered
