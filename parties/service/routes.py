"""Routes of the admin APIs, with the forms of bodies and answers: registration, checks of bodies, the OpenAPI document.

A route is at ``versioned(path)``, such as /v1/studies. Its former path, without the version, answers as before, with
a Link to the new one; it goes with the next version of the program. Paths in ``UNVERSIONED`` are those that monitoring
systems and probes expect.

A body has the form that its route declares: a `msgspec.Struct` (`parties.service.api_forms`), which refuses unknown
fields. The document is made from the same table (``openapi_document``), and is served at /v1/openapi.json. Source:
OpenAPI Specification 3.1.1; RFC 9745 for the header Deprecation.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from parties.foundation.version import version
from parties.service.api_forms import Error, Nothing
from parties.service.http_answers import error_response, json_answer
from parties.service.status_client import API, UNVERSIONED, versioned

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY: web.RequestKey[dict[str, Any]] = web.RequestKey("body", dict)
"""Key of a request for its body, once it was checked."""
OPENAPI = "/openapi.json"
_DEPRECATED = "@1795824000"
"""Date from which the paths without a version are deprecated, 28 November 2026, as RFC 9745 writes it."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
}
_PARAMETER = re.compile(r"\{(\w+)[^}]*\}")


@dataclass(frozen=True, slots=True)
class Text:
    """Answer that is no JSON: its media type, and what it has in it, in words."""

    media: str
    what: str


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """Route ``method`` ``path`` of an admin API.

    Attributes:
        summary: What it does or returns, a sentence for the document.
        answer: Form of the answer: a type, or ``Text``.
        body: Form of the body, for methods that have one.
        status: HTTP status of success.
        also: Further statuses with the same form of answer.
        query: Names of optional query parameters, with their meanings.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answer: type[Any] | Text
    body: type[msgspec.Struct] | None = None
    status: int = HTTPStatus.OK
    also: tuple[int, ...] = ()
    query: tuple[tuple[str, str], ...] = ()


def add_routes(app: web.Application, routes: Sequence[ApiRoute], *, title: str) -> None:
    """Adds ``routes``, their former paths, and their OpenAPI document with this ``title``."""
    document: dict[str, object] | None = None

    async def openapi(request: web.Request) -> web.Response:
        nonlocal document
        document = document or openapi_document(routes, title=title)
        return json_answer(document)

    app.router.add_get(API + OPENAPI, openapi)
    for route in routes:
        handler = _with_checked_body(route)
        for path in dict.fromkeys((versioned(route.path), route.path)):
            if route.method == "GET":
                app.router.add_get(path, handler)
            else:
                app.router.add_route(route.method, path, handler)
    former = {_PARAMETER.sub(r"{\1}", route.path) for route in routes} - {*UNVERSIONED}

    async def mark_former(request: web.Request, response: web.StreamResponse) -> None:
        """Says in an answer at a former path that it is one, and where the new one is."""
        resource = request.match_info.route.resource
        if resource is not None and resource.canonical in former:
            response.headers["Deprecation"] = _DEPRECATED
            response.headers["Link"] = f'<{API}{request.rel_url.raw_path}>; rel="successor-version"'

    app.on_response_prepare.append(mark_former)
    app.on_response_prepare.append(_show_no_page)


async def _show_no_page(request: web.Request, response: web.StreamResponse) -> None:
    """Has browsers show no answer of the API as a page; those of the console set headers of their own."""
    if not request.path.startswith("/console/"):
        response.headers.update(_HEADERS)


def _with_checked_body(route: ApiRoute) -> Handler:
    form = route.body
    if form is None:
        return route.handler

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            body = msgspec.json.decode(await request.read() or b"{}", type=form)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            what = f"the body: {_lower(str(error))}"
            expected = f"{form.__name__} of {API}{OPENAPI}, a JSON object"
            return error_response(HTTPStatus.UNPROCESSABLE_ENTITY, what, expected)
        request[BODY] = msgspec.to_builtins(body)
        return await route.handler(request)

    return handle


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def openapi_document(routes: Iterable[ApiRoute], *, title: str) -> dict[str, object]:
    """Returns the OpenAPI 3.1 document of ``routes``, with /v1/openapi.json itself."""
    table = list(routes)
    forms = {route.answer for route in table if isinstance(route.answer, type)}
    forms |= {route.body for route in table if route.body is not None}
    named = sorted({*forms, Error}, key=lambda form: form.__name__)
    schemas, components = msgspec.json.schema_components(
        named, ref_template="#/components/schemas/{name}"
    )
    by_form = dict(zip(named, schemas, strict=True))
    paths: dict[str, dict[str, object]] = {
        API + OPENAPI: {
            "get": {
                "operationId": "get_openapi",
                "summary": "This document.",
                "responses": {"200": _content("application/json", {"type": "object"}, "It")},
            }
        }
    }
    for route in table:
        path = _PARAMETER.sub(r"{\1}", versioned(route.path))
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, by_form)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": title,
            "version": version(),
            "description": "At the socket admin.sock of the server's folder, whose users are approvers, and over "
            "HTTPS with a certificate that settings.toml lists: [admin] readers may send GET, clients what their role "
            "in [admin.roles] allows; without roles they are approvers. Sessions of [admin.oidc] are for the console "
            "alone. Times are ISO 8601, in UTC.",
        },
        "security": [{}, {"certificate": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"certificate": {"type": "mutualTLS"}},
        },
    }


def _operation(route: ApiRoute, by_form: dict[Any, dict[str, Any]]) -> dict[str, object]:
    if isinstance(route.answer, Text):
        # A file has no schema.
        schema = {"type": "string"} if route.answer.media.startswith("text/") else {}
        answer = _content(route.answer.media, schema, route.answer.what)
    else:
        answer = _content("application/json", by_form[route.answer], route.answer.__name__)
    name = re.sub(r"\W+", "_", _PARAMETER.sub(r"\1", route.path)).strip("_")
    found: dict[str, object] = {
        "operationId": f"{route.method.lower()}_{name}",
        "summary": route.summary,
        "responses": {
            **{str(int(status)): answer for status in (route.status, *route.also)},
            "default": _content("application/json", by_form[Error], "A refusal or a failure"),
        },
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": meaning, "schema": {"type": "string"}}
        for name, meaning in route.query
    ]
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        form = {"application/json": {"schema": by_form[route.body]}}
        found["requestBody"] = {"required": route.body is not Nothing, "content": form}
    return found


def _content(media: str, schema: object, what: str) -> dict[str, object]:
    return {"description": what, "content": {media: {"schema": schema}}}
