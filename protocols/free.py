"""The three components of a value as three free sharings, and computations on them on no single party's word.

Each component is known to two parties, who share it among the three without a message: x becomes three sharings that no
party alone can lie about, and everything else is ANDs, products and inner products of sharings, which can be checked.
`derived` has cheaper forms, in which one party vouches for an input.

Secret: components and all values derived from them. Leaks: none, in every function here. Raises: the channel's errors.
Source: README sections 1 and 6; three known components as ABY3 (ePrint 2018/403), section 5.3.
"""

from collections.abc import Callable

from protocols.base import known, multiply, reshare, reshare_from
from protocols.bitslice import to_bits, to_planes, words_for
from protocols.context import Context
from protocols.ring import BITS, Ring, RingArray
from protocols.shares import Share, product


def free_sharings(
    ctx: Context, x_sh: Share, ring: Ring, shape: tuple[int, ...], derive: Callable[..., RingArray]
) -> tuple[Share, Share, Share]:
    """Returns derive(x0), derive(x1) and derive(x2) in ``ring``, of this ``shape``, each as a share. Local."""
    held = {ctx.pid: derive(x_sh.own), ctx.next_pid: derive(x_sh.next)}
    first, second, third = (
        known(ctx, ring, component, held.get(component), shape) for component in range(3)
    )
    return first, second, third


async def bits_into_ring(ctx: Context, v_bsh: Share, count: int, ring: Ring) -> Share:
    """Converts planes (..., words) to zeros and ones (..., count) of a ring: v = u + v2 - 2 u v2 of ``two_bits``.

    Rounds: 2. Communication: n elements, and n more by party 0.
    """
    u_sh, v2_sh = await two_bits(ctx, v_bsh, count, ring)
    return u_sh + v2_sh - (await multiply(ctx, u_sh, v2_sh)).times(2)


async def two_bits(ctx: Context, v_bsh: Share, count: int, ring: Ring) -> tuple[Share, Share]:
    """Returns u = v0 XOR v1 = v0 + v1 - 2 v0 v1 and v2 of planes (..., words), as zeros and ones of a ring.

    Shapes: (..., count) both.
    Rounds: 1. Communication: n elements by party 0, who alone has a part of v0 v1, none by the others.
    """
    shape = (*v_bsh.shape[:-1], count)
    v0, v1, v2 = free_sharings(
        ctx, v_bsh, ring, shape, lambda part: ring.encode(to_bits(part, count))
    )
    both = await reshare_from(ctx, product(ctx, v0, v1), 0)
    return v0 + v1 - both.times(2), v2


async def carry_save(ctx: Context, x_sh: Share, bits: int, carries: int) -> tuple[Share, Share]:
    """Computes the lowest planes of two numbers s and c with x = s + 2 c: a carry-save adder of the components.

    s is the parity of the components' bits and c their majority.

    Shapes: x (n,); returns (bits, words) and (carries, words); bits - 1 carries are enough modulo 2^bits.
    Leaks: none.
    Rounds: 1.
    Communication: ``carries`` planes.
    Raises: ChannelError, ProtocolViolation.
    Source: ABY3, section 5.3; one AND for a majority: (x0 ^ x1)(x0 ^ x2) ^ x0.
    """
    x0, x1, x2 = free_sharings(
        ctx, x_sh, BITS, (bits, words_for(x_sh.size)), lambda part: to_planes(x_sh.ring, part, bits)
    )
    low0, low1, low2 = x0[:carries], x1[:carries], x2[:carries]
    # Majority: (x0 ^ x1)(x0 ^ x2) ^ x0.
    majority = await reshare(ctx, product(ctx, low0 ^ low1, low0 ^ low2) + low0.additive(ctx))
    return x0 ^ x1 ^ x2, majority
