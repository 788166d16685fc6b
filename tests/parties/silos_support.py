"""Support for the tests of sums between silos: a small algorithm, and a server and its silos in one loop."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Ledger, rho
from mechanisms.errors import RequestRefused, RoundLost
from mechanisms.silos import Request, Silo, Silos, sum_noise
from mechanisms.text_table import TextTable
from parties.config import CertificateFiles, Config, config_from_dict
from parties.federation.algorithm import AlgorithmPlan, Outcome, SiloContext, plan_digest
from parties.federation.channel import ClientConnection, until_goodbye
from parties.federation.client import ParticipantReport, run_participant, silo_participation
from parties.federation.client_session import SiloSession
from parties.federation.key_directory import OwnClientKey
from parties.federation.messages import FederationMessage
from parties.federation.server import run_federated_server
from parties.federation.silos import silos_plan
from parties.federation.sum_parameters import honest_survivors, is_malicious, silos_section
from parties.federation.sums_schema import silo_step_of
from parties.identity import tls
from parties.local.children import free_ports
from parties.methods.federated_report import silos_report, write_silos_report
from parties.report.from_result import read_result
from tests.parties.flaim_support import Events, Fault
from tests.parties.support import document

SERVER = "flaim-server"
NAMES = tuple(f"clinic-{letter}" for letter in "abcdef")
STEP = "tails"
LENGTH, HIGH, SIGMA, SUMS = 40, 1000, 6.0, 3
MALICIOUS = {"run.security": "malicious", "silos.noise": "distributed"}


def silos_config(
    certificates: Mapping[str, CertificateFiles], overrides: Mapping[str, object] | None = None
) -> Config:
    """Six silos; ``overrides`` by dotted key."""
    table = document()
    for name in ("party", "flaim"):
        table.pop(name, None)
    server = certificates[SERVER]
    table["silos"] = {
        "server": SERVER,
        "address": f"127.0.0.1:{free_ports(1)[0]}",
        "key": tls.pinned_key_in(server.cert).key,
        "clients": list(NAMES),
    }
    table["tda"] = {"any": 1}
    table["tls"] = {"ca": str(server.ca), "cert": str(server.cert), "key": str(server.key)}
    table["clients"] = {"expected": 6, "rows_per_client": 100, "minimum": 3, "wait_s": 20.0}
    table["timeouts"] = {"connect_s": 5.0, "receive_s": 10.0}
    table["run"] = {"id": "trial", "epsilon": 5.0, "delta": 1e-5, "rounds": SUMS}
    config = config_from_dict(table, source="trial.toml", base=Path())
    return config.override(overrides) if overrides else config


@dataclass(frozen=True)
class Tails:
    """A plan: in each of three sums, how many of each silo's values are beyond the sum's number, with noise."""

    config: Config
    noisy: bool = True
    gives_up: bool = True

    document: Mapping[str, object] = None  # type: ignore[assignment]
    sums = SUMS
    guarantee = "for tests"
    private_answers = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "document", {"length": LENGTH, "noisy": self.noisy})

    @property
    def private(self) -> bool:
        return self.noisy

    @property
    def kinds(self) -> list[tuple[Request, int]]:
        return [(replace(self.request(0), payload=b""), SUMS)]

    @property
    def rho(self) -> float:
        event = self.request(0).event
        return 0.0 if event is None else SUMS * rho(event) * (1 + 1e-12)

    def request(self, number: int) -> Request:
        payload = json.dumps(number).encode()
        if not self.noisy:
            return Request(STEP, payload, LENGTH, -HIGH, HIGH)
        section = silos_section(self.config)
        noise, event = sum_noise(
            section.noise,  # type: ignore[arg-type]
            SIGMA,
            sensitivity=1.0,
            cells=1,
            honest=honest_survivors(self.config),
        )
        return Request(STEP, payload, LENGTH, -HIGH, HIGH, noise, event)

    def check_table(self, table: TextTable, name: str) -> None:
        pass

    def silo(self, table: TextTable, place: SiloContext, ledger: Ledger) -> "TailsSilo":
        return TailsSilo(self, place, ledger)

    async def serve(self, silos: Silos, *, say: Callable[[str], None]) -> Outcome:
        totals, survivors = [], []
        for number in range(SUMS):
            try:
                found = await silos.sum(self.request(number))
            except RoundLost:
                if self.gives_up:
                    raise
                survivors.append(0)
                continue
            totals.append(found.values.tolist())
            survivors.append(len(found.survivors))
        say("tails are there")
        await silos.finish(b"result")
        return Outcome(
            {"totals": totals, "survivors": survivors},
            {"totals.json": json.dumps(totals).encode()},
            [("Survivors", ("sum", "silos"), list(enumerate(survivors)))],
            [("sums", str(len(totals)))],
        )

    def judge(self, folder: Path, table: TextTable) -> Mapping[str, float]:
        return {}


def numbers_of(silo: int, number: int) -> NDArray[np.int64]:
    """Answer of silo ``silo`` to request ``number``."""
    return (np.arange(LENGTH, dtype=np.int64) * (silo + 1) - 100 * number) % (2 * HIGH) - HIGH


class TailsSilo(Silo):
    def __init__(self, plan: Tails, place: SiloContext, ledger: Ledger) -> None:
        self._plan, self._place, self._ledger = plan, place, ledger
        self.result = b""

    def answer(self, request: Request) -> NDArray[np.int64]:
        number = json.loads(request.payload)
        if number not in range(SUMS):
            raise RequestRefused("another sum")
        request.check(self._plan.request(number))
        if request.event is not None:
            self._ledger.charge(number, request.step, request.event)
        return numbers_of(self._place.number, number)

    def finish(self, payload: bytes) -> None:
        self.result = payload
        (self._place.folder / "result").write_bytes(payload)


TABLE = TextTable({"a": ["1", "2"]}, (2, 3))


async def run_silo(
    config: Config,
    table: TextTable,
    files: CertificateFiles,
    directory: Path,
    *,
    plan: AlgorithmPlan,
    **options: Any,
) -> ParticipantReport:
    """Takes part in a run as a silo with ``table``."""
    part = silo_participation(config, plan, table)
    return await run_participant(config, part, files, directory, **options)


async def play(
    config: Config,
    certificates: Mapping[str, CertificateFiles],
    folder: Path,
    plan: Tails,
    faults: Mapping[int, Fault] | None = None,
) -> tuple[Events, list[ParticipantReport | BaseException | Any]]:
    """A run with the server and all silos in this loop; those of ``faults`` do something else.

    Raises what the server raises, after the silos have ended.
    """
    events, closed = Events(), asyncio.Event()
    (folder / "server").mkdir(exist_ok=True)

    async def one(index: int) -> Any:
        if faults and index in faults:
            return await faults[index]()
        name = NAMES[index]
        return await run_silo(
            config, TABLE, certificates[name], folder / name, progress=Events(), plan=plan
        )

    server, *silos = await asyncio.gather(
        run_federated_server(
            config, folder / "server", progress=events, closed=closed, plan=silos_plan(config, plan)
        ),
        *(one(index) for index in range(len(NAMES))),
        return_exceptions=True,
    )
    if isinstance(server, BaseException):
        raise server
    return events, silos


class _Leaves:
    """A silo's session that breaks off when it gets a message of the kind ``at`` in sum ``number``."""

    def __init__(self, inner: SiloSession, at: str, number: int) -> None:
        self._inner, self._at, self._number, self._now = inner, at, number, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def receive(self, data: bytes) -> bytes | None:
        if silo_step_of(data) == "silos.request":
            self._now = FederationMessage.unpack(data, SERVER).round
        if (silo_step_of(data), self._now) == (self._at, self._number):
            raise ConnectionAbortedError
        return self._inner.receive(data)


def leaving(
    config: Config,
    certificates: Mapping[str, CertificateFiles],
    folder: Path,
    plan: Tails,
    index: int,
    *,
    at: str,
    number: int = 2,
) -> Fault:
    """A silo that leaves for good when it gets a message of the kind ``at`` in sum ``number``."""

    async def fault() -> None:
        name = NAMES[index]
        own = OwnClientKey.make(config, certificates[name]) if is_malicious(config) else None
        silo = plan.silo(TABLE, SiloContext(name, index, folder), Ledger(plan.rho))
        session = SiloSession(config, silo, server=SERVER, random_bytes=np.random.bytes, own=own)
        line = ClientConnection(
            config,
            plan_digest(plan),
            certificates[name],
            SERVER,
            None,
            b"" if own is None else own.card.pack(),
            _Leaves(session, at, number),  # type: ignore[arg-type]
            ParticipantReport(name),
            Events(),
            asyncio.Semaphore(),
        )
        with contextlib.suppress(ConnectionAbortedError):
            await until_goodbye(line)

    return fault


def collect(config: Config, folder: Path, certificates: Mapping[str, CertificateFiles]) -> Path:
    """Collects an auditor's folder of a run that ``play`` played in ``folder``."""
    run, server = folder / "run", folder / "server"
    (run / "transcripts").mkdir(parents=True)
    (run / "certificates").mkdir()
    transcript = run / "transcripts" / "server.jsonl"
    shutil.copyfile(server / "transcript.jsonl", transcript)
    shutil.copyfile(certificates[SERVER].cert, run / "certificates" / f"{SERVER}.crt")
    shutil.copyfile(certificates[SERVER].ca, run / "certificates" / "ca.crt")
    (run / "config.toml").write_text(config.override({"tls": None}).resolved_toml())
    result = read_result(server)
    for name in result["files"]:
        shutil.copyfile(server / name, run / name)
    report = silos_report(config, result, dataset="test", transcript=transcript, trial=False)
    write_silos_report(run, report)
    return run
