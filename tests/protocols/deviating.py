"""A run in which one party deviates: it changes a message, and the others are watched until all stand still."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from protocols.context import Context, Payload, StepCost
from tests.protocols.local import LocalMesh, LocalParty

Program = Callable[[Context], Awaitable[object]]
Change = Callable[[Payload], Payload]

_TURNS = 200
_POLL_S = 0.0002
_DEADLINE_S = 10.0


class DeviatingParty(LocalParty):
    """A party that changes the message with this number among its own."""

    def __init__(self, mesh: LocalMesh, pid: int, number: int, change: Change) -> None:
        super().__init__(mesh, pid)
        self._number, self._change, self.posted = number, change, 0

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        if self.posted == self._number:
            payload = self._change(payload.copy())
        self.posted += 1
        super().post(peer, label, payload, cost)


@dataclass(frozen=True, slots=True)
class Deviation:
    """Errors and results of the honest parties that ended, and the number of values that each of them opened."""

    errors: list[BaseException]
    results: list[object]
    opened: list[int]


def deviate(program: Program, pid: int, number: int, change: Change, *, seed: int = 1) -> Deviation:
    """Run ``program`` with party ``pid`` changing its message ``number``; the other two are the honest ones."""

    async def main() -> Deviation:
        mesh = LocalMesh(seed)
        parties = [DeviatingParty(mesh, p, number if p == pid else -1, change) for p in range(3)]
        tasks = [asyncio.ensure_future(program(Context(party, b"test"))) for party in parties]
        # No message is lost, so that once an honest party has ended, another one that can go on does so within a few
        # turns of the loop; before, something may be computed in a thread.
        turns, deadline = _TURNS, time.monotonic() + _DEADLINE_S
        while turns and time.monotonic() < deadline and not all(task.done() for task in tasks):
            ended = any(task.done() for p, task in enumerate(tasks) if p != pid)
            await asyncio.sleep(0 if ended else _POLL_S)
            turns -= ended
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        honest = [p for p in range(3) if p != pid]
        stuck = asyncio.CancelledError
        return Deviation(
            [e for p in honest if isinstance(e := results[p], Exception)],
            [e for p in honest if not isinstance(e := results[p], Exception | stuck)],
            [len(parties[p].opened_values) for p in honest],
        )

    return asyncio.run(main())


def flip(payload: Payload) -> Payload:
    """The message with its first bit changed."""
    payload[0] ^= np.uint8(1)
    return payload


def flip_last(payload: Payload) -> Payload:
    """The message with a bit of its last byte changed."""
    payload[-1] ^= np.uint8(1)
    return payload
