"""A server's work with its operator looking on: its admin API answers while it runs, and its board knows the end.

Provides ``shown`` and ``orders_of``. Public: everything.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from parties.board import Board, Phase
from parties.operate.app import Orders, application
from parties.operate.serving import Listening, answering
from parties.operate.sockets import NAME, listen
from parties.orders import Orders as Asking
from parties.statuses import describe

_BEAT_S = 1.0


def orders_of(cancel: Callable[[], object], asked: Asking) -> Orders:
    """What a server can be told: ``cancel`` at once, and what is ``asked`` when the run's servers agree on it."""
    return Orders(
        close=partial(asked.ask, close=True),
        finish=partial(asked.ask, finish=True),
        cancel=cancel,
        revoke=lambda owner: asked.ask(revoke=[owner]),
    )


@contextlib.asynccontextmanager
async def shown(board: Board, folder: Path, orders: Orders) -> AsyncIterator[None]:
    """While the block runs, the server in ``folder`` answers at its admin socket.

    Raises StoreError where another process answers there, or the folder is not writable.
    """
    path = folder / NAME
    listening = [Listening(listen(path))]
    beating = asyncio.create_task(_beat(board))
    try:
        with answering(lambda: application(board, orders), listening):
            try:
                yield
            except asyncio.CancelledError:
                board.enter(Phase.STOPPED)
                raise
            except Exception as error:
                board.event("failed", describe(error).message)
                raise
    finally:
        beating.cancel()
        with contextlib.suppress(OSError):
            path.unlink()


async def _beat(board: Board) -> None:
    while True:
        board.beat()
        await asyncio.sleep(_BEAT_S)
