"""A server's work with its operator looking on: its admin API answers while it runs, and its board knows the end.

Provides ``shown`` and ``orders_of``. Public: everything.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

from aiohttp import web

from parties.foundation.exit_codes import describe
from parties.observability.status import Board, Phase
from parties.observability.traces import traced
from parties.service import admin_listener
from parties.service.admin_listener import NAME, Listening, answering, listen
from parties.service.run_api import Orders, application
from parties.service.settings import Settings, load_settings
from parties.session.operator_commands import Orders as Asking

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
    """While the block runs, the server in ``folder`` answers at its admin socket, and where its settings say, by HTTPS.

    Raises StoreError where another process answers there, or the folder is not writable; ConfigError, CertificateError,
    ExtraMissing where the settings cannot be used.
    """
    settings = load_settings(folder)
    made = partial(_application, board, folder, orders, settings)
    async with contextlib.AsyncExitStack() as stack:
        listening = [_at(folder / NAME, stack)]
        listening += admin_listener.listening(folder, settings.admin, board.rejected)
        stack.enter_context(answering(made, listening))
        stack.enter_context(traced(board, settings.traces.endpoint))
        beating = asyncio.create_task(_beat(board))
        stack.callback(beating.cancel)
        with _ending(board):
            yield


@contextlib.contextmanager
def _ending(board: Board) -> Iterator[None]:
    """What ends the block early is on the board."""
    try:
        yield
    except asyncio.CancelledError:
        board.enter(Phase.STOPPED)
        raise
    except Exception as error:
        board.event("failed", describe(error).message)
        raise


def _application(board: Board, folder: Path, orders: Orders, settings: Settings) -> web.Application:
    """The admin API; where it is on the network, with the console."""
    app = application(board, orders, settings.admin.fingerprints, settings.admin.reading)
    if settings.admin.address is not None:
        # Templates take a while to import, and most servers are looked at by their sockets.
        from parties.service.console.gate import Gate
        from parties.service.console.pages import add_console
        from parties.service.console.upstream import Party

        add_console(app, Party(folder), Gate())
    return app


def _at(path: Path, stack: contextlib.AsyncExitStack) -> Listening:
    """The admin socket, which is gone when the ``stack`` ends."""
    raw = listen(path)
    stack.callback(path.unlink, missing_ok=True)
    stack.callback(raw.close)
    return Listening(raw)


async def _beat(board: Board) -> None:
    while True:
        board.beat()
        await asyncio.sleep(_BEAT_S)
