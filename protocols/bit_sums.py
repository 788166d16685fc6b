"""Sums of numbers in bits, group by group, by carry-save trees: ANDs alone, which are cheap to prove.

A column is a word's 64 numbers, in planes (m, columns); all numbers of a column belong to one group. All sums are
modulo 2^m. Secret: the numbers. Public: each column's group, and weights. Leaks: none, in every function here. Raises:
the channel's errors. Source: Wallace's tree (1964), groups side by side; README section 7.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from protocols.base import multiply, reshare
from protocols.bitslice import from_bits, to_bits, to_planes
from protocols.boolean import add_carries
from protocols.context import Context
from protocols.ring import BITS, R32, RingArray
from protocols.shares import Share, concatenate, product, stack

_WORD = 64
QUAD = 4

Columns = NDArray[np.intp]
Planes = NDArray[np.uint64]


async def to_pairs(ctx: Context, x_bsh: Share, groups: Columns, count: int) -> Share:
    """Reduces columns to two for each of ``count`` groups, whose numbers add up to those of all the group's columns.

    Shapes: x (m, n); groups (n,), not decreasing, each of the groups' numbers in it; returns (m, 2, count).
    Rounds: one for each time that three columns become two in the largest group (``costs.to_pairs``).
    Communication: m - 1 planes for each three columns that become two.
    """
    planes, places = x_bsh.shape[0], np.arange(groups.size)
    while (triples := _triples(groups))[0].size:
        first, rest = triples[0], triples[-1]
        # Columns are in the groups' order at ``places``: they are sorted where they are taken.
        a, b, c, others = (_taken(x_bsh, places[some]) for some in triples)
        # An adder of three: sum a ^ b ^ c, and majority (a ^ c)(b ^ c) ^ c, which counts twice.
        ac, bc = a ^ c, b ^ c
        both = product(ctx, ac[: planes - 1], bc[: planes - 1])
        majority = await reshare(ctx, both + c[: planes - 1].additive(ctx))
        x_bsh = _joined(ac ^ b, majority, others)
        groups = np.concatenate((groups[first], groups[first], groups[rest]))
        places = np.argsort(groups, kind="stable")
        groups = groups[places]
    return _paired(_taken(x_bsh, places), groups, count)


def _taken(x_bsh: Share, columns: Columns) -> Share:
    """Returns some columns (m, n), plane after plane: an index would have them column after column."""
    return Share(BITS, x_bsh.pid, x_bsh.own.take(columns, 1), x_bsh.next.take(columns, 1))


def _joined(sums: Share, majority: Share, others: Share) -> Share:
    """Returns the columns of an adder beside others: its sums, and its carries, which belong to the next plane.

    The highest plane's carry is dropped, modulo 2^m, so that it is none of the majority's planes.
    """
    parts = zip(*((x.own, x.next) for x in (sums, majority, others)), strict=True)
    return Share(BITS, sums.pid, *(_joined_parts(*part) for part in parts))


def _joined_parts(sums: RingArray, majority: RingArray, others: RingArray) -> RingArray:
    planes, count = sums.shape
    found = np.empty((planes, 2 * count + others.shape[1]), np.uint64)
    found[:, :count], found[:, 2 * count :] = sums, others
    found[0, count : 2 * count], found[1:, count : 2 * count] = 0, majority
    return found


def _triples(groups: Columns) -> tuple[Columns, Columns, Columns, Columns]:
    """Returns each group's columns in threes, as first, second and third ones, and the columns that are left."""
    starts = np.searchsorted(groups, groups, "left")
    sizes = np.searchsorted(groups, groups, "right") - starts
    place = np.arange(groups.size) - starts
    used = place < sizes // 3 * 3
    first, second, third = (np.flatnonzero(used & (place % 3 == i)) for i in range(3))
    return first, second, third, np.flatnonzero(~used)


def _paired(x_bsh: Share, groups: Columns, count: int) -> Share:
    """Returns at most two columns of each group as exactly two, with zeros where one is missing."""
    starts = np.searchsorted(groups, np.arange(count), "left")
    sizes = np.searchsorted(groups, np.arange(count), "right") - starts
    nothing = groups.size
    places = np.stack([np.where(sizes > i, starts + i, nothing) for i in range(2)])
    zero = Share(BITS, x_bsh.pid, *(BITS.zeros((x_bsh.shape[0], 1)) for _ in range(2)))
    return _beside(x_bsh, zero)[:, places]


def _beside(*parts: Share) -> Share:
    own, next_ = (
        np.concatenate(components, axis=1)
        for components in ([p.own for p in parts], [p.next for p in parts])
    )
    return Share(BITS, parts[0].pid, own, next_)


async def total(ctx: Context, columns: Share) -> Share:
    """Adds up all numbers of each group's columns.

    Shapes: (m, k, groups), group g having columns [:, :, g]; returns (m, words_for(groups)), a number for each group.
    Rounds: those of ``to_pairs`` for 64 k columns, 1 + levels(m - 1).
    Communication: m - 1 planes of as many cells as there are groups for each of the 64 k - 2 numbers; an adder.
    """
    planes, k, groups = columns.shape
    # The 64 numbers of a column become 64 rows, in which 64 groups share a word: bits only move.
    parts = (
        from_bits(
            to_bits(part[..., None], _WORD).transpose(0, 1, 3, 2).reshape(planes, k * _WORD, groups)
        )
        for part in (columns.own, columns.next)
    )
    rows = Share(BITS, columns.pid, *parts)
    words = rows.shape[2]
    flat = Share(
        BITS,
        rows.pid,
        *(part.transpose(0, 2, 1).reshape(planes, -1) for part in (rows.own, rows.next)),
    )
    of_word = np.repeat(np.arange(words), k * _WORD)
    both = await to_pairs(ctx, flat, of_word, words)
    a, b = both[:, 0], both[:, 1]
    # The last two numbers of each group: a full adder with G = a AND b and P = a XOR b.
    carries = await add_carries(ctx, await multiply(ctx, a[:-1], b[:-1]), a[:-1] ^ b[:-1])
    return concatenate(a[:1] ^ b[:1], a[1:] ^ b[1:] ^ carries)


async def weighted(
    ctx: Context, v_bsh: Share, weights: NDArray[np.uint32], groups: Columns, bits: int
) -> tuple[Share, Columns]:
    """Returns, for each four columns of bits of a group, the sums of bit times public weight, modulo 2^bits.

    A sum of four is one of sixteen public numbers: its bits are XORs of the products of the four bits.

    Shapes: v (n,), a bit for each of 64 n cells; weights (64 n,); groups (n,), not decreasing; returns columns (bits,
        quads) and their groups.
    Rounds: 2.
    Communication: 11 planes of 64 cells for each four columns.
    """
    places, of_quad = _quads(groups)
    present = places < groups.size
    # A missing column has weights of zero, for any bits that stand there.
    bits_of = [v_bsh[np.where(here, at, 0)] for here, at in zip(present, places, strict=True)]
    cells = weights.reshape(-1, _WORD)
    rows = [
        np.where(here[:, None], cells[np.where(here, at, 0)], np.uint32(0)).reshape(-1)
        for here, at in zip(present, places, strict=True)
    ]
    products = await _products_of_four(ctx, bits_of)
    # Each bit of the sum is the XOR over subsets of (product of the subset's bits) times its public coefficient.
    chosen: Share | None = None
    for members, planes in _coefficients([to_planes(R32, row, bits) for row in rows]).items():
        term = products[members].reshape(1, -1).times(planes)
        chosen = term if chosen is None else chosen ^ term
    if chosen is None:
        raise ValueError("four bits have products")
    return chosen, of_quad


def _quads(groups: Columns) -> tuple[NDArray[np.intp], Columns]:
    """Returns the columns of each four of a group, (4, quads), n where one is missing; and the quads' groups."""
    starts = np.searchsorted(groups, groups, "left")
    place = np.arange(groups.size) - starts
    heads = np.flatnonzero(place % QUAD == 0)
    ends = np.searchsorted(groups, groups[heads], "right")
    members = heads + np.arange(QUAD)[:, None]
    return np.where(members < ends, members, groups.size), groups[heads]


async def _products_of_four(ctx: Context, bits: Sequence[Share]) -> dict[tuple[int, ...], Share]:
    """Returns products of all subsets of four planes (q,), by their members. Rounds: 2. Communication: 11 planes."""
    pairs = list(combinations(range(QUAD), 2))
    twos = await multiply(
        ctx, stack(*(bits[i] for i, _ in pairs)), stack(*(bits[j] for _, j in pairs))
    )
    found: dict[tuple[int, ...], Share] = {(i,): bits[i] for i in range(QUAD)}
    found |= {pair: twos[number] for number, pair in enumerate(pairs)}
    larger: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {
        (0, 1, 2): ((0, 1), (2,)),
        (0, 1, 3): ((0, 1), (3,)),
        (0, 2, 3): ((0,), (2, 3)),
        (1, 2, 3): ((1,), (2, 3)),
        (0, 1, 2, 3): ((0, 1), (2, 3)),
    }
    left, right = (stack(*(found[pair[side]] for pair in larger.values())) for side in (0, 1))
    more = await multiply(ctx, left, right)
    return found | {members: more[number] for number, members in enumerate(larger)}


def _coefficients(rows: Sequence[Planes]) -> dict[tuple[int, ...], Planes]:
    """Returns each product's public factor: the XOR of the sums of all subsets of its members' weights.

    Shapes: weights in planes (m, words), public, one of each bit.
    """
    found: dict[tuple[int, ...], Planes] = {}
    for size in range(1, len(rows) + 1):
        for members in combinations(range(len(rows)), size):
            last = rows[members[-1]]
            found[members] = last if size == 1 else _added(found[members[:-1]], last)
    # The Möbius transform, one bit after the other: each subset's sum becomes the XOR of its own subsets' sums.
    for bit in range(len(rows)):
        for members in found:
            rest = tuple(member for member in members if member != bit)
            if rest and rest != members:
                found[members] = found[members] ^ found[rest]
    return found


def _added(a: Planes, b: Planes) -> Planes:
    """Returns a + b modulo 2^m, of public planes (m, words)."""
    total, carry = np.empty_like(a), np.zeros_like(a[0])
    for bit in range(a.shape[0]):
        different = a[bit] ^ b[bit]
        total[bit] = different ^ carry
        carry = a[bit] & b[bit] | different & carry
    return total
