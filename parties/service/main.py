"""Process of `syncret serve`: lock of its folder, database, ports and the operator's socket.

All values here are public.
"""

import asyncio
import contextlib
import fcntl
import gc
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp import web
from sqlalchemy.engine import URL

from parties.config import Address
from parties.foundation.errors import OutsideKeyError, StoreError
from parties.foundation.report_limit import ReportLimit
from parties.observability.events import FieldValue, Progress
from parties.observability.systemd import watchdog
from parties.observability.traces import check_tracing
from parties.service import admin_listener
from parties.service.access import Access, Passes
from parties.service.admin_listener import (
    SOCKET_NAME,
    AdminListener,
    admin_runner,
    listen_unix,
    start_server,
)
from parties.service.api import service_application
from parties.service.database import open_service_database
from parties.service.events import EventName
from parties.service.expiry import check_valid
from parties.service.identity import ServiceIdentity
from parties.service.notify import notifying
from parties.service.operators_log import OperatorsLog
from parties.service.reload import LiveSettings, reloading
from parties.service.retention import retention_task
from parties.service.service import Service
from parties.service.settings import AdminSection, Settings
from parties.service.studies import StudyRepository
from parties.storage.files import disk_errors, open_private

_LINGER_S = 1.0
_KEY_WAIT_S, _KEY_PAUSE_S = 60.0, 2.0
"""Seconds that a start waits for a key that another program writes, and between two looks."""
_WORKER_THREADS = 6


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of a service: ``limit`` of studies at once, ``database``, and the release registry's path ``register``.

    ``mesh`` and ``ingest`` are addresses of this host to listen at, if they differ from the public ones.
    """

    database: URL
    limit: int
    register: Path
    mesh: Address | None = None
    ingest: Address | None = None


async def serve_studies(
    identity: ServiceIdentity, options: ServeOptions, progress: Progress
) -> None:
    """Runs the service of ``identity`` until it is cancelled; its studies stop with it and continue at its next start.

    Raises ConfigError, CertificateError, StoreError, ExtraMissing.
    """
    check_valid(identity)
    await _hold_key(identity, progress)
    asyncio.get_running_loop().set_default_executor(_thread_pool())
    folder, database = identity.folder, options.database
    where = Path(database.database or "") if database.get_backend_name() == "sqlite" else folder
    own = identity.own
    before = [former.key for former in identity.former if former.name == own.name]
    with _folder_lock(folder), open_service_database(database, own.key, before) as engine:
        service = Service(
            identity,
            StudyRepository(engine, where, OperatorsLog(identity)),
            limit=options.limit,
            register=options.register,
            listen=(options.mesh, options.ingest),
        )
        settings = LiveSettings(folder, service.events)
        service.traces = settings.current.traces.endpoint
        check_tracing(service.traces)
        async with (
            service,
            _admin_listening(service, folder, settings),
            retention_task(folder, settings, service.events),
            notifying(service, settings.current.notify),
            watchdog(),
        ):
            own = identity.own
            progress.event(
                "listening",
                f"{own.name} serves studies: servers at {options.mesh or own.mesh}, owners at "
                f"{options.ingest or own.ingest}; {len(service.studies)} known, {len(service.workers)} running",
            )
            # Objects that exist now stay; later collections handle only what studies leave.
            gc.collect()
            gc.freeze()
            await service.run()


async def _hold_key(identity: ServiceIdentity, progress: Progress) -> None:
    """Holds a key that lies outside, once what writes it has done so. Raises OutsideKeyError after a minute."""
    deadline = time.monotonic() + _KEY_WAIT_S
    while True:
        try:
            identity.hold_key()
            return
        except OutsideKeyError as error:
            if time.monotonic() > deadline:
                raise
            progress.event("waiting", f"waits for its key: {error}")
        await asyncio.sleep(_KEY_PAUSE_S)


def _thread_pool() -> ThreadPoolExecutor:
    """Returns the pool of worker threads, all started at once, so that their number does not depend on the load."""
    pool, here = ThreadPoolExecutor(_WORKER_THREADS, "service"), threading.Barrier(_WORKER_THREADS)
    try:
        for _ in range(_WORKER_THREADS):
            pool.submit(here.wait)
    except RuntimeError:
        here.abort()  # The system has no more threads: those that have started would wait for ever.
        raise
    return pool


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Locks the folder for this process. Raises StoreError if another process has the lock."""
    with disk_errors(folder, "opened"):
        lock = open_private(folder / "lock")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = "another `syncret serve` runs in this folder; expected one of its own for each"
            raise StoreError(folder, text) from error
        yield


@contextlib.asynccontextmanager
async def _admin_listening(
    service: Service, folder: Path, settings: LiveSettings
) -> AsyncIterator[None]:
    """Serves the operator's socket, and the HTTPS port of the settings, while the block runs."""
    path, passes = folder / SOCKET_NAME, Passes()
    service.four_eyes.required = settings.current.admin.four_eyes
    service.four_eyes.people = settings.current.admin.persons
    network = _ServiceNetwork(service, folder, passes)
    # The console sends its readers' requests by the socket, with passes of this process.
    app = service_application(service, Access(passes=passes), network.rejected)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_LINGER_S)
    await runner.setup()

    async def apply(found: Settings) -> None:
        await network.apply(found.admin)
        service.certificates.forget()

    try:
        await web.SockSite(runner, listen_unix(path)).start()
        await network.apply(settings.current.admin)
        async with reloading(settings, apply, ("admin", "keep")):
            yield
    finally:
        await network.close()
        await runner.cleanup()
        with contextlib.suppress(OSError):
            path.unlink()


class _ServiceNetwork:
    """API of ``service`` over HTTPS, with the console, as [admin] has it; a reload replaces all of it."""

    def __init__(self, service: Service, folder: Path, passes: Passes) -> None:
        self._passes = passes
        self._service = service
        self._folder = folder
        self._open = contextlib.AsyncExitStack()
        self._listening: AdminListener | None = None
        self._address: str | None = None
        self._reports = ReportLimit()

    async def apply(self, admin: AdminSection) -> None:
        """Listens as ``admin`` has it, or not at all. Raises ConfigError, CertificateError: nothing changes then."""
        bound = self._listening if admin.address == self._address else None
        found = admin_listener.admin_listeners(
            self._folder, admin, self.rejected, bound=None if bound is None else bound.socket
        )
        eyes, opened = self._service.four_eyes, contextlib.AsyncExitStack()
        former, people = eyes.required, eyes.people
        # While both listen, the stricter rule is the one of both.
        eyes.required, eyes.people = former or admin.four_eyes, people + admin.persons
        try:
            if found:
                opened = await self._started(admin, found[0])
        except BaseException:
            eyes.required, eyes.people = former, people
            raise
        await self.close()
        eyes.required, eyes.people = admin.four_eyes, admin.persons
        self._open, self._address = opened, admin.address
        self._listening = found[0] if found else None

    async def _started(
        self, admin: AdminSection, listening: AdminListener
    ) -> contextlib.AsyncExitStack:
        """Returns what ends the server that it has started; one that does not start leaves nothing open."""
        # Local import: templates take a while to import, and most services are used by their sockets.
        from parties.service.console.pages import add_console
        from parties.service.console.sign_in import admin_gate
        from parties.service.console.upstream import ServiceUpstream

        async with contextlib.AsyncExitStack() as opened:
            opened.callback(listening.socket.close)
            access = replace(admin.access(), passes=self._passes)
            app = service_application(self._service, access, self.rejected)
            gate = admin_gate(admin, self._folder, access, rejected=self.rejected)
            add_console(app, ServiceUpstream(self._folder), gate)
            runner = admin_runner(app)
            opened.push_async_callback(runner.cleanup)
            await runner.setup()
            server = await start_server(runner, listening)
            opened.callback(server.close)
            return opened.pop_all()

    def rejected(self, reason: str, text: str, **fields: FieldValue) -> None:
        """Reports a request or a connection that was refused, at a limited rate."""
        more = self._reports.admit()
        if more is None:
            return
        said = {"port": "admin", "reason": reason, **fields}
        if more:
            text, said["more"] = f"{text} (and {more} more before it)", more
        self._service.events.event(EventName.CONNECTION_REFUSED, text, **said)

    async def close(self) -> None:
        """Ends all connections."""
        self._listening = self._address = None
        await self._open.aclose()
