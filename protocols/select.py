"""Secure selection: the exponential mechanism on shared counts. Opens the index of the chosen candidate alone.

Secret: counts, errors, scores, weights, the uniform draw. Public: candidates, the model's answers, all parameters,
the chosen index. Source: Pereira et al. (arXiv 2210.07332), Protocol 2, with AIM's score; README section 3. The
relative error of every probability is derived in the package's README.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from protocols.absolute import grouped_absolute_error, grouped_error_of_bits
from protocols.base import multiply, open_value, random, reshare
from protocols.bitslice import from_bits, to_bits, words_for
from protocols.boolean import and_all, lift, lift_magnitude, msb
from protocols.context import Context
from protocols.count_bits import CountBits, apart, count_bits
from protocols.derived import bits_to_ring
from protocols.errors import CheckFailed
from protocols.fixed import exp2_negative
from protocols.ring import BITS, R32, R64, R128
from protocols.select_spec import (
    FRACTION_BITS,
    GROUP,
    LOG2E_BITS,
    LOG2E_SCALED,
    UNIFORM_BITS,
    WEIGHT_BITS,
    SelectSpec,
    bounds,
)
from protocols.shares import Share, concatenate, product
from protocols.steps import CHOICE, SELECT_ABS_ERROR, SELECT_BITS, SELECT_CHOOSE


async def keep_bits(ctx: Context, x_sh: Share, sizes: Sequence[int], bits: int) -> list[CountBits]:
    """The lowest ``bits`` bits of candidates' counts, each candidate's by themselves, for ``select`` to use again.

    Shapes: x (cells,) in Z_2^32, candidates of ``sizes`` cells one after the other.
    Leaks, Rounds, Raises: as ``count_bits``.
    Communication: ``count_bits`` of the cells, each candidate's rounded up to whole words.
    """
    with ctx.step(SELECT_BITS.name, round=ctx.cost.round) as c:
        parts = (apart(part, sizes) for part in (x_sh.own, x_sh.next))
        held = await count_bits(c, Share(R32, x_sh.pid, *parts), bits)
    words = [words_for(size) for size in sizes]
    ends = accumulate(words)
    return [held.part(end - count, end) for end, count in zip(ends, words, strict=True)]


async def select(
    ctx: Context, x_sh: Share, spec: SelectSpec, *, kept: CountBits | None = None
) -> int:
    """Choose a candidate with probability proportional to exp(max(t_q, max t - 24 ln 2)).

    Shapes: x (cells,) in Z_2^32, the candidates' counts one after the other; returns the chosen index in [0, G).
        ``kept``, where there is one, are bits of x, ``integer_bits`` at least, each candidate's from a new word on.
    Leaks: the index. One row changes every t_q by at most 2^6 gain_q, whatever x is modulo 2^32.
    Rounds: 9 for the errors of 10^6 cells below 2^22, 5 where their bits are kept, 10 for their magnitudes, 15 for each
        level of the maximum, 27 for the weights and 11 for the choice, at 40 bits of score (exact: ``costs.select``).
    Communication: ``grouped_absolute_error`` or ``grouped_error_of_bits`` for the cells; some kilobytes a candidate for
        the rest.
    Raises: ValueError for a specification whose sums could wrap; ChannelError, ProtocolViolation, CheckFailed.
    Source: Pereira et al., Protocol 2; README section 3. Steps are numbered as there.
    """
    error_bits, score_bits = bounds(spec)
    # 1, 2. Absolute errors a_q modulo 2^error_bits, one element per candidate.
    with ctx.step(SELECT_ABS_ERROR.name, round=ctx.cost.round) as c:
        a_sh = await _errors(c, x_sh, spec, kept, error_bits)
    with ctx.step(SELECT_CHOOSE.name, round=ctx.cost.round) as c:
        # 3. Into the wide ring, as magnitudes; t_q is linear there. Beside them the 64 random bits of u.
        draw = random(c, R32, (2,))
        a_wide, u_parts = await c.both(
            lambda c: lift_magnitude(c, a_sh, error_bits, R128), lambda c: lift(c, draw, R128)
        )
        t_sh = a_wide.times(_wide(spec.gains)) - _wide(spec.offsets)
        # 4. Weights 2^-z with z = (max t - t) log2 e, limited.
        m_sh = await maximum(c, t_sh, score_bits)
        z_sh = (m_sh - t_sh).times(LOG2E_SCALED)
        e_sh = await exp2_negative(c, z_sh, score_bits + LOG2E_BITS + 1, WEIGHT_BITS)
        # 5, 6. The first q whose prefix sum reaches u times the total, u uniform on (0, 1].
        u_sh = u_parts[:1].times(1 << 32) + u_parts[1:] + 1
        return await _first_reaching(c, e_sh, u_sh)


async def _errors(
    ctx: Context, x_sh: Share, spec: SelectSpec, kept: CountBits | None, bits: int
) -> Share:
    if kept is None:
        return await grouped_absolute_error(
            ctx, x_sh, spec.answers, spec.sizes, fraction_bits=FRACTION_BITS, bits=bits
        )
    return await grouped_error_of_bits(
        ctx, x_sh, kept, spec.answers, spec.sizes, fraction_bits=FRACTION_BITS, bits=bits
    )


def _wide(values: Sequence[int]) -> NDArray[np.object_]:
    return R128.encode(np.array(values, dtype=object))


async def maximum(ctx: Context, t_sh: Share, bits: int) -> Share:
    """max t over (n,), as (1,), for |t_i - t_j| < 2^(bits - 1).

    In each group of 16, all pairs are compared at once; the first candidate that loses to nobody is picked.

    Shapes: t in Z_2^128, with bits <= 64.
    Leaks: none.
    Rounds: 5 + levels(bits - 1) + levels(15) at most, for each of ceil(log16(n)) levels.
    Communication: ``msb`` for 7.5 pairs a candidate; 2 n elements.
    Raises: ChannelError, ProtocolViolation.
    Source: own; a binary tournament needs the same rounds for every halving.
    """
    while (count := t_sh.size) > 1:
        left, right, source, negate = _rivals(count)
        # Differences fit a machine word, where the same shares are shares modulo 2^64.
        words = t_sh.narrowed(R64)
        # Who loses to no rival has won its group. The winners are one-hot there, so their product with the scores,
        # added up over each group, is the group's maximum: one element to reshare.
        less = await msb(ctx, words[left] - words[right], bits)
        unbeaten = await and_all(ctx, _arrange(less, left.size, source, negate))
        winner = await bits_to_ring(ctx, unbeaten, count, R128)
        starts = np.arange(0, count, GROUP, dtype=np.intp)
        t_sh = await reshare(ctx, product(ctx, winner, t_sh).grouped(starts))
    return t_sh


@lru_cache(maxsize=16)
def _rivals(
    count: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.uint8]]:
    """All pairs i < j within groups of 16: (pairs,) each; for (15, count) rivals which pair it is, and on which side.

    The side is 1 where the candidate is the pair's first. A missing rival is pair -1, side 1.
    """
    # Pair p compares candidates left[p] < right[p]: 120 pairs in a whole group of 16, fewer in the last one.
    pairs = [(i, j) for i in range(count) for j in range(i + 1, min(i - i % GROUP + GROUP, count))]
    left, right = np.array(pairs, dtype=np.intp).T
    # Column q of ``source`` lists the pairs that q is in, one below the other: used[q] is the next free row. The sign
    # bit of pair (i, j) says t_i < t_j: j's own verdict, and the opposite of i's, hence the side.
    used = np.zeros(count, dtype=np.intp)
    source = np.full((min(GROUP, count) - 1, count), -1, dtype=np.intp)
    negate = np.zeros(source.shape, dtype=np.uint8)
    for index, (i, j) in enumerate(pairs):
        for candidate in (i, j):
            source[used[candidate], candidate] = index
            negate[used[candidate], candidate] = candidate == i
            used[candidate] += 1
    # The last group's candidates have fewer rivals; index -1 reads the zero that ``_arrange`` appends.
    negate[source < 0] = 1
    return left, right, source, negate


def _arrange(less: Share, pairs: int, source: NDArray[np.intp], negate: NDArray[np.uint8]) -> Share:
    """Planes (15, words) whose bit of candidate q says, one plane for each rival, that q does not lose. Local.

    Of a pair (i, j), i < j, i wins unless t_i < t_j: ties go to the first. Missing rivals count as beaten.
    """

    # A pair's sign bit is copied to both rivals: row r of bits[source] is what candidates 0, 1, ... had of rival r.
    # That only moves bits, and is done to each component alike; the NOT for a pair's first is public.
    def planes(component: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits = np.append(to_bits(component, pairs), np.uint8(0))
        return from_bits(bits[source])

    return Share(BITS, less.pid, planes(less.own), planes(less.next)) ^ from_bits(negate)


async def _first_reaching(ctx: Context, e_sh: Share, u_sh: Share) -> int:
    """Open the first index q with c_q >= u c_last, c the prefix sums of the weights."""
    count = e_sh.size
    # short_q = [2^64 c_q < (U + 1) c_last] is a sign; c_q is at most 2^48 (q + 1), U + 1 at most 2^64.
    c_sh = _prefix_sums(e_sh)
    r_sh = await multiply(ctx, c_sh[-1:], u_sh)
    bits = WEIGHT_BITS + count.bit_length() + UNIFORM_BITS + 2
    short = await msb(ctx, c_sh.times(1 << UNIFORM_BITS) - concatenate(*([r_sh] * count)), bits)
    # One cell a word, so that neighbours can be compared: reached_q XOR reached_{q-1} is one at the chosen q alone.
    cells = Share(BITS, ctx.pid, _spread(short.own, count), _spread(short.next, count)) ^ 1
    first = concatenate(cells[:1], cells[1:] ^ cells[:-1])
    one_hot = await open_value(ctx, first, CHOICE.what)
    if sorted(one_hot.tolist()) != [0] * (count - 1) + [1]:
        raise CheckFailed(
            "the selection did not end in one candidate: a share is not what the protocol made it"
        )
    return int(np.flatnonzero(one_hot)[0])


def _prefix_sums(x_sh: Share) -> Share:
    ring = x_sh.ring
    return Share(
        ring,
        x_sh.pid,
        ring.reduce(np.add.accumulate(x_sh.own)),
        ring.reduce(np.add.accumulate(x_sh.next)),
    )


def _spread(plane: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    return to_bits(plane, count).astype(np.uint64)
