"""The cells of an ordered column, from its values: bounds, bins, end cells, and values with a cell of their own.

Provides ``shape_of`` and ``Shape``, ``cells_for``, and ``widest_width``, which bounds what cells lose. Numbers, cents,
days: all values are whole numbers of the column's unit, so that no shape depends on how a value is written.

Four rules, in this order. Few different values are cells of themselves. A value that stands out is an atom: many more
rows than its neighbours have, or a repeated value apart from the others. Far outside, beyond the *fences*, is one cell
on each side. What is left is cut at quantiles, each moved to the roundest number near it: few cells, since noise is on
each, and finer quantiles ``within`` them, between which values are drawn.

Secret: the values, and the shape as well until their owner confirms it; edges, bounds and atoms are read from the
values. Public: the rules. Source: none; the fences are a wide version of Tukey's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_CELLS, LEAST_CELLS = 32, 8
"""Bins of a column of very many rows, and of very few."""
FEWEST_ROWS = 100
"""In fewer rows no shape is seen: equal bins, between the least and the greatest value that is no atom."""
DENSE = 12
"""Whole numbers up to so many, or twice the bins that so many rows have, are cells of themselves."""
ROWS_A_VALUE = 5
"""Rows that a value has on average where all values are cells of themselves."""
HEAP_ROWS, HEAP_SHARE, HEAP_FACTOR = 10, 0.003, 5
"""Rows, share of all rows, and times its neighbours' median: what a heap has at least."""
NEIGHBOURS = 20
"""Different values on each side that a heap is compared with."""
MOST_HEAPS = 12
SENTINELS = (-9, -99, -999, -9999, 99, 999, 9999, 99999, 2**31 - 1, -(2**31))
"""Numbers that stand for something else where they lie outside of all others."""
REPEATED, GAP, MOST_FAR = 3, 0.2, 8
"""Rows of a value apart, at least; and what lies between it and the next, in nine tenths of the values' range."""
FAR = 5
"""Times the distance from the median to the first percent: a fence."""
PARTS, PART_ROWS = 4, 3
"""Parts of a cell at most, and rows of a part at least."""
TAILS, WIDE = 2, 3
"""How often a tail is cut at most: where its outermost part is so many times as wide as the next."""
EVEN = 1.6
"""Bins of equal width do where none has more than this many times its part of the rows."""
OUTWARDS, NEARBY = 0.02, 0.3
"""How far a bound moves to a round number, of the range, and an edge, of the distance to the nearer one, at most."""

Values = NDArray[np.object_]
Whole = NDArray[np.int64]
Rounder = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Shape:
    """Bounds and cells in units of the column: ``edges`` from ``low`` to ``high``, or none for ``bins`` alike.

    ``within`` are numbers between edges: the parts of a cell have about as many rows each.
    """

    low: int
    high: int
    bins: int
    edges: tuple[int, ...] = ()
    atoms: tuple[int, ...] = ()
    within: tuple[int, ...] = ()


def roundest(low: int, high: int) -> int:
    """The number from ``low`` to ``high`` with the fewest digits that are not zero: 0, or a multiple of 1, 2, 5 x 10^k.

    Of several the one nearest to zero.
    """
    if low <= 0 <= high:
        return 0
    size = 10 ** len(str(max(abs(low), abs(high))))
    while size:
        for step in (size, size // 2, size // 5):
            first, last = (-(-low // step) * step, high // step * step) if step else (high + 1, 0)
            if first <= high:
                return first if abs(first) <= abs(last) else last
        size //= 10
    return low


def shape_of(rows: Mapping[int, int], *, rounder: Rounder = roundest) -> Shape:
    """The shape of a column by how many ``rows`` have each value, one at least. ``rounder`` finds a round number.

    Raises ``ValueError`` without values.
    """
    if not rows:
        raise ValueError("a column without values has no shape")
    values = np.array(sorted(rows), object)
    counts = np.array([rows[value] for value in values], np.int64)
    low, high, total = int(values[0]), int(values[-1]), int(counts.sum())
    if high - low < max(DENSE, 2 * _bins(total, total)) or (
        total < FEWEST_ROWS and high - low < MOST_CELLS
    ):
        return Shape(low, high, MOST_CELLS)
    if len(values) <= MOST_CELLS and total >= ROWS_A_VALUE * len(values):
        return Shape(low, high, 1, atoms=tuple(int(value) for value in values))
    atoms = _apart(values, counts)
    kept = _without(values, atoms)
    atoms |= _heaps(values[kept], counts[kept], total)
    kept = _without(values, atoms)
    if kept.sum() < 2:
        return Shape(low, high, 1, atoms=tuple(sorted(atoms)))
    if total < FEWEST_ROWS:
        rest = values[kept]
        return Shape(int(rest[0]), int(rest[-1]), MOST_CELLS, atoms=tuple(sorted(atoms)))
    return _cut(values[kept], counts[kept], total, sorted(atoms), rounder)


def widest_width(ranges: Iterable[tuple[int, int]]) -> float:
    """The widest cell's part of the range of all, 0 to 1; ``ranges`` are those of cells, both ends included."""
    known = list(ranges)
    whole = max(last for _, last in known) - min(first for first, _ in known) + 1
    return max(last - first for first, last in known) / whole


def _without(values: Values, atoms: set[int]) -> NDArray[np.bool_]:
    return np.array([int(value) not in atoms for value in values], np.bool_)


def _apart(values: Values, counts: Whole) -> set[int]:
    """Repeated values at either end, far from the next one inwards; and known marks outside of all others."""
    found: set[int] = set()
    usual = _quantile(values, counts, 0.95) - _quantile(values, counts, 0.05)
    for ends in (range(len(values) - 1), range(len(values) - 1, 0, -1)):
        for i in [*ends][:MOST_FAR]:
            beside = i + 1 if ends.step > 0 else i - 1
            value, gap = int(values[i]), abs(int(values[beside]) - int(values[i]))
            known = value in SENTINELS and (value < 0 <= values[beside] or gap > GAP / 4 * usual)
            if counts[i] < REPEATED or not (gap > GAP * usual or known):
                break
            found.add(value)
    return found


def _heaps(values: Values, counts: Whole, total: int) -> set[int]:
    """Values with many more rows than those beside them, the largest first."""
    least = max(HEAP_ROWS, HEAP_SHARE * total)
    found = []
    for i in np.flatnonzero(counts >= least):
        beside = np.concatenate(
            [counts[max(0, i - NEIGHBOURS) : i], counts[i + 1 : i + 1 + NEIGHBOURS]]
        )
        usual = float(np.median(beside)) if beside.size else 0.0
        if counts[i] >= HEAP_FACTOR * max(1.0, usual):
            found.append((usual - counts[i], int(values[i])))
    return {value for _, value in sorted(found)[:MOST_HEAPS]}


def _fences(values: Values, counts: Whole) -> tuple[int, int]:
    """From where to where values are no farther out than the middle ones make likely."""
    first, middle, last = (_quantile(values, counts, share) for share in (0.01, 0.5, 0.99))
    spread = max(last - first, 1)
    return (
        first - FAR * max(middle - first, spread // 10),
        last + FAR * max(last - middle, spread // 10),
    )


def _quantile(values: Values, counts: Whole, share: float) -> int:
    """The least value that this share of the rows does not exceed."""
    ends = np.cumsum(counts)
    return int(values[min(int(np.searchsorted(ends, share * ends[-1])), len(values) - 1)])


def _cut(
    values: Values, counts: Whole, total: int, atoms: Sequence[int], rounder: Rounder
) -> Shape:
    """Bins of what is no atom."""
    below, above = _fences(values, counts)
    body = np.array([below <= value <= above for value in values])
    inner, weights = values[body], counts[body]
    low, high = int(inner[0]), int(inner[-1])
    slack = int(OUTWARDS * (high - low))
    low, high = (
        rounder(low - slack if low < 0 else max(0, low - slack), low),
        rounder(high, high + slack),
    )
    bins = _bins(int(counts.sum()), total)
    least, most = int(values[0]), int(values[-1])
    if least >= low and most <= high and _even(inner, weights, low, high, bins):
        return Shape(low, high, bins, atoms=tuple(atoms))
    edges, within = _quantiles(inner, weights, (low, high), bins, rounder)
    if least < low:
        edges = [rounder(2 * least - low, least), *edges]
        within = [*_quarters(values, counts, (least, low)), *within]
    if most > high:
        edges = [*edges[:-1], high + 1, rounder(most, 2 * most - high)]
        within += _quarters(values, counts, (high + 1, most))
    bins = MOST_CELLS if len(edges) > 2 else 1
    return Shape(
        edges[0],
        edges[-1],
        bins,
        tuple(edges) if len(edges) > 2 else (),
        tuple(atoms),
        tuple(within) if len(edges) > 2 else (),
    )


def cells_for(rows: int) -> int:
    """How many cells a column of so many rows has: 0.6 of their cube root, from 8 to 32."""
    # In whole numbers, the same on every machine: the largest n with (n / 0.6)^3 <= rows.
    found = LEAST_CELLS
    while found < MOST_CELLS and 125 * (found + 1) ** 3 <= 27 * rows:
        found += 1
    return found


def _bins(rows: int, total: int) -> int:
    """How many bins so many of all rows are cut into."""
    return max(LEAST_CELLS // 2, -(-cells_for(total) * rows // total))


def _even(values: Values, counts: Whole, low: int, high: int, bins: int) -> bool:
    """Equal bins hold the rows evenly."""
    places = [int((value - low) * bins // (high - low + 1)) for value in values]
    held = np.bincount(places, counts, minlength=bins)
    return bool(held.max() * bins <= EVEN * counts.sum())


def _quantiles(
    values: Values, counts: Whole, bounds: tuple[int, int], bins: int, rounder: Rounder
) -> tuple[list[int], list[int]]:
    """Edges between the bounds, of bins with about as many rows each, and what cuts these into parts."""
    low, high = bounds
    cuts: dict[int, bool] = {}
    for share, edge in sorted(_shares(values, counts, bounds, bins).items()):
        place = _quantile(values, counts, share)
        cuts[place] = cuts.get(place, False) or edge
    places = [low, *(place for place in cuts if low < place < high), high]
    edges, within = [low], list[int]()
    for before, place, after in zip(places, places[1:], places[2:], strict=False):
        # Half-open bins: an edge is the first value of the bin behind it.
        slack = int(NEARBY * min(place - before, after - place))
        start = max(place - slack, edges[-1] + 1, *(number + 1 for number in within[-1:]))
        found = rounder(start, max(start, place + slack))
        if found < high:
            (edges if cuts[place] else within).append(found)
    return [*edges, high], within


def _quarters(values: Values, counts: Whole, bounds: tuple[int, int]) -> list[int]:
    """Numbers that cut the cell of an end into four parts, where it has as many rows."""
    first, last = bounds
    inside = np.array([first < value < last for value in values])
    if counts[inside].sum() < PARTS:
        return []
    places = sorted({_quantile(values[inside], counts[inside], i / PARTS) for i in range(1, PARTS)})
    return [place for place in places if first < place < last]


def _shares(values: Values, counts: Whole, bounds: tuple[int, int], bins: int) -> dict[float, bool]:
    """At which shares of the rows to cut: true for an edge of a bin, false within one.

    Where the outermost part is much wider than the next it is a bin, and cut again.
    """
    rows = int(counts.sum())
    parts = max(1, min(PARTS, rows // (bins * PART_ROWS)))
    shares = {i / (bins * parts): i % parts == 0 for i in range(1, bins * parts)}
    for end in (0, 1):
        share = 1 / (bins * parts)
        for _ in range(TAILS):
            outer, inner = (_quantile(values, counts, abs(end - of)) for of in (share, 2 * share))
            wide = abs(bounds[end] - outer) > WIDE * abs(outer - inner)
            if not wide or share * rows < PARTS * PART_ROWS:
                break
            shares |= {abs(end - share * i / PARTS): False for i in range(1, PARTS)}
            shares[abs(end - share)] = True
            share /= PARTS
    return shares
