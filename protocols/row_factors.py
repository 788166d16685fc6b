"""Choice of the factors by which queries are counted: each query's cells as a product of two shared one-hots.

A query over columns a, b, c is counted as the product of the one-hots of two *factors*, say (a, b's high bits) and (b's
low bits, c): a secure product for each entry of a factor and row, and for each cell of their product nothing but one
inner product over rows. So factors should be small, nearly equal, and the same for many queries. A factor is a set of
*digits*: a column's whole code or some of its bits.

The search is local and deterministic: integers only, no clock, ties to the first, so that three servers that have
agreed on the queries come to the same factors without a message; its effort is bounded by the number of queries. All
values here are public. Source: own.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

CELLS_PER_ENTRY = 128
"""Number of cells of an inner product that weigh as much as an entry of a factor.

Multiplying and adding so many cells for a row takes as long as multiplying, masking, sending and receiving that entry,
on machines and networks of today.
"""

# Most columns for which all ways to split a query are tried; beyond, a prefix is one factor and the rest the other.
_ALL_WAYS = 6
_KEPT_SPLITS = 128
_PASSES = 20


class Digit(NamedTuple):
    """Bits ``low``, ..., ``high`` - 1 of a column's code, which take ``size`` values."""

    column: int
    low: int
    high: int
    size: int

    @classmethod
    def of(cls, column: int, categories: int, low: int, high: int) -> "Digit":
        """Returns these bits of a code below ``categories``; with its highest bit, some values may not occur."""
        top = high == (categories - 1).bit_length()
        return cls(column, low, high, -(-categories >> low) if top else 1 << (high - low))


Factor = tuple[Digit, ...]


def entries(factor: Factor) -> int:
    """Returns the number of entries of a factor's one-hot."""
    return math.prod(digit.size for digit in factor)


@dataclass(frozen=True, slots=True)
class Split:
    """A query as the product of two factors, each digit of its columns in one of them."""

    left: Factor
    right: Factor

    @property
    def cells(self) -> int:
        """Cells of the product: the query's, and those of codes that name no category."""
        return entries(self.left) * entries(self.right)


def splits_of(sizes: Sequence[int], query: Sequence[int]) -> list[Split]:
    """Returns ways to count a query over columns of these sizes, the smallest pairs of factors first, 128 at most."""
    # A column of one category has no bits, and its one-hot is the row's presence.
    columns = [column for column in query if sizes[column] > 1]
    ways = _all_ways if len(columns) <= _ALL_WAYS else _prefixes
    found = dict.fromkeys(
        Split(*sorted((tuple(sorted(left)), tuple(sorted(right)))))
        for left, right in ways(sizes, columns)
    )
    return sorted(found, key=_order)[:_KEPT_SPLITS]


def _order(split: Split) -> tuple[int, Split]:
    return entries(split.left) + entries(split.right), (split.left, split.right)  # type: ignore[return-value]


def _whole(sizes: Sequence[int], column: int) -> Digit:
    return Digit.of(column, sizes[column], 0, (sizes[column] - 1).bit_length())


def _cuts(sizes: Sequence[int], column: int) -> Iterator[tuple[Digit, Digit]]:
    """Yields the column's high and low digit, for each place to cut its code."""
    width = (sizes[column] - 1).bit_length()
    for cut in range(1, width):
        yield Digit.of(column, sizes[column], cut, width), Digit.of(column, sizes[column], 0, cut)


def _all_ways(
    sizes: Sequence[int], columns: Sequence[int]
) -> Iterator[tuple[Iterable[Digit], Iterable[Digit]]]:
    """Yields each set of columns against the others; and the same with one more column cut in two."""
    digits = [_whole(sizes, column) for column in columns]
    for left, right in _parts(digits):
        yield left, right
    for column, digit in zip(columns, digits, strict=True):
        others = [other for other in digits if other is not digit]
        for high, low in _cuts(sizes, column):
            for left, right in _parts(others):
                yield (*left, high), (*right, low)


def _parts(digits: Sequence[Digit]) -> Iterator[tuple[tuple[Digit, ...], tuple[Digit, ...]]]:
    for count in range(len(digits) + 1):
        for left in combinations(digits, count):
            yield left, tuple(digit for digit in digits if digit not in left)


def _prefixes(
    sizes: Sequence[int], columns: Sequence[int]
) -> Iterator[tuple[Iterable[Digit], Iterable[Digit]]]:
    """Yields the first columns against the others, with the one between them in either or cut in two."""
    digits = [_whole(sizes, column) for column in columns]
    for place, column in enumerate(columns):
        yield digits[:place], digits[place:]
        for high, low in _cuts(sizes, column):
            yield (*digits[:place], high), (low, *digits[place + 1 :])
            yield (*digits[:place], low), (high, *digits[place + 1 :])


def choose_splits(sizes: Sequence[int], queries: Sequence[Sequence[int]]) -> list[Split]:
    """Chooses a split for each query, with few entries of factors and few cells in all.

    The search starts from the best split of each query by itself. It moves one query at a time to the split that adds
    least; opens a factor for all queries that gain by it; takes some queries out and puts them back. No step makes it
    worse.
    """
    options = [splits_of(sizes, query) for query in queries]
    search = _Search(options)
    search.settle()
    search.open_factors()
    search.settle()
    return [ways[choice] for ways, choice in zip(options, search.choices, strict=True)]


@dataclass(slots=True)
class _Search:
    """State of a search: for each query its choice, for each item (digit or factor) the number of choices that use it.

    An option of a query is (its cells, its items); minimised is the weight of all items in use, and all cells.
    """

    splits: Sequence[Sequence[Split]]
    choices: list[int] = field(init=False)
    _options: list[list[tuple[int, tuple[int, ...]]]] = field(init=False)
    _weights: list[int] = field(init=False)
    _uses: list[int] = field(init=False)
    # The weight of each item that is not in use, and 0 for the others.
    _charges: list[int] = field(init=False)
    _users: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        numbers: dict[Factor, int] = {}
        self._options = [[_option(split, numbers) for split in ways] for ways in self.splits]
        self._weights = [CELLS_PER_ENTRY * _weight(item) for item in numbers]
        self._uses = [0] * len(numbers)
        self._charges = list(self._weights)
        self._users = {}
        for query, options in enumerate(self._options):
            for item in dict.fromkeys(item for _, items in options for item in items):
                self._users.setdefault(item, []).append(query)
        self.choices = [0] * len(self.splits)
        for query in range(len(self.splits)):
            self._put(query, self._best(query))

    def _added(self, query: int, option: int) -> int:
        """Returns the weight that an option would add for a query that has none."""
        cells, items = self._options[query][option]
        return cells + sum([self._charges[item] for item in items])

    def _best(self, query: int) -> int:
        """Returns the option that would add least for a query that has none."""
        charges, best, least = self._charges, 0, -1
        for option, (added, items) in enumerate(self._options[query]):
            for item in items:
                added += charges[item]
            if added < least or least < 0:
                best, least = option, added
        return best

    def _put(self, query: int, option: int) -> int:
        """Chooses an option for a query that has none; returns the weight that it adds."""
        added = self._added(query, option)
        self.choices[query] = option
        for item in self._options[query][option][1]:
            self._use(item, 1)
        return added

    def _take(self, query: int) -> int:
        """Leaves a query without an option; returns the weight that it saves."""
        for item in self._options[query][self.choices[query]][1]:
            self._use(item, -1)
        return self._added(query, self.choices[query])

    def _use(self, item: int, change: int) -> None:
        self._uses[item] += change
        self._charges[item] = 0 if self._uses[item] else self._weights[item]

    def settle(self) -> None:
        """Moves one query at a time until none gains by it."""
        for _ in range(_PASSES):
            gained = 0
            for query in range(len(self.choices)):
                before, old = self._take(query), self.choices[query]
                option = self._best(query)
                gained += before - self._put(
                    query, option if self._added(query, option) < before else old
                )
            if not gained:
                return

    def open_factors(self) -> None:
        """Tries for each item to move all queries to it that gain if it is there; keeps the move if it gains in all."""
        for item in range(len(self._weights)):
            if len(self._users[item]) > 1:
                self._try(self._users[item], opened=item)

    def _try(self, queries: Sequence[int], opened: int | None = None) -> None:
        """Takes these queries out and puts them back at the least weight, as if ``opened`` were free; undoes a loss."""
        kept = [self.choices[query] for query in queries]
        gained = sum(self._take(query) for query in queries)
        if opened is not None:
            self._use(opened, 1)
        for query in queries:
            self._put(query, self._best(query))
        if opened is not None:
            # Queries that were put as if it were free are counted again with its weight.
            self._use(opened, -1)
        for query in queries:
            self._take(query)
        gained -= sum(self._put(query, self.choices[query]) for query in queries)
        if gained < 0:
            for query in queries:
                self._take(query)
            for query, option in zip(queries, kept, strict=True):
                self._put(query, option)


def _option(split: Split, numbers: dict[Factor, int]) -> tuple[int, tuple[int, ...]]:
    """Returns the split's cells and its items: its factors, and their digits by themselves."""
    items = [factor for factor in (split.left, split.right) if factor]
    items += [(digit,) for factor in items for digit in factor]
    return split.cells, tuple(
        dict.fromkeys(numbers.setdefault(item, len(numbers)) for item in items)
    )


def _weight(factor: Factor) -> int:
    """Returns the products for a factor's entries, once its largest digit and the product of the others are there."""
    largest = max(digit.size for digit in factor)
    return largest if len(factor) == 1 else (largest - 1) * (entries(factor) // largest - 1)
