"""A server's work with its operator looking on: its admin API answers while it runs, and its board knows the end.

Provides ``with_admin_api`` and ``command_handlers``. Public: everything.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

from aiohttp import web

from parties.foundation.exit_codes import describe
from parties.observability.status import Phase, RunStatus
from parties.observability.traces import trace_steps
from parties.service import admin_listener
from parties.service.admin_listener import SOCKET_NAME, AdminListener, admin_thread, listen_unix
from parties.service.run_api import CommandHandlers, run_application
from parties.service.settings import Settings, load_settings
from parties.session.operator_commands import OperatorCommands as Asking

_HEARTBEAT_S = 1.0


def command_handlers(cancel: Callable[[], object], asked: Asking) -> CommandHandlers:
    """What a server can be told: ``cancel`` at once, and what is ``asked`` when the run's servers agree on it."""
    return CommandHandlers(
        close=partial(asked.ask, close=True),
        finish=partial(asked.ask, finish=True),
        cancel=cancel,
        revoke=lambda owner: asked.ask(revoke=[owner]),
    )


@contextlib.asynccontextmanager
async def with_admin_api(
    board: RunStatus, folder: Path, orders: CommandHandlers
) -> AsyncIterator[None]:
    """While the block runs, the server in ``folder`` answers at its admin socket, and where its settings say, by HTTPS.

    Raises StoreError where another process answers there, or the folder is not writable; ConfigError, CertificateError,
    ExtraMissing where the settings cannot be used.
    """
    settings = load_settings(folder)
    made = partial(_application, board, folder, orders, settings)
    async with contextlib.AsyncExitStack() as stack:
        listening = [_admin_socket(folder / SOCKET_NAME, stack)]
        listening += admin_listener.admin_listeners(folder, settings.admin, board.rejected)
        stack.enter_context(admin_thread(made, listening))
        stack.enter_context(trace_steps(board, settings.traces.endpoint))
        beating = asyncio.create_task(_heartbeat(board))
        stack.callback(beating.cancel)
        with _recording_end(board):
            yield


@contextlib.contextmanager
def _recording_end(board: RunStatus) -> Iterator[None]:
    """What ends the block early is on the board."""
    try:
        yield
    except asyncio.CancelledError:
        board.enter(Phase.STOPPED)
        raise
    except Exception as error:
        board.event("failed", describe(error).message)
        raise


def _application(
    board: RunStatus, folder: Path, orders: CommandHandlers, settings: Settings
) -> web.Application:
    """The admin API; where it is on the network, with the console."""
    app = run_application(board, orders, settings.admin.fingerprints, settings.admin.reading)
    if settings.admin.address is not None:
        # Templates take a while to import, and most servers are looked at by their sockets.
        from parties.service.console.gate import Gate
        from parties.service.console.pages import add_console
        from parties.service.console.upstream import RunUpstream

        add_console(app, RunUpstream(folder), Gate())
    return app


def _admin_socket(path: Path, stack: contextlib.AsyncExitStack) -> AdminListener:
    """The admin socket, which is gone when the ``stack`` ends."""
    raw = listen_unix(path)
    stack.callback(path.unlink, missing_ok=True)
    stack.callback(raw.close)
    return AdminListener(raw)


async def _heartbeat(board: RunStatus) -> None:
    while True:
        board.heartbeat()
        await asyncio.sleep(_HEARTBEAT_S)
