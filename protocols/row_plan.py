"""Plan of counting rows: the one-hots and their factors, the two one-hots of each query's cells, the block size.

Everything here is public, and follows from the columns' sizes and the queries alone, the same at all three servers.
`row_factors` chooses the factors; here their one-hots become a graph of nodes: the row's presence, each bit of its
code, and products of two nodes, level by level. Source: own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from protocols.blocks import PROVED_AT_ONCE
from protocols.row_factors import CELLS_PER_ENTRY, Digit, Factor, Split, choose_splits, entries
from protocols.row_layout import RowLayout

SEGMENT_ROWS = 511 * 64
"""Number of rows counted at once: twice that is below 2^16, the ring of factors."""
_BLOCK_ENTRIES = 1 << 23
_MAX_BLOCK_ROWS = 2048
LIFT_CELLS = 1 << 17
"""Number of counts lifted at once."""
_TABLE_ENTRIES = 16
"""Entries of a table of products from which on it is cheaper to prove the table than each product."""
MAX_CELLS = (1 << 31) - 1
"""Largest number of cells of all queries that are counted together."""
_ALL_WAYS = 6
_PRESENCE = 0
# On a core of 2026 by NumPy (`bench engine --task count_rows`): products added up in a second, and the number of them
# that take as long as lifting a cell.
_SUMMED_PER_SECOND = 2.3e10
_SUMMED_PER_LIFT = 3300
# Seconds of such a core for proving a secure product, and a count's lift.
_PROVED_ENTRY_S, _PROVED_LIFT_S = 5e-8, 1.6e-6


@dataclass(frozen=True, slots=True)
class Leaf:
    """One-hot of one bit of a column's code."""

    column: int
    bit: int


@dataclass(frozen=True, slots=True)
class Product:
    """One-hot of two one-hots, nodes ``high`` and ``low``: entry i of the first and j of the second is i |low| + j.

    ``size`` may leave out some of the last row. Entries of row and column 0 are sums, the others are secure products,
    in round ``level``. ``inner``: an operand of other nodes.
    """

    high: int
    low: int
    size: int
    level: int
    inner: bool


@dataclass(frozen=True, slots=True)
class Cells:
    """A query's cells as sums over rows of all products of an entry of node ``left`` and one of node ``right``.

    ``digits`` are the sizes of the left's and then the right's digits, ``order`` the axes in the query's order with a
    column's high digit first, ``columns`` the columns' sizes and ``padded`` those of their digits' products.
    """

    left: int
    right: int
    digits: tuple[int, ...]
    order: tuple[int, ...]
    padded: tuple[int, ...]
    columns: tuple[int, ...]

    def arranged(self, sums: NDArray[np.generic]) -> NDArray[np.generic]:
        """Returns the cells (cells,) in C order of all products' sums (|left|, |right|), less those of no category."""
        # Axes of digits, left's then right's, are put into the query's order; then a column's digits become one axis.
        turned = sums.reshape(self.digits).transpose(self.order).reshape(self.padded)
        return turned[tuple(slice(size) for size in self.columns)].reshape(-1)


@dataclass(frozen=True, slots=True)
class CountPlan:
    """The one-hots to make, and the counts to make with them.

    Nodes are numbered: 0 is the presence, then come ``leaves``, then ``products``, operands before their products.
    ``queries`` are the columns that are counted together, ``counts`` the way of counting them, in the same order; the
    counts of all are a vector of ``cells``.
    """

    layout: RowLayout
    queries: tuple[tuple[int, ...], ...]
    leaves: tuple[Leaf, ...]
    products: tuple[Product, ...]
    counts: tuple[Cells, ...]
    cells: int
    factors: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        used = sorted({node for count in self.counts for node in (count.left, count.right)})
        object.__setattr__(self, "factors", tuple(used))

    def size(self, node: int) -> int:
        """Returns the number of entries of a node."""
        if node == _PRESENCE:
            return 1
        return 2 if node <= len(self.leaves) else self.product(node).size

    def entries(self, product: Product) -> int:
        """Returns the number of entries of a node that are secure products: an element each is sent a row."""
        # |high| |low| entries less row and column 0, which are sums: all rows but the first have all columns but the
        # first. Entries that the last row lacks are secure products: size - |high| - |low| + 1.
        return product.size - self.size(product.high) - self.size(product.low) + 1

    @property
    def partial_columns(self) -> tuple[int, ...]:
        """Columns of some query with codes that name no category; bits of other columns are not used."""
        used = sorted({leaf.column for leaf in self.leaves})
        return tuple(c for c in used if self.layout.sizes[c] < 1 << self.layout.widths[c])

    def product(self, node: int) -> Product:
        """Returns the product of that number."""
        return self.products[node - 1 - len(self.leaves)]

    @property
    def levels(self) -> int:
        """Number of rounds of products."""
        return max((product.level for product in self.products), default=0)

    def level(self, number: int) -> list[tuple[int, Product]]:
        """Returns the nodes of a level, with their numbers."""
        first = 1 + len(self.leaves)
        return [
            (first + place, product)
            for place, product in enumerate(self.products)
            if product.level == number
        ]

    def level_entries(self, number: int) -> int:
        """Returns the number of secure products of a level for each row."""
        return sum(self.entries(product) for _, product in self.level(number))

    def tabled(self, number: int) -> bool:
        """Returns True if a level's products are proved as tables; products of small tables are proved one by one."""
        return self.level_entries(number) >= _TABLE_ENTRIES * len(self.level(number))

    def grids(self, product: Product) -> list[tuple[range, range]]:
        """Returns a node's secure products as grids of rows and columns, none the first: whole rows, then a part."""
        low = self.size(product.low)
        rows, columns = divmod(product.size, low)
        grids = [(range(1, rows), range(1, low))] if rows > 1 and low > 1 else []
        return [*grids, (range(rows, rows + 1), range(1, columns))] if columns > 1 else grids

    @property
    def row_entries(self) -> int:
        """Number of secure products for each row."""
        return sum(self.entries(product) for product in self.products)

    @property
    def row_cells(self) -> int:
        """Number of products that are summed up for each row, codes of no category included."""
        return sum(self.size(count.left) * self.size(count.right) for count in self.counts)

    @property
    def block_rows(self) -> int:
        """Number of rows of a block: whole words, so many that a block's factors stay within some 50 MB."""
        held = sum(product.size for product in self.products) + 1
        return 64 * max(1, min(_MAX_BLOCK_ROWS, _BLOCK_ENTRIES // held) // 64)

    def seconds(self, rows: int, cores: int) -> float:
        """Estimates a server's time for so many rows, in seconds, on a fast network: sums on all cores, rest on one."""
        summed = rows * self.row_cells / cores
        lifted = _SUMMED_PER_LIFT * self.cells * len(list(self.segments(rows)))
        return (summed + rows * CELLS_PER_ENTRY * self.row_entries + lifted) / _SUMMED_PER_SECOND

    def proof_seconds(self, rows: int) -> float:
        """Estimates the time of a server's core for the proofs of so many rows, in seconds, with a verifier."""
        lifted = _PROVED_LIFT_S * self.cells * len(list(self.segments(rows)))
        return rows * self.row_entries * _PROVED_ENTRY_S + lifted

    def segments(self, rows: int) -> Iterator[range]:
        """Yields the rows in the parts that are counted one after the other."""
        return _parts(range(rows), SEGMENT_ROWS)

    def blocks(self, segment: range) -> Iterator[range]:
        """Yields a segment's rows in blocks."""
        return _parts(segment, self.block_rows)

    @staticmethod
    def proved_at_once(blocks: Sequence[range]) -> Iterator[Sequence[range]]:
        """Yields blocks in the parts whose products are proved together, one after the other."""
        return (
            blocks[start : start + PROVED_AT_ONCE]
            for start in range(0, len(blocks), PROVED_AT_ONCE)
        )


def _parts(rows: range, size: int) -> Iterator[range]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


@lru_cache(maxsize=8)
def plan_counting(sizes: tuple[int, ...], queries: tuple[tuple[int, ...], ...]) -> CountPlan:
    """Plans the counting of rows of columns with these sizes into the marginals of ``queries``, tuples of columns.

    Raises ValueError for no query, one without columns, with one twice or one that is not there, and for 2^31 cells.
    """
    layout = RowLayout(sizes)
    if not queries:
        raise ValueError("nothing to count: at least one query is needed")
    for query in queries:
        if not query or len(set(query)) < len(query) or not set(query) <= set(range(len(sizes))):
            raise ValueError(
                f"query {query} of columns 0 .. {len(sizes) - 1}: each at most once, at least one"
            )
    cells = sum(_cells(sizes, query) for query in queries)
    if cells > MAX_CELLS:
        raise ValueError(f"the queries have {cells} cells; at most {MAX_CELLS} can be counted")
    splits = choose_splits(sizes, queries)
    graph = _Graph(layout, queries)
    graph.build(factor for split in splits for factor in (split.left, split.right))
    counts = tuple(graph.count(query, split) for query, split in zip(queries, splits, strict=True))
    return CountPlan(layout, queries, graph.leaves, graph.products(), counts, cells)


def _cells(sizes: Sequence[int], columns: Sequence[int]) -> int:
    return int(np.prod([sizes[column] for column in columns], dtype=object))


@dataclass(slots=True)
class _Graph:
    """Nodes as they are made: the factor of each (``digits``, the first running slowest), and its level."""

    layout: RowLayout
    queries: Sequence[Sequence[int]]
    leaves: tuple[Leaf, ...] = field(init=False)
    _digits: list[Factor] = field(init=False)
    _levels: list[int] = field(init=False)
    _pairs: list[tuple[int, int]] = field(init=False, default_factory=list)
    _numbers: dict[Factor, int] = field(init=False)

    def __post_init__(self) -> None:
        columns = sorted({column for query in self.queries for column in query})
        self.leaves = tuple(
            Leaf(column, bit) for column in columns for bit in range(self.layout.widths[column])
        )
        self._digits = [(), *((self._digit(leaf, leaf.bit + 1),) for leaf in self.leaves)]
        self._levels = [0] * len(self._digits)
        self._numbers = {digits: number for number, digits in enumerate(self._digits)}

    def _digit(self, leaf: Leaf, high: int) -> Digit:
        return Digit.of(leaf.column, self.layout.sizes[leaf.column], leaf.bit, high)

    def build(self, factors: Iterable[Factor]) -> None:
        """Makes the nodes of these factors, small ones first, so that larger ones find them."""
        wanted = set(factors)
        for digit in sorted({digit for factor in wanted for digit in factor}, key=_by_width):
            self._number((digit,))
        for factor in sorted(wanted, key=lambda factor: (entries(factor), factor)):
            self._number(factor)

    def _number(self, factor: Factor) -> int:
        """Returns the node of a factor, made if it is not there."""
        key = tuple(sorted(factor))
        if key not in self._numbers:
            cuts = self._digit_cuts(key[0]) if len(key) == 1 else self._factor_cuts(key)
            first, second = min(cuts, key=self._cost)
            high, low = self._number(first), self._number(second)
            self._pairs.append((high, low))
            self._levels.append(1 + max(self._levels[high], self._levels[low]))
            self._digits.append(key if len(key) == 1 else self._digits[high] + self._digits[low])
            self._numbers[key] = len(self._digits) - 1
        return self._numbers[key]

    def _cost(self, cut: tuple[Factor, Factor]) -> tuple[int, int]:
        """Returns the products of a node made of these two, with those of a missing part; then their inequality."""
        first, second = (entries(part) for part in cut)
        missing = sum(entries(part) for part in cut if tuple(sorted(part)) not in self._numbers)
        return (first - 1) * (second - 1) + missing, abs(first - second)

    def _digit_cuts(self, digit: Digit) -> Iterator[tuple[Factor, Factor]]:
        """Yields a digit's high and low bits."""
        size = self.layout.sizes[digit.column]
        for cut in range(digit.low + 1, digit.high):
            high = Digit.of(digit.column, size, cut, digit.high)
            yield (high,), (Digit.of(digit.column, size, digit.low, cut),)

    def _factor_cuts(self, factor: Factor) -> Iterator[tuple[Factor, Factor]]:
        """Yields a factor's digits in two parts: all ways for a few digits, a prefix and the rest for many."""
        if len(factor) > _ALL_WAYS:
            yield from ((factor[:place], factor[place:]) for place in range(1, len(factor)))
            return
        for count in range(1, len(factor)):
            for first in combinations(factor, count):
                yield first, tuple(digit for digit in factor if digit not in first)

    def products(self) -> tuple[Product, ...]:
        """Returns the nodes that are products, in the order of their numbers."""
        inner, first = {node for pair in self._pairs for node in pair}, 1 + len(self.leaves)
        return tuple(
            Product(high, low, entries(self._digits[node]), self._levels[node], node in inner)
            for node, (high, low) in enumerate(self._pairs, start=first)
        )

    def count(self, query: tuple[int, ...], split: Split) -> Cells:
        """Returns the arrangement of a query's cells from its split's nodes."""
        left, right = self._number(split.left), self._number(split.right)
        digits = self._digits[left] + self._digits[right]
        # A column's digits, its high one first; a column of one category has none.
        places = [
            sorted(
                (p for p, d in enumerate(digits) if d.column == column),
                key=lambda p: -digits[p].low,
            )
            for column in query
        ]
        return Cells(
            left=left,
            right=right,
            digits=tuple(digit.size for digit in digits),
            order=tuple(place for column in places for place in column),
            padded=tuple(entries(tuple(digits[p] for p in column)) for column in places),
            columns=tuple(self.layout.sizes[column] for column in query),
        )


def _by_width(digit: Digit) -> tuple[int, Digit]:
    return digit.high - digit.low, digit
