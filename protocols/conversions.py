"""Bits, and small counts, as elements of a ring: conversions that rest on nobody's word.

Each component of x is known to two parties, who share it among the three without a message: x becomes three free
sharings, and everything else is ANDs, products and inner products of sharings, which can be checked. `derived` has
cheaper forms, in which one party vouches for an input. Secret: components and what is made of them. Leaks: none, in
every function here. Raises: the channel's errors. Source: README section 6; three known components as ABY3 (ePrint
2018/403), section 5.3.
"""

from collections.abc import Callable

from protocols.base import known, multiply, reshare
from protocols.bitslice import to_bits, to_planes, words_for
from protocols.boolean import carry_out
from protocols.context import Context
from protocols.ring import BITS, R16, R32, Ring, RingArray
from protocols.shares import Share, product, stack


def free_sharings(
    ctx: Context, x_sh: Share, ring: Ring, shape: tuple[int, ...], derive: Callable[..., RingArray]
) -> tuple[Share, Share, Share]:
    """derive(x0), derive(x1) and derive(x2) in ``ring``, of this ``shape``, each as a share. Local."""
    held = {ctx.pid: derive(x_sh.own), ctx.next_pid: derive(x_sh.next)}
    first, second, third = (
        known(ctx, ring, component, held.get(component), shape) for component in range(3)
    )
    return first, second, third


async def bits_into_ring(ctx: Context, v_bsh: Share, count: int, ring: Ring) -> Share:
    """Zeros and ones of planes (..., words) as ring elements (..., count): u = v0 + v1 - 2 v0 v1, v = u + v2 - 2 u v2.

    Rounds: 2. Communication: 2 n elements.
    """
    shape = (*v_bsh.shape[:-1], count)
    v0, v1, v2 = free_sharings(
        ctx, v_bsh, ring, shape, lambda part: ring.encode(to_bits(part, count))
    )
    u_sh = v0 + v1 - (await multiply(ctx, v0, v1)).times(2)
    return u_sh + v2 - (await multiply(ctx, u_sh, v2)).times(2)


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
    bits, count = R16.bits, t_sh.size
    # Three numbers become two, s and 2 c (a carry-save adder): s is the bits' parity, c their majority.
    t0, t1, t2 = free_sharings(
        ctx, t_sh, BITS, (bits, words_for(count)), lambda part: to_planes(R16, part, bits)
    )
    parity = t0 ^ t1 ^ t2
    majority = await reshare(ctx, product(ctx, t0 ^ t1, t0 ^ t2) + t0.additive(ctx))
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
