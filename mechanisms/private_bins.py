"""Private bins of numbers and dates, chosen from a noisy fine histogram (``bins = "private"``).

A column begins with up to ``resolution`` fine cells between its public bounds; the bounds and zero have cells of their
own (for dates the days that mark a missing date). Round 0 measures the number of rows in each, under the budget. From
these noisy counts ``group`` makes up to ``coarse`` cells, which model the column: spikes are cells of their own, the
rest is cut into bins of similar mass. A value is drawn from the noisy histogram within its cell (``fine_weights``).

With ``values = "private"`` no bounds stand in the configuration: the fine cells are those of `mechanisms.scale_free`.

All values here are public. The histogram is a released value, and its results are post-processing, at no further cost.
Representation: counts are whole numbers and the rule is integer arithmetic, the same to the bit on every machine.
Source: none. Limits: a fine cell is not divided: its values are drawn uniformly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mechanisms.cells import Cells
from mechanisms.column_parts import DEFAULT_BINS, PRIVATE
from mechanisms.discretising import cells_for
from mechanisms.errors import DomainError
from mechanisms.sampling import PublicGenerator

MAX_RESOLUTION = 1024
LEAST_COARSE = 4
SEEN = 4
"""Deviations of its own noise that a count has to exceed to be told from zero."""
FOUND = 5
"""The same for the existence of rows in one of a thousand cells, or of as many windows of cells."""
NEAR = 3
"""The same for rows in neighbours of cells that have rows, which are likelier than rows far from all others."""
SURE, BEYOND = 8, 4
"""Deviations of two cells at an end of such cells by which a tail beside them would be seen; and those that cells there
have to exceed instead of ``NEAR``.
"""
MARKED = 4
"""The same for rows in one of some thirty cells that are listed, since rows are likely there (``Cells.marks``).

Noise alone exceeds it in one such cell of a column with 1 in 1,000.
"""
_NONE: frozenset[int] = frozenset()
SPIKE_SHARE = 8
"""A spike has at least one part in ``SPIKE_SHARE`` x coarse of all rows."""
_SINGLED = 4
"""Most fine cells of the bounds and zero beyond those of equal width."""


@dataclass(frozen=True, slots=True)
class PrivateBins:
    """Largest numbers of fine and of coarse cells, and the histogram once it is measured.

    ``histogram`` has the noisy counts of the fine cells, whole numbers; empty before round 0. ``deviation`` is that of
    their noise, in rows. With ``free`` the fine cells are a public grid without bounds. Raises ``DomainError`` if there
    are too few cells or too many.
    """

    resolution: int = MAX_RESOLUTION
    coarse: int = DEFAULT_BINS
    histogram: tuple[int, ...] = ()
    deviation: float = 0.0
    free: bool = False

    def __post_init__(self) -> None:
        if not LEAST_COARSE <= self.coarse <= self.resolution <= MAX_RESOLUTION:
            raise DomainError(
                f"coarse = {self.coarse}, resolution = {self.resolution}; expected {LEAST_COARSE} <= coarse <="
                f" resolution <= {MAX_RESOLUTION}"
            )
        if self.histogram and not (self.deviation > 0 and math.isfinite(self.deviation)):
            raise DomainError(
                f"deviation = {self.deviation}; the histogram's noise has a positive one"
            )

    @property
    def measured(self) -> bool:
        """True if there is a histogram."""
        return bool(self.histogram)

    def having(self, histogram: NDArray[np.float64], deviation: float) -> PrivateBins:
        """Returns the same with the noisy counts of the fine cells (cells,) and the deviation of each."""
        counts = tuple(int(count) for count in np.rint(histogram))
        return replace(self, histogram=counts, deviation=deviation)

    def to_dict(self) -> dict[str, object]:
        """Returns the keys in the ``[[column]]`` table of a configuration."""
        known = {"histogram": list(self.histogram), "deviation": self.deviation}
        keys: dict[str, object] = {"values": PRIVATE}
        if not self.free:
            keys = {"bins": PRIVATE, "resolution": self.resolution}
        return keys | {"coarse": self.coarse} | (known if self.measured else {})

    def groups(self, fine: Cells) -> tuple[int, ...]:
        """Returns the first of the ``fine`` cells of each coarse cell, ascending, from 0."""
        return _groups_of(self, fine.marks)

    def cells_of(self, fine: Cells) -> Cells:
        """Returns the cells that model a column: the ``fine`` cells, or their groups once measured."""
        if not self.measured:
            return fine
        return Cells.cut([fine.ranges[first][0] for first in self.groups(fine)], fine.ranges[-1][1])

    def drawn_range(self, fine: Cells) -> tuple[int, int]:
        """Returns the least and the largest number that is ever drawn from the ``fine`` cells, once measured."""
        drawn = np.flatnonzero(self.weights(fine))
        return fine.ranges[int(drawn[0])][0], fine.ranges[int(drawn[-1])][1]

    def places(self, fine: Cells, others: int) -> NDArray[np.int32]:
        """Returns the coarse code of each fine one, int32 (codes,); ``others`` (marks, missing) come last."""
        groups = self.groups(fine)
        behind = np.arange(others) + len(groups)
        return np.append(place_of(groups, len(fine.ranges)), behind).astype(np.int32)

    def weights(self, fine: Cells) -> NDArray[np.int64]:
        """Returns the weight of each fine cell (cells,) within its group, once measured; see ``fine_weights``."""
        return np.diff(_ends_of(self, fine.marks), prepend=0)

    def draw_within(
        self, fine: Cells, codes: NDArray[np.int32], generator: PublicGenerator
    ) -> NDArray[np.int64]:
        """Returns for each coarse code a number, uniform within one of its ``fine`` cells drawn by the histogram."""
        return fine.draw(self.draw(codes, fine, generator), generator)

    def draw(
        self, codes: NDArray[np.int32], fine: Cells, generator: PublicGenerator
    ) -> NDArray[np.int32]:
        """Returns for each coarse code one of its ``fine`` cells, drawn by the noisy histogram."""
        ends = _ends_of(self, fine.marks)
        starts = [*self.groups(fine), len(fine.ranges)]
        before = np.array([0, *ends], np.int64)[starts]
        points = generator.integers(before[codes], before[np.asarray(codes) + 1])
        return np.searchsorted(ends, points, side="right").astype(np.int32)


def check_private(
    name: str, private: PrivateBins, fine: int, *, edges: Sequence[object], atoms: Sequence[object]
) -> None:
    """Raises ``DomainError`` for private bins beside other bins, or a histogram of a length other than ``fine``."""
    if edges or atoms:
        raise DomainError(
            f'column {name!r}: bins = "{PRIVATE}" stands beside {"edges" if edges else "atoms"}, which are found by '
            "it; give one"
        )
    if private.histogram and len(private.histogram) != fine:
        raise DomainError(
            f"column {name!r}: its histogram has {len(private.histogram)} counts; it has {fine} fine cells"
        )


def fine_starts(starts: Sequence[int], low: int, high: int) -> list[int]:
    """Returns ``starts`` of fine cells up to ``high``, with cells of their own for the bounds and zero.

    Values often heap up there.
    """
    apart = [number for number in (low, 0, high) if low <= number <= high]
    singled = {*apart, *(number + 1 for number in apart if number < high)}
    return sorted({*starts, *singled})


def equal_cells(resolution: int, values: int) -> int:
    """Returns the number of fine cells of equal width that leaves room for those of ``fine_starts``."""
    return values if values <= resolution else max(1, resolution - _SINGLED)


def group(
    histogram: Sequence[int], coarse: int, deviation: float, *, marks: frozenset[int] = _NONE
) -> tuple[int, ...]:
    """Returns the first fine cell of each of at most ``coarse`` groups of neighbours, from noisy counts.

    First come spikes: the largest fine cells that exceed ``FOUND`` deviations (``MARKED`` if they are ``marks``), one
    row in ``SPIKE_SHARE`` x ``coarse``, and twice each neighbour; as many as leave room for the cells between them.
    Then, repeatedly, the heaviest group that can be told from zero is cut where its halves are most nearly equal, until
    there are as many cells beside the spikes as the number of rows allows (``discretising.cells_for``). Cells outside
    of the ``support`` do not count, and form a group only beside a spike. ``deviation`` is that of the counts.
    """
    cells, starts = len(histogram), {0}
    counts, variance = np.array(histogram, np.int64), math.ceil(deviation * deviation)
    standing, body = _without_marks(counts, variance, marks)
    known = _shown(body, variance)
    known = _extended(known, body, variance) | standing if known.any() else standing
    for spike in _spikes(histogram, coarse, variance, marks=marks):
        starts |= {spike, spike + 1} - {cells}
    coarse = min(coarse, len(starts) + cells_for(max(0, sum(histogram))))
    sums = [0]
    for count in np.where(known, counts, 0).tolist():
        sums.append(sums[-1] + count)
    while len(starts) < coarse:
        masses = []
        for first, last in pairwise([*sorted(starts), cells]):
            inside = np.flatnonzero(known[first:last])
            if len(inside) > 1 and seen(sums[last] - sums[first], len(inside), variance):
                ends = int(first + inside[0]), int(first + inside[-1]) + 1
                masses.append((sums[last] - sums[first], -ends[0], ends[1]))
        if not masses:
            break
        _, first, last = max(masses)
        starts.add(_middle(sums, -first, last))
    return tuple(sorted(starts))


def support(
    histogram: Sequence[int], deviation: float, *, marks: frozenset[int] = _NONE
) -> NDArray[np.bool_]:
    """Returns the fine cells (cells,) in which the noisy counts show rows.

    Those of windows come first (``_shown``); if there are none, the neighbours that stand out most, since a column's
    rows are somewhere, or all cells if their total is no more than its noise. Then cells beside those with rows
    follow, as long as some of them exceed ``NEAR`` deviations of their sum: tails are spread over many cells, and would
    be lost. ``marks`` that exceed ``MARKED`` deviations are known first, and nothing beside them is for that. The
    remaining cells cannot be told from the noise of many empty cells: they would put rows where there are no values,
    and far out between wide bounds.
    """
    counts, variance = np.array(histogram, np.int64), math.ceil(deviation * deviation)
    standing, body = _without_marks(counts, variance, marks)
    known = _shown(body, variance)
    if not known.any():
        some = seen(int(body.sum()), len(body), variance, times=1)
        known[_densest(body) if some else slice(None)] = True
    return _extended(known, body, variance) | standing


def _without_marks(
    counts: NDArray[np.int64], variance: int, marks: frozenset[int]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Returns the cells (cells,) of marks that stand out, and the counts without them.

    What lies beside a mark is as empty as all else, so that the mark's rows are no evidence of rows there.
    """
    listed = np.zeros(len(counts), np.bool_)
    listed[list(marks)] = True
    standing = listed & _exceed(counts, variance, times=MARKED)
    return standing, np.where(standing, 0, counts)


def _shown(counts: NDArray[np.int64], variance: int) -> NDArray[np.bool_]:
    """Returns the cells in windows that have rows, whatever lies beside them; none if noise hides all rows.

    Cells that exceed ``FOUND`` deviations by themselves have rows, which are no evidence of rows beside them. Then
    windows of all cells, of half of them, a quarter and so on are examined: while the unknown cells of a window exceed
    ``FOUND`` deviations of their sum, the neighbours among them that stand out most are marked as having rows.
    """
    known = _exceed(counts, variance, times=FOUND)
    width = 1 << (len(counts) - 1).bit_length()
    while width:
        # Windows overlap by half.
        for first in range(0, len(counts), max(1, width // 2)):
            while True:
                left = first + np.flatnonzero(~known[first : first + width])
                if not seen(int(counts[left].sum()), len(left), variance, times=FOUND):
                    break
                known[left[_densest(counts[left])]] = True
        width //= 2
    return known


def _extended(
    known: NDArray[np.bool_], counts: NDArray[np.int64], variance: int
) -> NDArray[np.bool_]:
    """Returns the ``known`` cells and those beside them that exceed ``NEAR`` deviations of their sum.

    Beside two cells of so many rows that a tail would be seen they have to exceed ``BEYOND``.
    """
    sure = known & _exceed(counts, variance, times=SURE)
    known = known.copy()
    for step in (1, -1):
        # Seen from its other end a lower tail is an upper one.
        cells, rows, full = known[::step], counts[::step], sure[::step]
        first = 0
        while (ends := np.flatnonzero(cells[first:-1] & ~cells[first + 1 :])).size:
            start = first + int(ends[0]) + 1
            gap = int(np.argmax(np.append(cells[start:], True)))
            best = int(_scores(np.cumsum(rows[start : start + gap])).argmax()) + 1
            steep = start > 1 and full[start - 2 : start].all()
            times = BEYOND if steep else NEAR
            if seen(int(rows[start : start + best].sum()), best, variance, times=times):
                cells[start : start + best] = True
            first = start + best - 1 if cells[start] else start
    return known


def _scores(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns how far sums over the first cells, the first two and so on exceed their noise, squared."""
    mass = np.maximum(sums, 0).astype(np.float64)
    return mass * mass / np.arange(1, len(sums) + 1)


def _densest(counts: NDArray[np.int64]) -> slice:
    """Returns the neighbours whose sum most exceeds the noise of as many cells: the largest sum^2 / cells."""
    sums = np.concatenate([[0], np.cumsum(counts)])
    first, last = np.triu_indices(len(sums), 1)
    mass = np.maximum(sums[last] - sums[first], 0).astype(np.float64)
    best = int((mass * mass / (last - first)).argmax())
    return slice(int(first[best]), int(last[best]))


@lru_cache(512)
def _groups_of(private: PrivateBins, marks: frozenset[int]) -> tuple[int, ...]:
    return group(private.histogram, private.coarse, private.deviation, marks=marks)


@lru_cache(512)
def _ends_of(private: PrivateBins, marks: frozenset[int]) -> NDArray[np.int64]:
    """Returns the cumulative sums (cells,) of the fine cells' weights."""
    groups = _groups_of(private, marks)
    return np.cumsum(fine_weights(private.histogram, groups, private.deviation, marks=marks))


def fine_weights(
    histogram: Sequence[int],
    groups: Sequence[int],
    deviation: float,
    *,
    marks: frozenset[int] = _NONE,
) -> NDArray[np.int64]:
    """Returns the weight of each fine cell within its group: int64 (cells,), some positive in each group.

    The weights are the nonnegative counts nearest to the noisy ones, with the same sum over the group's cells of the
    ``support``; if that sum cannot be told from zero, all of these cells have equal weights. In a group without such a
    cell, the cell nearest to the support has all the weight: rows that noise puts there stay near to real values.
    """
    counts, known = np.array(histogram, np.int64), support(histogram, deviation, marks=marks)
    weights = np.ones(len(counts), np.int64)
    variance = math.ceil(deviation * deviation)
    for first, last in pairwise([*groups, len(counts)]):
        inside = known[first:last]
        found = weights[first:last]
        if not inside.any():
            found[:] = 0
            found[0 if known[:first].any() else -1] = 1
            continue
        part = counts[first:last][inside]
        found[~inside] = 0
        if seen(int(part.sum()), len(part), variance):
            found[inside] = _nonnegative(part)
    return weights


def seen(mass: int, cells: int, variance: int, *, times: int = SEEN) -> bool:
    """Returns whether the sum ``mass`` over ``cells`` noisy cells exceeds ``times`` the deviation of their noise."""
    return mass > 0 and mass * mass > times * times * cells * variance


def _exceed(counts: NDArray[np.int64], variance: int, *, times: int) -> NDArray[np.bool_]:
    """Returns the cells (cells,) that exceed so many deviations of their own noise."""
    return (counts > 0) & (counts * counts > times * times * variance)


def _spikes(
    histogram: Sequence[int], coarse: int, variance: int, *, marks: frozenset[int]
) -> list[int]:
    """Returns the fine cells that stand out from their neighbours, the largest first.

    Beside ``marks`` neighbours count that have rows for sure.
    """
    least = -(-sum(histogram) // (SPIKE_SHARE * coarse))
    padded, found = [0, *histogram, 0], []
    for cell, count in enumerate(histogram):
        beside = [padded[cell], padded[cell + 2]]
        if cell in marks:
            beside = [near for near in beside if seen(near, 1, variance, times=FOUND)]
        times = MARKED if cell in marks else FOUND
        if count >= least and seen(count, 1, variance, times=times):
            found += [(-count, cell)] if count > 2 * max(beside, default=0) else []
    # A spike has two ends, and the space between two spikes is a cell, too.
    return [cell for _, cell in sorted(found)[: (coarse - 2) // 2]]


def _middle(sums: Sequence[int], first: int, last: int) -> int:
    """Returns the cut of first .. last whose halves differ least; of several the one nearest to the middle."""
    both = sums[first] + sums[last]
    return min(
        range(first + 1, last),
        key=lambda cut: (abs(2 * sums[cut] - both), abs(2 * cut - first - last), cut),
    )


def _nonnegative(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the nearest nonnegative counts with the same (positive) sum, up to rounding."""
    ordered = np.sort(counts)[::-1]
    over = np.cumsum(ordered) - counts.sum()
    # The largest number of cells that stay positive when the excess is taken from them evenly.
    used = np.flatnonzero(ordered * np.arange(1, len(counts) + 1) > over)[-1] + 1
    taken = int(over[used - 1]) // int(used)
    return np.maximum(counts - taken, 0)


def place_of(groups: Sequence[int], cells: int) -> NDArray[np.int32]:
    """Returns the group of each fine cell: int32 (cells,)."""
    return np.array([bisect_right(groups, cell) - 1 for cell in range(cells)], np.int32)
