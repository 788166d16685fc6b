"""Which data owners are counted: the three servers wait, compare what they hold, and add shares to the running total.

A client is counted from its first round on, once all three servers hold their parts of the same upload of it, which
its owner signed, its components are the same at both their holders (`parties.distaim.comparison`) and its counts are
within their bound. Until a round begins with it, its owner may withdraw or replace it: what was added is subtracted
again, on shares, at all three servers at the same point (`parties.distaim.listing`). What the operators of all three
ask (`parties.orders`) is done at such a point, too. What was sent, and how it becomes shares of counts, is the input
form's part (`parties.distaim.inputs`). Secret: components, their digests (to the server that lacks the component), and
totals. Public: client names, first rounds, who is counted, who is not.
Source: protocols/README.md, section 2; FLAIM paper, Alg. 3.
"""

import asyncio
import contextlib
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, replace

from mechanisms.errors import FinishedEarly
from parties.config import NO_CHECK, Config
from parties.distaim.circumstances import Circumstances, Holdings
from parties.distaim.comparison import compare
from parties.distaim.exclusions import Exclusion
from parties.distaim.inputs import Batch, InputForm, Limit, OnPart
from parties.distaim.listing import (
    Concluded,
    Incomplete,
    Listed,
    Listing,
    Whose,
    agreed_finals,
    concluded,
    lost,
    parse_resumed,
)
from parties.distaim.notes import (
    ACCUSED,
    CLOSED,
    COUNTED,
    COUNTING,
    FINISHING,
    INCOMPLETE,
    RECOUNTING,
    REPLACED,
    REVOKED,
    TOTAL,
    WITHDRAWN,
    Note,
)
from parties.distaim.steps import (
    CLIENTS_AGREE,
    CLIENTS_COMPARE,
    CLIENTS_COUNT,
    CLIENTS_RESUME,
)
from parties.distaim.stored import Standing, StoredSubmission, Total
from parties.distaim.submission import MAX_VERSION
from parties.distaim.waiting import Waiting
from parties.distaim.withdrawal import SignedWithdrawal
from parties.enrolment import patience_s
from parties.orders import Asked, Orders
from parties.signing import Issuer
from parties.statuses import TooFewClients
from protocols.context import Context
from protocols.echo import echo
from protocols.fields import encode
from protocols.transcript import Transcript, Value

_FIRST_PAUSE_S = 0.4
"""While data owners come: who comes within it is counted in together, in the rounds that one alone would take."""
_LOOK_S = 0.1
_LISTING_SHARE = 0.1
"""Of a server's time while it waits, at most, that goes into lists."""


class Arrivals:
    """The clients counted so far, and this server's share of their counts' running total.

    ``forms`` are those that clients may send, by name; ``cells`` is the total's length; ``charged`` is the last round
    for which each server had charged anything when they met, -1 for none. ``on_close`` is called, from a thread, when
    all three operators have closed the run to data owners.
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
        authority: Issuer,
        orders: Orders,
        charged: Sequence[int] = (-1, -1, -1),
        on_close: Callable[[], object] = lambda: None,
        on_waiting: Callable[[Waiting], None] = lambda waiting: None,
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
        self._whose = Whose(config.run.id, config.digest(), authority)
        self._orders = orders
        self._charged = charged
        self._on_close = on_close
        self._on_waiting = on_waiting
        self._on_counting = on_counting
        self._final: dict[str, str] = {}
        """Who is counted for good, with which upload."""
        self._open: dict[str, StoredSubmission] = {}
        """What was added or excluded, and may still be taken back."""
        self._shown: set[str] = set()
        """The withdrawals that all three know, by digest."""
        self._gone: dict[str, int] = {}
        """By client, up to which version those are of."""
        self._revoked: set[str] = set()
        """Whom all three operators revoke."""
        self._enrolling = True
        self._finishing = False
        self._round = 0
        self._came = time.monotonic()
        """When the last data owner came that is counted or held."""
        self._standings: dict[str, Standing] = {}
        self._incomplete: dict[str, Incomplete] = {}
        self._held: dict[str, StoredSubmission] = {}
        """By client, what was agreed on and waits for a batch to be full."""
        self._total: Total | None = None
        self._anew = False
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
        left = {
            client: Standing(client, item.digest, item.round, Exclusion.INCOMPLETE, item.missing)
            for client, item in self._incomplete.items()
        }
        return sorted((self._standings | left).values(), key=lambda s: s.client)

    def count_anew(self, forms: Mapping[str, InputForm], cells: int) -> None:
        """From now on the total has other ``cells``, which ``forms`` count: everybody in it is counted again."""
        self._forms, self._cells, self._anew = forms, cells, self._total is not None

    async def count_in(self, round: int) -> Total:
        """The running total for ``round``, with everyone whose first round has come and who is complete everywhere.

        The first call of a run waits for clients, adding them as they come; later ones take who is there.
        Raises TooFewClients where less than the configured minimum is counted, FinishedEarly where all three operators
        end the run with the rounds before this one, ChannelError, ProtocolViolation.
        """
        started = time.perf_counter()
        if self._total is None:
            self._total = await self._common_total(round)
            await self._count_while_waiting(round)
        else:
            await self._recount(round)
            due, _ = await self._list(round, ready=True)
            if not self._finishing:
                await self._add_all(due, round, last=True)
        if self._finishing:
            raise FinishedEarly(f"all three operators end the run before round {round}")
        total = self._total
        if self._incomplete:
            missing: Value = {c: list(item.missing) for c, item in self._incomplete.items()}
            self._transcript.note(INCOMPLETE.what, round=round, clients=missing)
        if len(total.clients) < self._config.clients.minimum:
            raise TooFewClients(
                f"round {round}: {len(total.clients)} data owners are complete at all three servers, "
                f"{self._holdings.submission_count()} have reached this one; expected at least "
                f"clients.minimum = {self._config.clients.minimum} {self._wait_text}"
            )
        self._check_sources(total.clients)
        await self._prove(round)
        self._total = Total(round, total.clients, total.share, total.uploads)
        key = await asyncio.to_thread(self._holdings.commitment_key)
        commitment = await asyncio.to_thread(self._total.commitment, key)
        self._transcript.note(TOTAL.what, round=round, commitment=encode(commitment))
        # What may be used after a restart is committed to first.
        self._transcript.flush()
        await asyncio.to_thread(self._holdings.save_total, self._total)
        await asyncio.to_thread(self._holdings.save_standings, self.standings)
        self._final |= dict(self._total.members)
        for client in self._total.clients:
            self._open.pop(client, None)
        self.seconds += time.perf_counter() - started
        return self._total

    def _check_sources(self, clients: Sequence[str]) -> None:
        """Raises TooFewClients where a source has nobody: nothing would join, and noise alone be paid for."""
        for source in self._config.sources:
            if not {*source.owners} & {*clients}:
                raise TooFewClients(
                    f"no data owner of source {source.name!r} is complete at all three servers {self._wait_text}; "
                    "expected one at least, since rows of all sources are joined"
                )

    def _can_join(self, due: Sequence[StoredSubmission]) -> bool:
        """Whether there are sources, and ``due`` enough to join; else the run ends, and a restart waits for more."""
        there = {stored.submission.client for stored in due}
        return (
            bool(self._config.sources)
            and len(there) >= self._config.clients.minimum
            and all(there & {*source.owners} for source in self._config.sources)
        )

    async def _prove(self, round: int) -> None:
        """Nothing is kept that rests on something unproved: after a restart nobody could prove it any more."""
        if self._ctx.verifier is not None:
            with self._ctx.step(CLIENTS_COUNT.name, round=round) as c:
                await self._ctx.verifier.settle(c)

    async def _common_total(self, round: int) -> Total:
        """The latest total that all three servers hold for the same uploads; else zero: submissions are kept."""
        held = {
            number: _members_digest(self._holdings.load_total(number, self._ctx.pid).members)
            for number in self._holdings.total_rounds()
        }
        said = {
            "totals": sorted(held.items()),
            "final": [astuple(item) for item in self._holdings.finals()],
        }
        with self._ctx.step(CLIENTS_RESUME.name, round=round) as c:
            told = await c.exchange(json.dumps(said).encode())
            await echo(c, dict(enumerate(told)))
            replies = [parse_resumed(reply, pid) for pid, reply in enumerate(told)]
        common = [
            number
            for number, digest in held.items()
            if number <= round and all(totals.get(number) == digest for totals, _ in replies)
        ]
        saved = [max(totals, default=-1) for totals, _ in replies]
        agreed = agreed_finals([finals for _, finals in replies], self._charged, saved)
        self._final = {item.client: item.upload for item in agreed}
        await asyncio.to_thread(self._holdings.keep_totals, common)
        await asyncio.to_thread(self._holdings.keep_finals, agreed)
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
        deadline = time.monotonic() + patience_s(self._config.clients)
        longest = self._config.timeouts.receive_s / 4
        pause, all_ready = _FIRST_PAUSE_S, False
        while not all_ready:
            known = self._known
            self._round = round
            began = time.monotonic()
            ready = self._circumstances.keep_json("ready", lambda: self._ready(deadline))
            due, all_ready = await self._list(round, ready=ready)
            if self._hold_back(due) and (all_ready or self._batch_is_full):
                # An owner may have thought better of it meanwhile: counted is what all three have now.
                self._held = {}
                due, _ = await self._list(round, ready=ready)
            listed_s = time.monotonic() - began
            if all_ready and self._enrolling and self._can_join(due):
                # Rows are joined once.
                self._enrolling = False
                await asyncio.to_thread(self._on_close)
            await self._add_all(due, round, last=all_ready)
            if not all_ready:
                if self._known > known:
                    pause, self._came = _FIRST_PAUSE_S, time.monotonic()
                pause = min(max(pause * 1.5, listed_s / _LISTING_SHARE), longest)
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
        together: dict[str, list[StoredSubmission]] = defaultdict(list)
        for stored in submissions:
            together[self._forms[stored.submission.form].together].append(stored)
        return [(self._forms[due[0].submission.form], due) for _, due in sorted(together.items())]

    def _ready(self, deadline: float) -> bool:
        stored, now = self._holdings.submission_count(), time.monotonic()
        self._on_waiting(self._waiting(stored, deadline - now))
        grace_s = self._config.clients.grace_s
        return (
            stored >= self._config.clients.expected
            or self._closed.is_set()
            or self._finishing
            or now >= deadline
            or (self._enough and self._orders.asked.close)
            or (self._enough and grace_s is not None and now >= self._came + grace_s)
            # Owners were waited for before the first round, which came to its end.
            or (self._enough and self._round > 0)
        )

    @property
    def _wait_text(self) -> str:
        clients = self._config.clients
        closes = clients.closes
        return f"within {clients.wait_s:g} s" if closes is None else f"by {closes} (clients.closes)"

    @property
    def _complete(self) -> int:
        """How many are counted, or held to be."""
        return len(self._require_total().clients) + len(self._held)

    @property
    def _enough(self) -> bool:
        """Whether the run can do with these."""
        return self._complete >= self._config.clients.minimum

    def _waiting(self, stored: int, left_s: float) -> Waiting:
        final, told = frozenset(self._final), self._orders.told
        incomplete = dict(self._incomplete)
        return Waiting(stored, self._complete, left_s, incomplete, counted=final, told=told)

    async def _sleep(self, pause: float, deadline: float) -> None:
        """For ``pause`` seconds, or until this server is ready."""
        until = min(time.monotonic() + pause, deadline)
        while (left := until - time.monotonic()) > 0 and not self._ready(deadline):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), min(left, _LOOK_S))

    async def _list(self, round: int, *, ready: bool) -> tuple[list[StoredSubmission], bool]:
        """The submissions to add now, in one order, and whether all three servers are ready to go on.

        To add are those due by ``round``, not counted yet, and the same at all three; what was withdrawn or replaced is
        gone then. Clients of round 1 are counted in the initial measurements (round 0) already.
        """
        asked = Asked.from_dict(
            self._circumstances.keep_json("asked", lambda: self._orders.asked.to_dict())
        )
        mine = {
            Listed(s.submission.client, s.upload, s.submission.first_round, s.submission.version): s
            for s in self._holdings.submissions(max(round, 1))
            if self._may_count(s) and not self._turned_away(s.submission.client, asked)
        }
        withdrawn = [
            signed
            for signed in self._holdings.withdrawals()
            if signed.withdrawal.client not in self._final
            and signed.withdrawal.digest() not in self._shown
        ]
        listing = Listing(ready, frozenset(mine), tuple(withdrawn), asked)
        with self._ctx.step(CLIENTS_AGREE.name, round=round) as c:
            replies = await c.exchange(listing.to_bytes())
            await echo(c, dict(enumerate(replies)))
        known = {item: item for item in mine}
        listings = [
            Listing.parse(reply, pid, self._whose, known) for pid, reply in enumerate(replies)
        ]
        del replies, known
        await self._obey(self._orders.tell([one.asked for one in listings]), round)
        found = concluded(listings, self._final, round, self._settled)
        await self._take_back(found, round)
        # What was withdrawn or excluded is decided on; what its owner sent after it is not, and may not be lost unseen.
        counted = set(self._require_total().clients)
        self._incomplete = {
            client: item
            for client, item in (found.incomplete | lost(listings, self._final, round)).items()
            if client not in counted and client not in found.due
        }
        return [mine[item] for item in found.due.values()], all(one.ready for one in listings)

    def _turned_away(self, client: str, asked: Asked) -> bool:
        """Whether this server's operator revokes it, while nothing that was opened depends on it."""
        return client in asked.revoked and client not in self._final

    async def _obey(self, agreed: Asked, round: int) -> None:
        """Do what all three operators ask."""
        if agreed.close and self._enrolling and self._enough:
            self._enrolling = False
            self._transcript.note(CLOSED.what, round=round)
            await asyncio.to_thread(self._on_close)
        if agreed.finish and round > 0 and not self._finishing:
            self._finishing = True
            self._transcript.note(FINISHING.what, round=round)
        if revoked := sorted(agreed.revoked - self._revoked - self._final.keys()):
            await self._revoke(revoked, round)

    async def _revoke(self, clients: Sequence[str], round: int) -> None:
        """Take out what there is of ``clients``, and delete it; it does not come back."""
        known = {client: self._open.get(client) or self._held.get(client) for client in clients}
        uploads: dict[str, Value] = {c: s.upload if s else "" for c, s in known.items()}
        self._transcript.note(REVOKED.what, round=round, clients=uploads)
        self._held = {c: stored for c, stored in self._held.items() if c not in known}
        await self._subtract([self._open[c] for c in clients if c in self._open], round)
        for client, stored in known.items():
            self._revoked.add(client)
            self._gone[client] = MAX_VERSION
            await asyncio.to_thread(self._holdings.settle, client, MAX_VERSION)
            if stored is not None:
                reason = Exclusion.REVOKED
                self._standings[client] = Standing(client, stored.upload, round, reason)

    @property
    def _settled(self) -> dict[str, int]:
        """By client, up to which version all three have decided."""
        return self._gone | {c: known.submission.version for c, known in self._open.items()}

    def _may_count(self, stored: StoredSubmission) -> bool:
        """Whether it is neither counted, excluded nor held, nor earlier than what is.

        Rows that are joined are so once, with everybody's: who comes after that comes too late.
        """
        client = stored.submission.client
        if self._config.sources and self._require_total().clients:
            return False
        if client in self._final:
            counted = client in self._require_total().clients
            return not counted and stored.upload == self._final[client]
        known = self._open.get(client) or self._held.get(client)
        return known is None or stored.submission.version > known.submission.version

    async def _take_back(self, found: Concluded, round: int) -> None:
        """What owners have withdrawn, or replaced by what is due, is in the total no more, and gone.

        Shares are deleted after they were subtracted; a server that is killed between the two hears of it again, or
        lists what nobody else does.
        """
        gone = [known for known in self._open.values() if _is_gone(known, found)]
        replaced: dict[str, Value] = {
            known.submission.client: [known.upload, found.due[known.submission.client].digest]
            for known in gone
            if known.submission.client in found.due
        }
        self._held = {c: known for c, known in self._held.items() if not _is_gone(known, found)}
        if found.withdrawn:
            shown: dict[str, Value] = {c: _value(w) for c, w in found.withdrawn.items()}
            self._transcript.note(WITHDRAWN.what, round=round, clients=shown)
        if replaced:
            self._transcript.note(REPLACED.what, round=round, clients=replaced)
        await self._subtract(gone, round)
        for client, signed in found.withdrawn.items():
            said = signed.withdrawal
            self._shown.add(said.digest())
            self._gone[client] = said.version
            await asyncio.to_thread(self._holdings.settle, client, said.version, signed)
            if client not in self._open:
                digest, reason = said.digest(), Exclusion.WITHDRAWN
                self._standings[client] = Standing(client, digest, round, reason)
        for client, item in found.due.items():
            if item.version > 1:
                await asyncio.to_thread(self._holdings.settle, client, item.version - 1)

    async def _subtract(self, gone: Sequence[StoredSubmission], round: int) -> None:
        """Take uploads out of the total, of those that are in it, and forget that they were decided on."""
        inside = set(self._require_total().uploads)
        limit = Limit(NO_CHECK, self._config.clients.rows_per_client)
        for form, counted in self._by_form(s for s in gone if s.upload in inside):
            for part in form.batches(counted):
                bodies = await asyncio.to_thread(self._bodies, part)
                batch = Batch(round, part, bodies.__getitem__, limit, compute=self._config.compute)
                batch = self._to_be_counted(form, batch) if form.by_capacity else batch
                total, zero = self._require_total(), Total.empty(round, self._ctx.pid, self._cells)
                added = await form.add(self._ctx, zero.share, batch)
                self._total = total.without(batch.clients, total.share - added.total)
        for stored in gone:
            del self._open[stored.submission.client]
            del self._standings[stored.submission.client]

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

    async def _recount(self, round: int) -> None:
        """Everybody in the total, in its order, into new cells, where ``count_anew`` has been called."""
        if not self._anew:
            return
        before, self._anew = self._require_total(), False
        by_upload = {s.upload: s for s in self._holdings.submissions(max(round, 1))}
        members = [by_upload[upload] for upload in before.uploads]
        total = Total.empty(round, self._ctx.pid, self._cells).share
        limit = Limit(NO_CHECK, self._config.clients.rows_per_client)
        for form, due in self._by_form(members):
            for part in form.batches(due):
                bodies = await asyncio.to_thread(self._bodies, part)
                batch = Batch(round, part, bodies.__getitem__, limit, compute=self._config.compute)
                batch = self._to_be_counted(form, batch, RECOUNTING)
                total = (await form.add(self._ctx, total, batch)).total
        self._total = Total(round, before.clients, total, before.uploads)

    def _bodies(self, part: Sequence[StoredSubmission]) -> dict[str, bytes]:
        read = self._holdings.read_submission
        return {s.submission.client: read(s.submission.client, s.submission.version) for s in part}

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
        uploads = (*total.uploads, *(stored.upload for stored in counted.submissions))
        clients = (*total.clients, *counted.clients)
        self._total = Total(total.round, clients, added.total, uploads)
        excluded |= dict.fromkeys(added.failed, Exclusion.OUT_OF_BOUNDS)
        for accusation in accused:
            self._transcript.note(ACCUSED.what, round=batch.round, **accusation.to_dict())
        for stored in batch.submissions:
            client = stored.submission.client
            reason, servers = excluded.get(client), by.get(client, ())
            self._conclude(Standing(client, stored.upload, batch.round, reason, servers))
            self._open[client] = stored

    def _to_be_counted(self, form: InputForm, batch: Batch, note: Note = COUNTING) -> Batch:
        """Say whose rows are counted, before it begins."""
        capacities: Value = {s.submission.client: s.submission.capacity for s in batch.submissions}
        self._transcript.note(
            note.what, round=batch.round, form=form.together, capacities=capacities
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


def _is_gone(known: StoredSubmission, found: Concluded) -> bool:
    """Whether its owner has withdrawn it, or a later version is due in its place."""
    client = known.submission.client
    signed = found.withdrawn.get(client)
    withdrawn = signed is not None and known.submission.version <= signed.withdrawal.version
    return withdrawn or client in found.due


def _value(signed: SignedWithdrawal) -> dict[str, Value]:
    return {name: value for name, value in signed.to_dict().items() if name != "client"}


def _members_digest(members: Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(list(members)).encode()).hexdigest()
