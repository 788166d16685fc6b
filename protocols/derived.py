"""Shared inputs that one party derives from its components, or deals: on its word, or in forms that can be checked.

Of x = x0 + x1 + x2, party 0 knows the summand a = x0 + x1, and parties 1 and 2 know b = x2. So a circuit on x has two
operands, one of them an input of party 0 and the other one free; that saves an adder, and rests on party 0's word. A
dealer's random mask rests on the dealer's. All inputs of this kind are here, and here alone. Where a context has a
verifier, nothing rests on one party's word: a value that party 0 would derive is a product of two factors, one known to
each neighbour (``base.reshare_from``), where it has that form, and else made of the three free sharings of the
components (`free`). A party's own contribution, such as its part of distributed noise, is not derived.

Secret: summands and masks. Leaks: none, in every function here. Raises: the channel's errors. Source: README sections 1
and 7.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols import cells, free
from protocols.base import known, multiply, reshare, share_input, split_input
from protocols.bitslice import from_planes, to_bits, to_planes, words_for
from protocols.context import Context
from protocols.free import carry_save
from protocols.ring import BITS, R32, Ring, RingArray
from protocols.shares import Additive, Share, concatenate, inner, stack

_SEGMENT = 1 << 16


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Summand:
    """This party's summand of x = a + b (n,): ``mine`` is a = x0 + x1 at party 0, b = x2 at parties 1 and 2."""

    ring: Ring
    pid: int
    mine: RingArray

    def between(self, first: NDArray[np.intp], second: NDArray[np.intp]) -> "Summand":
        """Returns this party's summand of the differences x[first] - x[second]. Local."""
        mine = self.ring.sub(self.mine[first], self.mine[second])
        return Summand(self.ring, self.pid, mine)

    def scaled_less(self, factor: int, less: RingArray) -> "Summand":
        """Returns this party's summand of factor x - less, of a public array of x's shape. Local."""
        if self.ring is R32 and (compiled := cells.kernels()) is not None:
            x, y = np.ascontiguousarray(self.mine), np.ascontiguousarray(less)
            mine = np.empty_like(x)
            compiled.scale_less(x, factor, y if self.pid == 0 else y[:0], mine)
            return Summand(self.ring, self.pid, mine)
        mine = self.ring.mul(self.mine, self.ring.encode(factor))
        if self.pid == 0:
            mine = self.ring.sub(mine, self.ring.encode(less), out=mine)
        return Summand(self.ring, self.pid, mine)


def summand(x_sh: Share) -> Summand:
    """Returns this party's summand of x. Local."""
    if x_sh.pid == 0:
        return Summand(x_sh.ring, 0, x_sh.ring.add(x_sh.own, x_sh.next))
    return Summand(x_sh.ring, x_sh.pid, x_sh.next if x_sh.pid == 1 else x_sh.own)


async def _summands(
    ctx: Context,
    ring: Ring,
    shape: tuple[int, ...],
    derive: Callable[..., RingArray],
    *shares: Share,
) -> tuple[Share, Share]:
    """Shares derive(a, ...) of the shares' summands a, on party 0's word, and derive(b, ...), known to parties 1 and 2.

    Rounds: 1. Communication: n elements by party 0, none by the others.
    """
    mine = derive(*(summand(x_sh).mine for x_sh in shares))
    if ctx.pid == 0:
        return await share_input(ctx, ring, 0, mine, shape), known(ctx, ring, 2, None, shape)
    first = await share_input(ctx, ring, 0, None, shape)
    return first, known(ctx, ring, 2, mine, shape)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Addends:
    """Planes (bits, words) of two numbers whose sum is x, modulo 2^bits.

    ``even`` says that the second one is even.
    """

    first: Share
    second: Share
    even: bool = False

    @property
    def propagate(self) -> Share:
        """Returns first XOR second. Local."""
        return self.first ^ self.second

    async def generate(self, ctx: Context, bits: int) -> Share:
        """Computes first AND second, of the lowest ``bits`` planes.

        Rounds: 1. Communication: so many planes, one less where the second number is even.
        """
        low = 1 if self.even else 0
        both = await multiply(ctx, self.first[low:bits], self.second[low:bits])
        return concatenate(self.second[:1], both) if self.even else both


async def addends(ctx: Context, x_sh: Share, bits: int) -> Addends:
    """Returns the lowest ``bits`` planes of two numbers that add up to x (n,): the summands, or a carry-save adder's.

    Rounds: 1.
    Communication: bits planes by party 0, none by the others; b is known to both holders of component 2, hence free.
        With a verifier bits - 1 planes by all.
    """
    words = words_for(x_sh.size)
    if ctx.verifier is None:
        return Addends(
            *await _summands(
                ctx, BITS, (bits, words), lambda part: to_planes(x_sh.ring, part, bits), x_sh
            )
        )
    parity, majority = await carry_save(ctx, x_sh, bits, bits - 1)
    nothing = Share(BITS, ctx.pid, BITS.blank((1, words)), BITS.blank((1, words)))
    return Addends(parity, concatenate(nothing, majority), even=True)


LEAF = 3
"""Number of planes of a group, for the many cells of sums."""
FEW_CELLS, _FEW_LEAVES = 1024, 4


def leaf_planes(cells: int, planes: int) -> int:
    """Returns the number of planes in a group: a quarter of ``planes`` for few cells, else ``LEAF``.

    For few cells, rounds take longer than messages.
    """
    return max(LEAF, -(-planes // _FEW_LEAVES)) if cells <= FEW_CELLS else LEAF


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Leaves:
    """Generate and propagate bits of groups of planes of two numbers' sum; the lowest group may have fewer planes.

    ``generate`` (groups, words), ``propagate`` (groups - 1, words), of all groups but the lowest; ``top`` (words,) is
    the highest plane, which is in no group, of the first number XOR the second.
    """

    generate: Share
    propagate: Share
    top: Share


async def carry_leaves(
    ctx: Context, x: Summand, bits: int, low: int = 0, leaf: int = LEAF
) -> Leaves:
    """Computes ``Leaves`` of x's summands (n,), modulo 2^bits, of planes ``low`` to bits - 1; not with a verifier.

    Below plane ``low`` b is zero, so that nothing is carried from there; bits - low >= 2.

    The carry of a group is a sum of products of a's bits times products of b's. So party 0 inputs the products of its
    bits; parties 1 and 2, of whom each gets a summand of these, compute from it polynomials in b's bits: two inner
    products for each group, in one round, where a tree of planes would take nine ANDs in three.

    Rounds: 2.
    Communication: 2^leaf - 1 planes for each ``leaf`` by party 0, 7 for three; 2 planes for each ``leaf``, less one.
    Source: own; README section 1, Sign.
    """
    words, (groups, lowest) = words_for(x.mine.size), divmod(bits - low - 1, leaf)
    products = (1 << leaf) - 1
    few, many = (1 << lowest) - 1, products * groups
    leaves = groups + (lowest > 0)
    planes = to_planes(x.ring, x.mine, bits, low)
    few_planes, whole = (
        planes[:lowest],
        planes[lowest:-1].reshape(groups, leaf, words).swapaxes(0, 1),
    )

    rows = None
    if ctx.pid == 0:
        rows = np.empty((few + many + 1, words), BITS.dtype)
        _products(few_planes, rows[:few])
        _products(whole, rows[few:-1].reshape(products, groups, words))
        rows[-1] = planes[-1]
    held = await split_input(ctx, BITS, 0, rows, (few + many + 1, words))

    if ctx.pid == 0:
        top = Share(BITS, ctx.pid, held[-1].copy(), held[-1] ^ planes[-1])
        return Leaves(*await _leaves(ctx, BITS.blank((2 * leaves - 1, words))), top)
    parts = (held[-1].copy(), planes[-1].copy())
    top = Share(BITS, ctx.pid, *(parts if ctx.pid == 1 else parts[::-1]))
    # This party's additive terms: generate bits of all groups, then propagate bits of all but the lowest.
    terms = np.empty((2 * leaves - 1, words), BITS.dtype)
    if lowest:
        terms[0] = _generated(held[:few], few_planes)
    # The lowest group has nothing to propagate; where it is one of the whole ones, that is left out.
    start = 0 if lowest else 1
    if groups and leaf == LEAF and (compiled := cells.kernels()) is not None:
        found = terms[1 - start : leaves], terms[leaves:]
        compiled.leaf_terms(held[few:-1], planes[lowest:-1], ctx.pid == 2, start, *found)
    elif groups:
        ours = held[few:-1].reshape(products, groups, words)
        terms[1 - start : leaves] = _generated(ours, whole)
        terms[leaves:] = _propagated(ours[:, start:], whole[:, start:], mine=ctx.pid == 2)
    del held, planes, few_planes, whole  # Not kept while messages are under way.
    return Leaves(*await _leaves(ctx, terms), top)


async def _leaves(ctx: Context, terms: RingArray) -> tuple[Share, Share]:
    both = await reshare(ctx, Additive(BITS, terms, None))
    leaves = (terms.shape[0] + 1) // 2
    return both[:leaves], both[leaves:]


def _products(planes: RingArray, out: RingArray) -> None:
    """Writes the ANDs of all subsets of the planes along the first axis; that of the planes of s's bits at s - 1.

    Local.
    """
    for i, plane in enumerate(planes):
        # Subsets of planes up to i that have plane i: it alone, then with each subset of those below it.
        first = 1 << i
        out[first - 1] = plane
        np.bitwise_and(plane, out[: first - 1], out=out[first : 2 * first - 1])


def _generated(a: RingArray, b: RingArray) -> RingArray:
    """Returns the generate bits of groups, of a's products (2^size - 1, ..., words) and b's planes (size, ..., words).

    Plane i generates a_i b_i, and the planes above pass it on: the product of all a_j XOR b_j, which is the sum over
    subsets of an a-product times the b-product of the rest. So each subset of a's planes meets that subset of b's
    planes which has its lowest plane and, above it, those that it has not: as numbers, s and 2^size - s. Local.
    """
    half = len(a) // 2 + 1
    # Coefficient t of b's subset t is a's product 2^size - t. The upper half, t >= half, goes with b's highest plane;
    # the lowest coefficient of all, t = 0, is 0.
    value = a[:half][::-1] & b[-1]
    value[1:] ^= a[half:][::-1]
    return _polynomial(value, b[:-1])


def _propagated(a: RingArray, b: RingArray, *, mine: bool) -> RingArray:
    """Returns the propagate bits of the same groups; the product of all b's planes counts where it is ``mine``.

    That is the sum over subsets of an a-product times the b-product of the rest: of s and 2^size - 1 - s. Local.
    """
    # Coefficient t of b's subset t is a's product 2^size - 1 - t; that of b's full subset is a's empty product, 1.
    half = len(a) // 2 + 1
    value = np.empty((half, *b.shape[1:]), BITS.dtype)
    np.bitwise_and(a[: half - 1][::-1], b[-1], out=value[:-1])
    value[-1] = b[-1] if mine else 0
    value ^= a[half - 1 :][::-1]
    return _polynomial(value, b[:-1])


def _polynomial(coefficients: RingArray, planes: RingArray) -> RingArray:
    """Returns the sum over s of coefficient s times the product of the planes in subset s: Horner's rule. Local.

    Overwrites the coefficients.
    """
    for plane in planes[::-1]:
        half = len(coefficients) // 2
        low, high = coefficients[:half], coefficients[half:]
        high &= plane
        high ^= low
        coefficients = high
    return np.asarray(coefficients[0])


async def magnitude(ctx: Context, x_sh: Share, carry: Share, bits: int, ring: Ring) -> Share:
    """Returns the distance of x (n,) modulo 2^bits from 0, of the carry (words,) into its plane bits - 1.

    Not with a verifier. With l = 2^(bits - 1), a and b modulo l, c = u ^ c2 the carry and s = t_a ^ t_b ^ c the sign, t
    being a's and b's planes bits - 1: the magnitude is (1 - 2 s)(a + b - l c - l / 2) + l / 2. That is a sum of
    products of values known to party 0 (a, t_a and u) and to parties 1 and 2 (b, t_b and c2).

    Rounds: 2.
    Communication: n elements, and 3 n more by party 0.
    Source: README section 3, step 3.
    """
    half, count = 1 << (bits - 1), x_sh.size

    def derive(x: RingArray, c: RingArray) -> RingArray:
        # Of the summands (a, u) or (b, c2): the sign's factor e = 1 - 2 (t ^ c); the rows e (a - l c), e and e c.
        carried, top = to_bits(c, count), to_bits(to_planes(x_sh.ring, x, bits)[-1], count)
        sign = ring.sub(ring.encode(1), ring.mul(ring.encode(2), ring.encode(top ^ carried)))
        wrapped = ring.mul(ring.encode(half), ring.encode(carried))
        low = ring.sub(_widen(ring, x_sh.ring, x, bits - 1), wrapped)
        return np.stack((ring.mul(sign, low), sign, ring.mul(sign, ring.encode(carried))))

    left, right = await _summands(ctx, ring, (3, count), derive, x_sh, carry)
    # (1 - 2 s) = e_l e_r and l c = l (c_l + c_r - 2 c_l c_r): three products add up to (1 - 2 s)(a + b - l c - l / 2).
    rows = stack(left[0] - left[1].times(half // 2), left[1], left[2].times(2 * half))
    total = inner(ctx, rows, stack(right[1], right[0], right[2]))
    return await reshare(ctx, total) + half // 2


def sum_in_ring(x_sh: Share, bits: int, ring: Ring) -> Share:
    """Adds up the components of x (n,), each modulo 2^bits, in a larger ring: there the sum does not wrap. Local."""
    parts = (_widen(ring, x_sh.ring, part, bits) for part in (x_sh.own, x_sh.next))
    return Share(ring, x_sh.pid, *parts)


def _widen(ring: Ring, small: Ring, x: RingArray, bits: int) -> RingArray:
    low = x if bits == small.bits else x & ((1 << bits) - 1)
    return ring.encode(low.astype(object) if ring.wide else low)


async def two_bits(ctx: Context, v_bsh: Share, count: int, ring: Ring) -> tuple[Share, Share]:
    """Returns u = v0 ^ v1 and v2 of planes (..., words), as zeros and ones (..., count) of a ring.

    Rounds: 1. Communication: n elements by party 0, none by the others.
    """
    if ctx.verifier is not None:
        return await free.two_bits(ctx, v_bsh, count, ring)
    shape = (*v_bsh.shape[:-1], count)
    return await _summands(ctx, ring, shape, lambda part: ring.encode(to_bits(part, count)), v_bsh)


async def bits_to_ring(ctx: Context, v_bsh: Share, count: int, ring: Ring) -> Share:
    """Converts planes (..., words) to zeros and ones (..., count) of a ring: v = u + v2 - 2 u v2 with u = v0 ^ v1.

    Rounds: 2.
    Communication: n elements, and n more by party 0.
    """
    u_sh, v2_sh = await two_bits(ctx, v_bsh, count, ring)
    return u_sh + v2_sh - (await multiply(ctx, u_sh, v2_sh)).times(2)


async def weighted_bits(
    ctx: Context, x_bsh: Share, count: int, ring: Ring, weights: Sequence[int] | None = None
) -> Share:
    """Sums numbers of w planes (w, words) as ring elements (count,): weight times bit, 2^j where no weights are given.

    Rounds: 2.
    Communication: n elements, and w n more by party 0.
    Source: ``bits_to_ring``, whose products are added up before they are sent.
    """
    u_sh, v2_sh = await two_bits(ctx, x_bsh, count, ring)
    if weights is None:
        weights = [1 << bit for bit in range(x_bsh.shape[0])]
    column = ring.encode(np.array(weights, dtype=object)[:, None])
    # Sum of weight_j v_j, with v_j = u_j + v2_j - 2 u_j v2_j.
    both = await reshare(ctx, inner(ctx, u_sh.times(column), v2_sh))
    return (u_sh + v2_sh).times(column).sum(axis=0) - both.times(2)


async def signed(ctx: Context, v_bsh: Share, d: Summand) -> Additive:
    """Returns additive terms of (1 - 2 v) d for bits v (words,) and d (n,), reshares no product; not with a verifier.

    Rounds: 1.
    Communication: 2 n elements by party 0, none by the others.
    Source: README section 3, step 2: (1 - 2 v) d = (1 - 2 v01)(1 - 2 v2)(a + b), with v01 = v0 ^ v1.
    """
    ring, count = d.ring, d.mine.size
    plane = summand(v_bsh).mine
    if ctx.pid == 0:
        await split_input(ctx, ring, 0, _sign_pairs(plane, d.mine, ring), (2, count))
        return Additive(ring, ring.blank((count,)), None)
    held = await split_input(ctx, ring, 0, None, (2, count))
    return Additive(ring, _sign_terms(plane, d.mine, held, ring), None)


def _sign_pairs(plane: RingArray, x: RingArray, ring: Ring) -> RingArray:
    """Returns s x and s (2, n), of the signs s = 1 - 2 v of bits v (words,). Local."""
    if ring is R32 and (compiled := cells.kernels()) is not None:
        pairs = np.empty((2, x.size), ring.dtype)
        compiled.sign_pairs(*map(np.ascontiguousarray, (plane, x)), pairs)
        return pairs
    sign = _signs(plane, x.size, ring)
    return np.stack((ring.mul(sign, x), sign))


def _sign_terms(plane: RingArray, x: RingArray, held: RingArray, ring: Ring) -> RingArray:
    """Returns s (h + t x) (n,), of the signs s and of h and t, which are ``held`` (2, n). Local."""
    terms = np.empty(x.size, ring.dtype)
    if ring is R32 and (compiled := cells.kernels()) is not None:
        compiled.sign_terms(*map(np.ascontiguousarray, (plane, x, held)), terms)
        return terms
    sign = _signs(plane, x.size, ring)
    # In segments that stay in the processor's cache.
    for start in range(0, x.size, _SEGMENT):
        part = slice(start, start + _SEGMENT)
        term = terms[part]
        np.multiply(held[1, part], x[part], out=term)
        term += held[0, part]
        term *= sign[part]
    return terms


def _signs(v: RingArray, count: int, ring: Ring) -> RingArray:
    """Returns 1 - 2 v of bits (words,), as elements (count,) of a ring of machine words. Local."""
    bits = to_bits(v, count).view(np.int8)
    # In octets, which get longer with their sign.
    return np.asarray((1 - 2 * bits).astype(f"<i{ring.itemsize}").view(ring.dtype))


async def composition_mask(
    ctx: Context, planes: tuple[int, int], count: int, ring: Ring
) -> tuple[Share, Share]:
    """Deals a random number of as many bits as there are ``planes``, for each cell: in planes, and in ``ring``.

    Shapes: ``planes``, and (count,).
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
    """Draws a uniform mask of party 2, who alone knows it; None at the others. Local."""
    return ctx.private(ring, shape) if ctx.pid == 2 else None


async def share_truncation_mask(
    ctx: Context, ring: Ring, r: RingArray | None, *, shape: tuple[int, ...], shift: int
) -> tuple[Share, Share]:
    """Shares (r mod 2^(k-1)) / 2^shift, rounded down, and the top bit of r, of ``truncation_mask``.

    Rounds: 1. Communication: 2 n elements by party 2, none by the others.
    """
    dealt = None if r is None else np.stack(cut(ring, r, shift))
    dealt_sh = await share_input(ctx, ring, 2, dealt, (2, *shape))
    return dealt_sh[0], dealt_sh[1]


def cut(ring: Ring, x: RingArray, shift: int) -> tuple[RingArray, RingArray]:
    """Returns (x mod 2^(k-1)) / 2^shift, rounded down, and the top bit of x. Local."""
    top = ring.bits - 1
    mask = (1 << top) - 1
    low = x & (mask if ring.wide else ring.dtype.type(mask))
    return np.asarray(low >> shift, dtype=ring.dtype), np.asarray(x >> top, dtype=ring.dtype)
