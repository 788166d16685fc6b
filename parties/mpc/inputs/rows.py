"""Input form of participants that send their rows, bit-packed and shared by XOR: the servers count them.

A row is a presence bit and a code for each column (`protocols.row_layout`); a participant sends as many rows as its
capacity, absent ones among them. Whatever its bits are, a row adds at most one to at most one cell of each marginal:
nothing needs verification, and no client fails. Secret: rows, bodies, components, counts. Public: capacities, sizes,
the plan. Source: protocols/README.md, sections 2 and 6.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Domain
from mechanisms.resolving import places, unmeasured
from mechanisms.workload import Workload
from parties.mpc.inputs.form import AdditionResult, SubmissionBatch
from parties.mpc.records import StoredSubmission
from parties.mpc.steps import CLIENTS_COUNT
from parties.session.compute_pool import local_products
from protocols.context import Context
from protocols.recoding import recode
from protocols.row_layout import Recoding, RowLayout
from protocols.row_plan import SEGMENT_ROWS, CountPlan, plan_counting
from protocols.rows import SharedRows, count_rows, shared_rows
from protocols.shares import Share
from protocols.steps import COUNT_RECODE
from protocols.upload import (
    ROWS,
    UploadParts,
    UploadSeeds,
    common_size,
    component_digests,
    parse_upload,
    private_size,
    upload,
    upload_components,
    upload_form,
)


def counting_plan(workload: Workload) -> CountPlan:
    """Plan for counting rows into the maximal queries: its cells are the workload's count vector."""
    columns = tuple(tuple(map(workload.domain.index, query)) for query in workload.maximal)
    return plan_counting(tuple(workload.domain.shape), columns)


def row_recoding(workload: Workload, fine: Domain | None) -> Recoding | None:
    """Recoding from rows of the domain ``fine`` to rows of the workload's measured domain; None if they are equal."""
    if fine is None or fine == workload.domain:
        return None
    tables = {i: tuple(places(workload.domain.columns[i]).tolist()) for i in unmeasured(fine)}
    shapes = tuple(fine.shape), tuple(workload.domain.shape)
    return Recoding(RowLayout(shapes[0]), RowLayout(shapes[1]), tables)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of ``workload``'s domain, or of that domain before its private bins were measured; see ``InputForm``."""

    workload: Workload = field(repr=False)
    fine: Domain | None = field(default=None, repr=False)
    layout: RowLayout = field(init=False, repr=False)

    def __post_init__(self) -> None:
        domain = self.workload.domain if self.fine is None else self.fine
        object.__setattr__(self, "layout", RowLayout(tuple(domain.shape)))

    @property
    def name(self) -> str:
        """See ``InputForm.name``."""
        return ROWS

    @property
    def together(self) -> str:
        """See ``InputForm.together``."""
        return ROWS

    @property
    def by_capacity(self) -> bool:
        """See ``InputForm.by_capacity``: each of a participant's rows is one count in each marginal."""
        return True

    def values(self, codes: NDArray[np.int32], capacity: int) -> NDArray[np.unsignedinteger]:
        """See ``InputForm.values``: uint8 (layout.body_size(capacity),)."""
        return self.layout.pack(codes, capacity)

    def share(self, values: NDArray[np.unsignedinteger], seeds: UploadSeeds) -> UploadParts:
        """See ``InputForm.share`` and ``protocols.upload.upload``."""
        return upload(values, ROWS, seeds)

    @property
    def holders(self) -> tuple[int, ...]:
        """See ``InputForm.holders``."""
        return upload_form(ROWS).holders

    def private_size(self, pid: int, capacity: int) -> int:
        """See ``InputForm.private_size``."""
        return private_size(pid, ROWS, self.layout.body_size(capacity))

    def common_size(self, capacity: int) -> int:
        """See ``InputForm.common_size``."""
        return common_size(ROWS, self.layout.body_size(capacity))

    def component_digests(self, pid: int, body: bytes, capacity: int) -> tuple[bytes, bytes]:
        """See ``InputForm.component_digests``."""
        return component_digests(parse_upload(pid, ROWS, body, self.layout.body_size(capacity)))

    def batches(self, due: Sequence[StoredSubmission]) -> list[tuple[StoredSubmission, ...]]:
        """See ``InputForm.batches``: batches with up to the rows of a segment; a larger submission is a batch alone.

        A segment is counted at once; a batch costs as much for each cell whether it is full or not.
        """
        batches: list[tuple[StoredSubmission, ...]] = []
        batch, rows = list[StoredSubmission](), 0
        for stored in due:
            capacity = stored.submission.capacity
            if batch and rows + capacity > SEGMENT_ROWS:
                batches.append(tuple(batch))
                batch, rows = [], 0
            batch.append(stored)
            rows += capacity
        return [*batches, tuple(batch)] if batch else batches

    def exceed_batch(self, owners: int, rows: int) -> bool:
        """See ``InputForm.exceed_batch``."""
        return owners > 1 and rows > SEGMENT_ROWS

    async def add(self, ctx: Context, total: Share, batch: SubmissionBatch) -> AdditionResult:
        """See ``InputForm.add``. Leaks: none. Rounds, Communication: those of the steps within ``CLIENTS_COUNT``."""
        if not batch.clients:
            return AdditionResult(total)
        plan = await asyncio.to_thread(counting_plan, self.workload)
        recoding = row_recoding(self.workload, self.fine)
        rows_bsh = await asyncio.to_thread(self._shared, ctx.pid, batch)
        async with local_products(batch.compute) as products:
            with ctx.step(CLIENTS_COUNT.name, round=batch.round) as c:
                if recoding is not None:
                    with c.step(COUNT_RECODE.name, round=batch.round) as r:
                        rows_bsh = await recode(r, rows_bsh, batch.rows, recoding)
                counts = await count_rows(
                    c, rows_bsh, batch.rows, plan, products=products, progress=batch.progress
                )
        return AdditionResult(total + counts)

    def _shared(self, pid: int, batch: SubmissionBatch) -> Share:
        """Rows of every client in ``batch``, one after the other."""
        owners = []
        for stored in batch.submissions:
            client, capacity = stored.submission.client, stored.submission.capacity
            size = self.layout.body_size(capacity)
            own, next_ = upload_components(pid, ROWS, batch.body(client), size)
            owners.append(SharedRows(capacity, own.astype(np.uint8), next_.astype(np.uint8)))
        return shared_rows(pid, self.layout, owners)
