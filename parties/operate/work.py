"""What a worker of `syncret serve` does: one study of either kind, over the connections that it is handed.

Provides ``run_study``. It goes on where the run in its folder was, and is started again by the service after a failure
that may pass. Secret: what the run in its folder has. Public: its events.
"""

import asyncio
from functools import partial
from pathlib import Path

from parties.board import About
from parties.config import Config
from parties.distaim.estimation import LEAD
from parties.distaim.server import run_party
from parties.flaim.connections import Connections
from parties.flaim.server import run_server
from parties.inlets import Inlets
from parties.operate.app import Orders
from parties.operate.logs import JsonLog, board_of
from parties.operate.shown import shown
from parties.orders import Orders as Asking
from parties.progress import Progress


async def run_study(
    config: Config,
    pid: int | None,
    directory: Path,
    *,
    progress: Progress,
    closed: asyncio.Event,
    register: Path | None,
    inlets: Inlets,
    orders: Orders,
    asked: Asking,
    log: JsonLog | None = None,
) -> None:
    """Run server ``pid`` of DistAIM, or (None) FLAIM's server, until the study is finished; with its report, then.

    Meanwhile it answers at the admin socket in its ``directory`` (`parties.operate.shown`). Raises as
    `parties.distaim.server.run_party` and `parties.flaim.server.run_server`.
    """
    about = About.of_meeting(config) if pid is None else About.of_party(config, pid)
    board = board_of(about, log)
    async with shown(board, directory, orders):
        if pid is None:
            await run_server(
                config,
                directory,
                progress=progress,
                closed=closed,
                register=register,
                meet=partial(Connections, inlets=inlets),
                board=board,
                orders=asked,
            )
            await asyncio.to_thread(_flaim_report, config, directory)
            return
        await run_party(
            config,
            pid,
            directory,
            progress=progress,
            closed=closed,
            register=register,
            inlets=inlets,
            board=board,
            orders=asked,
        )
        if pid == LEAD:
            await asyncio.to_thread(_lead_report, config, directory)


# Pictures take half a second to import, and are wanted once, at the end.


def _flaim_report(config: Config, directory: Path) -> None:
    from parties.flaim.report import write_server_report

    write_server_report(config, directory)


def _lead_report(config: Config, directory: Path) -> None:
    from parties.distaim.report import write_lead_report

    write_lead_report(config, directory)
