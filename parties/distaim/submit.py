"""A data owner's part: check the table, count, share, upload to the three servers, check their receipts.

``submit_table`` and ``submit`` do all of it; ``prepare`` and ``deliver`` are their two halves. The client draws itself
the first round in which it takes part (probability ``participation`` in each), and may not take part at all. With a
``state`` file the submission can be sent again after a failure or a crash: the same seeds, the same round, and the
servers count it once; when all three have it, the file is a receipt. Without one, a second call is a second submission,
which servers that have the first refuse.

Secret: the table, what is shared of it, seeds and bodies; they leave this process as shares only, and in the state
file (mode 0600, seeds and a digest of what is shared) that belongs where the table is. Public: that the client takes
part, from which round.
Source: `protocols` README section 2; FLAIM paper, Alg. 3. Known limits: bytes at the socket are counted on Linux only.
"""

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import secrets
import socket
import ssl
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from aiohttp.connector import AddrInfoType
from numpy.typing import NDArray

from mechanisms.workload import Workload
from parties.config import CertificateFiles, Config, PartySection
from parties.distaim.completed import Key, completed, mark_complete
from parties.distaim.inputs import input_form
from parties.distaim.submission import RING_BITS, Submission
from parties.errors import PartialSubmission, StoreError, SubmissionRefused, SubmitError
from parties.files import disk_errors, write_json
from parties.tls import client_contexts, explain, load_identity
from protocols.upload import UploadSeeds

_CHUNK = 1 << 18
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0
_MAX_ANSWER = 1 << 16
_STATUSES = "stored", "already stored"
# Linux, struct tcp_info: bytes acknowledged by the peer and bytes received, two 64-bit numbers.
_TCP_INFO_BYTES = struct.Struct("@120xQQ")


@dataclass(frozen=True, slots=True)
class ServerReceipt:
    """One server's confirmation: ``status`` "stored" or "already stored", after ``attempts`` tries.

    ``sent_bytes`` and ``received_bytes`` are HTTP bodies over all tries; ``socket_*`` is all of the confirming
    connection with TLS and HTTP headers, as the kernel counts it (None where it does not).
    """

    party: str
    pid: int
    status: str
    attempts: int
    sent_bytes: int
    received_bytes: int
    socket_sent_bytes: int | None
    socket_received_bytes: int | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """All three servers have the submission ``digest``; or the client did not draw any round (``first_round`` None)."""

    run: str
    client: str
    first_round: int | None
    form: str
    cells: int
    digest: str | None
    servers: tuple[ServerReceipt, ...]
    seconds: float
    earlier: bool = False
    """Whether all of this was so before: nothing was sent this time."""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], **changes: bool) -> "Receipt":
        """What ``to_dict`` said. Raises TypeError or KeyError on anything else."""
        fields = {name: value[name] for name in cls.__dataclass_fields__}
        servers = tuple(ServerReceipt(**server) for server in value["servers"])
        return cls(**{**fields, "servers": servers, **changes})

    @property
    def sent_bytes(self) -> int:
        """Bytes of HTTP bodies sent to the three servers together."""
        return sum(server.sent_bytes for server in self.servers)

    @property
    def received_bytes(self) -> int:
        """Bytes of HTTP bodies received from the three servers together."""
        return sum(server.received_bytes for server in self.servers)

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        totals = {"sent_bytes": self.sent_bytes, "received_bytes": self.received_bytes}
        return {**asdict(self), "participates": self.first_round is not None, **totals}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A submission ready to send: its public fields and (secret) one body for each server."""

    submission: Submission
    bodies: list[bytes] = field(repr=False)


def draw_first_round(
    rounds: int, participation: float, random_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> int | None:
    """The first of rounds 1..``rounds`` in which a client that takes part with probability ``participation`` does.

    None: in none of them. Exact up to 2^-64 in each round's probability, rounded down.
    """
    threshold = int(participation * 2**64)
    for number in range(1, rounds + 1):
        if int.from_bytes(random_bytes(8), "little") < threshold:
            return number
    return None


async def submit_table(
    config: Config,
    table: Path,
    files: CertificateFiles,
    *,
    first_round: int | None = None,
    state: Path | None = None,
    spend: Callable[[str], object] | None = None,
    on_retry: Callable[[str], None] = lambda _: None,
) -> Receipt:
    """Submit the CSV file ``table``; as ``submit``. Raises DataError where the table does not fit the domain."""
    # Pandas takes a fifth of a second to import, which coded rows do without.
    from mechanisms.table import encode, read_table

    codes = encode(config.domain, read_table(table), source=table)
    return await submit(
        config,
        codes,
        files,
        first_round=first_round,
        state=state,
        spend=spend,
        on_retry=on_retry,
    )


async def submit(
    config: Config,
    codes: NDArray[np.int32],
    files: CertificateFiles,
    *,
    first_round: int | None = None,
    state: Path | None = None,
    workload: Workload | None = None,
    spend: Callable[[str], object] | None = None,
    on_retry: Callable[[str], None] = lambda _: None,
) -> Receipt:
    """Count, share and upload one data owner's coded rows; the client's name is its certificate's.

    Shapes: codes int32 (rows, columns of the domain). ``first_round`` None draws the round. ``workload`` saves building
    the config's again where many clients share a process. ``spend`` charges the submission (its digest) to the table's
    budget before anything is sent (`parties.budget`); without it that is the caller's affair. The deadline is
    timeouts.submit_s; ``on_retry`` hears of every server that has to be tried again, and why. What ``state`` knows to
    be at all three servers is not sent again.

    Raises DataError (too many rows), StoreError (``state`` cannot be used), what ``spend`` raises, SubmitError,
    SubmissionRefused, PartialSubmission (some servers have it: run again with the same ``state``), CertificateError,
    ConfigError.
    """
    client = load_identity(files).name
    workload = workload or config.build_workload()
    config.check_rows(len(codes))
    values = input_form(config.run.upload, workload).values(codes)
    key = Key(config.digest(), client, _digest(values))
    if state is not None and (known := completed(state, key)) is not None:
        return Receipt.from_dict(known, earlier=True)
    prepared = prepare(
        config, values, client, workload=workload, first_round=first_round, state=state
    )
    if prepared is None:
        cells = workload.maximal_cells
        return Receipt(config.run.id, client, None, config.run.upload, cells, None, (), 0.0)
    if spend is not None:
        await asyncio.to_thread(spend, prepared.submission.digest())
    receipt = await deliver(config, prepared, files, on_retry=on_retry)
    if state is not None:
        mark_complete(state, key, receipt.to_dict())
    return receipt


def prepare(
    config: Config,
    values: NDArray[np.unsignedinteger],
    client: str,
    *,
    workload: Workload,
    first_round: int | None = None,
    state: Path | None = None,
) -> Prepared | None:
    """Draw the round and the seeds, or take them from ``state``, and share ``values``; None: does not take part.

    ``values`` are what the run's input form shares of the rows. Raises StoreError where ``state`` cannot be used:
    unreadable, unwritable, or of another submission.
    """
    known = _read_state(state) if state is not None and state.exists() else None
    if known is None:
        known = _State.draw(config, values, client, first_round)
        if state is not None:
            _write_state(state, known)
    elif state is not None and not known.fits(config, values, client, first_round):
        raise StoreError(
            state,
            "is of another submission; expected the client, config, round and table it was made with, or, if no "
            "server has that submission, another file or none",
        )
    if known.first_round is None:
        return None
    form = input_form(config.run.upload, workload)
    submission = Submission(
        run=config.run.id,
        client=client,
        config=config.digest(),
        workload=workload.digest(),
        cells=workload.maximal_cells,
        ring=RING_BITS,
        form=form.name,
        first_round=known.first_round,
        nonce=known.nonce,
    )
    seeds = UploadSeeds(bytes.fromhex(known.s0), bytes.fromhex(known.s1))
    return Prepared(submission, form.share(values, seeds))


async def deliver(
    config: Config,
    prepared: Prepared,
    files: CertificateFiles,
    *,
    on_retry: Callable[[str], None] = lambda _: None,
) -> Receipt:
    """Send all three bodies at once, each tried again until the deadline, and check the receipts.

    Raises PartialSubmission where only one or two servers have the submission, SubmissionRefused or SubmitError where
    none has, CertificateError where ``files`` cannot be used.
    """
    started = time.monotonic()
    parties = config.require_parties()
    contexts = client_contexts(files, [party.pinned for party in parties])
    links = [
        _Link(config, party, pid, contexts[pid], on_retry) for pid, party in enumerate(parties)
    ]
    results = await asyncio.gather(
        *(link.deliver(prepared.submission, prepared.bodies[link.pid]) for link in links),
        return_exceptions=True,
    )
    servers = tuple(result for result in results if isinstance(result, ServerReceipt))
    failures: dict[str, Exception] = {}
    for party, result in zip(parties, results, strict=True):
        if isinstance(result, SubmitError):
            failures[party.name] = result
        elif isinstance(result, BaseException):
            raise result
    if failures:
        raise _failure(servers, failures, _reasons(links, results))
    submission = prepared.submission
    return Receipt(
        run=submission.run,
        client=submission.client,
        first_round=submission.first_round,
        form=submission.form,
        cells=submission.cells,
        digest=submission.digest(),
        servers=servers,
        seconds=time.monotonic() - started,
    )


def _reasons(links: Sequence["_Link"], results: Sequence[object]) -> str:
    """What went wrong at whom; what is the same at several servers is said once."""
    said: dict[str, list[str]] = {}
    for link, result in zip(links, results, strict=True):
        if isinstance(result, SubmitError):
            said.setdefault(str(result).removeprefix(link.where), []).append(link.where)
    return "; ".join(", ".join(where) + reason for reason, where in said.items())


def _failure(
    servers: tuple[ServerReceipt, ...], failures: dict[str, Exception], reasons: str
) -> SubmitError:
    reached = tuple(server.party for server in servers)
    if reached:
        refused = any(isinstance(error, SubmissionRefused) for error in failures.values())
        advice = (
            "A refusal stands however often it is sent"
            if refused
            else "Run the same command again; what is there is kept"
        )
        return PartialSubmission(
            f"only {len(reached)} of 3 servers have the submission ({', '.join(reached)}), so it does not count: "
            f"{reasons}. {advice}",
            reached,
            failures,
        )
    for error in failures.values():
        if isinstance(error, SubmissionRefused):
            return SubmissionRefused(
                error.party, error.status, f"no server has confirmed the submission: {reasons}"
            )
    later = any(isinstance(error, _Unreached) for error in failures.values())
    advice = ". Run the same command again when the servers are up" if later else ""
    return SubmitError(f"no server has confirmed the submission: {reasons}{advice}")


class _Unreached(SubmitError):
    """A server that could not be reached, or did not answer, until the deadline."""


class _Retry(Exception):
    """A try that failed in a way that another one may not."""


class _Link:
    """One client's way to one server, over as many tries as the deadline allows."""

    def __init__(
        self,
        config: Config,
        party: PartySection,
        pid: int,
        context: ssl.SSLContext,
        on_retry: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.pid = pid
        self._on_retry = on_retry
        self._config = config
        self._party = party
        self._context = context
        self.where = f"{party.name} at {party.ingest}"
        self._sent = 0
        self._received = 0
        self._attempts = 0

    async def deliver(self, submission: Submission, body: bytes) -> ServerReceipt:
        """Raises SubmitError, with SubmissionRefused for a refusal that another try would not change."""
        limit_s, pause_s = self._config.timeouts.submit_s, _FIRST_PAUSE_S
        last = "no answer"
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    self._attempts += 1
                    try:
                        return await self._attempt(submission, body)
                    except _Retry as error:
                        if str(error) != last:
                            last = str(error)
                            self._on_retry(
                                f"{self.where}: {last}; trying again, for {limit_s:g} s in all"
                            )
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except TimeoutError as error:
            raise _Unreached(f"{self.where}: {last} (tried for {limit_s:g} s)") from error

    async def _attempt(self, submission: Submission, body: bytes) -> ServerReceipt:
        sockets: list[socket.socket] = []

        def make_socket(address: AddrInfoType) -> socket.socket:
            made = socket.socket(*address[:3])
            made.setblocking(False)
            sockets.append(made)
            return made

        connector = aiohttp.TCPConnector(ssl=self._context, socket_factory=make_socket)
        limits = aiohttp.ClientTimeout(
            total=self._config.timeouts.submit_s, sock_connect=self._config.timeouts.connect_s
        )
        address = self._party.ingest
        url = f"https://{address}/v1/runs/{submission.run}/submission"
        headers = {**submission.headers(body), "Content-Length": str(len(body))}
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=limits) as session,
                session.put(
                    url,
                    data=self._chunks(body),
                    headers=headers,
                    expect100=True,
                    allow_redirects=False,
                ) as response,
            ):
                answer = await self._read_answer(response)
                status = response.status
                at_socket = _socket_bytes(sockets)
        except (aiohttp.ClientError, OSError) as error:
            raise self._explained(error) from error
        self._check_answer(submission, status, answer)
        return ServerReceipt(
            party=self._party.name,
            pid=self.pid,
            status=str(answer["status"]),
            attempts=self._attempts,
            sent_bytes=self._sent,
            received_bytes=self._received,
            socket_sent_bytes=at_socket and at_socket[0],
            socket_received_bytes=at_socket and at_socket[1],
        )

    async def _chunks(self, body: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(body), _CHUNK):
            chunk = body[start : start + _CHUNK]
            self._sent += len(chunk)
            yield chunk

    async def _read_answer(self, response: aiohttp.ClientResponse) -> dict[str, object]:
        raw = b""
        while part := await response.content.read(_MAX_ANSWER - len(raw)):
            raw += part
        self._received += len(raw)
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise _Retry(f"answered {response.status} without JSON; is this a Syncret server?")
        return answer

    def _check_answer(self, submission: Submission, status: int, answer: dict[str, object]) -> None:
        """Raises SubmissionRefused, _Retry, or SubmitError where a receipt is for something else."""
        if status not in (200, 201):
            error = answer.get("error")
            detail = error if isinstance(error, dict) else {}
            shown = {key: str(value)[:200] for key, value in detail.items()}
            message = f"answered {status}: {shown.get('what', 'no reason')}"
            message += f" ({shown['where']})" if "where" in shown else ""
            message += f"; expected {shown['expected']}" if "expected" in shown else ""
            if status == 408 or status >= 500:
                raise _Retry(message)
            raise SubmissionRefused(self._party.name, status, f"{self.where} {message}")
        right = {
            "run": submission.run,
            "client": submission.client,
            "party": self._party.name,
            "pid": self.pid,
            "digest": submission.digest(),
            "first_round": submission.first_round,
        }
        for key, value in right.items():
            if answer.get(key) != value:
                raise SubmitError(
                    f"{self.where}: its receipt has {key} {str(answer.get(key))[:80]!r}; expected {value!r}"
                )
        if answer.get("status") not in _STATUSES:
            raise SubmitError(
                f"{self.where}: its receipt has status {str(answer.get('status'))[:80]!r}; expected "
                f"{' or '.join(map(repr, _STATUSES))}"
            )

    def _explained(self, error: Exception) -> Exception:
        """TLS failures are final, as CertificateError would be; others may pass."""
        cause: BaseException | None = error
        while cause is not None:
            certificate = getattr(cause, "certificate_error", None) or getattr(
                cause, "os_error", None
            )
            meaning = explain(certificate or cause, self.where)
            if meaning is not None:
                return SubmitError(meaning)
            cause = cause.__cause__
        return _Retry(f"cannot be reached: {_network_reason(error)}")


def _network_reason(error: Exception) -> str:
    """A failure below HTTP without the library's decoration."""
    system = getattr(error, "os_error", error)
    number = system.errno if isinstance(system, OSError) else None
    if number == errno.ECONNREFUSED:
        return "nothing listens there"
    if number is not None and number > 0:
        return os.strerror(number)
    return getattr(system, "strerror", None) or str(error) or type(error).__name__


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


@dataclass(frozen=True, slots=True)
class _State:
    """What the same submission needs again. Secret: seeds, and the digest of the counts."""

    config: str
    client: str
    counts: str = field(repr=False)
    first_round: int | None
    nonce: str
    s0: str = field(repr=False)
    s1: str = field(repr=False)

    @classmethod
    def draw(
        cls,
        config: Config,
        values: NDArray[np.unsignedinteger],
        client: str,
        first_round: int | None,
    ) -> "_State":
        """Fresh randomness for a first try."""
        if first_round is None:
            first_round = draw_first_round(config.run.rounds, config.clients.participation)
        elif not 1 <= first_round <= config.run.rounds:
            raise SubmitError(
                f"round {first_round} does not exist; expected 1 to {config.run.rounds}"
            )
        seeds = UploadSeeds.draw()
        return cls(
            config=config.digest(),
            client=client,
            counts=_digest(values),
            first_round=first_round,
            nonce=secrets.token_hex(16),
            s0=seeds.s0.hex(),
            s1=seeds.s1.hex(),
        )

    def fits(
        self,
        config: Config,
        values: NDArray[np.unsignedinteger],
        client: str,
        first_round: int | None,
    ) -> bool:
        """Whether a new try is one of this submission: seeds may never serve two count vectors."""
        mine = (self.config, self.client, self.counts)
        same = mine == (config.digest(), client, _digest(values))
        return same and first_round in (None, self.first_round)


def _digest(values: NDArray[np.unsignedinteger]) -> str:
    wire = values.dtype.newbyteorder("<")
    return hashlib.sha256(values.astype(wire, copy=False).tobytes()).hexdigest()


def _read_state(path: Path) -> _State:
    try:
        with disk_errors(path, "read"):
            text = path.read_text(encoding="utf-8")
        known = json.loads(text)
        state = _State(**known)
        UploadSeeds(bytes.fromhex(state.s0), bytes.fromhex(state.s1))
    except (ValueError, TypeError) as error:
        raise StoreError(
            path, "is not the state of a submission; expected another file name"
        ) from error
    return state


def _write_state(path: Path, state: _State) -> None:
    """Durable before anything is sent, and readable by nobody else from the start."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(state), durable=True, secret=True)
