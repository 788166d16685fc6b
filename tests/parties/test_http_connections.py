"""Requests over TLS to a server that never says farewell: what is open when their session has ended."""

import asyncio
import contextlib
import gc
import socket
import ssl
import warnings
from collections.abc import AsyncIterator

import aiohttp
import pytest
import trustme
from aiohttp.connector import AddrInfoType

from parties.network.http_connections import TlsConnector
from tests.parties.test_proxy import ConnectProxy

HEAD = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{}\r\n"
LONG = 4 << 20
ANSWERS: dict[str, bytes] = {
    "kept alive": HEAD.format(2, "").encode() + b"{}",
    "closed after": HEAD.format(2, "Connection: close\r\n").encode() + b"{}",
    "cut": HEAD.format(200, "").encode() + b"{}",
    "not HTTP": b"hello\r\n\r\n",
    "long": HEAD.format(LONG, "Connection: close\r\n").encode() + bytes(LONG),
    "silent": b"",
}


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    ca = trustme.CA()
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("localhost").configure_cert(served)
    asked = ssl.create_default_context()
    ca.configure_trust(asked)
    return served, asked


@contextlib.asynccontextmanager
async def mute(context: ssl.SSLContext, answer: bytes) -> AsyncIterator[int]:
    """Yields the port of a server that answers once in TLS and then neither reads nor closes."""
    done = asyncio.Event()
    answers: set[asyncio.Task[None]] = set()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)

    def answer_one(connection: socket.socket) -> None:
        connection.settimeout(10)
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(1 << 16)
            with contextlib.suppress(OSError):
                tls.sendall(answer)
            asyncio.run_coroutine_threadsafe(done.wait(), loop).result()

    async def accept() -> None:
        while True:
            connection, _ = await loop.sock_accept(listening)
            answers.add(asyncio.create_task(asyncio.to_thread(answer_one, connection)))

    loop = asyncio.get_running_loop()
    accepting = asyncio.create_task(accept())
    try:
        yield listening.getsockname()[1]
    finally:
        accepting.cancel()
        done.set()
        await asyncio.gather(accepting, *answers, return_exceptions=True)
        listening.close()


async def ask(connector: aiohttp.TCPConnector, url: str, *, read: int, proxy: str | None) -> None:
    limits = aiohttp.ClientTimeout(total=0.5)
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with (
            aiohttp.ClientSession(connector=connector, timeout=limits) as session,
            session.get(url, server_hostname="localhost", proxy=proxy) as response,
        ):
            await response.content.read(read)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("way", ["direct", "proxy"])
@pytest.mark.parametrize("read", [0, 1, -1])
async def test_no_connection_outlives_its_session(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], kind: str, way: str, read: int
) -> None:
    async with mute(contexts[0], ANSWERS[kind]) as port, ConnectProxy().running() as proxy:
        connector = TlsConnector(contexts[1])
        url = f"https://127.0.0.1:{port}/"
        await ask(connector, url, read=read, proxy=proxy.url if way == "proxy" else None)
        assert not connector.open_sockets


async def test_the_library_alone_leaves_one(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    made: list[socket.socket] = []

    def make(address: AddrInfoType) -> socket.socket:
        made.append(socket.socket(*address[:3]))
        made[-1].setblocking(False)
        return made[-1]

    async with mute(contexts[0], ANSWERS["closed after"]) as port:
        connector = aiohttp.TCPConnector(ssl=contexts[1], socket_factory=make)
        await ask(connector, f"https://127.0.0.1:{port}/", read=-1, proxy=None)
        assert [item.fileno() for item in made] != [-1]
        for item in made:
            item.shutdown(socket.SHUT_RDWR)
        await asyncio.sleep(0.1)  # Sleeps: quiet.


def test_a_command_leaves_nothing_to_the_collector(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """A loop that ends at once, as a command's does: nothing is found open later, wherever that is."""

    async def command() -> None:
        async with mute(contexts[0], ANSWERS["closed after"]) as port:
            await ask(TlsConnector(contexts[1]), f"https://127.0.0.1:{port}/", read=-1, proxy=None)

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        asyncio.run(command())
        gc.collect()
