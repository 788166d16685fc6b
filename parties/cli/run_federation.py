"""Commands `flaim`, `tda` and `mtl`: FLAIM, Fed-TDA and MR-MTL on one machine.

``trial_command`` makes the commands of the algorithms between silos.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from parties.cli.display import Display
from parties.cli.options import PLAIN_FORMAT, plain_option, table_options
from parties.cli.run import (
    budget_line,
    error_line,
    print_result,
    run_in_folder,
    section,
    time_line,
    verdict_lines,
)
from parties.cli.runtime import common_options, run_supervised
from parties.config import (
    FLAIM_GROUPINGS,
    FLAIM_NOISES,
    FLAIM_VARIANTS,
    SCHEDULES,
    SECURITIES,
    Config,
    load_config,
    overrides_from_options,
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
from parties.local.flaim import FLAIM_TRIAL_OVERRIDES, flaim_request, open_flaim_folder, run_flaim
from parties.local.folder import RunFolder
from parties.local.methods import trial_from_tables
from parties.local.partition import PARTITIONS
from parties.local.processes import Supervision
from parties.session.owner import Table

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="Example: syncret flaim examples/adult.toml --data adult.csv.gz --clients 100 --partition clustering "
    "--participation 0.1 --variant private --out runs/flaim"
)
@click.argument("config", type=_PATH)
@table_options(help="The pooled table")
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
@plain_option
@common_options
def flaim(
    config: Path,
    table: Table,
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
    plain: bool,
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
    changes = overrides_from_options(values) | (PLAIN_FORMAT if plain else {})
    loaded = load_config(config, {**changes, **FLAIM_TRIAL_OVERRIDES})
    request = flaim_request(
        loaded,
        table.source.name,
        clients,
        partition=partition,
        label=label,
        seed=seed,
        simulate=simulate,
    )
    trial = trial_from_tables(table, loaded, request)
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


def trial_command(algorithm: str, *, example: str, text: str) -> click.Command:
    """Returns the command ``algorithm``, with the help ``text`` and an ``example``."""

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
        loaded = _config_for(algorithm, config, overrides_from_options(values))
        trial = load_silos_trial(loaded, table, SiloSplit(clients, beta, label, by, seed))
        folder, report = _run_silos_trial(trial, out, processes)
        if as_json:
            click.echo(json.dumps(report, indent=2, ensure_ascii=False))
            return
        for name, line in _lines(report):
            click.echo(f"{name:<16}{line}")
        for name in (*report["files"], "report.html", "report.json"):
            click.echo(f"{'':<16}{folder.path / name}")

    return command


def _config_for(algorithm: str, path: Path, values: Mapping[str, object]) -> Config:
    """Returns the config at ``path`` with ``values`` by dotted key; one of another method is adapted to ``algorithm``.

    Raises ConfigError, also for a config of another algorithm between silos.
    """
    found = load_config(path).algorithm
    if found is None:
        return load_config(path, {**values, algorithm: {}, "flaim": None})
    if found[0] != algorithm:
        text = f"is of syncret {found[0]}; expected [{algorithm}], or none of an algorithm between silos"
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


tda = trial_command(
    "tda",
    example="syncret tda examples/tda/stays.toml --data stays.csv --clients 5 --beta 0.05 --out runs/tda",
    text="""Split one table among silos and run Fed-TDA on this machine: a server and the silos as processes.

They meet over mutual TLS, and every sum is taken by secure aggregation: mixtures of the continuous columns,
frequencies, second moments; the server draws a synthetic table from what they say. The same command on the folder
of an interrupted run goes on after its last sum. On hosts of their own: syncret silos-server and silos-client.
""",
)


mtl = trial_command(
    "mtl",
    example="syncret mtl examples/mtl/school.toml --data school.csv.gz --by school --out runs/school",
    text="""Split one table among silos and run MR-MTL on this machine: a server and the silos as processes.

Silos train models of their own, drawn to the mean of all, each with noise for its own epsilon. They meet over
mutual TLS, and the server sees sums of models alone. The same command on the folder of an interrupted run goes on
after its last sum. On hosts of their own: syncret silos-server and silos-client.
""",
)
