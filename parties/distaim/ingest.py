"""The ingest API of one compute server: HTTPS over mutual TLS, where data owners leave their submissions.

    GET /v1/runs/{run}              the run's public parameters, as JSON
    PUT /v1/runs/{run}/submission   one server's body of a submission; its fields are headers (see `submission`)

PUT answers 201 (stored), 200 (exactly this one was stored already) or an error; every error's body is JSON:
{"error": {"what", "where", "expected"}}. 400 malformed, 403 not a data owner or no room, 404 other run, 408 too slow,
409 another submission of this client is stored, 410 the run has ended, 411 and 413 length missing or too large, 422
does not fit the run, 507 the store cannot take it. Headers are judged before the body is read (Expect: 100-continue),
the length has to be exactly right, and nothing is stored unless the whole body has its digest.

Client identity: the common name of its certificate, and nothing it says. Secret: bodies; they go to the store and to no
log. Known limits: connections are bounded in time, not in number, once a client's certificate was accepted.
"""

import asyncio
import errno
import functools
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from parties.config import CertificateFiles, Config
from parties.distaim.inputs import InputForm, input_forms
from parties.distaim.store import Incoming, Store
from parties.distaim.stored import answer_to
from parties.distaim.submission import BODY_HEADER, RING_BITS, FieldError, Submission
from parties.errors import (
    CertificateError,
    ConfigError,
    IngestError,
    RunClosed,
    RunFull,
    StoreError,
    SubmissionConflict,
)
from parties.tls import peer_name, server_context

logger = logging.getLogger("syncret.ingest")

HANDSHAKE_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 10.0
"""How long a connection may stay open without a whole request header, before its first request and between two."""
LINGER_S = 2.0
"""How long a refused body is still read, so that the answer gets through, and how long closing waits for requests."""
_CHUNK = 1 << 16
_RECEIVED = web.RequestKey("received_bytes", int)


@dataclass(frozen=True, slots=True)
class _Api:
    """The two resources of one server, and what they judge submissions by."""

    store: Store
    config: Config
    pid: int
    digest: str
    workload: str
    cells: int
    forms: Mapping[str, InputForm]

    @property
    def party(self) -> str:
        return self.config.require_parties()[self.pid].name

    def client(self, request: web.Request) -> str:
        """Who asks, by certificate. Raises IngestError (403) for anyone but a data owner."""
        expected = "a data owner's certificate of the run's authority"
        connection = request.transport and request.transport.get_extra_info("ssl_object")
        try:
            if not isinstance(connection, ssl.SSLObject):
                raise CertificateError("the connection is not TLS")
            name = peer_name(connection)
        except CertificateError as error:
            raise IngestError(
                403, str(error), where="client certificate", expected=expected
            ) from error
        if name in [party.name for party in self.config.require_parties()]:
            what = f"{name!r} is a compute server of this run"
            raise IngestError(403, what, where="client certificate", expected=expected)
        return name

    def check_run(self, request: web.Request) -> None:
        """Raises IngestError (404) where the path names another run."""
        run = request.match_info["run"]
        if run != self.config.run.id:
            raise IngestError(
                404,
                f"no run {run[:80]!r} at {self.party}",
                where="path",
                expected=f"/v1/runs/{self.config.run.id}",
            )

    def check_fit(self, submission: Submission) -> None:
        """Raises IngestError (422) where the submission is one of another workload, ring, form or number of rounds."""
        for field, value, right in (
            ("Syncret-Workload", submission.workload, [self.workload]),
            ("Syncret-Cells", submission.cells, [self.cells]),
            ("Syncret-Ring", submission.ring, [RING_BITS]),
            ("Syncret-Form", submission.form, list(self.forms)),
        ):
            if value not in right:
                raise IngestError(
                    422,
                    f"does not fit run {submission.run!r}: {value}",
                    where=f"header {field}",
                    expected=f"{' or '.join(map(str, right))}, by the config that the servers run",
                )
        if submission.first_round > self.config.run.rounds:
            raise IngestError(
                422,
                f"round {submission.first_round} does not exist",
                where="header Syncret-Round",
                expected=f"1 to {self.config.run.rounds}",
            )
        if submission.config != self.digest:
            # Another epsilon, say: the owner did not agree to what this run does with its rows.
            raise IngestError(
                422,
                f"made with another configuration ({submission.config[:12]})",
                where="header Syncret-Config",
                expected=f"{self.digest[:12]}: the same config at the servers and at every data owner",
            )

    def check_length(self, request: web.Request, size: int) -> None:
        """Raises IngestError (411, 413, 400) unless the body is announced with exactly ``size`` bytes."""
        length, expected = request.content_length, f"exactly {size} bytes"
        if length is None:
            raise IngestError(411, "no length", where="header Content-Length", expected=expected)
        if length != size:
            status = 413 if length > size else 400
            what = f"a body of {length} bytes"
            raise IngestError(status, what, where="header Content-Length", expected=expected)

    def judge(self, request: web.Request) -> tuple[Submission, bool]:
        """The submission by its headers alone, and whether it is stored already. Raises IngestError, StoreError."""
        client = self.client(request)
        self.check_run(request)
        try:
            submission = Submission.from_headers(self.config.run.id, client, request.headers)
        except FieldError as error:
            raise IngestError(
                400, "missing or malformed", where=f"header {error.name}", expected=error.expected
            ) from error
        self.check_fit(submission)
        capacity = self.config.clients.rows_per_client
        size = self.forms[submission.form].body_size(self.pid, capacity)
        self.check_length(request, size)
        digest = request.headers[BODY_HEADER]
        limit = self.config.clients.expected
        return submission, self.store.check_submission(submission, digest, limit)

    async def expect(self, request: web.Request) -> web.StreamResponse | None:
        """Before the client sends its body: refuse by the headers, or answer 100 and go on."""
        try:
            _, stored = self.judge(request)
        except (IngestError, StoreError) as error:
            return _refusal(error)
        if stored:
            return None
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
        return None

    async def put(self, request: web.Request) -> web.Response:
        """Store one server's body of a submission: 201, or 200 where exactly this one is stored."""
        submission, stored = self.judge(request)
        if not stored:
            with self.store.incoming() as incoming:
                await self.receive(request, incoming)
                stored = not await asyncio.to_thread(self.keep, submission, incoming)
        return web.json_response(
            {
                "run": submission.run,
                "party": self.party,
                "pid": self.pid,
                "client": submission.client,
                "digest": submission.digest(),
                "first_round": submission.first_round,
                "status": "already stored" if stored else "stored",
                "received_bytes": request.get(_RECEIVED, 0),
            },
            status=200 if stored else 201,
        )

    async def receive(self, request: web.Request, incoming: Incoming) -> None:
        """Read the body into ``incoming``. Raises IngestError where it is slow or has another digest."""
        limit_s = self.config.timeouts.submit_s
        try:
            async with asyncio.timeout(limit_s):
                async for chunk in request.content.iter_chunked(_CHUNK):
                    incoming.write(chunk)
                    request[_RECEIVED] = incoming.size
        except TimeoutError as error:
            raise IngestError(
                408,
                f"{incoming.size} of {request.content_length} bytes came in {limit_s:g} s",
                where="body",
                expected="the whole body within that time",
            ) from error
        if incoming.digest() != request.headers[BODY_HEADER]:
            raise IngestError(
                400,
                "its SHA-256 is not the one announced",
                where="body",
                expected=f"the bytes that header {BODY_HEADER} describes",
            )

    def keep(self, submission: Submission, incoming: Incoming) -> bool:
        """Store a whole body, durably; False where another request did so meanwhile. Blocks."""
        body = incoming.read()
        digests = self.forms[submission.form].component_digests(self.pid, body)
        own, next_ = (digest.hex() for digest in digests)
        limit = self.config.clients.expected
        return self.store.accept(submission, incoming, (own, next_), limit=limit)

    async def get(self, request: web.Request) -> web.Response:
        """The run's public parameters; of the client that asks the digest of what is stored, and what became of it."""
        client = self.client(request)
        self.check_run(request)
        config = self.config
        return web.json_response(
            {
                "run": config.run.id,
                "party": self.party,
                "pid": self.pid,
                "config": config.digest(),
                "workload": self.workload,
                "cells": self.cells,
                "ring": RING_BITS,
                "form": config.run.upload,
                "rounds": config.run.rounds,
                "participation": config.clients.participation,
                "open": not self.store.closed_to_clients,
                "submission": self.store.submission_digest(client),
                **answer_to(self.store.standing(client), closed=self.store.closed_to_clients),
            }
        )

    @web.middleware
    async def answer(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Errors as JSON; bytes counted by client."""
        try:
            response = await handler(request)
        except (IngestError, StoreError) as error:
            response = _refusal(error)
        except web.HTTPException as error:
            expected = (
                f"GET /v1/runs/{self.config.run.id} or PUT /v1/runs/{self.config.run.id}/submission"
            )
            where = f"{request.method} {request.path[:80]}"
            response = _refusal(
                IngestError(error.status, error.reason, where=where, expected=expected)
            )
        await self.count(request, response)
        return response

    async def count(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the request's bytes to its client's, if it is one. A full disk does not fail the request for that."""
        sent = (
            len(response.body)
            if isinstance(response, web.Response) and isinstance(response.body, bytes)
            else 0
        )
        try:
            client = self.client(request)
            received = request.get(_RECEIVED, 0)
            await asyncio.to_thread(self.store.add_traffic, client, received=received, sent=sent)
        except (IngestError, StoreError) as error:
            logger.warning("bytes not counted: %s", error)


def _refusal(error: IngestError | StoreError) -> web.Response:
    """An error as the client sees it; a store's folder is nothing to tell a client about."""
    if isinstance(error, StoreError):
        status, expected = {
            SubmissionConflict: (409, "the same submission again; the first one stands"),
            RunClosed: (410, "a submission before the run's last round"),
            RunFull: (403, "a run that expects more data owners"),
        }.get(type(error), (507, "try again later, or tell the server's operator"))
        what = error.message if status != 507 else "the server cannot store submissions at present"
        log = logger.error if status == 507 else logger.info
        log("refused with %d: %s", status, error)
        error = IngestError(status, what, where="store", expected=expected)
    else:
        logger.info("refused with %d: %s", error.status, error)
    response = web.json_response(
        {"error": {"what": error.what, "where": error.where, "expected": error.expected}},
        status=error.status,
    )
    response.force_close()
    return response


class _Connection(web.RequestHandler):
    """aiohttp's connection with errors below the application (no HTTP, a bug of ours) in the same JSON form.

    It is none of aiohttp's while its TLS handshake lasts: one that is over only after ``closed`` ends at once.
    """

    def __init__(
        self,
        manager: web.Server,
        closed: asyncio.Event,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(
            manager, loop=loop, keepalive_timeout=IDLE_TIMEOUT_S, lingering_time=LINGER_S
        )
        self._closed = closed

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
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.error("a request failed", exc_info=exc)
            what, expected = "the server failed", "nothing else; tell the server's operator"
        else:
            what, expected = "this is not an HTTP request", "HTTP/1.1 as in the API's description"
        return _refusal(IngestError(status, what, where="request", expected=expected))


class Ingest:
    """A listening ingest API; ``close`` ends it and its connections."""

    def __init__(
        self, runner: web.AppRunner, server: asyncio.Server, closed: asyncio.Event
    ) -> None:
        self._runner = runner
        self._server = server
        self._closed = closed

    async def close(self) -> None:
        """Stop listening and drop the connections that are left; requests under way get a moment to finish."""
        self._server.close()
        self._closed.set()
        await self._runner.cleanup()
        await self._server.wait_closed()


def create_app(store: Store, config: Config, pid: int) -> web.Application:
    """The HTTP application of server ``pid``. Raises ConfigError where the config has no parties or no workload."""
    config.require_parties()
    workload = config.build_workload()
    api = _Api(
        store,
        config,
        pid,
        config.digest(),
        workload.digest(),
        workload.maximal_cells,
        input_forms(config, workload),
    )
    app = web.Application(middlewares=[api.answer])
    app.router.add_get("/v1/runs/{run}", api.get)
    app.router.add_put("/v1/runs/{run}/submission", api.put, expect_handler=api.expect)
    return app


async def start_ingest(store: Store, config: Config, pid: int, files: CertificateFiles) -> Ingest:
    """Listen on server ``pid``'s ingest address.

    Raises ConfigError where the address cannot be listened on, CertificateError where ``files`` cannot be used.
    """
    address = config.require_parties()[pid].ingest
    context = server_context(files)
    runner = web.AppRunner(create_app(store, config, pid), shutdown_timeout=LINGER_S)
    await runner.setup()
    manager, loop = runner.server, asyncio.get_running_loop()
    if manager is None:
        raise RuntimeError("the HTTP server was not set up")

    closed = asyncio.Event()
    try:
        server = await loop.create_server(
            functools.partial(_Connection, manager, closed, loop=loop),
            address.host,
            address.port,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
        )
    except OSError as error:
        await runner.cleanup()
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else str(error)
        raise ConfigError(
            config.source,
            f"party.ingest of {config.require_parties()[pid].name}",
            f"cannot listen on {address}: {reason}; expected a free port of this host",
        ) from error
    return Ingest(runner, server, closed)
