"""Three parties in one process, one of which deviates: messages go through queues, keys are fixed.

Provides ``Deviation``, ``Outcome`` and ``run``. Nothing here is secret: keys and data are made up, so that a run with
a deviation can be compared with the honest one.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from protocols.context import Context, Costs, Opening, Payload, StepCost
from protocols.verify import ProductVerifier

Program = Callable[[Context], Awaitable[object]]
_IDLE_S = 0.03
_IDLE_TIMES, _IDLE_BUSY_S = 3, 0.002
"""Nothing is sent, and nothing computed, so often for so long: who still waits waits for ever."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the deviating party: its number among its own, its step, what it says."""

    number: int
    step: str
    payload: Payload


Deviation = Callable[[Message], Payload | None]
"""What is sent instead, None for nothing; a payload that is changed in place is changed for its sender, too."""


@dataclass(slots=True)
class Outcome:
    """What became of a run: by honest party what it opened and how it ended; the deviating party's messages."""

    opened: dict[int, list[bytes]] = field(default_factory=dict)
    errors: dict[int, BaseException | None] = field(default_factory=dict)
    sent: list[tuple[str, int]] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether every honest party came to its end."""
        return not any(self.errors.values())


class _Queues:
    def __init__(self) -> None:
        self.waiting: dict[tuple[int, int, int], asyncio.Future[Payload]] = {}
        self.posted = 0

    def slot(self, sender: int, receiver: int, label: int) -> "asyncio.Future[Payload]":
        future: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
        return self.waiting.setdefault((sender, receiver, label), future)


class _Party:
    """A ``context.Transport`` of one party."""

    def __init__(self, queues: _Queues, pid: int, deviation: Deviation | None) -> None:
        self.pid, self.costs = pid, Costs()
        self.sent: list[tuple[str, int]] = []
        self.opened_values: list[bytes] = []
        self._queues, self._deviation = queues, deviation

    def component_key(self, component: int) -> bytes:
        """See ``context.Transport``."""
        return hashlib.sha256(b"component %d" % component).digest()[:16]

    def private_key(self) -> bytes:
        """See ``context.Transport``."""
        return hashlib.sha256(b"private %d" % self.pid).digest()[:16]

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        """See ``context.Transport``."""
        self._queues.posted += 1
        number = len(self.sent)
        self.sent.append((cost.step, payload.size))
        if self._deviation is not None:
            # What cannot be written to is a constant of the program, and not this party's alone.
            payload = payload if payload.flags.writeable else payload.copy()
            changed = self._deviation(Message(number, cost.step, payload))
            if changed is None:
                return
            payload = changed
        self._queues.slot(self.pid, peer, label).set_result(payload.copy())

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        """See ``context.Transport``."""
        return await self._queues.slot(peer, self.pid, label)

    def opened(self, opening: Opening, value: bytes) -> None:
        """See ``context.Transport``."""
        self.opened_values.append(value)


def run(
    program: Program, *, malicious: bool, deviating: int = 0, deviation: Deviation | None = None
) -> Outcome:
    """Run ``program`` at three parties, of which ``deviating`` deviates, until all have ended or wait for ever."""
    return asyncio.run(_run(program, malicious, deviating, deviation))


async def _run(
    program: Program, malicious: bool, deviating: int, deviation: Deviation | None
) -> Outcome:
    queues = _Queues()
    parties = [_Party(queues, pid, deviation if pid == deviating else None) for pid in range(3)]
    contexts = [
        Context(party, b"attack", verifier=ProductVerifier() if malicious else None)
        for party in parties
    ]
    tasks = [asyncio.ensure_future(program(context)) for context in contexts]
    idle = 0
    while not all(task.done() for task in tasks) and idle < _IDLE_TIMES:
        posted, busy = queues.posted, time.process_time()
        await asyncio.wait(tasks, timeout=_IDLE_S)
        # Who computes, in a thread maybe, sends nothing and is not idle.
        waiting = time.process_time() - busy < _IDLE_BUSY_S
        idle = idle + 1 if waiting and posted == queues.posted else 0
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    outcome = Outcome(sent=parties[deviating].sent)
    for pid, end in enumerate(ended):
        if pid != deviating:
            outcome.opened[pid] = parties[pid].opened_values
            outcome.errors[pid] = end if isinstance(end, BaseException) else None
    return outcome
