"""Sort of shuffled rows by a key on shares: quicksort whose comparisons are opened.

Safe after a secret shuffle, if no two keys are equal: then the rows come in each of their n! orders equally often, for
any rows, and so do the opened comparisons, which are a function of that order and of nothing else. Earlier comparisons
decide which rows are compared next. Several pivots a part cut the depth: each row is compared with 3 of its part at a
time, and in parts of 16 rows or fewer with all: some 15 levels and 28 comparisons a row for 100,000 rows.

Secret: keys. Public: the comparisons, and with them the order of the shuffled rows. Source: README section 8; Hamada et
al. (ICISC 2012) for opened comparisons after a shuffle.
"""

import asyncio
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.base import open_value, reshare
from protocols.bitslice import to_bits
from protocols.context import Context
from protocols.errors import CheckFailed
from protocols.row_words import to_planes_of
from protocols.shares import Share, concatenate, joined, product
from protocols.steps import COMPARISONS

PIVOTS = 3
SMALL = 16
"""Largest number of rows of a part in which all are compared with all."""
BLOCK_PAIRS = 1 << 16
"""Number of comparisons in one message, a multiple of 64; messages go side by side."""
_IN_FLIGHT = 16

Indices = NDArray[np.intp]


async def sort_order(ctx: Context, keys_bsh: Share, bits: int) -> Indices:
    """Returns the order in which the rows' keys ascend; all keys differ, and no party knows the rows' first order.

    Shapes: (n, words_for(bits)), bit i at 2^(i % 64) of word i // 64 (``row_words``); returns (n,).
    Leaks: the order, which is uniform for rows that were shuffled.
    Rounds: for each level, those of ``is_less`` and ``open_value``; the order decides the number of levels.
    Communication: for each level, that of ``is_less`` and ``open_value`` of its pairs.
    Raises: CheckFailed where comparisons contradict one another, which those of different keys do not; ChannelError,
        ProtocolViolation.
    Source: README section 8.
    """
    parts = Parts.of(keys_bsh.shape[0])
    while parts.unsorted:
        left, right = parts.pairs()
        less = await _compared(ctx, keys_bsh, left, right, bits)
        parts = parts.split(left, right, less)
    return parts.order


async def _compared(
    ctx: Context, keys_bsh: Share, left: Indices, right: Indices, bits: int
) -> NDArray[np.bool_]:
    """Opens [left row's key < right row's key] for each pair."""
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def compared(c: Context, block: slice) -> Share:
        async with slots:
            return await is_less(c, keys_bsh[left[block]], keys_bsh[right[block]], bits)

    blocks = [slice(at, at + BLOCK_PAIRS) for at in range(0, len(left), BLOCK_PAIRS)]
    found = await ctx.gather(*((lambda c, b=b: compared(c, b)) for b in blocks))
    opened = await open_value(ctx, concatenate(*found), COMPARISONS.what)
    return to_bits(opened, len(left)).astype(np.bool_)


async def is_less(ctx: Context, x_bsh: Share, y_bsh: Share, bits: int) -> Share:
    """Computes x < y for different numbers, as a plane: y's bit where the two differ first.

    Shapes: rows (n, words_for(bits)) both; returns (words_for(n),), zeros beyond n.
    Leaks: none.
    Rounds: levels(bits).
    Communication: 2 planes for each of bits - 1 nodes, less one a level.
    Raises: ChannelError, ProtocolViolation.
    Source: own. Of a group of bits, v is y's bit where x and y differ first from above, and s is 1 if they are the
        same; of two groups v = v_high + s_high (v_high + v_low), s = s_high s_low. Leaves are linear, which a carry's
        are not.
    """
    value = to_planes_of(y_bsh, bits)
    # The group that holds the lowest bit needs no s: row i is that of group i + 1.
    same = (~to_planes_of(x_bsh ^ y_bsh, bits))[1:]
    while (count := value.shape[0]) > 1:
        pairs = count // 2
        low, high = value[: 2 * pairs : 2], value[1 : 2 * pairs : 2]
        s_high, s_low = same[: 2 * pairs : 2], same[1 : 2 * pairs - 1 : 2]
        # v = v_high + s_high (v_high + v_low), s = s_high s_low.
        terms = joined(product(ctx, s_high, high ^ low), product(ctx, s_high[1:], s_low))
        both = await reshare(ctx, terms)
        lower, kept = high ^ both[:pairs], both[pairs:]
        if count % 2:
            lower, kept = concatenate(lower, value[-1:]), concatenate(kept, same[-1:])
        value, same = lower, kept
    return value[0]


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Rows in an order that is right between parts, and not yet within them. Public.

    ``order`` are the rows, ``starts`` and ``sizes`` those parts of it that have two rows or more.
    """

    order: Indices
    starts: Indices
    sizes: Indices

    @classmethod
    def of(cls, rows: int) -> "Parts":
        """Returns all rows as one part."""
        whole = np.arange(rows)
        return (
            cls(whole, whole[:1], np.full(1, rows))
            if rows > 1
            else cls(whole, whole[:0], whole[:0])
        )

    @property
    def unsorted(self) -> bool:
        """True while a part is left."""
        return self.starts.size > 0

    @property
    def _pivots(self) -> Indices:
        return np.where(self.sizes <= SMALL, self.sizes, PIVOTS)

    def _pairs_of_places(self) -> tuple[Indices, Indices]:
        """Returns places in the order of all pivots, each with every place after it in its part."""
        pivots, lefts, rights = self._pivots, [self.order[:0]], [self.order[:0]]
        for number in range(int(pivots.max(initial=0))):
            here = pivots > number
            starts, counts = self.starts[here] + number, self.sizes[here] - number - 1
            lefts.append(np.repeat(starts, counts))
            rights.append(lefts[-1] + 1 + _counted(counts))
        return np.concatenate(lefts), np.concatenate(rights)

    def pairs(self) -> tuple[Indices, Indices]:
        """Returns the rows to be compared: each pivot with those after it in its part."""
        left, right = self._pairs_of_places()
        return self.order[left], self.order[right]

    def split(self, left: Indices, right: Indices, less: NDArray[np.bool_]) -> "Parts":
        """Returns the parts after ``pairs`` have been compared. Raises CheckFailed where pivots have no order."""
        place = np.empty_like(self.order)
        place[self.order] = np.arange(self.order.size)
        a, b = place[left], place[right]
        part = np.zeros(self.order.size, np.intp)
        inside = np.repeat(self.starts, self.sizes) + _counted(self.sizes)
        part[inside] = np.repeat(np.arange(self.starts.size), self.sizes)
        within = np.zeros_like(part)
        within[inside] = _counted(self.sizes)
        pivots = self._pivots
        is_pivot = within < pivots[part]
        # ``below`` counts the pivots below a row. Pivots stand between rows with as many below and rows with one more.
        below = np.bincount(b[less], minlength=part.size)
        above = ~less & is_pivot[b]
        below += np.bincount(a[above], minlength=part.size)
        rank = (2 * below + is_pivot)[inside]
        group = part[inside] * (2 * SMALL + 2) + rank
        by_rank = np.argsort(group, kind="stable")
        order = self.order.copy()
        order[inside] = self.order[inside][by_rank]
        ranked, pivotal = group[by_rank], is_pivot[inside][by_rank]
        first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
        sizes = np.diff(np.append(first, ranked.size))
        if (pivotal[first] & (sizes > 1)).any():
            raise CheckFailed(
                "comparisons of rows contradict one another: two keys are equal, or not shared"
            )
        left_over = sizes > 1
        return Parts(order, inside[first[left_over]], sizes[left_over])


def _counted(sizes: Indices) -> Indices:
    """Returns 0 to size - 1 for each of the sizes."""
    ends = np.cumsum(sizes)
    return np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
