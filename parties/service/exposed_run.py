"""Run of a server with its admin API: requests are answered during the run, and the run status records the end.

All values here are public.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from aiohttp import web

from parties.config import CertificateFiles
from parties.foundation.exit_codes import describe
from parties.observability.events import Event, StepTracer
from parties.observability.status import Phase, RunStatus
from parties.observability.traces import trace_steps
from parties.service import admin_listener
from parties.service.access import Access, Passes
from parties.service.admin_listener import SOCKET_NAME, AdminListener, admin_thread, listen_unix
from parties.service.events import service_events
from parties.service.expiry import CertificateWatch, admin_certificates, run_certificates
from parties.service.reload import LiveSettings, reloading
from parties.service.run_api import CommandHandlers, run_application
from parties.service.settings import AdminSection, Settings
from parties.session.operator_commands import OperatorCommands as Asking

_HEARTBEAT_S = 1.0


def command_handlers(cancel: Callable[[], object], asked: Asking) -> CommandHandlers:
    """Returns the operator's commands: ``cancel`` acts at once, the others when all servers of the run agree."""
    return CommandHandlers(
        close=partial(asked.ask, close=True),
        finish=partial(asked.ask, finish=True),
        cancel=cancel,
        revoke=lambda owner: asked.ask(revoke=[owner]),
    )


@contextlib.asynccontextmanager
async def with_admin_api(
    board: RunStatus,
    folder: Path,
    orders: CommandHandlers,
    *,
    tls: CertificateFiles | None = None,
    traces: str | None = None,
) -> AsyncIterator[StepTracer]:
    """Serves the admin API of ``folder`` while the block runs: at the admin socket and, by its settings, over HTTPS.

    Yields the tracer of the run's steps, which is for the bus of its events; it sends them to ``traces``, which is of
    the service's settings, or where the folder's own settings say. The status has the ends of the
    certificates of ``tls``, and of the admin API.

    Raises StoreError if another process answers there, or the folder is not writable; ConfigError, CertificateError,
    ExtraMissing if the settings cannot be used.
    """
    events = service_events()
    settings = LiveSettings(folder, events)
    watch = CertificateWatch(
        lambda: [*run_certificates(tls), *admin_certificates(folder, settings.current.admin)],
        events,
    )
    board.sources.certificates = lambda: [end.to_dict() for end in watch.all()]
    passes = Passes()
    network = _RunNetwork(board, folder, orders, passes)

    async def apply(found: Settings) -> None:
        await asyncio.to_thread(network.apply, found.admin)
        watch.forget()

    async with contextlib.AsyncExitStack() as stack:
        listening = [_admin_socket(folder / SOCKET_NAME, stack)]
        stack.callback(network.close)
        # The port is opened before anybody hears that the server answers.
        network.apply(settings.current.admin)
        # The console sends its readers' requests by the socket, with passes of this process.
        local = partial(run_application, board, orders, Access(passes=passes))
        stack.enter_context(admin_thread(local, listening))
        tracer = stack.enter_context(trace_steps(board, traces or settings.current.traces.endpoint))
        beating = asyncio.create_task(_heartbeat(board))
        stack.callback(beating.cancel)
        await stack.enter_async_context(reloading(settings, apply, ("admin", "keep")))
        with _recording_end(board):
            yield tracer


class _RunNetwork:
    """API of a server over HTTPS, with the console, as [admin] has it; a reload replaces all of it."""

    def __init__(
        self, board: RunStatus, folder: Path, orders: CommandHandlers, passes: Passes
    ) -> None:
        self._passes = passes
        self._board = board
        self._folder = folder
        self._orders = orders
        self._open = contextlib.ExitStack()
        self._listening: AdminListener | None = None
        self._address: str | None = None

    def apply(self, admin: AdminSection) -> None:
        """Listens as ``admin`` has it, or not at all. Raises ConfigError, CertificateError: nothing changes then."""
        bound = self._listening if admin.address == self._address else None
        found = admin_listener.admin_listeners(
            self._folder, admin, self._board.rejected, bound=None if bound is None else bound.socket
        )
        opened = contextlib.ExitStack()
        if found:
            access = replace(admin.access(), passes=self._passes)
            made = partial(
                _application, self._board, self._folder, self._orders, admin=admin, access=access
            )
            opened.enter_context(admin_thread(made, found))
        self.close()
        self._open, self._address = opened, admin.address
        self._listening = found[0] if found else None

    def close(self) -> None:
        """Ends all connections."""
        self._open.close()


@contextlib.contextmanager
def _recording_end(board: RunStatus) -> Iterator[None]:
    """Records an early end of the block in the run status."""
    try:
        yield
    except asyncio.CancelledError:
        board.enter(Phase.STOPPED)
        raise
    except Exception as error:
        board.take(Event("failed", describe(error).message))
        raise


def _application(
    board: RunStatus,
    folder: Path,
    orders: CommandHandlers,
    *,
    admin: AdminSection,
    access: Access,
) -> web.Application:
    """Returns the admin API with the console, for the network."""
    # Local import: templates take a while to import, and most servers are used by their sockets.
    from parties.service.console.pages import add_console
    from parties.service.console.sign_in import admin_gate
    from parties.service.console.upstream import RunUpstream

    app = run_application(board, orders, access)
    gate = admin_gate(admin, folder, access, rejected=board.rejected)
    add_console(app, RunUpstream(folder), gate)
    return app


def _admin_socket(path: Path, stack: contextlib.AsyncExitStack) -> AdminListener:
    """Returns the admin socket, which is removed when the ``stack`` ends."""
    raw = listen_unix(path)
    stack.callback(path.unlink, missing_ok=True)
    stack.callback(raw.close)
    return AdminListener(raw)


async def _heartbeat(board: RunStatus) -> None:
    while True:
        board.heartbeat()
        await asyncio.sleep(_HEARTBEAT_S)
