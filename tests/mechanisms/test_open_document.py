"""Workbooks of OpenDocument (.ods), as LibreOffice writes them."""

import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from mechanisms.dialect import Dialect
from mechanisms.errors import DataError
from mechanisms.reading import read_recognised, read_text
from mechanisms.source import TableSource

SHEETS = "application/vnd.oasis.opendocument.spreadsheet"
NAMES = "".join(
    f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "table", "text")
)
END = (
    '<table:table-row table:number-rows-repeated="1048000">'
    '<table:table-cell table:number-columns-repeated="1024"/></table:table-row>'
)
"""The empty rows to the end of a sheet."""
Cell = tuple[str, str] | str | None


def cell(value: Cell) -> str:
    if value is None:
        return "<table:table-cell/>"
    if isinstance(value, str):
        return f'<table:table-cell office:value-type="string"><text:p>{escape(value)}</text:p></table:table-cell>'
    kind, text = value
    key = {"date": "date-value", "time": "time-value", "boolean": "boolean-value"}.get(
        kind, "value"
    )
    return f'<table:table-cell office:value-type="{kind}" office:{key}="{text}"/>'


def workbook(folder: Path, media: str = SHEETS, **sheets: list[list[Cell]]) -> Path:
    tables = "".join(
        f'<table:table table:name="{name}">'
        + "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in rows)
        + f"{END}</table:table>"
        for name, rows in sheets.items()
    )
    content = f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body>"
    path = folder / "t.ods"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", media)
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
        document = f"<office:document-content{NAMES}>{content}</office:document-content>"
        archive.writestr("content.xml", f'<?xml version="1.0" encoding="UTF-8"?>{document}')
    return path


HEADER: list[Cell] = ["age", "cost", "day", "at", "took", "when", "flag", "word"]
ROWS: list[list[Cell]] = [
    [
        *(("float", "41"), ("currency", "12.5"), ("date", "2024-01-05"), ("time", "PT07H30M00S")),
        *(("time", "PT66H00M05S"), ("date", "2024-01-05T10:20:30"), ("boolean", "true"), "a & b"),
    ],
    [("float", "7"), ("percentage", "13"), None, None, None, None, ("boolean", "false"), " x "],
]


def test_a_table_of_open_document_is_read(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine", reason="the extra 'tables' is not installed")
    path = workbook(tmp_path, Readme=[["About"]], Data=[["Stays"], HEADER, *ROWS])
    table, read_as = read_recognised(path)
    assert read_as == "OpenDocument, sheet 'Data' (1 others left out)"
    assert {name: tuple(values) for name, values in table.columns.items()} == {
        "age": ("41", "7"),
        "cost": ("12.5", "13"),
        "day": ("2024-01-05", ""),
        "at": ("07:30:00", ""),
        "took": ("66:00:05", ""),
        "when": ("2024-01-05T10:20:30", ""),
        "flag": ("True", "False"),
        "word": ("a & b", "x"),
    }
    assert list(table.places) == [3, 4]
    assert "row 1 above the header skipped" in table.notes


def test_sheets_and_lines_of_open_document_are_chosen(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine", reason="the extra 'tables' is not installed")
    path = workbook(tmp_path, one=[HEADER, *ROWS], two=[HEADER, [*HEADER], *ROWS])
    with pytest.raises(DataError, match=r"sheets 'one', 'two' may all be the table.*--sheet"):
        read_text(path)
    source = TableSource(str(path), sheet="two", dialect=Dialect(values_line=3))
    assert list(read_text(source).columns["age"]) == ["41", "7"]


def test_other_documents_and_damaged_ones_are_refused_with_what_would_be_right(
    tmp_path: Path,
) -> None:
    path = workbook(tmp_path, "application/vnd.oasis.opendocument.text")
    path.rename(tmp_path / "t.odt")
    with pytest.raises(DataError, match=r"t\.odt: is no workbook .* save the table as \.ods, \.xl"):
        read_text(tmp_path / "t.odt")
    (tmp_path / "t.xls").write_bytes(b"\xd0\xcf\x11\xe0")
    with pytest.raises(
        DataError, match=r"\.xls is not read here; save it as \.xlsx, \.ods or \.csv"
    ):
        read_text(tmp_path / "t.xls")


def test_a_damaged_workbook_of_open_document_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine", reason="the extra 'tables' is not installed")
    path = workbook(tmp_path, one=[HEADER])
    path.write_bytes(path.read_bytes().replace(b"</office:body>", b"</office:bodx>"))
    with pytest.raises(DataError, match=r"t\.ods.* cannot be read"):
        read_text(path)
