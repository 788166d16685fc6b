"""Connected clients over Flower: one node of the grid is one client, and a stage is one message there and one back.

``FlowerClients`` uses a ``GridTransport``, a part of `flwr.serverapp.Grid`. Frames for a node wait until one of them
needs an answer, and then go as one message; a node has at most one message in flight. New nodes are challenged, and
admitted by the certificate and the proof in their answer; a node that asks for earlier releases of its key is told them
once it has proved that key, and greets then. A lost node is challenged again while it is in the grid. The
server pulls messages every ``PULL_S`` seconds. Secret: link keys. Public: connected clients, sizes. Known limits: the
server notices a lost node by a deadline, not by a lost connection; the SuperLink belongs to the server.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from parties.federation.flower_envelope import CHALLENGE_BYTES, Envelope, needs_answer, proof_text
from parties.federation.key_directory import ClientKeyDirectory, SignedClientKey
from parties.federation.members import ClientsSetup, ConnectedClient, ConnectedClients
from parties.federation.messages import SMALL_MESSAGE_BYTES, is_releases_question
from parties.foundation.errors import CertificateError, FederationProtocolError, FramePeerClosed
from parties.identity.signing import Issuer
from parties.observability.events import Rejection
from secagg.errors import BadSignature
from secagg.keys import verify

PULL_S = 0.2
NODE_POLL_S = 2.0
"""Interval between two listings of the grid's nodes, in seconds."""
RECHALLENGE_LOST_S = 5.0
"""Wait before the new challenge of a lost node, in seconds."""
RECHALLENGE_REFUSED_S = 30.0
"""Wait before the new challenge of a refused node, in seconds."""
GOODBYE_S = 30.0


class GridTransport(Protocol):
    """The required part of a grid. All methods may block and are called in a thread."""

    def nodes(self) -> Iterable[int]:
        """Returns the ids of the grid's nodes."""

    def push(
        self, letters: Sequence[tuple[int, Envelope]], *, ttl_s: float
    ) -> Sequence[str | None]:
        """Sends one message to each node; returns the messages' ids, None for a message that could not be sent."""

    def pull(self, ids: Sequence[str]) -> Mapping[str, Envelope | str]:
        """Returns the answers so far by the id of the answered message: an envelope, or the reason for its absence."""


@dataclass(eq=False, slots=True)
class _NodeChannel:
    """A node's channel: frames ``waiting`` to be sent, and ``pending_id``, the id of the message in flight."""

    node: int
    member: ConnectedClient | None = None
    waiting: list[bytes] = field(default_factory=list, repr=False)
    challenge: bytes = b""
    pending_id: str | None = None
    closed: bool = False
    on_due: Callable[[], None] = lambda: None
    proven: SignedClientKey | None = None
    """Card of the client that the node has proved to be."""
    statement: str = ""
    """The client's valid statement of what it releases, "" without one."""
    quiet_until: float = 0.0
    """Earliest monotonic time of the next challenge."""

    def send(self, data: bytes) -> None:
        """Queues a frame; the queue is sent with the next frame that needs an answer."""
        self.waiting.append(data)
        if needs_answer(data):
            self.on_due()

    def abort(self) -> None:
        """Closes the channel; an answer in flight is ignored."""
        self.closed = True

    @property
    def due(self) -> bool:
        """True if there is something to send now."""
        if self.pending_id is not None or self.closed:
            return False
        return bool(self.challenge) or any(map(needs_answer, self.waiting))


class FlowerClients(ConnectedClients):
    """Clients of a run on Flower's grid. ``messages`` and ``bytes`` count Flower's messages and their contents, both
    ways.
    """

    def __init__(self, setup: ClientsSetup, *, transport: GridTransport) -> None:
        """Prepares an attempt over the grid's ``transport``."""
        super().__init__(setup)
        self.messages = self.bytes = 0
        self._post = transport
        self._links: dict[int, _NodeChannel] = {}
        self._issuer = Issuer.load(setup.files.ca)
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
        """Waits as ``ConnectedClients.change``; raises the error of a failed grid."""
        if self._pump is not None and self._pump.done():
            self._pump.result()
        await super().change(wait_s)

    async def _work(self) -> None:
        """Lists nodes, sends queued frames and takes in answers until cancelled."""
        try:
            await self._exchange()
        except Exception as error:
            # Neither the current stage nor the wait for the next round can go on.
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
            # The client may have been expelled meanwhile.
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
        """Admits the client of a node after its proof of identity, or answers its question for earlier releases.

        Raises FederationProtocolError.
        """
        where = f"node {link.node}"
        if len(answer.frames) != 1 or len(answer.frames[0]) > SMALL_MESSAGE_BYTES:
            raise FederationProtocolError(
                where, "answered a challenge with other than its greeting"
            )
        (frame,) = answer.frames
        if link.proven is None:
            link.proven = self._proven_card(link, answer, where)
            link.challenge = b""
            if is_releases_question(frame):
                reply, link.statement = await self.answer_question(link.proven.certificate, frame)
                link.send(reply)
                return
        card = link.proven
        found = await self.admit_client(
            self._issuer.signatory(card.certificate).name,
            card.certificate,
            frame,
            link,
            remote=where,
            statement=link.statement,
        )
        if isinstance(found, list):
            link.waiting += found
            # The client's owner may correct the error, or the server may notice that the client's earlier node is gone.
            link.quiet_until = time.monotonic() + RECHALLENGE_REFUSED_S

    def _proven_card(self, link: _NodeChannel, answer: Envelope, where: str) -> SignedClientKey:
        """Returns the card whose key has signed the node's challenge. Raises FederationProtocolError."""
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
        return card

    async def _drop_node(self, link: _NodeChannel, reason: str) -> None:
        link.closed = True
        link.quiet_until = max(link.quiet_until, time.monotonic() + RECHALLENGE_LOST_S)
        if link.member is not None:
            self.expel(link.member, FramePeerClosed(link.member.name, reason))
            with contextlib.suppress(RuntimeError):
                await self.tell()
