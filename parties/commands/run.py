"""The command `run`, DistAIM or central AIM on one machine; ``run_trial`` is what `demo` does with its own table."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import click
import pandas as pd

from mechanisms.table import read_table
from parties.commands.display import Display
from parties.commands.running import common_options, run_supervised
from parties.config import SCHEDULES, UPLOADS, Config, load_config, overrides
from parties.distaim.planning import make_plan
from parties.distaim.report import run_report
from parties.report.content import RunReport
from parties.trial.assemble import collect, finish_trial, tidy
from parties.trial.folder import Folder
from parties.trial.launcher import launch
from parties.trial.partition import PARTITIONS
from parties.trial.processes import Supervision
from parties.trial.request import METHODS, Request, Trial, load_trial
from protocols.measure import NOISES

_PATH = click.Path(path_type=Path)
_SUMMARY_QUERIES = 3


@click.command(
    epilog="Example: syncret run examples/adult.toml --data adult.csv.gz --clients 100 --partition iid --out runs/adult"
)
@click.argument("config", type=_PATH)
@click.option(
    "--data", type=_PATH, required=True, help="The pooled table: CSV with a header, or .csv.gz."
)
@click.option(
    "--clients", type=click.IntRange(1), default=None, help="How many data owners share it."
)
@click.option("--partition", type=click.Choice(PARTITIONS), default="iid", show_default=True)
@click.option("--label", default=None, help="Column that label-skew goes by; by default the last.")
@click.option("--rounds", type=int, default=None, help="Rounds of select and measure.")
@click.option(
    "--schedule",
    type=click.Choice(SCHEDULES),
    default=None,
    help="Rounds alike, or finer ones once the model has settled (then without --rounds).",
)
@click.option("--epsilon", type=float, default=None, help="Privacy budget of the whole run.")
@click.option("--participation", type=float, default=None, help="Chance to take part in a round.")
@click.option("--upload", type=click.Choice(UPLOADS), default=None, help="Form of the uploads.")
@click.option("--noise", type=click.Choice(NOISES), default=None, help="Kind of noise.")
@click.option("--method", type=click.Choice(METHODS), default="distaim", show_default=True)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the partition; public."
)
@click.option("--out", type=_PATH, default=None, help="Run folder; by default runs/ID-TIME.")
@common_options
def run(
    config: Path,
    data: Path,
    clients: int | None,
    partition: str,
    label: str | None,
    rounds: int | None,
    schedule: str | None,
    epsilon: float | None,
    participation: float | None,
    upload: str | None,
    noise: str | None,
    method: str,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Split one table among data owners and run on this machine, as processes over mutual TLS.

    The same command on the folder of an interrupted run goes on with it. --method aim runs central AIM instead, for
    comparison.
    """
    values: dict[str, object] = {
        "run.rounds": rounds,
        "run.schedule": schedule,
        "run.epsilon": epsilon,
        "clients.participation": participation,
        "run.upload": upload,
        "run.noise": noise,
    }
    given = overrides(values)
    loaded = load_config(config, given)
    request = Request(method, data.name.split(".")[0], clients, partition, label, seed)
    run_trial(loaded, read_table(data), request, source=str(data), out=out, as_json=as_json)


def run_trial(
    config: Config,
    frame: pd.DataFrame,
    request: Request,
    *,
    source: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Check everything, run, write the report, say what came out."""
    trial = load_trial(config, frame, request, source=source)
    # Servers refuse a noise that cannot be sampled as well, but then the folder is there.
    make_plan(trial.config, trial.workload)
    place = out or Path("runs") / f"{config.run.id}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = Folder(place)
    if folder.finished:
        tidy(folder)  # A kill may have come between that run's end and its clean-up.
    folder.open(trial.fingerprint)
    reports: list[Mapping[str, object]] = []
    display = Display(clients=trial.partition.clients, rounds=config.run.rounds)

    async def work(supervision: Supervision) -> None:
        with display:
            said = "going on with the run in" if folder.resumed else "run folder"
            display.event("folder", f"{said} {folder.path}")
            report = await _report_of(trial, folder, display)
            reports.append(finish_trial(trial, folder, report))

    run_supervised(work, watch_stdin=False, events=None)
    if as_json:
        click.echo(json.dumps(reports[0], indent=2, ensure_ascii=False))
    else:
        _summary(reports[0], folder)


async def _report_of(trial: Trial, folder: Folder, display: Display) -> RunReport:
    if trial.request.method == "aim":
        from parties.trial.central import run_central

        return await run_central(trial, folder, progress=display)
    started = time.perf_counter()
    launched = await launch(trial, folder, progress=display)
    collect(folder)
    return run_report(
        launched.config,
        trial.workload,
        folder.party(0),
        dataset=trial.request.dataset,
        clients=trial.partition.clients,
        wall_s={"total": time.perf_counter() - started, "setup": launched.setup_s},
    )


def _summary(report: Mapping[str, object], folder: Folder) -> None:
    """The closing lines, for people."""
    for name, text in _summary_rows(report):
        click.echo(f"{name:<16}{text}")
    for name in ("synthetic.csv", "report.html", "report.json"):
        click.echo(f"{'':<16}{folder.path / name}")


def _summary_rows(report: Mapping[str, object]) -> list[tuple[str, str]]:
    def section(name: str) -> Mapping[str, float]:
        value = report[name]
        return value if isinstance(value, Mapping) else {}

    parameters, privacy, traffic = (
        section("parameters"),
        section("privacy"),
        section("communication"),
    )
    times, utility = section("time"), section("utility")
    chosen = report.get("selected")
    queries = [", ".join(item["query"]) for item in chosen] if isinstance(chosen, list) else []
    shown = "; ".join(queries[:_SUMMARY_QUERIES]) + ("; ..." if len(queries) > 3 else "")
    phases = [
        f"{name} {times[f'{name}_s']:.1f} s"
        for name in ("setup", "share", "select", "measure", "estimate")
        if f"{name}_s" in times
    ]
    rows = [
        ("synthetic rows", f"{report.get('synthetic_rows')}"),
        (
            "privacy",
            f"epsilon = {parameters['epsilon']:g}, delta = {parameters['delta']:g}; "
            f"rho {privacy['rho_spent']:.4g} of {privacy['rho_total']:.4g} spent",
        ),
        ("chosen queries", f"{len(queries)}: {shown}"),
        (
            "workload error",
            f"{utility.get('workload_error', float('nan')):.3f} (0 to 2; from the real table)",
        ),
        ("time", f"{times['total_s']:.1f} s: {', '.join(phases)}"),
    ]
    if report.get("method") == "distaim":
        sent = [float(value) / 1e6 for value in report["communication"]["server_sent_bytes"]]  # type: ignore[index]
        rows.append(
            (
                "sent",
                f"{traffic['client_sent_bytes_mean'] / 1e6:.2f} MB by each data owner; "
                f"{', '.join(f'{value:.1f}' for value in sent)} MB by the three servers",
            )
        )
    return rows
