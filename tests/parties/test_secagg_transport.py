"""SecAgg over mutual TLS: real processes, and one loop with every way a connection can go wrong."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
import ssl
import tracemalloc
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import trustme

from parties.config import CertificateFiles
from parties.crypto.pinned_key import PinnedKey
from parties.federation.secagg_client import frame_limit, run_secagg_client
from parties.federation.secagg_server import Deadlines, RoundServer
from parties.foundation.errors import (
    FrameConnectError,
    FramePeerClosed,
    FrameTimeout,
    FrameTooLarge,
    FrameTransportError,
)
from parties.identity import tls
from parties.identity.tls import make_certificates
from parties.network.frames import close_writer, limit_tls_reads, read_frame, write_frame
from secagg import wire
from secagg.client import SecAggClient
from secagg.errors import MalformedMessage, PeerAborted, TooFewSurvivors
from secagg.keys import Identity
from secagg.parameters import Parameters
from secagg.server import SecAggServer
from secagg.simulation import policy_for
from tests.parties.support import hangs_up_after_a_late_handshake
from tests.secagg.support import exact_sum, identities, session, vectors
from tests.until import eventually

NAMES = [f"owner-{u}" for u in range(5)]
SERVER = "aggregator"
PARAMETERS = session(5, True, threshold=3, min_survivors=4, length=20_000)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CertificateFiles]:
    return make_certificates(
        tmp_path_factory.mktemp("secagg"), [SERVER, "impostor"], [*NAMES, "stranger"]
    )


def server_of(files: CertificateFiles) -> PinnedKey:
    """The server whose certificate lies beside ``files``."""
    return tls.pinned_key_in(files.cert.parent / f"{SERVER}.crt")


def make_client(u: int, parameters: Parameters = PARAMETERS) -> SecAggClient:
    people: list[Identity] = identities(5)
    roster = [person.public for person in people]
    values = vectors(parameters)[u]
    return SecAggClient(u, values, policy_for(parameters), identity=people[u], roster=roster)


def make_server(parameters: Parameters = PARAMETERS) -> SecAggServer:
    return SecAggServer(parameters, roster=[person.public for person in identities(5)])


# Processes


def server_process(files: CertificateFiles, pipe: Connection) -> None:
    async def work() -> None:
        deadlines = Deadlines(join_s=60, stage_s=60)
        async with RoundServer(make_server(), NAMES, files=files, deadlines=deadlines) as running:
            pipe.send(running.port)
            server = await running.run()
            pipe.send((sorted(server.survivors), server.exact_result.tolist(), running.sent_bytes))

    asyncio.run(work())


def client_process(u: int, port: int, files: CertificateFiles, pipe: Connection | None) -> None:
    client = make_client(u)
    values = client._values
    if pipe is not None:
        # The victim tells when it is about to mask its vector, and waits to be killed.
        def stall() -> np.ndarray:
            pipe.send(os.getpid())
            signal.pause()
            return np.asarray(values)

        client._values = stall
    asyncio.run(run_secagg_client(client, "127.0.0.1", port, server=server_of(files), files=files))


@pytest.mark.timeout(300)
def test_round_of_processes_survives_a_killed_client(files: dict[str, CertificateFiles]) -> None:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    processes = [spawn.Process(target=server_process, args=(files[SERVER], theirs), daemon=True)]
    processes[0].start()
    try:
        assert ours.poll(60)
        port = ours.recv()
        killed, to_us = spawn.Pipe(duplex=False)
        for u, name in enumerate(NAMES):
            pipe = to_us if u == 2 else None
            processes.append(
                spawn.Process(target=client_process, args=(u, port, files[name], pipe), daemon=True)
            )
            processes[-1].start()
        assert killed.poll(60)
        os.kill(killed.recv(), signal.SIGKILL)
        assert ours.poll(60)
        survivors, result, sent = ours.recv()
        assert survivors == [0, 1, 3, 4]
        assert result == exact_sum(vectors(PARAMETERS), frozenset(survivors)).tolist()
        assert all(sent)
        for u, process in enumerate(processes[1:]):
            process.join(30)
            assert process.exitcode == (-signal.SIGKILL if u == 2 else 0)
    finally:
        for process in processes:
            process.kill()
            process.join()


# One loop


Fault = Callable[[int], Awaitable[None]]


async def play(
    files: dict[str, CertificateFiles],
    faults: dict[int, Fault],
    deadlines: Deadlines,
) -> tuple[RoundServer, list[BaseException | None]]:
    """A round in which the clients of ``faults`` do something else; the others' outcomes by id."""
    async with RoundServer(
        make_server(), NAMES, files=files[SERVER], deadlines=deadlines
    ) as running:

        async def client(u: int) -> None:
            if u in faults:
                await faults[u](running.port)
            else:
                await run_secagg_client(
                    make_client(u),
                    "127.0.0.1",
                    running.port,
                    server=server_of(files[NAMES[u]]),
                    files=files[NAMES[u]],
                )

        results = await asyncio.gather(
            running.run(), *(client(u) for u in range(5)), return_exceptions=True
        )
    if isinstance(results[0], BaseException):
        raise results[0]
    return running, [r if isinstance(r, BaseException) else None for r in results[1:]]


async def connect(
    port: int, files: CertificateFiles
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = tls.client_context(files, server_of(files))
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=SERVER)


def misbehaving(
    files: dict[str, CertificateFiles], data: bytes, then_close: bool
) -> Callable[[int], Awaitable[None]]:
    async def fault(port: int) -> None:
        reader, writer = await connect(port, files[NAMES[2]])
        await read_frame(reader, SERVER, limit=9999, timeout_s=10)
        writer.write(data)
        await writer.drain()
        if then_close:
            writer.close()
        else:
            await reader.read()
        writer.close()

    return fault


@pytest.mark.parametrize(
    ("data", "then_close", "violation"),
    [
        (b"", True, FramePeerClosed),
        (b"", False, FrameTimeout),
        (b"\0\0", True, FramePeerClosed),
        ((1 << 31).to_bytes(4, "big"), False, FrameTooLarge),
        ((3).to_bytes(4, "big") + b"abc", False, MalformedMessage),
        ((100).to_bytes(4, "big") + b"abc", False, FrameTimeout),
    ],
)
async def test_round_survives_a_client_that(
    files: dict[str, CertificateFiles], data: bytes, then_close: bool, violation: type
) -> None:
    fault = misbehaving(files, data, then_close)
    running, outcomes = await play(files, {2: fault}, Deadlines(join_s=10, stage_s=1, write_s=5))
    assert running.server.survivors == {0, 1, 3, 4}
    expected = exact_sum(vectors(PARAMETERS), running.server.survivors)
    assert np.array_equal(running.server.exact_result, expected)
    assert outcomes == [None] * 5
    assert [type(e) for e in running.violations.values()] == [violation]


async def test_server_keeps_one_message_of_a_client_that_floods(
    files: dict[str, CertificateFiles],
) -> None:
    frames = 200

    async def flood(port: int) -> None:
        reader, writer = await connect(port, files[NAMES[2]])
        message = wire.pack_envelope(
            wire.Envelope(wire.Kind.MASKED, 2, wire.SERVER, bytes(16), bytes(40_000))
        )
        with contextlib.suppress(ConnectionError):
            for _ in range(frames):
                writer.write(len(message).to_bytes(4, "big") + message)
                await writer.drain()
            await reader.read()
        writer.close()

    async with RoundServer(make_server(), NAMES, files=files[SERVER]) as running:
        # Nobody plays yet: what is read now would stay in memory.
        flooding = asyncio.create_task(flood(running.port))
        await eventually(running._inbox.qsize)
        await asyncio.sleep(0.5)  # Sleeps: quiet.
        assert running._inbox.qsize() == 1
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)

    running, outcomes = await play(files, {2: flood}, Deadlines(join_s=10, stage_s=5, write_s=5))
    assert running.server.survivors == {0, 1, 3, 4}
    assert outcomes == [None] * 5
    assert running.received_bytes[2] < 3 * 40_100


async def test_round_goes_on_without_a_client_that_never_connects(
    files: dict[str, CertificateFiles],
) -> None:
    async def absent(_: int) -> None:
        return

    running, outcomes = await play(files, {2: absent}, Deadlines(join_s=1, stage_s=10))
    assert running.server.survivors == {0, 1, 3, 4}
    assert outcomes == [None] * 5


async def test_round_without_enough_clients_tells_the_others(
    files: dict[str, CertificateFiles],
) -> None:
    deadlines = Deadlines(1, 5, 5)
    async with RoundServer(
        make_server(), NAMES, files=files[SERVER], deadlines=deadlines
    ) as running:
        clients = [
            run_secagg_client(
                make_client(u),
                "127.0.0.1",
                running.port,
                server=server_of(files[NAMES[u]]),
                files=files[NAMES[u]],
            )
            for u in range(3)
        ]
        server, *outcomes = await asyncio.gather(running.run(), *clients, return_exceptions=True)
    assert isinstance(server, TooFewSurvivors)
    assert [type(outcome) for outcome in outcomes] == [PeerAborted] * 3
    assert "expected at least 4" in str(outcomes[0])


async def test_server_shuts_out_strangers_and_second_connections(
    files: dict[str, CertificateFiles],
) -> None:
    refused: list[bytes] = []

    async def stranger(port: int) -> None:
        for name in ("stranger", NAMES[0]):
            # The second one comes when the real client 0 is in.
            await asyncio.sleep(0.5)
            reader, writer = await connect(port, files[name])
            refused.append(await reader.read())
            writer.close()
        await run_secagg_client(
            make_client(2),
            "127.0.0.1",
            port,
            server=server_of(files[NAMES[2]]),
            files=files[NAMES[2]],
        )

    running, outcomes = await play(files, {2: stranger}, Deadlines(join_s=20, stage_s=10))
    assert refused == [b"", b""]
    assert running.server.survivors == set(range(5))
    assert outcomes == [None] * 5


async def test_server_takes_nobody_without_a_certificate_of_its_authority(
    files: dict[str, CertificateFiles], tmp_path: Path
) -> None:
    other = make_certificates(tmp_path, [SERVER], [NAMES[0]])[NAMES[0]]
    mixed = CertificateFiles(files[SERVER].ca, other.cert, other.key)
    async with RoundServer(make_server(), NAMES, files=files[SERVER]) as running:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(mixed.ca)
        context.load_cert_chain(mixed.cert, mixed.key)

        async def probe() -> None:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", running.port, ssl=context, server_hostname=SERVER
            )
            try:
                await reader.readexactly(1)
            finally:
                writer.close()

        with pytest.raises((ssl.SSLError, ConnectionError)):
            await probe()


async def test_server_that_ends_hangs_up_on_clients_in_their_handshake(
    files: dict[str, CertificateFiles],
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            RoundServer(make_server(), NAMES, files=files[SERVER])
        )
        context = tls.client_context(files[NAMES[0]], server_of(files[NAMES[0]]))
        await hangs_up_after_a_late_handshake(running.port, context, SERVER, stack.aclose)


@pytest.mark.parametrize("name", ["impostor", None])
async def test_take_part_tells_nothing_to_another_server(
    files: dict[str, CertificateFiles], name: str | None
) -> None:
    client = make_client(0)
    if name is None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with pytest.raises(FrameConnectError, match="does not answer"):
            await run_secagg_client(
                client, "127.0.0.1", port, server=server_of(files[NAMES[0]]), files=files[NAMES[0]]
            )
        return
    async with RoundServer(make_server(), NAMES, files=files[name]) as running:
        with pytest.raises(FrameConnectError, match="impostor"):
            await run_secagg_client(
                client,
                "127.0.0.1",
                running.port,
                server=server_of(files[NAMES[0]]),
                files=files[NAMES[0]],
            )
        assert running.received_bytes == [0] * 5


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", FrameTimeout),
        (frame_limit(10).to_bytes(4, "big")[:3] + b"\xff", FrameTooLarge),
        ((5).to_bytes(4, "big") + b"abcde", MalformedMessage),
        ((5).to_bytes(4, "big") + b"abc", FrameTimeout),
        (None, FramePeerClosed),
    ],
)
async def test_take_part_ends_within_its_deadline_whatever_the_server_does(
    files: dict[str, CertificateFiles], data: bytes | None, error: type
) -> None:
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if data is None:
            writer.transport.abort()
            return
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(1)  # Sleeps: slow.
        writer.close()

    context = tls.server_context(files[SERVER])
    async with await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context) as listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(error) as caught:
            await run_secagg_client(
                make_client(0),
                "127.0.0.1",
                port,
                server=server_of(files[NAMES[0]]),
                files=files[NAMES[0]],
                max_clients=10,
                stage_s=0.4,
            )
        if isinstance(caught.value, FrameTransportError):
            assert SERVER in str(caught.value)
        await asyncio.sleep(0.8)  # Sleeps: quiet.


async def test_close_that_is_cancelled_does_not_wait_for_the_peer(
    files: dict[str, CertificateFiles],
) -> None:
    writers: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writers.put(writer)

    context = tls.server_context(files[SERVER])
    async with await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context) as listener:
        _, peer = await connect(listener.sockets[0].getsockname()[1], files[NAMES[0]])
        writer = await writers.get()
        connection = writer.get_extra_info("socket")
        peer.transport.pause_reading()  # type: ignore[attr-defined]
        closing = asyncio.create_task(close_writer(writer, timeout_s=60))
        await asyncio.sleep(0.1)  # Sleeps: quiet.
        assert not closing.done()
        assert connection.fileno() >= 0
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await asyncio.sleep(0)
        assert connection.fileno() == -1
        peer.transport.abort()


def test_round_server_wants_one_name_for_each_client(files: dict[str, CertificateFiles]) -> None:
    for names in (NAMES[:4], [*NAMES[:4], NAMES[0]], [*NAMES, "more"]):
        with pytest.raises(ValueError, match="names for 5 clients"):
            RoundServer(make_server(), names, files=files[SERVER])
    with pytest.raises(ValueError, match="positive"):
        Deadlines(stage_s=0)


async def test_what_is_sent_after_a_connection_was_closed_twice_is_an_error_of_the_round() -> None:
    authority = trustme.CA()
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(ours)
    authority.configure_trust(theirs)
    server = await asyncio.start_server(lambda reader, writer: None, "localhost", 0, ssl=ours)
    port = server.sockets[0].getsockname()[1]
    for times in (1, 2):
        _, writer = await asyncio.open_connection("localhost", port, ssl=theirs)
        for _ in range(times):
            writer.close()
        with pytest.raises(FramePeerClosed):
            await write_frame(writer, b"late", "peer", timeout_s=5)
    server.close()


async def test_large_messages_of_one_writer_go_out_in_pieces_and_in_order() -> None:
    """A slow reader gets each message whole, one after the other; at most one piece waits in a buffer of ours."""
    ours, theirs = socket.socketpair()
    reader, far = await asyncio.open_connection(sock=theirs)
    _, writer = await asyncio.open_connection(sock=ours)
    messages = [bytes([number]) * 3_000_000 for number in range(3)]
    largest = 0

    async def read() -> list[bytes]:
        nonlocal largest
        found = []
        for _ in messages:
            await asyncio.sleep(0.02)
            largest = max(largest, writer.transport.get_write_buffer_size())
            found.append(await read_frame(reader, "peer", limit=4_000_000, timeout_s=20))
        return found

    sending = [write_frame(writer, message, "peer", timeout_s=20) for message in messages]
    found, *_ = await asyncio.gather(read(), *sending)
    assert found == messages
    assert 0 < largest < 500_000
    await asyncio.gather(close_writer(writer), close_writer(far))


async def test_a_connection_reads_a_record_at_a_time_and_keeps_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred connections of asyncio's TLS with its own buffers have 25 MB; ten thousand have 2.5 GB."""
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)
    limit_tls_reads()
    authority = trustme.CA()
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(ours)
    authority.configure_trust(theirs)
    message = os.urandom(1_000_000)
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await got.put(await read_frame(reader, "peer", limit=2_000_000, timeout_s=20))
        await close_writer(writer)

    async def once(port: int) -> asyncio.StreamWriter:
        return (await asyncio.open_connection("localhost", port, ssl=theirs))[1]

    tracemalloc.start()
    try:
        server = await asyncio.start_server(take, "localhost", 0, ssl=ours)
        port = server.sockets[0].getsockname()[1]
        before = tracemalloc.get_traced_memory()[0]
        writers = [await once(port) for _ in range(20)]
        assert tracemalloc.get_traced_memory()[0] - before < 20 * 2 * 40_000
    finally:
        tracemalloc.stop()
    await write_frame(writers[0], message, "peer", timeout_s=20)
    assert await got.get() == message
    for writer in writers:
        await close_writer(writer)
    server.close()
