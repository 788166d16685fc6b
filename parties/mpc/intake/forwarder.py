"""Forwarder of uploads: parts in the outbox go to the two other servers, over their ingest addresses.

``Forwarder`` sends a new part at once, over connections that stay open. If a server is away, the forwarder tries again
in the background, at growing intervals. Both ends are servers whose keys are pinned. A part counts as delivered with a
receipt that the other server has signed. Secret: nothing, parts are sealed. Public: the servers that have a part.
Source: docs/decisions/0023. Known limits: bytes of failed tries are not counted.
"""

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

import aiohttp

from parties.config import CertificateFiles, Config, PartySection
from parties.foundation.errors import CertificateError, StoreError
from parties.identity.tls import client_contexts, explain_tls_error
from parties.mpc.storage.store import Store
from parties.mpc.submission.http_api import (
    InvalidAnswer,
    forwarded_path,
    in_chunks,
    is_retryable,
    read_answer,
    refusal_text,
)
from parties.mpc.submission.messages import Submission
from parties.mpc.submission.sealed_upload import (
    ReceivedUpload,
    SealedUpload,
    SignedUpload,
    UploadSizes,
    check_receipt,
    receipts_in,
)
from parties.network.http_connections import TlsConnector
from parties.network.port_sharing import study_sni_name
from parties.observability.heartbeat import network_reason

logger = logging.getLogger("syncret.relay")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 30.0
_AT_ONCE, _TOGETHER_BYTES = 4, 1 << 26
"""Maximum number of parts on their way to one server, and their maximum bytes (a single part may exceed them)."""
MAX_QUEUED = 1000
"""Maximum number of clients in memory, for each queue: while a server is away, further ones wait in the outbox."""
_KEEPALIVE_S = 5.0
"""Keepalive of connections in seconds, shorter than the server's idle timeout."""
_EXPECT_CONTINUE_BYTES = 1 << 16
"""Size in bytes above which a part waits for the other server's "100 Continue"."""


class _PeerUnavailable(Exception):
    """Server that could not be reached, or that failed: it is tried again later."""


@dataclass(frozen=True, slots=True)
class ForwarderContext:
    """Context of all deliveries: the run, the store, uploads' sizes, and the ``largest`` size possible, in bytes."""

    config: Config
    store: Store
    sizes: Callable[[Submission], UploadSizes]
    largest: int


class Forwarder:
    """Forwarder of server ``pid``. Must be made within a running event loop; ``close`` ends it."""

    def __init__(self, shared: ForwarderContext, pid: int, files: CertificateFiles) -> None:
        """Raises CertificateError if ``files`` cannot be used."""
        parties = shared.config.require_parties()
        others = [other for other in range(3) if other != pid]
        contexts = client_contexts(files, [parties[other].pinned for other in others])
        self._peers = {
            other: _PeerQueue(shared, other, context)
            for other, context in zip(others, contexts, strict=True)
        }

    def start(self) -> None:
        """Starts with the entries that an earlier process left. Raises StoreError."""
        for peer in self._peers.values():
            peer.start()

    def send(self, upload: SignedUpload, sealed: SealedUpload, pids: Sequence[int]) -> None:
        """Forwards a new upload in the outbox to the servers ``pids`` that it waits for."""
        for pid in pids:
            self._peers[pid].add(upload.submission.client, (upload, sealed.for_server(pid)))

    def retry_now(self) -> None:
        """Tries again now, because the other servers are there."""
        for peer in self._peers.values():
            peer.retry_now()

    async def settle(self, client: str, limit_s: float) -> None:
        """Waits until the first try of a client's upload is over at each server, for at most ``limit_s`` seconds."""
        tries = [tried for peer in self._peers.values() if (tried := peer.tried(client))]
        if tries:
            await asyncio.wait(tries, timeout=limit_s)

    async def close(self) -> None:
        """Stops; the remaining entries stay in the outbox."""
        for peer in self._peers.values():
            await peer.close()


class _PeerQueue:
    """Queue of clients and connection to one other server."""

    def __init__(self, shared: ForwarderContext, pid: int, context: ssl.SSLContext) -> None:
        self._shared = shared
        self._pid = pid
        self._party: PartySection = shared.config.require_parties()[pid]
        self._server_name = study_sni_name(shared.config.digest())
        self._outbox = shared.store.outbox
        self._context = context
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._tries: dict[str, asyncio.Future[None]] = {}
        """Queued clients, each with a future that is done once the first try is over."""
        self._new_uploads: dict[str, tuple[SignedUpload, ReceivedUpload]] = {}
        """Uploads that have just arrived, for their first try."""
        self._has_more = True
        """True if the outbox may hold clients that are not queued."""
        self._slots = asyncio.Semaphore(max(1, min(_AT_ONCE, _TOGETHER_BYTES // shared.largest)))
        self._retry_event = asyncio.Event()
        self._pause_s, self._until, self._failed_at = FIRST_PAUSE_S, 0.0, 0.0
        self._logged_reason = ""
        """Last logged reason for waiting."""
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._refill()
        self._spawn(self._work())

    def _refill(self) -> None:
        """Queues the oldest waiting clients, if the queue is short."""
        if self._has_more and len(self._tries) <= MAX_QUEUED // 2:
            oldest = self._outbox.waiting(self._pid, MAX_QUEUED)
            self._has_more = len(oldest) == MAX_QUEUED
            for client in oldest:
                self.add(client)

    def add(self, client: str, fresh: tuple[SignedUpload, ReceivedUpload] | None = None) -> None:
        if len(self._tries) >= MAX_QUEUED:
            self._has_more = True
        elif client not in self._tries:
            self._tries[client] = asyncio.get_running_loop().create_future()
            self._queue.put_nowait(client)
            if self._is_away():
                self._finish_first_try(client)
            elif fresh is not None:
                self._new_uploads[client] = fresh

    def tried(self, client: str) -> asyncio.Future[None] | None:
        return self._tries.get(client)

    def retry_now(self) -> None:
        self._pause_s, self._until = FIRST_PAUSE_S, 0.0
        self._retry_event.set()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_away(self) -> bool:
        return time.monotonic() < self._until

    def _finish_first_try(self, client: str) -> None:
        future = self._tries.get(client)
        if future is not None and not future.done():
            future.set_result(None)

    async def _work(self) -> None:
        while True:
            client = await self._queue.get()
            await self._slots.acquire()
            while (left := self._until - time.monotonic()) > 0:
                self._retry_event.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._retry_event.wait(), left)
            self._spawn(self._deliver(client))

    async def _deliver(self, client: str) -> None:
        """Tries once; a failed delivery is queued again."""
        started = time.monotonic()
        try:
            await self._forward(client, self._new_uploads.pop(client, None))
        except (_PeerUnavailable, StoreError) as error:
            self._fail(started, error)
            self._queue.put_nowait(client)
            self._finish_first_try(client)
        else:
            self._pause_s, self._logged_reason = FIRST_PAUSE_S, ""
            self._finish_first_try(client)
            del self._tries[client]
            if self._outbox.waits(client, self._pid):
                # Another version has arrived meanwhile.
                self.add(client)
            self._refill()
        finally:
            self._slots.release()

    def _fail(self, started: float, error: Exception) -> None:
        """Pauses all tries for a time that grows with each failure; concurrent failures count as one."""
        if started < self._failed_at:
            return
        if self._logged_reason != (said := str(error)):
            logger.warning("%s: parts wait: %s", self._party.name, said)
            self._logged_reason = said
        self._failed_at = time.monotonic()
        self._until = self._failed_at + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        # Uploads may be many by the time that the server is back, so they are read from the outbox then.
        self._new_uploads.clear()
        for waiting in self._tries:
            self._finish_first_try(waiting)

    async def _forward(
        self, client: str, fresh: tuple[SignedUpload, ReceivedUpload] | None
    ) -> None:
        """Raises _PeerUnavailable, StoreError."""
        found = fresh or await asyncio.to_thread(self._in_outbox, client)
        if found is None:
            return
        upload, received_part = found
        status, answer, received = await self._put(upload, received_part)
        if is_retryable(status):
            raise _PeerUnavailable(refusal_text(status, answer))
        if status not in (200, 201):
            reason = refusal_text(status, answer)
            logger.warning("%s refuses the part of %s: %s", self._party.name, client, reason)
            await asyncio.to_thread(
                self._outbox.refused, client, self._pid, reason, upload=upload.upload.digest()
            )
            return
        try:
            (receipt,) = receipts_in(answer)
            if receipt.party != self._party.name:
                raise ValueError("the receipt is another server's")
            check_receipt(receipt, upload.upload, self._shared.config)
        except (ValueError, CertificateError) as error:
            raise _PeerUnavailable(f"its receipt does not hold: {error}") from error
        sent = len(received_part.content)
        await asyncio.to_thread(
            self._outbox.delivered,
            client,
            self._pid,
            receipt,
            upload=upload.upload.digest(),
            sent=sent,
            received=received,
        )

    def _in_outbox(self, client: str) -> tuple[SignedUpload, ReceivedUpload] | None:
        """A client's upload and the other server's part of it; None if no server waits for it. Blocks."""
        upload = self._shared.store.submissions.upload(client)
        content = None if upload is None else self._outbox.content(client)
        if upload is None or content is None:
            return None
        return upload, self._shared.sizes(upload.submission).split(content).for_server(self._pid)

    async def _put(
        self, upload: SignedUpload, received_part: ReceivedUpload
    ) -> tuple[int, dict[str, object], int]:
        """Status, answer and size of the answer. Raises _PeerUnavailable."""
        content = received_part.content
        asked_first = len(content) > _EXPECT_CONTINUE_BYTES
        try:
            async with self._connected().put(
                f"https://{self._party.ingest}{forwarded_path(upload.submission.run)}",
                # Chunks are gone once they are sent, and the library may send a body twice unless it waits for 100
                # Continue.
                data=in_chunks(content) if asked_first else content,
                headers=upload.headers_between_servers() | {"Content-Length": str(len(content))},
                server_hostname=self._server_name,
                expect100=asked_first,
                allow_redirects=False,
            ) as response:
                return (response.status, *await read_answer(response))
        except TimeoutError as error:
            raise _PeerUnavailable("no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            reason = explain_tls_error(getattr(error, "certificate_error", error), self._party.name)
            raise _PeerUnavailable(
                reason or f"cannot be reached: {network_reason(error)}"
            ) from error
        except InvalidAnswer as error:
            raise _PeerUnavailable(str(error)) from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeouts = self._shared.config.timeouts
            limits = aiohttp.ClientTimeout(total=timeouts.submit_s, sock_connect=timeouts.connect_s)
            connector = TlsConnector(self._context, limit=_AT_ONCE, keepalive_timeout=_KEEPALIVE_S)
            self._session = aiohttp.ClientSession(connector=connector, timeout=limits)
        return self._session
