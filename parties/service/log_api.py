"""Route of the operators' log in a service's admin API: pages of its signed lines, and the seal of all.

    GET  /log?after=N      {"lines": [...], "seal": null or a line}; the lines that follow entry N, a thousand at most

The seal comes with the last page (`parties.service.operators_log`). Nothing here is secret.
"""

import asyncio
from http import HTTPStatus

from aiohttp import web

from parties.service.known_studies import KnownStudies
from parties.service.run_api import error_response

PAGE = 1_000
_MAX_DIGITS = 15


def log_routes(studies: KnownStudies) -> list[web.RouteDef]:
    """Returns the routes for the log of ``studies``."""

    async def page(request: web.Request) -> web.Response:
        after = request.query.get("after", "0")
        if not after.isdecimal() or len(after) > _MAX_DIGITS:
            text = f"after is {after[:40]!r}"
            return error_response(HTTPStatus.BAD_REQUEST, text, "the number of an entry")
        found = await asyncio.to_thread(studies.repository.log_page, int(after), PAGE)
        document = {"lines": found.lines, "seal": found.seal}
        return web.json_response(document, headers={"Cache-Control": "no-store"})

    return [web.get("/log", page)]
