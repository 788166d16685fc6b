"""Reading tables: text files, Parquet, Excel, and queries to a database.

Provides ``read_text``, ``read_table`` for those who have pandas, and ``as_text``. What a file is its name says:
``.csv``, ``.tsv`` or ``.txt``, each with ``.gz`` or without; ``.parquet``; ``.xlsx`` (the first sheet). With ``sql``
the location is a database's URL.

Secret: the table, at its owner, and the password that a URL may hold: no message has it.

Representation: strings, and each row's line in the file (its number where there are no lines). Numbers, dates and the
like of typed sources become what a CSV file would have: shortest decimals, ISO 8601, True and False; what is null
becomes "". Limits: a table has to fit into memory.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mechanisms.dialect import TAB, Dialect, Row, decode_text, parse_rows
from mechanisms.errors import DataError
from mechanisms.extras import extra_module
from mechanisms.source import TableSource
from mechanisms.text_table import TextTable

if TYPE_CHECKING:
    import pandas as pd

_SEVERAL_RAGGED = 10
_NULLS = ("NAType", "NaTType")
"""Types of what pandas has for missing values, besides None and NaN."""
_WHOLE_FLOATS = 2**53


def read_text(source: str | Path | TableSource) -> TextTable:
    """The rows of a table as strings, with their lines in the file.

    Blanks around values and empty lines are dropped; every other value stays as written, but for decimal commas.

    Raises: ``DataError`` if the table cannot be read, is not of its kind, names a column twice,
    or has a row of another length than the header. A header alone is a table without rows.
    """
    return read_recognised(source)[0]


def read_table(source: str | Path | TableSource) -> pd.DataFrame:
    """As ``read_text``, as a DataFrame of strings that is indexed by lines."""
    return read_text(source).frame()


def read_recognised(source: str | Path | TableSource) -> tuple[TextTable, str]:
    """As ``read_text``; and in words how the table was found to be written."""
    if not isinstance(source, TableSource):
        source = TableSource(str(source))
    if source.sql is not None:
        return _read_database(source)
    path = Path(source.location)
    if path.suffix in (".parquet", ".pq"):
        return _read_parquet(path), "Parquet"
    if path.suffix in (".xlsx", ".xlsm"):
        return _read_excel(path)
    if path.suffix in (".xls", ".ods"):
        raise DataError(f"{path}: {path.suffix} is not read here; save it as .xlsx or .csv")
    return _read_text(path, source.dialect)


def _read_text(path: Path, dialect: Dialect) -> tuple[TextTable, str]:
    if path.suffixes[-2:-1] == [".tsv"] or path.suffix == ".tsv":
        dialect = replace(dialect, delimiter=dialect.delimiter or TAB)
    try:
        text, encoding = decode_text(_content(path), dialect.encoding)
        if "\0" in text:
            raise DataError(f"{path}: is not a text table; .csv, .tsv, .parquet and .xlsx are read")
        rows, found = parse_rows(text, dialect)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path}: cannot be read: {reason}") from error
    except UnicodeError as error:
        expected = (dialect.encoding or "text").upper()
        raise DataError(
            f"{path}: is not {expected} text; give its --encoding, or save the table as UTF-8"
        ) from error
    except csv.Error as error:
        raise DataError(f"{path}, {error}; is every quote closed?") from error
    return _frame(str(path), rows), str(replace(found, encoding=encoding))


def _content(path: Path) -> bytes:
    if path.suffix == ".gz":
        with gzip.open(path) as stream:
            return stream.read()
    return path.read_bytes()


def _frame(where: str, rows: Sequence[Row], unit: str = "line") -> TextTable:
    """A table whose first row is its header."""
    if not rows:
        raise DataError(f"{where}: is empty; a header row is needed")
    header = rows[0][1]
    _check_header(where, rows[0][0], header)
    ragged = [(line, len(row)) for line, row in rows if len(row) != len(header)]
    if ragged:
        line, found = ragged[0]
        lines = ", ".join(str(line) for line, _ in ragged[:_SEVERAL_RAGGED])
        more = f" ({len(ragged)} such lines: {lines}{', ...' * (len(ragged) > _SEVERAL_RAGGED)})"
        raise DataError(
            f"{where}, line {line}: {found} values; the header has {len(header)} columns"
            + (more if len(ragged) > 1 else "")
        )
    columns = zip(*(row for _, row in rows[1:]), strict=True) if rows[1:] else [()] * len(header)
    return TextTable(dict(zip(header, columns, strict=True)), [line for line, _ in rows[1:]], unit)


def _check_header(where: str, line: int, header: Sequence[str]) -> None:
    for position, name in enumerate(header, start=1):
        if not name:
            raise DataError(f"{where}, line {line}: column {position} has no name")
        if name in header[: position - 1]:
            raise DataError(f"{where}, line {line}: column {name!r} appears twice")


def _read_parquet(path: Path) -> TextTable:
    parquet = extra_module("pyarrow.parquet", path)
    with _failures(str(path)):
        table = parquet.read_table(path)
        names = [str(name) for name in table.column_names]
        columns = [column.to_pylist() for column in table.columns]
    return _typed_frame(str(path), names, columns, first_line=1)


def _read_excel(path: Path) -> tuple[TextTable, str]:
    openpyxl = extra_module("openpyxl", path)
    with _failures(str(path)):
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheet = book.worksheets[0]
        rows = [(i, list(row)) for i, row in enumerate(sheet.iter_rows(values_only=True), start=1)]
        others = len(book.worksheets) - 1
        title = str(sheet.title)
        book.close()
    rows = [(i, row) for i, row in rows if any(value is not None for value in row)]
    if not rows:
        raise DataError(f"{path}: its first sheet is empty; a header row is needed")
    # Sheets often have empty columns to the right.
    width = max(i for i, value in enumerate(rows[0][1], start=1) if value is not None)
    if wider := [i for i, row in rows if any(value is not None for value in row[width:])]:
        raise DataError(
            f"{path}, line {wider[0]}: has a value to the right of the header's columns"
        )
    cells = [[*row, *[None] * width][:width] for _, row in rows]
    texts = [_texts(column) for column in zip(*cells[1:], strict=True)]
    header = [_text(value) for value in cells[0]]
    lines = [i for i, _ in rows]
    body = [list(row) for row in zip(*texts, strict=True)] if texts else []
    frame = _frame(str(path), list(zip(lines, [header, *body], strict=True)), unit="row")
    return frame, f"Excel, sheet {title!r}" + (f" ({others} others left out)" if others else "")


def _read_database(source: TableSource) -> tuple[TextTable, str]:
    sqlalchemy = extra_module("sqlalchemy", source.shown)
    with _failures(source.shown, secrets=source.secrets):
        try:
            engine = sqlalchemy.create_engine(source.location)
        except ImportError as error:
            raise DataError(
                f"{source.shown}: the driver {error.name} is not installed; pip install {error.name}"
            ) from None
        try:
            with engine.connect() as connection:
                result = connection.execute(sqlalchemy.text(source.sql))
                if not result.returns_rows:
                    raise DataError(
                        f"{source.shown}: the query returns no rows; a SELECT is needed"
                    )
                names = [str(name) for name in result.keys()]  # noqa: SIM118
                rows = [tuple(row) for row in result]
        finally:
            engine.dispose()
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]
    return _typed_frame(source.shown, names, columns, first_line=1), "a query to a database"


def _typed_frame(
    where: str, names: list[str], columns: Sequence[Sequence[object]], *, first_line: int
) -> TextTable:
    """A table without lines of a file: its rows are counted from ``first_line``."""
    texts = [_texts(column) for column in columns]
    body = [list(row) for row in zip(*texts, strict=True)]
    rows = [(0, [name.strip() for name in names])]
    rows += list(enumerate(body, start=first_line))
    return _frame(where, rows, unit="row")


def _texts(values: Sequence[object]) -> list[str]:
    """A column of typed values as text; moments that are all midnight are dates."""
    moments = [value for value in values if isinstance(value, datetime.datetime)]
    days_only = all(
        moment.tzinfo is None and moment.time() == datetime.time() for moment in moments
    )
    if moments and days_only:
        return [
            _text(value.date() if isinstance(value, datetime.datetime) else value)
            for value in values
        ]
    return [_text(value) for value in values]


def _text(value: object) -> str:
    """A typed value as a CSV file would have it."""
    if (
        value is None
        or type(value).__name__ in _NULLS
        or (isinstance(value, float) and math.isnan(value))
    ):
        return ""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | int | float | Decimal):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise DataError(
        f"a value of type {type(value).__name__} is no text, number, date or truth value; leave that column out"
    )


@contextlib.contextmanager
def _failures(where: str, *, secrets: Sequence[str] = ()) -> Iterator[None]:
    """Whatever a library says of its file or database is a ``DataError`` with its first line, without ``secrets``."""
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{where}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # noqa: BLE001  # Their trees of errors have nothing in common.
        first = str(error).strip().partition("\n")[0]
        for secret in secrets:
            first = first.replace(secret, "***")
        raise DataError(f"{where}: cannot be read: {type(error).__name__}: {first}") from None


def as_text(frame: pd.DataFrame) -> TextTable:
    """A DataFrame with columns of any types as a table of strings, rows counted from 1. Raises ``DataError``.

    Floats that are all whole are written without a point: pandas makes floats of whole numbers where some are missing.
    """
    values = [_whole(column.astype(object).tolist()) for _, column in frame.items()]
    return _typed_frame("table", [str(name) for name in frame], values, first_line=1)


def _whole(values: list[object]) -> list[object]:
    """The values, floats as whole numbers if all of them are."""
    floats = [x for x in values if isinstance(x, float) and not math.isnan(x)]
    if not all(x.is_integer() and abs(x) < _WHOLE_FLOATS for x in floats):
        return values
    return [int(x) if isinstance(x, float) and not math.isnan(x) else x for x in values]
