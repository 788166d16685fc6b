"""A vector's run of the engine: three parties with the keys that it gives, and what each of them sent.

``keys`` are those of components 0, 1, 2 and the parties' own, ``path`` that of the root context. What a party sent is
the SHA-256 of all its messages in the order of (receiver, label), each as receiver (1 byte), label (8 bytes, little
endian), size (4 bytes, little endian) and payload. A ``change`` alters one message on its way.
"""

import asyncio
import hashlib
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protocols.context import Context, Payload, StepCost
from protocols.ring import R32
from protocols.shares import Share
from tests.protocols.local import LocalMesh, LocalParty

Program = Callable[[Context, Share], Awaitable[Any]]
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Change:
    """A message by sender, receiver and label: its first bit is ``flipped``, or is a byte ``short`` or ``longer``."""

    sender: int
    receiver: int
    label: str
    how: str

    def alter(self, payload: Payload) -> Payload:
        if self.how == "short":
            return payload[:-1]
        if self.how == "longer":
            return np.append(payload, np.uint8(0))
        assert self.how == "flipped"
        changed = payload.copy()
        changed[0] ^= 1
        return changed


@dataclass(repr=False)
class PlayedMesh(LocalMesh):
    """A mesh with a vector's keys."""

    keys: dict[str, bytes] = field(default_factory=dict)
    change: Change | None = None
    messages: list[tuple[int, int, int, str, bytes]] = field(default_factory=list)
    changed: int = 0

    def key(self, name: str, holders: set[int]) -> bytes:
        return self.keys[name]


class PlayedParty(LocalParty):
    """A party that keeps its messages with their labels."""

    mesh: PlayedMesh

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        mesh, unsigned = self.mesh, label & _MASK
        mesh.messages.append((self.pid, peer, unsigned, cost.step, payload.tobytes()))
        change = mesh.change
        where = change and (change.sender, change.receiver, change.label)
        if change is not None and where == (self.pid, peer, f"{unsigned:016x}"):
            mesh.changed += 1
            payload = change.alter(payload)
        super().post(peer, label, payload, cost)


@dataclass
class Played:
    """Outcome of a run; ``failed`` are the first errors, by party, and ``steps`` the parties' steps at that time."""

    result: Any
    failed: dict[int, BaseException]
    steps: set[str]
    rounds: int
    mesh: PlayedMesh
    opened: list[tuple[str, str]]

    def sent(self) -> list[dict[str, Any]]:
        """By party: how many bytes, and the digest of the messages."""
        found = []
        for pid in range(3):
            digest, size = hashlib.sha256(), 0
            for _, receiver, label, _, payload in sorted(
                message for message in self.mesh.messages if message[0] == pid
            ):
                digest.update(struct.pack("<BQI", receiver, label, len(payload)) + payload)
                size += len(payload)
            found.append({"bytes": size, "sha256": digest.hexdigest()})
        return found

    def labels(self, step: str, sender: int, receiver: int) -> list[str]:
        """The labels of a step's messages on a link, in their order."""
        return [
            f"{label:016x}"
            for a, b, label, where, _ in self.mesh.messages
            if (a, b, where) == (sender, receiver, step)
        ]


def play(setting: dict[str, Any], program: Program, change: Change | None = None) -> Played:
    """Run ``program`` on shares of the setting's components, with its keys and path."""
    keys = {f"component {c}": bytes.fromhex(k) for c, k in enumerate(setting["component_keys"])}
    keys |= {f"private {p}": bytes.fromhex(k) for p, k in enumerate(setting["private_keys"])}
    parts = [np.array(part, np.uint32) for part in setting["components"]]
    path = bytes.fromhex(setting["path"])

    async def main() -> Played:
        mesh = PlayedMesh(seed=0, keys=keys, change=change)
        parties = [PlayedParty(mesh, pid) for pid in range(3)]
        contexts = [Context(party, path) for party in parties]
        shares = [Share(R32, pid, parts[pid], parts[(pid + 1) % 3]) for pid in range(3)]
        tasks = [
            asyncio.ensure_future(program(c, x)) for c, x in zip(contexts, shares, strict=True)
        ]
        done, waiting = await asyncio.wait(tasks, timeout=60, return_when=asyncio.FIRST_EXCEPTION)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        errors = {pid: task.exception() for pid, task in enumerate(tasks) if task in done}
        failed = {pid: error for pid, error in errors.items() if error is not None}
        assert failed or len(done) == 3, "the run did not end"
        return Played(
            None if failed else [task.result() for task in tasks],
            failed,
            {party.costs.steps[-1].step if party.costs.steps else "" for party in parties},
            max(context.depth for context in contexts),
            mesh,
            [(what, value.hex()) for what, value in parties[0].opened_values],
        )

    return asyncio.run(main())
