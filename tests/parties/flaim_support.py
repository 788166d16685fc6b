"""Support for the tests of FLAIM: a small run, a server and clients in one loop, and clients that leave."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.flaim_client import FlaimClient
from parties.config import CertificateFiles, Config, config_from_dict
from parties.federation.client import ParticipantReport, run_participant
from parties.federation.key_directory import OwnClientKey
from parties.federation.messages import ClientGreeting, FederationMessage, MessageKind
from parties.federation.server import run_federated_server
from parties.federation.sum_parameters import is_malicious
from parties.identity import tls
from parties.local.children import free_ports
from parties.methods.flaim.client import FlaimClientSession, flaim_participation
from parties.methods.flaim.server import flaim_plan
from parties.methods.flaim.settings import settings_of
from parties.methods.flaim.transcript_schema import flaim_step_of
from parties.network.frames import close_writer, read_frame, write_frame
from parties.observability.events import Event, Progress
from parties.observability.status import RunStatus
from parties.session.operator_commands import OperatorCommands
from parties.storage.database import Database
from parties.storage.privacy_ledger import LEDGER, DurableLedger
from tests.parties.support import document

SERVER = "flaim-server"
NAMES = tuple(f"clinic-{letter}" for letter in "abcdef")
EVERY_STAGE = (
    "flaim.brief",
    "flaim.layout",
    "secagg.announce",
    "secagg.keys",
    "secagg.inbox",
    "secagg.survivors",
)

MALICIOUS = {"run.security": "malicious", "flaim.noise": "distributed"}


def flaim_config(
    certificates: Mapping[str, CertificateFiles], overrides: Mapping[str, object] | None = None
) -> Config:
    """Six clients, three columns, two rounds; ``overrides`` by dotted key."""
    table = document()
    table.pop("party")
    server = certificates[SERVER]
    table["flaim"] = {
        "address": f"127.0.0.1:{free_ports(1)[0]}",
        "key": tls.pinned_key_in(server.cert).key,
        "clients": list(NAMES),
        "variant": "private",
    }
    table["tls"] = {"ca": str(server.ca), "cert": str(server.cert), "key": str(server.key)}
    table["clients"] = {"expected": 6, "rows_per_client": 100, "minimum": 3, "wait_s": 20.0}
    table["timeouts"] = {"connect_s": 5.0, "receive_s": 10.0}
    table["run"] = {
        "id": "trial",
        "epsilon": 5.0,
        "delta": 1e-5,
        "rounds": 2,
        "iterations": 5,
        "final_iterations": 5,
    }
    config = config_from_dict(table, source="trial.toml", base=Path())
    return config.override(overrides) if overrides else config


def codes_of(index: int) -> NDArray[np.int32]:
    """Client ``index``'s rows."""
    rows = 20 + 5 * index
    return np.random.default_rng(index).integers(0, (2, 3, 10), (rows, 3)).astype(np.int32)


@dataclass
class Events(Progress):
    """Progress that is kept: a bus with itself as sink."""

    seen: list[tuple[str, str]] = field(default_factory=list)
    on_event: Callable[[str, Mapping[str, object]], object] = lambda name, fields: None

    def __post_init__(self) -> None:
        super().__init__(self)

    def take(self, event: Event) -> None:
        self.seen.append((event.name, event.text))
        self.on_event(event.name, event.fields)

    def texts(self, name: str) -> list[str]:
        return [text for event, text in self.seen if event == name]


Fault = Callable[[], Awaitable[Any]]


async def run_client(
    config: Config,
    codes: NDArray[np.int32],
    files: CertificateFiles,
    directory: Path,
    **options: Any,
) -> ParticipantReport:
    """Takes part in a run as a client with ``codes``."""
    part = flaim_participation(config, codes)
    return await run_participant(config, part, files, directory, **options)


async def play(
    config: Config,
    certificates: Mapping[str, CertificateFiles],
    folder: Path,
    faults: Mapping[int, Fault] | None = None,
    *,
    register: Path | None = None,
    board: RunStatus | None = None,
    orders: OperatorCommands | None = None,
    waits: bool = True,
    events: Events | None = None,
) -> tuple[Events, list[ParticipantReport | BaseException]]:
    """A run with the server and all clients in this loop; those of ``faults`` do something else.

    Unless it ``waits``, who has left once all were there is waited for no more, as in a trial. ``events`` are the
    server's. Raises what the server raises, after the clients have ended.
    """
    events, closed = events or Events(), asyncio.Event()
    directory = folder / "server"
    directory.mkdir(exist_ok=True)

    def arrived(name: str, fields: Mapping[str, object]) -> None:
        if not waits and name == "clients" and fields["done"] == len(NAMES):
            closed.set()

    events.on_event = arrived

    async def one(index: int) -> ParticipantReport | Any:
        if faults and index in faults:
            return await faults[index]()
        name = NAMES[index]
        return await run_client(
            config, codes_of(index), certificates[name], folder / name, progress=Events()
        )

    server, *clients = await asyncio.gather(
        run_federated_server(
            config,
            directory,
            progress=events,
            closed=closed,
            register=register,
            board=board,
            orders=orders,
            plan=flaim_plan(config),
        ),
        *(one(index) for index in range(len(NAMES))),
        return_exceptions=True,
    )
    if isinstance(server, BaseException):
        raise server
    return events, clients


Turn = Callable[[asyncio.StreamReader], Awaitable[bool]]


async def _goes_on(_: asyncio.StreamReader) -> bool:
    return False


def following(
    config: Config,
    certificates: Mapping[str, CertificateFiles],
    folder: Path,
    index: int,
    *,
    at: str,
    round: int = 1,
    before: Turn = _goes_on,
    after: Turn = _goes_on,
) -> Fault:
    """A client that follows the protocol, but for a message of the kind ``at`` in ``round``.

    It waits for ``before`` before it answers that one, for ``after`` when it has, and leaves where one of them is true.
    """

    async def fault() -> None:
        name, now = NAMES[index], 0
        workload, settings = config.build_workload(), settings_of(config)
        client = FlaimClient(codes_of(index), workload, settings, random_bytes=np.random.bytes)
        reader, writer = await connect(config, certificates[name])
        try:
            with Database(folder / name, config.digest(), LEDGER) as database:
                own = (
                    OwnClientKey.make(config, certificates[name]) if is_malicious(config) else None
                )
                session = FlaimClientSession(
                    config,
                    workload,
                    client,
                    DurableLedger(database, settings.rho),
                    server=SERVER,
                    random_bytes=np.random.bytes,
                    own=own,
                )
                card = b"" if own is None else own.card.pack()
                await greet(config, reader, writer, rows=client.declared_rows, card=card)
                while not session.over:
                    data = await read_frame(reader, SERVER, limit=1 << 20, timeout_s=30)
                    kind = flaim_step_of(data)
                    if kind.startswith("flaim"):
                        now = FederationMessage.unpack(data, SERVER).round
                    there = kind == at and now == round
                    if there and await before(reader):
                        return
                    answer = session.receive(data)
                    if answer is not None:
                        await write_frame(writer, answer, SERVER, timeout_s=10)
                    if there and await after(reader):
                        return
        finally:
            writer.transport.abort()
            await close_writer(writer)

    return fault


def leaving(
    config: Config,
    certificates: Mapping[str, CertificateFiles],
    folder: Path,
    index: int,
    *,
    at: str,
    round: int = 1,
    silent: bool = False,
) -> Fault:
    """A client that leaves when it gets a message of the kind ``at`` in ``round``.

    ``silent``: it stays connected until the server hangs up, and says nothing any more.
    """

    async def leave(reader: asyncio.StreamReader) -> bool:
        if silent:
            await reader.read()
        return True

    return following(config, certificates, folder, index, at=at, round=round, before=leave)


async def connect(
    config: Config, files: CertificateFiles
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the run's server, which may not listen yet."""
    address = config.require_flaim().address
    assert address is not None
    context = tls.client_context(files, config.require_flaim().pinned)
    for _ in range(100):
        with contextlib.suppress(ConnectionRefusedError):
            return await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=SERVER
            )
        await asyncio.sleep(0.05)
    raise ConnectionRefusedError(str(address))


async def greet(
    config: Config,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    rows: int | None,
    card: bytes = b"",
) -> FederationMessage:
    """Say hello; returns the answer."""
    digests = bytes.fromhex(config.digest()), bytes.fromhex(config.build_workload().digest())
    hello = ClientGreeting(*digests, rows, "test", card)
    await write_frame(
        writer, FederationMessage(MessageKind.HELLO, 0, hello.pack()).pack(), SERVER, timeout_s=10
    )
    return FederationMessage.unpack(
        await read_frame(reader, SERVER, limit=4096, timeout_s=10), SERVER
    )
