"""A study of three real servers in one process, over TLS and sockets, that can be started any number of times.

``AttackedStudy`` has the servers' folders and their durable state, ``Ended`` is the outcome of one start. One server
may deviate (`tests.robustness.attacks.goals.attacker`). The owners' rows are made up: nothing here is secret.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Self
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import parties.mpc.server
from mechanisms.accounting import LedgerEntry, Schedule
from mechanisms.aim import Estimate, Measurement
from mechanisms.errors import MechanismError
from mechanisms.model import Model
from mechanisms.workload import Workload
from parties.config import COUNTS_INPUT, MALICIOUS, CertificateFiles, Config, config_from_dict
from parties.foundation.errors import StoreError
from parties.foundation.exit_codes import TooFewClients
from parties.identity.tls import make_certificates, public_keys
from parties.local.children import LOOPBACK, free_ports
from parties.mpc.outputs import STORE_FOLDER
from parties.mpc.server import run_mpc_server
from parties.mpc.storage.store import Store
from parties.mpc.submission.submit import submit
from parties.observability.events import Event, Progress
from parties.session.study import Study
from parties.storage.privacy_ledger import DurableLedger
from protocols.errors import ProtocolError
from tests.robustness.attacks.goals.attacker import Attacker, deviating, hooked, is_deviating

SERVERS = ("server-0", "server-1", "server-2")
OWNERS = ("clinic-a", "clinic-b", "clinic-c")
ROUNDS = 2
_LIMIT_S = 120
_LATE_S = 1.0
_SIZES = {"sex": 2, "ward": 3, "smoker": 2, "stage": 4, "therapy": 2}
COLUMNS: Sequence[Mapping[str, object]] = [
    {"name": name, "kind": "categorical", "categories": list(map(str, range(size)))}
    for name, size in _SIZES.items()
]
NAMED = (ProtocolError, MechanismError, TooFewClients, StoreError)
"""Errors with a named reason that may end a server; any other error is an internal one."""
Tables = Mapping[str, NDArray[np.int32]]


class Uniform:
    """An estimator that has learnt nothing and answers at once; another ``turn`` gives other answers."""

    def __init__(self, workload: Workload, turn: int = 0) -> None:
        domain = workload.domain
        cliques = tuple((name,) for name in domain.names)
        marginals = tuple(np.full(domain.sizes(q), 1 / domain.size(q)) for q in cliques)
        self.model = Model(domain, cliques, (-1,) * len(cliques), marginals)
        self._workload, self._turn = workload, turn

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        """See ``mechanisms.aim.Estimator``."""
        answers = self.model.answers_q32(self._workload.candidates)
        allowed = np.ones(len(self._workload.candidates), np.bool_)
        return Estimate(allowed, answers - np.uint32(self._turn << 24))


@lru_cache
def _certificates() -> tuple[
    tempfile.TemporaryDirectory[str], Mapping[str, CertificateFiles], Sequence[Mapping[str, str]]
]:
    folder = tempfile.TemporaryDirectory(prefix="syncret-attacks-")
    files = make_certificates(Path(folder.name), SERVERS, OWNERS)
    return folder, files, [public_keys(files[s].cert, files[s].seal) for s in SERVERS]


def make_config(security: str, changes: Mapping[str, object]) -> Config:
    """Returns the study's configuration with free ports, and ``changes`` by dotted key."""
    ports = free_ports(6)
    servers = [
        {
            "name": name,
            "mesh": f"{LOOPBACK}:{ports[2 * pid]}",
            "ingest": f"{LOOPBACK}:{ports[2 * pid + 1]}",
            **_certificates()[2][pid],
        }
        for pid, name in enumerate(SERVERS)
    ]
    config = config_from_dict(
        {
            "run": {
                "id": "attack",
                "epsilon": 0.5,
                "delta": 1e-5,
                "rounds": ROUNDS,
                "input": COUNTS_INPUT,
                "security": security,
            },
            "workload": {"degree": 2, "count": "all"},
            "clients": {"expected": len(OWNERS), "minimum": 2, "rows_per_client": 30},
            "timeouts": {"connect_s": 10.0, "receive_s": 10.0, "submit_s": 10.0},
            "column": list(COLUMNS),
            "party": servers,
        },
        source="attacks",
        base=Path(),
    )
    return config.override(changes) if changes else config


def make_tables() -> Tables:
    """Returns the owners' rows, the same in every study."""
    sizes = tuple(_SIZES.values())
    return {
        owner: np.random.default_rng(seed).integers(0, sizes, (20, len(sizes))).astype(np.int32)
        for seed, owner in enumerate(OWNERS)
    }


@dataclass(frozen=True, slots=True)
class Ended:
    """Outcome of a start, by server: the error that ended it, or None, and its progress messages."""

    errors: Sequence[BaseException | None]
    said: Sequence[Sequence[str]]

    @property
    def finished(self) -> bool:
        """True if all three servers came to the study's end."""
        return not any(self.errors)

    def unnamed(self, deviating: int | None) -> list[str]:
        """Returns errors of honest servers that have no named reason, and so are mistakes of their own."""
        return [
            f"{type(error).__name__}: {error}"
            for pid, error in enumerate(self.errors)
            if pid != deviating and error is not None and not isinstance(error, NAMED)
        ]

    def noticed(self, deviating: int) -> str:
        """Returns the most informative error text of an honest server."""
        errors = [e for pid, e in enumerate(self.errors) if pid != deviating and e is not None]
        errors.sort(key=lambda error: "lost" in str(error) or "stopped" in str(error))
        return str(errors[0]) if errors else ""


@dataclass(frozen=True, slots=True)
class Held:
    """Durable state of a server: charges, releases by round and candidate, and owners that are counted."""

    charges: Sequence[LedgerEntry]
    releases: Mapping[tuple[int, int], bytes]
    counted: frozenset[str]


@dataclass(slots=True)
class _Said:
    """Sink that collects a server's messages."""

    texts: list[str] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Keeps the text."""
        self.texts.append(event.text)


@dataclass
class AttackedStudy:
    """Three servers' folders, with methods to start the servers and to read their stores."""

    config: Config
    folder: Path
    tables: Tables
    capacities: Mapping[str, int] = field(default_factory=dict)
    late: str = ""
    """Name of an owner that comes after the others."""
    _stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def make(
        cls,
        security: str = MALICIOUS,
        changes: Mapping[str, object] | None = None,
        tables: Tables | None = None,
        capacities: Mapping[str, int] | None = None,
        config: Config | None = None,
    ) -> Self:
        """Makes a study that has not been started; the caller closes it."""
        stack = ExitStack()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="syncret-attack-")))
        config = config or make_config(security, changes or {})
        made = cls(config, folder, tables or make_tables(), capacities or {}, _stack=stack)
        for name in SERVERS:
            files = _certificates()[1][name]
            shutil.copytree(files.cert.parent, folder / f"of-{name}")
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def directory(self, pid: int) -> Path:
        """Returns a server's folder."""
        return self.folder / SERVERS[pid]

    def files(self, pid: int) -> CertificateFiles:
        """Returns a server's certificates, the study's own copies: a server deletes its sealing key at the end."""
        shared = _certificates()[1][SERVERS[pid]]
        folder = self.folder / f"of-{SERVERS[pid]}"
        return CertificateFiles(*(folder / p.name for p in (shared.ca, shared.cert, shared.key)))

    def store(self, pid: int) -> Store:
        """Opens a server's store, while that server does not run."""
        return Store(self.directory(pid) / STORE_FOLDER, self.config.digest())

    def held(self, pid: int) -> Held:
        """Reads the durable state of server ``pid``, while that server does not run."""
        with self.store(pid) as store:
            releases = {
                (c.round, c.candidate): c.noisy.tobytes() for c in store.releases.checkpoints()
            }
            counted = frozenset(s.client for s in store.records.all() if s.excluded is None)
            return Held(DurableLedger(store).entries, releases, counted)

    def start(
        self, attacker: Attacker | None = None, pid: int = 1, *, owners: Sequence[str] = OWNERS
    ) -> Ended:
        """Starts all three servers and waits until they end; server ``pid`` is the ``attacker``, if there is one.

        ``owners`` send the submissions that have not arrived yet.
        """
        turn = 0 if attacker is None else attacker.turn

        def estimator(study: Study, plan: Schedule) -> Uniform:
            return Uniform(study.workload, turn if is_deviating() else 0)

        with hooked(), patch.object(parties.mpc.server, "make_estimator", estimator):
            return asyncio.run(self._run(attacker, pid, owners))

    async def _run(self, attacker: Attacker | None, pid: int, owners: Sequence[str]) -> Ended:
        said = [_Said() for _ in SERVERS]

        async def serve(server: int) -> None:
            with deviating(attacker if server == pid else None):
                await run_mpc_server(
                    self._own_config(server),
                    server,
                    self.directory(server),
                    progress=Progress(said[server]),
                    closed=asyncio.Event(),
                    register=self.folder / f"register-{server}.sqlite",
                )

        async with asyncio.timeout(_LIMIT_S):
            sending = [asyncio.create_task(self._send(owner)) for owner in owners]
            errors = await asyncio.gather(*map(serve, range(3)), return_exceptions=True)
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        return Ended(errors, [one.texts for one in said])

    def _own_config(self, pid: int) -> Config:
        self.directory(pid).mkdir(exist_ok=True)
        files = self.files(pid)
        tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
        return self.config.override({"tls": tls})

    async def _send(self, owner: str) -> None:
        await asyncio.sleep(_LATE_S if owner == self.late else 0)  # Sleeps: slow.
        await submit(
            self.config,
            self.tables[owner],
            _certificates()[1][owner],
            state=self.folder / f"{owner}.state",
            first_round=1,
            capacity=self.capacities.get(owner),
        )
