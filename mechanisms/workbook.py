"""Workbooks of Excel and of OpenDocument: the sheet that is the table, and its rows.

The table is secret, at its owner.
Limits: of several sheets that are tables one has to be named; formulas have the values that were saved with them; of
OpenDocument a time and a duration of less than a day are one.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from mechanisms.cell_text import column_texts, failures, text, texts
from mechanisms.dialect import Dialect, Row
from mechanisms.errors import DataError
from mechanisms.extras import extra_module
from mechanisms.header import is_table, table_of
from mechanisms.text_table import TextTable
from mechanisms.unpacking import Content, check_archive

_MUCH_LARGER = 20
"""Ratio of cells to every other sheet from which a sheet is the table."""
_DURATION = re.compile(r"PT(\d+)H(\d+)M(\d+(?:\.\d+)?)S", re.ASCII)
"""A duration of a day or more, as OpenDocument has it."""
_BLANKS = "blanks at the ends of cells are dropped, and do not come back: {:,} of them"
_Cells = list[tuple[int, list[object]]]


def read_workbook(content: Content, sheet: str | None, dialect: Dialect) -> tuple[TextTable, str]:
    """Returns the table of the sheet that is one, or of the one called ``sheet``; and its name in words.

    Raises ``DataError`` as ``table_of``, and if no sheet, or several, may be the table.
    """
    openpyxl = extra_module("openpyxl", content.where)
    check_archive(content)
    with failures(content.where):
        book = openpyxl.load_workbook(io.BytesIO(content.data), read_only=True, data_only=True)
        sheets = {str(each.title): _cells(each) for each in book.worksheets}
        book.close()
    title, table, read_as = _table_of(content.where, sheets, sheet, dialect=dialect)
    table = _without(table, _unsaved(openpyxl, content, title, sheets[title]))
    return table, f"Excel, {read_as}"


def read_open_document(
    content: Content, sheet: str | None, dialect: Dialect
) -> tuple[TextTable, str]:
    """Returns the table of a workbook of OpenDocument (.ods), as ``read_workbook``."""
    calamine = extra_module("python_calamine", content.where)
    check_archive(content)
    with failures(content.where):
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(content.data))
        sheets = {name: _open_cells(book.get_sheet_by_name(name)) for name in book.sheet_names}
        book.close()
    _, table, read_as = _table_of(content.where, sheets, sheet, dialect=dialect)
    return table, f"OpenDocument, {read_as}"


def _table_of(
    where: str, sheets: dict[str, _Cells], sheet: str | None, *, dialect: Dialect
) -> tuple[str, TextTable, str]:
    """Returns the name of the sheet that is read, its table, and its name in words."""
    title = _chosen(where, sheets, sheet)
    place, cells = f"{where}, sheet {title!r}", sheets[title]
    if not cells:
        raise DataError(f"{place}: is empty; a header row is needed")
    table = table_of(
        place,
        _rows(place, cells),
        header_line=dialect.header_line,
        values_line=dialect.values_line,
        unit="row",
    )
    blanks = sum(isinstance(v, str) and v != v.strip() for _, row in cells for v in row)
    table = replace(table, notes=(*table.notes, *[_BLANKS.format(blanks)] * (blanks > 0)))
    others = len(sheets) - 1
    return title, table, f"sheet {title!r}" + (f" ({others} others left out)" if others else "")


def _open_cells(sheet: Any) -> _Cells:
    """Returns the nonempty rows, numbered from 1, with values as openpyxl has them."""
    rows = enumerate(sheet.to_python(skip_empty_area=False), start=1)
    known = [(i, list(map(_open_value, row))) for i, row in rows]
    return [(i, row) for i, row in known if any(value is not None for value in row)]


def _open_value(value: object) -> object:
    """Returns a cell's value: None for an empty one, whole numbers without a point, durations of any length."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and (found := _DURATION.fullmatch(value)):
        hours, minutes, seconds = map(float, found.groups())
        return timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return None if value == "" else value


def _cells(sheet: Any) -> _Cells:
    """Returns the nonempty rows, numbered from 1."""
    rows = [(i, list(row)) for i, row in enumerate(sheet.iter_rows(values_only=True), start=1)]
    return [(i, row) for i, row in rows if any(value is not None for value in row)]


def _chosen(where: str, sheets: dict[str, _Cells], wanted: str | None) -> str:
    names = ", ".join(repr(name) for name in sheets)
    if wanted is not None:
        if wanted not in sheets:
            raise DataError(f"{where}: has no sheet {wanted!r}; its sheets are {names}")
        return wanted
    if len(sheets) == 1:
        return next(iter(sheets))
    sizes = {
        name: sum(value is not None for _, row in cells for value in row)
        for name, cells in sheets.items()
        if is_table([(i, ["" if v is None else "x" for v in row]) for i, row in cells])
    }
    ranked = sorted(sizes, key=lambda name: -sizes[name])
    if not ranked:
        return next((name for name, cells in sheets.items() if cells), next(iter(sheets)))
    if len(ranked) > 1 and sizes[ranked[0]] < _MUCH_LARGER * sizes[ranked[1]]:
        several = ", ".join(repr(name) for name in sheets if name in sizes)
        raise DataError(f"{where}: the sheets {several} may all be the table; give --sheet NAME")
    return ranked[0]


def _rows(where: str, cells: _Cells) -> list[Row]:
    """Returns rows of one length, as text; empty columns at the sides are left out."""
    width = max(len(row) for _, row in cells)
    padded = [[*row, *[None] * (width - len(row))] for _, row in cells]
    filled = [
        i
        for i, column in enumerate(zip(*padded, strict=True))
        if any(v is not None for v in column)
    ]
    columns = []
    for i in range(filled[0], filled[-1] + 1):
        values: Sequence[object] = [row[i] for row in padded]
        columns.append(_column(where, values))
    lines = [i for i, _ in cells]
    return list(zip(lines, map(list, zip(*columns, strict=True)), strict=True))


def _column(where: str, values: Sequence[object]) -> list[str]:
    """Returns a column as text: the first words are title and header; the values below have one type."""
    above = next(
        (i for i, value in enumerate(values) if not isinstance(value, str | None)), len(values)
    )
    name = next((str(value) for value in reversed(values[:above]) if value is not None), "")
    try:
        return [*map(text, values[:above]), *texts(values[above:])]
    except TypeError:
        return column_texts(where, name, values)


def _unsaved(openpyxl: Any, content: Content, title: str, cells: _Cells) -> set[str]:
    """Returns the names of columns of formulas without saved values, as some programs write them."""
    width = max(len(row) for _, row in cells)
    body = [row for _, row in cells if sum(value is not None for value in row) * 2 >= width]
    blank = [
        i for i in range(width) if sum(i < len(row) and row[i] is not None for row in body) <= 1
    ]
    if not blank or len(body) < 2:
        return set()
    with failures(content.where):
        book = openpyxl.load_workbook(io.BytesIO(content.data), read_only=True)
        last = cells[-1][0]
        formulas = [
            i
            for row in book[title].iter_rows(min_row=last, max_row=last)
            for i, cell in enumerate(row)
            if i in blank and cell.data_type == "f"
        ]
        book.close()
    return {text(row[i]) for i in formulas for row in body if i < len(row)} - {""}


def _without(table: TextTable, names: set[str]) -> TextTable:
    """Returns the table without those columns, if they have no value, with a note on each."""
    out = [name for name in table.columns if name in names and not any(table.columns[name])]
    notes = [
        f"column {name!r} left out: it has formulas whose values were not saved; open the workbook in Excel or "
        "LibreOffice and save it if the column is to be used"
        for name in out
    ]
    columns = {name: values for name, values in table.columns.items() if name not in out}
    return replace(table, columns=columns, notes=(*table.notes, *notes))
