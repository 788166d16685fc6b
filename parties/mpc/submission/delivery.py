"""Delivery of a sealed upload to any one server, until the receipts of all three are there.

``deliver`` tries servers in random order until one has taken the upload and all three have confirmed it, or the first
keeps it for those that are away; ``query_delivery`` asks later for the delivery status. A receipt counts if its
server's pinned key has signed it (`parties.mpc.submission.sealed_upload`). If no server shows another's receipt, or
reports it as away, the participant sends the upload to that server itself. Secret: nothing, everything is sealed. Known
limits: bytes at the socket are counted on Linux only.
"""

import asyncio
import contextlib
import secrets
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from parties.config import CertificateFiles, Config, PartySection
from parties.foundation.errors import (
    CertificateError,
    NotEnrolled,
    PartialSubmission,
    SubmissionRefused,
    SubmitError,
)
from parties.foundation.version import ingest_headers
from parties.identity.tls import client_context, explain_tls_error, is_unknown_sni
from parties.mpc.submission.http_api import (
    OTHER_CONFIG,
    InvalidAnswer,
    in_chunks,
    is_retryable,
    printable_answer,
    read_answer,
    refusal_reason,
    refusal_text,
    submission_path,
)
from parties.mpc.submission.route import Route, without_login
from parties.mpc.submission.sealed_upload import (
    SealedUpload,
    ServerReceipt,
    SignedUpload,
    Upload,
    check_receipt,
    receipts_in,
)
from parties.mpc.submission.status import ask_differences
from parties.network.http_connections import TlsConnector
from parties.network.port_sharing import study_sni_name
from parties.observability.heartbeat import Throttle, repeated_notice
from parties.session.enrollment import EnrollmentRefusalReason

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0
_CONNECT_SHARE, _IDLE_TIMEOUT_SHARE = 1 / 4, 1 / 2
"""Shares of the deadline that one server may take to connect, and may be silent, before another is tried."""
# Linux, struct tcp_info: bytes acknowledged by the peer and bytes received, two 64-bit numbers.
_TCP_INFO_BYTES = struct.Struct("@120xQQ")

_ENROLLMENT_REFUSALS = frozenset(EnrollmentRefusalReason)

OnRetry = Callable[[str], None]


@dataclass(slots=True)
class UploadTraffic:
    """Bytes of HTTP bodies that a participant sent and received, over all ``requests``.

    The fields with prefix ``socket_`` are all bytes of the answered connections, with TLS and HTTP headers, as the
    kernel counts them (None if it does not).
    """

    requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    socket_sent_bytes: int | None = None
    socket_received_bytes: int | None = None

    def add_socket(self, counted: tuple[int, int] | None) -> None:
        """Adds the bytes of a connection that is about to be closed."""
        if counted is not None:
            self.socket_sent_bytes = (self.socket_sent_bytes or 0) + counted[0]
            self.socket_received_bytes = (self.socket_received_bytes or 0) + counted[1]


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """Verified ``receipts`` in the servers' order; servers ``kept_for`` are away, and ``via`` keeps their parts.

    ``counted_from`` is the earliest round that counts the upload, by the servers' answers (None: no server names one).
    """

    receipts: tuple[ServerReceipt, ...]
    kept_for: tuple[str, ...]
    via: str | None
    traffic: UploadTraffic
    counted_from: int | None = None


@dataclass(frozen=True, slots=True)
class Sender:
    """Sending participant: the agreed ``config``, certificate ``files``, and a callback for repeated tries."""

    config: Config
    files: CertificateFiles
    on_retry: OnRetry = lambda _: None


async def deliver(
    sender: Sender, upload: SignedUpload, sealed: SealedUpload, known: Sequence[ServerReceipt] = ()
) -> DeliveryResult:
    """Sends the upload, for at most timeouts.submit_s; ``known`` are receipts of earlier tries.

    Raises PartialSubmission if some servers have it and another refuses it, SubmissionRefused or SubmitError if none
    has it, CertificateError if the certificate cannot be used.
    """
    return await _Delivery(sender, upload.upload, known).send(upload, sealed)


async def query_delivery(
    sender: Sender, upload: Upload, known: Sequence[ServerReceipt] = ()
) -> DeliveryResult:
    """Asks one server after the other for the upload's delivery status, until all three receipts are there.

    Raises SubmitError if no server answers or none has the upload, CertificateError.
    """
    return await _Delivery(sender, upload, known).ask()


class _ServerUnreachable(SubmitError):
    """A server that could not be reached, or did not answer, until the deadline."""


class _Retry(Exception):
    """Failure of a try that another try may not have."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """A server's answer about an upload: valid receipts, servers away, refusals, and the earliest counting round."""

    receipts: Sequence[ServerReceipt]
    kept_for: Sequence[str]
    refused: Mapping[str, str]
    counted_from: int | None


@dataclass(slots=True)
class _Delivery:
    """One upload under way, and its known delivery status."""

    owner: Sender
    upload: Upload
    known: Sequence[ServerReceipt]
    traffic: UploadTraffic = field(default_factory=UploadTraffic)
    receipts: dict[str, ServerReceipt] = field(default_factory=dict)
    kept_for: set[str] = field(default_factory=set)
    via: str | None = None
    failures: dict[str, SubmitError] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    throttles: defaultdict[str, Throttle] = field(default_factory=lambda: defaultdict(Throttle))
    rounds: list[int] = field(default_factory=list)

    async def send(self, upload: SignedUpload, sealed: SealedUpload) -> DeliveryResult:
        links, limit_s = self._links(), self.owner.config.timeouts.submit_s
        pause_s, content = _FIRST_PAUSE_S, sealed.content
        try:
            async with asyncio.timeout(limit_s):
                while due := self._due(links):
                    for link in due:
                        await self._try_server(link, link.put(upload, content))
                        if self._is_done:
                            return self._delivered()
                    if self._due(links):
                        await asyncio.sleep(pause_s)
                        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except TimeoutError:
            for link in self._due(links):
                last = self.statuses.get(link.party.name, "no answer")
                text = f"{link.where}: {last} (tried for {limit_s:g} s)"
                self.failures[link.party.name] = _ServerUnreachable(text)
        raise self._failure(links)

    async def ask(self) -> DeliveryResult:
        links = self._links()
        for link in links:
            await self._try_server(link, link.get(self.upload))
            if len(self.receipts) == len(links):
                break
        for link in links:
            if reason := self.statuses.get(link.party.name):
                self.failures[link.party.name] = _ServerUnreachable(f"{link.where}: {reason}")
        if not self.receipts:
            raise self._failure(links)
        return self._delivered()

    def _links(self) -> list["_ServerConnection"]:
        """The three servers in random order, those without a receipt first."""
        config = self.owner.config
        parties = config.require_parties()
        for receipt in self.known:
            with contextlib.suppress(CertificateError):
                check_receipt(receipt, self.upload, config)
                self.receipts[receipt.party] = receipt
        links = [_ServerConnection(self.owner, party, self.traffic) for party in parties]
        return sorted(
            links, key=lambda link: (link.party.name in self.receipts, secrets.token_bytes(8))
        )

    def _due(self, links: Sequence["_ServerConnection"]) -> list["_ServerConnection"]:
        """Servers to try: any server until one has taken the upload; then those without a receipt or a promise."""
        heard = self._n_secured if self.via else set()
        return [link for link in links if link.party.name not in {*heard, *self.failures}]

    @property
    def _is_done(self) -> bool:
        """True if one server has taken the upload, and every other has confirmed it or will get it."""
        names = {party.name for party in self.owner.config.require_parties()}
        return self.via is not None and names <= self._n_secured

    @property
    def _n_secured(self) -> set[str]:
        """Servers that have confirmed the upload, or will get it; without those that have refused it themselves."""
        refused = {n for n, e in self.failures.items() if isinstance(e, SubmissionRefused)}
        return {*self.receipts, *(self.kept_for - refused)}

    async def _try_server(self, link: "_ServerConnection", request: Awaitable[_Answer]) -> None:
        name = link.party.name
        try:
            async with repeated_notice(
                lambda _: self.owner.on_retry(f"{link.where}: no answer yet")
            ):
                answer = await request
        except SubmitError as error:
            self.failures[name] = error
        except _Retry as error:
            self.statuses[name] = str(error)
            if self.throttles[name].due(str(error)):
                self.owner.on_retry(f"{link.where}: {error}; trying the others, and then again")
            if not self.via and len(self.statuses) == 3 and self.throttles[""].due("all"):
                limit_s = self.owner.config.timeouts.submit_s
                self.owner.on_retry(
                    f"none of the three servers takes it yet; trying for {limit_s:g} s in all. They may not have been "
                    "started, or their run is over and they have ended"
                )
        else:
            self.via = self.via or name
            self.receipts |= {receipt.party: receipt for receipt in answer.receipts}
            self.kept_for |= set(answer.kept_for)
            self.rounds += [] if answer.counted_from is None else [answer.counted_from]
            for other, reason in answer.refused.items():
                self.statuses.setdefault(other, f"{name} says that it {reason}")

    def _delivered(self) -> DeliveryResult:
        names = [party.name for party in self.owner.config.require_parties()]
        receipts = tuple(self.receipts[name] for name in names if name in self.receipts)
        kept = tuple(n for n in names if n in self._n_secured and n not in self.receipts)
        # An upload counts once it is at all three servers, so the latest round decides.
        return DeliveryResult(
            receipts, kept, self.via, self.traffic, max(self.rounds, default=None)
        )

    def _failure(self, links: Sequence["_ServerConnection"]) -> SubmitError:
        reached = tuple(link.party.name for link in links if link.party.name in self.receipts)
        reasons = self._reasons(links)
        refusals = [e for e in self.failures.values() if isinstance(e, SubmissionRefused)]
        if reached:
            advice = (
                "A refusal stands however often it is sent"
                if refusals
                else "Run the same command again; what is there is kept"
            )
            return PartialSubmission(
                f"only {len(reached)} of 3 servers have the submission ({', '.join(sorted(reached))}), so it does not "
                f"count: {reasons}. {advice}",
                reached,
                self.failures,
            )
        if refusals:
            text = f"no server has confirmed the submission: {reasons}"
            # A refusal of enrollment by one server decides, whatever the others' refusals are.
            first = next((e for e in refusals if isinstance(e, NotEnrolled)), refusals[0])
            return type(first)(first.party, first.status, text)
        later = any(isinstance(error, _ServerUnreachable) for error in self.failures.values())
        advice = ". Run the same command again when the servers are up" if later else ""
        return SubmitError(f"no server has confirmed the submission: {reasons}{advice}")

    def _reasons(self, links: Sequence["_ServerConnection"]) -> str:
        """Problems of the servers; one that several servers share is listed once."""
        said: dict[str, list[str]] = {}
        for link in sorted(links, key=lambda link: link.party.name):
            if error := self.failures.get(link.party.name):
                said.setdefault(str(error).removeprefix(link.where), []).append(link.where)
        return "; ".join(", ".join(where) + reason for reason, where in said.items())


class _ServerConnection:
    """Connections to one server, one for each try."""

    def __init__(self, owner: Sender, party: PartySection, traffic: UploadTraffic) -> None:
        self.party = party
        self.where = f"{party.name} at {party.ingest}"
        self._config = owner.config
        self._files = owner.files
        self._traffic = traffic
        self._route = Route(None)
        self._timed_out: asyncio.Timeout | None = None

    async def put(self, upload: SignedUpload, content: bytes) -> _Answer:
        """Sends the upload. Raises _Retry, or SubmitError if another try would not help."""
        headers = {**upload.headers(), "Content-Length": str(len(content))}
        return await self._request(upload.upload, "PUT", headers, content)

    async def get(self, upload: Upload) -> _Answer:
        """Asks for the upload's delivery status. Raises as ``put``."""
        return await self._request(upload, "GET", ingest_headers(), None)

    async def _request(
        self, upload: Upload, method: str, headers: Mapping[str, str], content: bytes | None
    ) -> _Answer:
        self._traffic.requests += 1
        limit_s = self._config.timeouts.submit_s * _IDLE_TIMEOUT_SHARE
        try:
            async with asyncio.timeout(limit_s) as self._timed_out:
                with without_login():
                    status, answer = await self._exchange(upload, method, headers, content)
        except TimeoutError as error:
            raise _Retry("no answer") from error
        except InvalidAnswer as error:
            raise _Retry(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._explain(error) from error
        try:
            return self._check(upload, status, answer)
        except SubmissionRefused as refused:
            if refusal_reason(answer) != OTHER_CONFIG:
                raise
            differences = await ask_differences(self._config, self.party, self._files)
            text = f"{refused}; {differences}" if differences else str(refused)
            raise SubmissionRefused(self.party.name, status, text) from refused

    async def _exchange(
        self, upload: Upload, method: str, headers: Mapping[str, str], content: bytes | None
    ) -> tuple[int, dict[str, object]]:
        timeouts = self._config.timeouts
        context = client_context(self._files, self.party.pinned)
        connector = TlsConnector(context)
        connect_s = min(timeouts.connect_s, timeouts.submit_s * _CONNECT_SHARE)
        limits = aiohttp.ClientTimeout(total=timeouts.submit_s, sock_connect=connect_s)
        url = f"https://{self.party.ingest}{submission_path(upload.submission.run)}"
        self._route = Route.to(self._config, self.party)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=limits) as session,
            session.request(
                method,
                url,
                data=None if content is None else self._chunks(content),
                headers=headers,
                server_hostname=study_sni_name(self._config.digest()),
                expect100=content is not None,
                allow_redirects=False,
                proxy=self._route.url,
                proxy_headers=self._route.headers,
            ) as response,
        ):
            answer, size = await read_answer(response)
            self._traffic.received_bytes += size
            self._traffic.add_socket(_socket_bytes(connector.open_sockets))
            return response.status, answer

    async def _chunks(self, content: bytes) -> AsyncIterator[bytes]:
        loop, limit_s = (
            asyncio.get_running_loop(),
            self._config.timeouts.submit_s * _IDLE_TIMEOUT_SHARE,
        )
        async for chunk in in_chunks(content):
            self._traffic.sent_bytes += len(chunk)
            yield chunk
            if self._timed_out is not None:
                self._timed_out.reschedule(loop.time() + limit_s)

    def _check(self, upload: Upload, status: int, answer: Mapping[str, object]) -> _Answer:
        """Parses a server's answer. Raises SubmissionRefused, _Retry, or SubmitError if it is about something else."""
        if status not in (200, 201, 202):
            message = refusal_text(status, dict(answer))
            if is_retryable(status):
                raise _Retry(message)
            refused = (
                NotEnrolled if refusal_reason(answer) in _ENROLLMENT_REFUSALS else SubmissionRefused
            )
            raise refused(self.party.name, status, f"{self.where} {message}")
        submission = upload.submission
        right = {
            "run": submission.run,
            "client": submission.client,
            "party": self.party.name,
            "upload": upload.digest(),
            "first_round": submission.first_round,
        }
        for key, value in right.items():
            if answer.get(key) != value:
                raise SubmitError(
                    f"{self.where}: its receipt has {key} {str(answer.get(key))[:80]!r}; expected {value!r}"
                )
        counted_from = answer.get("counted_from")
        number = counted_from if isinstance(counted_from, int) else None
        return _Answer(self._receipts(upload, answer), *_other_servers(answer), number)

    def _receipts(self, upload: Upload, answer: Mapping[str, object]) -> list[ServerReceipt]:
        try:
            receipts = list(receipts_in(answer))
            for receipt in receipts:
                check_receipt(receipt, upload, self._config)
            if self.party.name not in [receipt.party for receipt in receipts]:
                raise CertificateError("its own is not among them")
        except (ValueError, CertificateError) as error:
            raise SubmitError(
                f"{self.where}: its receipts do not hold: {error}; expected each signed by its server"
            ) from error
        return receipts

    def _explain(self, error: Exception) -> Exception:
        """Error for a failed connection: TLS failures are final; others may pass, such as a study not begun."""
        cause: BaseException | None = error
        while cause is not None:
            certificate = getattr(cause, "certificate_error", None) or getattr(
                cause, "os_error", None
            )
            meaning = explain_tls_error(certificate or cause, self.where)
            if meaning is not None and is_unknown_sni(certificate or cause):
                return _Retry(meaning.removeprefix(f"{self.where} "))
            if meaning is not None:
                return SubmitError(meaning)
            cause = cause.__cause__
        problem = self._route.problem(error)
        return (
            SubmitError(f"{self.where} {problem}")
            if self._route.is_final(error)
            else _Retry(problem)
        )


def _other_servers(answer: Mapping[str, object]) -> tuple[list[str], dict[str, str]]:
    """Servers that the upload is kept for, and refusals by server, from a server's answer."""
    kept, refused = answer.get("kept_for"), answer.get("refused")
    names = [printable_answer(name, 80) for name in kept] if isinstance(kept, list) else []
    reasons = refused.items() if isinstance(refused, dict) else ()
    return names, {
        printable_answer(name, 80): printable_answer(reason, 400) for name, reason in reasons
    }


def _socket_bytes(sockets: list[socket.socket]) -> tuple[int, int] | None:
    """Bytes sent and received over the open one of ``sockets``, by the kernel's count."""
    if not sys.platform.startswith("linux"):
        return None
    for item in sockets:
        with contextlib.suppress(OSError):
            info = item.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES.size)
            sent, received = _TCP_INFO_BYTES.unpack(info)
            return int(sent), int(received)
    return None
