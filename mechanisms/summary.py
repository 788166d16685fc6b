"""Summary of a table for its owner before anything is sent: the contents of each column, in the table's own values.

All values here are SECRET. The summary is made on the owner's machine, for the owner's eyes, and is no part of anything
that is sent, recorded or reported.
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
    """One column: the number of ``missing`` values, and of ``distinct`` ones besides.

    ``low`` and ``high`` are as written, if values have an order (else None). ``frequent`` are the commonest categories
    with their rows if there is no order, else the marks among the values.
    """

    name: str
    kind: str
    missing: int
    distinct: int
    low: str | None = None
    high: str | None = None
    frequent: tuple[tuple[str, int], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Returns a dictionary for JSON."""
        return asdict(self)


def summarise(domain: Domain, values: Callable[[str], Iterable[str]]) -> tuple[ColumnSummary, ...]:
    """Summarises the domain's columns in a table that fits it (``mechanisms.table.encode`` raises for others).

    ``values`` gives a column's values, by its name, as they are written.
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
    """Returns the place of a value in the order of its column."""
    return float(number_of(column, value))
