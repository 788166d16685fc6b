"""Tables of other programs: Feather, Parquet, JSON, Stata, SPSS and SAS."""

import gzip
import json
import sys
from datetime import date, time, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mechanisms import typed_files
from mechanisms.errors import DataError
from mechanisms.reading import read_recognised, read_text

FRAME = pd.DataFrame(
    {
        "age": [41, 7, 30],
        "sex": ["M", "F", None],
        "cost": [12.5, 0.1, None],
        "day": pd.to_datetime(["2024-01-05", "2024-02-05", None]),
        "kids": [1.0, None, 3.0],
    }
)
COLUMNS = {
    "age": ["41", "7", "30"],
    "sex": ["M", "F", ""],
    "cost": ["12.5", "0.1", ""],
    "day": ["2024-01-05", "2024-02-05", ""],
    "kids": ["1", "", "3"],
}


def columns_of(path: Path) -> dict[str, list[str]]:
    return {name: list(values) for name, values in read_text(path).columns.items()}


@pytest.mark.parametrize("name", ["t.feather", "t.dat", "t"])
@pytest.mark.parametrize("compression", ["lz4", "zstd", "uncompressed"])
def test_read_text_reads_feather(tmp_path: Path, name: str, compression: str) -> None:
    feather = pytest.importorskip("pyarrow.feather", reason="the extra 'tables' is not installed")
    path = tmp_path / name
    feather.write_feather(FRAME, str(path), compression=compression)
    assert columns_of(path) == COLUMNS | {"kids": ["1.0", "", "3.0"]}
    assert read_recognised(path)[1] == "Feather"
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert columns_of(path)["age"] == COLUMNS["age"]


def test_read_text_leaves_the_index_of_pandas_out_of_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet", reason="the extra 'tables' is not installed")
    path = tmp_path / "t.parquet"
    FRAME.iloc[[2, 0, 1]].to_parquet(path)
    table = read_text(path)
    assert list(table.columns) == list(FRAME)
    assert table.notes == ("the index, column '__index_level_0__', left out",)


@pytest.mark.parametrize(
    ("values", "kind"),
    [([[1], [2]], "list<"), ([{"x": 1}], "struct<"), ([b"x"], "binary")],
)
def test_read_text_names_the_column_of_a_nested_type(
    tmp_path: Path, values: list[object], kind: str
) -> None:
    arrow = pytest.importorskip("pyarrow", reason="the extra 'tables' is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.table({"a": [1] * len(values), "visits": values}), path)
    with pytest.raises(DataError, match=rf"t\.parquet: column 'visits' has the type {kind}"):
        read_text(path)


def test_read_text_reads_what_arrow_has_besides(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="the extra 'tables' is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(
        arrow.table(
            {
                "single": arrow.array([0.1, None, 2.5], arrow.float32()),
                "named": arrow.array(["x", "y", "x"]).dictionary_encode(),
                "at": arrow.array([time(7, 30), None, time(0)]),
                "took": arrow.array([timedelta(hours=66), timedelta(minutes=-90), None]),
                "day": arrow.array([date(2024, 1, 5), None, date(2024, 1, 6)]),
            }
        ),
        path,
    )
    assert columns_of(path) == {
        "single": ["0.1", "", "2.5"],
        "named": ["x", "y", "x"],
        "at": ["07:30:00", "", "00:00:00"],
        "took": ["66:00:00", "-1:30:00", ""],
        "day": ["2024-01-05", "", "2024-01-06"],
    }


def test_read_text_bounds_tables_that_hardly_take_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="the extra 'tables' is not installed")
    monkeypatch.setattr(typed_files, "MAX_CELLS", 1000)
    for name, write in (("t.parquet", "to_parquet"), ("t.feather", "to_feather")):
        path = tmp_path / name
        getattr(pd.DataFrame({"a": [1] * 600, "b": [1] * 600}), write)(path)
        with pytest.raises(DataError, match=r"has 1,200 cells .* expected at most 1,000"):
            read_text(path)


RECORDS = [{"age": 41, "cost": 1.50, "ok": True}, {"cost": None, "age": 7, "ward": " north "}]
RECORD_COLUMNS = {
    "age": ["41", "7"],
    "cost": ["1.5", ""],
    "ok": ["True", ""],
    "ward": ["", "north"],
}


@pytest.mark.parametrize("name", ["t.json", "t.jsonl", "t.ndjson"])
@pytest.mark.parametrize("lines", [False, True])
def test_read_text_reads_json(tmp_path: Path, name: str, lines: bool) -> None:
    path = tmp_path / name
    text = "\n\n".join(map(json.dumps, RECORDS)) if lines else json.dumps(RECORDS, indent=1)
    path.write_text(text, encoding="utf-8-sig")
    assert columns_of(path) == RECORD_COLUMNS
    assert read_recognised(path)[1] == "JSON"


def test_read_text_keeps_the_spelling_of_numbers_in_json(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text('[{"x": 1.50, "n": 9007199254740993, "m": NaN}, {"x": 2e3, "n": 1, "m": 1}]')
    assert columns_of(path) == {
        "x": ["1.50", "2e3"],
        "n": ["9007199254740993", "1"],
        "m": ["", "1"],
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"a": 1}, {"a": [1]}]', r"t\.json, row 2, column 'a': is a list or a record"),
        ('{"a": 1}\n{"a": {"b": 1}}', r"t\.json, line 2, column 'a': is a list or a record"),
        ('{"a": 1}\n{"a": ', r"t\.json, line 2: is not JSON: Expecting value"),
        ('[{"a": 1},\n{"a" 1}]', r"t\.json, line 2: is not JSON: Expecting ':'"),
        ("[1, 2]", r"t\.json, row 1: is no record"),
        ("[]", r"t\.json: is empty"),
        ('[{"a": 1, "a": 2}]', r"t\.json: a record has a name twice"),
        ("[" * 100_000, r"t\.json, line 1: is not JSON"),
    ],
)
def test_read_text_says_what_is_wrong_with_json(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        read_text(path)


def test_read_text_reads_stata_with_its_labels(tmp_path: Path) -> None:
    frame = FRAME.assign(
        sex=pd.Categorical(["M", "F", None]), cost=FRAME["cost"].astype(np.float32)
    )
    path = tmp_path / "t.dta"
    frame.to_stata(path, write_index=False, convert_dates={"day": "td"})
    assert columns_of(path) == COLUMNS
    assert read_recognised(path)[1] == "Stata"
    path.write_bytes(b"nothing of Stata")
    with pytest.raises(DataError, match=r"t\.dta: cannot be read"):
        read_text(path)


def test_read_text_reads_spss_with_its_labels(tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat", reason="the extra 'statistics' is not installed")
    path = tmp_path / "t.sav"
    pyreadstat.write_sav(
        FRAME[["age", "sex", "cost", "kids"]].assign(sex=[1.0, 2.0, None]),
        str(path),
        variable_value_labels={"sex": {1: "M", 2: "F"}},
    )
    found = columns_of(path)
    assert found == {name: COLUMNS[name] for name in ("age", "sex", "cost", "kids")}


def test_read_text_says_what_other_programs_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pandas", "pyreadstat"):
        monkeypatch.setitem(sys.modules, name, None)
    for ending, module in ((".dta", "pandas"), (".sas7bdat", "pandas"), (".sav", "pyreadstat")):
        with pytest.raises(
            DataError, match=rf'needs {module}.*pip install "syncret\[statistics\]"'
        ):
            read_text(tmp_path / f"t{ending}")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xd0\xcf\x11\xe0 old", r"is an old workbook \(.xls\); save it as .xlsx"),
        (b"SQLite format 3\x00", r"is a database; give sqlite:///"),
        (b"%PDF-1.7", r"is a PDF; save the table"),
        (b"<!DOCTYPE html><table>", r"is a page \(HTML\)"),
        (b"RDX3\nX\n", r"is R's data"),
    ],
)
def test_read_text_says_what_a_file_is_that_it_does_not_read(
    tmp_path: Path, data: bytes, says: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    with pytest.raises(DataError, match=says):
        read_text(path)
