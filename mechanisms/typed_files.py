"""Files of typed tables: Parquet, Feather, JSON, and those of Stata, SPSS and SAS.

``READERS`` has a reader for each kind; ``kind_of`` recognises a kind by a file's first bytes, else by its name. The
table is secret, at its owner. Limits: a table that unpacks to more than memory holds is refused by its declared size.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mechanisms.cell_text import failures, named_table, whole_floats
from mechanisms.errors import DataError
from mechanisms.extras import extra_module
from mechanisms.text_table import TextTable
from mechanisms.unpacking import MAX_BYTES, Content, is_office_file, open_document_type

if TYPE_CHECKING:
    import pandas as pd

TEXT, EXCEL, PARQUET, FEATHER, JSON = "text", "Excel", "Parquet", "Feather", "JSON"
OPEN_DOCUMENT = "OpenDocument"
STATA, SPSS, SAS, SAS_TRANSPORT = "Stata", "SPSS", "SAS", "SAS transport"
_SHEETS = "application/vnd.oasis.opendocument.spreadsheet"
MAX_CELLS = 1 << 30
_MAGIC = (
    (b"PAR1", PARQUET),
    (b"ARROW1", FEATHER),
    (b"FEA1", FEATHER),
    (b"<stata_dta>", STATA),
    (b"$FL2", SPSS),
    (b"$FL3", SPSS),
    (bytes(12) + b"\xc2\xea\x81\x60\xb3\x14\x11\xcf", SAS),
    (b"HEADER RECORD*******LIB", SAS_TRANSPORT),
)
_ENDINGS = {
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".feather": FEATHER,
    ".arrow": FEATHER,
    ".json": JSON,
    ".jsonl": JSON,
    ".ndjson": JSON,
    ".dta": STATA,
    ".sav": SPSS,
    ".zsav": SPSS,
    ".sas7bdat": SAS,
    ".xpt": SAS_TRANSPORT,
    ".xlsx": EXCEL,
    ".xlsm": EXCEL,
    ".ods": OPEN_DOCUMENT,
}
_NEEDS = {
    PARQUET: "pyarrow.parquet",
    FEATHER: "pyarrow.feather",
    EXCEL: "openpyxl",
    OPEN_DOCUMENT: "python_calamine",
    STATA: "pandas",
    SPSS: "pyreadstat",
    SAS: "pandas",
    SAS_TRANSPORT: "pandas",
}
_REFUSED = (
    (b"\xd0\xcf\x11\xe0", "an old workbook (.xls)", "save it as .xlsx, .ods or .csv"),
    (b"SQLite format 3", "a database", "give sqlite:/// and its path, with --sql QUERY"),
    (b"RDX", "R's data", "save the table as .csv or .parquet in R"),
    (b"%PDF", "a PDF", "save the table as .csv or .xlsx"),
    (b"<!DOCTYPE", "a page (HTML)", "save the table as .csv or .xlsx"),
    (b"<html", "a page (HTML)", "save the table as .csv or .xlsx"),
)


def check_installed(path: Path) -> None:
    """Raises ``DataError`` if, by the name, a library is missing or the file cannot be read."""
    if path.suffix.lower() == ".xls":
        raise DataError(f"{path}: .xls is not read here; save it as .xlsx, .ods or .csv")
    if needed := _NEEDS.get(_ENDINGS.get(path.suffix.lower(), TEXT)):
        extra_module(needed, path)


def kind_of(content: Content) -> str:
    """Returns the kind of a file, by its content. Raises ``DataError`` for one without a table, with a remedy."""
    data = content.data
    for magic, what, instead in _REFUSED:
        if data[:64].lstrip().startswith(magic):
            raise DataError(f"{content.where}: is {what}; {instead}")
    if is_office_file(data):
        return _kind_of_office_file(content)
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    start = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"[") and start[1:].lstrip().startswith(b"{"):
        return JSON
    return _ENDINGS.get(Path(content.name).suffix.lower(), TEXT)


def _kind_of_office_file(content: Content) -> str:
    """Returns the kind of a workbook. Raises ``DataError`` for another file of OpenDocument, such as a text."""
    media = open_document_type(content.data)
    if not media:
        return EXCEL
    if media != _SHEETS:
        raise DataError(
            f"{content.where}: is no workbook but {media}; save the table as .ods, .xlsx or .csv"
        )
    return OPEN_DOCUMENT


def _read_parquet(content: Content) -> TextTable:
    arrow = extra_module("pyarrow", content.where)
    parquet = extra_module("pyarrow.parquet", content.where)
    with failures(content.where):
        file = parquet.ParquetFile(arrow.BufferReader(content.data))
        about = file.metadata
        size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        _check_size(content, about.num_rows * about.num_columns, size)
        _check_types(content, file.schema_arrow)
        return _of_arrow(content, file.read())


def _read_feather(content: Content) -> TextTable:
    arrow = extra_module("pyarrow", content.where)
    feather = extra_module("pyarrow.feather", content.where)
    with failures(content.where):
        table = feather.read_table(arrow.BufferReader(content.data))
        _check_size(content, table.num_rows * table.num_columns, table.nbytes)
        _check_types(content, table.schema)
        return _of_arrow(content, table)


def _check_size(content: Content, cells: int, size: int) -> None:
    if cells > MAX_CELLS or size > MAX_BYTES:
        raise DataError(
            f"{content.where}: has {cells:,} cells of {size:,} bytes together; expected at most {MAX_CELLS:,} cells "
            f"and {MAX_BYTES:,} bytes, since a table has to fit into memory"
        )


def _check_types(content: Content, schema: Any) -> None:
    """Raises ``DataError`` that names the first column of a type that no cell has."""
    types = extra_module("pyarrow", content.where).types
    for field in schema:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        bare = any(
            check(kind)
            for check in (types.is_nested, types.is_binary, types.is_large_binary,
                          types.is_fixed_size_binary)
        )  # fmt: skip
        if bare:
            raise DataError(
                f"{content.where}: column {field.name!r} has the type {field.type}; expected text, numbers, dates or "
                "truth values: leave that column out, or make columns of it"
            )


def _of_arrow(content: Content, table: Any) -> TextTable:
    types = extra_module("pyarrow", content.where).types
    columns = []
    for column in table.columns:
        values = column.to_pylist()
        if types.is_float32(column.type) or types.is_float16(column.type):
            values = [None if x is None else np.float32(x) for x in values]
        columns.append(values)
    return named_table(content.where, list(map(str, table.column_names)), columns)


def _read_json(content: Content) -> TextTable:
    """Reads records in a list, or one on each line, by the names of their columns; an absent name is missing."""
    try:
        written = content.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{content.where}: is not UTF-8, which JSON is in") from error
    if written.lstrip().startswith("["):
        records = [("row", i, item) for i, item in enumerate(_parsed(content, written), start=1)]
    else:
        records = [
            ("line", i, _parsed(content, line, i))
            for i, line in enumerate(written.splitlines(), start=1)
            if line.strip()
        ]
    names: dict[str, None] = {}
    for unit, number, record in records:
        if not isinstance(record, dict):
            raise DataError(
                f"{content.where}, {unit} {number}: is no record; expected a list of records such as "
                '[{"age": 41}], or one record on each line'
            )
        names |= dict.fromkeys(record)
        for name, value in record.items():
            if isinstance(value, dict | list):
                raise DataError(
                    f"{content.where}, {unit} {number}, column {name!r}: is a list or a record of its own; expected "
                    "text, a number, true, false or null"
                )
    columns = [[record.get(name) for _, _, record in records] for name in names]
    if not names:
        raise DataError(f"{content.where}: is empty; records are needed")
    return named_table(content.where, list(names), columns)


def _parsed(content: Content, written: str, line: int = 0) -> Any:
    """Returns the value of a JSON text; numbers stay as written. Raises ``DataError``."""

    def record(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise DataError(f"{content.where}: a record has a name twice; names are unique")
        return found

    try:
        return json.loads(
            written,
            object_pairs_hook=record,
            parse_float=str,
            parse_int=str,
            parse_constant=lambda _: None,
        )
    except (ValueError, RecursionError) as error:
        where = f"line {line or getattr(error, 'lineno', 1)}"
        raise DataError(
            f"{content.where}, {where}: is not JSON: {getattr(error, 'msg', error)}; expected a list of records, or "
            "one record on each line"
        ) from error


def _read_stata(content: Content) -> TextTable:
    pandas = extra_module("pandas", content.where)
    with failures(content.where):
        return _of_frame(content, pandas.read_stata(io.BytesIO(content.data)))


def _read_sas(content: Content) -> TextTable:
    return _of_sas(content, "sas7bdat")


def _read_sas_transport(content: Content) -> TextTable:
    return _of_sas(content, "xport")


def _of_sas(content: Content, form: str) -> TextTable:
    pandas = extra_module("pandas", content.where)
    encoding = "infer" if form == "sas7bdat" else "utf-8"
    with failures(content.where):
        file = io.BytesIO(content.data)
        return _of_frame(content, pandas.read_sas(file, format=form, encoding=encoding))


def _read_spss(content: Content) -> TextTable:
    """Reads SPSS data by a library that takes files only, through a file that only this user can read."""
    pyreadstat = extra_module("pyreadstat", content.where)
    with failures(content.where), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.sav"
        path.write_bytes(content.data)
        columns, about = pyreadstat.read_sav(path, output_format="dict")
    labels: Mapping[str, Mapping[object, str]] = about.variable_value_labels
    values: list[Sequence[object]] = [
        whole_floats([labels.get(name, {}).get(value, value) for value in column])
        for name, column in columns.items()
    ]
    return named_table(content.where, list(columns), values)


def _of_frame(content: Content, frame: pd.DataFrame) -> TextTable:
    return named_table(content.where, [str(name) for name in frame], frame_columns(frame))


def frame_columns(frame: pd.DataFrame) -> list[Sequence[object]]:
    """Returns a DataFrame's columns as values; floats that are all whole become whole numbers."""
    columns: list[Sequence[object]] = []
    for _, column in frame.items():
        values = column.astype(object).tolist()
        if str(column.dtype) in ("float32", "Float32", "float16"):
            values = [np.float32(x) if isinstance(x, float) else x for x in values]
        columns.append(whole_floats(values))
    return columns


READERS: Mapping[str, Callable[[Content], TextTable]] = {
    PARQUET: _read_parquet,
    FEATHER: _read_feather,
    JSON: _read_json,
    STATA: _read_stata,
    SPSS: _read_spss,
    SAS: _read_sas,
    SAS_TRANSPORT: _read_sas_transport,
}
