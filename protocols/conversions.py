"""Conversion of small counts to a larger ring, on no party's word: of `free` sharings, by products to be checked.

Secret: components and all values derived from them. Leaks: none, in every function here. Raises: the channel's errors.
Source: README section 6.
"""

import numpy as np

from protocols.base import multiply, reshare
from protocols.boolean import carry_out
from protocols.context import Context
from protocols.free import carry_save, two_bits
from protocols.ring import R16, R32
from protocols.shares import Share, product, stack


async def lift_half(ctx: Context, t_sh: Share) -> Share:
    """Returns x of t = 2 x in Z_2^16, with x < 2^15, as an element of Z_2^32.

    Shapes: (n,) in Z_2^16; returns (n,).
    Leaks: none.
    Rounds: 8.
    Communication: 31 planes and those of ``boolean.carry_out`` of 15; n elements of 4 bytes, 3 n more by party 0: on
        average 14.9 bytes a value.
    Raises: ChannelError, ProtocolViolation.
    Source: own. With t0 + t1 + t2 = t + 2^16 w and l the sum of the components' lowest bits, which is 0 or 2: x = sum
        of floor(t_c / 2) + l / 2 - 2^15 w, where l / 2 is the majority of the lowest bits.
    """
    bits, count = R16.bits, t_sh.size
    # Three numbers become two, s and 2 c.
    parity, majority = await carry_save(ctx, t_sh, bits, bits)
    # w counts two carries: out of the top bits' majority, and out of s + 2 c, whose lowest bit adds nothing.
    above, below = parity[1:], majority[:-1]
    carry = await carry_out(ctx, await multiply(ctx, above, below), above ^ below)
    planes = stack(majority[0], majority[bits - 1], carry)
    # The three bits v in Z_2^32, each times its weight 1, -2^15, -2^15: v = u + v2 - 2 u v2, of which one sum is sent.
    half = 1 << (bits - 1)
    weights = R32.encode(np.array([[1], [-half], [-half]]))
    u_sh, v2_sh = await two_bits(ctx, planes, count, R32)
    both = await reshare(ctx, product(ctx, u_sh.times(weights), v2_sh).sum(axis=0))
    # x = sum of floor(t_c / 2) + the weighted bits.
    halves = Share(R32, t_sh.pid, R32.encode(t_sh.own >> 1), R32.encode(t_sh.next >> 1))
    return halves + (u_sh + v2_sh).times(weights).sum(axis=0) - both.times(2)
