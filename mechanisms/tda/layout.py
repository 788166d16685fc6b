"""Continuous and discrete columns of a table, and a silo's rows in that form.

``scaled`` and ``unscaled`` map between a column's values and [0, 1].

A column is continuous if it has numbers between public bounds, more of them than a mixture has components. Every other
one is discrete: categories, dates (by their bins), few whole numbers, and the columns that the settings name. A missing
value and a value with a cell of its own (an atom, a mark) in a continuous column are further components of it, without
a number.

The rows are secret, at their silo. Layouts are public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_values import number_of
from mechanisms.domain import Column, Domain, Integer, Real
from mechanisms.errors import DomainError
from mechanisms.table import encode
from mechanisms.tda.settings import TdaSettings
from mechanisms.text_table import TextTable

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Continuous: TypeAlias = Integer | Real


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of ``domain`` by number: ``continuous`` and ``discrete`` ones, and T ``components``.

    A row X has, in this order, the place of each continuous value in its component, the components, and the discrete
    columns: l = 2 n_c + n_d. The components and the discrete columns are all the categories there are.
    """

    domain: Domain
    continuous: tuple[int, ...]
    discrete: tuple[int, ...]
    components: int

    @classmethod
    def of(cls, domain: Domain, settings: TdaSettings) -> Layout:
        """Builds the layout.

        Raises ``DomainError`` if the settings name a column that does not exist, or for constraints that rows of a
        mixture cannot be held to.
        """
        for constraint in domain.constraints:
            if constraint.relations({column.name: column for column in domain.columns}):
                raise DomainError(
                    f"{constraint.words}: Fed-TDA draws columns that no such constraint holds; expected equals, "
                    "follows, years_since, born or one_hot alone, or another method"
                )
        named = {domain.index(name) for name in settings.discrete}
        continuous = tuple(
            i
            for i, column in enumerate(domain.columns)
            if i not in named and _has_mixture(column, settings.components)
        )
        discrete = tuple(i for i in range(len(domain.columns)) if i not in continuous)
        for i in continuous:
            _check_bounds(domain.columns[i])
        return cls(domain, continuous, discrete, settings.components)

    @property
    def width(self) -> int:
        """Length l of a row X."""
        return 2 * len(self.continuous) + len(self.discrete)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of categories of each of the n_c component columns and the n_d discrete columns."""
        components = (
            self.components + len(specials(self.number(j))) for j in range(len(self.continuous))
        )
        return (*components, *(self.domain.columns[i].size for i in self.discrete))

    def number(self, j: int) -> Continuous:
        """Returns the ``j``-th continuous column."""
        column = self.domain.columns[self.continuous[j]]
        if not isinstance(column, Integer | Real):
            raise DomainError(f"column {column.name!r} has no numbers")
        return column

    def split(self, values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Splits a vector (sum of ``sizes``,) by column."""
        return np.split(values, np.cumsum(self.sizes)[:-1])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rows:
    """Rows of a silo's table.

    ``x`` (rows, n_c) is scaled, NaN where ``special`` (rows, n_c) has a number of ``specials`` instead of -1; ``codes``
    (rows, n_d) are those of the discrete columns.
    """

    x: Floats
    special: NDArray[np.int32]
    codes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"Rows({len(self)})"


def specials(column: Continuous) -> tuple[float | str | None, ...]:
    """Returns the further components of a continuous column: atoms ascending, marks, None if values may be missing."""
    missing: tuple[None, ...] = (None,) if column.missing else ()
    return (*sorted(map(float, column.atoms)), *column.marks, *missing)


def rows_of(
    layout: Layout,
    frame: TextTable | pd.DataFrame,
    *,
    source: str | Path = "table",
    ignore_extra: bool = False,
) -> Rows:
    """Returns a table of text as rows. Raises ``DataError`` as ``mechanisms.table.encode`` does."""
    table = TextTable.of(frame)
    codes = encode(layout.domain, table, source=source, ignore_extra=ignore_extra)
    x = np.full((len(table), len(layout.continuous)), np.nan)
    special = np.full(x.shape, -1, np.int32)
    for j, i in enumerate(layout.continuous):
        column = layout.number(j)
        special[:, j] = _special_of(column, codes[:, i])
        here = special[:, j] < 0
        values = _numbers(column, table.columns[column.name], here)
        x[here, j] = scaled(column, values)
    return Rows(x, special, codes[:, list(layout.discrete)])


def scaled(column: Continuous, values: Floats) -> Floats:
    """Returns values (any shape) as places between the column's bounds, cut to [0, 1]; logarithmic on a log scale."""
    if column.scale == "log":
        places = np.log(values / column.low) / math.log(column.high / column.low)
    else:
        places = (values - column.low) / (column.high - column.low)
    return np.clip(places, 0.0, 1.0)


def unscaled(column: Continuous, x: Floats) -> Floats:
    """Returns values from places: the inverse of ``scaled``."""
    if column.scale == "log":
        return np.asarray(column.low * (column.high / column.low) ** x)
    return np.asarray(column.low + x * (column.high - column.low))


def _has_mixture(column: Column, components: int) -> bool:
    # A column of atoms alone has no value between them that a mixture could draw.
    if not isinstance(column, Integer | Real) or not column.cells.bins:
        return False
    return isinstance(column, Real) or column.values > components


def _check_bounds(column: Column) -> None:
    if isinstance(column, Integer | Real) and not math.isfinite(
        float(column.high) - float(column.low)
    ):
        raise DomainError(f"column {column.name!r}: low and high are too far apart")


def _special_of(column: Continuous, codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the further component of each code, -1 for numbers of bins."""
    table = np.full(column.size, -1, np.int32)
    # Atoms have their codes in ascending order, as `specials` has them.
    for place, code in enumerate(sorted(column.cells.atoms.values())):
        table[code] = place
    # Marks and the missing one have the last codes.
    others = len(column.marks) + column.missing
    table[column.size - others :] = len(column.atoms) + np.arange(others)
    return table[codes]


def _numbers(column: Continuous, written: Sequence[str], here: NDArray[np.bool_]) -> Floats:
    """Returns the numbers of the rows that have one (``here``), as the column rounds them."""
    texts = [text for text, has in zip(written, here.tolist(), strict=True) if has]
    read = {text: number_of(column, text) for text in dict.fromkeys(texts)}
    return np.array([read[text] for text in texts], np.float64)
