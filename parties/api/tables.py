"""Tables that programs have: DataFrames, and where others are.

Provides ``TableLike``, ``table_of``, ``tables_of`` and ``types_of``. Secret: the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from mechanisms.reading import as_text
from mechanisms.source import TableSource
from parties.owner import Table

if TYPE_CHECKING:
    import pandas as pd

TableLike: TypeAlias = Union["pd.DataFrame", str, Path, TableSource]
"""A DataFrame, or where a table is: a file, or with a query a database."""


def table_of(table: TableLike, *, name: str = "table", ignore_extra: bool = False) -> Table:
    """The table; a DataFrame is called ``name`` in messages. Raises DataError for values of unknown types."""
    if isinstance(table, TableSource):
        return Table(table, ignore_extra)
    if isinstance(table, str | Path):
        return Table(TableSource(str(table)), ignore_extra)
    return Table(TableSource(name), ignore_extra, as_text(table))


def tables_of(
    tables: TableLike | Mapping[str, TableLike], *, ignore_extra: bool = False
) -> Table | Mapping[str, Table]:
    """As ``table_of``; or the tables of several sources, by name."""
    if not isinstance(tables, Mapping):
        return table_of(tables, ignore_extra=ignore_extra)
    return {
        name: table_of(table, name=name, ignore_extra=ignore_extra)
        for name, table in tables.items()
    }


def types_of(table: TableLike | Mapping[str, TableLike]) -> Mapping[str, object]:
    """The types of a DataFrame's columns by name, or of several; of others none are known."""
    if isinstance(table, Mapping):
        return {name: kind for each in table.values() for name, kind in types_of(each).items()}
    if isinstance(table, str | Path | TableSource):
        return {}
    return {str(name): kind for name, kind in table.dtypes.items()}
