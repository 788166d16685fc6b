"""Fixed-point arithmetic on shares: truncation without a large-error event, products, polynomials, powers of two.

A value v with f fractional bits is the ring element round(2^f v), two's complement. Secret: everything shared.
Leaks: none, in every function here. Source: README sections 1 and 3.
"""

import math
from collections.abc import Sequence

import numpy as np

from protocols.base import known, multiply, noise, open_masked, reshare, zero
from protocols.boolean import carry_out
from protocols.context import Context
from protocols.derived import (
    addends,
    cut,
    share_truncation_mask,
    truncation_mask,
    two_bits,
)
from protocols.ring import Ring, RingArray
from protocols.shares import Additive, Share, concatenate, joined, product, stack


async def truncate(ctx: Context, x_add: Additive, shift: int) -> Share:
    """Computes x / 2^shift, rounded down or up, for |x| < 2^(k-2): up with the probability of the cut fraction.

    With x' = x + 2^(k-2) and r uniform, known to party 2 alone, parties 0 and 1 learn c = x' + r. Then x' = (c mod
    2^(k-1)) - (r mod 2^(k-1)) + w 2^(k-1), where w = top(c) XOR top(r), so no carry is ever guessed.

    Shapes: any.
    Leaks: none; c is uniform to parties 0 and 1, and party 2 receives nothing in the first round.
    Rounds: 2.
    Communication: n elements in each round; party 2 sends 4 n in the first (c to both, two inputs to party 1). With a
        verifier see ``_truncate_by_pair``.
    Raises: ValueError for a shift outside [0, k - 2); ChannelError, ProtocolViolation.
    Source: README sections 1 and 7.
    """
    ring, shape = x_add.ring, x_add.shape
    top = ring.bits - 1
    if not 0 <= shift < top - 1:
        raise ValueError(f"cannot truncate by {shift} bits in {ring.name}")
    if ctx.verifier is not None:
        return await _truncate_by_pair(ctx, x_add, shift)
    r = truncation_mask(ctx, ring, shape)
    c, (floor_r, top_r) = await ctx.both(
        lambda c: _reveal_masked(c, x_add, r),
        lambda c: share_truncation_mask(c, ring, r, shape=shape, shift=shift),
    )
    floor_c, top_c = (None, None) if c is None else cut(ring, c, shift)
    top_c_sh = known(ctx, ring, 1, top_c, shape)
    # w = top(c) XOR top(r).
    wrap = top_c_sh + top_r - (await multiply(ctx, top_c_sh, top_r)).times(2)
    floor_x = known(ctx, ring, 1, floor_c, shape) - floor_r + wrap.times(1 << (top - shift))
    # Less 2^(k-2) / 2^shift, which x' has more than x.
    return floor_x - (1 << (top - 1 - shift))


async def truncation_pairs(
    ctx: Context, ring: Ring, count: int, shift: int
) -> tuple[Share, Share, Share]:
    """Makes masks r (count,) that no party knows, (r mod 2^(k-1)) / 2^shift, rounded down, and r's top bits.

    Each component of r is known to two parties. Missing in the sum of the components' floors are the carry of their
    lowest ``shift`` bits, the carry of the lowest k - 1 bits, and the top bit: five bits of a carry-save adder.

    Rounds: 4 + levels(k - 1).
    Communication: 2 k - 3 planes, ``boolean.carry_out`` of k - 1 and of shift; 2 n elements, 5 n more by party 0.
    """
    top = ring.bits - 1
    r_sh = noise(ctx, ring, (count,))
    operands = await addends(ctx, r_sh, ring.bits)
    generate, propagate = await operands.generate(ctx, top), operands.propagate
    low, high = await ctx.both(
        lambda c: carry_out(c, generate[:shift], propagate[:shift]),
        lambda c: carry_out(c, generate, propagate[:top]),
    )
    # The second number's bit above the lowest ``shift`` or k - 1 is a carry of the three components' lower bits, too.
    planes = stack(low, operands.second[shift], high, operands.second[top], propagate[top] ^ high)
    # Four of them are wanted in one sum, so that two products a value are sent and not five.
    u_sh, v_sh = await two_bits(ctx, planes, count, ring)
    wrap = -(1 << (top - shift))
    weights = ring.encode(np.array([[1], [1], [wrap], [wrap]], dtype=object))
    sums = product(ctx, u_sh[:4].times(weights), v_sh[:4]).sum(axis=0)
    # v = u + v2 - 2 u v2 of each bit, weighted by 1 for the lower carries and -2^(k-1-shift) for the upper ones.
    both = await reshare(ctx, joined(sums, product(ctx, u_sh[4], v_sh[4])))
    carried = (u_sh[:4] + v_sh[:4]).times(weights).sum(axis=0) - both[:count].times(2)
    top_r = u_sh[4] + v_sh[4] - both[count:].times(2)
    floors = Share(ring, r_sh.pid, *(cut(ring, part, shift)[0] for part in (r_sh.own, r_sh.next)))
    return r_sh, floors + carried, top_r


async def _truncate_by_pair(ctx: Context, x_add: Additive, shift: int) -> Share:
    """Computes ``truncate`` on no party's word: c is shown to all, and with c public the wrap is linear.

    Rounds: those of ``truncation_pairs``, 1. Communication: 2 n elements, and those.
    """
    if shift == 0:
        return await reshare(ctx, x_add)
    ring, shape = x_add.ring, x_add.shape
    top, count = ring.bits - 1, math.prod(shape)
    x_sh, (r_sh, floor_r, top_r) = await ctx.both(
        lambda c: reshare(c, x_add), lambda c: truncation_pairs(c, ring, count, shift)
    )
    c_open = await open_masked(ctx, x_sh.reshape(-1) + r_sh + (1 << (ring.bits - 2)))
    floor_c, top_c = cut(ring, c_open, shift)
    # w = top(c) XOR top(r).
    wrap = top_r.times(ring.sub(ring.encode(1), ring.mul(ring.encode(2), top_c))) + top_c
    floor_x = -floor_r + floor_c + wrap.times(1 << (top - shift))
    return (floor_x - (1 << (top - 1 - shift))).reshape(*shape)


async def _reveal_masked(ctx: Context, x_add: Additive, r: RingArray | None) -> RingArray | None:
    """Returns c = x + 2^(k-2) + r at parties 0 and 1, None at party 2. A zero share masks the terms, r party 2's."""
    ring, shape = x_add.ring, x_add.shape
    mine = x_add.masked(zero(ctx, ring, shape))
    if r is not None:
        wire = ring.to_wire(ring.add(mine, r))
        await ctx.round({0: wire, 1: wire}, {})
        return None
    wire, peer = ring.to_wire(mine), 1 - ctx.pid
    received = await ctx.round({peer: wire}, {peer: wire.size, 2: wire.size})
    total = ring.add(ring.from_wire(received[peer], shape), ring.from_wire(received[2], shape))
    return ring.add(ring.add(mine, total), ring.encode(1 << (ring.bits - 2)))


async def multiply_fixed(
    ctx: Context,
    x_sh: Share,
    y_sh: Share,
    fraction_bits: int,
) -> Share:
    """Computes x * y, both with f fractional bits, back at f. Needs |x y| 2^(2f) < 2^(k-2). Cost of ``truncate``."""
    return await truncate(ctx, product(ctx, x_sh, y_sh), fraction_bits)


async def powers(
    ctx: Context,
    x_sh: Share,
    degree: int,
    fraction_bits: int,
) -> Share:
    """Computes x, x^2, ..., x^degree along a new first axis, in ceil(log2(degree)) levels of ``multiply_fixed``."""
    known_powers = x_sh.reshape(1, *x_sh.shape)
    while (have := known_powers.shape[0]) < degree:
        more = min(have, degree - have)
        # x^(have + i) = x^have * x^i.
        highest = concatenate(*([known_powers[have - 1 : have]] * more))
        higher = await multiply_fixed(ctx, highest, known_powers[:more], fraction_bits)
        known_powers = concatenate(known_powers, higher)
    return known_powers


def polynomial(powers_sh: Share, coefficients: Sequence[int], fraction_bits: int) -> Share:
    """Computes c_0 + c_1 x + ... at 2 f fractional bits, from ``powers`` of x and public coefficients at f. Local."""
    ring = powers_sh.ring
    slopes = np.array(coefficients[1:], dtype=object)
    column = ring.encode(slopes.reshape(-1, *([1] * (len(powers_sh.shape) - 1))))
    total = powers_sh[: slopes.size].times(column).sum(axis=0)
    return total + (coefficients[0] << fraction_bits)
