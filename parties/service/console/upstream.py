"""Clients of the admin APIs that the console shows: one server's, or a service's with many studies.

``RunUpstream`` and ``ServiceUpstream`` implement ``Upstream``; ``upstream_of`` selects one by the folder's kind. Both
use the Unix socket in the folder, in a console process of its own as well as within the server's. If no process answers
in a server's folder, the files of the last run give its status. All data passed on is public. Raises StoreError for an
answer of unknown form, NotRunning if no process answers.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import aiohttp

from parties.foundation.errors import StoreError
from parties.service.access import PASS_HEADER
from parties.service.admin_listener import SOCKET_NAME, short_socket_path
from parties.service.offline_status import offline_status
from parties.service.retention import BUNDLE, TRANSCRIPT
from parties.service.status_client import NotRunning, versioned
from parties.service.study_intake import StudyFolder
from parties.service.study_record import ENDED, StudyState

_TIMEOUT = aiohttp.ClientTimeout(total=10.0)
_STREAM = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=60.0)
"""Timeouts of an event stream; comments come four times as often as the maximum silence."""
_LONGEST = 1 << 24
_LINE = 1 << 22
APPROVE, COLLECT = "approve", "collect"
"""Commands with a rule of their own: approval has a page, and a result is collected until the bundle is there."""
_FORWARDED_COMMANDS = ("close", "finish", "revoke")
"""Commands that a service forwards to the study's process, without ``cancel``, after which it would restart it."""
_SERVERS = "servers"
"""Name of the subfolder of a service with the public files of the servers that it knows."""

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """Result of a command: ``taken``, or the server's error ``text`` with its HTTP status."""

    taken: bool
    text: str = ""
    status: int = 0


@dataclass(frozen=True, slots=True)
class DisplayedStudy:
    """Study as a page shows it.

    Attributes:
        status: Status document of its process, or of its last run.
        study: The service's document of the study.
        orders: Names of the commands available now.
        folder: Folder with its public files.
        over: True if the files may be shown.
    """

    key: str
    title: str
    folder: Path
    orders: tuple[str, ...]
    over: bool
    status: Document | None = None
    study: Document | None = None


class Upstream(Protocol):
    """Source of the console's data. ``in_service`` selects the texts of the commands."""

    in_service: bool

    async def overview(self) -> Document | None:
        """Returns the overview of a service's studies; None for a single run."""

    async def listing(self, query: Mapping[str, str]) -> Document:
        """Returns the page of a service's studies that ``query`` selects, and their ``total`` number."""

    async def summary(self, key: str) -> Document:
        """Returns the study ``key`` in sentences, and its differences from the one approved before it."""

    async def find(self, key: str | None) -> DisplayedStudy | None:
        """Returns the study ``key``, or the only one; None if it is unknown."""

    async def order(
        self, key: str, name: str, fields: Mapping[str, object], *, credential: str
    ) -> CommandAnswer:
        """Sends the command ``name`` to the server, in the name of the holder of the pass ``credential``."""

    def changes(self, key: str | None) -> AsyncIterator[None]:
        """Yields after every change that the server reports, until the stream ends."""


def upstream_of(folder: Path) -> Upstream:
    """Returns the upstream for the folder of `syncret serve` or of a single server."""
    return ServiceUpstream(folder) if (folder / _SERVERS).is_dir() else RunUpstream(folder)


class RunUpstream:
    """Upstream for the single server in ``folder``."""

    in_service = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def overview(self) -> Document | None:
        """See ``Upstream``."""
        return None

    async def listing(self, query: Mapping[str, str]) -> Document:
        """See ``Upstream``; a single run has no list."""
        return {"studies": [], "total": 0}

    async def summary(self, key: str) -> Document:
        """See ``Upstream``; a single run is not approved here."""
        return {"sentences": [], "previous": None}

    async def find(self, key: str | None) -> DisplayedStudy | None:
        """See ``Upstream``."""
        try:
            status: Document = await _get(self.folder, "/status")
        except NotRunning:
            status = await asyncio.to_thread(offline_status, self.folder)
        name = status["study"]["id"]
        if key not in (None, name):
            return None
        return DisplayedStudy(
            name, name, self.folder, _available_commands(status), not status["running"], status
        )

    async def order(
        self, key: str, name: str, fields: Mapping[str, object], *, credential: str
    ) -> CommandAnswer:
        """See ``Upstream``."""
        return await _post(self.folder, f"/{_quoted(name)}", fields, credential=credential)

    async def changes(self, key: str | None) -> AsyncIterator[None]:
        """See ``Upstream``."""
        async for _ in _events(self.folder, "/events"):
            yield None


class ServiceUpstream:
    """Upstream for the service in ``folder``."""

    in_service = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def overview(self) -> Document | None:
        """See ``Upstream``."""
        found = await _get(self.folder, "/status")
        if "service" not in found:
            raise StoreError(self.folder, _error_text(found))
        return found

    async def listing(self, query: Mapping[str, str]) -> Document:
        """See ``Upstream``."""
        found = await _get(self.folder, f"/studies?{urlencode(query)}")
        return found if "studies" in found else {"studies": [], "total": 0}

    async def summary(self, key: str) -> Document:
        """See ``Upstream``."""
        found = await _get(self.folder, f"/studies/{_quoted(key)}/summary")
        return found if "sentences" in found else {"sentences": [], "previous": None}

    async def find(self, key: str | None) -> DisplayedStudy | None:
        """See ``Upstream``."""
        study = await _get(self.folder, f"/studies/{_quoted(key or '')}")
        if "digest" not in study:
            return None
        # The service's own path of the folder differs if the service runs in a container.
        work = StudyFolder(self.folder, study["run"], study["digest"]).work
        status = await self._status(study["digest"], work)
        state = StudyState(study["state"])
        running = status is not None and status["running"]
        available = tuple(
            name for name in _available_commands(status or {}) if name in _FORWARDED_COMMANDS
        )
        own = tuple(
            name for name in study["orders"] if name != COLLECT or not (work / BUNDLE).exists()
        )
        # Commands of the run stand before the end for good.
        orders = own if state in ENDED else (*own[:-1], *available, *own[-1:])
        over = state in ENDED and not running
        return DisplayedStudy(study["digest"], study["run"], work, orders, over, status, study)

    async def _status(self, digest: str, work: Path) -> Document | None:
        """Returns the status from the study's process, or from its folder if none runs; None if it never started."""
        answer = await _get(self.folder, f"/studies/{digest}/status")
        if "phase" in answer:
            return answer
        if not (work / TRANSCRIPT).exists():
            return None
        try:
            return await asyncio.to_thread(offline_status, work)
        except StoreError:
            return None

    async def order(
        self, key: str, name: str, fields: Mapping[str, object], *, credential: str
    ) -> CommandAnswer:
        """See ``Upstream``."""
        path = f"/studies/{_quoted(key)}/{_quoted(name)}"
        return await _post(self.folder, path, fields, credential=credential)

    async def changes(self, key: str | None) -> AsyncIterator[None]:
        """See ``Upstream``. For a study that runs, changes of its process are included."""
        if key is None:
            async for _ in _events(self.folder, "/events"):
                yield None
            return
        async for _ in _events(self.folder, f"/studies/{_quoted(key)}/events"):
            yield None


def _available_commands(status: Document) -> tuple[str, ...]:
    """Returns the commands that a server accepts, without those that its operator has given already."""
    here = (status.get("asked") or {}).get("here", {})
    return tuple(name for name in status.get("orders", ()) if not here.get(name))


def _quoted(text: str) -> str:
    return quote(text, safe="")


async def _get(folder: Path, path: str) -> Document:
    """Returns the JSON object of the answer, for every HTTP status."""
    async with _request(folder, "GET", path) as response:
        return _document(await response.content.read(_LONGEST))


async def _post(
    folder: Path, path: str, fields: Mapping[str, object], *, credential: str
) -> CommandAnswer:
    headers = {PASS_HEADER: credential} if credential else {}
    async with _request(folder, "POST", path, json_body=dict(fields), headers=headers) as response:
        document = _document(await response.content.read(_LONGEST))
    if response.status < 300:
        return CommandAnswer(True)
    return CommandAnswer(False, _error_text(document), response.status)


def _error_text(document: Document) -> str:
    error = document.get("error")
    said = error if isinstance(error, dict) else {}
    return f"{said.get('what', 'the server refuses')}; expected {said.get('expected')}"


async def _events(folder: Path, path: str) -> AsyncIterator[None]:
    try:
        async with _request(folder, "GET", path, timeout=_STREAM) as response:
            async for line in response.content:
                if line.startswith(b"data:"):
                    yield None
    except (NotRunning, StoreError):
        return


@contextlib.asynccontextmanager
async def _request(
    folder: Path,
    method: str,
    path: str,
    *,
    json_body: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: aiohttp.ClientTimeout = _TIMEOUT,
) -> AsyncIterator[aiohttp.ClientResponse]:
    socket_path = folder / SOCKET_NAME
    try:
        with short_socket_path(socket_path) as name:
            connector = aiohttp.UnixConnector(name)
            url = f"http://localhost{versioned(path)}"
            async with (
                aiohttp.ClientSession(connector=connector, read_bufsize=_LINE) as session,
                session.request(
                    method, url, json=json_body, headers=headers, timeout=timeout
                ) as response,
            ):
                yield response
    except (FileNotFoundError, ConnectionRefusedError, aiohttp.ClientConnectorError) as error:
        raise NotRunning(f"nothing runs in {folder}") from error
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        words = str(error) or type(error).__name__
        raise StoreError(socket_path, f"does not answer as a server would: {words}") from error


def _document(data: bytes) -> dict[str, Any]:
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("its answer is no JSON object")
    return document
