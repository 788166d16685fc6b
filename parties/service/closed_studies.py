"""Answers to owners of a known study that does not run: it is over, or has not begun.

A study without a process has no TLS endpoint of its own. ``ClosedStudies`` finds the study of a connection, and
``ClosedStudyResponder`` terminates TLS with the study's own certificate, so that an owner gets the answer from the
server that it pinned. Every request gets one answer: 410 with
the reason "closed" if the study is over, 503 if it may accept submissions later, after which owners retry; to
questions about a withdrawal a signed statement, where one is true (`parties.service.closed_returns`), and to those
about releases what of the owner's key this server has released in any study; and of a finished study its public files
(`parties.service.closed_results`). No body is read. Participants of a study of one server that is over are told what of
their key was released (`parties.service.closed_federations`); at a name of its own (`result_sni_name`) such a study's
result is handed out over HTTPS, in every state of the study. All answers are public.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias

from aiohttp import web

from parties.config import CertificateFiles, load_config
from parties.federation.release_statements import told_statements
from parties.federation.session import server_certificate_files
from parties.foundation.errors import CertificateError, ConfigError, PartyError
from parties.foundation.version import ingest_headers
from parties.identity.tls import peer_key, peer_name, server_context
from parties.mpc.submission.http_api import releases_path, withdrawal_path
from parties.mpc.submission.messages import FieldError
from parties.network.port_sharing import result_sni_name, study_sni_name
from parties.service.closed_federations import ClosedFederationResponder
from parties.service.closed_results import ClosedResults
from parties.service.closed_returns import ClosedReturns, OwnerRequest, ReleasesRequest
from parties.service.identity import ServiceIdentity
from parties.service.known_studies import KnownStudies
from parties.service.responders import ResponderPool, StudyResponder
from parties.service.study_record import ACTIVE, DISTAIM, ENDED, StudyRecord, StudyState
from parties.session.enrollment import EnrollmentRefusalReason
from parties.storage.release_registry import ReleaseRegistry
from parties.storage.user_paths import registry_path

_NOTHING_MORE = "no submission: it takes none any more"


ReturnOf: TypeAlias = Callable[[StudyRecord, OwnerRequest], Awaitable[Mapping[str, object] | None]]
"""Returns the signed statement to an owner of a study, None if there is none."""
ReleasesOf: TypeAlias = Callable[[ReleasesRequest], Mapping[str, object] | None]
"""Returns the releases of an owner in all studies, None for an unknown configuration; blocks."""


class ClosedStudies:
    """Answers owners of the studies of ``identity`` that have no process; of one server's those that are over."""

    def __init__(
        self, identity: ServiceIdentity, studies: KnownStudies, register: Path | None
    ) -> None:
        self._identity = identity
        self._studies = studies
        self._register = register
        self._federations = ResponderPool()
        self._returns = ClosedReturns(identity, studies, register)
        results = ClosedResults(identity.own.name, lambda study: studies.folder(study).work)
        self._responder = ClosedStudyResponder(
            studies.get,
            self._files,
            self._return,
            results=results,
            releases_of=self._returns.releases,
        )
        self._single_results = ClosedStudyResponder(studies.get, self._files, results=results)

    def take(self, name: str, connection: socket.socket) -> bool:
        """Passes a connection by the SNI ``name`` of a study without a process to its responder.

        The name of a single server's result is answered whether the study has a process or not.
        """
        for study in self._studies.values():
            if study.kind != DISTAIM and result_sni_name(study.digest) == name:
                return self._single_results.take(study.digest, connection)
            if study.state in ACTIVE or study_sni_name(study.digest) != name:
                continue
            if study.kind == DISTAIM:
                return self._responder.take(study.digest, connection)
            return study.state in ENDED and self._take_federation(study.digest, connection)
        return False

    def _take_federation(self, digest: str, connection: socket.socket) -> bool:
        def responder() -> ClosedFederationResponder:
            context = server_context(self._files(self._studies[digest]))
            return ClosedFederationResponder(
                lambda: self._studies.get(digest), self._statements_of, context
            )

        try:
            self._federations.take(digest, connection, responder)
        except (CertificateError, ConfigError):
            return False
        return True

    def _statements_of(self, certificate: bytes) -> bytes:
        """Returns the statements of a participant's key, in all studies. Raises StoreError. Blocks."""
        return told_statements(ReleaseRegistry(registry_path(self._register)), certificate)

    async def close(self) -> None:
        """Closes all connections."""
        await self._responder.close()
        await self._single_results.close()
        await self._federations.close()

    def _files(self, study: StudyRecord) -> CertificateFiles:
        """Returns a study's certificate files. Raises ConfigError, CertificateError."""
        return server_files(self._studies, study, self._identity.pid)

    async def _return(
        self, study: StudyRecord, request: OwnerRequest
    ) -> Mapping[str, object] | None:
        """See ``ClosedReturns.answer``; no study begins or ends meanwhile."""
        async with self._studies.lock:
            if self._studies.get(study.digest) != study:
                return None
            return await asyncio.to_thread(self._returns.answer, study, request)


def server_files(studies: KnownStudies, study: StudyRecord, pid: int) -> CertificateFiles:
    """Returns the certificate files of server ``pid`` for a study, or of its one server.

    Raises ConfigError, CertificateError.
    """
    config = load_config(studies.folder(study).config)
    return config.require_tls(pid) if study.kind == DISTAIM else server_certificate_files(config)


class ClosedStudyResponder:
    """Answers for studies: ``known`` returns a study's record, ``files_of`` its certificate files."""

    def __init__(
        self,
        known: Callable[[str], StudyRecord | None],
        files_of: Callable[[StudyRecord], CertificateFiles],
        return_of: ReturnOf | None = None,
        *,
        results: ClosedResults | None = None,
        releases_of: ReleasesOf | None = None,
    ) -> None:
        self._study_of = known
        self._files_of = files_of
        self._return_of = return_of
        self._results = results
        self._releases_of = releases_of
        self._pool = ResponderPool()

    def take(self, digest: str, connection: socket.socket) -> bool:
        """Takes over a ``connection``; returns False if the study is unknown or its certificate cannot be used."""
        study = self._study_of(digest)
        if study is None:
            return False

        def responder() -> StudyResponder:
            answers = _StudyAnswers(
                lambda: self._study_of(digest),
                return_of=self._return_of,
                results=self._results,
                releases_of=self._releases_of,
            )
            return StudyResponder(answers.answer, server_context(self._files_of(study)))

        try:
            self._pool.take(digest, connection, responder)
        except (CertificateError, ConfigError):
            return False
        return True

    async def close(self) -> None:
        """Closes all connections."""
        await self._pool.close()


class _StudyAnswers:
    """Answers of one study."""

    def __init__(
        self,
        study: Callable[[], StudyRecord | None],
        *,
        return_of: ReturnOf | None,
        results: ClosedResults | None,
        releases_of: ReleasesOf | None,
    ) -> None:
        self._study = study
        self._return_of = return_of
        self._results = results
        self._releases_of = releases_of

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        study = self._study()
        if study is not None and self._results is not None:
            found = await self._results.answer(study, request)
            if found is not None:
                return found
        status: int = HTTPStatus.NOT_FOUND
        document: Mapping[str, object] = {"error": {"what": "no study"}}
        if study is not None:
            status, document = _state_answer(study)
            if request.path == withdrawal_path(study.run):
                returned = await self._returned(study, request)
                if returned is not None:
                    status, document = HTTPStatus.OK, returned
            elif request.path == releases_path(study.run) and request.method == "GET":
                releases = await self._releases(request)
                if releases is not None:
                    status, document = HTTPStatus.OK, releases
        return web.json_response(document, status=status, headers=ingest_headers())

    async def _returned(
        self, study: StudyRecord, request: web.BaseRequest
    ) -> Mapping[str, object] | None:
        """Returns the signed statement for the requester of a study, None if there is none."""
        tls = _tls(request)
        if tls is None or self._return_of is None:
            return None
        headers = request.headers if request.method == "PUT" else None
        try:
            certificate = tls.getpeercert(binary_form=True) or b""
            asked = OwnerRequest(peer_name(tls), certificate, headers)
            return await self._return_of(study, asked)
        except (PartyError, FieldError):
            return None

    async def _releases(self, request: web.BaseRequest) -> Mapping[str, object] | None:
        """Returns the releases of the requester's key, None for an unknown configuration or a failing registry."""
        tls = _tls(request)
        if tls is None or self._releases_of is None:
            return None
        try:
            asked = ReleasesRequest(peer_key(tls), request.query)
            return await asyncio.to_thread(self._releases_of, asked)
        except (PartyError, ValueError):
            return None


def _tls(request: web.BaseRequest) -> ssl.SSLObject | None:
    transport = request.transport
    found = None if transport is None else transport.get_extra_info("ssl_object")
    return found if isinstance(found, ssl.SSLObject) else None


def _state_answer(study: StudyRecord) -> tuple[int, Mapping[str, object]]:
    """Returns the HTTP status and the document for an owner: that a single server's study runs, or else the error."""
    if study.kind != DISTAIM and study.state in ACTIVE:
        return HTTPStatus.ACCEPTED, {"run": study.run, "state": study.state.value}
    status, error = closed_study_answer(study)
    return status, {"error": error}


def closed_study_answer(study: StudyRecord) -> tuple[int, dict[str, str]]:
    """Returns the HTTP status and the error for an owner of a study that does not run."""
    if study.state in ENDED:
        how = {StudyState.FINISHED: "was finished", StudyState.CANCELLED: "was cancelled"}
        when = f" on {study.ended_at:%Y-%m-%d at %H:%M} UTC" if study.ended_at else ""
        error = {
            "what": f"the study {study.run} {how.get(study.state, 'failed')}{when}",
            "where": "study",
            "expected": _again_text(study) if study.state is StudyState.FAILED else _NOTHING_MORE,
            "reason": str(EnrollmentRefusalReason.CLOSED),
        }
        return HTTPStatus.GONE, error
    error = {
        "what": f"the study {study.run} has not begun: it is {study.state}",
        "where": "study",
        "expected": _approval_text(study),
    }
    return HTTPStatus.SERVICE_UNAVAILABLE, error


def _approval_text(study: StudyRecord) -> str:
    who = "the operators of all three servers have" if study.kind == DISTAIM else "its operator has"
    return f"it again, once {who} approved it"


def _again_text(study: StudyRecord) -> str:
    if study.kind != DISTAIM:
        return f"{_NOTHING_MORE}, unless its operator approves it again"
    return f"{_NOTHING_MORE}, unless all three operators approve it again; --withdraw takes back what was sent"
