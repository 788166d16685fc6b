"""Reading tables: text files, Parquet, Excel and others, and queries to a database.

``read_text`` gives a ``TextTable``, ``read_table`` a DataFrame. A file's content determines its kind and its
compression (`mechanisms.unpacking`, `mechanisms.typed_files`), else its name does: ``.tsv`` has tabs. With ``sql`` the
location is a database's URL.

The table is secret, at its owner, and so is the password in a URL: no message contains it.

Representation: strings, and each row's line in the file (its number if there are no lines); `mechanisms.cell_text` has
typed cells. Limits: a table has to fit into memory.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mechanisms.cell_text import blanks_note, failures, named_table
from mechanisms.dialect import (
    TAB,
    Dialect,
    Row,
    decode_text,
    parse_rows,
    read_decimals,
)
from mechanisms.domain import Domain
from mechanisms.encodings import UnclearEncoding
from mechanisms.errors import DataError
from mechanisms.extras import extra_module
from mechanisms.header import table_of
from mechanisms.source import TableSource
from mechanisms.table import as_modelled
from mechanisms.text_format import form_of_text
from mechanisms.text_table import TextTable, named
from mechanisms.typed import number_columns
from mechanisms.typed_files import (
    EXCEL,
    OPEN_DOCUMENT,
    READERS,
    check_installed,
    frame_columns,
    kind_of,
)
from mechanisms.unpacking import Content, unpacked
from mechanisms.workbook import read_open_document, read_workbook

if TYPE_CHECKING:
    import pandas as pd


def read_text(source: str | Path | TableSource, data: bytes | None = None) -> TextTable:
    """Returns the rows of a table as strings, with their lines in the file.

    Blanks around values and empty lines are dropped; every other value stays as written, except decimal commas.
    ``data`` are the bytes of the file if they have been read.

    Raises ``DataError`` if the table cannot be read, is not of its kind, names a column twice, or has a row of another
    length than the header. A header alone is a table without rows.
    """
    return read_recognised(source, data)[0]


def read_table(source: str | Path | TableSource) -> pd.DataFrame:
    """Returns ``read_text`` as a DataFrame of strings that is indexed by lines."""
    return read_text(source).frame()


def read_recognised(
    source: str | Path | TableSource, data: bytes | None = None
) -> tuple[TextTable, str]:
    """Returns ``read_text``, and the recognised dialect or kind in words."""
    if not isinstance(source, TableSource):
        source = TableSource(str(source))
    if source.sql is not None:
        return _read_database(source)
    path = Path(source.location)
    check_installed(path)
    content = unpacked(path, source.sheet, data)
    kind = kind_of(content)
    if kind == EXCEL:
        return read_workbook(content, source.sheet, source.dialect)
    if kind == OPEN_DOCUMENT:
        return read_open_document(content, source.sheet, source.dialect)
    if kind in READERS:
        return READERS[kind](content), kind
    return _read_text(content, source.dialect)


def read_drawn(path: Path, domain: Domain) -> TextTable:
    """Returns a synthetic text table over ``domain`` as it was written, regardless of the look of its values.

    It is plain text, whatever its content looks like: nothing of it is unpacked, and no other reader sees a file that
    somebody else made. Raises ``DataError`` as ``read_text``.
    """
    form = domain.format
    try:
        content = Content(path.read_bytes(), path.name, str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    table, _ = _read_text(content, form.dialect)
    commas = number_columns(domain) if form.decimal == "," else {}
    columns = {
        name: [
            value if value in commas[name] else _plain(value, grouped=name in form.thousands)
            for value in values
        ]
        if name in commas
        else values
        for name, values in table.columns.items()
        if name not in form.columns or name in domain.written_names
    }
    drawn = replace(table, columns=columns)
    return as_modelled(domain, drawn, path)


def _plain(value: str, *, grouped: bool) -> str:
    """Returns a number with a decimal comma, and points between thousands if ``grouped``, with a point alone."""
    return (value.replace(".", "") if grouped else value).replace(",", ".")


def _read_text(content: Content, dialect: Dialect) -> tuple[TextTable, str]:
    where = content.where
    if content.name.lower().endswith(".tsv"):
        dialect = replace(dialect, delimiter=dialect.delimiter or TAB)
    try:
        text, encoding = decode_text(content.data, dialect.encoding)
    except UnicodeError as error:
        expected = (dialect.encoding or "text").upper()
        raise DataError(
            f"{where}: is not {expected} text; give its --encoding, or save the table as UTF-8"
        ) from error
    except UnclearEncoding as error:
        raise DataError(f"{where}{error.place}: {error}") from error
    try:
        rows, found, blanks = parse_rows(text, dialect)
    except csv.Error as error:
        if "\0" in text:
            _refuse_nul(where, text)
        raise DataError(f"{where}, {error}; is every quote closed?") from error
    if "\0" in text:
        _refuse_nul(where, text)
    decimal, thousands, notes = ".", list[str](), list[str]()

    def read(header: Sequence[str], body: list[Row]) -> None:
        nonlocal decimal
        dropped = blanks.below(body[0][0] if body else 0)
        notes.extend(blanks_note({header[i]: n for i, n in dropped.items() if i < len(header)}))
        decimal, places = read_decimals(body, found)
        for place, (pointed, large) in sorted(places.items()):
            if place < len(header) and pointed == large:
                thousands.append(header[place])
            elif place < len(header):
                notes.append(
                    f"column {named(header[place])}: {pointed:,} of {large:,} numbers above 999 have points between "
                    "thousands, and come back without"
                )

    table = table_of(
        where,
        rows,
        header_line=dialect.header_line,
        values_line=dialect.values_line,
        as_is=dialect.as_is,
        read=read,
    )
    found = replace(found, encoding=encoding, decimal=decimal)
    form = form_of_text(text, found)
    if form.decimal == ",":
        form = replace(form, thousands=tuple(name for name in thousands if name in table.columns))
    return replace(table, form=form, notes=(*table.notes, *notes)), str(found)


def _refuse_nul(where: str, text: str) -> None:
    """Raises ``DataError`` that names the line of the first NUL, and its place there."""
    before = text[: text.index("\0")].replace("\r\n", "\n").replace("\r", "\n")
    line, place = before.count("\n") + 1, len(before) - before.rfind("\n")
    raise DataError(
        f"{where}, line {line}: character {place} is a NUL byte, so that this is not a text table, or damaged; "
        "expected text, Parquet, Feather, JSON, Excel, OpenDocument, Stata, SPSS or SAS, or the file without such bytes"
    )


def _read_database(source: TableSource) -> tuple[TextTable, str]:
    sqlalchemy = extra_module("sqlalchemy", source.shown)
    with failures(source.shown, secrets=source.secrets):
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
    return named_table(source.shown, names, columns), "a query to a database"


def as_text(frame: pd.DataFrame) -> TextTable:
    """Returns a DataFrame with columns of any types as a table of strings, rows counted from 1.

    Floats that are all whole are written without a point: pandas turns whole numbers into floats if some are missing.
    Raises ``DataError``.
    """
    return named_table("table", [str(name) for name in frame], frame_columns(frame))
