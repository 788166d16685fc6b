"""The cells of an ordered column, from its values: bounds, bins, end cells, and values with a cell of their own.

Provides ``shape_of`` and ``Shape``, and ``widest_share`` and ``widest_width``, which bound what cells lose. Numbers,
cents, days: all values are whole numbers of the column's unit, so that no shape depends on how a value is written.

Four rules, in this order. Few different values are cells of themselves. A value that stands out is an atom: many more
rows than its neighbours have, or a repeated value far outside of the others. Far outside, beyond the *fences*, is one
cell on each side. What is left is cut at quantiles, each moved to the roundest number near it.

Secret: the values, and the shape as well until their owner confirms it; edges, bounds and atoms are read from the
values. Public: the rules. Source: none; the fences are a wide version of Tukey's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

MOST_CELLS, LEAST_CELLS = 32, 8
"""Bins of a column of very many rows, and of very few."""
CELLS_A_CUBE_ROOT = 0.6
"""Bins by the cube root of the rows."""
FEWEST_ROWS = 100
"""In fewer rows no shape is seen: equal bins, between the least and the greatest value that is no atom."""
ROWS_A_VALUE = 5
"""Rows that a value has on average where all values are cells of themselves."""
HEAP_ROWS, HEAP_SHARE, HEAP_FACTOR = 10, 0.003, 5
"""Rows, share of all rows, and times its neighbours' median: what a heap has at least."""
NEIGHBOURS = 20
"""Different values on each side that a heap is compared with."""
MOST_HEAPS = 12
FAR, REPEATED, MOST_FAR = 5, 3, 8
"""Times the distance from the median to the first percent: a fence; a value beyond it with so many rows is an atom."""
TAIL, TAIL_ROWS = 0.005, 20
"""The share of the rows that a cell at either end has where that is so many rows."""
EVEN = 1.6
"""Bins of equal width do where none has more than this many times its part of the rows."""
OUTWARDS, NEARBY = 0.02, 0.3
"""How far a bound may move to a round number, of the range, and an edge, of the distance to the next one."""

Whole = NDArray[np.int64]
Rounder = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Shape:
    """Bounds and cells in units of the column: ``edges`` from ``low`` to ``high``, or none for ``bins`` alike."""

    low: int
    high: int
    bins: int
    edges: tuple[int, ...] = ()
    atoms: tuple[int, ...] = ()


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
    if high - low < MOST_CELLS:
        return Shape(low, high, MOST_CELLS)
    if len(values) <= MOST_CELLS and total >= ROWS_A_VALUE * len(values):
        return Shape(low, high, 1, atoms=tuple(int(value) for value in values))
    heaps = _heaps(values, counts)
    atoms = heaps | _far(values, counts, heaps)
    kept = np.array([int(value) not in atoms for value in values])
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


def widest_share(ranges: Sequence[tuple[int, int]], counts: NDArray[np.float64]) -> float:
    """The part of the rows that is in the fullest cell of more than one value, by ``counts`` (cells,), 0 to 1."""
    total = float(np.maximum(counts, 0).sum())
    wide = [
        float(count) for (first, last), count in zip(ranges, counts, strict=True) if last > first
    ]
    return max(0.0, *wide) / total if total > 0 and wide else 0.0


def _heaps(values: NDArray[np.object_], counts: Whole) -> set[int]:
    """Values with many more rows than those beside them, the largest first."""
    least = max(HEAP_ROWS, HEAP_SHARE * counts.sum())
    found = []
    for i in np.flatnonzero(counts >= least):
        beside = np.concatenate(
            [counts[max(0, i - NEIGHBOURS) : i], counts[i + 1 : i + 1 + NEIGHBOURS]]
        )
        usual = float(np.median(beside)) if beside.size else 0.0
        if counts[i] >= HEAP_FACTOR * max(1.0, usual):
            found.append((usual - counts[i], int(values[i])))
    return {value for _, value in sorted(found)[:MOST_HEAPS]}


def _far(values: NDArray[np.object_], counts: Whole, heaps: set[int]) -> set[int]:
    """Repeated values beyond the fences of the others."""
    kept = np.array([int(value) not in heaps for value in values])
    if not kept.any():
        return set()
    below, above = _fences(values[kept], counts[kept])
    beyond = [
        (-int(count), int(value))
        for value, count in zip(values, counts, strict=True)
        if count >= REPEATED and not below <= value <= above
    ]
    return {value for _, value in sorted(beyond)[:MOST_FAR]}


def _fences(values: NDArray[np.object_], counts: Whole) -> tuple[int, int]:
    """From where to where values are no farther out than the middle ones make likely."""
    first, middle, last = (_quantile(values, counts, share) for share in (0.01, 0.5, 0.99))
    spread = max(last - first, 1)
    return (
        first - FAR * max(middle - first, spread // 10),
        last + FAR * max(last - middle, spread // 10),
    )


def _quantile(values: NDArray[np.object_], counts: Whole, share: float) -> int:
    """The least value that this share of the rows does not exceed."""
    ends = np.cumsum(counts)
    return int(values[min(int(np.searchsorted(ends, share * ends[-1])), len(values) - 1)])


def _cut(
    values: NDArray[np.object_], counts: Whole, total: int, atoms: Sequence[int], rounder: Rounder
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
    edges = _quantile_edges(inner, weights, low, high, bins, rounder)
    if least < low:
        edges = [rounder(2 * least - low, least), *edges]
    if most > high:
        edges = [*edges[:-1], high + 1, rounder(most, 2 * most - high)]
    if len(edges) == 2:
        return Shape(edges[0], edges[-1], 1, atoms=tuple(atoms))
    return Shape(edges[0], edges[-1], MOST_CELLS, tuple(edges), tuple(atoms))


def _bins(rows: int, total: int) -> int:
    """How many bins so many of all rows are cut into."""
    whole = min(MOST_CELLS, max(LEAST_CELLS, round(CELLS_A_CUBE_ROOT * math.cbrt(total))))
    return max(LEAST_CELLS // 2, -(-whole * rows // total))


def _even(values: NDArray[np.object_], counts: Whole, low: int, high: int, bins: int) -> bool:
    """Equal bins hold the rows evenly."""
    places = [int((value - low) * bins // (high - low + 1)) for value in values]
    held = np.bincount(places, counts, minlength=bins)
    return bool(held.max() * bins <= EVEN * counts.sum())


def _quantile_edges(
    values: NDArray[np.object_], counts: Whole, low: int, high: int, bins: int, rounder: Rounder
) -> list[int]:
    """From ``low`` to ``high`` so that bins have about as many rows each, and those at both ends fewer."""
    shares = [i / bins for i in range(1, bins)]
    if TAIL * counts.sum() >= TAIL_ROWS:
        shares = [TAIL, *shares, 1 - TAIL]
    exact = sorted({low, *(_quantile(values, counts, share) for share in shares), high})
    edges = [low]
    for (before, _), (edge, after) in zip(pairwise(exact), pairwise(exact[1:]), strict=False):
        # Half-open bins: an edge is the first value of the bin behind it.
        start = max(edges[-1] + 1, edge - int(NEARBY * (edge - before)))
        found = rounder(start, max(start, edge + int(NEARBY * (after - edge))))
        if found < high:
            edges.append(found)
    return [*edges, high]
