"""Reload of a server's settings: settings.toml is read again at SIGHUP, and put to work without a restart.

``LiveSettings`` has the settings that are at work. New ones that are not valid, or that cannot be put to work (a port
in use, a missing certificate), change nothing, and the log says what is wrong with them. Sections that a server reads
only at its start are named in the log.

A server that was started in a terminal ends, as before, when that terminal is closed, which is also a SIGHUP.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import fields
from pathlib import Path

from parties.foundation.errors import PartyError
from parties.observability.events import Progress
from parties.service.events import EventName
from parties.service.settings import FILE, Settings, load_settings

logger = logging.getLogger("syncret.service")


class LiveSettings:
    """Settings of the server in ``folder`` that are at work.

    ``changed`` is set after every reload; its waiter clears it. Reloads are events of the bus ``events``. Raises
    ConfigError, StoreError where the settings at the start are not valid.
    """

    def __init__(self, folder: Path, events: Progress) -> None:
        self._events = events
        self.current = self._started = load_settings(folder)
        self.changed = asyncio.Event()
        self._folder = folder

    async def read_again(
        self, apply: Callable[[Settings], Awaitable[None]], live: Collection[str]
    ) -> None:
        """Reads the file, and has ``apply`` put the settings to work; whatever it raises, the former ones stay.

        ``live`` are the sections that need no restart.
        """
        try:
            found = load_settings(self._folder)
            await apply(found)
        except PartyError as error:
            self._refuse(str(error))
            return
        except Exception as error:
            logger.exception("%s was not put to work", FILE)
            self._refuse(f"{FILE} was not put to work ({type(error).__name__})")
            return
        self.current = found
        self.changed.set()
        waiting = [
            f"[{item.name}]"
            for item in fields(Settings)
            if item.name not in live
            and getattr(found, item.name) != getattr(self._started, item.name)
        ]
        if waiting:
            sections = " and ".join(waiting)
            text = f"{FILE} is read again; {sections} takes a restart of the server"
        else:
            text = f"{FILE} is read again, and at work"
        self._events.event(EventName.SETTINGS_READ, text)

    def _refuse(self, reason: str) -> None:
        text = f"{reason}; the former settings stay at work"
        self._events.event(EventName.SETTINGS_REFUSED, text, reason=reason)


@contextlib.asynccontextmanager
async def reloading(
    settings: LiveSettings, apply: Callable[[Settings], Awaitable[None]], live: Collection[str]
) -> AsyncIterator[None]:
    """Reloads ``settings`` at every SIGHUP while the block runs, one after the other."""
    asked, loop, terminal = asyncio.Event(), asyncio.get_running_loop(), os.isatty(0)
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread receives signals.
        return

    def hang_up() -> None:
        if terminal and not os.isatty(0):
            signal.raise_signal(signal.SIGTERM)
        else:
            asked.set()

    async def reload() -> None:
        while True:
            await asked.wait()
            asked.clear()
            await settings.read_again(apply, live)

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    task = asyncio.create_task(reload())
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
