"""Validation of requests to one server's ingest API, by their headers, before a body is read.

``RequestValidator`` raises IngestError for a request that must be refused. A client is identified by the common name of
its certificate alone; a server by its name and its pinned key. For an upload that a server forwards, the participant's
certificate and signature are verified. All values here are public.
"""

import functools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from aiohttp import web

from parties.config import CertificateFiles, Config
from parties.foundation.errors import CertificateError, IngestError
from parties.foundation.untrusted_text import certificate_from_der
from parties.foundation.version import INGEST_HEADER, INGEST_VERSION, version
from parties.identity.signing import Issuer
from parties.identity.tls import common_name, peer_key, peer_name
from parties.mpc.inputs import InputForm, input_forms
from parties.mpc.submission.http_api import OTHER_CONFIG, forwarded_path, run_path
from parties.mpc.submission.messages import RING_BITS, FieldError, Submission
from parties.mpc.submission.sealed_upload import SIGNATURE_HEADER, SignedUpload, UploadSizes
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.session.study import Study
from protocols.mesh import key_hash
from protocols.upload import SOURCE_ROWS

_EXPECTED_OWNER = "a data owner's certificate of the run's authority"
_EXPECTED_SERVER = "the certificate of another server of this run"
_REQUESTER = "client certificate"


@dataclass(frozen=True, slots=True)
class RequestValidator:
    """Validator of server ``pid``: the run, its workload, its input forms, and the participants' authority."""

    config: Config
    pid: int
    digest: str
    workload: str
    cells: int
    forms: Mapping[str, InputForm]
    authority: Issuer

    @classmethod
    def of(cls, study: Study, pid: int, files: CertificateFiles) -> Self:
        """Raises CertificateError, and ConfigError if the study has no parties."""
        study.config.require_parties()
        return cls(
            study.config,
            pid,
            study.config.digest(),
            study.workload.digest(),
            study.workload.maximal_cells,
            input_forms(study),
            Issuer.load(files.ca),
        )

    @property
    def party(self) -> str:
        """Name of the server."""
        return self.config.require_parties()[self.pid].name

    def sizes(self, submission: Submission) -> UploadSizes:
        """Sizes of a submission's parts; the submission must fit the run."""
        return UploadSizes.of(self.forms[submission.form], submission.capacity)

    @property
    def largest(self) -> int:
        """Maximum size of a participant's upload in bytes."""
        capacity = self.config.clients.rows_per_client
        return max(UploadSizes.of(form, capacity).whole for form in self.forms.values())

    def client(self, request: web.Request) -> str:
        """Name of the requesting participant, by certificate. Raises IngestError (403) for any other requester."""
        name = _name_of(request, _EXPECTED_OWNER)
        if name in [party.name for party in self.config.require_parties()]:
            what = f"{name!r} is a compute server of this run"
            raise IngestError(403, what, where=_REQUESTER, expected=_EXPECTED_OWNER)
        return name

    def check_server(self, request: web.Request) -> None:
        """Raises IngestError (403) unless one of the two other servers asks, identified by name and pinned key."""
        try:
            name, key = _name_and_key(_tls(request).getpeercert(binary_form=True) or b"")
        except (CertificateError, ValueError) as error:
            raise IngestError(
                403, str(error), where=_REQUESTER, expected=_EXPECTED_SERVER
            ) from error
        others = [p.pinned for i, p in enumerate(self.config.require_parties()) if i != self.pid]
        if any(other.other_than(name, key) is None for other in others):
            return
        what = f"{name!r} is none of them, or has another key"
        raise IngestError(403, what, where=_REQUESTER, expected=_EXPECTED_SERVER)

    def check_run(self, request: web.Request) -> None:
        """Raises IngestError (404) if the path names another run."""
        run = request.match_info["run"]
        if run != self.config.run.id:
            raise IngestError(
                404,
                f"no run {run[:80]!r} at {self.party}",
                where="path",
                expected=run_path(self.config.run.id),
            )

    def check_version(self, request: web.Request) -> None:
        """Raises IngestError (400; 503 for a server, which tries again) if the request is of another version.

        A GET may leave the header out, since other tools ask, too.
        """
        said = request.headers.get(INGEST_HEADER)
        if said == str(INGEST_VERSION) or (said is None and request.method == "GET"):
            return
        theirs = "an older one, which it does not say" if said is None else repr(said[:20])
        raise IngestError(
            503 if request.path == forwarded_path(self.config.run.id) else 400,
            f"its messages are of another version: {theirs}",
            where=f"header {INGEST_HEADER}",
            expected=f"{INGEST_VERSION}, as of syncret {version()}, which {self.party} runs",
        )

    def validate_upload(self, request: web.Request) -> SignedUpload:
        """The upload that a participant is about to send, by its headers. Raises IngestError."""
        client = self.client(request)
        self.check_run(request)
        certificate = _tls(request).getpeercert(binary_form=True) or b""
        try:
            upload = SignedUpload.of_owner(self.config.run.id, client, certificate, request.headers)
        except FieldError as error:
            raise _malformed(error) from error
        self._check(upload)
        self._check_length(request, self.sizes(upload.submission).whole)
        return upload

    def validate_withdrawal(self, request: web.Request) -> SignedWithdrawal:
        """The requester's withdrawal, by its headers. Raises IngestError."""
        client = self.client(request)
        self.check_run(request)
        certificate = _tls(request).getpeercert(binary_form=True) or b""
        try:
            signed = SignedWithdrawal.of_owner(
                self.config.run.id, self.digest, client, certificate, request.headers
            )
        except FieldError as error:
            raise _malformed(error) from error
        try:
            self.authority.signatory(certificate)
            signed.check(self.authority, self.config.run.id, self.digest)
        except CertificateError as error:
            raise IngestError(
                403,
                str(error),
                where=f"header {SIGNATURE_HEADER}",
                expected="the withdrawal signed by the client that asks, for this configuration",
            ) from error
        return signed

    def validate_forwarded(self, request: web.Request) -> SignedUpload:
        """The upload whose part another server is about to send, by its headers. Raises IngestError."""
        self.check_server(request)
        self.check_run(request)
        try:
            upload = SignedUpload.between_servers(self.config.run.id, request.headers)
        except FieldError as error:
            raise _malformed(error) from error
        self._check(upload)
        self._check_length(request, self.sizes(upload.submission).passed_on(self.pid))
        return upload

    def _check(self, upload: SignedUpload) -> None:
        """Raises IngestError (403) unless its own client has signed the upload, (422) if it does not fit."""
        try:
            upload.check(self.authority)
        except CertificateError as error:
            raise IngestError(
                403,
                str(error),
                where=f"header {SIGNATURE_HEADER}",
                expected="the upload's digest signed by the client it names, with a certificate of the run's authority",
            ) from error
        if upload.submission.client in [p.name for p in self.config.require_parties()]:
            what = f"{upload.submission.client!r} is a compute server of this run"
            raise IngestError(403, what, where="header Syncret-Client", expected=_EXPECTED_OWNER)
        try:
            self._check_fit(upload.submission)
        except IngestError as error:
            # Another configuration is the reason for any misfit of the fields.
            other = upload.submission.config != self.digest
            error.reason = OTHER_CONFIG if other else error.reason
            raise

    def _check_fit(self, submission: Submission) -> None:
        """Raises IngestError (422) if the submission has another workload, ring, form or number of rounds."""
        for field, value, right in (
            ("Syncret-Workload", submission.workload, [self.workload]),
            ("Syncret-Cells", submission.cells, [self.cells]),
            ("Syncret-Ring", submission.ring, [RING_BITS]),
            ("Syncret-Form", submission.form, self._forms_of(submission.client)),
        ):
            if value not in right:
                raise IngestError(
                    422,
                    f"does not fit run {submission.run!r}: {value}",
                    where=f"header {field}",
                    expected=f"{' or '.join(map(str, right))}, by the config that the servers run",
                )
        self._check_capacity(submission)
        # Sources are joined once, before the first round.
        last = 1 if self.config.sources else self.config.run.rounds
        if submission.first_round > last:
            raise IngestError(
                422,
                f"round {submission.first_round} does not exist"
                if submission.first_round > self.config.run.rounds
                else f"round {submission.first_round} is too late: sources are joined before round 1",
                where="header Syncret-Round",
                expected=f"1 to {last}" if last > 1 else "1",
            )
        if submission.config != self.digest:
            # Another epsilon, for example: the participant did not agree to this run's use of its rows.
            raise IngestError(
                422,
                f"made with another configuration ({submission.config[:12]})",
                where="header Syncret-Config",
                expected=f"{self.digest[:12]}: the same config at the servers and at every data owner",
            )

    def _forms_of(self, client: str) -> list[str]:
        """Forms that a participant may send: in a run with sources, rows of its own source."""
        if not self.config.sources or client not in self.config.owners:
            return list(self.forms)
        return [SOURCE_ROWS[self.config.source_of(client)]]

    def _check_capacity(self, submission: Submission) -> None:
        """Raises IngestError (422) for a capacity above the run's bound, or another one in forms without capacities."""
        bound = self.config.clients.rows_per_client
        own = self.forms[submission.form].by_capacity
        if not (submission.capacity <= bound if own else submission.capacity == bound):
            raise IngestError(
                422,
                f"a capacity of {submission.capacity} rows, sent as {submission.form}",
                where="header Syncret-Capacity",
                expected=f"{'at most ' if own else ''}{bound} (clients.rows_per_client)",
            )

    def _check_length(self, request: web.Request, size: int) -> None:
        """Raises IngestError (411, 413, 400) unless the body is announced with exactly ``size`` bytes."""
        length, expected = request.content_length, f"exactly {size} bytes"
        if length is None:
            raise IngestError(411, "no length", where="header Content-Length", expected=expected)
        if length != size:
            status = 413 if length > size else 400
            what = f"a body of {length} bytes"
            raise IngestError(status, what, where="header Content-Length", expected=expected)


@functools.lru_cache(maxsize=8)
def _name_and_key(certificate: bytes) -> tuple[str, str]:
    """Common name and ``key_hash`` of a certificate (DER); cached, since a server sends the same one with each part."""
    found = certificate_from_der(certificate)
    return common_name(found, "the server's certificate"), key_hash(found)


def _tls(request: web.Request) -> ssl.SSLObject:
    connection = request.transport and request.transport.get_extra_info("ssl_object")
    if not isinstance(connection, ssl.SSLObject):
        raise CertificateError("the connection is not TLS")
    return connection


def requester_name(request: web.Request) -> str | None:
    """Name in the requester's certificate; None without one."""
    try:
        return peer_name(_tls(request))
    except CertificateError:
        return None


def requester_key(request: web.Request) -> str:
    """Hash of the requester's key. Raises IngestError (403) without a certificate."""
    try:
        return peer_key(_tls(request))
    except (CertificateError, ValueError) as error:
        raise IngestError(403, str(error), where=_REQUESTER, expected=_EXPECTED_OWNER) from error


def _name_of(request: web.Request, expected: str) -> str:
    try:
        return peer_name(_tls(request))
    except CertificateError as error:
        raise IngestError(403, str(error), where=_REQUESTER, expected=expected) from error


def _malformed(error: FieldError) -> IngestError:
    return IngestError(
        400, "missing or malformed", where=f"header {error.name}", expected=error.expected
    )
