"""Walker's alias method in integers: a distribution as a uniform choice among buckets of two outcomes each.

All values here are public, and the same on every machine: probabilities are decimals, tables are integers. Source:
Walker (1977).
"""

import heapq
from collections.abc import Sequence
from decimal import Decimal, localcontext

DIGITS = 60
"""Digits of the decimals from which tables are computed."""


def to_units(weights: Sequence[Decimal], bits: int) -> list[int]:
    """Returns probabilities in units of 2^-bits, each rounded down; the largest one gets the missing units."""
    with localcontext() as context:
        context.prec = DIGITS
        total = sum(weights)
        units = [int(weight * (1 << bits) / total) for weight in weights]
    units[units.index(max(units))] += (1 << bits) - sum(units)
    return units


def alias(
    units: Sequence[int], bits: int, coin_bits: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns tables of 2^bits buckets of 2^coin_bits units, of at most two outcomes each: thresholds, first, second.

    Bucket i gives ``first[i]`` with probability ``thresholds[i]`` / 2^coin_bits and ``second[i]`` otherwise.
    """
    count, full = 1 << bits, 1 << coin_bits
    left = [*units, *[0] * (count - len(units))]
    emptiest = [(unit, outcome) for outcome, unit in enumerate(left)]
    fullest = [(-unit, outcome) for outcome, unit in enumerate(left)]
    heapq.heapify(emptiest)
    heapq.heapify(fullest)
    thresholds, first, second = [], [], []
    gone = [False] * count
    # The emptiest outcome gets a bucket of its own, filled up from the fullest one. The units that are left average 2^c
    # a bucket at any time, so the fullest outcome has enough, and after 2^b steps no unit is left. Heap entries of an
    # outcome that is gone or has changed are skipped.
    for _ in range(count):
        while gone[fullest[0][1]] or left[fullest[0][1]] != -fullest[0][0]:
            heapq.heappop(fullest)
        while gone[emptiest[0][1]] or left[emptiest[0][1]] != emptiest[0][0]:
            heapq.heappop(emptiest)
        large = fullest[0][1]
        taken, small = heapq.heappop(emptiest)
        gone[small] = True
        if taken < full:
            left[large] -= full - taken
            heapq.heappush(emptiest, (left[large], large))
            heapq.heappush(fullest, (-left[large], large))
        # A threshold of 2^c does not fit c bits; such a bucket holds one outcome, whatever the coin.
        thresholds.append(taken % full)
        first.append(small)
        second.append(large if taken < full else small)
    return tuple(thresholds), tuple(first), tuple(second)
