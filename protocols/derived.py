"""What one party derives from its components, or deals, and shares: on its word, or in forms that can be checked.

Of x = x0 + x1 + x2, party 0 knows the summand a = x0 + x1, and parties 1 and 2 know b = x2. So a circuit on x has two
operands, one of them an input of party 0 and the other one free; that saves an adder, and rests on party 0's word. A
dealer's random mask rests on the dealer's. Everything of the kind is here, and here alone. Where a context has a
verifier, nothing rests on one party's word: what party 0 would derive is a product of what its two neighbours know, one
factor each (``base.reshare_from``), where it has that form, and made of the three free sharings of the components where
it has not (`free`). What a party has to say for itself, such as its part of distributed noise, is not derived.

Secret: summands and masks. Leaks: none, in every function here. Raises: the channel's errors. Source: README sections 1
and 7.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from protocols import free
from protocols.base import known, multiply, reshare, share_input
from protocols.bitslice import from_planes, to_bits, to_planes, words_for
from protocols.context import Context
from protocols.free import carry_save
from protocols.ring import BITS, Ring, RingArray
from protocols.shares import Additive, Share, concatenate, product


def _summand(x_sh: Share) -> RingArray:
    """What this party knows of x = a + b: a = x0 + x1 at party 0, b = x2 at parties 1 and 2. Local."""
    if x_sh.pid == 0:
        return x_sh.ring.add(x_sh.own, x_sh.next)
    return x_sh.next if x_sh.pid == 1 else x_sh.own


async def _summands(
    ctx: Context,
    ring: Ring,
    shape: tuple[int, ...],
    derive: Callable[..., RingArray],
    *shares: Share,
) -> tuple[Share, Share]:
    """derive(a, ...) of the shares' summands a, on party 0's word, and derive(b, ...), which parties 1 and 2 know.

    Rounds: 1. Communication: n elements by party 0, none by the others.
    """
    mine = derive(*(_summand(x_sh) for x_sh in shares))
    if ctx.pid == 0:
        return await share_input(ctx, ring, 0, mine, shape), known(ctx, ring, 2, None, shape)
    first = await share_input(ctx, ring, 0, None, shape)
    return first, known(ctx, ring, 2, mine, shape)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Addends:
    """The planes (bits, words) of two numbers whose sum is x, modulo 2^bits.

    ``overflow`` is what the two lack to x's components' sum over the integers, in units of 2^bits: a plane (words,),
    None where there is nothing or nobody asked. ``even`` says that the second one is even.
    """

    first: Share
    second: Share
    overflow: Share | None = None
    even: bool = False

    @property
    def propagate(self) -> Share:
        """first XOR second. Local."""
        return self.first ^ self.second

    async def generate(self, ctx: Context, bits: int) -> Share:
        """first AND second, of the lowest ``bits`` planes.

        Rounds: 1. Communication: so many planes, one less where the second number is even.
        """
        low = 1 if self.even else 0
        both = await multiply(ctx, self.first[low:bits], self.second[low:bits])
        return concatenate(self.second[:1], both) if self.even else both


async def addends(ctx: Context, x_sh: Share, bits: int, *, with_overflow: bool = False) -> Addends:
    """The lowest ``bits`` planes of two numbers that add up to x (n,): the summands, or what a carry-save adder gives.

    Rounds: 1.
    Communication: bits planes by party 0, none by the others; b is known to both holders of component 2, hence free.
        With a verifier bits - 1 planes by all, one more with the overflow.
    """
    words = words_for(x_sh.size)
    if ctx.verifier is None:
        return Addends(
            *await _summands(
                ctx, BITS, (bits, words), lambda part: to_planes(x_sh.ring, part, bits), x_sh
            )
        )
    carries = bits if with_overflow else bits - 1
    parity, majority = await carry_save(ctx, x_sh, bits, carries)
    nothing = Share(BITS, ctx.pid, BITS.blank((1, words)), BITS.blank((1, words)))
    second = concatenate(nothing, majority[: bits - 1])
    return Addends(parity, second, majority[bits - 1] if with_overflow else None, even=True)


async def sum_in_ring(ctx: Context, x_sh: Share, bits: int, ring: Ring) -> Share:
    """The summands of x (n,), each modulo 2^bits, added up in a larger ring: there the sum does not wrap.

    Rounds: 1. Communication: n elements by party 0, none by the others. With a verifier it is the sum of the
    components, and local.
    """
    if ctx.verifier is not None:
        parts = (_widen(ring, x_sh.ring, part, bits) for part in (x_sh.own, x_sh.next))
        return Share(ring, x_sh.pid, *parts)
    a_sh, b_sh = await _summands(
        ctx, ring, x_sh.shape, lambda part: _widen(ring, x_sh.ring, part, bits), x_sh
    )
    return a_sh + b_sh


def _widen(ring: Ring, small: Ring, x: RingArray, bits: int) -> RingArray:
    low = x if bits == small.bits else x & ((1 << bits) - 1)
    return ring.encode(low.astype(object) if ring.wide else low)


async def two_bits(ctx: Context, v_bsh: Share, count: int, ring: Ring) -> tuple[Share, Share]:
    """u = v0 ^ v1 and v2 of planes (..., words), as zeros and ones (..., count) of a ring.

    Rounds: 1. Communication: n elements by party 0, none by the others.
    """
    if ctx.verifier is not None:
        return await free.two_bits(ctx, v_bsh, count, ring)
    shape = (*v_bsh.shape[:-1], count)
    return await _summands(ctx, ring, shape, lambda part: ring.encode(to_bits(part, count)), v_bsh)


async def bits_to_ring(ctx: Context, v_bsh: Share, count: int, ring: Ring) -> Share:
    """Zeros and ones of planes (..., words) as ring elements (..., count): v = u + v2 - 2 u v2 with u = v0 ^ v1.

    Rounds: 2.
    Communication: n elements, and n more by party 0.
    """
    u_sh, v2_sh = await two_bits(ctx, v_bsh, count, ring)
    return u_sh + v2_sh - (await multiply(ctx, u_sh, v2_sh)).times(2)


async def weighted_bits(ctx: Context, x_bsh: Share, count: int, ring: Ring) -> Share:
    """Unsigned integers of w planes (w, words) as ring elements (count,): the sum of 2^j times bit j.

    Rounds: 2.
    Communication: n elements, and w n more by party 0.
    Source: ``bits_to_ring``, whose products are added up before they are sent.
    """
    u_sh, v2_sh = await two_bits(ctx, x_bsh, count, ring)
    exponents = range(x_bsh.shape[0])
    weights = ring.encode(np.array([1 << j for j in exponents], dtype=object)[:, None])
    both = await reshare(ctx, product(ctx, u_sh.times(weights), v2_sh).sum(axis=0))
    return (u_sh + v2_sh).times(weights).sum(axis=0) - both.times(2)


async def signed(ctx: Context, v_bsh: Share, d_sh: Share) -> Additive:
    """Additive terms of (1 - 2 v) d for bits v (words,) and d (n,), with no product reshared; not with a verifier.

    Rounds: 1.
    Communication: 2 n elements by party 0, none by the others.
    Source: README section 3, step 2: (1 - 2 v) d = (1 - 2 v01)(1 - 2 v2)(a + b), with v01 = v0 ^ v1.
    """
    ring, count = d_sh.ring, d_sh.size

    def with_sign(v: RingArray, d: RingArray) -> RingArray:
        sign = 1 - 2 * ring.encode(to_bits(v, count))
        return np.stack((sign * d, sign))

    left_sh, right_sh = await _summands(ctx, ring, (2, count), with_sign, v_bsh, d_sh)
    # Rows (sign a, sign) of party 0 against rows (sign, sign b) of parties 1 and 2.
    return product(ctx, left_sh, right_sh[::-1]).sum(axis=0)


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
