"""Admission of participants: the three servers wait, compare their submissions, and add shares to the running total.

A client is counted from its first round on under three conditions: all three servers hold their parts of the same
signed upload, its components are the same at both their holders (`parties.mpc.participants.consistency`), and its
counts are within their bound. Until a round begins with it, its participant may withdraw or replace it: its shares are
subtracted again, at all three servers at the same point (`parties.mpc.participants.listing`). Commands of all three
operators (`parties.session.operator_commands`) are carried out at such a point, too. The input form defines the values
sent and their conversion into shares of counts (`parties.mpc.inputs`).

Secret: components, their digests (to the server that lacks the component), and totals. Public: client names, first
rounds, counted and excluded clients. Source: protocols/README.md, section 2; FLAIM paper, Alg. 3.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import (
    AsyncIterator,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import astuple, replace
from typing import Protocol

from mechanisms.errors import FinishedEarly
from parties.config import NO_CHECK, Config
from parties.foundation.exit_codes import TooFewClients
from parties.identity.signing import Issuer
from parties.mpc.exclusion import Exclusion
from parties.mpc.inputs import InputForm, OnCountingProgress, RowLimit, SubmissionBatch
from parties.mpc.participants.batching import Batcher, FormGroup, in_batches
from parties.mpc.participants.consistency import compare_components
from parties.mpc.participants.control import AdmissionControl
from parties.mpc.participants.listing import (
    Agreement,
    IncompleteSubmission,
    WithdrawalScope,
    agree_on_listings,
    agreed_finalized,
    find_lost,
    parse_resume_reply,
)
from parties.mpc.participants.registry import RegistryEntry
from parties.mpc.participants.sync import SyncPage, sync_participants
from parties.mpc.participants.waiting_text import WaitStatus
from parties.mpc.records import ParticipantRecord, RunningTotal, StoredSubmission, members_digest
from parties.mpc.replay.effects import Effects, ParticipantView
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
from parties.session.enrollment import enrollment_wait_s
from parties.session.operator_commands import CommandSet
from protocols.context import Context
from protocols.echo import echo
from protocols.errors import CheckFailed
from protocols.fields import encode
from protocols.transcript import Transcript, Value

_FIRST_SYNC_PAUSE_S = 0.4
"""First pause between synchronisations, in seconds; clients that arrive within it are counted together."""
_POLL_S = 0.1
_LISTING_SHARE = 0.1
"""Maximum share of a waiting server's time that goes into listings."""


class AdmissionObserver(Protocol):
    """Observer of the admission of participants."""

    def waiting(self, state: WaitStatus) -> None:
        """Called several times a second while the server waits for participants."""

    def counting(self, batch: SubmissionBatch) -> OnCountingProgress | None:
        """Called before rows are counted; returns a callback for the progress."""

    def closed(self) -> None:
        """Called from a thread when all three operators have closed the run to participants, or rows are joined."""


class Admission:
    """Clients counted so far, and this server's share of their counts' running total.

    ``forms`` are the forms that clients may send, by name; ``cells`` is the total's length; ``recorded`` are the rounds
    whose inputs were recorded before a restart: no client is added to them.
    """

    def __init__(
        self,
        ctx: Context,
        config: Config,
        participants: ParticipantView,
        *,
        forms: Mapping[str, InputForm],
        cells: int,
        transcript: Transcript,
        effects: Effects,
        control: AdmissionControl,
        authority: Issuer,
        recorded: Collection[int] = (),
        observer: AdmissionObserver,
    ) -> None:
        self._ctx = ctx
        self._config = config
        self._submissions = participants.submissions
        self._finalized = participants.finalized
        self._totals = participants.totals
        self._stored_records = participants.records
        self._forms = forms
        self._cells = cells
        self._transcript = transcript
        self._effects = effects
        self._withdrawal_scope = WithdrawalScope(config.run.id, config.digest(), authority)
        self._control = control
        self._recorded = recorded
        self._observer = observer
        self._registry = participants.registry
        """Held, counted and excluded clients; changes since the last round may be undone."""
        self._revoked: set[str] = set()
        """Clients that all three operators revoke."""
        self._enrolling = True
        self._finishing = False
        self._round = 0
        self._last_arrival = time.monotonic()
        """Monotonic time of the last arrival of a counted or held client, in seconds."""
        self._incomplete: dict[str, IncompleteSubmission] = {}
        """Clients whose uploads some servers lack; the only collection in memory that grows with participants."""
        self._total: RunningTotal | None = None
        self._recount_due = False
        self._added_s = 0.0
        """Time spent so far on adding batches, in seconds."""
        self.seconds = 0.0
        """Time spent so far on admission, waiting included, in seconds."""

    @property
    def clients(self) -> Collection[str]:
        """Clients counted so far."""
        return () if self._total is None else self._registry.members.names

    def __repr__(self) -> str:
        return f"{type(self).__name__}(total={self._total!r})"

    @property
    def records(self) -> list[ParticipantRecord]:
        """Records of the participants that any server listed, as if the run ended now; by client.

        If this process admits no one because all rounds are done, the stored records.
        """
        if self._total is None:
            return self._stored_records.all()
        return sorted(self._records(), key=lambda s: s.client)

    def _records(self) -> Iterator[ParticipantRecord]:
        left = {
            client: ParticipantRecord(
                client, item.digest, item.round, Exclusion.INCOMPLETE, item.missing
            )
            for client, item in self._incomplete.items()
        }
        yield from (record for record in self._registry.records() if record.client not in left)
        yield from left.values()

    def recount_with(self, forms: Mapping[str, InputForm], cells: int) -> None:
        """Replaces the total's ``cells`` and the ``forms`` from now on: all clients in it are counted again."""
        self._forms, self._cells, self._recount_due = forms, cells, self._total is not None

    async def admit(self, round: int) -> RunningTotal:
        """Running total for ``round``, with every client whose first round has come and that is complete everywhere.

        The first call of a run waits for clients, adding them as they come; later calls take the clients that are
        there. Raises TooFewClients if fewer than the configured minimum are counted, FinishedEarly if all three
        operators end the run with the rounds before this one, ChannelError, ProtocolViolation.
        """
        started = time.perf_counter()
        if self._total is None:
            self._total = await self._common_total(round)
            if not (round in self._recorded and self._total.round == round and self._total.members):
                await self._count_while_waiting(round)
        else:
            await self._recount(round)
            await self._admit_due(round, ready=True, hold=False, last=True)
        if self._finishing:
            raise FinishedEarly(f"all three operators end the run before round {round}")
        total = self._total
        if self._incomplete:
            missing: Value = {c: list(item.missing) for c, item in self._incomplete.items()}
            self._transcript.note(INCOMPLETE.what, round=round, clients=missing)
        if self._registry.counted < self._config.clients.minimum:
            raise TooFewClients(
                f"round {round}: {self._registry.counted} data owners are complete at all three servers, "
                f"{self._submissions.count()} have reached this one; expected at least "
                f"clients.minimum = {self._config.clients.minimum} {self._wait_text}"
            )
        self._check_sources()
        self._check_recorded(round)
        await self._prove(round)
        self._total = RunningTotal(round, total.share, self._registry.members)
        key = await asyncio.to_thread(self._totals.commitment_key)
        commitment = await asyncio.to_thread(self._total.commitment, key)
        self._transcript.note(TOTAL.what, round=round, commitment=encode(commitment))
        # The commitment is on disk before the total, which a restart may use.
        self._transcript.flush()
        await asyncio.to_thread(self._totals.save, self._total)
        await asyncio.to_thread(self._stored_records.save, self._records())
        self.seconds += time.perf_counter() - started
        return self._total

    def _check_recorded(self, round: int) -> None:
        """Raises CheckFailed if a recorded round would be counted without one of its members.

        Nothing is stored then: one server that lacks an upload, or claims so, would keep the run from ever ending.
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
        """Raises TooFewClients if a source has no counted client: no row would join, and noise alone be paid for."""
        for source in self._config.sources:
            if not any(entry.counted for entry in self._registry.find(source.owners).values()):
                raise TooFewClients(
                    f"no data owner of source {source.name!r} is complete at all three servers {self._wait_text}; "
                    "expected one at least, since rows of all sources are joined"
                )

    def _can_join(self, groups: Sequence[FormGroup]) -> bool:
        """True if there are sources and enough due clients to join.

        Otherwise the run ends, and a restart waits for more.
        """
        there = {stored.submission.client for _, group in groups for stored in group}
        return (
            bool(self._config.sources)
            and len(there) >= self._config.clients.minimum
            and all(there & {*source.owners} for source in self._config.sources)
        )

    async def _prove(self, round: int) -> None:
        """Proves pending products before a total is stored: after a restart no server could prove them any more."""
        if self._ctx.verifier is not None:
            with self._ctx.step(CLIENTS_COUNT.name, round=round) as c:
                await self._ctx.verifier.settle(c)

    async def _common_total(self, round: int) -> RunningTotal:
        """Latest total that all three servers hold for the same uploads; else zero, since submissions are kept."""
        held = {
            number: members_digest(self._totals.load(number, self._ctx.pid).members)
            for number in self._totals.rounds()
        }
        said = {
            "totals": sorted(held.items()),
            "final": [astuple(item) for item in self._finalized.finalized()],
        }
        with self._ctx.step(CLIENTS_RESUME.name, round=round) as c:
            replies_raw = await c.exchange(json.dumps(said).encode())
            await echo(c, dict(enumerate(replies_raw)))
            replies = [parse_resume_reply(reply, pid) for pid, reply in enumerate(replies_raw)]
        common = [
            number
            for number, digest in held.items()
            if number <= round and all(totals.get(number) == digest for totals, _ in replies)
        ]
        agreed = agreed_finalized([finals for _, finals in replies])
        await asyncio.to_thread(self._totals.retain, common)
        await asyncio.to_thread(self._finalized.save_finalized, agreed)
        total = RunningTotal.empty(round, self._ctx.pid, self._cells)
        if common:
            found = self._totals.load(max(common), self._ctx.pid)
            if found.share.shape == (self._cells,):
                self._transcript.note(COUNTED.what, round=round, clients=list(found.clients))
                total = found
        rounds = {s.client: s.round for s in self._stored_records.all() if s.excluded is None}
        self._registry.begin(total.members, rounds, total.round)
        return RunningTotal(total.round, total.share, self._registry.members)

    async def _count_while_waiting(self, round: int) -> None:
        """Admits clients until each server has all expected ones, or expects no more, or has waited long enough.

        The servers synchronise at growing intervals, so that a silent server is noticed within the receive deadline.
        """
        deadline = time.monotonic() + enrollment_wait_s(self._config.clients)
        longest = self._config.timeouts.receive_s / 4
        pause, all_ready = _FIRST_SYNC_PAUSE_S, False
        while not all_ready:
            known = self._registry.known
            self._round = round
            began, added_s = time.monotonic(), self._added_s
            ready = self._effects.once_json("ready", lambda: self._ready(deadline))
            all_ready = await self._admit_due(round, ready=ready, hold=True, last=False)
            if self._registry.held and (all_ready or self._batch_is_full):
                # A participant may have withdrawn or replaced a held upload meanwhile, so the servers agree anew before
                # counting.
                self._registry.release()
                await self._admit_due(round, ready=ready, hold=False, last=all_ready)
            listed_s = time.monotonic() - began - (self._added_s - added_s)
            if not all_ready:
                if self._registry.known > known:
                    pause, self._last_arrival = _FIRST_SYNC_PAUSE_S, time.monotonic()
                pause = min(max(pause * 1.5, listed_s / _LISTING_SHARE), longest)
                await self._sleep(pause, deadline)

    @property
    def _batch_is_full(self) -> bool:
        """True if the held clients fill a batch of any form."""
        forms = {form.together: form for form in self._forms.values()}
        return any(
            forms[kind].exceed_batch(owners, rows)
            for kind, owners, rows in self._registry.held_by_kind()
        )

    def _ready(self, deadline: float) -> bool:
        stored, now = self._submissions.count(), time.monotonic()
        self._observer.waiting(self._wait_status(stored, deadline - now))
        grace_s = self._config.clients.grace_s
        return (
            stored >= self._config.clients.expected
            or self._control.closed.is_set()
            or self._finishing
            or now >= deadline
            or (self._has_minimum and self._control.commands.asked.close)
            or (self._has_minimum and grace_s is not None and now >= self._last_arrival + grace_s)
            # The first round is over, so the wait for participants is, too.
            or (self._has_minimum and self._round > 0)
        )

    @property
    def _wait_text(self) -> str:
        clients = self._config.clients
        closes = clients.closes
        return f"within {clients.wait_s:g} s" if closes is None else f"by {closes} (clients.closes)"

    @property
    def _n_complete(self) -> int:
        """Number of counted and held clients."""
        return self._registry.counted + self._registry.held

    @property
    def _has_minimum(self) -> bool:
        """True if the complete clients are enough for the run."""
        return self._n_complete >= self._config.clients.minimum

    def _wait_status(self, stored: int, left_s: float) -> WaitStatus:
        incomplete, by_server = dict(self._incomplete), self._control.commands.by_server
        return WaitStatus(stored, self._n_complete, left_s, incomplete, commands=by_server)

    async def _sleep(self, pause: float, deadline: float) -> None:
        """Sleeps for ``pause`` seconds, or until this server is ready."""
        until = min(time.monotonic() + pause, deadline)
        while (left := until - time.monotonic()) > 0 and not self._ready(deadline):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._control.closed.wait(), min(left, _POLL_S))

    async def _admit_due(self, round: int, *, ready: bool, hold: bool, last: bool) -> bool:
        """Counts the clients due by ``round``, page by page, in one order; True if all three servers are ready.

        A client is due if it is not counted yet and its upload is the same at all three servers; withdrawn and replaced
        uploads are removed at the same point. Clients of round 1 are counted in the initial measurements (round 0)
        already.

        For forms with work for every batch, a few clients at a time would cost as much as many. With ``hold``, clients
        of such forms are entered in the registry and wait; without, the clients that fill no batch wait, unless this is
        the ``last`` call of the round. All three servers hold the same clients.
        """
        batching, all_ready = Batcher(self._forms), False
        async for heard, due in self._synchronized(round, ready=ready):
            if not heard.after:
                all_ready = all(one.ready for one in heard.listings)
            if self._finishing:
                continue
            if hold:
                due = self._hold_due(due)
            for form, submissions in batching.add(due):
                await self._add(form, submissions, round)
        remaining = batching.remainder()
        if last and self._enrolling and self._can_join(remaining):
            # Rows are joined once, so the run is closed before the join.
            self._enrolling = False
            await asyncio.to_thread(self._observer.closed)
        for form, submissions in remaining:
            if form.by_capacity and not last:
                self._registry.hold(submissions, form.together)
            else:
                await self._add(form, submissions, round)
        return all_ready

    def _hold_due(self, due: Sequence[StoredSubmission]) -> list[StoredSubmission]:
        """Holds clients of ``due`` whose forms have work for every batch, and returns the other submissions."""
        for form in self._forms.values():
            if form.by_capacity:
                waiting = [s for s in due if self._forms[s.submission.form] is form]
                self._registry.hold(waiting, form.together)
        return [s for s in due if not self._forms[s.submission.form].by_capacity]

    async def _synchronized(
        self, round: int, *, ready: bool
    ) -> AsyncIterator[tuple[SyncPage, list[StoredSubmission]]]:
        """Yields the three servers' pages with the due submissions; carries out commands and withdrawals on the way."""
        commands = CommandSet.from_dict(
            self._effects.once_json("asked", lambda: self._control.commands.asked.to_dict())
        )
        # Rows of all sources are joined once: a client that comes after that comes too late.
        joined = self._config.sources and self._registry.counted
        pages = sync_participants(
            self._ctx,
            self._submissions,
            self._withdrawal_scope,
            round,
            up_to_round=0 if joined else max(round, 1),
            ready=ready,
            commands=commands,
            expected=self._config.clients.expected,
        )
        async for heard in pages:
            if not heard.after:
                await self._apply_commands(
                    self._control.commands.tell([one.asked for one in heard.listings]), round
                )
            found = await self._resolve_page(heard, round)
            yield heard, [heard.mine[item] for item in found.due.values()]

    async def _resolve_page(self, heard: SyncPage, round: int) -> Agreement:
        """Agreement on a page."""
        clients = set[str]().union(*(one.names() for one in heard.listings))
        final = self._finalized.finalized_among(clients)
        found = agree_on_listings(heard.listings, final, round, self._registry.settled(clients))
        await self._remove_withdrawn(found, round)
        # A withdrawn or excluded upload is decided on. A later upload of its participant is not, and must not be lost
        # unnoticed.
        left = self._finalized.unregistered(heard.after, heard.upto)
        missing = found.incomplete | find_lost(heard.listings, left, round)
        known = self._registry.find(missing)
        counted = {client for client, entry in known.items() if entry.counted}
        others = {c: i for c, i in self._incomplete.items() if not _is_on_page(heard, c)}
        self._incomplete = others | {
            client: item
            for client, item in missing.items()
            if client not in counted and client not in found.due
        }
        return found

    async def _apply_commands(self, agreed: CommandSet, round: int) -> None:
        """Carries out the commands of all three operators."""
        if agreed.close and self._enrolling and self._has_minimum:
            self._enrolling = False
            self._transcript.note(CLOSED.what, round=round)
            await asyncio.to_thread(self._observer.closed)
        if agreed.finish and round > 0 and not self._finishing:
            self._finishing = True
            self._transcript.note(FINISHING.what, round=round)
        if revoked := agreed.revoked - self._revoked:
            final = self._finalized.finalized_among(revoked)
            if revoked := revoked - final.keys():
                await self._revoke(sorted(revoked), round)

    async def _revoke(self, clients: Sequence[str], round: int) -> None:
        """Removes uploads of ``clients`` and deletes them for good."""
        known = self._registry.find(clients)
        gone = {c: entry for c, entry in known.items() if not entry.gone}
        uploads: dict[str, Value] = {c: gone[c].upload if c in gone else "" for c in clients}
        self._transcript.note(REVOKED.what, round=round, clients=uploads)
        await self._subtract(list(gone.values()), round)
        for client in clients:
            self._revoked.add(client)
            self._registry.end(client, MAX_VERSION)
            await asyncio.to_thread(self._submissions.settle, client, MAX_VERSION)
            if client in gone:
                record = ParticipantRecord(client, gone[client].upload, round, Exclusion.REVOKED)
                self._registry.exclude([(record, MAX_VERSION)])

    async def _remove_withdrawn(self, found: Agreement, round: int) -> None:
        """Removes uploads that are withdrawn, or replaced by a due one, from the total, and deletes them.

        Shares are deleted after they were subtracted; a server that is killed between the two hears of the withdrawal
        again, or lists an upload that no other server lists.
        """
        known = self._registry.find([*found.withdrawn, *found.due])
        gone = [
            entry for entry in known.values() if not entry.gone and _is_superseded(entry, found)
        ]
        replaced: dict[str, Value] = {
            entry.client: [entry.upload, found.due[entry.client].digest]
            for entry in gone
            if entry.client in found.due and not entry.held
        }
        if found.withdrawn:
            shown: dict[str, Value] = {c: _withdrawal_value(w) for c, w in found.withdrawn.items()}
            self._transcript.note(WITHDRAWN.what, round=round, clients=shown)
        if replaced:
            self._transcript.note(REPLACED.what, round=round, clients=replaced)
        await self._subtract(gone, round)
        for client, signed in found.withdrawn.items():
            said = signed.withdrawal
            self._registry.end(client, said.version)
            await asyncio.to_thread(self._submissions.settle, client, said.version, signed)
            entry = self._registry.find([client]).get(client)
            if entry is None or (entry.gone and entry.version < said.version):
                record = ParticipantRecord(client, said.digest(), round, Exclusion.WITHDRAWN)
                self._registry.exclude([(record, said.version)])
        for client, item in found.due.items():
            if item.version > 1:
                await asyncio.to_thread(self._submissions.settle, client, item.version - 1)

    async def _subtract(self, gone: Sequence[RegistryEntry], round: int) -> None:
        """Subtracts uploads from the total, as far as they are in it, and drops their registry entries."""
        limit = RowLimit(NO_CHECK, self._config.clients.rows_per_client)
        inside = (self._submissions.stored(e.client, e.upload) for e in gone if e.counted)
        for form, submissions in in_batches(self._forms, inside):
            batch = await self._batch(submissions, round, limit)
            batch = self._announce_batch(form, batch) if form.by_capacity else batch
            total, zero = (
                self._require_total(),
                RunningTotal.empty(round, self._ctx.pid, self._cells),
            )
            added = await form.add(self._ctx, zero.share, batch)
            self._total = replace(total, share=total.share - added.total)
        self._registry.drop(entry.client for entry in gone)

    async def _recount(self, round: int) -> None:
        """Counts all members of the total again, in its order, into new cells, if ``recount_with`` has been called."""
        if not self._recount_due:
            return
        self._recount_due = False
        total = RunningTotal.empty(round, self._ctx.pid, self._cells)
        limit = RowLimit(NO_CHECK, self._config.clients.rows_per_client)
        members = (self._submissions.stored(*member) for member in self._registry.members)
        for form, submissions in in_batches(self._forms, members):
            batch = await self._batch(submissions, round, limit)
            batch = self._announce_batch(form, batch, RECOUNTING)
            total = replace(total, share=(await form.add(self._ctx, total.share, batch)).total)
        self._total = replace(total, members=self._registry.members)

    async def _batch(
        self, submissions: Sequence[StoredSubmission], round: int, limit: RowLimit
    ) -> SubmissionBatch:
        """A batch with its bodies."""
        bodies = await asyncio.to_thread(self._bodies, submissions)
        compute = self._config.compute
        return SubmissionBatch(
            round, tuple(submissions), bodies.__getitem__, limit, compute=compute
        )

    def _bodies(self, submissions: Sequence[StoredSubmission]) -> dict[str, bytes]:
        read = self._submissions.read
        return {
            s.submission.client: read(s.submission.client, s.submission.version)
            for s in submissions
        }

    async def _add(
        self, form: InputForm, submissions: Sequence[StoredSubmission], round: int
    ) -> None:
        """Compares and adds the shares of one batch of clients."""
        began = time.monotonic()
        limit = RowLimit(self._config.run.check, self._config.clients.rows_per_client)
        batch = await self._batch(submissions, round, limit)
        with self._ctx.step(CLIENTS_COMPARE.name, round=round) as c:
            accused = await compare_components(c, batch.submissions)
        by = {accusation.client: accusation.by for accusation in accused}
        excluded = dict.fromkeys(by, Exclusion.COMPONENTS_DIFFER)
        whole, total = batch.without(excluded), self._require_total()
        if form.by_capacity and whole.clients:
            whole = self._announce_batch(form, whole)
        added = await form.add(self._ctx, total.share, whole)
        self._total = replace(total, share=added.total)
        self._registry.count(whole.without(added.failed).submissions, form.together, round)
        excluded |= dict.fromkeys(added.failed, Exclusion.OUT_OF_BOUNDS)
        for accusation in accused:
            self._transcript.note(ACCUSED.what, round=round, **accusation.to_dict())
        out = []
        for stored in batch.submissions:
            client = stored.submission.client
            reason = excluded.get(client)
            record = ParticipantRecord(client, stored.upload, round, reason, by.get(client, ()))
            self._record_outcome(record)
            if reason is not None:
                out.append((record, stored.submission.version))
        self._registry.exclude(out)
        self._added_s += time.monotonic() - began

    def _announce_batch(
        self, form: InputForm, batch: SubmissionBatch, note: Note = COUNTING
    ) -> SubmissionBatch:
        """Notes the batch in the transcript before its rows are counted."""
        capacities: Value = {s.submission.client: s.submission.capacity for s in batch.submissions}
        self._transcript.note(
            note.what, round=batch.round, form=form.together, capacities=capacities
        )
        return replace(batch, progress=self._observer.counting(batch))

    def _record_outcome(self, record: ParticipantRecord) -> None:
        self._transcript.client(
            client=record.client,
            digest=record.digest,
            round=record.round,
            accepted=record.excluded is None,
            reason=record.excluded or "",
        )

    def _require_total(self) -> RunningTotal:
        if self._total is None:
            raise RuntimeError("count_in sets the total first")
        return self._total


def _is_on_page(heard: SyncPage, client: str) -> bool:
    """True if ``client`` is in the page's range of names."""
    return heard.after < client and (heard.upto is None or client <= heard.upto)


def _is_superseded(known: RegistryEntry, found: Agreement) -> bool:
    """True if the participant has withdrawn the entry's upload, or a later version is due instead."""
    signed = found.withdrawn.get(known.client)
    withdrawn = signed is not None and known.version <= signed.withdrawal.version
    return withdrawn or known.client in found.due


def _withdrawal_value(signed: SignedWithdrawal) -> dict[str, Value]:
    return {name: value for name, value in signed.to_dict().items() if name != "client"}
