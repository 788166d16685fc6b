"""Shared helpers of the ingest API's clients: participants, and servers that forward uploads.

Paths, chunks, answers and refusals.
"""

import json
from collections.abc import AsyncIterator, Mapping

import aiohttp

from mechanisms.model import MARGINALS_FILE, TREE_FILE
from parties.config import START_FOLDER

_CHUNK = 1 << 18
COUNTED_STATUS = 423
"""HTTP status of a refusal because the participant's rows are counted."""
OTHER_CONFIG = "other-configuration"
"""Reason of a refusal because the participant has another configuration."""
_MAX_ANSWER = 1 << 16
TRANSCRIPT_FILE = "transcript.jsonl"
RESULT_FILES = (
    "synthetic.csv",
    "model/model.json",
    "model/marginals.npz",
    "report.json",
    "report.html",
    *(f"{START_FOLDER}/{name}" for name in (TREE_FILE, MARGINALS_FILE)),
)
"""Public files of a finished run, which its lead has; each server has a transcript of its own."""


class InvalidAnswer(Exception):
    """Answer of a host that is no Syncret server, or a failing one."""


def run_path(run: str) -> str:
    """Path of a run's public parameters."""
    return f"/v1/runs/{run}"


def config_path(run: str) -> str:
    """Path of a run's agreed configuration, as JSON."""
    return f"{run_path(run)}/config"


def submission_path(run: str) -> str:
    """Path of a participant's upload and its delivery status."""
    return f"{run_path(run)}/submission"


def forwarded_path(run: str) -> str:
    """Path of a server's part of an upload that another server forwards."""
    return f"{run_path(run)}/part"


def withdrawal_path(run: str) -> str:
    """Path of a participant's withdrawal, and of its tombstone."""
    return f"{run_path(run)}/withdrawal"


def admission_path(run: str) -> str:
    """Path of a request for admission, at the address for owners without a certificate."""
    return f"{run_path(run)}/admission"


def result_path(run: str) -> str:
    """Path of the list of a finished run's public files, and with a name behind it, of one of them."""
    return f"{run_path(run)}/result"


def releases_path(run: str) -> str:
    """Path of the uploads of the requester's key that this server has released, in all studies that it knows."""
    return f"{run_path(run)}/releases"


async def in_chunks(content: bytes) -> AsyncIterator[bytes]:
    """Yields a body in chunks, so that other tasks of the event loop run in between."""
    for start in range(0, len(content), _CHUNK):
        yield content[start : start + _CHUNK]


async def read_answer(
    response: aiohttp.ClientResponse, most: int = _MAX_ANSWER
) -> tuple[dict[str, object], int]:
    """A JSON object of at most ``most`` bytes, and its size. Raises InvalidAnswer for anything else."""
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
    """An error of the API in one line, with long values cut."""
    error = answer.get("error")
    detail = error if isinstance(error, dict) else {}
    shown = {key: printable_answer(value, 200) for key, value in detail.items()}
    message = f"answered {status}: {shown.get('what', 'no reason')}"
    message += f" ({shown['where']})" if "where" in shown else ""
    return message + (f"; expected {shown['expected']}" if "expected" in shown else "")


def refusal_reason(answer: Mapping[str, object]) -> str:
    """Reason of a refusal for programs; empty if the API gives none."""
    error = answer.get("error")
    return str(error.get("reason", "")) if isinstance(error, dict) else ""


def printable_answer(value: object, length: int) -> str:
    """A server's text for people: cut to ``length``, without characters that would move a terminal's cursor."""
    text = str(value)[:length]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def is_retryable(status: int) -> bool:
    """True if a later try may get another status."""
    return status == 408 or status >= 500
