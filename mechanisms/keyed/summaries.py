"""Summaries of a person's rows in one table: its last value, the mean of its numbers, whether any row is of a kind.

A summary is a column of the view of persons, so that a question about it has the noise of one row of a person, however
many rows there are: ``stays.last.ward``, ``stays.mean.weight``, ``stays.any.operated``. All values here are public but
those that are summarised.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from mechanisms.column_reading import check_keys
from mechanisms.column_values import nearest_of, number_text, numbers_in
from mechanisms.columns import Categorical, Column, Moment
from mechanisms.constraints.conjunction import ColumnTest, read_tests, sets_of
from mechanisms.domain import Domain
from mechanisms.errors import DomainError
from mechanisms.numbers import Integer, Real
from mechanisms.table_keys import REQUIRED, TableKey, required_of

LAST, MEAN, ANY = KINDS = ("last", "mean", "any")
YES, NO = "yes", "no"
_KIND = {kind: TableKey("text", "Kind of the summary.", REQUIRED, (kind,)) for kind in KINDS}
SUMMARY_KEYS: Mapping[str, Mapping[str, TableKey]] = {
    LAST: {
        "kind": _KIND[LAST],
        "column": TableKey("text", "Column of which the last value is taken.", REQUIRED),
    },
    MEAN: {
        "kind": _KIND[MEAN],
        "column": TableKey("text", "Column of which the mean is taken.", REQUIRED),
    },
    ANY: {
        "kind": _KIND[ANY],
        "name": TableKey("text", "Name of the summary.", REQUIRED),
        "where": TableKey("text", "Tests, joined by `and`, that a row satisfies.", REQUIRED),
    },
}
"""Keys of the ``[[table.summary]]`` tables of a configuration, by kind."""
_OPPOSITE = {"=": "!=", "<": ">=", "<=": ">", "in": "not in"}
_OPPOSITE |= {opposite: operator for operator, opposite in _OPPOSITE.items()}
Cells: TypeAlias = Sequence[str | None] | NDArray[np.object_]
"""A column's values as text, None for a missing one."""
_Column = TypeVar("_Column", bound=Column)


@dataclass(frozen=True, slots=True)
class Summary:
    """One summary: its ``kind``, and the column that it is of or, for ``any``, its name.

    ``where`` is the condition of ``any`` as text, as constraints have it, ``ward = surgery and days > 3``: the summary
    is "yes" for a person with a row that satisfies all of it. A mean is of the numbers that are there, as the nearest
    value of the column.
    """

    kind: str
    name: str
    where: str = ""

    @property
    def column(self) -> str:
        """Name of its column in the view of persons, without the table."""
        return f"{self.kind}.{self.name}"

    @property
    def said(self) -> str:
        """The summary in words."""
        return {LAST: "last", MEAN: "mean of a person's", ANY: "some row is"}[
            self.kind
        ] + f" {self.name}"

    def tests(self, columns: Mapping[str, Column]) -> tuple[ColumnTest, ...]:
        """Returns the tests of an ``any``. Raises ``DomainError`` for one that does not fit the columns."""
        where = f"summary {self.column!r}"
        tests = read_tests(where, self.where)
        if unknown := [test.column for test in tests if test.column not in columns]:
            raise DomainError(
                f"{where}: no column {unknown[0]!r}; the columns are {', '.join(columns)}"
            )
        if never := [
            name for name, held in sets_of(where, tests, columns).items() if held.is_empty
        ]:
            raise DomainError(
                f"{where}: no value of {never[0]!r} satisfies it; expected {columns[never[0]].allowed}"
            )
        return tests

    def to_dict(self) -> dict[str, object]:
        """Returns the ``[[table.summary]]`` of a configuration."""
        if self.kind == ANY:
            return {"kind": self.kind, "name": self.name, "where": self.where}
        return {"kind": self.kind, "column": self.name}

    @classmethod
    def from_dict(cls, where: str, table: object) -> Summary:
        """Reads one. Raises ``DomainError``."""
        if not isinstance(table, Mapping) or table.get("kind") not in KINDS:
            given = table.get("kind") if isinstance(table, Mapping) else table
            raise DomainError(f"{where}: kind = {given!r}; expected one of {', '.join(KINDS)}")
        kind = str(table["kind"])
        keys = required_of(SUMMARY_KEYS[kind])
        check_keys(where, table, required=keys, optional=set())
        texts = {key: table[key] for key in sorted(keys - {"kind"})}
        if wrong := [key for key, text in texts.items() if not isinstance(text, str) or not text]:
            raise DomainError(f"{where}: {wrong[0]} = {texts[wrong[0]]!r}; expected a text")
        if kind == ANY:
            return cls(kind, str(table["name"]), str(table["where"]))
        return cls(kind, str(table["column"]))


def summary_column(domain: Domain, summary: Summary, name: str) -> Column:
    """Returns the column of a summary of a table's rows, called ``name``."""
    if summary.kind == ANY:
        return Categorical(name, (YES, NO))
    column = domain.columns[domain.index(summary.name)]
    if summary.kind == LAST or isinstance(column, Categorical | Moment):
        return _named(column, name)
    return _named(replace(column, marks=(), missing=column.missing or bool(column.marks)), name)


def _named(column: _Column, name: str) -> _Column:
    return replace(column, name=name)


def check_summary(summary: Summary, own: Mapping[str, Column], changing: Collection[str]) -> None:
    """Raises ``DomainError`` unless a table has such a summary.

    ``own`` are the columns that are not copied from the person's, ``changing`` those that may differ between rows.
    """
    if summary.kind == ANY:
        summary.tests(own)
        return
    if summary.name not in changing:
        raise DomainError(
            f"{summary.kind} of {summary.name!r}, which never differs among a person's rows, or is not a column; "
            + (
                f"expected one of {', '.join(changing)}"
                if changing
                else "no column does, so expected no summary"
            )
        )
    column = own[summary.name]
    if summary.kind == MEAN and not isinstance(column, Integer | Real):
        raise DomainError(
            f"{MEAN} of {summary.name!r}, which has no numbers; expected a column of numbers"
        )


def summarised(
    domain: Domain,
    summary: Summary,
    cells: Mapping[str, Sequence[str | None]],
    *,
    persons: Sequence[Sequence[int]],
) -> list[str | None]:
    """Returns a summary of each person's rows, which are at least one and in order; None for a missing value.

    ``cells`` are the table's columns as text, None for missing values.
    """
    if summary.kind == LAST:
        values = cells[summary.name]
        return [values[rows[-1]] for rows in persons]
    if summary.kind == ANY:
        columns = {column.name: column for column in domain.columns}
        held = rows_where(domain, summary.tests(columns), cells, where=summary.column)
        return [YES if any(held[row] for row in rows) else NO for rows in persons]
    column = domain.columns[domain.index(summary.name)]
    numbers, nearest = numbers_in(column, cells[summary.name]), nearest_of(column)
    found = list[str | None]()
    for rows in persons:
        known = [n for row in rows if (n := numbers[cells[summary.name][row]]) is not None]
        if not known:
            found.append(None)
            continue
        # Exactly rounded: what `sum` returns depends on Python's version, and audits draw rows again.
        mean = math.fsum(known) / len(known)
        near = round(mean) if isinstance(column, Integer) else mean
        found.append(number_text(column, nearest(near)))
    return found


def rows_where(
    domain: Domain, tests: Sequence[ColumnTest], cells: Mapping[str, Cells], *, where: str
) -> NDArray[np.bool_]:
    """Returns the rows (rows,) of a table that satisfy all tests; a missing value satisfies none.

    ``where`` names the tests in errors. Raises ``DomainError`` for a test that does not fit its column.
    """
    columns = {column.name: column for column in domain.columns}
    held = np.ones(len(next(iter(cells.values()), ())), np.bool_)
    for name, values in sets_of(where, tests, columns).items():
        known = np.fromiter((text is not None for text in cells[name]), np.bool_, len(held))
        there = [text if text is not None else "" for text in cells[name]]
        held &= known & values.holds(there, domain.missing_values)
    return held


def summaries_domain(domain: Domain, summaries: Sequence[Summary]) -> Domain:
    """Returns the summaries of a table's rows, as columns."""
    columns = (summary_column(domain, summary, summary.column) for summary in summaries)
    return Domain(tuple(columns), domain.missing_values)


def opposite(test: ColumnTest) -> ColumnTest:
    """Returns the test that values satisfy which do not satisfy this one; missing values satisfy neither."""
    return ColumnTest(test.column, _OPPOSITE[test.operator], test.values)
