"""Relations between modelled columns: order, bounds on sums, and forbidden combinations.

A relation has ``scopes``, sets of columns with the cells that it allows: a cell is forbidden where no values in it
satisfy the relation. Within allowed cells values are drawn until they satisfy it (`mechanisms.constraints.rows`).

Relations and cells are public; texts of an owner's table are secret.
Semantics: a relation says nothing of a row in which one of its columns is missing or a mark, unless it names the mark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Column, Moment, Ordered
from mechanisms.constraints.conjunction import ALL, NONE, ValueSet
from mechanisms.constraints.formula import Texts
from mechanisms.constraints.values import (
    Numbers,
    cell_ends,
    check_exact,
    check_multiples,
    decimals_of_column,
    numbers_in,
)
from mechanisms.errors import DomainError

MAX_SCOPE_CELLS = 2**20
"""Most cells of the columns of one relation."""
_CLOSED_CELLS = 2**14
"""Most cells of an ordered chain that is one scope; a longer chain has its neighbours alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Columns, and bool ``allowed`` of the shape of their marginal."""

    columns: tuple[str, ...]
    allowed: NDArray[np.bool_]


class Relation(Protocol):
    """A relation between ``columns``."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the related columns."""

    def scopes(self, columns: Mapping[str, Column]) -> Iterator[Scope]:
        """Yields the cells in which some values satisfy the relation."""

    def surely(self, columns: Mapping[str, Column]) -> Scope:
        """Returns the cells in which all values satisfy the relation."""

    def violated(
        self, columns: Mapping[str, Column], texts: Texts, missing: Sequence[str]
    ) -> NDArray[np.bool_]:
        """Returns the rows (rows,) that contradict the relation."""

    def said(self, columns: Mapping[str, Column], row: Mapping[str, str]) -> tuple[str, str]:
        """Returns the column of a violation, and in words what contradicts what."""


@dataclass(frozen=True, slots=True)
class Ascending:
    """Numbers or dates of which none is above the next one."""

    columns: tuple[str, ...]

    def check(self, where: str, columns: Mapping[str, Column]) -> None:
        """Raises ``DomainError`` for columns that cannot be compared."""
        if len(self.columns) < 2 or len(set(self.columns)) < len(self.columns):
            raise DomainError(f"{where}: expected two or more different columns")
        check_comparable(where, self.columns, columns)

    def scopes(self, columns: Mapping[str, Column]) -> Iterator[Scope]:
        """Yields the cells of all columns, or of neighbours where those are too many."""
        size = math.prod(columns[name].size for name in self.columns)
        together = len(self.columns) == 2 or size <= _CLOSED_CELLS
        for group in [self.columns] if together else itertools.pairwise(self.columns):
            yield _ordered_cells(group, columns, sure=False)

    def surely(self, columns: Mapping[str, Column]) -> Scope:
        """See ``Relation.surely``."""
        return _ordered_cells(self.columns, columns, sure=True)

    def violated(
        self, columns: Mapping[str, Column], texts: Texts, missing: Sequence[str]
    ) -> NDArray[np.bool_]:
        """See ``Relation.violated``."""
        wrong = np.zeros(len(texts[self.columns[0]]), np.bool_)
        read = _scaled(self.columns, columns, texts, missing=missing)
        for before, after in itertools.combinations(read, 2):
            above = np.asarray(before.values > after.values, np.bool_)
            wrong |= above & before.there & after.there
        return wrong

    def factor(self, name: str, columns: Mapping[str, Column]) -> int:
        """Returns the units of the finest of the columns that one unit of a column is."""
        return _factor(columns, name, self.columns)

    def said(self, columns: Mapping[str, Column], row: Mapping[str, str]) -> tuple[str, str]:
        """See ``Relation.said``."""
        before, after = next(
            (
                pair
                for pair in itertools.combinations(self.columns, 2)
                if Ascending(pair).violated(columns, {name: [row[name]] for name in pair}, ()).any()
            ),
            self.columns[:2],
        )
        return after, f"is below {before!r} of the same row, which has {row[before]!r}"


@dataclass(frozen=True, slots=True)
class AtMost:
    """Numbers whose sum is at most ``most``, a whole number of 10^-``places``."""

    columns: tuple[str, ...]
    most: int
    places: int

    def scopes(self, columns: Mapping[str, Column]) -> Iterator[Scope]:
        """Yields the cells whose smallest numbers have such a sum."""
        yield self._within(columns, sure=False)

    def surely(self, columns: Mapping[str, Column]) -> Scope:
        """Returns the cells whose largest numbers have such a sum."""
        return self._within(columns, sure=True)

    def _within(self, columns: Mapping[str, Column], *, sure: bool) -> Scope:
        shape = [columns[name].size for name in self.columns]
        total, known = np.zeros(shape, object), np.ones(shape, np.bool_)
        for axis, name in enumerate(self.columns):
            ends = cell_ends(_ordered(columns[name]))
            along = [1] * len(shape)
            along[axis] = -1
            end = ends.last if sure else ends.first
            total = total + (end * self.factor(name, columns)).reshape(along)
            known = known & ends.has.reshape(along)
        return Scope(self.columns, ~known | np.asarray(total <= self.most, np.bool_))

    def violated(
        self, columns: Mapping[str, Column], texts: Texts, missing: Sequence[str]
    ) -> NDArray[np.bool_]:
        """See ``Relation.violated``."""
        rows = len(texts[self.columns[0]])
        total, there = np.zeros(rows, object), np.ones(rows, np.bool_)
        for name in self.columns:
            read = numbers_in(_ordered(columns[name]), texts[name], missing)
            total, there = total + read.values * self.factor(name, columns), there & read.there
        return np.asarray(total > self.most, np.bool_) & there

    def said(self, columns: Mapping[str, Column], row: Mapping[str, str]) -> tuple[str, str]:
        """See ``Relation.said``."""
        names = " + ".join(self.columns)
        most = self.most / 10**self.places
        return self.columns[-1], f"makes {names} more than {most:g}"

    def factor(self, name: str, columns: Mapping[str, Column]) -> int:
        """Returns the units of 10^-``places`` that one unit of a column is."""
        return int(10 ** (self.places - decimals_of_column(_ordered(columns[name]))))


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A combination of values that no row has: one set for each of some columns."""

    sets: tuple[tuple[str, ValueSet], ...]
    words: str

    @property
    def columns(self) -> tuple[str, ...]:
        """See ``Relation.columns``."""
        return tuple(name for name, _ in self.sets)

    def scopes(self, columns: Mapping[str, Column]) -> Iterator[Scope]:
        """Yields the cells that are not all of them within the forbidden sets."""
        inside = [values.by_code() == ALL for _, values in self.sets]
        yield Scope(self.columns, ~_outer(inside))

    def surely(self, columns: Mapping[str, Column]) -> Scope:
        """Returns the cells that have nothing of one of the forbidden sets."""
        return Scope(self.columns, ~_outer([values.by_code() != NONE for _, values in self.sets]))

    def violated(
        self, columns: Mapping[str, Column], texts: Texts, missing: Sequence[str]
    ) -> NDArray[np.bool_]:
        """See ``Relation.violated``."""
        wrong = np.ones(len(texts[self.columns[0]]), np.bool_)
        for name, values in self.sets:
            wrong &= values.holds(texts[name], missing)
        return wrong

    def said(self, columns: Mapping[str, Column], row: Mapping[str, str]) -> tuple[str, str]:
        """See ``Relation.said``."""
        others = [f"{name!r} with {row[name]!r}" for name in self.columns[1:]]
        beside = f", beside {' and '.join(others)} of the same row" if others else ""
        return self.columns[0], f"is forbidden by {self.words}{beside}"


def check_comparable(where: str, names: Sequence[str], columns: Mapping[str, Column]) -> None:
    """Raises ``DomainError`` unless columns are all numbers, or all dates of one unit."""
    ordered = [check_multiples(where, columns[name]) for name in names]
    kinds = {column.unit if isinstance(column, Moment) else "number" for column in ordered}
    if len(kinds) > 1:
        raise DomainError(
            f"{where}: the columns {', '.join(map(repr, names))} cannot be compared, by {' and '.join(sorted(kinds))}; "
            "expected numbers alone, or dates of one unit"
        )


def _ordered(column: Column) -> Ordered:
    return check_exact(column.name, column)


def _factor(columns: Mapping[str, Column], name: str, names: Sequence[str]) -> int:
    """Returns the units of the finest of ``names`` that one unit of ``name`` is."""
    fine = max(decimals_of_column(_ordered(columns[each])) for each in names)
    return int(10 ** (fine - decimals_of_column(_ordered(columns[name]))))


def _scaled(
    names: Sequence[str], columns: Mapping[str, Column], texts: Texts, *, missing: Sequence[str]
) -> list[Numbers]:
    """Returns the numbers of columns in the unit of the finest one."""
    found = []
    for name in names:
        read = numbers_in(_ordered(columns[name]), texts[name], missing)
        found.append(Numbers(read.values * _factor(columns, name, names), read.there))
    return found


def _ordered_cells(names: Sequence[str], columns: Mapping[str, Column], *, sure: bool) -> Scope:
    """Returns the cells in which ascending numbers exist, or ``sure`` those in which all numbers are ascending.

    They exist where no first number is above a later cell's last one.
    """
    shape = [columns[name].size for name in names]
    allowed = np.ones(shape, np.bool_)
    ends = [cell_ends(_ordered(columns[name])) for name in names]
    factors = [_factor(columns, name, names) for name in names]
    for i, j in itertools.combinations(range(len(names)), 2):
        before = (ends[i].last if sure else ends[i].first) * factors[i]
        after = (ends[j].first if sure else ends[j].last) * factors[j]
        pair = np.asarray(before.reshape(-1, 1) <= after.reshape(1, -1), np.bool_)
        pair |= ~ends[i].has.reshape(-1, 1) | ~ends[j].has.reshape(1, -1)
        along = [1] * len(names)
        along[i], along[j] = shape[i], shape[j]
        allowed &= pair.reshape(along)
    return Scope(tuple(names), allowed)


def _outer(vectors: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Returns the cells at which all vectors are True."""
    found = np.ones((), np.bool_)
    for vector in vectors:
        found = found[..., None] & vector
    return np.asarray(found)
