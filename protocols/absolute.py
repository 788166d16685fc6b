"""Grouped absolute error on shares: sum |2^f x - y| over the cells of each candidate, for a selection's scores.

Secret: the counts x and the errors. Public: the model's answers y, the groups and how many bits are kept. Works
in blocks of cells, several in flight; the roles of the parties rotate from block to block, so that all send the
same.
"""

import asyncio

import numpy as np
from numpy.typing import NDArray

from protocols.base import reshare
from protocols.boolean import msb
from protocols.context import Context
from protocols.derived import signed
from protocols.ring import R32
from protocols.shares import Additive, Share

# Larger blocks cost less overhead and more memory: 42 bytes a cell at 10^6 cells, most of it these two blocks.
BLOCK_CELLS = 1 << 18
_IN_FLIGHT = 2


async def grouped_absolute_error(
    ctx: Context,
    x_sh: Share,
    answers: NDArray[np.uint32],
    sizes: NDArray[np.int64],
    *,
    fraction_bits: int,
    bits: int,
) -> Share:
    """a_q = sum over the cells of group q of |2^f x - y|.

    Shapes: x (n,) in Z_2^32; answers (n,), in units of 2^-f; sizes (G,), positive, adding up to n; returns (G,) in
        Z_2^32, of which ``bits`` bits count: that many are enough where a_q < 2^(bits - 1). Modulo 2^bits it is, for
        whatever x, a sum of distances of 2^f x - y from the next multiple of 2^bits: one more in a cell of x
        changes it by at most 2^f.
    Leaks: none.
    Rounds: 4 + levels(bits - 1); blocks overlap.
    Communication: of each block, the planes of ``boolean.msb`` and 8 bytes a cell by the block's party 0; G elements.
        At bits = 23 that is 11.0 bytes a cell for the mean party.
    Raises: ValueError for shapes that do not fit; ChannelError, ProtocolViolation.
    Source: README section 3, step 2, with the sign as a product: |d| = (1 - 2 v01)(1 - 2 v2)(a + b), where party
        0 knows v01 = v0 ^ v1 and a = d0 + d1, and parties 1 and 2 know v2 and b = d2, so that no product per cell
        is reshared.
    """
    if (
        x_sh.ring is not R32
        or x_sh.shape != answers.shape
        or int(sizes.sum()) != x_sh.size
        or sizes.min(initial=1) < 1
    ):
        raise ValueError(
            f"{x_sh.shape} shared counts, {answers.shape} answers and {int(sizes.sum())} cells in groups do not fit"
        )
    ends = np.cumsum(sizes)
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def block(c: Context, start: int) -> Additive:
        stop = min(start + BLOCK_CELLS, x_sh.size)
        first, last = (
            int(np.searchsorted(ends, start, "right")),
            int(np.searchsorted(ends, stop, "left")),
        )
        # The block meets groups first, ..., last; each but the first begins in it where the one before ends. Sums by
        # group are placed at ``first`` among all G: a group that goes on in the next block is added up there.
        cuts = np.concatenate(([0], ends[first:last] - start)).astype(np.intp)
        async with slots:
            role = c.child(rotate=start // BLOCK_CELLS % 3)
            d_sh = x_sh[start:stop].times(1 << fraction_bits) - answers[start:stop]
            sums = (await absolute_terms(role, d_sh.within(role.pid), bits)).grouped(cuts)
            c.depth = role.depth
        return sums.padded(first, sizes.size)

    starts = range(0, x_sh.size, BLOCK_CELLS)
    blocks = await ctx.gather(*((lambda c, s=start: block(c, s)) for start in starts))
    return await reshare(ctx, sum(blocks, start=Additive.zeros(R32, (sizes.size,))))


async def absolute_terms(ctx: Context, d_sh: Share, bits: int) -> Additive:
    """Additive terms, modulo 2^bits, of |d| for d (n,) taken between -2^(bits - 1) and 2^(bits - 1).

    See ``grouped_absolute_error``.

    Rounds: 3 + levels(bits - 1). Communication: the planes of ``boolean.msb``; 2 n elements by party 0.
    """
    return await signed(ctx, await msb(ctx, d_sh, bits), d_sh)
