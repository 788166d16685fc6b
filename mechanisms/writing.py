"""Writing synthetic tables: text files, Parquet, Excel, by the same names that `mechanisms.reading` reads.

Text is in the columns' spelling and in the domain's format (`mechanisms.text_format`), a .tsv with tabs. Parquet and
Excel have values of the columns' types (`mechanisms.typed`), and null for a missing one. Columns that the format lists
and the domain leaves out are empty, or null. A written table reads back to the same codes, except for null if the
domain's spellings of missing values lack the empty one.

Nothing here is secret; tables are drawn from a released model.
Representation: a table comes in parts, which are not all in memory at once (in Excel they are).
"""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal

import pandas as pd

from mechanisms.dialect import BLANK, TAB
from mechanisms.domain import Domain
from mechanisms.errors import DataError
from mechanisms.extras import extra_module
from mechanisms.text_format import ALL, TextFormat
from mechanisms.typed import (
    ANY_DIGITS,
    DAY,
    NUMBER,
    TEXT,
    TIME,
    TRUTH,
    WHOLE,
    ValueType,
    absent_in,
    missing_columns,
    number_columns,
    typed_table,
    typed_values,
    value_types,
    with_left_out,
    written_texts,
)

EXCEL_ROWS = 1_048_575
"""Most rows of a sheet below its header."""
_FIRST_EXCEL_YEAR = 1901
_WHOLE = re.compile(r"-?\d+", re.ASCII)
_EXCEL_PART = 10_000
_FORMS = ".csv, .tsv (either with .gz), .parquet and .xlsx"


@dataclass(frozen=True, slots=True)
class TableForm:
    """A kind of file: ``write`` takes its path, the table's parts and the domain; ``most`` is its largest row count."""

    write: Callable[[Path, Iterable[pd.DataFrame], Domain], None]
    most: int | None = None


def form_of(path: Path) -> TableForm:
    """Returns the kind of file by a name's ending. Raises ``DataError`` for other endings and missing libraries."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    ending = next(iter(suffixes[-2:] if packed else suffixes[-1:]), "")
    if ending in (".csv", ".tsv"):
        return _text_form(None if ending == ".csv" else TAB, packed=packed)
    if not packed and ending in (".parquet", ".pq"):
        extra_module("pyarrow", path)
        return TableForm(_write_parquet)
    if not packed and ending == ".xlsx":
        extra_module("openpyxl", path)
        return TableForm(_write_excel, EXCEL_ROWS)
    raise DataError(f"{path}: tables are written as {_FORMS}; expected such an ending")


def write_rows(path: Path, frames: Iterable[pd.DataFrame], domain: Domain, form: TableForm) -> None:
    """Writes a table of text, in parts that have the same columns, into the file ``path``.

    Raises ``OSError``, and ``DataError`` for a value that the form cannot hold.
    """
    form.write(path, frames, domain)


def text_bytes(frame: pd.DataFrame, domain: Domain) -> bytes:
    """Returns a table of text as the bytes of a file in the domain's format."""
    raw = io.BytesIO()
    _write_text(raw, (frame,), domain, domain.format)
    return raw.getvalue()


def _text_form(delimiter: str | None, *, packed: bool) -> TableForm:
    """Returns text in the domain's format, with another ``delimiter`` if the file's name asks for it."""

    def write(path: Path, frames: Iterable[pd.DataFrame], domain: Domain) -> None:
        form = domain.format
        if delimiter is not None and form.delimiter != delimiter:
            form = replace(form, delimiter=delimiter)
        with _file(path, packed=packed) as raw:
            _write_text(raw, frames, domain, form)

    return TableForm(write)


def _write_text(
    raw: IO[bytes], frames: Iterable[pd.DataFrame], domain: Domain, form: TextFormat
) -> None:
    quoting: Literal[0, 1] = csv.QUOTE_ALL if _needs_quotes(domain, form) else csv.QUOTE_MINIMAL
    commas = number_columns(domain) if form.decimal == "," else {}
    text = io.TextIOWrapper(raw, encoding=form.encoding, newline="")
    for number, frame in enumerate(frames):
        if commas:
            frame = frame.assign(
                **{
                    name: [
                        text if text in marks else _with_comma(text, grouped=name in form.thousands)
                        for text in frame[name]
                    ]
                    for name, marks in commas.items()
                }
            )
        if form.columns:
            frame = frame.reindex(columns=list(form.columns), fill_value="")
        frame.to_csv(
            text,
            sep=form.delimiter,
            index=False,
            header=number == 0,
            lineterminator=form.newline,
            quotechar=form.quote,
            quoting=quoting,
        )
    text.flush()
    text.detach()


def _with_comma(text: str, *, grouped: bool) -> str:
    """Returns a number with a decimal comma; ``grouped`` if points stand between thousands."""
    whole, point, fraction = text.partition(".")
    if grouped and _WHOLE.fullmatch(whole):
        whole = f"{int(whole):,}".replace(",", ".") if int(whole) else whole
    return f"{whole},{fraction}" if point else whole


def _needs_quotes(domain: Domain, form: TextFormat) -> bool:
    """Returns whether every value is quoted: as in the real table, or so that all values can be read back.

    Empty values between blanks, and line ends other than the format's, need quotes.
    """
    if form.quoting == ALL or (form.delimiter == BLANK and missing_columns(domain)):
        return True
    others = {"\r", "\n"}.difference(form.newline)
    return any(others.intersection(text) for text in written_texts(domain))


@contextmanager
def _file(path: Path, *, packed: bool) -> Iterator[IO[bytes]]:
    """Opens a file; the same rows make the same bytes, so a packed file contains no time and no name."""
    with path.open("wb") as raw:
        if not packed:
            yield raw
            return
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as inner:
            yield inner  # type: ignore[misc]


def _write_parquet(path: Path, frames: Iterable[pd.DataFrame], domain: Domain) -> None:
    arrow, parquet = extra_module("pyarrow", path), extra_module("pyarrow.parquet", path)
    types = value_types(domain)
    schema = arrow.schema(
        arrow.field(name, _arrow_type(arrow, types[name]), nullable=bool(absent_in(domain, name)))
        if name in types
        else arrow.field(name, arrow.string())
        for name in domain.header
    )
    with parquet.ParquetWriter(path, schema) as writer:
        for frame in frames:
            typed = with_left_out(domain, typed_table(domain, frame))
            writer.write_table(arrow.Table.from_pandas(typed, schema, preserve_index=False))


def _arrow_type(arrow: ModuleType, kind: ValueType) -> object:
    zone = {"": None, "Z": "UTC"}.get(kind.zone, kind.zone.strip("[]"))
    return {
        TEXT: arrow.string(),
        WHOLE: arrow.int64(),
        NUMBER: arrow.float64(),
        TRUTH: arrow.bool_(),
        DAY: arrow.date32(),
        TIME: arrow.timestamp("us", zone),
    }[kind.kind]


def _write_excel(path: Path, frames: Iterable[pd.DataFrame], domain: Domain) -> None:
    openpyxl = extra_module("openpyxl", path)
    for text in (*domain.header, *written_texts(domain)):
        if openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE.search(text):
            raise DataError(f"{path}: {text!r} has a character that Excel does not take")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("synthetic")
    sheet.append([_excel_cell(sheet, ValueType(TEXT), name) for name in domain.header])
    for frame in frames:
        for start in range(0, len(frame), _EXCEL_PART):
            for row in _excel_rows(sheet, frame[start : start + _EXCEL_PART], domain):
                sheet.append(row)
    book.save(path)


def _excel_rows(sheet: Any, frame: pd.DataFrame, domain: Domain) -> Iterator[tuple[object, ...]]:
    types, columns = value_types(domain), list[list[object]]()
    for name in domain.header:
        if name not in types:
            columns.append([None] * len(frame))
            continue
        values = typed_values(types[name], frame[name], absent_in(domain, name))
        columns.append([_excel_cell(sheet, types[name], value) for value in values])
    return zip(*columns, strict=True)


def _excel_cell(sheet: Any, kind: ValueType, value: object | None) -> object:
    """Returns a cell in the column's form; text stays text, even if it begins as a formula does.

    Excel knows neither time zones nor days before 1900: such moments are text.
    """
    if isinstance(value, datetime.date) and (kind.zone or value.year < _FIRST_EXCEL_YEAR):
        value = value.isoformat()
    cell = extra_module("openpyxl", "cells").cell.WriteOnlyCell(sheet, value)
    if isinstance(value, str):
        cell.data_type = "s"
    elif kind.kind == NUMBER:
        decimals = "0." + "0" * kind.places if kind.places else "0"
        cell.number_format = "General" if kind.places == ANY_DIGITS else decimals
    elif kind.kind == TIME:
        cell.number_format = "yyyy-mm-dd hh:mm:ss"
    elif kind.kind == DAY:
        cell.number_format = "yyyy-mm-dd"
    return cell
