"""Counting of participants at one server: batches are added to its share of the running total, and taken out again.

The input form defines the values sent and their conversion into shares of counts (`parties.mpc.inputs`). A batch is
compared at both holders of each component before it is added (`parties.mpc.participants.consistency`).

Secret: components, their digests (to the server that lacks the component), and totals. Public: clients, and the reasons
of exclusions.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from parties.config import NO_CHECK, Config
from parties.mpc.exclusion import Exclusion
from parties.mpc.inputs import (
    InputForm,
    OnCountingProgress,
    RowLimit,
    SubmissionBatch,
    input_forms,
)
from parties.mpc.participants.batching import in_batches
from parties.mpc.participants.consistency import compare_components
from parties.mpc.participants.registry import RegistryEntry
from parties.mpc.records import ParticipantRecord, RunningTotal, StoredSubmission
from parties.mpc.replay.effects import ParticipantView
from parties.mpc.steps import CLIENTS_COMPARE
from parties.mpc.transcript_schema import ACCUSED, COUNTING, RECOUNTING, Note
from parties.session.study import Study
from protocols.context import Context
from protocols.transcript import Transcript, Value


@dataclass(frozen=True, slots=True)
class CountedForms:
    """Forms that clients may send, ``by_name``, and the number of ``cells`` of the total that they are counted in."""

    by_name: Mapping[str, InputForm]
    cells: int

    @classmethod
    def of(cls, study: Study) -> Self:
        """Returns the forms of a study, counted in the cells of its workload."""
        return cls(input_forms(study), study.workload.maximal_cells)


class CountingObserver(Protocol):
    """Observer of the counting of rows."""

    def counting(self, batch: SubmissionBatch) -> OnCountingProgress | None:
        """Called before rows are counted; returns a callback for the progress."""


class RunningCount:
    """This server's share of the running total of its ``participants``, None before ``begin``.

    ``seconds`` is the time spent so far on adding batches.
    """

    def __init__(
        self,
        ctx: Context,
        config: Config,
        participants: ParticipantView,
        *,
        forms: CountedForms,
        transcript: Transcript,
        observer: CountingObserver,
    ) -> None:
        self.forms = forms
        self.total: RunningTotal | None = None
        self.seconds = 0.0
        self._ctx = ctx
        self._config = config
        self._submissions = participants.submissions
        self._registry = participants.registry
        self._transcript = transcript
        self._observer = observer
        self._recount_due = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(total={self.total!r})"

    def empty(self, round: int) -> RunningTotal:
        """Total of no clients."""
        return RunningTotal.empty(round, self._ctx.pid, self.forms.cells)

    def require(self) -> RunningTotal:
        """Total so far. Raises RuntimeError if there is none yet."""
        if self.total is None:
            raise RuntimeError("count_in sets the total first")
        return self.total

    async def add(
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
        whole, total = batch.without(excluded), self.require()
        if form.by_capacity and whole.clients:
            whole = self._announce(form, whole)
        added = await form.add(self._ctx, total.share, whole)
        self.total = replace(total, share=added.total)
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
        self.seconds += time.monotonic() - began

    async def subtract(self, gone: Sequence[RegistryEntry], round: int) -> None:
        """Subtracts uploads from the total, as far as they are in it, and drops their registry entries."""
        limit = RowLimit(NO_CHECK, self._config.clients.rows_per_client)
        inside = (self._submissions.stored(e.client, e.upload) for e in gone if e.counted)
        for form, submissions in in_batches(self.forms.by_name, inside):
            batch = await self._batch(submissions, round, limit)
            batch = self._announce(form, batch) if form.by_capacity else batch
            total, zero = self.require(), self.empty(round)
            added = await form.add(self._ctx, zero.share, batch)
            self.total = replace(total, share=total.share - added.total)
        self._registry.drop(entry.client for entry in gone)

    def recount_with(self, forms: CountedForms) -> None:
        """Replaces the ``forms`` and cells from now on: all clients in the total are due to be counted again."""
        self.forms, self._recount_due = forms, self.total is not None

    async def recount(self, round: int) -> None:
        """Counts all members of the total again, in its order, into new cells, if ``recount_with`` has been called."""
        if not self._recount_due:
            return
        self._recount_due = False
        total = self.empty(round)
        limit = RowLimit(NO_CHECK, self._config.clients.rows_per_client)
        members = (self._submissions.stored(*member) for member in self._registry.members)
        for form, submissions in in_batches(self.forms.by_name, members):
            batch = await self._batch(submissions, round, limit)
            batch = self._announce(form, batch, RECOUNTING)
            total = replace(total, share=(await form.add(self._ctx, total.share, batch)).total)
        self.total = replace(total, members=self._registry.members)

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

    def _announce(
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
