"""`syncret bench`: the measurements that a stranger can repeat. One module for each command."""

import click

from bench.engine.cli import engine
from bench.overhead.cli import overhead
from bench.secagg.cli import secagg
from bench.utility.cli import utility


@click.group()
def bench() -> None:
    """Measure Syncret on this machine."""


for command in (engine, secagg, overhead, utility):
    bench.add_command(command)
