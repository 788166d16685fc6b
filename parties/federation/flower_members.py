"""FLAIM's members on Flower: one node of the grid is one client, and a stage is one message there and one back.

Provides ``FlowerClients`` and ``GridTransport``, what it needs of a `flwr.serverapp.Grid`. Frames for a node wait until
there is one that its client answers, and then go as one message; there is one message under way to a node at most.
Nodes that appear are challenged, and let in by the certificate and the proof that they answer with; a node that is lost
is asked again while it is there. Messages are pulled every ``PULL_S`` seconds. Secret: link keys. Public: who is there,
sizes. Known limits: that a node is gone is known by a deadline, not by a lost connection; the SuperLink is the server's
own.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from parties.config import CertificateFiles, Config
from parties.federation.flower_envelope import CHALLENGE_BYTES, Envelope, needs_answer, proof_text
from parties.federation.key_directory import ClientKeyDirectory, SignedClientKey
from parties.federation.members import ClientMessageLog, ConnectedClient, ConnectedClients
from parties.foundation.errors import CertificateError, FederationProtocolError, FramePeerClosed
from parties.identity.signing import Issuer
from parties.observability.events import OnRejection, Rejection, ignore_rejection
from parties.session.enrollment import Enrollment
from secagg.errors import BadSignature
from secagg.keys import verify

PULL_S = 0.2
NODE_POLL_S = 2.0
"""Seconds between two looks at which nodes there are."""
RECHALLENGE_LOST_S = 5.0
"""A node that was lost is challenged again after so many seconds."""
RECHALLENGE_REFUSED_S = 30.0
"""One that was not let in, after so many."""
GOODBYE_S = 30.0


class GridTransport(Protocol):
    """A grid, as far as it is needed; all of it may wait, and is called in a thread."""

    def nodes(self) -> Iterable[int]:
        """Who is there."""

    def push(
        self, letters: Sequence[tuple[int, Envelope]], *, ttl_s: float
    ) -> Sequence[str | None]:
        """Send one message to each node; their ids, None for one that could not be sent."""

    def pull(self, ids: Sequence[str]) -> Mapping[str, Envelope | str]:
        """What has come back by now, by the id of what it answers: a message, or why there is none."""


@dataclass(eq=False, slots=True)
class _NodeChannel:
    """A node's line: ``waiting`` frames, and the id of the message ``pending_id``."""

    node: int
    member: ConnectedClient | None = None
    waiting: list[bytes] = field(default_factory=list, repr=False)
    challenge: bytes = b""
    pending_id: str | None = None
    closed: bool = False
    on_due: Callable[[], None] = lambda: None
    quiet_until: float = 0.0
    """Before that the node is not challenged."""

    def send(self, data: bytes) -> None:
        """Goes along with the next frame that is answered."""
        self.waiting.append(data)
        if needs_answer(data):
            self.on_due()

    def abort(self) -> None:
        """What is under way is not waited for any more."""
        self.closed = True

    @property
    def due(self) -> bool:
        """Whether there is something to send now."""
        if self.pending_id is not None or self.closed:
            return False
        return bool(self.challenge) or any(map(needs_answer, self.waiting))


class FlowerClients(ConnectedClients):
    """See the module. ``messages`` and ``bytes`` count Flower's messages, both ways, and what they carry."""

    def __init__(
        self,
        config: Config,
        files: CertificateFiles,
        *,
        transport: GridTransport,
        workload_digest: str,
        log: ClientMessageLog,
        on_change: Callable[[], None] = lambda: None,
        admit: Callable[[str], object] = lambda client: None,
        rejected: OnRejection = ignore_rejection,
        enrolment: Enrollment | None = None,
        known: Collection[int] = (),
    ) -> None:
        """As ``ConnectedClients``."""
        super().__init__(
            config,
            files,
            workload_digest=workload_digest,
            log=log,
            on_change=on_change,
            admit=admit,
            rejected=rejected,
            enrolment=enrolment,
            known=known,
        )
        self.messages = self.bytes = 0
        self._post = transport
        self._links: dict[int, _NodeChannel] = {}
        self._issuer = Issuer.load(files.ca)
        self._looked = 0.0
        self._pump: asyncio.Task[None] | None = None
        self._sent_all = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._pump = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._sent_all.wait()
        if self._pump is not None:
            self._pump.cancel()
            (ended,) = await asyncio.gather(self._pump, return_exceptions=True)
            if error is None and isinstance(ended, Exception):
                raise ended

    async def change(self, wait_s: float) -> None:
        """As ``Members.change``; a grid that fails fails here."""
        if self._pump is not None and self._pump.done():
            self._pump.result()
        await super().change(wait_s)

    async def _work(self) -> None:
        """Until cancelled: look for nodes, send what is due, take in what has come."""
        try:
            await self._exchange()
        except Exception as error:
            # Nothing will come of the stage that is under way, nor of the wait for the next round.
            reason = f"Flower's grid failed: {type(error).__name__}: {error}"
            for link in list(self._links.values()):
                await self._drop_node(link, reason)
            raise
        finally:
            self._sent_all.set()

    async def _exchange(self) -> None:
        while True:
            if time.monotonic() >= self._looked + NODE_POLL_S:
                await self._find_nodes()
            await self._send()
            await self._pull_answers()
            members = [link for link in self._links.values() if link.member and not link.closed]
            if any(link.due or link.pending_id for link in members):
                self._sent_all.clear()
            else:
                self._sent_all.set()
            await asyncio.sleep(PULL_S)

    async def _find_nodes(self) -> None:
        nodes = set(await asyncio.to_thread(lambda: list(self._post.nodes())))
        self._looked = now = time.monotonic()
        for node in nodes:
            link = self._links.get(node)
            if link is None or (link.closed and now >= link.quiet_until):
                self._links[node] = _NodeChannel(
                    node,
                    challenge=secrets.token_bytes(CHALLENGE_BYTES),
                    on_due=self._sent_all.clear,
                )
        for node, link in list(self._links.items()):
            if node not in nodes:
                del self._links[node]
                await self._drop_node(link, "its node has left the federation")

    async def _send(self) -> None:
        due = [link for link in self._links.values() if link.due]
        if not due:
            return
        letters = []
        for link in due:
            envelope = Envelope(tuple(link.waiting), link.challenge)
            letters.append((link.node, envelope))
            link.waiting = []
            self.messages, self.bytes = self.messages + 1, self.bytes + envelope.size
        ttl_s = 4 * self.stage_s
        ids = await asyncio.to_thread(self._post.push, letters, ttl_s=ttl_s)
        for link, id in zip(due, ids, strict=True):
            link.pending_id = id
            if id is None:
                await self._drop_node(link, "Flower did not take a message to it")

    async def _pull_answers(self) -> None:
        under_way = {
            link.pending_id: link
            for link in self._links.values()
            if link.pending_id is not None and not link.closed
        }
        if not under_way:
            return
        found = await asyncio.to_thread(self._post.pull, list(under_way))
        for id, answer in found.items():
            link = under_way[id]
            link.pending_id = None
            # Meanwhile its client may have been sent away.
            if link.closed:
                continue
            if isinstance(answer, str):
                await self._drop_node(link, f"its ClientApp failed: {answer}")
                continue
            self.messages, self.bytes = self.messages + 1, self.bytes + answer.size
            try:
                if link.member is None:
                    await self._admit_node(link, answer)
                else:
                    self._pass_on(link.member, answer)
            except FederationProtocolError as error:
                await self._drop_node(link, str(error))

    def _pass_on(self, member: ConnectedClient, answer: Envelope) -> None:
        for frame in answer.frames:
            if len(frame) > member.limit:
                text = f"sent {len(frame)} bytes; expected at most {member.limit}"
                raise FederationProtocolError(member.name, text)
            self.on_message(member, frame)

    async def _admit_node(self, link: _NodeChannel, answer: Envelope) -> None:
        """Let the client of a node in, that proves who it is. Raises FlaimProtocolError."""
        where = f"node {link.node}"
        if len(answer.frames) != 1:
            raise FederationProtocolError(
                where, "answered a challenge with other than its greeting"
            )
        card = SignedClientKey.unpack(answer.card, where)
        try:
            name = self._issuer.signatory(card.certificate).name
        except CertificateError as error:
            self._rejected(Rejection.TLS, f"{where}: {error}")
            raise FederationProtocolError(where, str(error)) from error
        number = self._numbers.get(name)
        if number is not None:
            ClientKeyDirectory(self._config, self._issuer, where).learn(number, card)
        try:
            text = proof_text(self._config.digest(), link.challenge)
            verify([card.identity], 0, answer.proof, text)
        except BadSignature as error:
            raise FederationProtocolError(where, f"has not proved to be {name!r}") from error
        link.challenge = b""
        found = await self.admit_client(
            name, card.certificate, answer.frames[0], link, remote=where
        )
        if isinstance(found, list):
            link.waiting += found
            # Its owner may mend what was wrong, or the node before it be noticed to be gone.
            link.quiet_until = time.monotonic() + RECHALLENGE_REFUSED_S

    async def _drop_node(self, link: _NodeChannel, reason: str) -> None:
        link.closed = True
        link.quiet_until = max(link.quiet_until, time.monotonic() + RECHALLENGE_LOST_S)
        if link.member is not None:
            self.expel(link.member, FramePeerClosed(link.member.name, reason))
            with contextlib.suppress(RuntimeError):
                await self.tell()
