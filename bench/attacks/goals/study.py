"""A study of three real servers in one process, over TLS and sockets, started again as often as one likes.

Provides ``Study``, with what its servers hold durably, and ``Ended``, what became of a start. One of the servers may
deviate (`bench.attacks.goals.attacker`). Its owners' rows are made up: nothing here is secret.
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
from bench.attacks.goals.attacker import Attacker, deviating, hooked, is_deviating
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
from parties.observability.events import FieldValue
from parties.storage.privacy_ledger import DurableLedger
from protocols.errors import ProtocolError

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
"""How a server may end: with a reason that has a name; anything else is an internal error."""
Tables = Mapping[str, NDArray[np.int32]]


class Uniform:
    """An estimator that has learnt nothing, at once; with a ``turn`` it says something else."""

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
    """The study's configuration, with free ports, and ``changes`` by dotted key."""
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
        source="bench attacks",
        base=Path(),
    )
    return config.override(changes) if changes else config


def make_tables() -> Tables:
    """Owners' rows, the same in every study."""
    sizes = tuple(_SIZES.values())
    return {
        owner: np.random.default_rng(seed).integers(0, sizes, (20, len(sizes))).astype(np.int32)
        for seed, owner in enumerate(OWNERS)
    }


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a start: by server how it ended, None for well, and what its progress said."""

    errors: Sequence[BaseException | None]
    said: Sequence[Sequence[str]]

    @property
    def finished(self) -> bool:
        """Whether all three came to the study's end."""
        return not any(self.errors)

    def unnamed(self, deviating: int | None) -> list[str]:
        """What honest servers ended with that is nobody's word but a mistake of theirs."""
        return [
            f"{type(error).__name__}: {error}"
            for pid, error in enumerate(self.errors)
            if pid != deviating and error is not None and not isinstance(error, NAMED)
        ]

    def noticed(self, deviating: int) -> str:
        """An honest server's reason, of those that say most."""
        errors = [e for pid, e in enumerate(self.errors) if pid != deviating and e is not None]
        errors.sort(key=lambda error: "lost" in str(error) or "stopped" in str(error))
        return str(errors[0]) if errors else ""


@dataclass(frozen=True, slots=True)
class Held:
    """What a server holds durably: charges, releases by round and candidate, choices by round, and who is counted."""

    charges: Sequence[LedgerEntry]
    releases: Mapping[tuple[int, int], bytes]
    counted: frozenset[str]


@dataclass(slots=True)
class _Said:
    """A server's progress."""

    texts: list[str] = field(default_factory=list)

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """See ``parties.observability.events.Progress``."""
        self.texts.append(text)


@dataclass
class Study:
    """Three servers' folders, and how to start them."""

    config: Config
    folder: Path
    tables: Tables
    capacities: Mapping[str, int] = field(default_factory=dict)
    late: str = ""
    """An owner that comes after the others."""
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
        """A study that nobody has started yet; to be closed."""
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
        """A server's folder."""
        return self.folder / SERVERS[pid]

    def files(self, pid: int) -> CertificateFiles:
        """A server's certificates, which are this study's own: it deletes its sealing key at the end."""
        shared = _certificates()[1][SERVERS[pid]]
        folder = self.folder / f"of-{SERVERS[pid]}"
        return CertificateFiles(*(folder / p.name for p in (shared.ca, shared.cert, shared.key)))

    def store(self, pid: int) -> Store:
        """A server's store, while it does not run."""
        return Store(self.directory(pid) / STORE_FOLDER, self.config.digest())

    def held(self, pid: int) -> Held:
        """What server ``pid`` holds, while it does not run."""
        with self.store(pid) as store:
            releases = {(c.round, c.candidate): c.noisy.tobytes() for c in store.checkpoints()}
            counted = frozenset(s.client for s in store.records() if s.excluded is None)
            return Held(DurableLedger(store).entries, releases, counted)

    def start(
        self, attacker: Attacker | None = None, pid: int = 1, *, owners: Sequence[str] = OWNERS
    ) -> Ended:
        """Start all three, of which server ``pid`` is the ``attacker`` if there is one, and wait until they have ended.

        ``owners`` send what has not arrived yet.
        """
        turn = 0 if attacker is None else attacker.turn

        def estimator(config: Config, workload: Workload, plan: Schedule) -> Uniform:
            return Uniform(workload, turn if is_deviating() else 0)

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
                    progress=said[server],
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
        await asyncio.sleep(_LATE_S if owner == self.late else 0)
        await submit(
            self.config,
            self.tables[owner],
            _certificates()[1][owner],
            state=self.folder / f"{owner}.state",
            first_round=1,
            capacity=self.capacities.get(owner),
        )
