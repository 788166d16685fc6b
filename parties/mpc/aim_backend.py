"""AIM's backend on secret shares: the core of DistAIM (FLAIM paper, Algorithm 3; protocols/README.md).

``MpcBackend`` holds one server's share of the running total and releases choices and noisy marginals through
``protocols.select`` and ``protocols.measure``. ``server_ledger`` makes every charge durable in this server's own ledger
before the protocol that opens the value starts.

``BitCache`` holds the bits of the running total from one selection to the next (`protocols.count_bits`). A selection
makes the bits when it first needs them. They stay, by candidate, until a client is added or removed, and in memory
alone: a restart makes them again. The cheaper way decides whether bits are made at all, computed from facts that all
three servers have alike.

Secret: the share and the bits. Public: released values, and the candidates that have bits.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import ZCDP, Accountant, LedgerEntry, Schedule
from mechanisms.errors import BudgetExceeded
from mechanisms.events import Event, event_to_dict
from mechanisms.scores import ScoreSpec
from mechanisms.workload import Workload
from parties.foundation.errors import StoreError
from parties.mpc.agreement import save_selection
from parties.mpc.openings import Openings, choice_name, commit_inputs, measurement_name
from parties.mpc.participants.admission import Admission
from parties.mpc.planning.validation import selectable_candidates
from parties.mpc.records import Checkpoint, RoundInputs, members_digest
from parties.mpc.steps import PREPARE
from parties.mpc.storage.store import Store
from parties.mpc.transcript_schema import INPUTS, REPEATED, ROUND, SELECTED, SELECTING
from parties.observability.events import Progress, round_text
from parties.storage.privacy_ledger import DurableLedger
from protocols.context import Context
from protocols.costs import Cost, with_verifier
from protocols.count_bits import CountBits
from protocols.measure import Noise, measure
from protocols.ring import R32
from protocols.select import keep_bits, select
from protocols.select_spec import bounds, integer_bits
from protocols.shares import Share
from protocols.steps import MEASURE, MEASURE_NOISE, SELECT, SELECT_BITS, SELECT_SCORES, Selection
from protocols.supply import GumbelSupply, lacking
from protocols.transcript import Transcript
from protocols.verify import ProductVerifier


class BitCache:
    """Bits of a total's counts, by candidate. Secret."""

    def __init__(self, workload: Workload, *, verified: bool = False) -> None:
        self._workload = workload
        self._verified = verified
        self._of: dict[int, CountBits] = {}
        self._members: str | None = None
        self._steady = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(candidates={len(self._of)})"

    def begin_round(self, members: str) -> None:
        """Drops the bits of another total. ``members`` is the digest of this round's members."""
        self._steady = members == self._members
        self._members = members
        if not self._steady:
            self._of.clear()

    def choose(
        self, candidates: Sequence[int], direct: Selection, *, rounds_left: int
    ) -> tuple[Selection, list[int]]:
        """Chooses the cheaper way of computing a selection's errors, and the candidates whose bits it has to make.

        ``direct`` are the selection's facts without bits. ``rounds_left`` is the number of selections that may still
        come, this one included. If this round has changed the total, the estimate assumes that every round will.
        """
        sizes = dict(zip(candidates, direct.sizes, strict=True))
        missing = [i for i in candidates if not self._has(i, integer_bits(direct.error_bits))]
        kept = replace(direct, kept=True, made=[sizes[i] for i in missing])
        rounds = rounds_left if self._steady else 1
        errors, bits = SELECT_SCORES.of, SELECT_BITS.of
        with with_verifier(self._verified):
            made = _bytes(bits(kept))
            if rounds * _bytes(errors(kept)) + made < rounds * _bytes(errors(direct)):
                return kept, missing
        return direct, []

    async def make(self, ctx: Context, counts: Share, missing: Sequence[int], bits: int) -> None:
        """Makes and keeps the bits of the ``missing`` candidates; ``counts`` (cells,) are those of all. Leaks: none."""
        if not missing:
            return
        parts = (self._workload.gather(bits_sh, missing) for bits_sh in (counts.own, counts.next))
        sizes = [self._workload.offsets[i + 1] - self._workload.offsets[i] for i in missing]
        made = await keep_bits(ctx, Share(R32, counts.pid, *parts), sizes, bits)
        self._of |= zip(missing, made, strict=True)

    def of(self, candidates: Sequence[int], bits: int) -> CountBits:
        """Lowest ``bits`` bits of these candidates, which must all have them."""
        return CountBits.joined([self._of[i].lowest(bits) for i in candidates])

    def _has(self, candidate: int, bits: int) -> bool:
        return candidate in self._of and self._of[candidate].bits >= bits


def _bytes(cost: Cost) -> int:
    return sum(cost.sent)


def server_ledger(
    store: Store,
    transcript: Transcript,
    budget: float,
    *,
    accountant: Accountant = ZCDP,
    first: Callable[[LedgerEntry], object] = lambda entry: None,
) -> DurableLedger:
    """This server's ledger: after ``first``, a charge becomes durable in the store, then in the transcript.

    Raises ValueError.
    """

    def then(entry: LedgerEntry) -> None:
        transcript.ledger(
            round=entry.round,
            step=entry.step,
            event=event_to_dict(entry.event),
            rho=entry.rho,
            spent=ledger.spent,
            opening=entry.opening,
        )

    ledger = DurableLedger(store, budget, accountant=accountant, first=first, then=then)
    return ledger


class MpcBackend:
    """A ``mechanisms.aim.Backend`` on one server's share of the counts.

    ``selections`` are selections opened by an interrupted run whose measurement is still to come: they are used again.
    ``measured`` is the number of measurements of round 0 that exist already. ``openings`` names the openings; an
    opening that was charged under its name before a restart is repeated with the same noise, and not charged again.
    ``alone`` is the number of charges that neither other server has. ``register`` enters the participants so far in the
    registry of releases, before the first opening of a round.
    """

    def __init__(
        self,
        ctx: Context,
        workload: Workload,
        plan: Schedule,
        *,
        admission: Admission,
        ledger: DurableLedger,
        store: Store,
        transcript: Transcript,
        progress: Progress,
        max_rows: int,
        selections: Mapping[int, int],
        measured: int = 0,
        noise: Noise,
        openings: Openings,
        alone: int = 0,
        register: Callable[[], None] = lambda: None,
    ) -> None:
        self._ctx = ctx
        self._workload = workload
        self._most = len(selectable_candidates(workload))
        self._plan = plan
        self._admission = admission
        self._ledger = ledger
        self._store = store
        self._transcript = transcript
        self._progress = progress
        self._max_rows = max_rows
        self._selections = dict(selections)
        self._measured = measured
        self._noise = noise
        self._openings = openings
        self._alone = alone
        self._register = register
        self._digest = workload.digest()
        self._inputs: RoundInputs | None = None
        self._members = ""
        self._prepared: Share | None = None
        self._gumbels = GumbelSupply()
        self._pool = ""
        """Name under which the remaining samples were made: that of the choice for which they were made."""
        self._pool_size = 0
        self._round = 0
        self._clients = 0
        self._counts: Share | None = None
        self._kept = BitCache(workload, verified=ctx.verifier is not None)

    def __repr__(self) -> str:
        return f"MpcBackend(round={self._round}, clients={self._clients})"

    async def begin_round(self, round: int) -> int:
        """Admits the round's clients; see ``Backend.begin_round``.

        Raises BudgetExceeded before anything is charged, TooFewClients, ChannelError, ProtocolViolation.
        """
        self._require(self._due(round))
        if round == 0:
            total, self._prepared = await self._ctx.both(
                lambda _: self._admission.admit(0), self._prepare
            )
        else:
            # Noise prepared for round 0 has round 0's sigma, which an annealed round need not have.
            total, self._prepared = await self._admission.admit(round), None
        self._counts = await asyncio.to_thread(self._expand, total.share)
        # Sorted, because admission after a restart may come in another order.
        self._members, self._inputs = members_digest(sorted(total.members)), None
        self._kept.begin_round(self._members)
        self._round, self._clients = round, len(total.members)
        self._transcript.note(ROUND.what, round=round, clients=self._clients)
        self._progress.event(
            "round",
            f"{round_text(round, self._plan)}: {self._clients} data owners counted",
            round=round,
            clients=self._clients,
        )
        if round == 0:
            first = self._openings.first(self._digest, self._members, self._plan.initial_sigma)
            await self._commit(first)
        return self._clients

    def _require(self, events: Sequence[Event]) -> None:
        """Raises BudgetExceeded, or StoreError if only this server cannot pay, so that the others would go on."""
        try:
            self._ledger.require(events)
        except BudgetExceeded as problem:
            if not self._alone:
                raise
            raise StoreError(
                self._store.directory,
                f"has {self._alone} charges that neither other server has, and cannot pay for what these can: "
                f"{problem}; expected the folder as it was left, or a new configuration",
            ) from problem

    async def _commit(self, inputs: RoundInputs) -> RoundInputs:
        """Inputs of the round, recorded at all three servers."""
        self._inputs = recorded = await commit_inputs(
            self._ctx,
            self._store.releases,
            self._openings,
            inputs=inputs,
            register=self._register,
        )
        self._transcript.note(
            INPUTS.what,
            round=recorded.round,
            digest=recorded.digest,
            noise=recorded.noise,
            made=recorded.made,
            skip=recorded.skip,
        )
        return recorded

    async def _prepare(self, ctx: Context) -> Share:
        """Noise for the one-way marginals of round 0, all at once, while the servers wait for clients.

        Noise is made for all of them, even if some are measured already, so that each has the same noise as before.
        """
        cells = sum(self._sizes[i] for i in self._workload.one_way)
        name = self._openings.first_noise(self._digest, self._plan.initial_sigma)
        with (
            ctx.step(PREPARE.name, round=0) as c,
            c.step(MEASURE_NOISE.name, round=0) as step,
            step.noise_of(self._openings.source(name)) as n,
        ):
            if n.verifier is None:
                return await self._noise.samples(n, cells, self._plan.initial_sigma, self._max_rows)
            # Noise has its own verifier, because the concurrent work is proved at other times.
            c.verifier = n.verifier = ProductVerifier()
            samples = await self._noise.samples(n, cells, self._plan.initial_sigma, self._max_rows)
            await c.verifier.settle(c)
            return samples

    @property
    def _sizes(self) -> list[int]:
        return [self._workload.domain.size(query) for query in self._workload.candidates]

    def _prepared_for(self, candidate: int) -> Share | None:
        """Prepared noise of a candidate in round 0; None in later rounds."""
        if self._prepared is None:
            return None
        one_way, sizes = self._workload.one_way, self._sizes
        start = sum(sizes[i] for i in one_way[: one_way.index(candidate)])
        return self._prepared[start : start + sizes[candidate]]

    def _due(self, round: int) -> Sequence[Event]:
        """Charges that ``round`` may still need, without those already made for the same inputs."""
        events, recorded = self._plan.events(round), self._openings.recorded.get(round)
        if recorded is None:
            return events[self._measured :] if round == 0 else events
        charged = [e for e in self._ledger.entries if e.round == round]
        if round == 0:
            names = (
                measurement_name(recorded, i, self._plan.initial_sigma)
                for i in self._workload.one_way
            )
            return events[sum(self._ledger.paid(name) is not None for name in names) :]
        if not any(e.opening == choice_name(recorded) for e in charged):
            return events
        return events[1 + any(e.step == MEASURE.name for e in charged) :]

    def _charge(self, step: str, event: Event, opening: str) -> None:
        """Charges for an opening, unless it was charged before: with the same inputs it reveals nothing new."""
        if self._ledger.paid(opening) is None:
            self._ledger.charge(self._round, step, event, opening=opening)
            return
        self._transcript.note(
            REPEATED.what,
            round=self._round,
            step=step,
            event=dict(event_to_dict(event)),
            opening=opening,
        )
        self._transcript.flush()

    def _expand(self, total: Share) -> Share:
        """Share of all candidates' cells."""
        expand = self._workload.expand
        return Share(R32, total.pid, expand(total.own), expand(total.next))

    async def select(self, spec: ScoreSpec, scale: float) -> int:
        """Position in ``spec`` that ``protocols.select`` opens; charged before.

        Leaks: the index. Rounds, Communication: ``protocols.select.select``. Raises BudgetExceeded, ProtocolError,
        StoreError if the selection from before the restart is no candidate.
        """
        if scale != self._plan.epsilon:
            raise ValueError(f"a selection with epsilon {scale} is not in the plan")
        known = self._selections.pop(self._round, None)
        if known is not None and known not in spec.candidates:
            query = ", ".join(self._workload.candidates[known])
            raise StoreError(
                self._store.directory,
                f"{round_text(self._round, self._plan)} had selected ({query}) before the restart, which is no "
                "candidate any more; expected the checkpoints and the config of the same run",
            )
        count, left = len(spec.candidates), self._plan.rounds - self._round + 1
        inputs = await self._commit(self._inputs_of(spec, scale, count, left))
        if known is not None:
            self._selected(known, "again, from before the restart")
            return spec.candidates.index(known)
        samples, skip = self._samples(inputs)
        # Invalid bounds raise here, before the charge, instead of in the protocol after it.
        direct = Selection([int(size) for size in spec.sizes], *bounds(spec), samples)
        self._charge(SELECT.name, self._plan.selection, choice_name(inputs))
        facts, made = self._kept.choose(spec.candidates, direct, rounds_left=left)
        self._transcript.note(
            SELECTING.what,
            round=self._round,
            candidates=self._mask(spec.candidates),
            kept=facts.kept,
            made=self._mask(made),
            samples=samples,
            skip=skip,
        )
        source = self._openings.source(inputs.noise)
        with self._ctx.step(SELECT.name, round=self._round) as c:
            kept = await self._bits(c, spec, made, facts)
            noise = partial(self._gumbels.take, lacking=samples, source=source, skip=skip)
            position = await select(c, self._gather(spec), spec, kept=kept, noise=noise)
        # A selection in the store is never opened again, so its transcript record comes first.
        self._transcript.flush()
        save_selection(self._store, self._round, spec.candidates[position])
        self._selected(spec.candidates[position], f"out of {len(spec.candidates)}")
        return position

    def _inputs_of(self, spec: ScoreSpec, scale: float, count: int, left: int) -> RoundInputs:
        """Inputs of the round, with the noise samples for its choice: the remaining ones, or new ones."""
        digest = self._openings.selection(self._round, self._digest, self._members, spec, scale)
        if self._openings.is_avoided(self._round) or self._gumbels.samples < count:
            noise = self._openings.noise(self._round, digest)
            return RoundInputs(self._round, digest, noise, lacking(0, count, self._most, left))
        used = self._pool_size - self._gumbels.samples
        return RoundInputs(self._round, digest, self._pool, self._pool_size, used)

    def _samples(self, inputs: RoundInputs) -> tuple[int, int]:
        """Number of samples made for the choice, and number skipped of these; (0, 0) if the samples exist already."""
        used = self._pool_size - self._gumbels.samples
        if (inputs.noise, inputs.made, inputs.skip) == (self._pool, self._pool_size, used):
            return 0, 0
        self._gumbels, self._pool, self._pool_size = GumbelSupply(), inputs.noise, inputs.made
        return inputs.made, inputs.skip

    def _mask(self, candidates: Sequence[int]) -> str:
        among = np.zeros(len(self._workload.candidates), np.bool_)
        among[list(candidates)] = True
        return np.packbits(among).tobytes().hex()

    async def _bits(
        self, ctx: Context, spec: ScoreSpec, made: Sequence[int], facts: Selection
    ) -> CountBits | None:
        """Bits of the candidates' counts, or None if the selection does without them."""
        if not facts.kept:
            return None
        bits = integer_bits(facts.error_bits)
        await self._kept.make(ctx, self._require_counts(), made, bits)
        return self._kept.of(spec.candidates, bits)

    def _selected(self, candidate: int, how: str) -> None:
        query = ", ".join(self._workload.candidates[candidate])
        self._transcript.note(SELECTED.what, round=self._round, candidate=candidate, query=query)
        self._progress.event(
            "selected",
            f"{round_text(self._round, self._plan)}: selected ({query}) {how}",
            round=self._round,
            query=query,
        )

    def _gather(self, spec: ScoreSpec) -> Share:
        counts = self._require_counts()
        own = self._workload.gather(counts.own, spec.candidates)
        return Share(R32, self._ctx.pid, own, self._workload.gather(counts.next, spec.candidates))

    async def measure(self, candidate: int, sigma: float) -> NDArray[np.float64]:
        """Noisy counts that ``protocols.measure`` opens; charged before, and durably stored before they are returned.

        Leaks: the noisy counts. Rounds, Communication: ``protocols.measure``. Raises BudgetExceeded, ProtocolError,
        StoreError.
        """
        first = self._round == 0
        if sigma != (self._plan.initial_sigma if first else self._plan.sigma):
            raise ValueError(f"a measurement with deviation {sigma} is not in the plan")
        if self._inputs is None:
            raise RuntimeError("begin_round, and from round 1 on select, come first")
        name = measurement_name(self._inputs, candidate, sigma)
        charged = self._plan.initial if first else self._plan.measurement
        self._charge(MEASURE.name, charged, name)
        counts = self._require_counts()[self._workload.slice(candidate)]
        with self._ctx.step(MEASURE.name, round=self._round) as c:
            noisy = await measure(
                c,
                counts,
                sigma,
                self._max_rows,
                self._noise,
                prepared=self._prepared_for(candidate) if first else None,
                source=self._openings.source(name),
            )
        self._transcript.flush()
        checkpoint = Checkpoint(self._round, candidate, sigma, self._clients, noisy)
        self._store.releases.save_checkpoint(checkpoint)
        return noisy

    def _require_counts(self) -> Share:
        if self._counts is None:
            raise RuntimeError("begin_round comes first")
        return self._counts
