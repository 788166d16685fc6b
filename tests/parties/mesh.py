"""Three compute servers in one event loop, on real sockets with real certificates."""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import Schedule
from mechanisms.aim import Estimate, Measurement
from mechanisms.model import Model
from mechanisms.workload import Workload
from parties.config import CertificateFiles, Config
from parties.mpc.server import run_mpc_server
from parties.mpc.submission.submit import submit
from parties.observability.events import Event, FieldValue, Progress
from parties.session.study import Study
from tests.parties.support import OWNERS, PARTIES, make_codes

LIMIT_S = 60


class UniformEstimator:
    """An estimator that has learnt nothing, at once: for tests that are not about the model."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.model = uniform_model(workload)

    async def estimate(
        self, measurements: Sequence[Measurement], *, round: int, final: bool
    ) -> Estimate:
        allowed = np.ones(len(self.workload.candidates), np.bool_)
        return Estimate(allowed, self.model.answers_q32(self.workload.candidates))


def uniform_model(workload: Workload) -> Model:
    domain = workload.domain
    cliques = tuple((name,) for name in domain.names)
    marginals = tuple(np.full(domain.sizes(q), 1 / domain.size(q)) for q in cliques)
    return Model(domain, cliques, (-1,) * len(cliques), marginals)


def make_uniform(study: Study, plan: Schedule) -> UniformEstimator:
    """In place of `parties.mpc.server.make_estimator`."""
    return UniformEstimator(study.workload)


@dataclass
class Recording(Progress):
    """A party's events, on a bus with itself as sink; `on_event` may act on them, for instance to stop a party."""

    on_event: Callable[[str, Mapping[str, FieldValue]], None] = lambda name, fields: None
    events: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self)

    def take(self, event: Event) -> None:
        self.events.append(event.name)
        self.texts.append(event.text)
        self.on_event(event.name, event.fields)


@dataclass
class Cluster:
    """Three servers of a run: their folders, and how to start them."""

    config: Config
    folder: Path
    certificates: Mapping[str, CertificateFiles]
    tables: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)
    """Owners' coded rows; of those that are not there, random ones."""

    def directory(self, pid: int) -> Path:
        return self.folder / f"server-{pid}"

    def register(self, pid: int) -> Path:
        """A server's register of studies: each has one, and each cluster others."""
        return self.folder / f"register-{pid}.sqlite"

    def own_files(self, name: str) -> CertificateFiles:
        """A copy of a server's files that is this run's: it deletes its sealing key at the end."""
        files = self.certificates[name]
        folder = self.folder / f"{files.cert.parent.name}-{name}"
        if not folder.exists():
            folder.mkdir(parents=True)
            for path in (files.ca, files.cert, files.key, files.seal):
                if path.exists():
                    shutil.copy(path, folder)
        return CertificateFiles(*(folder / p.name for p in (files.ca, files.cert, files.key)))

    def with_own_certificates(self, names: Sequence[str] = PARTIES) -> list[Config]:
        """One config per server: they differ in [tls] only."""
        configs = []
        for name in names:
            files = self.own_files(name)
            tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
            configs.append(self.config.override({"tls": tls}))
        return configs

    async def run(
        self,
        *,
        pids: Sequence[int] = (0, 1, 2),
        configs: Sequence[Config] | None = None,
        owners: Sequence[str] = (),
        codes: int = 20,
        first_rounds: Mapping[str, int] | None = None,
        capacities: Mapping[str, int] | None = None,
        records: Mapping[int, Recording] | None = None,
        kill: tuple[int, str, int | None] | None = None,
        closed: bool = False,
    ) -> list[BaseException | None]:
        """Run the servers, and owners that submit; returns how each server ended, in the order of `pids`.

        `kill` = (pid, event, round): that server is cancelled when it reports the event of the round.
        """
        configs = configs or self.with_own_certificates()
        no_more = asyncio.Event()
        if closed:
            no_more.set()
        tasks: dict[int, asyncio.Task[None]] = {}
        recordings = dict(records or {})

        def killer(name: str, fields: Mapping[str, FieldValue]) -> None:
            if kill and name == kill[1] and kill[2] in (None, fields.get("round")):
                tasks[kill[0]].cancel()

        if kill:
            recordings[kill[0]] = Recording(killer)
        for pid in pids:
            self.directory(pid).mkdir(parents=True, exist_ok=True)
            tasks[pid] = asyncio.create_task(
                run_mpc_server(
                    configs[pid],
                    pid,
                    self.directory(pid),
                    progress=recordings.get(pid, Recording()),
                    closed=no_more,
                    register=self.register(pid),
                )
            )
        async with asyncio.timeout(LIMIT_S):
            submitting = asyncio.create_task(
                self.submit(owners, codes, first_rounds, capacities=capacities)
            )
            results = await asyncio.gather(*tasks.values(), return_exceptions=True)
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
        return results

    async def submit(
        self,
        owners: Sequence[str],
        rows: int = 20,
        first_rounds: Mapping[str, int] | None = None,
        *,
        capacities: Mapping[str, int] | None = None,
    ) -> None:
        """Every owner submits its own table; those that fail are silent."""
        await asyncio.gather(
            *(
                submit(
                    self.config,
                    self.tables[owner] if owner in self.tables else make_codes(rows, seed),
                    self.certificates[owner],
                    state=self.folder / f"{owner}.state",
                    first_round=(first_rounds or {}).get(owner, 1),
                    capacity=(capacities or {}).get(owner),
                )
                for seed, owner in enumerate(owners)
            ),
            return_exceptions=True,
        )


EVERYONE = OWNERS[:3]
