"""A process that plays many owners, honest ones and others: each a connection with a certificate of its own.

A ``Job`` is the process's input, ``Played`` its answer (`bench.load.owners`). Uploads are prepared before the clock
starts (`bench.load.prepared`); an honest owner then connects to one of the three servers, sends, and checks the
receipts as `syncret join` does, with another try at another server if that fails. Garbage is sent between them. This
module is the process as a command: it reads a job on its input, prints ``READY`` when all is prepared, begins with the
next line of its input, prints the number of owners done now and then, and at last the result. Nothing here is secret.
"""

import asyncio
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.load.garbage import KINDS, STRANGER, Sender
from bench.load.prepared import Owner, Workshop
from bench.load.wire import Answer, Line
from parties.config import load_config
from parties.foundation.errors import CertificateError
from parties.foundation.process_limits import raise_file_limit
from parties.mpc.submission.sealed_upload import check_receipt, receipts_in

READY, DONE, PLAYED = "ready", "done", "played"
"""Keys of the process's output, a JSON object per line with one of them."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0
_SAY_S = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """Names of ``honest`` owners, name and kind of each sender of garbage; ``at_once`` honest ones at a time."""

    config: str
    certificates: str
    honest: tuple[str, ...]
    garbage: tuple[tuple[str, str], ...]
    at_once: int


@dataclass(slots=True)
class Played:
    """Result of a job, times by the clock that all processes of this machine share (monotonic).

    ``accepted``: time of the receipts by name; ``seconds``: duration of each accepted submission, from connecting;
    ``retries``; ``failed``: names and reasons. ``garbage``: by kind, number of each ending. ``cpu_s`` of the process.
    """

    started: float = 0.0
    accepted: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    retries: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    garbage: dict[str, dict[str, int]] = field(default_factory=dict)
    cpu_s: float = 0.0


class _Fleet:
    """All owners of a job, prepared."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._workshop = Workshop(load_config(Path(job.config)), Path(job.certificates))
        self._doors = self._workshop.doors
        self._submit_s = self._workshop.config.timeouts.submit_s
        self._workshop.admit([*job.honest, *(name for name, _ in job.garbage)])
        self._honest = {name: self._workshop.owner(name) for name in job.honest}
        self._others = [(kind, self._workshop.owner(name, kind)) for name, kind in job.garbage]
        self._at_once = asyncio.Semaphore(job.at_once)
        self._garbage: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._first = asyncio.Event()
        """Set once the first owner has its receipts."""
        self.played = Played()

    async def play(self) -> Played:
        """Sends everything, in random order."""
        before = time.process_time()
        self.played.started = time.monotonic()
        turns: list[tuple[str, Owner] | str] = [*self._others, *self._honest]
        async with asyncio.TaskGroup() as group:
            for place in np.random.default_rng(1).permutation(len(turns)):
                turn = turns[place]
                if isinstance(turn, str):
                    await self._at_once.acquire()
                    group.create_task(self._released(self._send(turn)))
                else:
                    group.create_task(self._annoy(*turn))
        self.played.garbage = {kind: dict(ends) for kind, ends in self._garbage.items()}
        self.played.cpu_s = time.process_time() - before
        return self.played

    async def _released(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._at_once.release()

    async def _send(self, name: str) -> None:
        """Submits for an honest owner."""
        owner, started, pause_s = self._honest[name], time.monotonic(), _FIRST_PAUSE_S
        server, reason = owner.server, ""
        while time.monotonic() < started + self._submit_s:
            context = owner.context
            if server != owner.server:
                context = self._workshop.context(owner.files, server)
            try:
                async with (
                    asyncio.timeout(self._submit_s),
                    Line(self._doors[server], context) as line,
                ):
                    answer = await line.put(owner.head, owner.content)
                self._check(owner, answer)
            except (OSError, TimeoutError, ValueError, CertificateError) as error:
                reason = f"{type(error).__name__}: {error}"
            else:
                self.played.accepted[name] = time.monotonic()
                self.played.seconds.append(self.played.accepted[name] - started)
                self._first.set()
                return
            self.played.retries += 1
            server, pause_s = (server + 1) % 3, min(2 * pause_s, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)
        self.played.failed[name] = reason

    def _check(self, owner: Owner, answer: Answer) -> None:
        """Raises ValueError or CertificateError unless every server has the submission, or will get it."""
        if answer.status not in (200, 201, 202):
            raise ValueError(f"answered {answer.status}: {answer.document}")
        receipts = receipts_in(answer.document)
        for receipt in receipts:
            check_receipt(receipt, owner.upload, self._workshop.config)
        kept = answer.document.get("kept_for")
        names = {receipt.party for receipt in receipts} | set(
            kept if isinstance(kept, list) else ()
        )
        if len(names) != len(self._doors):
            raise ValueError(f"cared for by {sorted(names)} alone")

    async def _annoy(self, kind: str, owner: Owner) -> None:
        """Sends one piece of garbage."""
        await self._first.wait()
        name = next(reversed(self.played.accepted))
        other = self._honest[name]
        sender = Sender(
            self._doors[owner.server],
            owner.sendable,
            self._doors[other.server],
            other.sendable,
            self._workshop.stranger if kind == STRANGER else owner.context,
            2 * self._submit_s,
        )
        self._garbage[kind][await KINDS[kind].send(sender)] += 1


def _say(what: str, value: object) -> None:
    print(json.dumps({what: value}), flush=True)  # noqa: T201  # the parent reads it


async def _saying(played: Played) -> None:
    while True:
        await asyncio.sleep(_SAY_S)
        _say(DONE, len(played.accepted))


async def _play(fleet: _Fleet) -> None:
    saying = asyncio.create_task(_saying(fleet.played))
    try:
        played = await fleet.play()
    finally:
        saying.cancel()
    _say(PLAYED, asdict(played))


def main() -> None:
    """Runs the process."""
    raise_file_limit()
    fields = json.loads(sys.stdin.readline())
    garbage = tuple((name, kind) for name, kind in fields.pop("garbage"))
    fleet = _Fleet(Job(**{**fields, "honest": tuple(fields["honest"]), "garbage": garbage}))
    _say(READY, True)
    if sys.stdin.readline():
        asyncio.run(_play(fleet))


if __name__ == "__main__":
    main()
