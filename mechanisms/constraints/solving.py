"""Values of a row's cells that satisfy all relations at once: found if there are any.

``Solver`` finds them by cases: a forbidden combination is broken in one of its columns that the cell is cut in, which
leaves a range of numbers. Within ranges the smallest numbers that are in order have the smallest sums, so that they
satisfy orders and sums if any numbers do.

All values here are public.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Column, Ordered
from mechanisms.constraints.conjunction import NONE, PART, CategorySet, NumberSet, gaps
from mechanisms.constraints.relations import Ascending, AtMost, Forbidden, Relation
from mechanisms.constraints.values import CellEnds, cell_ends, check_exact, is_ordered, writer_of
from mechanisms.sampling import PublicGenerator

_TRIES = 3
"""Values that are tried for a number before it takes the smallest."""


@dataclass(frozen=True, slots=True)
class _Case:
    """Ranges of numbers by column, both ends included, and the categories left of some columns."""

    ranges: Mapping[str, tuple[int, int]]
    categories: Mapping[str, frozenset[str]]


class Solver:
    """The relations between ``columns``; a row is given by the codes of all of them, by name."""

    def __init__(self, relations: Sequence[Relation], columns: Mapping[str, Column]) -> None:
        self.names = tuple(dict.fromkeys(n for relation in relations for n in relation.columns))
        self.ordered: dict[str, Ordered] = {
            name: check_exact(name, columns[name])
            for name in self.names
            if is_ordered(columns[name])
        }
        self._ends: dict[str, CellEnds] = {
            name: cell_ends(column) for name, column in self.ordered.items()
        }
        self._orders = [
            [(name, each.factor(name, columns)) for name in each.columns]
            for each in relations
            if isinstance(each, Ascending)
        ]
        self._sums = [
            ([(name, each.factor(name, columns)) for name in each.columns], each.most)
            for each in relations
            if isinstance(each, AtMost)
        ]
        self._linked = {name for terms in self._orders for name, _ in terms}
        self._linked |= {name for terms, _ in self._sums for name, _ in terms}
        self._write = {name: writer_of(column) for name, column in self.ordered.items()}
        self._known: dict[tuple[int, ...], list[_Case]] = {}
        self._forbidden: list[list[tuple[str, CategorySet | NumberSet, NDArray[np.int8]]]] = [
            [(name, values, values.by_code()) for name, values in each.sets]
            for each in relations
            if isinstance(each, Forbidden)
        ]

    def __repr__(self) -> str:
        return f"Solver({', '.join(self.names)})"

    def feasible(self, codes: Mapping[str, int]) -> bool:
        """Returns whether some values of the cells satisfy all relations."""
        return any(self._least(case.ranges) is not None for case in self._cases(codes))

    def values(
        self,
        codes: Mapping[str, int],
        generator: PublicGenerator,
        *,
        kept: Mapping[str, int] | None = None,
    ) -> dict[str, str]:
        """Returns values of the cells that satisfy all relations, by column; empty if there are none.

        Columns with ``kept`` numbers keep them, if any values satisfy all relations then.
        """
        key = tuple(codes[name] for name in self.names)
        if key not in self._known:
            every = self._cases(codes)
            self._known[key] = [case for case in every if self._least(case.ranges) is not None]
        cases = [case for case in self._known[key] if self._keeps(case, kept or {})]
        if not cases:
            return self.values(codes, generator) if kept else {}
        case = cases[int(generator.integers(len(cases)))]
        ranges = {**case.ranges, **{n: (number, number) for n, number in (kept or {}).items()}}
        free = [name for name, (first, last) in ranges.items() if first < last]
        for i in generator.permutation(len(free)):
            ranges[free[i]] = self._fixed(free[i], ranges, generator)
        kept_names = kept or {}
        found = {
            n: self._write[n](first) for n, (first, _) in ranges.items() if n not in kept_names
        }
        for name, left in sorted(case.categories.items()):
            found[name] = sorted(left)[int(generator.integers(len(left)))]
        return found

    def _keeps(self, case: _Case, kept: Mapping[str, int]) -> bool:
        """Returns whether a case has values beside some that columns keep."""
        if not kept:
            return True
        inside = all(case.ranges[n][0] <= number <= case.ranges[n][1] for n, number in kept.items())
        fixed = {**case.ranges, **{n: (number, number) for n, number in kept.items()}}
        return inside and self._least(fixed) is not None

    def _fixed(
        self, name: str, ranges: Mapping[str, tuple[int, int]], generator: PublicGenerator
    ) -> tuple[int, int]:
        """Returns one number of a column's range with which the others can still satisfy all relations."""
        first, last = ranges[name]
        if name not in self._linked:
            number = int(generator.integers(first, last, endpoint=True))
            return number, number
        least = self._least(ranges)
        first = first if least is None else least[name]
        for _ in range(_TRIES):
            number = int(generator.integers(first, last, endpoint=True))
            if self._least({**ranges, name: (number, number)}) is not None:
                return number, number
            last = number
        return first, first

    def _cases(self, codes: Mapping[str, int]) -> Iterator[_Case]:
        """Yields the ways in which no combination is forbidden."""
        ranges = {
            name: (int(ends.first[codes[name]]), int(ends.last[codes[name]]))
            for name, ends in self._ends.items()
            if ends.has[codes[name]]
        }
        yield from self._broken(_Case(ranges, {}), codes, 0)

    def _broken(self, case: _Case, codes: Mapping[str, int], at: int) -> Iterator[_Case]:
        """Yields the cases of ``case`` in which the forbidden combinations from ``at`` on do not occur."""
        if at == len(self._forbidden):
            yield case
            return
        terms = self._forbidden[at]
        if any(by_code[codes[name]] == NONE for name, _, by_code in terms):
            yield from self._broken(case, codes, at + 1)
            return
        for name, values, by_code in terms:
            if by_code[codes[name]] == PART:
                for cut in self._outside(case, name, values, code=codes[name]):
                    yield from self._broken(cut, codes, at + 1)

    def _outside(
        self, case: _Case, name: str, values: CategorySet | NumberSet, *, code: int
    ) -> Iterator[_Case]:
        """Yields the parts of a case in which a column has no value of a set."""
        if isinstance(values, NumberSet):
            for part in gaps(values.ranges, *case.ranges[name]):
                yield replace(case, ranges={**case.ranges, name: part})
            return
        column = values.column
        own = frozenset(value for value in column.values if column.code_of(value) == code)
        left = case.categories.get(name, own) - values.values
        if left:
            yield replace(case, categories={**case.categories, name: left})

    def _least(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, int] | None:
        """Returns the smallest numbers within ranges that satisfy orders and sums; None if there are none."""
        low = {name: first for name, (first, _) in ranges.items()}
        moved = True
        while moved:
            moved = False
            for order in self._orders:
                reached: int | None = None
                for name, factor in order:
                    if name not in low:
                        continue
                    if reached is not None and low[name] * factor < reached:
                        low[name], moved = -(-reached // factor), True
                    if low[name] > ranges[name][1]:
                        return None
                    reached = low[name] * factor
        for terms, most in self._sums:
            there = all(name in low for name, _ in terms)
            if there and sum(low[name] * factor for name, factor in terms) > most:
                return None
        return low
