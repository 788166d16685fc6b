"""Secure Gaussian noise by Box-Muller.

A pair of samples is R (cos, sin) of a uniform angle, R = sqrt(-2 ln u). Secret: all random bits and samples; no party
knows a sample. Source: Pereira et al. (arXiv 2210.07332), Protocol 3; README section 4.

Representation: Z_2^64 with 26 fractional bits. Known limits: a sample has finite precision and range. |z| is at most
7.55 (radii beyond 7.539, a mass of 2^-41 a pair, come out smaller), and the error of a sample against exact arithmetic
on the same bits is below 2^-18 (both measured in tests/protocols/test_box_muller.py); the guarantee of the Gaussian
mechanism is therefore approximate.
"""

from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from protocols.approximate import PI, cosine, interpolate, sine, to_units
from protocols.base import known, multiply, noise
from protocols.bitslice import words_for
from protocols.blocks import in_blocks
from protocols.boolean import prefix_or, words_to_ring
from protocols.context import Context
from protocols.derived import bits_to_ring
from protocols.fixed import multiply_fixed, polynomial, powers, truncate
from protocols.lookup import PublicTable
from protocols.ring import BITS, R64
from protocols.shares import Share, concatenate, product, stack

SAMPLE_BITS = 26
LARGEST_SAMPLE = 7.55
# v = m 2^-e with e the position of the first one in a run of this many random bits.
RUN_BITS = 40
RADIUS_DEGREE = 6
OCTANT_DEGREE = 7
COEFFICIENT_BITS = 32
BLOCK_PAIRS = 1 << 14


async def gaussian(ctx: Context, count: int) -> Share:
    """Draws standard Gaussian samples (count,) in Z_2^64 with 26 fractional bits, in blocks of 2^14 pairs.

    Leaks: none.
    Rounds: 22; blocks overlap.
    Communication: about 403 bytes a sample and mean party (exact: ``costs.gaussian``).
    Raises: ChannelError, ProtocolViolation.
    Source: README section 4.
    """
    if count == 0:
        return Share(R64, ctx.pid, R64.zeros((0,)), R64.zeros((0,)))
    return (await in_blocks(ctx, -(-count // 2), BLOCK_PAIRS, box_muller))[:count]


async def box_muller(ctx: Context, pairs: int) -> Share:
    """Draws pairs of independent standard Gaussian samples, (2, pairs): R cos(angle) and R sin(angle).

    R = sqrt(-2 ln u) with u = m 2^-(e+1), or 1 minus that, by one more bit. e is the position of the first one in a run
    of random bits and m = 1.5 + t is uniform on [1, 2), so nothing has to be normalised. The angle is pi/4 times a
    uniform x, with three more bits for the octant. R is a polynomial in t whose coefficients depend on e and the bit;
    cosine and sine are polynomials in x.
    """
    words = words_for(pairs)
    uniform = noise(ctx, BITS, (SAMPLE_BITS, 2 * words))
    powers_sh, coefficients = await ctx.both(
        lambda c: _uniform_powers(c, uniform, pairs), lambda c: _coefficients(c, pairs)
    )
    constant, slopes = coefficients[0].times(1 << SAMPLE_BITS), coefficients[1:]
    # R = c_0 + sum of c_j t^j, with the coefficients of the pair's own e and side.
    radius_add = product(ctx, slopes, powers_sh[:RADIUS_DEGREE, 0]).sum(axis=0)
    radius_add += constant.additive(ctx)
    trig_sh = stack(*(polynomial(powers_sh[:, 1], c, SAMPLE_BITS) for c in octant_polynomials()))
    radius, trig, in_ring = await ctx.gather(
        lambda c: truncate(c, radius_add, SAMPLE_BITS),
        lambda c: truncate(c, trig_sh.additive(c), SAMPLE_BITS),
        lambda c: bits_to_ring(c, noise(c, BITS, (3, words)), pairs, R64),
    )
    swap, signs = in_ring[0], -in_ring[1:].times(2) + 1
    # The octant: one bit swaps cosine and sine, two bits are their signs.
    difference = await multiply(ctx, swap, trig[1] - trig[0])
    directed = stack(trig[0] + difference, trig[1] - difference)
    scaled = await multiply_fixed(ctx, stack(radius, radius), directed, SAMPLE_BITS)
    return await multiply(ctx, scaled, signs)


async def _uniform_powers(ctx: Context, uniform: Share, pairs: int) -> Share:
    """Returns powers 1 to 7 of t in [-1/2, 1/2) and x in [0, 1), from 26 random bits each: (7, 2, pairs)."""
    in_ring = await words_to_ring(ctx, uniform, uniform.shape[-1] * 64, R64)
    both = in_ring.reshape(2, -1)[:, :pairs]
    half = R64.encode(np.array([[1 << (SAMPLE_BITS - 1)], [0]]))
    return await powers(ctx, both - half, OCTANT_DEGREE, SAMPLE_BITS)


async def _coefficients(ctx: Context, pairs: int) -> Share:
    """Returns the coefficients of R for each pair's own e and side bit, (7, pairs), at 26 fractional bits.

    Every bit of a coefficient is the XOR of those positions of the one-hot of (e, side) at which the table has a one:
    free.
    """
    words = words_for(pairs)
    seen = await prefix_or(ctx, noise(ctx, BITS, (RUN_BITS, words)))
    # The run's last position also stands for a run of zeros, so that exactly one position is first.
    closed = concatenate(
        seen[:-1], known(ctx, BITS, 0, _ones(words) if ctx.pid != 1 else None, (1, words))
    )
    first = concatenate(closed[:1], closed[1:] ^ closed[:-1])
    side = noise(ctx, BITS, (1, words))
    near_one = await multiply(ctx, first, concatenate(*([side] * RUN_BITS)))
    one_hot = concatenate(first ^ near_one, near_one)
    chosen = _radius_words().read(one_hot).reshape(COEFFICIENT_BITS, -1)
    in_ring = await words_to_ring(ctx, chosen, (RADIUS_DEGREE + 1) * words * 64, R64)
    return in_ring.reshape(RADIUS_DEGREE + 1, -1)[:, :pairs] - (1 << (COEFFICIENT_BITS - 1))


def _ones(words: int) -> NDArray[np.uint64]:
    return np.full((1, words), np.iinfo(np.uint64).max, dtype=np.uint64)


@cache
def _radius_words() -> PublicTable:
    offset = 1 << (COEFFICIENT_BITS - 1)
    words = [[c + offset for c in row] for row in radius_table()]
    return PublicTable.of(words, COEFFICIENT_BITS)


@cache
def radius_table() -> tuple[tuple[int, ...], ...]:
    """Returns coefficients of R in t = m - 1.5, (80, 7), 26 fractional bits: u = m 2^-(e+1), then 1 - m 2^-(e+1)."""
    half = Fraction(1, 2)
    rows = []
    for near_one in (False, True):
        for e in range(1, RUN_BITS + 1):

            def radius(t: Decimal, e: int = e, near_one: bool = near_one) -> Decimal:
                v = (t + Decimal("1.5")) / (1 << (e + 1))
                return (-2 * (1 - v if near_one else v).ln()).sqrt()

            rows.append(
                tuple(
                    to_units(c, SAMPLE_BITS)
                    for c in interpolate(radius, -half, half, RADIUS_DEGREE)
                )
            )
    return tuple(rows)


@cache
def octant_polynomials() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns cosine and sine of pi/4 x for x in [0, 1), as coefficients of 1, x, ..., x^7 at 26 fractional bits."""
    half, quarter_pi = OCTANT_DEGREE // 2, PI / 4
    even = interpolate(lambda y: cosine(quarter_pi * y.sqrt()), Fraction(0), Fraction(1), half)
    odd = interpolate(
        lambda y: sine(quarter_pi * y.sqrt()) / y.sqrt(), Fraction(0), Fraction(1), half
    )
    cosines, sines = [0] * (OCTANT_DEGREE + 1), [0] * (OCTANT_DEGREE + 1)
    cosines[::2] = [to_units(c, SAMPLE_BITS) for c in even]
    sines[1::2] = [to_units(c, SAMPLE_BITS) for c in odd]
    return tuple(cosines), tuple(sines)
