"""Input form of participants that have some of the columns: the servers join their rows, and count the joined rows.

``LinkedRows`` is the ``InputForm`` of one source's participants; ``SourceLink`` describes all sources of a run. A
participant sends rows as in `parties.mpc.inputs.rows`, with a linking key of 96 bits before the codes. The servers join
all rows once, when every participant is there: `protocols.link`, on shares, opening nothing of keys, rows or the number
of matches. A joined row is one count in each marginal. Secret: rows, keys, joined rows and their number. Public:
sources, capacities, sizes, plan.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Domain
from mechanisms.linking import KEY_BITS
from mechanisms.workload import Workload
from parties.config import BY_KEY, Config
from parties.mpc.inputs.form import AdditionResult, SubmissionBatch
from parties.mpc.inputs.rows import counting_plan, row_recoding
from parties.mpc.records import StoredSubmission
from parties.mpc.steps import CLIENTS_COUNT
from parties.session.compute_pool import local_products
from parties.session.source_rows import source_sizes
from protocols.context import Context
from protocols.link import SourceRows, align, join
from protocols.link_plan import Linking
from protocols.recoding import recode
from protocols.row_layout import RowLayout
from protocols.rows import SharedRows, count_rows, shared_rows
from protocols.shares import Share
from protocols.steps import COUNT_RECODE
from protocols.upload import (
    SOURCE_ROWS,
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

LINKED = "linked"
"""Form name of a batch of all sources in transcripts."""


@dataclass(frozen=True, slots=True)
class SourceLink:
    """Sources of a run, and the facts of joining their rows."""

    config: Config = field(repr=False)

    @property
    def by_key(self) -> bool:
        """True if rows have keys; otherwise all sources have their rows in one order."""
        return self.config.run.link == BY_KEY

    def layout(self, number: int) -> RowLayout:
        """Bit layout of a source's row: presence, key, codes."""
        return RowLayout(source_sizes(self.config, number))

    def capacities(self, declared: Mapping[str, int]) -> list[dict[str, int]]:
        """Rows taken by each participant that has ``declared`` some, by source, in the configuration's order.

        With keys, these are the declared rows. By order, one participant's rows lie beside those at the same position
        in another source, and all participants at a position take as many rows as the largest of them.
        """
        sources = [source.owners for source in self.config.sources]
        if self.by_key:
            return [
                {name: declared[name] for name in names if name in declared} for names in sources
            ]
        largest = [
            max(declared.get(name, 0) for name in index) for index in zip(*sources, strict=True)
        ]
        return [dict(zip(names, largest, strict=True)) for names in sources]

    def rows(self, declared: Mapping[str, int]) -> list[int]:
        """Number of joined rows by source, absent ones included, for the ``declared`` capacities."""
        return [sum(taken.values()) for taken in self.capacities(declared)]

    def linking(self, declared: Mapping[str, int]) -> Linking:
        """Public facts of the join for the ``declared`` capacities."""
        numbers = range(len(self.config.sources))
        return Linking(
            tuple(self.rows(declared)),
            tuple(self.layout(number).bits - 1 - KEY_BITS for number in numbers),
            tuple(source.rows_per_person for source in self.config.sources),
            KEY_BITS,
        )

    def candidates(self, declared: Mapping[str, int]) -> int:
        """Maximum number of joined rows."""
        return self.linking(declared).candidates if self.by_key else self.rows(declared)[0]

    def shared(self, pid: int, batch: SubmissionBatch) -> list[SourceRows]:
        """Rows of every source, those of its participants one after the other."""
        declared = {s.submission.client: s.submission.capacity for s in batch.submissions}
        made = []
        for number, taken in enumerate(self.capacities(declared)):
            owners = [
                self._owner(
                    pid, number, batch, client=client, declared=declared.get(client, 0), rows=rows
                )
                for client, rows in taken.items()
            ]
            rows_bsh = shared_rows(pid, self.layout(number), owners)
            most = self.config.sources[number].rows_per_person
            made.append(SourceRows(rows_bsh, sum(taken.values()), most))
        return made

    def _owner(
        self,
        pid: int,
        number: int,
        batch: SubmissionBatch,
        *,
        client: str,
        declared: int,
        rows: int,
    ) -> SharedRows:
        """Rows of a participant, padded with absent ones up to ``rows``; only absent ones if it is not in the batch."""
        layout = self.layout(number)
        if not declared:
            nothing = np.zeros(layout.body_size(rows), np.uint8)
            return SharedRows(rows, nothing, nothing)
        body, size = batch.body(client), layout.body_size(declared)
        own, next_ = upload_components(pid, SOURCE_ROWS[number], body, size)
        shares = [
            _padded_rows(layout, share.astype(np.uint8), declared, rows) for share in (own, next_)
        ]
        return SharedRows(rows, *shares)

    @property
    def positions(self) -> list[int]:
        """Position of each bit of a domain row in a joined row, whose columns come source after source."""
        domain = self.config.domain
        order = [domain.index(name) for source in self.config.sources for name in source.columns]
        widths = RowLayout(tuple(domain.shape)).widths
        starts, start = dict[int, int](), 1
        for column in order:
            starts[column] = start
            start += widths[column]
        bits = (starts[c] + bit for c in range(len(widths)) for bit in range(widths[c]))
        return [0, *bits]

    async def joined(self, ctx: Context, batch: SubmissionBatch) -> tuple[Share, int]:
        """Joined rows of a batch in the domain's columns (bits, words), and their maximum number. Leaks: none."""
        sources = await asyncio.to_thread(self.shared, ctx.pid, batch)
        if self.by_key:
            rows_bsh, rows = await join(ctx, sources, key_bits=KEY_BITS)
        else:
            rows_bsh, rows = await align(ctx, sources)
        return rows_bsh[self.positions], rows


def _padded_rows(
    layout: RowLayout, body: NDArray[np.uint8], declared: int, rows: int
) -> NDArray[np.uint8]:
    """Body of ``declared`` rows extended to ``rows`` rows, no fewer; the added ones are zeros."""
    if rows == declared:
        return body
    # Bits behind the last declared row are dropped, so that they cannot begin another row.
    bits = np.zeros(rows * layout.bits, np.uint8)
    used = declared * layout.bits
    bits[:used] = np.unpackbits(body, count=used, bitorder="little")
    return np.packbits(bits, bitorder="little")


@dataclass(frozen=True, slots=True)
class LinkedRows:
    """Rows of the source ``number``; see ``InputForm``.

    Joined rows are counted into the ``workload``; ``fine`` is its domain before its private bins were measured, if it
    is another one.
    """

    link: SourceLink
    number: int
    workload: Workload = field(repr=False)
    fine: Domain | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """See ``InputForm.name``."""
        return SOURCE_ROWS[self.number]

    @property
    def together(self) -> str:
        """See ``InputForm.together``: rows of all sources."""
        return LINKED

    @property
    def by_capacity(self) -> bool:
        """See ``InputForm.by_capacity``: a row is in at most ``rows_per_person`` joined rows, or in one."""
        return True

    @property
    def layout(self) -> RowLayout:
        """Bit layout of a row."""
        return self.link.layout(self.number)

    def values(self, codes: NDArray[np.int32], capacity: int) -> NDArray[np.unsignedinteger]:
        """See ``InputForm.values``: of `parties.session.owner.source_codes`, uint8 (layout.body_size(capacity),)."""
        return self.layout.pack(codes, capacity)

    def share(self, values: NDArray[np.unsignedinteger], seeds: UploadSeeds) -> UploadParts:
        """See ``InputForm.share`` and ``protocols.upload.upload``."""
        return upload(values, self.name, seeds)

    @property
    def holders(self) -> tuple[int, ...]:
        """See ``InputForm.holders``."""
        return upload_form(self.name).holders

    def private_size(self, pid: int, capacity: int) -> int:
        """See ``InputForm.private_size``."""
        return private_size(pid, self.name, self.layout.body_size(capacity))

    def common_size(self, capacity: int) -> int:
        """See ``InputForm.common_size``."""
        return common_size(self.name, self.layout.body_size(capacity))

    def component_digests(self, pid: int, body: bytes, capacity: int) -> tuple[bytes, bytes]:
        """See ``InputForm.component_digests``."""
        size = self.layout.body_size(capacity)
        return component_digests(parse_upload(pid, self.name, body, size))

    def batches(self, due: Sequence[StoredSubmission]) -> list[tuple[StoredSubmission, ...]]:
        """See ``InputForm.batches``: one batch of all, whatever their sources."""
        return [tuple(due)] if due else []

    def exceed_batch(self, owners: int, rows: int) -> bool:
        """See ``InputForm.exceed_batch``: all rows are joined with one another, so there is only one batch."""
        return False

    async def add(self, ctx: Context, total: Share, batch: SubmissionBatch) -> AdditionResult:
        """See ``InputForm.add``. Leaks: none. Rounds, Communication: those of the steps within ``CLIENTS_COUNT``."""
        plan = await asyncio.to_thread(counting_plan, self.workload)
        recoding = row_recoding(self.workload, self.fine)
        async with local_products(batch.compute) as products:
            with ctx.step(CLIENTS_COUNT.name, round=batch.round) as c:
                rows_bsh, rows = await self.link.joined(c, batch)
                if recoding is not None:
                    with c.step(COUNT_RECODE.name, round=batch.round) as r:
                        rows_bsh = await recode(r, rows_bsh, rows, recoding)
                counts = await count_rows(
                    c, rows_bsh, rows, plan, products=products, progress=batch.progress
                )
        return AdditionResult(total + counts)
