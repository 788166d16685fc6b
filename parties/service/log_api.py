"""Route of the operators' log in a service's admin API: pages of its signed lines, and the seal of all.

    GET  /v1/log?after=N   {"lines": [...], "seal": null or a line}; lines after entry N, a thousand at most

The seal comes with the last page (`parties.service.operators_log`). Nothing here is secret.
"""

import asyncio
from http import HTTPStatus

from aiohttp import web

from parties.service.http_answers import error_response, json_answer
from parties.service.known_studies import KnownStudies

PAGE = 1_000
LOG_QUERY = (("after", "Only lines that follow the entry of this number."),)
_MAX_DIGITS = 15


async def log_page(request: web.Request, studies: KnownStudies) -> web.Response:
    """Answers with a page of the log of ``studies``."""
    after = request.query.get("after", "0")
    if not after.isdecimal() or len(after) > _MAX_DIGITS:
        text = f"after is {after[:40]!r}"
        return error_response(HTTPStatus.BAD_REQUEST, text, "the number of an entry")
    found = await asyncio.to_thread(studies.repository.log_page, int(after), PAGE)
    return json_answer({"lines": found.lines, "seal": found.seal})
