"""The console: pages for a browser over a server's admin API, to be added to any aiohttp application.

    GET  /console/                        the studies of this server; with one alone, that one
    GET  /console/studies/KEY             a study: progress, owners, budget, actions, result
    GET  /console/studies/KEY/events      its changing part, as server-sent events ``show``; ``over`` at the end
    GET  /console/studies/KEY/report      its report, without scripts and in an origin of its own
    GET  /console/studies/KEY/files/NAME  a file that is public by the protocol
    GET, POST /console/studies/KEY/ORDER  ask once more, and tell the server

Provides ``add_console``. Secret: nothing is shown that is. Known limits: a page shows 500 owners at most.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler

from parties.errors import PartyError, StoreError
from parties.operate.app import event_stream, send_event
from parties.operate.asking import NotRunning
from parties.operate.console.gate import REPORT_POLICY, Gate, guarded
from parties.operate.console.upstream import Document, Upstream
from parties.operate.console.view import ORDERS, STATIC, Order, orders_of, render, study_values

PREFIX = "/console"
_REPORT = "report.html"
_FILES = {
    "synthetic.csv": "the synthetic table",
    _REPORT: "the report, for people",
    "report.json": "the report, for programs",
    "model/model.json": "the model's structure",
    "model/marginals.npz": "the model's numbers",
    "transcript.jsonl": "what this server sent, received, opened and spent, for an audit",
    "result.json": "who was counted, and what it cost",
}
"""What is public of a server's folder when its run is over; nothing else of it is ever shown."""
_TICK_S = 2.0
"""How often a page is brought up to date at least: time passes also where nothing happens."""
_RETRY_S = 5.0
_MOST_LISTENERS = 32
_BODY_BYTES = 1 << 14


def add_console(app: web.Application, upstream: Upstream, gate: Gate) -> None:
    """Add the pages under /console to ``app``; whom they let in is the ``gate``'s."""
    console = web.Application(middlewares=[guarded(gate), _problems], client_max_size=_BODY_BYTES)
    pages = _Pages(upstream, gate)
    console.add_routes(pages.routes())
    console.on_shutdown.append(pages.close)
    app.add_subapp(PREFIX, console)


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    what: str
    size: int


class _Pages:
    def __init__(self, upstream: Upstream, gate: Gate) -> None:
        self._upstream = upstream
        self._gate = gate
        self._closing = asyncio.Event()
        self._listeners = 0

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        study = "/studies/{key}"
        order = "/{order:" + "|".join(ORDERS) + "}"
        return [
            web.get("/", self.studies),
            web.static("/static", STATIC),
            web.get(study, self.study),
            web.get(f"{study}/events", self.events),
            web.get(f"{study}/report", self.report),
            web.get(f"{study}/files/{{name:.+}}", self.file),
            web.get(f"{study}{order}", self.ask),
            web.post(f"{study}{order}", self.tell),
        ]

    async def close(self, app: web.Application) -> None:
        self._closing.set()

    async def studies(self, request: web.Request) -> web.StreamResponse:
        status = await self._upstream.status()
        raise web.HTTPSeeOther(_here(status["study"]["id"]))

    async def _study(self, request: web.Request) -> tuple[Upstream, Document]:
        """Raises HTTPNotFound for a study that is not here."""
        status = await self._upstream.status()
        if request.match_info["key"] != status["study"]["id"]:
            raise web.HTTPNotFound(text="There is no such study here.")
        return self._upstream, status

    async def study(self, request: web.Request) -> web.Response:
        upstream, status = await self._study(request)
        files = [] if status["running"] else await asyncio.to_thread(_files_of, upstream.folder)
        did = ORDERS.get(request.query.get("did", ""))
        return _page(
            "study.html",
            title=status["study"]["id"],
            here=_here(request.match_info["key"]),
            notice=did.did if did else "",
            orders=list(orders_of(status)),
            files=files,
            has_report=any(file.name == _REPORT for file in files),
            **study_values(status),
        )

    async def ask(self, request: web.Request) -> web.Response:
        _, status = await self._study(request)
        order = _order(request, status)
        return _page(
            "order.html",
            title=status["study"]["id"],
            here=_here(request.match_info["key"]),
            party=status["party"]["name"],
            order=order,
            csrf=self._gate.csrf,
        )

    async def tell(self, request: web.Request) -> web.Response:
        if not await self._gate.accepts(request):
            raise web.HTTPForbidden(
                text="The form is not one of this console's: load the page again."
            )
        upstream, status = await self._study(request)
        order = _order(request, status)
        answer = await upstream.order(order.name)
        if not answer.taken:
            raise web.HTTPConflict(text=answer.text)
        raise web.HTTPSeeOther(f"{_here(request.match_info['key'])}?did={order.name}")

    async def report(self, request: web.Request) -> web.StreamResponse:
        upstream, status = await self._study(request)
        return await _sent(
            upstream.folder, status, _REPORT, {"Content-Security-Policy": REPORT_POLICY}
        )

    async def file(self, request: web.Request) -> web.StreamResponse:
        upstream, status = await self._study(request)
        name = request.match_info["name"]
        if name not in _FILES:
            raise web.HTTPNotFound(text="There is no such file.")
        saved = f"{status['study']['id']}-{name.rpartition('/')[2]}"
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(saved, safe='')}",
            "Content-Type": "application/octet-stream",
        }
        return await _sent(upstream.folder, status, name, headers)

    async def events(self, request: web.Request) -> web.StreamResponse:
        upstream, status = await self._study(request)
        if self._listeners >= _MOST_LISTENERS:
            raise web.HTTPServiceUnavailable(text="Too many pages are open.")
        self._listeners += 1
        response = await event_stream(request)
        news = asyncio.Event()
        watching = asyncio.create_task(_watch(upstream, news))
        try:
            await self._stream(response, upstream, status, news)
        except ConnectionError:
            pass
        finally:
            watching.cancel()
            self._listeners -= 1
        return response

    async def _stream(
        self,
        response: web.StreamResponse,
        upstream: Upstream,
        status: Document,
        news: asyncio.Event,
    ) -> None:
        before = await _shape(upstream, status)
        values = study_values(status)
        while not self._closing.is_set():
            await send_event(response, "show", {"html": render("_study.html", **values)})
            if await _shape(upstream, status) != before:
                await send_event(response, "over", {})
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), _TICK_S)
            news.clear()
            try:
                status = await upstream.status()
                values = study_values(status)
            except PartyError as error:
                values |= {"lost": str(error)}


async def _watch(upstream: Upstream, news: asyncio.Event) -> None:
    """Set ``news`` at every change of the server, also when it is started again."""
    while True:
        async for _ in upstream.changes():
            news.set()
        news.set()
        await asyncio.sleep(_RETRY_S)


async def _shape(upstream: Upstream, status: Document) -> object:
    """What the fixed part of a page hangs on: when it changes, the page is loaded anew."""
    files = [] if status["running"] else await asyncio.to_thread(_files_of, upstream.folder)
    return list(orders_of(status)), [file.name for file in files]


def _here(key: str) -> str:
    return f"{PREFIX}/studies/{quote(key, safe='')}"


def _order(request: web.Request, status: Document) -> Order:
    order = ORDERS[request.match_info["order"]]
    if order not in orders_of(status):
        raise web.HTTPConflict(text=f"This server, which is {status['phase']}, takes no orders.")
    return order


def _files_of(folder: Path) -> list[_File]:
    paths = {name: folder / name for name in _FILES}
    return [
        _File(name, _FILES[name], path.stat().st_size)
        for name, path in paths.items()
        if path.is_file() and not path.is_symlink()
    ]


async def _sent(
    folder: Path, status: Document, name: str, headers: dict[str, str]
) -> web.StreamResponse:
    """A public file of a run that is over. Raises HTTPNotFound."""
    found = [] if status["running"] else await asyncio.to_thread(_files_of, folder)
    if not any(file.name == name for file in found):
        raise web.HTTPNotFound(
            text="It is not there, or not yet: files are here when a study is over."
        )
    return web.FileResponse(folder / name, headers=headers)


def _page(template: str, **values: object) -> web.Response:
    return web.Response(text=render(template, **values), content_type="text/html")


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What goes wrong, as a page."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _problem(error.status, error.reason, error.text or "")
    except NotRunning as error:
        return _problem(409, "Nothing runs", str(error))
    except StoreError as error:
        return _problem(503, "The server does not answer", str(error))


def _problem(status: int, title: str, text: str) -> web.Response:
    response = _page("problem.html", title=title, text=text)
    response.set_status(status)
    return response
