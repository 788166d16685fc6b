"""Secure selection: the exponential mechanism on shared counts. Opens the index of the chosen candidate alone.

Secret: counts, errors, scores, noise. Public: candidates, the model's answers, all parameters, the chosen index.
Source: README section 3: the candidate of the largest sum of score and Gumbel noise, with AIM's score. The relative
error of every probability is derived there.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from protocols.absolute import grouped_absolute_error, grouped_error_of_bits, require_fit
from protocols.base import multiply, open_value, random, reshare
from protocols.bitslice import from_bits, to_bits, words_for
from protocols.boolean import and_all, lift_magnitude, msb, top_of_sum
from protocols.context import Context
from protocols.count_bits import CountBits, apart, count_bits
from protocols.derived import bits_to_ring, summand
from protocols.errors import CheckFailed
from protocols.gumbel import gumbel
from protocols.ring import BITS, R32, R64
from protocols.select_spec import (
    ALL_PAIRS,
    FRACTION_BITS,
    GROUP,
    SelectSpec,
    bounds,
    chosen_index,
)
from protocols.shares import Share, product
from protocols.steps import CHOICE, SELECT_BITS, SELECT_CHOOSE, SELECT_SCORES

_ONES = np.uint64((1 << 64) - 1)

Samples = Callable[[Context, int], Awaitable[Share]]
"""Maker of so many samples of noise: ``gumbel``, or a ``supply.GumbelSupply``'s."""


async def keep_bits(ctx: Context, x_sh: Share, sizes: Sequence[int], bits: int) -> list[CountBits]:
    """Computes the lowest ``bits`` bits of candidates' counts, each candidate's by themselves, for ``select``.

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
    ctx: Context,
    x_sh: Share,
    spec: SelectSpec,
    *,
    kept: CountBits | None = None,
    noise: Samples = gumbel,
) -> int:
    """Chooses a candidate with probability proportional to exp(t_q).

    Shapes: x (cells,) in Z_2^32, the candidates' counts one after the other; returns the chosen index in [0, G).
        ``kept``, where there is one, are bits of x, ``integer_bits`` at least, each candidate's from a new word on.
        ``noise`` makes samples that no party knows and no other selection uses.
    Leaks: the index. One row changes every t_q by at most 2^6 gain_q, for any x modulo 2^32.
    Rounds: 16 for scores and noise side by side (fewer where the noise is there), 8 for the choice among up to 256
        (exact: ``costs.select``).
    Communication: ``grouped_absolute_error`` or ``grouped_error_of_bits`` for the cells, the cost of ``noise``, ``msb``
        for each pair of candidates.
    Raises: ValueError for a specification whose sums could wrap; ChannelError, ProtocolViolation, CheckFailed.
    Source: own, after Pereira et al. (arXiv 2210.07332), Protocol 2; README section 3. Steps are numbered as there.
    """
    error_bits, score_bits = bounds(spec)
    with ctx.step(SELECT_SCORES.name, round=ctx.cost.round) as c:
        # Shapes are checked before anything is sent.
        require_fit(x_sh, spec.answers, spec.sizes)
        # Steps 1 to 3, the scores, and beside them step 4, the noise.
        t_sh, noise_sh = await c.both(
            lambda c: _scores(c, x_sh, spec, kept, error_bits),
            lambda c: noise(c, len(spec.sizes)),
        )
    with ctx.step(SELECT_CHOOSE.name, round=ctx.cost.round) as c:
        # Steps 5 and 6: the largest sum.
        return await _open_largest(c, t_sh + noise_sh, score_bits)


async def _scores(
    ctx: Context, x_sh: Share, spec: SelectSpec, kept: CountBits | None, bits: int
) -> Share:
    """Computes t_q = gain_q |a_q| - offset_q (G,) in Z_2^64, a_q the absolute errors modulo 2^bits."""
    if kept is None:
        a_sh = await grouped_absolute_error(
            ctx, x_sh, spec.answers, spec.sizes, fraction_bits=FRACTION_BITS, bits=bits
        )
    else:
        a_sh = await grouped_error_of_bits(
            ctx, x_sh, kept, spec.answers, spec.sizes, fraction_bits=FRACTION_BITS, bits=bits
        )
    a_wide = await lift_magnitude(ctx, a_sh, bits, R64)
    return a_wide.times(_encoded(spec.gains)) - _encoded(spec.offsets)


def _encoded(values: Sequence[int]) -> NDArray[np.uint64]:
    return R64.encode(np.array(values, dtype=object))


async def _open_largest(ctx: Context, t_sh: Share, bits: int) -> int:
    """Opens the index of the largest of t (n,), of equal ones the first: as words of which that one alone is 0."""
    count = t_sh.size
    if ctx.verifier is None and count <= ALL_PAIRS:
        marks = await _marked(ctx, t_sh, bits)
    else:
        plane = ~(await _largest(ctx, t_sh, bits))
        marks = Share(BITS, ctx.pid, *(_spread(part, count) for part in (plane.own, plane.next)))
    opened = await open_value(ctx, marks, CHOICE.what)
    try:
        return chosen_index(opened)
    except ValueError as problem:
        raise CheckFailed(
            "the selection did not end in one candidate: a share is not what the protocol made it"
        ) from problem


async def _marked(ctx: Context, t_sh: Share, bits: int) -> Share:
    """Computes words (n,) that are 0 for the candidate that loses to none, and uniform for all that lose.

    Each candidate has a random word that no party knows, and is marked by the sum of the words of the rivals that it
    loses to. Rivals are in an order, of equal ones the first ahead: the second is marked by the word of the first, and
    each later one by the mark of the one before plus that one's own word. So the losers' marks are uniform together,
    and may be opened; one is 0 once in 2^64. That requires comparisons that are those of an order, as all parties
    follow the protocol: there is no verifier here.

    Leaks: none.
    Rounds: 1 after ``msb`` of all pairs. Communication: n words.
    """
    count, pid = t_sh.size, ctx.pid
    if count == 1:
        return Share(BITS, pid, BITS.zeros((1,)), BITS.zeros((1,)))
    rivals = _rivals(count, count)
    pairs, (pair_of, second) = rivals.left.size, _duels(count)
    less = await _less(ctx, t_sh, bits, rivals)
    # A pair's sign bit is [t_i < t_j]: the first candidate loses where it is 1, the second one where it is 0.
    bit_of = (np.append(to_bits(part, pairs), np.uint8(0)) for part in (less.own, less.next))
    loses = Share(BITS, pid, *(-bits[pair_of].astype(np.uint64) for bits in bit_of)) ^ second
    words = random(ctx, BITS, (count, 1))
    # Mark of a candidate: the XOR of the words of the rivals that it loses to.
    return await reshare(ctx, product(ctx, loses, words).sum(axis=0))


@lru_cache(maxsize=4)
def _duels(count: int) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
    """Returns, for a rival and a candidate, (count, count) both: their pair, and all ones if the candidate is second.

    A candidate and itself are the pair after the last.
    """
    rivals = _rivals(count, count)
    pair_of = np.full((count, count), rivals.left.size, np.intp)
    for one, other in ((rivals.left, rivals.right), (rivals.right, rivals.left)):
        pair_of[one, other] = np.arange(rivals.left.size)
    return pair_of, np.triu(np.full((count, count), _ONES), 1)


async def _largest(ctx: Context, t_sh: Share, bits: int) -> Share:
    """Computes a plane (words_for(n),) with the bit of the largest of t (n,) alone.

    t is in Z_2^64, with |t_i - t_j| < 2^(bits - 1). More than 256 are compared in groups of 16 first, all pairs of a
    group at once; the groups' largest go on.

    Leaks: none.
    Rounds: ``msb`` and levels(n - 1) for up to 256; ``msb`` and levels(15), 4 for each level before.
    Communication: ``msb`` for each pair compared; 2 n elements and n bits for each level before the last.
    Raises: ChannelError, ProtocolViolation.
    Source: own; a binary tournament needs the same rounds for every halving.
    """
    count = t_sh.size
    if count == 1:
        plane = np.ones(1, np.uint64)
        return Share(BITS, ctx.pid, BITS.zeros((1,)), BITS.zeros((1,))) ^ plane
    size = count if count <= ALL_PAIRS else GROUP
    rivals = _rivals(count, size)
    less = await _less(ctx, t_sh, bits, rivals)
    # A candidate that loses to no rival has won its group.
    unbeaten = await and_all(ctx, _arrange(less, rivals))
    if size == count:
        return unbeaten
    # The winners are one-hot in their groups, so their product with the scores, added up over each group, is the
    # group's maximum: one element to reshare.
    winner = await bits_to_ring(ctx, unbeaten, count, R64)
    starts = np.arange(0, count, GROUP, dtype=np.intp)
    maxima = await reshare(ctx, product(ctx, winner, t_sh).grouped(starts))
    group = await _largest(ctx, maxima, bits)
    return await multiply(ctx, unbeaten, _repeated(group, starts.size, count))


def _repeated(plane: Share, groups: int, count: int) -> Share:
    """Returns the bit of each group for all of its candidates. Local."""
    parts = (
        from_bits(np.repeat(to_bits(part, groups), GROUP)[:count])
        for part in (plane.own, plane.next)
    )
    return Share(BITS, plane.pid, *parts)


class _Rivals:
    """All pairs i < j within groups: ``left``, ``right`` (pairs,); ``source`` (size - 1, n) has the pair of each rival.

    ``negate`` is 1 where the candidate is the pair's first. A missing rival is pair -1, and ``negate`` 1.
    """

    def __init__(self, count: int, size: int) -> None:
        first = range(0, count, size)
        sides = [np.triu_indices(min(size, count - start), 1) for start in first]
        self.left = np.concatenate([i + start for (i, _), start in zip(sides, first, strict=True)])
        self.right = np.concatenate([j + start for (_, j), start in zip(sides, first, strict=True)])
        # Each pair belongs to both its candidates. In their order, a candidate's n-th pair is with its n-th rival.
        pairs = np.tile(np.arange(self.left.size), 2)
        whose = np.concatenate((self.left, self.right))
        order = np.argsort(whose, kind="stable")
        place = np.arange(whose.size) - np.searchsorted(whose[order], whose[order], "left")
        self.source = np.full((min(size, count) - 1, count), -1, dtype=np.intp)
        self.negate = np.ones(self.source.shape, dtype=np.uint8)
        self.source[place, whose[order]] = pairs[order]
        self.negate[place, whose[order]] = (order < self.left.size).astype(np.uint8)


@lru_cache(maxsize=16)
def _rivals(count: int, size: int) -> _Rivals:
    return _Rivals(count, size)


async def _less(ctx: Context, t_sh: Share, bits: int, rivals: _Rivals) -> Share:
    """Computes [first < second] for each pair: ``msb`` of differences."""
    if ctx.verifier is not None:
        return await msb(ctx, t_sh[rivals.left] - t_sh[rivals.right], bits)
    less, _ = await top_of_sum(ctx, summand(t_sh).between(rivals.left, rivals.right), bits)
    return less


def _arrange(less: Share, rivals: _Rivals) -> Share:
    """Returns planes (size - 1, words), one for each rival: candidate q's bit is 1 if q does not lose to it. Local.

    Of a pair (i, j), i < j, i wins unless t_i < t_j: ties go to the first. Missing rivals count as beaten.
    """

    # A pair's sign bit is copied to both candidates: row r of bits[source] has the bits of candidates 0, 1, ... against
    # rival r. This only moves bits, and is done to each component alike; the NOT for a pair's first is public. Index -1
    # reads the zero that is appended.
    def planes(component: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits = np.append(to_bits(component, rivals.left.size), np.uint8(0))
        return from_bits(bits[rivals.source])

    moved = Share(BITS, less.pid, planes(less.own), planes(less.next))
    return moved ^ from_bits(rivals.negate)


def _spread(plane: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    return to_bits(plane, count).astype(np.uint64)
