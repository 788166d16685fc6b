"""Listening ingest API: its connections, its start and its end.

Secret: the loaded sealing key. Public: everything else.
"""

import asyncio
import errno
import functools
import logging
import ssl
from http import HTTPStatus

from aiohttp import web

from parties.config import CertificateFiles, Config
from parties.crypto.hpke import SealKey
from parties.foundation.errors import ConfigError, IngestError
from parties.identity.tls import check_seal, handshake_text, server_context
from parties.mpc.intake.forwarder import Forwarder, ForwarderContext
from parties.mpc.intake.http import (
    IngestApi,
    OnStorageFailure,
    ignore_storage_failure,
    refusal_response,
)
from parties.mpc.intake.validation import RequestValidator
from parties.mpc.storage.store import Store
from parties.mpc.submission.sealed_upload import ReceiptSigner
from parties.network.port_sharing import PassedSocketServer, SharedPorts
from parties.network.remote_address import ListeningServers, remote_address, serve_tls
from parties.observability.events import OnRejection, Rejection, ignore_rejection
from parties.session.enrollment import Enrollment
from parties.session.operator_commands import OperatorCommands
from parties.session.study import Study
from parties.storage.release_registry import ReleaseRegistry

logger = logging.getLogger("syncret.ingest")

HANDSHAKE_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 10.0
"""Maximum time in seconds without a whole request header, before a connection's first request and between two."""
LINGER_S = 2.0
"""Maximum time in seconds for reading a refused body, so that the answer gets through, and for requests at closing."""


class _IngestConnection(web.RequestHandler):
    """aiohttp's connection, with errors below the application (no HTTP, a bug of ours) in the same JSON form.

    aiohttp does not know the connection during its TLS handshake: a connection whose handshake ends after ``closed`` is
    aborted at once.
    """

    def __init__(
        self,
        manager: web.Server,
        closed: asyncio.Event,
        *,
        rejected: OnRejection,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=IDLE_TIMEOUT_S,
            lingering_time=LINGER_S,
            # A compressed body would be larger than the validated length: 4 KB can stand for 4 MB.
            auto_decompress=False,
        )
        self._closed = closed
        self._rejected = rejected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        if self._closed.is_set() and isinstance(transport, asyncio.Transport):
            transport.abort()
            return
        super().connection_made(transport)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The refusal for ``exc``."""
        if request.writer.output_size > 0:
            raise ConnectionError("a response is on its way already")
        if isinstance(exc, ConnectionError):
            # A client that hung up in the middle of a request is no failure of this server, and gets no answer.
            status, what, expected = 400, "the request is not whole", "all of it"
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.error("a request failed", exc_info=exc)
            what, expected = "the server failed", "nothing else; tell the server's operator"
        else:
            what, expected = "this is not an HTTP request", "HTTP/1.1 as in the API's description"
            remote = request.remote
            self._rejected(Rejection.MALFORMED, f"{remote}: no HTTP", remote=remote, status=status)
        return refusal_response(IngestError(status, what, where="request", expected=expected))


class IngestServer:
    """A listening ingest API with its forwarder; ``close`` ends both and all connections."""

    def __init__(
        self,
        runner: web.AppRunner,
        server: ListeningServers | PassedSocketServer,
        forwarder: Forwarder,
        closed: asyncio.Event,
    ) -> None:
        self._runner = runner
        self._server = server
        self._forwarder = forwarder
        self._closed = closed

    def retry_forwarding(self) -> None:
        """Tries the parts that wait for the other servers again now."""
        self._forwarder.retry_now()

    async def close(self) -> None:
        """Stops listening and drops the remaining connections; current requests get ``LINGER_S`` seconds to finish."""
        await self._accept_no_more()
        self._server.close()
        self._closed.set()
        await self._runner.cleanup()
        await self._forwarder.close()
        await self._server.wait_closed()

    async def _accept_no_more(self) -> None:
        """Stops accepting connections before the server is closed.

        asyncio would lose the socket of a connection that it is accepting at that moment.
        """
        loop = asyncio.get_running_loop()
        for listening in self._server.sockets:
            loop.remove_reader(listening.fileno())
        for _ in range(3):
            await asyncio.sleep(0)


async def start_ingest(
    store: Store,
    study: Study,
    pid: int,
    files: CertificateFiles,
    *,
    commands: OperatorCommands | None = None,
    ports: SharedPorts | None = None,
    rejected: OnRejection = ignore_rejection,
    on_lack: OnStorageFailure = ignore_storage_failure,
    registry: ReleaseRegistry | None = None,
) -> IngestServer:
    """Listens on server ``pid``'s ingest address, or at its ``ports``, and forwards parts left by an earlier process.

    ``commands`` are the operator's commands. ``rejected`` is called for every refused request, ``on_lack`` for failures
    of the host's storage; ``registry`` has what owners may ask about. Raises ConfigError if the address cannot be
    listened on, CertificateError if ``files`` cannot be used.
    """
    context = server_context(files, functools.partial(_handshake_failed, rejected))
    config = study.config
    validator, seal = RequestValidator.of(study, pid, files), _seal_key(config, pid, files)
    forwarder = Forwarder(
        ForwarderContext(config, store, validator.sizes, validator.largest), pid, files
    )
    enrollment = Enrollment.of(config, commands or OperatorCommands(), store)
    receipts = ReceiptSigner.load(validator.party, files)
    api = IngestApi(
        validator, store, seal, receipts, forwarder, enrollment, rejected, on_lack, registry
    )
    runner = web.AppRunner(api.application(), shutdown_timeout=LINGER_S)
    await runner.setup()
    manager, loop = runner.server, asyncio.get_running_loop()
    if manager is None:
        raise RuntimeError("the HTTP server was not set up")

    closed = asyncio.Event()
    factory = functools.partial(_IngestConnection, manager, closed, rejected=rejected, loop=loop)
    if ports is not None:
        forwarder.start()
        handed = PassedSocketServer(ports.ingest(), factory, context, HANDSHAKE_TIMEOUT_S)
        return IngestServer(runner, handed, forwarder, closed)
    try:
        ingest = config.require_parties()[pid].ingest
        server = await serve_tls(factory, ingest, context, handshake_s=HANDSHAKE_TIMEOUT_S)
    except OSError as error:
        await runner.cleanup()
        address = config.require_parties()[pid].ingest
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else str(error)
        raise ConfigError(
            config.source,
            f"party.ingest of {config.require_parties()[pid].name}",
            f"cannot listen on {address}: {reason}; expected a free port of this host",
        ) from error
    forwarder.start()
    return IngestServer(runner, server, forwarder, closed)


def _handshake_failed(rejected: OnRejection, error: ssl.SSLError) -> None:
    remote = remote_address()
    rejected(Rejection.TLS, f"ingest: {handshake_text(error, remote)}", remote=remote)


def _seal_key(config: Config, pid: int, files: CertificateFiles) -> SealKey:
    """The server's sealing key. Raises CertificateError if it is unusable, or not the key that participants seal to."""
    party = config.require_parties()[pid]
    check_seal(files, party.seal_to, f"party {pid}")
    return SealKey.load(files.seal)
