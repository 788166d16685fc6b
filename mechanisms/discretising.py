"""Cells of an ordered column, from its values: bounds, bins, end cells, and values with a cell of their own.

All values are whole numbers of the column's unit (numbers, cents, days), so that no shape depends on the spelling of a
value.

Four rules, in this order:

1. If there are few different values, each is a cell.
2. A value that stands out is an atom: it has many more rows than its neighbours, or is a repeated value apart from the
   others.
3. Values far outside, beyond the *fences*, form one cell on each side.
4. The rest is cut at quantiles, each moved to the roundest number near it. There are few cells, since noise is on each;
   finer quantiles ``within`` them guide the drawing of values.

The values are secret, and so is the shape until its owner confirms it: edges, bounds and atoms are read from the
values. The rules are public. The fences are a wide version of Tukey's; the other rules have no source.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_CELLS, LEAST_CELLS = 32, 8
"""Bins of a column of very many rows, and of very few."""
FEWEST_ROWS, CROWDED = 100, 0.5
"""Number of rows below which no shape is seen, and share of the rows.

With fewer rows the bins are equal, between the least and the greatest value that is no atom, unless one of these bins
has more than this share of the rows.
"""
DENSE = 12
"""Largest range of whole numbers that are all cells of their own, if larger than twice the bins for so many rows."""
ROWS_A_VALUE = 5
"""Average rows per value if all values are cells of their own."""
HEAP_ROWS, HEAP_SHARE, HEAP_FACTOR = 10, 0.003, 5
"""Least size of a heap: rows, share of all rows, and multiple of its neighbours' median."""
NEIGHBOURS, LATTICE = 20, 400
"""Different values on each side that a heap is compared with, and those searched for equally round ones."""
FEWEST_ROUND, ROUND_FACTOR, LATTICE_FACTOR = 4, 1.4, 3
"""Fewest equally round values for a comparison; least multiple of their median; the same if many heaps are found."""
HEAVY_SHARE = 0.02
"""Share of the rows that makes a value a heap regardless of equally round values beside it."""
FULL = 0.75
"""Share of a bin's rows that makes a value a cell of its own: without it there would be as many cells."""
MOST_HEAPS, MANY_HEAPS = 12, 24
"""Most heaps with a cell each; more than the second number look like numbers of fewer digits among others."""
SENTINELS = (-9, -99, -999, -9999, 99, 999, 9999, 99999, 2**31 - 1, -(2**31))
"""Numbers that mark something else if they lie outside of all others."""
REPEATED, GAP, MOST_FAR, MOST_OF_ONE = 3, 0.2, 8, 0.02
"""Rules for a value apart from the others.

Least rows of the value; least gap to the next value, as a share of the range of nine tenths of the values; values
looked at on each end; largest share of the rows that one value counts for in that range.
"""
FAR, FAR_OF_FEW, FEW_ROWS = (0.01, 5), (0.1, 20), 500
"""A fence: a share of the rows, and a multiple of its distance from the median; the same with fewer rows."""
WIDER = 3
"""Growth in width of the parts of an end cell that has too few rows to show a shape."""
PARTS, PART_ROWS, MOST_TAIL_PARTS = 6, 3, 16
"""Most parts of a cell, least rows of a part, and most parts of an end cell, which is as wide as its tail."""
TAILS, WIDE = 2, 3
"""Most cuts of a tail, and the ratio of widths of its outermost part and the next that causes a cut."""
EVEN = 1.6
"""Most rows of a bin of equal width, as a multiple of its even share, for equal widths to do."""
OUTWARDS, NEARBY = 0.02, 0.3
"""Farthest moves to a round number: of a bound, per range; of an edge, per distance to the nearer neighbour."""

Values = NDArray[np.object_]
Whole = NDArray[np.int64]
Rounder = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Shape:
    """Bounds and cells in units of the column: ``edges`` from ``low`` to ``high``, or none for ``bins`` equal bins.

    ``within`` are numbers between edges; they divide each cell into parts with about the same number of rows.
    """

    low: int
    high: int
    bins: int
    edges: tuple[int, ...] = ()
    atoms: tuple[int, ...] = ()
    within: tuple[int, ...] = ()


def roundest(low: int, high: int) -> int:
    """Returns the roundest number from ``low`` to ``high``: 0, or a multiple of 1, 2 or 5 times the largest 10^k.

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


def shape_of(
    rows: Mapping[int, int],
    *,
    rounder: Rounder = roundest,
    marks: Container[int] = SENTINELS,
    zero: bool = False,
) -> Shape:
    """Returns the shape of a column from the number of ``rows`` of each value.

    ``rounder`` finds a round number; ``marks`` are values that mark something else, in the column's unit. With ``zero``
    a bound of positive values may be 0; else they stay positive.

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
    atoms = _apart(values, counts, marks)
    kept = _without(values, atoms)
    atoms |= _heaps(values[kept], counts[kept], total)
    full = FULL * total / _bins(total, total)
    if total >= FEWEST_ROWS:
        atoms |= {int(value) for value in values[counts >= full]}
    kept = _without(values, atoms)
    if kept.sum() < 2:
        return Shape(low, high, 1, atoms=tuple(sorted(atoms)))
    rest = values[kept]
    if total < FEWEST_ROWS and not _crowded(rest, counts[kept], total):
        return Shape(int(rest[0]), int(rest[-1]), MOST_CELLS, atoms=tuple(sorted(atoms)))
    return _cut(rest, counts[kept], total, sorted(atoms), rounder, least=0 if zero else 1)


def widest_width(ranges: Iterable[tuple[int, int]]) -> float:
    """Returns the widest cell's part of the range of all cells of several values, 0 to 1.

    ``ranges`` are those of a column's cells, ``column.cells.ranges``, both ends included; no data are needed. Values
    with a cell of their own do not count, so that no mark such as 9999-12-31 makes the other cells look narrow.
    """
    wide = [(first, last) for first, last in ranges if last > first]
    if not wide:
        return 0.0
    whole = max(last for _, last in wide) - min(first for first, _ in wide) + 1
    return max(last - first for first, last in wide) / whole


def _without(values: Values, atoms: set[int]) -> NDArray[np.bool_]:
    return np.array([int(value) not in atoms for value in values], np.bool_)


def _apart(values: Values, counts: Whole, marks: Container[int]) -> set[int]:
    """Returns repeated values at either end that are far from the next one inwards, and marks outside all others."""
    found: set[int] = set()
    # Counts are capped at a share of the rows: beside 95 % zeros all other values would be far apart.
    even = np.minimum(counts, max(1, int(MOST_OF_ONE * counts.sum())))
    usual = _quantile(values, even, 0.95) - _quantile(values, even, 0.05)
    for ends in (range(len(values) - 1), range(len(values) - 1, 0, -1)):
        outer: list[int] = []
        for i in [*ends][:MOST_FAR]:
            inwards = int(values[i + ends.step])
            value, gap = int(values[i]), abs(inwards - int(values[i]))
            if counts[i] < REPEATED:
                continue
            # Marks may lie side by side, as 998 and 999 do: the innermost is far from all others.
            outer.append(value)
            known = value in marks and (value < 0 <= inwards or gap > GAP / 4 * usual)
            if gap > GAP * usual or known:
                found.update(outer)
    return found


def _heaps(values: Values, counts: Whole, total: int) -> set[int]:
    """Returns the values with many more rows than their neighbours, the largest first."""
    least = max(HEAP_ROWS, HEAP_SHARE * total)
    found = []
    for i in np.flatnonzero(counts >= least).tolist():
        # Each side separately: where most values end, those beyond are few.
        usual = max(
            _usual(counts, i, range(i - NEIGHBOURS, i)),
            _usual(counts, i, range(i + 1, i + 1 + NEIGHBOURS)),
        )
        if counts[i] >= HEAP_FACTOR * max(1.0, usual):
            found.append((usual - counts[i], i))
    factor = ROUND_FACTOR if len(found) <= MANY_HEAPS else LATTICE_FACTOR
    rising = [
        (above, i)
        for above, i in found
        if counts[i] >= HEAVY_SHARE * total or _rises(values, counts, i, factor)
    ]
    return {int(values[i]) for _, i in sorted(rising)[:MOST_HEAPS]}


def _usual(counts: Whole, place: int, others: Sequence[int]) -> float:
    """Returns the median of the counts at the existing places among ``others``."""
    known = [int(counts[i]) for i in others if 0 <= i < len(counts) and i != place]
    return float(np.median(known)) if known else 0.0


def _rises(values: Values, counts: Whole, place: int, factor: float) -> bool:
    """Returns whether the value has ``factor`` times the rows of nearby multiples of the same power of ten.

    Where most numbers have one decimal, and a few have two, each number of one decimal has many more rows than its
    neighbours and still is no heap.
    """
    value = int(values[place])
    step = 10 ** (len(str(value)) - len(str(value).rstrip("0"))) if value else 1
    sides = (
        range(place - 1, max(-1, place - 1 - LATTICE), -1),
        range(place + 1, min(len(values), place + 1 + LATTICE)),
    )
    found = [[i for i in side if values[i] % step == 0][: NEIGHBOURS // 2] for side in sides]
    alike = [i for side in found for i in side]
    return len(alike) < FEWEST_ROUND or counts[place] >= factor * _usual(counts, place, alike)


def _crowded(values: Values, counts: Whole, total: int) -> bool:
    """Returns whether one of equal bins would hold most rows, of several values."""
    low, high = int(values[0]), int(values[-1])
    places = np.array([int((value - low) * MOST_CELLS // (high - low + 1)) for value in values])
    several = np.bincount(places, minlength=MOST_CELLS) > 1
    held = np.bincount(places, counts, minlength=MOST_CELLS)
    return bool(held[several].max(initial=0) > CROWDED * total)


def _fences(values: Values, counts: Whole) -> tuple[int, int]:
    """Returns the fences: the ends of the range that the middle values make likely."""
    share, times = FAR if counts.sum() >= FEW_ROWS else FAR_OF_FEW
    first, middle, last = (_quantile(values, counts, at) for at in (share, 0.5, 1 - share))
    spread = max(last - first, 1)
    return (
        first - times * max(middle - first, spread // 10),
        last + times * max(last - middle, spread // 10),
    )


def _quantile(values: Values, counts: Whole, share: float) -> int:
    """Returns the least value that this share of the rows does not exceed."""
    ends = np.cumsum(counts)
    return int(values[min(int(np.searchsorted(ends, share * ends[-1])), len(values) - 1)])


def _cut(
    values: Values,
    counts: Whole,
    total: int,
    atoms: Sequence[int],
    rounder: Rounder,
    *,
    least: int,
) -> Shape:
    """Returns the bins of all values that are no atoms; a bound of ``least`` or more is not rounded below it."""
    below, above = _fences(values, counts)
    body = np.array([below <= value <= above for value in values])
    inner, weights = values[body], counts[body]
    low, high = int(inner[0]), int(inner[-1])
    slack = int(OUTWARDS * (high - low))
    low, high = (
        rounder(low - slack if low < 0 else max(min(least, low), low - slack), low),
        rounder(high, high + slack),
    )
    bins = _bins(int(counts.sum()), total)
    first, most = int(values[0]), int(values[-1])
    if first >= low and most <= high and _even(inner, weights, low, high, bins):
        return Shape(low, high, bins, atoms=tuple(atoms))
    edges, within = _quantiles(inner, weights, (low, high), bins, rounder)
    width = max(high - low, 1)
    if first < low:
        # The lower tail is cut as its mirror image.
        mirror = _tail(
            -values[::-1], counts[::-1], (-low, -first), width, lambda a, b: -rounder(-b, -a)
        )
        edges = [-mirror[-1], *edges]
        within = [*(-number for number in mirror[-2::-1]), *within]
    if most > high:
        edge = rounder(high + 1, max(high + 1, min(most, high + 1 + slack)))
        tail = _tail(values, counts, (edge, most), width, rounder)
        edges = [*edges[:-1], edge, tail[-1]]
        within += tail[:-1]
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
    """Returns the number of cells for a column of ``rows`` rows: 0.6 of their cube root, from 8 to 32."""
    # In whole numbers, the same on every machine: the largest n with (n / 0.6)^3 <= rows.
    found = LEAST_CELLS
    while found < MOST_CELLS and 125 * (found + 1) ** 3 <= 27 * rows:
        found += 1
    return found


def _bins(rows: int, total: int) -> int:
    """Returns the number of bins for ``rows`` of the ``total`` rows."""
    return max(LEAST_CELLS // 2, -(-cells_for(total) * rows // total))


def _even(values: Values, counts: Whole, low: int, high: int, bins: int) -> bool:
    """Returns whether equal bins hold the rows evenly."""
    places = [int((value - low) * bins // (high - low + 1)) for value in values]
    held = np.bincount(places, counts, minlength=bins)
    return bool(held.max() * bins <= EVEN * counts.sum())


def _quantiles(
    values: Values, counts: Whole, bounds: tuple[int, int], bins: int, rounder: Rounder
) -> tuple[list[int], list[int]]:
    """Returns the edges between the bounds of bins with about equal rows, and the numbers that cut them into parts."""
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


def _tail(
    values: Values, counts: Whole, ends: tuple[int, int], width: int, rounder: Rounder
) -> list[int]:
    """Returns round numbers that cut an end cell into parts, upwards from the body, and its end.

    The parts have equal numbers of rows if there are enough. Otherwise each is three times as wide as the one before,
    so that values drawn there, also because of noise, are seldom absurd.
    """
    first, most = ends
    inside = np.array([value > first for value in values])
    last = rounder(max(most, first + 1), max(most, first) + max(1, (most - first) // PARTS))
    parts = min(MOST_TAIL_PARTS, int(counts[inside].sum()) // PART_ROWS)
    if parts >= PARTS:
        places = [_quantile(values[inside], counts[inside], i / parts) for i in range(1, parts)]
    else:
        places = []
        while width * WIDER < most - first:
            places.append(first + width)
            width *= WIDER
    found = [first]
    for place in places:
        slack = int(NEARBY * (place - found[-1]))
        number = rounder(place - slack, place)
        if found[-1] < number < last:
            found.append(number)
    return [*found[1:], last]


def _shares(values: Values, counts: Whole, bounds: tuple[int, int], bins: int) -> dict[float, bool]:
    """Returns the shares of the rows at which to cut: true for an edge of a bin, false for a cut within one.

    An outermost part that is much wider than the next becomes a bin, and is cut again.
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
