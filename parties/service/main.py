"""Process of `syncret serve`: lock of its folder, database, ports and the operator's socket.

All values here are public.
"""

import asyncio
import contextlib
import fcntl
import gc
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from sqlalchemy.engine import URL

from parties.config import Address
from parties.foundation.errors import StoreError
from parties.observability.events import FieldValue, Progress
from parties.observability.systemd import watchdog
from parties.service import admin_listener
from parties.service.admin_listener import SOCKET_NAME, AdminListener, listen_unix
from parties.service.api import service_application
from parties.service.database import open_service_database
from parties.service.expiry import check_valid
from parties.service.identity import ServiceIdentity
from parties.service.reload import LiveSettings, reloading
from parties.service.retention import retention_task
from parties.service.service import Service
from parties.service.settings import AdminSection, Settings
from parties.service.studies import StudyRepository
from parties.storage.files import disk_errors, open_private

logger = logging.getLogger("syncret.service")

_LINGER_S = 1.0
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

    Raises ConfigError, CertificateError, StoreError.
    """
    check_valid(identity)
    asyncio.get_running_loop().set_default_executor(_thread_pool())
    folder, database = identity.folder, options.database
    where = Path(database.database or "") if database.get_backend_name() == "sqlite" else folder
    own = identity.own
    before = [former.key for former in identity.former if former.name == own.name]
    with _folder_lock(folder), open_service_database(database, own.key, before) as engine:
        service = Service(
            identity,
            StudyRepository(engine, where),
            limit=options.limit,
            register=options.register,
            listen=(options.mesh, options.ingest),
        )
        settings = LiveSettings(folder)
        async with (
            service,
            _admin_listening(service, folder, settings),
            retention_task(folder, settings),
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


def _rejected(reason: str, text: str, **fields: FieldValue) -> None:
    logger.warning("%s: %s", reason, text)


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
    path, network = folder / SOCKET_NAME, _ServiceNetwork(service, folder)
    runner = web.AppRunner(
        service_application(service), access_log=None, shutdown_timeout=_LINGER_S
    )
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

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self._runner: web.AppRunner | None = None
        self._listening: AdminListener | None = None
        self._address: str | None = None

    async def apply(self, admin: AdminSection) -> None:
        """Listens as ``admin`` has it, or not at all. Raises ConfigError, CertificateError: nothing changes then."""
        bound = self._listening if admin.address == self._address else None
        found = admin_listener.admin_listeners(
            self._folder, admin, _rejected, bound=None if bound is None else bound.socket
        )
        runner = await self._started(admin, found[0]) if found else None
        await self.close()
        self._runner, self._address = runner, admin.address
        self._listening = found[0] if found else None

    async def _started(self, admin: AdminSection, listening: AdminListener) -> web.AppRunner:
        # Local import: templates take a while to import, and most services are used by their sockets.
        from parties.service.console.gate import Gate
        from parties.service.console.pages import add_console
        from parties.service.console.upstream import ServiceUpstream

        app = service_application(
            self._service, admin.fingerprints, _rejected, readers=admin.reading
        )
        add_console(app, ServiceUpstream(self._folder), Gate())
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_LINGER_S)
        await runner.setup()
        await web.SockSite(runner, listening.socket, ssl_context=listening.context).start()
        return runner

    async def close(self) -> None:
        """Ends all connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = self._listening = self._address = None
