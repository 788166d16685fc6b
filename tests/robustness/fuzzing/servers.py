"""Damaged bytes over real sockets: servers that have to go on serving honest peers beside attackers.

``SCENES`` maps names to servers in this process with their attackers. A scene begins the server, runs 16 attackers at
its ports until the number of inputs is reached, has an honest peer ask in between, and ends with honest work done by
the server. Attackers connect without TLS, with TLS and no certificate, and with the certificate of an owner or a
client; they send damaged requests and frames, whole or in parts, hang up in the middle, or stay silent. A find is an
honest peer that is not served, an error that a server did not expect, or growing memory.
"""

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from bench.processes import memory
from parties.federation.client import run_participant
from parties.federation.server import run_federated_server
from parties.foundation.errors import FrameTransportError
from parties.identity import tls
from parties.methods.flaim.client import flaim_participation
from parties.methods.flaim.server import flaim_plan
from parties.mpc.server import run_mpc_server
from parties.mpc.submission.http_api import run_path, submission_path, withdrawal_path
from parties.mpc.submission.submit import submit
from parties.network.frames import SIZE_BYTES
from parties.network.http_connections import TlsConnector
from parties.observability.events import Progress
from parties.observability.status import RunInfo, RunStatus
from parties.service.admin_listener import SOCKET_NAME, AdminListener, admin_thread, listen_unix
from parties.service.run_api import CommandHandlers, run_application
from tests.robustness.fuzzing.corpus import OWNERS, PARTIES, SERVER, Corpus, codes_of
from tests.robustness.fuzzing.loop import GROWTH_BYTES, MOST_FINDS, Sums
from tests.robustness.fuzzing.messages import flaim_seeds
from tests.robustness.fuzzing.mutate import Mutator
from tests.robustness.fuzzing.target import Find, where

SHARE = 10.0
"""Inputs of each scene per thousand in all: connections take milliseconds."""
_ATTACKERS = 16
_ASK_EVERY = 400
"""Inputs between two questions of an honest peer."""
_HONEST_S = 30.0
_ANSWER_S = 0.02
_STAYS_S = 2.0
_ERRORS = ("asyncio", "aiohttp", "syncret")

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@dataclass(frozen=True, slots=True)
class Door:
    """An entry point: a way to connect, and the inputs to damage there; ``frames`` are preceded by their size."""

    connect: Connect
    seeds: Sequence[bytes]
    frames: bool = False
    text: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """A server at work: its ``doors``, an honest peer's question ``asks``, and honest work to its ``end``."""

    doors: Sequence[Door]
    asks: Callable[[], Awaitable[object]]
    end: Callable[[], Awaitable[object]]


class _Noticed(logging.Handler):
    """Collects errors that servers log as unexpected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.said.append(f"{record.name}: {type(error).__name__ if error else record.getMessage()}")


def _told(context: Mapping[str, object]) -> str:
    error = context.get("exception")
    said = f": {where(error)}" if isinstance(error, Exception) else ""
    return f"{context.get('message')}{said}"


async def play(
    name: str, corpus: Corpus, inputs: int, seed: int, *, on_input: Callable[[], object]
) -> Sums:
    """Runs ``inputs`` inputs on the scene ``name``. Ends early after some finds."""
    sums, noticed = Sums(name), _Noticed()
    draw, started = Mutator(f"{seed} {name}", [b""]), time.perf_counter()
    unexpected: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unexpected.append(_told(context)))
    for logger in _ERRORS:
        logging.getLogger(logger).addHandler(noticed)
    try:
        async with SCENES[name](corpus) as scene:
            await _attacked(scene, draw, inputs, sums, on_input)
            await _honest(sums, "the honest work at the end", scene.end)
    finally:
        for logger in _ERRORS:
            logging.getLogger(logger).removeHandler(noticed)
        loop.set_exception_handler(None)
    for what in dict.fromkeys((*noticed.said, *unexpected)):
        sums.finds.append(Find(name, f"an error that was not expected: {what}", b""))
    sums.seconds = time.perf_counter() - started
    return sums


async def _attacked(
    scene: Scene, draw: Mutator, inputs: int, sums: Sums, on_input: Callable[[], object]
) -> None:
    warm, before = inputs // 3, 0

    async def attack() -> None:
        nonlocal before
        while sums.inputs < inputs and len(sums.finds) < MOST_FINDS:
            door = draw.draw.choice(scene.doors)
            with contextlib.suppress(
                OSError, ssl.SSLError, asyncio.IncompleteReadError, TimeoutError
            ):
                async with asyncio.timeout(_STAYS_S + 3):
                    await _visit(door, draw, sums, on_input)
            if not before and sums.inputs >= warm:
                gc.collect()
                before = memory("VmRSS")

    async def ask() -> None:
        asked = 0
        while sums.inputs < inputs and len(sums.finds) < MOST_FINDS:
            if sums.inputs >= asked:
                asked = sums.inputs + _ASK_EVERY
                await _honest(sums, "an honest peer's question", scene.asks)
            await asyncio.sleep(0.01)

    await asyncio.gather(ask(), *(attack() for _ in range(_ATTACKERS)))
    gc.collect()
    sums.grown_bytes = max(0, memory("VmRSS") - before)
    if sums.grown_bytes > GROWTH_BYTES:
        what = f"memory grows: {sums.grown_bytes >> 20} MiB in {inputs - warm} inputs"
        sums.finds.append(Find(sums.target, what, b""))


async def _honest(sums: Sums, what: str, work: Callable[[], Awaitable[object]]) -> None:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(_HONEST_S):
            await work()
    except Exception as error:  # noqa: BLE001  # whatever it is, it should have been served
        sums.finds.append(Find(sums.target, f"{what} failed: {type(error).__name__}: {error}", b""))
    sums.slowest_s = max(sums.slowest_s, time.perf_counter() - began)


async def _visit(door: Door, draw: Mutator, sums: Sums, on_input: Callable[[], object]) -> None:
    """Opens one connection and sends some inputs."""
    reader, writer = await door.connect()
    try:
        for _ in range(1 + int(draw.draw.expovariate(0.3))):
            change = draw.spoil if door.text and draw.draw.random() < 0.7 else draw.damage
            data = draw.several(change, draw.draw.choice(door.seeds))
            if door.frames and draw.draw.random() < 0.9:
                data = len(data).to_bytes(SIZE_BYTES, "big") + data
            sums.inputs += 1
            on_input()
            part = len(data) if draw.draw.random() < 0.8 else draw.draw.randrange(len(data) + 1)
            writer.write(data[:part])
            await writer.drain()
            if part < len(data) and draw.draw.random() < 0.5:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    sums.taken += bool(await reader.read(1 << 16))
            if reader.at_eof() or writer.is_closing():
                return
        if draw.draw.random() < 0.02:
            await asyncio.sleep(_STAYS_S)  # Sleeps: slow.
    finally:
        writer.transport.abort()


# Connections.


def _plain(port: int) -> Connect:
    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port)

    return connect


def _secured(port: int, context: ssl.SSLContext, name: str) -> Connect:
    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)

    return connect


def _anonymous() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _http(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


_CHUNKED = (
    b"POST /close HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
)
_HELLO = b"\x16\3\1\0\x05\1\0\0\1\0"


# The scenes.


@contextlib.asynccontextmanager
async def _distaim(corpus: Corpus) -> AsyncIterator[Scene]:
    """Server 0 of a run that waits for the others: its ingest and its mesh. In the end the run is carried out."""
    config = corpus.config
    folder, closed = corpus.path("scene-distaim"), asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    def start(pid: int) -> None:
        files = corpus.certificates[PARTIES[pid]]
        paths = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
        own = folder / f"server-{pid}"
        own.mkdir(parents=True)
        run = run_mpc_server(
            config.override({"tls": paths}),
            pid,
            own,
            progress=Progress(),
            closed=closed,
            register=folder / f"register-{pid}.sqlite",
        )
        tasks.append(asyncio.create_task(run))

    start(0)
    party, owner = config.require_parties()[0], corpus.certificates[OWNERS[0]]
    run = config.run.id
    known = tls.client_context(owner, party.pinned)
    prepared, mesh, ingest = corpus.prepared, party.mesh.port, party.ingest.port
    requests = [
        _http("GET", run_path(run), {"Syncret-Messages": "2"}),
        _http("GET", submission_path(run), {"Syncret-Messages": "2"}),
        _http("PUT", submission_path(run), prepared.upload.headers(), prepared.sealed.content),
        _http("PUT", withdrawal_path(run), prepared.upload.headers()),
        _CHUNKED,
    ]
    doors = [
        Door(_plain(ingest), [*requests, _HELLO]),
        Door(_plain(mesh), [_HELLO, requests[0]]),
        Door(_secured(mesh, _anonymous(), PARTIES[0]), [b"SYNCRET", requests[0]]),
        Door(_secured(mesh, known, PARTIES[0]), [b"SYNCRET", requests[0]]),
        Door(_secured(ingest, _anonymous(), PARTIES[0]), requests, text=True),
        *[Door(_secured(ingest, known, PARTIES[0]), requests, text=True)] * 6,
    ]

    async def asks() -> None:
        connector = TlsConnector(known)
        async with aiohttp.ClientSession(connector=connector) as session:
            url = f"https://127.0.0.1:{ingest}{run_path(run)}"
            async with session.get(url, server_hostname=PARTIES[0]) as response:
                response.raise_for_status()
                await response.json()

    async def end() -> None:
        start(1)
        start(2)
        await asyncio.gather(
            *(
                submit(
                    config,
                    codes_of(number),
                    corpus.certificates[name],
                    first_round=1,
                    state=folder / f"{name}.state" if number else corpus.state,
                )
                for number, name in enumerate(OWNERS)
            )
        )
        await asyncio.gather(*tasks)

    await _listening(ingest)
    try:
        yield Scene(doors, asks, end)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _flaim(corpus: Corpus) -> AsyncIterator[Scene]:
    """FLAIM's server that waits for clients: attackers are unknown peers, and one of its own clients."""
    config = corpus.flaim
    folder = corpus.path("scene-flaim")
    (folder / "server").mkdir(parents=True)
    section = config.require_flaim()
    port = section.address.port if section.address else 0
    server = asyncio.create_task(
        run_federated_server(
            config,
            folder / "server",
            progress=Progress(),
            closed=asyncio.Event(),
            register=folder / "register.sqlite",
            plan=flaim_plan(config),
        )
    )
    known = tls.client_context(corpus.certificates[OWNERS[0]], section.pinned)
    messages = flaim_seeds(config)
    doors = [
        Door(_plain(port), [_HELLO, *messages]),
        Door(_secured(port, _anonymous(), SERVER), messages, frames=True),
        *[Door(_secured(port, known, SERVER), messages, frames=True)] * 3,
    ]

    async def clients() -> None:
        await asyncio.gather(
            *(
                run_participant(
                    config,
                    flaim_participation(config, codes_of(number)),
                    corpus.certificates[name],
                    folder / name,
                    progress=Progress(),
                )
                for number, name in enumerate(OWNERS)
            )
        )
        await server

    async def asks() -> None:
        """Connects as an admitted client, and waits for the answer to its greeting."""
        files = corpus.certificates[OWNERS[1]]
        context = tls.client_context(files, section.pinned)
        reader, writer = await _secured(port, context, SERVER)()
        try:
            writer.write(len(messages[0]).to_bytes(SIZE_BYTES, "big") + messages[0])
            if not await reader.read(SIZE_BYTES):
                raise FrameTransportError(SERVER, "has no answer to a greeting")
        finally:
            writer.transport.abort()

    await _listening(port)
    try:
        yield Scene(doors, asks, clients)
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


@contextlib.asynccontextmanager
async def _admin(corpus: Corpus) -> AsyncIterator[Scene]:
    """The admin API of a server, at the socket in its folder: anyone who may open the socket may send anything."""
    folder = corpus.path("scene-admin")
    folder.mkdir()
    board = RunStatus(RunInfo.of_server(corpus.config, 0))
    orders = CommandHandlers(close=bool, finish=bool, revoke=str)
    requests = [
        *(_http("GET", path, {}) for path in ("/status", "/metrics", "/healthz", "/events")),
        _http("POST", "/close", {}),
        _http("POST", "/revoke", {"Content-Type": "application/json"}, b'{"owner": "north"}'),
        _CHUNKED,
    ]

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(folder / SOCKET_NAME))

    async def asks() -> None:
        connector = aiohttp.UnixConnector(str(folder / SOCKET_NAME))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get("http://localhost/status") as response,
        ):
            response.raise_for_status()
            await response.json()

    listening = [AdminListener(listen_unix(folder / SOCKET_NAME))]
    with admin_thread(lambda: run_application(board, orders), listening):
        yield Scene([Door(connect, requests, text=True)], asks, asks)


async def _listening(port: int) -> None:
    """Waits until a server listens. Raises TimeoutError."""
    async with asyncio.timeout(_HONEST_S):
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                return
            await asyncio.sleep(0.05)


SCENES: dict[str, Callable[[Corpus], contextlib.AbstractAsyncContextManager[Scene]]] = {
    "distaim-server": _distaim,
    "flaim-server": _flaim,
    "admin": _admin,
}
"""Scenes by name."""
