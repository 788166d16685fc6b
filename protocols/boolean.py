"""Bit-sliced boolean circuits: carries, signs, full addition, prefix OR, one-hot, and the ways between bits and rings.

Boolean shares have planes along their first axis and words of 64 cells along their last; n is the number of cells and a
plane sends n/8 bytes. Each level of a circuit goes in one message. Leaks: none, in every function here. Raises: the
channel's errors. Source: README section 1; ABY3 (ePrint 2018/403), section 5.3; Sklansky's prefix tree.
"""

import numpy as np

from protocols.base import known, multiply, reshare, reveal_component
from protocols.bitslice import from_planes
from protocols.context import Context
from protocols.derived import (
    LEAF,
    Summand,
    addends,
    bits_to_ring,
    carry_leaves,
    composition_mask,
    leaf_planes,
    magnitude,
    sum_in_ring,
    summand,
    weighted_bits,
)
from protocols.ring import BITS, Ring
from protocols.shares import Share, concatenate, joined, product, stack


def levels(count: int) -> int:
    """Returns ceil(log2(count)): the depth of a binary tree over ``count`` leaves."""
    return max(0, (count - 1).bit_length())


async def carry_out(ctx: Context, generate: Share, propagate: Share) -> Share:
    """Computes the carry out of the highest plane, by a binary tree of (G, P) o (G', P') = (G + P G', P P').

    Shapes: (k, words) both; returns (words,).
    Leaks: none.
    Rounds: levels(k).
    Communication: 2 planes for each of the k - 1 nodes, less one a level (the lowest P of a level is never used).
    Raises: ChannelError, ProtocolViolation.
    Source: README section 1.
    """
    return await _carry(ctx, generate, propagate[1:])


async def _carry(ctx: Context, generate: Share, propagate: Share) -> Share:
    """Computes ``carry_out`` where the lowest group, which has nothing to propagate, has no row in ``propagate``."""
    while (count := generate.shape[0]) > 1:
        # Groups 2 i and 2 i + 1 become group i, with G = G[2 i + 1] + P[2 i + 1] G[2 i], and P = P[2 i + 1] P[2 i] for
        # i > 0. In the shifted rows P[2 i + 1] is row 2 i, and P[2 i] row 2 i - 1.
        pairs = count // 2
        g_low, g_high = generate[: 2 * pairs : 2], generate[1 : 2 * pairs : 2]
        p_high, p_low = propagate[: 2 * pairs : 2], propagate[1 : 2 * pairs - 1 : 2]
        carried, kept = product(ctx, p_high, g_low), product(ctx, p_high[1:], p_low)
        both = await reshare(ctx, joined(carried, kept))
        higher, through = g_high ^ both[:pairs], both[pairs:]
        # An odd count leaves the highest group as it is.
        if count % 2:
            higher = concatenate(higher, generate[-1:])
            through = concatenate(through, propagate[-1:])
        generate, propagate = higher, through
    return generate[0]


async def _first_level(ctx: Context, x_sh: Share, bits: int) -> tuple[Share, Share]:
    """Returns G = a AND b for all planes but the highest, and P = a XOR b for all."""
    operands = await addends(ctx, x_sh, bits)
    return await operands.generate(ctx, bits - 1), operands.propagate


async def top_plane(ctx: Context, x_sh: Share, bits: int) -> tuple[Share, Share]:
    """Returns plane bits - 1 of x (words,), and the carries into it (1 or 2, words) of the sum of ``sum_in_ring``.

    Rounds: 2 + levels(ceil((bits - 1) / 3)), with a verifier 2 + levels(bits - 1).
    Communication: ``carry_leaves``, then ``carry_out`` of a plane for each three; with a verifier ``addends``, a plane
        for each of bits - 1 bits, then ``carry_out`` of bits - 1 planes.
    """
    if ctx.verifier is None:
        top, carry = await top_of_sum(ctx, summand(x_sh), bits)
        return top, stack(carry)
    operands = await addends(ctx, x_sh, bits)
    generate, propagate = await operands.generate(ctx, bits - 1), operands.propagate
    carry = await carry_out(ctx, generate, propagate[: bits - 1])
    # Of three components, the second number's bit in this plane is a carry of their lower planes, too.
    more = [operands.second[bits - 1]] if operands.even else []
    return propagate[bits - 1] ^ carry, stack(carry, *more)


async def top_of_sum(
    ctx: Context, x: Summand, bits: int, low: int = 0, leaf: int = LEAF
) -> tuple[Share, Share]:
    """Computes ``top_plane`` from the summands of x, both (words,), in planes from ``low`` on; not with a verifier.

    Rounds: 2 + levels(ceil((bits - low - 1) / leaf)). Communication: as ``carry_leaves``, then ``carry_out``.
    """
    leaves = await carry_leaves(ctx, x, bits, low, leaf)
    carry = await _carry(ctx, leaves.generate, leaves.propagate)
    return leaves.top ^ carry, carry


async def msb(ctx: Context, x_sh: Share, bits: int | None = None) -> Share:
    """Returns the sign bit of x (n,) as a boolean share (words,).

    With a public bound |x| < 2^(bits-1), the sign is plane bits - 1 of the sum modulo 2^bits, and only that many planes
    are needed; ``bits`` defaults to the ring's.
    Rounds and communication of ``top_plane``.
    """
    top, _ = await top_plane(ctx, x_sh, x_sh.ring.bits if bits is None else bits)
    return top


async def add_carries(ctx: Context, generate: Share, propagate: Share) -> Share:
    """Computes the carry out of every plane, by Sklansky's prefix tree.

    Shapes: (k, words) both and returned.
    Leaks: none.
    Rounds: levels(k).
    Communication: at most 2 planes for each of the floor(k/2) nodes of a level (P only where it is used again).
    Raises: ChannelError, ProtocolViolation.
    Source: Sklansky (1960).
    """
    count = generate.shape[0]
    for level in range(levels(count)):
        # Blocks of 2^level planes: a plane in an odd block (its bit ``level`` is set) joins its group, which starts at
        # that block, with the one that ends below: plane ``source`` is the last one of the even block before.
        block = 1 << level
        nodes = np.array([i for i in range(count) if i & block], dtype=np.intp)
        sources = (nodes & ~np.intp(block - 1)) - 1
        # A group that reaches plane 0 is done: its P is never used again.
        again = nodes >= 2 * block
        p_nodes = propagate[nodes]
        both = await multiply(
            ctx,
            concatenate(p_nodes, p_nodes[again]),
            concatenate(generate[sources], propagate[sources[again]]),
        )
        generate = _replace(generate, nodes, generate[nodes] ^ both[: len(nodes)])
        propagate = _replace(propagate, nodes[again], both[len(nodes) :])
    return generate


def _replace(
    x_bsh: Share, planes: np.ndarray[tuple[int, ...], np.dtype[np.intp]], new: Share
) -> Share:
    own, next_ = x_bsh.own.copy(), x_bsh.next.copy()
    own[planes], next_[planes] = new.own, new.next
    return Share(BITS, x_bsh.pid, own, next_)


async def to_boolean(ctx: Context, x_sh: Share, bits: int) -> Share:
    """Returns the lowest ``bits`` planes of x (n,) as a boolean share (bits, words), by a full adder.

    Rounds: 2 + levels(bits - 1).
    Communication: bits planes by party 0; bits - 1 planes, then ``add_carries`` of bits - 1 planes.
    """
    generate, propagate = await _first_level(ctx, x_sh, bits)
    carries = await add_carries(ctx, generate, propagate[: bits - 1])
    return concatenate(propagate[:1], propagate[1:] ^ carries)


async def and_all(ctx: Context, x_bsh: Share) -> Share:
    """ANDs all planes (k, words) -> (words,). Rounds: levels(k). Communication: k - 1 planes."""
    while (count := x_bsh.shape[0]) > 1:
        pairs = count // 2
        both = await multiply(ctx, x_bsh[: 2 * pairs : 2], x_bsh[1 : 2 * pairs : 2])
        x_bsh = concatenate(both, x_bsh[2 * pairs :])
    return x_bsh[0]


async def or_all(ctx: Context, x_bsh: Share) -> Share:
    """ORs all planes, as NOT of the AND of the NOTs. Rounds and communication of ``and_all``."""
    return ~(await and_all(ctx, ~x_bsh))


async def prefix_or(ctx: Context, x_bsh: Share) -> Share:
    """Computes y_i = x_0 OR ... OR x_i along the planes (k, words), by Sklansky's prefix tree.

    Rounds: levels(k). Communication: at most floor(k/2) planes a level.
    """
    # Sklansky's tree as in ``add_carries``, of ANDs: kept is the AND of the NOTs so far.
    none_yet, count = ~x_bsh, x_bsh.shape[0]
    for level in range(levels(count)):
        nodes = np.array([i for i in range(count) if i & (1 << level)], dtype=np.intp)
        sources = (nodes & ~np.intp((1 << level) - 1)) - 1
        none_yet = _replace(
            none_yet, nodes, await multiply(ctx, none_yet[nodes], none_yet[sources])
        )
    return ~none_yet


async def words_to_ring(ctx: Context, x_bsh: Share, count: int, ring: Ring) -> Share:
    """Converts unsigned integers of w <= 62 planes (w, words) to elements (count,) of a ring of more than w bits.

    Party 1 adds a mask r of w bits, the holders of component 0 learn x + r mod 2^w, and the carry corrects the wrap.
    Leaks: none; x + r mod 2^w is uniform to parties 0 and 2.
    Rounds: 4 + levels(w).
    Communication: by all, the planes of one ``add_carries`` of w planes, w more, and n elements; by party 1 besides 3 w
        planes and n elements, by party 0 n elements.
    Raises: ChannelError, ProtocolViolation.
    Source: ABY3, section 5.3 (bit composition), with the adder cut to w bits.

    With a verifier ``derived.weighted_bits``: party 1's mask could not be checked.
    """
    if ctx.verifier is not None:
        return await weighted_bits(ctx, x_bsh, count, ring)
    width = x_bsh.shape[0]
    r_bsh, r_sh = await composition_mask(ctx, (width, x_bsh.shape[1]), count, ring)
    # x + r in planes, by a full adder; the sum modulo 2^w is revealed, its carry says whether x = sum - r or 2^w more.
    propagate = x_bsh ^ r_bsh
    carries = await add_carries(ctx, await multiply(ctx, x_bsh, r_bsh), propagate)
    sums = concatenate(propagate[:1], propagate[1:] ^ carries[:-1])
    wrapped, sum_planes = await ctx.both(
        lambda c: bits_to_ring(c, carries[-1], count, ring),
        lambda c: reveal_component(c, sums, 0),
    )
    value = None if sum_planes is None else ring.encode(from_planes(sum_planes, count))
    return known(ctx, ring, 0, value, (count,)) - r_sh + wrapped.times(1 << width)


async def lift_magnitude(ctx: Context, x_sh: Share, bits: int, ring: Ring) -> Share:
    """Returns the distance of x modulo 2^bits from 0, in a larger ring: min(x, 2^bits - x), at most 2^(bits - 1).

    The distance is |x| wherever |x| <= 2^(bits - 1). It changes by at most 1 when x does, for any x.

    Shapes: (n,); bits >= 2.
    Leaks: none.
    Rounds: 4 + levels(ceil((bits - 1) / leaf)) with leaf = ``leaf_planes(n, bits - 1)``, at most 6 of few cells; with a
        verifier 5 + levels(bits - 1).
    Communication: the planes of ``top_of_sum``, n elements of the larger ring, and 3 n more by party 0; with a verifier
        of ``msb``, 4 n by all and 3 n more by party 0.
    Raises: ChannelError, ProtocolViolation.
    Source: own; with c the carry into plane bits - 1, s that plane of x, and l = 2^(bits - 1): the lower planes are y =
        a + b - l c of the summands' own, and the magnitude is y + s (l - 2 y).
    """
    if ctx.verifier is None:
        leaf = leaf_planes(x_sh.size, bits - 1)
        _, carry = await top_of_sum(ctx, summand(x_sh), bits, leaf=leaf)
        return await magnitude(ctx, x_sh, carry, bits, ring)
    half = 1 << (bits - 1)
    top, carries = await top_plane(ctx, x_sh, bits)
    planes = concatenate(carries, stack(top))
    in_ring = await bits_to_ring(ctx, planes, x_sh.size, ring)
    # y = the components' lower planes, added up in the larger ring, less l for each carry; magnitude y - s (2 y - l).
    y_sh = sum_in_ring(x_sh, bits - 1, ring) - in_ring[:-1].sum(axis=0).times(half)
    return y_sh - await reshare(ctx, product(ctx, in_ring[-1], y_sh.times(2) - half))
