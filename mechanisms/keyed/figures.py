"""Figures that only tables with keys have: numbers of rows, order, and how much rows of one person have in common.

``keyed_figures`` measures tables of text, real or synthetic. Those of a real table are secret: they are for its owner,
and for trials.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from mechanisms.column_values import numbers_in
from mechanisms.columns import Categorical, Moment
from mechanisms.domain import Domain
from mechanisms.keyed.declared import ChildTable, KeyedTables
from mechanisms.keyed.summaries import Summary, summarised, summary_column
from mechanisms.keyed.views import cells_of
from mechanisms.table import as_modelled
from mechanisms.text_table import TextTable

MOST_SHARES = 12
"""Most values of a summary whose shares are figures."""


@dataclass(frozen=True, slots=True)
class WithinPersons:
    """One column of a table among rows of one person.

    ``stays`` is the share of rows with the value of the row before. Numbers have the median standard deviation within a
    person (``spread``), and the ``correlation`` with the row before; None for other columns, or too few rows.
    """

    column: str
    stays: float | None
    spread: float | None = None
    correlation: float | None = None


@dataclass(frozen=True, slots=True)
class SummaryFigures:
    """A summary of persons' rows: the ``shares`` of its values, the commonest first, or of numbers ``mean`` and
    standard ``deviation`` among persons, None without any.
    """

    summary: str
    shares: Mapping[str, float]
    mean: float | None = None
    deviation: float | None = None


@dataclass(frozen=True, slots=True)
class ChildFigures:
    """Figures of a table with several rows of a person.

    ``numbers`` is the share of persons by their number of rows, ``broken`` the number of persons with several values in
    a column that is constant, ``unordered`` that of rows before the row that they follow, ``gaps`` are quartiles of the
    distance of two rows in the order's unit. ``summaries`` are of persons with rows.
    """

    name: str
    rows: int
    numbers: Mapping[int, float]
    broken: int
    unordered: int
    gaps: tuple[float, ...]
    columns: tuple[WithinPersons, ...] = field(default=())
    summaries: tuple[SummaryFigures, ...] = field(default=())

    def to_dict(self) -> dict[str, object]:
        """Returns the figures as JSON has them."""
        return asdict(self) | {"numbers": {str(n): share for n, share in self.numbers.items()}}


def keyed_figures(tables: KeyedTables, given: Mapping[str, TextTable]) -> tuple[ChildFigures, ...]:
    """Returns figures of each table but that of persons. Rows follow one another by the order, or as they stand."""
    persons: Sequence[str] = ()
    if tables.parent.domain is not None:
        persons = given[tables.parent.name].columns[tables.parent.key]
    return tuple(
        _figures(child, tables.domain_of(child.name), given[child.name], persons=persons)
        for child in tables.children
    )


def _figures(
    child: ChildTable, domain: Domain, given: TextTable, *, persons: Sequence[str]
) -> ChildFigures:
    table = as_modelled(domain, given, child.name)
    rows = defaultdict[str, list[int]](list)
    for row, key in enumerate(table.columns[child.key]):
        rows[key].append(row)
    cells = {c.name: cells_of(domain, c, table.columns[c.name]) for c in domain.columns}
    numbers = {
        c.name: list(map(numbers_in(c, cells[c.name]).__getitem__, cells[c.name]))
        for c in domain.columns
        if not isinstance(c, Categorical)
    }
    unordered, gaps = 0, list[float]()
    if child.order is not None:
        ticks = numbers[child.order]
        for own in rows.values():
            steps = [ticks[b] - ticks[a] for a, b in itertools.pairwise(own) if _both(ticks, a, b)]  # type: ignore[operator]
            unordered += sum(step < 0 for step in steps)
            own.sort(key=lambda row: (ticks[row] is None, ticks[row] or 0))
            gaps += (ticks[b] - ticks[a] for a, b in itertools.pairwise(own) if _both(ticks, a, b))  # type: ignore[operator]
    fixed = (*child.constant, *child.copied)
    pairs = [pair for own in rows.values() for pair in itertools.pairwise(own)]
    counts = Counter(map(len, rows.values()))
    without = len(set(persons) - rows.keys())
    counts |= {0: without} if without else {}
    return ChildFigures(
        child.name,
        len(table),
        {number: counts[number] / counts.total() for number in sorted(counts)},
        sum(len({tuple(cells[n][row] for n in fixed) for row in own}) > 1 for own in rows.values()),
        unordered,
        tuple(np.quantile(gaps, [0.25, 0.5, 0.75]).tolist()) if gaps else (),
        tuple(
            _within(name, cells[name], numbers.get(name), persons=list(rows.values()), pairs=pairs)
            for name in child.changing
            if name != child.order
        ),
        tuple(_summary(domain, each, cells, list(rows.values())) for each in child.summaries),
    )


def _summary(
    domain: Domain,
    summary: Summary,
    cells: Mapping[str, Sequence[str | None]],
    persons: Sequence[Sequence[int]],
) -> SummaryFigures:
    column = summary_column(domain, summary, summary.column)
    values = summarised(domain, summary, cells, persons=persons)
    if isinstance(column, Categorical | Moment):
        counts = Counter(value for value in values if value is not None).most_common()
        total = sum(count for _, count in counts)
        return SummaryFigures(
            summary.column, {value: count / total for value, count in counts[:MOST_SHARES]}
        )
    numbers = numbers_in(column, values)
    known = [number for value in values if (number := numbers[value]) is not None]
    if not known:
        return SummaryFigures(summary.column, {})
    return SummaryFigures(summary.column, {}, float(np.mean(known)), float(np.std(known)))


def _both(ticks: Sequence[float | None], one: int, other: int) -> bool:
    return ticks[one] is not None and ticks[other] is not None


def _within(
    name: str,
    cells: Sequence[str | None],
    numbers: Sequence[float | None] | None,
    *,
    persons: Sequence[Sequence[int]],
    pairs: Sequence[tuple[int, int]],
) -> WithinPersons:
    stays = float(np.mean([cells[a] == cells[b] for a, b in pairs])) if pairs else None
    if numbers is None:
        return WithinPersons(name, stays)
    spreads = list[float]()
    for own in persons:
        known = [n for row in own if (n := numbers[row]) is not None]
        if len(known) > 1:
            spreads.append(float(np.std(known, ddof=1)))
    both = np.array(
        [(numbers[a], numbers[b]) for a, b in pairs if _both(numbers, a, b)], np.float64
    ).reshape(-1, 2)
    varies = len(both) > 2 and bool(both[:, 0].std() > 0 and both[:, 1].std() > 0)
    return WithinPersons(
        name,
        stays,
        float(np.median(spreads)) if spreads else None,
        float(np.corrcoef(both[:, 0], both[:, 1]).item(1)) if varies else None,
    )
