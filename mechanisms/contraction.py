"""Marginals of a product of tables, without a table of whole cliques.

``Contraction`` sums a product of tables over all columns, two tables at a time, along a junction tree: a bag's tables
become one message to its parent. The derivative of that sum by a table, times the table, is the marginal of the product
on the table's columns. So one pass up and one down (reverse differentiation) give the marginals of all tables, at about
one multiplication a cell of the tree's cliques, and the cliques' own tables are never made.

All values here are public, as post-processing of released measurements.

Source: Shafer, Shenoy 1990, for the messages; Darwiche, Journal of the ACM 2003, for marginals as derivatives. Each
message is divided by its largest entry, which changes no ratio.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Table: TypeAlias = NDArray[np.float64]
Columns: TypeAlias = tuple[str, ...]

SMALLEST = 1e-200
"""Largest entry of a table above which its products are trusted: the lost part is below 1e-100 of it."""
LONG = 128
"""Cells of the kept common columns from which loops over them are faster than a matrix product for each."""


_NOTHING: Table = np.empty(0)


class Underflow(ArithmeticError):
    """Tables disagree by more than a double holds, or one of them is not a number."""


@dataclass(frozen=True, slots=True)
class _Group:
    """An operand as three groups of columns: their order, the position of each, its shape, and that of the groups."""

    columns: Columns
    order: tuple[int, ...]
    back: tuple[int, ...]
    shape: tuple[int, ...]
    grouped: tuple[int, ...]

    @classmethod
    def of(cls, columns: Columns, groups: Sequence[Columns], sizes: Mapping[str, int]) -> _Group:
        """Returns ``columns`` in the order of ``groups``."""
        ordered = tuple(column for group in groups for column in group)
        order = tuple(map(columns.index, ordered))
        return cls(
            ordered,
            order,
            tuple(map(ordered.index, columns)),
            tuple(sizes[column] for column in ordered),
            tuple(_cells(group, sizes) for group in groups),
        )

    def grouped_of(self, table: Table) -> Table:
        """Returns a table of the columns as one of the groups."""
        return table.transpose(self.order).reshape(self.grouped)

    def ungrouped(self, table: Table) -> Table:
        """Returns a table of the groups as one of the columns, in their own order."""
        return table.reshape(self.shape).transpose(self.back)


@dataclass(frozen=True, slots=True)
class _Product:
    """The product of two tables, summed over common columns that no other table has.

    Groups of columns: common ones that are summed (k) or kept (t), and those of one table alone (a, b).
    """

    left: int
    right: int
    of_left: _Group
    of_right: _Group
    found: _Group
    long: bool

    @classmethod
    def of(
        cls,
        positions: tuple[int, int],
        columns: tuple[Columns, Columns],
        *,
        needed: Collection[str],
        sizes: Mapping[str, int],
    ) -> _Product:
        """Returns the product of the tables at two ``positions``; ``needed`` are the columns of all others."""
        left, right = columns
        k = tuple(column for column in left if column in right and column not in needed)
        t = tuple(column for column in left if column in right and column in needed)
        a = tuple(column for column in left if column not in right)
        b = tuple(column for column in right if column not in left)
        long = _cells(t, sizes) >= LONG
        groups = ((k, a, t), (k, b, t), (a, b, t)) if long else ((t, a, k), (t, k, b), (t, a, b))
        made = tuple(column for group in groups[2] for column in group)
        return cls(
            *positions,
            _Group.of(left, groups[0], sizes),
            _Group.of(right, groups[1], sizes),
            _Group.of(made, groups[2], sizes),
            long,
        )

    def up(self, left: Table, right: Table) -> Table:
        """Returns the product of two tables, of the columns ``found``."""
        x, y = self.of_left.grouped_of(left), self.of_right.grouped_of(right)
        found = np.einsum("kat,kbt->abt", x, y) if self.long else x @ y
        return found.reshape(self.found.shape)

    def down(self, left: Table, right: Table, above: Table) -> tuple[Table, Table]:
        """Returns the derivatives by both tables, from that by their product."""
        x, y = self.of_left.grouped_of(left), self.of_right.grouped_of(right)
        z = above.reshape(self.found.grouped)
        if self.long:
            by_x, by_y = np.einsum("abt,kbt->kat", z, y), np.einsum("kat,abt->kbt", x, z)
        else:
            by_x, by_y = z @ y.transpose(0, 2, 1), x.transpose(0, 2, 1) @ z
        return self.of_left.ungrouped(by_x), self.of_right.ungrouped(by_y)


@dataclass(frozen=True, slots=True)
class _Sum:
    """The sum of a ``table`` over ``axes`` that no other table has."""

    table: int
    axes: tuple[int, ...]


class Contraction:
    """The order in which tables are multiplied and summed.

    A table has an entry for each cell of its ``columns``; ``homes`` are the positions of cliques that contain them, of
    a junction forest of ``cliques`` with ``parents``, before their children, or -1. ``sizes`` are the numbers of cells
    of single columns.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        columns: Sequence[Columns],
        homes: Sequence[int],
        *,
        cliques: Sequence[Columns],
        parents: Sequence[int],
    ) -> None:
        self._sizes = sizes
        self._columns = list(columns)
        self._tables = len(columns)
        self._steps: list[_Product | _Sum] = []
        self._messages: set[int] = set()
        held: list[list[int]] = [[] for _ in cliques]
        for at, home in enumerate(homes):
            held[home].append(at)
        for child, parent in reversed(list(enumerate(parents))):
            if held[child]:
                shared = set(cliques[child]).intersection(() if parent < 0 else cliques[parent])
                found = self._contract(held[child], shared)
                if parent >= 0:
                    held[parent].append(found)
                    self._messages.add(found)

    @property
    def products(self) -> int:
        """Number of multiplications on the way up; the way down has twice as many."""
        return sum(
            _cells(step.found.columns, self._sizes) * step.of_left.grouped[0 if step.long else 2]
            for step in self._steps
            if isinstance(step, _Product)
        )

    def marginals(self, tables: Sequence[Table]) -> list[Table]:
        """Returns the marginals of the product on each table's columns, with the sum 1.

        Shapes: each table as its columns. Raises ``Underflow``.
        """
        values = self._up(tables)
        slopes = self._down(values)
        return [_normalised(table * slope) for table, slope in zip(tables, slopes, strict=True)]

    def _up(self, tables: Sequence[Table]) -> list[Table]:
        """Returns the tables and the result of each step; messages with the largest entry 1."""
        values = list(tables)
        for step in self._steps:
            found = (
                step.up(values[step.left], values[step.right])
                if isinstance(step, _Product)
                else np.asarray(values[step.table].sum(axis=step.axes))
            )
            values.append(_scaled(found) if len(values) in self._messages else found)
        return values

    def _down(self, values: Sequence[Table]) -> list[Table]:
        """Returns the derivatives by each table, up to a factor."""
        slopes: list[Table] = [np.ones(()) for _ in values]
        for at in range(len(values) - 1, self._tables - 1, -1):
            step, slope = self._steps[at - self._tables], slopes[at]
            if at in self._messages:
                slope = _scaled(slope)
            if isinstance(step, _Product):
                left, right = step.left, step.right
                slopes[left], slopes[right] = step.down(values[left], values[right], slope)
            else:
                whole = np.expand_dims(slope, step.axes)
                slopes[step.table] = np.broadcast_to(whole, values[step.table].shape)
            slopes[at] = _NOTHING
        return slopes[: self._tables]

    def _contract(self, held: Sequence[int], kept: Collection[str]) -> int:
        """Adds the steps that leave one table of some, of ``kept`` columns at most, and returns its position."""
        # The number of tables that have a column, and one more where the parent has it.
        users = Counter(kept)
        for at in held:
            users.update(self._columns[at])
        left: dict[frozenset[str], int] = {}
        for at in held:
            self._keep(left, self._without_own(at, users), users)
        while len(left) > 1:
            # Small tables first, so that a large one is multiplied once; and what takes columns away.
            a, b = min(combinations(left, 2), key=lambda pair: self._cost(pair[0], pair[1], users))
            self._keep(left, self._multiply(left.pop(a), left.pop(b), users), users)
        (last,) = left.values()
        return last

    def _keep(self, left: dict[frozenset[str], int], at: int, users: Counter[str]) -> None:
        """Adds a table to those that are left, by their columns; tables of the same columns are multiplied at once."""
        while (columns := frozenset(self._columns[at])) in left:
            at = self._multiply(left.pop(columns), at, users)
        left[columns] = at

    def _multiply(self, a: int, b: int, users: Counter[str]) -> int:
        """Adds the product of two tables, summed over the columns that nobody else has; returns its position."""
        columns = self._columns[a], self._columns[b]
        common = set(columns[0]).intersection(columns[1])
        needed = {c for c in (*columns[0], *columns[1]) if c not in common or users[c] > 2}
        users.subtract(common)
        step = _Product.of((a, b), columns, needed=needed, sizes=self._sizes)
        return self._add(step, step.found.columns)

    def _cost(self, a: frozenset[str], b: frozenset[str], users: Counter[str]) -> int:
        """Returns the multiplications of a product, and the cells that it adds to those of its two tables."""
        summed = {column for column in a & b if users[column] == 2}
        cells = [_cells(columns, self._sizes) for columns in (a | b, (a | b) - summed, a, b)]
        return cells[0] + cells[1] - cells[2] - cells[3]

    def _without_own(self, at: int, users: Counter[str]) -> int:
        """Sums a table over the columns that nobody else has, if there are any; returns the result's position."""
        columns = self._columns[at]
        axes = tuple(axis for axis, column in enumerate(columns) if users[column] == 1)
        if not axes:
            return at
        return self._add(_Sum(at, axes), tuple(c for c in columns if users[c] > 1))

    def _add(self, step: _Product | _Sum, columns: Columns) -> int:
        self._steps.append(step)
        self._columns.append(columns)
        return len(self._columns) - 1


def one_thread_a_product() -> AbstractContextManager[object]:
    """Returns a context in which BLAS multiplies with one thread, in this process, where threadpoolctl is installed.

    Products here are small, and a host may have three servers: BLAS' own threads would wait for one another.
    """
    blas = _blas()
    return nullcontext() if blas is None else blas.limit(limits=1, user_api="blas")


@cache
def _blas() -> ThreadpoolController | None:
    # Servers have it, and a data owner's installation does not.
    if find_spec("threadpoolctl") is None:
        return None
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _cells(columns: Iterable[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[column] for column in columns)


def _scaled(table: Table) -> Table:
    largest = float(table.max())
    # Written so that NaN is refused, too.
    if not SMALLEST < largest < math.inf:
        raise Underflow
    return table / largest


def _normalised(table: Table) -> Table:
    total = float(table.sum())
    if not SMALLEST < total < math.inf:
        raise Underflow
    return np.asarray(table / total)
