"""Admission of participants: the three servers wait, compare their submissions, and add shares to the running total.

A client is counted from its first round on under three conditions: all three servers hold their parts of the same
signed upload, its components are the same at both their holders (`parties.mpc.participants.consistency`), and its
counts are within their bound. Until a round begins with it, its participant may withdraw or replace it: its shares are
subtracted again, at all three servers at the same point (`parties.mpc.participants.removal`). Commands of all three
operators (`parties.session.operator_commands`) are carried out at such a point, too.
`parties.mpc.participants.enrollment_wait` decides how long a server waits, and
`parties.mpc.participants.running_count` adds the shares.

Secret: components, their digests (to the server that lacks the component), and totals. Public: client names, first
rounds, counted and excluded clients. Source: protocols/README.md, section 2; FLAIM paper, Alg. 3.
"""

import asyncio
import json
import time
from collections.abc import (
    AsyncIterator,
    Collection,
    Iterator,
    Sequence,
)
from dataclasses import astuple
from functools import partial
from typing import Protocol

from mechanisms.errors import FinishedEarly
from parties.config import Config
from parties.foundation.exit_codes import TooFewClients
from parties.identity.signing import Issuer
from parties.mpc.exclusion import Exclusion
from parties.mpc.participants.batching import Batcher, FormGroup
from parties.mpc.participants.control import AdmissionControl
from parties.mpc.participants.enrollment_wait import EnrollmentWait, WaitObserver
from parties.mpc.participants.listing import (
    Agreement,
    IncompleteSubmission,
    WithdrawalScope,
    agree_on_listings,
    agreed_finalized,
    find_lost,
    parse_resume_reply,
)
from parties.mpc.participants.removal import ParticipantRemoval
from parties.mpc.participants.running_count import CountedForms, CountingObserver, RunningCount
from parties.mpc.participants.sync import SyncPage, sync_participants
from parties.mpc.records import ParticipantRecord, RunningTotal, StoredSubmission, members_digest
from parties.mpc.replay.effects import Effects, ParticipantView
from parties.mpc.steps import CLIENTS_COUNT, CLIENTS_RESUME
from parties.mpc.transcript_schema import (
    CLOSED,
    COUNTED,
    FINISHING,
    INCOMPLETE,
    TOTAL,
)
from parties.session.operator_commands import CommandSet
from protocols.context import Context
from protocols.echo import echo
from protocols.errors import CheckFailed
from protocols.fields import encode
from protocols.transcript import Transcript, Value

_FIRST_SYNC_PAUSE_S = 0.4
"""First pause between synchronisations, in seconds; clients that arrive within it are counted together."""
_LISTING_SHARE = 0.1
"""Maximum share of a waiting server's time that goes into listings."""


class AdmissionObserver(WaitObserver, CountingObserver, Protocol):
    """Observer of the admission of participants."""

    def closed(self) -> None:
        """Called from a thread when all three operators have closed the run to participants, or rows are joined."""


class Admission:
    """Clients counted so far, and this server's share of their counts' running total.

    ``recorded`` are the rounds whose inputs were recorded before a restart: no client is added to them.
    """

    def __init__(
        self,
        ctx: Context,
        config: Config,
        participants: ParticipantView,
        *,
        forms: CountedForms,
        transcript: Transcript,
        effects: Effects,
        control: AdmissionControl,
        authority: Issuer,
        recorded: Collection[int] = (),
        observer: AdmissionObserver,
    ) -> None:
        self._ctx = ctx
        self._config = config
        self._participants = participants
        self._registry = participants.registry
        """Held, counted and excluded clients; changes since the last round may be undone."""
        self._transcript = transcript
        self._effects = effects
        self._withdrawal_scope = WithdrawalScope(config.run.id, config.digest(), authority)
        self._commands = control.commands
        self._recorded = recorded
        self._on_closed = observer.closed
        self._wait = EnrollmentWait(config.clients, participants, control, observer)
        self._count = RunningCount(
            ctx, config, participants, forms=forms, transcript=transcript, observer=observer
        )
        self._removal = ParticipantRemoval(participants, self._count, transcript)
        self._revoked: set[str] = set()
        """Clients that all three operators revoke."""
        self._enrolling, self._has_begun = True, False
        self._incomplete: dict[str, IncompleteSubmission] = {}
        """Clients whose uploads some servers lack; the only collection in memory that grows with participants."""
        self.seconds = 0.0
        """Time spent so far on admission, waiting included, in seconds."""

    @property
    def clients(self) -> Collection[str]:
        """Clients counted so far."""
        return () if self._count.total is None else self._registry.members.names

    def __repr__(self) -> str:
        return f"{type(self).__name__}(total={self._count.total!r})"

    @property
    def records(self) -> list[ParticipantRecord]:
        """Records of the participants that any server listed, as if the run ended now; by client.

        If this process admits no one because all rounds are done, the stored records.
        """
        if self._count.total is None:
            return self._participants.records.all()
        records = self._records_of_rounds_done() if self._wait.finishing else self._records()
        return sorted(records, key=lambda s: s.client)

    def _records_of_rounds_done(self) -> Iterator[ParticipantRecord]:
        """Records for a run that ends before the round that was to be admitted: nobody is decided on for that one.

        Who is in an earlier round's total was counted, even if a server has lost its shares since.
        """
        final = self._participants.finalized.finalized()
        excluded = {r.client: r for r in self._participants.records.all() if r.excluded}
        if self._has_begun:
            excluded |= {r.client: r for r in self._registry.records() if r.excluded}
        for item in final:
            excluded.pop(item.client, None)
            yield ParticipantRecord(item.client, item.upload, item.round)
        yield from excluded.values()

    def _records(self) -> Iterator[ParticipantRecord]:
        left = {
            client: ParticipantRecord(
                client, item.digest, item.round, Exclusion.INCOMPLETE, item.missing
            )
            for client, item in self._incomplete.items()
        }
        yield from (record for record in self._registry.records() if record.client not in left)
        yield from left.values()

    def recount_with(self, forms: CountedForms) -> None:
        """See ``RunningCount.recount_with``."""
        self._count.recount_with(forms)

    async def admit(self, round: int) -> RunningTotal:
        """Running total for ``round``, with every client whose first round has come and that is complete everywhere.

        The first call of a run waits for clients, adding them as they come; later calls take the clients that are
        there. Raises TooFewClients if fewer than the configured minimum are counted, FinishedEarly if all three
        operators end the run with the rounds before this one, ChannelError, ProtocolViolation.
        """
        started = time.perf_counter()
        if self._count.total is None:
            self._count.total = total = await self._common_total(round)
            if not (round in self._recorded and total.round == round and total.members):
                await self._count_while_waiting(round)
        else:
            await self._count.recount(round)
            await self._admit_due(round, ready=True, hold=False, last=True)
        if self._wait.finishing:
            raise FinishedEarly(f"all three operators end the run before round {round}")
        if self._incomplete:
            missing: Value = {c: list(item.missing) for c, item in self._incomplete.items()}
            self._transcript.note(INCOMPLETE.what, round=round, clients=missing)
        if self._registry.counted < self._config.clients.minimum:
            raise TooFewClients(
                f"round {round}: {self._registry.counted} data owners are complete at all three servers, "
                f"{self._participants.submissions.count()} have reached this one; expected at least "
                f"clients.minimum = {self._config.clients.minimum} {self._wait.text}"
            )
        self._check_sources()
        self._check_recorded(round)
        await self._prove(round)
        share, members = self._count.require().share, self._registry.members
        self._count.total = total = RunningTotal(round, share, members)
        key = await asyncio.to_thread(self._participants.totals.commitment_key)
        commitment = await asyncio.to_thread(total.commitment, key)
        self._transcript.note(TOTAL.what, round=round, commitment=encode(commitment))
        # The commitment is on disk before the total, which a restart may use.
        self._transcript.flush()
        await asyncio.to_thread(self._participants.totals.save, total)
        await asyncio.to_thread(self._participants.records.save, self._records())
        self._has_begun = True
        self.seconds += time.perf_counter() - started
        return total

    def _check_recorded(self, round: int) -> None:
        """Raises CheckFailed if a recorded round would be counted without one of its members.

        Nothing is stored then: one server that lacks an upload, or claims so, would keep the run from ever ending.
        """
        if lacking := self._lost(round):
            client, missing = min(lacking.items())
            raise CheckFailed(
                f"round {round} has begun with {len(lacking)} data owners whose uploads are not at all three servers "
                f"any more, {client!r} among them, which parties {', '.join(map(str, missing))} do not list; expected "
                "the servers' folders as they were left, or the word of all three operators to end the run with the "
                "rounds done (syncret study finish)"
            )

    def _check_sources(self) -> None:
        """Raises TooFewClients if a source has no counted client: no row would join, and noise alone be paid for."""
        for source in self._config.sources:
            if not any(entry.counted for entry in self._registry.find(source.owners).values()):
                raise TooFewClients(
                    f"no data owner of source {source.name!r} is complete at all three servers {self._wait.text}; "
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
            number: members_digest(self._participants.totals.load(number, self._ctx.pid).members)
            for number in self._participants.totals.rounds()
        }
        said = {
            "totals": sorted(held.items()),
            "final": [astuple(item) for item in self._participants.finalized.finalized()],
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
        await asyncio.to_thread(self._participants.totals.retain, common)
        await asyncio.to_thread(self._participants.finalized.save_finalized, agreed)
        total = self._count.empty(round)
        if common:
            found = self._participants.totals.load(max(common), self._ctx.pid)
            if found.share.shape == total.share.shape:
                self._transcript.note(COUNTED.what, round=round, clients=list(found.clients))
                total = found
        rounds = {s.client: s.round for s in self._participants.records.all() if s.excluded is None}
        self._registry.begin(total.members, rounds, total.round)
        return RunningTotal(total.round, total.share, self._registry.members)

    async def _count_while_waiting(self, round: int) -> None:
        """Admits clients until each server has all expected ones, or expects no more, or has waited long enough.

        The servers synchronise at growing intervals, so that a silent server is noticed within the receive deadline.
        Where all expected ones have sent, and too few are complete, or a round has begun with one that no longer is,
        as after a server has lost its folder, all three go on waiting for the missing parts, or for their operators:
        what they decide by is the same at all three.
        """
        self._wait.begin(round)
        longest = self._config.timeouts.receive_s / 4
        pause, all_ready, patient = _FIRST_SYNC_PAUSE_S, False, False
        while not all_ready:
            known = self._registry.known
            began, added_s = time.monotonic(), self._count.seconds
            ready = self._effects.once_json(
                "ready", partial(self._wait.ready, self._incomplete, patient=patient)
            )
            all_ready = await self._admit_due(round, ready=ready, hold=True, last=False)
            waited, patient = patient, (patient or all_ready) and self._lacks_parts(round)
            if patient and not waited:
                all_ready = False
            if self._registry.held and (all_ready or self._batch_is_full):
                # A participant may have withdrawn or replaced a held upload meanwhile, so the servers agree anew before
                # counting.
                self._registry.release()
                await self._admit_due(round, ready=ready, hold=False, last=all_ready)
            listed_s = time.monotonic() - began - (self._count.seconds - added_s)
            if not all_ready:
                if self._registry.known > known:
                    pause = _FIRST_SYNC_PAUSE_S
                    self._wait.arrived()
                pause = min(max(pause * 1.5, listed_s / _LISTING_SHARE), longest)
                await self._wait.sleep(pause, self._incomplete, patient=patient)

    def _lacks_parts(self, round: int) -> bool:
        """True if too few submissions are complete, or not all that ``round`` has begun with, and others may become."""
        if self._wait.finishing:
            return False
        return bool(self._lost(round)) or (bool(self._incomplete) and not self._wait.has_minimum)

    def _lost(self, round: int) -> dict[str, tuple[int, ...]]:
        """Members of a round that has begun whose uploads some servers lack, and these servers."""
        if round not in self._recorded:
            return {}
        return {c: item.missing for c, item in self._incomplete.items() if item.final}

    @property
    def _batch_is_full(self) -> bool:
        """True if the held clients fill a batch of any form."""
        forms = {form.together: form for form in self._count.forms.by_name.values()}
        return any(
            forms[kind].exceed_batch(owners, rows)
            for kind, owners, rows in self._registry.held_by_kind()
        )

    async def _admit_due(self, round: int, *, ready: bool, hold: bool, last: bool) -> bool:
        """Counts the clients due by ``round``, page by page, in one order; True if all three servers are ready.

        A client is due if it is not counted yet and its upload is the same at all three servers; withdrawn and replaced
        uploads are removed at the same point. Clients of round 1 are counted in the initial measurements (round 0)
        already.

        For forms with work for every batch, a few clients at a time would cost as much as many. With ``hold``, clients
        of such forms are entered in the registry and wait; without, the clients that fill no batch wait, unless this is
        the ``last`` call of the round. All three servers hold the same clients.
        """
        batching, all_ready = Batcher(self._count.forms.by_name), False
        async for heard, due in self._synchronized(round, ready=ready):
            if not heard.after:
                all_ready = all(one.ready for one in heard.listings)
            if self._wait.finishing:
                continue
            if hold:
                due = self._hold_due(due)
            for form, submissions in batching.add(due):
                await self._count.add(form, submissions, round)
        remaining = batching.remainder()
        if last and self._enrolling and self._can_join(remaining):
            # Rows are joined once, so the run is closed before the join.
            self._enrolling = False
            await asyncio.to_thread(self._on_closed)
        for form, submissions in remaining:
            if form.by_capacity and not last:
                self._registry.hold(submissions, form.together)
            else:
                await self._count.add(form, submissions, round)
        return all_ready

    def _hold_due(self, due: Sequence[StoredSubmission]) -> list[StoredSubmission]:
        """Holds clients of ``due`` whose forms have work for every batch, and returns the other submissions."""
        for form in self._count.forms.by_name.values():
            if form.by_capacity:
                waiting = [s for s in due if self._count.forms.by_name[s.submission.form] is form]
                self._registry.hold(waiting, form.together)
        return [s for s in due if not self._count.forms.by_name[s.submission.form].by_capacity]

    async def _synchronized(
        self, round: int, *, ready: bool
    ) -> AsyncIterator[tuple[SyncPage, list[StoredSubmission]]]:
        """Yields the three servers' pages with the due submissions; carries out commands and withdrawals on the way."""
        commands = CommandSet.from_dict(
            self._effects.once_json("asked", lambda: self._commands.asked.to_dict())
        )
        # Rows of all sources are joined once: a client that comes after that comes too late.
        joined = self._config.sources and self._registry.counted
        pages = sync_participants(
            self._ctx,
            self._participants.submissions,
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
                    self._commands.tell([one.asked for one in heard.listings]), round
                )
            found = await self._resolve_page(heard, round)
            yield heard, [heard.mine[item] for item in found.due.values()]

    async def _resolve_page(self, heard: SyncPage, round: int) -> Agreement:
        """Agreement on a page."""
        clients = set[str]().union(*(one.names() for one in heard.listings))
        final = self._participants.finalized.finalized_among(clients)
        found = agree_on_listings(heard.listings, final, round, self._registry.settled(clients))
        await self._removal.remove_withdrawn(found, round)
        # A withdrawn or excluded upload is decided on. A later upload of its participant is not, and must not be lost
        # unnoticed.
        left = self._participants.finalized.unregistered(heard.after, heard.upto)
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
        if agreed.close and self._enrolling and self._wait.has_minimum:
            self._enrolling = False
            self._transcript.note(CLOSED.what, round=round)
            await asyncio.to_thread(self._on_closed)
        if agreed.finish and round > 0 and not self._wait.finishing:
            self._wait.finishing = True
            self._transcript.note(FINISHING.what, round=round)
        if revoked := agreed.revoked - self._revoked:
            final = self._participants.finalized.finalized_among(revoked)
            if revoked := revoked - final.keys():
                await self._removal.revoke(sorted(revoked), round)
                self._revoked |= revoked


def _is_on_page(heard: SyncPage, client: str) -> bool:
    """True if ``client`` is in the page's range of names."""
    return heard.after < client and (heard.upto is None or client <= heard.upto)
