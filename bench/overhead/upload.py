"""DistAIM's client on the wire: real uploads to one of three real ingest servers, each behind a relay that counts.

A ``Relay`` counts TCP's bytes between a client and a server without asking either. Three server processes and one for
each upload run the code of `syncret serve study` and `syncret join` over mutual TLS on loopback; they are this module
as a command, ``ingest PID CONFIG...`` and ``owner``. Uploads do not depend on the number of rounds except for the
digits of a header, and sizes do not depend on the rows: for a missing table, random rows of the domain give the same
bytes. Nothing here is secret; rows, and hence the shares in the servers' stores, are published or generated.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.children import last_word, run_child, start_child
from bench.processes import forget_peak, memory
from bench.trial_servers import server_sections
from mechanisms.workload import Workload
from parties.config import (
    COUNTS_INPUT,
    ROWS_INPUT,
    CertificateFiles,
    Config,
    config_from_dict,
    load_config,
)
from parties.identity.tls import make_certificates
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.intake.listener import start_ingest
from parties.mpc.storage.bodies import stored_bytes
from parties.mpc.storage.store import Store
from parties.mpc.submission.submit import prepare, send_prepared
from parties.session.study import Study
from protocols.upload import FORMS, ROWS, SEEDED

PARTIES = ("party-0", "party-1", "party-2")
_MODULE, _INGEST, _OWNER = "bench.overhead.upload", "ingest", "owner"
_DEADLINE_S = 300.0
_CHUNK = 1 << 17

_T = TypeVar("_T")


# The relay.


@dataclass(slots=True)
class Counted:
    """Bytes ``sent`` and ``received`` by the dialling side, and its number of ``connections``."""

    sent: int = 0
    received: int = 0
    connections: int = 0

    @property
    def total(self) -> int:
        """Bytes of both directions."""
        return self.sent + self.received


class Relay:
    """A relay on loopback that forwards every connection to ``port``; ``counted`` grows as bytes come."""

    def __init__(self, port: int) -> None:
        self.counted = Counted()
        self.port = 0
        self._target = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def settled(self) -> None:
        """Waits until every connection so far has ended at both sides."""
        while self._open:
            await asyncio.wait(set(self._open))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("connections are tasks")
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        self.counted.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            self._pass(reader, far_writer, outwards=True),
            self._pass(far_reader, writer, outwards=False),
        )
        for end in (writer, far_writer):
            with contextlib.suppress(OSError):
                end.close()
                await end.wait_closed()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, outwards: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if outwards:
                    self.counted.sent += len(data)
                else:
                    self.counted.received += len(data)
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            if writer.can_write_eof():
                writer.write_eof()


# A data owner's process.


@dataclass(frozen=True, slots=True)
class Order:
    """Order of an owner's process: ``config`` with addresses, ``codes`` int32 (rows, columns) as .npy, certificate."""

    config: str
    codes: str
    ca: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Done:
    """Bytes of HTTP bodies, bytes at the sockets by the kernel's count, processor seconds by phase, memory.

    ``loaded_bytes`` is the process with its modules and rows, ``peak_bytes`` its largest growth beyond that.
    """

    sent_bytes: int
    received_bytes: int
    socket_sent_bytes: int
    socket_received_bytes: int
    cpu_s: dict[str, float]
    wall_s: float
    loaded_bytes: int
    peak_bytes: int


async def _upload_once(order: Order) -> Done:
    config = load_config(Path(order.config))
    codes = np.load(order.codes, allow_pickle=False)
    files = CertificateFiles(Path(order.ca), Path(order.certificate), Path(order.key))
    forget_peak()
    loaded, started = memory("VmRSS"), time.perf_counter()
    cpu: dict[str, float] = {}
    workload = _timed(cpu, "workload", config.build_workload)
    own = _timed(cpu, "count", lambda: OwnerInput.of(Study(config, workload), codes))
    rounds = config.run.rounds
    prepared = _timed(
        cpu,
        "share",
        lambda: prepare(config, own, files, workload=workload, first_round=rounds),
    )
    if prepared is None:
        raise RuntimeError("a client with a given round takes part")
    before = time.process_time()
    submitted = await send_prepared(config, prepared, files)
    cpu["upload"] = time.process_time() - before
    return Done(
        submitted.traffic.sent_bytes,
        submitted.traffic.received_bytes,
        submitted.traffic.socket_sent_bytes or 0,
        submitted.traffic.socket_received_bytes or 0,
        cpu,
        time.perf_counter() - started,
        loaded,
        max(0, memory("VmHWM") - loaded),
    )


def _timed(cpu: dict[str, float], phase: str, work: Callable[[], _T]) -> _T:
    before = time.process_time()
    try:
        return work()
    finally:
        cpu[phase] = time.process_time() - before


# A server's process.


async def _serve(pid: int, paths: Sequence[Path]) -> None:
    """Runs one API and one store for every config, as `syncret serve study` does, until standard input ends."""
    async with contextlib.AsyncExitStack() as exits:
        for path in paths:
            config = load_config(path)
            store = exits.enter_context(Store(store_folder(path, pid), config.digest()))
            ingest = await start_ingest(store, Study.of(config), pid, config.require_tls(pid))
            exits.push_async_callback(ingest.close)
        print("ready", flush=True)  # noqa: T201  # the parent waits for it
        await asyncio.to_thread(sys.stdin.read)


def store_folder(config: Path, pid: int) -> Path:
    """Returns server ``pid``'s folder for submissions of the run that ``config`` describes."""
    return config.parent / f"server-{pid}"


# The measurement.


@dataclass(frozen=True, slots=True)
class Upload:
    """One client's upload in ``form`` to a run of ``rounds`` rounds; it goes to one of the three servers.

    ``sent_bytes`` and ``received_bytes`` are HTTP bodies, ``wire_*`` the relays' counts on ``connections`` connections,
    with HTTP and TLS. ``stored_bytes`` is its size on disk at servers 0, 1, 2.
    """

    form: str
    rounds: int
    sent_bytes: int
    received_bytes: int
    wire_sent_bytes: int
    wire_received_bytes: int
    connections: int
    stored_bytes: tuple[int, int, int]
    owner: Done

    @property
    def wire_bytes(self) -> int:
        """Bytes on the wire of both directions."""
        return self.wire_sent_bytes + self.wire_received_bytes


async def measure_uploads(
    workload: Workload,
    codes: NDArray[np.int32],
    folder: Path,
    *,
    rounds: Sequence[int],
    forms: Sequence[str] = FORMS,
    capacity: int | None = None,
) -> list[Upload]:
    """Measures one upload of ``codes`` (rows, columns) for each form and number of rounds, in the empty ``folder``.

    ``capacity`` is the owner's, by default its number of rows. Raises RuntimeError if a process fails.
    """
    names = [f"owner-{number}" for number in range(len(forms) * len(rounds))]
    certificates = make_certificates(folder / "certificates", PARTIES, names)
    np.save(folder / "codes.npy", codes, allow_pickle=False)
    jobs = [(form, number) for form in forms for number in rounds]
    configs = [
        run_config(workload, capacity or len(codes), form, number, folder / f"{form}-{number}")
        for form, number in jobs
    ]
    paths = [config.base / "config.toml" for config in configs]
    async with servers(paths):
        return [
            await _one(config, path, certificates[name], folder / "codes.npy")
            for config, path, name in zip(configs, paths, names, strict=True)
        ]


def run_config(
    workload: Workload, rows: int, form: str, rounds: int, folder: Path, *, owners: int = 1
) -> Config:
    """Returns one run's config, written to ``folder``/config.toml; certificates are beside it. Raises ConfigError."""
    folder.mkdir(parents=True)
    certificates = folder.parent / "certificates"
    document: dict[str, object] = {
        "run": {
            "id": f"overhead-{form}-{rounds}",
            "epsilon": 1.0,
            "delta": 1e-5,
            "rounds": rounds,
            "input": ROWS_INPUT if form == ROWS else COUNTS_INPUT,
            "upload": SEEDED if form == ROWS else form,
        },
        "workload": {"queries": [list(query) for query in workload.queries]},
        "clients": {"expected": owners, "rows_per_client": max(1, rows)},
        "timeouts": {"submit_s": _DEADLINE_S},
        **server_sections(certificates, PARTIES),
        **workload.domain.to_dict(),
    }
    config = config_from_dict(document, source="overhead", base=folder)
    (folder / "config.toml").write_text(config.resolved_toml(), encoding="utf-8")
    return config


@contextlib.asynccontextmanager
async def servers(paths: Sequence[Path]) -> AsyncIterator[None]:
    """Runs three ingest processes, listening for every config while the block lasts. Raises RuntimeError."""
    processes: list[asyncio.subprocess.Process] = []
    try:
        for pid in range(3):
            processes.append(await start_child(_MODULE, _INGEST, str(pid), *map(str, paths)))
        for pid, process in enumerate(processes):
            if process.stdout is None or await process.stdout.readline() != b"ready\n":
                _, errors = await process.communicate()
                raise RuntimeError(
                    f"ingest server {pid}: {last_word(errors.decode(errors='replace'))}"
                )
        yield
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.communicate() for process in processes))


def dialled_config(config: Config, ports: Sequence[int], path: Path) -> Path:
    """Writes the config for owners that reach the servers at these ports of this machine, in a file beside ``path``."""
    dialled = config.override(
        {
            "party": [
                {
                    "name": party.name,
                    "mesh": str(party.mesh),
                    "ingest": f"127.0.0.1:{port}",
                    "key": party.key,
                    "seal": party.seal,
                }
                for party, port in zip(config.require_parties(), ports, strict=True)
            ]
        }
    )
    dialled_path = path.with_name("dialled.toml")
    dialled_path.write_text(dialled.resolved_toml(), encoding="utf-8")
    return dialled_path


async def _one(config: Config, path: Path, files: CertificateFiles, codes: Path) -> Upload:
    async with contextlib.AsyncExitStack() as exits:
        parties = config.require_parties()
        relays = [await exits.enter_async_context(Relay(party.ingest.port)) for party in parties]
        dialled_path = dialled_config(config, [relay.port for relay in relays], path)
        order = Order(str(dialled_path), str(codes), str(files.ca), str(files.cert), str(files.key))
        printed = await run_child(
            _MODULE, _OWNER, given=json.dumps(asdict(order)), what="a data owner's upload"
        )
        done = Done(**json.loads(printed))
        for relay in relays:
            await relay.settled()
        counted = [relay.counted for relay in relays]
    stored = [stored_bytes(store_folder(path, pid))["submissions"] for pid in range(3)]
    return _upload(config, done, counted, (stored[0], stored[1], stored[2]))


def _upload(
    config: Config, done: Done, counted: Sequence[Counted], stored: tuple[int, int, int]
) -> Upload:
    return Upload(
        ROWS if config.run.input == ROWS_INPUT else config.run.upload,
        config.run.rounds,
        done.sent_bytes,
        done.received_bytes,
        sum(one.sent for one in counted),
        sum(one.received for one in counted),
        sum(one.connections for one in counted),
        stored,
        done,
    )


def main() -> None:
    """Runs one of the processes: serves, or uploads and prints the cost."""
    what, *arguments = sys.argv[1:]
    if what == _INGEST:
        asyncio.run(_serve(int(arguments[0]), [Path(name) for name in arguments[1:]]))
        return
    done = asyncio.run(_upload_once(Order(**json.load(sys.stdin))))
    print(json.dumps(asdict(done)))  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main()
