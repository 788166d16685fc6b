"""Columns that follow from others by a formula: they are computed in every row, and not modelled.

Columns and formulas are public; texts of an owner's table are secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Column
from mechanisms.constraints.formula import Born, Formula, Texts, Years
from mechanisms.constraints.values import check_exact, numbers_in, texts_in, writer_of


@dataclass(frozen=True, slots=True)
class Derived:
    """A column that ``formula`` computes; ``column`` is its description, of which bounds and bins are not used.

    ``position`` is the column's place among all columns, from 0. Raises ``DomainError`` for a formula that gives no
    such value; see ``check``.
    """

    column: Column
    formula: Formula
    position: int

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the columns that it follows from."""
        return self.formula.parts

    def check(self, where: str, columns: Mapping[str, Column]) -> None:
        """Raises ``DomainError`` unless the formula gives values of the column's kind from ``columns``."""
        self.formula.check(where, self.column, columns)

    def texts(
        self, columns: Mapping[str, Column], texts: Texts, missing: Sequence[str]
    ) -> NDArray[np.object_]:
        """Returns the column's values (rows,) as it writes them, a missing one where a part has no number."""
        column = check_exact(self.name, self.column)
        found = self.formula.numbers(column, columns, texts, missing=missing)
        written = np.full(len(found.values), next(iter(missing), ""), object)
        written[found.there] = texts_in(column, found.values[found.there].tolist())
        return written

    def contradictions(
        self, columns: Mapping[str, Column], texts: Texts, missing: Sequence[str]
    ) -> dict[int, str]:
        """Returns the rows in which the column's own value is another one, with what would be right.

        Rows in which one of the values is missing contradict nothing.
        """
        column = check_exact(self.name, self.column)
        if isinstance(self.formula, Born):
            return self._wrong_births(self.formula, columns, texts, missing=missing)
        right = self.formula.numbers(column, columns, texts, missing=missing)
        own = numbers_in(column, texts[self.name], missing)
        wrong = right.there & own.there & np.asarray(right.values != own.values, np.bool_)
        write = writer_of(column)
        said: dict[int, str] = {}
        for row in np.flatnonzero(wrong):
            try:
                text = write(int(right.values[row]))
            except (ValueError, OverflowError):
                text = "no value that can be written"
            said[int(row)] = f"is not {self.formula}, which is {text}"
        return said

    def _wrong_births(
        self, formula: Born, columns: Mapping[str, Column], texts: Texts, *, missing: Sequence[str]
    ) -> dict[int, str]:
        """Returns the rows in which a day of birth gives another age."""
        every = {**columns, self.name: self.column}
        age = check_exact(formula.age, columns[formula.age])
        years = Years(self.name, formula.on, True).numbers(age, every, texts, missing=missing)
        own = numbers_in(age, texts[formula.age], missing)
        wrong = years.there & own.there & np.asarray(years.values != own.values, np.bool_)
        return {
            int(row): f"is no {str(formula).removeprefix('a ')}: it gives {years.values[row]} years"
            for row in np.flatnonzero(wrong)
        }
