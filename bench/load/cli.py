"""`syncret bench load`: limits of the servers. One module for each command."""

import click

from bench.load.commands import long, owners, soak
from bench.load.fuzzing.cli import fuzz
from bench.load.kills.cli import kills


@click.group(epilog="Each command's --help has an example.")
def load() -> None:
    """Measure what Syncret bears: load, garbage, faults, long runs."""


for command in (owners, soak, long, fuzz, kills):
    load.add_command(command)
