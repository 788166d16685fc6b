"""The admin API that the console shows, as seen from the console: one server's, or a service's with many studies.

Provides ``Upstream``. It asks the Unix socket in the server's folder, the same whether the console is a process of its
own or lives in the server's; where nobody answers there, it says what the folder has of the last run. Public: all that
it passes on. Raises StoreError where an answer is not understood, NotRunning where an order finds nobody.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from parties.errors import StoreError
from parties.operate.asking import NotRunning
from parties.operate.past import past_status
from parties.operate.sockets import NAME, reachable

_TIMEOUT = aiohttp.ClientTimeout(total=10.0)
_STREAM = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=60.0)
"""Silence that is borne between events; a comment comes four times as often."""
_LONGEST = 1 << 24
_LINE = 1 << 22

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether an order was taken, and the server's sentence where not."""

    taken: bool
    text: str = ""


class Upstream:
    """The server whose folder is ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def status(self) -> Document:
        """Its status document; of the last run where nothing runs."""
        try:
            return await self._get("/status")
        except NotRunning:
            return await asyncio.to_thread(past_status, self.folder)

    async def order(self, name: str) -> Answer:
        """Tell it to close, finish or cancel."""
        async with self._request("POST", f"/{quote(name, safe='')}") as response:
            document = _document(await response.content.read(_LONGEST))
        if response.status < 300:
            return Answer(True)
        error = document.get("error")
        words = error if isinstance(error, dict) else {}
        return Answer(
            False, f"{words.get('what', response.reason)}; expected {words.get('expected')}"
        )

    async def changes(self) -> AsyncIterator[None]:
        """Something has changed, as often as the server says so, until it ends."""
        try:
            async with self._request("GET", "/events", _STREAM) as response:
                async for line in response.content:
                    if line.startswith(b"data:"):
                        yield None
        except (NotRunning, StoreError):
            return

    async def _get(self, path: str) -> Document:
        async with self._request("GET", path) as response:
            return _document(await response.content.read(_LONGEST))

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, path: str, timeout: aiohttp.ClientTimeout = _TIMEOUT
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        socket = self.folder / NAME
        try:
            with reachable(socket) as name:
                connector = aiohttp.UnixConnector(name)
                async with (
                    aiohttp.ClientSession(connector=connector, read_bufsize=_LINE) as session,
                    session.request(method, f"http://localhost{path}", timeout=timeout) as response,
                ):
                    yield response
        except (FileNotFoundError, ConnectionRefusedError, aiohttp.ClientConnectorError) as error:
            raise NotRunning(f"nothing runs in {self.folder}") from error
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            words = str(error) or type(error).__name__
            raise StoreError(socket, f"does not answer as a server would: {words}") from error


def _document(data: bytes) -> dict[str, Any]:
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("its answer is no JSON object")
    return document
