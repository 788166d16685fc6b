"""Client of a running server's admin socket, for commands: single requests, or a stream of events.

It needs no event loop and imports nothing heavy. Raises NotRunning if no process listens, StoreError for an answer of
unknown form.
"""

import contextlib
import http.client
import json
import shutil
import socket
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from parties.foundation.errors import PartyError, StoreError
from parties.foundation.untrusted_text import parse_json
from parties.service.admin_listener import SOCKET_NAME, connect_unix
from parties.storage.files import disk_errors

API = "/v1"
"""Version of the admin APIs, as their paths begin."""
UNVERSIONED = ("/metrics", "/healthz", "/readyz")
"""Paths of an admin API that have no version."""
_TIMEOUT_S, _CALL_S = 10.0, 60.0
_EVENTS_S = 60.0
"""Maximum silence between events, in seconds; comments come every quarter of it."""
_LONGEST = 1 << 24


class NotRunning(PartyError):
    """No process answers in this folder."""


def versioned(path: str) -> str:
    """Returns a route's path with the version of the API; one of ``UNVERSIONED`` as it is."""
    return path if path in UNVERSIONED else f"{API}{path}"


class _UnixHttpConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = connect_unix(self._path, self._timeout_s)


@contextlib.contextmanager
def _response(
    folder: Path,
    method: str,
    target: str,
    timeout_s: float = _TIMEOUT_S,
    *,
    body: Mapping[str, object] | None = None,
) -> Iterator[http.client.HTTPResponse]:
    path = folder / SOCKET_NAME
    connection = _UnixHttpConnection(path, timeout_s)
    try:
        connection.request(method, versioned(target), None if body is None else json.dumps(body))
        yield connection.getresponse()
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotRunning(f"nothing runs in {folder}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise StoreError(
            path, f"does not answer as a server would: {_error_text(error)}"
        ) from error
    finally:
        connection.close()


def get_document(folder: Path, target: str = "/status") -> dict[str, Any]:
    """Returns the JSON document that the server in ``folder`` answers, for every HTTP status.

    Targets are routes without the version of the API. Raises StoreError where a server of another version answers.
    """
    with _response(folder, "GET", target) as response:
        document = _document(response.read(_LONGEST))
    if response.status == HTTPStatus.NOT_FOUND and target == "/status":
        text = f"has a process of another version, without {API}; expected it to be started again"
        raise StoreError(folder, text)
    return document


def request_document(
    folder: Path, method: str, target: str, body: Mapping[str, object] | None = None
) -> tuple[int, dict[str, Any]]:
    """Sends any request to the server in ``folder`` and returns the HTTP status and the JSON document."""
    with _response(folder, method, target, _CALL_S, body=body) as response:
        return response.status, _document(response.read(_LONGEST))


def download(folder: Path, target: str, to: Path) -> None:
    """Writes the file that the server in ``folder`` answers to ``to``. Raises StoreError if it has none."""
    with _response(folder, "GET", target, _CALL_S) as response:
        if response.status != HTTPStatus.OK:
            raise StoreError(folder, f"has no file {target} (HTTP status {response.status})")
        with disk_errors(to), to.open("wb") as file:
            shutil.copyfileobj(response, file)


def send_command(
    folder: Path, name: str, body: Mapping[str, object] | None = None
) -> tuple[bool, dict[str, Any]]:
    """Sends a command such as ``close``, with parameters in ``body``; returns its acceptance and the answer."""
    with _response(folder, "POST", f"/{name}", body=body) as response:
        return response.status < 300, _document(response.read(_LONGEST))


def status_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the statuses that the server in ``folder`` sends, until it ends."""
    with _response(folder, "GET", "/events", _EVENTS_S) as response:
        while line := response.readline(_LONGEST):
            if line.startswith(b"data:"):
                yield _document(line.removeprefix(b"data:"))


def _document(data: bytes) -> dict[str, Any]:
    document = parse_json(data)
    if not isinstance(document, dict):
        raise ValueError("its answer is no JSON object")
    return document


def _error_text(error: Exception) -> str:
    return "it is silent" if isinstance(error, TimeoutError | socket.timeout) else str(error)
