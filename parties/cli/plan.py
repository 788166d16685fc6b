"""Command `plan`: resources and noise of a run, before anything is sent, charged or computed."""

import json
from pathlib import Path

import click

from parties.cli.numbers import NumberRange
from parties.cli.runtime import common_options
from parties.config import Config, load_config
from parties.foundation.process import memory_bytes
from parties.local.resource_plan import document_of, lines_of, make_resource_plan
from parties.methods.keyed_study import is_keyed_config, load_keyed_study
from parties.mpc.planning.resources import NetworkAssumptions


@click.command(epilog="Example: syncret plan stays.toml --rows 48842")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=None,
    help="Rows of all owners together, of several sources those of their join; by default as many as there may be. "
    "Owners declare their even part of them, rounded up, unless --capacity says what.",
)
@click.option(
    "--capacity",
    type=click.IntRange(1),
    default=None,
    help="What owners declare, each at most so many rows; by default clients.rows_per_client, or less by "
    "--rows. See syncret join --capacity.",
)
@click.option(
    "--memory",
    "memory_gb",
    type=NumberRange(0, max=1e9, min_open=True),
    default=None,
    metavar="GB",
    help="Memory of a compute server; by default this host's.",
)
@click.option(
    "--bandwidth",
    type=NumberRange(0, min_open=True),
    default=1000.0,
    show_default=True,
    metavar="MBIT/S",
    help="Between two servers.",
)
@click.option(
    "--latency",
    type=NumberRange(0),
    default=0.2,
    show_default=True,
    metavar="MS",
    help="Of a message between two servers.",
)
@common_options
def plan(
    config: Path,
    rows: int | None,
    capacity: int | None,
    memory_gb: float | None,
    bandwidth: float,
    latency: float,
    as_json: bool,
) -> None:
    """Say what a run takes: cells, bytes, memory, seconds, and the noise of a cell beside the count expected in it.

    What cannot work is refused, with the key to change, as `run`, `serve study` and `join` refuse it when they start.
    What may not be worth it is a warning. Nothing is sent and no table is read; the counts expected are averages.

    Of tables with keys there is a plan for each view. --rows is then the number of persons, and a view of steps is
    planned for as many rows as may count: rows - 1 of each.
    """
    memory = memory_bytes() if memory_gb is None else int(memory_gb * 1e9)
    network = NetworkAssumptions(bandwidth * 1e6 / 8, latency / 1e3)
    made = {
        name: make_resource_plan(
            loaded, rows=rows and rows * times, capacity=capacity, memory=memory, network=network
        )
        for name, (loaded, times) in _configs(config).items()
    }
    if as_json:
        documents = {name: document_of(each) for name, each in made.items()}
        click.echo(json.dumps(documents.get("", documents), indent=2))
        return
    for name, each in made.items():
        if name:
            click.echo(f"view {name}:")
        click.echo("\n".join(lines_of(each)))


def _configs(path: Path) -> dict[str, tuple[Config, int]]:
    """Returns the configuration, under "", and 1; or those of all views with a person's rows in each."""
    if not is_keyed_config(path):
        return {"": (load_config(path), 1)}
    study = load_keyed_study(path)
    return {name: (config, study.views[name].rows) for name, config in study.configs.items()}
