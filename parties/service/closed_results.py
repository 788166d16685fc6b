"""Public files of a finished study, for its owners and servers: transcripts, table, model and report.

A study of one server has its one transcript, and between silos the files of its algorithm.

The study's responder (`parties.service.closed_studies`) has verified the requester's certificate, of the study's
authority. Files have fixed names, and all of them are public by the protocol. The number of transfers at a time is
bounded, and so is the time for each chunk, so that slow readers keep nobody away for long. Nothing here is secret.
"""

import asyncio
import os
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from parties.foundation.errors import StoreError
from parties.foundation.version import ingest_headers
from parties.mpc.submission.http_api import (
    TRANSCRIPT_FILE,
    is_plain_file,
    is_result_name,
    result_names,
    result_path,
)
from parties.service.retention import RESULTS, TRANSCRIPTS, removed_at
from parties.service.study_record import SILOS, StudyRecord, StudyState

_CHUNK = 1 << 18
_CHUNK_S = 60.0
"""Maximum time in seconds for a chunk to leave."""
_MAX_TRANSFERS = 32


class ClosedResults:
    """Answers of server ``name`` with files of finished studies; ``folder_of`` returns a run's folder."""

    def __init__(self, name: str, folder_of: Callable[[StudyRecord], Path]) -> None:
        self._name = name
        self._folder_of = folder_of
        self.transfers = 0

    async def answer(
        self, study: StudyRecord, request: web.BaseRequest
    ) -> web.StreamResponse | None:
        """Returns the answer to a request for a result or a file of it; None for any other request.

        Raises ConnectionError, TimeoutError if the requester does not take a file.
        """
        base = result_path(study.run)
        if study.state is not StudyState.FINISHED or request.method != "GET":
            return None
        if request.path == base:
            return await self._list(study)
        name = request.path.removeprefix(f"{base}/")
        if name == request.path:
            return None
        folder = self._folder_of(study)
        path = folder / name
        if not await asyncio.to_thread(_is_listed, study, folder, name):
            return _error(HTTPStatus.NOT_FOUND, f"no file {name[:40]!r}", "one of the list")
        if self.transfers >= _MAX_TRANSFERS:
            text = f"{self.transfers} files are on their way already"
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, text, "another try later")
        self.transfers += 1
        try:
            return await _send(request, path)
        finally:
            self.transfers -= 1

    async def _list(self, study: StudyRecord) -> web.Response:
        folder = self._folder_of(study)
        try:
            sizes, removed = await asyncio.to_thread(_sizes_of, study, folder)
        except (OSError, ValueError, StoreError):
            text = "the files cannot be read at present"
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, text, "another try later")
        document = {
            "run": study.run,
            "party": self._name,
            "config": study.digest,
            "files": sizes,
            "removed": removed,
        }
        return web.json_response(document, headers=ingest_headers())


def _names(study: StudyRecord, folder: Path) -> list[str]:
    """Returns the names of the public files that are there. Raises OSError, ValueError."""
    transcript = [TRANSCRIPT_FILE] if is_plain_file(folder / TRANSCRIPT_FILE) else []
    return transcript + result_names(folder, silos=study.kind == SILOS)


def _is_listed(study: StudyRecord, folder: Path, name: str) -> bool:
    """True for a file that the list has."""
    silos = study.kind == SILOS
    if name != TRANSCRIPT_FILE and not is_result_name(name, silos=silos):
        return False
    try:
        return name in _names(study, folder)
    except (OSError, ValueError):
        return False


def _sizes_of(study: StudyRecord, folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Returns the sizes of the files that are there, and when transcripts or results were removed."""
    sizes = {name: (folder / name).stat().st_size for name in _names(study, folder)}
    times = {what: removed_at(folder, what) for what in (TRANSCRIPTS, RESULTS)}
    return sizes, {what: at for what, at in times.items() if at is not None}


def _error(status: int, what: str, expected: str) -> web.Response:
    error = {"what": what, "where": "result", "expected": expected}
    return web.json_response({"error": error}, status=status, headers=ingest_headers())


async def _send(request: web.BaseRequest, path: Path) -> web.StreamResponse:
    with await asyncio.to_thread(path.open, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        response = web.StreamResponse(headers=ingest_headers())
        response.force_close()
        response.content_length = size
        response.content_type = "application/octet-stream"
        await response.prepare(request)
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            async with asyncio.timeout(_CHUNK_S):
                await response.write(chunk)
        await response.write_eof()
    return response
