"""Counting on shares: rows that owners shared by XOR become shares of the counts of all queries.

A row adds one to one cell of every query, if it is present and each of its codes names a category, and nothing to any
otherwise: for any bits that an owner sends, so that there is nothing to prove about them.

Secret: rows and counts. Public: the plan (`row_plan`), the number of rows with the absent ones, and the progress of
counting. Rows are processed in segments, each in blocks of rows and then of cells, so that memory is bounded by the
counts and two blocks. Source: README section 6; own.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from protocols.base import multiply, reshare
from protocols.bitslice import words_for
from protocols.blocks import of_blocks
from protocols.boolean import and_all, carry_out
from protocols.context import Context
from protocols.conversions import lift_half
from protocols.doubled import FACTORS, SCALES
from protocols.free import bits_into_ring
from protocols.products import LocalProducts, Pair
from protocols.ring import BITS, R16, R32, RingArray
from protocols.row_layout import RowLayout
from protocols.row_plan import LIFT_CELLS, CountPlan, Product
from protocols.shares import (
    Additive,
    Entries,
    Origins,
    Share,
    Table,
    concatenate,
    joined,
    outer_product,
)
from protocols.steps import COUNT_CELLS, COUNT_FACTORS, COUNT_ROWS

_IN_FLIGHT = 2
_WORD = 64

Progress = Callable[[int, int], None]
"""Callback with the number of finished blocks of rows, and that of all blocks."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SharedRows:
    """A server's part of one owner's rows: the two components of its body (`row_layout`). Secret."""

    capacity: int
    own: NDArray[np.uint8]
    next: NDArray[np.uint8]


def shared_rows(pid: int, layout: RowLayout, owners: Sequence[SharedRows]) -> Share:
    """Returns the rows of all owners, one after the other, as a boolean share (bits, words). Local.

    Raises ValueError for a component of another length than its capacity has.
    """
    own, next_ = (
        layout.planes([(owner.capacity, part) for owner, part in zip(owners, parts, strict=True)])
        for parts in ([owner.own for owner in owners], [owner.next for owner in owners])
    )
    return Share(BITS, pid, own, next_)


async def count_rows(
    ctx: Context,
    rows_bsh: Share,
    rows: int,
    plan: CountPlan,
    *,
    products: LocalProducts,
    progress: Progress | None = None,
) -> Share:
    """Counts the rows in each cell of the plan's queries.

    Shapes: rows (plan.layout.bits, words_for(rows)), of which cells beyond ``rows`` are zeros; returns (plan.cells,) in
        Z_2^32, the queries one after the other.
    Leaks: none.
    Rounds: for each segment of 32,704 rows, those of ``valid_bits``, 2 + plan.levels and a reshare, and ``lift_half``;
        with a verifier the second of these for every few blocks of rows, the third of cells, and their proofs.
    Communication: a row, 2 bytes for each of plan.row_entries, 2 for each of its bits and 2 more by party 0, and
        ``valid_bits``; a segment, or few blocks of rows, 2 bytes for each of plan.row_cells; a segment ``lift_half``.
    Raises: ValueError where the share has another shape; ChannelError, ProtocolViolation.
    Source: README section 6.
    """
    if rows_bsh.ring is not BITS or rows_bsh.shape != (plan.layout.bits, words_for(rows)):
        raise ValueError(f"{rows_bsh!r} is not {rows} rows of {plan.layout.bits} bits")
    total = Share(R32, ctx.pid, R32.zeros((plan.cells,)), R32.zeros((plan.cells,)))
    done, of = 0, sum(len(list(plan.blocks(segment))) for segment in plan.segments(rows))

    def tell() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, of)

    for segment in plan.segments(rows):
        with ctx.step(COUNT_ROWS.name, round=ctx.cost.round) as c:
            bits_bsh = await valid_bits(c, rows_bsh[:, _words(segment)], plan)
        with ctx.step(COUNT_FACTORS.name, round=ctx.cost.round) as c:
            doubled = await _doubled_counts(c, bits_bsh, len(segment), plan, products, tell)
        with ctx.step(COUNT_CELLS.name, round=ctx.cost.round) as c:
            total = total + await of_blocks(c, doubled, LIFT_CELLS, lift_half)
    return total


def _words(rows: range) -> slice:
    """Returns the words of a plane that have these rows; they begin with a word's first."""
    return slice(rows.start // _WORD, words_for(rows.stop))


async def valid_bits(ctx: Context, rows_bsh: Share, plan: CountPlan) -> Share:
    """Computes v = [the row counts] and v times each bit of its codes: 0 everywhere in a row that does not count.

    A row counts if it is present and all its codes name categories: code + (2^width - size) does not carry.

    Shapes: (layout.bits, words) -> (1 + leaves, words).
    Leaks: none.
    Rounds: ``carry_out`` of the largest width, ``and_all``, and 1; without columns whose size is no power of two, 1.
    Communication: their planes, a column as wide as the widest; and a plane for each bit.
    Raises: ChannelError, ProtocolViolation.
    Source: own.
    """
    layout, partial = plan.layout, plan.partial_columns
    valid = rows_bsh[:1]
    if partial:
        over = await _beyond(ctx, rows_bsh, layout, partial)
        valid = (await and_all(ctx, concatenate(valid, ~over))).reshape(1, -1)
    if not plan.leaves:
        return valid
    places = [layout.starts[leaf.column] + leaf.bit for leaf in plan.leaves]
    return concatenate(valid, await multiply(ctx, rows_bsh[places], valid))


async def _beyond(
    ctx: Context, rows_bsh: Share, layout: RowLayout, columns: Sequence[int]
) -> Share:
    """Computes for each of the columns [code >= size]: (columns, words)."""
    width = max(layout.widths[column] for column in columns)
    words = rows_bsh.shape[-1]
    # The columns side by side, each with its highest bit in the highest plane; the planes below a narrow one are zero
    # and carry nothing. The summand 2^width - size is public, so generate and propagate are local.
    added = np.zeros((width, len(columns), 1), np.uint64)
    codes = [np.zeros((width, len(columns), words), np.uint64) for _ in range(2)]
    for place, column in enumerate(columns):
        bits, start = layout.widths[column], layout.starts[column]
        missing = (1 << bits) - layout.sizes[column]
        added[width - bits :, place, 0] = [-(missing >> bit & 1) % (1 << 64) for bit in range(bits)]
        for code, part in zip(codes, (rows_bsh.own, rows_bsh.next), strict=True):
            code[width - bits :, place] = part[start : start + bits]
    codes_bsh = Share(BITS, ctx.pid, *codes)
    generate, propagate = codes_bsh.times(added), codes_bsh ^ added
    carries = await carry_out(ctx, generate.reshape(width, -1), propagate.reshape(width, -1))
    return carries.reshape(len(columns), words)


async def _doubled_counts(
    ctx: Context,
    bits_bsh: Share,
    rows: int,
    plan: CountPlan,
    products: LocalProducts,
    tell: Callable[[], None],
) -> Share:
    """Computes twice the counts of a segment, in Z_2^16 (cells,): factors by block, and sums of products over all rows.

    With a verifier, some blocks at a time are summed, and proved before the next ones, so that their factors need not
    be kept. Each party's local sums are those of `doubled`.
    """
    found, blocks = None, list(plan.blocks(range(rows)))
    for some in plan.proved_at_once(blocks) if ctx.verifier is not None else [blocks]:
        part = await _doubled_tables(ctx, bits_bsh, some, plan, products, tell)
        found = part if found is None else found + part
        if ctx.verifier is not None:
            await ctx.verifier.settle(ctx)
    if found is None:
        found = Share(R16, ctx.pid, R16.zeros((plan.row_cells,)), R16.zeros((plan.row_cells,)))
    return Share(R16, ctx.pid, _arranged(plan, found.own), _arranged(plan, found.next))


async def _doubled_tables(
    ctx: Context,
    bits_bsh: Share,
    blocks: Sequence[range],
    plan: CountPlan,
    products: LocalProducts,
    tell: Callable[[], None],
) -> Share:
    """Computes twice the sums of all products over the rows of these blocks, table after table: (plan.row_cells,)."""
    places, first = _places(plan), blocks[0].start
    sums = products.start([Pair(places[c.left], places[c.right]) for c in plan.counts])
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def block(c: Context, part: range) -> Origins | None:
        async with slots:
            ring_sh = await bits_into_ring(c, bits_bsh[:, _words(part)], len(part), R16)
            nodes = _Nodes(plan, ring_sh, part.start - first)
            for level in range(1, plan.levels + 1):
                await nodes.multiply(c, level)
            origins = nodes.origins(c)
            await sums.add(nodes.operand(places))
        tell()
        return origins

    parts = await ctx.gather(*((lambda c, part=part: block(c, part)) for part in blocks))
    tables = np.concatenate([table.reshape(-1) for table in await sums.result()])
    known = tuple(origin for part in parts for origin in part or ())
    # This role's term of 2 x y has factor ``SCALES`` (`doubled`).
    scale = np.uint16(SCALES[ctx.pid] % (1 << R16.bits))
    return await reshare(
        ctx, Additive(R16, tables * scale, None if ctx.verifier is None else known)
    )


def _places(plan: CountPlan) -> dict[int, slice]:
    """Returns the place of each factor's entries among those of all factors."""
    ends = np.cumsum([plan.size(node) for node in plan.factors])
    return {
        node: slice(int(end) - plan.size(node), int(end))
        for node, end in zip(plan.factors, ends, strict=True)
    }


def _starts(plan: CountPlan) -> list[int]:
    """Returns the start of each query's table among all tables, and the end of the last one."""
    sizes = (plan.size(count.left) * plan.size(count.right) for count in plan.counts)
    return [0, *accumulate(sizes)]


def _arranged(plan: CountPlan, tables: RingArray) -> RingArray:
    """Returns the cells of all queries from a component of their tables."""
    starts = pairwise(_starts(plan))
    return np.concatenate(
        [count.arranged(tables[a:b]) for (a, b), count in zip(starts, plan.counts, strict=True)]
    )


class _Nodes:
    """A block's one-hots, level by level: (entries, rows) in Z_2^16. Secret.

    A node that is an operand of others is kept whole. Of a node that is only counted with, the secure products are
    kept; their sums are added when both components have become one number.
    """

    def __init__(self, plan: CountPlan, bits_sh: Share, row: int) -> None:
        self._plan, self._row = plan, row
        valid = bits_sh[:1]
        self._whole = {0: valid}
        self._products: dict[int, Share] = {}
        for node in range(1, 1 + len(plan.leaves)):
            # (v - b, b) is the one-hot of a bit b <= v.
            one = bits_sh[node : node + 1]
            self._whole[node] = concatenate(valid - one, one)

    async def multiply(self, ctx: Context, level: int) -> None:
        """Computes the nodes of a level from those below. Rounds: 1, or none where all their entries are sums."""
        nodes, terms = self._plan.level(level), list[Additive]()
        tabled = self._plan.tabled(level)
        for _, product in nodes:
            high, low = self._whole[product.high], self._whole[product.low]
            for i, j in self._plan.grids(product):
                entries = Entries(product.high, i.start), Entries(product.low, j.start)
                term = outer_product(ctx, high[i.start : i.stop], low[j.start : j.stop])
                terms.append(term.of_table(entries, self._row) if tabled else term)
        z_sh = await reshare(ctx, joined(*terms)) if terms else self._whole[0][:0]
        start = 0
        for node, product in nodes:
            stop = start + self._plan.entries(product)
            self._keep(ctx, node, product, z_sh[start:stop])
            start = stop

    def _keep(self, ctx: Context, node: int, product: Product, z_sh: Share) -> None:
        if not product.inner and ctx.verifier is None:
            self._products[node] = z_sh
            return
        high, low = self._whole[product.high], self._whole[product.low]
        own, next_ = (
            _completed(product, *parts)
            for parts in ((z_sh.own, high.own, low.own), (z_sh.next, high.next, low.next))
        )
        self._whole[node] = Share(R16, z_sh.pid, own, next_)

    def operand(self, places: dict[int, slice]) -> NDArray[np.int16]:
        """Returns all factors as numbers whose products are this party's terms of twice theirs: (entries, rows).

        Local.
        """
        own, next_ = (np.uint16(factor % (1 << R16.bits)) for factor in FACTORS[self._whole[0].pid])

        def mixed(x_sh: Share) -> RingArray:
            found: RingArray = x_sh.next * next_
            found += x_sh.own * own
            return found

        rows, entries = self._whole[0].shape[-1], max(place.stop for place in places.values())
        operand = np.empty((entries, rows), np.uint16)
        for node, place in places.items():
            if node in self._products:
                product, sent = self._plan.product(node), self._products[node]
                high, low = (mixed(self._whole[part]) for part in (product.high, product.low))
                operand[place] = _completed(product, mixed(sent), high, low)
            else:
                operand[place] = mixed(self._whole[node])
        return operand.view(np.int16)

    def origins(self, ctx: Context) -> Origins | None:
        """Returns the origins of this block's part of the tables, for a verifier; None without one."""
        if ctx.verifier is None:
            return None
        whole, size = self._whole, self._plan.row_cells
        return tuple(
            Table(
                whole[count.left],
                whole[count.right],
                entries=(Entries(count.left, 0), Entries(count.right, 0)),
                row=self._row,
                start=start,
                size=size,
                doubled=True,
            )
            for count, start in zip(self._plan.counts, _starts(self._plan), strict=False)
        )


def _completed(product: Product, entries: RingArray, high: RingArray, low: RingArray) -> RingArray:
    """Returns a node's entries (size, rows) from its secure products: rows sum to ``high``'s, columns to ``low``'s."""
    rows, columns, count = high.shape[0], low.shape[0], high.shape[1]
    table = np.zeros((rows, columns, count), np.uint16)
    # Entries that a partial last row lacks name no category and are zero.
    flat = table[1:, 1:]
    whole, rest = divmod(product.size, columns)
    whole -= 1
    used = whole * (columns - 1)
    flat[:whole] = entries[:used].reshape(whole, columns - 1, count)
    if rest > 1:
        flat[whole, : rest - 1] = entries[used:]
    # Sum over j of table[i, j] = high[i], and over i of table[i, j] = low[j]: column 0, then row 0.
    table[1:, 0] = high[1:] - np.add.reduce(flat, axis=1, dtype=np.uint16)
    table[0] = low - np.add.reduce(table[1:], axis=0, dtype=np.uint16)
    return table.reshape(rows * columns, count)[: product.size]
