"""Which data owners are counted: the three servers wait, compare what they hold, and add shares to the running total.

A client is counted from its first round on, once all three servers hold their parts of the same upload of it, which
its owner signed, its components are the same at both their holders (`parties.distaim.comparison`) and its counts are
within their bound. What was sent, and how it becomes shares of counts, is the input form's part
(`parties.distaim.inputs`). Secret: components, their digests (to the server that lacks the component), and totals.
Public: client names, first rounds, who is counted, who is not.
Source: protocols/README.md, section 2; FLAIM paper, Alg. 3.
"""

import asyncio
import contextlib
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from parties.config import NAME_PATTERN, Config
from parties.distaim.circumstances import Circumstances, Holdings
from parties.distaim.comparison import compare
from parties.distaim.exclusions import Exclusion
from parties.distaim.inputs import Batch, InputForm, Limit, OnPart
from parties.distaim.notes import ACCUSED, COUNTED, COUNTING, INCOMPLETE, TOTAL
from parties.distaim.steps import (
    CLIENTS_AGREE,
    CLIENTS_COMPARE,
    CLIENTS_RESUME,
)
from parties.distaim.stored import Standing, StoredSubmission, Total
from parties.distaim.submission import DIGEST_PATTERN
from parties.statuses import TooFewClients
from protocols.context import Context
from protocols.echo import echo
from protocols.errors import ProtocolViolation
from protocols.fields import encode
from protocols.transcript import Transcript, Value

_FIRST_PAUSE_S = 0.4
"""While data owners come: who comes within it is counted in together, in the rounds that one alone would take."""
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Listed:
    """An upload as servers list it to one another, by its digest."""

    client: str
    digest: str
    first_round: int


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A submission that some servers listed in ``round`` and those ``missing`` it did not."""

    digest: str
    round: int
    missing: tuple[int, ...]


def incomplete(
    listings: Sequence[Collection[Listed]], common: Collection[Listed], round: int
) -> dict[str, Incomplete]:
    """The clients that are listed and not in ``common``, by name: as the first server that lists it has it."""
    found: dict[str, Incomplete] = {}
    for listing in listings:
        for item in sorted(set(listing) - set(common), key=lambda item: item.client):
            missing = tuple(pid for pid in range(3) if item not in listings[pid])
            found.setdefault(item.client, Incomplete(item.digest, round, missing))
    return dict(sorted(found.items()))


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
        on_counting: Callable[[Batch], OnPart | None] = lambda batch: None,
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
        self._on_counting = on_counting
        self._standings: dict[str, Standing] = {}
        self._incomplete: dict[str, Incomplete] = {}
        self._held: dict[str, StoredSubmission] = {}
        """By client, what was agreed on and waits for a batch to be full."""
        self._total: Total | None = None
        self.seconds = 0.0
        """How long counting in has taken so far, waiting included."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Who is counted by now."""
        return () if self._total is None else self._total.clients

    def __repr__(self) -> str:
        return f"Arrivals(total={self._total!r}, standings={len(self._standings)})"

    @property
    def standings(self) -> list[Standing]:
        """What has become of the data owners that any server listed, as if the run ended now; by client.

        Where nobody is counted in, because all rounds are done, what was kept of that.
        """
        if self._total is None:
            return self._holdings.standings()
        left = [
            Standing(client, item.digest, item.round, Exclusion.INCOMPLETE, item.missing)
            for client, item in self._incomplete.items()
        ]
        return sorted([*self._standings.values(), *left], key=lambda s: s.client)

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
            await self._add_all((await self._list(round, ready=True))[0], round, last=True)
        total = self._total
        if self._incomplete:
            missing: Value = {c: list(item.missing) for c, item in self._incomplete.items()}
            self._transcript.note(INCOMPLETE.what, round=round, clients=missing)
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
        await asyncio.to_thread(self._holdings.save_standings, self.standings)
        self.seconds += time.perf_counter() - started
        return self._total

    async def _common_total(self, round: int) -> Total:
        """The latest total that all three servers hold for the same clients; else zero: submissions are kept."""
        held = {
            number: _clients_digest(self._holdings.load_total(number, self._ctx.pid).clients)
            for number in self._holdings.total_rounds()
        }
        with self._ctx.step(CLIENTS_RESUME.name, round=round) as c:
            told = await c.exchange(json.dumps(sorted(held.items())).encode())
            await echo(c, dict(enumerate(told)))
            replies = [_parse(reply, pid) for pid, reply in enumerate(told)]
        common = [
            number
            for number, digest in held.items()
            if number <= round and all([number, digest] in reply for reply in replies)
        ]
        if common:
            total = self._holdings.load_total(max(common), self._ctx.pid)
            if total.share.shape == (self._cells,):
                self._transcript.note(COUNTED.what, round=round, clients=list(total.clients))
                known = {s.client: s for s in self._holdings.standings()}
                self._standings = {c: known[c] for c in total.clients if c in known}
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
            known = self._known
            ready = self._circumstances.keep_json("ready", lambda: self._ready(deadline))
            due, all_ready = await self._list(round, ready=ready)
            if self._hold_back(due) and (all_ready or self._batch_is_full):
                # An owner may have thought better of it meanwhile: counted is what all three have now.
                self._held = {}
                due, _ = await self._list(round, ready=ready)
            await self._add_all(due, round, last=all_ready)
            if not all_ready:
                pause = _FIRST_PAUSE_S if self._known > known else pause
                pause = min(pause * 1.5, longest)
                await self._sleep(pause, deadline)

    @property
    def _decided(self) -> set[str]:
        """Who is counted, or excluded."""
        return set(self._require_total().clients) | self._standings.keys()

    @property
    def _known(self) -> int:
        """How many are decided on, or held."""
        return len(self._decided) + len(self._held)

    def _hold_back(self, due: Sequence[StoredSubmission]) -> bool:
        """Keep in mind those of ``due`` whose forms the servers work for, batch by batch; whether anybody is held."""
        waiting = (s for s in due if self._forms[s.submission.form].by_capacity)
        self._held |= {stored.submission.client: stored for stored in waiting}
        return bool(self._held)

    @property
    def _batch_is_full(self) -> bool:
        """Whether who is held back fills a batch of any form."""
        return any(len(form.batches(due)) > 1 for form, due in self._by_form(self._held.values()))

    def _by_form(
        self, submissions: Iterable[StoredSubmission]
    ) -> list[tuple[InputForm, list[StoredSubmission]]]:
        by_form: dict[str, list[StoredSubmission]] = defaultdict(list)
        for stored in submissions:
            by_form[stored.submission.form].append(stored)
        return [(self._forms[name], due) for name, due in sorted(by_form.items())]

    def _is_held(self, stored: StoredSubmission) -> bool:
        held = self._held.get(stored.submission.client)
        return held is not None and held.upload == stored.upload

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
        decided = self._decided
        mine = {
            stored.submission.client: stored
            for stored in self._holdings.submissions(max(round, 1))
            if stored.submission.client not in decided and not self._is_held(stored)
        }
        clients = [
            [client, stored.upload, stored.submission.first_round]
            for client, stored in mine.items()
        ]
        with self._ctx.step(CLIENTS_AGREE.name, round=round) as c:
            replies = await c.exchange(json.dumps({"ready": ready, "clients": clients}).encode())
            await echo(c, dict(enumerate(replies)))
        listings = [_listed(reply, pid) for pid, reply in enumerate(replies)]
        common = set.intersection(*(set(items) for items, _ in listings))
        self._incomplete = incomplete([set(items) for items, _ in listings], common, round)
        agreed = [mine[client] for client in sorted(item.client for item in common)]
        return agreed, all(others_ready for _, others_ready in listings)

    async def _add_all(self, agreed: Sequence[StoredSubmission], round: int, *, last: bool) -> None:
        """Add who is agreed on, form after form; unless these are the ``last`` of the round, full batches alone.

        Where servers work for every batch, a few owners at a time would cost as much as many. Who is left is the same
        at all three, since they have agreed on everybody, and is held until there are more.
        """
        limit = Limit(self._config.run.check, self._config.clients.rows_per_client)
        for form, due in self._by_form(agreed):
            parts = form.batches(due)
            for part in parts[:-1] if form.by_capacity and not last else parts:
                bodies = await asyncio.to_thread(self._bodies, part)
                batch = Batch(round, part, bodies.__getitem__, limit, compute=self._config.compute)
                await self._add(form, batch)

    def _bodies(self, part: Sequence[StoredSubmission]) -> dict[str, bytes]:
        clients = [stored.submission.client for stored in part]
        return {client: self._holdings.read_submission(client) for client in clients}

    async def _add(self, form: InputForm, batch: Batch) -> None:
        """Compare and add the shares of one batch of clients."""
        with self._ctx.step(CLIENTS_COMPARE.name, round=batch.round) as c:
            accused = await compare(c, batch.submissions)
        by = {accusation.client: accusation.by for accusation in accused}
        excluded = dict.fromkeys(by, Exclusion.COMPONENTS_DIFFER)
        whole, total = batch.without(excluded), self._require_total()
        if form.by_capacity and whole.clients:
            whole = self._to_be_counted(form, whole)
        added = await form.add(self._ctx, total.share, whole)
        counted = whole.without(added.failed)
        self._total = Total(total.round, (*total.clients, *counted.clients), added.total)
        excluded |= dict.fromkeys(added.failed, Exclusion.OUT_OF_BOUNDS)
        for accusation in accused:
            self._transcript.note(ACCUSED.what, round=batch.round, **accusation.to_dict())
        for stored in batch.submissions:
            client = stored.submission.client
            reason, servers = excluded.get(client), by.get(client, ())
            self._conclude(Standing(client, stored.upload, batch.round, reason, servers))

    def _to_be_counted(self, form: InputForm, batch: Batch) -> Batch:
        """Say whose rows are counted, before it begins."""
        capacities: Value = {s.submission.client: s.submission.capacity for s in batch.submissions}
        self._transcript.note(
            COUNTING.what, round=batch.round, form=form.name, capacities=capacities
        )
        return replace(batch, progress=self._on_counting(batch))

    def _conclude(self, standing: Standing) -> None:
        self._standings[standing.client] = standing
        self._transcript.client(
            client=standing.client,
            digest=standing.digest,
            round=standing.round,
            accepted=standing.excluded is None,
            reason=standing.excluded or "",
        )

    def _require_total(self) -> Total:
        if self._total is None:
            raise RuntimeError("count_in sets the total first")
        return self._total


def _clients_digest(clients: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(clients)).encode()).hexdigest()


def _parse(reply: bytes, pid: int) -> list[object] | dict[str, object]:
    try:
        document = json.loads(reply)
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"party {pid} sent a list that is not JSON", pid) from error
    if not isinstance(document, list | dict):
        raise ProtocolViolation(f"party {pid} sent something that is no list", pid)
    return document


def _listed(reply: bytes, pid: int) -> tuple[list[Listed], bool]:
    document = _parse(reply, pid)
    match document:
        case {"ready": bool() as ready, "clients": list() as clients}:
            listed = [_listed_client(item, pid) for item in clients]
            if len({item.client for item in listed}) != len(listed):
                raise ProtocolViolation(f"party {pid} lists a client twice", pid)
            return listed, ready
    raise ProtocolViolation(f"party {pid} sent a malformed list of clients", pid)


def _listed_client(item: object, pid: int) -> Listed:
    match item:
        case [str() as client, str() as digest, int() as first_round] if (
            NAME_PATTERN.fullmatch(client)
            and DIGEST_PATTERN.fullmatch(digest)
            and not isinstance(first_round, bool)
        ):
            return Listed(client, digest, first_round)
    raise ProtocolViolation(f"party {pid} sent a malformed client", pid)
