"""Waits, with a deadline, for what another process brings about.

A process that was started is not yet what it execs; one that was told to stop or end still runs for a moment.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")


def until(look: Callable[[], Found], what: str, within_s: float = 30.0) -> Found:
    """The first true result of `look`. AssertionError, with `what` and the last result, after the deadline."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}; found {found!r}"
        time.sleep(0.02)
    return found


async def eventually(look: Callable[[], Found], within_s: float = 30.0) -> Found:
    """The first true result of `look`, while the event loop goes on. TimeoutError after the deadline."""
    async with asyncio.timeout(within_s):
        while not (found := look()):  # noqa: ASYNC110  # What it waits for sets no event.
            await asyncio.sleep(0.01)
        return found


async def connected_to(
    host: str, port: int, within_s: float = 30.0, **options: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection, once somebody listens at the address. TimeoutError after the deadline."""
    async with asyncio.timeout(within_s):
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return await asyncio.open_connection(host, port, **options)
            await asyncio.sleep(0.01)


async def listens(host: str, port: int) -> None:
    """Waits until somebody listens at an address, who then sees a connection that says nothing and ends."""
    _, writer = await connected_to(host, port)
    writer.close()


def processes(folder: Path, part: str = "") -> dict[int, str]:
    """Running processes, other than this one, whose command line names a file of `folder` and has `part`, now."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                state = _state(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
            line = command.decode(errors="surrogateescape")
            if str(folder) in line and part in line and state != "Z":
                found[int(entry.name)] = line
    return found


def process_of(folder: Path, part: str) -> int:
    """The process id of the one process of `folder` with `part` in its command line, once there is exactly one.

    Between a fork and its exec there is none with the child's command line, or a second one with the parent's.
    """

    def look() -> list[int]:
        found = list(processes(folder, part))
        return found if len(found) == 1 else []

    return until(look, f"one process with {part!r}, of {processes(folder)}")[0]


def count_of(folder: Path, part: str, least: int) -> int:
    """The number of processes of `folder` with `part` in their command lines, once there are `least` of them."""

    def look() -> int:
        count = len(processes(folder, part))
        return count if count >= least else 0

    return until(look, f"{least} processes with {part!r}")


def nothing_runs(folder: Path, part: str = "", within_s: float = 20.0) -> None:
    """Returns once no process of `folder` with `part` in its command line runs."""
    until(lambda: not processes(folder, part), f"the end of {processes(folder, part)}", within_s)


def until_stopped(pid: int) -> None:
    """Returns once SIGSTOP has stopped the process."""
    until(lambda: _state(pid) == "T", f"process {pid} stopped")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextlib.contextmanager
def becoming(name: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that sleeps and has `name` in its command line only once it execs; killed at the end.

    It execs a while after its standard input was closed.
    """
    then = ["-c", "import time; time.sleep(60)", os.fsencode(name)]
    code = f"sys.stdin.read(); time.sleep(0.3); os.execl(sys.executable, sys.executable, *{then})"
    command = [sys.executable, "-c", "import os, sys, time; exec(input())"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(f"{code}\n".encode())
        process.stdin.flush()
        try:
            yield process
        finally:
            process.kill()


def later(act: Callable[[], object]) -> None:
    """Does it a while from now, in another thread."""
    threading.Timer(0.3, act).start()
