"""Admission of data owners over the network: requests that wait at each server of a study, and their answers.

An owner without a certificate sends its signed request over TLS that proves the server's pinned key alone. The request
waits here until the study's coordinator, who has heard its words from the owner, has signed a certificate with the
study's authority; no server has the authority's key, so that none can admit anybody. The owner asks again with the
same request, and gets its certificate. A request is bound to the study and signed by its key: nobody else can ask what
became of it, and no answer says whether a name is taken.

Strangers may ask, so everything is bounded: connections by address before TLS (``AdmissionDesk.take``), bytes and time
of a request, and requests that wait, in total and by address. Where the total is reached, the address with most
requests loses its latest one. Requests that nobody asks about again expire. A key has one name. Where a study's
configuration lists its owners, or their keys, nobody else may ask, and all others get the same answer: it says neither
whether a name is listed nor anything of a key. Known limit: where names alone are listed, a request that is taken says
that its name is one of them. Nothing here is secret.
"""

import asyncio
import contextlib
import ipaddress
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding

from parties.config import CertificateFiles, Config
from parties.foundation.errors import CertificateError, ConfigError, PartyError, StoreError
from parties.foundation.times import iso_time
from parties.foundation.untrusted_text import certificate_from_pem
from parties.foundation.version import ingest_headers
from parties.identity.join_documents import (
    MAX_BYTES,
    AdmissionRequest,
    fingerprint_words,
    parse_admission_request,
)
from parties.identity.listed_owners import listed_owners, unlisted_problem
from parties.identity.signing import Issuer
from parties.identity.tls import anonymous_server_context
from parties.mpc.submission.http_api import admission_path
from parties.network.port_sharing import admission_sni_name
from parties.service.closed_studies import closed_study_answer
from parties.service.events import EventName
from parties.service.known_studies import KnownStudies
from parties.service.responders import ResponderPool, StudyResponder
from parties.service.study_record import ENDED, StudyRecord
from parties.storage.files import disk_errors, write_atomic
from protocols.mesh import key_hash

MAX_WAITING = 1000
MAX_WAITING_AT_ADDRESS = 200
EXPIRES_S = 14 * 86_400.0
"""Time after which a request expires that nobody has asked about, in seconds."""
MAX_CONNECTIONS_A_MINUTE = 600
"""Maximum number of connections from one address in a minute."""
_MAX_ADDRESSES = 4096
_WINDOW_S = 60.0
_REQUEST_S = 10.0
"""Maximum time of a connection in seconds."""
_FOLDER = "admission"
_FROM = "# from "
"""Start of the line before a stored request, with the address that it came from."""
_REQUEST, _CERTIFICATE, _REFUSED = ".request", ".crt", ".refused"


class ApplicantState(StrEnum):
    """State of a request for admission."""

    PENDING = "pending"
    ADMITTED = "admitted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Applicant:
    """An owner's ``request`` with its signed ``text``, the address ``remote`` that it came from, and what became of it.

    ``first`` and ``seen`` are the times of its first and latest arrival, in seconds since the epoch.
    """

    request: AdmissionRequest
    text: str
    remote: str
    first: float
    seen: float
    state: ApplicantState = ApplicantState.PENDING
    certificate: str = ""

    def to_dict(self) -> dict[str, object]:
        """JSON form, for the operator."""
        return {
            **self.request.fields(),
            "words": fingerprint_words(self.request.key),
            "request": self.text,
            "remote": self.remote,
            "state": self.state.value,
            "first": iso_time(self.first),
            "seen": iso_time(self.seen),
        }


class TooManyApplicants(PartyError):
    """No room for a further request."""


class OtherName(PartyError):
    """The key has asked by another name."""


class UnknownApplicant(PartyError):
    """Nobody has asked with this key, or it was decided otherwise."""


class Applicants:
    """Requests for admission to one study, by key, in memory and in the ``folder``. Its methods block.

    Raise StoreError.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._known: dict[str, Applicant] = {}
        for path in sorted(folder.glob(f"*{_REQUEST}")) if folder.is_dir() else ():
            with contextlib.suppress(CertificateError, OSError):
                found = _stored(path)
                self._known[found.request.key] = found

    def all(self) -> tuple[Applicant, ...]:
        """Returns all requests, the earliest first."""
        self._expire()
        return tuple(sorted(self._known.values(), key=lambda each: each.first))

    @property
    def known(self) -> tuple[Applicant, ...]:
        """Requests in memory, those that have expired since the last use among them."""
        return tuple(self._known.values())

    def apply(self, request: AdmissionRequest, text: bytes, remote: str) -> Applicant:
        """Returns what became of a request, which is added if it is new. Raises TooManyApplicants, OtherName."""
        self._expire()
        now, known = self._clock(), self._known.get(request.key)
        if known is None:
            self._make_room(remote)
            with disk_errors(self._folder, "made"):
                self._folder.mkdir(exist_ok=True, mode=0o700)
            origin = f"{_FROM}{remote}\n".encode()
            write_atomic(self._path(request.key, _REQUEST), origin + text)
            known = Applicant(request, text.decode(), remote, now, now)
        elif known.request.name != request.name:
            raise OtherName(f"this key has asked by the name {known.request.name!r}")
        elif now - known.seen > _WINDOW_S:
            with contextlib.suppress(OSError):
                os.utime(self._path(request.key, _REQUEST), (now, now))
        known = self._known[request.key] = replace(known, seen=now)
        return known

    def admit(self, certificate: str, issuer: Issuer) -> Applicant:
        """Keeps an owner's certificate for it. Raises CertificateError, UnknownApplicant."""
        try:
            found = certificate_from_pem(certificate.encode())
        except ValueError as error:
            raise CertificateError("the certificate cannot be read; expected PEM") from error
        holder = issuer.signatory(found.public_bytes(Encoding.DER))
        known = self._known.get(key_hash(found))
        if known is None or known.request.name != holder.name:
            raise UnknownApplicant(f"{holder.name} has not asked with the certificate's key")
        write_atomic(self._path(known.request.key, _CERTIFICATE), certificate)
        return self._decided(known, ApplicantState.ADMITTED, certificate)

    def refuse(self, key: str) -> Applicant:
        """Refuses a request. Raises UnknownApplicant."""
        known = self._known.get(key)
        if known is None or known.state is ApplicantState.ADMITTED:
            raise UnknownApplicant(f"no request with the key {key[:16]!r} waits here")
        write_atomic(self._path(key, _REFUSED), b"")
        return self._decided(known, ApplicantState.REFUSED)

    def _decided(self, known: Applicant, state: ApplicantState, certificate: str = "") -> Applicant:
        decided = replace(known, state=state, certificate=certificate)
        self._known[known.request.key] = decided
        return decided

    def _make_room(self, remote: str) -> None:
        waiting = [
            each for each in self._known.values() if each.state is not ApplicantState.ADMITTED
        ]
        network = network_of(remote)
        by_network = Counter(network_of(each.remote) for each in waiting)
        if by_network[network] >= MAX_WAITING_AT_ADDRESS:
            raise TooManyApplicants(
                f"{by_network[network]} requests from this address wait already"
            )
        if len(waiting) < MAX_WAITING:
            return
        crowded, most = by_network.most_common(1)[0]
        if most <= by_network[network] + 1:
            raise TooManyApplicants(f"{len(waiting)} requests wait already")
        latest = max(
            (each for each in waiting if network_of(each.remote) == crowded),
            key=lambda each: each.first,
        )
        self._forget(latest.request.key)

    def _expire(self) -> None:
        oldest = self._clock() - EXPIRES_S
        for key, each in list(self._known.items()):
            if each.state is not ApplicantState.ADMITTED and each.seen < oldest:
                self._forget(key)

    def _forget(self, key: str) -> None:
        with disk_errors(self._folder, "deleted"):
            for ending in (_REFUSED, _REQUEST):
                self._path(key, ending).unlink(missing_ok=True)
        del self._known[key]

    def _path(self, key: str, ending: str) -> Path:
        return self._folder / f"{key}{ending}"


def network_of(remote: str) -> str:
    """Returns the network that an address counts for: of IPv6 the first 48 bits, all below which one site may have."""
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 48), strict=False))
    return str(address)


def _stored(path: Path) -> Applicant:
    """Returns a request as a former process left it. Raises CertificateError, OSError."""
    origin, _, text = path.read_bytes().partition(b"\n")
    request, seen = parse_admission_request(text), path.stat().st_mtime
    remote = origin.decode("ascii", errors="replace").removeprefix(_FROM)
    found = Applicant(request, text.decode(), remote, seen, seen)
    certificate = path.with_suffix(_CERTIFICATE)
    if certificate.exists():
        pem = certificate.read_text(encoding="ascii")
        return replace(found, state=ApplicantState.ADMITTED, certificate=pem)
    refused = path.with_suffix(_REFUSED).exists()
    return replace(found, state=ApplicantState.REFUSED) if refused else found


class AdmissionDesk:
    """Takes requests for admission to the open studies among ``studies``.

    ``files_of`` returns a study's certificate files, and ``config_of`` its configuration, whose list of owners, and of
    their keys, a request has to fit.
    """

    def __init__(
        self,
        studies: KnownStudies,
        files_of: Callable[[StudyRecord], CertificateFiles],
        config_of: Callable[[StudyRecord], Config],
    ) -> None:
        self._studies = studies
        self._files_of = files_of
        self._config_of = config_of
        self._listed: dict[str, Mapping[str, str]] = {}
        self._pool = ResponderPool()
        self._applicants: dict[str, Applicants] = {}
        self._lock = asyncio.Lock()
        self._window = 0.0
        self._connections: Counter[str] = Counter()

    def take(self, name: str, connection: socket.socket) -> bool:
        """Takes over a connection by the SNI ``name`` of a study's admission; False for another name."""
        for study in self._studies.values():
            if admission_sni_name(study.digest) == name:
                break
        else:
            return False
        if self._too_many(connection):
            connection.close()
            return True

        def responder() -> StudyResponder:
            context = anonymous_server_context(self._files_of(study))
            return StudyResponder(
                lambda request: self._answer(study.digest, request), context, limit_s=_REQUEST_S
            )

        try:
            self._pool.take(study.digest, connection, responder)
        except (CertificateError, ConfigError):
            return False
        return True

    async def close(self) -> None:
        """Closes all connections."""
        await self._pool.close()

    # For the operator.

    async def all(self, study: StudyRecord) -> tuple[Applicant, ...]:
        """Returns the requests for admission to a study. Raises StoreError."""
        async with self._lock:
            return await asyncio.to_thread(lambda: self._of(study).all())

    async def waiting(self, study: StudyRecord) -> int:
        """Returns the number of requests that nobody has decided; without a wait once the study's are in memory.

        Raises StoreError.
        """
        known = self._applicants.get(study.digest)
        found = await self.all(study) if known is None else known.known
        return sum(each.state is ApplicantState.PENDING for each in found)

    async def admit(self, study: StudyRecord, certificate: str) -> Applicant:
        """Keeps an owner's certificate until it asks. Raises CertificateError, UnknownApplicant, StoreError."""
        issuer = Issuer.load(self._files_of(study).ca)
        async with self._lock:
            found = await asyncio.to_thread(lambda: self._of(study).admit(certificate, issuer))
        self._studies.changes.touch()
        return found

    async def refuse(self, study: StudyRecord, key: str) -> Applicant:
        """Refuses a request. Raises UnknownApplicant, StoreError."""
        async with self._lock:
            found = await asyncio.to_thread(lambda: self._of(study).refuse(key))
        self._studies.changes.touch()
        return found

    def _of(self, study: StudyRecord) -> Applicants:
        if study.digest not in self._applicants:
            folder = Path(self._studies.folder(study).text, _FOLDER)
            self._applicants[study.digest] = Applicants(folder)
        return self._applicants[study.digest]

    # For owners.

    def _too_many(self, connection: socket.socket) -> bool:
        """Counts a connection of an address, and returns True if there are too many in this minute."""
        if time.monotonic() - self._window > _WINDOW_S:
            self._window, self._connections = time.monotonic(), Counter()
        try:
            network = network_of(str(connection.getpeername()[0]))
        except (OSError, IndexError):
            return True
        if len(self._connections) >= _MAX_ADDRESSES and network not in self._connections:
            return True
        self._connections[network] += 1
        return self._connections[network] > MAX_CONNECTIONS_A_MINUTE

    async def _answer(self, digest: str, request: web.BaseRequest) -> web.StreamResponse:
        study = self._studies.get(digest)
        if study is None:
            return _error(HTTPStatus.NOT_FOUND, "no study", "a study of this server")
        if study.state in ENDED:
            status, said = closed_study_answer(study)
            return _json({"error": said}, status)
        if request.method != "PUT" or request.path != admission_path(study.run):
            return _error(
                HTTPStatus.NOT_FOUND, "nothing is here", f"PUT {admission_path(study.run)}"
            )
        text = bytearray()
        while chunk := await request.content.read(MAX_BYTES + 1 - len(text)):
            text += chunk
        try:
            asked = parse_admission_request(bytes(text))
        except CertificateError as error:
            return _error(HTTPStatus.BAD_REQUEST, str(error), "a signed request for admission")
        if asked.study != digest:
            return _error(
                HTTPStatus.BAD_REQUEST, "the request is for another study", "one for this study"
            )
        try:
            listed = await self._owners_of(study)
        except (ConfigError, StoreError):
            what = "the server cannot read the study at present"
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, what, "another try later")
        if unlisted_problem(listed, asked.name, asked.key):
            what = "the study does not list this name with this key"
            return _error(HTTPStatus.FORBIDDEN, what, "an owner of the study's configuration")
        return await self._decision(study, asked, bytes(text), remote=request.remote or "")

    async def _owners_of(self, study: StudyRecord) -> Mapping[str, str]:
        """Returns the keys of the owners that a study lists, by name; see ``listed_owners``. Raises ConfigError."""
        if study.digest not in self._listed:
            config = await asyncio.to_thread(self._config_of, study)
            self._listed[study.digest] = listed_owners(config)
        return self._listed[study.digest]

    async def _decision(
        self, study: StudyRecord, asked: AdmissionRequest, text: bytes, *, remote: str
    ) -> web.Response:
        try:
            async with self._lock:
                found = await asyncio.to_thread(lambda: self._of(study).apply(asked, text, remote))
        except OtherName as error:
            return _error(HTTPStatus.CONFLICT, str(error), "that name, or another key")
        except TooManyApplicants as error:
            return _error(HTTPStatus.TOO_MANY_REQUESTS, str(error), "another try later")
        except StoreError:
            what = "the server cannot keep requests at present"
            return _error(HTTPStatus.INSUFFICIENT_STORAGE, what, "another try later")
        if found.first == found.seen:
            self._studies.changes.touch()
            self._studies.events.event(
                EventName.OWNER_REQUESTED,
                f"{study.run}: {asked.name} asks to be admitted",
                study=study.run,
                digest=study.digest,
                state=study.state.value,
                owner=asked.name,
                remote=remote,
            )
        if found.state is ApplicantState.REFUSED:
            what = f"the request of {asked.name} was refused"
            return _error(HTTPStatus.FORBIDDEN, what, "a word with the study's coordinator")
        if found.state is ApplicantState.ADMITTED:
            return _json({"state": found.state.value, "certificate": found.certificate})
        return _json({"state": ApplicantState.PENDING.value}, HTTPStatus.ACCEPTED)


def _json(document: object, status: int = HTTPStatus.OK) -> web.Response:
    return web.json_response(document, status=status, headers=ingest_headers())


def _error(status: int, what: str, expected: str) -> web.Response:
    return _json({"error": {"what": what, "where": "admission", "expected": expected}}, status)
