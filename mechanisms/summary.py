"""A table as its owner sees it before anything of it is sent: what is in each column, in the table's own values.

Provides ``summarise`` and ``ColumnSummary``. SECRET: all of it. It is made where the table is, for the eyes of who has
the table, and is no part of anything that is sent, recorded or reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from mechanisms.column_values import number_of
from mechanisms.domain import Categorical, Column, Domain, Moment
from mechanisms.numbers import Integer, Real

MOST_FREQUENT = 3


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """One column: how many values are ``missing``, and how many ``distinct`` ones there are besides.

    ``low`` and ``high`` as they are written, where values have an order (else None); ``frequent`` are the commonest
    categories with their rows, where they have none, or the marks that stand among them.
    """

    name: str
    kind: str
    missing: int
    distinct: int
    low: str | None = None
    high: str | None = None
    frequent: tuple[tuple[str, int], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def summarise(domain: Domain, values: Callable[[str], Iterable[str]]) -> tuple[ColumnSummary, ...]:
    """The columns of the domain in a table that fits it (``mechanisms.table.encode`` raises for one that does not).

    ``values`` gives a column's, by its name, as they are written.
    """
    return tuple(_summary(domain, column, values(column.name)) for column in domain.columns)


def _summary(domain: Domain, column: Column, values: Iterable[str]) -> ColumnSummary:
    counts = Counter(values)
    absent = [v for v in counts if column.code_of(v) is None and v in domain.missing_values]
    missing = sum(counts.pop(value) for value in absent)
    marks = () if isinstance(column, Categorical) else column.marks
    marked = tuple((mark, counts.pop(mark)) for mark in marks if mark in counts)
    if not counts:
        return ColumnSummary(column.name, column.kind, missing, 0, frequent=marked)
    if isinstance(column, Integer | Real | Moment):
        ordered = sorted(counts, key=lambda value: _place(column, value))
        return ColumnSummary(
            column.name, column.kind, missing, len(counts), ordered[0], ordered[-1], marked
        )
    commonest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_FREQUENT]
    return ColumnSummary(column.name, column.kind, missing, len(counts), frequent=tuple(commonest))


def _place(column: Integer | Real | Moment, value: str) -> float:
    """Where a value stands among the others of its column."""
    return float(number_of(column, value))
