"""Notifications to the supervisor that started this process: systemd, or a container's.

systemd names a socket in NOTIFY_SOCKET (sd_notify(3)) for messages about readiness, status, and a running event loop
(WATCHDOG_USEC). Without one, as in containers, SYNCRET_SUPERVISED=1 declares a supervisor. Under a supervisor, SIGTERM
is a successful command with exit status 0, and no failure. All messages are public: the progress shows the same. Known
limit: the supervisor does not confirm messages.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator

from parties.observability.events import Event

SOCKET_VARIABLE, SUPERVISED_VARIABLE = "NOTIFY_SOCKET", "SYNCRET_SUPERVISED"
_READY = ("listening", "finished")
"""Events after which a server is ready: it accepts uploads, or has nothing left to do."""
_MAX_STATUS = 400


def is_supervised() -> bool:
    """Returns true if a supervisor has started this process and will restart it."""
    return bool(os.environ.get(SOCKET_VARIABLE)) or os.environ.get(SUPERVISED_VARIABLE, "") not in (
        "",
        "0",
    )


def notify(*lines: str) -> None:
    """Sends lines such as "READY=1" to systemd, if it listens; undelivered ones are lost."""
    name = os.environ.get(SOCKET_VARIABLE, "")
    if not name:
        return
    # An abstract socket name begins with a zero byte, which a variable cannot have.
    address = "\0" + name[1:] if name.startswith("@") else name
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto("\n".join(lines).encode(), address)


def without_supervisor(environment: dict[str, str]) -> dict[str, str]:
    """Returns the environment of a child process, which has this process as supervisor and sends nothing to systemd."""
    return {
        k: v
        for k, v in environment.items()
        if k not in (SOCKET_VARIABLE, SUPERVISED_VARIABLE, "WATCHDOG_USEC")
    }


class SystemdSink:
    """Sink of events that notifies systemd: each sentence as status, and READY when it is reached."""

    def take(self, event: Event) -> None:
        """Sends the sentence."""
        status = "STATUS=" + " ".join(event.text.split())[:_MAX_STATUS]
        notify(*(("READY=1", status) if event.name in _READY else (status,)))


@contextlib.asynccontextmanager
async def watchdog() -> AsyncIterator[None]:
    """Sends systemd's watchdog messages while the block runs, twice as often as required; none if not required."""
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
