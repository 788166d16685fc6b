"""A party's runtime: MPyC's, on mutually authenticated TLS, with deadlines, size limits and counted bytes.

MPyC provides the parties and the program counter that labels messages. Different here: the pairwise keys come from a
coin flip of both ends, sealed to their pinned post-quantum keys (`protocols.pairing`), and all payloads are XORed with
a keystream of them; a peer's identity comes from its certificate, not from its first bytes; a lost peer fails every
pending receive with an error that names it; every receive has a deadline and a maximum size; nothing is ever unpickled
(MPyC's ``transfer`` and ``output`` refuse to run). Secret: the pairwise keys and this party's private key. Public:
names, addresses, byte counts.

A runtime serves one mesh: its keys must never mask two different runs, so that it connects once and has one root
context.
"""

import argparse
import asyncio
import hashlib
import secrets
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NoReturn, Protocol

from protocols._mpyc import Party, Runtime
from protocols.context import Context, Costs, Opening, Payload, StepCost, root_path
from protocols.digests import digest_key
from protocols.errors import ConfigurationError, ProtocolError, ProtocolViolation
from protocols.exchanger import PeerExchanger, Received
from protocols.keystream import KEY_BYTES
from protocols.mesh import Inlet, Mesh, TlsFiles
from protocols.pairing import (
    OFFER_BYTES,
    SEALED_BYTES,
    Coin,
    PairKeys,
    Seals,
    frames_stream,
    seal_key,
)

_FAREWELL_S = 5.0
_POLL_S = 0.001


class Recorder(Protocol):
    """Interface of a party's transcript; calls come from several threads."""

    def message(
        self,
        *,
        step: str,
        round: int | None,
        direction: str,
        peer: int,
        label: int,
        size: int,
        digest: bytes,
    ) -> None:
        """Records that a message was sent or received."""

    def opened(self, *, step: str, round: int | None, what: str, count: int, value: bytes) -> None:
        """Records that a value was opened."""


def _refused(violation: ProtocolViolation) -> NoReturn:
    raise violation


class PartyRuntime(Runtime):  # type: ignore[misc]  # MPyC is untyped
    """One of the three parties, connected to the two others. Made inside the event loop that it is used in.

    ``addresses`` are the mesh's (host, port) by pid; the own one is listened on. ``timeout_s`` is the deadline of a
    receive. ``session`` has to be the same at all parties; it separates the keystreams and labels of different runs. So
    has ``version``, that of the messages and of the program, which is compared before anything else. ``seals`` are the
    keys that protect the exchange of the pairs' keys. ``on_other_seal`` gets the violation of a peer that offers
    another sealing key than the pinned one, as a party does whose run is over: it may accept the peer, and raises by
    default. ``inlet`` and ``server_name`` are for a port that meshes share, ``on_stranger`` gets the reason of each
    refused connection (`protocols.mesh`). ``async with`` connects and closes; an error ends the peers' work with its
    text if it is one of the engine's, and with its class alone otherwise, since other errors may quote data.
    """

    def __init__(
        self,
        pid: int,
        addresses: Sequence[tuple[str, int]],
        *,
        tls: TlsFiles,
        seals: Seals,
        session: str,
        timeout_s: float = 30.0,
        connect_timeout_s: float = 60.0,
        binding: str = "",
        version: str = "",
        recorder: Recorder | None = None,
        inlet: Callable[[], Inlet] | None = None,
        on_stranger: Callable[[str], object] = lambda text: None,
        on_other_seal: Callable[[ProtocolViolation], object] = _refused,
        server_name: str | None = None,
    ) -> None:
        if pid not in (0, 1, 2) or len(addresses) != 3:
            raise ConfigurationError(
                f"a mesh has parties 0, 1 and 2; got party {pid} of {len(addresses)}"
            )
        options = argparse.Namespace(
            threshold=1, no_prss=False, no_log=True, no_async=False, no_barrier=True, ssl=True
        )
        loop = asyncio.get_running_loop()
        handler = loop.get_exception_handler()
        super().__init__(
            pid, [Party(i, host, port) for i, (host, port) in enumerate(addresses)], options
        )
        loop.set_exception_handler(handler)  # MPyC has put its own in place.
        self.costs = Costs()
        self.version = version
        self._addresses = addresses
        self._tls = tls
        self._seals = seals
        self._on_other_seal = on_other_seal
        self._session = session
        self._coins = {
            peer: Coin(pid, peer, self._meeting(peer), self._bound_to(binding), seals.own)
            for peer in range(3)
            if peer != pid
        }
        self._offers: dict[int, bytes] = {}
        self._pair_keys: dict[int, PairKeys] = {}
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._recorder = recorder
        self._inlet = inlet
        self._on_stranger = on_stranger
        self._server_name = server_name
        self._own_key = secrets.token_bytes(KEY_BYTES)
        self._sending: dict[tuple[int, int], StepCost] = {}
        self._root = Context(self, root_path(session))
        self._used = False
        self._mesh: Mesh | None = None
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"PartyRuntime(pid={self.pid})"

    def context(self) -> Context:
        """Returns the root context of the session; its children are the protocols' places."""
        return self._root

    # Connecting.

    async def connect(self) -> None:
        """Connects to both peers in both directions and makes the pairwise keys.

        Raises ConfigurationError for unusable files or an address in use, ProtocolViolation for a peer of another
        session, with another sealing key, or that does not show the share it had committed to, ConnectTimeout after
        ``connect_timeout_s`` with the missing peers and the last problem of each.
        """
        if self._used:
            raise ValueError("a runtime connects once; make a new one, with new keys")
        self._used = True
        self._mesh = mesh = Mesh(
            self,
            self._addresses,
            tls=self._tls,
            timeout_s=self._connect_timeout_s,
            inlet=self._inlet,
            on_stranger=self._on_stranger,
            server_name=self._server_name,
        )
        outgoing, incoming = await mesh.connect()
        for peer in incoming:
            self.parties[peer].protocol = PeerExchanger(
                self,
                peer,
                outgoing[peer],
                incoming[peer],
                streams=(
                    frames_stream(self._pair_keys[peer].frames, self.pid, peer),
                    frames_stream(self._pair_keys[peer].frames, peer, self.pid),
                ),
                digest_key=self._digest_key(peer),
                sent=self._was_sent,
            )

    def missing(self) -> dict[int, str]:
        """Returns, while ``connect`` waits, the peers that are not there yet, and the last problem with each."""
        return {} if self._mesh is None else self._mesh.missing()

    async def __aenter__(self) -> "PartyRuntime":
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        reason = str(error) if isinstance(error, ProtocolError) else ""
        await self.close("" if error is None else reason or type(error).__name__)

    def hello(self, peer: int) -> bytes:
        """Returns the first bytes to ``peer``: sender and receiver, and this party's offer for the pair's key."""
        return self._greeting(self.pid, peer) + self._coins[peer].offer

    def accept_hello(self, peer: int, hello: bytes) -> None:
        """Checks the first bytes from ``peer``, whose certificate has been verified, and keeps its offer."""
        expected = self._greeting(peer, self.pid)
        if hello[: len(expected)] != expected:
            raise ProtocolViolation(f"party {peer} runs another session", peer)
        offer = hello[len(expected) :]
        if seal_key(offer, peer) != self._seals.pinned[peer]:
            self._on_other_seal(
                ProtocolViolation(
                    f"party {peer} has another sealing key than the configuration says; expected the pinned one of "
                    "whoever is to compute",
                    peer,
                )
            )
        self._offers[peer] = offer

    def hello_size(self, peer: int) -> int:
        """Returns the length of the hello from ``peer``."""
        return len(self._greeting(peer, self.pid)) + OFFER_BYTES

    def reveal(self, peer: int) -> bytes:
        """Returns the share committed to in the hello to ``peer``, sealed to its key; needs both hellos."""
        return self._coins[peer].sealed(self._offers[peer])

    def reveal_size(self, peer: int) -> int:
        """Returns the length of the reveal from ``peer``."""
        return SEALED_BYTES

    def accept_reveal(self, peer: int, box: bytes) -> None:
        """Checks the share that ``peer`` had committed to, and makes the pair's keys."""
        self._pair_keys[peer] = self._coins[peer].keys(self._offers[peer], box)

    def _greeting(self, sender: int, receiver: int) -> bytes:
        session = hashlib.sha256(self._session.encode()).digest()
        return bytes((sender, receiver)) + session

    def _meeting(self, peer: int) -> bytes:
        """Returns the text that both ends of a pair must have in common to connect: session and two identities."""
        pair = sorted((self.pid, peer))
        identities = [text for p in pair for text in (self._tls.names[p], self._tls.pins[p])]
        return "\n".join((self._session, *identities)).encode()

    def _bound_to(self, binding: str) -> bytes:
        """Returns a digest that all must share in order to compute: session, identities, sealing keys, ``binding``."""
        seals = map(str, self._seals.pinned)
        parts = (self._session, *self._tls.names, *self._tls.pins, *seals, binding)
        return hashlib.sha256("\n".join(parts).encode()).digest()

    async def close(self, reason: str = "") -> None:
        """Leaves the mesh and ends its threads; safe to call twice, and when cancelled.

        An empty reason means that the work is done: both peers have to say so too, within the deadline of a receive.
        Any other reason ends the peers' work with it, and is sent without waiting for an answer.

        Raises, where the reason is empty, an error of the mesh that no receive has raised: a peer that is lost or left
        early, a silent peer, ProtocolViolation for messages that were not due.
        """
        peers = self._exchangers()
        try:
            limit = _FAREWELL_S if reason else self._timeout_s
            await asyncio.gather(*(peer.farewell(reason, limit) for peer in peers))
        finally:
            for peer in peers:
                peer.end()
        for peer in peers:
            if peer.buffers:
                self.fail(
                    ProtocolViolation(
                        f"party {peer.peer_pid} sent {len(peer.buffers)} messages that were not due",
                        peer.peer_pid,
                    )
                )
        if self._failure is not None and not reason:
            raise self._failure

    async def flush(self) -> None:
        """Waits until all posted messages have left this process, or a peer is lost."""
        while self._sending and self._failure is None:  # noqa: ASYNC110  # Threads that send set no event.
            await asyncio.sleep(_POLL_S)

    def fail(self, error: Exception) -> None:
        """Ends all that waits for any peer: a peer is lost or broke the protocol."""
        self._failure = self._failure or error
        for peer in self._exchangers():
            peer.fail(error)

    def round_trip_s(self, peer: int) -> float | None:
        """Returns the round-trip time to ``peer`` in seconds; None where it is unknown, or without a connection."""
        exchanger: PeerExchanger | None = self.parties[peer].protocol
        return None if exchanger is None else exchanger.round_trip_s()

    def _exchangers(self) -> list[PeerExchanger]:
        others = (party for party in self.parties if party.pid != self.pid)
        return [party.protocol for party in others if party.protocol is not None]

    # The interface of contexts (``context.Transport``).

    def component_key(self, component: int) -> bytes:
        """Returns the key of a component's two holders, one of whom is this party."""
        holders = {component, (component - 1) % 3}
        if self.pid not in holders:
            raise ValueError(f"party {self.pid} holds no component {component}")
        return self._pair_keys[(holders - {self.pid}).pop()].component

    def _digest_key(self, peer: int) -> bytes:
        """Returns the key of the digests of messages with ``peer``, derived from the two's common key."""
        component = self.pid if peer == (self.pid - 1) % 3 else peer
        return digest_key(self.component_key(component))

    def private_key(self) -> bytes:
        """Returns this party's own key."""
        return self._own_key

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        """Sends ``payload`` to ``peer`` under ``label``, counted for the step."""
        self._sending[peer, label] = cost
        cost.sent_bytes += payload.size
        cost.messages += 1
        self._program_counter[0] = label
        self._send_message(peer, payload)

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        """Waits for the message from ``peer`` with ``label``, of at most ``limit`` bytes."""
        exchanger: PeerExchanger = self.parties[peer].protocol
        received: Received = await exchanger.receive(label, self._timeout_s, limit)
        size = received.payload.size
        cost.received_bytes += size
        self._record("received", cost, peer, label, size, received.digest)
        return received.payload

    def opened(self, opening: Opening, value: bytes) -> None:
        """Records an opened value."""
        self.costs.openings.append(opening)
        if self._recorder is not None:
            self._recorder.opened(
                step=opening.step,
                round=opening.round,
                what=opening.what,
                count=opening.count,
                value=value,
            )

    def _was_sent(self, peer: int, label: int, size: int, digest: bytes) -> None:
        self._record("sent", self._sending.pop((peer, label)), peer, label, size, digest)

    def _record(
        self, direction: str, cost: StepCost, peer: int, label: int, size: int, digest: bytes
    ) -> None:
        if self._recorder is not None:
            self._recorder.message(
                step=cost.step,
                round=cost.round,
                direction=direction,
                peer=peer,
                label=label,
                size=size,
                digest=digest,
            )

    # MPyC's functions that production paths must not use: both unpickle a peer's bytes.

    def transfer(self, *_: object, **__: object) -> NoReturn:
        """Refuses to run: MPyC's transfer unpickles a peer's bytes."""
        raise TypeError("transfer unpickles peers' bytes; use Context.exchange")

    def output(self, *_: object, **__: object) -> NoReturn:
        """Refuses to run: MPyC's output unpickles a peer's bytes."""
        raise TypeError("output is for MPyC's own types; use base.open_value")
