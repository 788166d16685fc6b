"""A table's rows as features and labels of a linear model, by the domain alone: bounds and categories.

A column with numbers between public bounds becomes its place between them, from -1 to 1 (in proportion on a log scale),
and, if values may be missing or marked, an indicator of that. Any other column becomes one feature for each category.
The last feature is 1, the intercept. A label is a number's place from 0 to 1 (linear), or one of two categories
(logistic). Nothing is learnt from rows, so that nothing has to be charged.

The rows are secret, at their silo. The list of features is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import number_of
from mechanisms.domain import Categorical, Column, Domain, Integer, Real
from mechanisms.errors import DomainError
from mechanisms.table import encode
from mechanisms.tda.layout import scaled
from mechanisms.text_table import TextTable


@dataclass(frozen=True, slots=True)
class Features:
    """The columns of ``domain`` as features, except ``label``; ``two_classes`` for a label of two categories.

    Raises ``DomainError`` if there is no such column, or it is of another kind.
    """

    domain: Domain
    label: str
    two_classes: bool

    def __post_init__(self) -> None:
        if len(self.domain.columns) < 2:
            raise DomainError("expected a label and one column more at least")
        column = self.domain.columns[self.domain.index(self.label)]
        if self.two_classes and (_is_number(column) or column.size != 2):
            raise DomainError(
                f"column {self.label!r}, the label, has {column.size} values; expected two categories"
            )
        if not self.two_classes and not (_is_number(column) and not _others(column)):
            raise DomainError(
                f"column {self.label!r}, the label: expected numbers between bounds, none of them missing"
            )

    @property
    def names(self) -> list[str]:
        """Names of the d features; the intercept is "1"."""
        return [name for column in self._columns() for name in _names(column)] + ["1"]

    def rows_of(
        self, table: TextTable, *, source: str, ignore_extra: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns features (n, d) and labels (n,). Raises ``DataError`` as ``mechanisms.table.encode`` does."""
        codes = encode(self.domain, table, source=source, ignore_extra=ignore_extra)
        parts = [
            _features(column, table, codes[:, self.domain.index(column.name)])
            for column in self._columns()
        ]
        x = np.column_stack([*parts, np.ones(len(codes))])
        at = self.domain.index(self.label)
        label = self.domain.columns[at]
        if self.two_classes:
            return x, codes[:, at].astype(np.float64)
        return x, _places(label, table, np.ones(len(codes), np.bool_))

    def _columns(self) -> Iterator[Column]:
        return (column for column in self.domain.columns if column.name != self.label)


def _is_number(column: Column) -> bool:
    return (
        isinstance(column, Integer | Real) and 0 < float(column.high) - float(column.low) < math.inf
    )


def _names(column: Column) -> list[str]:
    if _is_number(column):
        return [column.name] + ([f"{column.name}, missing"] if _others(column) else [])
    return [f"{column.name} {code}" for code in range(column.size)]


def _features(column: Column, table: TextTable, codes: NDArray[np.int32]) -> NDArray[np.float64]:
    if not _is_number(column):
        one_hot: NDArray[np.float64] = np.eye(column.size)[codes]
        return one_hot
    there = codes < column.size - _others(column)
    places = np.zeros(len(codes))
    places[there] = 2 * _places(column, table, there) - 1
    return np.column_stack([places, ~there]) if _others(column) else places[:, None]


def _others(column: Column) -> int:
    """Returns the number of codes without a number: marks, and the missing one."""
    return column.missing + (0 if isinstance(column, Categorical) else len(column.marks))


def _places(column: Column, table: TextTable, there: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns the places, 0 to 1, between the column's bounds for the rows that have a number."""
    if not isinstance(column, Integer | Real):
        raise DomainError(f"column {column.name!r} has no numbers")
    texts = [
        text for text, has in zip(table.columns[column.name], there.tolist(), strict=True) if has
    ]
    numbers = {text: number_of(column, text) for text in dict.fromkeys(texts)}
    return scaled(column, np.array([numbers[text] for text in texts], np.float64))
