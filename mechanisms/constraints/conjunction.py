"""Conjunctions of tests of columns: ``pregnant = yes and sex = M``, ``age < 18 and grade in (A, "B 2")``.

``read_tests`` reads one, ``set_of`` turns all tests of one column into a set of its values.

Tests are public. Semantics: numbers and dates are compared at their column's resolution; a mark (``refused`` among
numbers) satisfies what names it, and ``!=`` and ``not in``. A missing value satisfies no test.
Limits: tests are joined by ``and`` alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Categorical, Column, Ordered
from mechanisms.constraints.values import (
    CellEnds,
    cell_ends,
    check_exact,
    numbers_in,
    scaled_bound,
)
from mechanisms.errors import DomainError

NONE, PART, ALL = 0, 1, 2
"""Parts of a cell that are in a set."""
_FAR = 2**100
"""Beyond all numbers of all columns."""
_NAME = r"""(?:"([^"]+)"|'([^']+)'|([^\W\d][\w.-]*))"""
_VALUE = r"""(?:"([^"]*)"|'([^']*)'|([^\s,()<>=!"']+))"""
_TEST = re.compile(
    rf"\s*{_NAME}\s*(?:(<=|>=|!=|=|<|>)\s*{_VALUE}|(not\s+in|in)\s*\(([^()]*)\))", re.IGNORECASE
)
_LISTED = re.compile(rf"\s*{_VALUE}\s*(,|$)")
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """A test of one column: a comparison with one of ``values``, "in" or "not in"."""

    column: str
    operator: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CategorySet:
    """Some categories of a column."""

    column: Categorical
    values: frozenset[str]

    def __and__(self, other: CategorySet) -> CategorySet:
        """Returns the values of both sets."""
        return CategorySet(self.column, self.values & other.values)

    def complement(self) -> CategorySet:
        """Returns the other categories; missing values are in neither set."""
        return CategorySet(self.column, frozenset(self.column.values) - self.values)

    @property
    def is_empty(self) -> bool:
        """True without a value."""
        return not self.values

    def by_code(self) -> NDArray[np.int8]:
        """Returns how much of each code is in the set: (codes,)."""
        inside, outside = (np.zeros(self.column.size, np.bool_) for _ in range(2))
        for value in self.column.values:
            code = self.column.code_of(value)
            (inside if value in self.values else outside)[code] = True
        return np.where(inside, np.where(outside, PART, ALL), NONE).astype(np.int8)

    def holds(self, texts: Sequence[str], missing: Sequence[str]) -> NDArray[np.bool_]:
        """Returns the rows (rows,) with a value of the set."""
        column = self.column

        def is_in(text: str) -> bool:
            if column.code_of(text) is None and text not in missing:
                text = column.other or text
            return text in self.values

        known = {text: is_in(text) for text in dict.fromkeys(texts)}
        return np.fromiter((known[text] for text in texts), np.bool_, len(texts))


@dataclass(frozen=True, slots=True)
class NumberSet:
    """Numbers of a column in ascending ``ranges`` that do not touch, both ends included, and some of its marks."""

    column: Ordered
    ranges: tuple[Range, ...]
    marks: frozenset[str]

    def __and__(self, other: NumberSet) -> NumberSet:
        """Returns the numbers and marks of both sets."""
        both = [
            (max(a, c), min(b, d))
            for a, b in self.ranges
            for c, d in other.ranges
            if max(a, c) <= min(b, d)
        ]
        return NumberSet(self.column, tuple(both), self.marks & other.marks)

    def complement(self) -> NumberSet:
        """Returns all other numbers and marks; missing values are in neither set."""
        ranges = tuple(gaps(self.ranges, -_FAR, _FAR))
        return NumberSet(self.column, ranges, frozenset(self.column.marks) - self.marks)

    @property
    def is_empty(self) -> bool:
        """True without a number that the column may have, or a mark; bounds that a run finds exclude nothing."""
        if self.column.private is not None:
            return not self.ranges and not self.marks
        return not self.by_code().any()

    def by_code(self) -> NDArray[np.int8]:
        """Returns how much of each code is in the set: (codes,)."""
        ends: CellEnds = cell_ends(self.column)
        found = np.zeros(self.column.size, np.int8)
        for code in np.flatnonzero(ends.has):
            first, last = int(ends.first[code]), int(ends.last[code])
            if any(a <= first and last <= b for a, b in self.ranges):
                found[code] = ALL
            elif any(a <= last and first <= b for a, b in self.ranges):
                found[code] = PART
        for mark in self.marks:
            found[self.column.code_of(mark)] = ALL
        return found

    def holds(self, texts: Sequence[str], missing: Sequence[str]) -> NDArray[np.bool_]:
        """Returns the rows (rows,) with a number or a mark of the set."""
        read = numbers_in(self.column, texts, missing)
        inside = {n: any(a <= n <= b for a, b in self.ranges) for n in set(read.values.tolist())}
        held = np.fromiter((inside[n] for n in read.values.tolist()), np.bool_, len(texts))
        marked = np.fromiter((text in self.marks for text in texts), np.bool_, len(texts))
        return np.asarray((held & read.there) | marked)


ValueSet: TypeAlias = CategorySet | NumberSet


def read_tests(where: str, text: str) -> tuple[ColumnTest, ...]:
    """Returns the tests of a conjunction. Raises ``DomainError`` that shows where it cannot be read."""
    tests, at = list[ColumnTest](), 0
    while True:
        found = _TEST.match(text, at)
        if not found:
            raise _unread(where, text, at)
        quoted, single, bare, sign, *rest = found.groups()
        column = quoted or single or bare
        if sign:
            value = next(v for v in rest[:3] if v is not None)
            tests.append(ColumnTest(column, sign, (value,)))
        else:
            operator = " ".join(rest[3].lower().split())
            tests.append(ColumnTest(column, operator, _listed(where, text, rest[4])))
        at = found.end()
        if not text[at:].strip():
            return tuple(tests)
        joined = _AND.match(text, at)
        if not joined:
            raise _unread(where, text, at)
        at = joined.end()


def sets_of(
    where: str, tests: Sequence[ColumnTest], columns: Mapping[str, Column]
) -> dict[str, ValueSet]:
    """Returns the values of each tested column that satisfy all of its tests.

    Raises ``DomainError`` for a value that a column does not have, or a comparison that its kind does not allow.
    """
    by_column: dict[str, list[ValueSet]] = {}
    for test in tests:
        by_column.setdefault(test.column, []).append(_set_of(where, test, columns[test.column]))
    return {name: reduce(_both, sets) for name, sets in by_column.items()}


def _both(one: ValueSet, other: ValueSet) -> ValueSet:
    if isinstance(one, CategorySet) and isinstance(other, CategorySet):
        return one & other
    if isinstance(one, NumberSet) and isinstance(other, NumberSet):
        return one & other
    raise TypeError("sets of two columns have no values in common")


def both_sets(one: Mapping[str, ValueSet], name: str, other: ValueSet) -> dict[str, ValueSet]:
    """Returns ``one`` with the set ``other`` of the column ``name`` in addition."""
    return {**one, name: _both(one[name], other) if name in one else other}


def _set_of(where: str, test: ColumnTest, column: Column) -> ValueSet:
    negated = test.operator in ("!=", "not in")
    if isinstance(column, Categorical):
        if column.private is not None:
            raise DomainError(
                f"{where}: the categories of column {column.name!r} are chosen by the run; expected a column whose "
                "categories are listed"
            )
        if test.operator not in ("=", "!=", "in", "not in"):
            raise DomainError(
                f"{where}: column {column.name!r} has categories, which have no order; expected =, !=, in or not in"
            )
        if unknown := [value for value in test.values if value not in column.values]:
            raise DomainError(
                f"{where}: {unknown[0]!r} is no value of column {column.name!r}; expected {column.allowed}"
            )
        found: ValueSet = CategorySet(column, frozenset(test.values))
    else:
        found = _number_set(where, test, check_exact(where, column))
    return found.complement() if negated else found


def _number_set(where: str, test: ColumnTest, column: Ordered) -> NumberSet:
    if test.operator not in ("=", "!=", "in", "not in"):
        bound = scaled_bound(column, test.values[0], where)
        return NumberSet(column, (_compared(test.operator, bound),), frozenset())
    marks = frozenset(test.values) & frozenset(column.marks)
    numbers = [scaled_bound(column, value, where) for value in test.values if value not in marks]
    whole = sorted({int(number) for number in numbers if number.denominator == 1})
    return NumberSet(column, tuple(_joined((number, number) for number in whole)), marks)


def _compared(operator: str, bound: Fraction) -> Range:
    if operator == "<":
        return -_FAR, math.ceil(bound) - 1
    if operator == "<=":
        return -_FAR, math.floor(bound)
    return (math.floor(bound) + 1 if operator == ">" else math.ceil(bound)), _FAR


def _joined(ranges: Iterator[Range]) -> list[Range]:
    """Returns ascending ranges with those that touch made one."""
    joined = list[Range]()
    for first, last in ranges:
        if joined and joined[-1][1] + 1 >= first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def gaps(ranges: Sequence[Range], low: int, high: int) -> Iterator[Range]:
    """Yields the ranges between ``low`` and ``high`` that are in none of the ascending ``ranges``."""
    for first, last in ranges:
        if first > high:
            break
        if low < first:
            yield low, first - 1
        low = max(low, last + 1)
    if low <= high:
        yield low, high


def _listed(where: str, text: str, listed: str) -> tuple[str, ...]:
    values, at = list[str](), 0
    while True:
        found = _LISTED.match(listed, at)
        if not found:
            raise _unread(where, text, text.find(listed))
        values.append(next(v for v in found.groups()[:3] if v is not None))
        if not found.group(4):
            return tuple(values)
        at = found.end()


def _unread(where: str, text: str, at: int) -> DomainError:
    rest = text[at:].strip()
    shown = f"from {rest[:30]!r} on" if rest else "at its end"
    return DomainError(
        f"{where}: {text!r} cannot be read {shown}; expected tests joined by 'and', as in "
        'age < 18 and grade in (A, "B 2")'
    )
