"""What one party derives from its components, or deals, and shares: the inputs that nobody else can check.

Of x = x0 + x1 + x2, party 0 knows the summand a = x0 + x1, and parties 1 and 2 know b = x2. So a circuit on x has two
operands, one of them an input of party 0 and the other one free; that saves an adder, and rests on party 0's word. A
dealer's random mask rests on the dealer's. Everything of the kind is here, and here alone, so that a form which rests
on nobody's word (the three components as three free sharings; masks from random bits that nobody knows) is chosen in
one place. What a party has to say for itself, such as its part of distributed noise, is not derived.

Secret: summands and masks. Leaks: none, in every function here. Raises: the channel's errors. Source: README section 1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from protocols.base import known, reshare, share_input
from protocols.bitslice import from_planes, to_bits, to_planes, words_for
from protocols.context import Context
from protocols.ring import BITS, Ring, RingArray
from protocols.shares import Additive, Share, cross_product


def _summand(x_sh: Share) -> RingArray:
    """What this party knows of x = a + b: a = x0 + x1 at party 0, b = x2 at parties 1 and 2. Local."""
    if x_sh.pid == 0:
        return x_sh.ring.add(x_sh.own, x_sh.next)
    return x_sh.next if x_sh.pid == 1 else x_sh.own


async def _of_summands(
    ctx: Context,
    ring: Ring,
    shape: tuple[int, ...],
    derive: Callable[..., RingArray],
    *shares: Share,
) -> tuple[Share, RingArray | None]:
    """derive(a, ...) of the shares' summands a, shared as party 0's input, and derive(b, ...), None at party 0.

    Rounds: 1. Communication: n elements by party 0, none by the others.
    """
    mine = derive(*(_summand(x_sh) for x_sh in shares))
    if ctx.pid == 0:
        return await share_input(ctx, ring, 0, mine, shape), None
    return await share_input(ctx, ring, 0, None, shape), mine


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Addends:
    """The planes (bits, words) of two numbers whose sum is x, and ``propagate`` = first XOR second.

    ``first`` and ``propagate`` are shared; ``second`` is known to parties 1 and 2, and None at party 0.
    """

    first: Share
    second: RingArray | None
    propagate: Share

    def generate(self, ctx: Context, bits: int) -> Additive:
        """Additive terms of first AND second, of the lowest ``bits`` planes. Local."""
        below = None if self.second is None else self.second[:bits]
        return cross_product(ctx, self.first[:bits], below)


async def addends(ctx: Context, x_sh: Share, bits: int) -> Addends:
    """The lowest ``bits`` planes of the summands of x (n,).

    Rounds: 1.
    Communication: bits planes by party 0, none by the others; b is known to both holders of component 2, hence free.
    """
    shape = (bits, words_for(x_sh.size))
    a_bsh, b_planes = await _of_summands(
        ctx, BITS, shape, lambda part: to_planes(x_sh.ring, part, bits), x_sh
    )
    return Addends(a_bsh, b_planes, a_bsh ^ known(ctx, BITS, 2, b_planes, shape))


async def sum_in_ring(ctx: Context, x_sh: Share, bits: int, ring: Ring) -> Share:
    """The summands of x (n,), each modulo 2^bits, added up in a larger ring: there the sum does not wrap.

    Rounds: 1. Communication: n elements by party 0, none by the others.
    """
    a_sh, b = await _of_summands(
        ctx, ring, x_sh.shape, lambda part: _widen(ring, x_sh.ring, part, bits), x_sh
    )
    return a_sh + known(ctx, ring, 2, b, x_sh.shape)


def _widen(ring: Ring, small: Ring, x: RingArray, bits: int) -> RingArray:
    low = x if bits == small.bits else x & ((1 << bits) - 1)
    return ring.encode(low.astype(object) if ring.wide else low)


async def bits_to_ring(ctx: Context, v_bsh: Share, count: int, ring: Ring) -> Share:
    """Zeros and ones of planes (..., words) as ring elements (..., count): v = u + v2 - 2 u v2 with u = v0 ^ v1.

    Rounds: 2.
    Communication: n elements, and n more by party 0.
    """
    shape = (*v_bsh.shape[:-1], count)
    u_sh, v2 = await _of_summands(
        ctx, ring, shape, lambda part: ring.encode(to_bits(part, count)), v_bsh
    )
    both = await reshare(ctx, cross_product(ctx, u_sh, v2))
    return u_sh + known(ctx, ring, 2, v2, shape) - both.times(2)


async def signed(ctx: Context, v_bsh: Share, d_sh: Share) -> Additive:
    """Additive terms of (1 - 2 v) d for bits v (words,) and d (n,), with no product reshared.

    Rounds: 1.
    Communication: 2 n elements by party 0, none by the others.
    Source: README section 3, step 2: (1 - 2 v) d = (1 - 2 v01)(1 - 2 v2)(a + b), with v01 = v0 ^ v1.
    """
    ring, count = d_sh.ring, d_sh.size

    def with_sign(v: RingArray, d: RingArray) -> RingArray:
        sign = 1 - 2 * ring.encode(to_bits(v, count))
        return np.stack((sign * d, sign))

    left_sh, right = await _of_summands(ctx, ring, (2, count), with_sign, v_bsh, d_sh)
    # Rows (sign a, sign) of party 0 against rows (sign, sign b) of parties 1 and 2.
    return cross_product(ctx, left_sh, None if right is None else right[::-1]).sum(axis=0)


async def composition_mask(
    ctx: Context, planes: tuple[int, int], count: int, ring: Ring
) -> tuple[Share, Share]:
    """A random number of as many bits as there are ``planes``, for each of ``count`` cells: in planes, and in ``ring``.

    Party 1 deals it, and knows it. Rounds: 1. Communication: its planes and n elements by party 1.
    """
    mask = ctx.private(BITS, planes) if ctx.pid == 1 else None
    in_ring = None if mask is None else ring.encode(from_planes(mask, count))
    r_bsh, r_sh = await ctx.gather(
        lambda c: share_input(c, BITS, 1, mask, planes),
        lambda c: share_input(c, ring, 1, in_ring, (count,)),
    )
    return r_bsh, r_sh


def truncation_mask(ctx: Context, ring: Ring, shape: tuple[int, ...]) -> RingArray | None:
    """A uniform mask of party 2, who alone knows it; None at the others. Local."""
    return ctx.private(ring, shape) if ctx.pid == 2 else None


async def share_truncation_mask(
    ctx: Context, ring: Ring, r: RingArray | None, shape: tuple[int, ...], shift: int
) -> tuple[Share, Share]:
    """(r mod 2^(k-1)) / 2^shift, rounded down, and the top bit of r, of ``truncation_mask``.

    Rounds: 1. Communication: 2 n elements by party 2, none by the others.
    """
    dealt = None if r is None else np.stack(cut(ring, r, shift))
    dealt_sh = await share_input(ctx, ring, 2, dealt, (2, *shape))
    return dealt_sh[0], dealt_sh[1]


def cut(ring: Ring, x: RingArray, shift: int) -> tuple[RingArray, RingArray]:
    """(x mod 2^(k-1)) / 2^shift, rounded down, and the top bit of x. Local."""
    top = ring.bits - 1
    mask = (1 << top) - 1
    low = x & (mask if ring.wide else ring.dtype.type(mask))
    return np.asarray(low >> shift, dtype=ring.dtype), np.asarray(x >> top, dtype=ring.dtype)
