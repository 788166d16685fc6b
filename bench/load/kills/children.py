"""Processes of a case: forked from one that has imported all of it, so that a case takes seconds.

Provides ``started``, ``imported``, which says what that is, and ``continue_stopped``. Public.
"""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from parties.cli.runtime import deferred_signals

_CONTEXT = multiprocessing.get_context("forkserver")
_imported = list[str]()


def imported(*modules: str) -> None:
    """From the first start on these are imported once, by a process without threads."""
    _imported.extend(modules)
    _CONTEXT.set_forkserver_preload(_imported)


@contextlib.contextmanager
def started(target: Callable[..., None], *args: object) -> Iterator[ForkServerProcess]:
    """A process that does this; killed at the end, where it has not ended."""
    process = _CONTEXT.Process(target=target, args=args)
    try:
        with deferred_signals():
            process.start()
        yield process
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
        process.close()


def continue_stopped(process: ForkServerProcess) -> bool:
    """Continue a stopped process; False where it still runs, since a signal that came before its stop would be lost.

    True for one that has ended.
    """
    try:
        state = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        if state.split()[0] not in "TtZX":
            return False
        os.kill(process.pid or 0, signal.SIGCONT)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return True
