"""Three parties in one process: the engine's contexts on queues, with every payload kept for inspection."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from protocols.context import Context, Costs, Opening, Payload, StepCost
from protocols.ring import Ring, RingArray
from protocols.shares import Share

T = TypeVar("T")


@dataclass(repr=False)
class Sent:
    """One message: who, to whom, in which step, and what."""

    sender: int
    receiver: int
    step: str
    payload: bytes


@dataclass(repr=False)
class LocalMesh:
    """The queues between three parties and what went through them.

    ``seed`` fixes all keys, or only those that party ``known_to`` holds: the others depend on ``variant`` too.
    """

    seed: int
    variant: int = 0
    known_to: int | None = None
    waiting: dict[tuple[int, int, int], "asyncio.Future[Payload]"] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)

    def key(self, name: str, holders: set[int]) -> bytes:
        fixed = self.known_to is None or self.known_to in holders
        return hashlib.sha256(
            f"{self.seed}/{0 if fixed else self.variant}/{name}".encode()
        ).digest()[:16]

    def slot(self, sender: int, receiver: int, label: int) -> "asyncio.Future[Payload]":
        loop = asyncio.get_running_loop()
        return self.waiting.setdefault((sender, receiver, label), loop.create_future())


class LocalParty:
    """A ``context.Transport`` on a ``LocalMesh``."""

    def __init__(self, mesh: LocalMesh, pid: int) -> None:
        self.mesh = mesh
        self.pid = pid
        self.costs = Costs()
        self.opened_values: list[tuple[str, bytes]] = []

    def component_key(self, component: int) -> bytes:
        assert component in (self.pid, (self.pid + 1) % 3), (
            "a party may not use a key that it does not hold"
        )
        return self.mesh.key(f"component {component}", {component, (component - 1) % 3})

    def private_key(self) -> bytes:
        return self.mesh.key(f"private {self.pid}", {self.pid})

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        assert peer != self.pid
        cost.sent_bytes += payload.size
        cost.messages += 1
        self.mesh.sent.append(Sent(self.pid, peer, cost.step, payload.tobytes()))
        self.mesh.slot(self.pid, peer, label).set_result(payload.copy())

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        payload = await self.mesh.slot(peer, self.pid, label)
        del self.mesh.waiting[peer, self.pid, label]
        cost.received_bytes += payload.size
        return payload

    def opened(self, opening: Opening, value: bytes) -> None:
        self.costs.openings.append(opening)
        self.opened_values.append((opening.what, value))


@dataclass(repr=False)
class Outcome:
    """Results of the three parties, and the cost of the run."""

    results: list[Any]
    parties: list[LocalParty]
    mesh: LocalMesh
    rounds: int

    @property
    def sent_bytes(self) -> list[int]:
        return [sum(len(m.payload) for m in self.mesh.sent if m.sender == pid) for pid in range(3)]

    def received(self, pid: int) -> list[bytes]:
        return [m.payload for m in self.mesh.sent if m.receiver == pid]


Program = Callable[[Context], Awaitable[T]]


def run_parties(
    program: Program[T],
    *,
    seed: int = 1,
    rotate: int = 0,
    variant: int = 0,
    known_to: int | None = None,
) -> Outcome:
    """Run ``program`` at all three parties and wait for them, at most 240 s. For the keys see ``LocalMesh``.

    A machine that runs it for the first time compiles some of it before.
    """

    async def main() -> Outcome:
        mesh = LocalMesh(seed, variant, known_to)
        parties = [LocalParty(mesh, pid) for pid in range(3)]
        contexts = [Context(party, b"test").child(rotate=rotate) for party in parties]
        results = await asyncio.wait_for(asyncio.gather(*(program(ctx) for ctx in contexts)), 240)
        assert not mesh.waiting, "messages were sent that nobody received"
        return Outcome(list(results), parties, mesh, max(ctx.depth for ctx in contexts))

    return asyncio.run(main())


def components(ring: Ring, value: Sequence[int] | RingArray, seed: int = 7) -> list[RingArray]:
    """Three random components that add up to ``value``."""
    x = ring.encode(np.asarray(value, dtype=object) if ring.wide else np.asarray(value))
    generator = np.random.default_rng(seed)
    raw = [
        ring.from_wire(generator.integers(0, 256, x.size * ring.itemsize, np.uint8), x.shape)
        for _ in range(2)
    ]
    return [raw[0], raw[1], ring.sub(ring.sub(x, raw[0]), raw[1])]


def share_of(ctx: Context, parts: Sequence[RingArray], ring: Ring) -> Share:
    """This party's share of components made by ``components``."""
    return Share(ring, ctx.pid, parts[ctx.pid], parts[ctx.next_pid])


def reconstruct(shares: Sequence[Share]) -> RingArray:
    """The value of three parties' shares, after checking that they agree on every component. Unsigned."""
    by_role = sorted(shares, key=lambda share: share.pid)
    for share, following in zip(by_role, by_role[1:] + by_role[:1], strict=True):
        assert np.array_equal(share.next, following.own), "two holders of a component disagree"
    ring = by_role[0].ring
    return ring.add(ring.add(by_role[0].own, by_role[1].own), by_role[2].own)
