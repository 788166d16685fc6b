"""Pages of the console over a server's admin API, as routes for an aiohttp application.

    GET  /console/                        the studies of this server; redirects to the study if there is only one
    GET  /console/studies/KEY             a study: progress, owners, budget, actions, result
    GET  /console/studies/KEY/events      its changing part, as server-sent events ``show``; ``over`` at the end
    GET  /console/studies/KEY/report      its report, without scripts and in an origin of its own
    GET  /console/studies/KEY/files/NAME  a file that is public by the protocol
    GET, POST /console/studies/KEY/ORDER  confirmation of a command, and the command itself
    GET, POST /console/studies/KEY/requests/OWNER   admission of the data owner with this key, by the words it read out

The list takes ?state=, q=, sort=, order= and page=, a study's page owners=STATE and page=; their links keep the rest.
No secret value is shown.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Handler

from mechanisms.text_table import and_list
from parties.config import NAME_PATTERN
from parties.foundation.errors import CertificateError, PartyError, StoreError
from parties.identity.admission_certificate import admission_certificate
from parties.identity.typed_words import WrongWords
from parties.service.console.gate import REPORT_POLICY, Gate, guarded
from parties.service.console.upstream import APPROVE, DisplayedStudy, Upstream
from parties.service.console.view import (
    COMMAND_TEXTS,
    SERVICE_COMMAND_TEXTS,
    STATIC,
    CommandText,
    ListView,
    OwnersView,
    command_texts_of,
    overview_values,
    page_values,
    render,
)
from parties.service.http_answers import event_stream, send_event
from parties.service.retention import BUNDLE, BUNDLE_AUDIT
from parties.service.status_client import NotRunning

PREFIX = "/console"
_REPORT = "report.html"
_FILES = {
    BUNDLE: "all in one file, for recipients and auditors",
    BUNDLE_AUDIT: "the audit of that file, made here",
    "synthetic.csv": "the synthetic table",
    _REPORT: "the report, for people",
    "report.json": "the report, for programs",
    "model/model.json": "the model's structure",
    "model/marginals.npz": "the model's numbers",
    "transcript.jsonl": "what this server sent, received, opened and spent, for an audit",
    "result.json": "who was counted, and what it cost",
}
"""Public files of a server's folder after a run, with descriptions. No other file is ever shown."""
_BUSY = 503
"""HTTP status of a temporary problem."""
_TICK_S = 2.0
"""Maximum interval between updates of a page, in seconds: durations change without events."""
_RETRY_S = 5.0
_MAX_LISTENERS = 32
_CERTIFICATE_DAYS = 365
_MOST_DIFFERENCES = 40
_APPROVED = ("approved", "queued", "waiting", "running", "closed", "finished")
_FOREIGN_FORM = "The form is not one of this console's: load the page again."
_BODY_BYTES = 1 << 14


def add_console(
    app: web.Application, upstream: Upstream, gate: Gate, *, authority: Path | None = None
) -> None:
    """Adds the pages under /console to ``app``; ``gate`` controls access.

    With the folder of a study's ``authority`` they admit data owners. A service has none: it could admit by itself.
    """
    console = web.Application(
        middlewares=[guarded(gate), _error_pages], client_max_size=_BODY_BYTES
    )
    pages = _Pages(upstream, gate, authority)
    console.add_routes(pages.routes())
    console.on_shutdown.append(pages.close)
    app.add_subapp(PREFIX, console)


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    what: str
    size: int


class _Pages:
    def __init__(self, upstream: Upstream, gate: Gate, authority: Path | None) -> None:
        self._upstream = upstream
        self._authority = authority
        self._gate = gate
        self._closing = asyncio.Event()
        self._listeners = 0

    def routes(self) -> Sequence[web.AbstractRouteDef]:
        study = "/studies/{key}"
        order = "/{order:" + "|".join(COMMAND_TEXTS | SERVICE_COMMAND_TEXTS) + "}"
        return [
            *self._gate.routes(),
            web.get("/", self.studies),
            web.get("/events", self.studies_events),
            web.static("/static", STATIC),
            web.get(study, self.study),
            web.get(f"{study}/events", self.events),
            web.get(f"{study}/report", self.report),
            web.get(f"{study}/files/{{name:.+}}", self.file),
            web.get(f"{study}/requests/{{owner}}", self.ask_admission),
            web.post(f"{study}/requests/{{owner}}", self.admit),
            web.get(f"{study}{order}", self.ask),
            web.post(f"{study}{order}", self.tell),
        ]

    async def close(self, app: web.Application) -> None:
        self._closing.set()

    async def studies(self, request: web.Request) -> web.StreamResponse:
        view = ListView.of(request.query)
        overview = await self._upstream.overview()
        if overview is None:
            shown = await self._upstream.find(None)
            raise web.HTTPSeeOther(_study_path(shown.key if shown else ""))
        values = overview_values(overview, await self._upstream.listing(view.query()), view)
        return _page(
            "studies.html", title=overview["service"], **self._reader_values(request), **values
        )

    def _reader_values(self, request: web.Request) -> dict[str, object]:
        """Returns the template values of the reader: who it is, and, for one who has signed in, how to sign out."""
        reader = self._gate.principal(request)
        csrf = self._gate.csrf(request) if reader is not None and reader.session else ""
        return {"reader": reader, "sign_out": csrf}

    async def studies_events(self, request: web.Request) -> web.StreamResponse:
        view = ListView.of(request.query)

        async def show(response: web.StreamResponse) -> bool:
            overview = await self._upstream.overview()
            if overview is None:
                return False
            values = overview_values(overview, await self._upstream.listing(view.query()), view)
            await send_event(response, "show", {"html": render("_studies.html", **values)})
            return True

        return await self._stream(request, None, show)

    async def _shown(self, request: web.Request) -> DisplayedStudy:
        """Returns the study of the request. Raises HTTPNotFound for an unknown study."""
        shown = await self._upstream.find(request.match_info["key"])
        if shown is None:
            raise web.HTTPNotFound(text="There is no such study here.")
        return shown

    def _values(self, request: web.Request, shown: DisplayedStudy) -> dict[str, object]:
        """Returns the template values of the changing part of a study's page."""
        more = {"here": _study_path(shown.key), "admits": self._authority is not None}
        return page_values(shown, OwnersView.of(request.query)) | more

    def _orders(self, shown: DisplayedStudy) -> list[CommandText]:
        return command_texts_of(shown, in_service=self._upstream.in_service)

    async def study(self, request: web.Request) -> web.Response:
        shown = await self._shown(request)
        files = await asyncio.to_thread(_files_of, shown)
        values = self._values(request, shown)
        did = (SERVICE_COMMAND_TEXTS | COMMAND_TEXTS).get(request.query.get("did", ""))
        return _page(
            "study.html",
            title=shown.title,
            notice=_did_text(did, shown) if did else _admitted_text(request),
            done=did is None or did.tone == "good",
            orders=self._orders(shown),
            files=files,
            has_report=any(file.name == _REPORT for file in files),
            shape=_fixed_part_digest(shown, files),
            **self._reader_values(request),
            **values,
        )

    async def ask(self, request: web.Request) -> web.Response:
        shown = await self._shown(request)
        order = self._order(request, shown)
        return await self._order_page(
            request, shown, order, given={"owner": request.query.get("owner", "")}
        )

    async def _order_page(
        self,
        request: web.Request,
        shown: DisplayedStudy,
        order: CommandText,
        *,
        given: Mapping[str, object],
        problem: str = "",
    ) -> web.Response:
        """Returns the page that asks for a command, with what was ``given`` before and the ``problem`` of it."""
        values: dict[str, object] = {
            "title": shown.title,
            "order": order,
            "csrf": self._gate.csrf(request),
            "problem": problem,
            "given": {"reason": "", "owner": "", "words": "", "heard": (), **given},
            **self._values(request, shown),
        }
        if order.name != APPROVE:
            return _page("order.html", HTTPStatus.CONFLICT if problem else HTTPStatus.OK, **values)
        summary = await self._upstream.summary(shown.key)
        others = await self._other_servers(shown)
        return _page(
            "approve.html",
            HTTPStatus.CONFLICT if problem else HTTPStatus.OK,
            summary=summary,
            others=others,
            most=_MOST_DIFFERENCES,
            **values,
        )

    async def _other_servers(self, shown: DisplayedStudy) -> list[str]:
        """Returns the names of the study's other servers."""
        overview = await self._upstream.overview() or {}
        names = [server["name"] for server in (shown.study or {}).get("servers", ())]
        return [name for name in names if name != overview.get("service")]

    async def tell(self, request: web.Request) -> web.Response:
        if not await self._gate.accepts(request):
            raise web.HTTPForbidden(text=_FOREIGN_FORM)
        shown, form = await self._shown(request), await request.post()
        if request.match_info["order"] == APPROVE and _is_approved(shown):
            raise web.HTTPSeeOther(f"{_study_path(shown.key)}?did={APPROVE}")
        order = self._order(request, shown)
        heard = [str(name) for name in form.getall("heard", [])]
        given = {name: str(value) for name, value in form.items()} | {"heard": heard}
        again = partial(self._order_page, request, shown, order, given=given)
        fields: dict[str, object] = {}
        if order.name == APPROVE:
            silent = [name for name in await self._other_servers(shown) if name not in heard]
            if silent:
                text = f"The operator of {and_list(silent)} is not ticked: hear the words first."
                return await again(problem=text)
            fields = {"digest": given.get("words", ""), "heard": heard}
        elif order.asks_name and given.get("name") != shown.title:
            return await again(
                problem=f"Nothing is ended: the name of this study is {shown.title}."
            )
        else:
            taken = {"owner": order.asks_owner, "reason": order.asks_reason}
            fields = {name: given.get(name, "") for name, asked in taken.items() if asked}
        answer = await self._upstream.order(
            shown.key, order.name, fields, credential=self._gate.credential(request)
        )
        if answer.status == HTTPStatus.CONFLICT and order.name == APPROVE:
            return await again(problem=answer.text)
        if answer.status == HTTPStatus.FORBIDDEN:
            raise web.HTTPForbidden(text=answer.text)
        if not answer.taken:
            raise web.HTTPConflict(text=answer.text)
        raise web.HTTPSeeOther(f"{_study_path(shown.key)}?did={order.name}")

    def _order(self, request: web.Request, shown: DisplayedStudy) -> CommandText:
        """Returns the command of the request. Raises HTTPConflict for a command that is not available now."""
        for order in self._orders(shown):
            if order.name == request.match_info["order"]:
                return order
        raise web.HTTPConflict(text="This study, as it stands, does not take that order.")

    async def ask_admission(self, request: web.Request) -> web.Response:
        shown = await self._shown(request)
        return self._admission_page(request, shown, _applicant(request, shown), problem="")

    def _admission_page(
        self,
        request: web.Request,
        shown: DisplayedStudy,
        applicant: Mapping[str, Any],
        *,
        problem: str,
    ) -> web.Response:
        return _page(
            "admit.html",
            title=shown.title,
            here=_study_path(shown.key),
            admits=self._authority is not None,
            applicant=applicant,
            problem=problem,
            csrf=self._gate.csrf(request),
        )

    async def admit(self, request: web.Request) -> web.Response:
        if not await self._gate.accepts(request):
            raise web.HTTPForbidden(text=_FOREIGN_FORM)
        shown = await self._shown(request)
        applicant, form = _applicant(request, shown), await request.post()
        if self._authority is None:
            raise web.HTTPConflict(text="This console has no authority: see the command.")
        try:
            owner, pem = await asyncio.to_thread(
                admission_certificate,
                str(applicant["request"]),
                str(form.get("words", "")),
                authority=self._authority,
                valid_days=_CERTIFICATE_DAYS,
            )
        except (WrongWords, CertificateError) as error:
            return self._admission_page(request, shown, applicant, problem=str(error))
        answer = await self._upstream.order(
            shown.key,
            "admit",
            {"certificate": pem.decode()},
            credential=self._gate.credential(request),
        )
        if not answer.taken:
            return self._admission_page(request, shown, applicant, problem=answer.text)
        raise web.HTTPSeeOther(f"{_study_path(shown.key)}?admitted={quote(owner.name, safe='')}")

    async def report(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Security-Policy": REPORT_POLICY}
        return await _file_response(await self._shown(request), _REPORT, headers)

    async def file(self, request: web.Request) -> web.StreamResponse:
        shown, name = await self._shown(request), request.match_info["name"]
        saved = f"{shown.title}-{name.rpartition('/')[2]}"
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(saved, safe='')}",
            "Content-Type": "application/octet-stream",
        }
        return await _file_response(shown, name, headers)

    async def events(self, request: web.Request) -> web.StreamResponse:
        shown = await self._shown(request)
        before, values = request.query.get("shape", ""), self._values(request, shown)

        async def show(response: web.StreamResponse) -> bool:
            nonlocal values
            now = before
            try:
                found = await self._upstream.find(shown.key)
                if found is not None:
                    files = await asyncio.to_thread(_files_of, found)
                    values, now = self._values(request, found), _fixed_part_digest(found, files)
            except PartyError as error:
                values = values | {"lost": str(error)}
            await send_event(response, "show", {"html": render("_study.html", **values)})
            if now != before:
                await send_event(response, "over", {})
            return now == before

        return await self._stream(request, shown.key, show)

    def _goes_on(self, request: web.Request) -> bool:
        return not self._closing.is_set() and self._gate.holds(request)

    async def _stream(
        self,
        request: web.Request,
        key: str | None,
        show: Callable[[web.StreamResponse], Awaitable[bool]],
    ) -> web.StreamResponse:
        """Sends events for one page after every change, until ``show`` returns False: the page has to be reloaded."""
        if self._listeners >= _MAX_LISTENERS:
            raise web.HTTPServiceUnavailable(text="Too many pages are open.")
        response, news = await event_stream(request), asyncio.Event()
        watching = asyncio.create_task(_watch_changes(self._upstream, key, news))
        self._listeners += 1
        try:
            while self._goes_on(request) and await show(response):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), _TICK_S)
                news.clear()
        except ConnectionError:
            pass
        finally:
            watching.cancel()
            self._listeners -= 1
        return response


async def _watch_changes(upstream: Upstream, key: str | None, news: asyncio.Event) -> None:
    """Sets ``news`` at every change of the server, and after its restart."""
    while True:
        async for _ in upstream.changes(key):
            news.set()
        news.set()
        await asyncio.sleep(_RETRY_S)


def _fixed_part_digest(shown: DisplayedStudy, files: Sequence[_File]) -> str:
    """Returns a short digest of the inputs of a page's fixed part; after a change the page has to be reloaded."""
    parts = repr((shown.orders, [file.name for file in files]))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _did_text(did: CommandText, shown: DisplayedStudy) -> str:
    """Returns the sentence on a command that was given; a first approval of two is no approval yet."""
    if did.name == APPROVE and not _is_approved(shown):
        return "Noted. The study waits for another approver."
    return did.did


def _is_approved(shown: DisplayedStudy) -> bool:
    """Returns true for a study that is approved here and goes on: to approve it once more changes nothing."""
    return shown.study is not None and shown.study["state"] in _APPROVED


def _applicant(request: web.Request, shown: DisplayedStudy) -> Mapping[str, Any]:
    """Returns the waiting request for admission that the address names. Raises HTTPNotFound."""
    for each in (shown.study or {}).get("requests", ()):
        if each["key"] == request.match_info["owner"]:
            return dict(each)
    raise web.HTTPNotFound(text="No such request for admission waits here.")


def _admitted_text(request: web.Request) -> str:
    name = request.query.get("admitted", "")
    known = NAME_PATTERN.fullmatch(name) is not None
    return f"{name} is admitted: its certificate waits here until it asks again." if known else ""


def _study_path(key: str) -> str:
    return f"{PREFIX}/studies/{quote(key, safe='')}"


def _files_of(shown: DisplayedStudy) -> list[_File]:
    """Returns a study's public files; none before the study is over."""
    paths = {name: shown.folder / name for name in _FILES} if shown.over else {}
    return [
        _File(name, _FILES[name], path.stat().st_size)
        for name, path in paths.items()
        if path.is_file() and not path.is_symlink()
    ]


async def _file_response(
    shown: DisplayedStudy, name: str, headers: dict[str, str]
) -> web.StreamResponse:
    """Returns a public file of a study that is over. Raises HTTPNotFound."""
    found = await asyncio.to_thread(_files_of, shown)
    if not any(file.name == name for file in found):
        text = "It is not there, or not yet: files are here when a study is over."
        raise web.HTTPNotFound(text=text)
    return web.FileResponse(shown.folder / name, headers=headers)


def _page(template: str, status: int = HTTPStatus.OK, /, **values: object) -> web.Response:
    return web.Response(status=status, text=render(template, **values), content_type="text/html")


@web.middleware
async def _error_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers errors with a page."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _error_page(error.status, error.reason, error.text or "")
    except NotRunning as error:
        return _error_page(409, "Nothing runs", str(error))
    except StoreError as error:
        return _error_page(_BUSY, "The server does not answer", str(error))


def _error_page(status: int, title: str, text: str) -> web.Response:
    return _page("problem.html", status, title=title, text=text, again=status == _BUSY)
