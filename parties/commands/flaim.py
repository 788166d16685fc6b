"""The command `flaim`: FLAIM on one machine."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from parties.commands.on_one_machine import (
    budget_line,
    error_line,
    print_result,
    run_in_folder,
    section,
    time_line,
    verdict_lines,
)
from parties.commands.running import common_options
from parties.commands.table_options import PLAIN_FORMAT, plain_option, table_options
from parties.config import (
    FLAIM_GROUPINGS,
    FLAIM_NOISES,
    FLAIM_VARIANTS,
    SCHEDULES,
    load_config,
    overrides,
)
from parties.flaim.methods import OF_THE_TRIAL, flaim_request, open_flaim_folder, run_flaim
from parties.flaim.sums import settings_of
from parties.owner import Table
from parties.trial.methods import trial_on
from parties.trial.partition import PARTITIONS

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
    changes = overrides(values) | (PLAIN_FORMAT if plain else {})
    loaded = load_config(config, {**changes, **OF_THE_TRIAL})
    request = flaim_request(
        loaded,
        table.source.name,
        clients,
        partition=partition,
        label=label,
        seed=seed,
        simulate=simulate,
    )
    trial = trial_on(table, loaded, request)
    folder = open_flaim_folder(trial, out, simulate=simulate)
    settings = settings_of(trial.config)
    method = partial(run_flaim, trial, folder, simulate=simulate, processes=processes)
    rounds = settings.schedule(len(trial.config.domain.columns)).rounds
    goes_on = not (simulate or settings.annealed)
    report = run_in_folder(trial, folder, method, rounds=rounds, goes_on=goes_on)
    print_result(report, folder, closing_lines, as_json=as_json)


def closing_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """What came out of FLAIM, for people: names and texts."""
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
