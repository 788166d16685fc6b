"""Bit-sliced boolean circuits: carries, signs, full addition, prefix OR, one-hot, and the ways between bits and rings.

Boolean shares have planes along their first axis and words of 64 cells along their last; n is the number of cells and a
plane sends n/8 bytes. Each level of a circuit goes in one message. Leaks: none, in every function here. Raises: the
channel's errors. Source: README section 1; ABY3 (ePrint 2018/403), section 5.3; Sklansky's prefix tree.
"""

import numpy as np

from protocols.base import known, multiply, reshare, reveal_component, share_input
from protocols.bitslice import from_planes, to_bits, to_planes, words_for
from protocols.context import Context
from protocols.ring import BITS, Ring, RingArray
from protocols.shares import Share, concatenate, cross_product, joined, product, stack


def levels(count: int) -> int:
    """ceil(log2(count)): the depth of a binary tree over ``count`` leaves."""
    return max(0, (count - 1).bit_length())


def summands(ctx: Context, x_sh: Share) -> tuple[RingArray | None, RingArray | None]:
    """x = a + b with a = x0 + x1, known to party 0, and b = x2, known to parties 1 and 2. Local."""
    a = x_sh.ring.add(x_sh.own, x_sh.next) if ctx.pid == 0 else None
    b = (None, x_sh.next, x_sh.own)[ctx.pid]
    return a, b


async def share_summand_planes(
    ctx: Context, x_sh: Share, bits: int
) -> tuple[Share, RingArray | None, Share]:
    """The lowest ``bits`` planes of the summands of x (n,): a shared, b at the parties that know it, and a XOR b.

    Shapes: (bits, words) all.
    Leaks: none.
    Rounds: 1.
    Communication: bits planes by party 0, none by the others; b is known to both holders of component 2, hence free.
    Raises: ChannelError, ProtocolViolation.
    Source: README section 1.
    """
    a, b = summands(ctx, x_sh)
    shape = (bits, words_for(x_sh.size))
    a_planes = None if a is None else to_planes(x_sh.ring, a, bits)
    b_planes = None if b is None else to_planes(x_sh.ring, b, bits)
    a_bsh = await share_input(ctx, BITS, 0, a_planes, shape)
    return a_bsh, b_planes, a_bsh ^ known(ctx, BITS, 2, b_planes, shape)


async def carry_out(ctx: Context, generate: Share, propagate: Share) -> Share:
    """The carry out of the highest plane, by a binary tree of (G, P) o (G', P') = (G + P G', P P').

    Shapes: (k, words) both; returns (words,).
    Leaks: none.
    Rounds: levels(k).
    Communication: 2 planes for each of the k - 1 nodes, less one a level (the lowest P of a level is never used).
    Raises: ChannelError, ProtocolViolation.
    Source: README section 1.
    """
    # The group that holds the lowest bit has nothing to propagate: row i of P is that of group i + 1.
    propagate = propagate[1:]
    while (count := generate.shape[0]) > 1:
        pairs = count // 2
        p_high, p_low = propagate[: 2 * pairs : 2], propagate[1 : 2 * pairs - 1 : 2]
        both = await reshare(
            ctx, joined(product(p_high, generate[: 2 * pairs : 2]), product(p_high[1:], p_low))
        )
        higher, through = generate[1 : 2 * pairs : 2] ^ both[:pairs], both[pairs:]
        if count % 2:
            higher = concatenate(higher, generate[-1:])
            through = concatenate(through, propagate[-1:])
        generate, propagate = higher, through
    return generate[0]


async def _first_level(ctx: Context, x_sh: Share, bits: int) -> tuple[Share, Share]:
    """G = a AND b for all planes but the highest, and P = a XOR b for all."""
    a_bsh, b_planes, propagate = await share_summand_planes(ctx, x_sh, bits)
    below = None if b_planes is None else b_planes[: bits - 1]
    return await reshare(ctx, cross_product(a_bsh[: bits - 1], below)), propagate


async def summand_carry(ctx: Context, x_sh: Share, bits: int) -> tuple[Share, Share]:
    """The carry into plane bits - 1 of x = a + b, and plane bits - 1 of a XOR b.

    Rounds: 2 + levels(bits - 1).
    Communication: bits planes by party 0; 1 plane for each of bits - 1 bits, then ``carry_out`` of bits - 1 planes.
    """
    generate, propagate = await _first_level(ctx, x_sh, bits)
    return await carry_out(ctx, generate, propagate[: bits - 1]), propagate[bits - 1]


async def msb(ctx: Context, x_sh: Share, bits: int | None = None) -> Share:
    """Sign bit of x (n,) as a boolean share (words,).

    With a public bound |x| < 2^(bits-1), the sign is plane bits - 1 of the sum modulo 2^bits, and only that many planes
    are needed; ``bits`` defaults to the ring's.
    Rounds and communication of ``summand_carry``.
    """
    carry, top = await summand_carry(ctx, x_sh, x_sh.ring.bits if bits is None else bits)
    return top ^ carry


async def add_carries(ctx: Context, generate: Share, propagate: Share) -> Share:
    """The carry out of every plane, by Sklansky's prefix tree.

    Shapes: (k, words) both and returned.
    Leaks: none.
    Rounds: levels(k).
    Communication: at most 2 planes for each of the floor(k/2) nodes of a level (P only where it is used again).
    Raises: ChannelError, ProtocolViolation.
    Source: Sklansky (1960).
    """
    count = generate.shape[0]
    for level in range(levels(count)):
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
    """The lowest ``bits`` planes of x (n,) as a boolean share (bits, words): bit decomposition by a full adder.

    Rounds: 2 + levels(bits - 1).
    Communication: bits planes by party 0; bits - 1 planes, then ``add_carries`` of bits - 1 planes.
    """
    generate, propagate = await _first_level(ctx, x_sh, bits)
    carries = await add_carries(ctx, generate, propagate[: bits - 1])
    return concatenate(propagate[:1], propagate[1:] ^ carries)


async def and_all(ctx: Context, x_bsh: Share) -> Share:
    """AND of all planes (k, words) -> (words,). Rounds: levels(k). Communication: k - 1 planes."""
    while (count := x_bsh.shape[0]) > 1:
        pairs = count // 2
        both = await multiply(ctx, x_bsh[: 2 * pairs : 2], x_bsh[1 : 2 * pairs : 2])
        x_bsh = concatenate(both, x_bsh[2 * pairs :])
    return x_bsh[0]


async def or_all(ctx: Context, x_bsh: Share) -> Share:
    """OR of all planes, as NOT of the AND of the NOTs. Rounds and communication of ``and_all``."""
    return ~(await and_all(ctx, ~x_bsh))


async def prefix_or(ctx: Context, x_bsh: Share) -> Share:
    """y_i = x_0 OR ... OR x_i along the planes (k, words), by Sklansky's prefix tree.

    Rounds: levels(k). Communication: at most floor(k/2) planes a level.
    """
    none_yet, count = ~x_bsh, x_bsh.shape[0]
    for level in range(levels(count)):
        nodes = np.array([i for i in range(count) if i & (1 << level)], dtype=np.intp)
        sources = (nodes & ~np.intp((1 << level) - 1)) - 1
        none_yet = _replace(
            none_yet, nodes, await multiply(ctx, none_yet[nodes], none_yet[sources])
        )
    return ~none_yet


async def bits_to_ring(ctx: Context, v_bsh: Share, count: int, ring: Ring) -> Share:
    """Zeros and ones of planes (..., words) as ring elements (..., count).

    Leaks: none.
    Rounds: 2.
    Communication: n elements, and n more by party 0.
    Raises: ChannelError, ProtocolViolation.
    Source: README section 1: v = u + v2 - 2 u v2 with u = v0 ^ v1 an input of party 0 and v2 free.
    """
    u, v2 = summands(ctx, v_bsh)
    shape = (*v_bsh.shape[:-1], count)
    u_ring = None if u is None else ring.encode(to_bits(u, count))
    v2_ring = None if v2 is None else ring.encode(to_bits(v2, count))
    u_sh = await share_input(ctx, ring, 0, u_ring, shape)
    both = await reshare(ctx, cross_product(u_sh, v2_ring))
    return u_sh + known(ctx, ring, 2, v2_ring, shape) - both.times(2)


async def words_to_ring(ctx: Context, x_bsh: Share, count: int, ring: Ring) -> Share:
    """Unsigned integers of w <= 62 planes (w, words) as elements (count,) of a ring of more than w bits.

    Party 1 adds a mask r of w bits, the holders of component 0 learn x + r mod 2^w, and the carry puts the wrap right.
    Leaks: none; x + r mod 2^w is uniform to parties 0 and 2.
    Rounds: 4 + levels(w).
    Communication: by all, the planes of one ``add_carries`` of w planes, w more, and n elements; by party 1 besides 3 w
        planes and n elements, by party 0 n elements.
    Raises: ChannelError, ProtocolViolation.
    Source: ABY3, section 5.3 (bit composition), with the adder cut to w bits.
    """
    width = x_bsh.shape[0]
    mask = ctx.private(BITS, x_bsh.shape) if ctx.pid == 1 else None
    r_bsh, r_sh = await ctx.gather(
        lambda c: share_input(c, BITS, 1, mask, x_bsh.shape),
        lambda c: share_input(
            c, ring, 1, None if mask is None else ring.encode(from_planes(mask, count)), (count,)
        ),
    )
    propagate = x_bsh ^ r_bsh
    carries = await add_carries(ctx, await multiply(ctx, x_bsh, r_bsh), propagate)
    sums = concatenate(propagate[:1], propagate[1:] ^ carries[:-1])
    wrapped, sum_planes = await ctx.both(
        lambda c: bits_to_ring(c, carries[-1], count, ring),
        lambda c: reveal_component(c, sums, 0),
    )
    value = None if sum_planes is None else ring.encode(from_planes(sum_planes, count))
    return known(ctx, ring, 0, value, (count,)) - r_sh + wrapped.times(1 << width)


async def lift(ctx: Context, x_sh: Share, ring: Ring) -> Share:
    """The unsigned value of x in Z_2^k as an element of a larger ring, exactly.

    Shapes: (n,).
    Leaks: none.
    Rounds: 4 + levels(k).
    Communication: the planes of a carry over k bits, n elements of the larger ring, and 2 n more by party 0.
    Raises: ChannelError, ProtocolViolation.
    Source: own; x = a + b - 2^k c with a, b the summands and c the carry out of their sum.
    """
    small = x_sh.ring
    a, b = summands(ctx, x_sh)
    a_sh, (a_bsh, b_planes, propagate) = await ctx.both(
        lambda c: share_input(c, ring, 0, None if a is None else _widen(ring, a), x_sh.shape),
        lambda c: share_summand_planes(c, x_sh, small.bits),
    )
    b_sh = known(ctx, ring, 2, None if b is None else _widen(ring, b), x_sh.shape)
    carry = await carry_out(ctx, await reshare(ctx, cross_product(a_bsh, b_planes)), propagate)
    return a_sh + b_sh - (await bits_to_ring(ctx, carry, x_sh.size, ring)).times(1 << small.bits)


async def lift_magnitude(ctx: Context, x_sh: Share, bits: int, ring: Ring) -> Share:
    """How far x modulo 2^bits is from 0, as an element of a larger ring: min(x, 2^bits - x), at most 2^(bits - 1).

    That is |x| wherever |x| <= 2^(bits - 1); and it changes by at most 1 when x does, for whatever x.

    Shapes: (n,).
    Leaks: none.
    Rounds: 5 + levels(bits - 1).
    Communication: the planes of ``msb``, 3 n elements of the larger ring, and 3 n more by party 0.
    Raises: ChannelError, ProtocolViolation.
    Source: own; with c the carry into plane bits - 1, s that plane of x, and l = 2^(bits - 1): the lower planes are
        y = a + b - l c of the summands' own, and the magnitude is y + s (l - 2 y).
    """
    half = 1 << (bits - 1)
    a, b = (
        None if part is None else _widen(ring, part & (half - 1)) for part in summands(ctx, x_sh)
    )
    a_sh, (carry, top) = await ctx.both(
        lambda c: share_input(c, ring, 0, a, x_sh.shape),
        lambda c: summand_carry(c, x_sh, bits),
    )
    both = await bits_to_ring(ctx, stack(carry, top ^ carry), x_sh.size, ring)
    y_sh = a_sh + known(ctx, ring, 2, b, x_sh.shape) - both[0].times(half)
    return y_sh - await reshare(ctx, product(both[1], y_sh.times(2) - half))


def _widen(ring: Ring, x: RingArray) -> RingArray:
    return ring.encode(x.astype(object) if ring.wide else x)
