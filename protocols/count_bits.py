"""The bits of shared counts, kept from one selection to the next, and comparisons of them with public numbers.

Between two selections counts change only when owners were counted in. Their bits are therefore made once. A comparison
with the model's answers, which are public, then needs a carry tree and nothing else: the generate and propagate bits of
a plane are linear in it. For two neighbouring planes both are linear in the planes and their product, so that these
products are kept, too, and the tree has half the leaves.

Secret: bits and products. Layout: planes (m, words), plane 0 the lowest, 64 cells to a word. Leaks: none, in every
function here. Raises: the channel's errors. Source: own; README section 3.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.base import multiply, reshare
from protocols.bitslice import to_planes, words_for
from protocols.boolean import carry_out, to_boolean
from protocols.context import Context
from protocols.derived import addends
from protocols.ring import BITS, R32, RingArray
from protocols.shares import Share, concatenate, product

WORD = 64
BLOCK_CELLS = 1 << 18
_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CountBits:
    """Lowest m bits of counts: ``planes`` (m, words); ``pairs`` ((m - 1) // 2, words), planes 2 i AND 2 i + 1."""

    planes: Share
    pairs: Share

    @property
    def bits(self) -> int:
        """Number of bits of a count."""
        return self.planes.shape[0]

    @property
    def words(self) -> int:
        """Length of a plane in words."""
        return self.planes.shape[1]

    def part(self, start: int, stop: int) -> "CountBits":
        """Returns some of the words. Local."""
        return CountBits(self.planes[:, start:stop], self.pairs[:, start:stop])

    def within(self, pid: int) -> "CountBits":
        """Returns the same bits seen from a rotated context. Local."""
        return CountBits(self.planes.within(pid), self.pairs.within(pid))

    def lowest(self, bits: int) -> "CountBits":
        """Returns so many of the lowest bits. Local."""
        return CountBits(self.planes[:bits], self.pairs[: (bits - 1) // 2])

    @staticmethod
    def joined(parts: Sequence["CountBits"]) -> "CountBits":
        """Returns the cells of several parts, of as many bits, one after the other. Local."""
        return CountBits(_beside([p.planes for p in parts]), _beside([p.pairs for p in parts]))


def _beside(planes: Sequence[Share]) -> Share:
    own, next_ = (
        np.concatenate(parts, axis=-1)
        for parts in ([p.own for p in planes], [p.next for p in planes])
    )
    return Share(BITS, planes[0].pid, own, next_)


def whole_words(cells: int) -> int:
    """Returns so many cells, rounded up to whole words."""
    return words_for(cells) * WORD


def apart(cells: RingArray, sizes: Sequence[int]) -> RingArray:
    """Returns groups of ``sizes`` cells, each from a new word on: with zeros at their ends. Local."""
    if not any(size % WORD for size in sizes):
        return cells
    padded = np.zeros(sum(map(whole_words, sizes)), cells.dtype)
    start, at = 0, 0
    for size in sizes:
        padded[at : at + size] = cells[start : start + size]
        start, at = start + size, at + whole_words(size)
    return padded


async def count_bits(ctx: Context, x_sh: Share, bits: int) -> CountBits:
    """Computes the lowest ``bits`` bits of counts, in blocks of 2^18 cells whose roles rotate.

    Shapes: x (n,).
    Leaks: none.
    Rounds: 3 + levels(bits - 1), with a verifier bits; blocks overlap.
    Communication: ``boolean.to_boolean``, with a verifier 2 bits - 3 planes, and (bits - 1) // 2 planes.
    Raises: ChannelError, ProtocolViolation.
    Source: own.
    """
    slots, paired = asyncio.Semaphore(_IN_FLIGHT), (bits - 1) // 2 * 2

    async def block(c: Context, start: int) -> CountBits:
        async with slots:
            role = c.child(rotate=start // BLOCK_CELLS % 3)
            part = x_sh[start : start + BLOCK_CELLS].within(role.pid)
            planes = await (to_boolean if c.verifier is None else _rippled)(role, part, bits)
            pairs = await multiply(role, planes[:paired:2], planes[1:paired:2])
            c.depth = role.depth
        return CountBits(planes, pairs).within(c.pid)

    starts = range(0, max(1, x_sh.size), BLOCK_CELLS)
    return CountBits.joined(
        await ctx.gather(*((lambda c, s=start: block(c, s)) for start in starts))
    )


async def _rippled(ctx: Context, x_sh: Share, bits: int) -> Share:
    """Computes ``boolean.to_boolean`` with the fewest ANDs, two a bit, since each has to be proved.

    Rounds: bits - 1. Communication: 2 bits - 3 planes.
    """
    operands = await addends(ctx, x_sh, bits)
    first, second = operands.first, operands.second
    # The second number is even, so that nothing is carried into plane 1.
    carries = [second[:1]] * 2
    for plane in range(1, bits - 1):
        carry, a, b = carries[-1], first[plane : plane + 1], second[plane : plane + 1]
        # The next carry is the majority of a, b and carry: (a ^ carry)(b ^ carry) ^ carry.
        both = product(ctx, a ^ carry, b ^ carry)
        carries.append(await reshare(ctx, both + carry.additive(ctx)))
    return operands.propagate ^ concatenate(*carries[:bits])


async def below(ctx: Context, x: CountBits, y: NDArray[np.uint32], bits: int) -> Share:
    """Computes plane bits - 1 of x - y modulo 2^bits: [x < y], where they are less than 2^(bits - 1) apart.

    Shapes: x of at least ``bits`` bits, 2 or more; y (n,) public, n cells in x's words; returns (words,).
    Leaks: none.
    Rounds: levels(ceil((bits - 1) / 2)).
    Communication: ``boolean.carry_out`` of ceil((bits - 1) / 2) planes.
    Raises: ValueError where shapes do not fit; ChannelError, ProtocolViolation.
    Source: own; README section 3.
    """
    if not 2 <= bits <= x.bits or words_for(y.size) != x.words:
        raise ValueError(f"{x.bits} bits of {x.words} words, {bits} of {y.size} cells do not fit")
    # x - y is x + w with w = -y public, and its top plane is x's, w's and the carry into it.
    w = to_planes(R32, np.negative(y), bits)
    generate, propagate = _leaves(x, w[: bits - 1])
    carry = await carry_out(ctx, generate, propagate)
    top: Share = x.planes[bits - 1] ^ w[bits - 1]
    return top ^ carry


def _leaves(x: CountBits, w: NDArray[np.uint64]) -> tuple[Share, Share]:
    """Returns the generate and propagate bits of pairs of planes of x + w, and of a last single plane. Local.

    With g = x w and p = x ^ w of a plane, a pair generates g1 ^ p1 g0 = x1 w1 ^ w0 (x0 x1) ^ w0 w1 x0, and propagates
    p0 p1 = x0 x1 ^ w0 x1 ^ w1 x0 ^ w0 w1.
    """
    count = w.shape[0]
    pairs = count // 2
    x0, x1 = x.planes[: 2 * pairs : 2], x.planes[1 : 2 * pairs : 2]
    w0, w1, both = w[: 2 * pairs : 2], w[1 : 2 * pairs : 2], x.pairs[:pairs]
    # ``both`` is x0 x1.
    generate = x1.times(w1) ^ both.times(w0) ^ x0.times(w0 & w1)
    propagate = both ^ x1.times(w0) ^ x0.times(w1) ^ (w0 & w1)
    if count == 2 * pairs:
        return generate, propagate
    last, single = x.planes[count - 1 : count], w[count - 1 :]
    return concatenate(generate, last.times(single)), concatenate(propagate, last ^ single)
