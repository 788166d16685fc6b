"""Grouped absolute error on shares: sum of |2^f x - y| over the cells of each candidate, for a selection's scores.

Secret: the counts x and the errors. Public: the model's answers y, the groups and the number of bits kept. Cells are
processed in blocks, several in flight. The parties' roles rotate from block to block, so that all parties send the
same.
"""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
from numpy.typing import NDArray

from protocols.base import reshare
from protocols.bit_sums import to_pairs, total, weighted
from protocols.boolean import top_of_sum
from protocols.context import Context
from protocols.count_bits import WORD, CountBits, apart, below, count_bits, whole_words
from protocols.derived import signed, summand, weighted_bits
from protocols.ring import BITS, R32
from protocols.shares import Additive, Share, concatenate

# Larger blocks cost less overhead and more memory, most of which is that of these blocks: one for each role.
BLOCK_CELLS = 1 << 18
_IN_FLIGHT = 3


def block_cells(cells: int) -> int:
    """Returns the number of cells in a block: ``BLOCK_CELLS`` for few cells, else that of a multiple of three blocks.

    Those blocks have nearly one size, at most half above ``BLOCK_CELLS``, so that all three parties send nearly the
    same.
    """
    if cells <= BLOCK_CELLS:
        return BLOCK_CELLS
    blocks = 3 * max(1, round(cells / (3 * BLOCK_CELLS)))
    return whole_words(-(-cells // blocks))


async def grouped_absolute_error(
    ctx: Context,
    x_sh: Share,
    answers: NDArray[np.uint32],
    sizes: NDArray[np.int64],
    *,
    fraction_bits: int,
    bits: int,
) -> Share:
    """Computes a_q = sum over the cells of group q of |2^f x - y|.

    Shapes: x (n,) in Z_2^32; answers (n,), in units of 2^-f; sizes (G,), positive, adding up to n; returns (G,) in
        Z_2^32, of which ``bits`` bits count, f + 2 at least. So many bits are enough where a_q < 2^(bits - 1). Modulo
        2^bits, for any x, a_q is a sum of distances of 2^f x - y from the next multiple of 2^bits: one more in a cell
        of x changes a_q by at most 2^f.
    Leaks: none.
    Rounds: 4 + levels(ceil((bits - f - 1) / 3)); blocks overlap.
    Communication: of each block, the planes of ``boolean.msb`` of bits - f bits and 8 bytes a cell by the block's party
        0; G elements. At bits = 23, f = 6 6.5 bytes a cell for the mean party. With a verifier ``count_bits`` and
        ``grouped_error_of_bits``.
    Raises: ValueError for shapes or bits that do not fit; ChannelError, ProtocolViolation.
    Source: README section 3, step 2, with the sign as a product: |d| = (1 - 2 v01)(1 - 2 v2)(a + b). Party 0 knows v01
        = v0 ^ v1 and a = d0 + d1; parties 1 and 2 know v2 and b = d2. No product per cell is reshared.
    """
    require_fit(x_sh, answers, sizes)
    if bits < fraction_bits + 2:
        raise ValueError(f"errors of {bits} bits have no sign beside a fraction of {fraction_bits}")
    if ctx.verifier is not None:
        parts = (apart(part, sizes.tolist()) for part in (x_sh.own, x_sh.next))
        x_bits = await count_bits(ctx, Share(R32, x_sh.pid, *parts), bits - fraction_bits)
        return await grouped_error_of_bits(
            ctx, x_sh, x_bits, answers, sizes, fraction_bits=fraction_bits, bits=bits
        )

    async def terms(role: Context, cells: slice) -> Additive:
        x = summand(x_sh[cells].within(role.pid))
        # d = 2^f x - y = a + b; v is its sign, plane bits - 1, and (1 - 2 v) d = |d| (README section 3, steps 1 and 2).
        d = x.scaled_less(1 << fraction_bits, answers[cells])
        # Of d = a + b only party 0's a has bits below 2^f, so that nothing is carried out of them.
        sign, _ = await top_of_sum(role, d, bits, fraction_bits)
        return await signed(role, sign, d)

    return await _sums_by_group(ctx, x_sh.size, sizes, terms)


async def grouped_error_of_bits(
    ctx: Context,
    x_sh: Share,
    x_bits: CountBits,
    answers: NDArray[np.uint32],
    sizes: NDArray[np.int64],
    *,
    fraction_bits: int,
    bits: int,
) -> Share:
    """Computes ``grouped_absolute_error``, with the same results to the bit, from kept bits of x.

    The bits of 2^f x - y below 2^f do not matter to its sign: 2^f x - y = 2^f (x - y') + r with y' = ceil(y / 2^f) and
    0 <= r < 2^f, so its plane bits - 1 is plane bits - f - 1 of x - y', also modulo 2^bits.

    Shapes: as there; x_bits has each group's cells from a new word on, and bits - f planes at least.
    Leaks: none.
    Rounds: 2 + levels(ceil((bits - f - 1) / 2)); blocks overlap.
    Communication: of each block, the planes of ``count_bits.below`` and 8 bytes a cell by the block's party 0, where
        groups are rounded up to whole words; G elements. At bits = 23, f = 6 4.0 bytes a cell for the mean party. With
        a verifier see ``_by_trees``.
    Raises: ValueError for shapes that do not fit; ChannelError, ProtocolViolation.
    Source: README section 3, bits that are kept.
    """
    require_fit(x_sh, answers, sizes)
    padded = np.array([whole_words(int(size)) for size in sizes], np.int64)
    if x_bits.words * WORD != int(padded.sum()):
        raise ValueError(f"{x_bits.words} words do not have {int(padded.sum())} cells")
    answers = apart(answers, sizes.tolist())

    if ctx.verifier is not None:
        return await _by_trees(ctx, x_bits, answers, padded, fraction_bits, bits)
    x_sh = Share(R32, x_sh.pid, *(apart(part, sizes.tolist()) for part in (x_sh.own, x_sh.next)))

    async def terms(role: Context, cells: slice) -> Additive:
        kept = x_bits.part(cells.start // WORD, cells.stop // WORD).within(role.pid)
        y = answers[cells]
        # v = [x < y'] with y' = ceil(y / 2^f), which is the sign of 2^f x - y; then |d| = (1 - 2 v)(2^f x - y).
        sign = await below(role, kept, _rounded_up(y, fraction_bits), bits - fraction_bits)
        x = summand(x_sh[cells].within(role.pid))
        return await signed(role, sign, x.scaled_less(1 << fraction_bits, y))

    return await _sums_by_group(ctx, x_sh.size, padded, terms)


async def _by_trees(
    ctx: Context,
    x_bits: CountBits,
    answers: NDArray[np.uint32],
    sizes: NDArray[np.int64],
    fraction_bits: int,
    bits: int,
) -> Share:
    """Computes ``grouped_error_of_bits`` by ANDs alone; trees of adders add up the results.

    With m bits of x, x XOR v is x where v is 0, and 2^m - 1 - x where v is 1. So modulo 2^m the sum of (1 - 2 v) x is
    that of x XOR v, which is local, and of v. Modulo 2^bits the sum of (1 - 2 v)(2^f x - y) is 2^f times the sum of x
    XOR v, plus the sum of v (2^f + 2 y), whose factors are public, less the sum of y.

    Leaks: none.
    Rounds: ``count_bits.below``, 2, ``bit_sums.to_pairs`` and ``total``, 2: 51 for 10^6 cells in 64 groups.
    Communication: 35 bits a cell at bits = 23, and a few words a group.
    Raises: ChannelError, ProtocolViolation.
    Source: own; README section 7.
    """
    groups, whole = np.repeat(np.arange(sizes.size), sizes // WORD), bits - fraction_bits
    sign = await below(ctx, x_bits, _rounded_up(answers, fraction_bits), whole)
    # x XOR v, the same v for all m planes.
    turned = x_bits.planes[:whole] ^ sign.reshape(1, -1)

    async def counted(c: Context) -> Share:
        # 2^f times the sum of x XOR v.
        pairs = await to_pairs(c, turned, groups, sizes.size)
        return _shifted(pairs, fraction_bits)

    async def weighed(c: Context) -> Share:
        # The sum of v (2^f + 2 y), as twice the sum of v (2^(f - 1) + y).
        half = answers + np.uint32(1 << (fraction_bits - 1))
        columns, of_quad = await weighted(c, sign, half, groups, bits - 1)
        return _shifted(await to_pairs(c, columns, of_quad, sizes.size), 1)

    columns = [column.transposed() for column in await ctx.both(counted, weighed)]
    sums = await total(ctx, concatenate(*columns).transposed())
    # Less the sum of y of each group.
    answered = np.add.reduceat(answers, np.cumsum(sizes) - sizes, dtype=np.uint32)
    return await weighted_bits(ctx, sums, sizes.size, R32) - answered


def _shifted(planes: Share, by: int) -> Share:
    """Returns numbers in planes times 2^by. Local."""
    nothing = (BITS.zeros((by, *planes.shape[1:])) for _ in range(2))
    return concatenate(Share(BITS, planes.pid, *nothing), planes)


def _rounded_up(answers: NDArray[np.uint32], fraction_bits: int) -> NDArray[np.uint32]:
    whole = answers + np.uint32((1 << fraction_bits) - 1)
    return whole >> np.uint32(fraction_bits)


def require_fit(x_sh: Share, answers: NDArray[np.uint32], sizes: NDArray[np.int64]) -> None:
    """Raises ValueError where counts (n,), answers (n,) and groups of ``sizes`` cells do not fit one another."""
    if (
        x_sh.ring is not R32
        or x_sh.shape != answers.shape
        or int(sizes.sum()) != x_sh.size
        or sizes.min(initial=1) < 1
    ):
        raise ValueError(
            f"{x_sh.shape} shared counts, {answers.shape} answers and {int(sizes.sum())} cells in groups do not fit"
        )


async def _sums_by_group(
    ctx: Context,
    cells: int,
    sizes: NDArray[np.int64],
    terms: Callable[[Context, slice], Awaitable[Additive]],
) -> Share:
    """Returns the sums over groups of the ``terms`` of blocks of cells, (G,). Roles rotate from block to block."""
    ends, size = np.cumsum(sizes), block_cells(cells)
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def block(c: Context, start: int) -> Additive:
        stop = min(start + size, cells)
        first, last = (
            int(np.searchsorted(ends, start, "right")),
            int(np.searchsorted(ends, stop, "left")),
        )
        # The block meets groups first, ..., last; each but the first begins in it where the one before ends. Sums by
        # group are placed at ``first`` among all G: a group that goes on in the next block is added up there.
        cuts = np.concatenate(([0], ends[first:last] - start)).astype(np.intp)
        async with slots:
            role = c.child(rotate=start // size % 3)
            sums = (await terms(role, slice(start, stop))).grouped(cuts)
            c.depth = role.depth
        return sums.padded(first, sizes.size)

    starts = range(0, cells, size)
    blocks = await ctx.gather(*((lambda c, s=start: block(c, s)) for start in starts))
    return await reshare(ctx, sum(blocks, start=Additive.zeros(R32, (sizes.size,))))
