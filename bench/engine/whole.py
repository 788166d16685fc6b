"""Whole runs of DistAIM on a network: servers and owners as processes, from the start to the synthetic table.

A run is a trial, as `syncret run` starts it, except that the servers reach one another through ``bench.relay``; owners'
uploads, and the parts of uploads that servers forward, stay on loopback. Adult, 10 owners, T = 10, epsilon 1. All
values here are public: the table is published.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.datasets import Dataset, load
from bench.experiment.markdown import markdown_table
from bench.networks import NETWORKS, Address, Shape, relayed
from mechanisms.sampling import public_generator
from mechanisms.table import decode
from mechanisms.text_table import TextTable
from parties.config import Config, config_from_dict, load_config
from parties.local.assemble import finish_trial
from parties.local.children import JOB_FILE, Children
from parties.local.folder import REGISTRY_FILE, RunFolder
from parties.local.methods import open_method_folder, run_method
from parties.local.processes import Child
from parties.local.request import DISTAIM, TrialRequest, load_trial
from parties.observability.events import Progress
from parties.storage.files import write_atomic

DATASET, OWNERS, ROUNDS = "adult", 10, 10
_WATCHED = ("--json", "--watch-stdin")
_PHASES = ("setup", "share", "count", "select", "measure", "estimate", "write", "other")
_COLUMNS = (
    "input | security | network | seconds | start | share | count | select | measure | estimate | write | other"
    " | MB of the lead | MB of another | error"
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run: seconds in all and by phase, megabytes sent by the three servers, its table's workload error."""

    input: str
    security: str
    network: str
    seconds: float
    phases: Mapping[str, float]
    sent_mb: tuple[float, float, float]
    workload_error: float

    def to_json(self) -> dict[str, object]:
        """Returns the fields for engine.json."""
        return asdict(self)


def measure_run(
    network: str, security: str, form: str, *, name: str = DATASET, rows: int | None = None
) -> Run:
    """Runs DistAIM on the first ``rows`` of a table. Raises as `syncret run`, ``DatasetError``, RuntimeError."""
    dataset = load(name)
    config = _config(dataset, security, form)
    codes = dataset.train[:rows]
    cells = decode(dataset.domain, codes, public_generator(0))
    columns = {name: cells[name].tolist() for name in dataset.domain.names}
    table = TextTable(columns, range(1, len(codes) + 1), "row")
    request = TrialRequest(DISTAIM, dataset.name, OWNERS, "iid", None, 0)
    trial = load_trial(config, table, request, source=dataset.name)
    with (
        tempfile.TemporaryDirectory(prefix="syncret-bench-") as place,
        contextlib.ExitStack() as relays,
    ):
        folder = open_method_folder(trial, Path(place) / "run")
        children = _children(folder, NETWORKS[network], relays)
        report = asyncio.run(run_method(trial, folder, Progress(), children=children))
        document = finish_trial(trial, folder, report)
    taken: Mapping[str, float] = document["time"]  # type: ignore[assignment]
    sent = [count / 1e6 for count in document["communication"]["server_sent_bytes"]]  # type: ignore[index]
    return Run(
        form,
        security,
        network,
        # The report is the lead's own work, and no network's.
        taken["total_s"] - taken["report_s"],
        {phase: taken.get(f"{phase}_s", 0.0) for phase in _PHASES},
        (sent[0], sent[1], sent[2]),
        document["utility"]["workload_error"],  # type: ignore[index]
    )


def _config(dataset: Dataset, security: str, form: str) -> Config:
    document: dict[str, object] = {
        "run": {
            "id": "whole",
            "epsilon": 1.0,
            "delta": 1e-5,
            "rounds": ROUNDS,
            "input": form,
            "security": security,
        },
        "workload": {"degree": 3, "count": 64, "seed": 123},
        "clients": {"expected": OWNERS, "rows_per_client": len(dataset.train)},
    }
    return config_from_dict(document | dataset.domain.to_dict(), source="bench", base=Path())


class _Server(Child):
    """A server that calls ``ready`` before it begins, when the run's configuration is written."""

    ready: Callable[[], None] = staticmethod(lambda: None)

    def begin(self) -> None:
        self.ready()
        super().begin()


def _children(folder: RunFolder, shape: Shape | None, relays: contextlib.ExitStack) -> Children:
    """Starts children as `parties.local.children.start_held_children`, with relays between the servers.

    Each server has the addresses of the others on a network of the given ``shape``.
    """
    own = tuple(folder.path / f"seen-by-{pid}.toml" for pid in range(3))

    def write_views() -> None:
        config = load_config(folder.config)
        ports = [party.mesh.port for party in config.require_parties()]
        views = relays.enter_context(relayed(shape, ports)) if shape else None
        for pid, path in enumerate(own):
            seen = config if views is None else _seen(config, views[pid])
            write_atomic(path, seen.resolved_toml())

    servers = []
    for pid, path in enumerate(own):
        directory = folder.party(pid)
        arguments = ["internal", "server", str(path), "--pid", str(pid), "--dir", str(directory)]
        arguments += ["--register", str(directory / REGISTRY_FILE), *_WATCHED]
        servers.append(_Server.held(f"party {pid}", arguments, log=directory / "log.txt"))
    # The first of the three servers begins before the others.
    servers[0].ready = write_views  # type: ignore[attr-defined]
    owners = ["internal", "owners", str(folder.owners / JOB_FILE), *_WATCHED]
    return Children(
        tuple(servers), Child.held("data owners", owners, log=folder.owners / "log.txt")
    )


def _seen(config: Config, addresses: Sequence[Address]) -> Config:
    """Returns the configuration with other server addresses, which are no part of the agreed configuration."""
    document = config.to_dict()
    parties: list[dict[str, object]] = document["party"]  # type: ignore[assignment]
    for party, (host, port) in zip(parties, addresses, strict=True):
        party["mesh"] = f"{host}:{port}"
    return config.override({"party": parties})


def runs_markdown(runs: Sequence[Run]) -> list[str]:
    """Returns a section of the page; empty without runs."""
    if not runs:
        return []
    rows = [
        (
            run.input,
            run.security,
            run.network,
            f"{run.seconds:.1f}",
            *(f"{run.phases[phase]:.1f}" for phase in _PHASES),
            f"{run.sent_mb[0]:,.0f}",
            f"{run.sent_mb[1]:,.0f}",
            f"{run.workload_error:.3f}",
        )
        for run in runs
    ]
    return [
        "## Whole runs",
        "",
        f"DistAIM on Adult: {OWNERS} owners, T = {ROUNDS}, epsilon 1, 64 queries of three columns; seconds of",
        "the clock by phase, one run each. Between the servers is a relay (LAN: 1 Gbit/s, 1 ms a round trip; WAN: 100",
        "Mbit/s, 40 ms); owners are on loopback.",
        "",
        markdown_table(_COLUMNS, rows),
        "",
    ]
