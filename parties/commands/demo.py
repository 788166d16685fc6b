"""The command `demo`: a first run, on a generated table."""

import tomllib
from pathlib import Path

import click

from mechanisms.source import TableSource
from mechanisms.text_table import TextTable
from parties.commands.run import run_trial
from parties.commands.running import common_options
from parties.config import config_from_dict
from parties.owner import Table
from parties.trial.demo_data import DEMO_CONFIG, demo_table
from parties.trial.request import Request


@click.command(epilog="Example: syncret demo --out runs/demo")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="Run folder; by default runs/demo-TIME.",
)
@common_options
def demo(out: Path | None, as_json: bool) -> None:
    """Try it: three compute servers and 24 data owners on this machine, as processes over mutual TLS.

    Runs DistAIM on a generated table of hospital stays, writes a run folder and prints a summary.
    """
    config = config_from_dict(tomllib.loads(DEMO_CONFIG), source="demo", base=Path.cwd())
    request = Request("distaim", "demo", None, "iid", None, 1)
    table = Table(TableSource("demo table"), False, TextTable.of(demo_table()))
    run_trial(config, table, request, out=out, as_json=as_json)
