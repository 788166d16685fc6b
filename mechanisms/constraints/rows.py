"""Values of synthetic rows that satisfy all relations: ``settle`` draws them again within their cells until they do.

All values here are public, as they are drawn from a released model.
Exactness: values are drawn again as often as ``_ATTEMPTS`` times, so that they have the distribution of their cells
given the relations. For what is left values that satisfy all relations are constructed
(`mechanisms.constraints.solving`).
Relations with common columns may contradict one another within a cell, though each by itself allows it. Where they have
too many cells for one structural zero, such a row becomes a copy of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mechanisms.columns import Column
from mechanisms.constraints.relations import Relation
from mechanisms.constraints.solving import Solver
from mechanisms.constraints.values import numbers_in
from mechanisms.errors import EstimationError
from mechanisms.sampling import PublicGenerator

_ATTEMPTS = 16
"""Draws of a value within its cell before it is constructed; a draw of two ordered values succeeds half of the time."""
Drawn: TypeAlias = dict[str, NDArray[np.object_]]
Draw: TypeAlias = Callable[[str, NDArray[np.int32]], NDArray[np.object_]]
"""Draws a text for each code of the column with a name."""


def settle(
    relations: Sequence[Relation],
    columns: Sequence[Column],
    codes: NDArray[np.int32],
    *,
    texts: Drawn,
    draw: Draw,
    missing: Sequence[str],
    generator: PublicGenerator,
    given: Mapping[str, NDArray[np.bool_]] | None = None,
    limited: Collection[str] = (),
) -> None:
    """Changes ``texts`` (rows,) of related columns, in place, until all rows satisfy all ``relations``.

    Texts of a column that are ``given`` (rows,) stay as they are, where the others can be changed instead; values of a
    ``limited`` column, which ``draw`` limits to a part of its cells, are drawn and not constructed.

    Texts stay those of ``codes`` (rows, columns), except in rows whose codes cannot satisfy them: those become copies
    of other rows, in ``codes`` and ``texts``. Raises ``EstimationError`` if no row satisfies them.
    """
    stays = given or {}
    work = _Rows(relations, columns, codes, texts=texts, missing=missing)
    bad = work.bad(np.arange(len(codes)))
    for _ in range(_ATTEMPTS):
        if not len(bad):
            return
        for name in work.names_of(bad):
            rows = bad[work.involves(name, bad)]
            rows = rows[~stays[name][rows]] if name in stays else rows
            texts[name][rows] = draw(name, codes[rows, work.index[name]])
        bad = work.bad(bad)
    if len(bad):
        work.construct(bad, generator, given=stays, limited=limited)
        work.replace(work.bad(bad), generator)


class _Rows:
    """Codes and texts of rows, and the relations that they satisfy or not."""

    def __init__(
        self,
        relations: Sequence[Relation],
        columns: Sequence[Column],
        codes: NDArray[np.int32],
        *,
        texts: Drawn,
        missing: Sequence[str],
    ) -> None:
        self._relations = relations
        self._columns: Mapping[str, Column] = {column.name: column for column in columns}
        self.index = {column.name: i for i, column in enumerate(columns)}
        self._codes, self._texts, self._missing = codes, texts, missing
        self._violated: list[NDArray[np.bool_]] = []

    def bad(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Returns those of ``rows`` that contradict a relation."""
        self._violated = [
            relation.violated(
                self._columns,
                {name: self._texts[name][rows].tolist() for name in relation.columns},
                self._missing,
            )
            for relation in self._relations
        ]
        wrong = np.zeros(len(rows), np.bool_)
        for violated in self._violated:
            wrong |= violated
        self._violated = [violated[wrong] for violated in self._violated]
        return rows[wrong]

    def names_of(self, bad: NDArray[np.intp]) -> list[str]:
        """Returns the columns of the relations that some of the last ``bad`` rows contradict."""
        pairs = zip(self._relations, self._violated, strict=True)
        return list(dict.fromkeys(n for r, wrong in pairs if wrong.any() for n in r.columns))

    def involves(self, name: str, bad: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Returns which of the last ``bad`` rows contradict a relation of the column ``name``."""
        found = np.zeros(len(bad), np.bool_)
        for relation, wrong in zip(self._relations, self._violated, strict=True):
            if name in relation.columns:
                found |= wrong
        return found

    def construct(
        self,
        bad: NDArray[np.intp],
        generator: PublicGenerator,
        *,
        given: Mapping[str, NDArray[np.bool_]],
        limited: Collection[str],
    ) -> None:
        """Writes values into the last ``bad`` rows that satisfy all relations, where their cells have such values.

        Columns whose relations a row satisfies keep their values where that is possible; given and limited ones always.
        """
        solver = Solver(self._relations, self._columns)
        numbers = {
            name: numbers_in(column, self._texts[name][bad].tolist(), self._missing)
            for name, column in solver.ordered.items()
        }
        violated = np.array(self._violated)
        for i, row in enumerate(bad.tolist()):
            codes = {name: int(self._codes[row, self.index[name]]) for name in solver.names}
            wrong = [r for r, found in zip(self._relations, violated[:, i], strict=True) if found]
            stay = {*limited, *(name for name, rows in given.items() if rows[row])}
            moved = {name for relation in wrong for name in relation.columns} - stay
            kept = {n: of.values[i] for n, of in numbers.items() if n not in moved and of.there[i]}
            for name, text in solver.values(codes, generator, kept=kept).items():
                if name not in stay:
                    self._texts[name][row] = text

    def replace(self, bad: NDArray[np.intp], generator: PublicGenerator) -> None:
        """Makes the rows ``bad`` copies of others, drawn at random."""
        good = np.setdiff1d(np.arange(len(self._codes)), bad)
        if len(bad) and not len(good):
            raise EstimationError(
                "no drawn row satisfies all constraints at once; expected constraints that agree with one another"
            )
        chosen = generator.choice(good, len(bad)) if len(bad) else bad
        self._codes[bad] = self._codes[chosen]
        for values in self._texts.values():
            values[bad] = values[chosen]
