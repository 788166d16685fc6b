"""Bounds on a column's values, in the units of its reader, from its cells and their noisy counts.

``ValueCells`` has the cells of a column as intervals of numbers. ``column_bounds`` bounds quantiles, mean and
distances; ``prefix_error`` bounds sums of fine cells; ``kolmogorov`` and ``wasserstein`` compare tables at hand.

A value may lie anywhere in its cell, so every bound assumes the worst place: a wide cell makes wide bounds.
README.md, Intervals of values, has the proofs. The bounds are public, as post-processing of released values. A real
table's values are secret and used in trials only. Limits: numbers beyond 2^53 are compared as doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import ColumnValues
from mechanisms.columns import Ordered, fine_cells
from mechanisms.numbers import Real
from mechanisms.written import first_multiple

QUANTILES = (0.1, 0.5, 0.9)
# Rounding error of sums of shares as doubles.
_ROUNDING = 1e-9

Numbers = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ValueCells:
    """Cells of a column: the intervals ``ranges`` by code, both ends included; ``atoms`` (cells,) marks listed atoms.

    A bin of a single value is as narrow as an atom but not marked.
    """

    ranges: tuple[tuple[float, float], ...]
    atoms: tuple[bool, ...]

    @property
    def low(self) -> NDArray[np.float64]:
        """Least number of each cell, (cells,)."""
        return np.array([low for low, _ in self.ranges], np.float64)

    @property
    def high(self) -> NDArray[np.float64]:
        """Largest number of each cell, (cells,)."""
        return np.array([high for _, high in self.ranges], np.float64)

    @property
    def wide(self) -> NDArray[np.bool_]:
        """Cells with more than one value, (cells,)."""
        return np.array([low < high for low, high in self.ranges], np.bool_)

    @property
    def span(self) -> float:
        """Distance between the largest and the least number."""
        return float(self.high.max() - self.low.min())

    @property
    def widest(self) -> tuple[int, float] | None:
        """Widest cell and its part of the range of all bins; None if no cell is wide.

        Atoms are not part of that range: a mark for "unknown" far from all values would make every bin look narrow.
        """
        if not self.wide.any():
            return None
        binned = ~np.array(self.atoms, np.bool_)
        width = np.where(self.wide, self.high - self.low, -1.0)
        cell = int(width.argmax())
        return cell, float(width[cell] / (self.high[binned].max() - self.low[binned].min()))


def value_cells(column: Ordered, *, fine: bool = False) -> ValueCells:
    """Returns the cells of a column, or with ``fine`` those that private bins were measured in.

    Moments are whole units.
    """
    cells = fine_cells(column) if fine else column.cells
    listed = set(cells.atoms.values())
    atoms = tuple(code in listed for code in range(len(cells.ranges)))
    if not isinstance(column, Real):
        return ValueCells(cells.ranges, atoms)
    if column.decimals is not None:
        ends = tuple((column.value_of(low), column.value_of(high)) for low, high in cells.ranges)
        return ValueCells(ends, atoms)
    # Without decimals a bin contains all doubles up to its upper edge, and an atom one double.
    edges = column.bin_edges
    ranges: dict[int, tuple[float, float]] = {
        code: (edges[i], edges[i + 1]) for i, code in enumerate(cells.bins)
    }
    for atom in column.atoms:
        ranges[cells.atoms[first_multiple(atom, column.places)]] = (atom, atom)
    return ValueCells(tuple(ranges[code] for code in range(len(cells.ranges))), atoms)


def cell_counts(cells: ValueCells, values: ColumnValues) -> NDArray[np.int64]:
    """Returns the number of rows in each of ``cells`` (cells,), which lie side by side."""
    if values.numbers is None:
        raise ValueError(f"column {values.column!r} has no numbers")
    places = np.searchsorted(cells.low, values.numbers, side="right") - 1
    return np.bincount(places, values.counts, minlength=len(cells.ranges)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds that hold for the rows of a real column that have a value.

    ``off``: an upper bound on the Kolmogorov distance of the synthetic column. ``lost``: the part of ``off`` that is
    due to cells, the share of the synthetic rows in ``heaviest``, the heaviest cell of more than one value (None
    without).
    ``moved``: an upper bound on the Wasserstein distance. ``quantiles`` and ``mean`` are intervals.
    """

    off: float
    lost: float
    heaviest: int | None
    moved: float
    quantiles: tuple[tuple[float, float], ...]
    mean: tuple[float, float]


def column_bounds(
    cells: ValueCells, shares: NDArray[np.float64], off: float, at: Sequence[float] = QUANTILES
) -> ColumnBounds:
    """Returns bounds for a real column, from the synthetic column's ``shares`` (cells,) of its rows with a value.

    ``off`` bounds the difference in the share of the rows in any set of cells that is needed here: all cells up to some
    place, and atoms. Raises ``ValueError`` for shares that do not sum to 1.
    """
    if not abs(float(shares.sum()) - 1) < _ROUNDING:
        raise ValueError("the shares of a column's cells sum to 1")
    off = min(1.0, off)
    wide = cells.wide
    heaviest = int(np.where(wide, shares, -1.0).argmax()) if wide.any() else None
    lost = 0.0 if heaviest is None else float(shares[heaviest])
    inside = float((shares * (cells.high - cells.low)).sum())
    return ColumnBounds(
        min(1.0, off + lost),
        lost,
        heaviest,
        min(cells.span, off * cells.span + inside),
        tuple(_quantile(cells, shares, off, share) for share in at),
        _mean(cells, shares, off),
    )


def _quantile(
    cells: ValueCells, shares: NDArray[np.float64], off: float, share: float
) -> tuple[float, float]:
    """Returns the interval of a quantile: the least number that ``share`` of the rows do not exceed.

    At the lower end all values lie at the lower ends of their cells and ``off`` more rows are below; at the upper end
    all values lie at the upper ends and ``off`` fewer rows are below.
    """
    by_low, by_high = (np.argsort(ends, kind="stable") for ends in (cells.low, cells.high))
    below = np.cumsum(shares[by_low]) + off
    low = int(np.searchsorted(below, share - _ROUNDING))
    above = np.cumsum(shares[by_high]) - off
    high = int(np.searchsorted(above, share + _ROUNDING))
    last = len(cells.ranges) - 1
    return cells.ranges[by_low[min(low, last)]][0], cells.ranges[by_high[min(high, last)]][1]


def _mean(cells: ValueCells, shares: NDArray[np.float64], off: float) -> tuple[float, float]:
    """Returns the interval of the mean: ``off`` of the rows at one end may lie at the other end of the range."""
    low, high = cells.low, cells.high
    return (
        float((shares * low).sum()) - _moved(low.max() - low, low.max() - low.min(), shares, off),
        float((shares * high).sum())
        + _moved(high - high.min(), high.max() - high.min(), shares, off),
    )


def _moved(
    gone: NDArray[np.float64], whole: float, shares: NDArray[np.float64], off: float
) -> float:
    """Returns the change of a mean if ``off`` of the rows move to one end of the range, the farthest rows first.

    ``gone`` (cells,) is the distance of each cell from the other end; ``whole`` is the range.
    """
    order = np.argsort(gone, kind="stable")
    before = np.cumsum(shares[order]) - shares[order]
    taken = np.clip(off - before, 0.0, shares[order])
    return float((taken * (whole - gone[order])).sum())


def prefix_error(
    shares: NDArray[np.float64],
    counts: NDArray[np.float64],
    *,
    noise: float,
    rows: tuple[float, float],
) -> float:
    """Returns the largest difference to the real share of the rows in the first k cells, over all k at once.

    ``shares`` (cells,) are those of all synthetic rows, ``counts`` (cells,) noisy counts of a table with between
    ``rows`` rows, of which no sum of the first k is off by more than ``noise``.
    """
    # |made - real / n| + noise / n is convex in 1 / n, so that one end of ``rows`` is the worst.
    made, real = np.cumsum(shares), np.cumsum(counts)
    return max(float(np.abs(made - real / n).max()) + noise / n for n in rows)


def kolmogorov(one: ColumnValues, other: ColumnValues) -> float:
    """Returns the largest difference of two columns' distribution functions, over rows with a number; 0 to 1.

    The result is 1 if only one column has numbers. Raises ``ValueError`` for a column without numbers.
    """
    if not len(one.counts) or not len(other.counts):
        return float(len(one.counts) != len(other.counts))
    _, (first, second) = _functions(one, other)
    return float(np.abs(first - second).max())


def wasserstein(one: ColumnValues, other: ColumnValues) -> float:
    """Returns the average distance that a row's number has to move to turn one column into the other.

    Raises ``ValueError`` for a column without numbers, or without rows that have one.
    """
    points, (first, second) = _functions(one, other)
    return float((np.abs(first - second)[:-1] * np.diff(points.astype(np.float64))).sum())


def _functions(
    one: ColumnValues, other: ColumnValues
) -> tuple[Numbers, tuple[NDArray[np.float64], ...]]:
    """Returns all numbers of either column, and both distribution functions at them."""
    if one.numbers is None or other.numbers is None:
        raise ValueError("columns of texts have no distribution function")
    points: Numbers = np.union1d(one.numbers, other.numbers)
    return points, tuple(
        np.append(0, np.cumsum(of.counts))[np.searchsorted(of.numbers, points, side="right")]
        / of.counts.sum()
        for of in (one, other)
        if of.numbers is not None
    )
