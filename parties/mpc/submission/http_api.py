"""Shared helpers of the ingest API's clients: participants, and servers that forward uploads.

Paths, chunks, answers and refusals.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp

from mechanisms.model import MARGINALS_FILE, TREE_FILE
from parties.config import START_FOLDER
from parties.foundation.untrusted_text import parse_json

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
REPORT_FILE = "report.json"
_SILOS_RESULT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}(\.[A-Za-z0-9_-]{1,20}){1,3}")
_NO_RESULTS = frozenset(
    {
        *("config.toml", "result.json", "removed.json", "run.json", TRANSCRIPT_FILE),
        *("datapackage.json", "schema.json", "model-card.md", "terms.txt"),
    }
)
"""Files that a server has for itself, and those that a bundle (`parties.audit.bundle`) has besides."""
MAX_RESULT_FILES = 64


def is_result_name(name: str, *, silos: bool) -> bool:
    """True for the name of a public file of a finished run; of methods between ``silos`` the algorithm has its own."""
    own = silos and _SILOS_RESULT.fullmatch(name) is not None and name not in _NO_RESULTS
    return own or name in RESULT_FILES


def result_names(folder: Path, *, silos: bool) -> list[str]:
    """Returns the names of the public files that are in a finished run's ``folder``, at its lead or its one server.

    Raises OSError, ValueError.
    """
    return [name for name in possible_names(folder, silos=silos) if is_plain_file(folder / name)]


def possible_names(folder: Path, *, silos: bool) -> list[str]:
    """Returns the names that the public files of a finished run in ``folder`` may have.

    A run between ``silos`` lists the algorithm's own in its report. Raises OSError, ValueError.
    """
    names = list(RESULT_FILES)
    if silos and is_plain_file(folder / REPORT_FILE):
        report = parse_json((folder / REPORT_FILE).read_text(encoding="utf-8", errors="replace"))
        listed = report.get("files") if isinstance(report, dict) else None
        named = [str(name) for name in listed] if isinstance(listed, list) else []
        names += [each for each in named if each not in names and is_result_name(each, silos=True)]
    return names[:MAX_RESULT_FILES]


def is_plain_file(path: Path) -> bool:
    """True for a file that is no link."""
    return path.is_file() and not path.is_symlink()


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
