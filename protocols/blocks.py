"""Long vectors in blocks: bounded memory, a few blocks in flight, the parties' roles rotating from block to block."""

import asyncio
from collections.abc import Awaitable, Callable

from protocols.context import Context
from protocols.shares import Share, concatenate

_IN_FLIGHT = 2
PROVED_AT_ONCE = 4


async def in_blocks(
    ctx: Context, count: int, block: int, protocol: Callable[[Context, int], Awaitable[Share]]
) -> Share:
    """Runs ``protocol(context, size)`` for blocks of at most ``block``; returns the results, flattened and joined.

    With a verifier, the products of every few blocks are proved before the next blocks, so that they need not be kept.

    Rounds: those of one block; blocks overlap.
    Communication: the sum of the blocks', with roles rotated, so that all parties send the same in the long run.
    """
    return await _joined(ctx, count, block, lambda role, part: protocol(role, len(part)))


async def of_blocks(
    ctx: Context, x_sh: Share, block: int, protocol: Callable[[Context, Share], Awaitable[Share]]
) -> Share:
    """Runs ``protocol(context, part)`` for blocks of x (n,), as ``in_blocks``."""
    return await _joined(
        ctx,
        x_sh.size,
        block,
        lambda role, part: protocol(role, x_sh[part.start : part.stop].within(role.pid)),
    )


async def _joined(
    ctx: Context, count: int, block: int, protocol: Callable[[Context, range], Awaitable[Share]]
) -> Share:
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def one(c: Context, start: int) -> Share:
        async with slots:
            role = c.child(rotate=start // block % 3)
            result = await protocol(role, range(start, min(start + block, count)))
            c.depth = role.depth
            return result.within(c.pid).reshape(-1)

    starts, parts = range(0, count, block), list[Share]()
    at_once = len(starts) if ctx.verifier is None else PROVED_AT_ONCE
    for first in range(0, len(starts), at_once):
        if parts and ctx.verifier is not None:
            await ctx.verifier.settle(ctx)
        some = starts[first : first + at_once]
        parts += await ctx.gather(*((lambda c, s=start: one(c, s)) for start in some))
    return concatenate(*parts)
