"""Pairs of columns of tables at hand, in the reader's values: the distance of two tables, and of a shuffled one.

``ValuePairs`` holds a real table's pairs for comparison. The real table is secret, and a ``ValuePairs`` holds its
cells; the results are not private, they are for trials and measurements.

A number falls between the deciles of the real column, any other value into its twenty commonest values or one cell for
the others; missing values have a cell of their own. So the distance does not depend on the cells of a run: a run with
four cells would otherwise find itself good.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import has_number, number_of
from mechanisms.columns import Categorical, Column
from mechanisms.domain import Domain
from mechanisms.sampling import public_generator
from mechanisms.text_table import TextTable

COMMON = 20
"""Number of values with a cell of their own, in a column that is no number."""
MAX_ROWS = 100_000
"""Most rows of a table that are compared."""
_QUANTILES = np.linspace(0, 1, 11)[1:-1]


class _Cells(Protocol):
    """The cells of one column."""

    @property
    def size(self) -> int:
        """Number of cells."""

    def of(self, values: Sequence[str]) -> NDArray[np.int64]:
        """Returns the cell of each value."""


def decile_ends(known: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the deciles of a column's finite numbers, each once; none without numbers."""
    return np.unique(np.quantile(known, _QUANTILES)) if known.size else np.zeros(0)


def decile_cells(ends: NDArray[np.float64], numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns the cell of each number, 0 to len(ends); numbers that are not finite have the next one."""
    places = np.searchsorted(ends, numbers, side="right")
    return np.where(np.isfinite(numbers), places, len(ends) + 1).astype(np.int64)


def commonest(values: Iterable[str]) -> dict[str, int]:
    """Returns the cells of the commonest values; all others have the cell ``COMMON``."""
    return {value: i for i, (value, _) in enumerate(Counter(values).most_common(COMMON))}


@dataclass(frozen=True, slots=True, eq=False)
class ValuePairs:
    """The pairs of a real table's columns; ``codes`` are its rows' cells (rows, columns)."""

    codes: NDArray[np.int64] = field(repr=False)
    _cells: tuple[tuple[str, _Cells], ...] = field(repr=False)

    @classmethod
    def of(cls, domain: Domain, table: TextTable) -> ValuePairs:
        """Builds the pairs of the columns that the domain models, from up to MAX_ROWS rows."""
        rows = _kept(len(table))
        kept = {c.name: [table.columns[c.name][i] for i in rows] for c in domain.columns}
        cells = tuple((c.name, _cells_of(domain, c, kept[c.name])) for c in domain.columns)
        return cls(_codes(cells, kept), cells)

    def distance(self, table: TextTable) -> float:
        """Returns the mean total variation of another table's pairs from these; see ``mean_pair_distance``."""
        return mean_pair_distance(self.codes, self._of(table), self._sizes)

    def shuffled_distance(self, table: TextTable) -> float:
        """Returns the same distance for that table with each column shuffled."""
        return mean_pair_distance(self.codes, shuffled(self._of(table)), self._sizes)

    def best_shuffled(self) -> float:
        """Returns the same distance for the real table with each column shuffled: that of columns without noise."""
        return mean_pair_distance(self.codes, shuffled(self.codes), self._sizes)

    @property
    def _sizes(self) -> list[int]:
        return [cells.size for _, cells in self._cells]

    def _of(self, table: TextTable) -> NDArray[np.int64]:
        rows = _kept(len(table))
        kept = {name: [table.columns[name][i] for i in rows] for name, _ in self._cells}
        return _codes(self._cells, kept)


@dataclass(frozen=True, slots=True, eq=False)
class _Common:
    """Cells of a column of texts."""

    by_value: Mapping[str, int]

    @property
    def size(self) -> int:
        return COMMON + 1

    def of(self, values: Sequence[str]) -> NDArray[np.int64]:
        return np.array([self.by_value.get(value, COMMON) for value in values], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Deciles:
    """Cells of a column of numbers or moments."""

    domain: Domain
    column: Column
    ends: NDArray[np.float64]

    @property
    def size(self) -> int:
        return len(self.ends) + 2

    def of(self, values: Sequence[str]) -> NDArray[np.int64]:
        return decile_cells(self.ends, _numbers(self.domain, self.column, values))


def _cells_of(domain: Domain, column: Column, values: Sequence[str]) -> _Cells:
    if isinstance(column, Categorical):
        return _Common(commonest(values))
    numbers = _numbers(domain, column, values)
    return _Deciles(domain, column, decile_ends(numbers[np.isfinite(numbers)]))


def _numbers(domain: Domain, column: Column, values: Sequence[str]) -> NDArray[np.float64]:
    """Returns the numbers of values, NaN for a missing one; each distinct value is read once."""
    known: dict[str, float] = {}
    for value in values:
        if value not in known and not isinstance(column, Categorical):
            known[value] = number_of(column, value) if has_number(domain, column, value) else np.nan
    return np.array([known[value] for value in values], np.float64)


def _codes(
    cells: Sequence[tuple[str, _Cells]], table: Mapping[str, Sequence[str]]
) -> NDArray[np.int64]:
    return np.stack([of.of(table[name]) for name, of in cells], axis=1)


def _kept(rows: int) -> list[int]:
    """Returns the rows that are compared: all, or MAX_ROWS of them."""
    if rows <= MAX_ROWS:
        return list(range(rows))
    chosen: list[int] = np.sort(
        public_generator(rows).choice(rows, MAX_ROWS, replace=False)
    ).tolist()
    return chosen


def mean_pair_distance(
    one: NDArray[np.int64], other: NDArray[np.int64], sizes: Sequence[int]
) -> float:
    """Returns the mean total variation, 0 to 1, of two tables over all pairs of their columns.

    ``one`` and ``other`` (rows, columns) are cells below ``sizes``. Raises ``ValueError`` if a table has no rows, or
    fewer than two columns.
    """
    if not (len(one) and len(other)) or len(sizes) < 2:
        raise ValueError("tables with rows and two columns have pairs")
    return float(np.mean(list(_distances(one, other, sizes))))


def _distances(
    one: NDArray[np.int64], other: NDArray[np.int64], sizes: Sequence[int]
) -> Iterator[float]:
    for i, j in itertools.combinations(range(len(sizes)), 2):
        shares = [
            np.bincount(of[:, i] * sizes[j] + of[:, j], minlength=sizes[i] * sizes[j]) / len(of)
            for of in (one, other)
        ]
        yield float(np.abs(shares[0] - shares[1]).sum()) / 2


def shuffled(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns a table (rows, columns) with each column shuffled by itself, which removes all dependence."""
    return np.stack(
        [of[public_generator(i).permutation(len(of))] for i, of in enumerate(codes.T)], axis=1
    )
