"""What those have in common who dial a server's ingest API: owners, and servers that pass uploads on.

Provides ``in_chunks``, ``read_answer``, ``refusal_text`` and ``printable_answer``, and the API's paths.
Public: everything.
"""

import json
from collections.abc import AsyncIterator, Mapping

import aiohttp

_CHUNK = 1 << 18
COUNTED_STATUS = 423
"""The HTTP status of a refusal because the owner's rows are counted."""
OTHER_CONFIG = "other-configuration"
"""The reason of a refusal because the owner's configuration is another one."""
_MAX_ANSWER = 1 << 16


class InvalidAnswer(Exception):
    """What answered is no Syncret server, or one that is not well."""


def run_path(run: str) -> str:
    """A run: its public parameters."""
    return f"/v1/runs/{run}"


def config_path(run: str) -> str:
    """Of a run: what its servers agree on, as JSON."""
    return f"{run_path(run)}/config"


def submission_path(run: str) -> str:
    """Of an owner: its upload, and where it stands."""
    return f"{run_path(run)}/submission"


def forwarded_path(run: str) -> str:
    """Of a server: its part of an upload that another one passes on."""
    return f"{run_path(run)}/part"


def withdrawal_path(run: str) -> str:
    """Of an owner: what it has withdrawn, and what of it does not come back."""
    return f"{run_path(run)}/withdrawal"


async def in_chunks(content: bytes) -> AsyncIterator[bytes]:
    """A body of any size, so that others of the event loop have their turn between its pieces."""
    for start in range(0, len(content), _CHUNK):
        yield content[start : start + _CHUNK]


async def read_answer(
    response: aiohttp.ClientResponse, most: int = _MAX_ANSWER
) -> tuple[dict[str, object], int]:
    """A JSON object of at most so many bytes, and how many it was. Raises NoAnswer for anything else."""
    raw = b""
    while chunk := await response.content.read(most - len(raw)):
        raw += chunk
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise InvalidAnswer(f"answered {response.status} without JSON; is this a Syncret server?")
    return answer, len(raw)


def refusal_text(status: int, answer: dict[str, object]) -> str:
    """An error of the API in one line, without what would be too long for one."""
    error = answer.get("error")
    detail = error if isinstance(error, dict) else {}
    shown = {key: printable_answer(value, 200) for key, value in detail.items()}
    message = f"answered {status}: {shown.get('what', 'no reason')}"
    message += f" ({shown['where']})" if "where" in shown else ""
    return message + (f"; expected {shown['expected']}" if "expected" in shown else "")


def refusal_reason(answer: Mapping[str, object]) -> str:
    """Why, for programs; an empty text where the API does not say."""
    error = answer.get("error")
    return str(error.get("reason", "")) if isinstance(error, dict) else ""


def printable_answer(value: object, length: int) -> str:
    """What a server said, to be shown to people: short, and without what would move a terminal's cursor."""
    text = str(value)[:length]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def is_retryable(status: int) -> bool:
    """Whether an answer with this status may be another one later."""
    return status == 408 or status >= 500
