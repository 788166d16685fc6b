"""The command `demo`: a first run, on a generated table; or the table alone, to try other commands with."""

import json
import tomllib
from pathlib import Path

import click

from parties.commands.running import common_options
from parties.errors import StoreError
from parties.files import replacing
from parties.trial.children import hold
from parties.trial.folder import Folder, default_place
from parties.uncollected import uncollected

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="Example: syncret demo --out runs/demo; syncret demo --table stays.csv --rows 500"
)
@click.option("--out", type=_PATH, default=None, help="Run folder; by default runs/demo-TIME.")
@click.option("--table", type=_PATH, default=None, help="Only write the table here, as CSV.")
@click.option(
    "--config",
    type=_PATH,
    default=None,
    help="With --table: invent one for this configuration's columns.",
)
@click.option("--rows", type=click.IntRange(0), default=None, help="With --table.")
@click.option("--seed", type=click.IntRange(0), default=1, help="With --table: another table.")
@common_options
def demo(
    out: Path | None,
    table: Path | None,
    config: Path | None,
    rows: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Try it: three compute servers and 24 data owners on this machine, as processes over mutual TLS.

    Runs DistAIM on a generated table of hospital stays, writes a run folder and prints a summary. With --table it
    runs nothing, and writes a generated table to try other commands with.
    """
    if table is not None:
        rows = _write_table(table, config, rows, seed)
        said = json.dumps({"table": str(table), "rows": rows, "seed": seed})
        click.echo(said if as_json else f"{rows} invented rows are in {table}")
    elif config is not None:
        raise click.UsageError(f"--config {config} goes with --table FILE")
    else:
        _run(out, as_json)


def _run(out: Path | None, as_json: bool) -> None:
    place = out or default_place("demo")
    # Before this process imports what it needs itself: that takes as long again.
    children = hold(Folder(place))
    with uncollected():
        from mechanisms.source import TableSource
        from mechanisms.text_table import TextTable
        from parties.commands.run import run_trial
        from parties.config import config_from_dict
        from parties.owner import Table
        from parties.trial.demo_data import DEMO_CONFIG, demo_table
        from parties.trial.request import Request

    config = config_from_dict(tomllib.loads(DEMO_CONFIG), source="demo", base=Path.cwd())
    request = Request("distaim", "demo", None, "iid", None, 1)
    table = Table(TableSource("demo table"), False, TextTable.of(demo_table()))
    run_trial(config, table, request, out=place, as_json=as_json, children=children)


def _write_table(path: Path, config: Path | None, rows: int | None, seed: int) -> int:
    from parties.config import load_config
    from parties.trial.demo_data import DEMO_ROWS, demo_table, invented_table

    rows = DEMO_ROWS if rows is None else rows
    if path.exists():
        raise StoreError(path, "is there already; expected a new name")
    if config is None:
        frame = demo_table(rows, seed=seed)
    else:
        frame = invented_table(load_config(config).domain, rows, seed=seed)
    with replacing(path) as beside:
        frame.to_csv(beside, index=False)
    return rows
