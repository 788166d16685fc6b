"""Messages and pairwise keys of a context over the connections of an MPyC program.

``open_context`` gives a party of a running MPyC program a context of this engine. Messages are bytes, sent by MPyC's
message exchangers under the context's own labels and parsed by their size; nothing is unpickled. MPyC's program counter
goes one further, as for one of its own coroutines, and names the session: every party opens its contexts at the same
places of the program. Keys of pairs come from a coin flip of both ends over these connections: commitments to all,
then a share of 32 bytes from each end to the other.

Secret: the pairs' keys and this party's own. Public: labels, sizes. Known limits: identity and secrecy of the
connections are MPyC's. Without its option ``--ssl`` they are plain TCP: whoever listens learns the pairs' keys, as it
learns MPyC's own keys and shares; whoever alters messages is not noticed. One semi-honest party of three learns
nothing. MPyC holds messages that nobody has asked for yet without a limit.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from typing import Any, TypeAlias

import numpy as np

from protocols.context import Context, Costs, Opening, Payload, StepCost, root_path
from protocols.errors import ConfigurationError, PeerClosed, ProtocolViolation, ReceiveTimeout
from protocols.keystream import KEY_BYTES

Mpc: TypeAlias = Any
"""MPyC's runtime, as a program knows it by ``mpc``. MPyC is untyped."""

TIMEOUT_S = 600.0
SHARE_BYTES = 32
_COMMITMENT_BYTES = hashlib.sha256().digest_size
_COMMITMENT = b"syncret mpyc commitment 1\n"
_KEY = b"syncret mpyc pair key 1\n"
_LOOK_S = 1.0
"""Seconds between two looks at a connection that is waited for."""


class MpycTransport:
    """A ``context.Transport`` over MPyC's connections; ``timeout_s`` is the deadline of a receive."""

    def __init__(self, mpc: Mpc, timeout_s: float) -> None:
        self.pid: int = mpc.pid
        self.costs = Costs()
        self.total = StepCost("all", None)
        self._mpc = mpc
        self._timeout_s = timeout_s
        self._own_key = secrets.token_bytes(KEY_BYTES)
        self._keys: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"MpycTransport(pid={self.pid})"

    def set_keys(self, keys: dict[int, bytes]) -> None:
        """Takes the keys with both peers, by peer."""
        self._keys = dict(keys)

    def component_key(self, component: int) -> bytes:
        """Returns the key of a component's two holders, one of whom is this party."""
        holders = {component, (component - 1) % 3}
        if self.pid not in holders:
            raise ValueError(f"party {self.pid} holds no component {component}")
        return self._keys[(holders - {self.pid}).pop()]

    def private_key(self) -> bytes:
        """Returns this party's own key."""
        return self._own_key

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        """Sends ``payload`` to ``peer`` under ``label``, counted for the step. Raises PeerClosed."""
        for counted in (cost, self.total):
            counted.sent_bytes += payload.size
            counted.messages += 1
        self._exchanger(peer).send(label, payload.tobytes())

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        """Waits for the message from ``peer`` with ``label``, of at most ``limit`` bytes.

        Raises ReceiveTimeout, PeerClosed, ProtocolViolation.
        """
        received = self._exchanger(peer).receive(label)
        if isinstance(received, asyncio.Future):
            received = await self._awaited(peer, received, cost)
        if len(received) > limit:
            raise ProtocolViolation(
                f"party {peer} sent {len(received)} bytes in step {cost.step!r}, at most {limit} are allowed",
                peer,
            )
        for counted in (cost, self.total):
            counted.received_bytes += len(received)
        return np.frombuffer(bytearray(received), np.uint8)

    def opened(self, opening: Opening, value: bytes) -> None:
        """Records that a value was opened, not the value."""
        self.costs.openings.append(opening)

    async def _awaited(self, peer: int, received: "asyncio.Future[bytes]", cost: StepCost) -> bytes:
        end = time.monotonic() + self._timeout_s
        while (left := end - time.monotonic()) > 0:
            done, _ = await asyncio.wait((received,), timeout=min(left, _LOOK_S))
            if done:
                return received.result()
            self._exchanger(peer)
        raise ReceiveTimeout(
            f"party {peer} sent nothing for {self._timeout_s:g} s in step {cost.step!r}", peer
        )

    def _exchanger(self, peer: int) -> Any:
        exchanger = self._mpc.parties[peer].protocol
        if exchanger is None or exchanger.transport is None or exchanger.transport.is_closing():
            raise PeerClosed(f"the connection with party {peer} is closed", peer)
        return exchanger


async def open_context(mpc: Mpc, *, timeout_s: float = TIMEOUT_S) -> tuple[Context, MpycTransport]:
    """Opens a context in a running MPyC program; all three parties call it at the same place.

    Leaks: none to the parties; see the module's description for others.
    Rounds: 2, for the pairs' keys.
    Communication: 64 bytes to each peer, then 32.
    Raises: ConfigurationError for a runtime of other than three parties, or another threshold than 1, or one that is
        not started; ProtocolViolation for a peer that does not show what it committed to; ChannelError.
    Source: Blum's coin flipping by telephone (1981), as in ``pairing``.
    """
    if len(mpc.parties) != 3 or mpc.threshold != 1:
        raise ConfigurationError(
            f"MPyC runs {len(mpc.parties)} parties with threshold {mpc.threshold}; expected 3 with 1, as by -M3"
        )
    if mpc.start_time is None:
        raise ConfigurationError("MPyC's runtime is not started; expected `async with mpc` before")
    transport = MpycTransport(mpc, timeout_s)
    # As for a coroutine of MPyC's: the counter says where in the program this is, the same at all parties.
    mpc._program_counter[0] += 1
    ctx = Context(transport, root_path(f"mpyc/{mpc._program_counter[0]}"))
    transport.set_keys(await _pair_keys(ctx))
    return ctx, transport


async def _pair_keys(ctx: Context) -> dict[int, bytes]:
    """Flips a coin with each peer; returns the keys, by peer."""
    peers = (ctx.next_pid, ctx.prev_pid)
    shares = {peer: secrets.token_bytes(SHARE_BYTES) for peer in peers}
    # Each party's commitments are to the next one and to the one before, in this order.
    said = await ctx.exchange(
        b"".join(_commitment(ctx.pid, peer, shares[peer]) for peer in peers),
        max_bytes=2 * _COMMITMENT_BYTES,
    )
    ways = [(sender, (sender + step) % 3) for sender in range(3) for step in (1, 2)]
    shown = await ctx.gather(
        *(
            lambda c, s=sender, r=receiver: c.transfer(
                s, r, shares[r] if c.pid == s else None, max_bytes=SHARE_BYTES
            )
            for sender, receiver in ways
        )
    )
    keys = {}
    for (sender, receiver), share in zip(ways, shown, strict=True):
        if receiver != ctx.pid or share is None:
            continue
        start = 0 if receiver == (sender + 1) % 3 else _COMMITMENT_BYTES
        committed = said[sender][start : start + _COMMITMENT_BYTES]
        if not hmac.compare_digest(committed, _commitment(sender, receiver, share)):
            raise ProtocolViolation(
                f"party {sender} did not show what it had committed to for the pair's key", sender
            )
        keys[sender] = _key(ctx.pid, sender, {ctx.pid: shares[sender], sender: share})
    return keys


def _commitment(sender: int, receiver: int, share: bytes) -> bytes:
    return hashlib.sha256(_COMMITMENT + bytes((sender, receiver)) + share).digest()


def _key(pid: int, peer: int, shares: dict[int, bytes]) -> bytes:
    low, high = sorted((pid, peer))
    together = shares[low] + shares[high]
    return hashlib.blake2b(_KEY + bytes((low, high)), key=together, digest_size=KEY_BYTES).digest()
