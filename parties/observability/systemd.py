"""A supervisor that started this process: systemd, or a container's: what it is told, and how it is obeyed.

Provides ``is_supervised``, ``notify``, ``SystemdSink`` and ``watchdog``. systemd names a socket in NOTIFY_SOCKET
(sd_notify(3)) and hears there when the process is ready, what it is at, and that its event loop turns (WATCHDOG_USEC).
Where there is none, as in containers, SYNCRET_SUPERVISED=1 says that somebody supervises. SIGTERM is then an order that
was carried out, status 0, and no failure. Public: what is told; it is what the progress says. Known limit: nobody hears
whether the supervisor took it.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator

from parties.observability.events import FieldValue, Progress

SOCKET_VARIABLE, SUPERVISED_VARIABLE = "NOTIFY_SOCKET", "SYNCRET_SUPERVISED"
_READY = ("listening", "finished")
"""Events after which a server does what it is there for: it takes uploads, or has nothing left to do."""
_MAX_STATUS = 400


def is_supervised() -> bool:
    """Whether a supervisor has started this process, and will again."""
    return bool(os.environ.get(SOCKET_VARIABLE)) or os.environ.get(SUPERVISED_VARIABLE, "") not in (
        "",
        "0",
    )


def notify(*lines: str) -> None:
    """Send lines such as "READY=1" to systemd, if it listens; what it does not take is lost."""
    name = os.environ.get(SOCKET_VARIABLE, "")
    if not name:
        return
    # An abstract name begins with a zero byte, which a variable cannot have.
    address = "\0" + name[1:] if name.startswith("@") else name
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto("\n".join(lines).encode(), address)


def without_supervisor(environment: dict[str, str]) -> dict[str, str]:
    """For a process that this one starts: it has this one to obey, and nothing to tell systemd."""
    return {
        k: v
        for k, v in environment.items()
        if k not in (SOCKET_VARIABLE, SUPERVISED_VARIABLE, "WATCHDOG_USEC")
    }


class SystemdSink:
    """Passes events on to ``inner``, and tells systemd: each sentence as the status, and READY once it is so."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner

    def event(self, name: str, text: str, **fields: FieldValue) -> None:
        """See ``Progress.event``."""
        self._inner.event(name, text, **fields)
        status = "STATUS=" + " ".join(text.split())[:_MAX_STATUS]
        notify(*(("READY=1", status) if name in _READY else (status,)))


@contextlib.asynccontextmanager
async def watchdog() -> AsyncIterator[None]:
    """Tell systemd within that the event loop turns, twice as often as it asks; nothing where it does not ask."""
    asked = os.environ.get("WATCHDOG_USEC", "")
    if not (asked.isdigit() and int(asked) and os.environ.get(SOCKET_VARIABLE)):
        yield
        return

    async def beat() -> None:
        while True:
            notify("WATCHDOG=1")
            await asyncio.sleep(int(asked) / 2e6)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
