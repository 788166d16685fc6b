"""Reading tables: files of text and others, databases, and how they are written."""

import contextlib
import gzip
import re
import sqlite3
import sys
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mechanisms.dialect import PLAIN, Dialect
from mechanisms.draft import draft_domain
from mechanisms.errors import DataError
from mechanisms.reading import as_text, read_recognised, read_table, read_text
from mechanisms.source import TableSource
from tests.postgres import postgresql

CSV = "age,colour,weight\n7, red,0.5\n\n?,NA,-1.5\n99,,2.5\n"


def write(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_read_table_keeps_text_and_lines(tmp_path: Path) -> None:
    frame = read_table(write(tmp_path, CSV))
    assert list(frame.columns) == ["age", "colour", "weight"]
    assert frame.values.tolist() == [["7", "red", "0.5"], ["?", "NA", "-1.5"], ["99", "", "2.5"]]
    assert list(frame.index) == [2, 4, 5]


def test_read_table_counts_lines_inside_quotes(tmp_path: Path) -> None:
    frame = read_table(write(tmp_path, 'a,b\n"x\ny",1\nz,2\n'))
    assert list(frame.index) == [2, 4]


def test_read_table_reads_gzip_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(("\ufeff" + CSV).encode()))
    assert read_table(path).equals(read_table(write(tmp_path, CSV)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"a,b\n1,2\n3\n", "line 3: 1 values; the header has 2"),
        (b"a,b\n1,2,3\n", "line 2: 3 values"),
        (b"a,a\n1,2\n", "column 'a' appears twice"),
        (b"a,\n1,2\n", "column 2 has no name"),
        (b"a,b\n\x00\x01,2\n", "is not a text table"),
        (b'a,b\n1,"2\n', "after line"),
    ],
)
def test_read_table_says_what_is_wrong_with_a_file(
    tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


DAMAGED = bytearray(gzip.compress(CSV.encode() * 100, mtime=0))
DAMAGED[60] ^= 0xFF


@pytest.mark.parametrize("content", [gzip.compress(CSV.encode(), mtime=0)[:-12], bytes(DAMAGED)])
def test_read_table_refuses_damaged_gzip(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        read_table(path)


def test_read_table_names_the_file_when_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.csv: cannot be read: No such file"):
        read_table(tmp_path / "absent.csv")


CELLS = [["1,5", "x;y"], ["2,25", "ä"], ["-0,125", "€"]]
READ = [["1.5", "x;y"], ["2.25", "ä"], ["-0.125", "€"]]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"]
)
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_read_table_recognises_delimiter_decimal_comma_and_encoding(
    tmp_path: Path, encoding: str, delimiter: str
) -> None:
    text = "".join(f"{number}{delimiter}{name!r}\r\n" for number, name in [("n", "c"), *CELLS])
    path = tmp_path / "table.csv"
    path.write_bytes(text.replace("'", '"').encode(encoding))
    table, said = read_recognised(path)
    frame = table.frame()
    assert list(frame.columns) == ["n", "c"]
    assert frame.values.tolist() == READ
    assert "decimal comma" in said
    assert list(frame.index) == [2, 3, 4]


@pytest.mark.parametrize(
    ("text", "columns", "first"),
    [
        ("a;b\n1;2\n", ["a", "b"], ["1", "2"]),
        ("a\tb c\n1\t2,5\n", ["a", "b c"], ["1", "2.5"]),
        ("a;b\n", ["a", "b"], None),
        ("x\na;b\nc;d\n", ["x"], ["a;b"]),
        ("x;y\nplain\nplain\n", ["x;y"], ["plain"]),
        ("a,b;c\n1,2;3\n2,3;4\n", ["a", "b;c"], ["1", "2;3"]),
        ("'a','b'\n'x, y','2'\n", ["a", "b"], ["x, y", "2"]),
        ("'a';b\n'x';2\n", ["'a'", "b"], ["'x'", "2"]),
        ("a;b\n1,250;x\n2,500;y\n", ["a", "b"], ["1,250", "x"]),
        ("a;b\n0,250;1.000,5\n2,500;2.000,5\n", ["a", "b"], ["0.250", "1000.5"]),
        ("a;b\n1,5;1.5\n2,5;2.5\n", ["a", "b"], ["1,5", "1.5"]),
        ('a,b\n"1,5",2\n', ["a", "b"], ["1,5", "2"]),
        ("a;b\n1,5;first, second\n2;x\n", ["a", "b"], ["1.5", "first, second"]),
        ("a;b;c\n1,5;1.234;x\n2;5.000;y\n", ["a", "b", "c"], ["1.5", "1.234", "x"]),
    ],
)
def test_read_table_reads_what_most_rows_agree_with(
    tmp_path: Path, text: str, columns: list[str], first: list[str] | None
) -> None:
    frame = read_table(write(tmp_path, text))
    assert list(frame.columns) == columns
    assert frame.iloc[:1].values.tolist() == ([] if first is None else [first])


@pytest.mark.parametrize(
    ("text", "dialect", "first"),
    [
        ("a,b\n1;2,3\n", Dialect(delimiter=";"), None),
        ("a;b\n1,250;x\n", Dialect(decimal=","), ["1.250", "x"]),
        ("a;b\n1,5;x\n", Dialect(decimal="."), ["1,5", "x"]),
        ('a,b\n"1,5","1.234"\n', Dialect(decimal=","), ["1.5", "1234"]),
        ("a:b\n1:2\n", Dialect(delimiter=":"), ["1", "2"]),
    ],
)
def test_read_table_does_as_it_is_told(
    tmp_path: Path, text: str, dialect: Dialect, first: list[str] | None
) -> None:
    source = TableSource(str(write(tmp_path, text)), dialect=dialect)
    if first is None:
        with pytest.raises(DataError, match="2 values; the header has 1 columns"):
            read_table(source)
    else:
        assert read_table(source).iloc[0].tolist() == first


def test_read_table_refuses_bytes_that_are_not_of_the_given_encoding(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"a,b\n\xff,2\n")
    with pytest.raises(DataError, match="is not UTF-8 text; give its --encoding"):
        read_table(TableSource(str(path), dialect=Dialect(encoding="utf-8")))
    with pytest.raises(DataError, match=r"table\.csv: is not UTF-8, and its encoding is not clear"):
        read_table(path)
    assert read_table(TableSource(str(path), dialect=Dialect(encoding="cp1252")))["a"].tolist() == [
        "ÿ"
    ]


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Dialect(delimiter=";;"), "one character is needed"),
        (lambda: Dialect(delimiter='"'), "one character"),
        (lambda: Dialect(decimal="'"), "a point or a comma"),
        (lambda: Dialect(encoding="klingon"), "encoding 'klingon' is unknown"),
    ],
)
def test_dialect_is_checked_when_made(build, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DataError, match=says):
        build()


def test_read_table_takes_tabs_by_the_name_of_the_file(tmp_path: Path) -> None:
    assert list(read_table(write(tmp_path, "a,b\tc\n1,2\t3\n", "t.tsv")).columns) == ["a,b", "c"]


def test_read_table_counts_all_lines_of_another_length(tmp_path: Path) -> None:
    text = "a,b\n" + "1,2\n" * 20 + "3\n" * 12
    with pytest.raises(
        DataError, match=r"line 22: 1 values.*\(12 such lines: 22, 23, .*, 31, \.\.\.\)"
    ):
        read_table(write(tmp_path, text))


TYPED = {
    "whole": [1, None, 3],
    "cost": [6588.96, 0.1, float("nan")],
    "exact": [Decimal("1.50"), None, Decimal("2.25")],
    "yes": [True, False, None],
    "name": [" a ", "b", None],
    "day": [date(2024, 3, 5), None, date(2024, 3, 6)],
    "at": [datetime(2024, 3, 5, 10, 0), datetime(2024, 3, 5), None],
    "night": [datetime(2024, 3, 5), None, datetime(2024, 3, 6)],
}
TEXTS = [
    ["1", "6588.96", "1.50", "True", "a", "2024-03-05", "2024-03-05T10:00:00", "2024-03-05"],
    ["", "0.1", "", "False", "b", "", "2024-03-05T00:00:00", ""],
    ["3", "", "2.25", "", "", "2024-03-06", "", "2024-03-06"],
]


def test_read_table_reads_parquet(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="the extra 'tables' is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.table(TYPED), path)
    table, said = read_recognised(path)
    frame = table.frame()
    assert said == "Parquet"
    assert frame.values.tolist() == TEXTS
    assert (frame.index.name, list(frame.index)) == ("row", [1, 2, 3])
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"t\.parquet: cannot be read: ArrowInvalid"):
        read_table(path)


def test_read_table_reads_the_first_sheet_of_excel(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="the extra 'tables' is not installed")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["n", "day", "x", None])
    sheet.append([1, date(2024, 3, 5), 6588.96])
    sheet.append([])
    sheet.append([2, date(2024, 3, 6), None])
    book.create_sheet("other")
    path = tmp_path / "t.xlsx"
    book.save(path)
    table, said = read_recognised(path)
    frame = table.frame()
    assert said == "Excel, sheet 'Sheet' (1 others left out)"
    assert frame.values.tolist() == [["1", "2024-03-05", "6588.96"], ["2", "2024-03-06", ""]]
    assert (frame.index.name, list(frame.index)) == ("row", [2, 4])
    sheet.append([3, None, None, "beyond"])
    book.save(path)
    with pytest.raises(DataError, match="column 4 has no name, and row 5 has a value there"):
        read_table(path)


def test_read_table_asks_a_database(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    path = tmp_path / "stays.db"
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("create table stays (age integer, cost real, ward text)")
        base.executemany("insert into stays values (?, ?, ?)", [(40, 6588.96, "a"), (7, None, "b")])
        base.commit()
    source = TableSource(f"sqlite:///{path}", "select age, cost, ward from stays order by age desc")
    table, said = read_recognised(source)
    frame = table.frame()
    assert said == "a query to a database"
    assert frame.to_dict("list") == {
        "age": ["40", "7"],
        "cost": ["6588.96", ""],
        "ward": ["a", "b"],
    }
    assert source.name == "stays"
    with pytest.raises(DataError, match="no such table: absent"):
        read_table(TableSource(source.location, "select * from absent"))
    with pytest.raises(DataError, match="the query returns no rows; a SELECT is needed"):
        read_table(TableSource(source.location, "create table t (a integer)"))
    nobody = read_table(TableSource(source.location, "select age from stays where age > 100"))
    assert (list(nobody.columns), len(nobody)) == (["age"], 0)


@pytest.fixture
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server of this test's own, with a password."""
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with postgresql() as url:
        yield url


def test_read_table_asks_postgresql(postgres: str) -> None:
    query = (
        "select * from (values (1, 6588.96, date '2024-03-05', true), (2, null, null, false))"
        " as t (n, cost, day, yes)"
    )
    frame = read_table(TableSource(postgres, query))
    assert frame.values.tolist() == [["1", "6588.96", "2024-03-05", "True"], ["2", "", "", "False"]]
    wrong = TableSource(postgres.replace("secret-word", "wrong-word"), query)
    with pytest.raises(DataError, match="cannot be read") as caught:
        read_table(wrong)
    assert "wrong-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "shown", "name"),
    [
        (
            "postgresql://me:pass%21@host:5432/clinic",
            "postgresql://me:***@host:5432/clinic",
            "clinic",
        ),
        ("postgresql://me@host/clinic?password=pass!", "postgresql://me@host/clinic", "clinic"),
        ("postgresql://me:p@ss!@host/clinic", "postgresql://me:***@host/clinic", "clinic"),
        ("sqlite:///stays.db", "sqlite:///stays.db", "stays"),
        ("sqlite://", "sqlite:", "table"),
    ],
)
def test_source_keeps_passwords_out_of_what_is_shown(location: str, shown: str, name: str) -> None:
    source = TableSource(location, "select 1")
    assert (source.shown.rstrip("/"), source.name) == (shown.rstrip("/"), name)
    assert "pass" not in f"{source!r} {source.shown}"
    assert all(secret not in source.shown for secret in source.secrets)
    assert source.place.rstrip("/") == re.sub("//.*@", "//", shown).rstrip("/")
    assert source.beside("x") == Path(f".{source.name}.x")


def test_read_table_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow.parquet", "openpyxl", "python_calamine", "sqlalchemy"):
        monkeypatch.setitem(sys.modules, name, None)
    for source, extra in (
        (tmp_path / "t.parquet", "tables"),
        (tmp_path / "t.xlsx", "tables"),
        (tmp_path / "t.ods", "tables"),
        (TableSource("sqlite://", "select 1"), "sql"),
    ):
        with pytest.raises(DataError, match=rf'pip install "syncret\[{extra}\]"'):
            read_table(source)
    with pytest.raises(DataError, match=r"save it as \.xlsx, \.ods or \.csv"):
        read_table(tmp_path / "t.xls")


def test_as_text_takes_a_frame_of_any_types() -> None:
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in TYPED.items()})
    assert as_text(frame).frame().values.tolist() == TEXTS
    numbers = pd.DataFrame({"n": [1, 2], "x": [0.5, np.nan], "c": pd.Categorical(["a", None])})
    assert as_text(numbers).frame().values.tolist() == [["1", "0.5", "a"], ["2", "", ""]]
    with pytest.raises(DataError, match="a value of type list"):
        as_text(pd.DataFrame({"x": [[1]]}))


def test_as_text_takes_numpys_own_values_and_refuses_two_columns_of_one_name() -> None:
    frame = pd.DataFrame(
        {"n": pd.Series([np.int64(7), np.float64(0.5), np.bool_(True)], dtype=object)}
    )
    assert list(as_text(frame).columns["n"]) == ["7", "0.5", "True"]
    with pytest.raises(DataError, match="'n' appears twice"):
        as_text(pd.concat([frame, frame], axis=1))


def test_as_text_writes_whole_numbers_as_such_where_pandas_made_floats_of_them() -> None:
    frame = pd.DataFrame({"n": [1, None, 3], "x": [1.0, 2.0, 2.5], "big": [1.0, 2.0, 1e300]})
    columns = as_text(frame).columns
    assert {name: list(values) for name, values in columns.items()} == {
        "n": ["1", "", "3"],
        "x": ["1.0", "2.0", "2.5"],
        "big": ["1.0", "2.0", "1e+300"],
    }


def test_read_table_takes_synthetic_tables_for_what_they_are(tmp_path: Path) -> None:
    path = write(tmp_path, "x;y\na;b\nc;d\n")
    assert list(read_table(path).columns) == ["x", "y"]
    assert list(read_table(TableSource(str(path), dialect=PLAIN)).columns) == ["x;y"]


@pytest.mark.parametrize(
    ("last", "left_out"),
    [("Total,60,", True), (",Summe:,60", True), ("Total,,", False), ("north,60,total", False)],
)
def test_a_last_row_of_totals_is_left_out(tmp_path: Path, last: str, left_out: bool) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{'north' if i % 2 else 'south'},{i},{'total' if i == 3 else 'x'}" for i in range(20)]
    path.write_text("\n".join(["area,stays,part", *rows, last]) + "\n")
    table = read_text(path)
    assert len(table) == 20 + (not left_out)
    assert any("a total, left out" in note for note in table.notes) == left_out


def test_one_byte_that_is_not_utf_8_among_many_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = "".join(f"{i},K\u00f6ln\n" for i in range(30))
    path.write_bytes(f"n,city\n{rows}".encode() + "30,K\u00f6ln\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"t\.csv, line 32: a byte is not UTF-8, as the rest"):
        read_text(path)
    told = TableSource(str(path), dialect=Dialect(encoding="latin-1"))
    assert read_text(told).columns["city"][-1] == "K\u00f6ln"
    path.write_bytes(f"n,city\n{rows}".encode("cp1252"))
    assert read_text(path).form.encoding == "cp1252"


@pytest.mark.parametrize("sign", ["~", "^", "\x1f", "¦", "§"])
def test_rare_signs_between_values_are_recognised_where_all_rows_agree(
    tmp_path: Path, sign: str
) -> None:
    path = tmp_path / "t.csv"
    rows = [sign.join(row) for row in (("age", "city", "cost"), *[("41", "Bonn", "1.5")] * 3)]
    path.write_text("\n".join(rows))
    assert [*read_text(path).columns] == ["age", "city", "cost"]
    path.write_text("\n".join([*rows, "42"]))
    assert len(read_text(path).columns) == 1


def test_a_table_of_one_column_that_is_left_out_may_be_several_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["age:city", *(f"{n}:Bonn-{n}" for n in range(300))]))
    with pytest.raises(DataError, match="give --delimiter"):
        draft_domain(path)
