"""Input forms of participants that count themselves: a vector of shared counts, one for each maximal query's cell.

``Counts`` is an ``InputForm`` for each upload form of ``protocols.upload``. Adding is local; limits are verified by
`protocols.bounded`. Secret: counts, their sums, bodies, components. Source: protocols/README.md, section 2.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mechanisms.workload import Workload, count_marginals
from parties.config import CELLS, NO_CHECK
from parties.mpc.inputs.form import AdditionResult, SubmissionBatch
from parties.mpc.records import StoredSubmission
from parties.mpc.steps import CLIENTS_CHECK, PASSED
from protocols.base import multiply
from protocols.bounded import at_once, check_cells, check_totals, open_verdicts
from protocols.context import Context
from protocols.ring import R32
from protocols.shares import Share, concatenate
from protocols.upload import (
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

_BATCH_BYTES = 1 << 27


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of ``workload`` in the upload form ``name``; see ``InputForm``. Capacities make no difference."""

    name: str
    workload: Workload = field(repr=False)

    @property
    def cells(self) -> int:
        """Length of the vector."""
        return self.workload.maximal_cells

    @property
    def together(self) -> str:
        """See ``InputForm.together``."""
        return self.name

    @property
    def by_capacity(self) -> bool:
        """See ``InputForm.by_capacity``: counts can be any numbers."""
        return False

    def values(self, codes: NDArray[np.int32], capacity: int) -> NDArray[np.unsignedinteger]:
        """See ``InputForm.values``: uint32 (cells,)."""
        return count_marginals(codes, self.workload)

    def share(self, values: NDArray[np.unsignedinteger], seeds: UploadSeeds) -> UploadParts:
        """See ``InputForm.share`` and ``protocols.upload.upload``."""
        if values.dtype != np.uint32 or values.shape != (self.cells,):
            raise ValueError(f"counts are {self.cells} uint32, not {values.dtype} {values.shape}")
        return upload(values, self.name, seeds)

    @property
    def holders(self) -> tuple[int, ...]:
        """See ``InputForm.holders``."""
        return upload_form(self.name).holders

    def private_size(self, pid: int, capacity: int) -> int:
        """See ``InputForm.private_size``."""
        return private_size(pid, self.name, self.cells)

    def common_size(self, capacity: int) -> int:
        """See ``InputForm.common_size``."""
        return common_size(self.name, self.cells)

    def component_digests(self, pid: int, body: bytes, capacity: int) -> tuple[bytes, bytes]:
        """See ``InputForm.component_digests``."""
        return component_digests(parse_upload(pid, self.name, body, self.cells))

    def batches(self, due: Sequence[StoredSubmission]) -> list[tuple[StoredSubmission, ...]]:
        """See ``InputForm.batches``: batches of up to 128 MB of components."""
        size = self._batch_owners
        return [tuple(due[start : start + size]) for start in range(0, len(due), size)]

    def exceed_batch(self, owners: int, rows: int) -> bool:
        """See ``InputForm.exceed_batch``."""
        return owners > self._batch_owners

    @property
    def _batch_owners(self) -> int:
        return max(1, _BATCH_BYTES // (R32.itemsize * self.cells))

    async def add(self, ctx: Context, total: Share, batch: SubmissionBatch) -> AdditionResult:
        """See ``InputForm.add``. Rounds, Communication: those of ``CLIENTS_CHECK``."""
        added, sums = await asyncio.to_thread(self._sum, total, batch)
        if batch.limit.check == NO_CHECK or not batch.clients:
            return AdditionResult(added)
        with ctx.step(CLIENTS_CHECK.name, round=batch.round) as c:
            passed = await self._checked_batch(c, sums, batch)
        failed = frozenset(
            client for client, ok in zip(batch.clients, passed, strict=True) if not ok
        )
        if failed:
            rest = batch.without(set(batch.clients) - failed)
            added = added - (await asyncio.to_thread(self._sum, _zeros_like(added), rest))[0]
        return AdditionResult(added, failed)

    async def _checked_batch(
        self, ctx: Context, sums_sh: Share, batch: SubmissionBatch
    ) -> NDArray[np.bool_]:
        """Verdict for each client of ``batch``, True if it is within its limit: (clients,)."""
        rows = batch.limit.rows
        verdicts = await check_totals(ctx, sums_sh, rows)
        if batch.limit.check == CELLS:
            batches = []
            for pending in at_once(len(batch.clients), self.cells):
                x_sh = await asyncio.to_thread(self._stacked, ctx.pid, batch, pending)
                batches.append(await check_cells(ctx, x_sh, rows))
            verdicts = await multiply(ctx, verdicts, concatenate(*batches))
        return await open_verdicts(ctx, verdicts, PASSED.what)

    def _sum(self, total: Share, batch: SubmissionBatch) -> tuple[Share, Share]:
        """``total`` with every client's counts, and the sums of each maximal marginal (marginals, clients)."""
        starts = np.array(self.workload.maximal_offsets[:-1], np.intp)
        totals = total.own.copy(), total.next.copy()
        sums = np.empty((2, len(starts), len(batch.clients)), R32.dtype)
        for number, client in enumerate(batch.clients):
            components = self._components(total.pid, batch, client)
            for kept, held, component in zip(totals, sums, components, strict=True):
                kept += component
                held[:, number] = np.add.reduceat(component, starts, dtype=R32.dtype)
        return Share(R32, total.pid, *totals), Share(R32, total.pid, sums[0], sums[1])

    def _stacked(self, pid: int, batch: SubmissionBatch, pids: range) -> Share:
        """Counts of a part of a batch, one client a row."""
        held = [self._components(pid, batch, batch.clients[number]) for number in pids]
        return Share(R32, pid, *(np.stack(components) for components in zip(*held, strict=True)))

    def _components(
        self, pid: int, batch: SubmissionBatch, client: str
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]:
        return upload_components(pid, self.name, batch.body(client), self.cells)


def _zeros_like(like: Share) -> Share:
    """Zeros of the same shape."""
    zeros = R32.zeros(like.shape)
    return Share(R32, like.pid, zeros, zeros)
