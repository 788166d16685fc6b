"""Admin API of one running server, as an aiohttp application: its status, and commands of its operator.

``_routes`` has them, below /v1 but for /metrics, /healthz and /readyz (`parties.service.routes`).
Other modules add routes to ``run_application``. Errors are JSON: {"error": {"what", "expected"}}. The layer below
authorizes the clients: by the folder of the socket (`parties.service.admin_listener`), or by TLS and [admin]; each has
a role (`parties.service.access`). Requests that a browser sends for a page of another site are refused. No secret value
is shown.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from parties.config import NAME_PATTERN
from parties.foundation.errors import StoreError
from parties.observability.status import ACCEPTING_PHASES, END_PHASES, RunStatus
from parties.service import api_forms as forms
from parties.service.access import READ_METHODS, Access, authorization
from parties.service.http_answers import error_response, event_stream, json_answer, send_event
from parties.service.process_info import process_dict
from parties.service.routes import BODY, OPENAPI, ApiRoute, Text, add_routes, openapi_document
from parties.service.status_client import API

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger("syncret.admin")

HUNG_AFTER_S = 120.0
"""Maximum time between heartbeats of the computation's event loop before the server counts as hung, in seconds."""
_BODY_BYTES = 1 << 16
_PAUSE_S = 0.25
"""Minimum interval between two events, in seconds."""
_KEEP_ALIVE_S = 15.0
_MAX_LISTENERS = 64
CLOSING: web.AppKey[asyncio.Event] = web.AppKey("closing", asyncio.Event)
TITLE = "Syncret: the server of one study"
METRICS = Text("text/plain", "Metrics in Prometheus's format, or OpenMetrics where it is accepted")
RUN_EVENTS = Text("text/event-stream", "Events `status`: a RunStatusDocument without owners.list")


@dataclass(frozen=True, slots=True)
class CommandHandlers:
    """Commands of the operator, called from the API's thread; None for a command that the server does not support."""

    close: Callable[[], object] | None = None
    finish: Callable[[], object] | None = None
    cancel: Callable[[], object] | None = None
    revoke: Callable[[str], object] | None = None

    @property
    def known(self) -> tuple[str, ...]:
        """Names of the supported commands."""
        names = ("close", "finish", "revoke", "cancel")
        return tuple(name for name in names if getattr(self, name))


def run_application(
    board: RunStatus,
    orders: CommandHandlers,
    access: Access | None = None,
) -> web.Application:
    """Returns the API of the server with run status ``board``; without ``access`` it is for the folder's users."""
    middlewares = [
        json_errors,
        authorization(access or Access(), board.rejected),
        same_site_only,
    ]
    app = web.Application(middlewares=middlewares, client_max_size=_BODY_BYTES)
    app[CLOSING] = asyncio.Event()
    app.on_shutdown.append(_close)
    add_routes(app, _routes(_RunHandlers(board, orders)), title=TITLE)
    return app


def run_document() -> dict[str, object]:
    """Returns the OpenAPI document of the API."""
    return openapi_document(_routes(_RunHandlers), title=TITLE)


def _routes(of: Any) -> list[ApiRoute]:
    """Returns the routes with the handlers ``of`` a server; of their class, for the document."""
    get = partial(ApiRoute, "GET")
    command = partial(ApiRoute, "POST", answer=forms.CommandTaken, status=202)
    return [
        get("/status", of.status, "The status of the run.", forms.RunStatusDocument),
        get("/events", of.events, "The status after every change.", RUN_EVENTS),
        get("/metrics", of.metrics, "Metrics for Prometheus.", METRICS),
        get("/healthz", of.healthz, "200 while the computation runs.", forms.Health, also=(503,)),
        get("/readyz", of.readyz, "200 while it answers owners.", forms.Readiness, also=(503,)),
        command("/close", of.order, "Admits no more data owners.", body=forms.Nothing),
        command("/finish", of.order, "Ends with the rounds that are done.", body=forms.Nothing),
        command("/cancel", of.order, "Ends now; finished work stays.", body=forms.Nothing),
        command("/revoke", of.revoke, "Revokes a data owner.", body=forms.OwnerName),
    ]  # fmt: skip


async def _close(app: web.Application) -> None:
    app[CLOSING].set()


class _RunHandlers:
    """Handlers of one server's routes."""

    def __init__(self, board: RunStatus, orders: CommandHandlers) -> None:
        self._board = board
        self._orders = orders
        self._streams = 0

    def _document(self) -> dict[str, object]:
        orders = () if self._board.phase in END_PHASES else self._orders.known
        return self._board.status() | {"process": process_dict(), "orders": list(orders)}

    async def status(self, request: web.Request) -> web.Response:
        return json_answer(self._document())

    async def metrics(self, request: web.Request) -> web.Response:
        # Local import: needed for metrics only.
        from parties.service.metrics import render

        accept = request.headers.get("Accept", "")
        body, content_type = render([self._document()], accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def healthz(self, request: web.Request) -> web.Response:
        silent = self._board.since_heartbeat_s
        ok = silent < HUNG_AFTER_S
        return json_answer({"healthy": ok, "silent_s": round(silent, 1)}, 200 if ok else 503)

    async def readyz(self, request: web.Request) -> web.Response:
        phase = self._board.phase
        ok = phase in ACCEPTING_PHASES
        return json_answer({"ready": ok, "phase": phase.value}, 200 if ok else 503)

    async def order(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        order: Callable[[], object] | None = getattr(self._orders, name)
        if self._board.phase in END_PHASES or order is None:
            what = f"this server, which is {self._board.phase.value}, cannot be told to {name}"
            return error_response(409, what, "a running server that knows this")
        await asyncio.to_thread(order)
        return json_answer({"order": name}, 202)

    async def revoke(self, request: web.Request) -> web.Response:
        revoke = self._orders.revoke
        if self._board.phase in END_PHASES or revoke is None:
            what = f"this server, which is {self._board.phase.value}, cannot revoke anybody"
            return error_response(409, what, "a running server that knows this")
        owner, named = request[BODY]["owner"], self._board.about.owners
        if NAME_PATTERN.fullmatch(owner) is None:
            return error_response(422, "no data owner's name", "one as in its certificate")
        if named and owner not in named:
            what = f"{owner!r} is not among the {len(named)} data owners that this run names"
            return error_response(422, what, "one of them, by the name in its certificate")
        await asyncio.to_thread(revoke, owner)
        return json_answer({"order": "revoke", "owner": owner}, 202)

    async def events(self, request: web.Request) -> web.StreamResponse:
        if self._streams >= _MAX_LISTENERS:
            what = f"{self._streams} are listening already"
            return error_response(503, what, f"at most {_MAX_LISTENERS} at a time")
        self._streams += 1
        try:
            return await self._stream(request)
        finally:
            self._streams -= 1

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = await event_stream(request)
        closing, changed = request.app[CLOSING], asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # The loop has ended meanwhile.
                loop.call_soon_threadsafe(changed.set)

        end = self._board.listen(wake)
        try:
            while True:
                changed.clear()
                over = closing.is_set() or self._board.phase in END_PHASES
                await send_event(response, "status", without_owner_names(self._document()))
                if over:
                    return response
                await _wait_for_change(changed, closing, response)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(closing.wait(), _PAUSE_S)
        except ConnectionError:
            return response
        finally:
            end()


async def _wait_for_change(
    changed: asyncio.Event, closing: asyncio.Event, to: web.StreamResponse
) -> None:
    """Waits for a change or the end; sends comments meanwhile, by which a lost connection is noticed."""
    tasks = [asyncio.ensure_future(event.wait()) for event in (changed, closing)]
    try:
        while True:
            done, _ = await asyncio.wait(
                tasks, timeout=_KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return
            await to.write(b": at work\n\n")
    finally:
        for task in tasks:
            task.cancel()


def without_owner_names(status: dict[str, object]) -> dict[str, object]:
    """Returns a status without the owners' names, of which there may be thousands; the counts stay."""
    owners = status["owners"]
    if not isinstance(owners, dict):
        raise TypeError("a status has owners")
    return status | {"owners": {key: value for key, value in owners.items() if key != "list"}}


@web.middleware
async def json_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers errors as JSON."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        where = f"{error.reason}: {request.method} {request.path[:80]}"
        return error_response(error.status, where, f"a path of {API}{OPENAPI}")
    except StoreError as error:
        return error_response(503, error.message, "a store that can be read")
    except ConnectionError:
        # A client that disconnects within a request is no failure of this server, and gets no answer.
        return error_response(400, "the request is not whole", "all of it")
    except Exception:
        logger.exception("a request to the admin API failed")
        return error_response(500, "the server failed", "nothing else; its log shows where")


@web.middleware
async def same_site_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses writes for pages of another site, whose requests a browser sends with the operator's certificate."""
    if request.method not in READ_METHODS and _is_foreign(request):
        return error_response(
            403, "the request comes from another site's page", "one of this server's"
        )
    return await handler(request)


def _is_foreign(request: web.Request) -> bool:
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site not in ("same-origin", "none")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("Host")
