"""`syncret bench flower`: FLAIM on Adult over our own connections, and as an app on Flower's simulation engine.

Both run the same configuration on the same tables: our clients in this process, over TLS on loopback; Flower's
SuperLink and its Ray actors as processes, by `flwr run`. Noise and choices are the clients' own and have no seed, so
errors are compared by their spread over repeats. All values here are public: the table is published. Known limits: on
one machine the clients share its processors; there is no network between them, and no SuperNode that polls every three
seconds.
"""

import asyncio
import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from bench.datasets import DATA_VARIABLE
from bench.experiment.circumstances import circumstances, made_by
from bench.experiment.commands import output_option
from bench.experiment.documents import publish, write_json
from bench.experiment.markdown import markdown_table, size, spread
from bench.experiment.means import grouped, known
from mechanisms.metrics import table_answers, workload_error
from mechanisms.model import Model
from mechanisms.source import TableSource
from mechanisms.text_table import TextTable
from parties.cli.runtime import deferred_signals
from parties.config import MALICIOUS, SEMI_HONEST, CertificateFiles, Config, load_config
from parties.federation.client import run_participant
from parties.federation.server import run_federated_server
from parties.identity.tls import make_certificates, pinned_key_in
from parties.local.children import LOOPBACK, free_ports
from parties.local.jobs import CONCURRENT_OWNERS
from parties.local.partition import iid
from parties.methods.flaim.client import BriefCache, flaim_participation
from parties.methods.flaim.server import flaim_plan
from parties.observability.events import Progress
from parties.report.from_result import read_result
from parties.session.owner import Table

OWN, FLOWER = "our connections", "Flower's simulation"
MISSING = "Flower is not installed here: pip install -c constraints-flower.txt -e '.[flower]', or make bench-flower"
_SERVER, _REPORT = "flaim-server", "report.json"
_ROOT = Path(__file__).resolve().parents[1]
_APP = _ROOT / "examples" / "flower"
_TRIES, _LONGEST_S, _GOODBYE_S = 20, 1800.0, 20.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run: ``error`` is the mean L1 distance of the workload's marginals, bytes are of a client's frames."""

    transport: str
    security: str
    seconds: float
    error: float
    sent_bytes: float
    received_bytes: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Study:
    """A configuration, all participants' ``tables`` of codes and certificate ``files``, in ``folder``."""

    config: Config
    folder: Path
    tables: Sequence[NDArray[np.int32]]
    files: Mapping[str, CertificateFiles]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the clients."""
        return self.config.require_flaim().clients


def study(
    source: Path, data: Path, folder: Path, *, clients: int, rounds: int, security: str
) -> Study:
    """Makes a FLAIM study of the configuration at ``source`` and the table ``data``, in the empty ``folder``."""
    names = [f"client-{number:03d}" for number in range(clients)]
    files = make_certificates(folder / "certificates", [_SERVER], names)
    own = files[_SERVER]
    malicious = {"run.security": MALICIOUS, "flaim.noise": "distributed"}
    config = load_config(source).override(
        {
            "run.rounds": rounds,
            "clients.expected": clients,
            "clients.minimum": max(3, clients // 2),
            "clients.wait_s": _LONGEST_S,
            "flaim": {
                "address": f"{LOOPBACK}:{free_ports(1)[0]}",
                "key": pinned_key_in(own.cert).key,
                "clients": names,
                "minimum": max(3, clients // 2),
                "variant": "private",
            },
            "tls": {"ca": str(own.ca), "cert": str(own.cert), "key": str(own.key)},
            "timeouts": {"connect_s": 120.0, "receive_s": _LONGEST_S},
        }
    )
    config = config.override(malicious if security == MALICIOUS else {})
    (folder / "study.toml").write_text(config.resolved_toml())
    table = Table(TableSource(str(data)), ignore_extra=False)
    codes = table.codes(config)
    owners = iid(len(codes), clients=clients, seed=0).owners
    _write_tables(table.text(config), owners, names, folder)
    return Study(config, folder, [codes[owners == n] for n in range(clients)], files)


def _write_tables(
    text: TextTable, owners: NDArray[np.int32], names: Sequence[str], folder: Path
) -> None:
    for number, name in enumerate(names):
        (folder / name).mkdir()
        mine = np.flatnonzero(owners == number).tolist()
        with (folder / name / "table.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(text.columns)
            writer.writerows(
                zip(*([cells[i] for i in mine] for cells in text.columns.values()), strict=True)
            )


async def measure_own(own: Study) -> Run:
    """Runs server and clients in this loop, over TLS."""
    directory, joining = own.folder / "own", asyncio.Semaphore(CONCURRENT_OWNERS)
    directory.mkdir()
    workload = own.config.build_workload()
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            run_federated_server(
                own.config,
                directory,
                progress=Progress(),
                closed=asyncio.Event(),
                plan=flaim_plan(own.config),
            )
        )
        for number, name in enumerate(own.names):
            group.create_task(
                run_participant(
                    own.config,
                    flaim_participation(
                        own.config, own.tables[number], workload, BriefCache(workload)
                    ),
                    own.files[name],
                    own.folder / name / "own",
                    progress=Progress(),
                    joining=joining,
                )
            )
    return _run(own, directory, OWN, time.perf_counter() - started)


def measure_flower(own: Study) -> Run:
    """Runs on Flower's simulation engine by `flwr run`; seconds start with the ServerApp. Raises RuntimeError."""
    directory, home = own.folder / "flower", own.folder / "flwr"
    home.mkdir()
    nodes = own.folder / "nodes.json"
    nodes.write_text(json.dumps([_node(own, name) for name in own.names]))
    port, bin_ = free_ports(1)[0], Path(sys.executable).parent
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n'
        f'[superlink.here]\naddress = "{LOOPBACK}:{port}"\ninsecure = true\n'
    )
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    paths = {"FLWR_HOME": str(home), "PATH": f"{bin_}:{os.environ['PATH']}"}
    environment = os.environ | quiet | paths
    settings = {"config": own.folder / "study.toml", "dir": directory, "nodes": nodes}
    given = " ".join(f'{key}="{value}"' for key, value in settings.items())
    with _superlink(bin_, port, own.folder / "superlink.log", environment):
        _flwr(bin_, ["run", str(_APP), "here", "--run-config", given], environment, len(own.names))
        _wait(directory / _REPORT, own.folder / "superlink.log")
    result = read_result(directory)
    return _run(own, directory, FLOWER, float(result["seconds"]["total"]))


def _node(own: Study, name: str) -> dict[str, str]:
    files, folder = own.files[name], own.folder / name
    return {
        "config": str(own.folder / "study.toml"),
        "data": str(folder / "table.csv"),
        "ca": str(files.ca),
        "cert": str(files.cert),
        "key": str(files.key),
        "dir": str(folder / "flower"),
        "budget": str(folder / "budget"),
    }


@contextlib.contextmanager
def _superlink(
    folder: Path, port: int, log: Path, environment: Mapping[str, str]
) -> Iterator[None]:
    command = [str(folder / "flower-superlink"), "--insecure", "--simulation", "--host", LOOPBACK]
    command += ["--port", str(port), "--disable-runtime-dependency-installation"]

    def end(process: "subprocess.Popen[bytes]") -> None:
        # SIGTERM first, so that the processes it has started (Ray) end themselves.
        for how in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, how)
                process.wait(timeout=_GOODBYE_S)

    with contextlib.ExitStack() as exits:
        output = exits.enter_context(log.open("wb"))
        with deferred_signals():
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env=environment, start_new_session=True
            )
            exits.callback(end, process)
        yield


def _flwr(folder: Path, arguments: list[str], environment: Mapping[str, str], clients: int) -> None:
    """Submits the run, once the SuperLink answers."""
    size_ = ["--federation-config", f"num-supernodes={clients} client-resources-num-cpus=1"]
    said = ""
    for _ in range(_TRIES):
        done = subprocess.run(
            [str(folder / "flwr"), *arguments, *size_],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
        said = done.stdout + done.stderr
        time.sleep(2)
    raise RuntimeError(f"flwr run failed:\n{said}")


def _wait(path: Path, log: Path) -> None:
    ends = time.monotonic() + _LONGEST_S
    while not path.exists():
        if time.monotonic() > ends:
            raise RuntimeError(f"no result within {_LONGEST_S:g} s:\n{log.read_text()[-4000:]}")
        time.sleep(1)


def _run(own: Study, directory: Path, transport: str, seconds: float) -> Run:
    result, workload = read_result(directory), own.config.build_workload()
    model = Model.load(directory / "model")
    answers = np.concatenate([cells.ravel() for cells in model.answers(workload.candidates)])
    real = table_answers(workload, np.concatenate(own.tables))
    return Run(
        transport,
        own.config.run.security,
        seconds,
        workload_error(workload, real, answers),
        fmean(result["clients_sent"].values()),
        fmean(result["clients_received"].values()),
        result["rounds_done"],
    )


def page(record: Mapping[str, Any], runs: Sequence[Run], clients: int) -> str:
    """Returns the results in Markdown; ``record`` describes the run (`bench.experiment.circumstances.made_by`)."""
    rows = []
    for (transport, security), some in grouped(
        runs, lambda run: (run.transport, run.security)
    ).items():
        rows.append(
            (
                transport,
                security,
                spread(known(some, "error"), 3),
                spread(known(some, "seconds"), 1),
                size(fmean(known(some, "sent_bytes"))),
                size(fmean(known(some, "received_bytes"))),
                len(some),
            )
        )
    heads = "messages over | run.security | mean L1 error | seconds | bytes up, a client | bytes down | runs"
    return "\n".join(
        (
            "# FLAIM on Flower",
            "",
            f"{made_by(record)} Adult among {clients} clients, {runs[0].rounds} rounds, all clients in each.",
            "",
            "## In short",
            "",
            *_short(runs),
            "",
            "## Figures",
            "",
            markdown_table(heads, rows, right=(2, 3, 4, 5, 6)),
            "",
            "Bytes are of the frames, which are the same messages; Flower's own envelopes come on top. Seconds are of "
            "one machine, which may have had other work, without a network: deployed, SuperNodes ask for messages "
            "every three seconds and start a process for each. There and back go 5 messages a round to each client (6 "
            "with signed sums), 4 (5) for the first sums, one to join and one to say goodbye.",
            "",
        )
    )


def _short(runs: Sequence[Run]) -> list[str]:
    """Returns what Flower changes, for each mode that was run over both."""
    points = []
    for security, some in grouped(runs, lambda run: run.security).items():
        by = grouped(some, lambda run: run.transport)
        if len(by) < 2:
            continue
        own, flowers = (by[name] for name in (OWN, FLOWER))
        errors = " and ".join(f"{fmean(known(part, 'error')):.3f}" for part in (own, flowers))
        longer = fmean(known(flowers, "seconds")) / fmean(known(own, "seconds"))
        points.append(
            f"- {security}: the error is {errors} over our connections and over Flower; a run over Flower takes "
            f"{longer:.1f} times as long."
        )
    return points or ["Only one of the two was run."]


@click.command(epilog="Example: syncret bench flower --clients 100 --rounds 3 --repeats 2")
@click.option(
    "--clients", type=click.IntRange(6, 1000), default=100, show_default=True, help="FLAIM clients."
)
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Rounds of FLAIM."
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 100),
    default=2,
    show_default=True,
    help="Runs of each kind.",
)
@click.option("--malicious", is_flag=True, help="Signed sums as well.")
@output_option("Where the page and the runs go.")
def flower(clients: int, rounds: int, repeats: int, malicious: bool, output: Path | None) -> None:
    """Run FLAIM on Adult over our own connections and on Flower's simulation engine: errors, seconds and bytes.

    Needs the extra `flower` and SYNCRET_DATA_DIR.
    """
    if not (Path(sys.executable).parent / "flower-superlink").exists():
        raise click.ClickException(MISSING)
    data = Path(os.environ.get(DATA_VARIABLE, ".")) / "adult.csv.gz"
    if not data.exists():
        raise click.ClickException(
            f"{data} is not there; {DATA_VARIABLE} names the folder that has it"
        )
    source = _ROOT / "examples" / "adult.toml"
    runs = []
    for security in (SEMI_HONEST, MALICIOUS) if malicious else (SEMI_HONEST,):
        for repeat in range(repeats):
            for measure in (lambda own: asyncio.run(measure_own(own)), measure_flower):
                with tempfile.TemporaryDirectory() as place:
                    own = study(
                        source, data, Path(place), clients=clients, rounds=rounds, security=security
                    )
                    run = measure(own)
                runs.append(run)
                click.echo(f"{run.transport}, {security}, {repeat + 1}: {asdict(run)}", err=True)
    command = f"syncret bench flower --clients {clients} --rounds {rounds} --repeats {repeats}"
    command += " --malicious" * malicious
    measured = ("parties/methods/flaim", "secagg", "bench/*.py")
    record = {"command": command, **circumstances(measured)}
    text = page(record, runs, clients)
    click.echo(text)
    if output is not None:
        publish(output, {"flower.md": text})
        write_json(output / "flower.json", {**record, "runs": [asdict(run) for run in runs]})
