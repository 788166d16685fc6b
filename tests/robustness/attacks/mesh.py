"""Three parties in one process, one of which deviates: messages go through queues, keys are fixed.

A party that has ended is lost to the others, like a closed connection; its earlier messages still arrive. Nothing here
is secret: keys and data are made up, so that a run with a deviation can be compared with the honest one.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from protocols.context import Context, Costs, Opening, Payload, StepCost
from protocols.errors import PeerClosed
from protocols.verify import ProductVerifier

T = TypeVar("T")
Program = Callable[[Context], Awaitable[object]]
_IDLE_TURNS = 300
"""Idle turns of the loop (no thread works, nothing is sent) after which waiting parties count as waiting for ever."""
_TIMER_S = 0.002


@dataclass(frozen=True, slots=True)
class Sent:
    """Public facts of a message: step and size; ``told_both`` if the other peer got the same, ``opens`` if it opens."""

    step: str
    size: int
    told_both: bool
    opens: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the deviating party: its number among the party's own of the step, its public facts, its payload.

    Steps may run beside one another, in any order; within a step the order is always the same.
    """

    number: int
    sent: Sent
    payload: Payload


Deviation = Callable[[Message], Payload | None]
"""Function that returns the payload to send instead, or None for no message.

A payload that is changed in place is changed for its sender, too.
"""


@dataclass(slots=True)
class Outcome:
    """Outcome of a run: values opened and errors by honest party, and messages sent by party.

    ``before`` counts, by honest party, the openings before the changed message.
    """

    opened: dict[int, list[bytes]] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    errors: dict[int, BaseException | None] = field(default_factory=dict)
    sent: dict[int, list[Sent]] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """True if every honest party came to its end."""
        return not any(self.errors.values())

    @property
    def opened_since(self) -> bool:
        """True if an honest party opened anything after the changed message."""
        return any(len(values) > self.before[pid] for pid, values in self.opened.items())


class _Queues:
    """Queues of messages by sender, receiver and label, and the parties that have ended."""

    def __init__(self) -> None:
        self.posted = 0
        self._waiting: dict[tuple[int, int, int], asyncio.Future[Payload]] = {}
        self._ended: set[int] = set()

    def put(self, sender: int, receiver: int, label: int, payload: Payload) -> None:
        self.posted += 1
        future = self._slot(sender, receiver, label)
        if not future.done():
            future.set_result(payload.copy())

    async def get(self, sender: int, receiver: int, label: int) -> Payload:
        future = self._slot(sender, receiver, label)
        if sender in self._ended and not future.done():
            raise _lost(sender)
        return await future

    def end(self, pid: int) -> None:
        """Marks a party as ended: pending receives from that party fail."""
        self._ended.add(pid)
        for (sender, _, _), future in self._waiting.items():
            if sender == pid and not future.done():
                future.set_exception(_lost(pid))
                # A future without a waiter is no mistake; this marks its exception as retrieved.
                future.exception()

    def _slot(self, sender: int, receiver: int, label: int) -> "asyncio.Future[Payload]":
        key = sender, receiver, label
        if key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().create_future()
        return self._waiting[key]


def _lost(pid: int) -> PeerClosed:
    return PeerClosed(f"party {pid} has ended", pid)


class _Party:
    """Implements ``context.Transport`` for one party."""

    def __init__(self, queues: _Queues, pid: int, deviation: Deviation | None) -> None:
        self.pid, self.costs = pid, Costs()
        self.sent: list[Sent] = []
        self.opened_values: list[bytes] = []
        self.on_change: Callable[[], object] = lambda: None
        self._queues, self._deviation = queues, deviation
        self._last: tuple[int, bytes] | None = None

    def component_key(self, component: int) -> bytes:
        """See ``context.Transport``."""
        return hashlib.sha256(b"component %d" % component).digest()[:16]

    def private_key(self) -> bytes:
        """See ``context.Transport``."""
        return hashlib.sha256(b"private %d" % self.pid).digest()[:16]

    def post(self, peer: int, label: int, payload: Payload, cost: StepCost) -> None:
        """See ``context.Transport``."""
        cost.sent_bytes += payload.size
        cost.messages += 1
        said = label, payload.tobytes()
        sent = Sent(cost.step, payload.size, told_both=said == self._last)
        self._last = said
        self.sent.append(sent)
        if self._deviation is not None:
            # A read-only payload is a constant of the program that all parties share, so the change needs a copy.
            payload = payload if payload.flags.writeable else payload.copy()
            number = sum(other.step == sent.step for other in self.sent) - 1
            changed = self._deviation(Message(number, sent, payload))
            if changed is None or changed.tobytes() != said[1]:
                self.on_change()
            if changed is None:
                return
            payload = changed
        self._queues.put(self.pid, peer, label, payload)

    async def fetch(self, peer: int, label: int, cost: StepCost, limit: int) -> Payload:
        """See ``context.Transport``."""
        payload = await self._queues.get(peer, self.pid, label)
        cost.received_bytes += payload.size
        return payload

    def opened(self, opening: Opening, value: bytes) -> None:
        """See ``context.Transport``."""
        self.costs.openings.append(opening)
        self.opened_values.append(value)
        # An opening follows the two messages of its round at once.
        self.sent[-2:] = [replace(sent, opens=True) for sent in self.sent[-2:]]


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that counts its busy executor threads."""

    working = 0

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: object
    ) -> "asyncio.Future[T]":
        """See ``asyncio.AbstractEventLoop``."""
        self.working += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: "asyncio.Future[T]") -> None:
        self.working -= 1


def run(
    program: Program,
    *,
    malicious: bool,
    deviating: int | None = None,
    deviation: Deviation | None = None,
) -> Outcome:
    """Runs ``program`` at three parties, of which ``deviating`` deviates, until all have ended or wait for ever."""
    loop = _Loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_run(loop, program, malicious, deviating, deviation))


async def _run(
    loop: _Loop,
    program: Program,
    malicious: bool,
    deviating: int | None,
    deviation: Deviation | None,
) -> Outcome:
    queues = _Queues()
    parties = [_Party(queues, pid, deviation if pid == deviating else None) for pid in range(3)]
    before: dict[int, int] = {}

    def changed() -> None:
        for party in parties:
            before.setdefault(party.pid, len(party.opened_values))

    for party in parties:
        party.on_change = changed

    async def take_part(party: _Party) -> object:
        verifier = ProductVerifier() if malicious else None
        try:
            return await program(Context(party, b"attack", verifier=verifier))
        finally:
            queues.end(party.pid)

    tasks = [asyncio.ensure_future(take_part(party)) for party in parties]
    await _until_idle(tasks, queues, loop)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    outcome = Outcome(sent={party.pid: party.sent for party in parties})
    for pid, end in enumerate(ended):
        if pid != deviating:
            outcome.opened[pid] = parties[pid].opened_values
            outcome.before[pid] = before.get(pid, 0)
            outcome.errors[pid] = end if isinstance(end, BaseException) else None
    return outcome


async def _until_idle(tasks: "list[asyncio.Task[object]]", queues: _Queues, loop: _Loop) -> None:
    """Waits until all tasks have ended, or the remaining ones wait for messages that never come."""
    turns, posted = 0, 0
    while turns < _IDLE_TURNS and not all(task.done() for task in tasks):
        # Nothing to do here while a thread works.
        await asyncio.sleep(_TIMER_S if loop.working else 0)
        busy = loop.working or queues.posted != posted
        turns, posted = (0 if busy else turns + 1), queues.posted
