"""Answers of the admin APIs and the console: JSON documents, errors, and streams of server-sent events."""

import json

from aiohttp import web


def json_answer(document: object, status: int = 200) -> web.Response:
    """Returns a JSON document, which nobody stores."""
    return web.json_response(document, status=status, headers={"Cache-Control": "no-store"})


def error_response(status: int, what: str, expected: str) -> web.Response:
    """Returns an error in the API's form."""
    return json_answer({"error": {"what": what, "expected": expected}}, status)


async def event_stream(request: web.Request) -> web.StreamResponse:
    """Returns an event-stream response with its headers sent."""
    headers = {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    return response


async def send_event(response: web.StreamResponse, name: str, document: object) -> None:
    """Sends one server-sent event. Raises ConnectionError if the client has disconnected."""
    await response.write(f"event: {name}\ndata: {json.dumps(document)}\n\n".encode())
