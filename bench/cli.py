"""`syncret bench`: measurements that anyone can repeat, one module for each command.

SIGTERM ends a command as Ctrl-C does: its child processes are stopped, too.
"""

import signal
from types import FrameType

import click

from bench.attacks.cli import attacks
from bench.engine.cli import engine
from bench.flower import flower
from bench.gan.cli import gan
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
from parties.foundation.exit_codes import Status, Stopped


class _Terminable(click.Group):
    """A group whose commands end on SIGTERM as on Ctrl-C, but with another exit status."""

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command. Raises Stopped after SIGTERM."""
        terminated = False

        def terminate(number: int, frame: FrameType | None) -> None:
            nonlocal terminated
            terminated = True
            # An event loop has a handler of its own.
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                handler(signal.SIGINT, frame)
            else:
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, terminate)
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as stopped:
            if not terminated:
                raise
            raise Stopped("stopped by SIGTERM", Status.TERMINATED) from stopped
        finally:
            signal.signal(signal.SIGTERM, before)


@click.group(
    cls=_Terminable,
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
    attacks,
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
