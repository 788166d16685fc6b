"""Real sockets and TLS on loopback: certificates made on the fly, three runtimes in one event loop, faulty wires."""

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import trustme
from cryptography import x509
from numpy.typing import NDArray

from parties.crypto.hpke import SealKey
from protocols.errors import ProtocolError
from protocols.keystream import Keystream
from protocols.mesh import TlsFiles, key_hash
from protocols.pairing import Seals
from protocols.runtime import PartyRuntime, Recorder

NAMES = ("party-0", "party-1", "party-2")
Address = tuple[str, int]


class Authority:
    """A certificate authority of its own, and the files of those it vouches for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.issuer = trustme.CA()
        self.ca = folder / "ca.pem"
        self.issuer.cert_pem.write_to_path(str(self.ca))
        for name in NAMES:
            self._issue(folder / name, name)
        first, second, third = (pin(folder / f"{name}.crt") for name in NAMES)
        self.pins = (first, second, third)
        for name in NAMES:
            (folder / f"{name}.seal").write_bytes(SealKey.generate().pem())
            (folder / f"{name}.seal").chmod(0o600)

    def files(self, name: str, file: str | None = None, **options: Any) -> TlsFiles:
        """Credentials of ``name``; with ``file`` new ones. ``options`` are trustme's."""
        stem = self.folder / (file or name)
        cert, key = stem.with_suffix(".crt"), stem.with_suffix(".key")
        if not cert.exists():
            self._issue(stem, name, **options)
        return TlsFiles(ca=self.ca, cert=cert, key=key, names=NAMES, pins=self.pins)

    def _issue(self, stem: Path, name: str, **options: Any) -> None:
        issued = self.issuer.issue_cert(f"{name}.test", common_name=name, **options)
        issued.private_key_pem.write_to_path(str(stem.with_suffix(".key")))
        stem.with_suffix(".crt").write_bytes(
            b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        )


def seals_in(folder: Path, pid: int) -> Seals:
    """The sealing keys of party ``pid`` beside its certificate."""
    keys = [SealKey.load(folder / f"{name}.seal") for name in NAMES]
    return Seals((keys[0].public, keys[1].public, keys[2].public), keys[pid])


def pin(cert: Path) -> str:
    """The pin of a certificate's key."""
    return key_hash(x509.load_pem_x509_certificate(cert.read_bytes()))


# Below the ports that systems give to outgoing connections, which would otherwise take a free one again; test
# processes that run side by side begin at different places.
_PORTS = itertools.cycle(range(20_000, 30_000))
for _ in range(os.getpid() * 97 % 10_000):
    next(_PORTS)


def free_addresses(count: int = 3) -> list[Address]:
    """Loopback addresses that nobody listens on."""
    found: list[Address] = []
    while len(found) < count:
        address = ("127.0.0.1", next(_PORTS))
        with contextlib.suppress(OSError), socket.create_server(address):
            found.append(address)
    return found


def runtimes(
    tls: Sequence[TlsFiles],
    addresses: Sequence[Sequence[Address]] | None = None,
    *,
    recorders: Sequence[Recorder | None] = (None, None, None),
    seals: Sequence[Seals] | None = None,
    timeouts_s: Sequence[float] | None = None,
    **options: Any,
) -> list[PartyRuntime]:
    """Three parties, not yet connected; ``addresses`` are each party's view of the mesh, ``timeouts_s`` each one's."""
    views = addresses or [free_addresses()] * 3
    options = {"session": "test", "connect_timeout_s": 10.0} | options
    deadlines = timeouts_s or [options.pop("timeout_s", 5.0)] * 3
    given = seals or [seals_in(files.ca.parent, pid) for pid, files in enumerate(tls)]
    return [
        PartyRuntime(
            pid,
            views[pid],
            tls=tls[pid],
            seals=given[pid],
            recorder=recorders[pid],
            timeout_s=deadlines[pid],
            **options,
        )
        for pid in range(3)
    ]


@contextlib.asynccontextmanager
async def connected(
    tls: Sequence[TlsFiles], addresses: Sequence[Sequence[Address]] | None = None, **options: Any
) -> AsyncIterator[list[PartyRuntime]]:
    """Three connected parties; closed as after an error."""
    parties = runtimes(tls, addresses, **options)
    try:
        await asyncio.gather(*(party.connect() for party in parties))
        yield parties
    finally:
        await asyncio.gather(*(party.close("the test is over") for party in parties))


Work = Callable[[PartyRuntime], Awaitable[object]]


async def ended(work: Work, party: PartyRuntime) -> BaseException | None:
    """Returns the error that ends a party's work, or None; like a real party, it then leaves with the reason."""
    try:
        await work(party)
        await party.close()
    except Exception as error:  # noqa: BLE001 -- returned
        await party.close(str(error) if isinstance(error, ProtocolError) else type(error).__name__)
        return error
    return None


async def all_ended(
    parties: list[PartyRuntime], work: Work, within_s: float
) -> list[BaseException | None]:
    started = time.monotonic()
    async with asyncio.timeout(within_s + 30):
        results = await asyncio.gather(*(ended(work, party) for party in parties))
    assert time.monotonic() - started < within_s, results
    return results


class ZeroStream(Keystream):
    """A stream of zeros: frames are on the connection as they are."""

    def over(self, octets: memoryview) -> bytes:
        super().over(octets)
        return bytes(octets)

    def over_into(self, octets: memoryview, room: memoryview) -> memoryview:
        filled = super().over_into(octets, room)
        filled[:] = octets
        return filled

    def add_to(self, octets: NDArray[np.uint8]) -> None:
        super().add_to(octets.copy())


def tls_pair(client: TlsFiles, server: TlsFiles) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """The two ends of one TLS connection, client first, both blocking."""
    here, there = socket.socketpair()
    ends: list[ssl.SSLSocket] = []
    thread = threading.Thread(
        target=lambda: ends.append(server.context(server=True).wrap_socket(there, server_side=True))
    )
    thread.start()
    dialled = client.context(server=False).wrap_socket(here)
    thread.join()
    return dialled, ends[0]


# A wire: what happens to the bytes of one direction of a TCP connection.


@dataclass
class Proxy:
    """Listens for diallers of ``target``; ``wire`` carries what they send, answers pass untouched."""

    target: Address
    wire: Callable[[bytes, "Link"], Any]
    connections: list["Link"] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Address]:
        tasks: set[asyncio.Task[None]] = set()

        async def dialled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.current_task())  # type: ignore[arg-type]
            try:
                back, forth = await asyncio.open_connection(*self.target)
            except OSError:
                writer.transport.abort()
                return
            link = Link(forth)
            self.connections.append(link)
            try:
                await asyncio.gather(self._forth(reader, link), _pump(back, writer))
            finally:
                for end in (forth, writer):
                    end.transport.abort()

        server = await asyncio.start_server(dialled, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(
                0.01
            )  # Sleeps: head start. Aborted transports close in the loop's next steps.

    async def _forth(self, reader: asyncio.StreamReader, link: "Link") -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self.wire(data, link)
                link.seen += len(data)
            link.writer.close()


@dataclass
class Link:
    """One proxied connection: the way to the target, and how many bytes have come from the dialler."""

    writer: asyncio.StreamWriter
    seen: int = 0

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()
