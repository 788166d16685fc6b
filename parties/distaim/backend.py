"""AIM's backend on secret shares: what DistAIM runs on (FLAIM paper, Algorithm 3; protocols/README.md).

Provides ``MpcBackend``, which holds one server's share of the running total and releases choices and noisy marginals
through ``protocols.select`` and ``protocols.measure``, and ``server_ledger``: every charge is durable in this server's
own ledger before the protocol that opens the value starts. Secret: the share. Public: what is released.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting import LedgerEntry, Schedule
from mechanisms.events import Event, event_to_dict
from mechanisms.scores import ScoreSpec
from mechanisms.workload import Workload
from parties.distaim.agreement import save_selection
from parties.distaim.arrivals import Arrivals
from parties.distaim.kept_bits import KeptBits
from parties.distaim.notes import ROUND, SELECTED, SELECTING
from parties.distaim.steps import PREPARE
from parties.distaim.store import Store
from parties.distaim.stored import Checkpoint, members_digest
from parties.errors import StoreError
from parties.ledger import DurableLedger
from parties.progress import Progress, round_text
from protocols.context import Context
from protocols.count_bits import CountBits
from protocols.measure import Noise, measure
from protocols.ring import R32
from protocols.select import select
from protocols.select_spec import bounds, integer_bits
from protocols.shares import Share
from protocols.steps import MEASURE, MEASURE_NOISE, SELECT, Selection
from protocols.supply import GumbelSupply
from protocols.transcript import Transcript
from protocols.verify import ProductVerifier


def server_ledger(
    store: Store,
    transcript: Transcript,
    budget: float,
    first: Callable[[LedgerEntry], object] = lambda entry: None,
) -> DurableLedger:
    """This server's ledger: after ``first``, a charge is durable in the store, then in the transcript.

    Raises ValueError.
    """

    def then(entry: LedgerEntry) -> None:
        transcript.ledger(
            round=entry.round,
            step=entry.step,
            event=event_to_dict(entry.event),
            rho=entry.rho,
            spent=ledger.spent,
        )

    ledger = DurableLedger(store, budget, first=first, then=then)
    return ledger


class MpcBackend:
    """A ``mechanisms.aim.Backend`` on one server's share of the counts.

    ``selections`` are selections opened by an interrupted run whose measurement is still to come: they are used again
    instead of being paid for twice. ``measured`` counts the measurements of round 0 that are there already.
    """

    def __init__(
        self,
        ctx: Context,
        workload: Workload,
        plan: Schedule,
        *,
        arrivals: Arrivals,
        ledger: DurableLedger,
        store: Store,
        transcript: Transcript,
        progress: Progress,
        max_rows: int,
        selections: Mapping[int, int],
        measured: int = 0,
        noise: Noise,
    ) -> None:
        self._ctx = ctx
        self._workload = workload
        self._plan = plan
        self._arrivals = arrivals
        self._ledger = ledger
        self._store = store
        self._transcript = transcript
        self._progress = progress
        self._max_rows = max_rows
        self._selections = dict(selections)
        self._measured = measured
        self._noise = noise
        self._prepared: Share | None = None
        self._gumbels = GumbelSupply()
        self._round = 0
        self._clients = 0
        self._counts: Share | None = None
        self._kept = KeptBits(workload, verified=ctx.verifier is not None)

    def __repr__(self) -> str:
        return f"MpcBackend(round={self._round}, clients={self._clients})"

    async def begin_round(self, round: int) -> int:
        """Count the round's clients in; see ``Backend.begin_round``.

        Raises BudgetExceeded before anything is charged, TooFewClients, ChannelError, ProtocolViolation.
        """
        self._ledger.require(self._due(round))
        if round == 0:
            total, self._prepared = await self._ctx.both(
                lambda _: self._arrivals.count_in(0), self._prepare
            )
        else:
            # What was made for round 0 has its sigma, which an annealed round need not have.
            total, self._prepared = await self._arrivals.count_in(round), None
        self._counts = await asyncio.to_thread(self._expand, total.share)
        self._kept.begin_round(members_digest(total.members))
        self._round, self._clients = round, len(total.members)
        self._transcript.note(ROUND.what, round=round, clients=self._clients)
        self._progress.event(
            "round",
            f"{round_text(round, self._plan)}: {self._clients} data owners counted",
            round=round,
            clients=self._clients,
        )
        return self._clients

    async def _prepare(self, ctx: Context) -> Share:
        """Noise for the one-way marginals of round 0, all at once, while clients are awaited."""
        sizes = [self._workload.domain.size(query) for query in self._workload.candidates]
        cells = sum(sizes[i] for i in self._workload.one_way[self._measured :])
        with ctx.step(PREPARE.name, round=0) as c, c.step(MEASURE_NOISE.name, round=0) as n:
            if n.verifier is None:
                return await self._noise.samples(n, cells, self._plan.sigma, self._max_rows)
            # A verifier of its own: what is done beside this is proved at other times.
            c.verifier = n.verifier = ProductVerifier()
            samples = await self._noise.samples(n, cells, self._plan.sigma, self._max_rows)
            await c.verifier.settle(c)
            return samples

    def _take_prepared(self, count: int) -> Share | None:
        """The next ``count`` samples of prepared noise, which are then gone; None where there are not that many."""
        held = self._prepared
        if held is None or held.size < count:
            return None
        self._prepared = held[count:]
        return held[:count]

    def _due(self, round: int) -> Sequence[Event]:
        """What is still to be charged in ``round``."""
        events = self._plan.events(round)
        if round == 0:
            return events[self._measured :]
        return events[1:] if round in self._selections else events

    def _expand(self, total: Share) -> Share:
        """The share of all candidates' cells."""
        expand = self._workload.expand
        return Share(R32, total.pid, expand(total.own), expand(total.next))

    async def select(self, spec: ScoreSpec, scale: float) -> int:
        """The position in ``spec`` that ``protocols.select`` opens; charged first.

        Leaks: the index. Rounds, Communication: ``protocols.select.select``. Raises BudgetExceeded, ProtocolError,
        StoreError where the selection from before a restart is no candidate.
        """
        known = self._selections.pop(self._round, None)
        if known is not None:
            if known not in spec.candidates:
                query = ", ".join(self._workload.candidates[known])
                raise StoreError(
                    self._store.directory,
                    f"{round_text(self._round, self._plan)} had selected ({query}) before the restart, which is no "
                    "candidate any more; expected the checkpoints and the config of the same run",
                )
            self._selected(known, "again, from before the restart")
            return spec.candidates.index(known)
        if scale != self._plan.epsilon:
            raise ValueError(f"a selection with epsilon {scale} is not in the plan")
        # Raises here, before the charge, what the protocol would raise after it.
        count, left = len(spec.candidates), self._plan.rounds - self._round + 1
        samples = self._gumbels.lacking(count, left)
        direct = Selection([int(size) for size in spec.sizes], *bounds(spec), samples)
        self._ledger.charge(self._round, SELECT.name, self._plan.selection)
        facts, made = self._kept.choose(spec.candidates, direct, rounds_left=left)
        self._transcript.note(
            SELECTING.what,
            round=self._round,
            candidates=self._mask(spec.candidates),
            kept=facts.kept,
            made=self._mask(made),
            samples=samples,
        )
        with self._ctx.step(SELECT.name, round=self._round) as c:
            kept = await self._bits(c, spec, made, facts)
            noise = partial(self._gumbels.take, lacking=samples)
            position = await select(c, self._gather(spec), spec, kept=kept, noise=noise)
        # What the store keeps is never opened again: the record of it comes first.
        self._transcript.flush()
        save_selection(self._store, self._round, spec.candidates[position])
        self._selected(spec.candidates[position], f"out of {len(spec.candidates)}")
        return position

    def _mask(self, candidates: Sequence[int]) -> str:
        among = np.zeros(len(self._workload.candidates), np.bool_)
        among[list(candidates)] = True
        return np.packbits(among).tobytes().hex()

    async def _bits(
        self, ctx: Context, spec: ScoreSpec, made: Sequence[int], facts: Selection
    ) -> CountBits | None:
        """Bits of the candidates' counts, where the selection goes by them."""
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
        """The noisy counts that ``protocols.measure`` opens; charged first, kept durably before they are returned.

        Leaks: the noisy counts. Rounds, Communication: ``protocols.measure``. Raises BudgetExceeded,
        ProtocolError, StoreError.
        """
        if sigma != self._plan.sigma:
            raise ValueError(f"a measurement with deviation {sigma} is not in the plan")
        self._ledger.charge(self._round, MEASURE.name, self._plan.measurement)
        counts = self._require_counts()[self._workload.slice(candidate)]
        with self._ctx.step(MEASURE.name, round=self._round) as c:
            noisy = await measure(
                c,
                counts,
                sigma,
                self._max_rows,
                self._noise,
                prepared=self._take_prepared(counts.size),
            )
        self._transcript.flush()
        checkpoint = Checkpoint(self._round, candidate, sigma, self._clients, noisy)
        self._store.save_checkpoint(checkpoint)
        return noisy

    def _require_counts(self) -> Share:
        if self._counts is None:
            raise RuntimeError("begin_round comes first")
        return self._counts
