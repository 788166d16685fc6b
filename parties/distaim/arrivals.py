"""Which data owners are counted: the three servers wait, compare what they hold, and add shares to the running total.

A client is counted from its first round on, once all three servers hold the same submission of it. Servers that hold
the same component compare its digests; a client that sent different versions is dropped by all. What was sent, and how
it becomes shares of counts, is the input form's part (`parties.distaim.inputs`). Secret: components, their digests (to
the server that lacks the component), and totals. Public: client names, first rounds, how many are counted.
Source: protocols/README.md, section 2; FLAIM paper, Alg. 3.
"""

import asyncio
import contextlib
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parties.config import Config
from parties.distaim.circumstances import Circumstances, Holdings
from parties.distaim.inputs import Batch, InputForm
from parties.distaim.notes import COUNTED, TOTAL
from parties.distaim.steps import (
    CLIENTS_AGREE,
    CLIENTS_COMPARE,
    CLIENTS_FORWARD,
    CLIENTS_RESUME,
    DIGEST_BYTES,
)
from parties.distaim.stored import StoredSubmission, Total
from parties.statuses import TooFewClients
from protocols.context import Context
from protocols.errors import CheckFailed, ProtocolViolation
from protocols.fields import encode
from protocols.transcript import Transcript
from protocols.upload import check_component

_FIRST_PAUSE_S = 0.15
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Listed:
    """A submission as servers list it to one another."""

    client: str
    digest: str
    first_round: int


class Arrivals:
    """The clients counted so far, and this server's share of their counts' running total.

    ``forms`` are those that clients may send, by name; ``cells`` is the total's length.
    """

    def __init__(
        self,
        ctx: Context,
        config: Config,
        holdings: Holdings,
        *,
        forms: Mapping[str, InputForm],
        cells: int,
        transcript: Transcript,
        closed: asyncio.Event,
        circumstances: Circumstances,
        on_waiting: Callable[[int], None] = lambda stored: None,
    ) -> None:
        self._ctx = ctx
        self._config = config
        self._holdings = holdings
        self._forms = forms
        self._cells = cells
        self._transcript = transcript
        self._closed = closed
        self._circumstances = circumstances
        self._on_waiting = on_waiting
        self._rejected: set[str] = set()
        self._total: Total | None = None
        self.seconds = 0.0
        """How long counting in has taken so far, waiting included."""

    def __repr__(self) -> str:
        return f"Arrivals(total={self._total!r}, rejected={len(self._rejected)})"

    async def count_in(self, round: int) -> Total:
        """The running total for ``round``, with everyone whose first round has come and who is complete everywhere.

        The first call of a run waits for clients, adding them as they come; later ones take who is there.
        Raises TooFewClients where less than the configured minimum is counted, ChannelError, ProtocolViolation.
        """
        started = time.perf_counter()
        if self._total is None:
            self._total = await self._common_total(round)
            await self._count_while_waiting(round)
        else:
            await self._add_all((await self._list(round, ready=True))[0], round)
        total = self._total
        if len(total.clients) < self._config.clients.minimum:
            raise TooFewClients(
                f"round {round}: {len(total.clients)} data owners are complete at all three servers, "
                f"{self._holdings.submission_count()} have reached this one; expected at least "
                f"clients.minimum = {self._config.clients.minimum} within {self._config.clients.wait_s:g} s"
            )
        self._total = Total(round, total.clients, total.share)
        key = await asyncio.to_thread(self._holdings.commitment_key)
        commitment = await asyncio.to_thread(self._total.commitment, key)
        self._transcript.note(TOTAL.what, round=round, commitment=encode(commitment))
        # What may be used after a restart is committed to first.
        self._transcript.flush()
        await asyncio.to_thread(self._holdings.save_total, self._total)
        self.seconds += time.perf_counter() - started
        return self._total

    async def _common_total(self, round: int) -> Total:
        """The latest total that all three servers hold for the same clients; else zero: submissions are kept."""
        held = {
            number: _clients_digest(self._holdings.load_total(number, self._ctx.pid).clients)
            for number in self._holdings.total_rounds()
        }
        with self._ctx.step(CLIENTS_RESUME.name, round=round) as c:
            payload = json.dumps(sorted(held.items())).encode()
            replies = [_parse(reply, pid) for pid, reply in enumerate(await c.exchange(payload))]
        common = [
            number
            for number, digest in held.items()
            if number <= round and all([number, digest] in reply for reply in replies)
        ]
        if common:
            total = self._holdings.load_total(max(common), self._ctx.pid)
            if total.share.shape == (self._cells,):
                self._transcript.note(COUNTED.what, round=round, clients=list(total.clients))
                return total
        return Total.empty(round, self._ctx.pid, self._cells)

    async def _count_while_waiting(self, round: int) -> None:
        """Until each server has all it expects, is told that no more will come, or has waited long enough.

        They tell one another at growing intervals, so that a silent server is noticed within the receive deadline.
        """
        deadline = time.monotonic() + self._config.clients.wait_s
        longest = self._config.timeouts.receive_s / 4
        pause, all_ready = _FIRST_PAUSE_S, False
        while not all_ready:
            counted = len(self._require_total().clients)
            ready = self._circumstances.keep_json("ready", lambda: self._ready(deadline))
            due, all_ready = await self._list(round, ready=ready)
            await self._add_all(due, round)
            if not all_ready:
                pause = _FIRST_PAUSE_S if len(self._require_total().clients) > counted else pause
                pause = min(pause * 1.5, longest)
                await self._sleep(pause, deadline)

    def _ready(self, deadline: float) -> bool:
        stored = self._holdings.submission_count()
        self._on_waiting(stored)
        return (
            stored >= self._config.clients.expected
            or self._closed.is_set()
            or time.monotonic() >= deadline
        )

    async def _sleep(self, pause: float, deadline: float) -> None:
        """For ``pause`` seconds, or until this server is ready."""
        until = min(time.monotonic() + pause, deadline)
        while (left := until - time.monotonic()) > 0 and not self._ready(deadline):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), min(left, _LOOK_S))

    async def _list(self, round: int, *, ready: bool) -> tuple[list[StoredSubmission], bool]:
        """The submissions to add now, in one order, and whether all three servers are ready to go on.

        To add are those due by ``round``, not counted yet, and the same at all three. Clients of round 1 are counted
        in the initial measurements (round 0) already.
        """
        counted = set(self._require_total().clients) | self._rejected
        mine = {
            stored.submission.client: stored
            for stored in self._holdings.submissions(max(round, 1))
            if stored.submission.client not in counted
        }
        clients = [
            [client, stored.submission.digest(), stored.submission.first_round]
            for client, stored in mine.items()
        ]
        with self._ctx.step(CLIENTS_AGREE.name, round=round) as c:
            replies = await c.exchange(json.dumps({"ready": ready, "clients": clients}).encode())
        listings = [_listed(reply, pid) for pid, reply in enumerate(replies)]
        common = set.intersection(*(set(items) for items, _ in listings))
        agreed = [mine[client] for client in sorted(item.client for item in common)]
        return agreed, all(others_ready for _, others_ready in listings)

    async def _add_all(self, agreed: Sequence[StoredSubmission], round: int) -> None:
        by_form: dict[str, list[StoredSubmission]] = defaultdict(list)
        for stored in agreed:
            by_form[stored.submission.form].append(stored)
        for name, due in sorted(by_form.items()):
            form = self._forms[name]
            for part in form.batches(due):
                await self._add(form, Batch(round, part, self._holdings.read_submission))

    async def _add(self, form: InputForm, batch: Batch) -> None:
        """Forward, compare and add the shares of one batch of clients."""
        with self._ctx.step(CLIENTS_FORWARD.name, round=batch.round) as c:
            batch = await form.forward(c, batch)
        with self._ctx.step(CLIENTS_COMPARE.name, round=batch.round) as c:
            problems = {**batch.problems, **await _compare(c, batch.submissions)}
            replies = await c.exchange(json.dumps(problems).encode())
        rejected: dict[str, object] = {}
        for pid, reply in enumerate(replies):
            document = _parse(reply, pid)
            rejected |= document if isinstance(document, dict) else {}
        accepted, total = batch.without(rejected), self._require_total()
        share = await form.add(self._ctx, total.share, accepted)
        self._total = Total(total.round, (*total.clients, *accepted.clients), share)
        self._rejected |= set(batch.clients) & set(rejected)
        for stored in batch.submissions:
            submission = stored.submission
            reason = str(rejected.get(submission.client, ""))
            self._transcript.client(
                client=submission.client,
                digest=submission.digest(),
                round=batch.round,
                accepted=not reason,
                reason=reason,
            )

    def _require_total(self) -> Total:
        if self._total is None:
            raise RuntimeError("count_in sets the total first")
        return self._total


async def _compare(ctx: Context, batch: Sequence[StoredSubmission]) -> dict[str, str]:
    """Every server compares its own components with the digests of the server before it, which holds them too."""
    digests = b"".join(bytes.fromhex(stored.next_digest) for stored in batch)
    received = b""
    for sender in range(3):
        payload = digests if ctx.pid == sender else None
        answer = await ctx.transfer(sender, (sender + 1) % 3, payload)
        received = received if answer is None else answer
    if len(received) != len(digests):
        raise ProtocolViolation(
            f"party {ctx.prev_pid} compared another number of clients", ctx.prev_pid
        )
    problems = {}
    for number, stored in enumerate(batch):
        claimed = received[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        try:
            check_component(bytes.fromhex(stored.own_digest), claimed)
        except CheckFailed as error:
            problems[stored.submission.client] = str(error)
    return problems


def _clients_digest(clients: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(clients)).encode()).hexdigest()


def _parse(reply: bytes, pid: int) -> list[object] | dict[str, object]:
    try:
        document = json.loads(reply)
    except ValueError as error:
        raise ProtocolViolation(f"party {pid} sent a list that is not JSON", pid) from error
    if not isinstance(document, list | dict):
        raise ProtocolViolation(f"party {pid} sent something that is no list", pid)
    return document


def _listed(reply: bytes, pid: int) -> tuple[list[Listed], bool]:
    document = _parse(reply, pid)
    match document:
        case {"ready": bool() as ready, "clients": list() as clients}:
            return [_listed_client(item, pid) for item in clients], ready
    raise ProtocolViolation(f"party {pid} sent a malformed list of clients", pid)


def _listed_client(item: object, pid: int) -> Listed:
    match item:
        case [str() as client, str() as digest, int() as first_round]:
            return Listed(client, digest, first_round)
    raise ProtocolViolation(f"party {pid} sent a malformed client", pid)
