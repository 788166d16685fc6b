"""What the commands of the one server of FLAIM, and of silos, have in common. Provides ``server_command``."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import click

from parties.board import About, Board
from parties.commands.running import (
    common_options,
    log_option,
    make_private,
    register_option,
    run_supervised,
    server_progress,
)
from parties.config import Config, load_config
from parties.dumps import no_core_dumps
from parties.errors import ConfigError
from parties.flaim.attempt import own_files
from parties.operate.logs import JsonLog, board_of
from parties.orders import Orders
from parties.progress import Progress
from parties.trial.processes import Supervision

_PATH = click.Path(path_type=Path)
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


def server_command(
    meeting: str,
    server: Server,
    report: Callable[[Config, Path], None],
    *,
    again: str,
    example: str,
    text: str,
) -> click.Command:
    """The command of the ``server`` of a run whose configuration has the section ``meeting``, with the help ``text``.

    ``again`` says what the same command does after a stop; ``report`` is written at the end.
    """
    name = f"{meeting}-server"

    @click.command(name, epilog=f"Example: {example}", help=text)
    @click.argument("config", type=_PATH)
    @click.option(
        "--dir",
        "directory",
        type=_PATH,
        default=None,
        help=f"The server's folder; by default {name} beside the config.",
    )
    @click.option("--watch-stdin", is_flag=True, hidden=True)
    @register_option
    @log_option
    @common_options
    def command(
        config: Path,
        directory: Path | None,
        watch_stdin: bool,
        register: Path | None,
        log: JsonLog | None,
        as_json: bool,
    ) -> None:
        no_core_dumps()
        progress = server_progress("server", log, as_json=as_json)
        folder = directory or config.absolute().parent / name

        async def serve(supervision: Supervision) -> None:
            loaded = load_config(config)
            _check_meeting(loaded, meeting)
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
        # A launcher has the real table at hand and writes a fuller report.
        if not watch_stdin:
            report(load_config(config), folder)
            progress.event("report", f"wrote {folder / 'report.html'}")

    return command


def _check_meeting(config: Config, meeting: str) -> None:
    """Raises ConfigError where the config is of another method."""
    if config.meeting != meeting:
        has = "is there" if config.silos else "is missing"
        raise ConfigError(config.source, "silos", f"{has}; expected {_EXPECTED[meeting]}")


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
