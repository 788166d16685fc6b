"""What owners hear at a study that is known and does not run: that it is over, or has not begun, in words.

Provides ``Afterword``. A study without a process has nobody to end TLS for it; here the service does, with the study's
own certificate, so that an owner hears it from the server that it pinned. Every request gets one answer: 410 with the
reason "closed" where nothing will be taken any more, 503 where it may be later, after which owners try again. Nothing
of what they send is read. Public: all that is said.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from parties.config import CertificateFiles
from parties.foundation.errors import CertificateError, ConfigError
from parties.foundation.version import ingest_headers
from parties.identity.tls import server_context
from parties.network.port_sharing import Handed, Waiting
from parties.service.studies import OVER, State, Study
from parties.session.enrollment import TurnedAway

_HANDSHAKE_S = 10.0
_MOST_HANDSHAKES = 128
_LINGER_S = 1.0
_MOST = 64
"""Studies that are spoken for at once; the one that was asked for longest ago goes."""
_KEPT_S = 60.0
"""How long a study that nobody asks for is kept: its TLS context takes 40 KB."""


class Afterword:
    """Answers for studies whose certificate files ``files_of`` tells, by the state that ``known`` has of them."""

    def __init__(
        self, known: Callable[[str], Study | None], files_of: Callable[[Study], CertificateFiles]
    ) -> None:
        self._known = known
        self._files_of = files_of
        self._places: dict[str, _Place] = {}
        """The one that was asked for longest ago first."""
        self._ending: set[asyncio.Task[None]] = set()

    def take(self, digest: str, connection: socket.socket) -> bool:
        """Answer on a ``connection``; False where nothing can be said for this study."""
        study = self._known(digest)
        if study is None:
            return False
        place = self._places.pop(digest, None)
        try:
            place = place or _Place(self._files_of(study), lambda: self._known(digest))
        except (CertificateError, ConfigError):
            return False
        self._places[digest] = place
        place.put(connection)
        place.asked_at = time.monotonic()
        for old, kept in list(self._places.items()):
            if len(self._places) <= _MOST and kept.asked_at > place.asked_at - _KEPT_S:
                break
            self._end(old)
        return True

    def _end(self, digest: str) -> None:
        task = asyncio.ensure_future(self._places.pop(digest).close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all connections."""
        for digest in list(self._places):
            self._end(digest)
        await asyncio.gather(*self._ending)


class _Place:
    """One study's."""

    def __init__(self, files: CertificateFiles, study: Callable[[], Study | None]) -> None:
        """Raises CertificateError."""
        self.asked_at = 0.0
        self._study = study
        inlet = Waiting()
        self.put = inlet.put
        self._server = web.Server(self._answer, access_log=None)
        self._handed = Handed(
            inlet, self._server, server_context(files), _HANDSHAKE_S, _MOST_HANDSHAKES
        )

    async def close(self) -> None:
        self._handed.close()
        await self._server.shutdown(_LINGER_S)
        await self._handed.wait_closed()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        study = self._study()
        status, error = said_of(study) if study else (HTTPStatus.NOT_FOUND, {"what": "no study"})
        response = web.json_response({"error": error}, status=status, headers=ingest_headers())
        response.force_close()
        return response


def said_of(study: Study) -> tuple[int, dict[str, str]]:
    """The HTTP status and the error that an owner of a study hears."""
    if study.state in OVER:
        how = {State.FINISHED: "is finished", State.CANCELLED: "was cancelled"}
        when = f" since {study.ended_at:%Y-%m-%d %H:%M} UTC" if study.ended_at else ""
        error = {
            "what": f"the study {study.run} {how.get(study.state, 'has failed')}{when}",
            "where": "study",
            "expected": "nothing more: no submission is taken",
            "reason": str(TurnedAway.CLOSED),
        }
        return HTTPStatus.GONE, error
    error = {
        "what": f"the study {study.run} has not begun: it is {study.state}",
        "where": "study",
        "expected": "it again, once the operators of all three servers have approved it",
    }
    return HTTPStatus.SERVICE_UNAVAILABLE, error
