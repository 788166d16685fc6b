"""The command `run`, DistAIM or central AIM on one machine; ``run_trial`` is what `demo` does with its own table."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from parties.commands.on_one_machine import (
    budget_line,
    error_line,
    likely_lines,
    print_result,
    run_in_folder,
    section,
    time_line,
    verdict_lines,
)
from parties.commands.running import common_options
from parties.commands.table_options import PLAIN_FORMAT, plain_option, table_options
from parties.config import INPUTS, SCHEDULES, SECURITIES, UPLOADS, Config, load_config, overrides
from parties.owner import Table, name_of
from parties.report.content import excluded_text
from parties.trial.children import Children, hold
from parties.trial.folder import Folder, default_place
from parties.trial.methods import open_method_folder, run_method, trial_on
from parties.trial.partition import PARTITIONS
from parties.trial.request import DISTAIM, METHODS, Request
from protocols.measure import NOISES

_PATH = click.Path(path_type=Path)
_QUERIES_SHOWN = 3


@click.command(
    epilog="Example: syncret run examples/adult.toml --data adult.csv.gz --clients 100 --partition iid --out runs/adult"
)
@click.argument("config", type=_PATH)
@table_options(help="The pooled table", several=True)
@click.option(
    "--clients",
    type=click.IntRange(1),
    default=None,
    help="How many data owners share it; with --source, each of them.",
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
@click.option(
    "--input",
    "given",
    type=click.Choice(INPUTS),
    default=None,
    help="What owners send: their counts, their rows, or whichever is smaller.",
)
@click.option("--upload", type=click.Choice(UPLOADS), default=None, help="Form of the counts.")
@click.option(
    "--capacity",
    type=click.IntRange(1),
    default=None,
    help="Rows that each owner may have at most, as it says; by default some more than it has.",
)
@click.option(
    "--security",
    type=click.Choice(SECURITIES),
    default=None,
    help="Whether servers prove what they compute before they open anything (malicious).",
)
@click.option("--noise", type=click.Choice(NOISES), default=None, help="Kind of noise.")
@click.option("--method", type=click.Choice(METHODS), default="distaim", show_default=True)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the partition; public."
)
@click.option("--out", type=_PATH, default=None, help="Run folder; by default runs/ID-TIME.")
@plain_option
@common_options
def run(
    config: Path,
    table: Table | Mapping[str, Table],
    clients: int | None,
    partition: str,
    label: str | None,
    rounds: int | None,
    schedule: str | None,
    epsilon: float | None,
    participation: float | None,
    given: str | None,
    upload: str | None,
    capacity: int | None,
    security: str | None,
    noise: str | None,
    method: str,
    seed: int,
    out: Path | None,
    plain: bool,
    as_json: bool,
) -> None:
    """Split one table among data owners and run on this machine, as processes over mutual TLS.

    Where the config has [[source]] tables, each has a table of its own (--source NAME=TABLE), split among owners of its
    own, and servers link the rows.

    The same command on the folder of an interrupted run goes on with it. --method aim runs central AIM instead, for
    comparison.
    """
    values: dict[str, object] = {
        "run.rounds": rounds,
        "run.schedule": schedule,
        "run.epsilon": epsilon,
        "clients.participation": participation,
        "run.input": given,
        "run.upload": upload,
        "run.security": security,
        "run.noise": noise,
    }
    changes = overrides(values) | (PLAIN_FORMAT if plain else {})
    loaded = load_config(config, changes)
    request = Request(method, name_of(table), clients, partition, label, seed, capacity)
    run_trial(loaded, table, request, out=out, as_json=as_json)


def run_trial(
    config: Config,
    table: Table | Mapping[str, Table],
    request: Request,
    *,
    out: Path | None,
    as_json: bool,
    children: Children | None = None,
) -> None:
    """Check everything, run, write the report, say what came out.

    ``children``: DistAIM's processes in the folder ``out``, where they are held already.
    """
    place = out or default_place(config.run.id)
    distaim = request.method == DISTAIM
    if distaim and children is None:
        children = hold(Folder(place))
    try:
        trial = trial_on(table, config, request)
        folder = open_method_folder(trial, place)
        method = partial(run_method, trial, folder, children=children)
        report = run_in_folder(trial, folder, method, rounds=config.run.rounds, goes_on=distaim)
    finally:
        if children is not None:
            children.kill()
    print_result(report, folder, closing_lines, as_json=as_json)


def closing_lines(report: Mapping[str, object]) -> list[tuple[str, str]]:
    """What came out of DistAIM or central AIM, for people: names and texts."""
    selected = report.get("selected")
    queries = [", ".join(item["query"]) for item in selected] if isinstance(selected, list) else []
    shown = "; ".join(queries[:_QUERIES_SHOWN])
    more = "; ..." if len(queries) > _QUERIES_SHOWN else ""
    excluded = excluded_text(report)
    lines = [
        *([("not counted", excluded)] if excluded else []),
        ("synthetic rows", f"{report.get('synthetic_rows')}"),
        budget_line(report),
        ("chosen queries", f"{len(queries)}: {shown}{more}"),
        error_line(report),
        *likely_lines(report),
        *verdict_lines(report),
        time_line(report, ("setup", "share", "count", "select", "measure", "estimate")),
    ]
    return [*lines, _sent_line(report)] if report.get("method") == "distaim" else lines


def _sent_line(report: Mapping[str, object]) -> tuple[str, str]:
    traffic = section(report, "communication")
    by_servers = traffic["server_sent_bytes"]
    sent = ", ".join(f"{value / 1e6:.1f}" for value in by_servers)  # type: ignore[attr-defined]
    owner = traffic["client_sent_bytes_mean"]
    shown = f"{owner / 1e6:.2f} MB" if owner >= 1e5 else f"{owner / 1e3:.1f} KB"
    return "sent", f"{shown} by each data owner; {sent} MB by the three servers"
