"""Processes of a case: forked from one that has imported all modules, so that a case takes seconds."""

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
    """Imports these modules once, in a process without threads, from the first start on."""
    _imported.extend(modules)
    _CONTEXT.set_forkserver_preload(_imported)


@contextlib.contextmanager
def started(target: Callable[..., None], *args: object) -> Iterator[ForkServerProcess]:
    """Yields a process that runs ``target``; kills it at the end if it has not ended."""
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
    """Continues a stopped process; returns False while it still runs, since an early signal would be lost.

    Returns True for a process that has ended.
    """
    try:
        state = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        if state.split()[0] not in "TtZX":
            return False
        os.kill(process.pid or 0, signal.SIGCONT)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return True
