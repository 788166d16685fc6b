"""`syncret bench load`: limits of the servers. One module for each command."""

import click

from bench.groups import FormerNames
from bench.load.commands import long, owners, soak


@click.group(
    cls=FormerNames,
    former={
        "fuzz": "python -m tests.robustness fuzz",
        "kills": "python -m tests.robustness kills",
    },
    epilog="Each command's --help has an example.",
)
def load() -> None:
    """Measure the limits of servers: load, garbage, long runs."""


for command in (owners, soak, long):
    load.add_command(command)
