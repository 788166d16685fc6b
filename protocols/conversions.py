"""Small counts as elements of a larger ring, on nobody's word: of `free` sharings, by products to be checked.

Secret: components and what is made of them. Leaks: none, in every function here. Raises: the channel's errors. Source:
README section 6.
"""

from protocols.base import multiply, reshare
from protocols.bitslice import to_bits
from protocols.boolean import carry_out
from protocols.context import Context
from protocols.free import carry_save, free_sharings
from protocols.ring import R16, R32, Ring
from protocols.shares import Share, product, stack


async def lift_half(ctx: Context, t_sh: Share) -> Share:
    """x of t = 2 x in Z_2^16, with x < 2^15, as an element of Z_2^32.

    Shapes: (n,) in Z_2^16; returns (n,).
    Leaks: none.
    Rounds: 8.
    Communication: 31 planes and those of ``boolean.carry_out`` of 15; 2 n elements of 2 bytes and n of 4: 14.9 bytes a
        value.
    Raises: ChannelError, ProtocolViolation.
    Source: own. With t0 + t1 + t2 = t + 2^16 w, and l the sum of the components' lowest bits, which is 0 or 2:
        x = sum of floor(t_c / 2) + l / 2 - 2^15 w, where l / 2 is the sum of the lowest bits' products in pairs.
    """
    bits = R16.bits
    # Three numbers become two, s and 2 c.
    parity, majority = await carry_save(ctx, t_sh, bits, bits)
    # w counts two carries: out of the top bits' majority, and out of s + 2 c, whose lowest bit adds nothing.
    above, below = parity[1:], majority[:-1]
    carry = await carry_out(ctx, await multiply(ctx, above, below), above ^ below)
    return await _without_wraps(ctx, t_sh, stack(majority[bits - 1], carry))


async def _without_wraps(ctx: Context, t_sh: Share, wraps_bsh: Share) -> Share:
    """The end of ``lift_half``, with w as the sum of two bits (2, words).

    A bit v is v0 + v1 + v2 - 2 (v0 v1 + v0 v2 + v1 v2) + 4 v0 v1 v2. All products but one are of free sharings and
    end in one sum a value; v0 v1 is reshared before, in Z_2^16, since in Z_2^32 only 2^16 times it is needed.
    """
    count, top = t_sh.size, 1 << (R16.bits - 1)

    def of_bits(ring: Ring) -> tuple[Share, Share, Share]:
        return free_sharings(
            ctx, wraps_bsh, ring, (2, count), lambda part: ring.encode(to_bits(part, count))
        )

    small0, small1, _ = of_bits(R16)
    both = _shifted(await multiply(ctx, small0, small1))
    v0, v1, v2 = of_bits(R32)
    scaled0, scaled1 = v0.times(2 * top), v1.times(2 * top)
    wraps = (
        product(ctx, scaled0, v1)
        + product(ctx, scaled0 + scaled1, v2)
        + product(ctx, both, v2.times(-2))
    ).sum(axis=0)
    l0, l1, l2 = free_sharings(ctx, t_sh, R32, (count,), lambda part: R32.encode(part & 1))
    low = product(ctx, l0, l1) + product(ctx, l0 + l1, l2)
    halves = Share(R32, t_sh.pid, R32.encode(t_sh.own >> 1), R32.encode(t_sh.next >> 1))
    return halves - (v0 + v1 + v2).sum(axis=0).times(top) + await reshare(ctx, low + wraps)


def _shifted(x_sh: Share) -> Share:
    """2^16 x in Z_2^32, of x in Z_2^16. Local."""
    shift = R16.bits
    return Share(R32, x_sh.pid, R32.encode(x_sh.own) << shift, R32.encode(x_sh.next) << shift)
