"""The command `flaim`: FLAIM on one machine."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import click

from mechanisms.table import read_table
from parties.commands.display import Display
from parties.commands.running import common_options, run_supervised
from parties.config import (
    FLAIM_GROUPINGS,
    FLAIM_NOISES,
    FLAIM_VARIANTS,
    SCHEDULES,
    load_config,
    overrides,
)
from parties.errors import ConfigError
from parties.flaim.launcher import SERVER, launch_flaim
from parties.flaim.report import flaim_report
from parties.flaim.server import ORACLE
from parties.flaim.sums import section_of, settings_of
from parties.flaim.trial import run_simulation
from parties.progress import Progress
from parties.report.content import RunReport
from parties.report.result import read_result
from parties.trial.assemble import collect, finish_trial, tidy
from parties.trial.folder import Folder
from parties.trial.partition import PARTITIONS
from parties.trial.processes import Supervision
from parties.trial.request import Request, Trial, load_trial

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="Example: syncret flaim examples/adult.toml --data adult.csv.gz --clients 100 --partition clustering "
    "--participation 0.1 --variant private --out runs/flaim"
)
@click.argument("config", type=_PATH)
@click.option(
    "--data", type=_PATH, required=True, help="The pooled table: CSV with a header, or .csv.gz."
)
@click.option("--clients", type=click.IntRange(3), default=None, help="How many clients share it.")
@click.option("--partition", type=click.Choice(PARTITIONS), default="iid", show_default=True)
@click.option("--label", default=None, help="Column that label-skew goes by; by default the last.")
@click.option(
    "--variant", type=click.Choice(FLAIM_VARIANTS), default=None, help="By default private."
)
@click.option("--rounds", type=int, default=None, help="Rounds of choosing and measuring.")
@click.option("--local-rounds", type=int, default=None, help="Choices of one client in a round.")
@click.option(
    "--schedule", type=click.Choice(SCHEDULES), default=None, help="Rounds alike, or annealed."
)
@click.option("--epsilon", type=float, default=None, help="Privacy budget of the whole run.")
@click.option("--participation", type=float, default=None, help="Chance to take part in a round.")
@click.option(
    "--grouping",
    type=click.Choice(FLAIM_GROUPINGS),
    default=None,
    help="One sum a round over all that was chosen (by default), or one for each query.",
)
@click.option(
    "--noise",
    type=click.Choice(FLAIM_NOISES),
    default=None,
    help="Who adds it: the server (by default), which then sees the sums, or every client.",
)
@click.option("--minimum", type=int, default=None, help="Fewest clients behind a sum.")
@click.option(
    "--simulate", is_flag=True, help="All clients in this process; same messages and bytes."
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=None,
    help="How many processes play the clients; by default one each up to 8, else one a processor.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the partition; public."
)
@click.option("--out", type=_PATH, default=None, help="Run folder; by default runs/ID-TIME.")
@common_options
def flaim(
    config: Path,
    data: Path,
    clients: int | None,
    partition: str,
    label: str | None,
    variant: str | None,
    rounds: int | None,
    local_rounds: int | None,
    schedule: str | None,
    epsilon: float | None,
    participation: float | None,
    grouping: str | None,
    noise: str | None,
    minimum: int | None,
    simulate: bool,
    processes: int | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Split one table among clients and run FLAIM on this machine: a server and the clients as processes.

    They meet over mutual TLS, and every sum is taken by secure aggregation. With --simulate everything is in this
    process. The same command on the folder of an interrupted run goes on after its last finished round; a simulation
    begins anew, and so does an annealed schedule, with what is left of the budget.
    """
    values: dict[str, object] = {
        "run.rounds": rounds,
        "run.schedule": schedule,
        "run.epsilon": epsilon,
        "clients.participation": participation,
        "flaim.variant": variant,
        "flaim.local_rounds": local_rounds,
        "flaim.grouping": grouping,
        "flaim.noise": noise,
        "flaim.minimum": minimum,
    }
    given = overrides(values)
    given |= {"flaim.clients": None, "flaim.address": None}  # A trial makes its own.
    loaded = load_config(config, given)
    method = f"flaim-{section_of(loaded).variant}{'-simulated' if simulate else ''}"
    request = Request(method, data.name.split(".")[0], clients, partition, label, seed)
    trial = load_trial(loaded, read_table(data), request, source=str(data))
    settings = settings_of(trial.config)
    if settings.variant == ORACLE and not simulate:
        raise ConfigError(
            str(config),
            "flaim.variant",
            "is 'oracle', which needs the pooled table; expected another one, or --simulate",
        )
    place = out or Path("runs") / f"{loaded.run.id}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = Folder(place, (SERVER,))
    if folder.finished:
        tidy(folder)  # A kill may have come between that run's end and its clean-up.
    folder.open(trial.fingerprint)
    reports: list[Mapping[str, object]] = []
    display = Display(
        clients=trial.partition.clients,
        rounds=settings.schedule(len(trial.config.domain.columns)).rounds,
    )

    async def work(supervision: Supervision) -> None:
        with display:
            said = "going on in" if folder.resumed else "run folder"
            display.event("folder", f"{said} {folder.path}")
            report = await _report_of(
                trial, folder, display, simulate=simulate, processes=processes
            )
            reports.append(finish_trial(trial, folder, report))

    run_supervised(work, watch_stdin=False, events=None)
    if as_json:
        click.echo(json.dumps(reports[0], indent=2, ensure_ascii=False))
    else:
        _summary(reports[0], folder)


async def _report_of(
    trial: Trial, folder: Folder, progress: Progress, *, simulate: bool, processes: int | None
) -> RunReport:
    started = time.perf_counter()
    if simulate:
        config, extra = trial.config, {}
        await run_simulation(trial, folder, progress=progress)
    else:
        launched = await launch_flaim(trial, folder, processes=processes, progress=progress)
        collect(folder)
        config, extra = launched.config, {"setup": launched.setup_s}
    return flaim_report(
        config,
        trial.workload,
        read_result(folder.party(0)),
        dataset=trial.request.dataset,
        wall_s={"total": time.perf_counter() - started, **extra},
        trial=True,
    )


def _summary(report: Mapping[str, object], folder: Folder) -> None:
    """The closing lines, for people."""

    def section(name: str, inside: Mapping[str, object] = report) -> Mapping[str, float]:
        value = inside[name]
        return value if isinstance(value, Mapping) else {}

    facts = section("flaim")
    sums, choosers = section("sums", facts), section("choosers", facts)
    privacy, traffic, times = section("privacy"), section("communication"), section("time")
    shown = ("setup", "join", "choose", "aggregate", "estimate")
    phases = ", ".join(f"{n} {times[f'{n}_s']:.1f} s" for n in shown if f"{n}_s" in times)
    rows = [
        ("synthetic rows", f"{report.get('synthetic_rows')}"),
        (
            "privacy",
            f"epsilon = {section('parameters')['epsilon']:g}, delta = {section('parameters')['delta']:g}; "
            f"rho {privacy['rho_spent']:.4g} of {privacy['rho_total']:.4g} spent",
        ),
        ("against server", f"{section('guarantee', facts)['against_the_server']}"),
        (
            "sums",
            f"{sums['by_secagg']} by SecAgg over {sums['least_clients_behind_one']} clients or more, "
            f"{sums['without_secagg_from_one_or_two_clients']} without; {sums['dropouts']} dropouts",
        ),
        (
            "chosen queries",
            f"{choosers['chosen_queries']}, {choosers['with_a_single_chooser']} by a single client",
        ),
        (
            "workload error",
            f"{section('utility').get('workload_error', float('nan')):.3f} (0 to 2; from the real table)",
        ),
        ("time", f"{times['total_s']:.1f} s: {phases}"),
        (
            "a client",
            f"sent {traffic['client_sent_bytes_mean'] / 1e6:.3f} MB and received "
            f"{traffic['client_received_bytes_mean'] / 1e6:.3f} MB on average",
        ),
    ]
    for name, text in rows:
        click.echo(f"{name:<16}{text}")
    for name in ("synthetic.csv", "report.html", "report.json"):
        click.echo(f"{'':<16}{folder.path / name}")
