"""Which data owners are counted: the three servers wait, compare what they hold, and add shares to the running total.

A client is counted from its first round on, once all three servers hold their parts of the same upload of it, which its
owner signed, its components are the same at both their holders (`parties.mpc.participants.consistency`) and its counts
are within their bound. Until a round begins with it, its owner may withdraw or replace it: what was added is subtracted
again, on shares, at all three servers at the same point (`parties.mpc.participants.listing`). What the operators of all
three ask (`parties.session.operator_commands`) is done at such a point, too. What was sent, and how it becomes shares
of counts, is the input form's part (`parties.mpc.inputs`). Secret: components, their digests (to the server that lacks
the component), and totals. Public: client names, first rounds, who is counted, who is not. Source: protocols/README.md,
section 2; FLAIM paper, Alg. 3.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import astuple, replace

from mechanisms.errors import FinishedEarly
from parties.config import NO_CHECK, Config
from parties.foundation.exit_codes import TooFewClients
from parties.identity.signing import Issuer
from parties.mpc.exclusion import Exclusion
from parties.mpc.inputs import Batch, InputForm, Limit, OnPart
from parties.mpc.participants.batching import Batching, Part, batched
from parties.mpc.participants.consistency import compare
from parties.mpc.participants.listing import (
    Concluded,
    Incomplete,
    Whose,
    agreed_finals,
    concluded,
    lost,
    parse_resumed,
)
from parties.mpc.participants.registry import Entry
from parties.mpc.participants.sync import Heard, call_roll
from parties.mpc.participants.waiting_text import Waiting
from parties.mpc.records import Standing, StoredSubmission, Total, members_digest
from parties.mpc.replay.effects import Circumstances, Holdings
from parties.mpc.steps import CLIENTS_COMPARE, CLIENTS_COUNT, CLIENTS_RESUME
from parties.mpc.submission.messages import MAX_VERSION
from parties.mpc.submission.withdrawal import SignedWithdrawal
from parties.mpc.transcript_schema import (
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
from parties.session.enrollment import patience_s
from parties.session.operator_commands import Asked, Orders
from protocols.context import Context
from protocols.echo import echo
from protocols.errors import CheckFailed
from protocols.fields import encode
from protocols.transcript import Transcript, Value

_FIRST_PAUSE_S = 0.4
"""While data owners come: who comes within it is counted in together, in the rounds that one alone would take."""
_LOOK_S = 0.1
_LISTING_SHARE = 0.1
"""Of a server's time while it waits, at most, that goes into lists."""


class Arrivals:
    """The clients counted so far, and this server's share of their counts' running total.

    ``forms`` are those that clients may send, by name; ``cells`` is the total's length; ``recorded`` are the rounds
    whose inputs were recorded before a restart: nobody is added to them. ``on_close`` is called, from a thread, when
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
        recorded: Collection[int] = (),
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
        self._recorded = recorded
        self._on_close = on_close
        self._on_waiting = on_waiting
        self._on_counting = on_counting
        self._roll = holdings.roll
        """Who is held, counted and excluded; what was added or excluded since the last round may be taken back."""
        self._revoked: set[str] = set()
        """Whom all three operators revoke."""
        self._enrolling = True
        self._finishing = False
        self._round = 0
        self._came = time.monotonic()
        """When the last data owner came that is counted or held."""
        self._incomplete: dict[str, Incomplete] = {}
        """Whose uploads some servers lack: they alone are in memory as many as they are."""
        self._total: Total | None = None
        self._anew = False
        self._added_s = 0.0
        """How long adding batches has taken so far."""
        self.seconds = 0.0
        """How long counting in has taken so far, waiting included."""

    @property
    def clients(self) -> Collection[str]:
        """Who is counted by now."""
        return () if self._total is None else self._roll.members.names

    def __repr__(self) -> str:
        return f"Arrivals(total={self._total!r})"

    @property
    def standings(self) -> list[Standing]:
        """What has become of the data owners that any server listed, as if the run ended now; by client.

        Where nobody is counted in, because all rounds are done, what was kept of that.
        """
        if self._total is None:
            return self._holdings.standings()
        return sorted(self._standings(), key=lambda s: s.client)

    def _standings(self) -> Iterator[Standing]:
        left = {
            client: Standing(client, item.digest, item.round, Exclusion.INCOMPLETE, item.missing)
            for client, item in self._incomplete.items()
        }
        yield from (standing for standing in self._roll.standings() if standing.client not in left)
        yield from left.values()

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
            if not (round in self._recorded and self._total.round == round and self._total.members):
                await self._count_while_waiting(round)
        else:
            await self._recount(round)
            await self._gather(round, ready=True, hold=False, last=True)
        if self._finishing:
            raise FinishedEarly(f"all three operators end the run before round {round}")
        total = self._total
        if self._incomplete:
            missing: Value = {c: list(item.missing) for c, item in self._incomplete.items()}
            self._transcript.note(INCOMPLETE.what, round=round, clients=missing)
        if self._roll.counted < self._config.clients.minimum:
            raise TooFewClients(
                f"round {round}: {self._roll.counted} data owners are complete at all three servers, "
                f"{self._holdings.submission_count()} have reached this one; expected at least "
                f"clients.minimum = {self._config.clients.minimum} {self._wait_text}"
            )
        self._check_sources()
        self._check_recorded(round)
        await self._prove(round)
        self._total = Total(round, total.share, self._roll.members)
        key = await asyncio.to_thread(self._holdings.commitment_key)
        commitment = await asyncio.to_thread(self._total.commitment, key)
        self._transcript.note(TOTAL.what, round=round, commitment=encode(commitment))
        # What may be used after a restart is committed to first.
        self._transcript.flush()
        await asyncio.to_thread(self._holdings.save_total, self._total)
        await asyncio.to_thread(self._holdings.save_standings, self._standings())
        self.seconds += time.perf_counter() - started
        return self._total

    def _check_recorded(self, round: int) -> None:
        """Raises CheckFailed where a round that was recorded would be counted without somebody who is in it.

        Nothing is kept then: one server that lacks an upload, or says so, would keep the run from ending for good.
        """
        lacking = {c: item.missing for c, item in self._incomplete.items() if item.final}
        if round in self._recorded and lacking:
            client, missing = min(lacking.items())
            raise CheckFailed(
                f"round {round} has begun with {len(lacking)} data owners whose uploads are not at all three servers "
                f"any more, {client!r} among them, which parties {', '.join(map(str, missing))} do not list; expected "
                "the servers' folders as they were left"
            )

    def _check_sources(self) -> None:
        """Raises TooFewClients where a source has nobody: nothing would join, and noise alone be paid for."""
        for source in self._config.sources:
            if not any(entry.counted for entry in self._roll.find(source.owners).values()):
                raise TooFewClients(
                    f"no data owner of source {source.name!r} is complete at all three servers {self._wait_text}; "
                    "expected one at least, since rows of all sources are joined"
                )

    def _can_join(self, parts: Sequence[Part]) -> bool:
        """Whether there are sources, and enough due to join; else the run ends, and a restart waits for more."""
        there = {stored.submission.client for _, part in parts for stored in part}
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
            number: members_digest(self._holdings.load_total(number, self._ctx.pid).members)
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
        agreed = agreed_finals([finals for _, finals in replies])
        await asyncio.to_thread(self._holdings.keep_totals, common)
        await asyncio.to_thread(self._holdings.keep_finals, agreed)
        total = Total.empty(round, self._ctx.pid, self._cells)
        if common:
            found = self._holdings.load_total(max(common), self._ctx.pid)
            if found.share.shape == (self._cells,):
                self._transcript.note(COUNTED.what, round=round, clients=list(found.clients))
                total = found
        rounds = {s.client: s.round for s in self._holdings.standings() if s.excluded is None}
        self._roll.begin(total.members, rounds, total.round)
        return Total(total.round, total.share, self._roll.members)

    async def _count_while_waiting(self, round: int) -> None:
        """Until each server has all it expects, is told that no more will come, or has waited long enough.

        They tell one another at growing intervals, so that a silent server is noticed within the receive deadline.
        """
        deadline = time.monotonic() + patience_s(self._config.clients)
        longest = self._config.timeouts.receive_s / 4
        pause, all_ready = _FIRST_PAUSE_S, False
        while not all_ready:
            known = self._roll.known
            self._round = round
            began, added_s = time.monotonic(), self._added_s
            ready = self._circumstances.keep_json("ready", lambda: self._ready(deadline))
            all_ready = await self._gather(round, ready=ready, hold=True, last=False)
            if self._roll.held and (all_ready or self._batch_is_full):
                # An owner may have thought better of it meanwhile: counted is what all three have now.
                self._roll.release()
                await self._gather(round, ready=ready, hold=False, last=all_ready)
            listed_s = time.monotonic() - began - (self._added_s - added_s)
            if not all_ready:
                if self._roll.known > known:
                    pause, self._came = _FIRST_PAUSE_S, time.monotonic()
                pause = min(max(pause * 1.5, listed_s / _LISTING_SHARE), longest)
                await self._sleep(pause, deadline)

    @property
    def _batch_is_full(self) -> bool:
        """Whether who is held back fills a batch of any form."""
        forms = {form.together: form for form in self._forms.values()}
        return any(
            forms[kind].exceed_batch(owners, rows)
            for kind, owners, rows in self._roll.held_by_kind()
        )

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
        return self._roll.counted + self._roll.held

    @property
    def _enough(self) -> bool:
        """Whether the run can do with these."""
        return self._complete >= self._config.clients.minimum

    def _waiting(self, stored: int, left_s: float) -> Waiting:
        incomplete, told = dict(self._incomplete), self._orders.told
        return Waiting(stored, self._complete, left_s, incomplete, told=told)

    async def _sleep(self, pause: float, deadline: float) -> None:
        """For ``pause`` seconds, or until this server is ready."""
        until = min(time.monotonic() + pause, deadline)
        while (left := until - time.monotonic()) > 0 and not self._ready(deadline):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), min(left, _LOOK_S))

    async def _gather(self, round: int, *, ready: bool, hold: bool, last: bool) -> bool:
        """Count in who is due by ``round``, page by page, in one order; whether all three servers are ready to go on.

        Due is who is not counted yet and the same at all three; what was withdrawn or replaced is gone then. Clients of
        round 1 are counted in the initial measurements (round 0) already. Where servers work for every batch, a few
        owners at a time would cost as much as many: with ``hold`` such forms' owners are put on the roll and wait, and
        else who fills no batch is, unless these are the ``last`` of the round. All three hold the same.
        """
        batching, all_ready = Batching(self._forms), False
        async for heard, due in self._agreed(round, ready=ready):
            if not heard.after:
                all_ready = all(one.ready for one in heard.listings)
            if self._finishing:
                continue
            if hold:
                due = self._hold(due)
            for form, part in batching.add(due):
                await self._add(form, part, round)
        parts = batching.rest()
        if last and self._enrolling and self._can_join(parts):
            # Rows are joined once.
            self._enrolling = False
            await asyncio.to_thread(self._on_close)
        for form, part in parts:
            if form.by_capacity and not last:
                self._roll.hold(part, form.together)
            else:
                await self._add(form, part, round)
        return all_ready

    def _hold(self, due: Sequence[StoredSubmission]) -> list[StoredSubmission]:
        """Those of ``due`` whose forms the servers work for, batch by batch, are held; the others."""
        for form in self._forms.values():
            if form.by_capacity:
                waiting = [s for s in due if self._forms[s.submission.form] is form]
                self._roll.hold(waiting, form.together)
        return [s for s in due if not self._forms[s.submission.form].by_capacity]

    async def _agreed(
        self, round: int, *, ready: bool
    ) -> AsyncIterator[tuple[Heard, list[StoredSubmission]]]:
        """What the three servers say, page by page, and who is due by it; what they ask and take back is done then."""
        asked = Asked.from_dict(
            self._circumstances.keep_json("asked", lambda: self._orders.asked.to_dict())
        )
        # Rows that are joined are so once, with everybody's: who comes after that comes too late.
        joined = self._config.sources and self._roll.counted
        pages = call_roll(
            self._ctx,
            self._holdings,
            self._whose,
            round,
            up_to_round=0 if joined else max(round, 1),
            ready=ready,
            asked=asked,
            expected=self._config.clients.expected,
        )
        async for heard in pages:
            if not heard.after:
                await self._obey(self._orders.tell([one.asked for one in heard.listings]), round)
            found = await self._conclude(heard, round)
            yield heard, [heard.mine[item] for item in found.due.values()]

    async def _conclude(self, heard: Heard, round: int) -> Concluded:
        """What a page comes to."""
        clients = set[str]().union(*(one.names() for one in heard.listings))
        final = self._holdings.finals_among(clients)
        found = concluded(heard.listings, final, round, self._roll.settled(clients))
        await self._take_back(found, round)
        # What was withdrawn or excluded is decided on; what its owner sent after it is not, and may not be lost unseen.
        left = self._holdings.left_finals(heard.after, heard.upto)
        missing = found.incomplete | lost(heard.listings, left, round)
        known = self._roll.find(missing)
        counted = {client for client, entry in known.items() if entry.counted}
        others = {c: i for c, i in self._incomplete.items() if not _within(heard, c)}
        self._incomplete = others | {
            client: item
            for client, item in missing.items()
            if client not in counted and client not in found.due
        }
        return found

    async def _obey(self, agreed: Asked, round: int) -> None:
        """Do what all three operators ask."""
        if agreed.close and self._enrolling and self._enough:
            self._enrolling = False
            self._transcript.note(CLOSED.what, round=round)
            await asyncio.to_thread(self._on_close)
        if agreed.finish and round > 0 and not self._finishing:
            self._finishing = True
            self._transcript.note(FINISHING.what, round=round)
        if revoked := agreed.revoked - self._revoked:
            final = self._holdings.finals_among(revoked)
            if revoked := revoked - final.keys():
                await self._revoke(sorted(revoked), round)

    async def _revoke(self, clients: Sequence[str], round: int) -> None:
        """Take out what there is of ``clients``, and delete it; it does not come back."""
        known = self._roll.find(clients)
        gone = {c: entry for c, entry in known.items() if not entry.gone}
        uploads: dict[str, Value] = {c: gone[c].upload if c in gone else "" for c in clients}
        self._transcript.note(REVOKED.what, round=round, clients=uploads)
        await self._subtract(list(gone.values()), round)
        for client in clients:
            self._revoked.add(client)
            self._roll.end(client, MAX_VERSION)
            await asyncio.to_thread(self._holdings.settle, client, MAX_VERSION)
            if client in gone:
                standing = Standing(client, gone[client].upload, round, Exclusion.REVOKED)
                self._roll.exclude([(standing, MAX_VERSION)])

    async def _take_back(self, found: Concluded, round: int) -> None:
        """What owners have withdrawn, or replaced by what is due, is in the total no more, and gone.

        Shares are deleted after they were subtracted; a server that is killed between the two hears of it again, or
        lists what nobody else does.
        """
        known = self._roll.find([*found.withdrawn, *found.due])
        gone = [entry for entry in known.values() if not entry.gone and _is_taken(entry, found)]
        replaced: dict[str, Value] = {
            entry.client: [entry.upload, found.due[entry.client].digest]
            for entry in gone
            if entry.client in found.due and not entry.held
        }
        if found.withdrawn:
            shown: dict[str, Value] = {c: _value(w) for c, w in found.withdrawn.items()}
            self._transcript.note(WITHDRAWN.what, round=round, clients=shown)
        if replaced:
            self._transcript.note(REPLACED.what, round=round, clients=replaced)
        await self._subtract(gone, round)
        for client, signed in found.withdrawn.items():
            said = signed.withdrawal
            self._roll.end(client, said.version)
            await asyncio.to_thread(self._holdings.settle, client, said.version, signed)
            entry = self._roll.find([client]).get(client)
            if entry is None or (entry.gone and entry.version < said.version):
                standing = Standing(client, said.digest(), round, Exclusion.WITHDRAWN)
                self._roll.exclude([(standing, said.version)])
        for client, item in found.due.items():
            if item.version > 1:
                await asyncio.to_thread(self._holdings.settle, client, item.version - 1)

    async def _subtract(self, gone: Sequence[Entry], round: int) -> None:
        """Take uploads out of the total, of those that are in it, and forget that they were decided on."""
        limit = Limit(NO_CHECK, self._config.clients.rows_per_client)
        inside = (self._holdings.stored(e.client, e.upload) for e in gone if e.counted)
        for form, part in batched(self._forms, inside):
            batch = await self._batch(part, round, limit)
            batch = self._to_be_counted(form, batch) if form.by_capacity else batch
            total, zero = self._require_total(), Total.empty(round, self._ctx.pid, self._cells)
            added = await form.add(self._ctx, zero.share, batch)
            self._total = replace(total, share=total.share - added.total)
        self._roll.drop(entry.client for entry in gone)

    async def _recount(self, round: int) -> None:
        """Everybody in the total, in its order, into new cells, where ``count_anew`` has been called."""
        if not self._anew:
            return
        self._anew = False
        total = Total.empty(round, self._ctx.pid, self._cells)
        limit = Limit(NO_CHECK, self._config.clients.rows_per_client)
        members = (self._holdings.stored(*member) for member in self._roll.members)
        for form, part in batched(self._forms, members):
            batch = await self._batch(part, round, limit)
            batch = self._to_be_counted(form, batch, RECOUNTING)
            total = replace(total, share=(await form.add(self._ctx, total.share, batch)).total)
        self._total = replace(total, members=self._roll.members)

    async def _batch(self, part: Sequence[StoredSubmission], round: int, limit: Limit) -> Batch:
        """A batch with its bodies."""
        bodies = await asyncio.to_thread(self._bodies, part)
        compute = self._config.compute
        return Batch(round, tuple(part), bodies.__getitem__, limit, compute=compute)

    def _bodies(self, part: Sequence[StoredSubmission]) -> dict[str, bytes]:
        read = self._holdings.read_submission
        return {s.submission.client: read(s.submission.client, s.submission.version) for s in part}

    async def _add(self, form: InputForm, part: Sequence[StoredSubmission], round: int) -> None:
        """Compare and add the shares of one batch of clients."""
        began = time.monotonic()
        limit = Limit(self._config.run.check, self._config.clients.rows_per_client)
        batch = await self._batch(part, round, limit)
        with self._ctx.step(CLIENTS_COMPARE.name, round=round) as c:
            accused = await compare(c, batch.submissions)
        by = {accusation.client: accusation.by for accusation in accused}
        excluded = dict.fromkeys(by, Exclusion.COMPONENTS_DIFFER)
        whole, total = batch.without(excluded), self._require_total()
        if form.by_capacity and whole.clients:
            whole = self._to_be_counted(form, whole)
        added = await form.add(self._ctx, total.share, whole)
        self._total = replace(total, share=added.total)
        self._roll.count(whole.without(added.failed).submissions, form.together, round)
        excluded |= dict.fromkeys(added.failed, Exclusion.OUT_OF_BOUNDS)
        for accusation in accused:
            self._transcript.note(ACCUSED.what, round=round, **accusation.to_dict())
        out = []
        for stored in batch.submissions:
            client = stored.submission.client
            reason = excluded.get(client)
            standing = Standing(client, stored.upload, round, reason, by.get(client, ()))
            self._say(standing)
            if reason is not None:
                out.append((standing, stored.submission.version))
        self._roll.exclude(out)
        self._added_s += time.monotonic() - began

    def _to_be_counted(self, form: InputForm, batch: Batch, note: Note = COUNTING) -> Batch:
        """Say whose rows are counted, before it begins."""
        capacities: Value = {s.submission.client: s.submission.capacity for s in batch.submissions}
        self._transcript.note(
            note.what, round=batch.round, form=form.together, capacities=capacities
        )
        return replace(batch, progress=self._on_counting(batch))

    def _say(self, standing: Standing) -> None:
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


def _within(heard: Heard, client: str) -> bool:
    """Whether a page is of ``client``."""
    return heard.after < client and (heard.upto is None or client <= heard.upto)


def _is_taken(known: Entry, found: Concluded) -> bool:
    """Whether its owner has withdrawn it, or a later version is due in its place."""
    signed = found.withdrawn.get(known.client)
    withdrawn = signed is not None and known.version <= signed.withdrawal.version
    return withdrawn or known.client in found.due


def _value(signed: SignedWithdrawal) -> dict[str, Value]:
    return {name: value for name, value in signed.to_dict().items() if name != "client"}
