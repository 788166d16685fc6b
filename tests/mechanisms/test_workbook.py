"""Workbooks: which sheet is the table, titles above it, formulas, times."""

from datetime import date, time, timedelta
from pathlib import Path

import pytest

from mechanisms.dialect import Dialect
from mechanisms.errors import DataError
from mechanisms.reading import read_recognised, read_text
from mechanisms.source import TableSource

openpyxl = pytest.importorskip("openpyxl", reason="the extra 'tables' is not installed")

TABLE = [["age", "sex", "day"], [41, "M", date(2024, 1, 5)], [7, "F", date(2024, 2, 5)]]
COLUMNS = {"age": ["41", "7"], "sex": ["M", "F"], "day": ["2024-01-05", "2024-02-05"]}
README = [["This workbook has the stays of 2024."], [None], ["Ask the office."]]


def workbook(folder: Path, **sheets: list[list[object]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    path = folder / "t.xlsx"
    book.save(path)
    return path


def columns_of(source: Path | TableSource) -> dict[str, list[str]]:
    return {name: list(values) for name, values in read_text(source).columns.items()}


def test_read_text_takes_the_sheet_that_is_a_table(tmp_path: Path) -> None:
    path = workbook(tmp_path, Readme=README, Data=TABLE, Empty=[])
    assert columns_of(path) == COLUMNS
    assert read_recognised(path)[1] == "Excel, sheet 'Data' (2 others left out)"


def test_read_text_asks_which_sheet_where_several_are_tables(tmp_path: Path) -> None:
    path = workbook(tmp_path, north=TABLE, south=TABLE[::-1], Readme=README)
    with pytest.raises(DataError, match=r"sheets 'north', 'south' may all be the table; .*--sheet"):
        read_text(path)
    assert columns_of(TableSource(str(path), sheet="north")) == COLUMNS
    with pytest.raises(DataError, match=r"no sheet 'west'; its sheets are 'north', 'south'"):
        read_text(TableSource(str(path), sheet="west"))


def test_read_text_takes_the_sheet_that_is_much_larger(tmp_path: Path) -> None:
    book = [["column", "meaning"], ["age", "years"]]
    path = workbook(tmp_path, codes=book, stays=[TABLE[0], *TABLE[1:] * 50])
    assert len(read_text(path)) == 100


@pytest.mark.parametrize("above", [[["Stays 2024"]], [["Stays"], [], ["of the office", None]]])
@pytest.mark.parametrize("shift", [0, 2])
def test_read_text_skips_a_title_and_empty_columns(
    tmp_path: Path, above: list[list[object]], shift: int
) -> None:
    rows = [[None] * shift + row for row in [*above, *TABLE, [], ["Source: the office"]]]
    path = workbook(tmp_path, stays=rows)
    assert columns_of(path) == COLUMNS
    notes = read_text(path).notes
    assert any("above the header skipped" in note for note in notes)
    assert any("below the table" in note for note in notes)
    told = TableSource(str(path), dialect=Dialect(header_line=len(above) + 1))
    assert columns_of(told) == COLUMNS


def test_read_text_refuses_a_sheet_without_a_header(tmp_path: Path) -> None:
    path = workbook(tmp_path, stays=[[i, *TABLE[1][1:]] for i in range(41, 50)])
    with pytest.raises(
        DataError, match=r"t\.xlsx, sheet 'stays', row 1, column 1: '41' looks like .*--header-line"
    ):
        read_text(path)


QUESTIONS = [
    ["Q1", "Q2", "Q3"],
    ["How old are you now?", "How satisfied were you with us?", "Would you recommend us?"],
    ['{"ImportId":"QID1"}', '{"ImportId":"QID2"}', '{"ImportId":"QID3"}'],
]
ANSWERS = [[18 + i, ["agree", "disagree"][i % 2], ["yes", "no"][i % 3 == 0]] for i in range(20)]


@pytest.mark.parametrize("count", [2, 3])
def test_read_text_skips_questions_below_the_names_where_asked(tmp_path: Path, count: int) -> None:
    path = workbook(tmp_path, survey=[*QUESTIONS[:count], *ANSWERS])
    with pytest.raises(DataError, match=rf"give --values-line {count + 1} if"):
        read_text(path)
    table = read_text(TableSource(str(path), dialect=Dialect(values_line=count + 1)))
    assert list(table.columns["Q1"]) == [str(row[0]) for row in ANSWERS]
    assert table.notes[0] == f"row{'s 2, 3' if count == 3 else ' 2'} below the header skipped"


def test_read_text_counts_blanks_at_the_ends_of_cells(tmp_path: Path) -> None:
    (note,) = read_text(workbook(tmp_path, stays=[*TABLE, [1, " F", None]])).notes
    assert note == "blanks at the ends of cells are dropped, and do not come back: 1 of them"


def test_read_text_reads_times_and_durations(tmp_path: Path) -> None:
    rows = [["at", "took"], [time(7, 30), timedelta(days=2, hours=18)], [time(9), None]]
    path = workbook(tmp_path, stays=rows)
    assert columns_of(path) == {"at": ["07:30:00", "09:00:00"], "took": ["66:00:00", ""]}


def test_read_text_leaves_formulas_out_that_have_no_value(tmp_path: Path) -> None:
    rows = [["age", "twice"], *([i, f"=2*A{i}"] for i in range(2, 9))]
    table = read_text(workbook(tmp_path, stays=rows))
    assert list(table.columns) == ["age"]
    assert table.notes[0].startswith("column 'twice' left out: it has formulas whose values were")
