"""What commands have in common that run an algorithm between silos on one machine: `tda` and its like.

Provides ``trial_command``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from parties.commands.display import Display
from parties.commands.running import common_options, run_supervised
from parties.commands.table_options import table_options
from parties.config import FLAIM_NOISES, SECURITIES, Config, load_config, overrides
from parties.errors import ConfigError
from parties.owner import Table
from parties.silos.trial import (
    SilosTrial,
    Split,
    load_silos_trial,
    open_silos_folder,
    run_silos_trial,
)
from parties.trial.folder import Folder
from parties.trial.processes import Supervision

_PATH = click.Path(path_type=Path)


def trial_command(algorithm: str, *, example: str, text: str) -> click.Command:
    """The command ``algorithm``, with the help ``text`` and an ``example``."""

    @click.command(algorithm, epilog=f"Example: {example}", help=text)
    @click.argument("config", type=_PATH)
    @table_options(help="The pooled table")
    @click.option(
        "--clients", type=click.IntRange(3), default=None, help="How many silos share it."
    )
    @click.option(
        "--beta",
        type=click.FloatRange(0, min_open=True),
        default=None,
        help="Each label's rows by Dirichlet(beta) shares; by default rows are dealt at random.",
    )
    @click.option("--label", default=None, help="Column that --beta goes by; by default the last.")
    @click.option("--by", default=None, help="Instead: a silo for each value of this column.")
    @click.option("--epsilon", type=float, default=None, help="Privacy budget of the whole run.")
    @click.option("--rounds", type=int, default=None, help="Rounds of the algorithm.")
    @click.option(
        "--noise", type=click.Choice(FLAIM_NOISES), default=None, help="Who adds it: silos.noise."
    )
    @click.option(
        "--security", type=click.Choice(SECURITIES), default=None, help="What the server may do."
    )
    @click.option(
        "--processes",
        type=click.IntRange(1),
        default=None,
        help="How many processes play the silos; by default one each up to 8, else one a processor.",
    )
    @click.option(
        "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the split; public."
    )
    @click.option("--out", type=_PATH, default=None, help="Run folder; by default runs/ID-TIME.")
    @common_options
    def command(
        config: Path,
        table: Table,
        clients: int | None,
        beta: float | None,
        label: str | None,
        by: str | None,
        epsilon: float | None,
        rounds: int | None,
        noise: str | None,
        security: str | None,
        processes: int | None,
        seed: int,
        out: Path | None,
        as_json: bool,
    ) -> None:
        if by is not None and (beta is not None or clients is not None):
            raise click.UsageError(
                "--by splits by a column's values; give it without --clients, --beta"
            )
        values: dict[str, object] = {
            "run.epsilon": epsilon,
            "run.rounds": rounds,
            "run.security": security,
            "silos.noise": noise,
        }
        loaded = _config_for(algorithm, config, overrides(values))
        trial = load_silos_trial(loaded, table, Split(clients, beta, label, by, seed))
        folder, report = _run(trial, out, processes)
        if as_json:
            click.echo(json.dumps(report, indent=2, ensure_ascii=False))
            return
        for name, line in _lines(report):
            click.echo(f"{name:<16}{line}")
        for name in (*report["files"], "report.html", "report.json"):
            click.echo(f"{'':<16}{folder.path / name}")

    return command


def _config_for(algorithm: str, path: Path, values: Mapping[str, object]) -> Config:
    """The config at ``path`` with ``values`` by dotted key; one for other methods is for ``algorithm``, by default.

    Raises ConfigError, also for one of another algorithm between silos.
    """
    found = load_config(path).algorithm
    if found is None:
        return load_config(path, {**values, algorithm: {}, "flaim": None})
    if found[0] != algorithm:
        text = f"is of syncret {found[0]}; expected [{algorithm}], or none of an algorithm between silos"
        raise ConfigError(str(path), found[0], text)
    return load_config(path, values)


def _run(
    trial: SilosTrial, out: Path | None, processes: int | None
) -> tuple[Folder, Mapping[str, Any]]:
    """Its folder and its report."""
    folder = open_silos_folder(trial, out)
    display = Display(clients=trial.partition.clients, rounds=trial.plan.sums)

    async def work(supervision: Supervision) -> Mapping[str, Any]:
        with display:
            beginning = "going on with the run in" if folder.resumed else "run folder"
            display.event("folder", f"{beginning} {folder.path}")
            return await run_silos_trial(trial, folder, display, processes=processes)

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
