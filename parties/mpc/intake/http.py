"""Ingest API of one compute server: HTTPS over mutual TLS, for the participants' submissions.

    GET /v1/runs/{run}              the run's public parameters, as JSON
    GET /v1/runs/{run}/config       the agreed configuration, as JSON
    PUT /v1/runs/{run}/submission   a participant's sealed upload, for all three servers; its fields are headers
    GET /v1/runs/{run}/submission   delivery status of the requester's upload
    PUT /v1/runs/{run}/withdrawal   withdrawal of a participant's submission
    GET /v1/runs/{run}/withdrawal   withdrawn or replaced versions of the requester
    GET /v1/runs/{run}/releases     uploads of the requester's key that this server has released, in any study;
                                    with ?config=DIGEST the agreed configuration of one of them
    PUT /v1/runs/{run}/part         from another server: this server's part of a forwarded upload

A participant's PUT stores this server's part, puts the whole upload in the outbox and forwards it
(`parties.mpc.intake.forwarder`). The answer has the receipts of the servers that have their parts. Its status is 201,
or 200 if this server had its part already, or 202 if some parts are missing: "kept_for" names servers that are away and
will get theirs, "refused" those that do not take it. A withdrawal, and an upload of a later version, take effect when
the three servers meet over it (`parties.mpc.participants.admission`): 202 until then, 200 with this server's signed
statement that nothing up to a version counts or ever will.

Requests and answers have the header Syncret-Messages (`parties.foundation.version`), which is verified before all
others. Errors are JSON: {"error": {"what", "where", "expected"}}, with a "reason" for programs if enrollment refuses
the participant (`parties.session.enrollment`).

400 malformed or of another version; 403 not permitted, not at this time, not signed by its participant, or no room; 404
other run or no submission; 408 too slow; 409 another submission of this client is stored, or this one was withdrawn or
replaced; 410 the run has ended or is closed to participants; 411 and 413 length missing or too large; 422 does not fit
the run or does not open; 423 counted, so that it cannot be withdrawn; 507 the store cannot take it.

Headers are validated before the body is read (Expect: 100-continue; `parties.mpc.intake.validation`). The length has to
be exactly right, and nothing is stored unless all of it has the digests that the participant signed.

Secret: bodies, the sealing key; bodies go to the store, and never to a log. Known limits: connections are bounded in
time, not in number, once a client's certificate was accepted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from parties.config.diff import agreed_bytes
from parties.crypto.hpke import SealKey
from parties.foundation.errors import (
    IngestError,
    RunClosed,
    RunFull,
    SealError,
    StoreError,
    StudyReleased,
    SubmissionConflict,
    SubmissionCounted,
    SubmissionTombstoned,
)
from parties.foundation.version import ingest_headers
from parties.mpc.intake.forwarder import Forwarder
from parties.mpc.intake.known_releases import releases_answer
from parties.mpc.intake.validation import RequestValidator, requester_key, requester_name
from parties.mpc.records import status_answer
from parties.mpc.storage.incoming import IncomingBody, OutgoingUpload
from parties.mpc.storage.outbox import DeliveryStatus
from parties.mpc.storage.store import Store
from parties.mpc.submission.http_api import (
    COUNTED_STATUS,
    config_path,
    forwarded_path,
    releases_path,
    run_path,
    submission_path,
    withdrawal_path,
)
from parties.mpc.submission.messages import RING_BITS
from parties.mpc.submission.sealed_upload import (
    ReceiptSigner,
    ReceivedUpload,
    SealedUpload,
    SignedUpload,
    Tombstone,
    open_part,
)
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.observability.events import OnRejection, ignore_rejection, rejection_of_status
from parties.observability.failure_causes import Cause, cause_of
from parties.session.enrollment import Enrollment, EnrollmentRefusal, EnrollmentRefusalReason
from parties.storage.release_registry import ReleaseRegistry

logger = logging.getLogger("syncret.ingest")

STORED_NOW, STORED_BEFORE = "stored", "already stored"
_CHUNK = 1 << 16
_TOGETHER_BYTES = 1 << 28
"""Maximum bytes of uploads opened at a time; memory use is three times as much.

Two uploads of at most this size are always opened at a time.
"""
_RECEIPT_WAIT_SHARE = 1 / 3
"""Share of a participant's deadline that its answer waits for the other servers' receipts."""
_RECEIVED = web.RequestKey("received_bytes", int)
_COUNTED = web.RequestKey("counted", bool)
"""True once the request's bytes are in the store's traffic account."""
_VALIDATED: web.RequestKey[tuple[SignedUpload, bool]] = web.RequestKey("judged", tuple)
"""Result of header validation: the upload, and whether nothing of it is needed any more."""

_STORAGE_CAUSES = (Cause.DISK_FULL, Cause.DISK, Cause.READ_ONLY, Cause.PERMISSION, Cause.FILES)
"""Failures of the host, which no submission causes and every other one meets, too."""
OnStorageFailure: TypeAlias = Callable[[StoreError], object]


def ignore_storage_failure(error: StoreError) -> None:
    """Does nothing besides the answer to the participant."""


@dataclass(frozen=True, slots=True)
class IngestApi:
    """Resources of one server's ingest API: store, sealing key, receipts, forwarder, enrollment.

    ``on_storage_failure`` is called if the store fails because of its host, such as a full disk; ``registry`` is the
    server's release registry.
    """

    judge: RequestValidator
    store: Store
    seal: SealKey
    receipts: ReceiptSigner
    forwarder: Forwarder
    enrolment: Enrollment
    rejected: OnRejection = ignore_rejection
    on_storage_failure: OnStorageFailure = ignore_storage_failure
    registry: ReleaseRegistry | None = None
    _turns: asyncio.Semaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        largest = self.judge.largest
        least = 2 if largest <= _TOGETHER_BYTES else 1
        turns = asyncio.Semaphore(max(least, _TOGETHER_BYTES // largest))
        object.__setattr__(self, "_turns", turns)

    def application(self) -> web.Application:
        """HTTP application."""
        app, run = web.Application(middlewares=[self._answer]), "{run}"
        app.router.add_get(run_path(run), self.get_run)
        app.router.add_get(config_path(run), self.get_config)
        app.router.add_put(
            submission_path(run), self.put_submission, expect_handler=self.expect_submission
        )
        app.router.add_get(submission_path(run), self.get_submission)
        app.router.add_put(withdrawal_path(run), self.put_withdrawal)
        app.router.add_get(withdrawal_path(run), self.get_withdrawal)
        app.router.add_get(releases_path(run), self.get_releases)
        app.router.add_put(
            forwarded_path(run), self.put_forwarded, expect_handler=self.expect_forwarded
        )
        return app

    # A participant's upload

    def _validate_upload(self, request: web.Request) -> tuple[SignedUpload, bool]:
        """The upload, and whether nothing of it is needed any more. Raises IngestError, StoreError."""
        upload = self.judge.validate_upload(request)
        _require_enrolled(self.enrolment.identity(upload.submission.client))
        stored = self.store.submissions.check_upload(upload, self.judge.config.clients.expected)
        if not stored:
            _require_enrolled(self.enrolment.time())
        client = upload.submission.client
        return upload, stored and self.store.outbox.delivery_status(client).n_secured == 2

    async def expect_submission(self, request: web.Request) -> web.StreamResponse | None:
        """Refuses an upload by its headers, or answers 100, before the participant sends its body."""
        return await self._expect(request, self._validate_upload)

    async def put_submission(self, request: web.Request) -> web.Response:
        """Stores this server's part and forwards the others; answers once the first tries are over."""
        # A request that waited for 100 has validated headers already.
        upload, known = request.get(_VALIDATED) or self._validate_upload(request)
        client, new = upload.submission.client, False
        if not known:
            with self.store.submissions.incoming() as whole:
                await self._receive(request, whole)
                async with self._turns:
                    new, sealed, pids = await asyncio.to_thread(self._store_upload, upload, whole)
            self.forwarder.send(upload, sealed, pids)
        await self.forwarder.settle(
            client, self.judge.config.timeouts.submit_s * _RECEIPT_WAIT_SHARE
        )
        return await asyncio.to_thread(
            self._status_of, request, upload, STORED_NOW if new else STORED_BEFORE
        )

    def _store_upload(
        self, upload: SignedUpload, whole: IncomingBody
    ) -> tuple[bool, SealedUpload, list[int]]:
        """Stores the upload durably; returns: this server's part is new; all parts; servers that are still to get one.

        Raises IngestError. Blocks.
        """
        submission = upload.submission
        sealed = self.judge.sizes(submission).split(whole.read())
        if sealed.describe(submission) != upload.upload:
            raise _other_digest()
        status = DeliveryStatus()
        if self.store.submissions.upload_digest(submission.client) == upload.upload.digest():
            status = self.store.outbox.delivery_status(submission.client)
        others = [
            pid
            for pid in range(3)
            if pid not in (self.judge.pid, *status.receipts, *status.kept_for)
        ]
        new = self._store_forwarded(
            upload, sealed.for_server(self.judge.pid), OutgoingUpload(whole, others)
        )
        return new, sealed, others

    def _status_of(self, request: web.Request, upload: SignedUpload, status: str) -> web.Response:
        """Delivery status of an upload that is stored here, with receipts. Blocks."""
        submission = upload.submission
        record = self.store.outbox.delivery_status(submission.client)
        # A concurrent request may have stored the upload without having flushed it yet.
        self.store.flush()
        names = [party.name for party in self.judge.config.require_parties()]
        mine = self.receipts.make(upload.upload)
        by_pid = {**record.receipts, self.judge.pid: mine}
        code = 201 if status == STORED_NOW else 200
        response = web.json_response(
            {
                "run": submission.run,
                "party": self.judge.party,
                "client": submission.client,
                "upload": upload.upload.digest(),
                "first_round": submission.first_round,
                "counted_from": self.store.counted_from(submission.client),
                "status": status,
                "receipts": [by_pid[pid].to_dict() for pid in sorted(by_pid)],
                "kept_for": [names[pid] for pid in record.kept_for],
                "refused": {names[pid]: why for pid, why in record.refused.items()},
                "received_bytes": request.get(_RECEIVED, 0),
            },
            status=code if len(by_pid) == 3 else 202,
        )
        self._note_traffic(request, submission.client, response)
        return response

    async def get_submission(self, request: web.Request) -> web.Response:
        """Delivery status of the requester's upload. Raises IngestError (404) if none is here."""
        client = self.judge.client(request)
        self.judge.check_run(request)
        upload = await asyncio.to_thread(self.store.submissions.upload, client)
        if upload is None:
            what = f"no submission of {client!r} at {self.judge.party}"
            raise IngestError(404, what, where="store", expected="one, sent to any server")
        return await asyncio.to_thread(self._status_of, request, upload, STORED_BEFORE)

    # Withdrawals

    async def put_withdrawal(self, request: web.Request) -> web.Response:
        """Stores a withdrawal durably until the servers meet, unless it is too late. Raises IngestError, StoreError."""
        signed = self.judge.validate_withdrawal(request)
        await asyncio.to_thread(self._withdraw, signed)
        return await asyncio.to_thread(self._tombstone_of, signed.withdrawal.client)

    def _withdraw(self, signed: SignedWithdrawal) -> None:
        said, settlements = signed.withdrawal, self.store.finalized
        with self.store.held():
            if said.version <= settlements.version(said.client) or settlements.final(said.client):
                return
            if self.store.state.closed_to_clients:
                # No round is left that could count the submission.
                self.store.submissions.settle(said.client, said.version, signed)
            else:
                settlements.add_withdrawal(signed)

    async def get_withdrawal(self, request: web.Request) -> web.Response:
        """Withdrawn or replaced versions of the requester, with this server's signed statement."""
        client = self.judge.client(request)
        self.judge.check_run(request)
        return await asyncio.to_thread(self._tombstone_of, client)

    def _tombstone_of(self, client: str) -> web.Response:
        settlements, run = self.store.finalized, self.judge.config.run.id
        with self.store.held():
            version, asked = settlements.version(client), settlements.withdrawal(client)
            stored, final = self.store.submissions.newest_version(client), settlements.final(client)
        settled = Tombstone(run, self.judge.digest, client, version)
        wanted = 0 if asked is None else asked.withdrawal.version
        return web.json_response(
            {
                "run": run,
                "party": self.judge.party,
                "client": client,
                "stored": stored,
                "asked": wanted,
                "settled": version,
                "counted": None if final is None else final.round,
                "receipts": [self.receipts.settle(settled).to_dict()] if version else [],
            },
            status=200 if version >= wanted else 202,
        )

    async def get_releases(self, request: web.Request) -> web.Response:
        """Released uploads of the requester's key. Raises IngestError (404) without a registry, StoreError."""
        self.judge.client(request)
        self.judge.check_run(request)
        answer = None
        if self.registry is not None:
            key, query = requester_key(request), request.query
            answer = await asyncio.to_thread(
                releases_answer, self.registry, key, party=self.judge.party, query=query
            )
        if answer is None:
            what = "no release of this key by that configuration"
            raise IngestError(404, what, where="registry", expected="one of its own releases")
        return web.json_response(answer)

    # A part that another server forwards

    def _validate_forwarded(self, request: web.Request) -> tuple[SignedUpload, bool]:
        """The upload, and whether its part is stored. Raises IngestError, StoreError."""
        upload = self.judge.validate_forwarded(request)
        # Another server has accepted the upload, in time by its own clock.
        _require_enrolled(self.enrolment.identity(upload.submission.client))
        return upload, self.store.submissions.check_upload(
            upload, self.judge.config.clients.expected
        )

    async def expect_forwarded(self, request: web.Request) -> web.StreamResponse | None:
        """As ``expect_submission``, for a part from another server."""
        return await self._expect(request, self._validate_forwarded)

    async def put_forwarded(self, request: web.Request) -> web.Response:
        """Stores this server's part: 201, or 200 if it was stored before, with a receipt."""
        upload, stored = request.get(_VALIDATED) or self._validate_forwarded(request)
        if stored:
            await asyncio.to_thread(self.store.flush)
        else:
            with self.store.submissions.incoming() as incoming:
                await self._receive(request, incoming)
                async with self._turns:
                    stored = not await asyncio.to_thread(self._receive_forwarded, upload, incoming)
        receipt = self.receipts.make(upload.upload).to_dict()
        return web.json_response({"receipts": [receipt]}, status=200 if stored else 201)

    def _receive_forwarded(self, upload: SignedUpload, incoming: IncomingBody) -> bool:
        sizes = self.judge.sizes(upload.submission)
        return self._store_forwarded(upload, sizes.received(self.judge.pid, incoming.read()), None)

    # Both kinds of uploads

    def _store_forwarded(
        self, upload: SignedUpload, received: ReceivedUpload, outgoing: OutgoingUpload | None
    ) -> bool:
        """Opens and stores this server's part durably; False if it was stored before. Raises IngestError. Blocks."""
        pid, form = self.judge.pid, self.judge.forms[upload.submission.form]
        if not upload.upload.describes(pid, received):
            raise _other_digest()
        try:
            body = open_part(pid, self.seal, upload.upload, received)
        except SealError as error:
            raise IngestError(
                422,
                str(error),
                where="body",
                expected=f"a box sealed to {self.judge.party}'s key in the configuration",
            ) from error
        digests = form.component_digests(pid, body, upload.submission.capacity)
        own, next_ = (digest.hex() for digest in digests)
        limit = self.judge.config.clients.expected
        with self.store.submissions.incoming() as opened:
            opened.write(body)
            return self.store.submissions.accept(
                upload, opened, (own, next_), limit=limit, outgoing=outgoing
            )

    async def _expect(
        self, request: web.Request, validator: Callable[[web.Request], tuple[SignedUpload, bool]]
    ) -> web.StreamResponse | None:
        try:
            self.judge.check_version(request)
            request[_VALIDATED] = judged = validator(request)
        except (IngestError, StoreError) as error:
            return self._refuse(request, error)
        if judged[1]:
            return None
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
        return None

    async def _receive(self, request: web.Request, incoming: IncomingBody) -> None:
        """Reads the body into ``incoming``. Raises IngestError if it is slow."""
        limit_s = self.judge.config.timeouts.submit_s
        try:
            async with asyncio.timeout(limit_s):
                async for chunk in request.content.iter_chunked(_CHUNK):
                    incoming.write(chunk)
                    request[_RECEIVED] = incoming.size
        except TimeoutError as error:
            raise IngestError(
                408,
                f"{incoming.size} of {request.content_length} bytes came in {limit_s:g} s",
                where="body",
                expected="the whole body within that time",
            ) from error

    async def get_config(self, request: web.Request) -> web.Response:
        """Agreed configuration, for a participant with another one."""
        self.judge.client(request)
        self.judge.check_run(request)
        return web.Response(body=agreed_bytes(self.judge.config), content_type="application/json")

    async def get_run(self, request: web.Request) -> web.Response:
        """The run's public parameters; for the requesting client its upload's digest, and its outcome."""
        client = self.judge.client(request)
        self.judge.check_run(request)
        config, away = self.judge.config, self.enrolment.refusal(client)
        return web.json_response(
            {
                "run": config.run.id,
                "party": self.judge.party,
                "pid": self.judge.pid,
                "config": self.judge.digest,
                "workload": self.judge.workload,
                "cells": self.judge.cells,
                "ring": RING_BITS,
                "forms": list(self.judge.forms),
                "rows_per_client": config.clients.rows_per_client,
                "rounds": config.run.rounds,
                "participation": config.clients.participation,
                "open": not self.store.state.closed_to_clients and away is None,
                "turned_away": None if away is None else away.what,
                "upload": self.store.submissions.upload_digest(client),
                "counted_from": self.store.counted_from(client),
                "settled": self.store.finalized.version(client),
                **status_answer(
                    self.store.records.find(client), closed=self.store.state.closed_to_clients
                ),
            }
        )

    @web.middleware
    async def _answer(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Answers errors as JSON, and counts bytes by client."""
        try:
            self.judge.check_version(request)
            response = await handler(request)
        except (IngestError, StoreError) as error:
            response = self._refuse(request, error)
        except web.HTTPException as error:
            run = self.judge.config.run.id
            expected = f"GET {run_path(run)} or PUT {submission_path(run)}"
            where = f"{request.method} {request.path[:80]}"
            response = self._refuse(
                request, IngestError(error.status, error.reason, where=where, expected=expected)
            )
        await self._count(request, response)
        response.headers.update(ingest_headers())
        return response

    def _refuse(self, request: web.Request, error: IngestError | StoreError) -> web.Response:
        """Answer for ``error``, which is also reported to the operator."""
        response = refusal_response(error)
        client, status = requester_name(request), response.status
        if isinstance(error, StoreError) and cause_of(error).cause in _STORAGE_CAUSES:
            self.on_storage_failure(error)
        text = f"{client or 'somebody'}: refused with {status}: {error}"
        self.rejected(
            rejection_of_status(status), text, client=client, remote=request.remote, status=status
        )
        return response

    async def _count(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds the request's bytes to its client's, if it has one and that was not done yet."""
        if request.get(_COUNTED):
            return
        try:
            client = self.judge.client(request)
        except IngestError:
            logger.debug("bytes of somebody who is no client are not counted")
        else:
            await asyncio.to_thread(self._note_traffic, request, client, response)

    def _note_traffic(
        self, request: web.Request, client: str, response: web.StreamResponse
    ) -> None:
        """Adds the request's bytes to a client's; a full disk does not fail the request. Blocks."""
        sent = (
            len(response.body)
            if isinstance(response, web.Response) and isinstance(response.body, bytes)
            else 0
        )
        request[_COUNTED] = True
        try:
            self.store.traffic.add(client, received=request.get(_RECEIVED, 0), sent=sent)
        except StoreError as error:
            logger.warning("bytes not counted: %s", error)


def refusal_response(error: IngestError | StoreError) -> web.Response:
    """Error as the client sees it; the path of a store's folder is left out."""
    if isinstance(error, StoreError):
        status, expected = {
            SubmissionConflict: (
                409,
                "the same submission again; the first one stands until a later version replaces it",
            ),
            SubmissionTombstoned: (
                409,
                "another submission: what was taken back does not come back",
            ),
            SubmissionCounted: (COUNTED_STATUS, "nothing more: what was counted stays"),
            RunClosed: (410, "a submission before the run's last round"),
            StudyReleased: (409, "a new configuration, which you charge to your budget anew"),
            RunFull: (403, "a run that expects more data owners"),
        }.get(type(error), (507, "try again later, or tell the server's operator"))
        what = error.message if status != 507 else "the server cannot store submissions at present"
        if status == 507:
            logger.error("%s", error)
        reason = EnrollmentRefusalReason.CLOSED if isinstance(error, RunClosed) else ""
        error = IngestError(status, what, where="store", expected=expected, reason=reason)
    said = {"what": error.what, "where": error.where, "expected": error.expected}
    said |= {"reason": error.reason} if error.reason else {}
    response = web.json_response({"error": said}, status=error.status)
    response.force_close()
    return response


def _require_enrolled(away: EnrollmentRefusal | None) -> None:
    """Raises IngestError if enrollment refuses the participant (``away``)."""
    if away is not None:
        status = 410 if away.reason is EnrollmentRefusalReason.CLOSED else 403
        where, reason = "client certificate", str(away.reason)
        raise IngestError(status, away.what, where=where, expected=away.expected, reason=reason)


def _other_digest() -> IngestError:
    return IngestError(
        400,
        "its SHA-256 is not the one that was signed",
        where="body",
        expected="the parts whose digests header Syncret-Parts has",
    )
