"""Processes of a case: forked from one that has imported all of it, so that a case takes seconds.

Provides ``started`` and ``CONTEXT``. Public.
"""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess

from parties.commands.running import postponed

CONTEXT = multiprocessing.get_context("forkserver")
# Imported once, by a process without threads.
CONTEXT.set_forkserver_preload(
    [
        "bench.load.kills.case",
        "bench.load.kills.services",
        "parties.commands.serve",
        "parties.commands.study",
        "parties.operate.serve",
    ]
)


@contextlib.contextmanager
def started(target: Callable[..., None], *args: object) -> Iterator[ForkServerProcess]:
    """A process that does this; killed at the end, where it has not ended."""
    process = CONTEXT.Process(target=target, args=args)
    try:
        with postponed():
            process.start()
        yield process
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
        process.close()
