"""Cost formulas of joins: rounds, and payload bytes sent by each role, as in `costs`.

All values here are public. The number of a sort's levels, and of the comparisons in each, is decided by the order of
the shuffled rows, which is opened and independent of the rows: formulas take it as an argument. Within
``costs.with_verifier`` they are those of contexts with one.
"""

from collections.abc import Sequence

from protocols.bitslice import words_for
from protocols.costs import Cost, and_all, ands, carry_out, is_verified, open_value
from protocols.link_plan import Linking, doublings
from protocols.row_tags import TAGS

_WORD = 8
_DIGEST = 32


def _everyone(size: int) -> Cost:
    return Cost(1, (size, size, size))


def shuffle(rows: int, words: int) -> Cost:
    """``shuffle.shuffle`` and ``unshuffle`` of rows of so many words."""
    verified = is_verified()
    # Each party has a part in two of three passes.
    moved = 2 * _WORD * rows * (words + (TAGS if verified else 0))
    passes = Cost(3, (moved, moved, moved))
    if not verified:
        return passes
    return _everyone(2 * _WORD * rows) + passes + _everyone(2 * _DIGEST)


def sort(bits: int, levels: Sequence[int]) -> Cost:
    """``sort.sort_order`` of keys of so many bits, whose levels have so many words of 64 comparisons."""
    each = (carry_out(64 * words, bits) + open_value(words, _WORD) for words in levels)
    return sum(each, Cost())


def runs(link: Linking) -> Cost:
    """Cost of the runs: all between the sort and the way back."""
    rows, others = link.total, len(link.others)

    def planes(count: int) -> Cost:
        return ands(_WORD * count * words_for(rows))

    cost = and_all(rows, link.key_bits + 2)
    if link.source_bits:
        cost += and_all(rows, 1 + link.source_bits)
    for most in link.limits:
        cost += sum((planes(1) for _ in (*doublings(most), *doublings(most + 1))), Cost())
    cost += planes(link.flags)
    if not others:
        return cost
    columns = sum(link.widths[s] for s in link.others)
    if columns:
        cost += planes(columns)
    jumps = list(link.jumps())
    for jump in jumps:
        cost += planes(others + columns + (jump != jumps[-1]))
    return cost + and_all(rows, 1 + others)


def align(rows: int, sources: int) -> Cost:
    """``link.align``."""
    return and_all(rows, sources)


def join(link: Linking, levels: Sequence[int]) -> Cost:
    """``link.join``, with the sort's levels."""
    if not link.candidates:
        return Cost()
    ways = shuffle(link.total, link.row_words), shuffle(link.total, link.back_words)
    return ways[0] + sort(link.sort_bits, levels) + runs(link) + ways[1]
