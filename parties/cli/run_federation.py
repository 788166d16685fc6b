"""Runs of FLAIM and of methods between silos on this machine, for the command `run`."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from parties.cli.display import Display
from parties.cli.run_output import (
    budget_line,
    error_line,
    print_result,
    run_in_folder,
    section,
    time_line,
    verdict_lines,
)
from parties.cli.runtime import run_supervised
from parties.config import (
    Config,
    load_config,
)
from parties.federation.flaim_parameters import settings_of
from parties.foundation.errors import ConfigError
from parties.local.federated import (
    SiloSplit,
    SilosTrial,
    load_silos_trial,
    open_silos_folder,
    run_silos_trial,
)
from parties.local.flaim import flaim_request, open_flaim_folder, run_flaim
from parties.local.folder import RunFolder
from parties.local.methods import trial_from_tables
from parties.local.processes import Supervision
from parties.observability.events import Progress
from parties.session.owner import Table


class FlaimSplit(NamedTuple):
    """The split of one table among ``clients`` of FLAIM; ``label`` is the column that label-skew goes by."""

    clients: int | None
    partition: str
    label: str | None
    seed: int


def run_flaim_trial(
    config: Config,
    table: Table,
    split: FlaimSplit,
    *,
    out: Path | None,
    simulate: bool,
    processes: int | None,
    as_json: bool,
) -> None:
    """Runs FLAIM on this machine, and prints its report."""
    request = flaim_request(
        config,
        table.source.name,
        split.clients,
        partition=split.partition,
        label=split.label,
        seed=split.seed,
        simulate=simulate,
    )
    trial = trial_from_tables(table, config, request)
    folder = open_flaim_folder(trial, out, simulate=simulate)
    settings = settings_of(trial.config)
    method = partial(run_flaim, trial, folder, simulate=simulate, processes=processes)
    rounds = settings.schedule(len(trial.config.domain.columns)).rounds
    goes_on = not (simulate or settings.annealed)
    report = run_in_folder(trial, folder, method, rounds=rounds, goes_on=goes_on)
    print_result(report, folder, flaim_closing_lines, as_json=as_json)


def flaim_closing_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """Returns a summary of a run of FLAIM: names and texts."""
    facts, traffic = report["flaim"], section(report, "communication")
    if not isinstance(facts, Mapping):
        raise TypeError(f"the report's 'flaim' is {type(facts).__name__}; expected a table")
    sums, choosers = section(facts, "sums"), section(facts, "choosers")
    guarantee: Mapping[str, object] = section(facts, "guarantee")
    sent, received = (traffic[f"client_{way}_bytes_mean"] / 1e6 for way in ("sent", "received"))
    return [
        ("synthetic rows", f"{report.get('synthetic_rows')}"),
        budget_line(report),
        ("guarantee", f"for {guarantee['unit']}"),
        *([("row replaced", f"{guarantee['replaced']}")] if "replaced" in guarantee else []),
        ("against server", f"{guarantee['against_the_server']}"),
        (
            "sums",
            f"{sums['by_secagg']} by SecAgg over {sums['least_clients_behind_one']} clients or more, "
            f"{sums['without_secagg_from_one_or_two_clients']} without; {sums['dropouts']} dropouts",
        ),
        (
            "chosen queries",
            f"{choosers['chosen_queries']}, {choosers['with_a_single_chooser']} by a single client",
        ),
        error_line(report),
        *verdict_lines(report),
        time_line(report, ("setup", "join", "choose", "aggregate", "estimate")),
        ("a client", f"sent {sent:.3f} MB and received {received:.3f} MB on average"),
    ]


def run_silos(
    config: Config,
    table: Table,
    split: SiloSplit,
    *,
    out: Path | None,
    processes: int | None,
    as_json: bool,
) -> None:
    """Runs a method between silos on this machine, and prints its report."""
    trial = load_silos_trial(config, table, split)
    folder, report = _run_silos_trial(trial, out, processes)
    if as_json:
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    for name, line in _lines(report):
        click.echo(f"{name:<16}{line}")
    for name in (*report["files"], "report.html", "report.json"):
        click.echo(f"{'':<16}{folder.path / name}")


def silos_config(algorithm: str, path: Path, values: Mapping[str, object]) -> Config:
    """Returns the config at ``path`` with ``values`` by dotted key; one of another method is adapted to ``algorithm``.

    Raises ConfigError, also for a config of another algorithm between silos.
    """
    found = load_config(path).algorithm
    if found is None:
        return load_config(path, {**values, algorithm: {}, "flaim": None})
    if found[0] != algorithm:
        text = f"is of the method {found[0]}; expected [{algorithm}], or none of an algorithm between silos"
        raise ConfigError(str(path), found[0], text)
    return load_config(path, values)


def _run_silos_trial(
    trial: SilosTrial, out: Path | None, processes: int | None
) -> tuple[RunFolder, Mapping[str, Any]]:
    """Runs the trial; returns its folder and its report."""
    folder = open_silos_folder(trial, out)
    display = Display(clients=trial.partition.clients, rounds=trial.plan.sums)

    async def work(supervision: Supervision) -> Mapping[str, Any]:
        with display:
            beginning = "going on with the run in" if folder.resumed else "run folder"
            progress = Progress(display)
            progress.event("folder", f"{beginning} {folder.path}")
            return await run_silos_trial(trial, folder, progress, processes=processes)

    again = f"the same command with --out {folder.path} goes on after the last sum"
    return folder, run_supervised(work, watch_stdin=False, events=None, again=again)


def _lines(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    sums, traffic, privacy = report["sums"], report["communication"], report["privacy"]
    spent = f"; rho {privacy['rho_spent']:.4g} of {privacy['rho_total']:.4g} spent"
    sent, received = (traffic[f"silo_{way}_bytes_mean"] / 1e6 for way in ("sent", "received"))
    return [
        ("privacy", report["guarantee"] + (spent if privacy["rho_total"] else "")),
        *((name, text) for name, text in report["lines"]),
        (
            "sums",
            f"{sums['taken'] + sums['before']} over {sums['least_survivors'] or 0} silos or more, "
            f"{sums['given_up']} given up; {sums['dropouts']} dropouts",
        ),
        *(
            (name, f"{value:.4g} (from the real table)")
            for name, value in report["utility"].items()
        ),
        ("time", f"{report['time']['total_s']:.1f} s"),
        ("a silo", f"sent {sent:.3f} MB and received {received:.3f} MB on average"),
    ]
