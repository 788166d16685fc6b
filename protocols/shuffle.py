"""A secret shuffle: shared rows in an order that no party knows, and back.

Three passes, each by a permutation that two parties draw from their common keystream and the third one does not know;
so no party knows all three, and their product is uniform to each. In a pass the two have all three components between
them, permute them and share them afresh; the third party is sent nothing. With a verifier the rows carry tags
(`row_tags`), so that any other change of the rows is found before they are used.

Secret: rows and permutations. Public: the number of rows. Known limit: time and memory accesses of sorting and indexing
depend on permutations, which another user of the same machine might watch. Source: README section 8; passes by pairs:
Laur, Willemson, Zhang (ISC 2011) and Asharov et al. (CCS 2022).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.context import Context
from protocols.ring import BITS, R64
from protocols.row_tags import TagKeys, check_tags, tagged
from protocols.shares import Share

PASSES = 3
Permutation = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Passes:
    """Permutations of a shuffle that this party knows, None for the one that it does not. Secret."""

    each: tuple[Permutation | None, Permutation | None, Permutation | None]

    @classmethod
    def draw(cls, ctx: Context, rows: int) -> "Passes":
        """Draws permutations for so many rows: pass j is known to parties j, j + 1, who hold component j + 1. Free."""
        first, second, third = (
            _uniform(ctx, component, rows) if component in (ctx.pid, ctx.next_pid) else None
            for component in ((j + 1) % 3 for j in range(PASSES))
        )
        return cls((first, second, third))


def _uniform(ctx: Context, component: int, rows: int) -> Permutation:
    """Draws a uniform permutation from the keystream of a component: the order of words that are all different."""
    while True:
        words = ctx.common(component, R64, (rows,))
        order = np.argsort(words, kind="stable")
        ranked = words[order]
        # Words that are all different come in every order equally often; if two are equal, all are drawn again.
        if not (ranked[1:] == ranked[:-1]).any():
            return order


async def shuffle(ctx: Context, rows_bsh: Share, passes: Passes) -> Share:
    """Moves the rows into the order of the three passes, one after the other.

    Shapes: (n, words) -> the same.
    Leaks: none.
    Rounds: 3; with a verifier 5.
    Communication: 2 n words of 8 bytes a row; with a verifier 3 words more in each, 2 more for the tags, and 64 bytes.
    Raises: CheckFailed, with a verifier, where rows were not only moved; ChannelError, ProtocolViolation.
    Source: README section 8.
    """
    return await _moved(ctx, rows_bsh, tuple(enumerate(passes.each)))


async def unshuffle(ctx: Context, rows_bsh: Share, passes: Passes) -> Share:
    """Undoes ``shuffle``: rows that came from place i are at place i again. Cost and errors as there."""
    backwards = [(j, p if p is None else np.argsort(p)) for j, p in enumerate(passes.each)]
    return await _moved(ctx, rows_bsh, backwards[::-1])


async def _moved(
    ctx: Context, rows_bsh: Share, passes: Sequence[tuple[int, Permutation | None]]
) -> Share:
    if ctx.verifier is None:
        for number, permutation in passes:
            rows_bsh = await _pass(ctx, rows_bsh, number, permutation)
        return rows_bsh
    keys = TagKeys(ctx, rows_bsh.shape[1])
    rows_bsh = await tagged(ctx, keys, rows_bsh)
    for number, permutation in passes:
        rows_bsh = await _pass(ctx, rows_bsh, number, permutation)
    return await check_tags(ctx, keys, rows_bsh)


async def _pass(ctx: Context, x_bsh: Share, first: int, permutation: Permutation | None) -> Share:
    """Permutes rows at parties j = ``first`` and j + 1, who get new components of them.

    a = x_j + x_{j+1} is known to party j and b = x_{j+2} to party j + 1. Components j and j + 2 are keystreams, each of
    one of the two and the third party; party j sends p(a) less the former, party j + 1 p(b) less the latter, to one
    another, and the sum is component j + 1. Each of the two sees the other's part under a keystream that it does not
    have.
    """
    second, third, shape = (first + 1) % 3, (first + 2) % 3, x_bsh.shape
    if ctx.pid == third:
        own = ctx.common(third, BITS, shape)
        next_ = ctx.common(first, BITS, shape)
        await ctx.round({}, {})
        return Share(BITS, ctx.pid, own, next_)
    if permutation is None:
        raise ValueError(f"party {ctx.pid} has to know the permutation of pass {first}")
    here = ctx.pid == first
    # p(a) less component j, or p(b) less component j + 2; their sum is component j + 1.
    mask = ctx.common(first if here else third, BITS, shape)
    part = x_bsh.own ^ x_bsh.next if here else x_bsh.next
    sent = part[permutation] ^ mask
    peer = second if here else first
    received = await ctx.round({peer: BITS.to_wire(sent)}, {peer: sent.nbytes})
    between = BITS.from_wire(received[peer], shape) ^ sent
    return Share(BITS, ctx.pid, mask, between) if here else Share(BITS, ctx.pid, between, mask)
