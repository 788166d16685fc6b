"""What the commands of the one server of FLAIM, and of silos, have in common. Provides ``run_one_server``."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from parties.board import About, Board
from parties.commands.running import make_private, run_supervised, server_progress
from parties.config import Config, load_config
from parties.dumps import no_core_dumps
from parties.errors import ConfigError
from parties.flaim.attempt import own_files
from parties.operate.logs import JsonLog, board_of
from parties.orders import Orders
from parties.progress import Progress
from parties.trial.processes import Supervision

_EXPECTED = {
    "flaim": "a run of FLAIM, with [flaim] alone; the server of one between silos is syncret silos-server",
    "silos": "a run between silos, with [silos] and [tda] or [mtl]; FLAIM's server is syncret flaim-server",
}


class Server(Protocol):
    """`parties.flaim.server.run_server` and its like."""

    async def __call__(
        self,
        config: Config,
        directory: Path,
        *,
        progress: Progress,
        closed: asyncio.Event,
        register: Path | None,
        board: Board,
        orders: Orders,
    ) -> None:
        """Serve the run of ``config`` in ``directory`` until it is finished."""


def run_one_server(
    server: Server,
    meeting: str,
    config: Path,
    folder: Path,
    *,
    watch_stdin: bool,
    register: Path | None,
    log: JsonLog | None,
    as_json: bool,
    again: str,
) -> Progress:
    """Run ``server``, of a ``config`` with the section ``meeting``, in ``folder`` to its end. Returns where events go.

    ``again`` says what the same command does. Raises what ``server`` raises; ConfigError where the config is of another
    method, before anything is written.
    """
    no_core_dumps()
    progress = server_progress("server", log, as_json=as_json)

    async def serve(supervision: Supervision) -> None:
        loaded = load_config(config)
        if loaded.meeting != meeting:
            has = "is there" if loaded.silos else "is missing"
            text = f"{has}; expected {_EXPECTED[meeting]}"
            raise ConfigError(loaded.source, "silos", text)
        own_files(loaded)  # Before anything is written.
        make_private(folder)
        board, asked = board_of(About.of_meeting(loaded), log), Orders()
        async with _shown(board, folder, supervision, asked, alone=not watch_stdin):
            await server(
                loaded,
                folder,
                progress=progress,
                closed=supervision.go,
                register=register,
                board=board,
                orders=asked,
            )

    run_supervised(
        serve, watch_stdin=watch_stdin, events=progress if as_json else None, again=again
    )
    return progress


@contextlib.asynccontextmanager
async def _shown(
    board: Board, folder: Path, supervision: Supervision, asked: Orders, *, alone: bool
) -> AsyncIterator[None]:
    """The server's admin socket; a trial's server has none, which saves it the import of a web server."""
    if not alone:
        yield
        return
    from parties.operate.shown import orders_of, shown

    async with shown(board, folder, orders_of(supervision.cancel, asked)):
        yield
