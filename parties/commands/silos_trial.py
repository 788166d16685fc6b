"""What commands have in common that run an algorithm between silos on one machine: `tda` and its like.

Provides ``silos_options`` and ``run_trial``.
"""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from parties.commands.display import Display
from parties.commands.running import common_options, run_supervised
from parties.commands.table_options import table_options
from parties.config import FLAIM_NOISES, SECURITIES, load_config, overrides
from parties.owner import Table
from parties.silos.trial import Split, load_silos_trial, open_silos_folder, run_silos_trial
from parties.trial.processes import Supervision

_PATH = click.Path(path_type=Path)


def silos_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add CONFIG and the options of a trial between silos; the command gets ``values``, what they override by key."""

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
    @functools.wraps(command)
    def with_options(
        clients: int | None,
        beta: float | None,
        label: str | None,
        by: str | None,
        epsilon: float | None,
        rounds: int | None,
        noise: str | None,
        security: str | None,
        seed: int,
        **others: Any,
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
        command(values=values, split=Split(clients, beta, label, by, seed), **others)

    return with_options


def run_trial(
    config: Path,
    table: Table,
    split: Split,
    values: Mapping[str, object],
    *,
    processes: int | None,
    out: Path | None,
    as_json: bool,
    algorithm: str | None = None,
) -> None:
    """Run the trial of ``config`` with ``values`` by dotted key, and print what came of it.

    A config for other methods is one for this ``algorithm``, with all defaults.
    """
    values = overrides(values)
    if algorithm is not None and load_config(config).algorithm is None:
        values = {**values, algorithm: {}}
    trial = load_silos_trial(load_config(config, values), table, split)
    folder = open_silos_folder(trial, out)
    display = Display(clients=trial.partition.clients, rounds=trial.plan.sums)

    async def work(supervision: Supervision) -> Mapping[str, Any]:
        with display:
            beginning = "going on with the run in" if folder.resumed else "run folder"
            display.event("folder", f"{beginning} {folder.path}")
            return await run_silos_trial(trial, folder, display, processes=processes)

    again = f"the same command with --out {folder.path} goes on after the last sum"
    report = run_supervised(work, watch_stdin=False, events=None, again=again)
    if as_json:
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    for name, text in _lines(report):
        click.echo(f"{name:<16}{text}")
    for name in (*report["files"], "report.html", "report.json"):
        click.echo(f"{'':<16}{folder.path / name}")


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
