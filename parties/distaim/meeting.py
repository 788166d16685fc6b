"""What a server says while it waits for the two others: who is missing, where it was looked for, and what went wrong.

Provides ``saying_who_is_missing``. Public: names, addresses, and why a connection did not come about.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from parties.board import Board
from parties.config import Config
from parties.progress import Progress
from parties.pulse import duration
from parties.reminder import Reminder
from protocols.runtime import PartyRuntime

_FIRST_S, _LOOK_S = 2.0, 0.5
"""Servers that are started together find one another before anybody has to hear of it."""


@contextlib.asynccontextmanager
async def saying_who_is_missing(
    runtime: PartyRuntime, config: Config, board: Board, progress: Progress
) -> AsyncIterator[None]:
    """While the block waits for the mesh, say at intervals which servers are not there."""
    reminder, parties = Reminder(), config.require_parties()
    left_s = config.timeouts.connect_s

    async def look() -> None:
        nonlocal left_s
        await asyncio.sleep(_FIRST_S)
        left_s -= _FIRST_S
        while True:
            missing = runtime.missing()
            for pid in board.about.peers:
                board.peer(pid, connected=pid not in missing, problem=missing.get(pid, ""))
            who = "; ".join(
                f"server {pid} ({parties[pid].name}) at {parties[pid].mesh}: {problem}"
                for pid, problem in missing.items()
            )
            # The same servers for another reason are no news.
            if missing and reminder.due(repr(sorted(missing))):
                text = f"waiting for the other servers, for {duration(left_s)} more: {who}"
                progress.event("connecting", text)
            await asyncio.sleep(_LOOK_S)
            left_s -= _LOOK_S

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
