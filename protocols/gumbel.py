"""Gumbel noise for selections: the candidate of the largest sum of score and noise is one of the exponential mechanism.

Public: the table. Secret: random bits and noise; no party knows a sample.

A sample is w (k + U + V), with w = 2^-6 nats, a whole number k and two fractions U and V of 18 bits: a density that is
linear between multiples of w. Probabilities of k are those that leave the distribution function within 2^-23 nats of
Gumbel's (README section 3); from 20 nats on they fall by e^-w each. An alias table gives k; for the last 64 outcomes,
one nat, k is larger by 64 J, J a geometric number: its bits are independent coins.

Source: Gumbel's maximum, Yellott (1977); Walker (1977) for the table; README section 3 for the bounds.
"""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np

from protocols.alias import DIGITS, alias, to_units
from protocols.base import multiply, noise
from protocols.bitslice import words_for
from protocols.boolean import carry_out
from protocols.context import Context
from protocols.derived import weighted_bits
from protocols.lookup import PublicTable, look_up
from protocols.ring import BITS, R64
from protocols.select_spec import NOISE_HIGHEST, NOISE_LOWEST, SCORE_BITS
from protocols.shares import Share, concatenate

INDEX_BITS = 11
LOW_BITS = 8
"""Bits of a bucket's index by which ``look_up`` finds an entry; the others find a column."""
COIN_BITS = 144
OUTCOME_BITS = INDEX_BITS + 1
WORD_BITS = COIN_BITS + 2 * OUTCOME_BITS
STEP_BITS = 6
"""w is 2^-STEP_BITS nats."""
FINE_BITS = 18
TAIL_BITS = 7
"""Bits of J: J is 128 or more once in e^128."""
STEPS_A_NAT = 1 << STEP_BITS


@dataclass(frozen=True, slots=True, eq=False)
class GumbelTable:
    """Distribution of k: ``lowest`` + an outcome of the alias table, whose last ``STEPS_A_NAT`` are the tail.

    Bucket i gives outcome ``first[i]`` with probability ``thresholds[i]`` / 2^COIN_BITS and ``second[i]`` otherwise;
    bit i of J is one with probability ``tail[i]`` / 2^COIN_BITS. ``words`` holds a word for each bucket: its threshold,
    and both outcomes with a bit above each of them for the tail.
    """

    lowest: int
    outcomes: int
    thresholds: tuple[int, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]
    tail: tuple[int, ...]
    words: PublicTable

    def probabilities(self) -> list[Fraction]:
        """Returns the exact probability of each outcome of the alias table."""
        units = [0] * self.outcomes
        for threshold, first, second in zip(self.thresholds, self.first, self.second, strict=True):
            if threshold:
                units[first] += threshold
            units[second] += (1 << COIN_BITS) - threshold
        return [Fraction(unit, 1 << (INDEX_BITS + COIN_BITS)) for unit in units]


def _weights() -> list[Decimal]:
    """Returns the probabilities of the outcomes, from k = NOISE_LOWEST / w on; the last nat's include the rest above.

    p_k is the mass P_k of w (k + 1/2) to w (k + 3/2), less an eighth of its second difference: so the distribution
    function is Gumbel's halfway between multiples of w, but for terms in w^4. The mass below the first outcome goes to
    it.
    """
    with localcontext() as context:
        context.prec = DIGITS
        w = Decimal(2) ** -STEP_BITS
        low, high = NOISE_LOWEST * STEPS_A_NAT, NOISE_HIGHEST * STEPS_A_NAT
        # above[k] = P(G > w (k + 1/2)) = 1 - exp(-e^(-w (k + 1/2))).
        above = {
            k: 1 - (-((-w * (k + Decimal("0.5"))).exp())).exp() for k in range(low - 1, high + 3)
        }
        mass = {k: above[k] - above[k + 1] for k in range(low - 1, high + 2)}
        # p_k = P_k - (P_{k+1} - 2 P_k + P_{k-1}) / 8.
        weights = [
            mass[k] - (mass[k + 1] - 2 * mass[k] + mass[k - 1]) / 8 for k in range(low + 1, high)
        ]
        rest = above[high] + (mass[high] - mass[high - 1]) / 8
        weights.insert(0, 1 - rest - sum(weights))
        # The tail: weights that fall by e^-w each and add up to ``rest`` over one nat; J repeats them nat by nat.
        ratio = (-w).exp()
        scale = rest * (1 - ratio) / (1 - ratio**STEPS_A_NAT)
        return weights + [scale * ratio**k for k in range(STEPS_A_NAT)]


@cache
def table() -> GumbelTable:
    """Returns the table, which is always the same."""
    weights = _weights()
    units = to_units(weights, INDEX_BITS + COIN_BITS)
    thresholds, first, second = alias(units, INDEX_BITS, COIN_BITS)
    with localcontext() as context:
        context.prec = DIGITS
        # J is geometric with ratio e^-1, so its bits are independent: bit i is one with odds e^(-2^i).
        coins = [Decimal(1) / (1 + Decimal(1 << bit).exp()) for bit in range(TAIL_BITS)]
        tail = tuple(int(coin * (1 << COIN_BITS)) for coin in coins)
    count, flag = len(weights), 1 << INDEX_BITS

    def flagged(outcome: int) -> int:
        return outcome + flag * (count - STEPS_A_NAT <= outcome < count)

    words = [
        t | flagged(a) << COIN_BITS | flagged(b) << COIN_BITS + OUTCOME_BITS
        for t, a, b in zip(thresholds, first, second, strict=True)
    ]
    rows = [words[low :: 1 << LOW_BITS] for low in range(1 << LOW_BITS)]
    return GumbelTable(
        NOISE_LOWEST * STEPS_A_NAT,
        count,
        thresholds,
        first,
        second,
        tail,
        PublicTable.of(rows, WORD_BITS),
    )


def _weights_of_bits() -> list[int]:
    """Returns the weight of each bit of a sample, in units of 2^-SCORE_BITS nats: of k, of J, of U and V."""
    step = SCORE_BITS - STEP_BITS
    fine = [1 << (step - FINE_BITS + bit) for bit in range(FINE_BITS)]
    whole = [1 << (step + bit) for bit in range(INDEX_BITS)]
    return whole + [1 << (SCORE_BITS + bit) for bit in range(TAIL_BITS)] + 2 * fine


async def gumbel(ctx: Context, count: int) -> Share:
    """Draws samples (count,) in Z_2^64, in units of 2^-28 nats.

    Leaks: none.
    Rounds: 4 + levels(11) + levels(144).
    Communication: about 510 bytes a sample for the mean party.
    Raises: ChannelError, ProtocolViolation.
    Source: README section 3, step 4.
    """
    found, words = table(), words_for(count)
    bucket = await look_up(ctx, found.words, noise(ctx, BITS, (INDEX_BITS, words)))
    threshold, pair = bucket[:COIN_BITS], bucket[COIN_BITS:].reshape(2, OUTCOME_BITS, words)
    # The carry chooses between two outcomes, each with J where the outcome is in the tail.
    carry, tails = await ctx.both(
        lambda c: _coin(c, threshold), lambda c: _tails(c, pair[:, INDEX_BITS], found)
    )
    first, second = (concatenate(pair[which, :INDEX_BITS], tails[:, which]) for which in range(2))
    rows = np.zeros(first.shape[0], np.intp)
    # The first outcome where the carry is 1, else the second.
    chosen = second ^ await multiply(ctx, first ^ second, carry.reshape(1, words)[rows])
    planes = concatenate(chosen, noise(ctx, BITS, (2 * FINE_BITS, words)))
    # Half of the last place of U and V each, so that they are in the middle of the interval they stand for.
    middle = 1 << (SCORE_BITS - STEP_BITS - FINE_BITS)
    lowest = found.lowest << (SCORE_BITS - STEP_BITS)
    weights = _weights_of_bits()
    return await weighted_bits(ctx, planes, count, R64, weights) + (lowest + middle)


async def _coin(ctx: Context, threshold: Share) -> Share:
    """Draws one (words,) with probability threshold / 2^COIN_BITS: the carry of threshold + random bits."""
    coins = noise(ctx, BITS, threshold.shape)
    return await carry_out(ctx, await multiply(ctx, threshold, coins), threshold ^ coins)


async def _tails(ctx: Context, flags: Share, found: GumbelTable) -> Share:
    """Returns J's bits, zeros where no flag is: for flags (2, words) planes (TAIL_BITS, 2, words). One J for both."""
    words = flags.shape[1]
    # All bits side by side: the threshold of each is public, and so its planes are all ones or zeros.
    bits = [[t >> plane & 1 for t in found.tail] for plane in range(COIN_BITS)]
    public = np.repeat(-np.array(bits, np.int64), words, axis=1).astype(np.uint64)
    coins = noise(ctx, BITS, public.shape)
    tail = (await carry_out(ctx, coins.times(public), coins ^ public)).reshape(TAIL_BITS, 1, words)
    return await multiply(ctx, tail[:, [0, 0]], flags.reshape(1, 2, words)[[0] * TAIL_BITS])
