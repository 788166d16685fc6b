"""What the commands of the one server of FLAIM, and of silos, have in common. Provides ``shown_alone``."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from parties.board import Board
from parties.orders import Orders
from parties.trial.processes import Supervision


@contextlib.asynccontextmanager
async def shown_alone(
    board: Board, folder: Path, supervision: Supervision, asked: Orders, *, alone: bool
) -> AsyncIterator[None]:
    """The server's admin socket; a trial's server has none, which saves it the import of a web server."""
    if not alone:
        yield
        return
    from parties.operate.shown import orders_of, shown

    async with shown(board, folder, orders_of(supervision.cancel, asked)):
        yield
