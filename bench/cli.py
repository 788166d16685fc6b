"""`syncret bench`: measurements that anyone can repeat, one module for each command.

SIGTERM ends a command as Ctrl-C does: its child processes are stopped, too.
"""

import click

from bench.engine.cli import engine
from bench.flower import flower
from bench.gan.cli import gan
from bench.groups import FormerNames, TerminableGroup
from bench.intake import intake
from bench.likely import likely
from bench.link import link
from bench.linked_utility import link_utility
from bench.load.cli import load
from bench.mtl.cli import mtl
from bench.mwem.cli import mwem
from bench.overhead.cli import overhead
from bench.quality.cli import quality
from bench.secagg.cli import secagg
from bench.tda.cli import tda
from bench.utility.cli import utility


class _Bench(TerminableGroup, FormerNames):
    """Both kinds of group."""


@click.group(
    cls=_Bench,
    former={"attacks": "python -m tests.robustness attacks"},
    epilog="Example: syncret bench engine --task abs_error --size 1000000. "
    "Each command's --help has one of its own.",
)
def bench() -> None:
    """Measure Syncret on this machine."""


for command in (
    engine,
    secagg,
    overhead,
    utility,
    quality,
    likely,
    intake,
    load,
    flower,
    link,
    link_utility,
    tda,
    mtl,
    mwem,
    gan,
):
    bench.add_command(command)
