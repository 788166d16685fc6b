"""What owners hear at a study that is known and does not run: that it is over, or has not begun, in words.

Provides ``ClosedStudyResponder``. A study without a process has nobody to end TLS for it; here the service does, with
the study's own certificate, so that an owner hears it from the server that it pinned. Every request gets one answer:
410 with the reason "closed" where nothing will be taken any more, 503 where it may be later, after which owners try
again. Nothing of what they send is read. Public: all that is said.
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
from parties.network.port_sharing import PassedSocketQueue, PassedSocketServer
from parties.service.studies import ENDED, StudyRecord, StudyState
from parties.session.enrollment import EnrollmentRefusalReason

_HANDSHAKE_S = 10.0
_MAX_HANDSHAKES = 128
_LINGER_S = 1.0
_MAX_RESPONDERS = 64
"""Studies that are spoken for at once; the one that was asked for longest ago goes."""
_RESPONDER_IDLE_S = 60.0
"""How long a study that nobody asks for is kept: its TLS context takes 40 KB."""


class ClosedStudyResponder:
    """Answers for studies whose certificate files ``files_of`` tells, by the state that ``known`` has of them."""

    def __init__(
        self,
        known: Callable[[str], StudyRecord | None],
        files_of: Callable[[StudyRecord], CertificateFiles],
    ) -> None:
        self._study_of = known
        self._files_of = files_of
        self._responders: dict[str, _StudyResponder] = {}
        """The one that was asked for longest ago first."""
        self._ending: set[asyncio.Task[None]] = set()

    def take(self, digest: str, connection: socket.socket) -> bool:
        """Answer on a ``connection``; False where nothing can be said for this study."""
        study = self._study_of(digest)
        if study is None:
            return False
        responder = self._responders.pop(digest, None)
        try:
            responder = responder or _StudyResponder(
                self._files_of(study), lambda: self._study_of(digest)
            )
        except (CertificateError, ConfigError):
            return False
        self._responders[digest] = responder
        responder.put(connection)
        responder.asked_at = time.monotonic()
        for old, kept in list(self._responders.items()):
            if (
                len(self._responders) <= _MAX_RESPONDERS
                and kept.asked_at > responder.asked_at - _RESPONDER_IDLE_S
            ):
                break
            self._end(old)
        return True

    def _end(self, digest: str) -> None:
        task = asyncio.ensure_future(self._responders.pop(digest).close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all connections."""
        for digest in list(self._responders):
            self._end(digest)
        await asyncio.gather(*self._ending)


class _StudyResponder:
    """One study's."""

    def __init__(self, files: CertificateFiles, study: Callable[[], StudyRecord | None]) -> None:
        """Raises CertificateError."""
        self.asked_at = 0.0
        self._study = study
        inlet = PassedSocketQueue()
        self.put = inlet.put
        self._server = web.Server(self._answer, access_log=None)
        self._handed = PassedSocketServer(
            inlet, self._server, server_context(files), _HANDSHAKE_S, _MAX_HANDSHAKES
        )

    async def close(self) -> None:
        self._handed.close()
        await self._server.shutdown(_LINGER_S)
        await self._handed.wait_closed()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        study = self._study()
        status, error = (
            closed_study_answer(study) if study else (HTTPStatus.NOT_FOUND, {"what": "no study"})
        )
        response = web.json_response({"error": error}, status=status, headers=ingest_headers())
        response.force_close()
        return response


def closed_study_answer(study: StudyRecord) -> tuple[int, dict[str, str]]:
    """The HTTP status and the error that an owner of a study hears."""
    if study.state in ENDED:
        how = {StudyState.FINISHED: "is finished", StudyState.CANCELLED: "was cancelled"}
        when = f" since {study.ended_at:%Y-%m-%d %H:%M} UTC" if study.ended_at else ""
        error = {
            "what": f"the study {study.run} {how.get(study.state, 'has failed')}{when}",
            "where": "study",
            "expected": "nothing more: no submission is taken",
            "reason": str(EnrollmentRefusalReason.CLOSED),
        }
        return HTTPStatus.GONE, error
    error = {
        "what": f"the study {study.run} has not begun: it is {study.state}",
        "where": "study",
        "expected": "it again, once the operators of all three servers have approved it",
    }
    return HTTPStatus.SERVICE_UNAVAILABLE, error
